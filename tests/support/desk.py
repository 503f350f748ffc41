"""A desk with a clock, notes and a till, in the place of a real one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from batos.app.kernel import Kernel
from batos.errors import EgressRefused
from batos.tools.definitions import Delivery, InputRequired, ToolCall, ToolDefinition
from tests.support.missions import WAIT_S

NOTE = ToolDefinition(
    name="write_note",
    description="Write a note to a file.",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string", "description": "file"}, "text": {"type": "string", "description": "text of the note"}},
        "required": ["path", "text"],
    },
    kind="idempotent",
    untrusted=False,
)
CLOCK = ToolDefinition(
    name="current_time",
    description="Tell the current time in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string", "description": "name of the city"}}, "required": ["city"]},
    kind="reads",
    outward=False,
)
PAY = ToolDefinition(
    name="pay",
    description="Pay a bill.",
    parameters={"type": "object", "properties": {"euros": {"type": "integer"}}, "required": ["euros"]},
)


class Place:
    """A place with a clock and notes; `fail` is raised by its next call, `asks` is asked once, `more` are further tools.

    `moved` are arguments under which it has what it is asked for, as a server that redirects.
    """

    more: Sequence[ToolDefinition] = ()
    seconds = 5.0

    def __init__(self) -> None:
        self.calls: list[tuple[str, Mapping[str, Any], str]] = []
        self.fail: Exception | None = None
        self.asks = self.long = ""
        self.moved: Mapping[str, Any] = {}
        self.private = self.ticks = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    async def tools(self) -> Sequence[ToolDefinition]:
        return [NOTE, dataclasses.replace(CLOCK, private=self.private), *self.more]

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        async def send(delivery: Delivery) -> Any:
            if self.asks and not delivery.answer:
                raise InputRequired(self.asks, "left")
            self.calls.append((tool.name, arguments, delivery.answer or delivery.key))
            self.entered.set()
            await self.gate.wait()
            if self.fail is not None:
                raise self.fail
            if self.moved and not delivery.permits(self.moved):
                raise EgressRefused(f"it is at {self.moved}, which may not be asked for")
            if self.ticks:
                return {"time": len(self.calls)}
            if tool.name == "pay":
                return {"paid": arguments["euros"]}
            now = {"time": "17:45", "zone": "JST" + self.long}
            return now if tool is CLOCK or tool.name == "current_time" else {"written": arguments["path"]}

        return ToolCall(connection="desk", tool=tool, arguments=arguments, send=send, seconds=self.seconds, target="desk")

    async def close(self) -> None:
        pass


async def asked(kernel: Kernel, id: str) -> str:
    """Return the question that a mission waits with, once it does."""
    async with asyncio.timeout(WAIT_S):
        while True:
            question = kernel.scheduler.live(id).get("question")
            if question:
                return str(question if isinstance(question, str) else question["question"])
            await kernel.image.system(lambda root: None)
