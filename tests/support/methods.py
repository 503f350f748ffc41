"""Missions that have methods written for them, and what a model writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.objects import Method
from tests.support.missions import FakeInference, answer, submit

ADD = "def add_(self, number, number2):\n    return number + number2\n"


def writing(inference: FakeInference, *sources: str | Callable[[ChatRequest], str]) -> list[ChatRequest]:
    """A model that writes these sources, one after the other, and then the last one again; the requests it gets."""
    asked: list[ChatRequest] = []

    def say(request: ChatRequest) -> str:
        if not request.system.startswith("You write one method"):
            return answer(request)
        asked.append(request)
        source = sources[min(len(asked), len(sources)) - 1]
        return source if isinstance(source, str) else source(request)

    inference.say = say
    return asked


async def sent(kernel: Kernel, id: str, target: str, selector: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The end of a mission that sends a message; what is written for it is kept, also where nobody vouches for it (`--write`)."""
    message = {"target": target, "selector": selector, "args": list(args), "kwargs": kwargs, "write": True}
    return await (await submit(kernel, id, f"send {target} {selector}", message=json.dumps(message))).end()


async def give(kernel: Kernel, **slots: Any) -> None:
    """An object `thing` in the lobby."""

    def make(root: Any) -> None:
        root["lobby"].thing = root["lobby"].genesis.derive(name="thing", comment="I am a thing for tests.", **slots)

    await kernel.image.system(make)


def method_of(kernel: Kernel, path: str, selector: str) -> dict[str, Any]:
    """A method as plain values."""

    def read(root: Any) -> dict[str, Any]:
        found = root["lobby"]._slots[path]._slots[selector]
        assert isinstance(found, Method)
        versions = [one.source for one in found.versions()]
        return {"version": found.version, "contract": dict(found.contract), "versions": versions, **dict(found.provenance)}

    return kernel.image.read(read)  # type: ignore[no-any-return]
