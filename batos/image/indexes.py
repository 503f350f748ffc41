"""The index of a file, with a checksum behind it.

FileStorage believes its index but for the last few records. One wrong entry shows an old revision as the current one, and
nothing notices. An index whose checksum is wrong, or that has none, is no index: the file is read through instead.
"""

from __future__ import annotations

import pathlib
import pickle
import struct
import zlib
from typing import Any

import structlog
from ZODB import fsIndex

from batos import private_files
from batos.image.groupsync import filestorage

log = structlog.get_logger("batos.image")

_SUM = struct.Struct(">6sI")
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
            file.write(_SUM.pack(_MARK, crc))

    @classmethod
    def load(cls, fname: str) -> dict[str, Any]:
        """What `save` wrote; nothing for one that is not whole: FileStorage then does without."""
        if not _whole(pathlib.Path(fname)):
            log.warning("index_ignored", path=fname, hint="the image is read through once instead")
            return {}
        return super().load(fname)  # type: ignore[no-any-return]


assert vars(filestorage)["fsIndex"] is fsIndex.fsIndex, "this ZODB keeps its index in another way"
vars(filestorage)["fsIndex"] = SummedIndex


def position(path: pathlib.Path) -> int | None:
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
    body = data[: -_SUM.size]
    return body if len(data) > _SUM.size and data[-_SUM.size :] == _SUM.pack(_MARK, zlib.crc32(body)) else b""
