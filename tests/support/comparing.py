"""Comparisons of a kernel as a client asks for them, and a model that tells the sides apart."""

from __future__ import annotations

import asyncio
from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.console.api_client import Asker
from tests.support.missions import FakeInference, answer

GARDENER = {"robin.sage_facet_": "Look at it as a gardener looks at a bed in spring."}
DEEP = {"depth": "facets", "flavour": "full"}
FOUR = [{"brief": f"Why do I feel {how} on Mondays?", "depth": "direct", "flavour": "full"} for how in ("tired", "sad", "alone", "lost")]
SPRING = {"judge": "rules", "rules": ["contains:spring"]}


def gardening(inference: FakeInference) -> None:
    """A model that speaks of spring where the gardener is asked, or BRICK; each answer is another one."""

    def say(request: ChatRequest) -> str:
        if request.schema is None and ("gardener" in request.user or "You are BRICK" in request.system):
            return f"It is spring, and so it grows. Of {request.user[-40:]}"
        return answer(request)

    inference.say = say


class Desk:
    """Comparisons of a kernel, as a client asks for them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self._asker = kernel, Asker(kernel.transport.dispatcher, kernel.settings)

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return await self._asker.ask(f"compare.{op}", **fields)

    async def start(self, id: str = "c1", persona: str = "robin", **fields: Any) -> dict[str, Any]:
        await self.ask("start", id=id, persona=persona, **fields)
        return await self.ended(id)

    async def resumed(self, id: str = "c1", **fields: Any) -> dict[str, Any]:
        await self.ask("resume", id=id, **fields)
        return await self.ended(id)

    async def ended(self, id: str = "c1") -> dict[str, Any]:
        """The comparison, once it is no longer under way."""
        async with asyncio.timeout(90):
            while True:
                told = await self.ask("show", id=id, wait_s=5.0)
                if told["state"] not in ("waiting", "running"):
                    return told
