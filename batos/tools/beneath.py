"""Files beneath a folder, reached by descriptors: no link is followed on the way, so that no path leads out of the folder.

Each part of a path is opened by its name in the descriptor of the folder before it, with O_NOFOLLOW. A part that another process swaps
for a link between two steps is refused by the kernel, not by a check. Only plain files and folders are opened; what would wait or act
when it is opened (FIFO, device, socket) is refused before.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import IO

from batos.config import shown
from batos.errors import InvalidInput, ToolFailed

PATH_BYTES = 4096
"""Bytes of a path."""
PARTS = 64
"""Number of folders that a path leads through."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_REPLACE = 1
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}
_ERRORS = {
    errno.ENOENT: "there is nothing of that name",
    errno.ENOTDIR: "a part of it is a file or a link, not a folder",
    errno.ELOOP: "it is a link, which is not followed",
    errno.EACCES: "the system does not allow it",
    errno.EPERM: "the system does not allow it",
    errno.EROFS: "it is on a file system that is read-only",
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ENAMETOOLONG: "the name is too long for its file system",
    errno.EEXIST: "there is something of that name already",
    errno.ENOTEMPTY: "the folder is not empty",
    errno.EISDIR: "it is a folder",
    errno.EXDEV: "the two places are on different file systems",
    errno.EINVAL: "the system does not take it",
}


def parts_of(path: str) -> tuple[str, ...]:
    """Return the parts of a path that is relative to the folder; none for the folder itself.

    :raises InvalidInput: for a path that is absolute, leads upwards, or could not be one.
    """
    try:
        data = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidInput(f"the path {shown(path)} is not text") from None
    if "\0" in path or len(data) > PATH_BYTES:
        raise InvalidInput(f"the path {shown(path)} is not valid; it holds no NUL and has at most {PATH_BYTES} bytes")
    if path.startswith("/"):
        raise InvalidInput(f"the path {shown(path)} is absolute; give one that is relative to the folder, as `list` shows it")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise InvalidInput(f"the path {shown(path)} leads upwards (..); give one that is relative to the folder, as `list` shows it")
    if len(parts) > PARTS:
        raise InvalidInput(f"the path {shown(path)} leads through {len(parts)} folders; at most {PARTS} are allowed")
    return parts


def kind_of(about: os.stat_result) -> str:
    """Return `file`, `folder`, `link`, `fifo`, `socket` or `device`."""
    return _KINDS.get(stat.S_IFMT(about.st_mode), "device")


def identity(about: os.stat_result) -> tuple[int, int]:
    """Return the number of a file system and of a file in it."""
    return about.st_dev, about.st_ino


@contextlib.contextmanager
def telling(doing: str, path: str) -> Iterator[None]:
    """Turn an error of the system into one that says what could not be done, and that it surely was not.

    :raises ToolFailed: in its place.
    """
    try:
        yield
    except OSError as e:
        why = _ERRORS.get(e.errno or 0, e.strerror or str(e))
        raise ToolFailed(f"{shown(path or '.')} cannot be {doing}: {why}", errno=e.errno) from None


@dataclass(frozen=True, slots=True)
class Beneath:
    """A folder of this machine."""

    place: str
    """absolute path"""
    closed: Collection[tuple[int, int]] = ()
    """identities of folders that are not entered"""

    @contextlib.contextmanager
    def folder(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Give a descriptor of a folder.

        :param make: makes folders that are missing.
        :raises ToolFailed: if the way there is not one of folders alone, or one may not be entered.
        """
        descriptor = self._root()
        try:
            for depth, part in enumerate(parts):
                with telling("opened", "/".join(parts[: depth + 1])):
                    following = self._entered(descriptor, part, make)
                os.close(descriptor)
                descriptor = following
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Give a descriptor of the folder that holds a path, and the name in it.

        :raises InvalidInput: for a path that is not valid, or names the folder itself.
        :raises ToolFailed: as `folder` does.
        """
        parts = parts_of(path)
        if not parts:
            raise InvalidInput(f"the path {shown(path)} names the folder itself; name something in it")
        with self.folder(parts[:-1], make=make) as descriptor:
            yield descriptor, parts[-1]

    def enter(self, descriptor: int, name: str) -> int:
        """Return a descriptor of a folder in a folder.

        :raises OSError: if it is not a folder.
        :raises ToolFailed: if it may not be entered.
        """
        return self._entered(descriptor, name, False)

    def _root(self) -> int:
        try:
            return os.open(self.place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise ToolFailed(f"the folder {shown(self.place)} is not there; make it or bring it back, or name another one") from None
        except NotADirectoryError:
            raise ToolFailed(f"{shown(self.place)} is not a folder; name the folder that it is in") from None
        except OSError as e:
            why = e.strerror or str(e)
        raise ToolFailed(f"the folder {shown(self.place)} cannot be used: {why}; let the daemon's user read it, or name another one")

    def _entered(self, descriptor: int, name: str, make: bool) -> int:
        try:
            following = os.open(name, _FOLDER, dir_fd=descriptor)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=descriptor)
                os.fsync(descriptor)
            following = os.open(name, _FOLDER, dir_fd=descriptor)
        if identity(os.fstat(following)) in self.closed:
            os.close(following)
            raise ToolFailed(f"{shown(name)} is not opened: it belongs to BAT OS itself, and tools do not enter it")
        return following


def look_at(descriptor: int, name: str) -> os.stat_result | None:
    """Return what is there under a name in a folder, a link itself included; None if there is nothing."""
    try:
        return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None


def open_file(descriptor: int, name: str, flags: int = os.O_RDONLY) -> IO[bytes]:
    """Return a plain file of a folder, opened without waiting.

    :raises OSError: if there is none, or it is a link.
    :raises ToolFailed: if it is something else than a plain file.
    """
    about = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    check_plain(about, name)
    opened = os.open(name, flags | _FILE, dir_fd=descriptor)
    try:
        check_plain(os.fstat(opened), name)
        return os.fdopen(opened, "rb" if flags == os.O_RDONLY else "ab")
    except BaseException:
        os.close(opened)
        raise


def check_plain(about: os.stat_result, name: str) -> None:
    """Refuse what is not a plain file.

    :raises ToolFailed: with the kind that it is of.
    """
    if (kind := kind_of(about)) != "file":
        more = "; links are not followed" if kind == "link" else ""
        raise ToolFailed(f"{shown(name)} is a {kind}, not a plain file{more}")


def rename(source: tuple[int, str], target: tuple[int, str]) -> None:
    """Move a name to another folder, where that name is free.

    :raises OSError: with EEXIST if it is taken.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        if call(source[0], os.fsencode(source[1]), target[0], os.fsencode(target[1]), _NO_REPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):  # else the file system does not know the flag, or a folder moves into itself
            raise OSError(number, os.strerror(number))
    if look_at(*target) is not None:
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
    os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])


def replace(descriptor: int, name: str, data: bytes, *, part: str, mode: int) -> None:
    """Write a file atomically: after a crash it holds either the old or the new content.

    :param part: name under which the new content is written until it is whole; what is there of an earlier try is replaced.
    :raises ToolFailed: if it surely was not written.
    :raises OSError: if it was, and may be lost by a power cut.
    """
    with telling("written", name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=descriptor)
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=descriptor)
        try:
            with os.fdopen(opened, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(part, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=descriptor)
            raise
    os.fsync(descriptor)
