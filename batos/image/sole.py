"""The transactions of a connection that is the only one in them, as the committer's groups are: what ZODB asks of a transaction and of
its manager, and no more.

Those of the package `transaction` serve any number of resources, with hooks, savepoints and synchronizers that come and go. To ask each
time whether there are any takes longer than some of the steps do. The steps of a commit and of an abort, and their order, are theirs.
"""

from __future__ import annotations

from typing import Any

import structlog
from transaction.interfaces import AlreadyInTransaction, NoTransaction

from batos.image.checked import CheckedStorage

log = structlog.get_logger("batos.image")


class Transaction:
    """What the connection sees of one."""

    __slots__ = ("_data", "description", "extension", "joined", "user")

    def __init__(self) -> None:
        self.user = self.description = ""
        self.extension: dict[str, Any] = {}
        self.joined = False
        self._data: Any = None

    def join(self, connection: Any) -> None:
        """Something of the connection changes."""
        self.joined = True

    def data(self, connection: Any) -> Any:
        """What the connection keeps here.

        :raises KeyError: if that is nothing yet.
        """
        if self._data is None:
            raise KeyError(connection)
        return self._data

    def set_data(self, connection: Any, data: Any) -> None:
        """Keep something for the connection."""
        self._data = data


class Manager:
    """The transaction manager to open the connection with."""

    explicit = True  # ZODB asks: no transaction begins by itself

    def __init__(self) -> None:
        self._connection: Any = None
        self._transaction: Transaction | None = None

    def registerSynch(self, connection: Any) -> None:
        """The connection was opened."""
        assert self._connection is None, "there is a connection already"
        self._connection = connection

    def unregisterSynch(self, connection: Any) -> None:
        """The connection is being closed."""
        self._connection = None

    def begin(self) -> Transaction:
        """A transaction that sees what is committed by now. Where this fails, only `abort` makes the next one possible."""
        if self._transaction is not None:
            raise AlreadyInTransaction()
        self._transaction = transaction = Transaction()
        self._connection.newTransaction(transaction)
        return transaction

    def get(self) -> Transaction:
        """The transaction under way.

        :raises NoTransaction: if there is none.
        """
        if self._transaction is None:
            raise NoTransaction()
        return self._transaction

    def commit(self) -> None:
        """Commit all that changed. Where this fails nothing is committed, and `abort` is to follow."""
        transaction = self.get()
        try:
            if transaction.joined:
                self._commit(transaction)
        finally:
            self._connection.afterCompletion(transaction)
        self._transaction = None

    def abort(self) -> None:
        """Forget all that changed."""
        transaction = self.get()
        self._transaction = None
        try:
            if transaction.joined:
                self._connection.abort(transaction)
        finally:
            self._connection.afterCompletion(transaction)

    def _commit(self, transaction: Transaction) -> None:
        connection, voted = self._connection, False
        try:
            connection.tpc_begin(transaction)
            if _alone(connection):
                connection._readCurrent.clear()
            connection.commit(transaction)
            connection.tpc_vote(transaction)
            voted = True
            connection.tpc_finish(transaction)
        except BaseException:
            for undo in (connection.tpc_abort,) if voted else (connection.abort, connection.tpc_abort):
                try:
                    undo(transaction)
                except Exception as e:  # what failed first is what is raised
                    log.error("abort_failed", step=undo.__name__, error=repr(e))
            raise


def _alone(connection: Any) -> bool:
    """Whether nobody committed anything since the transaction began, and nobody can before it ends: what it read is current then, without
    a look at the record of each node of a tree that it went by."""
    storage = connection.db().storage
    return isinstance(storage, CheckedStorage) and storage.sealing and storage.lastTransaction() < connection._storage._start
