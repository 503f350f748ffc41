"""Files as they are read into the memory: which of a folder, and what of it is left out; their bytes, and what tells whether they have
changed."""

from __future__ import annotations

import errno
import hashlib
import os
import pathlib
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batos.errors import Unreadable, UnreadableNow
from batos.image.premises import Premises
from batos.memory import readers
from batos.memory.ignoring import Ignored

_SHOWN = 20  # kinds, and links, that are named


class File(NamedTuple):
    """A file as it was read: its path, its time (ns) and size, the digest of its bytes, the bytes."""

    path: str
    stamp: tuple[int, int]
    digest: bytes
    data: bytes


@dataclass
class LeftOut:
    """What a folder has that is not read."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Files that no reader is for, by the ends of their names."""
    hidden: int = 0
    """Files and folders whose names begin with a full stop."""
    ignored: int = 0
    """Files and folders that a pattern leaves out."""
    links: dict[str, str] = field(default_factory=dict)
    """Links that are not followed, with where they lead."""

    def facts(self) -> dict[str, object]:
        """The same as JSON; nothing where all of it is read."""
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
    own: Premises,
    *,
    exclude: Sequence[str] = (),
    unread: set[str] | None = None,
    skipped: dict[str, str] | None = None,
    left: LeftOut | None = None,
) -> list[str]:
    """The files of a folder and those in it that can be read, in order. Left out are hidden ones, what patterns leave out, links that lead
    out of the folder, and what is the daemon's own. What a link in the folder leads to is read once.

    :param exclude: patterns as in `.gitignore`, that go before such files in the folder.
    :param unread: gets the folders in it that cannot be read now.
    :param skipped: gets what is the daemon's own, with why it is not read.
    :param left: gets what else is not read.
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
        own: Premises,
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
        for path, real in self._links:  # more may come meanwhile
            if os.path.isdir(real):
                self._look(path, real)
            else:
                self._file(path, real)

    def _look(self, top: str, real_top: str) -> None:
        """A folder, and those in it."""
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
        real = os.path.realpath(path)
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
                raise Unreadable(
                    f"there are more than {self._most} files in {self._folder} (setting ingest_folder_files); name folders in it"
                )

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


def read_file(path: str, largest: int, own: Premises) -> File:
    """
    :raises Unreadable: for what is no file, too large, away, not ours to read, or the daemon's own, by whatever way it is reached.
    """
    try:
        path.encode()
        with open(path, "rb", opener=_opened) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise Unreadable("it is no file")
            if why := own.why_not(_place_of(file.fileno(), path), about):
                raise Unreadable(why)
            if about.st_size > largest:
                raise Unreadable(f"it has {about.st_size} bytes; at most {largest} are read (setting ingest_file_bytes): split it")
            data = file.read(largest + 1)
    except UnicodeEncodeError:
        raise Unreadable("its name is no UTF-8; rename it") from None
    except FileNotFoundError as e:
        raise Unreadable(f"it cannot be read: {e.strerror}") from None
    except OSError as e:
        error = UnreadableNow(f"it cannot be read: {e.strerror}; it is read when it can be")
        error.shut = e.errno in (errno.EACCES, errno.EPERM)
        raise error from None
    if len(data) > largest:
        raise Unreadable(f"it grew past {largest} bytes while it was read (setting ingest_file_bytes)")
    if not data.strip():
        raise Unreadable("it is empty")
    return File(path, (about.st_mtime_ns, about.st_size), hashlib.sha256(data).digest(), data)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe would wait for somebody to write


def _place_of(descriptor: int, path: str) -> str:
    """Where an open file really is: a link on the way may lead elsewhere by now."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:  # no /proc here
        return os.path.realpath(path)


def stamp_of(path: str) -> tuple[int, int]:
    try:
        about = pathlib.Path(path).stat()
    except (OSError, ValueError):
        return 0, 0
    return about.st_mtime_ns, about.st_size
