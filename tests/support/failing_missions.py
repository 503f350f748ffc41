"""Missions that fail, one of each kind that the tests know; and the requests `step.*` as a client makes them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.errors import BatosError, InferenceFailed, InvalidInput, ToolFailed
from batos.image import grants as image_grants
from batos.image import ledger
from batos.image.grants import ALLOW, DENY, GrantRecord
from batos.objects import Method, Primitive
from batos.wire.schemas import OPS
from tests.support.missions import FakeInference, Listened, answer, submit
from tests.support.tea_connection import Shop
from tests.support.tool_missions import connected

BRIEF = "I feel stuck: why is that?"
"""Brief of ROBIN's, who thinks about it in three facets: five inferences."""
METHODS = {
    "divide_": "def divide_(self, number):\n    left = number - 1\n    share = 10 // left\n    return share\n",
    "deep_": "def deep_(self, number):\n    return self.deep_(number + 1)\n",
    "large_": "def large_(self, number):\n    return ['word ' * 1000] * number\n",
    "count_words_": "def count_words_(self, text):\n    words = text.split(',')\n    count = len(words)\n    return count\n",
}
"""Methods of `brick`."""
ANSWER = "Rest a while, then look at it again tomorrow."


class Desk:
    """A client of the dispatcher, without a socket."""

    origin, operates = "client", True

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.reply: dict[str, Any] = {}

    def send(self, reply: dict[str, Any]) -> None:
        self.reply = reply

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        await self._kernel.transport.dispatcher.handle(OPS[op](op=op, **fields), self)  # type: ignore[arg-type]
        return self.reply


class Failing:
    """A kernel, the model in the test's hand, and a shop that it reaches."""

    def __init__(self, kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
        self.kernel, self.inference, self.shop, self.desk = kernel, inference, shop, Desk(kernel)

    async def brief(self, id: str, **options: Any) -> dict[str, Any]:
        return await (await submit(self.kernel, id, BRIEF, **{"depth": "facets", **options})).end()

    async def message(self, id: str, target: str, selector: str, *args: Any) -> dict[str, Any]:
        message = {"target": target, "selector": selector, "args": list(args), "kwargs": {}, "write": True}
        return await (await submit(self.kernel, id, f"send {target} {selector}", message=json.dumps(message))).end()

    async def change(self, function: Callable[[Any], object]) -> None:
        await self.kernel.image.system(function)

    def mend(self) -> None:
        """From now on the model answers as it should."""
        self.inference.fail_when, self.inference.say = lambda request: None, answer
        self.shop.refuse = None
        self.inference.release()


@asynccontextmanager
async def failing(folder: Path) -> Any:
    """Run a kernel in which missions can be made to fail."""
    inference, shop = FakeInference(), Shop()
    async with connected(folder, inference, shop) as kernel:

        def give(root: Any) -> None:
            for selector, source in METHODS.items():
                root["lobby"].brick._slots[selector] = Method(selector, source, provenance={"intent": "", "policy": "default"})

        await kernel.image.system(give)
        yield Failing(kernel, inference, shop)


def part_of(request: ChatRequest) -> str:
    """The part of a cycle that asks: plan, facet or answer."""
    if request.schema is not None:
        return "plan"
    return "answer" if "Notes to use" in request.user else "facet"


def _fails(part: str, cause: str, *, retryable: bool = False) -> Callable[[Failing, str], Awaitable[dict[str, Any]]]:
    async def make(world: Failing, id: str) -> dict[str, Any]:
        def fail(request: ChatRequest) -> BatosError | None:
            return InferenceFailed(f"the model is away: {cause}", cause=cause, retryable=retryable) if part_of(request) == part else None

        world.inference.fail_when = fail
        return await world.brief(id)

    return make


def _says(part: str, text: str) -> Callable[[Failing, str], Awaitable[dict[str, Any]]]:
    async def make(world: Failing, id: str) -> dict[str, Any]:
        world.inference.say = lambda request: text if part_of(request) == part else answer(request)
        return await world.brief(id)

    return make


def _sends(target: str, selector: str, *args: Any) -> Callable[[Failing, str], Awaitable[dict[str, Any]]]:
    async def make(world: Failing, id: str) -> dict[str, Any]:
        return await world.message(id, target, selector, *args)

    return make


def _writes(source: str) -> Callable[[Failing, str], Awaitable[dict[str, Any]]]:
    async def make(world: Failing, id: str) -> dict[str, Any]:
        world.inference.say = lambda request: source if request.system.startswith("You write one method") else answer(request)
        return await world.message(id, "babs", f"tidy_{id.replace('-', '_')}_", 3)

    return make


async def _empty(world: Failing, id: str) -> dict[str, Any]:
    world.inference.say = lambda request: ""
    return await world.brief(id, depth="direct")


async def _late(world: Failing, id: str) -> dict[str, Any]:
    asked = len(world.inference.asked)
    world.inference.hold()
    heard = await submit(world.kernel, id, BRIEF, depth="facets", deadline_s=2)
    await world.inference.came(asked + 1)
    return await heard.end()


async def _cancelled(world: Failing, id: str) -> dict[str, Any]:
    asked = len(world.inference.asked)
    world.inference.fail_when = lambda request: None
    first = [True]

    def say(request: ChatRequest) -> str:
        if first[0] and part_of(request) == "plan":
            first[0] = False
            world.inference.hold()  # the facets wait
        return answer(request)

    world.inference.say = say
    heard = await submit(world.kernel, id, BRIEF, depth="facets")
    await world.inference.came(asked + 2)
    await world.kernel.scheduler.cancel(id)
    return await heard.end()


async def _cancelled_with_a_question(world: Failing, id: str) -> dict[str, Any]:
    await asked(world, id)
    heard = await _listened(world, id)
    await world.kernel.scheduler.cancel(id)
    return await heard.end()


async def _listened(world: Failing, id: str) -> Any:
    from tests.support.missions import Listened

    return Listened(world.kernel, id)


async def asked(world: Failing, id: str) -> None:
    """A mission that waits for its user's answer."""
    question = {"question_": "For how many guests?"}

    def say(request: ChatRequest) -> str:
        if request.schema is not None:
            names = request.schema["properties"]
            return json.dumps({name: question["question_"] if "question" in name else f"what of {name}" for name in names})
        return answer(request)

    world.inference.say = say
    heard = await submit(world.kernel, id, BRIEF, depth="facets", may_ask=True)
    while "NEEDS_INPUT" not in heard.states:
        await world.kernel.image.system(lambda root: None)


async def _exhausted(world: Failing, id: str) -> dict[str, Any]:
    def accept(root: Any) -> None:
        ledger.accept(root, id, BRIEF, {"depth": "facets"}, False)
        ledger.mission_of(root, id).attempts = world.kernel.settings.missions.attempts

    await world.change(accept)
    heard = await _listened(world, id)
    await world.kernel.scheduler.go_on(id)
    return await heard.end()


async def _no_persona(world: Failing, id: str) -> dict[str, Any]:
    return await (await submit(world.kernel, id, BRIEF, depth="facets", persona="nobody")).end()


async def _broken_state(world: Failing, id: str) -> dict[str, Any]:
    def set_quorum(value: Any) -> Callable[[Any], None]:
        return lambda root: root["lobby"].psm.DELEGATING.__setattr__("quorum", value)

    await world.change(set_quorum("three"))
    try:
        return await world.brief(id)
    finally:
        await world.change(set_quorum(1))


async def _wrong_successor(world: Failing, id: str) -> dict[str, Any]:
    def set_successors(value: Any) -> Callable[[Any], None]:
        return lambda root: root["lobby"].psm.DECOMPOSING.__setattr__("successors", value)

    await world.change(set_successors(("COMPLETE",)))
    try:
        return await world.brief(id)
    finally:
        await world.change(set_successors(("DELEGATING",)))


async def _tool_failed(world: Failing, id: str) -> dict[str, Any]:
    await world.change(lambda root: image_grants.add(root, GrantRecord(0, ALLOW, "shop.*"), 1.0))
    world.shop.refuse = ToolFailed("it is sold out")
    return await world.message(id, "tools.shop", "call_", "order", {"sku": f"sencha-{id}"})


async def _grant_refused(world: Failing, id: str) -> dict[str, Any]:
    await world.change(lambda root: image_grants.add(root, GrantRecord(0, DENY, "shop.order", mission=id), 1.0))
    return await world.message(id, "tools.shop", "call_", "order", {"sku": f"assam-{id}"})


@Primitive.register("test.step_refuses")
async def _refuses(obj: Any) -> None:
    raise InvalidInput("this primitive refuses")


KINDS: Mapping[str, Callable[[Failing, str], Awaitable[dict[str, Any]]]] = {
    "plan: unreachable": _fails("plan", "unreachable"),
    "plan: server error": _fails("plan", "server_error"),
    "facets: timeout": _fails("facet", "timeout"),
    "facets: truncated": _fails("facet", "truncated"),
    "answer: unreachable, tried again": _fails("answer", "unreachable", retryable=True),
    "answer: refused": _fails("answer", "refused"),
    "answer: model missing": _fails("answer", "model_missing"),
    "no facet speaks": _says("facet", ""),
    "no answer": _empty,
    "deadline": _late,
    "cancelled": _cancelled,
    "cancelled with a question": _cancelled_with_a_question,
    "attempts exhausted": _exhausted,
    "unknown persona": _no_persona,
    "a state's slot is broken": _broken_state,
    "a state answers a wrong successor": _wrong_successor,
    "method raises": _sends("brick", "divide_", 1),
    "method sends too deep": _sends("brick", "deep_", 1),
    "answer too large": _sends("brick", "large_", 300),
    "unknown target": _sends("nowhere", "count_", 1),
    "wrong arguments": _sends("robin", "think_", 1, 2, 3, 4),
    "method refused": _writes("def tidy_(self, x):\n    import os\n    return os.getcwd()\n"),
    "no source at all": _writes("I cannot do that."),
    "tool failed": _tool_failed,
    "grant refused": _grant_refused,
}
"""Kind of failure -> makes a mission that ends so."""


async def failed(world: Failing, kind: str, id: str = "m1") -> dict[str, Any]:
    """A mission that failed; from then on the model answers."""
    ended = await KINDS[kind](world, id)
    world.mend()
    return ended["error"]  # type: ignore[no-any-return]


async def opened(world: Failing, id: str = "m1", **more: Any) -> dict[str, Any]:
    return await world.desk.ask("step.open", id=id, session="s", **more)


async def edit(world: Failing, kind: str, target: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return await world.desk.ask("step.edit", session="s", kind=kind, target=target, value=value, **more)


async def continued(world: Failing, id: str = "m1", **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reply, and the end of the mission that goes on."""
    heard = Listened(world.kernel, id)
    reply = await world.desk.ask("step.continue", session="s", **more)
    return reply, await heard.end()
