"""Lock between a pack and whatever brings back objects out of reach: a pack drops those, and does not see new references.

It counts in this process, and on PostgreSQL in all that use the image, by an advisory lock of a session. So an undo at one kernel waits
for a pack at another, and a pack for it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ZODB

from batos.concurrency import in_helper
from batos.image import server

PACK_LOCK = int.from_bytes(b"batpack\0", "big")
"""Number of the advisory lock in the image's database."""
_LOOK_S = 0.2  # between two tries


class PackLock:
    """Lock of an image, taken by `async with`."""

    def __init__(self, db: ZODB.DB) -> None:
        self._here = asyncio.Lock()
        self._adapter = server.postgres_of(db.storage)
        self._session: Any = None

    async def __aenter__(self) -> None:
        """Wait for the lock.

        :raises ImageAway: if the server cannot be reached.
        """
        await self._here.acquire()
        if self._adapter is None:
            return
        try:
            self._session = await in_helper(server.open_session, self._adapter, "pack or undo")
            while True:
                if await in_helper(self._try):
                    return
                await asyncio.sleep(_LOOK_S)
        except BaseException as e:
            self._leave()
            away = server.away_error(e)
            raise (e if away is None else away) from None

    async def __aexit__(self, *why: object) -> None:
        """Let others have the lock."""
        self._leave()

    def _try(self) -> bool:
        with self._session.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", (PACK_LOCK,))
            return bool(cursor.fetchone()[0])

    def _leave(self) -> None:
        session, self._session = self._session, None
        self._here.release()
        if session is not None:
            session.close()  # and the lock with it
