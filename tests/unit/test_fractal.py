"""Briefs that need several personas: how they are shared out, and the cycle of cycles that comes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.image import journal, ledger
from batos.mind.router import shares
from tests.support.missions import TWO, FakeInference, Listened, answer, mind, submit


def scores(sentence: str) -> dict[str, float]:
    return {name: 3.0 * (name in sentence) for name in ("robin", "brick", "babs")}


@pytest.mark.parametrize(
    ("brief", "expected"),
    [
        ("", ()),
        ("one robin sentence only.", ()),
        ("one robin sentence. another robin sentence.", ()),
        ("one robin sentence. one brick sentence!", (("robin", "one robin sentence."), ("brick", "one brick sentence!"))),
        (
            "hello there friend. one robin thing; please do so. one brick thing? thanks a lot.",
            (("robin", "hello there friend. one robin thing; please do so."), ("brick", "one brick thing? thanks a lot.")),
        ),
        ("a robin b. a brick b.\na robin c.", (("robin", "a robin b. a robin c."), ("brick", "a brick b."))),
        ("a robin b. a brick b. a babs b.", ()),
        ("a robin and brick sentence. nothing for anyone here.", ()),
        ("robin! brick!", ()),
    ],
)
def test_how_a_brief_is_shared_out(brief: str, expected: Any) -> None:
    assert shares(brief, scores, 2) == expected


async def test_a_brief_for_two_personas_is_a_cycle_of_cycles(tmp_path: Path) -> None:
    inference = FakeInference()

    def say(request: ChatRequest) -> str:
        if "Notes to use" in request.user and "robin:" in request.user:
            return "Be gentle with yourself, and cook soup for your friends."
        if "Notes to use" in request.user:
            return "Be gentle with yourself." if request.system.startswith("You are ROBIN") else "Cook soup for your friends."
        return answer(request)

    inference.say = say
    async with mind(tmp_path, inference) as kernel:
        heard = await submit(kernel, "m1", TWO)
        end = await heard.end()
        assert end["result"]["text"] == "Be gentle with yourself, and cook soup for your friends."
        assert (end["result"]["plan"], end["result"]["facets"]) == ("personas", ["robin", "brick"])
        of_cycle: dict[str, list[tuple[str, str]]] = {}
        for event in heard.events:
            if event["type"] == "state" and event["state"] != "COMPLETE":
                of_cycle.setdefault(event["cycle"], []).append((event["state"], event["persona"]))
        names = ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")
        outer = end["persona"]
        assert of_cycle == {
            "1": [(name, outer) for name in names],
            "1.1": [(name, "ROBIN") for name in names],
            "1.2": [(name, "BRICK") for name in names],
        }

        def check(root: Any) -> None:
            thought = ledger.mission_of(root, "m1").thought
            assert [(c.number, c.persona.name, c.brief) for c in thought.cycles] == [
                ("1.1", "ROBIN", "I feel so lonely and sad since she left."),
                ("1.2", "BRICK", "Then plan a small dinner for four friends."),
            ]
            assert thought.voices == (("robin", "Be gentle with yourself."), ("brick", "Cook soup for your friends."))
            assert [inner._slots["state*"].name for inner in thought.cycles] == ["COMPLETE"] * 2
            for cycle in (thought, *thought.cycles):
                assert not {"_tmp_synthesis_", "facets", "parts", "answer"} & set(cycle._slots)
            labels = {entry.label.split(" ")[0] for entry in journal.load(root, "m1")}
            assert labels == {"1", "1.1", "1.2"}

        kernel.image.read(check)
        assert (await kernel.image.system(lambda root: ledger.describe(ledger.mission_of(root, "m1")))).state == "COMPLETE"


async def test_a_brief_stays_shared_out_as_it_was(tmp_path: Path) -> None:
    """What would share it out otherwise may change between a kill and the restart; what was paid for is found all the same."""
    for first, then in ((3, 1), (1, 3)):
        inference = FakeInference()
        inference.fail_when = lambda request: InferenceFailed("gone", cause="unreachable") if "Notes to use" in request.user else None
        async with mind(tmp_path / str(first), inference, retry_backoff_s=600, shutdown_s=0.1, voices_limit=first) as kernel:
            await submit(kernel, "m1", TWO)
            async with asyncio.timeout(90):
                while not kernel.image.read(lambda root: ledger.failures(root, limit=1)):
                    await asyncio.sleep(0.01)
        again = FakeInference()
        async with mind(tmp_path / str(first), again, voices_limit=then) as kernel:
            result = (await Listened(kernel, "m1").end())["result"]
            assert (result["plan"] == "personas") is (first == 3)
            assert result["usage"]["replayed"] == inference.answered


async def test_an_explicit_choice_and_a_depth_of_one_keep_one_persona(tmp_path: Path) -> None:
    async with mind(tmp_path / "a", FakeInference()) as kernel:
        end = await (await submit(kernel, "m1", TWO, persona="robin")).end()
        assert end["result"]["plan"] == "model"
    async with mind(tmp_path / "b", FakeInference(), cycle_depth=1) as kernel:
        end = await (await submit(kernel, "m1", TWO)).end()
        assert end["result"]["plan"] == "model"


async def test_a_persona_that_fails_is_silent_and_said_to_be(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: (
        InferenceFailed("no", cause="refused") if request.system.startswith("You are BRICK") and "Then plan" in request.user else None
    )
    async with mind(tmp_path, inference) as kernel:
        end = await (await submit(kernel, "m1", TWO)).end()
        if end["persona"] != "BRICK":
            assert end["result"]["silent"] == ["brick"]
        thought = kernel.image.read(lambda root: ledger.mission_of(root, "m1").thought.silent)
        assert thought[0][0] == "brick"
        assert thought[0][1].startswith("inference_failed: ")


async def test_both_must_speak_where_the_quorum_says_so(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: (
        InferenceFailed("no", cause="refused") if request.system.startswith("You are ROBIN") and "lonely" in request.user else None
    )
    async with mind(tmp_path, inference) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"].psm.DELEGATING, "quorum", 2))
        end = await (await submit(kernel, "m1", TWO)).end()
        assert end["error"]["code"] == "inference_failed"


async def test_a_message_that_sends_itself_comes_to_an_end(tmp_path: Path) -> None:
    """A persona whose cycle sends the same message again: bounded by depth, not by the stack."""
    from batos.mind import psm
    from batos.mind.messages import send
    from batos.objects import Primitive, UvmObject

    async def again(cycle: UvmObject) -> str:
        await send(cycle.persona, "synthesize_response_for_", cycle.brief)
        return "DECOMPOSING"

    Primitive.register("test.again")(again)
    assert psm.STATES["IDLE"]["behaviour"] is psm.idle
    async with mind(tmp_path, FakeInference(), cycle_depth=3) as kernel:
        await kernel.image.system(lambda root: setattr(root["lobby"].psm.IDLE, "behaviour", Primitive.of(again)))
        end = await (await submit(kernel, "m1", "I feel stuck")).end()
        assert end["error"]["code"] == "budget_spent"
        assert "is inside more than" in end["error"]["message"]
