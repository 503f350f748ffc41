"""Briefs that a method answers, and those that none does, though they come near."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.image import taught_examples
from batos.image.mission_record import MissionRecord
from batos.mind import rule_answers
from batos.mind.attempt import Attempt
from batos.objects import Method
from tests.support.missions import FakeInference, mind, submit

METHODS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "celsius_": (
        "def celsius_(self, number):\n    return (number - 32) * 5 / 9\n", "Fahrenheit to Celsius", [{"args": [212], "result": 100.0}]
    ),
    "count_words_": (
        "def count_words_(self, text):\n    return len(text.split())\n", "the number of words in a text", [{"args": ["a b"], "result": 2}]
    ),
    "total_price_": (
        "def total_price_(self, items):\n    return sum(items)\n", "the total price of items", [{"args": [[1, 2]], "result": 3}]
    ),
    "difference_": (
        "def difference_(self, number, number2):\n    return number - number2\n",
        "the plain difference of numbers", [{"args": [5, 3], "result": 2}],
    ),
    "repeat_word_": (
        "def repeat_word_(self, text, number):\n    return text * number\n", "repeat a word", [{"args": ["a", 2], "result": "aa"}]
    ),
    "broken_share_": (
        "def broken_share_(self, number):\n    return 1 // (number - number)\n", "the broken share", [{"args": [1], "result": 1}]
    ),
    "keep_mood_": (
        "def keep_mood_(self, text):\n    self.mood = text\n    self._p_changed = True\n    return text\n",
        "keep a mood", [{"args": ["calm"], "result": "calm"}],
    ),
}  # fmt: skip


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    def teach(root: Any) -> None:
        brick = root["lobby"].brick
        for selector, (source, intent, taught) in METHODS.items():
            contract = {"writes": ("mood",)} if "mood" in selector else {}
            brick._slots[selector] = Method(selector, source, contract=contract, provenance={"intent": intent, "open": ()})
            taught_examples.teach(root, brick._p_oid, selector, taught, intent, 8)

    async with mind(tmp_path, inference) as kernel:
        await kernel.image.system(teach)
        yield kernel


def called(kernel: Kernel, brief: str, **options: Any) -> tuple[str, tuple[Any, ...]] | None:
    def look(root: Any) -> tuple[str, tuple[Any, ...]] | None:
        attempt = kernel.scheduler.attempt(_record(brief, **options))
        assert isinstance(attempt, Attempt)
        found = rule_answers.method_call_for(root["lobby"], attempt, brief)
        return None if found is None else (found.selector, found.args)

    return kernel.image.read(look)  # type: ignore[no-any-return]


def _record(brief: str, **options: Any) -> MissionRecord:
    return MissionRecord(id="m1", brief=brief, accepted=1.0, number=1, **options)


@pytest.mark.parametrize(
    ("brief", "selector", "args"),
    [
        ("Convert 50 Fahrenheit to Celsius", "celsius_", (50,)),
        ("What is 50 Fahrenheit in Celsius?", "celsius_", (50,)),
        ("please give me -40.5 fahrenheit as celsius.", "celsius_", (-40.5,)),
        ("Count the words in 'the quick brown fox'", "count_words_", ("the quick brown fox",)),
        ("Count the words: the quick brown fox", "count_words_", ("the quick brown fox",)),
        ("What is the total price of 2, 3.5 and 4?", "total_price_", ([2, 3.5, 4],)),
        ("What is the total price of [2, 3]?", "total_price_", ([2, 3],)),
        ("the plain difference of 10 and 3", "difference_", (10, 3)),
        ("Repeat the word 'ab', 3", "repeat_word_", ("ab", 3)),
    ],
)
async def test_a_brief_that_a_method_answers(kernel: Kernel, brief: str, selector: str, args: tuple[Any, ...]) -> None:
    assert called(kernel, brief) == (selector, args)


@pytest.mark.parametrize(
    "brief",
    [
        "Convert 50 Celsius to Fahrenheit",
        "How many Fahrenheit is 50 Celsius?",
        "How many Celsius are 50 Kelvin?",
        "Convert 50 and 60 Fahrenheit to Celsius",
        "Convert fifty Fahrenheit to Celsius",
        "Convert 50% Fahrenheit to Celsius",
        "Convert 1,000 Fahrenheit to Celsius",
        "Convert 2024-01-02 Fahrenheit to Celsius",
        "Convert 50 Fahrenheit to Celsius and write a poem about it",
        "Why is 50 Fahrenheit not 50 Celsius?",
        "How do I convert 50 Fahrenheit to Celsius?",
        "Do not convert 50 Fahrenheit to Celsius",
        "Explain Fahrenheit and Celsius",
        "Celsius 50",
        "Count the words",
        "Count the words in 'a b' and 'c d'",
        "the plain difference of 10 from 3",
        "the plain difference between 10 and 3 apples",
        "Keep the mood 'calm'",
        "I feel stuck",
        "",
    ],
)
async def test_when_in_doubt_it_does_not_call(kernel: Kernel, brief: str) -> None:
    assert called(kernel, brief) is None


@pytest.mark.parametrize(
    ("option", "calls"),
    [
        ({"depth": "auto"}, True),
        ({"depth": "facets"}, False),
        ({"persona": "robin"}, False),
        ({"schema": {"type": "number"}}, False),
        ({"context": "m0"}, False),
        ({"images": [{"digest": "0" * 64, "name": "thermometer.png"}]}, False),
        ({"origin": "system"}, False),
        ({"origin": "hook"}, False),
        ({"origin": "folder"}, False),
    ],
)
async def test_who_asked_for_thought_gets_it(kernel: Kernel, option: dict[str, Any], calls: bool) -> None:
    assert called(kernel, "Convert 50 Fahrenheit to Celsius", **option) == (("celsius_", (50,)) if calls else None)


async def test_two_that_could_be_meant_are_a_doubt(kernel: Kernel) -> None:
    def again(root: Any) -> None:
        robin, (source, intent, taught) = root["lobby"].robin, METHODS["celsius_"]
        robin._slots["celsius_"] = Method("celsius_", source, provenance={"intent": intent})
        taught_examples.teach(root, robin._p_oid, "celsius_", taught, intent, 8)

    await kernel.image.system(again)
    assert called(kernel, "Convert 50 Fahrenheit to Celsius") is None


async def test_what_nobody_vouches_for_or_leaves_something_open_is_not_called(kernel: Kernel) -> None:
    def change(root: Any) -> None:
        brick, (source, intent, _) = root["lobby"].brick, METHODS["celsius_"]
        brick._slots["celsius_"] = Method("celsius_", source, provenance={"intent": intent, "open": ("{}",)})
        root["lobby"].kelvin_celsius_ = Method("kelvin_celsius_", "def kelvin_celsius_(self, number):\n    return number\n")

    await kernel.image.system(change)
    assert called(kernel, "Convert 50 Fahrenheit to Celsius") is None
    assert called(kernel, "Convert 50 Kelvin to Celsius") is None


async def test_a_mission_is_answered_by_the_method_and_costs_no_inference(kernel: Kernel, inference: FakeInference) -> None:
    heard = await submit(kernel, "m1", "Convert 50 Fahrenheit to Celsius")
    result = (await heard.end())["result"]
    assert (result["text"], result["value"], result["usage"]["inferences"], inference.asked) == ("10.0", 10.0, 0, [])
    assert (result["called"]["selector"], result["called"]["name"], result["called"]["args"]) == ("celsius_", "BRICK", [50])
    assert heard.states == ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]
    assert (await kernel.replays.replay("m1"))["outcome"] == "same"


async def test_a_method_that_fails_leaves_it_to_the_model(kernel: Kernel, inference: FakeInference) -> None:
    assert called(kernel, "What is the broken share of 5?") == ("broken_share_", (5,))
    result = (await (await submit(kernel, "m1", "What is the broken share of 5?")).end())["result"]
    assert "called" not in result
    assert len(inference.asked) == 1


async def test_off_calls_none(kernel: Kernel) -> None:
    attempt = kernel.scheduler.attempt(_record("Convert 50 Fahrenheit to Celsius"))
    attempt.settings = attempt.settings.model_copy(update={"call_methods": "off"})
    assert kernel.image.read(lambda root: rule_answers.method_call_for(root["lobby"], attempt, "Convert 50 Fahrenheit to Celsius")) is None
