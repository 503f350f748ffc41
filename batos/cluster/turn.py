"""Turn: one kernel after the other does what would else meet conflicts, on PostgreSQL.

Each accept writes the head of the chain of missions. Where several kernels accept at once, all but one of their commits would meet a
conflict and be tried again. So a kernel holds an advisory lock for the length of a group of system transactions, as long as others are
registered. It holds another lock for each replay of a mission that met a conflict. Else a mission could lose against those of other kernels
again and again. A turn is a courtesy, and no part of the proof: who does not get it in time, or is without a session, commits without.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import structlog

from batos.concurrency import in_helper
from batos.image import server
from batos.image.committer import outlast

log = structlog.get_logger("batos.cluster")

GROUPS = int.from_bytes(b"batoturn", "big")
"""Number of the advisory lock of the groups in the image's database."""
REPLAYS = int.from_bytes(b"batrplay", "big")
"""Number of the advisory lock of the replays."""
WAIT_S = 1.0
"""Seconds that a group or a replay waits for its turn."""
WITHOUT_S = 2.0
"""Seconds for which it is done without turns after one waited in vain: a kernel that holds the lock stands still."""


class SessionTurn:
    """Turn of this kernel, held in a session of its own; used by one thread or task at a time."""

    def __init__(self, adapter: Any, lease_s: float, lock: int = GROUPS) -> None:
        """
        :param adapter: RelStorage's.
        :param lease_s: seconds after which the server ends the session of a kernel that stands still in its turn.
        :param lock: number of the advisory lock.
        """
        self._adapter, self._lease_s, self._lock = adapter, lease_s, lock
        self.needed = False
        """True while other kernels are registered; set from another thread."""
        self._session: Any = None
        self._again = 0.0
        self.stats = {"turns": 0, "without": 0}

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the turn for the block, if there are others and it comes in time."""
        held = self._due() and self._take()
        try:
            yield
        finally:
            if held:
                self._leave()

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the turn for the block as above. The event loop runs on meanwhile."""
        if not self._due():
            yield
            return
        taking = asyncio.ensure_future(in_helper(self._take))
        try:
            await asyncio.shield(taking)
            yield
        finally:
            await outlast(taking)  # it may be cancelled while it waits
            if taking.result():
                await outlast(asyncio.ensure_future(in_helper(self._leave)))

    def _due(self) -> bool:
        return self.needed and time.monotonic() >= self._again

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception):  # it is gone already
                session.close()

    def _take(self) -> bool:
        try:
            if self._session is None:
                self._session = server.open_session(self._adapter, "turn")
                with self._session.cursor() as cursor:
                    cursor.execute(f"SET lock_timeout = '{WAIT_S * 1000:.0f}ms'")
                    cursor.execute(f"SET idle_in_transaction_session_timeout = '{self._lease_s * 1000:.0f}ms'")
                self._session.autocommit = False  # the lock goes with the transaction, and both with the session
            with self._session.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock,))
        except Exception as e:
            self.stats["without"] += 1
            self._again = time.monotonic() + WITHOUT_S
            log.info("turn_not_taken", error=" ".join(str(e).split())[:200])
            self.close()
            return False
        self.stats["turns"] += 1
        return True

    def _leave(self) -> None:
        try:
            self._session.rollback()
        except Exception as e:
            log.info("turn_lost", error=" ".join(str(e).split())[:200])
            self.close()
