"""Prompts of the PSM's states: the part that all prompts of a mission share, then the state's own words. Pure functions.

The mission builds its prompts here, and the learner builds them again later. A mission may follow another one, and then sees the
conversation so far.

Prompts are fitted to the model's context. Only the model knows how many tokens a text is, and Ollama does not tell before it is asked.
Ollama refuses a prompt that is too long (`truncate: false`), which costs nothing. So a mission begins with all that its bounds allow; each
refusal takes three tenths away, until the prompt fits. The oldest part of the conversation goes first, then passages from memory, the last
first, then the middle of the brief. What tools answered is the matter of the brief. It is shortened where it and the brief take more than
there is room for, and is never left out whole. The limit is recorded, so that a resumed mission asks what it has paid for.

Of a conversation a prompt shows as much as takes about half of the window. These are the earlier turns from one mission on; that mission is
recorded, too. The prompt, the result and the log say what is left out, by bounds as well as by the window.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.image import journal, ledger
from batos.memory.objects import TOOL
from batos.mind import evidence, plans
from batos.mind.brief_analysis import kind_of
from batos.mind.evidence import RecalledPassage, unmarked
from batos.objects import Root

_HEAD = "Earlier in this conversation:"
_CUT = "…"
_NONE = "(none)"
_INSTRUCTIONS = "Instructions for this conversation:\n{words}\n\n"  # a door's first brief of a conversation begins so, too
_INSTRUCTIONS_SHARE = 0.3  # greatest share of the room that instructions take
_GAP = "(Earlier messages of this conversation are left out.)"
_TURN_MARK = "\n[… {count} characters of this message are left out here …]\n"
_COUNTED = 1000  # earlier missions of a conversation of which the characters that are left out are counted
_NEWEST = 2  # the newest turn alone may have so many times the characters of a conversation
_KEPT = 0.75  # share of the bounds from which a conversation grows again, once all of it does not fit
CHARS_A_TOKEN = 2
"""Characters of a conversation for each token of the window that an answer leaves: of a text in Latin letters, about half of the window."""


class ConversationRange(NamedTuple):
    """Earlier turns that a mission's prompts show. Stored as a plain tuple."""

    chars: int
    """Greatest number of characters; the newest turn alone may have `_NEWEST` times as many."""
    untold: int
    """Characters of the turns before them, as far back as `_COUNTED` missions."""
    first: str
    """Id of the oldest mission that is shown; empty: none is."""


class EarlierTalk(NamedTuple):
    """Conversation before a mission, as its prompts show it."""

    text: str = ""
    """All turns as one text."""
    turns: tuple[tuple[str, str], ...] = ()
    """Briefs with their answers, oldest first."""
    missions: tuple[str, ...] = ()
    """Ids of the missions of `turns`."""
    untold: int = 0
    """Characters of earlier turns that are beyond the bounds."""
    gap: bool | None = None
    """True if whole turns are. None: a version that did not tell it began the mission, and its prompts stay as they were."""
    instructions: str = ""
    """Words of the client that hold for the whole conversation."""


def conversation_range(root: Root, mission: Any, *, missions: int, chars: int) -> ConversationRange:
    """Return which earlier turns a new mission's prompts show: all of them, or the newest.

    Where all do not fit the bounds, they begin with the turn with which those of the mission before began, as long as they fit. Once those
    no longer fit, they begin with the newest in three quarters of the bounds. So most follow-ups begin with what the model has read.
    """
    ids, lengths, total, whole = list[str](), list[int](), 0, True
    for earlier in _before(root, mission, missions + 1):
        total += _turn_length(earlier)
        if not chars or len(ids) == missions or (ids and total > chars):
            whole = False
            break
        ids.append(str(earlier.id))
        lengths.append(total)
    if whole:
        return ConversationRange(chars, 0, ids[-1] if ids else "")
    recorded = journal.told_before_of(root, mission.context)
    before = ConversationRange(*recorded) if recorded is not None else ConversationRange(0, 0, "")
    begun = ids.index(before.first) + 1 if before.first in ids else 0
    small = sum(n <= _KEPT * missions and length <= _KEPT * chars for n, length in enumerate(lengths, 1))
    count = max(begun, small, 1) if ids else 0
    untold = 0
    for n, earlier in enumerate(_before(root, mission, _COUNTED), 1):
        if n > count:
            untold += _turn_length(earlier)
        if n >= count and earlier.id == before.first:  # what is before it was counted then
            untold += before.untold
            break
    return ConversationRange(chars, untold, ids[count - 1] if ids else "")


def earlier_talk(root: Root, mission: Any, shown: ConversationRange | None, former: Mapping[str, int]) -> EarlierTalk:
    """Return the conversation before a mission.

    :param shown: earlier turns to show; None: a version that did not record them began the mission, and showed them by `former` bounds.
    """
    instructions = str(getattr(mission, "instructions", ""))  # as it was at a moment before an upgrade, it has none
    if shown is None:
        told_of, text = missions_of_turns(root, mission, **former), conversation_text(root, mission, **former)
        return EarlierTalk(text, conversation_turns(root, mission, **former), told_of, instructions=instructions)
    said: list[tuple[str, str]] = []
    ids: list[str] = []
    for earlier in _before(root, mission, _COUNTED) if shown.first else ():
        ids.append(str(earlier.id))
        said.append((earlier.brief, _answer(earlier) or _NONE))
        if ids[-1] == shown.first:
            break
    untold = shown.untold
    if len(said) == 1:
        length = sum(map(len, said[0]))
        said = [shortened_turn(said[0], _NEWEST * shown.chars)]
        untold += max(0, length - sum(map(len, said[0])))
    turns = tuple(reversed(said))
    lines = [f"User: {brief}\nAnswer: {answer}" for brief, answer in turns]
    text = "\n".join((_HEAD, *lines)) if lines else ""
    return EarlierTalk(text, turns, tuple(reversed(ids)), untold, shown.untold > 0, instructions)


def shortened_turn(turn: tuple[str, str], room: int) -> tuple[str, str]:
    """Return a turn without the middle of its longer parts, so that it has at most `room` characters."""
    brief, answer = turn
    asked = without_middle(brief, max(room // 2, room - len(answer)), _TURN_MARK)
    return asked, without_middle(answer, max(0, room - len(asked)), _TURN_MARK)


def _turn_length(mission: Any) -> int:
    return len(mission.brief) + len(_answer(mission) or _NONE)


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


TOO_LONG = (
    "with all left out that may be it is still longer than what {model} reads at a time. Shorten it, raise inference.window (num_ctx), "
    "or use a model with a longer context (`batos models --fit`)"
)
"""End of the message about a prompt that cannot be made to fit."""
LEAST = 150
"""Least number of characters of a prompt. A script may take three tokens a character, so that these fill a window of 512 tokens."""
_LESS = 0.7  # factor by which a prompt becomes shorter
_MARK = "\n[… {count} characters of the request are left out here: it is longer than can be read at a time …]\n"
_ANSWER_MARK = "\n[… {count} characters of this answer are left out here …]\n"
_TOOLS_SHARE = 0.5  # least share of the room that answers of tools get beside a long brief
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
    brief: str,
    before: str,
    turns: Sequence[tuple[str, str]],
    passages: Sequence[RecalledPassage],
    room: int | None,
    *,
    untold: int = 0,
    gap: bool | None = None,
    instructions: str = "",
) -> PromptParts:
    """Return the parts that fit; where whole turns of the conversation are left out, they say so.

    :param room: limit in characters; None: no limit.
    :param untold: characters of earlier turns that are left out already.
    :param gap: True if whole turns are; None: the parts do not say what is left out of the conversation.
    :param instructions: words of the client that the parts must have: the brief tells them where no turn does.
    """
    if instructions:
        told = fitted_to_window(brief, before, turns, passages, room, untold=untold, gap=gap)
        said = _INSTRUCTIONS.format(words=instructions)
        if said in told.before or any(said in asked for asked, _ in told.turns):
            return told
        if room is not None:
            words = without_middle(instructions, int(_INSTRUCTIONS_SHARE * room))
            told = fitted_to_window(brief, before, turns, passages, room - len(words), untold=untold, gap=gap)
            if words != instructions:
                told = told._replace(left_out=(*told.left_out, ("instructions", len(instructions) - len(words))))
            said = _INSTRUCTIONS.format(words=words)
        return told._replace(brief=f"{said}The user says now:\n{told.brief}")
    if room is None:
        told = PromptParts(brief, before, tuple(turns), tuple(passages), ())
    else:
        told = _fitted(brief, before, turns, passages, room, shortens=gap is not None)
    left = dict(told.left_out)
    gap = gap or (gap is not None and (len(told.turns) < len(turns) or told.before.count("\n") < before.count("\n")))
    if untold:
        left = {"conversation": untold + left.pop("conversation", 0), **left}
    return (_marked(told) if gap else told)._replace(left_out=tuple(left.items()))


def _marked(told: PromptParts) -> PromptParts:
    """Return the parts with the words that earlier turns are left out, before the first one that is not."""
    if told.turns:
        (said, answered), *others = told.turns
        return told._replace(turns=((f"{_GAP}\n\n{said}", answered), *others))
    heading, line, rest = told.before.partition("\n")
    return told._replace(before=f"{heading}\n{_GAP}{line}{rest}" if heading else _GAP)


def _fitted(
    brief: str, before: str, turns: Sequence[tuple[str, str]], passages: Sequence[RecalledPassage], room: int, *, shortens: bool
) -> PromptParts:
    """Return the parts that fit into `room` characters.

    :param shortens: True: of a conversation whose newest turn does not fit, its beginning and its end are shown.
    """
    answers = [one for one in passages if one.origin == TOOL]
    recalled = [one for one in passages if one.origin != TOOL]
    shown = without_middle(brief, room - min(_length(answers), int(_TOOLS_SHARE * room)))
    short = _shortened(answers, room := room - len(shown))
    kept = _first(recalled, room := room - _length(short))
    said = _last(turns, room := room - _length(recalled[:kept]))
    told_turns = tuple(turns[len(turns) - said :])
    if shortens and turns and not said and room >= LEAST:
        told_turns = (shortened_turn(turns[-1], room),)
    lines = _last_lines(before, room - _turns_length(told_turns))
    if shortens and before and not lines and room >= LEAST:
        lines = without_middle(before, room, _TURN_MARK)
    left = {
        "conversation": len(before) - len(lines) + _turns_length(turns) - _turns_length(told_turns),
        "memory": _length(recalled[kept:]),
        "tools": _length(answers) - _length(short),
        "request": len(brief) - len(shown),
    }
    told = tuple((name, count) for name, count in left.items() if count)
    return PromptParts(shown, lines, told_turns, (*short, *recalled[:kept]), told)


def voices_within(voices: Sequence[tuple[str, str]], room: int | None) -> tuple[tuple[str, str], ...]:
    """Return the texts of several personas, each cut to its share of the room."""
    if room is None or not voices:
        return tuple(voices)
    share = max(LEAST, room // len(voices))
    return tuple((name, said if len(said) <= share else f"{said[: share - 1].rstrip()}…") for name, said in voices)


def without_middle(text: str, room: int, mark: str = _MARK) -> str:
    """Return the beginning and the end of a text that is longer than `room` characters, with a mark between that says so."""
    if len(text) <= room:
        return text
    if room <= len(mark):
        return f"{text[: room - 1]}{_CUT}" if room > 0 else ""
    kept = room - len(mark)
    head = int(_HEAD_WINDOW * kept)
    return f"{text[:head]}{mark.format(count=len(text) - kept)}{text[len(text) - (kept - head) :]}"


def _shortened(answers: Sequence[RecalledPassage], room: int) -> list[RecalledPassage]:
    """Return answers of tools, each within its share of the room; what a short one does not need the others get."""
    texts = [one.text for one in answers]
    for left, at in enumerate(sorted(range(len(texts)), key=lambda at: len(texts[at]))):
        texts[at] = without_middle(texts[at], max(0, room) // (len(texts) - left), _ANSWER_MARK)
        room -= len(texts[at])
    return [one._replace(text=text) for one, text in zip(answers, texts, strict=True)]


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
