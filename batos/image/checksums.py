"""Checksums of records, transactions and the index of an image's file.

A checksum stands where a reader that does not know of it does not look. It stands behind the last pickle of a record, and behind the pickle
of a transaction's extension. So every tool of ZODB reads the file as before. A record still ends with a full stop, as pickles do: by it
`fsrecover` finds the next whole transaction behind a damaged one.

A *seal* is the checksum of a transaction. It covers the transaction's id and status, the mission's id and the note in
its header, and the ids of the objects that it wrote. It does not cover positions, which are in the file twice anyway. So it stays valid
when a pack, or a tool of ZODB, copies the transaction to another place. FileStorage leaves room for it at `tpc_begin`; it is filled in
before `tpc_vote` writes the transaction.

FileStorage trusts its index but for the last few records. One wrong entry would show an old revision as the current
one, unnoticed. An index without a valid checksum is discarded, and the file is read instead.
"""

from __future__ import annotations

import io
import pathlib
import pickle
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
_NOTHING = b"}."  # the pickle of an empty dict: an extension that is not empty is unpickled by each reader
_SUM = struct.Struct(">I")
SUM_BYTES = _SUM.size + len(_STOP)
SEAL_BYTES = _SUM.size


class Mismatch(ValueError):
    """Data that was read and differs from what was written."""


def summed(data: bytes) -> bytes:
    """Return a record's data with its checksum behind it."""
    return data + _SUM.pack(zlib.crc32(data)) + _STOP


def carries_sum(data: bytes) -> bool:
    """Return True if a valid checksum stands behind a record's data."""
    return data[-SUM_BYTES:] == _SUM.pack(zlib.crc32(data[:-SUM_BYTES])) + _STOP


def without_sum(data: bytes, *, required: bool = False) -> bytes:
    """Return a record's data without its checksum.

    :param required: True if a record without a checksum, of an earlier version, counts as damaged. Such a record is
        the slow case: the ends of its pickles show that it is whole.
    :raises Mismatch: if it differs from what was written.
    """
    if carries_sum(data):
        return data[:-SUM_BYTES]
    if required or not _is_pickles(data):
        raise Mismatch("its checksum is wrong")
    return data


def _is_pickles(data: bytes) -> bool:
    """Return True if data is the two pickles of a record and nothing else."""
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
    """Return a transaction's extension with a seal behind it, in place of an earlier seal."""
    if extension and seal_of(extension) is not None:
        extension = extension[:-SEAL_BYTES]
    return (extension or _NOTHING) + _SUM.pack(crc)


def resealed(extension: bytes, crc: int) -> bytes:
    """Return a sealed extension with another seal."""
    return extension[:-SEAL_BYTES] + _SUM.pack(crc)


def seal_of(extension: bytes) -> int | None:
    """Return the seal behind an extension; None for a transaction of an earlier version.

    :raises Mismatch: for data that is neither.
    """
    if not extension:
        return None
    seal = extension[len(_NOTHING) :] if extension.startswith(_NOTHING) else _behind_pickle(extension)
    if seal and len(seal) != SEAL_BYTES:
        raise Mismatch("its extension does not end with a seal")
    return int(_SUM.unpack(seal)[0]) if seal else None


def _behind_pickle(extension: bytes) -> bytes:
    """Return what follows the pickle of an extension.

    :raises Mismatch: if it does not begin with a pickle.
    """
    import pickletools  # late: images of several kernels and copies need it, other transactions have an empty extension

    stream = io.BytesIO(extension)
    try:
        for _operation in pickletools.genops(stream):
            pass
    except ValueError:
        raise Mismatch("its extension cannot be read") from None
    return stream.read()


HEADER = struct.Struct(">8sQcHHH")  # id, length, status, lengths of user, description, extension
LENGTH = struct.Struct(">Q")  # follows each transaction and repeats its length
RECORD = struct.Struct(">8s8sQQHQ")  # id, transaction, position of the previous revision, of the transaction, version, length
_MASK = 0xFFFF_FFFF_FFFF_FFFF
POINTER = 8  # bytes of a record without data: where the data is


class Head(NamedTuple):
    """Header of a transaction in a file."""

    tid: bytes
    length: int
    status: bytes
    size: int
    texts: bytes
    """User and description."""
    extension: bytes
    sizes: tuple[int, ...]

    def crc(self, written: int) -> int:
        """Return the seal of the transaction, given the `seal_weight` of the objects that it wrote."""
        return _crc(self.tid, self.status, self.texts, self.extension, self.sizes, written)


def begin_seal(storage: Any) -> None:
    """Make room for a seal, after a FileStorage's `tpc_begin`."""
    pending = zodb_patches.pending_transaction(storage)
    zodb_patches.begin_with(storage, _written(pending.user), _written(pending.description), with_seal(pending.extension, 0))


def close_seal(storage: Any) -> None:
    """Fill the seal in, before a FileStorage's `tpc_vote`."""
    pending = zodb_patches.pending_transaction(storage)
    user, description, extension = _written(pending.user), _written(pending.description), pending.extension
    sizes = len(user), len(description), len(extension)
    crc = _crc(pending.tid, pending.status, user + description, extension, sizes, seal_weight(pending.oids))
    zodb_patches.set_extension(storage, resealed(extension, crc))


def read_head(file: BinaryIO, position: int) -> Head:
    """Read the header of the transaction at `position`; the file stands behind it afterwards.

    :raises Mismatch: if the file ends within it.
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
    """Check the transaction at `position` against its seal, if it has one.

    :raises Mismatch: if it differs from what was written.
    """
    head = read_head(file, position)
    seal = seal_of(head.extension)
    if seal is not None and seal != head.crc(seal_weight(_oids(file, position, head))):
        raise Mismatch("its checksum is wrong")


def renew_seal(file: BinaryIO, position: int, length: int) -> None:
    """Seal a transaction anew of which a pack copied some records to `position`; the file stands behind it again.

    :param length: length of the transaction, which its header does not have yet.
    """
    head = read_head(file, position)._replace(length=length)
    crc = head.crc(seal_weight(_oids(file, position, head)))
    file.seek(position + head.size - len(head.extension))
    file.write(resealed(head.extension, crc))
    file.seek(position + length)


def _written(text: bytes | str) -> bytes:
    """Return a text of a header as it is written: ZODB's own metadata takes a text that is set later as it is."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def seal_weight(oids: Iterable[bytes]) -> int:
    """Return a number for a set of ids, independent of their order; the numbers of disjoint sets add up."""
    return sum(map(zlib.crc32, oids))


def _oids(file: BinaryIO, position: int, head: Head) -> set[bytes]:
    """Return the ids in the headers of a transaction's records."""
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
        """Write the index to a file, after the position of the image up to which it goes."""
        private_files.renew(fname).close()
        super().save(pos, fname)
        path = pathlib.Path(fname)
        crc = zlib.crc32(path.read_bytes())
        with private_files.extend(path) as file:
            file.write(_SUM_INDEXES.pack(_MARK, crc))

    @classmethod
    def load(cls, fname: str) -> dict[str, Any]:
        """Return the index that `save` wrote; empty if the file is not intact, so that FileStorage does without."""
        if not _whole(pathlib.Path(fname)):
            log.warning("index_ignored", path=fname, hint="the image is read through once instead")
            return {}
        return super().load(fname)  # type: ignore[no-any-return]


zodb_patches.use_index(SummedIndex)


def index_position(path: pathlib.Path) -> int | None:
    """Return the position up to which the index in a file covers the image; None if its checksum is not valid."""
    data = _whole(path)
    if not data:
        return None
    found = pickle.loads(data)  # noqa: S301  its first item; what FileStorage itself loads next
    return found if isinstance(found, int) else None


def _whole(path: pathlib.Path) -> bytes:
    """Return the bytes of an index with a valid checksum; empty for any other file."""
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    body = data[: -_SUM_INDEXES.size]
    return body if len(data) > _SUM_INDEXES.size and data[-_SUM_INDEXES.size :] == _SUM_INDEXES.pack(_MARK, zlib.crc32(body)) else b""
