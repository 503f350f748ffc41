"""Where a FileStorage gathers the records of a transaction until it is voted on: in memory.

FileStorage has a file for it, and asks the system for its position in it before each record. Each such call lets go of the
interpreter's lock: the committer's thread and the loop's changed places for every record, and both went slower for it.
"""

from __future__ import annotations

import io
from typing import Any

from batos.image.groupsync import filestorage

_KEPT_BYTES = 8 << 20  # what a larger transaction took is let go before the next


def prepare(storage: Any) -> None:
    """After a FileStorage's `tpc_begin`: give it memory in place of its file, or of memory that has grown large."""
    held = storage._tfile
    if not isinstance(held, io.BytesIO):
        held.close()
    elif held.getbuffer().nbytes <= _KEPT_BYTES:
        return
    storage._tfile = io.BytesIO()
    storage._tfmt = filestorage.TempFormatter(storage._tfile)
