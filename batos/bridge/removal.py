"""Taking away what BAT OS made in somebody's Ollama, and nothing else.

What it made it knows by three signs: the prefix of personas' models, the mark in an expert's license, and the notes of what was built for
a profile (`ollama/built*.json` in the data folder), which say under which digest: a model that somebody changed since is theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from batos.bridge.built import Built, built_of
from batos.bridge.candidates import show
from batos.bridge.client import connect
from batos.bridge.expert_model import delete, digests, failing
from batos.bridge.names import tagged
from batos.bridge.persona_models import MARK, PREFIX
from batos.bridge.service import DEFAULT_HOST, version_at
from batos.config import Settings
from batos.errors import OllamaUnavailable

if TYPE_CHECKING:
    from ollama import AsyncClient


class Removed(NamedTuple):
    """A model that was deleted, and the address of its Ollama."""

    name: str
    host: str


async def remove(settings: Settings, *, dry: bool = False) -> list[Removed]:
    """Delete what BAT OS made in each Ollama that the settings name, or in the one at the default port.

    :param dry: delete nothing, and answer the same.
    :raises OllamaUnavailable: where none of them answers.
    """
    hosts = dict.fromkeys((settings.ollama_host or DEFAULT_HOST, *settings.ollama_hosts))
    answering = [host for host in hosts if await version_at(host) is not None]
    if not answering:
        raise OllamaUnavailable(f"no Ollama answers at {', '.join(hosts)}; name one in ollama_host or OLLAMA_HOST")
    removed = []
    for host in answering:
        notes = [Built(path) for path in _notes(settings, host)]
        async with connect(host) as client:
            for name, digest in sorted((await digests(client)).items()):
                if await _made_here(client, name, digest, notes):
                    if not dry:
                        await delete(client, name)
                    removed.append(Removed(name, host))
    return removed


async def _made_here(client: AsyncClient, name: str, digest: str, notes: list[Built]) -> bool:
    if name.startswith(PREFIX) or any(built.knows(name, digest) for built in notes):
        return True
    with failing(f"cannot look at {name}"):
        shown = await show(client, name)
    found = MARK.search(str((shown or {}).get("license") or ""))
    return found is not None and tagged(found[1]) == name


def _notes(settings: Settings, host: str) -> list[Path]:
    """The notes of what was built in an Ollama: it may have been the first one of a daemon, or a further one."""
    folder = settings.data / "ollama"
    return [folder / "built.json", built_of(folder, host)]
