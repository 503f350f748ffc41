"""The bench beside others keeps account of what a model was asked, and its table says what came of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

PEERS = Path(__file__).parents[2] / "bench" / "peers"


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(PEERS)
    import run  # type: ignore[import-not-found]

    yield run
    for name in ("run", "contenders", "model"):
        sys.modules.pop(name)


def chat(words: str, *more: dict[str, str]) -> dict[str, Any]:
    return {"model": "robin:embedded", "messages": [{"role": "user", "content": words}, *more]}


def test_a_call_is_known_again_by_its_words_also_where_it_is_gone_on_with(peers: ModuleType) -> None:
    with peers.PacedOllama(0.0001) as model:
        url = f"http://{model.host}/api/chat"
        whole = httpx.post(url, json=chat("mission-001: plan"))
        assert whole.is_success
        tokens = model.tokens
        assert tokens > 10
        begun = {"role": "assistant", "content": "You said: mission-001:"}
        httpx.post(url, json=chat("mission-001: plan", begun)).raise_for_status()
        httpx.post(url, json=chat("mission-002: plan")).raise_for_status()
        assert sorted(model.begun.values()) == sorted(model.finished.values()) == [1, 2]
        assert model.tokens < 3 * tokens, "only what was not there yet"


def test_a_call_that_was_left_has_not_ended(peers: ModuleType) -> None:
    with peers.PacedOllama(0.01) as model:
        with httpx.stream("POST", f"http://{model.host}/api/chat", json=chat("mission-001: plan")) as answer:
            next(answer.iter_lines())
        model.wait_abandoned()
        assert (sum(model.begun.values()), sum(model.finished.values())) == (1, 0)


@pytest.mark.parametrize(("script", "lines"), [("langgraph_agent.py", 9), ("dbos_agent.py", 0), ("crewai_agent.py", 2)])
def test_the_lines_of_a_user_are_counted_in_the_script_and_one_line_can_be_added(peers: ModuleType, script: str, lines: int) -> None:
    (found,) = {one for one in peers.CONTENDERS.values() if one.script == script and not one.more}
    assert found("python").recovery_lines() == lines
    assert (PEERS / script).read_text("utf-8").count("# changed here\n") == 1


def test_contenders_take_turns_and_each_round_is_told(peers: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    order: list[str] = []

    class Told:
        def __init__(self, name: str, costs: list[float]) -> None:
            self.name, self.costs = name, costs

        def cost(self, folder: Path, count: int) -> dict[str, float]:
            folder.mkdir()
            order.append(self.name)
            return {"cpu_ms": self.costs.pop(0), "missions_per_s": count}

    costs = peers.alternating({"a": Told("a", [1.0, 9.0, 2.0]), "b": Told("b", [3.0, 4.0, 5.0])}, 3, 7, tmp_path)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert {name: (one["cpu_ms"], one["missions_per_s"], len(one["rounds"])) for name, one in costs.items()} == {
        "a": (2.0, 7, 3),
        "b": (4.0, 7, 3),
    }
    assert capsys.readouterr().out.count("round ") == 6


def test_the_table_says_what_never_ended(peers: ModuleType) -> None:
    row = {
        "fsyncs": 1, "cpu_ms": 2.0, "missions_per_s": 3, "missions_per_s_50": 4, "bytes": 5, "by_itself": True, "recovery_lines": 0,
        "lost": 0, "killed_repeated": 1.25, "killed_calls": 120.0, "calls": 100, "paid_again": 0.0731, "killed_first_call_s": 1.44,
    }  # fmt: skip
    rows = {"kept": {**row, "changed_lost": 0, "changed_by_itself": True}, "stuck": {**row, "changed_lost": 20, "changed_by_itself": False}}
    lines = peers.table(rows).splitlines()
    assert lines[-2] == "| kept | yes | 0 | 0 | 1.2 | 120 (100) | 7.3% | 1.4 s | goes on |"
    assert lines[-1].endswith("| 20 never end |")
