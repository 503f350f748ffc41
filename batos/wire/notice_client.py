"""Part of the client for notices."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from batos.wire.connection import Connection

TEST_S = 120.0
"""Seconds that a client waits for the outcome of a test."""


class NoticeTerms(TypedDict, total=False):
    """Terms of a channel; each may be left out."""

    options: Mapping[str, Any]
    """options of its way: docs/notices.md"""
    on: Sequence[str] | None
    """facts that it tells: end, failure, question, change, doubt, schedule; default: all but end and change"""
    persona: str | None
    origin: str | None
    """only of missions of this origin: client, console, schedule"""
    quiet: str | None
    """hours in which it keeps quiet, as `22:00-7:00`"""
    zone: str | None
    """time zone of these hours; default: that of the daemon's machine"""
    once: bool
    """True to send no message again that may have arrived"""


class Noticing(Connection):
    """Part of `batos.wire.client.Client` for notices."""

    async def notices(self, name: str | None = None) -> dict[str, Any]:
        """Return the channels of notices by name, each with what waits; with a name, that one with its options."""
        return await self._ask("notices", name=name)

    async def notice_add(
        self, name: str, way: Literal["program", "hook", "apprise"], place: str, **terms: Unpack[NoticeTerms]
    ) -> dict[str, Any]:
        """Add a channel; return it. One that says the same is returned as it is.

        :param way: `program` of this machine, `hook` (an HTTP POST) or `apprise`.
        :param place: command line or URL. An apprise URL, and of a hook's URL what looks like a secret, is kept beside the image.
        :param terms: options, on, persona, origin, quiet, zone, once (`NoticeTerms`).
        :raises InvalidInput: if a part of it is not valid.
        """
        told: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
        return await self._ask("notice_add", name=name, way=way, place=place, **told)

    async def notice_pause(self, name: str) -> dict[str, Any]:
        """Let a channel rest until `notice_resume`; what it is to tell waits. Return it."""
        return await self._ask("notice_pause", name=name)

    async def notice_resume(self, name: str) -> dict[str, Any]:
        """Let a channel go on, with what waited. Return it."""
        return await self._ask("notice_resume", name=name)

    async def notice_remove(self, name: str) -> dict[str, Any]:
        """Remove a channel, and the secret that was kept for it; return those that are left."""
        return await self._ask("notice_remove", name=name)

    async def notice_test(self, name: str, *, id: str | None = None, timeout_s: float = TEST_S) -> dict[str, Any]:
        """Send a message to a channel now, whatever the hours. Return `messages`, with the one and what became of it.

        :param id: of the message; default: a new one. The same id again is the same message.
        """
        return await self._ask("notice_test", hold_s=timeout_s, name=name, id=uuid.uuid4().hex if id is None else id)

    async def notice_settle(self, name: str | None = None) -> dict[str, Any]:
        """Settle the messages that failed or are in doubt, of one channel or of all: they are not spoken of any more. Return the channels,
        and `settled`, the number of messages.

        :raises InvalidInput: if there is no channel of that name, and no such message to one.
        """
        return await self._ask("notice_settle", name=name)

    async def notice_log(self, name: str | None = None, *, limit: int | None = None) -> dict[str, Any]:
        """Return the last messages, of one channel or of all, the newest first, with what became of them."""
        return await self._ask("notice_log", name=name, limit=limit)
