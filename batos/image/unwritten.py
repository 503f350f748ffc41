"""A full disk: what it means for whoever wanted something recorded, and what it leaves behind in memory.

A file keeps in its buffer what it could not write. FileStorage cuts its file back then, which writes the buffer first and
fails again; so the rest of a transaction that failed would be written with a later one, behind its end, or fail the closing.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from batos.errors import ImageError
from batos.image.groupsync import filestorage

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def refusal(failure: BaseException) -> ImageError | None:
    """What is told of a commit for which the disk had no room, with the remedy; None for another failure."""
    if not isinstance(failure, OSError) or failure.errno not in _FULL:
        return None
    return ImageError(f"the image could not be written: {os.strerror(failure.errno)}; make room on its disk", cause="disk_full")


def drop(storage: Any, failure: BaseException) -> None:
    """After a commit that failed: if the file could not be written, forget what was to be written, and cut the file back.

    To be called by the thread that commits, between two transactions.
    """
    if not isinstance(failure, OSError) or not isinstance(storage, filestorage.FileStorage):
        return
    with storage._lock:
        if storage._file.closed:
            return
        file = open(storage._file_name, "r+b")  # noqa: SIM115  the storage closes it, and the next
        file.truncate(storage._pos)
        file.seek(0, os.SEEK_END)
        storage._file.raw.close()  # a file whose raw file is closed has nothing left to write
        storage._file = file
        storage._nextpos = 0
        storage._files.flush()  # readers may have read ahead into what was cut off
