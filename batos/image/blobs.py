"""Blobs: large data that is seldom needed, in files of their own beside the image's file. Pictures of briefs are
blobs.

ZODB makes blobs part of a transaction: a blob's file is in its place before the transaction ends, named by object and
transaction. This module adds what ZODB leaves open. The files are synced before the commit
(`CheckedStorage.storeBlob`). Each begins with a checksum of its data. A sweep removes those that no record refers to
any more, after a pack or a kill within a commit. A backup and a fork take theirs along.

A picture is kept once, by its digest. It is in the image before a mission can name it, so an accepted mission always
has its pictures. `accept` writes them into the mission's slot `images`, its own and those of the mission before it in
a conversation. A picture stays as long as a mission holds it; retention releases it with the texts of the mission's
journal. A picture that no mission holds is kept for some hours, from its upload to the mission that names it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

import ZODB
import zope.interface
from BTrees.OOBTree import OOBTree, OOTreeSet
from persistent import Persistent
from ZODB.blob import Blob, FilesystemHelper, set_not_writable
from ZODB.interfaces import IBlobStorage, IBlobStorageRestoreable
from ZODB.POSException import POSKeyError

from batos import private_files
from batos.errors import ImageDamaged, ImageError, UnknownPicture
from batos.objects import Root

_MAGIC = b"BAT OS blob 1\n"
_HEAD = len(_MAGIC) + 32  # and the digest
_CHUNK = 1 << 20
_RECORD = b"ZODB.blob\nBlob\n"  # how a record of a blob names its class
_SUFFIX = ".blob"


def folder_of(path: pathlib.Path) -> pathlib.Path:
    """Return the folder of the blobs of an image in a file."""
    return path.with_name(path.name + ".blobs")


def attach(storage: Any, path: pathlib.Path, *, read_only: bool) -> None:
    """Let a FileStorage keep blobs. Their folder is made with the first one.

    Its own `blob_dir` stays unset: so its pack leaves blobs alone, and `sweep` removes them, which a crash cannot
    leave half done.
    """
    storage.fshelper = FilesystemHelper(str(folder_of(path)))
    zope.interface.alsoProvides(storage, IBlobStorageRestoreable)
    if not read_only:
        for left in pathlib.Path(storage.fshelper.temp_dir).glob("*"):  # of a process that was killed
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def kept_by(db: ZODB.DB) -> bool:
    """Return True if the image's storage keeps blobs."""
    return bool(IBlobStorage.providedBy(db.storage))


def write(connection: Any, data: bytes) -> Blob:
    """Return a new blob with some data, in the transaction that is open."""
    if (helper := _helper(connection.db().storage)) is not None:
        private_files.make(helper.base_dir)
        helper.create()
    blob = Blob()
    connection.add(blob)  # first: it is written where its storage wants it
    with blob.open("w") as file:
        file.write(_MAGIC + hashlib.sha256(data).digest() + data)
    return blob


def read(blob: Blob) -> bytes:
    """Return the data of a blob.

    :raises ImageDamaged: if the file is gone, or differs from what was written.
    """
    try:
        with blob.open("r") as file:
            found: bytes = file.read()
    except (POSKeyError, OSError) as e:
        raise _damaged(blob, f"cannot be read: {e}") from e
    if found[: len(_MAGIC)] != _MAGIC or hashlib.sha256(found[_HEAD:]).digest() != found[len(_MAGIC) : _HEAD]:
        raise _damaged(blob, "is not what was written")
    return found[_HEAD:]


def problem_of(path: str | os.PathLike[str]) -> str:
    """Return the damage of a blob's file in words; empty if it is intact."""
    try:
        with open(path, "rb") as file:
            head, digest = file.read(_HEAD), hashlib.sha256()
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as e:
        return f"its blob cannot be read: {e.strerror or e}"
    return "" if head == _MAGIC + digest.digest() else "its blob is not what was written"


def is_record(data: bytes) -> bool:
    """Return True if a record stands for a blob."""
    return _RECORD in data[:64]


def sync_file(path: str) -> None:
    """Make a blob's file durable, before it gets its name."""
    _sync(path, os.O_RDONLY)


def sync_name(storage: Any, oid: bytes) -> None:
    """Make a blob's name durable: sync the folders on the way to it."""
    helper = storage.fshelper
    folder, top = pathlib.Path(helper.getPathForOID(oid)), pathlib.Path(helper.base_dir).parent
    while True:
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
        if folder == top:
            return
        folder = folder.parent


def records(db: ZODB.DB) -> Iterator[tuple[bytes, bytes]]:
    """Yield object and transaction of each blob record in an image's file, also of those that nothing refers to any
    more."""
    following: bytes | None = None
    storage = db.storage.base  # past the checksums: they are looked at once, in the order of the file
    while len(storage):
        oid, tid, data, following = storage.record_iternext(following)
        if is_record(data):
            yield oid, tid
        if following is None:
            return


def copy(db: ZODB.DB, source: pathlib.Path, target: pathlib.Path, *, link: bool = False) -> tuple[int, list[str]]:
    """Copy the blobs of an image to another folder; intact copies that are there already stay.

    :param db: the image whose blobs are copied.
    :param link: make hard links where the file system allows them; the files never change.
    :returns: their size in bytes, and the damage in the source with its places.
    """
    size, damaged = 0, []
    ours: FilesystemHelper | None = None
    for oid, tid in records(db):
        theirs, ours = FilesystemHelper(str(source)), ours or _made(target)
        origin, place = theirs.getBlobFilename(oid, tid), pathlib.Path(ours.getBlobFilename(oid, tid))
        if not place.exists() or problem_of(place):
            if problem := problem_of(origin):
                damaged.append(f"oid:{int.from_bytes(oid, 'big'):x}: {problem}")
                continue
            ours.getPathForOID(oid, create=True)
            _copy(origin, place, link)
        os.utime(place)  # of a backup's blobs it says when one needed them last: `batos.image.backup_schedule` drops by it
        size += place.stat().st_size
    if ours is not None:
        _sync_names(target)
    return size, damaged


def sweep(db: ZODB.DB) -> int:
    """Remove the files of blobs that have no record: after a pack, and of unfinished commits. Return their number.

    Commits may go on meanwhile.
    """
    helper = _helper(db.storage)
    if helper is None or not os.path.isdir(helper.base_dir):
        return 0
    last, swept = db.lastTransaction(), 0  # first: what is of a later one may be under way
    for oid, folder in list(helper.listOIDs()):
        for name in os.listdir(folder):
            if not name.endswith(_SUFFIX):
                continue
            tid = helper.splitBlobFilename(os.path.join(folder, name))[1]
            if tid <= last and not _is_there(db, oid, tid):
                os.unlink(os.path.join(folder, name))
                swept += 1
        with contextlib.suppress(OSError):  # there are others in it
            os.rmdir(folder)
    return swept


def _is_there(db: ZODB.DB, oid: bytes, tid: bytes) -> bool:
    try:
        db.storage.loadSerial(oid, tid)
    except KeyError:
        return False
    except ImageDamaged:  # it is there; what is wrong with it is told elsewhere
        return True
    return True


def _helper(storage: Any) -> FilesystemHelper | None:
    """Return the blob files of a storage if this process manages them, else None."""
    if type(getattr(storage, "base", storage)).__module__.startswith("relstorage."):
        return None  # it looks after the files itself
    helper = getattr(storage, "fshelper", None)
    return helper if isinstance(helper, FilesystemHelper) else None


def _made(folder: pathlib.Path) -> FilesystemHelper:
    private_files.make(folder)
    helper = FilesystemHelper(str(folder))
    helper.create()
    return helper


def _copy(origin: str, place: pathlib.Path, link: bool) -> None:
    part = place.with_name(place.name + ".part")
    part.unlink(missing_ok=True)
    try:
        if not link:
            raise OSError
        os.link(origin, part)
    except OSError:  # nor can every file system
        with open(origin, "rb") as source, private_files.create(part) as target:
            shutil.copyfileobj(source, target, _CHUNK)
        set_not_writable(str(part))
    sync_file(str(part))
    part.replace(place)


def sync_tree(folder: pathlib.Path) -> None:
    """Make the files and names in a folder of blobs durable."""
    for held, _, files in os.walk(folder):
        for name in files:
            _sync(os.path.join(held, name), os.O_RDONLY)
        _sync(held, os.O_RDONLY | os.O_DIRECTORY)
    _sync(folder.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync_names(folder: pathlib.Path) -> None:
    for held, _, _ in os.walk(folder):
        _sync(held, os.O_RDONLY | os.O_DIRECTORY)
    _sync(folder.parent, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str | os.PathLike[str], flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _damaged(blob: Blob, what: str) -> ImageDamaged:
    named = f"oid:{int.from_bytes(blob._p_oid, 'big'):x}" if blob._p_oid else "a new one"
    return ImageDamaged(f"the blob {named} {what}; restore a backup (`batos restore`)", record=named)


PICTURES_LIMIT = 64
"""Pictures of a mission, those of earlier ones included: the limit `ThinkingLimits.images` allows no more."""
_BATCH = 32  # pictures that one system transaction of upkeep lets go of
PictureFacts = dict[str, Any]
"""Facts of a mission's picture: `digest`, `name`, `type`, `bytes`, `width`, `height`; `of`, the earlier mission that brought it."""


class Picture(Persistent):
    """One picture, and the ids of the missions that hold it."""

    __module__ = "batos.image"

    def __init__(self, blob: Any, type: str, bytes: int, width: int, height: int) -> None:
        self.blob, self.type, self.bytes, self.width, self.height = blob, type, bytes, width, height
        self.missions = OOTreeSet()

    def about(self) -> PictureFacts:
        """Return the facts about a picture as plain values."""
        return {name: getattr(self, name) for name in ("type", "bytes", "width", "height")}


class Pictures(Persistent):
    """All pictures by digest, and the upload times and sizes of those that no mission holds yet."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.kept, self.waiting = OOBTree(), OOBTree()


def _kept(root: Root) -> Any:
    """Return the pictures by digest; an empty mapping if there never was one."""
    held = root["ledger"].pictures
    return {} if held is None else held.kept


# --- system transactions


def add_picture(root: Root, digest: str, data: bytes, about: PictureFacts, room: int | None = None) -> None:
    """Keep a picture; one that is there stays as it is, but counts as uploaded now. A system transaction.

    :param digest: SHA-256 of its bytes, in hexadecimal.
    :param room: maximum bytes of pictures that no mission holds; above it the longest waiting ones are dropped. None:
        no limit.
    :raises ImageError: for a storage that keeps no blobs.
    """
    ledger = root["ledger"]
    if ledger.pictures is None:
        if not kept_by(root._p_jar.db()):
            raise ImageError("this image is in a storage without blobs, and cannot keep pictures; use one in a file")
        ledger.pictures = Pictures()
    if bring_picture_again(root, digest) is not None:
        return
    pictures = ledger.pictures
    if room is not None:
        waiting = sorted((since, size, other) for other, (since, size) in pictures.waiting.items())
        taken = len(data) + sum(size for _, size, _ in waiting)
        for _, size, other in waiting:
            if taken > room:
                _drop(pictures, other)
                taken -= size
    pictures.kept[digest] = Picture(write(root._p_jar, data), **about)
    pictures.waiting[digest] = time.time(), len(data)


def bring_picture_again(root: Root, digest: str) -> PictureFacts | None:
    """Let a picture that is there count as uploaded now, and return its facts; None if it is not there. A system
    transaction."""
    held = _kept(root).get(digest)
    if held is None:
        return None
    if digest in root["ledger"].pictures.waiting:
        root["ledger"].pictures.waiting[digest] = time.time(), held.bytes
    return held.about()  # type: ignore[no-any-return]


def hold_pictures(root: Root, mission: str, own: str | None, before: Any) -> list[PictureFacts]:
    """Let a mission that is accepted hold its pictures, and return those that it shows, its own first. Part of a
    system transaction.

    :param own: its own, as JSON: rows of `digest` and `name`.
    :param before: mission that it follows, whose pictures are shown again; None if it follows none.
    """
    if not own and (before is None or not before.images):  # nearly always
        return []
    kept, shown = _kept(root), []
    for one in json.loads(own or "[]"):
        if one["digest"] not in kept:
            raise UnknownPicture(f"the image {one['digest'][:16]}… is not stored, or no longer; upload it again (op `upload`)")
        shown.append({**one, **kept[one["digest"]].about()})
    if before is not None and before.images:
        earlier = ({"of": before.id, **one} for one in json.loads(before.images))
        shown += [one for one in earlier if one["digest"] in kept][: PICTURES_LIMIT - len(shown)]
    for one in shown:
        kept[one["digest"]].missions.insert(mission)
        root["ledger"].pictures.waiting.pop(one["digest"], None)
    return shown


def release_pictures(root: Root, mission: Any) -> bool:
    """Let a mission hold no pictures any more; return True if it held any. Part of a system transaction.

    A picture that no other mission holds is dropped.
    """
    released, kept = False, _kept(root)
    for digest in {one["digest"] for one in json.loads(mission.images or "[]")}:
        held = kept.get(digest)
        if held is not None and mission.id in held.missions:
            held.missions.remove(mission.id)
            released = True
            if not held.missions:
                del kept[digest]
    return released


def forget_unheld_pictures(root: Root, before: float) -> int:
    """Drop a batch of pictures that no mission holds and that were uploaded before a moment; return their number. A
    system transaction."""
    found = unheld_pictures(root, before)
    for digest in found:
        _drop(root["ledger"].pictures, digest)
    return len(found)


def _drop(pictures: Pictures, digest: str) -> None:
    del pictures.kept[digest], pictures.waiting[digest]


# --- reads


def unheld_pictures(root: Root, before: float) -> list[str]:
    """Return the digests of a batch of pictures that no mission holds and that were uploaded before a moment."""
    held = root["ledger"].pictures
    waiting = {} if held is None else held.waiting
    return list(itertools.islice((digest for digest, (since, _) in waiting.items() if since < before), _BATCH))


def about_picture(root: Root, digest: str) -> PictureFacts | None:
    """Return the facts about a picture; None if it is not there."""
    held = _kept(root).get(digest)
    return None if held is None else held.about()


def read_picture(root: Root, digest: str) -> bytes:
    """Return the bytes of a picture.

    :raises UnknownPicture: if it is not there.
    :raises ImageDamaged: if its file differs from what was written.
    """
    held = _kept(root).get(digest)
    if held is None:
        raise UnknownPicture(f"the image {digest[:16]}… is no longer kept (setting image.journal_days)")
    return read(held.blob)
