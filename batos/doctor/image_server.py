"""Checks of the server of an image: whether PostgreSQL answers, keeps what it commits, and lets a daemon have what it needs there.

Nothing is written, and no message holds a password.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

from batos.config import MIB, Settings
from batos.doctor.installation import Check

_CONNECT_S = 5
_OLDEST = 120000
"""Server version that the tests still know to be like theirs; RelStorage itself wants 9.6."""
_OWN_SESSIONS = 6  # of a kernel, beside those of its missions: lock, life, turns, commits, the walk, an undo or a pack
_CLOCK_S = 2.0
_IDLE_S = 60
_GIB = 1024 * MIB
_FREE = _GIB
_SESSIONS = """
SELECT count(*) FILTER (WHERE datname = current_database() AND application_name LIKE 'batos,%%'),
       count(*) FILTER (WHERE backend_type = 'client backend'),
       count(*) FILTER (WHERE datname = current_database() AND state LIKE 'idle in transaction%%'
                        AND now() - state_change > make_interval(secs => %s))
FROM pg_stat_activity
"""


@dataclass(frozen=True)
class _Server:
    """Sessions with the server of an image."""

    where: str
    """`HOST:PORT`, for messages"""
    first: Any
    second: Any
    settings: Settings
    keeps: bool
    """True if the address asks for history"""

    def one(self, question: str, *values: Any) -> tuple[Any, ...]:
        with self.first.cursor() as cursor:
            cursor.execute(question, values)
            return tuple(cursor.fetchone())


def served_image(settings: Settings) -> list[Check]:
    """Check the server of the image; nothing for an image in a file."""
    uri = settings.image_uri
    if uri.startswith("zeo://"):
        return [_zeo(settings)]
    if not uri.startswith("postgres://"):
        return []
    try:
        with _connected(uri, settings) as server:
            return [check for look in _CHECKS if (check := _guarded(look, server)) is not None]
    except ImportError:
        return [Check("server", "fail", "the extra `postgres` is not installed", "pip install 'batos[postgres]'")]
    except Exception as e:
        return [_away(uri, e)]


def _zeo(settings: Settings) -> Check:
    if settings.image.kernels == "many":
        remedy = "where machines may hang, and not only die, keep the image in PostgreSQL: `batos copy --to postgres://…`"
        return Check("server", "warn", "ZEO: a kernel that stands still in the middle of a commit stops all others' commits", remedy)
    return Check("server", "ok", "ZEO, for one daemon")


@contextlib.contextmanager
def _connected(uri: str, settings: Settings) -> Iterator[_Server]:
    driver = importlib.import_module("psycopg2")  # of the extra `postgres`
    parts = urlsplit(uri)
    options = parse_qs(parts.query)
    about = {"dbname": parts.path[1:], "user": parts.username, "password": parts.password, "host": parts.hostname, "port": parts.port}
    with contextlib.ExitStack() as stack:
        sessions = []
        for _ in range(2):
            session = driver.connect(connect_timeout=_CONNECT_S, application_name="batos doctor", **about)
            stack.callback(session.close)
            session.autocommit = True
            sessions.append(session)
        keeps = options.get("keep_history", ["1"])[-1] not in ("0", "false", "no", "off")
        yield _Server(_where(parts), sessions[0], sessions[1], settings, keeps)


def _where(parts: SplitResult) -> str:
    return f"{parts.hostname or 'the local socket'}:{parts.port or 5432}"


def _away(uri: str, failure: Exception) -> Check:
    parts = urlsplit(uri)
    said = " ".join(str(failure).split())[:200]
    if parts.password:
        said = said.replace(parts.password, "…")
    remedy = "see that it runs and listens there (listen_addresses), that pg_hba.conf lets this machine in, and user, password and database"
    return Check("server", "fail", f"PostgreSQL at {_where(parts)} does not let this machine in ({said})", remedy)


def _guarded(look: Callable[[_Server], Check | None], server: _Server) -> Check | None:
    try:
        return look(server)
    except Exception as e:
        said = " ".join(str(e).split())[:200]
        return Check("server", "warn", f"{look.__name__.strip('_')} could not be looked at: {said}", "ask the server's administrator")


def _version(server: _Server) -> Check:
    number = int(server.first.server_version)
    text = f"PostgreSQL {server.one('SHOW server_version')[0]} at {server.where}"
    if number < _OLDEST:
        return Check("server", "warn", text, f"{_OLDEST // 10000} or later is what BAT OS is tried with: upgrade it")
    return Check("server", "ok", text)


def _pooler(server: _Server) -> Check | None:
    if not shares_backends(server.first, server.second):
        return None
    remedy = "connect to PostgreSQL itself, or by a pool in session mode: the lock that keeps two daemons apart belongs to a session"
    return Check("server", "fail", "a pooler in transaction mode stands before PostgreSQL (sessions are not this machine's own)", remedy)


def shares_backends(first: Any, second: Any) -> bool:
    """Return True if two sessions that are open at once are served by the same process of PostgreSQL, as a pooler in transaction mode does.

    :param first: a connection of DB-API that commits each statement, as is `second`.
    """

    def process(cursor: Any) -> int:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])

    with first.cursor() as ours, second.cursor() as theirs:
        before = process(ours)
        theirs.execute("BEGIN")  # which keeps its process until the end
        try:
            other, after = process(theirs), process(ours)
        finally:
            theirs.execute("ROLLBACK")
    return other == before or after != before


def _sessions(server: _Server) -> Check:
    of_kernels, all_of_them, _ = server.one(_SESSIONS, _IDLE_S)
    allowed = int(server.one("SHOW max_connections")[0]) - int(server.one("SHOW superuser_reserved_connections")[0])
    needed = server.settings.missions.concurrent + _OWN_SESSIONS
    text = f"{all_of_them} of {allowed} sessions are open, {of_kernels} of them hold locks of daemons; this daemon takes up to {needed}"
    if allowed - all_of_them < needed and not of_kernels:
        return Check("server", "warn", text, "raise max_connections, or lower missions.concurrent")
    return Check("server", "ok", text)


def _clock(server: _Server) -> Check | None:
    before = time.time()
    (there,) = server.one("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    apart = max(before - there, there - after, 0.0)
    if apart <= _CLOCK_S:
        return None
    remedy = "let both be set by NTP: deadlines, schedules and days of history go by each machine's own clock"
    return Check("server", "warn", f"the clocks of this machine and of the server are {apart:.0f} s apart", remedy)


def _durable(server: _Server) -> Check | None:
    off = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if server.one(f"SHOW {name}")[0] == "off"]
    if not off:
        return None
    return Check(
        "server",
        "warn",
        f"{', '.join(off)} is off: what was acknowledged may be lost with the server's power",
        "set it on in postgresql.conf",
    )


def _history(server: _Server) -> Check | None:
    (there,) = server.one("SELECT to_regclass('object_state') IS NOT NULL")
    (kept,) = server.one("SELECT to_regclass('transaction') IS NOT NULL")
    if there and kept != server.keeps:
        now, right = ("keeps", "1") if kept else ("keeps no", "0")
        return Check("server", "fail", f"the database {now} history, and the address says otherwise", f"say keep_history={right} in it")
    if not server.keeps:
        remedy = (
            "no history, no looks at the past, no undo, and a commit of unknown outcome ends the daemon: copy to one with keep_history=1"
        )
        return Check("server", "warn", "it keeps no history", remedy)
    return None


def _idle(server: _Server) -> Check | None:
    resting = server.one(_SESSIONS, _IDLE_S)[2]
    if not resting:
        return None
    remedy = "they hold vacuum back; end them by pg_terminate_backend, or set idle_in_transaction_session_timeout for their user"
    return Check("server", "warn", f"{resting} sessions have rested in a transaction for more than {_IDLE_S} s", remedy)


def _disk(server: _Server) -> Check:
    (size,) = server.one("SELECT pg_database_size(current_database())")
    text = f"the database has {size / MIB:.1f} MiB"
    try:
        (folder,) = server.one("SHOW data_directory")  # for those who may see it
    except Exception:
        folder = ""
    if not re.match(r"(localhost|127\.|::1)", server.where) or not os.path.isdir(folder):
        return Check("server", "ok", f"{text}; the room on its disk is not known from here")
    free = shutil.disk_usage(folder).free
    found = f"{text}, {free / _GIB:.1f} GiB free"
    if free < _FREE:
        return Check("server", "warn", found, "make room there: commits wait where it is full")
    return Check("server", "ok", found)


_CHECKS: tuple[Callable[[_Server], Check | None], ...] = (_version, _pooler, _sessions, _clock, _durable, _history, _idle, _disk)
