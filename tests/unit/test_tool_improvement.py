"""Methods that call tools get better as all others do: recorded exchanges hold the next version, lessons, undo and rehearsals heed them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import telemetry
from batos.autotelic.audit import SelfAuditLimits
from batos.forge import lessons, method_prompts, operation_pins, tool_prompts
from batos.image import ledger, method_doubts
from batos.image.history import oid_of
from batos.image.method_doubts import Doubt
from batos.objects import UvmObject
from batos.tools.definitions import ConnectionSpec, ToolDefinition
from batos.wire.admin_schemas import UndoRequest
from tests.support.autonomy import improving, recorded, stepped
from tests.support.http_world import serving
from tests.support.methods import writing
from tests.support.missions import FakeInference, Listened, submit
from tests.support.tea_shop import TeaShop
from tests.support.tool_missions import allow

CHEAPEST = (
    "def cheapest_(self):\n    teas = self.tools.shop.listTeas()['body']\n    return min(teas, key=lambda tea: tea['price'])['sku']\n"
)
BUY = (
    "def buy_(self):\n    teas = self.tools.shop.listTeas()['body']\n    best = min(teas, key=lambda tea: tea['price'])\n"
    "    return self.tools.shop.order(sku=best['sku'])['body']['id']\n"
)


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
def shop() -> Iterator[TeaShop]:
    made = TeaShop()
    with serving(made.server):
        yield made


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: TeaShop) -> AsyncIterator[Kernel]:
    async with improving(tmp_path, inference) as kernel:
        toolbox = kernel.attempt_services.toolbox
        assert toolbox is not None
        await toolbox.add(ConnectionSpec("shop", "openapi", f"{shop.origin}/openapi.json"))
        await allow(kernel)
        yield kernel


async def told(kernel: Kernel, id: str, selector: str, *args: Any) -> dict[str, Any]:
    wire = json.dumps({"target": "tools.shop", "selector": selector, "args": list(args), "kwargs": {}, "write": True})
    return await (await submit(kernel, id, f"send {selector}", message=wire)).end()


async def taught(kernel: Kernel, id: str, selector: str, *examples: dict[str, Any]) -> dict[str, Any]:
    pupil = kernel.image.read(lambda root: oid_of(root["lobby"].tools.shop))
    lesson = lessons.Lesson(id, pupil, selector, list(examples), "what it says", False)
    wire = json.dumps({"target": "tools.shop", "selector": "learn_", "args": [selector], "kwargs": {}})
    heard = Listened(kernel, id)
    await kernel.scheduler.submit(id, "teach", {"message": wire, **lesson.options()}, lambda root: lessons.begin(root, lesson, 16))
    return await heard.end()


async def bought(kernel: Kernel, id: str) -> dict[str, Any]:
    wire = json.dumps({"target": "tools.shop", "selector": "buy_", "args": [], "kwargs": {}, "write": True})
    heard = await submit(kernel, id, "send buy_", message=wire)
    while not kernel.scheduler.live(id).get("question"):
        await kernel.image.system(lambda root: None)
    await kernel.scheduler.answer(id, "once", may_grant=True)
    return await heard.end()


# --- recorded exchanges


async def test_what_a_mission_was_answered_holds_the_next_version(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    writing(inference, CHEAPEST)
    assert (await told(kernel, "m1", "cheapest_"))["result"]["value"] == "assam"

    def call(root: Any) -> operation_pins.ToolExchange | None:
        held = root["lobby"].tools.shop
        return operation_pins.recorded_call(root, held, held._slots["cheapest_"])

    known = kernel.image.read(call)
    assert known is not None
    assert (known.example.args, known.example.result) == ((), "assam")
    assert list(known.exchanges) == [("shop.listTeas", "{}")]


async def test_the_record_says_nothing_of_a_version_that_calls_otherwise(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    writing(inference, BUY)
    assert (await bought(kernel, "m1"))["result"]["value"] == 1
    await doubt(kernel, "buy_")
    asked = writing(inference, BUY.replace("min(", "max("))
    assert (await bought(kernel, "m2"))["result"]["value"] == 2
    assert shop.orders == [{"sku": "assam"}, {"sku": "sencha"}]
    assert len(asked) == 1


async def test_the_same_calls_with_another_result_are_refused_with_the_recorded_result(
    kernel: Kernel, inference: FakeInference, shop: TeaShop
) -> None:
    writing(inference, CHEAPEST)
    await told(kernel, "m1", "cheapest_")
    await doubt(kernel, "cheapest_")
    asked = writing(inference, CHEAPEST.replace("min(", "max("), CHEAPEST + "\n")
    assert (await told(kernel, "m2", "cheapest_"))["result"]["value"] == "assam"
    assert "cheapest_() answered 'sencha' and not 'assam'" in asked[1].user
    assert "the shop changed its mind" in asked[0].user


@pytest.mark.parametrize("why", ["rated", "undone", "taught"])
async def test_what_its_user_took_back_or_taught_otherwise_holds_no_version(
    kernel: Kernel, inference: FakeInference, shop: TeaShop, why: str
) -> None:
    writing(inference, CHEAPEST)
    await told(kernel, "m1", "cheapest_")
    await doubt(kernel, "cheapest_")
    if why == "rated":
        await kernel.image.system(ledger.rate, "m1", -1, "wrong")
    elif why == "undone":
        await kernel.image.system(lambda root: setattr(ledger.mission_of(root, "m1"), "undone", "{}"))
    asked = writing(inference, CHEAPEST.replace("min(", "max("))
    if why == "taught":
        await taught(kernel, "t1", "cheapest_", {"args": [], "result": "sencha"})
    else:
        assert (await told(kernel, "m2", "cheapest_"))["result"]["value"] == "sencha"
    assert len(asked) == 1


async def doubt(kernel: Kernel, selector: str) -> None:
    def record(root: Any) -> None:
        held = root["lobby"].tools.shop
        method = held._slots[selector]
        said = Doubt(method.version, method.digest, time.time(), "a sign", "the shop changed its mind")
        method_doubts.record(root, held._p_oid, selector, said)

    await kernel.image.system(record)


# --- lessons, versions, undo, failures


async def test_an_earlier_version_is_brought_back_and_a_lesson_is_undone(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    writing(inference, CHEAPEST)
    assert (await taught(kernel, "t1", "cheapest_", {"args": [], "result": "assam"}))["state"] == "COMPLETE"
    first = "def cheapest_(self):\n    return self.tools.shop.listTeas()['body'][1]['sku']\n"
    writing(inference, first)
    shop.teas = [*shop.teas, {"sku": "dust", "price": 1}]
    assert (await taught(kernel, "t2", "cheapest_", {"args": [], "result": "assam"}, {"args": [], "result": "assam"}))[
        "state"
    ] == "COMPLETE"
    versions = kernel.image.read(lambda root: [one.source for one in root["lobby"].tools.shop._slots["cheapest_"].versions()])
    assert versions[0] == first
    wire = json.dumps({"target": "tools.shop", "selector": "revert_", "args": ["cheapest_"], "kwargs": {}})
    assert (await (await submit(kernel, "r1", "revert", message=wire)).end())["state"] == "COMPLETE"
    assert (await told(kernel, "m1", "cheapest_"))["result"]["value"] == "dust", "the version that goes by the price again"
    await kernel.undoing.undo(UndoRequest(op="undo", id="r1"))
    assert (await told(kernel, "m2", "cheapest_"))["result"]["value"] == "assam"
    assert len(shop.orders) == 0


async def test_undo_of_what_a_method_did_names_the_effects_that_stand(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    writing(inference, BUY)
    await bought(kernel, "m1")
    undone = await kernel.undoing.undo(UndoRequest(op="undo", id="m1"))
    assert [one["tool"] for one in undone["effects"]] == ["shop.order"]
    assert kernel.image.read(lambda root: "buy_" not in root["lobby"].tools.shop._slots), "the method came with that mission"


async def test_a_method_that_fails_is_in_the_failure_ledger_with_its_selector(
    kernel: Kernel, inference: FakeInference, shop: TeaShop
) -> None:
    writing(inference, CHEAPEST)
    await taught(kernel, "t1", "cheapest_", {"args": [], "result": "assam"})
    shop.teas = []
    assert (await told(kernel, "m1", "cheapest_"))["state"] == "FAILED"
    [row] = kernel.image.read(lambda root: ledger.failures(root, limit=5))
    assert (row["context"]["selector"], row["context"]["target"], row["error"]["code"]) == ("cheapest_", "tools.shop", "method_failed")


# --- the loop


async def test_a_rehearsal_answers_from_the_journal_and_never_acts(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    writing(inference, BUY)
    for id in ("m1", "m2", "m3"):
        ended = await (bought(kernel, id) if id == "m1" else told(kernel, id, "buy_"))
        assert ended["state"] == "COMPLETE", ended
    orders, lists = len(shop.orders), shop.lists
    better = BUY.replace("    best = ", "    if not teas:\n        return None\n    best = ")
    await recorded(kernel, "method", "tools.shop.buy_", better)
    (change,) = await stepped(kernel)
    assert "answered otherwise" not in change["reason"], change
    assert change["comparison"]["missions"] == 3, change
    assert (len(shop.orders), shop.lists) == (orders, lists), "the journal answers"
    await recorded(kernel, "method", "tools.shop.buy_", BUY.replace("sku=best['sku']", "sku='sencha'"))
    change = (await stepped(kernel))[0]
    assert (change["comparison"]["missions"], change["comparison"]["unknown"]) == (0, 3), change
    assert (len(shop.orders), shop.lists) == (orders, lists), "a call that no mission made is not made, and nobody knows what it comes to"


async def test_a_change_of_a_method_may_not_reach_more_than_its_user_let_it(kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, CHEAPEST)
    await taught(kernel, "t1", "cheapest_", {"args": [], "result": "assam"})
    await recorded(kernel, "method", "tools.shop.cheapest_", BUY.replace("buy_", "cheapest_"))
    (change,) = await stepped(kernel)
    assert "would reach tools that it does not reach now: shop.order" in change["reason"]


async def test_the_audit_sees_tools_that_fail_and_cost(kernel: Kernel, inference: FakeInference, shop: TeaShop) -> None:
    await told(kernel, "m1", "list_teas_")
    shop.server.shutdown()
    shop.server.server_close()
    await told(kernel, "m2", "list_teas_")
    assert kernel.loop.senses is not None
    [bucket] = await kernel.loop.senses.since(0.0)
    assert bucket["tallies"]["tools"]["shop.listTeas"][0] == 1
    assert bucket["tallies"]["tool_bytes"]["shop.listTeas"][1] > 50
    assert bucket["tallies"]["tools_failed"]["shop.listTeas"][0] == 1
    brief = telemetry.tallies_in_words(telemetry.summed_buckets([bucket], 64), SelfAuditLimits().keys)
    assert "Seconds of calls of tools, by tool: shop.listTeas 1 times, " in brief
    assert "Seconds of failed ones, by tool: shop.listTeas 1 times, " in brief
    assert f"Bytes of their answers, by tool: shop.listTeas {bucket['tallies']['tool_bytes']['shop.listTeas'][1]:.0f}." in brief


# --- prompts


def test_a_small_expert_is_shown_why_a_method_is_written_anew() -> None:
    thing = UvmObject(name="shop")
    wanted = method_prompts.WantedMethod(thing, "cheapest_", (), {}, "the cheapest tea", tools=("self.tools.shop.listTeas()",))
    doubted = wanted._replace(doubts=("shop.listTeas() is not answered as it is declared: body", "an older one"))
    [plain], [told] = (method_prompts.compact(one, chars=2000) for one in (wanted, doubted))
    assert told.splitlines() == [*plain.splitlines(), "but shop.listTeas() is not answered as it is declared: body"]


def test_the_tools_in_a_prompt_are_those_that_a_catalogue_finds() -> None:
    offers = [(f"shop.op{n}", ToolDefinition(name=f"op{n}", description=f"Does thing {n}.")) for n in range(20)]
    offers.append(("bank.pay_bill", ToolDefinition(name="pay-bill", description="Pays a bill.")))
    lines = tool_prompts.tool_lines(offers, "pay all bills", 2)
    assert "self.tools.bank.pay_bill(): Pays a bill (acts)" in lines
    assert len(lines) == 2
