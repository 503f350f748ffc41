"""A small service that the project never saw: its document is added, its operations are messages, and a message that is none of them gets
the right answer without a restart; also where the daemon is killed at each of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import batos, daemon, done, last_asked, provisioned, question_of, result_of
from tests.support.http_world import serving
from tests.support.tea_shop import TeaShop

QUICK = {"crash_limit": 100, "tools.call_s": 4}  # what was cut off may go on for so long, which a restart waits for
CHEAPEST = (
    "def cheapest_tea_(self):\n    teas = self.tools.shop.listTeas()['body']\n    return min(teas, key=lambda tea: tea['price'])['sku']\n"
)
BUY = (
    "def buy_cheapest_(self, count):\n    teas = self.tools.shop.listTeas()['body']\n"
    "    sku = min(teas, key=lambda tea: tea['price'])['sku']\n    return self.tools.shop.order(sku=sku, count=count)['body']['id']\n"
)


@pytest.fixture
def shop() -> Iterator[TeaShop]:
    made = TeaShop()
    with serving(made.server):
        yield made


@pytest.fixture
def writer() -> Iterator[ScriptedOllama]:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(CHEAPEST, when="cheapest_tea_")
        server.say(BUY, when="buy_cheapest_")
        yield server


def test_a_stranger_s_service_answers_a_message_that_is_none_of_its_operations(
    tmp_path: Path, writer: ScriptedOllama, shop: TeaShop
) -> None:
    with daemon(tmp_path, ollama_host=writer.host) as running:
        asked = len(writer.chats)
        done(running, "tools", "add", "shop", "--openapi", f"{shop.origin}/openapi.json")
        done(running, "allow", "shop.*", "--leaks")
        assert [one["message"] for one in done(running, "show", "tools.shop")["understands"]] == ["list_teas_", "order_"]
        code, said = batos(running, "send-to", "tools.shop", "order_", '{"sku": "sencha", "count": 0}')
        assert (code, said["code"]) == (4, "invalid"), said
        assert "0 is less than the minimum of 1" in said["message"]
        code, said = batos(running, "send-to", "tools.shop", "lists_tea_")
        assert "'list_teas_'" in said["message"]
        ordered = done(running, "send-to", "tools.shop", "order_", '{"sku": "sencha", "count": 2}', "--watch")
        assert (ordered["result"]["value"]["body"], shop.orders) == ({"id": 1}, [{"sku": "sencha", "count": 2}])
        assert len(writer.chats) == asked, "no model was asked"
        cheapest = done(running, "send-to", "tools.shop", "cheapest_tea_", "--watch")
        assert cheapest["result"]["value"] == "assam"
        assert shop.lists == 1
        assert running.terminate() == 0


def test_killed_at_an_operation_by_message_its_user_is_asked_and_it_is_done_once(
    tmp_path: Path, writer: ScriptedOllama, shop: TeaShop
) -> None:
    settings: dict[str, Any] = {"ollama_host": writer.host, **QUICK}
    with daemon(tmp_path, **settings) as running:
        done(running, "tools", "add", "shop", "--openapi", f"{shop.origin}/openapi.json")
        done(running, "allow", "shop.*", "--leaks")
        shop.on_order = running.process.kill
        last_asked(running, "send", id="m1", target="tools.shop", selector="order_", args=["assam"])
    with daemon(tmp_path, **settings) as running:
        assert "may have happened" in question_of(running, "m1")
        done(running, "answer", "m1", "happened")
        assert result_of(running, "m1")["state"] == "COMPLETE"
        assert shop.orders == [{"sku": "assam"}]


def test_killed_in_the_trial_s_read_at_the_question_and_at_the_act_a_method_is_written_once_and_acts_once(
    tmp_path: Path, writer: ScriptedOllama, shop: TeaShop
) -> None:
    settings: dict[str, Any] = {"ollama_host": writer.host, **QUICK}
    with daemon(tmp_path, **settings) as running:
        done(running, "tools", "add", "shop", "--openapi", f"{shop.origin}/openapi.json")
        done(running, "allow", "shop.*", "--leaks")
        shop.on_list = running.process.kill
        last_asked(running, "send", id="m1", target="tools.shop", selector="buy_cheapest_", args=[3])
    assert shop.lists == 1
    with daemon(tmp_path, **settings) as running:
        asked = question_of(running, "m1")
        assert '"sku": "assam"' in asked
        assert f"POST {shop.origin}/orders" in asked
        assert "first thing that the method" in asked
        running.kill()
    assert shop.orders == []
    with daemon(tmp_path, **settings) as running:
        assert "first thing that the method" in question_of(running, "m1")
        shop.on_order = running.process.kill
        last_asked(running, "answer", id="m1", text="once")
    with daemon(tmp_path, **settings) as running:
        assert "may have happened" in question_of(running, "m1")
        done(running, "answer", "m1", "happened")
        assert result_of(running, "m1")["state"] == "FAILED", (
            "what the order was answered was lost with the daemon, and the method needs it"
        )
        assert shop.orders == [{"sku": "assam", "count": 3}]
        assert shop.lists == 2, "the read that was cut off, and the one of the next trial, which the mission goes on from"
        writes = [chat for chat in writer.chats if chat and chat["messages"][0]["content"].startswith("You write one method")]
        assert len(writes) == 1
