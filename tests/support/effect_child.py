"""One attempt at an effect, killed at a point: `python -m tests.support.effect_child FOLDER PORT KIND POINT`. Prints what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

from batos.errors import BatosError
from batos.image import effects, ledger
from batos.image.living_image import LivingImage
from batos.tools.definitions import Delivery, ToolCall, ToolDefinition
from batos.tools.effects import Effects
from batos.tools.egress import Egress, WebOrigin

MISSION = "m1"
STEPS: dict[Any, tuple[str, str]] = {
    effects.intend: ("before intent", "intent durable"),
    effects.end: ("answered", "result durable"),
}


class Question(BaseException):
    """The mission waits for its user."""


class Scripted:
    """A caller whom everything is allowed, and whose user answers as he was told."""

    def __init__(self, answers: list[str]) -> None:
        self.answers, self.counted = answers, Counter[tuple[str, str]]()

    async def allow(self, call: ToolCall) -> str:
        return "always"

    def ask(self, question: str) -> str:
        if not self.answers:
            raise Question(question)
        return self.answers.pop(0)

    def tied(self) -> str:
        return ""

    def label(self) -> str:
        return "1 DELEGATING robin -"

    def counts(self) -> Counter[tuple[str, str]]:
        return self.counted

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        return True

    def tell(self, name: str, line: str) -> None:
        pass


def die_around(image: LivingImage, point: str) -> None:
    """Have this process kill itself at a step of an effect's record, if `point` names one."""
    real = image.system

    async def system(function: Any, *args: Any, **more: Any) -> Any:
        before, after = STEPS.get(function, ("", ""))
        if point == before:
            os.kill(os.getpid(), signal.SIGKILL)
        found = await real(function, *args, **more)
        if point == after:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    image.system = system  # type: ignore[method-assign]


async def told(attempt: Effects, call: ToolCall) -> None:
    """Perform a call; print what came of it."""

    async def prepare() -> ToolCall:
        return call

    try:
        print("done", json.dumps(await attempt.perform(call.name, call.arguments, prepare)))
    except Question as e:
        print("asked", e)
    except BatosError as e:
        print("failed", e.code, e.message)


async def main(folder: str, port: int, kind: str, answers: list[str]) -> None:
    image = await LivingImage.open(f"file://{folder}/image.fs")
    await image.system(ledger.accept, MISSION, "buy tea", {}, True)
    world = Egress(private=[WebOrigin("http", "127.0.0.1", port)])
    die_around(image, sys.argv[4])

    async def send(delivery: Delivery) -> Any:
        method, path = {"reads": ("GET", "/read"), "idempotent": ("PUT", "/put")}.get(kind, ("POST", "/do"))
        headers = {"idempotency-key": delivery.key} if kind == "keyed" else {}
        answer = await world.request(method, f"http://127.0.0.1:{port}{path}", headers=headers, content=b"{}" if method != "GET" else None)
        return {"status": answer.status}

    async def look() -> Any:
        answer = await world.request("GET", f"http://127.0.0.1:{port}/seen")
        return json.loads(answer.body) or None

    attempt = Effects(image, MISSION, "image", Scripted(answers))
    order, seen = ToolDefinition(name="order", kind=kind), look if kind == "verifiable" else None
    call = ToolCall(connection="shop", tool=order, arguments={"sku": "tea"}, send=send, seconds=2.0, target="shop/1", look=seen)

    await told(attempt, call)
    await image.close()
    await world.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[5:]))
