"""Methods of a connection that reach another connection: its user is asked first, and what he denies is not named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.image import grants as image_grants
from batos.image import ledger
from batos.image.grants import ASK, DENY, GrantRecord
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.toolbox import Toolbox
from tests.support.methods import writing
from tests.support.missions import WAIT_S, FakeInference, give, mind
from tests.support.tea_connection import Shop, begun, lesson, told
from tests.support.tool_missions import allow

BOTH = (
    "def both_(self):\n    mine = self.tools.shop.listTeas()['body']\n    theirs = self.tools.mail.listTeas()['body']\n"
    "    return len(mine) + len(theirs)\n"
)
OWN = "def both_(self):\n    return 2 * len(self.tools.shop.listTeas()['body'])\n"


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def mail() -> Shop:
    return Shop("mail")


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: Shop, mail: Shop) -> AsyncIterator[Kernel]:
    async with mind(tmp_path, inference) as kernel:
        held = kernel.attempt_services.toolbox
        assert held is not None
        services = ConnectorServices(secret=str, folder=tmp_path)
        toolbox = Toolbox(kernel.image, services, held.state, lambda spec, _: {"shop": shop, "mail": mail}[spec.name])
        for name in ("shop", "mail"):
            await toolbox.add(ConnectionSpec(name, "http", f"https://{name}.example"))
        give(kernel, toolbox=toolbox)
        yield kernel


async def question(kernel: Kernel, id: str) -> str:
    async with asyncio.timeout(WAIT_S):
        while (found := kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id))).open_question) is None:
            await kernel.image.system(lambda root: None)
    return str(found["question"])


async def grant(kernel: Kernel, verdict: str, pattern: str, **more: Any) -> int:
    return (await kernel.image.system(image_grants.add, GrantRecord(0, verdict, pattern, **more), 1.0)).id


async def test_a_first_version_that_reaches_another_connection_asks_before_its_trial_reads_there(
    kernel: Kernel, inference: FakeInference, shop: Shop, mail: Shop
) -> None:
    asked = writing(inference, BOTH)
    heard = await begun(kernel, "m1", "both_")
    put = await question(kernel, "m1")
    assert put.startswith("May a first version of 'both_' of ")
    assert " reach tools of other connections: mail.listTeas (reads)? Answer yes, and it is tried; any other answer refuses it." in put
    assert BOTH.strip() in put
    assert (shop.sent, mail.sent) == ([], [])
    await kernel.scheduler.answer("m1", "yes")
    assert (await heard.end())["result"]["value"] == 4
    assert (mail.sent, len(asked)) == ([("listTeas", {})], 1)


async def test_a_no_refuses_the_first_version_and_nothing_is_read(kernel: Kernel, inference: FakeInference, mail: Shop) -> None:
    writing(inference, BOTH)
    heard = await begun(kernel, "m1", "both_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "no")
    error = (await heard.end())["error"]
    assert (error["code"], error["context"]["cause"]) == ("method_refused", "reach")
    assert "would reach tools of other connections: mail.listTeas (reads); its user said no" in error["message"]
    assert mail.sent == []


async def test_a_lesson_asks_once_for_all_drafts_that_reach_no_more(kernel: Kernel, inference: FakeInference, mail: Shop) -> None:
    asked = writing(inference, BOTH.replace("return len", "return 1 + len"), BOTH)
    heard = await begun_lesson(kernel, "t1")
    await question(kernel, "t1")
    await kernel.scheduler.answer("t1", "yes")
    assert (await heard)["state"] == "COMPLETE"
    assert len(asked) == 2
    assert kernel.image.read(lambda root: len(ledger.describe(ledger.mission_of(root, "t1")).questions)) == 1


async def begun_lesson(kernel: Kernel, id: str) -> asyncio.Task[dict[str, Any]]:
    heard = asyncio.create_task(lesson(kernel, id, "both_", {"args": [], "result": 4}))
    async with asyncio.timeout(WAIT_S):
        while not kernel.image.read(lambda root: root["ledger"].missions.get(id)):
            await asyncio.sleep(0.01)
    return heard


@pytest.mark.parametrize("pattern", ["*", "mail.*", "mail.listTeas"])
async def test_what_a_grant_allows_is_not_asked(kernel: Kernel, inference: FakeInference, mail: Shop, pattern: str) -> None:
    await allow(kernel, pattern)
    writing(inference, BOTH)
    assert (await told(kernel, "m1", "both_"))["result"]["value"] == 4


@pytest.mark.parametrize(
    "fields",
    [{"pattern": "shop.*"}, {"pattern": "mail.order"}, {"args": '{"page":"1"}'}, {"persona": "clerk"}, {"mission": "m9"}, {"until": 2.0}],
)
async def test_a_grant_that_does_not_cover_each_call_does_not_spare_the_question(
    kernel: Kernel, inference: FakeInference, mail: Shop, fields: dict[str, Any]
) -> None:
    await grant(kernel, "allow", **{"pattern": "mail.*", **fields})
    writing(inference, BOTH)
    heard = await begun(kernel, "m1", "both_")
    await question(kernel, "m1")
    assert mail.sent == []
    await kernel.scheduler.answer("m1", "no")
    await heard.end()


async def test_where_a_grant_asks_first_an_allow_does_not_spare_the_question(kernel: Kernel, inference: FakeInference, mail: Shop) -> None:
    await allow(kernel)
    await grant(kernel, ASK, "mail.listTeas")
    writing(inference, BOTH)
    heard = await begun(kernel, "m1", "both_")
    assert "May a first version of 'both_'" in await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "no")
    await heard.end()


async def test_a_later_version_is_not_tried_on_another_connection_before_its_user_was_asked(
    kernel: Kernel, inference: FakeInference, shop: Shop, mail: Shop
) -> None:
    writing(inference, OWN)
    assert (await lesson(kernel, "t1", "both_", {"args": [], "result": 4}))["state"] == "COMPLETE"
    shop.teas = {"teas": shop.teas}  # type: ignore[assignment]
    await told(kernel, "m1", "both_")
    writing(inference, BOTH)
    heard = await begun(kernel, "m2", "both_")
    put = await question(kernel, "m2")
    assert "reach tools that version 1 does not: mail.listTeas (reads)? Answer yes, and it is kept" in put
    assert mail.sent == []
    await kernel.scheduler.answer("m2", "yes")
    assert (await heard.end())["result"]["value"] == 3


async def test_a_draft_that_names_a_tool_that_its_user_denies_goes_back_to_the_model(
    kernel: Kernel, inference: FakeInference, mail: Shop
) -> None:
    await grant(kernel, DENY, "mail.*")
    asked = writing(inference, BOTH, BOTH.replace("self.tools.mail.listTeas()", "self.tools.mail.call_('listTeas', {})"), OWN)
    assert (await told(kernel, "m1", "both_"))["result"]["value"] == 4
    assert "'listTeas' of mail is not granted: its user denies each call of it" in asked[1].user
    assert "'listTeas' of mail is not granted" in asked[2].user
    assert mail.sent == []


@pytest.mark.parametrize("fields", [{"args": '{"page":"1"}'}, {"persona": "clerk"}, {"until": 2.0}, {"pattern": "mail.order"}])
async def test_what_is_not_denied_for_each_call_may_be_named(
    kernel: Kernel, inference: FakeInference, mail: Shop, fields: dict[str, Any]
) -> None:
    await grant(kernel, DENY, **{"pattern": "mail.listTeas", **fields})
    writing(inference, BOTH)
    heard = await begun(kernel, "m1", "both_")
    await question(kernel, "m1")
    await kernel.scheduler.answer("m1", "yes")
    assert (await heard.end())["result"]["value"] == 4


async def test_a_method_whose_tool_is_denied_later_stays_and_its_call_is_refused(
    kernel: Kernel, inference: FakeInference, mail: Shop
) -> None:
    await allow(kernel)
    writing(inference, BOTH)
    assert (await lesson(kernel, "t1", "both_", {"args": [], "result": 4}))["state"] == "COMPLETE"
    assert (await told(kernel, "m1", "both_"))["result"]["value"] == 4
    await grant(kernel, DENY, "mail.*")
    assert (await told(kernel, "m2", "both_"))["error"]["code"] == "grant_refused"
    assert kernel.image.read(lambda root: root["lobby"].tools.shop._slots["both_"].version) == 1
