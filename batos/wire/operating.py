"""What a client asks about the whole: the daemon itself, its metrics, the methods of its image."""

from __future__ import annotations

from typing import Any

from batos.wire.connection import Connection


class Operating(Connection):
    """The part of `batos.wire.client.Client` for whoever looks after a daemon."""

    async def info(self) -> dict[str, Any]:
        """What the daemon says of itself."""
        return await self._ask("info")

    async def metrics(self) -> dict[str, Any]:
        """What Prometheus would read, as data: `metrics`, each with `name`, `kind`, `help` and `samples`."""
        return await self._ask("metrics")

    async def method(self, target: str, selector: str, at: float | str | None = None) -> dict[str, Any]:
        """What an object holds under a selector: `kind`, `versions` (newest first), `examples`, `intent`.

        :param at: the moment, as of `show`.
        :raises InvalidInput: if there is nothing.
        """
        return await self._ask("method", target=target, selector=selector, at=at)

    async def methods(self, target: str | None = None, at: float | str | None = None) -> dict[str, Any]:
        """The generated methods of the image (left out), or those that the object `target` holds itself; `at` as of `show`."""
        return await self._ask("methods", target=target, at=at)

    async def missions(
        self,
        state: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
        *,
        before: str | None = None,
        words: str | None = None,
        system: bool | None = None,
    ) -> dict[str, Any]:
        """The missions the daemon knows, the newest first, all or those in `state`; `at` as of `show`.

        :param before: only those that were accepted before the mission of that id.
        :param words: only those whose brief has all of these, or whose id begins so.
        :param system: False: without those of the system's own.
        """
        return await self._ask("missions", state=state, limit=limit, at=at, before=before, words=words, system=system)

    async def failures(
        self,
        id: str | None = None,
        *,
        code: str | None = None,
        selector: str | None = None,
        limit: int | None = None,
        at: float | str | None = None,
    ) -> dict[str, Any]:
        """The failed attempts that fit, the newest first: of a mission, with an error's code or cause, of messages with a selector."""
        return await self._ask("failures", id=id, code=code, selector=selector, limit=limit, at=at)
