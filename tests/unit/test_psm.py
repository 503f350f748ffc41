"""The Prototypal State Machine: states as objects, the pointer, and change from inside the image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batos import scope
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.image import ledger
from batos.mind import psm
from batos.mind.attempt import Attempt
from batos.mind.psm import new_cycle, run_cycle
from batos.mind.router import Route
from batos.objects import Primitive, UvmObject
from tests.support.missions import FakeInference, Listened, answer, mind, submit

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
        with scope.begin(attempt):
            await run_cycle(cycle, attempt)
        assert seen == [(name, name) for name in ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")]
        assert cycle._slots["state*"].name == "COMPLETE"
        assert cycle.answer == "Take one small step and look where it led."
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


@Primitive.register("test.skip_planning")
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


def failing(inference: FakeInference, words: str) -> None:
    inference.fail_when = lambda request: InferenceFailed("no", cause="refused") if words in request.user else None


async def test_a_facet_that_fails_is_left_out_and_the_record_says_why(tmp_path: Path) -> None:
    inference = FakeInference()
    failing(inference, "what of sage_facet_")
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["result"]["silent"] == ["sage_facet_"]
        assert kernel.image.read(lambda root: ledger.mission_of(root, "m1").thought.silent) == (("sage_facet_", "inference_failed: no"),)
        assert "sage" not in inference.asked_about("Notes to use")[0].user


async def test_a_quorum_in_the_image_is_the_rule(tmp_path: Path) -> None:
    inference = FakeInference()
    plain = inference.say
    inference.say = lambda request: "" if "what of sage_facet_" in request.user else plain(request)
    async with mind(tmp_path, inference) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"].psm.DELEGATING, "quorum", 3))
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["error"]["code"] == "quality_refused"
        assert "2 of 3" in end["error"]["message"]


async def test_who_said_what_is_in_the_record(tmp_path: Path) -> None:
    inference = FakeInference()
    said = {"sage_facet_": "The river does not hurry.", "still_point_facet_": "Be kind to yourself today.", "plain_facet_": "Rest."}

    def say(request: ChatRequest) -> str:
        named = next((name for name in said if f"what of {name}" in request.user), None)
        if named:
            return said[named]
        return "Be kind to yourself. A river never hurries." if "Notes to use" in request.user else answer(request)

    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()

        def check(root: Any) -> None:
            thought = ledger.mission_of(root, "m1").thought
            assert thought.voices == tuple(said.items())
            assert thought.woven == ("still_point_facet_", "sage_facet_")
            assert not {"_tmp_synthesis_", "answer", "facets"} & set(thought._slots)

        kernel.image.read(check)


CITY = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"], "additionalProperties": False}


async def test_an_answer_of_a_schema_is_a_value(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck", schema=json.dumps(CITY))).end()
        assert end["result"]["value"] == {"name": "what of name"}
        assert json.loads(end["result"]["text"]) == {"name": "what of name"}
        (woven,) = inference.asked_about("Notes to use")
        assert woven.schema == CITY
        assert '"required": ["name"]' in woven.user
        assert kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")).schema) == CITY


async def test_an_answer_that_does_not_keep_its_schema_is_revised_once_and_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: "Ulm." if "Notes to use" in request.user else answer(request)
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck", schema=json.dumps(CITY))).end()
        assert end["error"]["code"] == "quality_refused"
        assert "does not keep the schema: it is not valid JSON" in end["error"]["message"]
        first, second = inference.asked_about("Notes to use")
        assert "An earlier answer was refused because it does not keep the schema" in second.user
        assert first.schema == second.schema == CITY


@pytest.mark.parametrize("cause", ["refused", "server_error"])
async def test_a_schema_that_ollama_makes_no_grammar_of_is_left_to_the_prompt(tmp_path: Path, cause: str) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: InferenceFailed("no grammar", cause=cause, model="robin") if request.schema == CITY else None
    inference.say = lambda request: '{"name": "Ulm"}' if "Notes to use" in request.user else answer(request)
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck", schema=json.dumps(CITY))).end()
        assert end["result"]["value"] == {"name": "Ulm"}
        first, second = inference.asked_about("Notes to use")
        assert (first.schema, second.schema) == (CITY, None)
        assert '"required": ["name"]' in second.user


def objecting(inference: FakeInference, times: int) -> None:
    """The critic has something against the first so many answers."""
    heard = []

    def say(request: ChatRequest) -> str:
        if "Does the answer serve the request?" in request.user:
            heard.append(request)
            return json.dumps({"fit": len(heard) > times, "reason": "it is too short"})
        return answer(request)

    inference.say = say


async def test_a_critic_asks_for_a_revision(tmp_path: Path) -> None:
    inference = FakeInference()
    objecting(inference, 1)
    async with mind(tmp_path, inference, critic="on") as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["state"] == "COMPLETE"
        assert "the critic says: it is too short" in inference.asked_about("Notes to use")[1].user
        (first, _) = inference.asked_about("Does the answer serve")
        assert first.system.startswith("You are ALFRED")


async def test_a_critic_that_refuses_twice_has_the_last_word(tmp_path: Path) -> None:
    inference = FakeInference()
    objecting(inference, 2)
    async with mind(tmp_path, inference, critic="on") as kernel:
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["error"]["code"] == "quality_refused"
        assert "the critic says: it is too short" in end["error"]["message"]


async def test_without_a_critic_nobody_is_asked(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        assert not inference.asked_about("Does the answer serve")


@pytest.mark.parametrize("state", sorted(psm.STATES))
def test_every_successor_is_a_state(state: str) -> None:
    assert set(psm.STATES[state]["successors"]) <= set(psm.STATES)
    assert psm.INITIAL in psm.STATES


async def _cycle(kernel: Any, unit: Any) -> tuple[UvmObject, Attempt]:
    _, record = await kernel.image.system(ledger.accept, "m1", "I feel stuck", {}, False)
    Listened(kernel, "m1")
    return new_cycle(unit.root["lobby"].robin, "I feel stuck", ROUTE), kernel.scheduler.attempt(record)
