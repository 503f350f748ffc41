"""Log of turns: which mission answered which turn of which conversation, in a file of the data folder.

It holds digests and ids of missions, no words. A log that is lost costs only the links between turns: conversations are then given to
missions as text. So a file that is damaged is made anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import structlog

log = structlog.get_logger("batos.doors")

LOG_NAME = "doors.turns"
REQUEST, CONVERSATION, TOLD = "request", "conversation", "told"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS turns (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, mission TEXT NOT NULL, "
    "at REAL NOT NULL)",
    "CREATE INDEX IF NOT EXISTS turns_by_key ON turns (kind, key, number)",
)
_TRIM = 256  # turns between two looks at the size of the log
T = TypeVar("T")


class LoggedTurn(NamedTuple):
    """A mission that a turn became, and when, in seconds since 1970."""

    mission: str
    at: float


class TurnKeeper(Protocol):
    """Log of turns: one daemon's file (`TurnLog`), or what several kernels share."""

    async def find(self, kind: str, key: str, count: int = 1) -> list[LoggedTurn]:
        """Return the newest turns of a key, the newest first."""

    async def add(self, kind: str, key: str, mission: str, at: float) -> None:
        """Log a turn. It is kept when this returns."""

    def close(self) -> None:
        """End the use of the log."""


class TurnLog:
    """That of one data folder. A call that fails is logged, and finds nothing."""

    def __init__(self, data: Path, limit: int) -> None:
        """:param limit: turns that are kept."""
        self._path, self._limit, self._lock = data / LOG_NAME, limit, threading.Lock()
        self._base: sqlite3.Connection | None = None
        self._added = 0

    async def find(self, kind: str, key: str, count: int = 1) -> list[LoggedTurn]:
        """Return the newest turns of a key.

        :param kind: `REQUEST`, `CONVERSATION`, or `TOLD`, whose key is a mission that was answered to a reader's end.
        """
        return await asyncio.to_thread(self._find, kind, key, count)

    async def add(self, kind: str, key: str, mission: str, at: float) -> None:
        """Log a turn. It is kept when this returns, also if the process is killed then."""
        await asyncio.to_thread(self._add, kind, key, mission, at)

    def close(self) -> None:
        """Close the file. Does file work."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._base is not None:
            with contextlib.suppress(sqlite3.Error):
                self._base.close()
            self._base = None

    def _find(self, kind: str, key: str, count: int) -> list[LoggedTurn]:
        words = "SELECT mission, at FROM turns WHERE kind = ? AND key = ? ORDER BY number DESC LIMIT ?"
        try:
            with self._lock:
                return [LoggedTurn(*row) for row in self._opened().execute(words, (kind, key, count))]
        except (sqlite3.Error, OSError) as e:
            self._failed(e)
            return []

    def _add(self, kind: str, key: str, mission: str, at: float) -> None:
        try:
            with self._lock:
                base = self._opened()
                base.execute("DELETE FROM turns WHERE kind = ? AND key = ? AND mission = ?", (kind, key, mission))
                base.execute("INSERT INTO turns (kind, key, mission, at) VALUES (?, ?, ?, ?)", (kind, key, mission, at))
                self._added += 1
                if self._added % _TRIM == 0:
                    base.execute("DELETE FROM turns WHERE number <= (SELECT max(number) FROM turns) - ?", (self._limit,))
        except (sqlite3.Error, OSError) as e:
            self._failed(e)

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            base = sqlite3.connect(self._path, timeout=1, isolation_level=None, check_same_thread=False)
            try:
                base.execute("PRAGMA synchronous = OFF")  # a turn that a power failure takes is only a link
                for words in _SCHEMA:
                    base.execute(words)
            except BaseException:
                base.close()
                raise
            self._base = base
        return self._base

    def _failed(self, error: Exception) -> None:
        with self._lock:
            self._close()
            log.warning("turn_log_failed", file=str(self._path), error=str(error), effect="conversations are given to missions as text")
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                with contextlib.suppress(OSError):  # damaged
                    self._path.unlink()
