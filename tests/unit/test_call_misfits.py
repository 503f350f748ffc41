"""Calls of a connection's methods that do not fit the schema any more: whose fault it is, and what follows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.mind.call_misfits import METHODS, SENDERS, UNKNOWN, fault_of
from batos.objects import Method
from batos.tools import schema_changes
from batos.tools.definitions import ToolDefinition
from tests.support.methods import writing
from tests.support.missions import FakeInference
from tests.support.tea_connection import LIST, Shop, answered, doubts, lesson, taking, told
from tests.support.tool_missions import connected

SKUS = {"type": "string", "enum": ["assam", "sencha"]}
LOUD = {"type": "string", "enum": ["ASSAM", "SENCHA"]}
PRICE = ToolDefinition(name="price", kind="reads", parameters=taking(sku=SKUS), result=answered({"type": "number"}), outward=False)


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: Shop) -> AsyncIterator[Kernel]:
    shop.offered = [LIST, PRICE]
    shop.bodies["price"] = 4.0
    async with connected(tmp_path, inference, shop) as kernel:
        yield kernel


async def narrow(kernel: Kernel, shop: Shop) -> None:
    """Accept a document whose operation takes other values."""
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    shop.offered = [LIST, replace(PRICE, parameters=taking(sku=LOUD))]
    await toolbox.test("shop")
    await toolbox.accept("shop")


FIXED = "def assam_price_(self):\n    return self.tools.shop.price(sku='assam')['body']\n"
HANDED = "def price_of_(self, sku):\n    return self.tools.shop.price(sku=sku)['body']\n"
CHOSEN = "def price_of_(self, sku):\n    known = {sku: sku}\n    one = known[sku]\n    return self.tools.shop.price(sku=one)['body']\n"


async def test_a_method_whose_own_call_does_not_fit_any_more_is_written_anew_at_its_next_message(
    kernel: Kernel, inference: FakeInference, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_changes, "why_unfit", lambda *_: "")  # not each narrowing can be seen in two documents
    writing(inference, FIXED)
    await lesson(kernel, "t1", "assam_price_", {"args": [], "result": 4.0})
    await narrow(kernel, shop)
    assert doubts(kernel, "assam_price_") == [], "no reason was found"
    sent = len(shop.sent)
    assert (await told(kernel, "m1", "assam_price_"))["state"] == "FAILED"
    assert len(shop.sent) == sent, "it is refused before it is sent"
    (doubt,) = doubts(kernel, "assam_price_")
    assert doubt.startswith('shop.price({"sku": "assam"}) does not fit its schema: shop.price: sku: \'assam\' is not one of ')
    asked = writing(inference, FIXED, FIXED.replace("'assam'", "'ASSAM'"))
    assert (await told(kernel, "m2", "assam_price_"))["result"]["value"] == 4.0
    assert "does not fit its schema: shop.price: sku: 'assam' is not one of" in asked[0].user
    assert len(asked) == 2, "the same draft does not fit in its trial"
    assert doubts(kernel, "assam_price_") == []


async def test_what_a_method_hands_on_as_it_was_sent_is_the_fault_of_the_sender(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    writing(inference, HANDED)
    await lesson(kernel, "t1", "price_of_", {"args": ["assam"], "result": 4.0})
    for id in ("m1", "m2", "m3"):
        assert (await told(kernel, id, "price_of_", "coffee"))["state"] == "FAILED"
    assert doubts(kernel, "price_of_") == []
    assert (await told(kernel, "m4", "price_of_", "assam"))["result"]["value"] == 4.0


async def test_where_that_cannot_be_told_it_counts_at_the_second_mission_in_a_row(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    writing(inference, CHOSEN)
    await lesson(kernel, "t1", "price_of_", {"args": ["assam"], "result": 4.0})
    await told(kernel, "m1", "price_of_", "coffee")
    assert doubts(kernel, "price_of_") == []
    await told(kernel, "m2", "price_of_", "assam")
    await told(kernel, "m3", "price_of_", "coffee")
    assert doubts(kernel, "price_of_") == [], "once in a row"
    await told(kernel, "m4", "price_of_", "coffee")
    assert len(doubts(kernel, "price_of_")) == 1


ORDER = ToolDefinition(name="order", parameters=taking(sku=SKUS, count={"type": "integer", "maximum": 9}))


@pytest.mark.parametrize(
    ("body", "sent", "arguments", "whose"),
    [
        ("self.tools.shop.order(sku=a, count=1)", ["x"], {"sku": "x", "count": 1}, ("sku", SENDERS)),
        ("self.tools.shop.order(a, 1)", ["x"], {"sku": "x", "count": 1}, ("sku", SENDERS)),
        ("self.order_(sku=a['sku'], count=1)", [{"sku": "x"}], {"sku": "x", "count": 1}, ("sku", SENDERS)),
        ("self.tools.shop.call_('order', a)", [{"sku": "x", "count": 1}], {"sku": "x", "count": 1}, ("sku", SENDERS)),
        ("self.tools.shop.order(a)", [{"sku": "assam"}], {"sku": "assam"}, ("", SENDERS)),
        ("self.tools.shop.order(sku='assam', count=a)", [10], {"sku": "assam", "count": 10}, ("count", SENDERS)),
        ("self.tools.shop.order(sku='x', count=a)", [1], {"sku": "x", "count": 1}, ("sku", METHODS)),
        ("self.tools.shop.order(sku=a.lower(), count=1)", ["X"], {"sku": "x", "count": 1}, ("sku", METHODS)),
        ("self.tools.shop.order(sku='assam')", ["x"], {"sku": "assam"}, ("", METHODS)),
        ("self.tools.shop.order(sku='x', count=1)", ["x"], {"sku": "x", "count": 1}, ("sku", UNKNOWN)),
        ("[self.tools.shop.order(sku=one, count=1) for one in a]", [["x"]], {"sku": "x", "count": 1}, ("sku", UNKNOWN)),
        ("self.tools.shop.order(sku=a, count=1)", ["assam"], {"sku": "assam", "count": 1}, None),
    ],
)
def test_whose_fault_a_misfit_is(body: str, sent: list[Any], arguments: dict[str, Any], whose: Any) -> None:
    method = Method("m_", f"def m_(self, a):\n    return {body}\n")
    assert fault_of(method, sent, {}, "shop.order", ORDER, arguments) == whose
