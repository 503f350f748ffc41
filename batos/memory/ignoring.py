"""What a folder says is not to be read: patterns as in `.gitignore`, of such files in it and of its user. See gitignore(5).

Matched by hand and not by expressions: a folder may be anybody's, and a pattern of many stars would take for ever.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

FILE = ".gitignore"
_BYTES = 1 << 18  # of one such file, at most
_RULES = 10_000
_STARS = "**"

_Token = str | None | frozenset[str] | tuple[frozenset[str]]
"""A character, empty for any (`?`), None for any number of them (`*`), a set of which one must be, or in a tuple one of which none must."""
_ONE = ""


class Rule(NamedTuple):
    """One pattern: its segments, whether it takes back what others leave out, is for folders only, and is bound to where it stands."""

    segments: tuple[tuple[_Token, ...] | str, ...]
    negated: bool
    folders: bool
    bound: bool


class Rules:
    """The patterns of one place."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in list(lines)[:_RULES] if (rule := _rule(line)) is not None]
        self.says = functools.lru_cache(maxsize=1 << 16)(self._says)  # a watched folder is looked through again and again
        """Whether a path below the place is left out; None where no pattern is about it. `path` is relative, with `/`."""

    def _says(self, path: str, folder: bool) -> bool | None:
        segments = path.split("/")
        for rule in reversed(self._rules):
            if (folder or not rule.folders) and _fits(rule, segments):
                return not rule.negated
        return None


@functools.lru_cache(maxsize=1024)
def _read(path: str, changed: int, size: int) -> Rules:
    try:
        with open(path, "rb") as file:
            return Rules(file.read(_BYTES).decode("utf-8", "replace").splitlines())
    except OSError:
        return Rules(())


class Ignored:
    """Which paths in a folder are left out. Folders are to be asked for before what is in them."""

    def __init__(self, exclude: Sequence[str] = ()) -> None:
        """
        :param exclude: patterns of the user, which go before those of files.
        """
        self._own = _of(tuple(exclude))
        self._places: list[tuple[str, Rules]] = []

    def enter(self, place: str, listed: Iterable[str]) -> None:
        """Heed what a folder says of itself.

        :param place: relative to the folder that is read, with `/`; empty for that itself.
        :param listed: the names in it.
        """
        self._places = [(known, rules) for known, rules in self._places if not known or place == known or place.startswith(f"{known}/")]
        if FILE in listed:
            path = os.path.join(self.root, place, FILE)
            try:
                about = os.stat(path)
            except OSError:
                return
            self._places.append((place, _read(path, about.st_mtime_ns, about.st_size)))

    root = ""
    """The folder that is read."""

    def leaves_out(self, path: str, *, folder: bool) -> bool:
        """Whether a path is left out."""
        said = self._own.says(path, folder)
        for place, rules in reversed(self._places):
            if said is not None:
                break
            said = rules.says(path[len(place) + 1 :] if place else path, folder)
        return bool(said)


@functools.lru_cache(maxsize=64)
def _of(lines: tuple[str, ...]) -> Rules:
    return Rules(lines)


# --- patterns


def _rule(line: str) -> Rule | None:
    text = line.rstrip("\n\r")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    folders = text.endswith("/")
    text = text[:-1] if folders else text
    bound = "/" in text
    parts = [part for part in text.split("/") if part]
    if not parts:
        return None
    return Rule(tuple(part if part == _STARS else tuple(_tokens(part)) for part in parts), negated, folders, bound)


def _tokens(part: str) -> Iterator[_Token]:
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            yield None
        elif char == "?":
            yield _ONE
        elif char == "\\" and at < len(part):
            yield part[at]
            at += 1
        elif char == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in ("!", "^")))) > 0:
            negated = part[at] in "!^"
            chosen = frozenset(_chosen(part[at + negated : end]))
            yield (chosen,) if negated else chosen
            at = end + 1
        else:
            yield char


def _chosen(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        if text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            yield from map(chr, range(ord(text[at]), min(ord(text[at + 2]), ord(text[at]) + 0x10000) + 1))
            at += 3
        else:
            yield text[at]
            at += 1


def _fits(rule: Rule, segments: Sequence[str]) -> bool:
    """Whether a pattern is about a path: all of it where it is bound, else its last name."""
    if not rule.bound:
        return _segment_fits(rule.segments[0], segments[-1])
    return _way_fits(rule.segments, segments)


def _way_fits(pattern: Sequence[tuple[_Token, ...] | str], segments: Sequence[str]) -> bool:
    at = seen = 0
    star, held = -1, 0
    while seen < len(segments):
        if at < len(pattern) and pattern[at] == _STARS:
            star, held = at, seen
            at += 1
        elif at < len(pattern) and _segment_fits(pattern[at], segments[seen]):
            at, seen = at + 1, seen + 1
        elif star >= 0:
            held += 1
            at, seen = star + 1, held
        else:
            return False
    if at == len(pattern) and star == len(pattern) - 1:
        return len(segments) > len(pattern) - 1  # `a/**` is all in a, and not a
    return at == len(pattern)


def _segment_fits(pattern: tuple[_Token, ...] | str, name: str) -> bool:
    if pattern == _STARS:
        return True
    at = seen = 0
    star, held = -1, 0
    while seen < len(name):
        if at < len(pattern) and pattern[at] is None:
            star, held = at, seen
            at += 1
        elif at < len(pattern) and _char_fits(pattern[at], name[seen]):
            at, seen = at + 1, seen + 1
        elif star >= 0:
            held += 1
            at, seen = star + 1, held
        else:
            return False
    return all(token is None for token in pattern[at:])


def _char_fits(token: _Token, char: str) -> bool:
    if isinstance(token, str):
        return token in (_ONE, char)
    return char not in token[0] if isinstance(token, tuple) else token is not None and char in token
