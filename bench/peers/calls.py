"""The mission that every contender runs: one call that plans, three at once, one that puts them together."""

from __future__ import annotations

import os
from collections.abc import Sequence

FACETS = ("risks", "steps", "costs")
INSTANT = "x" * 400
MODEL = os.environ.get("PEERS_MODEL", "")
"""Address of the model; "" where calls are instant."""


async def ask(mission: str, step: str, given: Sequence[str] = ()) -> str:
    """What the model says; at once, and 400 characters, where there is none to be asked (`PEERS_MODEL`)."""
    if not MODEL:
        return INSTANT
    from ollama import AsyncClient

    client = AsyncClient(host=MODEL)
    parts = []
    asked = {"role": "user", "content": f"{mission}: {step}. {' '.join(given)}"}
    async for part in await client.chat(model="robin:embedded", messages=[asked], stream=True):
        parts.append(part.message.content or "")
    return "".join(parts)
