"""The record of a mission: a stranger sees what was thought, by whom, from what, at what cost."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from batos.app.kernel import Kernel
from batos.cli import mission_view as pages
from batos.cli.output import Output
from batos.errors import InferenceFailed, UnknownMission
from batos.missions import report
from tests.support.missions import TWO, FakeInference, mind, submit


def of(kernel: Kernel, id: str = "m1") -> dict[str, Any]:
    return kernel.image.read(report.report_of, id)  # type: ignore[no-any-return]


def printed(found: dict[str, Any]) -> str:
    output, stream = Output(), io.StringIO()
    output.console = Console(file=stream, width=10_000, soft_wrap=True)
    pages.page(found, output)
    return stream.getvalue()


async def test_what_was_thought_by_whom_from_what_at_what_cost(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: (
        InferenceFailed("the model is away", cause="refused") if "what of sage_facet_" in request.user else None
    )
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck", priority=3)).end()
        found = of(kernel)
        thought = found["thought"]
        assert (found["state"], found["priority"], thought["persona"], thought["planned_by"]) == ("COMPLETE", 3, "ROBIN", "model")
        assert [part["part"] for part in thought["plan"]] == ["sage_facet_", "still_point_facet_", "plain_facet_"]
        assert thought["plan"][0] == {
            "part": "sage_facet_", "query": "what of sage_facet_", "silent": "inference_failed: the model is away",
        }  # fmt: skip
        assert thought["plan"][1]["said"] == "Take one small step and look where it led."
        assert set(thought["woven_from"]) == {"still_point_facet_"}
        asked = [(i["state"], i["part"], i["prompt_tokens"]) for i in found["inferences"]]
        assert sorted(asked) == [
            ("DECOMPOSING", "plan", 7), ("DELEGATING", "plain_facet_", 7), ("DELEGATING", "still_point_facet_", 7), ("SYNTHESIZING", "", 7),
        ]  # fmt: skip
        written = sum(i["answer_tokens"] for i in found["inferences"])
        assert found["cost"] == [
            {"model": "robin:embedded", "inferences": 4, "prompt_tokens": 28, "answer_tokens": written, "model_ms": 8.0},
        ]  # fmt: skip
        text = printed(found)
        for words in ("mission m1: COMPLETE", "cycle 1: ROBIN", "silent: inference_failed: the model is away", "said: Take one small step",
                      "sentence by sentence from: still_point_facet_", "4 inferences, 28 tokens read"):  # fmt: skip
            assert words in text


async def test_of_a_cycle_of_cycles(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1", TWO)).end()
        thought = of(kernel)["thought"]
        assert thought["planned_by"] == "personas"
        assert [(inner["cycle"], inner["persona"]) for inner in thought["cycles"]] == [("1.1", "ROBIN"), ("1.2", "BRICK")]
        assert all(inner["plan"] for inner in thought["cycles"])
        assert "cycle 1.2: BRICK" in printed(of(kernel))


async def test_of_one_that_failed_what_it_paid_is_there(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "Notes to use" in request.user else None
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        found = of(kernel)
        assert "thought" not in found
        assert (len(found["inferences"]), found["failures"][0]["context"]["state"]) == (4, "SYNTHESIZING")
        text = printed(found)
        assert "error inference_failed: no" in text
        assert "attempt 1 failed in SYNTHESIZING: no" in text


async def test_of_one_whose_texts_were_let_go_the_cost_is_there(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        before = of(kernel)["cost"]
        await kernel.image.system(_drop)
        found = of(kernel)
        assert (found["inferences"], found["texts_dropped"], found["cost"]) == ([], True, before)
        assert "image.journal_days" in printed(found)


def _drop(root: Any) -> None:
    from batos.image import journal, ledger

    assert journal.drop_texts(ledger.mission_of(root, "m1").journal)


async def test_of_none(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        with pytest.raises(UnknownMission):
            of(kernel)
        assert not kernel.image.read(lambda root: report.is_mission(root["lobby"].robin))
