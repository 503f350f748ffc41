"""Mirrors: the image as of now, with changes of its own that nobody else sees; for what is to be tried before it is done.

A DemoStorage over a view of the very storage: nothing is copied and nothing is opened, so it costs the same whatever the image holds,
and commits go on meanwhile. What is committed to a mirror is in memory, and gone with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import structlog
import ZODB
from ZODB.DemoStorage import DemoStorage
from ZODB.MappingStorage import MappingStorage
from ZODB.POSException import POSKeyError
from ZODB.utils import load_current, newTid, p64, u64

from batos.image.checked import base_of
from batos.image.committer import Committer
from batos.image.living import LivingImage

log = structlog.get_logger("batos.image")

URI = "memory://mirror"
_CONNECTIONS = 8
_BATCH = 64


class _View:
    """A storage as of a moment, to be read."""

    def __init__(self, storage: Any, before: bytes) -> None:
        """
        :param before: the first transaction that is not seen.
        """
        self._storage, self.before, self._lock = storage, before, threading.Lock()
        for name in ("loadBlob", "openCommittedBlobFile"):
            if hasattr(storage, name):
                setattr(self, name, getattr(storage, name))

    def loadBefore(self, oid: bytes, tid: bytes) -> tuple[bytes, bytes, bytes | None] | None:
        """The data of a record as of before a transaction; what was written since then is not there."""
        with self._lock:
            found = self._storage.loadBefore(oid, min(tid, self.before))
        if found is None:
            return None
        data, since, until = found
        return data, since, None if until is not None and until >= self.before else until

    def getTid(self, oid: bytes) -> bytes:
        """By which transaction a record was written that is seen: what a commit in a mirror asks of what it has read as current.

        :raises POSKeyError: if there is none of that id.
        """
        return bytes(load_current(self, oid)[1])

    def lastTransaction(self) -> bytes:
        """The last transaction that is seen."""
        return bytes(p64(u64(self.before) - 1))

    def registerDB(self, db: Any) -> None:
        """Nothing ever changes here: nobody is to be told."""

    def getName(self) -> str:
        """For messages."""
        return str(self._storage.getName())


class _Changes(MappingStorage):
    """What is committed to a mirror. It comes after what the mirror is of, also where the clock was set back."""

    def __init__(self, before: bytes) -> None:
        super().__init__()
        self._begin = before

    def tpc_begin(self, transaction: Any, tid: bytes | None = None) -> None:
        """Begin a commit, with a number of its own."""
        super().tpc_begin(transaction, tid or newTid(max(self._begin, self._ltid)))

    def loadBlob(self, oid: bytes, serial: bytes) -> str:
        """No blob is committed to a mirror: what it reads is that which it is of.

        :raises POSKeyError: always, by which a DemoStorage knows where to look.
        """
        raise POSKeyError(oid, serial)

    def openCommittedBlobFile(self, oid: bytes, serial: bytes, blob: Any = None) -> Any:
        """As `loadBlob`.

        :raises POSKeyError: always.
        """
        raise POSKeyError(oid, serial)


@contextlib.asynccontextmanager
async def mirror(image: LivingImage, *, cache_size: int, of: LivingImage | None = None) -> AsyncIterator[LivingImage]:
    """An image that is as `image` is now. A pack leaves what it sees.

    :param of: another mirror of that image: this one is as that one was at its beginning.
    """
    with image.snapshot() as root, _reading(image.db.storage) as storage:
        before = _before(root._p_jar._storage) if of is None else of.db.storage.base.before
        layers = DemoStorage(base=_View(storage, before), changes=_Changes(before), close_base_on_close=False)
        db = ZODB.DB(layers, cache_size=cache_size, pool_size=_CONNECTIONS)
        made = LivingImage(URI, db, Committer(db, batch=_BATCH, on_failed=_failed))
        try:
            yield made
        finally:
            await made.close()


def _before(storage: Any) -> bytes:
    """The first transaction that a connection's storage does not see."""
    return bytes(storage._start if hasattr(storage, "_start") else p64(u64(storage.lastTransaction()) + 1))


@contextlib.contextmanager
def _reading(storage: Any) -> Iterator[Any]:
    """What may be read from beside the connections: of a server that does MVCC itself (RelStorage) an instance of its own."""
    if not hasattr(base_of(storage), "new_instance"):
        yield storage
        return
    instance = storage.new_instance()
    try:
        yield instance
    finally:
        instance.release()


def _failed(failure: BaseException) -> None:
    """A mirror has no disk to fail; should it fail all the same, what is tried in it says so."""
    log.error("mirror_failed", error=repr(failure))
