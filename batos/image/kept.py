"""What is read of the image again and again, and seldom changes: kept, and read anew once something that it was read from has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import ZODB
from transaction import TransactionManager

from batos.image.unit import Views

T = TypeVar("T")


class Kept(Generic[T]):
    """What a function of the root says, in plain values. All methods are called on one thread."""

    def __init__(self, db: ZODB.DB, views: Views, function: Callable[[Any], T]) -> None:
        """
        :param views: where the connection is listed while it reads.
        :param function: reads from the root, and from nothing else.
        """
        self._function, self._views = function, views
        self._tm = TransactionManager(explicit=True)
        self._connection: Any = db.open(transaction_manager=self._tm)
        self._from: frozenset[bytes] = frozenset()
        self._value: T | None = None

    def get(self) -> T:
        """What it says of the image as it is now."""
        changed = self._connection._storage.poll_invalidations()  # of all connections; None: too many to tell
        if not self._from or changed is None or not self._from.isdisjoint(changed):
            self._value, self._from = self._read()
        return self._value  # type: ignore[return-value]

    def _read(self) -> tuple[T, frozenset[bytes]]:
        connection = self._connection
        connection.cacheMinimize()  # what is loaded afterwards is what it was read from
        self._tm.begin()
        self._views.add(connection)
        try:
            value = self._function(connection.root())
            return value, frozenset(oid for oid, _ in connection._cache.lru_items())
        finally:
            self._tm.abort()
            self._views.discard(connection)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
