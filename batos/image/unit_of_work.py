"""Unit of work: one attempt at a mission, with one connection and one explicit transaction.

The thread-local `transaction` is never used. All persistent objects of a unit are dead after it: hand out plain
values.

`CachedQuery` keeps what is read again and again and seldom changes; it reads anew once an object that it read has
changed.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Generic, TypeVar

import ZODB
from transaction import TransactionManager

from batos.image import zodb_patches
from batos.image.committer import Committer
from batos.image.server import raise_if_away
from batos.objects import Root

Pair = tuple[TransactionManager, Any]
Views = set[Any]
"""Connections with a transaction under way: a pack must leave what they see."""
Idle = collections.deque[Pair]
"""Connections between two units: opening one costs more than a small commit. They are used in turn and few are kept,
since every commit is noted for each connection until it is used again."""
IDLE_LIMIT = 16


_NOTE = 1000  # characters


class Unit:
    """View of a cycle on its transaction."""

    def __init__(self, connection: Any, tm: TransactionManager) -> None:
        self.connection = connection
        self.root: Root = connection.root()
        self._tm = tm

    def note(self, mission: str, text: str) -> None:
        """Write the mission and a text into the metadata of every revision that this unit makes."""
        transaction = self._tm.get()
        transaction.user = mission
        transaction.note(text[:_NOTE].encode("utf-8", "replace").decode())  # a storage refuses what is too long or no UTF-8

    def doom(self) -> None:
        """Make sure that nothing of this unit is ever committed."""
        self._tm.doom()

    def get(self, oid: bytes) -> Any:
        """Return the object of that id in this unit's view.

        :raises KeyError: if there is none.
        """
        return self.connection.get(oid)


@contextlib.asynccontextmanager
async def unit_of_work(
    idle: Idle, views: Views, db: ZODB.DB, committer: Committer, check: Callable[[Root], object] | None = None
) -> AsyncIterator[Unit]:
    """Commit at a normal exit unless doomed; abort otherwise.

    :param idle: connections that no unit uses; one is taken from here, and comes back.
    :param views: list of the connections in use.
    :param check: part of the transaction, run first; what it raises ends the unit.
    :raises transaction.interfaces.TransientError: out of the exit, for a conflict: nothing was committed.
    :raises ImageAway: if the server of the image cannot be reached.
    """
    tm, connection = idle.popleft() if idle else _opened(db)
    committed = False
    try:
        tm.begin()
        views.add(connection)
        unit = Unit(connection, tm)
        if check is not None:
            check(unit.root)
        yield unit
        if not tm.isDoomed():
            await committer.commit(tm)
            committed = True
    except Exception as e:
        raise_if_away(e)
        raise
    finally:
        committer.stats["aborts"] += not committed
        tm.abort()  # after a commit there is none; after a failure the connection is still joined
        views.discard(connection)
        if len(idle) < IDLE_LIMIT:
            connection.cacheGC()
            idle.append((tm, connection))
        else:
            connection.close()


def _opened(db: ZODB.DB) -> Pair:
    tm = zodb_patches.Transactions()
    return tm, db.open(transaction_manager=tm)


@contextlib.contextmanager
def snapshot(db: ZODB.DB, *, at: Any = None, views: Views | None = None) -> Iterator[Root]:
    """Yield the root as of now (or of `at`, a transaction id or UTC datetime), for reading; nothing is committed.

    It never waits for a mission, nor a mission for it.
    """
    tm = zodb_patches.Transactions()
    connection = db.open(transaction_manager=tm, at=at)
    try:
        tm.begin()
        if views is not None:
            views.add(connection)
        yield connection.root()
    finally:
        tm.abort()
        if views is not None:
            views.discard(connection)
        connection.close()


T = TypeVar("T")


class CachedQuery(Generic[T]):
    """Cached result of a function of the root, in plain values. All methods are called on one thread."""

    def __init__(self, db: ZODB.DB, views: Views, function: Callable[[Any], T]) -> None:
        """
        :param views: list of the connections in use.
        :param function: reads from the root, and from nothing else.
        """
        self._function, self._views = function, views
        self._tm = zodb_patches.Transactions()
        self._connection: Any = db.open(transaction_manager=self._tm)
        self._from: frozenset[bytes] = frozenset()
        zodb_patches.hear_of(self._connection, self._from)
        self._value: T | None = None

    def get(self) -> T:
        """Return the result for the image as it is now.

        :raises ImageAway: if the server of the image cannot be reached.
        """
        try:
            changed = zodb_patches.changed_since(self._connection)
            if not self._from or changed is None or not self._from.isdisjoint(changed):
                self._from = frozenset()  # where the read fails, the next call reads
                self._value, self._from = self._read()
        except Exception as e:
            raise_if_away(e)
            raise
        return self._value  # type: ignore[return-value]

    def _read(self) -> tuple[T, frozenset[bytes]]:
        connection = self._connection
        connection.cacheMinimize()  # what is loaded afterwards is what it was read from
        zodb_patches.hear_of(connection, None)
        self._tm.begin()
        self._views.add(connection)
        try:
            value, loaded = self._function(connection.root()), zodb_patches.loaded_oids(connection)
            zodb_patches.hear_of(connection, loaded)
            return value, loaded
        finally:
            self._tm.abort()
            self._views.discard(connection)

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()
