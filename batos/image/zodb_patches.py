"""ZODB's internals that BAT OS replaces or reads: all of them are in this module, and ZODB is pinned below 7.

Group fsync: FileStorage syncs once a commit, while it holds its lock. On the committer's thread its syncs are left out, and
`Syncer.sync` makes up for them once a round, outside the lock. A commit is visible before it is durable for the length of one
fsync. That is harmless inside the process: a later commit lies behind it in the same file and is synced with it or after it.
Whatever leaves the process waits for it (`batos.image.committer.Committer.barrier`).

Each name that is replaced in ZODB's modules is asserted at import, so that a ZODB that works in another way fails here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

from transaction import TransactionManager
from transaction.interfaces import NoTransaction
from ZODB import fsIndex
from ZODB.FileStorage.FileStorage import FileIterator
from ZODB.FileStorage.format import CorruptedError
from ZODB.serialize import ObjectWriter
from ZODB.utils import p64, u64

filestorage = importlib.import_module("ZODB.FileStorage.FileStorage")  # the module, in which a commit looks up its `fsync`

# --- group fsync

_thread = threading.local()


def _fsync(fd: int) -> None:
    if not getattr(_thread, "left_out", False):
        os.fsync(fd)


assert callable(vars(filestorage)["fsync"]), "this ZODB syncs in another way"
vars(filestorage)["fsync"] = _fsync


def leave_out_syncs() -> None:
    """Leave FileStorage's own syncs out on the calling thread; the caller makes the commits durable with a `Syncer`."""
    _thread.left_out = True


class Syncer:
    """Makes durable, with one fsync, what was committed to a storage since the last time."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._grouped = isinstance(storage, filestorage.FileStorage)  # others are durable when a commit returns
        self._synced = self._last()

    def _last(self) -> bytes:
        return self._storage.lastTransaction() if self._grouped else b""

    @property
    def behind(self) -> bool:
        """True while a commit is visible that is not durable yet."""
        return self._last() != self._synced

    def sync(self) -> bool:
        """Make all commits durable; return False if they were already.

        :raises OSError: after closing the storage, as FileStorage does. Never try again: the kernel may have dropped what it
            could not write (fsyncgate, 2018).
        """
        last = self._last()
        if last == self._synced:
            return False
        try:
            with self._storage._lock:  # a pack closes the file for a moment, and opens another one in its place
                fd = os.dup(self._storage._file.fileno())
            try:
                os.fsync(fd)  # should it be the one from before a pack by now: the pack has synced what it copied
            finally:
                os.close(fd)
        except (OSError, ValueError):  # ValueError: it closed itself before
            if not self._storage._file.closed:
                self._storage.close()
            raise
        self._synced = last
        return True


def sync_file(storage: Any) -> None:
    """Sync the storage's file on the calling thread."""
    os.fsync(storage._file.fileno())


# --- the file and its index

_FIRST = 4  # bytes before the first transaction
_UNREADABLE = (CorruptedError, struct.error, ValueError, OverflowError, MemoryError, OSError, KeyError)


class CommittedTransactions(FileIterator):
    """The transactions of a file that are committed by now, from one id to another, both included.

    ZODB's own iterator looks for the last transaction at the end of the file. Where one is being written there, it fails. The failure is a
    ValueError in a file of more than 1 MiB, and an AttributeError (`_scan_foreward`) in a smaller one.
    """

    def __init__(self, storage: Any, start: bytes | None = None, stop: bytes | None = None) -> None:
        """Open the file of a FileStorage."""
        self._file_name, self._pos, self._start, self._stop = storage._file_name, _FIRST, start, stop
        self._file, self._file_size = open_committed(storage)
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


def open_committed(storage: Any, buffering: int = -1) -> tuple[BinaryIO, int]:
    """Open the file of a FileStorage for reading; return it and the position behind the last commit, which belong together."""
    with storage._lock:  # a pack puts another file in its place
        return open(storage._file_name, "rb", buffering=buffering), int(storage._pos)


def committed_end(storage: Any, inode: int) -> int | None:
    """Return the position behind the last commit, or None if the storage's file is not that of the inode any more."""
    with storage._lock:
        return int(storage._pos) if os.stat(storage._file_name).st_ino == inode else None


def is_closed(storage: Any) -> bool:
    """Return True if a FileStorage has closed itself, as it does after an error past the point of no return."""
    if getattr(storage, "_file", None) is None:
        return False
    with storage._lock:  # while a pack puts the packed file in its place, the file is closed for a moment
        return bool(storage._file.closed)


def readers_closed(storage: Any) -> bool:
    """Return True if the files from which a FileStorage reads are closed."""
    return bool(storage._files.closed)


def truncate_unwritten(storage: Any) -> None:
    """After a commit for which the disk had no room: forget what was to be written, and cut the file back to the last commit.

    The thread that commits calls this, between two transactions.
    """
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


def use_index(index: type[fsIndex.fsIndex]) -> None:
    """Have FileStorage keep its index as objects of this class."""
    assert vars(filestorage)["fsIndex"] in (fsIndex.fsIndex, index), "this ZODB keeps its index in another way"
    vars(filestorage)["fsIndex"] = index


def index_position(storage: Any, oid: bytes) -> int:
    """Return the position of an object's current record in the file, 0 if the index has none."""
    return int(storage._index.get(oid, 0))


def index_is_behind(storage: Any, oid: bytes, position: int, inode: int) -> bool:
    """Return True if the index of the file with this inode knows no record of the object at or behind the position."""
    with storage._lock:
        return os.stat(storage._file_name).st_ino == inode and index_position(storage, oid) < position


@functools.cache
def uri_resolvers() -> Any:
    """Return `zodburi`, which then looks up once what answers to URIs: for each of them it read the metadata of all packages, 5 ms."""
    import zodburi  # late: it imports every storage there is

    assert callable(vars(zodburi)["entry_points"]), "this zodburi looks up what answers to a URI in another way"
    vars(zodburi)["entry_points"] = functools.cache(vars(zodburi)["entry_points"])
    return zodburi


def drop_index(storage: Any) -> bool:
    """Delete the saved index of a FileStorage and save no other: the next start builds it anew. Return False if that was done before."""
    if "_save_index" in vars(storage):
        return False
    storage._save_index = _not_saved
    storage._clear_index()
    return True


def _not_saved() -> None:
    """Stand in place of saving an index that is wrong."""


def first_writer(storage: Any, oid: bytes, tid: bytes) -> bytes:
    """Return the transaction that wrote the data of a revision: where a change was undone, that is an earlier one."""
    read = storage._read_data_header
    try:
        with storage._lock:
            position = storage._index[oid]
            header = read(position, oid)
            while header.tid > tid or not header.plen:
                earlier = header.prev if header.tid > tid else header.back
                if not 0 < earlier < position:
                    return tid
                position, header = earlier, read(earlier, oid)
            return header.tid  # type: ignore[no-any-return]
    except _UNREADABLE:
        return tid


# --- the transaction under way


class PendingTransaction(NamedTuple):
    """The transaction that a FileStorage has begun and not yet voted on."""

    tid: bytes
    status: bytes
    user: bytes | str
    description: bytes | str
    extension: bytes
    oids: Iterable[bytes]
    """The objects that were stored by now."""


_KEPT_BYTES = 8 << 20  # the memory of a larger transaction is let go before the next


def gather_in_memory(storage: Any) -> None:
    """After a FileStorage's `tpc_begin`: gather the records of the transaction in memory in place of a temporary file.

    A full disk cannot meet the temporary file then, neither in a commit nor in `close`. Nor does each record ask the system for
    the file's position, which hands the interpreter's lock from the committer's thread to the loop's.
    """
    gathered = storage._tfile
    if not isinstance(gathered, io.BytesIO):
        gathered.close()
    elif gathered.getbuffer().nbytes <= _KEPT_BYTES:
        return
    storage._tfile = io.BytesIO()
    storage._tfmt = filestorage.TempFormatter(storage._tfile)


def pending_transaction(storage: Any) -> PendingTransaction:
    """Return the transaction under way."""
    user, description, extension = storage._ude
    return PendingTransaction(storage._tid, storage._tstatus.encode("ascii"), user, description, extension, storage._tindex)


def begin_with(storage: Any, user: bytes, description: bytes, extension: bytes) -> None:
    """Begin the transaction under way anew, with these texts in its header: their length decides where the records lie."""
    storage._ude = user, description, extension
    storage._begin(storage._tid, *storage._ude)


def set_extension(storage: Any, extension: bytes) -> None:
    """Put another extension of the same length into the header of the transaction under way."""
    user, description, earlier = storage._ude
    assert len(extension) == len(earlier)
    storage._ude = user, description, extension


@contextlib.contextmanager
def before_vote(storage: Any, transaction: Any) -> Iterator[bool]:
    """Hold the storage's lock; yield True if this is the transaction under way."""
    with storage._lock:
        yield transaction is storage._transaction


# --- records

_connection = importlib.import_module("ZODB.Connection")  # the module, in which a commit looks up its `ObjectWriter`
assert vars(_connection)["ObjectWriter"] is ObjectWriter, "this ZODB writes records in another way"


def use_writer(writer: type[ObjectWriter]) -> None:
    """Have every commit of this process write its records with this class."""
    vars(_connection)["ObjectWriter"] = writer


# --- packs


@contextlib.contextmanager
def packing_by(storage: Any, packer: Callable[..., Any], replaced: Callable[[], None]) -> Iterator[None]:
    """Have `pack` of a FileStorage use another packer.

    :param replaced: called under the storage's locks, after the renames and before a commit to the new file.
    """

    def new_index(*indexes: Any) -> None:
        del storage._initIndex
        storage._initIndex(*indexes)
        vars(storage).pop("_save_index", None)  # one that was wrong (`drop_index`) is built anew now
        replaced()

    storage.packer, storage._initIndex = packer, new_index
    try:
        yield
    finally:
        vars(storage).pop("_initIndex", None)  # there was nothing to drop


# --- connections


def load_record(connection: Any, oid: bytes) -> None:
    """Read an object's record past the connection's cache.

    :raises POSKeyError: if there is none.
    """
    connection._storage.load(oid)


def first_unseen(connection: Any) -> bytes:
    """Return the first transaction id that a connection does not see."""
    storage = connection._storage
    return bytes(storage._start if hasattr(storage, "_start") else p64(u64(storage.lastTransaction()) + 1))


def view_start(connection: Any) -> bytes | None:
    """Return MVCC's mark of an open view, set when its transaction begins; None for a view of the past."""
    return getattr(connection._storage, "_start", None)


def last_known(connection: Any) -> bytes:
    """Return the last transaction that an open connection knows of."""
    return bytes(connection._storage.lastTransaction())


def hear_views(connection: Any, heard: Callable[[Iterable[bytes] | None], Iterable[bytes] | None]) -> None:
    """Show `heard` which objects others wrote, with each new view that a connection takes; None: all may have been written.

    :param heard: returns these objects again, for the connection.
    """
    storage = connection._storage
    poll = storage.poll_invalidations
    storage.poll_invalidations = lambda *args: heard(poll(*args))


def changed_since(connection: Any) -> Iterable[bytes] | None:
    """Return the objects that others changed since the connection last asked; None if they are too many to tell."""
    return connection._storage.poll_invalidations()  # type: ignore[no-any-return]


class _HeardOf(set[bytes]):
    """Objects that others changed, of those that were asked about."""

    def __init__(self, asked: frozenset[bytes]) -> None:
        super().__init__()
        self._asked = asked

    def update(self, *changed: Iterable[bytes]) -> None:
        """Add the objects that were asked about."""
        super().update(*map(self._asked.intersection, changed))


def hear_of(connection: Any, oids: frozenset[bytes] | None) -> None:
    """Let `changed_since` tell only of these objects from now on; None: of all. A connection that hears of all, and is not asked for a
    month, keeps the id of each object that was written in that month."""
    storage = connection._storage
    if hasattr(storage, "_invalidations"):  # a storage that does MVCC itself keeps none
        with storage._lock:
            if storage._invalidations is not None:
                heard: set[bytes] = set() if oids is None else _HeardOf(oids)
                heard.update(storage._invalidations)
                storage._invalidations = heard


def loaded_oids(connection: Any) -> frozenset[bytes]:
    """Return the objects that a connection has loaded."""
    return frozenset(oid for oid, _ in connection._cache.lru_items())


def revive(connection: Any, obj: Any, oid: bytes) -> None:
    """Add a new object under an id that is free again: `Connection.add` would give it another id."""
    if connection._cache.get(oid) is not None:
        del connection._cache[oid]
    obj._p_oid, obj._p_jar = oid, connection
    connection._register(obj)
    connection._added[oid] = obj


# --- transactions


class Transactions(TransactionManager):
    """Transactions that begin when asked for. An abort where none is does nothing.

    The close of a database aborts those of all open connections. One of them may be a helper thread's that has just opened it, or is about
    to close it.
    """

    def __init__(self) -> None:
        super().__init__(explicit=True)

    def abort(self) -> None:
        """Abort the transaction, if there is one."""
        with contextlib.suppress(NoTransaction):
            super().abort()
