"""Methods of a connection by the expert: what its operations answer now stands before it as slots, and calls take their place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.errors import ToolFailed
from batos.forge.tool_readings import ToolReading, with_calls
from batos.image import grants as image_grants
from batos.image import model_registry
from batos.image.grants import GrantRecord
from tests.support.missions import FakeInference
from tests.support.tea_connection import Shop, lesson, told
from tests.support.tool_missions import allow, connected

CHEAPEST = "def cheapest_tea_(self):\n    return min(self.teas, key=lambda tea: tea['price'])['sku']\n"
TEAS = ToolReading("teas", 'self.tools.shop.listTeas()["body"]', [])


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kernel]:
    monkeypatch.setattr(model_registry, "writes_methods", lambda *_: True)
    async with connected(tmp_path, inference, shop) as kernel:
        await allow(kernel)
        yield kernel


def drafting(inference: FakeInference, *sources: str) -> list[ChatRequest]:
    """An expert that writes these, one after the other, and then the last one again; the requests it gets."""
    asked: list[ChatRequest] = []

    def say(request: ChatRequest) -> str:
        asked.append(request)
        return sources[min(len(asked), len(sources)) - 1]

    inference.say = say
    return asked


def source_of(kernel: Kernel, selector: str) -> str:
    return kernel.image.read(lambda root: str(root["lobby"].tools.shop._slots[selector].source))


async def test_an_expert_sees_answers_as_slots_and_its_method_calls_the_tool(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    asked = drafting(inference, CHEAPEST)
    ended = await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert ended["state"] == "COMPLETE", ended
    assert 'self.teas = [{"sku": "sencha", "price": 9.5}' in asked[0].user
    assert "self.tools" not in asked[0].user
    assert source_of(kernel, "cheapest_tea_").splitlines()[1] == "    teas = self.tools.shop.listTeas()['body']"
    shop.teas = [{"sku": "mint", "price": 2.0}, *shop.teas]
    assert (await told(kernel, "m1", "cheapest_tea_"))["result"]["value"] == "mint", "it reads what the shop has now"


async def test_a_draft_that_repeats_the_example_or_changes_what_was_read_is_refused(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    constant = "def cheapest_tea_(self):\n    return 'assam'\n"
    changed = "def cheapest_tea_(self):\n    self.teas = sorted(self.teas, key=lambda tea: tea['price'])\n    return self.teas[0]['sku']\n"
    asked = drafting(inference, constant, changed, CHEAPEST)
    ended = await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert ended["state"] == "COMPLETE", ended
    assert len(asked) > 1
    assert "self.tools.shop.listTeas()" in source_of(kernel, "cheapest_tea_")
    assert "self.teas" not in source_of(kernel, "cheapest_tea_")


async def test_a_refusal_of_the_expert_says_that_a_larger_model_writes_methods_of_several_operations(
    kernel: Kernel, inference: FakeInference, monkeypatch: pytest.MonkeyPatch
) -> None:
    larger = "; the expert that wrote it writes methods of one operation: for several, set `methods.writer` to a larger model"
    drafting(inference, "def cheapest_tea_(self):\n    self.teas = []\n    return self.teas\n")
    ended = await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert (ended["state"], ended["error"]["code"]) == ("FAILED", "method_refused")
    assert "is what the connection answers, which a method cannot change" in ended["error"]["message"]
    assert ended["error"]["message"].endswith(larger)
    drafting(inference, "def cheapest_tea_(self):\n    return open('teas').read()\n")  # the guardian refuses it
    ended = await lesson(kernel, "t2", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert ended["error"]["message"].endswith(larger)
    monkeypatch.setattr(model_registry, "writes_methods", lambda *_: False)
    ended = await lesson(kernel, "t3", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert (ended["state"], "larger model" in ended["error"]["message"]) == ("FAILED", False)


async def test_what_no_grant_lets_or_fails_is_no_reading(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await kernel.image.system(image_grants.add, GrantRecord(0, "deny", "shop.listTeas"), 1.0)
    asked = drafting(inference, CHEAPEST)
    await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert shop.sent == []
    assert all("sencha" not in one.user for one in asked)


async def test_a_reading_that_fails_is_left_out(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    shop.fault = ToolFailed("the shop is away")
    asked = drafting(inference, CHEAPEST)
    await lesson(kernel, "t1", "cheapest_tea_", {"args": [], "result": "assam"}, intent="the sku of the cheapest tea")
    assert all("self.teas" not in one.user for one in asked)


@pytest.mark.parametrize(
    ("draft", "body"),
    [
        ("def n_(self):\n    return len(self.teas)\n", ["teas = self.tools.shop.listTeas()['body']", "return len(teas)"]),
        (
            "def n_(self, teas):\n    return [one for one in self.teas if one in teas]\n",
            ["teas_here = self.tools.shop.listTeas()['body']", "return [one for one in teas_here if one in teas]"],
        ),
        (
            "def n_(self):\n    '''Count.'''\n    return len(self.teas) + len(self.teas)\n",
            ['"""Count."""', "teas = self.tools.shop.listTeas()['body']", "return len(teas) + len(teas)"],
        ),
        ("def n_(self):\n    return len(self.other)\n", ["return len(self.other)"]),
    ],
)
def test_calls_take_the_place_of_slots_once_at_the_begin(draft: str, body: list[str]) -> None:
    assert [line.strip() for line in with_calls(draft, [TEAS]).splitlines()[1:]] == body


@pytest.mark.parametrize("draft", ["no Python", "x = 1\n", "def a(self):\n    pass\ndef b(self):\n    pass\n", "(" * 5000])
def test_what_is_no_method_stays_as_it_is(draft: str) -> None:
    assert with_calls(draft, [TEAS]) == draft
