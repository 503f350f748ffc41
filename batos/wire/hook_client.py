"""Part of the client for hooks."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Unpack

from batos.wire.folder_client import FolderWatching


class HookTerms(TypedDict, total=False):
    """Terms of a hook; each may be left out."""

    persona: str | None
    depth: Literal["auto", "direct", "facets", "council"] | None
    priority: int | None
    rate: int | None
    """missions in a minute, 60 unless said"""
    hosts: list[str] | None
    """names under which a tunnel or proxy may bring requests to it"""
    when: list[str] | None
    """conditions `FIELD=VALUE` of the body; where one does not hold, a delivery becomes no mission"""


class Hooking(FolderWatching):
    """Part of `batos.wire.client.Client` for hooks."""

    async def hooks(self, name: str | None = None) -> dict[str, Any]:
        """Return the hooks by name, each with its last mission; with a name, all of that one. No reply has a secret."""
        return await self._ask("hooks", name=name)

    async def hook_add(self, name: str, brief: str, **terms: Unpack[HookTerms]) -> dict[str, Any]:
        """Add a hook; return it with its `secret`. One that says the same is returned as it is.

        :param brief: brief of each mission; `{issue.title}` stands for that field of the body, `{body}` for all of it.
        :param terms: persona, depth, priority, rate, hosts, when (`HookTerms`).
        :raises InvalidInput: if the name is taken, or a term is not valid.
        """
        told: dict[str, Any] = {key: value for key, value in terms.items() if value is not None}
        return await self._ask("hook_add", name=name, brief=brief, **told)

    async def hook_pause(self, name: str) -> dict[str, Any]:
        """Refuse deliveries of a hook until `hook_resume`, also across restarts. Return it."""
        return await self._ask("hook_pause", name=name)

    async def hook_resume(self, name: str) -> dict[str, Any]:
        """Take deliveries of a hook again. Return it."""
        return await self._ask("hook_resume", name=name)

    async def hook_remove(self, name: str) -> dict[str, Any]:
        """Remove a hook and its secret; return those that are left. Its missions stay."""
        return await self._ask("hook_remove", name=name)

    async def hook_roll(self, name: str) -> dict[str, Any]:
        """Give a hook another `secret`, and return it with that; the one before does not count any more."""
        return await self._ask("hook_roll", name=name)

    async def hook_deliver(
        self, name: str, body: bytes, *, kind: str = "", headers: Mapping[str, str] | None = None, token: str = ""
    ) -> dict[str, Any]:
        """Deliver to a hook as a request over HTTP does; return the mission's `id`, or `why` it became none.

        :param kind: content type of the body; JSON unless it says a form or text.
        :param headers: headers that prove or name the delivery, by lower-case names.
        :param token: the hook's secret, where no header proves the delivery.
        :raises HookRefused: if nothing proves that it knows the secret.
        """
        data = base64.b64encode(body).decode()
        return await self._ask("hook_deliver", name=name, body=data, kind=kind, headers=dict(headers or {}), token=token)
