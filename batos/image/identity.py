"""Identity of an image, and its right to act on the world: an *epoch* in the image that a file beside it has, too.

The identity is made once and never changes; keys of effects derive from it. The epoch is a random text that every start replaces, in both
places. An image acts only where both agree and the file still is the one that was written there. So a copied folder, a fork, a restored
backup, or an older image put in place may not act until its user resumes it: its unfinished missions would act twice.

A start first names the next epoch in the file, too, then commits it, then names it alone. A resume names it alone, then commits it.
A process that dies in between leaves what acts able to act, and what is suspended, suspended.

Where several kernels serve one image, each machine has an epoch of its own, in the image and in the file in its data folder. The first
start on a further machine finds no file: it may not act before it is seen that another kernel which serves the same image does (`join`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import secrets
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


class ActingState(NamedTuple):
    """Identity of the image, and why it may not act; empty if it may."""

    identity: str
    suspended: str = ""


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
            known = await image.system(_keep_epoch, secrets.token_hex(16))
        return ActingState(known.id)
    beside = await asyncio.to_thread(read_file, file)
    of = image.read(epochs)
    why = why_suspended(of, beside, file)
    if why and not beside and image.kernel:
        why = f"no kernel of this machine has acted for this image; it may once it hears of another kernel that does; else {RESUME}"
    if not why:
        try:
            mine = (beside.epoch, beside.next) if isinstance(beside, EpochFile) else ()
            known = await _renew(image, file, next((one for one in mine if one in of), ""))
        except OSError as e:
            why = f"{file} cannot be written ({e.strerror or e}); make room or repair the folder, then restart"
            known = known or await image.system(_keep_epoch, "")
    if known is None:
        known = await image.system(_keep_epoch, _NEVER)
    if why:
        log.warning("tools_suspended", why=why)
    return ActingState(known.id, why)


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
        await asyncio.to_thread(_write, file, EpochFile(new, new))
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
    """Return True if a mission of that number was accepted before the last resume: what it did since the copy was made is not known
    here, so each acting call of it asks its user, whatever grants say."""
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
    _write(file, EpochFile(copied=origin))
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
        _write(file, EpochFile(copied=_original(copy)))
    _write(copy_file, EpochFile(known.epoch, known.epoch))


def mark_copied(file: pathlib.Path, origin: str) -> None:
    """Keep the image beside a file from acting before it is resumed.

    :param origin: in words: `a copy of …`.
    :raises OSError: if the file cannot be written.
    """
    _write(file, EpochFile(copied=origin))


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
    await asyncio.to_thread(_write, file, EpochFile(epoch, new))
    known = await image.system(_keep_epoch, new)
    await asyncio.to_thread(_write, file, EpochFile(new, new))
    return known


def _keep_epoch(root: Any, epoch: str) -> ImageIdentity:
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
    new = _keep_epoch(root, epoch)._replace(asked_until=0 if newest is None else int(newest.number))
    root["identity"] = tuple(new)
    return new


def _is_at_home(beside: EpochFile, file: pathlib.Path) -> bool:
    """Return True if the file is the one that was written, in its place or moved with its folder."""
    try:
        about = file.stat()
    except OSError:
        return False
    return about.st_ino == beside.inode and (about.st_dev == beside.device or os.path.realpath(file) == beside.path)


def _write(file: pathlib.Path, content: EpochFile) -> None:
    """Write the file atomically, with the inode that it then has."""
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
