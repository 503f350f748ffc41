"""Answers that may be none to their brief: refused once, and kept as what is not sure where nothing better is at hand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import rollback_monitor
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.mind import answer_checks
from tests.support.missions import FakeInference, answer, mind, submit

BRIEF = "How do I sharpen the iron of my wooden plane by hand?"
ON_IT = (
    "Lay the iron flat on a coarse stone, draw it towards you, and then take the finer stones, one after "
    "the other, until all of the edge is bright."
)
FOREIGN = (
    "The mayor opened the new swimming pool on Saturday, and hundreds of children came with their towels "
    "and balls, and they did not want to go."
)
OTHER = (
    "A choir from the next village sang old songs about the sea while everybody was waiting for the rain "
    "to stop, and that took them two hours."
)
GARBAGE = "xkqzrtv bncvdfg qwrtpsd fghjklz " * 5
GERMAN = "Das ist nicht so schwer, wie du glaubst: Du legst das Eisen auf den Stein und ziehst es zu dir, bis es scharf ist."


def meant(text: str) -> list[float]:
    """An embedding by subject: what is foreign to the brief stands at right angles to it."""
    return [0.0, 1.0] if text.lower().startswith(("the mayor", "a choir")) else [1.0, 0.1]


def saying(*answers: str, facets: str = ON_IT) -> FakeInference:
    """A model that gives these answers to the brief, one after the other, and this one in each facet."""
    left, inference = list(answers), FakeInference()
    inference.embedder = meant

    def say(request: ChatRequest) -> str:
        if request.schema is not None:
            return answer(request)
        return facets if "Work on this part" in request.user else left.pop(0)

    inference.say = say
    return inference


async def ended(folder: Path, inference: FakeInference, brief: str = BRIEF, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    async with mind(folder, inference, **{"depth": "direct", **more}) as kernel:
        heard = await submit(kernel, "m1", brief)
        return await heard.end(), heard.events


async def test_an_answer_that_has_nothing_to_do_with_the_brief_is_asked_for_once_more(tmp_path: Path) -> None:
    end, events = await ended(tmp_path, inference := saying(FOREIGN, ON_IT))
    assert end["result"]["text"] == ON_IT
    assert "unsure" not in end["result"]
    first, second = inference.asked
    assert answer_checks.FOREIGN not in first.user
    assert f"refused because {answer_checks.FOREIGN}" in second.user
    kinds = [event["type"] for event in events]
    (revised,) = [event for event in events if event["type"] == "revised"]
    assert (revised["why"], revised["cycle"], revised["state"]) == (answer_checks.FOREIGN, "1", "SYNTHESIZING")
    at = kinds.index("revised")
    assert "token" in kinds[:at]
    assert "token" in kinds[at:], "what comes after it is the other answer"


async def test_where_both_are_foreign_the_last_one_is_kept_and_not_sure(tmp_path: Path) -> None:
    end, _ = await ended(tmp_path, saying(FOREIGN, OTHER))
    assert (end["state"], end["result"]["text"], end["result"]["unsure"]) == ("COMPLETE", OTHER, answer_checks.FOREIGN)


async def test_what_can_be_read_is_kept_rather_than_garbage(tmp_path: Path) -> None:
    end, _ = await ended(tmp_path, saying(FOREIGN, GARBAGE))
    assert (end["result"]["text"], end["result"]["unsure"]) == (FOREIGN, answer_checks.FOREIGN)


async def test_of_garbage_nothing_is_kept(tmp_path: Path) -> None:
    end, _ = await ended(tmp_path, saying(GARBAGE, GARBAGE))
    assert end["error"]["code"] == "quality_refused"


async def test_an_answer_in_another_language_is_kept_and_not_sure(tmp_path: Path) -> None:
    end, _ = await ended(tmp_path, saying(GERMAN, GERMAN), "What is the best way to sharpen this by hand?")
    assert end["result"]["unsure"] == "it is in German and the request is in English"


@pytest.mark.parametrize("woven", [(GARBAGE, GARBAGE), (FOREIGN, OTHER)])
async def test_the_answer_of_a_facet_that_stands_all_checks_is_the_best_at_hand(tmp_path: Path, woven: tuple[str, str]) -> None:
    end, _ = await ended(tmp_path, saying(*woven), depth="facets")
    assert end["result"]["text"] == ON_IT
    assert re.fullmatch(
        "what was made of all notes was refused twice, the last time because .*; this is what [a-z ]+ said", end["result"]["unsure"]
    )


async def test_without_an_embedder_nothing_is_foreign(tmp_path: Path) -> None:
    inference = saying(FOREIGN)
    inference.embedder = None
    end, _ = await ended(tmp_path, inference)
    assert (end["result"]["text"], end["result"].get("unsure")) == (FOREIGN, None)


async def test_an_answer_with_words_of_its_brief_needs_no_embedder(tmp_path: Path) -> None:
    inference = saying(f"To sharpen a wooden plane: {ON_IT}")
    end, _ = await ended(tmp_path, inference)
    assert end["result"]["text"].startswith("To sharpen")
    assert not any("To sharpen" in text for text in inference.embedded)


async def test_whoever_has_a_critic_gets_no_answer_that_is_not_sure(tmp_path: Path) -> None:
    end, _ = await ended(tmp_path, saying(FOREIGN, OTHER), critic="on")
    assert end["error"]["code"] == "quality_refused"


async def test_a_refused_answer_is_not_paid_again_after_the_attempt_died(tmp_path: Path) -> None:
    inference = saying(FOREIGN, ON_IT)
    failures = [InferenceFailed("the model is away", cause="unreachable", model="robin")]
    inference.fail_when = lambda request: failures.pop() if failures and "refused because" in request.user else None
    end, _ = await ended(tmp_path, inference)
    assert end["result"]["text"] == ON_IT
    assert ["refused because" in request.user for request in inference.asked] == [False, True, True]


async def test_words_and_length_decide_before_an_embedder_is_asked() -> None:
    asked: list[Sequence[str]] = []

    async def nearness(text: str, others: Sequence[str]) -> float:
        asked.append(others)
        return 0.0

    assert not await answer_checks.is_foreign("Canberra.", ["What is the capital of Australia?"], nearness)
    assert not await answer_checks.is_foreign(f"To sharpen a wooden plane: {ON_IT}", [BRIEF], nearness)
    assert not await answer_checks.is_foreign(FOREIGN, ["Surprise me"], nearness)
    assert not await answer_checks.is_foreign(" ".join(["- eggs\n- milk\n- bread\n"] * 10), [BRIEF], nearness)
    assert asked == []
    before = "User: What is a good stone for that?"
    assert await answer_checks.is_foreign(FOREIGN, [BRIEF, before, "Go on"], nearness)
    assert asked == [[BRIEF, before]]


def test_the_leash_counts_what_is_not_sure_as_it_counts_failures() -> None:
    limits = rollback_monitor.EffectLimits(missions=3, failures=0.2, slower=2.0, fall=0.1)
    good, unsure = rollback_monitor.Sample("client brief", False, 1.0, 0.5), rollback_monitor.Sample("client brief", True, 1.0, 0.5)
    found = rollback_monitor.effect_between([good] * 20, [unsure] * 4, limits)
    assert found.worse == ("client brief: 4 of 4 FAILED or unsure; before, 0 of 20",)


async def test_what_was_found_foreign_is_so_in_a_replay_and_after_a_restart_too(tmp_path: Path) -> None:
    inference = saying(FOREIGN, ON_IT)
    async with mind(tmp_path, inference, depth="direct") as kernel:
        heard = await submit(kernel, "m1", BRIEF)
        assert (await heard.end())["result"]["text"] == ON_IT
        inference.embedder = None
        replayed = await kernel.replays.replay("m1")
    assert (replayed["outcome"], replayed["unused"]) == ("same", 0)


async def test_an_answer_that_was_refused_stays_so_where_the_embedder_is_away_after_the_attempt_died(tmp_path: Path) -> None:
    inference = saying(FOREIGN)
    first = inference.say

    def say(request: ChatRequest) -> str:
        inference.hold()  # from the next one on
        return first(request)

    inference.say = say
    async with mind(tmp_path, inference, depth="direct") as kernel:
        await submit(kernel, "m1", BRIEF)
        await inference.came(2)
        kernel.scheduler.hurry()
    again = saying(ON_IT)
    again.embedder = None
    async with mind(tmp_path, again, depth="direct") as kernel:
        await kernel.scheduler.quiet()
    (request,) = again.asked
    assert "refused because" in request.user
