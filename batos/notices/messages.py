"""Words of a message: one notice as it is, or many in one. What comes from outside never stands at the beginning of a title or text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from batos.image.notice_channels import CHANGE, DOUBT, END, FAILURE, QUESTION, SCHEDULE
from batos.image.notices import Notice

TEST = "test"
"""Fact of a message that a user asked for, to see whether it arrives."""
LINES = 20
"""Notices that a message names one by one."""
_LINE_CHARS = 160
_REPEATED = "Perhaps told before: "
_FIRST = {QUESTION: 0, DOUBT: 1, FAILURE: 2, SCHEDULE: 3, CHANGE: 4, END: 5}
_COUNTED = {
    QUESTION: ("question", "questions"), DOUBT: ("doubt", "doubts"), FAILURE: ("failed", "failed"), SCHEDULE: ("schedule", "schedules"),
    CHANGE: ("change", "changes"), END: ("done", "done"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageWords:
    """Words that are sent. `title` is one line; neither it nor `text` begins with a dash, which a program would take as an option."""

    title: str
    text: str
    link: str
    """page that tells more, or takes the answer to a question; empty where no pages are served"""
    fact: str
    """the fact that it reports, or `many`"""
    mission: str
    """the mission that it is about; empty if there is none, or more than one"""
    notices: tuple[dict[str, str], ...]
    """each of the first ones, with `fact`, `subject` and `title`"""

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> MessageWords:
        """Return the words of which `to_json` was the form."""
        held = json.loads(text)
        return cls(**{**held, "notices": tuple(held["notices"])})

    def repeated(self) -> MessageWords:
        """Return the words of a message that may have arrived before; they say so."""
        return MessageWords(_REPEATED + self.title, self.text, self.link, self.fact, self.mission, self.notices)


def words_of(notices: Sequence[Notice], more: int, base: str) -> MessageWords:
    """Return the words that tell some notices.

    :param more: number of notices that found no room.
    :param base: address of the pages of this daemon; empty if it serves none.
    """
    if len(notices) == 1 and not more:
        return _single(notices[0], base)
    ordered = sorted(notices, key=lambda one: (_FIRST.get(one.fact, 9), one.at))
    counts = Counter(one.fact for one in ordered)
    told = [f"{count} {_COUNTED[fact][count > 1]}" for fact, count in sorted(counts.items(), key=lambda one: _FIRST.get(one[0], 9))]
    title = f"{len(notices) + more} notices: {', '.join(told)}"
    lines = [_bounded(f"* {one.title}{_answering(one)}") for one in ordered[:LINES]]
    if left := len(notices) + more - len(lines):
        lines.append(f"and {left} more; `batos missions` lists the missions")
    first = tuple({"fact": one.fact, "subject": one.subject, "title": one.title} for one in ordered[:LINES])
    return MessageWords(title, "\n".join(lines), base and f"{base}/", "many", "", first)


def words_of_test(name: str, base: str) -> MessageWords:
    """Return the words of a message that only tries a channel."""
    text = f"The channel {name} works. `batos notices` lists what it tells."
    return MessageWords("A test of BAT OS", text, base and f"{base}/", TEST, "", ())


def _single(one: Notice, base: str) -> MessageWords:
    is_mission = one.fact in (QUESTION, DOUBT, FAILURE, END)
    link = ""
    if base:
        link = f"{base}/mission?id={quote(one.subject, safe='')}" if is_mission else f"{base}/"
        link = f"{base}/change?number={quote(one.subject, safe='')}" if one.fact == CHANGE else link
    text = f" {one.text}" if one.text.startswith("-") else one.text
    if one.fact in (QUESTION, DOUBT):
        how = f"answer it at {link} or with" if link else "answer it with"
        text = f"{text}\n\n{how} `batos answer {one.subject}`".lstrip("\n")
    told = ({"fact": one.fact, "subject": one.subject, "title": one.title},)
    return MessageWords(one.title, text or one.title, link, one.fact, one.subject if is_mission else "", told)


def _answering(one: Notice) -> str:
    return f" (`batos answer {one.subject}`)" if one.fact in (QUESTION, DOUBT) else ""


def _bounded(line: str) -> str:
    return line if len(line) <= _LINE_CHARS else f"{line[: _LINE_CHARS - 1]}…"


def payload(words: MessageWords, key: str, at: float, *, repeats: bool) -> dict[str, Any]:
    """Return what a hook is sent."""
    told = words.repeated() if repeats else words
    return {"source": "batos", "key": key, "at": round(at, 3), "repeated": repeats, **asdict(told), "notices": list(told.notices)}
