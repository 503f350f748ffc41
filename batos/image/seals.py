"""Sealing the transactions of a file: a checksum over what is around their records, behind the extension in their header.

Records have checksums of their own (`batos.image.sums`). The seal covers the transaction's id and status, the mission's id and
the note in its header, and which objects it wrote. It says nothing of positions, which are in the file twice anyway: so it
stays right when a pack, or a tool of ZODB, copies the transaction to another place.

FileStorage is made to leave room for it at `tpc_begin`, and it is filled in before `tpc_vote` writes the transaction.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

from batos.image import sums

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


def begin(storage: Any) -> None:
    """After a FileStorage's `tpc_begin`: make room."""
    user, description, extension = storage._ude
    storage._ude = _written(user), _written(description), sums.with_seal(extension, 0)
    storage._begin(storage._tid, *storage._ude)  # its length decides where the records will be


def close(storage: Any) -> None:
    """Before a FileStorage's `tpc_vote`: fill the seal in."""
    user, description, extension = storage._ude
    sizes = len(user), len(description), len(extension)
    crc = _crc(storage._tid, storage._tstatus.encode("ascii"), user + description, extension, sizes, weight(storage._tindex))
    storage._ude = user, description, sums.resealed(extension, crc)


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
    raise sums.Mismatch("the file ends in its header")


def check(file: BinaryIO, position: int) -> None:
    """Hold the transaction at `position` against its seal, if it has one.

    :raises sums.Mismatch: if it is not what was written.
    """
    head = read_head(file, position)
    seal = sums.seal_of(head.extension)
    if seal is not None and seal != head.crc(weight(_oids(file, position, head))):
        raise sums.Mismatch("its checksum is wrong")


def renew(file: BinaryIO, position: int, length: int) -> None:
    """Seal a transaction anew of which a pack copied some records to `position`; the file stands behind it again.

    :param length: of the transaction; its header does not have it yet.
    """
    head = read_head(file, position)._replace(length=length)
    crc = head.crc(weight(_oids(file, position, head)))
    file.seek(position + head.size - len(head.extension))
    file.write(sums.resealed(head.extension, crc))
    file.seek(position + length)


def _written(text: bytes | str) -> bytes:
    """A text of a header as it is written: ZODB's own metadata takes one that is set later as it is."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text


def weight(oids: Iterable[bytes]) -> int:
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
            raise sums.Mismatch("the file ends in it")
        oid, *_, length = RECORD.unpack(raw)
        found.add(oid)
        at += RECORD.size + (length or POINTER)
    return found


def _crc(tid: bytes, status: bytes, texts: bytes, extension: bytes, sizes: tuple[int, ...], written: int) -> int:
    parts = (HEADER.pack(tid, written & _MASK, status, *sizes), texts, extension[: -sums.SEAL_BYTES])
    return zlib.crc32(b"".join(parts))
