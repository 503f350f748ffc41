"""Image on a server (PostgreSQL by RelStorage, ZEO): one daemon at a time uses it, and a server that is away is waited for.

A file is locked by FileStorage. A server lets anybody in, and two daemons on one image hand out the same numbers for documents: each
overwrites the other's without a word. So a daemon holds an *exclusive use* while it runs. On PostgreSQL that is an advisory lock of a
session, which the server frees within milliseconds when the process ends. Elsewhere it is a record in the image that its holder renews.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
import ZODB
from persistent import Persistent
from transaction import TransactionManager
from transaction.interfaces import NoTransaction
from ZODB.POSException import ConflictError

from batos.errors import ImageAway, ImageFailed, ImageLocked
from batos.image.checksummed_storage import base_of
from batos.objects import Root

log = structlog.get_logger("batos.image")
T = TypeVar("T")

LOCK = int.from_bytes(b"batosimg", "big")
"""Number of the advisory lock in the image's database."""

LEASE_S = 30.0
"""Seconds without a renewal after which the holder of a record on another machine counts as gone."""

IDLE_S = 30
"""Seconds that a session of a commit may stand still in the middle of it: then PostgreSQL ends it, and others go on."""

_RENEW_S = LEASE_S / 3
_LOOK_S = 2.0  # between two looks at the session that holds the lock
_LOST = ("08", "57P01", "57P02", "57P03")  # SQLSTATE: connection exceptions, the server shuts down or starts
_ENDING_S = 10.0  # that a daemon which is stopped waits for a look at the server, which may not answer
_RECORD = "exclusive_use"  # key in the root


# --- a server that is away


def away_error(failure: BaseException | None) -> ImageAway | None:
    """Return the error for a storage whose server cannot be reached now; None for another failure."""
    cause = failure
    while cause is not None:
        if isinstance(cause, ImageAway):
            return cause
        if _is_lost(cause):
            return ImageAway(f"the server of the image cannot be reached ({_words(cause)}); missions go on when it is back")
        cause = cause.__cause__ or cause.__context__
    return None


def _is_lost(failure: BaseException) -> bool:
    module, name = type(failure).__module__.split(".", 1)[0], type(failure).__name__
    if module == "psycopg2":
        state = getattr(failure, "pgcode", None)
        return name in ("OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "CannotConnectNow") and (
            state is None or state.startswith(_LOST)
        )
    return (module, name) in (("relstorage", "StorageDisconnectedDuringCommit"), ("ZEO", "ClientDisconnected"))


def _words(failure: BaseException) -> str:
    return " ".join((str(failure) or type(failure).__name__).split())[:200]


def answers(db: ZODB.DB) -> bool:
    """Return True if the server of the image answers now."""
    base = base_of(db.storage)
    try:
        if hasattr(base, "new_instance"):
            instance = base.new_instance()
            try:
                instance.poll_invalidations()
            finally:
                instance.release()
        else:
            return bool(base.is_connected())
    except Exception:
        return False
    return True


def find_commit(db: ZODB.DB, nonce: str, since: bytes) -> bool:
    """Return True if the transaction with this mark in its metadata (`mark`) is in the image.

    :param since: a transaction from before the commit began.
    :raises ImageFailed: if the storage keeps no history, and so no marks: a commit that is tried again might be done twice.
    """
    base = base_of(db.storage)
    if not db.supportsUndo():
        raise ImageFailed(
            "the server of the image was away during a commit, and keeps no history to look it up in; whether that commit is there "
            "shows at the next start (postgres://…?keep_history=1 lets a daemon go on)"
        )
    found = base.iterator(since)
    try:
        return any((one.extension or {}).get(MARK) == nonce for one in found)
    finally:
        with suppress(AttributeError):  # ZEO's has none
            found.close()


MARK = "commit"
"""Name in the metadata of a transaction of the mark by which its commit is found again."""


def bound_sessions(storage: Any) -> None:
    """Let PostgreSQL end a session that stands still in the middle of a commit, so that others go on: of a machine that lost its power."""
    adapter = _postgres(storage)
    if adapter is None:
        return

    def bound(cursor: Any, restart: bool = False) -> None:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'")
        cursor.connection.commit()

    adapter.connmanager.add_on_store_opened(bound)


def _postgres(storage: Any) -> Any:
    """Return RelStorage's adapter for PostgreSQL; None for another storage."""
    adapter = getattr(base_of(storage), "_adapter", None)
    return adapter if adapter is not None and "postgresql" in type(adapter).__module__ else None


# --- one daemon at a time


class ExclusiveUse(Protocol):
    """Use of an image by one daemon at a time."""

    def ensure(self) -> bool:
        """Return True if this daemon still holds it, after its server was away; take it again if nobody has.

        :raises ImageFailed: if another daemon took it.
        """

    def release(self) -> None:
        """Let others use the image."""


class NoServer:
    """Exclusive use of an image that only this process can reach, or that its file's lock guards."""

    def ensure(self) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Do nothing."""


def use_exclusively(db: ZODB.DB, uri: str, on_lost: Callable[[BaseException], None]) -> ExclusiveUse:
    """Take the image of a server for this daemon alone. It blocks for up to `LEASE_S` where a daemon on another machine ended without
    saying so, and the server is no PostgreSQL.

    :param on_lost: called from another thread if another daemon took the image while its server was away.
    :raises ImageLocked: if another daemon uses it; names that one.
    """
    if (adapter := _postgres(db.storage)) is not None:
        return _SessionLock(adapter, uri, on_lost)
    if type(base_of(db.storage)).__module__.startswith(("ZEO.", "relstorage.")):
        return _RenewedRecord(db, uri, on_lost)
    return NoServer()


def lock_session(storage: Any, uri: str, on_lost: Callable[[BaseException], None]) -> ExclusiveUse | None:
    """Take the exclusive use of an image in PostgreSQL, which need hold no object yet; None for another storage.

    :raises ImageLocked: if a daemon uses it; names that one.
    """
    adapter = _postgres(storage)
    return None if adapter is None else _SessionLock(adapter, uri, on_lost)


def refuse_used(root: Root, uri: str) -> None:
    """Refuse an image whose record names a daemon that uses it; write nothing. It blocks for up to `LEASE_S` where that one is on another
    machine and does not renew its use.

    :raises ImageLocked: names the daemon.
    """
    if (found := _held(root)) is None:
        return
    holder, alive, mark = found
    since = time.monotonic()
    while not alive and time.monotonic() - since < LEASE_S:
        time.sleep(_LOOK_S / 2)
        root._p_jar.sync()
        if (found := _held(root)) is None:
            return
        if found[2] != mark:
            break
    else:
        if not alive:
            return
    raise ImageLocked(f"the image {uri} is in use by {holder}; stop that daemon first")


def open_session(storage: Any) -> Any:
    """Return a session of its own at the image's PostgreSQL, which commits each statement; None for another storage."""
    if (adapter := _postgres(storage)) is None:
        return None
    connection, _ = adapter.connmanager.open(application_name=f"batos, {_me()}")
    connection.rollback()
    connection.autocommit = True
    return connection


def _locked(uri: str, holder: str) -> ImageLocked:
    return ImageLocked(f"the image {uri} is in use by {holder}; stop that daemon, or give this one another --image")


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class _SessionLock:
    """Advisory lock of a session of PostgreSQL, watched by a thread."""

    def __init__(self, adapter: Any, uri: str, on_lost: Callable[[BaseException], None]) -> None:
        self._adapter, self._uri, self._on_lost = adapter, uri, on_lost
        self._ending, self._asking = threading.Event(), threading.Lock()
        self._connection: Any = None
        if (holder := self._take()) is not None:
            self._close()
            raise _locked(uri, holder)
        self._thread = threading.Thread(target=self._watch, name="lock of the image", daemon=True)
        self._thread.start()

    def ensure(self) -> bool:
        with self._asking:
            try:
                if self._connection is not None:
                    with self._connection.cursor() as cursor:
                        cursor.execute("SELECT 1")
                    return True
            except self._adapter.driver.disconnected_exceptions:
                self._close()
            try:
                holder = self._take()
            except self._adapter.driver.disconnected_exceptions:
                self._close()
                return False
        if holder is not None:
            raise ImageFailed(f"the image {self._uri} was taken by {holder} while its server was away; this daemon wrote nothing since")
        return True

    def release(self) -> None:
        self._ending.set()
        self._thread.join(_ENDING_S)
        if not self._thread.is_alive():  # else it waits for a server that does not answer; the session ends with the process
            self._close()

    def _take(self) -> str | None:
        """Take the lock in a session of its own; return the holder if another daemon has it."""
        connection, cursor = self._adapter.connmanager.open(application_name=f"batos, {_me()}")
        self._connection = connection
        connection.rollback()
        connection.autocommit = True  # the session rests outside of a transaction, which would hold vacuum back
        for setting, seconds in (("idle", 10), ("interval", 5), ("count", 3)):  # a machine that lost its power is noticed in half a minute
            cursor.execute(f"SET tcp_keepalives_{setting} = {seconds}")
        cursor.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,))
        if cursor.fetchone()[0]:
            return None
        cursor.execute(
            "SELECT a.application_name, a.client_addr FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'"
            " AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND (l.classid::bigint << 32 | l.objid::bigint) = %s",
            (LOCK,),
        )
        name, address = cursor.fetchone() or ("", "")
        return f"{name.removeprefix('batos, ') or 'another daemon'}{f' at {address}' if address else ''}"

    def _watch(self) -> None:
        while not self._ending.wait(_LOOK_S):
            try:
                self.ensure()
            except ImageFailed as e:
                self._on_lost(e)
                return

    def _close(self) -> None:
        if self._connection is not None:
            with suppress(Exception):  # it is gone already
                self._connection.close()
            self._connection = None


class ImageUse(Persistent):
    """Record of the daemon that uses the image of a server."""

    __module__ = "batos.image"

    def __init__(self, holder: str, boot: str, pid: int, began: str) -> None:
        """
        :param holder: its process and machine, in words.
        :param boot: identity of the machine since it was started.
        :param began: start time of the process, in the machine's own ticks.
        """
        self.holder, self.boot, self.pid, self.began = holder, boot, pid, began
        self.renewals = 0
        self.ended = False

    def is_of(self, other: ImageUse) -> bool:
        """Return True if both records are of the same process."""
        return (self.boot, self.pid, self.began) == (other.boot, other.pid, other.began)

    def is_alive(self) -> bool | None:
        """Return True if its process lives, False if not; None for one on another machine."""
        return None if self.boot != _boot() else _began(self.pid) == self.began


def _own_use() -> ImageUse:
    return ImageUse(_me(), _boot(), os.getpid(), _began(os.getpid()))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def _began(pid: int) -> str:
    """Return the start time of a process; empty if there is none of that number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class _RenewedRecord:
    """Record in the image, renewed by a thread with a connection of its own."""

    def __init__(self, db: ZODB.DB, uri: str, on_lost: Callable[[BaseException], None]) -> None:
        self._db, self._uri, self._on_lost = db, uri, on_lost
        self._ending, self._mine = threading.Event(), _own_use()
        self._take()
        self._thread = threading.Thread(target=self._watch, name="use of the image", daemon=True)
        self._thread.start()

    def ensure(self) -> bool:
        try:
            taken_by = self._write(_renew, self._mine)
        except Exception as e:
            if away_error(e) is None:
                raise
            return False
        if taken_by:
            raise ImageFailed(f"the image {self._uri} was taken by {taken_by}: this daemon did not renew its use for {LEASE_S:.0f} s")
        return True

    def release(self) -> None:
        self._ending.set()
        self._thread.join(_ENDING_S)
        if self._thread.is_alive():
            return
        with suppress(Exception):  # the server is away: the record counts as gone in time
            self._write(_end, self._mine)

    def _take(self) -> None:
        seen, since = "", time.monotonic()
        while found := self._write(_claim, self._mine, seen if time.monotonic() - since >= LEASE_S else ""):
            holder, alive, renewed = found
            if alive or (seen and seen != renewed):
                raise _locked(self._uri, holder)
            if not seen:
                log.info("image_use_awaited", holder=holder, wait_s=LEASE_S, why="it ended without saying so, or is away")
                seen, since = renewed, time.monotonic()
            time.sleep(_LOOK_S / 2)

    def _watch(self) -> None:
        while not self._ending.wait(_RENEW_S):
            try:
                self.ensure()
            except BaseException as e:
                self._on_lost(e)
                return

    def _write(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of `function(root, *args)`, committed."""
        tm = TransactionManager(explicit=True)
        connection = self._db.open(transaction_manager=tm)
        try:
            while True:
                try:
                    tm.begin()
                    result = function(connection.root(), *args)
                    tm.commit()
                except ConflictError:
                    tm.abort()
                else:
                    return result
        finally:
            with suppress(NoTransaction):
                tm.abort()
            connection.close()


def _claim(root: Root, mine: ImageUse, silent: str) -> tuple[str, bool, str] | None:
    """Take the use of the image; return None, or its holder, True if that process lives here, and a mark that each renewal changes.

    :param silent: mark of a holder that is taken for gone.
    """
    found = _held(root)
    if found is not None and found[2] != silent:
        return found
    root[_RECORD] = ImageUse(mine.holder, mine.boot, mine.pid, mine.began)
    return None


def _held(root: Root) -> tuple[str, bool, str] | None:
    """Return the holder of the image, True if that process lives here, and a mark that each renewal changes; None if nobody holds it."""
    held: ImageUse | None = root.get(_RECORD)
    if held is None or held.ended or held.is_alive() is False:
        return None
    return held.holder, bool(held.is_alive()), f"{held.boot} {held.pid} {held.began} {held.renewals}"


def _renew(root: Root, mine: ImageUse) -> str:
    """Renew the use; return the holder if it is another process now, else nothing."""
    held: ImageUse | None = root.get(_RECORD)
    if held is None or not held.is_of(mine):
        return held.holder if held is not None else "nobody"
    held.renewals += 1
    return ""


def _end(root: Root, mine: ImageUse) -> None:
    held: ImageUse | None = root.get(_RECORD)
    if held is not None and held.is_of(mine):
        held.ended = True
