"""Checksums: of a record's data, and of a whole transaction.

They are put where a reader that does not know of them does not look: behind the last pickle of a record, and behind the pickle
of a transaction's extension. So every tool of ZODB reads the file as before. A record goes on ending with a full stop, as
pickles do: by that `fsrecover` finds the next whole transaction behind a damaged one.
"""

from __future__ import annotations

import io
import pickletools
import struct
import zlib

from ZODB._compat import PersistentUnpickler

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


def plain(data: bytes, *, required: bool = False) -> bytes:
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
