"""Presence: signs of life of the kernels of one image, and the judgement that one is silent.

On PostgreSQL a kernel renews a row of a side table and holds an advisory lock of a session. The server frees that lock within milliseconds
when the process ends. Elsewhere it renews its record in the image. Who is silent is a guess of each observer, by its own clock: no clocks
are compared. A wrong guess costs what was under way, since only a write in the image makes a kernel gone (`batos.image.kernels`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from batos.image import kernels, server
from batos.image.kernels import KernelInfo
from batos.image.living_image import LivingImage

log = structlog.get_logger("batos.cluster")
T = TypeVar("T")

_LOCKS = int.from_bytes(b"batk", "big")
"""First half of the numbers of the kernels' advisory locks; the second is the epoch."""
FREE_LOOKS = 2
"""Looks in a row that find a kernel's lock free before it counts as gone."""


class Sign(NamedTuple):
    """Sign of life of a kernel."""

    beat: int
    """Changes while the kernel lives."""
    held: bool | None = None
    """True while a session of the kernel's lives; None where nothing tells."""


class Silence:
    """Judgement of one observer: who has been silent too long."""

    def __init__(self, lease_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.lease_s, self._clock = lease_s, clock
        self._looked = clock()
        self.heard: set[str] = set()
        """Names of those that have given a sign of life since this observer looks."""
        self.restart()

    def restart(self) -> None:
        """Begin anew: what was seen so far says nothing, since this observer was away itself."""
        self.since = self._clock()
        self._beats: dict[str, tuple[int, float]] = {}
        self.held: set[str] = set()
        self._free: dict[str, int] = {}

    def look(self, signs: dict[str, Sign]) -> list[str]:
        """Return the kernels that are to be declared gone.

        :param signs: signs of the kernels that are not gone, by name.
        """
        now = self._clock()
        if now - self._looked > self.lease_s / 2:  # it stood still itself
            self.restart()
        self._looked = now
        for gone in [name for name in self._beats if name not in signs]:
            del self._beats[gone]
            self.held.discard(gone)
            self._free.pop(gone, None)
        return [name for name, sign in signs.items() if self._is_silent(name, sign, now)]

    def _is_silent(self, name: str, sign: Sign, now: float) -> bool:
        beat, since = self._beats.get(name, (None, now))
        if beat != sign.beat:
            if beat is not None:
                self.heard.add(name)
            since = now
            self._beats[name] = sign.beat, now
        if sign.held:
            self.heard.add(name)
            self.held.add(name)
            self._free.pop(name, None)
        elif sign.held is False and name in self.held and now - self.since > self.lease_s:
            # Before, a restart of the server may have freed all locks at once.
            self._free[name] = self._free.get(name, 0) + 1
            if self._free[name] >= FREE_LOOKS:
                return True
        return now - since > self.lease_s


class Presence(Protocol):
    """Signs of life of this kernel and of the others."""

    async def hold(self, name: str) -> None:
        """Begin to give signs of life under a name, in place of the one before."""
        ...

    async def beat(self) -> None:
        """Give a sign of life."""
        ...

    async def survey(self, others: Iterable[KernelInfo]) -> dict[str, Sign] | None:
        """Return the signs of others by name; None where what was seen before says nothing any more."""
        ...

    async def release(self) -> None:
        """End the signs of life."""
        ...


def presence_of(image: LivingImage) -> Presence:
    """Return the signs of life that the storage of an image has."""
    adapter = server.postgres_of(image.db.storage)
    return BeatPresence(image) if adapter is None else SessionPresence(adapter)


class BeatPresence:
    """Signs of life as writes into the image."""

    def __init__(self, image: LivingImage) -> None:
        self._image, self._name = image, ""

    async def hold(self, name: str) -> None:
        """See `Presence`."""
        self._name = name

    async def beat(self) -> None:
        """See `Presence`."""
        if self._name:
            await self._image.system(kernels.beat, self._name)

    async def survey(self, others: Iterable[KernelInfo]) -> dict[str, Sign] | None:
        """See `Presence`."""
        return {one.name: Sign(one.beat) for one in others}

    async def release(self) -> None:
        """See `Presence`."""
        self._name = ""


class SessionPresence:
    """Signs of life as an advisory lock of a session of PostgreSQL, and as a row."""

    def __init__(self, adapter: Any) -> None:
        """
        :param adapter: RelStorage's.
        """
        self._adapter, self._name = adapter, ""
        self._session: Any = None
        self._is_new = False  # the session, which saw nothing of what was before
        self._ended = False
        self._thread = ThreadPoolExecutor(1, "presence")  # its own: whatever else waits for a thread, signs of life do not

    async def hold(self, name: str) -> None:
        """See `Presence`."""
        await self._in_thread(self._hold, name)

    async def beat(self) -> None:
        """See `Presence`."""
        await self._in_thread(self._give_sign)

    async def survey(self, others: Iterable[KernelInfo]) -> dict[str, Sign] | None:
        """See `Presence`."""
        return await self._in_thread(self._survey, [one.name for one in others])

    async def release(self) -> None:
        """See `Presence`."""
        await self._in_thread(self._end)
        self._thread.shutdown(wait=False)

    async def disconnect(self) -> None:
        """End the session with the server, and with it the lock. The next sign of life begins another one."""
        await self._in_thread(self._close)

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    # --- in its thread

    def _hold(self, name: str) -> None:
        former, self._name = self._name, name
        if self._session is None:
            self._connect()
        elif former:
            with self._session.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", (_LOCKS, kernels.epoch_of(former)))
                cursor.execute("DELETE FROM batos_kernels WHERE name = %s", (former,))
        self._lock()

    def _connect(self) -> None:
        self._session, self._is_new = server.open_session(self._adapter, "presence"), True
        with self._session.cursor() as cursor:
            cursor.execute("SET statement_timeout = '5s'")
            cursor.execute("SELECT to_regclass('batos_kernels')")
            if cursor.fetchone()[0] is None:
                try:
                    cursor.execute("CREATE TABLE IF NOT EXISTS batos_kernels (name text PRIMARY KEY, beat bigint NOT NULL)")
                except self._adapter.driver.driver_module.IntegrityError:
                    log.debug("table_made_by_another")  # at this moment

    def _lock(self) -> None:
        with self._session.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", (_LOCKS, kernels.epoch_of(self._name)))
            self._beat(cursor)

    def _beat(self, cursor: Any) -> None:
        cursor.execute(
            "INSERT INTO batos_kernels VALUES (%s, 1) ON CONFLICT (name) DO UPDATE SET beat = batos_kernels.beat + 1",
            (self._name,),
        )

    def _give_sign(self) -> None:
        with self._connected() as cursor:
            if self._name:
                self._beat(cursor)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        """Yield a cursor of the session, which is made anew if it was lost; lose it with a failure of the block."""
        try:
            if self._session is None:
                if self._ended:  # a sign that was asked for just before begins no other session
                    raise RuntimeError("the signs of life have ended")
                self._connect()
                if self._name:
                    self._lock()
            with self._session.cursor() as cursor:
                yield cursor
        except Exception:
            self._close()
            raise

    def _survey(self, others: list[str]) -> dict[str, Sign] | None:
        with self._connected() as cursor:
            if self._is_new:
                self._is_new = False
                return None
            if not others:
                return {}
            cursor.execute("SELECT name, beat FROM batos_kernels WHERE name = ANY(%s)", (others,))
            beats = dict(cursor.fetchall())
            cursor.execute(
                "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid::bigint = %s AND objsubid = 2"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
                (_LOCKS,),
            )
            held = {int(number) for (number,) in cursor.fetchall()}
        return {name: Sign(int(beats.get(name, 0)), kernels.epoch_of(name) in held) for name in others}

    def _end(self) -> None:
        self._ended = True
        self._close()

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            try:
                session.close()
            except Exception as e:  # it is gone already
                log.debug("session_not_closed", error=repr(e))
