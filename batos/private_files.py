"""Private files: files of this process that no other user can read, or redirect to another place.

A file is created under a free name (O_EXCL), through no link (O_NOFOLLOW), for its owner alone (0600). A folder is fit to write into if
only this user and root can change its content or replace it:

* it belongs to this user, or to root, and neither group nor others may write into it;
* so do the folders above it. A folder of root's with the sticky bit (/tmp) may be above: there no user can move another's files;
* a link on the path belongs to this user, or to root.

A folder that passed once stays fit: only this user or root could change that. So its path is checked from the root downwards, each part
after those above it have passed. Later operations by that path reach that very folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import pathlib
import pwd
import secrets
import shlex
import stat
from collections.abc import Callable
from typing import IO

FOLDER_MODE, FILE_MODE = 0o700, 0o600
UMASK = 0o077
"""The umask of a process that stores data. Libraries create files without asking which mode is wanted."""
_OPEN = 0o077  # any right of group or others
_ROOT = 0
_LINKS = 40  # links followed on the way to a folder, as in Linux
_MOUNT = "where its file system keeps no modes, mount it for yourself alone (uid=, umask=077)"

Path = str | os.PathLike[str]


class Exposed(PermissionError):
    """Error: other users could affect a written file. `why` gives the path, its owner and mode, and the remedy."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.EPERM, why, os.fspath(path))
        self.why = why


# --- folders


def fit(folder: Path) -> pathlib.Path:
    """Check that a folder is fit to write into, or to be created if it is missing.

    :returns: its path without links.
    :raises Exposed: if it is not fit.
    :raises OSError: if it cannot be examined, or something on the path is not a folder.
    """
    place, missing = _followed(folder, _check_part)
    about = place.lstat()
    if _others_write(about) and not (missing and about.st_mode & stat.S_ISVTX):
        raise Exposed(place, f"{place} is of mode {_mode(about)}, so that others may write into it; {_remedy(place)}")
    return place.joinpath(*missing)


def folder(path: Path) -> pathlib.Path:
    """Return the folder of that path, fit to write into. Missing folders are created for this user alone.

    :returns: its path without links.
    :raises Exposed: if it is not fit: another user may have been faster.
    :raises OSError: if it cannot be created, or is not a folder.
    """
    make(fit(path))
    found = fit(path)
    if not stat.S_ISDIR(found.lstat().st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(found))
    return found


def make(path: Path) -> None:
    """Create a folder, and missing ones on its path, for this user alone; existing ones stay as they are.

    :raises OSError: if one cannot be created, or is not a folder.
    """
    place = pathlib.Path(path)
    missing = []
    while not os.path.lexists(place):
        missing.append(place)
        place = place.parent
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process made it in the meantime
            one.mkdir(FOLDER_MODE)
    if not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(path))


def check_within(folder: Path) -> None:
    """Check that other users put nothing into a folder, for instance before it was closed to them.

    :raises Exposed: naming another user's file, or a folder into which others may write.
    """
    for held, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = pathlib.Path(held, name)
            try:
                about = path.lstat()
            except FileNotFoundError:
                continue
            if not _ours(about.st_uid):
                raise Exposed(path, f"{path} belongs to {_name(about.st_uid)}; move it away, if you do not know it")
            if stat.S_ISDIR(about.st_mode) and _others_write(about):
                raise Exposed(path, f"{path} is of mode {_mode(about)}, so that others may write into it; {_remedy(path)}")


def check_links(path: Path) -> None:
    """Check that no link on the path to a file or folder, nor one of that name, belongs to another user.

    :raises Exposed: if one does. A path that cannot be examined passes: opening it reports the error.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _followed(path, _check_link)


def taken(path: Path) -> bool:
    """Return True if there is anything with that name, even a dangling link."""
    return os.path.lexists(path)


# --- files


def create(path: Path, mode: int = FILE_MODE) -> IO[bytes]:
    """Return a new file, open for writing. Its name must be free.

    :param mode: a mode that is not for the owner alone is set whatever the umask is.
    :raises FileExistsError: if there is anything of that name, a link included.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # the file system stores no modes
            os.fchmod(descriptor, mode)
    return os.fdopen(descriptor, "w+b")


def renew(path: Path) -> IO[bytes]:
    """Create a file, and replace an existing one of that name. A link of that name is replaced; its target stays as it is."""
    pathlib.Path(path).unlink(missing_ok=True)
    return create(path)


def extend(path: Path) -> IO[bytes]:
    """Return a file to be written on at its end; made if there is none.

    :raises OSError: if that is a link (ELOOP), or no plain file.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", os.fspath(path))
    return os.fdopen(descriptor, "ab")


def write(path: Path, data: str | bytes, mode: int = FILE_MODE) -> None:
    """Write a file atomically: after a crash it holds either the old or the new content. On return it is on disk. A link is replaced."""
    place = pathlib.Path(path)
    part = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        with create(part, mode) as file:
            file.write(data.encode() if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # else a power cut could bring back the previous file
    finally:
        os.close(folder)


# --- existing files and folders


def is_open(path: Path) -> str:
    """Return in words what others may do to a file or folder, or its foreign owner; "" if it is closed, a link, or missing."""
    try:
        about = os.lstat(path)
    except OSError:
        return ""
    if stat.S_ISLNK(about.st_mode):
        return ""
    if not _ours(about.st_uid):
        return f"belongs to {_name(about.st_uid)}"
    return f"mode {_mode(about)}" if stat.S_IMODE(about.st_mode) & _OPEN else ""


def close(path: Path) -> bool:
    """Remove all rights of group and others from a file or folder of this user. Return True if there were any. Links are not followed.

    :raises OSError: if rights remain, with the reason: another user owns it, or its file system stores no modes.
    """
    if not (why := is_open(path)):
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, why, os.fspath(path))
        os.fchmod(descriptor, stat.S_IMODE(about.st_mode) & ~_OPEN)
        if stat.S_IMODE(os.fstat(descriptor).st_mode) & _OPEN:
            raise PermissionError(errno.EPERM, f"mode {_mode(about)}, and {_MOUNT}", os.fspath(path))
    finally:
        os.close(descriptor)
    return True


# --- owners and rights


def _followed(path: Path, look: Callable[[pathlib.Path, os.stat_result], object]) -> tuple[pathlib.Path, list[str]]:
    """Follow a path from / downwards. Return its existing part without links, and the missing names.

    :param look: called with each part when it is reached, and with each link before it is followed.
    """
    place, links = pathlib.Path("/"), 0
    names = list(reversed(pathlib.Path(os.getcwd(), path).parts[1:]))
    look(place, place.lstat())
    while names:
        name = names.pop()
        if name == "..":
            place = place.parent
            continue
        part = place / name
        try:
            about = part.lstat()
        except FileNotFoundError:
            missing = [name, *reversed(names)]
            if ".." in missing:
                raise
            return place, missing
        look(part, about)
        if not stat.S_ISLNK(about.st_mode):
            place = part
            continue
        if (links := links + 1) > _LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(part))
        target = pathlib.Path(os.readlink(part))
        place = pathlib.Path("/") if target.is_absolute() else place
        names += [word for word in reversed(target.parts) if word != "/"]
    return place, []


def _check_part(part: pathlib.Path, about: os.stat_result) -> None:
    _check_link(part, about)
    if not _ours(about.st_uid):
        me = _name(os.geteuid())
        why = f"{part} belongs to {_name(about.st_uid)}, who could put links there; name a folder of {me}'s own, or give it to {me}"
        raise Exposed(part, why)
    above = part.parent.lstat()
    if part != part.parent and _others_write(above) and not above.st_mode & stat.S_ISVTX:
        why = f"{part.parent} is of mode {_mode(above)}, so that others may put another {part.name} there"
        raise Exposed(part.parent, f"{why}; {_remedy(part.parent)}")


def _check_link(part: pathlib.Path, about: os.stat_result) -> None:
    if stat.S_ISLNK(about.st_mode) and not _ours(about.st_uid):
        raise Exposed(part, f"{part} is a link of {_name(about.st_uid)}'s, which is not followed; name the folder itself")


def _ours(uid: int) -> bool:
    return uid in (os.geteuid(), _ROOT)


def _others_write(about: os.stat_result) -> bool:
    """Return True if another user may write there.

    A group whose only member is this user is ignored: where each user has such a group, a umask is 002.
    """
    return bool(about.st_mode & stat.S_IWOTH) or bool(about.st_mode & stat.S_IWGRP and not _alone_in(about.st_gid, os.geteuid()))


@functools.lru_cache(maxsize=64)
def _alone_in(gid: int, uid: int) -> bool:
    try:
        user, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def _mode(about: os.stat_result) -> str:
    return f"{stat.S_IMODE(about.st_mode):04o}"


def _remedy(folder: pathlib.Path) -> str:
    return f"`chmod go-w {shlex.quote(str(folder))}`, or name a folder that is yours alone ({_MOUNT})"
