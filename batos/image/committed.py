"""The transactions of a file to which others commit meanwhile: those that are in it whole.

ZODB's own iterator looks for the last transaction at the end of the file. Where one is being written there, it fails: with a ValueError
in a file of more than 1 MiB, with an AttributeError (`_scan_foreward`) in a smaller one.
"""

from __future__ import annotations

from typing import Any

from ZODB.FileStorage.FileStorage import FileIterator

_FIRST = 4  # bytes before the first transaction


class Committed(FileIterator):
    """Iterates over the transactions that were committed by now, from one to another, both included."""

    def __init__(self, storage: Any, start: bytes | None = None, stop: bytes | None = None) -> None:
        """
        :param storage: a FileStorage.
        """
        self._file_name, self._pos, self._start, self._stop = storage._file_name, _FIRST, start, stop
        with storage._lock:  # the file and its end belong together: a pack puts another in its place
            self._file, self._file_size = open(storage._file_name, "rb"), int(storage._pos)  # noqa: SIM115  closed by `close`
        try:
            if start and self._file_size > _FIRST:
                self._skip_to_start(start)
        except BaseException:
            self.close()
            raise

    def __next__(self) -> Any:
        if self._pos >= self._file_size:  # what is behind it is not a transaction yet
            raise StopIteration
        return super().__next__()
