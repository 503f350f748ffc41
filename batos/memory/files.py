"""Files to be read into the memory: listing of a folder, ignore patterns, bytes, and a fingerprint that shows changes.

Ignore patterns work as in gitignore(5): from such files in the folder, and from the user. They are matched by hand and not by regular
expressions. A folder may come from anyone, and a pattern of many stars would take for ever.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import pathlib
import re
import stat
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batos.errors import Unreadable, UnreadableNow
from batos.image.daemon_files import DaemonFiles
from batos.memory import readers

FILE = ".gitignore"
_BYTES = 1 << 18  # greatest size of an ignore file
_RULES = 10_000
_STARS = "**"

_Token = str | None | frozenset[str] | tuple[frozenset[str]]
"""One element of a pattern:

* a character;
* empty for any one character (`?`);
* None for any number of characters (`*`);
* a set of allowed characters;
* a tuple with a set of forbidden characters.
"""
_ONE = ""
_CLASSES = {
    "alpha": string.ascii_letters, "digit": string.digits, "alnum": string.ascii_letters + string.digits, "upper": string.ascii_uppercase,
    "lower": string.ascii_lowercase, "space": string.whitespace, "blank": " \t", "punct": string.punctuation, "xdigit": string.hexdigits,
}  # fmt: skip
_CLASS = re.compile(rf"\[:({'|'.join(_CLASSES)}):\]")
"""Matches a class of characters that has a name, in a set."""
_SET = re.compile(rf"[!^]?+\]?+(?:{_CLASS.pattern.replace('(', '(?:')}|[^\]]){{0,255}}+\]")
"""Matches a set behind its opening bracket. A closing bracket in the first place is a character."""


class IgnoreRule(NamedTuple):
    """One pattern: its segments, whether it takes back what others leave out, is for folders only, and is bound to where it stands."""

    segments: tuple[tuple[_Token, ...] | str, ...]
    negated: bool
    folders: bool
    bound: bool


class IgnoreRules:
    """The patterns of one place."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._rules = [rule for line in list(lines)[:_RULES] if (rule := _rule(line)) is not None]
        self.says = functools.lru_cache(maxsize=1 << 16)(self._says)  # cached: the daemon looks through a watched folder again and again
        """Returns True if the patterns exclude a path, False if they include it, None if none of them matches. `path` is relative, with
        `/`.
        """

    def _says(self, path: str, folder: bool) -> bool | None:
        segments = path.split("/")
        for rule in reversed(self._rules):
            if (folder or not rule.folders) and _fits(rule, segments):
                return not rule.negated
        return None


@functools.lru_cache(maxsize=1024)
def _read(path: str, changed: int, size: int) -> IgnoreRules:
    try:
        with open(path, "rb") as file:
            return IgnoreRules(file.read(_BYTES).decode("utf-8-sig", "replace").split("\n"))
    except OSError:
        return IgnoreRules(())


class Ignored:
    """Ignore patterns of a folder. Ask for folders before their content."""

    def __init__(self, exclude: Sequence[str] = ()) -> None:
        """
        :param exclude: patterns of the user, which go before those of files.
        """
        self._own = _of(tuple(exclude))
        self._places: list[tuple[str, IgnoreRules]] = []

    def enter(self, place: str, listed: Iterable[str]) -> None:
        """Apply the ignore files of a folder.

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
        """Return True if the patterns exclude a path."""
        said = self._own.says(path, folder)
        for place, rules in reversed(self._places):
            if said is not None:
                break
            said = rules.says(path[len(place) + 1 :] if place else path, folder)
        return bool(said)


@functools.lru_cache(maxsize=64)
def _of(lines: tuple[str, ...]) -> IgnoreRules:
    return IgnoreRules(lines)


# --- patterns


def _rule(line: str) -> IgnoreRule | None:
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
    return IgnoreRule(tuple(part if part == _STARS else tuple(_tokens(part)) for part in parts), negated, folders, bound)


def _tokens(part: str) -> Iterator[_Token]:
    at, last = 0, part.rfind("]")
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
        elif char == "[" and at <= last and (found := _SET.match(part, at)):
            negated, end = part[at] in "!^", found.end() - 1
            chosen = frozenset(_chosen(part[at + negated : end]))
            yield (chosen,) if negated else chosen
            at = end + 1
        else:
            yield char


def _chosen(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        if named := _CLASS.match(text, at):
            yield from _CLASSES[named[1]]
            at = named.end()
        elif text[at + 1 : at + 2] == "-" and at + 2 < len(text):
            yield from map(chr, range(ord(text[at]), min(ord(text[at + 2]), ord(text[at]) + 0x10000) + 1))
            at += 3
        else:
            yield text[at]
            at += 1


def _fits(rule: IgnoreRule, segments: Sequence[str]) -> bool:
    """Return True if a pattern matches a path: the whole path if the pattern is anchored, else its last name."""
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
        return len(segments) > len(pattern) - 1  # `a/**` matches everything in `a`, but not `a` itself
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


_SHOWN = 20  # greatest number of kinds and of links that a report names


class File(NamedTuple):
    """A file as it was read: its path, its time (ns) and size, the digest of its bytes, the bytes."""

    path: str
    stamp: tuple[int, int]
    digest: bytes
    data: bytes


@dataclass
class LeftOut:
    """Content of a folder that is not read, by reason."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Number of files without a reader, by the suffixes of their names."""
    hidden: int = 0
    """Number of files and folders whose names start with a full stop."""
    ignored: int = 0
    """Number of files and folders that a pattern excludes."""
    links: dict[str, str] = field(default_factory=dict)
    """Links that are not followed -> their targets."""

    def facts(self) -> dict[str, object]:
        """Return the same as JSON; nothing if all of it is read."""
        kinds = dict(self.kinds.most_common(_SHOWN))
        links = [{"path": path, "to": to} for path, to in list(self.links.items())[:_SHOWN]]
        told = {"files": self.kinds.total(), "kinds": kinds, "ignored": self.ignored, "links": links, "hidden": self.hidden}
        return told if self.kinds or self.ignored or self.links else {}

    def add(self, other: LeftOut) -> None:
        """Count another folder's with this one's."""
        self.kinds.update(other.kinds)
        self.hidden, self.ignored = self.hidden + other.hidden, self.ignored + other.ignored
        self.links |= other.links


def files_in(
    folder: str,
    most: int,
    own: DaemonFiles,
    *,
    exclude: Sequence[str] = (),
    unread: set[str] | None = None,
    skipped: dict[str, str] | None = None,
    left: LeftOut | None = None,
) -> list[str]:
    """Return the readable files of a folder and its subfolders, in order.

    Hidden files, ignored files, links that lead out of the folder, and the daemon's own files are left out. The target of a link inside the
    folder is read once.

    :param exclude: patterns as in `.gitignore`, which precede such files in the folder.
    :param unread: receives the subfolders that cannot be read now.
    :param skipped: receives the daemon's own files, with the reason why they are not read.
    :param left: receives everything else that is not read.
    :raises Unreadable: if the folder cannot be read, is the daemon's own, or there are too many files.
    """
    real = os.path.realpath(folder)
    if why := own.why_not(real):
        raise Unreadable(why)
    walk = _Walk(folder, real, most, own, Ignored(exclude), unread, {} if skipped is None else skipped, left or LeftOut())
    walk.go()
    return walk.found


class _Walk:
    """One look through a folder. What it finds is known by its real path, too, so that no link has it read twice, or leads round."""

    def __init__(
        self,
        folder: str,
        real: str,
        most: int,
        own: DaemonFiles,
        ignored: Ignored,
        unread: set[str] | None,
        skipped: dict[str, str],
        left: LeftOut,
    ) -> None:
        self._folder, self._real, self._most, self._own = folder, real, most, own
        self._ignored, self._unread, self._skipped, self._left = ignored, unread, skipped, left
        ignored.root = folder
        self._links: list[tuple[str, str]] = []
        self._seen: set[str] = set()
        self.found: list[str] = []

    def go(self) -> None:
        """Look through all of it, and then where links in it lead to."""
        self._look(self._folder, self._real)
        for path, real in self._links:  # the loop may add more links
            if os.path.isdir(real):
                self._look(path, real)
            else:
                self._file(path, real)

    def _look(self, top: str, real_top: str) -> None:
        """Walk through a folder and its subfolders."""
        waiting = [(top, real_top)]
        while waiting:
            place, real = waiting.pop()
            if real in self._seen:
                continue
            self._seen.add(real)
            try:
                with os.scandir(place) as listed:
                    entries = sorted(listed, key=lambda entry: entry.name)
            except OSError as e:
                self._failed(place, e)
                continue
            relative = os.path.relpath(place, self._folder).replace(os.sep, "/") if place != self._folder else ""
            self._ignored.enter(relative, [entry.name for entry in entries])
            folders = []
            for entry in entries:
                is_folder = _is_folder(entry)
                if entry.name.startswith("."):
                    self._left.hidden += 1
                elif self._ignored.leaves_out(f"{relative}/{entry.name}" if relative else entry.name, folder=is_folder):
                    self._left.ignored += 1
                elif entry.is_symlink():
                    self._link(entry.path)
                elif is_folder and not self._is_ours(entry.path, os.path.join(real, entry.name)):
                    folders.append((entry.path, os.path.join(real, entry.name)))
                elif not is_folder:
                    self._file(entry.path, os.path.join(real, entry.name))
            waiting += reversed(folders)

    def _failed(self, place: str, e: OSError) -> None:
        if place == self._folder:
            raise Unreadable(f"the folder {self._folder} cannot be read: {e.strerror}")
        if self._unread is not None and not isinstance(e, FileNotFoundError):
            self._unread.add(place)

    def _link(self, path: str) -> None:
        try:
            real = os.path.realpath(path)
        except OSError as e:  # a link that may not be read, such as /proc/1/cwd
            self._failed(path, e)
            return
        within = real.startswith(self._real.rstrip(os.sep) + os.sep) and os.path.exists(real)
        if within and not self._is_ours(path, real):
            self._links.append((path, real))
        elif real != self._real and not within:
            self._left.links[path] = real

    def _file(self, path: str, real: str) -> None:
        suffix = pathlib.PurePath(path).suffix.lower()
        if real in self._seen:
            return
        self._seen.add(real)
        if suffix not in readers.SUFFIXES:
            self._left.kinds[suffix] += 1
        elif not self._is_ours(path, real):
            self.found.append(path)
            if len(self.found) > self._most:
                raise Unreadable(f"there are more than {self._most} files in {self._folder}; name folders in it")

    def _is_ours(self, path: str, real: str) -> bool:
        why = self._own.why_not(real)
        if why:
            self._skipped[path] = why
        return bool(why)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def read_file(path: str, largest: int, own: DaemonFiles) -> File:
    """Read a file.

    :raises Unreadable: if it is missing, not a file, too large, not readable for us, or the daemon's own, by whatever path.
    """
    try:
        path.encode()
        with open(path, "rb", opener=_opened) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Unreadable("it is not a file")
            if why := own.why_not(_place_of(file.fileno(), path), about):
                raise Unreadable(why)
            if about.st_size > largest:
                raise Unreadable(f"it has {about.st_size} bytes; at most {largest} are read (setting memory.file_bytes): split it")
            data = file.read(largest + 1)
    except UnicodeEncodeError:
        raise Unreadable("its name is not valid UTF-8; rename it") from None
    except FileNotFoundError as e:
        raise Unreadable(f"it cannot be read: {e.strerror}") from None
    except OSError as e:
        error = UnreadableNow(f"it cannot be read: {e.strerror}; it is read when it can be")
        error.shut = e.errno in (errno.EACCES, errno.EPERM)
        raise error from None
    if len(data) > largest:
        raise Unreadable(f"it grew past {largest} bytes while it was read (setting memory.file_bytes)")
    if not data.strip():
        raise Unreadable("it is empty")
    return File(path, (about.st_mtime_ns, about.st_size), hashlib.sha256(data).digest(), data)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe would wait for a writer


def _place_of(descriptor: int, path: str) -> str:
    """Return the real path of an open file: a link on the path may point elsewhere by now."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc on this machine
        return os.path.realpath(path)


def stamp_of(path: str) -> tuple[int, int]:
    try:
        about = pathlib.Path(path).stat()
    except (OSError, ValueError):
        return 0, 0
    return about.st_mtime_ns, about.st_size
