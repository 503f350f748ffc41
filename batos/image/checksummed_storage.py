"""Storage wrapper that adds checksums, in the manner of zc.zlibstorage, around the storage that the URI names.

Every record is stored with a checksum, which is checked whenever the record leaves. It leaves for a load, a view of the past, an iterator,
or conflict resolution. In a file the transactions are sealed, too (`batos.image.checksums`). A mismatch raises `ImageDamaged`, which names
the record, its class and its writer as far as they are known.
"""

from __future__ import annotations

import contextlib
import errno
import re
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import structlog
import zope.interface
from ZODB.BaseStorage import copy
from ZODB.blob import copyTransactionsFromTo
from ZODB.FileStorage.format import CorruptedError
from ZODB.interfaces import IBlobStorage, IMVCCStorage, IStorageWrapper
from ZODB.POSException import POSError

from batos.errors import ImageDamaged, ImageError
from batos.image import blobs, checksums, zodb_patches
from batos.image.zodb_patches import CommittedTransactions, filestorage

log = structlog.get_logger("batos.image")

_COPIED = (
    "close", "getName", "getSize", "history", "isReadOnly", "lastTransaction", "new_oid", "sortKey", "tpc_abort", "tpc_finish",
    "loadBlob", "openCommittedBlobFile", "temporaryDirectory", "supportsUndo", "undo", "undoLog", "undoInfo", "getTid",
)  # fmt: skip
_ASKED = ("lastTransaction", "load", "loadBefore", "loadSerial", "record_iternext")
_NOISE = (CorruptedError, struct.error, ValueError, OverflowError, MemoryError)  # what reading at a wrong place of a file comes to
_UNREAD = (*_NOISE, OSError)
_CLASS = re.compile(rb"(?<![\w.])c?([a-zA-Z_][\w.]*+)\n(\w++)\n")  # how the pickle of a record begins
REMEDY = "restore a backup (`batos restore`)"


def base_of(storage: Any) -> Any:
    """Return the storage under the checksums."""
    return storage.base if isinstance(storage, CheckedStorage) else storage


@contextlib.contextmanager
def reading(storage: Any) -> Iterator[Any]:
    """Yield a storage for reads beside the connections: an instance of its own, of now, of a server that does MVCC itself (RelStorage)."""
    if not hasattr(base_of(storage), "new_instance"):
        yield storage
        return
    instance = storage.new_instance()
    try:
        instance.poll_invalidations()
        yield instance
    finally:
        instance.release()


@zope.interface.implementer(IStorageWrapper)
class CheckedStorage:
    """Storage whose records carry checksums."""

    def __init__(self, base: Any, name: str, *, of_connection: bool = False) -> None:
        """
        :param name: name of the image, for messages.
        :param of_connection: True for the view of one connection of a storage that does MVCC itself.
        """
        self.base, self.name = base, name
        self.db: Any = None
        """Receiver of invalidations; None until one is registered: a server may send some before."""
        self.required_after: bytes | None = None
        """Records written after this transaction must have a checksum; None: those of an earlier version need not."""
        self.sealing = isinstance(base, filestorage.FileStorage)
        """True for a file of this process's own, whose transactions are sealed."""
        for method in _COPIED:
            if hasattr(base, method):
                setattr(self, method, getattr(base, method))
        if IMVCCStorage.providedBy(base) and not of_connection:
            self._asking = threading.Lock()
            for method in _ASKED:
                setattr(self, method, self._as_of_now(getattr(self, method)))
            history = self._as_of_now(base.history)
            self.history = lambda oid, size=1: history(oid, size=size)  # ZODB gives the size where RelStorage has a version
        zope.interface.directlyProvides(self, zope.interface.providedBy(base))
        if hasattr(base, "registerDB"):
            base.registerDB(self)

    def __getattr__(self, name: str) -> Any:
        if name == "base":  # not set yet
            raise AttributeError(name)
        return getattr(self.base, name)

    def __len__(self) -> int:
        return len(self.base)

    def _as_of_now(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method so that it sees the present. A storage that does MVCC itself (RelStorage) shows its own
        moment, which a call from outside all connections has to move on first."""

        def asked(*args: Any, **more: Any) -> Any:
            with self._asking:
                try:
                    self.base.poll_invalidations()
                    return method(*args, **more)
                finally:
                    self.base.afterCompletion()  # else its session would rest in a transaction, which holds PostgreSQL's vacuum back

        return asked

    # --- out

    def load(self, oid: bytes, version: str = "") -> tuple[bytes, bytes]:
        """Return the current data of a record, and its transaction id."""
        try:
            data, tid = self.base.load(oid)
        except _UNREAD as e:
            self._misplaced(oid, e)
        return self._checked(oid, tid, data), tid

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        """Return the data of a record as of before a transaction, and the transactions between which it was current."""
        try:
            found = self.base.loadBefore(oid, tid)
        except _UNREAD as e:
            self._misplaced(oid, e)
        return None if found is None else (self._checked(oid, found[1], found[0]), found[1], found[2])

    def loadSerial(self, oid: bytes, serial: bytes) -> bytes:
        """Return the data of one revision of a record."""
        try:
            data = self.base.loadSerial(oid, serial)
        except _UNREAD as e:
            self._misplaced(oid, e)
        return self._checked(oid, serial, data)

    def record_iternext(self, next: bytes | None = None) -> tuple[bytes, bytes, bytes, bytes | None]:
        """Return the current data of the record with the smallest id from `next` on."""
        oid, tid, data, following = self.base.record_iternext(next)
        return oid, tid, self._checked(oid, tid, data), following

    def iterator(self, start: bytes | None = None, stop: bytes | None = None) -> Iterator[Any]:
        """Iterate over the transactions, as `copyTransactionsFrom` reads them; of a file, over the complete ones."""
        found = CommittedTransactions(self.base, start, stop) if self.sealing else self.base.iterator(start, stop)
        with contextlib.closing(found) if hasattr(found, "close") else contextlib.nullcontext(found) as transactions:  # ZEO's has none
            for transaction in transactions:
                yield _Transaction(self, transaction)

    def untransform_record_data(self, data: bytes) -> bytes:
        """Return data without its checksum, for conflict resolution and packs by ZODB's own code. psycopg2 hands over a memoryview."""
        return checksums.without_sum(bytes(data))

    # --- in

    def store(self, oid: bytes, serial: bytes, data: bytes, version: str, transaction: Any) -> Any:
        """Store a record with its checksum."""
        return self.base.store(oid, serial, checksums.summed(data), version, transaction)

    def restore(self, oid: bytes, serial: bytes, data: bytes | None, version: str, prev_txn: bytes | None, transaction: Any) -> None:
        """Store a record of another storage with its transaction id."""
        self.base.restore(oid, serial, data and checksums.summed(data), version, prev_txn, transaction)

    def storeBlob(self, oid: bytes, oldserial: bytes, data: bytes, blobfilename: str, version: str, transaction: Any) -> Any:
        """Store the record of a blob. In a file, the blob is durable before any reference to it."""
        if self.sealing:
            blobs.sync_file(blobfilename)
        self.base.storeBlob(oid, oldserial, checksums.summed(data), blobfilename, version, transaction)
        if self.sealing:
            blobs.sync_name(self.base, oid)

    def restoreBlob(self, oid: bytes, serial: bytes, data: bytes, blobfilename: str, prev_txn: bytes | None, transaction: Any) -> None:
        """Store the record of a blob of another storage."""
        self.base.restoreBlob(oid, serial, data and checksums.summed(data), blobfilename, prev_txn, transaction)

    def transform_record_data(self, data: bytes) -> bytes:
        """Return the data that conflict resolution made, as it is stored."""
        return checksums.summed(data)

    def tpc_begin(self, transaction: Any, *args: Any) -> None:
        """Begin a commit; in a file, with room for a seal."""
        self.base.tpc_begin(transaction, *args)
        if self.sealing:
            zodb_patches.gather_in_memory(self.base)
            checksums.begin_seal(self.base)

    def tpc_vote(self, transaction: Any) -> Any:
        """Write the transaction; in a file, sealed."""
        if self.sealing:
            with zodb_patches.before_vote(self.base, transaction) as under_way:
                if under_way:  # else it says itself what is wrong
                    checksums.close_seal(self.base)
        return self.base.tpc_vote(transaction)

    def copyTransactionsFrom(self, other: Any) -> None:
        """Copy everything that another storage holds, with its blobs if this one takes them."""
        if IBlobStorage.providedBy(self.base):
            copyTransactionsFromTo(other, self)
        else:
            copy(other, self)

    def pack(self, pack_time: float, referencesf: Any, gc: bool | None = None) -> None:
        """Pack. Damage in data to be kept stops the pack, since its references cannot be trusted to tell garbage."""

        def references(data: bytes, *args: Any) -> Any:
            try:
                return referencesf(checksums.without_sum(bytes(data)), *args)
            except checksums.Mismatch as e:
                raise ImageDamaged(f"the image {self.name} was not packed: a record of it is damaged, {e}; {REMEDY}") from None

        args = () if gc is None else (gc,)
        self.base.pack(pack_time, references, *args)

    # --- instances, and what ZODB asks of a wrapper

    def new_instance(self) -> CheckedStorage:
        """Return a view for one connection, with checksums, of a storage that does MVCC itself (RelStorage)."""
        return CheckedStorage(self.base.new_instance(), self.name, of_connection=True)._like(self)

    def before_instance(self, before: bytes) -> CheckedStorage:
        """Return a view of the past."""
        return CheckedStorage(self.base.before_instance(before), self.name, of_connection=True)._like(self)

    def undo_instance(self) -> CheckedStorage:
        """Return the view that an undo uses."""
        return CheckedStorage(self.base.undo_instance(), self.name, of_connection=True)._like(self)

    def _like(self, other: CheckedStorage) -> CheckedStorage:
        self.required_after = other.required_after
        return self

    def registerDB(self, db: Any) -> None:
        """Register the receiver of invalidations."""
        self.db = db

    def invalidateCache(self) -> None:
        """Pass on that any object may have changed."""
        if self.db is not None:
            self.db.invalidateCache()

    def invalidate(self, transaction_id: bytes, oids: Any, version: str = "") -> None:
        """Pass on the ids of changed objects."""
        if self.db is not None:
            self.db.invalidate(transaction_id, oids)

    def references(self, record: bytes, oids: Any = None) -> Any:
        """Return the ids that a record refers to."""
        return self.db.references(checksums.without_sum(record), oids)

    # --- damage

    def drop_index(self, why: str) -> None:
        """Drop a file's index for good: the next start builds it anew."""
        if not self.base.isReadOnly() and zodb_patches.drop_index(self.base):  # else it is another process's index
            log.error("index_dropped", image=self.name, why=why)

    def _checked(self, oid: bytes, tid: bytes, data: bytes) -> bytes:
        if checksums.carries_sum(data):
            return data[: -checksums.SUM_BYTES]
        required = self.required_after
        try:
            late = required is not None and tid > required and zodb_patches.first_writer(self.base, oid, tid) > required
            return checksums.without_sum(data, required=late)
        except checksums.Mismatch as e:
            raise self.damaged(oid, data, f"is not what was written: {e}; {REMEDY}; whatever does not need it goes on") from None

    def _misplaced(self, oid: bytes, cause: BaseException) -> NoReturn:
        """Raise the error for a record that is not where the index says: the index, the file or the disk is wrong."""
        if isinstance(cause, OSError):
            if cause.errno != errno.EIO:  # too many open files, say: nothing is wrong with the record
                raise cause
            raise self.damaged(oid, b"", f"cannot be read: {cause.strerror}; look at the disk, then {REMEDY}") from cause
        if not self.sealing:
            raise self.damaged(oid, b"", f"cannot be read: {cause}; look at the storage's server") from cause
        if zodb_patches.readers_closed(self.base):  # meanwhile, and so was what was being read
            raise ImageError(f"the image {self.name} is closed") from cause
        self.drop_index(str(cause))
        raise self.damaged(
            oid,
            b"",
            f"is not where {self.name}.index says; the index was dropped and is built anew when the daemon is started again. "
            f"If that does not help, the file is damaged: {REMEDY}",
        ) from cause

    def damaged(self, oid: bytes, data: bytes, what: str) -> ImageDamaged:
        """Return the error for a damaged record."""
        named = f"oid:{int.from_bytes(oid, 'big'):x}"
        kind = _CLASS.search(data[:200])
        facts = f", a {kind[1].decode()}.{kind[2].decode()}" if kind else ""
        if writer := self._writer(oid):
            facts += f", last written by {writer!r}"
        return ImageDamaged(f"the record {named} of the image {self.name}{facts}, {what}", record=named)

    def _writer(self, oid: bytes) -> str:
        """Return the mission in the metadata of a record's last revision; empty if it is not known."""
        try:
            user = self.base.history(oid, 1)[0]["user_name"]
        except (*_UNREAD, POSError, LookupError, AttributeError, NotImplementedError, TypeError):
            return ""
        return str(user, "utf-8", "replace") if isinstance(user, bytes) else str(user)


class _Transaction:
    """Transaction of an iterator: its records are checked, and come without their checksums."""

    def __init__(self, storage: CheckedStorage, transaction: Any) -> None:
        self._storage, self._transaction = storage, transaction

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)

    def __iter__(self) -> Iterator[Any]:
        for record in self._transaction:
            if record.data:
                record.data = self._storage._checked(record.oid, record.tid, record.data)
            yield record
