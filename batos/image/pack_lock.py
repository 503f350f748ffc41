"""Lock between a pack and whatever brings back objects out of reach: a pack drops those, and does not see new references.

It counts in this process, and on PostgreSQL in all that use the image, by an advisory lock of a session. So an undo at one kernel waits
for a pack at another, and a pack for it. Undos of several kernels share the lock, since their commits keep them apart: a kernel that
stands still in one holds up no other undo.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Literal

import ZODB

from batos.concurrency import in_helper
from batos.image import server

PACK_LOCK = int.from_bytes(b"batpack\0", "big")
"""Number of the advisory lock in the image's database."""
_LOOK_S = 0.2  # between two tries


class PackLock(asyncio.Lock):
    """Lock of an image, taken by `async with`: by whatever brings objects back, or, as `alone`, by a pack."""

    def __init__(self, db: ZODB.DB) -> None:
        super().__init__()
        self._adapter = server.postgres_of(db.storage)
        self._session: Any = None
        self._shared = True

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold the lock while nothing else holds it, at this kernel or another."""
        await self._acquire(shared=False)
        try:
            yield
        finally:
            self.release()

    async def acquire(self) -> Literal[True]:
        """Wait for the lock.

        :raises ImageAway: if the server cannot be reached.
        """
        return await self._acquire(shared=True)

    async def _acquire(self, *, shared: bool) -> Literal[True]:
        await super().acquire()
        if self._adapter is None:
            return True
        self._shared = shared
        try:
            self._session = await in_helper(server.open_session, self._adapter, "pack or undo")
            while True:
                if await in_helper(self._try):
                    return True
                await asyncio.sleep(_LOOK_S)
        except BaseException as e:
            self.release()
            away = server.away_error(e)
            raise (e if away is None else away) from None

    def release(self) -> None:
        """Let others have the lock."""
        session, self._session = self._session, None
        super().release()
        if session is not None:
            session.close()  # and the lock with it

    def _try(self) -> bool:
        with self._session.cursor() as cursor:
            cursor.execute(f"SELECT pg_try_advisory_lock{'_shared' * self._shared}(%s)", (PACK_LOCK,))
            return bool(cursor.fetchone()[0])
