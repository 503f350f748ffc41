"""Files as they are read into the memory: which of a folder, their bytes, and what tells whether they have changed."""

from __future__ import annotations

import hashlib
import os
import pathlib
import stat
from typing import NamedTuple

from batos.errors import Unreadable
from batos.image.premises import Premises
from batos.memory import readers


class File(NamedTuple):
    """A file as it was read: its path, its time (ns) and size, the digest of its bytes, the bytes."""

    path: str
    stamp: tuple[int, int]
    digest: bytes
    data: bytes


def files_in(folder: str, most: int, own: Premises, *, unread: set[str] | None = None, skipped: dict[str, str] | None = None) -> list[str]:
    """The files of a folder and those in it that look like texts, in order; hidden ones and links are left out, and what is the daemon's
    own.

    :param unread: gets the folders in it that cannot be read now.
    :param skipped: gets what is the daemon's own, with why it is not read.
    :raises Unreadable: if the folder cannot be read, is the daemon's own, or there are too many files.
    """
    found: list[str] = []
    real = os.path.realpath(folder)
    if why := own.why_not(real):
        raise Unreadable(why)

    def ours(path: str) -> bool:
        why = own.why_not(os.path.join(real, path[len(folder) :].lstrip(os.sep)))  # no link below it is followed
        if why and skipped is not None:
            skipped[path] = why
        return bool(why)

    def failed(e: OSError) -> None:
        if e.filename == folder:
            raise Unreadable(f"the folder {folder} cannot be read: {e.strerror}")
        if unread is not None and not isinstance(e, FileNotFoundError):
            unread.add(e.filename)

    for place, folders, names in os.walk(folder, onerror=failed):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not ours(os.path.join(place, name)))
        for name in sorted(names):
            path = os.path.join(place, name)
            if name.startswith(".") or pathlib.PurePath(name).suffix.lower() not in readers.SUFFIXES:
                continue
            if not os.path.islink(path) and not ours(path):
                found.append(path)
            if len(found) > most:
                raise Unreadable(f"there are more than {most} files in {folder} (setting ingest_folder_files); name folders in it")
    return found


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
    except OSError as e:
        raise Unreadable(f"it cannot be read: {e.strerror}") from None
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
