"""Part of the client for watched folders whose files become missions."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack

from batos.wire.kernel_client import KernelReading


class FolderTerms(TypedDict, total=False):
    """Terms of a watched folder with missions; each may be left out."""

    name: str | None
    """default: made of the folder's"""
    exclude: list[str] | None
    """ignore patterns, as in `.gitignore`; default: those with which the memory watches the folder"""
    existing: bool | None
    """True: the files that are there already become missions, too"""
    persona: str | None
    depth: Literal["auto", "direct", "facets", "council"] | None
    priority: int | None
    stop_after: int | None
    """failures in a row after which it stops, 5 unless said; 0: it goes on"""


class FolderWatching(KernelReading):
    """Part of `batos.wire.client.Client` for watched folders whose files become missions."""

    async def folders(self, name: str | None = None) -> dict[str, Any]:
        """Return the watched folders with missions by name, each with its last mission; with a name, all of that one."""
        return await self._ask("folders", name=name)

    async def folder_add(self, folder: str, brief: str, **terms: Unpack[FolderTerms]) -> dict[str, Any]:
        """Have each new or changed file of a folder become a mission. `present` is the number of files that are there already.

        :param folder: absolute path on the daemon's machine; the memory watches it from then on.
        :param brief: brief of each mission; `{path}`, `{name}`, `{folder}` and `{text}` stand for those of the file. Without `{text}` its
            text stands below the brief.
        :param terms: name, exclude, existing, persona, depth, priority, stop_after (`FolderTerms`).
        :raises Unreadable: if it is not a folder that can be read.
        :raises InvalidInput: if the name is taken, or a term is not valid.
        """
        told: dict[str, Any] = {key: value for key, value in terms.items() if value is not None}
        return await self._ask("folder_add", folder=folder, brief=brief, **told)

    async def folder_pause(self, name: str) -> dict[str, Any]:
        """Make no missions of a folder's files until `folder_resume`, also across restarts. Return it."""
        return await self._ask("folder_pause", name=name)

    async def folder_resume(self, name: str) -> dict[str, Any]:
        """Go on with a folder's files, those that came meanwhile too. Return it."""
        return await self._ask("folder_resume", name=name)

    async def folder_remove(self, name: str) -> dict[str, Any]:
        """Make no missions of a folder's files any more; return those that are left. Its missions stay, and the memory watches it."""
        return await self._ask("folder_remove", name=name)

    async def folder_run(self, name: str) -> dict[str, Any]:
        """Make missions of the files that are there and became none; `reopened` is their number."""
        return await self._ask("folder_run", name=name)
