"""kill -9 of a daemon while a model fills a form: what it has filled is not asked for again, and nothing is connected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from batos.testing import ScriptedOllama
from batos.testing.script import user_text
from tests.support.daemon import Peer, daemon, last_asked, provisioned

SETTINGS = {"crash_limit": 100, "memory.remember": "off", "memory.curate": "off"}
PARTS = range(4)
TEXT = "\n".join(f"GET /part{n}/things lists what part {n} has. " + "It is a quiet part of the house. " * 40 for n in PARTS)


def parts_in(request: dict[str, Any]) -> list[int]:
    return [n for n in PARTS if f"GET /part{n}/things" in user_text(request)]


class FormModel:
    """A model that fills the form of what it is shown; `before_second` is called when it is asked for the second part."""

    def __init__(self) -> None:
        self.shown: list[list[int]] = []
        self.before_second: Callable[[], None] | None = None

    def answer(self, request: dict[str, Any]) -> str:
        self.shown.append(parts_in(request))
        if len(self.shown) == 2 and self.before_second is not None:
            self.before_second()
        operations = [{"name": f"list_{n}", "class": "reads", "method": "GET", "path": f"/part{n}/things"} for n in self.shown[-1]]
        return json.dumps({"operations": operations})


def test_the_parts_that_were_filled_before_a_kill_are_not_asked_for_again(tmp_path: Path) -> None:
    model = FormModel()
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(model.answer, when="</description>")
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running:
            model.before_second = running.process.kill
            last_asked(running, "send", id="d1", target="tools", selector="describe_", args=["http", TEXT])
        before = list(model.shown)
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            end = peer.result("d1")
            assert end["state"] == "COMPLETE", end
            assert [one["path"] for one in end["result"]["value"]["form"]["operations"]] == [f"/part{n}/things" for n in PARTS]
            assert peer.ask("tools")["connections"] == []
            assert running.terminate() == 0
    assert len(before) == 2
    assert model.shown[2] == before[1], "the first part was filled, and on disk"
    assert before[0] not in model.shown[2:]
