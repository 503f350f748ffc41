"""The Prototypal State Machine: states as objects, the pointer, and change from inside the image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.errors import InferenceFailed
from batos.image import ledger
from batos.mind import psm, states
from batos.mind.psm import new_cycle, run_cycle
from batos.mind.router import Route
from batos.mind.thinking import Thinking, thinking
from batos.objects import Primitive, UvmObject
from tests.unit.mind_support import FakeInference, Listened, mind, submit

ROUTE = Route("robin", "for a test", {})


async def test_the_states_are_objects_with_behaviour_successors_and_meta_prompts(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:

        def check(root: Any) -> None:
            machine = root["lobby"].psm
            names = [name for name, value in machine._slots.items() if isinstance(value, UvmObject) and name[-1] != "*"]
            assert names == ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE", "FAILED"]
            for name in names:
                state = machine._slots[name]
                assert state.name == name
                assert isinstance(state._slots["behaviour"], Primitive)
                assert state.comment.startswith("I ")
            assert [len(machine._slots[n].successors) for n in names] == [1, 1, 1, 1, 0, 0]
            assert [n for n in names if "meta_prompt" in machine._slots[n]._slots] == ["DECOMPOSING", "DELEGATING", "SYNTHESIZING"]

        kernel.image.read(check)


async def test_a_cycle_inherits_from_its_state_first(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel, kernel.image.unit() as unit:
        unit.doom()
        lobby = unit.root["lobby"]
        cycle = new_cycle(lobby.robin, "a brief", ROUTE)
        assert cycle._slots["state*"] is lobby.psm.IDLE
        assert cycle.successors == ("DECOMPOSING",)
        cycle._slots["state*"] = lobby.psm.DELEGATING
        assert cycle.meta_prompt == lobby.psm.DELEGATING.meta_prompt


async def test_the_pointer_moves_with_each_state_and_ends_in_complete(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel, kernel.image.unit() as unit:
        unit.doom()
        cycle, attempt = await _cycle(kernel, unit)
        seen = []
        kernel.events.watch(
            "m1", lambda event: seen.append((event["state"], cycle.__dict__["state*"].name)) if event["type"] == "state" else None
        )
        with thinking(attempt):
            await run_cycle(cycle, attempt)
        assert seen == [(name, name) for name in ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")]
        assert cycle._slots["state*"].name == "COMPLETE"
        assert attempt.answer == "Take one small step and look where it led."
        assert "_tmp_synthesis_" not in cycle._slots


async def test_an_exception_moves_it_to_failed_and_says_where_it_was(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if "Notes to use" in request.user else None
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1", "I feel stuck")
        await heard.end()
        assert heard.states == ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "FAILED"]
        (failure,) = kernel.image.read(ledger.failures_of, "m1")
        assert failure["context"]["state"] == "SYNTHESIZING"
        assert kernel.image.read(lambda root: ledger.mission_of(root, "m1").thought) is None


async def test_only_so_many_facets_as_the_limit(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, facets_limit=2) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["result"]["facets"] == ["sage_facet_", "still_point_facet_"]
        assert len(inference.asked) == 4


async def test_a_plan_that_is_none_falls_back_to_the_brief_and_says_so(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: "no plan, but an answer"
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["result"]["plan"] == "fallback"
        assert len(inference.asked_about("Work on this part of it: I feel stuck")) == 3


async def test_the_voices_of_the_facets_are_what_is_woven(tmp_path: Path) -> None:
    inference = FakeInference()
    plain = inference.say
    inference.say = lambda request: "Sit with it." if "what of sage_facet_" in request.user else plain(request)
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        (woven,) = inference.asked_about("Notes to use")
        assert "sage: Sit with it." in woven.user
        assert woven.system.startswith("You are ROBIN.")


async def test_a_meta_prompt_changed_in_the_image_is_what_is_asked(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"].psm.SYNTHESIZING, "meta_prompt", "Sing of $brief: $voices"))
        await (await submit(kernel, "m1", "I feel stuck")).end()
        assert len(inference.asked_about("Sing of I feel stuck: sage: ")) == 1


@Primitive.register
async def skip_planning(cycle: UvmObject) -> str:
    """IDLE for tests: one facet, no plan."""
    cycle.plan, cycle.plan_source, cycle.facets = (("plain_facet_", cycle.brief),), "none", (("plain_facet_", "Answer."),)
    return "DELEGATING"


async def test_a_behaviour_changed_in_the_image_is_what_happens(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:

        def change(root: Any) -> None:
            root["lobby"].psm.IDLE.behaviour = Primitive.of(skip_planning)
            root["lobby"].psm.IDLE.successors = ("DELEGATING",)

        await kernel.image.system(change)
        heard = await submit(kernel, "m1", "I feel stuck")
        assert (await heard.end())["result"]["plan"] == "none"
        assert heard.states == ["IDLE", "DELEGATING", "SYNTHESIZING", "COMPLETE"]
        assert len(inference.asked) == 2


async def test_a_persona_is_sent_the_message(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        message = '{"target": "robin", "selector": "synthesize_response_for_", "args": ["I feel stuck"], "kwargs": {}}'
        heard = await submit(kernel, "m1", "send", message=message)
        end = await heard.end()
        assert end["result"]["value"] == end["result"]["text"] == "Take one small step and look where it led."
        assert end["result"]["persona"] == "ROBIN"
        blank = message.replace("I feel stuck", " ")
        assert "not blank" in (await (await submit(kernel, "m2", "send", message=blank)).end())["error"]["message"]


@pytest.mark.parametrize("state", sorted(states.STATES))
def test_every_successor_is_a_state(state: str) -> None:
    assert set(states.STATES[state]["successors"]) <= set(states.STATES)
    assert psm.INITIAL in states.STATES


async def _cycle(kernel: Any, unit: Any) -> tuple[UvmObject, Thinking]:
    _, record = await kernel.image.system(ledger.accept, "m1", "I feel stuck", {}, False)
    Listened(kernel, "m1")
    return new_cycle(unit.root["lobby"].robin, "I feel stuck", ROUTE), kernel.scheduler._thinking(record)
