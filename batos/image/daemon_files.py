"""Files and folders that belong to the daemon, by its settings.

They are closed to other users at the start, and are never read into the memory under any name. A passage would show them to everyone who
may ask.
"""

from __future__ import annotations

import os
import pathlib
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from batos import private_files
from batos.config import Settings
from batos.image import blobs
from batos.image.storage import COMPANIONS, file_path

log = structlog.get_logger("batos.image")

_ROOMS = ("keys", "logs", "ollama", "training", "lora_staging", "lora_scratch", "embedders", "bin")
"""Folders of the data folder; closing one closes everything in it."""
_FILES = ("console.token", "console.sessions", "doors.token", "doors.turns", "batos.toml")
"""Files of the data folder beside the image."""
_SECRET = ".key_secret"  # noqa: S105  how the name of a file with a secret key ends
_NAMED = 8  # files that a line of the log names; of more, it says how many
_TICK_S = 1.0  # by which a file system's clock may be behind


class ClosedFiles(NamedTuple):
    """Result of `close_files`: the files that were open to others and are closed now, and those still open, with the
    reason."""

    closed: list[str]
    left: dict[str, str]


def close_files(settings: Settings) -> ClosedFiles:
    """Close the daemon's files to other users, and log it. Never fails.

    Secret keys and the console's token are left as they are. A key that others could read is not secret any more, and its reader refuses it
    or makes another.
    """
    done = ClosedFiles([], {})
    for path in _kept(settings):
        try:
            if private_files.close(path):
                done.closed.append(str(path))
        except OSError as e:
            done.left[str(path)] = e.strerror or str(e)
    if done.closed:
        log.warning("closed_to_others", count=len(done.closed), files=done.closed[:_NAMED], why="other users could read or write them")
    if done.left:
        files = dict(list(done.left.items())[:_NAMED])
        log.warning("open_to_others", count=len(done.left), files=files, hint="`batos doctor` says what to do")
    if why := _unfit(settings.data):
        log.warning("data_folder_exposed", why=why)
    return done


def exposed_files(settings: Settings) -> list[str]:
    """Return the daemon's files that are open to others, each with its mode; the reason if the data folder itself is
    not safe."""
    found = [f"{path} ({how})" for path in _kept(settings) if (how := private_files.is_open(path))]
    return found + [why for why in (_unfit(settings.data),) if why and settings.data.exists()]


def _unfit(folder: pathlib.Path) -> str:
    try:
        private_files.fit(folder)
    except private_files.Exposed as e:
        return e.why
    except OSError:  # the start will say so
        return ""
    return ""


def _kept(settings: Settings) -> Iterator[pathlib.Path]:
    """Yield the files and folders that hold or lead to the contents of missions. The data folder comes first: closed,
    it closes the others."""
    data = _behind(settings.data)
    if not _is_shared(data):
        yield data
    if (image := file_path(settings.image_uri)) is not None:
        yield _behind(image)
        yield from (image.with_name(image.name + ending) for ending in COMPANIONS if ending)
        yield from _tree(blobs.folder_of(image))
    yield from (settings.data / name for name in _ROOMS)
    if not settings.backup.folder:
        yield from _tree(settings.backups)


def _behind(path: pathlib.Path) -> pathlib.Path:
    """Return the target of a setting's path if it is a link of this user's, to another disk for example."""
    try:
        private_files.check_links(path)
    except private_files.Exposed:
        return path
    return path.resolve() if path.is_symlink() else path


def _is_shared(folder: pathlib.Path) -> bool:
    """Return True if a folder serves more than the daemon's data: a user's home, /, or a folder that all may write
    into."""
    try:
        return folder in (pathlib.Path.home(), pathlib.Path("/")) or bool(folder.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def _tree(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    yield folder
    for held, folders, files in os.walk(folder):
        yield from (pathlib.Path(held, name) for name in (*folders, *files))


# --- what is not read into the memory


class DaemonFiles:
    """Check for files that may not be read into the memory: the data folder, and the daemon's files elsewhere. Any
    thread.

    A folder of notes that its user put into the data folder may be read, by its own name.
    """

    def __init__(self, settings: Settings) -> None:
        image = file_path(settings.image_uri)
        beside = [image.with_name(image.name + ending) for ending in COMPANIONS] if image is not None else []
        rooms = [settings.data / name for name in _ROOMS]
        self._data = _real([settings.data])
        self._folders = _real([*rooms, settings.backups, settings.clients, *([blobs.folder_of(image)] if image is not None else [])])
        own = [settings.data / name for name in _FILES]
        self._files = _real([*beside, *own, *(pathlib.Path(name) for name in (settings.wire.secret_key, settings.wire.client_key) if name)])
        self._held: set[tuple[int, int]] = set()
        self._looked = 0.0

    def why_not(self, path: str, about: os.stat_result | None = None) -> str:
        """Return the reason why a file may not be read into the memory; empty if it may.

        :param path: path without links on the way.
        :param about: status of the file, if it was opened: one of several names may be among the daemon's files.
        """
        if path in self._data or any(path == own or path.startswith(own.rstrip(os.sep) + os.sep) for own in self._folders):
            return "it is the daemon's own: its data folder, backups and keys are not read into the memory"
        if path in self._files or path.endswith(_SECRET):
            return "it is the daemon's own: images and keys are not read into the memory"
        if about is not None and about.st_nlink > 1 and (about.st_dev, about.st_ino) in self._inodes(about.st_ctime):
            return "it is another name (a hard link) of a file of the daemon's own, which are not read into the memory"
        return ""

    def _inodes(self, changed: float) -> set[tuple[int, int]]:
        """Return the inodes of the daemon's files; they are looked up anew if one got another name (which changes its
        inode) since."""
        if changed >= self._looked - _TICK_S:
            looked, held = time.time(), set()
            named = (pathlib.Path(one) for one in self._files)
            for path in (*named, *(path for folder in self._folders for path in _tree(pathlib.Path(folder)))):
                try:
                    about = path.lstat()
                except OSError:
                    continue
                held.add((about.st_dev, about.st_ino))
            self._held, self._looked = held, looked
        return self._held


def _real(paths: list[pathlib.Path]) -> tuple[str, ...]:
    """Return the paths as they are named and without links: a link makes a file no less the daemon's."""
    return tuple(dict.fromkeys(path for one in paths for path in (os.path.abspath(one), os.path.realpath(one))))
