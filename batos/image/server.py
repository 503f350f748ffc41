"""Image on a server (PostgreSQL by RelStorage, ZEO): its use by one daemon or by several kernels, and a server that is away.

A file is locked by FileStorage. A server lets every client in. Two daemons on one image hand out the same numbers for documents, and each
overwrites the other's without a word. So a daemon holds an *exclusive use* while it runs. On PostgreSQL that is an advisory lock of a
session, which the server frees within milliseconds when the process ends. Elsewhere it is a record in the image that its holder renews.

Several kernels (`batos.image.kernels`) share the use. On PostgreSQL they hold the same lock as a shared one. Elsewhere they register in a
transaction that no exclusive use passes. So a daemon that wants the image to itself is refused beside them, and they beside it.
"""

from __future__ import annotations

import errno
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
from transaction.interfaces import TransientError
from ZODB.POSException import ConflictError

from batos.errors import BatosError, ConfigError, ImageAway, ImageFailed, ImageLocked
from batos.image import kernels, zodb_patches
from batos.image.checksummed_storage import base_of
from batos.image.kernels import KernelTerms
from batos.image.ownership import depend_on
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
DISK_FULL = "53100"  # SQLSTATE
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


def raise_if_away(failure: Exception) -> None:
    """Raise the error of a server that cannot be reached in the place of what a storage's driver raised for that. Call it in the handling
    of the failure. Another failure is left to the caller, as are those that are tried again.

    :raises ImageAway: if the server of the image cannot be reached.
    """
    if not isinstance(failure, (BatosError, TransientError)) and (away := away_error(failure)) is not None:
        raise away from failure


def no_room(failure: BaseException | None) -> OSError | None:
    """Return the error of a full disk for a commit that found no room at PostgreSQL; None for another failure."""
    while failure is not None:
        if getattr(failure, "pgcode", None) == DISK_FULL:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the disk of PostgreSQL")
        failure = failure.__cause__ or failure.__context__
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
            "the server of the image was away during a commit, and keeps no history to look it up in. Whether that commit is there "
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


def bound_sessions(storage: Any, idle_s: float = IDLE_S) -> None:
    """Let PostgreSQL end a session that stands still in the middle of a commit, so that others go on. Such a session is left by a machine
    that lost its power.

    :param idle_s: seconds after which it does.
    """
    adapter = postgres_of(storage)
    if adapter is None:
        return

    def bound(cursor: Any, restart: bool = False) -> None:
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{round(idle_s * 1000)}ms'")
        cursor.connection.commit()

    adapter.connmanager.add_on_store_opened(bound)


def share_storage(storage: Any, lease_s: float) -> None:
    """Prepare a storage, before a database is opened on it, for several kernels.

    :param lease_s: seconds after which PostgreSQL ends a session that stands still in the middle of a commit.
    """
    bound_sessions(storage, lease_s)
    if hasattr(storage, "server_sync"):  # of ZEO: who was told of a commit at one kernel finds it at another
        storage.server_sync, storage.sync = True, storage.ping


def postgres_of(storage: Any) -> Any:
    """Return RelStorage's adapter for PostgreSQL; None for another storage."""
    adapter = getattr(base_of(storage), "_adapter", None)
    return adapter if adapter is not None and "postgresql" in type(adapter).__module__ else None


def open_session(adapter: Any, purpose: str = "") -> Any:
    """Open a session of its own with PostgreSQL, outside of any transaction; return its connection.

    :param purpose: shown in the server's list of sessions, after the process and its machine.
    """
    connection, cursor = adapter.connmanager.open(application_name=f"batos, {_me()}{f', {purpose}' if purpose else ''}"[:63])
    connection.rollback()
    connection.autocommit = True  # the session rests outside of a transaction, which would hold vacuum back
    for setting, seconds in (("idle", 10), ("interval", 5), ("count", 3)):  # a machine that lost its power is noticed in half a minute
        cursor.execute(f"SET tcp_keepalives_{setting} = {seconds}")
    return connection


# --- one daemon at a time, or several kernels


class ExclusiveUse(Protocol):
    """Use of an image by one daemon at a time."""

    def ensure(self) -> bool:
        """Return True if this daemon still holds it, after its server was away; take it again if no other daemon has it.

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
    saying so, and the server is not PostgreSQL.

    :param on_lost: called from another thread if another daemon took the image while its server was away.
    :raises ImageLocked: if another daemon uses it; names that one.
    """
    if (adapter := postgres_of(db.storage)) is not None:
        return _SessionLock(adapter, uri, on_lost)
    if is_served(db):
        return _RenewedRecord(db, uri, on_lost)
    return NoServer()


def is_served(db: ZODB.DB) -> bool:
    """Return True if other processes can reach the image, on a server."""
    return type(base_of(db.storage)).__module__.startswith(("ZEO.", "relstorage."))


def use_together(db: ZODB.DB, uri: str, on_lost: Callable[[BaseException], None]) -> ExclusiveUse:
    """Take a share of the image of a server, which keeps out daemons that want it to themselves. It blocks as `use_exclusively`.

    :raises ImageLocked: if a daemon has the image to itself.
    :raises ConfigError: for a file, which one process opens at a time.
    """
    if (adapter := postgres_of(db.storage)) is not None:
        return _SessionLock(adapter, uri, on_lost, shared=True)
    if is_served(db):
        return _SharedRecord(db, uri)
    raise ConfigError(f"the image {uri} is a file, which one daemon opens at a time; `image.kernels = many` needs postgres:// or zeo://")


def lock_session(storage: Any, uri: str, on_lost: Callable[[BaseException], None]) -> ExclusiveUse | None:
    """Take the exclusive use of an image in PostgreSQL, which need hold no object yet; None for another storage.

    :raises ImageLocked: if a daemon uses it; names that one.
    """
    adapter = postgres_of(storage)
    return None if adapter is None else _SessionLock(adapter, uri, on_lost)


def refuse_used(db: ZODB.DB, uri: str) -> None:
    """Refuse an image whose records name a daemon that uses it; write nothing. It blocks for up to `LEASE_S` where that one may be on
    another machine, and shows no life.

    :raises ImageLocked: names the daemon.
    """

    def user() -> _Holder | None:
        tm = zodb_patches.Transactions()
        connection = db.open(transaction_manager=tm)
        try:
            tm.begin()
            return _user(connection.root())
        finally:
            tm.abort()
            connection.close()

    began, found = time.monotonic(), user()
    silent = found and found[2]
    while found is not None:
        holder, alive, mark = found
        if alive or mark != silent:
            raise ImageLocked(f"the image {uri} is in use by {holder}; stop that daemon first")
        if time.monotonic() - began >= LEASE_S:
            return
        time.sleep(_LOOK_S / 2)
        found = user()


def register_kernel(root: Root, uri: str, host: str, terms: KernelTerms) -> str:
    """System transaction: register a kernel (`batos.image.kernels.register`); return its name.

    :raises ImageLocked: if a daemon has the image to itself.
    :raises KernelRefused: if kernels are registered that it does not fit to.
    """
    held: ImageUse | None = root.get(_RECORD)
    if held is not None and not held.ended:
        raise _locked(uri, held.holder)
    depend_on(root)  # a daemon that takes the image at this moment writes it
    return kernels.register(root, host, terms)


def _locked(uri: str, holder: str) -> ImageLocked:
    return ImageLocked(f"the image {uri} is in use by {holder}; stop that daemon, or give this one another --image")


def _me() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


class _SessionLock:
    """Advisory lock of a session of PostgreSQL, watched by a thread."""

    def __init__(self, adapter: Any, uri: str, on_lost: Callable[[BaseException], None], *, shared: bool = False) -> None:
        """
        :param shared: True for a share of the lock, which other kernels may have as well.
        """
        self._adapter, self._uri, self._on_lost, self._mode = adapter, uri, on_lost, "_shared" if shared else ""
        self._ending, self.asking = threading.Event(), threading.Lock()
        self._connection: Any = None
        if (holder := self._take()) is not None:
            self._close()
            raise _locked(uri, holder)
        self._thread = threading.Thread(target=self._watch, name="lock of the image", daemon=True)
        self._thread.start()

    def ensure(self) -> bool:
        with self.asking:
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
        self._connection = connection = open_session(self._adapter)
        cursor = connection.cursor()
        cursor.execute(f"SELECT pg_try_advisory_lock{self._mode}(%s)", (LOCK,))
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
        while found := self._write(self._claim, seen if time.monotonic() - since >= LEASE_S else ""):
            holder, alive, renewed = found
            if alive or (seen and seen != renewed):
                raise _locked(self._uri, holder)
            if not seen:
                log.info("image_use_awaited", holder=holder, wait_s=LEASE_S, why="it ended without saying so, or is away")
                seen, since = renewed, time.monotonic()
            time.sleep(_LOOK_S / 2)

    def _claim(self, root: Root, silent: str) -> _Holder | None:
        return _claim(root, self._mine, silent)

    def _watch(self) -> None:
        while not self._ending.wait(_RENEW_S):
            try:
                self.ensure()
            except BaseException as e:
                self._on_lost(e)
                return

    def _write(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of `function(root, *args)`, committed."""
        tm = zodb_patches.Transactions()
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
            tm.abort()
            connection.close()


class _SharedRecord(_RenewedRecord):
    """Use of the image with others that have registered as kernels. It has no record of its own: only an exclusive one that is not renewed
    is ended."""

    def __init__(self, db: ZODB.DB, uri: str) -> None:
        self._db, self._uri = db, uri
        self._take()

    def _claim(self, root: Root, silent: str) -> _Holder | None:
        if (found := _exclusive_holder(root, silent)) is not None:
            return found
        if _RECORD in root and not root[_RECORD].ended:
            root[_RECORD].ended = True
        return None

    def ensure(self) -> bool:
        try:
            holder = self._write(_holder)
        except Exception as e:
            if away_error(e) is None:
                raise
            return False
        if holder:
            raise ImageFailed(f"the image {self._uri} was taken by {holder} while its server was away; this daemon wrote nothing since")
        return True

    def release(self) -> None:
        """Do nothing: the kernel's record says that it has left."""


_Holder = tuple[str, bool, str]
"""Holder of an image in words, True if that process lives here, and a mark that each renewal changes."""


def _holder(root: Root) -> str:
    held: ImageUse | None = root.get(_RECORD)
    return "" if held is None or held.ended else held.holder


def _exclusive_holder(root: Root, silent: str) -> _Holder | None:
    """Return the daemon that has the image to itself; None where there is none, or its mark is `silent`."""
    held: ImageUse | None = root.get(_RECORD)
    if held is not None and not held.ended and held.is_alive() is not False:
        mark = f"{held.boot} {held.pid} {held.began} {held.renewals}"
        if mark != silent:
            return held.holder, bool(held.is_alive()), mark
    return None


def _user(root: Root, silent: str = "") -> _Holder | None:
    """Return the daemon that has the image to itself, or the first of the kernels that live. Return None where there is none, or its mark
    is `silent`."""
    if (found := _exclusive_holder(root, silent)) is not None:
        return found
    if living := [one for one in kernels.listed(root) if not one.gone]:
        mark = " ".join(f"{one.name}:{one.beat}" for one in living)
        if mark != silent:
            return f"kernel {living[0].name} (it runs with image.kernels = many)", False, mark
    return None


def _claim(root: Root, mine: ImageUse, silent: str) -> _Holder | None:
    """Take the use of the image; return None, or who has it.

    :param silent: mark of a holder that is taken for gone.
    """
    if kernels.KERNELS in root:
        depend_on(root[kernels.KERNELS])  # a kernel that registers at this moment writes it
    if (found := _user(root, silent)) is not None:
        return found
    kernels.end_all(root)
    root[_RECORD] = ImageUse(mine.holder, mine.boot, mine.pid, mine.began)
    return None


def _renew(root: Root, mine: ImageUse) -> str:
    """Renew the use; return the holder if it is another process now, else nothing."""
    held: ImageUse | None = root.get(_RECORD)
    if held is None or not held.is_of(mine):
        return held.holder if held is not None else "nobody"
    if held.ended:
        return "several kernels"
    held.renewals += 1
    return ""


def _end(root: Root, mine: ImageUse) -> None:
    held: ImageUse | None = root.get(_RECORD)
    if held is not None and held.is_of(mine):
        held.ended = True
