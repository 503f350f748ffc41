"""Sealing the transactions of a file: a checksum over what is around their records, behind the extension in their header.

Records have checksums of their own (`batos.image.checksums`). The seal covers the transaction's id and status, the mission's id and
the note in its header, and which objects it wrote. It says nothing of positions, which are in the file twice anyway: so it
stays right when a pack, or a tool of ZODB, copies the transaction to another place.

FileStorage is made to leave room for it at `tpc_begin`, and it is filled in before `tpc_vote` writes the transaction.

Checksums: of a record's data, and of a whole transaction.

They are put where a reader that does not know of them does not look: behind the last pickle of a record, and behind the pickle
of a transaction's extension. So every tool of ZODB reads the file as before. A record goes on ending with a full stop, as
pickles do: by that `fsrecover` finds the next whole transaction behind a damaged one.

The index of a file, with a checksum behind it.

FileStorage believes its index but for the last few records. One wrong entry shows an old revision as the current one, and
nothing notices. An index whose checksum is wrong, or that has none, is no index: the file is read through instead.
"""

from __future__ import annotations

import io
import pathlib
import pickle
import pickletools
import struct
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

import structlog
from ZODB import fsIndex
from ZODB._compat import PersistentUnpickler

from batos import private_files
from batos.image import zodb_patches

_STOP = b"."
_NOTHING = b"}."  # the pickle of an empty dict: an extension that is not empty is unpickled by whoever reads it
_SUM = struct.Struct(">I")
SUM_BYTES = _SUM.size + len(_STOP)
SEAL_BYTES = _SUM.size


class Mismatch(ValueError):
    """What was read is not what was written."""


def summed(data: bytes) -> bytes:
    """A record's data with its checksum behind it."""
    return data + _SUM.pack(zlib.crc32(data)) + _STOP


def carries_sum(data: bytes) -> bool:
    """Whether there is a checksum behind a record's data, and it is right."""
    return data[-SUM_BYTES:] == _SUM.pack(zlib.crc32(data[:-SUM_BYTES])) + _STOP


def without_sum(data: bytes, *, required: bool = False) -> bytes:
    """A record's data without its checksum.

    :param required: whether one without a checksum, of an earlier version, counts as damaged. Such a record is the slow
        case: that it is whole is seen by where its pickles end.
    :raises Mismatch: if it is not what was written.
    """
    if carries_sum(data):
        return data[:-SUM_BYTES]
    if required or not _is_pickles(data):
        raise Mismatch("its checksum is wrong")
    return data


def _is_pickles(data: bytes) -> bool:
    """Whether it is the two pickles of a record and nothing else."""
    stream = io.BytesIO(data)
    references: list[object] = []
    unpickler = PersistentUnpickler(None, references.append, stream)
    try:
        unpickler.noload()
        unpickler.noload()
    except Exception:  # noise where a pickle should be raises anything
        return False
    return stream.tell() == len(data)


def with_seal(extension: bytes, crc: int) -> bytes:
    """A transaction's extension with a seal behind it, in place of one that it had."""
    if extension and seal_of(extension) is not None:
        extension = extension[:-SEAL_BYTES]
    return (extension or _NOTHING) + _SUM.pack(crc)


def resealed(extension: bytes, crc: int) -> bytes:
    """An extension that has a seal, with another in its place."""
    return extension[:-SEAL_BYTES] + _SUM.pack(crc)


def seal_of(extension: bytes) -> int | None:
    """The seal behind an extension; None for a transaction of an earlier version.

    :raises Mismatch: for what is neither.
    """
    if not extension:
        return None
    stream = io.BytesIO(extension)
    try:
        for _operation in pickletools.genops(stream):
            pass
    except ValueError:
        raise Mismatch("its extension cannot be read") from None
    seal = stream.read()
    if seal and len(seal) != SEAL_BYTES:
        raise Mismatch("its extension ends with no seal")
    return int(_SUM.unpack(seal)[0]) if seal else None


HEADER = struct.Struct(">8sQcHHH")  # id, length, status, lengths of user, description, extension
LENGTH = struct.Struct(">Q")  # follows each transaction and repeats its length
RECORD = struct.Struct(">8s8sQQHQ")  # id, transaction, position of the previous revision, of the transaction, version, length
_MASK = 0xFFFF_FFFF_FFFF_FFFF
POINTER = 8  # bytes of a record without data: where the data is


class Head(NamedTuple):
    """The header of a transaction in a file."""

    tid: bytes
    length: int
    status: bytes
    size: int
    texts: bytes
    """User and description."""
    extension: bytes
    sizes: tuple[int, ...]

    def crc(self, written: int) -> int:
        """What the seal should be, if the `weight`s of the objects that the transaction wrote add up to that."""
        return _crc(self.tid, self.status, self.texts, self.extension, self.sizes, written)


def begin_seal(storage: Any) -> None:
    """After a FileStorage's `tpc_begin`: make room."""
    pending = zodb_patches.pending_transaction(storage)
    zodb_patches.begin_with(storage, _written(pending.user), _written(pending.description), with_seal(pending.extension, 0))


def close_seal(storage: Any) -> None:
    """Before a FileStorage's `tpc_vote`: fill the seal in."""
    pending = zodb_patches.pending_transaction(storage)
    user, description, extension = _written(pending.user), _written(pending.description), pending.extension
    sizes = len(user), len(description), len(extension)
    crc = _crc(pending.tid, pending.status, user + description, extension, sizes, seal_weight(pending.oids))
    zodb_patches.set_extension(storage, resealed(extension, crc))


def read_head(file: BinaryIO, position: int) -> Head:
    """The header of the transaction at `position`; the file stands behind it.

    :raises sums.Mismatch: if the file ends before it does.
    """
    file.seek(position)
    raw = file.read(HEADER.size)
    if len(raw) == HEADER.size:
        tid, length, status, *sizes = HEADER.unpack(raw)
        texts = file.read(sum(sizes))
        if len(texts) == sum(sizes):
            upto = len(texts) - sizes[2]
            return Head(tid, length, status, HEADER.size + len(texts), texts[:upto], texts[upto:], tuple(sizes))
    raise Mismatch("the file ends in its header")


def check_seal(file: BinaryIO, position: int) -> None:
    """Hold the transaction at `position` against its seal, if it has one.

    :raises sums.Mismatch: if it is not what was written.
    """
    head = read_head(file, position)
    seal = seal_of(head.extension)
    if seal is not None and seal != head.crc(seal_weight(_oids(file, position, head))):
        raise Mismatch("its checksum is wrong")


def renew_seal(file: BinaryIO, position: int, length: int) -> None:
    """Seal a transaction anew of which a pack copied some records to `position`; the file stands behind it again.

    :param length: of the transaction; its header does not have it yet.
    """
    head = read_head(file, position)._replace(length=length)
    crc = head.crc(seal_weight(_oids(file, position, head)))
    file.seek(position + head.size - len(head.extension))
    file.write(resealed(head.extension, crc))
    file.seek(position + length)


def _written(text: bytes | str) -> bytes:
    """A text of a header as it is written: ZODB's own metadata takes one that is set later as it is."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def seal_weight(oids: Iterable[bytes]) -> int:
    """A number for a set of ids, in whatever order they come; it adds up over its parts."""
    return sum(map(zlib.crc32, oids))


def _oids(file: BinaryIO, position: int, head: Head) -> set[bytes]:
    """The ids in the headers of a transaction's records."""
    found = set()
    at, end = position + head.size, position + head.length
    while at < end:
        file.seek(at)
        raw = file.read(RECORD.size)
        if len(raw) < RECORD.size:
            raise Mismatch("the file ends in it")
        oid, *_, length = RECORD.unpack(raw)
        found.add(oid)
        at += RECORD.size + (length or POINTER)
    return found


def _crc(tid: bytes, status: bytes, texts: bytes, extension: bytes, sizes: tuple[int, ...], written: int) -> int:
    parts = (HEADER.pack(tid, written & _MASK, status, *sizes), texts, extension[:-SEAL_BYTES])
    return zlib.crc32(b"".join(parts))


log = structlog.get_logger("batos.image")

_SUM_INDEXES = struct.Struct(">6sI")
_MARK = b"batsum"


class SummedIndex(fsIndex.fsIndex):
    """FileStorage's index, saved with a checksum behind it."""

    def save(self, pos: int, fname: str) -> None:
        """Write it to a file, up to which position of the image it goes first."""
        private_files.renew(fname).close()
        super().save(pos, fname)
        path = pathlib.Path(fname)
        crc = zlib.crc32(path.read_bytes())
        with private_files.extend(path) as file:
            file.write(_SUM_INDEXES.pack(_MARK, crc))

    @classmethod
    def load(cls, fname: str) -> dict[str, Any]:
        """What `save` wrote; nothing for one that is not whole: FileStorage then does without."""
        if not _whole(pathlib.Path(fname)):
            log.warning("index_ignored", path=fname, hint="the image is read through once instead")
            return {}
        return super().load(fname)  # type: ignore[no-any-return]


zodb_patches.use_index(SummedIndex)


def index_position(path: pathlib.Path) -> int | None:
    """Up to where the index in a file knows the image; None if it is not to be believed."""
    data = _whole(path)
    if not data:
        return None
    found = pickle.loads(data)  # noqa: S301  its first item; what FileStorage itself loads next
    return found if isinstance(found, int) else None


def _whole(path: pathlib.Path) -> bytes:
    """The bytes of an index whose checksum is right; none for any other."""
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    body = data[: -_SUM_INDEXES.size]
    return body if len(data) > _SUM_INDEXES.size and data[-_SUM_INDEXES.size :] == _SUM_INDEXES.pack(_MARK, zlib.crc32(body)) else b""
