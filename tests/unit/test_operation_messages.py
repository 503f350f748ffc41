"""Messages to connections: each operation by rule, with its arguments checked before anything leaves, and without a model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.api.queries import Queries
from batos.app.kernel import Kernel
from batos.errors import BatosError, InvalidInput, UnknownTarget, UnknownTool
from batos.image import effects
from batos.mind import messages
from batos.tools.definitions import Delivery, ToolCall, ToolDefinition
from batos.tools.operation_messages import arguments_of, meant_by, selector_of
from tests.support.missions import FakeInference, submit
from tests.support.tool_missions import allow, connected


def tool(name: str, kind: str = "acts", required: Sequence[str] = (), **properties: str) -> ToolDefinition:
    schema = {"type": "object", "properties": {word: {"type": one} for word, one in properties.items()}, "required": list(required)}
    return ToolDefinition(name=name, kind=kind, parameters={**schema, "additionalProperties": False}, outward=kind != "reads")


ORDER = tool("order", required=["sku"], sku="string", count="integer")
LIST = tool("listOrders", "reads", status="string")
OFFERED = [ORDER, LIST, tool("cancel-order", "idempotent", ["id"], id="integer"), tool("name", "reads"), tool("call", "reads"),
           tool("tag", required=["labels"], labels="object")]  # fmt: skip


class Shop:
    """A connector that notes what is sent."""

    def __init__(self) -> None:
        self.sent = list[tuple[str, Mapping[str, Any]]]()
        self.offered: Sequence[ToolDefinition] = OFFERED

    async def tools(self) -> Sequence[ToolDefinition]:
        return self.offered

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        async def send(delivery: Delivery) -> Any:
            self.sent.append((tool.name, arguments))
            return {"number": len(self.sent)}

        return ToolCall(connection="shop", tool=tool, arguments=arguments, send=send)

    async def close(self) -> None:
        pass


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


async def told(kernel: Kernel, id: str, selector: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    wire = json.dumps({"target": "tools.shop", "selector": selector, "args": list(args), "kwargs": kwargs})
    return await (await submit(kernel, id, f"send {selector}", message=wire)).end()


def check(kernel: Kernel, selector: str, *args: Any, write: bool = False, **kwargs: Any) -> None:
    kernel.image.read(messages.check_message, "tools.shop", selector, list(args), kwargs, write)


# --- names


def test_a_message_means_the_operation_of_its_name_in_any_spelling() -> None:
    names = ["listOrders", "HTTPCheck", "cancel-order", "v2/get.item", "order"]
    assert [selector_of(name) for name in names] == ["list_orders_", "http_check_", "cancel_order_", "v2_get_item_", "order_"]
    for name in names:
        assert meant_by(selector_of(name), names) == meant_by(name, names) == name
    assert meant_by("list_orders", names) == "listOrders", "as a method may write it"
    assert meant_by("orders_", names) is None
    assert meant_by("_", [*names, "--"]) is None


def test_what_a_generator_adds_to_a_name_need_not_be_said() -> None:
    tools = ["findAllUsingGET", "saveUsingPOST", "saveUsingPOST_1", "using_get", "housingGet"]
    said = ("find_all_", "find_all_using_get_", "save_", "save_1_", "using_get_", "ho_", "find_", "")
    assert [meant_by(selector, tools) for selector in said] == [
        "findAllUsingGET", "findAllUsingGET", "saveUsingPOST", "saveUsingPOST_1", "using_get", None, None, None,
    ]  # fmt: skip
    assert meant_by("save_", ["saveUsingPOST", "saveUsingPUT"]) is None


def test_where_two_could_be_meant_none_is_but_by_its_own_name() -> None:
    names = ["list-orders", "listOrders"]
    assert meant_by("list_orders_", names) == "list-orders", "one of them is written so"
    assert meant_by("listorders_", names) is None
    assert meant_by("listOrders", names) == "listOrders"


@pytest.mark.parametrize(
    ("args", "kwargs", "given"),
    [
        ([{"sku": "tea"}], {}, {"sku": "tea"}),
        (["tea"], {}, {"sku": "tea"}),
        (["tea", 2], {}, {"sku": "tea", "count": 2}),
        (["tea"], {"count": 2}, {"sku": "tea", "count": 2}),
        ([{"sku": 3}], {}, {"sku": 3}),
    ],
)
def test_arguments_come_in_the_order_of_the_schema_by_name_or_as_one_object(args: list[Any], kwargs: Any, given: Any) -> None:
    assert arguments_of("shop.order", ORDER, args, kwargs) == given


def test_one_object_is_the_first_argument_where_that_takes_an_object() -> None:
    tag = OFFERED[-1]
    assert arguments_of("shop.tag", tag, [{"color": "red"}], {}) == {"labels": {"color": "red"}}
    assert arguments_of("shop.tag", tag, [{"labels": {"color": "red"}}], {}) == {"labels": {"color": "red"}}


# --- before a mission is accepted


@pytest.mark.parametrize(
    ("selector", "args", "words"),
    [
        ("order_", [{"sku": 5}], "5 is not of type 'string'"),
        ("order_", [], "'sku' is a required property"),
        ("order_", ["tea", 1, 2], "takes 2 arguments (sku, count); 3 were given"),
        ("order_", [{"sku": "tea", "colour": "red"}], "'colour' was unexpected"),
        ("ordr_", ["tea"], "'order_'"),
        ("list_order_", [], "'list_orders_'"),
        ("orders_list_", [], "'list_orders_'"),
    ],
)
async def test_what_could_only_fail_is_refused_before_it_is_a_mission(kernel: Kernel, selector: str, args: list[Any], words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check(kernel, selector, *args)
    assert words in refused.value.message


async def test_a_near_miss_may_be_meant(kernel: Kernel) -> None:
    check(kernel, "ordr_", "tea", write=True)
    check(kernel, "cheapest_tea_", "tea")


async def test_an_operation_that_changed_is_refused_with_the_way_to_accept_it(kernel: Kernel, shop: Shop) -> None:
    shop.offered = [tool("order", required=["sku"], sku="integer"), *OFFERED[1:]]
    assert kernel.attempt_services.toolbox is not None
    await kernel.attempt_services.toolbox.test("shop")
    with pytest.raises(UnknownTool, match="batos tools accept shop"):
        check(kernel, "order_", 3)


# --- performed


async def test_each_operation_is_an_effect_of_its_mission_and_asks_no_model(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    ended = [
        await told(kernel, "m1", "order_", {"sku": "tea"}),
        await told(kernel, "m2", "list_orders_", status="open"),
        await told(kernel, "m3", "cancel_order_", 7),
        await told(kernel, "m4", "name_"),
        await told(kernel, "m5", "call_", "call"),
    ]
    assert [one["result"]["value"] for one in ended] == [{"number": number} for number in range(1, 6)]
    assert shop.sent == [
        ("order", {"sku": "tea"}), ("listOrders", {"status": "open"}), ("cancel-order", {"id": 7}), ("name", {}), ("call", {}),
    ]  # fmt: skip
    kept = [kernel.image.read(effects.load, f"m{number}")[0] for number in range(1, 4)]
    assert [(one.tool, one.kind, one.state) for one in kept] == [
        ("shop.order", "acts", "DONE"), ("shop.listOrders", "reads", "DONE"), ("shop.cancel-order", "idempotent", "DONE"),
    ]  # fmt: skip
    assert inference.asked == []


async def test_its_user_is_asked_where_no_grant_lets_it(kernel: Kernel, shop: Shop) -> None:
    wire = json.dumps({"target": "tools.shop", "selector": "order_", "args": ["tea"], "kwargs": {}})
    heard = await submit(kernel, "m1", "send order_", message=wire)
    while "question" not in kernel.scheduler.live("m1"):
        await kernel.image.system(lambda root: None)
    assert "shop.order" in str(kernel.scheduler.live("m1")["question"])
    assert shop.sent == []
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == {"number": 1}


async def test_slots_and_messages_of_its_own_go_before_operations(kernel: Kernel, shop: Shop) -> None:
    assert (await told(kernel, "m1", "place"))["result"]["value"] == "https://shop.example"
    assert (await told(kernel, "m2", "name"))["result"]["value"] == "shop"
    assert shop.sent == []


# --- shown


async def test_an_object_of_a_connection_tells_what_it_understands(kernel: Kernel) -> None:
    queries = Queries(kernel.image.db, kernel.image.snapshot)
    understood = queries.show("tools.shop")["understands"]
    assert [one["message"] for one in understood] == ["order_", "list_orders_", "cancel_order_", "name_", "tag_"]
    assert understood[0] == {"message": "order_", "tool": "order", "class": "acts", "line": "order(sku, count?)"}
    listed = {one["name"]: one for one in queries.ls("tools.shop")["entries"]}
    assert listed["list_orders_"] == {"name": "list_orders_", "kind": "operation", "about": "listOrders(status?) (reads)"}
    assert "understands" not in queries.show("tools")


@pytest.mark.parametrize("path", ["tools.shop.listOrders", "tools.shop.list_orders_", "tools/shop/list_orders_"])
async def test_the_path_of_an_operation_shows_it(kernel: Kernel, path: str) -> None:
    queries = Queries(kernel.image.db, kernel.image.snapshot)
    shown = queries.show(path)
    assert (shown["type"], shown["oid"], shown["tid"]) == ("show", None, None)
    facts = {name: shown["slots"][name] for name in ("message", "tool", "class", "line", "suspended")}
    assert facts == {
        "message": "list_orders_", "tool": "listOrders", "class": "reads", "line": "listOrders(status?)", "suspended": False,
    }  # fmt: skip
    assert shown["slots"]["parameters"]["properties"] == {"status": {"type": "string"}}
    listed = {one["name"]: one["about"] for one in queries.ls(path)["entries"]}
    assert (listed["message"], listed["class"]) == ("list_orders_", "reads")
    assert '"status"' in listed["parameters"]


async def test_a_path_that_names_no_operation_is_refused_as_before(kernel: Kernel) -> None:
    queries = Queries(kernel.image.db, kernel.image.snapshot)
    for path in ("tools.shop.place", "tools.shop.nothing_", "tools.shap.order", "robin.shop.order"):
        for look in (queries.show, queries.ls):
            with pytest.raises(UnknownTarget, match="no object"):
                look(path)


@pytest.mark.parametrize("selector", ["order_", "cheapest_tea_", "_hidden", "clone"])
async def test_another_object_is_checked_as_before(kernel: Kernel, selector: str) -> None:
    try:
        kernel.image.read(messages.check_message, "robin", selector, [], {})
    except BatosError as e:
        raise AssertionError(e.message) from None
