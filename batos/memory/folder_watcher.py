"""Folder watcher: reads new and changed files of watched folders into the memory, and forgets files that vanish.

It polls: that needs nothing of the operating system, and works on network folders too. A new file is read once it has not changed
between two polls, so that no half-written file is. A folder that is missing or unreadable says nothing about its files: they stay in the
memory.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import structlog

from batos.concurrency import in_helper
from batos.config import Settings
from batos.errors import BatosError, Unreadable
from batos.image.daemon_files import DaemonFiles
from batos.image.living_image import LivingImage
from batos.memory.files import LeftOut, files_in
from batos.memory.ingest import PASSING, SHUT, Ingest, IngestLimits, files_known
from batos.memory.machines import drop_machine, elsewhere, keep_machine
from batos.memory.store import library_of
from batos.objects import Root

log = structlog.get_logger("batos.memory")

AGAIN_S = 3600.0  # longest pause before another try at a file that failed for a reason outside the file
Stamps = dict[str, tuple[int, int]]


class FolderWatcher:
    """Looks through the folders that the image says are watched. All methods are called on the loop's thread."""

    def __init__(self, image: LivingImage, ingest: Ingest, settings: Settings) -> None:
        self._image, self._ingest, self._limits = image, ingest, IngestLimits.of(settings)
        self.before: dict[str, Stamps] = {}
        self.away: dict[str, str] = {}
        """Folders that cannot be read now -> the reason."""
        self.left_out: dict[str, dict[str, Any]] = {}
        """Folder -> files in it that are not read (`batos.memory.files.LeftOut`)."""
        self._wake = asyncio.Event()

    async def add(self, folder: str, exclude: Sequence[str] = ()) -> None:
        """Watch a folder from now on, also after a restart.

        :param exclude: ignore patterns, as in `.gitignore`, which replace the previous ones.
        :raises Unreadable: if it is not a readable folder.
        """
        path, identity = await in_helper(_checked, folder, self._limits.folder_files, self._ingest.premises, exclude)
        await self._image.system(_watch, path, (*identity, *exclude), mission="ingest")
        self._wake.set()

    def excluded(self, folder: str) -> tuple[str, ...] | None:
        """Return the ignore patterns of a watched folder; None if it is not watched."""
        told = self._image.read(lambda root: library_of(root).watched.get(folder))
        return None if told is None else tuple(told[2:])

    async def files(self, folder: str) -> Stamps:
        """Return the files of a watched folder that can be read, each with its time and size.

        :raises Unreadable: if it is not watched, or cannot be read now.
        """
        exclude = self.excluded(folder)
        if exclude is None:
            raise Unreadable(f"{folder} is not watched; `batos ingest --watch {folder}` has it watched")
        found, _, _ = await in_helper(_stamps, folder, self._limits.folder_files, self._ingest.premises, exclude)
        return found

    async def remove(self, folder: str) -> None:
        """Stop watching a folder; its documents stay.

        :raises Unreadable: if it is not watched.
        """
        await self._image.system(_watch, folder, None, mission="ingest")
        self.away.pop(folder, None)
        self.before.pop(folder, None)
        self.left_out.pop(folder, None)

    async def run(self) -> None:
        """Look through the folders until cancelled."""
        self.before.clear()
        while True:
            for folder, (told, machine) in self._image.read(_watched).items():
                try:
                    if machine:
                        raise Unreadable(f"{folder} is on {machine}, and no kernel of that machine leads now")
                    await self._look(folder, told)
                except (BatosError, OSError) as e:
                    is_there = bool(machine) or await in_helper(os.path.isdir, folder)
                    why = str(e) if is_there else _away(folder)  # also where it went in the middle of the look
                    if folder not in self.away:
                        log.warning("folder_away", folder=folder, error=why, hint="what was read from it stays in the memory")
                    self.away[folder] = why
                else:
                    self.away.pop(folder, None)
            self._wake.clear()
            try:
                async with asyncio.timeout(self._limits.watch_s):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self, folder: str, told: tuple[Any, ...]) -> None:
        identity, exclude = told[:2], told[2:]
        now, unread, left = await in_helper(_stamps, folder, self._limits.folder_files, self._ingest.premises, exclude)
        if not now and _identity(folder) != identity:
            raise Unreadable(f"{folder} is another folder than before, and empty: is its disk mounted?")
        self.left_out[folder] = left.facts()
        known, queued, refused = await in_helper(self._image.read, files_known, folder)
        again = await in_helper(_worth_another, refused.items(), self._ingest.able)
        before = self.before.get(folder)
        self.before[folder] = now
        if before is None:  # the first look: a file that has not changed lately is complete
            old = time.time_ns() - int(self._limits.watch_s * 1e9)
            before = {path: stamp for path, stamp in now.items() if stamp[0] < old}
        new = (path for path, stamp in now.items() if (known.get(path) != stamp or path in again) and before.get(path) == stamp)
        ready = [path for path in new if path not in queued]
        if ready:
            await self._ingest.ask(ready)
        away = known.keys() - now.keys() - before.keys() - queued  # missing in two looks: an editor may just have replaced the file
        for path in await in_helper(_vanished, away, unread):
            await self._ingest.vanished(path)


def _away(folder: str) -> str:
    return f"the folder {folder} is away"


def _worth_another(refused: Iterable[tuple[str, tuple[str, float]]], able: str) -> set[str]:
    """Return the refused files that are worth another try: the readers can do more now, or the obstacle may be gone."""
    found = set()
    for path, (cause, at) in refused:
        passed = _opens(path) if cause == SHUT else time.time() - at > AGAIN_S if cause == PASSING else cause != able
        found |= {path} if passed else set()
    return found


def _vanished(away: Iterable[str], unread: Collection[str]) -> list[str]:
    """Return the files that no longer exist. A file that still exists is ignored by a pattern now, and its content stays. The state of a
    file in an unreadable folder is unknown.
    """
    return [
        path
        for path in away
        if not (os.path.isfile(path) and not os.path.islink(path))
        and not any(path == place or path.startswith(place + os.sep) for place in unread)
    ]


def _opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # opening a pipe would wait for a writer
    except OSError:
        return False
    return True


def _stamps(folder: str, most: int, own: DaemonFiles, exclude: Sequence[str]) -> tuple[Stamps, set[str], LeftOut]:
    """Return the files of a folder, its unreadable subfolders, which say nothing about their files, and the content that is not read."""
    if not os.path.isdir(folder):
        raise Unreadable(_away(folder))
    found: Stamps = {}
    unread: set[str] = set()
    left = LeftOut()
    for path in files_in(folder, most, own, exclude=exclude, unread=unread, left=left):
        try:
            about = os.stat(path)
        except FileNotFoundError:
            continue  # the file was removed after the folder was listed
        except OSError:
            unread.add(path)
            continue
        found[path] = (about.st_mtime_ns, about.st_size)
    return found, unread, left


def _checked(folder: str, most: int, own: DaemonFiles, exclude: Sequence[str]) -> tuple[str, tuple[int, int]]:
    path = os.path.normpath(folder)
    if not os.path.isabs(path):
        raise Unreadable(f"{folder!r} is not an absolute path; write one that begins with /")
    if not os.path.isdir(path):
        raise Unreadable(f"it is {'no folder, but a file' if os.path.exists(path) else 'not there'}: only a folder can be watched")
    files_in(path, most, own, exclude=exclude)
    return path, _identity(path)


def _identity(folder: str) -> tuple[int, int]:
    """Return device and inode of a folder, to tell it from another at the same path: an unmounted disk leaves an empty folder."""
    about = os.stat(folder)
    return about.st_dev, about.st_ino


def _watched(root: Root) -> dict[str, tuple[tuple[Any, ...], str]]:
    """Return the watched folders, with what is noted of each, and the name of its machine if it is another one."""
    return {folder: (told, elsewhere(root, folder)) for folder, told in library_of(root).watched.items()}


def _watch(root: Root, folder: str, identity: tuple[Any, ...] | None) -> None:
    watched = library_of(root).watched
    drop_machine(root, folder)
    if identity is not None:
        watched[folder] = identity
        keep_machine(root, [folder])
    elif watched.pop(folder, None) is None:
        raise Unreadable(f"{folder} is not watched; watched are: {', '.join(watched) or 'no folders'}")
