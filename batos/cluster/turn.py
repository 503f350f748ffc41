"""Turn: one kernel after the other commits its group of system transactions, on PostgreSQL.

Each accept writes the head of the chain of missions. Where several kernels accept at once, all but one of their commits would meet a
conflict and be tried again. So a kernel holds an advisory lock for the length of a group, as long as others are registered. It is a
courtesy, and no part of the proof: who does not get it in time, or is without a session, commits without.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import structlog

from batos.image import server

log = structlog.get_logger("batos.cluster")

LOCK = int.from_bytes(b"batoturn", "big")
"""Number of the advisory lock in the image's database."""
WAIT_S = 1.0
"""Seconds that a group waits for its turn."""
WITHOUT_S = 2.0
"""Seconds for which groups are committed without turns after one waited in vain: a kernel that holds the lock stands still."""


class SessionTurn:
    """Turn of this kernel, held in a session of its own; used by the committer's thread alone."""

    def __init__(self, adapter: Any, lease_s: float) -> None:
        """
        :param adapter: RelStorage's.
        :param lease_s: seconds after which the server ends the session of a kernel that stands still in its turn.
        """
        self._adapter, self._lease_s = adapter, lease_s
        self.needed = False
        """True while other kernels are registered; set from another thread."""
        self._session: Any = None
        self._again = 0.0
        self.stats = {"turns": 0, "without": 0}

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the turn for the block, if there are others and it comes in time."""
        held = self.needed and time.monotonic() >= self._again and self._take()
        try:
            yield
        finally:
            if held:
                self._leave()

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
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
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
