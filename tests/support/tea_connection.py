"""A shop in memory as a connection, and messages and lessons to it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from batos.app.kernel import Kernel
from batos.forge import lessons, versions
from batos.image.history import oid_of
from batos.tools.definitions import Delivery, ToolCall, ToolDefinition
from tests.support.missions import Listened, submit

TEA: dict[str, Any] = {"type": "object", "properties": {"sku": {"type": "string"}, "price": {"type": "number"}}}


def answered(body: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"status": {"type": "integer"}, "body": body, "url": {"type": "string"}}}


def taking(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


LIST = ToolDefinition(
    name="listTeas", kind="reads", description="List the teas of the shop.", result=answered({"type": "array", "items": TEA}), outward=False
)
ORDER = ToolDefinition(
    name="order",
    description="Order a tea.",
    parameters=taking(sku={"type": "string"}),
    result=answered({"type": "object", "properties": {"id": {"type": "integer"}, "sku": {"type": "string"}}}),
)


class Shop:
    """A connector whose place is in memory."""

    def __init__(self, name: str = "shop") -> None:
        self.name = name
        self.sent = list[tuple[str, Mapping[str, Any]]]()
        self.teas: list[dict[str, Any]] = [{"sku": "sencha", "price": 9.5}, {"sku": "assam", "price": 4.0}]
        self.offered: Sequence[ToolDefinition] = [LIST, ORDER]
        self.bodies = dict[str, Any]()
        """Answers of other tools, by name."""
        self.fault: Exception | None = None
        self.refuse: Exception | None = None
        self.seconds = 60.0
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None
        self.interrupted = "order"  # the tool in whose call that comes

    async def tools(self) -> Sequence[ToolDefinition]:
        return self.offered

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        async def send(delivery: Delivery) -> Any:
            self.sent.append((tool.name, arguments))
            if tool.name == self.interrupted and self.meanwhile is not None:
                await self.meanwhile()
            if self.fault is not None:
                raise self.fault
            if tool.name == "order" and self.refuse is not None:
                raise self.refuse
            body = self.bodies.get(tool.name, self.teas if tool.name == "listTeas" else {"id": 7, "sku": arguments.get("sku")})
            return {"status": 200, "body": body, "url": "https://shop.example"}

        return ToolCall(
            connection=self.name, tool=tool, arguments=arguments, send=send, payload=f"POST {dict(arguments)}", seconds=self.seconds
        )

    async def close(self) -> None:
        pass


async def begun(kernel: Kernel, id: str, selector: str, *args: Any) -> Listened:
    wire = json.dumps({"target": "tools.shop", "selector": selector, "args": list(args), "kwargs": {}})
    return await submit(kernel, id, f"send {selector}", message=wire)


async def told(kernel: Kernel, id: str, selector: str, *args: Any) -> dict[str, Any]:
    return await (await begun(kernel, id, selector, *args)).end()


async def lesson(kernel: Kernel, id: str, selector: str, *examples: dict[str, Any], intent: str = "") -> dict[str, Any]:
    pupil = kernel.image.read(lambda root: oid_of(root["lobby"].tools.shop))
    taught = lessons.Lesson(id, pupil, selector, list(examples), intent, False)
    wire = json.dumps({"target": "tools.shop", "selector": "learn_", "args": [selector], "kwargs": {}})
    heard = Listened(kernel, id)
    await kernel.scheduler.submit(id, "teach", {"message": wire, **taught.options()}, lambda root: lessons.begin(root, taught, 16))
    return await heard.end()


def doubts(kernel: Kernel, selector: str) -> list[str]:
    """Return the reasons to doubt a method of the connection `shop`."""
    return kernel.image.read(lambda root: versions.describe(root, root["lobby"].tools.shop, selector)).get("doubts", [])
