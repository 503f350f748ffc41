"""Fit what a mission tells a model to the model's context.

Only the model knows how many tokens a text is, and Ollama does not tell before it is asked: it refuses a prompt that is too long
(`truncate: false`), which costs nothing. So a mission begins with all that the settings let it tell; each refusal takes three tenths away,
until it fits. The oldest of the conversation goes first, then passages from memory, the last first, then the middle of the brief. That is
recorded, so that a mission that is taken up again asks what it has paid for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from batos.mind.evidence import Passage

LEAST = 300
"""Characters that are told in any case; a context for which they are too many is none to think with."""
_LESS = 0.7  # of what was told before
_MARK = "\n[… {count} characters of the request are left out here: it is longer than can be read at a time …]\n"
_HEAD = 0.5  # of what is left of a brief is its beginning: what is asked stands at one of both ends


def narrower(told: int, room: int | None) -> int | None:
    """How many characters a mission may tell from now on; None where less would be too little.

    :param told: how many it told, too many.
    :param room: how many it was allowed to tell; None: any number.
    """
    less = int(_LESS * (told if room is None else min(told, room)))
    return less if less >= LEAST else None


class Told(NamedTuple):
    """What prompts of a cycle tell a model beside the state's own words."""

    brief: str
    before: str
    """What was said before, as a text."""
    turns: tuple[tuple[str, str], ...]
    """The same, turn by turn."""
    passages: tuple[Passage, ...]
    left_out: tuple[tuple[str, int], ...]
    """Of what how many characters are not told."""


def fitted(brief: str, before: str, turns: Sequence[tuple[str, str]], passages: Sequence[Passage], room: int | None) -> Told:
    """What there is room for.

    :param room: characters; None: any number.
    """
    if room is None:
        return Told(brief, before, tuple(turns), tuple(passages), ())
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
    return Told(shown, lines, tuple(told_turns), tuple(passages[:kept]), told)


def voices_within(voices: Sequence[tuple[str, str]], room: int | None) -> tuple[tuple[str, str], ...]:
    """What several said, each cut to its share of the room."""
    if room is None or not voices:
        return tuple(voices)
    share = max(LEAST // 2, room // len(voices))
    return tuple((name, said if len(said) <= share else f"{said[: share - 1].rstrip()}…") for name, said in voices)


def _without_middle(brief: str, room: int) -> str:
    if len(brief) <= room:
        return brief
    kept = max(0, room - len(_MARK))
    head = int(_HEAD * kept)
    return f"{brief[:head]}{_MARK.format(count=len(brief) - kept)}{brief[len(brief) - (kept - head) :]}"


def _first(passages: Sequence[Passage], room: int) -> int:
    """How many of the passages have room, from the first on."""
    lengths = itertools.accumulate(len(one.text) for one in passages)
    return sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths))


def _last(turns: Sequence[tuple[str, str]], room: int) -> int:
    """How many turns have room, from the last back."""
    lengths = itertools.accumulate(len(said) + len(answered) for said, answered in reversed(turns))
    return sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths))


def _last_lines(text: str, room: int) -> str:
    """A text without so many of its first lines, but for its heading, that the rest has room; "" where none has."""
    if len(text) <= room:
        return text
    heading, *lines = text.split("\n")
    lengths = itertools.accumulate((len(line) + 1 for line in reversed(lines)), initial=len(heading))
    kept = sum(1 for _ in itertools.takewhile(lambda length: length <= room, lengths)) - 1
    return "\n".join((heading, *lines[len(lines) - kept :])) if kept > 0 else ""


def _length(passages: Sequence[Passage]) -> int:
    return sum(len(one.text) for one in passages)


def _turns_length(turns: Sequence[tuple[str, str]]) -> int:
    return sum(len(said) + len(answered) for said, answered in turns)
