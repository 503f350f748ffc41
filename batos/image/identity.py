"""Identity of an image, and its right to act on the world: an *epoch* in the image that a file beside it has, too.

The identity is made once and never changes; keys of effects derive from it. The epoch is a random text that every start replaces, in both
places. An image acts only where both agree and the file still is the one that was written there. So a copied folder, a fork, a restored
backup, or an older image put in place may not act until its user resumes it. Its unfinished missions would act twice.

A start first names the next epoch in the file, too, then commits it, then names it alone. A resume names it alone, then commits it.
A process that dies in between leaves what acts able to act, and what is suspended, suspended.

Where several kernels serve one image, each machine has an epoch of its own, in the image and in the file in its data folder. The first
start on a further machine finds no file. The machine may not act before it is seen that another kernel which serves the same image acts
(`join`).

The image of a server may be put back to an older state within one run of a daemon, where all epochs agree: see `ActMarks`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import secrets
import threading
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import structlog
from BTrees.OOBTree import OOBTree

from batos import private_files
from batos.image import effects, kernels
from batos.image.living_image import LivingImage
from batos.image.storage import file_path

log = structlog.get_logger("batos.image")
RESUME = "look at `batos effects`, then resume them: `batos tools resume`"
RESUMED = "resumed"
"""Beginning of the reason why an effect of before a resume is in doubt."""
_ENDING = ".epoch"
_BY_MACHINE = "epochs"  # key in the root
_SUSPENDED = "acts_suspended"  # key in the root
_RESUMES = "acts_resumed"  # key in the root
_files = threading.Lock()
_NEVER = "never"
"""An epoch that no file names: an image found beside the file of another."""


class ImageIdentity(NamedTuple):
    """Identity of an image, as plain values."""

    id: str
    epoch: str
    """the text that the file beside the image has, too; empty before the image first acted"""
    asked_until: int = 0
    """Number of the last mission that was accepted before the last resume; what it did may be forgotten here."""
    # Fields are only ever added at the end.


class EpochFile(NamedTuple):
    """Contents of the file beside an image."""

    epoch: str = ""
    """of the image as it acted; empty if it had none"""
    next: str = ""
    """the epoch that is about to be committed, or the same"""
    copied: str = ""
    """origin of a copy, in words; empty for an image that is none"""
    inode: int = 0
    """of this file, its device and path: a copy of it has others"""
    device: int = 0
    path: str = ""
    acted: dict[str, int] = {}  # noqa: RUF012 - never changed
    """acts of each machine that were seen in an image of a server (`batos.image.effects.acted`)"""
    resumes: int = 0
    """number of resumes of that image, as they were seen"""


class ActMarks:
    """Acts of each machine, as the file beside an image of a server knows them.

    A server's own means may put its image back to a state of before its last acts. Within one run of a daemon the epochs agree then.
    Each act is counted in the image as it is intended, and in this file before its first byte leaves. So an image that has fewer than the
    file is an older one. Each kernel's file knows the acts of all, those of others as of its last look. Resumes are counted in both, too:
    an image that was resumed since is taken as it is, since its user looked.
    """

    def __init__(self, image: LivingImage, file: pathlib.Path) -> None:
        beside = read_file(file)
        self._image, self._file = image, file
        self._noting = asyncio.Lock()  # an earlier count must not be written after a later one
        self.known: dict[str, int] = dict(beside.acted) if isinstance(beside, EpochFile) else {}
        self._resumes = beside.resumes if isinstance(beside, EpochFile) else 0

    def put_back(self, root: Any) -> str:
        """Return why an image is an older one than the file knows; empty if it is not, or was resumed since."""
        if (there := resumes(root)) < self._resumes:
            return f"the image was put back to a state before its last {self._resumes - there} resumes, so acts could be done twice"
        return effects.put_back(root, self.known) if there == self._resumes else ""

    def are_of(self, root: Any) -> bool:
        """Return True if the file knows the acts and the resumes of an image, and no others."""
        return (self.known, self._resumes) == _acts(root)

    def suspend(self, root: Any) -> None:
        """System transaction: let no kernel act in an image that was put back to an older state, before its user resumes it."""
        if _SUSPENDED not in root and (why := self.put_back(root)):
            root[_SUSPENDED] = why

    async def note(self) -> None:
        """Keep the acts that the image has now in the file.

        :raises OSError: if it cannot be written.
        """
        async with self._noting:
            there, resumed = self._image.read(_acts)
            if resumed > self._resumes:
                await self._keep(there, resumed)
            elif (merged := self.known | {machine: max(n, self.known.get(machine, 0)) for machine, n in there.items()}) != self.known:
                await self._keep(merged, self._resumes)

    async def forget(self) -> None:
        """Take the image as it is for what was done, after its user looked.

        :raises OSError: if the file cannot be written.
        """
        async with self._noting:
            await self._keep(*self._image.read(_acts))

    async def _keep(self, known: dict[str, int], resumed: int) -> None:
        await asyncio.to_thread(_keep_acted, self._file, known, resumed)
        self.known, self._resumes = known, resumed


class ActingState(NamedTuple):
    """Identity of the image, and why it may not act; empty if it may."""

    identity: str
    suspended: str = ""
    marks: ActMarks | None = None
    """None for an image that no other server has"""


def epoch_path(uri: str, data: pathlib.Path) -> pathlib.Path | None:
    """Return the path of the file beside an image; None for an image that ends with its process.

    :param data: the data folder, which has the file of an image that is not a file.
    """
    if uri.startswith("memory:"):
        return None
    image = file_path(uri)
    return data / f"image{_ENDING}" if image is None else image.with_name(image.name + _ENDING)


async def begin(image: LivingImage, file: pathlib.Path | None) -> ActingState:
    """Return whether the image may act, at a start; renew its epoch if it may. It begins an image that has none and no file.

    An epoch that cannot be written suspends the image; no error is raised for it.
    """
    known = image.read(identity_of)
    if file is None:
        if known is None:
            known = await image.system(keep_epoch, secrets.token_hex(16))
        return ActingState(known.id)
    beside = await asyncio.to_thread(read_file, file)
    marks = None if file_path(image.uri) is not None else ActMarks(image, file)
    of = image.read(epochs)
    why = why_suspended(of, beside, file)
    if not why and marks is not None and (why := image.read(suspension) or image.read(marks.put_back)):
        await image.system(marks.suspend)
        why = f"{why}; {RESUME}"
    if why and not beside and image.kernel:
        why = f"no kernel of this machine has acted for this image; it may once it hears of another kernel that does; else {RESUME}"
    if not why:
        try:
            mine = (beside.epoch, beside.next) if isinstance(beside, EpochFile) else ()
            known = await _renew(image, file, next((one for one in mine if one in of), ""))
            if marks is not None:
                await marks.note()
        except OSError as e:
            why = f"{file} cannot be written ({e.strerror or e}); make room or repair the folder, then restart"
            known = known or await image.system(keep_epoch, "")
    if known is None:
        known = await image.system(keep_epoch, _NEVER)
    if why:
        log.warning("tools_suspended", why=why)
    return ActingState(known.id, why, marks)


def suspension(root: Any) -> str:
    """Return why no kernel may act in an image; empty if they may."""
    return str(root.get(_SUSPENDED, ""))


def resumes(root: Any) -> int:
    """Return how often the user of an image let it act again."""
    return int(root.get(_RESUMES, 0))


async def join(image: LivingImage, file: pathlib.Path | None) -> ActingState:
    """Let a further machine act: another kernel that serves the same image acts now, so that the image is not a copy.

    :raises OSError: if the file cannot be written.
    """
    if file is None:
        return await begin(image, file)
    known = await _renew(image, file, "")
    log.info("tools_joined", identity=known.id)
    return ActingState(known.id)


async def resume(image: LivingImage, file: pathlib.Path | None) -> ActingState:
    """Let the image act again, after its user looked. All that had not ended is in doubt from then on, and asks.

    :raises OSError: if the file cannot be written; the image stays suspended.
    """
    new = secrets.token_hex(16)
    if file is not None:
        await asyncio.to_thread(_name_epoch, file, new, new)
    known = await image.system(_resume, new)
    log.info("tools_resumed", identity=known.id)
    return ActingState(known.id)


def epochs(root: Any) -> frozenset[str]:
    """Return the epochs of an image, one for each machine that acted; empty before it first acted."""
    known = identity_of(root)
    return frozenset(({known.epoch} if known is not None and known.epoch else set()) | set((root.get(_BY_MACHINE) or {}).values()))


def why_suspended(of: Collection[str], beside: EpochFile | str, file: pathlib.Path) -> str:
    """Return why an image may not act; empty if it may.

    :param of: its epochs (`epochs`).
    :param beside: contents of the file; empty text if there is none, or why it cannot be read.
    """
    if isinstance(beside, str):
        if not beside:
            return "" if not of else f"this image is a copy, or was moved without {file.name}; {RESUME}"
        return f"{file} cannot be read ({beside}); {RESUME}"
    if beside.copied:
        return f"this image is {beside.copied}; {RESUME}"
    if not _is_at_home(beside, file):
        return f"this folder is a copy of {beside.path}; {RESUME}"
    if not {beside.epoch, beside.next} & (set(of) or {""}):
        return f"this image is not the one that last acted from {file.parent}: an older or another one was put in its place; {RESUME}"
    return ""


def asks_first(root: Any, number: int) -> bool:
    """Return True if a mission of that number was accepted before the last resume. What such a mission did since the copy was made is not
    known here. So each of its acting calls asks its user, whatever grants say."""
    known = identity_of(root)
    return known is not None and number <= known.asked_until


def identity_of(root: Any) -> ImageIdentity | None:
    """Return the identity of an image; None if it has none yet."""
    values = root.get("identity")
    return None if values is None else ImageIdentity(*values)


@contextlib.contextmanager
def marked_copied(image: pathlib.Path, origin: str) -> Iterator[None]:
    """Keep an image that the block places from acting before it is resumed. The mark is on disk before, and goes if the block fails.

    :param image: path of its file.
    :param origin: in words: `a fork of …`.
    """
    file = image.with_name(image.name + _ENDING)
    write_file(file, EpochFile(copied=origin))
    try:
        yield
    except BaseException:
        if not private_files.taken(image):
            file.unlink(missing_ok=True)
        raise


def is_handed_over(file: pathlib.Path, copy: str) -> bool:
    """Return True if an image lost its right to act to a copy of it: a hand-over that was killed, say.

    :param file: the file beside the image.
    :param copy: address of the copy, as messages show it.
    """
    beside = read_file(file)
    return isinstance(beside, EpochFile) and beside.copied == _original(copy) and _is_at_home(beside, file)


def hand_over(known: ImageIdentity, file: pathlib.Path, copy: str, copy_file: pathlib.Path) -> None:
    """Let a copy of an image act in its place, and the image no more until it is resumed. A process that dies in between leaves neither
    able to act; the next call ends it.

    :param known: identity of both.
    :param file: the file beside the image; `copy_file` is that beside the copy, which may be the same file.
    :param copy: address of the copy, as messages show it.
    :raises OSError: if a file cannot be written.
    """
    if file != copy_file:
        write_file(file, EpochFile(copied=_original(copy)))
    write_file(copy_file, EpochFile(known.epoch, known.epoch))


def mark_copied(file: pathlib.Path, origin: str) -> None:
    """Keep the image beside a file from acting before it is resumed.

    :param origin: in words: `a copy of …`.
    :raises OSError: if the file cannot be written.
    """
    write_file(file, EpochFile(copied=origin))


def _original(copy: str) -> str:
    return f"an original of which a copy goes on at {copy}"


def read_file(file: pathlib.Path) -> EpochFile | str:
    """Return the contents of the file beside an image; empty text if there is none, or why it cannot be read."""
    try:
        found = json.loads(file.read_bytes())
        if not isinstance(found, dict):
            raise ValueError
        values = {name: value for name, value in found.items() if name in EpochFile._fields}
        right = all(type(value) is type(EpochFile._field_defaults[name]) for name, value in values.items())
    except FileNotFoundError:
        return ""
    except OSError as e:
        return e.strerror or str(e)
    except (ValueError, TypeError, RecursionError):
        right = False
    return EpochFile(**values) if right else "it is not of the form that it was written in"


async def _renew(image: LivingImage, file: pathlib.Path, epoch: str) -> ImageIdentity:
    new = secrets.token_hex(16)
    await asyncio.to_thread(_name_epoch, file, epoch, new)
    known = await image.system(keep_epoch, new)
    await asyncio.to_thread(_name_epoch, file, new, new)
    return known


def _name_epoch(file: pathlib.Path, epoch: str, new: str) -> None:
    with _files:
        beside = read_file(file)
        known = beside if isinstance(beside, EpochFile) else EpochFile()
        write_file(file, EpochFile(epoch, new, acted=known.acted, resumes=known.resumes))


def _keep_acted(file: pathlib.Path, acted: dict[str, int], resumed: int) -> None:
    with _files:
        beside = read_file(file)
        if isinstance(beside, EpochFile):
            write_file(file, beside._replace(acted=acted, resumes=resumed))


def _acts(root: Any) -> tuple[dict[str, int], int]:
    return effects.acted(root), resumes(root)


def keep_epoch(root: Any, epoch: str) -> ImageIdentity:
    """System transaction: keep the epoch of an image, or that of this machine where several kernels serve it. Return the identity."""
    known, machine = identity_of(root), kernels.host_of(kernels.me(root))
    if machine and known is not None and known.epoch:
        root.setdefault(_BY_MACHINE, OOBTree())[machine] = epoch
        return known
    if _BY_MACHINE in root:  # one daemon has it to itself from now on
        del root[_BY_MACHINE]
    new = ImageIdentity(secrets.token_hex(16), epoch) if known is None else known._replace(epoch=epoch)
    root["identity"] = tuple(new)
    return new


def _resume(root: Any, epoch: str) -> ImageIdentity:
    newest = root["ledger"].newest.mission
    effects.doubt_open(root, f"{RESUMED}: the image was copied, restored or replaced after it began")
    if _SUSPENDED in root:
        del root[_SUSPENDED]
    root[_RESUMES] = resumes(root) + 1
    new = keep_epoch(root, epoch)._replace(asked_until=0 if newest is None else int(newest.number))
    root["identity"] = tuple(new)
    return new


def _is_at_home(beside: EpochFile, file: pathlib.Path) -> bool:
    """Return True if the file is the one that was written, in its place or moved with its folder."""
    try:
        about = file.stat()
    except OSError:
        return False
    return about.st_ino == beside.inode and (about.st_dev == beside.device or os.path.realpath(file) == beside.path)


def write_file(file: pathlib.Path, content: EpochFile) -> None:
    """Write the file beside an image: atomically, with the inode that it then has.

    :raises OSError: if it cannot be written.
    """
    part = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    private_files.make(file.parent)  # of an image on a server nothing has made it yet
    try:
        with private_files.create(part) as handle:
            about = os.fstat(handle.fileno())
            content = content._replace(inode=about.st_ino, device=about.st_dev, path=os.path.realpath(file))
            handle.write(json.dumps(content._asdict()).encode())
            handle.flush()
            os.fsync(handle.fileno())
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
