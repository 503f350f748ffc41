"""JSON in what a model wrote: found between other words, and closed where only its end is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from batos.bridge.text import strip_fences
from batos.bridge.thoughts import without_thought

_CLOSERS = {"{": "}", "[": "]"}
_DECODER = json.JSONDecoder(parse_constant=lambda name: _refuse(name))


def values(text: str) -> Iterator[tuple[Any, str]]:
    """What a model's text may mean as JSON, likeliest first, each with what had to be done to read it (empty: nothing).

    The whole text; without thought and fence; its first object or array, whatever stands around it; the same closed at the end.
    """
    seen: list[Any] = []
    for repair, found in _read(text):
        for value in found:
            if value not in seen:
                seen.append(value)
                yield value, repair


def _read(text: str) -> Iterator[tuple[str, list[Any]]]:
    # One after the other: of nearly all texts the first is taken.
    yield "", _whole(text)
    bare = without_thought(text)[0].strip()
    yield "thought", _whole(bare)
    fenced = strip_fences(bare)
    yield "fence", _whole(fenced)
    yield "surroundings", _first(fenced)
    yield "surroundings", _first(bare)
    yield "end", _closed(fenced)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _sound(value: Any) -> Any:
    """The value, if it can be written as UTF-8: half a surrogate pair cannot, and neither the image nor the wire take it."""
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _whole(text: str) -> list[Any]:
    try:
        return [_sound(json.loads(text, parse_constant=_refuse))]
    except (ValueError, RecursionError):  # RecursionError: brackets without end
        return []


def _first(text: str) -> list[Any]:
    """The first object or array that stands anywhere in a text."""
    for at, letter in enumerate(text):
        if letter in _CLOSERS:
            try:
                return [_sound(_DECODER.raw_decode(text, at)[0])]
            except ValueError:
                continue
            except RecursionError:
                return []
    return []


def _closed(text: str) -> list[Any]:
    """A text that breaks off, with the missing brackets added, if every value in it is whole.

    Half a string or a number that might have gone on is no value: to guess its end would be to answer in the model's place.
    """
    at = min((i for i in (text.find("{"), text.find("[")) if i >= 0), default=-1)
    if at < 0:
        return []
    text, open_, in_string, escaped = text[at:].rstrip(), [], False, False
    for letter in text:
        if in_string:
            in_string, escaped = escaped or letter != '"', letter == "\\" and not escaped
        elif letter == '"':
            in_string = True
        elif letter in _CLOSERS:
            open_.append(_CLOSERS[letter])
        elif open_ and letter == open_[-1]:
            open_.pop()
    if in_string or not open_ or text[-1].isdigit():
        return []
    return _whole(text.removesuffix(",") + "".join(reversed(open_)))
