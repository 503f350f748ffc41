"""Messages to a connection that are no operation: the forge writes a method, and tries it in three rings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import InvalidInput, ToolFailed
from batos.forge import operation_pins, tool_mends
from batos.image import effects, ledger, method_doubts
from batos.image import grants as image_grants
from batos.image.grants import GrantRecord
from batos.image.method_doubts import Doubt
from batos.tools import doubles
from batos.tools.connections import PinnedConnection
from batos.tools.definitions import ConnectionSpec, ToolDefinition
from batos.tools.schema_changes import why_unfit
from batos.tools.toolbox import check_arguments
from tests.support.methods import writing
from tests.support.missions import WAIT_S, FakeInference
from tests.support.tea_connection import LIST, ORDER, TEA, Shop, answered, begun, doubts, lesson, taking, told
from tests.support.tool_missions import allow, connected

CHEAPEST = "def cheapest_tea_(self):\n    return min(self.tools.shop.listTeas()['body'], key=lambda tea: tea['price'])['sku']\n"
BUY = (
    "def buy_cheapest_(self):\n    teas = self.tools.shop.listTeas()['body']\n"
    "    sku = min(teas, key=lambda tea: tea['price'])['sku']\n    return self.tools.shop.order(sku=sku)['body']['id']\n"
)


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: Shop) -> AsyncIterator[Kernel]:
    async with connected(tmp_path, inference, shop) as kernel:
        yield kernel


async def question(kernel: Kernel, id: str) -> str:
    async with asyncio.timeout(WAIT_S):
        while (found := kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id))).open_question) is None:
            await kernel.image.system(lambda root: None)
    return str(found["question"])


def done(kernel: Kernel, id: str) -> list[tuple[str, str]]:
    return [(one.tool, one.state) for one in kernel.image.read(effects.load, id)]


# --- written


async def test_the_method_is_written_with_the_operations_and_what_they_answer(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    asked = writing(inference, CHEAPEST)
    ended = await told(kernel, "m1", "cheapest_tea_")
    assert (ended["state"], ended["result"]["value"]) == ("COMPLETE", "assam"), ended
    assert 'self.tools.shop.listTeas() -> {"body": [{"sku": str, "price": float}], …}\n    ' in asked[0].user
    assert 'self.tools.shop.order(sku: str) -> {"body": {"id": int, "sku": str}, …} (acts)\n    Order a tea.' in asked[0].user
    assert "One marked `acts` changes something outside: in a loop it is called only where a literal bounds the rounds" in asked[0].user
    assert "pinned" not in asked[0].user, "how a connection is kept says nothing of the method"
    assert shop.sent == [("listTeas", {})], "its trial read the real shop, and the mission goes by the same answer"
    assert done(kernel, "m1") == [("shop.listTeas", "DONE")]


async def test_a_lesson_keeps_it_with_its_policy_and_the_pins_of_its_operations(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    asked = writing(inference, CHEAPEST.replace("min(", "max("), CHEAPEST)
    ended = await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert ended["state"] == "COMPLETE", ended
    assert "cheapest_tea_() answered 'sencha' and not 'assam'" in asked[1].user, "the example is held against the real shop"
    came = kernel.image.read(lambda root: dict(root["lobby"].tools.shop._slots["cheapest_tea_"].provenance))
    assert (came["policy"], came["operations"]) == ("default+tools", (("shop.listTeas", LIST.pin()),))
    shop.teas.append({"sku": "dust", "price": 1.0})
    assert (await told(kernel, "m1", "cheapest_tea_"))["result"]["value"] == "dust"
    assert len(inference.asked) == 2


@pytest.mark.parametrize("selector", ["order_", "list_teas_", "listTeas"])
async def test_a_message_that_is_an_operation_takes_no_lesson(kernel: Kernel, selector: str) -> None:
    with pytest.raises(InvalidInput, match="performs its operation"):
        await lesson(kernel, "t1", selector, {"args": [], "result": 1})


# --- ring one: a double


async def test_a_double_of_a_call_that_acts_shows_what_the_answer_does_not_have(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    asked = writing(inference, BUY.replace("['id']", "['number']"), BUY)
    ended = await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 99})
    assert ended["state"] == "COMPLETE", "what a double answers is not held against the example"
    assert "KeyError" in asked[1].user
    assert "number" in asked[1].user
    assert [name for name, _ in shop.sent] == ["listTeas"], "nothing was ordered"


async def test_values_that_a_double_made_up_say_nothing_against_a_method(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    source = (
        "def buy_(self, sku):\n    number = self.tools.shop.order(sku='a tea')['body']['id']\n"
        "    teas = {tea['price']: tea for tea in self.tools.shop.listTeas()['body']}\n    return teas[4.0][sku] + number\n"
    )
    asked = writing(inference, source)
    assert (await lesson(kernel, "t1", "buy_", {"args": ["assam"], "result": 11.0}))["state"] == "COMPLETE"
    assert len(asked) == 1


async def test_a_double_fits_its_schema_and_is_the_same_each_time() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 5}, "when": {"type": "string", "format": "date"}, "state": {"enum": ["open", "shut"]},
            "sku": {"type": "string"}, "lines": {"type": "array", "items": TEA}, "note": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "more": {"type": "object", "additionalProperties": {"type": "number"}}, "paid": {"type": ["null", "boolean"]},
        },
    }  # fmt: skip
    made = doubles.double(schema, {"sku": "tea", "id": "not a number"})
    assert made == doubles.double(schema, {"sku": "tea", "id": "not a number"})
    assert (made["sku"], made["id"], made["state"], made["when"]) == ("tea", 5, "open", "2026-01-01")
    assert made["lines"] == [{"sku": "tea", "price": 1}] * 2
    check_arguments("x.y", ToolDefinition(name="y", parameters=schema), made)


@pytest.mark.parametrize("schema", [None, {}, {"type": "object"}, {"type": "array"}, {"type": "array", "items": {}}])
async def test_what_a_schema_leaves_open_has_no_double(schema: Any) -> None:
    with pytest.raises(doubles.NoDouble):
        doubles.double(schema, {})


async def test_a_schema_that_explodes_has_no_double() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(11):
        schema = {"type": "array", "items": schema}
    with pytest.raises(doubles.NoDouble):
        doubles.double(schema, {})
    assert len(doubles.shape({"type": "object", "properties": {f"n{n}": {"type": "string"} for n in range(1000)}})) <= 240


# --- ring two: reads


async def test_a_read_that_no_grant_lets_is_not_made_in_a_trial(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await kernel.image.system(image_grants.add, GrantRecord(0, "deny", "shop.listTeas"), 1.0)
    writing(inference, CHEAPEST)
    assert (await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}))["state"] == "COMPLETE"
    assert shop.sent == []
    assert (await told(kernel, "m1", "cheapest_tea_"))["error"]["code"] == "grant_refused"


async def test_a_request_that_the_place_calls_malformed_goes_back_to_the_model_another_failure_does_not(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    shop.fault = ToolFailed("GET /teas was answered 422: price is unknown", status=422)
    asked = writing(inference, CHEAPEST, "def cheapest_tea_(self):\n    return 'none'\n")
    assert (await told(kernel, "m1", "cheapest_tea_"))["result"]["value"] == "none"
    assert "was answered 422: price is unknown" in asked[1].user
    shop.fault = ToolFailed("the shop is away")
    asked = writing(inference, CHEAPEST.replace("cheapest_tea_", "best_"))
    ended = await told(kernel, "m2", "best_")
    assert (ended["error"]["code"], len(asked)) == ("tool_failed", 1)


# --- ring three: the first act


async def test_the_first_act_of_a_method_asks_with_the_literal_request_even_where_a_grant_allows_it(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    writing(inference, BUY)
    heard = await begun(kernel, "m1", "buy_cheapest_")
    asked = await question(kernel, "m1")
    assert "POST {'sku': 'assam'}" in asked
    assert "first thing that the method 'buy_cheapest_' does outside" in asked
    assert [name for name, _ in shop.sent] == ["listTeas"]
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert [name for name, _ in shop.sent] == ["listTeas", "order"], "what was read before the question is not read again"


async def test_what_acted_once_goes_by_its_grants(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    writing(inference, BUY)
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 7})
    heard = await begun(kernel, "m1", "buy_cheapest_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert (await told(kernel, "m2", "buy_cheapest_"))["result"]["value"] == 7
    assert [name for name, _ in shop.sent].count("order") == 2
    acted = kernel.image.read(lambda root: root["lobby"].tools.shop._slots["buy_cheapest_"].acted)
    assert acted == "m1"


async def test_a_refused_first_act_is_asked_about_again_the_next_time(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    writing(inference, BUY)
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 7})
    for id in ("m1", "m2"):
        heard = await begun(kernel, id, "buy_cheapest_")
        await question(kernel, id)
        await kernel.scheduler.answer(id, "no")
        assert (await heard.end())["error"]["code"] == "grant_refused"
    assert "order" not in [name for name, _ in shop.sent]


async def test_a_conflict_repeats_neither_the_reads_of_its_trial_nor_its_act(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)

    def touch(root: Any) -> None:
        root["lobby"].tools.shop._p_changed = True

    async def meanwhile() -> None:
        shop.meanwhile = None
        await kernel.image.system(touch)

    shop.meanwhile = meanwhile
    writing(inference, BUY)
    heard = await begun(kernel, "m1", "buy_cheapest_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert shop.meanwhile is None
    assert [name for name, _ in shop.sent] == ["listTeas", "order"]
    assert len(inference.asked) == 1


IF_OPEN = (
    "def buy_if_open_(self):\n    was = self.is_open\n    self.tools.shop.listTeas()\n"
    "    if was:\n        return self.tools.shop.order(sku='assam')['body']['id']\n    self.visits = self.visits + 1\n    return 0\n"
)


async def test_a_first_act_that_only_a_replay_comes_to_asks_too(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)

    def put(root: Any, is_open: bool) -> None:
        root["lobby"].tools.shop.is_open, root["lobby"].tools.shop.visits = is_open, 0

    await kernel.image.system(put, False)
    writing(inference, IF_OPEN)
    assert (await lesson(kernel, "t1", "buy_if_open_", {"args": [], "result": 0}))["state"] == "COMPLETE"

    async def meanwhile() -> None:
        shop.meanwhile = None
        await kernel.image.system(put, True)

    shop.meanwhile, shop.interrupted = meanwhile, "listTeas"
    heard = await begun(kernel, "m1", "buy_if_open_")
    assert "first thing that the method 'buy_if_open_' does outside" in await question(kernel, "m1")
    assert "order" not in [name for name, _ in shop.sent]
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert [name for name, _ in shop.sent].count("order") == 1


async def test_a_method_that_names_no_granted_tool_is_refused(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    asked = writing(inference, CHEAPEST.replace("listTeas", "listCakes"), CHEAPEST)
    assert (await told(kernel, "m1", "cheapest_tea_"))["result"]["value"] == "assam"
    assert "'listCakes' is not a tool of shop (did you mean 'listTeas'?)" in asked[1].user


# --- doubt


FIRST = "def first_(self):\n    return self.tools.shop.listTeas()['body'][0]['sku']\n"
CAREFUL = (
    "def first_(self):\n    body = self.tools.shop.listTeas()['body']\n"
    "    teas = body['teas'] if isinstance(body, dict) else body\n    return teas[0]['sku']\n"
)


async def test_an_answer_of_another_form_has_the_method_written_anew_at_its_next_message_with_that_answer(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    asked = writing(inference, FIRST)
    await lesson(kernel, "t1", "first_", {"args": [], "result": "sencha"})
    shop.teas = {"teas": shop.teas}  # type: ignore[assignment]
    assert (await told(kernel, "m1", "first_"))["error"]["code"] == "method_failed"
    (doubt,) = doubts(kernel, "first_")
    assert doubt.startswith("shop.listTeas({}) is not answered as it is declared: body: ")
    asked = writing(inference, FIRST.replace("first_(self):", "first_(self):\n    'again'"), CAREFUL)
    ended = await told(kernel, "m2", "first_")
    assert ended["result"]["value"] == "sencha", ended
    assert "Avoid: shop.listTeas({}) is not answered as it is declared" in asked[0].user
    assert '"teas": [{"sku": "sencha"' in asked[0].user, "the exchange is its example"
    assert len(asked) == 2, "the trial met the new form"
    assert doubts(kernel, "first_") == []
    assert (await told(kernel, "m3", "first_"))["result"]["value"] == "sencha"
    assert (len(asked), doubts(kernel, "first_")) == (2, []), "it was written knowing that form"


async def refused_order(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    """Teach `buy_cheapest_`, then have its order called malformed."""
    await allow(kernel)
    writing(inference, BUY)
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 7})
    shop.refuse = ToolFailed("POST /orders was answered 422: sku in capitals", status=422)
    heard = await begun(kernel, "r1", "buy_cheapest_")
    await question(kernel, "r1")
    await kernel.scheduler.answer("r1", "once")
    assert (await heard.end())["error"]["code"] == "tool_failed"


async def test_a_call_that_fits_its_schema_and_is_called_malformed_makes_it_doubtful(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await refused_order(kernel, inference, shop)
    assert "fits its schema and failed: POST /orders was answered 422: sku in capitals" in doubts(kernel, "buy_cheapest_")[0]
    shop.refuse = None
    asked = writing(inference, BUY.replace("['sku']\n", "['sku'].upper()\n"))
    heard = await begun(kernel, "m2", "buy_cheapest_")
    assert "POST {'sku': 'ASSAM'}" in await question(kernel, "m2"), "a new version asks before its first act"
    await kernel.scheduler.answer("m2", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert "sku in capitals" in asked[0].user


async def test_a_draft_that_makes_the_call_that_was_called_malformed_is_refused_with_what_the_place_said(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await refused_order(kernel, inference, shop)
    shop.refuse = None
    asked = writing(inference, BUY, BUY.replace("['sku']\n", "['sku'].upper()\n"))
    heard = await begun(kernel, "m1", "buy_cheapest_")
    assert "POST {'sku': 'ASSAM'}" in await question(kernel, "m1"), "the request that was refused is not put to its user again"
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert "buy_cheapest_() failed: POST /orders was answered 422: sku in capitals" in asked[1].user
    assert [arguments for name, arguments in shop.sent if name == "order"] == [{"sku": "assam"}, {"sku": "ASSAM"}]
    assert doubts(kernel, "buy_cheapest_") == []


async def test_where_each_draft_makes_the_call_that_was_called_malformed_none_is_kept_and_nothing_is_asked(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await refused_order(kernel, inference, shop)
    writing(inference, *[BUY] * 20)
    ended = await told(kernel, "m1", "buy_cheapest_")
    assert (ended["error"]["code"], ended["error"]["context"]["cause"]) == ("method_refused", "trial")
    assert "POST /orders was answered 422: sku in capitals" in ended["error"]["message"]
    assert kernel.image.read(lambda root: root["lobby"].tools.shop._slots["buy_cheapest_"].version) == 1
    assert len([name for name, _ in shop.sent if name == "order"]) == 1


async def test_a_read_that_was_called_malformed_is_made_anew_in_a_trial(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await refused_first(kernel, inference, shop, 422)
    shop.fault = None
    asked = writing(inference, CAREFUL)
    assert (await told(kernel, "m1", "first_"))["result"]["value"] == "sencha", "what the place says now counts"
    assert len(asked) == 1


def test_a_doubt_keeps_the_refused_call_and_one_of_an_older_image_has_none() -> None:
    old = (1, "digest", 2.0, "sign", "reason", "shop.order", "", False, 0)
    assert Doubt(*old)[len(old) :] == ("", 0, "")
    root: dict[str, Any] = {}
    doubt = Doubt(*old)._replace(arguments='{"sku":"assam"}', status=422, message="sku in capitals")
    assert method_doubts.record(root, b"oid", "m_", doubt)
    assert method_doubts.record(root, b"oid", "m_", doubt._replace(sign="long", arguments="x" * 5000, message="y" * 5000))
    first, second = (Doubt(*one) for one in root["doubts"][b"oid", "m_"].held)
    assert (first, second.arguments, len(second.message)) == (doubt, "", 4000)
    assert method_doubts.refusals([first, second, first._replace(met=2)]) == {("shop.order", '{"sku":"assam"}'): ("sku in capitals", 422)}


async def test_what_its_user_says_became_of_a_call_is_no_answer_of_the_tool(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    shop.offered = [LIST, replace(ORDER, result={**answered({"type": "object"}), "required": ["body"]})]
    await toolbox.test("shop")
    await toolbox.accept("shop")
    writing(inference, BUY.replace("['body']['id']\n", ".get('happened')\n"))
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": True})
    shop.refuse, shop.seconds = OSError("cut off"), 0.1  # its user is asked when the time of the call is over
    heard = await begun(kernel, "m1", "buy_cheapest_")
    for answer in ("once", "happened"):
        await question(kernel, "m1")
        await kernel.scheduler.answer("m1", answer)
    assert (await heard.end())["result"]["value"] is True
    assert doubts(kernel, "buy_cheapest_") == []


async def refused_first(kernel: Kernel, inference: FakeInference, shop: Shop, status: int, times: int = 1) -> None:
    """Teach `first_`, then have its call refused in so many missions."""
    writing(inference, FIRST)
    await lesson(kernel, "t1", "first_", {"args": [], "result": "sencha"})
    shop.fault = ToolFailed(f"GET /teas was answered {status}", status=status)
    for n in range(times):
        assert (await told(kernel, f"r{n}", "first_"))["error"]["code"] == "tool_failed"


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429])
async def test_another_refusal_is_no_fault_of_the_method(kernel: Kernel, inference: FakeInference, shop: Shop, status: int) -> None:
    await refused_first(kernel, inference, shop, status)
    assert doubts(kernel, "first_") == []


@pytest.mark.parametrize("status", [401, 403, 407, 408, 425, 429])
async def test_a_place_that_does_not_look_at_a_call_says_nothing_of_the_method(
    kernel: Kernel, inference: FakeInference, shop: Shop, status: int
) -> None:
    await refused_first(kernel, inference, shop, status, times=3)
    assert doubts(kernel, "first_") == []


@pytest.mark.parametrize("status", [404, 409, 410])
async def test_a_method_that_is_refused_twice_in_a_row_is_written_anew_once_with_that_exchange(
    kernel: Kernel, inference: FakeInference, shop: Shop, status: int
) -> None:
    await refused_first(kernel, inference, shop, status, times=2)
    assert doubts(kernel, "first_") == [f"shop.listTeas({{}}) fits its schema and failed: GET /teas was answered {status}"]
    shop.fault = None
    asked = writing(inference, CAREFUL)
    assert (await told(kernel, "m1", "first_"))["result"]["value"] == "sencha"
    assert f"Avoid: shop.listTeas({{}}) fits its schema and failed: GET /teas was answered {status}" in asked[0].user
    shop.fault = ToolFailed(f"GET /teas was answered {status}", status=status)
    for n in range(3):
        assert (await told(kernel, f"s{n}", "first_"))["error"]["code"] == "tool_failed"
    assert (len(asked), doubts(kernel, "first_")) == (1, []), "it was written knowing that answer"


async def test_a_refusal_that_passes_is_forgotten(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await refused_first(kernel, inference, shop, 404)
    refusal, shop.fault = shop.fault, None
    assert (await told(kernel, "m1", "first_"))["state"] == "COMPLETE"
    shop.fault = refusal
    assert (await told(kernel, "m2", "first_"))["error"]["code"] == "tool_failed"
    assert doubts(kernel, "first_") == [], "once in a row"


async def test_where_no_draft_is_better_the_version_before_goes_on(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await refused_first(kernel, inference, shop, 404, times=2)
    shop.fault = None
    asked = writing(inference, *["def first_(self):\n    return self.tools.shop.listTeas()['nothing']\n"] * 20)
    assert (await told(kernel, "m1", "first_"))["result"]["value"] == "sencha"
    drafts = len(asked)
    assert drafts > 0
    assert (await told(kernel, "m2", "first_"))["result"]["value"] == "sencha"
    assert len(asked) == drafts, "it is in doubt no more"


async def test_what_does_not_exist_in_a_trial_goes_back_to_the_model(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    shop.fault = ToolFailed("GET /teas was answered 404: no such tea", status=404)
    asked = writing(inference, CHEAPEST, "def cheapest_tea_(self):\n    return 'none'\n")
    assert (await told(kernel, "m1", "cheapest_tea_"))["result"]["value"] == "none"
    assert "was answered 404: no such tea" in asked[1].user


async def test_where_the_api_changed_a_method_that_still_fits_stays_and_another_is_written_anew(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    writing(inference, FIRST)
    await lesson(kernel, "t1", "first_", {"args": [], "result": "sencha"})
    writing(inference, BUY)
    await lesson(kernel, "t2", "buy_cheapest_", {"args": [], "result": 7})
    wider = {**TEA, "properties": {**TEA["properties"], "grams": {"type": "integer"}}}
    listing = replace(LIST, description="Teas, all of them.", result=answered({"type": "array", "items": wider}))
    shop.offered = [listing, replace(ORDER, parameters=taking(sku={"type": "string"}, count={"type": "integer"}))]
    await toolbox.test("shop")
    assert doubts(kernel, "buy_cheapest_") == [], "suspended: nothing calls it"
    await toolbox.accept("shop")
    assert doubts(kernel, "first_") == []
    assert doubts(kernel, "buy_cheapest_") == ["shop.order has changed: it needs the argument count now"]
    asked = writing(inference, BUY.replace("sku=sku", "sku=sku, count=1"))
    await allow(kernel)
    heard = await begun(kernel, "m1", "buy_cheapest_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert "it needs the argument count now" in asked[0].user
    assert (await told(kernel, "m2", "first_"))["result"]["value"] == "sencha"
    assert len(asked) == 1


async def test_what_a_later_version_reads_out_of_the_same_document_is_taken_and_another_document_is_not(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    now = taking(sku={"type": "string"}, count={"type": "integer"})
    body = {"allOf": [{"anyOf": [{"required": ["id"]}]}], "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    order = replace(ORDER, parameters={**now, "required": ["sku"]}, result=answered({**body, "type": "object"}))
    before = replace(ORDER, parameters={**now, "required": []}, result=answered({"type": "object", "properties": body["properties"]}))
    shop.offered = [LIST, before]
    await toolbox.test("shop")
    await toolbox.accept("shop")
    writing(inference, FIRST)
    await lesson(kernel, "t1", "first_", {"args": [], "result": "sencha"})
    writing(inference, BUY)
    await lesson(kernel, "t2", "buy_cheapest_", {"args": [], "result": 7})

    def read_earlier(root: Any) -> None:
        root["lobby"].tools.shop._slots["kind"] = "openapi"

    await kernel.image.system(read_earlier)
    shop.offered = [replace(LIST, description="Other words."), order]
    found = await toolbox.test("shop")
    assert [one.name for one in found.suspended] == ["listTeas"], "what the document says otherwise is still asked about"
    assert found.tool("order").parameters["required"] == ["sku"]
    assert (doubts(kernel, "first_"), doubts(kernel, "buy_cheapest_")) == ([], [])
    shop.offered = [LIST, replace(order, parameters=now)]
    found = await toolbox.test("shop")
    assert [one.name for one in found.suspended] == ["order"], "it was read so once, and the document has changed since"


async def test_a_method_that_lacks_what_a_later_version_knows_to_be_required_is_doubted(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    needs = taking(sku={"type": "string"}, count={"type": "integer"})
    shop.offered = [LIST, replace(ORDER, parameters={**needs, "required": ["sku"]})]
    await toolbox.test("shop")
    await toolbox.accept("shop")
    writing(inference, BUY)
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 7})

    def read_earlier(root: Any) -> None:
        root["lobby"].tools.shop._slots["kind"] = "openapi"

    await kernel.image.system(read_earlier)
    shop.offered = [LIST, replace(ORDER, parameters=needs)]
    assert (await toolbox.test("shop")).suspended == ()
    assert doubts(kernel, "buy_cheapest_") == ["shop.order has changed: it needs the argument count now"]


async def test_between_a_change_and_its_acceptance_a_method_that_still_fits_fails_and_is_not_doubted(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    asked = writing(inference, FIRST)
    await lesson(kernel, "t1", "first_", {"args": [], "result": "sencha"})
    shop.offered = [replace(LIST, description="Teas, all of them."), ORDER]
    await toolbox.test("shop")
    ended = await told(kernel, "m1", "first_")
    assert (ended["state"], ended["error"]["code"]) == ("FAILED", "unknown_tool"), ended
    assert "batos tools accept shop" in ended["error"]["message"]
    assert doubts(kernel, "first_") == []
    await toolbox.accept("shop")
    assert (await told(kernel, "m2", "first_"))["result"]["value"] == "sencha"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (None, "it is gone"),
        (replace(ORDER, description="other words"), ""),
        (replace(ORDER, parameters={**taking(sku={"type": "string"}), "properties": {"sku": {"type": "string"}, "note": {}}}), ""),
        (replace(ORDER, parameters=taking(item={"type": "string"})), "it needs the argument item now"),
        (replace(ORDER, parameters=taking(sku={"type": "integer"})), "the argument sku is integer now, and was string"),
        (replace(ORDER, result=answered({"type": "object", "properties": {"id": {"type": "integer"}}})), "the field body.sku is gone"),
        (replace(ORDER, result=None), "the field of its answer is not described any more"),
    ],
)
def test_what_of_a_changed_operation_does_not_fit(after: ToolDefinition | None, why: str) -> None:
    assert why_unfit(ORDER, after) == why


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
INNER = {"type": "object", "properties": {"x": TEXT, "y": TEXT}}


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"enum": ["a", "b"]}, {"enum": ["b", "c"]}, 'the argument v is not "a" any more'),
        ({"enum": ["a", "b"]}, {"enum": ["c", "b", "a"]}, ""),
        ({"enum": ["a", "b"]}, {"const": "a"}, 'the argument v is not "b" any more'),
        ({"const": "a"}, {"enum": ["a", "b"]}, ""),
        ({"enum": [1, True]}, {"enum": [1.0]}, "the argument v is integer now, and was boolean or integer"),
        ({"enum": [1, 2, 9]}, {**WHOLE, "minimum": 2, "maximum": 5}, "the argument v is not 1 or 9 any more"),
        ({**TEXT, "enum": ["a", "b"]}, TEXT, ""),
        (TEXT, {**TEXT, "enum": ["a", "b"]}, 'the argument v is "a" or "b" now'),
        (TEXT, {**TEXT, "const": "a"}, 'the argument v is "a" now'),
        ({"type": "boolean"}, {"type": "boolean", "enum": [True, False]}, ""),
        (WHOLE, {**WHOLE, "minimum": 2}, "the argument v is at least 2 now"),
        ({**WHOLE, "minimum": 1}, {**WHOLE, "minimum": 2}, "the argument v is at least 2 now, and was at least 1"),
        ({**WHOLE, "minimum": 2}, {**WHOLE, "minimum": 1}, ""),
        ({**WHOLE, "exclusiveMinimum": 0}, {**WHOLE, "minimum": 1}, ""),
        ({"type": "number", "minimum": 0}, {"type": "number", "exclusiveMinimum": 0}, "the argument v is above 0 now, and was at least 0"),
        ({**WHOLE, "maximum": 50}, {**WHOLE, "maximum": 20}, "the argument v is at most 20 now, and was at most 50"),
        ({"type": "number"}, {"type": "number", "exclusiveMaximum": 1}, "the argument v is below 1 now"),
        ({**TEXT, "maxLength": 50}, {**TEXT, "maxLength": 20}, "the argument v has at most 20 characters now, and had at most 50"),
        (TEXT, {**TEXT, "minLength": 1}, "the argument v has at least 1 character now"),
        ({"type": "array"}, {"type": "array", "maxItems": 3}, "the argument v has at most 3 elements now"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "the argument v has no element twice now"),
        (TEXT, {**TEXT, "pattern": "^[a-z]+$"}, "the argument v follows the pattern ^[a-z]+$ now"),
        ({**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}, "the argument v follows the pattern ^b now, and followed ^a"),
        ({**TEXT, "pattern": "^a"}, TEXT, ""),
        ({**TEXT, "format": "date-time"}, {**TEXT, "format": "date"}, "the argument v has the format date now, and had date-time"),
        ({**WHOLE, "format": "int32"}, {**WHOLE, "format": "int64"}, ""),
        ({**WHOLE, "format": "int64"}, {**WHOLE, "format": "int32"}, "the argument v has the format int32 now, and had int64"),
        (WHOLE, {**WHOLE, "multipleOf": 5}, "the argument v is a multiple of 5 now"),
        ({**WHOLE, "multipleOf": 10}, {**WHOLE, "multipleOf": 5}, ""),
        (WHOLE, {"type": "number"}, ""),
        ({"type": "number"}, WHOLE, "the argument v is integer now, and was number"),
        ({"type": ["string", "integer"]}, TEXT, "the argument v is string now, and was integer or string"),
        ({"type": ["string", "null"]}, TEXT, "the argument v is string now, and was null or string"),
        (TEXT, {"anyOf": [TEXT, {"type": "null"}]}, ""),
        (TEXT, {"oneOf": [WHOLE, TEXT]}, ""),
        (TEXT, {"anyOf": [WHOLE, {"type": "boolean"}]}, "the argument v is boolean or integer now, and was string"),
        (TEXT, {"anyOf": [WHOLE, {**TEXT, "maxLength": 3}]}, "the argument v has at most 3 characters now"),
        ({"anyOf": [TEXT, WHOLE]}, TEXT, "the argument v is string now, and was integer or string"),
        ({"anyOf": [TEXT, WHOLE]}, {"type": ["integer", "string"]}, ""),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, {"oneOf": [{"const": "b"}]}, 'the argument v is not "a" any more'),
        (INNER, {"anyOf": [INNER, {"type": "null"}]}, ""),
        (INNER, {**INNER, "required": ["x"]}, "it needs the argument v.x now"),
        (INNER, {**INNER, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, "it needs the argument v.x now"),
        ({**INNER, "required": ["y"]}, {**INNER, "anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, ""),
        (INNER, {**INNER, "dependentRequired": {"x": ["y"]}}, "it needs the argument v.y beside v.x now"),
        (INNER, {"anyOf": [{"type": "object", "properties": {"x": TEXT}}, {"type": "null"}]}, "the argument v.y is gone"),
        ({"type": "object", "additionalProperties": TEXT}, {"type": "object", "additionalProperties": WHOLE},
         "the argument v{} is integer now, and was string"),
        ({"type": "array", "items": TEXT}, {"type": "array", "items": {**TEXT, "maxLength": 9}},
         "the argument v[] has at most 9 characters now"),
    ],
)  # fmt: skip
def test_an_argument_that_became_narrower_does_not_fit(before: dict[str, Any], after: dict[str, Any], why: str) -> None:
    assert why_unfit(replace(ORDER, parameters=taking(v=before)), replace(ORDER, parameters=taking(v=after))) == why


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ""),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ""),
        ({**WHOLE, "minimum": 1}, WHOLE, ""),
        (TEXT, {"type": ["string", "null"]}, ""),
        (TEXT, {"anyOf": [TEXT, WHOLE]}, ""),
        (INNER, {"oneOf": [INNER, {"type": "null"}]}, ""),
        (TEXT, {"anyOf": [WHOLE, {"type": "null"}]}, "the field body is integer now, and was string"),
        (INNER, {"anyOf": [{"type": "object", "properties": {"x": TEXT}}, {"type": "null"}]}, "the field body.y is gone"),
    ],
)
def test_a_field_may_hold_more_values_and_types(before: dict[str, Any], after: dict[str, Any], why: str) -> None:
    assert why_unfit(replace(ORDER, result=answered(before)), replace(ORDER, result=answered(after))) == why


def test_a_comparison_of_many_alternatives_takes_no_time() -> None:
    def nested(last: dict[str, Any]) -> dict[str, Any]:
        made = last
        for _ in range(8):
            made = {"anyOf": [{"type": "object", "properties": {"v": made, str(n): TEXT}} for n in range(12)]}
        return made

    began = time.monotonic()
    why_unfit(replace(ORDER, parameters=taking(v=nested(TEXT))), replace(ORDER, parameters=taking(v=nested(WHOLE))))
    assert time.monotonic() - began < 5


async def test_the_next_version_is_tried_on_what_was_answered_when_the_method_first_acted(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    await allow(kernel)
    writing(inference, BUY)
    await lesson(kernel, "t1", "buy_cheapest_", {"args": [], "result": 7})
    heard = await begun(kernel, "m1", "buy_cheapest_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "once")
    await heard.end()
    assert recorded(kernel)["shop.order"]["body"] == {"id": 7, "sku": "assam"}
    shop.offered = [LIST, replace(ORDER, parameters=taking(sku={"type": "string"}, count={"type": "integer"}))]
    await toolbox.test("shop")
    await toolbox.accept("shop")
    only_seven = (
        BUY.replace("sku=sku", "sku=sku, count=1").replace("return ", "number = ")
        + "    return len({7: 'seven'}.get(number).upper()) + 2\n"
    )
    asked = writing(inference, only_seven)
    heard = await begun(kernel, "m2", "buy_cheapest_")
    await question(kernel, "m2")
    await kernel.scheduler.answer("m2", "once")
    assert (await heard.end())["result"]["value"] == 7
    assert len(asked) == 1, "a double of the schema would have answered another number"
    shop.offered = [LIST, replace(ORDER, result=answered({"type": "object", "required": ["number"]}))]
    await toolbox.test("shop")
    await toolbox.accept("shop")
    assert list(recorded(kernel)) == ["shop.listTeas"], "an answer of an earlier form is none"


def recorded(kernel: Kernel) -> dict[str, Any]:
    def read(root: Any) -> dict[str, Any]:
        held = root["lobby"].tools.shop
        return operation_pins.recorded_answers(root, held, held._slots["buy_cheapest_"], 0.0)

    return kernel.image.read(read)


@pytest.mark.parametrize(
    ("draft", "mended"),
    [
        ("self.tools.shop.listTeas.get('body')", "self.tools.shop.listTeas().get('body')"),
        ("[tea for tea in self.tools.shop.list_teas]", "[tea for tea in self.tools.shop.listTeas()]"),
        ("self.tools.shop.get('listTeas')['body']", "self.tools.shop.listTeas()['body']"),
        ("len(self.tools.shop['listTeas'])", "len(self.tools.shop.listTeas())"),
        (
            "'größer', self.tools.shop.listTeas, self.tools.shop.listTeas",
            "'größer', self.tools.shop.listTeas(), self.tools.shop.listTeas()",
        ),
        ("self.tools.shop.order", "self.tools.shop.order"),
        ("self.tools.shop.listTeas()['body']", "self.tools.shop.listTeas()['body']"),
        ("self.tools.shop.burn", "self.tools.shop.burn"),
        ("self.shop.listTeas", "self.shop.listTeas"),
        ("(", "("),
    ],
)
def test_a_tool_that_is_used_as_a_value_is_called_where_it_needs_no_argument(draft: str, mended: str) -> None:
    there = {"shop": PinnedConnection(ConnectionSpec("shop", "http", "https://shop.example"), (LIST, ORDER))}
    head = "def m_(self):\n    return "
    source, notes = tool_mends.with_calls(head + draft, there)
    assert source == head + mended
    assert bool(notes) is (draft != mended)


async def test_a_draft_that_lacks_a_call_is_mended_and_says_so(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    asked = writing(inference, CHEAPEST.replace("listTeas()", "listTeas"))
    ended = await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert ended["state"] == "COMPLETE", ended
    assert len(asked) == 1
    came = kernel.image.read(lambda root: dict(root["lobby"].tools.shop._slots["cheapest_tea_"].provenance))
    assert tool_mends.NOTE in came["repairs"]
