"""Prompts of the PSM's states: the part that all prompts of a mission share, then the state's own words. Pure functions.

The mission builds its prompts here, and the learner builds them again later. A mission may follow another one, and then sees the
conversation so far.

Prompts are fitted to the model's context. Only the model knows how many tokens a text is, and Ollama does not tell before it is asked: it
refuses a prompt that is too long (`truncate: false`), which costs nothing. So a mission begins with all that the settings allow; each
refusal takes three tenths away, until the prompt fits. The oldest part of the conversation goes first, then passages from memory, the
last first, then the middle of the brief. The limit is recorded, so that a resumed mission asks what it has paid for.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from batos.image import ledger
from batos.mind import evidence, plans
from batos.mind.brief_analysis import kind_of
from batos.mind.evidence import RecalledPassage, unmarked
from batos.objects import Root

_HEAD = "Earlier in this conversation:"
_CUT = "…"
_NONE = "(none)"


def conversation_text(root: Root, mission: Any, *, missions: int, chars: int) -> str:
    """Return the conversation before a mission, oldest first, as a text for its prompts; "" if it follows none.

    :param missions: maximum number of earlier missions.
    :param chars: maximum characters; the newest go first, and the last that fits in part is cut.
    """
    said: list[str] = []
    left = chars
    for earlier in _before(root, mission, missions):
        if left <= 0:
            break
        text = f"User: {earlier.brief}\nAnswer: {_answer(earlier) or _NONE}"
        said.append(text if len(text) <= left else text[: max(0, left - 1)] + _CUT)
        left -= len(text)
    return "\n".join((_HEAD, *reversed(said))) if said else ""


def conversation_turns(root: Root, mission: Any, *, missions: int, chars: int) -> tuple[tuple[str, str], ...]:
    """Return the conversation before a mission as turns of a chat: briefs with their answers, oldest first.

    The bounds are those of `conversation_text`, but each turn is whole, and the newest is always included. So a follow-up's prompt
    begins with that of the turn before it, which the model has read already.
    """
    return tuple((earlier.brief, answer) for earlier, answer in _turns(root, mission, missions, chars))


def missions_of_turns(root: Root, mission: Any, *, missions: int, chars: int) -> tuple[str, ...]:
    """Return the ids of the missions that `turns` tells of, in its order."""
    return tuple(str(earlier.id) for earlier, _ in _turns(root, mission, missions, chars))


def _turns(root: Root, mission: Any, missions: int, chars: int) -> list[tuple[Any, str]]:
    """Return earlier missions with their answers, the oldest first."""
    said: list[tuple[Any, str]] = []
    left = chars
    for earlier in _before(root, mission, missions):
        answer = _answer(earlier) or _NONE
        left -= len(earlier.brief) + len(answer)
        if left < 0 and said:
            break
        said.append((earlier, answer))
    return said[::-1]


def is_deep_before(root: Root, mission: Any) -> bool:
    """Return True if the mission that this one follows was thought about in several ways; without a result, if its brief asks for that."""
    earlier = next(_before(root, mission, 1), None)
    if earlier is None:
        return False
    result = json.loads(earlier.result) if not isinstance(earlier, ledger.Line) and earlier.result else {}
    return bool(result["facets"]) if "facets" in result else bool(kind_of(earlier.brief)[0])


def _before(root: Root, mission: Any, limit: int) -> Iterator[Any]:
    """Yield the missions that one follows, the last first."""
    seen, before = {mission.id}, mission.context
    while before is not None and before not in seen and len(seen) <= limit:
        seen.add(before)
        if (line := ledger.line_of(root, before)) is not None:  # only its beginning is known, and no earlier turn
            yield line
            return
        earlier = ledger.mission_of(root, before)
        yield earlier
        before = earlier.context


def with_brief(conversation: str, brief: str) -> str:
    """Return a brief as the prompts of a follow-up show it."""
    return f"{conversation}\n\nNow the user says: {brief}" if conversation else brief


def _answer(mission: Any) -> str:
    if isinstance(mission, ledger.Line):
        return mission.came if mission.state == ledger.COMPLETE else ""
    if mission.state != ledger.COMPLETE or not mission.result:
        return ""
    result = json.loads(mission.result)
    text = str(result.get("text", ""))
    return unmarked(text) if result.get("citations") else text


EARLIER = {
    "Request: $brief\n\n$intent\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.": "$intent\n\nThe request is: "
    "$brief\n\nWork on this part of it: $query\n\nAnswer in at most five sentences.",
}
"""Present words of a state -> its words in version 0.1.0. Images with the old words get the new ones; a mission that began with the old
words keeps them.
"""


def brief_text(before: str, brief: str, asked: Sequence[str] = ()) -> str:
    """Return a brief as in a prompt.

    :param before: conversation so far, as a text; "" if it is given as turns, or there is none.
    :param asked: questions to the user with his answers; empty if there are none.
    """
    text = with_brief(before, brief)
    return f"{text}\n\nThe user was asked: {asked[0]}\nThe user said: {asked[1]}" if asked else text


def filled(
    own: str, brief: str, evidence_prompt: str, found: Sequence[evidence.RecalledPassage], *, earlier: bool = False, **values: str
) -> str:
    """Return a prompt: passages and brief, which are the same in all prompts of a mission, then the state's words.

    Ollama keeps what it has read of a prompt up to the first difference, so that a model reads the shared part once.

    :param own: the state's words, with `$brief` in the place of the brief.
    :param earlier: use the order of version 0.1.0, which had the passages at the end.
    """
    if earlier:
        shown = f"\n\n{evidence.shown(evidence_prompt, found)}" if found else ""
        return plans.fill(EARLIER.get(own, own), brief=brief, **values) + shown
    passages, rule = evidence.told_apart(evidence_prompt)
    head = f"{evidence.shown(passages, found)}\n\n" if found else ""
    return head + plans.fill(own, brief=brief, **values) + (f"\n\n{rule}" if found and rule else "")


LEAST = 300
"""Least number of characters of a prompt; a smaller context is useless."""
_LESS = 0.7  # factor by which a prompt becomes shorter
_MARK = "\n[… {count} characters of the request are left out here: it is longer than can be read at a time …]\n"
_HEAD_WINDOW = 0.5  # share of a shortened brief that is its beginning: the request is at the beginning or at the end


def narrower(told: int, room: int | None) -> int | None:
    """Return the new limit of characters for a mission; None if it would be too small.

    :param told: characters used, too many.
    :param room: previous limit; None: no limit.
    """
    less = int(_LESS * (told if room is None else min(told, room)))
    return less if less >= LEAST else None


class PromptParts(NamedTuple):
    """Parts of a cycle's prompts beside the state's own words."""

    brief: str
    before: str
    """Earlier turns as one text."""
    turns: tuple[tuple[str, str], ...]
    """Earlier turns, one by one."""
    passages: tuple[RecalledPassage, ...]
    left_out: tuple[tuple[str, int], ...]
    """Names of shortened parts, each with the number of omitted characters."""


def fitted_to_window(
    brief: str, before: str, turns: Sequence[tuple[str, str]], passages: Sequence[RecalledPassage], room: int | None
) -> PromptParts:
    """Return the parts that fit.

    :param room: limit in characters; None: no limit.
    """
    if room is None:
        return PromptParts(brief, before, tuple(turns), tuple(passages), ())
    shown = _without_middle(brief, room)
    kept = _first(passages, room := room - len(shown))
    said = _last(turns, room := room - _length(passages[:kept]))
    told_turns = turns[len(turns) - said :]
    lines = _last_lines(before, room - _turns_length(told_turns))
    left = {
        "conversation": len(before) - len(lines) + _turns_length(turns) - _turns_length(told_turns),
        "memory": _length(passages[kept:]),
        "request": len(brief) - len(shown),
    }
    told = tuple((name, count) for name, count in left.items() if count)
    return PromptParts(shown, lines, tuple(told_turns), tuple(passages[:kept]), told)


def voices_within(voices: Sequence[tuple[str, str]], room: int | None) -> tuple[tuple[str, str], ...]:
    """Return the texts of several personas, each cut to its share of the room."""
    if room is None or not voices:
        return tuple(voices)
    share = max(LEAST // 2, room // len(voices))
    return tuple((name, said if len(said) <= share else f"{said[: share - 1].rstrip()}…") for name, said in voices)


def _without_middle(brief: str, room: int) -> str:
    if len(brief) <= room:
        return brief
    kept = max(0, room - len(_MARK))
    head = int(_HEAD_WINDOW * kept)
    return f"{brief[:head]}{_MARK.format(count=len(brief) - kept)}{brief[len(brief) - (kept - head) :]}"


def _first(passages: Sequence[RecalledPassage], room: int) -> int:
    """Return how many passages fit, from the first on."""
    lengths = itertools.accumulate(len(one.text) for one in passages)
    return sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths))


def _last(turns: Sequence[tuple[str, str]], room: int) -> int:
    """Return how many turns fit, from the last back."""
    lengths = itertools.accumulate(len(said) + len(answered) for said, answered in reversed(turns))
    return sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths))


def _last_lines(text: str, room: int) -> str:
    """Return a text without its first lines, except its heading, so that the rest fits; "" if nothing fits."""
    if len(text) <= room:
        return text
    heading, *lines = text.split("\n")
    lengths = itertools.accumulate((len(line) + 1 for line in reversed(lines)), initial=len(heading))
    kept = sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths)) - 1
    return "\n".join((heading, *lines[len(lines) - kept :])) if kept > 0 else ""


def _length(passages: Sequence[RecalledPassage]) -> int:
    return sum(len(one.text) for one in passages)


def _turns_length(turns: Sequence[tuple[str, str]]) -> int:
    return sum(len(said) + len(answered) for said, answered in turns)
