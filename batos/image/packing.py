"""Pack of a file that is being served, without a moment at which a crash could lose the image.

FileStorage copies what is kept into `.pack`, renames the image to `.old` and the copy to the image. It syncs none of
that to disk; this module does. A process that is killed between the two renames leaves no image at all: opening puts
it back (`batos.image.storage`).
"""

from __future__ import annotations

import os
import pathlib
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import ZODB
from persistent.timestamp import TimeStamp
from ZODB.FileStorage.FileStorage import RedundantPackWarning
from ZODB.FileStorage.format import CorruptedError, TxnHeader
from ZODB.FileStorage.fspack import GC, FileStoragePacker, PackCopier
from ZODB.POSException import POSError

from batos.concurrency import LoopTurns
from batos.errors import Busy, ImageDamaged
from batos.image import checksums, zodb_patches
from batos.image.checksummed_storage import REMEDY, base_of
from batos.image.checksums import SummedIndex
from batos.image.storage import sync_to_disk

_DAMAGE = (ImageDamaged, CorruptedError, POSError, struct.error, ValueError, OverflowError, LookupError)  # what a pack meets of it
_MARGIN_S = 1e-5  # so that rounding a time never gets past the transaction it was taken from


class PackStopped(OSError):
    """Signal that the daemon stops: the pack ends without a trace. An OSError, on which FileStorage cleans up and
    releases its lock."""


class _Roomy(TxnHeader):
    """Header of a transaction whose records are selected: it gets a seal, also if an earlier version left it without
    one."""

    __slots__ = ()

    def asString(self) -> bytes:
        self.ext = checksums.with_seal(self.ext, 0)  # type: ignore[misc, has-type]  # ZODB has no types
        self.elen = len(self.ext)  # type: ignore[misc]
        return super().asString()  # type: ignore[no-any-return]


class _Copier(PackCopier):
    """Copier that finds the target of an undone change, though a checksum was added when it was packed."""

    packed_to: bytes

    def _resolve_backpointer(self, transaction: bytes | None, oid: bytes, data: bytes | None) -> int:
        if data and transaction is not None and transaction <= self.packed_to and not checksums.carries_sum(data):
            data = checksums.summed(data)
        return super()._resolve_backpointer(transaction, oid, data)  # type: ignore[no-any-return]


class _Reach(GC):
    """Reachability with regard to later references: it also keeps objects out of reach at the time of the pack that
    something younger refers to.

    An undo brings back an object that was out of reach, and writes only the referring record. ZODB looks at what was
    reachable at the time of the pack.
    """

    def findReachableFromFuture(self) -> None:
        super().findReachableFromFuture()
        position = self.packpos
        while position < self.eof:
            header = self._read_txn_header(position)
            at, end = position + header.headerlen(), position + header.tlen
            while at < end:
                length = self._read_data_header(at).recordlen()
                self._keep(self.findrefs(at))
                at += length
            position = end + checksums.LENGTH.size

    def _keep(self, roots: list[bytes]) -> None:
        while roots:
            oid = roots.pop()
            if oid not in self.reachable and (position := self.oid2curpos.get(oid)):  # else it is younger, and stays anyway
                self.reachable[oid] = position
                roots += self.findrefs(position)


class Packer(FileStoragePacker):
    """Packer that syncs the copy before it becomes the image, and can be stopped.

    A transaction of which it selects records is checked against its seal, and sealed anew. The transactions after the time of the pack are
    copied with their seals.
    """

    turns: _Turns

    def __init__(self, storage: Any, references: Any, until: bytes, gc: bool) -> None:
        super().__init__(storage, references, until, gc)
        self.gc = _Reach(self._file, self.file_end, self._stop, gc, references)
        self.index = SummedIndex()

    def copyToPacktime(self) -> tuple[int, int]:
        self._copier = _Copier(self._tfile, self.index, self.tindex)
        self._copier.packed_to = self._stop
        found: tuple[int, int] = super().copyToPacktime()
        self.sync()  # most of it, while commits still go on
        return found

    def copyDataRecords(self, position: int, header: TxnHeader) -> tuple[int, int]:
        try:
            checksums.check_seal(self._file, position)
        except checksums.Mismatch as e:
            raise ImageDamaged(
                f"the image {self._name} was not packed: its transaction at byte {position} is damaged, {e}; {REMEDY}"
            ) from None
        header.__class__ = _Roomy
        copied, following = super().copyDataRecords(position, header)
        if copied:
            checksums.renew_seal(self._tfile, copied, self._tfile.tell() - copied)
        return copied, following

    def writePackedDataRecord(self, header: Any, data: bytes | None, transaction: int) -> None:
        if data and not checksums.carries_sum(data):
            data = checksums.summed(data)
        super().writePackedDataRecord(header, data, transaction)

    def copyOne(self, position: int) -> int:
        self.turns.take()
        return super().copyOne(position)  # type: ignore[no-any-return]

    def pack(self) -> int | None:
        position: int | None = super().pack()
        if position is not None:
            try:
                self.sync()
                zodb_patches.sync_file(self._storage)  # the committer syncs once a round: it may be that the last commits are not, here
                # it is of the file as it was: after a crash before the new one is written, none is better than the wrong one
                pathlib.Path(self._name + ".index").unlink(missing_ok=True)
            except BaseException:
                self._commit_lock.release()  # it was taken by super().pack(), for the renames that do not come now
                raise
        return position

    def sync(self) -> None:
        if not self._tfile.closed:
            self._tfile.flush()
        fd = os.open(self._name + ".pack", os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def pack_server(db: ZODB.DB, moment: float, stop: threading.Event) -> None:
    """Drop what no transaction since `moment` sees from an image in PostgreSQL, by RelStorage's own pack. Takes seconds; commits of all
    kernels go on. It keeps what anything younger refers to. Call it in a thread.

    :raises PackStopped: if `stop` was set while references were read; the image is as it was.
    :raises Busy: while another process packs it.
    :raises ImageDamaged: if a record is damaged; the image is as it was.
    """
    turns = _Turns(stop)

    def references(data: bytes, *args: Any) -> Any:
        turns.take()
        return db.references(data, *args)

    try:
        db.storage.pack(moment, references)
    except Exception as e:
        if type(e).__name__ == "UnableToAcquirePackUndoLockError":
            raise Busy("another daemon packs this image; one at a time") from None
        raise


class _Turns(LoopTurns):
    """Check between two objects of a pack: it ends the pack if it is to stop, and now and then gives the loop its
    turn."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self._stop = stop

    def take(self) -> None:
        super().take()
        if self._stop.is_set():
            raise PackStopped("the daemon stops; the image is as it was")


def pack_time(days: float, oldest_view: bytes | None, now: Callable[[], float] = time.time) -> float:
    """Return the moment up to which history may be dropped, in seconds since the epoch.

    :param days: days of history to keep.
    :param oldest_view: the first transaction id that the oldest open unit does not see; None if there is none.
    """
    moment = now() - days * 86400
    if oldest_view is not None:
        moment = min(moment, TimeStamp(oldest_view).timeTime() - _MARGIN_S)
    return moment


def pack(db: ZODB.DB, path: pathlib.Path, moment: float, stop: threading.Event) -> None:
    """Drop what no transaction since `moment` sees. Takes seconds; commits go on. Call it in a thread.

    :raises PackStopped: if `stop` was set before the image was replaced.
    :raises OSError: for example for a full disk; the image is as it was.
    :raises ImageDamaged: if data to be kept is damaged, or damage would cause a loss; the image is as it was.
    """

    turns = _Turns(stop)

    def packer(storage: Any, references: Any, until: bytes, gc: bool) -> tuple[int, Any] | None:
        def checked(*args: Any) -> Any:
            turns.take()
            return references(*args)

        packer = Packer(storage, checked, until, gc)
        packer.turns = turns
        try:
            position = packer.pack()
            return None if position is None else (position, packer.index)
        except RedundantPackWarning:  # there is nothing to drop
            raise
        except _DAMAGE as e:
            path.with_name(path.name + ".pack").unlink(missing_ok=True)
            if isinstance(e, ImageDamaged):
                raise
            raise ImageDamaged(f"the image {path} was not packed: it is damaged ({type(e).__name__}: {e}); {REMEDY}") from e
        finally:
            packer.close()

    storage = base_of(db.storage)

    def replaced() -> None:
        """Note that the renames are done. Called under the storage's locks, before anything is committed to the new
        file."""
        try:
            sync_to_disk(path)
        except OSError:
            storage.close()  # whether the new file or the old one will be found is not known: as after a failed fsync
            raise

    with zodb_patches.packing_by(storage, packer, replaced):
        db.pack(moment)
    sync_to_disk(path)
    path.with_name(path.name + ".old").unlink(missing_ok=True)  # only now is the new file sure to be found after a power cut
