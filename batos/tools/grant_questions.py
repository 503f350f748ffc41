"""Questions that ask a user for leave: the literal payload of one call, or of several, and the grant that an answer makes.

`once` lets only the effect that was asked about. `mission` makes a grant for this tool in this mission, `always` one for this tool with
these arguments. `never` denies the tool. The payload stands between marks that its text cannot imitate, with characters that would not be
seen spelled out.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from batos.image.effects import canonical
from batos.image.grants import ALLOW, DENY, GrantRecord
from batos.tools.definitions import ToolCall
from batos.tools.grant_arguments import CONSTRAINT_CHARS, OTHERS, goes_back
from batos.tools.grants import USER, Permission, describe

ONCE, MISSION, ALWAYS, NEVER, REFUSE = "once", "mission", "always", "never", "no"
ANSWERS = (ONCE, MISSION, ALWAYS, NEVER, REFUSE)
MOST_CALLS = 8
"""Calls in one question."""
_WORDS: Mapping[str, str] = {
    **{answer: answer for answer in ANSWERS},
    **dict.fromkeys(("yes", "y", "ok", "okay", "allow", "sure", "this time", "only once", "just once", "this once", "please"), ONCE),
    **dict.fromkeys(("this mission", "for this mission", "in this mission"), MISSION),
    **dict.fromkeys(("n", "refuse", "not now", "deny", "stop"), REFUSE),
    **dict.fromkeys(("forever", "as shown", "always as shown", "always in this folder", "always for this folder", "always here"), ALWAYS),
}
_YES, _NO = ("yes", "ok", "okay", "sure"), ("no",)
FREE_TEXT = frozenset({
    "text", "body", "content", "contents", "message", "msg", "subject", "title", "note", "notes", "description", "comment", "summary",
    "caption", "prompt", "query", "question", "markdown", "html", "reason",
})  # fmt: skip
"""Last words of names of arguments whose text says what is sent, not where."""
_FOLDERS = frozenset({"path", "file", "filename", "filepath"})
_NAME_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_SHORTEST = 60
_AROUND = " .,!`'\""


class PendingCall(NamedTuple):
    """A call that waits for its user's leave."""

    call: ToolCall
    permission: Permission


def question_text(calls: Sequence[PendingCall], most: int) -> str:
    """Return the question about calls. The same calls make the same question, others another one; the same call made again is another.

    :param calls: at most `MOST_CALLS`, of one mission.
    :param most: characters of the question; what is longer has its middle left out, and says so. At least 500 a call are wanted.
    """
    intro = "May this mission do the following?" if len(calls) == 1 else f"May this mission do these {len(calls)} things?"
    several = "" if len(calls) == 1 else " One answer is for all; or answer each: `1 once, 2 no`."
    outro = f"Say `once`, `mission` (this tool, in this mission), `always` (as shown), `never`, or `no`.{several}"
    share = (most - len(intro) - len(outro) - 8) // max(1, len(calls))
    blocks = [_block(number, pending, share, len(calls) > 1) for number, pending in enumerate(calls, 1)]
    return "\n".join((intro, *blocks, outro))


def _block(number: int, pending: PendingCall, most: int, numbered: bool) -> str:
    call, permission = pending
    payload = call.payload or canonical(call.arguments)
    digest = hashlib.sha256(f"{call.key}{payload}".encode("utf-8", "surrogatepass")).hexdigest()[:8]
    head = f"{f'{number}. ' if numbered else ''}{call.name} [{digest}]"
    made = grant_for(ALWAYS, pending, "")
    why, always = (
        _cut(permission.reason, max(_SHORTEST, most // 4)),
        "" if made is None else _cut(describe(made._replace(origin=USER)), max(_SHORTEST, most // 4)),
    )
    left = max(_SHORTEST, most - len(head) - len(why) - len(always) - 40)
    lines = [head, *_quoted(payload, left), f"  why it asks: {why}"]
    return "\n".join([*lines, f"  always would: {always}"] if always else lines)


def _quoted(payload: str, most: int) -> list[str]:
    lines = [f"  | {visible(line)}" for line in payload.split("\n")]
    shown = "\n".join(lines)
    if len(shown) <= most:
        return lines
    note = f"\n  (of {len(payload)} characters, those in the middle are left out)\n  | "
    room = max(2, most - len(note))
    return [shown[: room * 2 // 3] + note + shown[-(room // 3) :]]


def visible(text: str) -> str:
    """Return a text of one line in which each character that would not be seen, or would reorder others, is spelled out."""
    return "".join(f"\\u{{{ord(char):x}}}" if unicodedata.category(char) in _UNSEEN else char for char in text)


def _cut(text: str, most: int) -> str:
    text = visible(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def read_answers(text: str, count: int) -> tuple[str, ...] | None:
    """Return the answer to each of the calls of a question, one of `ANSWERS`. None if the text is not an answer to all calls."""
    text = " ".join(text.casefold().split())
    if word := _read(text):
        return (word,) * count
    found: dict[int, str] = {}
    for part in re.split(r"[,;]", text):
        each = re.fullmatch(r"(\d{1,3})\s*[:.)=]?\s*(.+)", part.strip())
        answer = "" if each is None else _read(each[2])
        if each is None or not answer or int(each[1]) in found:
            return None
        found[int(each[1])] = answer
    return tuple(found[number] for number in range(1, count + 1)) if found.keys() == set(range(1, count + 1)) else None


def _read(text: str) -> str:
    """Return the answer that words give, one of `ANSWERS`; "" if they give none, or two that differ. "Yes, always in this folder" is
    `always`: a grant is never broader than was shown."""
    text = text.strip(_AROUND)
    first, _, rest = text.partition(" ")
    if not (rest and (first := first.strip(_AROUND)) in (*_YES, *_NO)):
        return _WORDS.get(text, "")
    answer = _WORDS.get(rest.strip(_AROUND), "")
    return answer if (answer in (NEVER, REFUSE)) == (first in _NO) else ""


def grant_for(answer: str, pending: PendingCall, mission: str) -> GrantRecord | None:
    """Return the grant that an answer makes, without an id; None where it makes none, or one too long to be kept.

    A call that was asked about for the mission's marks gets a grant that allows leaks only with the same arguments, also for
    `mission`.

    :param mission: id of the mission that asked.
    """
    call, leak = pending.call, pending.permission.leak
    made = GrantRecord(0, ALLOW, call.name, origin=f"answer to mission {mission}")
    if answer == NEVER:
        return made._replace(verdict=DENY)
    if answer not in (MISSION, ALWAYS):
        return None
    narrow = answer == ALWAYS or leak
    args = narrowed(call.arguments) if narrow else ""
    if narrow and len(args) > CONSTRAINT_CHARS:
        return None
    return made._replace(mission=mission if answer == MISSION else "", args=args, leaks=leak)


def narrowed(arguments: Mapping[str, Any]) -> str:
    """Return constraints that let the same call again with other texts. Free text may vary, a file may be another one of its folder, all
    else stays as it is, and nothing is added."""
    found = {name: _narrow(name, value) for name, value in arguments.items()}
    return canonical({**found, OTHERS: False})


def last_word(name: str) -> str:
    """Return the last word of an argument's name, in small letters: `body` of `messageBody`; "" of a name without letters."""
    words: list[str] = _NAME_PARTS.findall(name)
    return words[-1].casefold() if words else ""


def _narrow(name: str, value: Any) -> Any:
    word = last_word(name)
    if isinstance(value, str) and word in FREE_TEXT:
        return {"type": "string"}
    if isinstance(value, str) and word in _FOLDERS:
        folder, _, file = value.rpartition("/")
        if folder and file and "*" not in folder and not goes_back(value):
            return f"{folder}/*"
    return {"const": value}
