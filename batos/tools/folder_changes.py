"""Changes of a folder as they were made: a note of each by the key of its effect, and the file as it was before.

Notes are small and many are kept, so that an effect that is sent again sees what its first sending had begun. Files as they were before
are bounded in number and bytes; the oldest are dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from batos import private_files

NOTES = 10_000
"""Number of notes that are kept of one connection."""
COPIES = 256
"""Number of files as they were before."""
COPIES_BYTES = 256 << 20
"""Bytes of all of them."""
_SLACK = 64
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderChange:
    """One change of a file, noted before it is made."""

    key: str
    """of the effect"""
    tool: str
    path: str
    to: str = ""
    """new path, of a move"""
    existed: bool = False
    """True if there was a file before"""
    size: int = 0
    """bytes of the file before"""
    before: str = ""
    """digest of the file before; empty where there was none"""
    after: str = ""
    """digest of the file after the change; empty where there is none, or it was added to"""
    file: tuple[int, int] = (0, 0)
    """identity of the file before"""
    mode: int = 0o600
    kept: str = ""
    """empty if the file before is kept, else why not"""
    undone: bool = False
    of: str = ""
    """key of the change that this one takes back"""


class KeptChanges:
    """The changes of one connection, in a folder of its own. Used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """:param folder: made when the first change is noted."""
        self._notes, self._copies = folder / "changes", folder / "before"
        self._since_dropped, self._last = _SLACK, 0

    def find(self, key: str) -> FolderChange | None:
        """Return the change of a key; None if there is none, or it was dropped."""
        try:
            wire = json.loads((self._notes / f"{name_of(key)}.json").read_bytes())
            return FolderChange(**{**wire, "file": tuple(wire["file"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def newest(self, path: str) -> FolderChange | None:
        """Return the last change of a path that was not taken back, and does not take back another."""
        for place in reversed(_by_age(self._notes)):
            change = self.find(place.stem)
            if change is not None and change.path == path and not change.undone and not change.of:
                return change
        return None

    def add(self, change: FolderChange, before: bytes | None) -> FolderChange:
        """Note a change that is about to be made, and keep the file as it is before. On return both are on disk.

        :param before: content of the file; None if there is none, or it is too large.
        :returns: the change as noted; its `kept` says why the file could not be kept.
        :raises OSError: if it cannot be noted. A file that cannot be kept is not an error.
        """
        if before is not None and not change.kept:
            try:
                private_files.folder(self._copies)
                private_files.write(self._copies / name_of(change.key), before)
            except OSError as e:
                change = replace(change, kept=e.strerror or str(e))
        private_files.folder(self._notes)
        self._write(change)
        self._since_dropped += 1
        if self._since_dropped >= _SLACK:
            self._since_dropped = 0
            _drop(self._notes, NOTES, None)
        _drop(self._copies, COPIES, COPIES_BYTES)
        return change

    def content(self, change: FolderChange) -> bytes | None:
        """Return the file as it was before a change; None if it is not kept."""
        try:
            data = (self._copies / name_of(change.key)).read_bytes()
        except OSError:
            return None
        return data if digest(data) == change.before else None

    def mark_undone(self, change: FolderChange) -> None:
        """Note that a change was taken back."""
        self._write(replace(change, undone=True))

    def _write(self, change: FolderChange) -> None:
        place = self._notes / f"{name_of(change.key)}.json"
        made = place.stat().st_mtime_ns if place.exists() else 0
        private_files.write(place, json.dumps(asdict(change)))
        self._last = max(time.time_ns(), self._last + 1)
        at = made or self._last  # what is noted again keeps its place among the others
        os.utime(place, ns=(at, at))


def name_of(key: str) -> str:
    """Return the name of a key's files."""
    return key if _KEY.match(key) else hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def digest(data: bytes) -> str:
    """Return the digest by which contents are compared."""
    return hashlib.sha256(data).hexdigest()


def _by_age(folder: Path) -> list[Path]:
    """Return the files of a folder, the oldest first."""
    ages = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with contextlib.suppress(OSError):
                    ages.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.path))
    return [Path(path) for _, path in sorted(ages)]


def _drop(folder: Path, most: int, most_bytes: int | None) -> None:
    """Remove the oldest files of a folder until the rest is within its bounds."""
    files = _by_age(folder)
    sizes = [_size(file) for file in files] if most_bytes is not None else [0] * len(files)
    total = sum(sizes)
    for at, file in enumerate(files):
        if len(files) - at <= most and (most_bytes is None or total <= most_bytes):
            return
        total -= sizes[at]
        with contextlib.suppress(OSError):
            file.unlink()


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
