"""Methods that are known, in missions: taken at once, after a refused draft, or casting doubt on one; and what words say of nothing."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.forge import candidate_search, method_prompts
from batos.forge.candidate_search import specification_of
from batos.image import taught_examples
from batos.objects import Example, Intent, Method, UvmObject
from batos.synthesis.batch_runner import BatchRunner
from tests.support import missions
from tests.support.method_writer import DOUBLE, hire, writing
from tests.support.methods import give, method_of, sent
from tests.support.missions import FakeInference

LARGEST = "def largest_(self, items):\n    return max(items)\n"


def mind(folder: Path, inference: FakeInference, **settings: Any) -> AbstractAsyncContextManager[Kernel]:
    """A mind whose searches are a fifteenth as long: what is found here is found soon."""
    return missions.mind(folder, inference, **{"synthesis_parts": 20_000, **settings})


async def taught(kernel: Any, selector: str, intent: str, *told: Example, **slots: Any) -> None:
    """A thing that was taught what a message is for, and an expert that writes what it is told to."""
    await give(kernel, **slots)
    await hire(kernel)

    def teach(root: Any) -> None:
        taught_examples.teach(root, root["lobby"].thing._p_oid, selector, [one.to_json() for one in told], intent, 16)

    await kernel.image.system(teach)


async def test_what_the_handbook_tells_word_for_word_asks_no_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, LARGEST)
    async with mind(tmp_path, inference) as kernel:
        await taught(kernel, "twice_", "twice the number", Example((5,), (), 10))
        end = await sent(kernel, "m1", "thing", "twice_", 3)
        assert (end["result"]["value"], asked) == (6, [])
        assert end["result"]["wrote"][0] == {**end["result"]["wrote"][0], "tries": 1, "edited": False}
        kept = method_of(kernel, "thing", "twice_")
        assert (kept["model"], kept["model_digest"], kept["edited"], kept["intent"]) == ("handbook", "", False, "twice the number")


async def test_what_it_tells_is_taken_only_if_every_example_says_so(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def twice_(self, number):\n    return number * 2 + (number > 40) * 17\n")
    async with mind(tmp_path, inference, synthesis_parts=0) as kernel:
        await taught(kernel, "twice_", "twice the number", Example((5,), (), 10), Example((50,), (), 117))
        assert (await sent(kernel, "m1", "thing", "twice_", 3))["result"]["value"] == 6
        assert len(asked) == 1


@pytest.mark.parametrize(
    ("intent", "told", "call", "slots"),
    [
        ("whether songs has a text", Example(("ab",), (), True, (("songs", ["ab"]),)), "ab", {"songs": ["ab"]}),  # most answer true
        ("удвоить число", Example((5,), (), 10), 5, {}),  # what the handbook cannot read
        ("café: twice the number", Example((5,), (), 10), 5, {}),
        (
            "twice the number, as price_ has it",
            Example((5,), (), 10),
            5,
            {"price_": Method("price_", "def price_(self, number):\n    return self.twice_(number)")},
        ),  # it sends, too
    ],
)
async def test_what_is_told_in_part_only_is_left_to_the_model(
    tmp_path: Path, intent: str, told: Example, call: Any, slots: dict[str, Any]
) -> None:
    inference = FakeInference()
    asked = writing(inference, f"def twice_(self, number):\n    return {told.result!r}\n")
    async with mind(tmp_path, inference) as kernel:
        await taught(kernel, "twice_", intent, told, **slots)
        assert (await sent(kernel, "m1", "thing", "twice_", call))["result"]["value"] == told.result
        assert len(asked) == 1


async def test_what_is_taken_and_refused_by_the_call_is_no_try_of_the_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def twice_(self, other):\n    return 10\n")
    async with mind(tmp_path, inference, synthesis_expert_tries=1) as kernel:
        await taught(kernel, "twice_", "twice the number", Example((5,), (), 10))
        end = await sent(kernel, "m1", "thing", "twice_", None)
        assert (end["result"]["value"], len(asked), end["result"]["wrote"][0]["tries"]) == (10, 1, 1)


async def test_it_can_be_left_to_the_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, DOUBLE)
    async with mind(tmp_path, inference, synthesis_reuse=0, synthesis_parts=0) as kernel:
        await taught(kernel, "twice_", "twice the number", Example((5,), (), 10))
        assert (await sent(kernel, "m1", "thing", "twice_", 3))["result"]["value"] == 6
        assert len(asked) == 1


async def test_after_a_refused_draft_a_method_is_found_by_what_it_does(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def label_(self, text):\n    return text\n")
    async with mind(tmp_path, inference, synthesis_parts=0) as kernel:
        await taught(kernel, "label_", "a short slug for café headlines", Example(("The Red Fox Runs",), (), "the-red-fox-runs"))
        end = await sent(kernel, "m1", "thing", "label_", "A Fox")
        assert (end["result"]["value"], len(asked)) == ("a-fox", 1)
        kept = method_of(kernel, "thing", "label_")
        assert (kept["model"], kept["tries"], kept["edited"]) == ("handbook", 1, False)


async def test_a_method_that_is_known_casts_doubt_on_another(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def label_(self, text):\n    return text.lower().replace(' ', '-')\n")
    async with mind(tmp_path, inference, synthesis_parts=0) as kernel:
        await taught(
            kernel,
            "label_",
            "a slug of a café: its words in small letters, joined by dashes",
            Example(("The Red Fox Runs",), (), "the-red-fox-runs"),
        )
        (wrote,) = (await sent(kernel, "m1", "thing", "label_", " A  Fox"))["result"]["wrote"]
        assert {one["result"] for one in wrote["open"]} == {"-a--fox", "a-fox"}


ROWS = [{"name": "Ann", "city": "Rome"}, {"name": "Bob", "city": "Romeo"}, {"name": "Abe", "city": "Rome"}]
IN_CITY = Example((ROWS, "Rome"), (), ["Abe", "Ann"])


async def test_what_can_be_put_together_of_parts_asks_no_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def names_of_city_(self, items, text):\n    return ['Abe', 'Ann']\n")
    async with mind(tmp_path, inference, synthesis_reuse=1, synthesis_parts=60_000) as kernel:
        await taught(kernel, "names_of_city_", "the sorted names whose city is the text", IN_CITY)
        end = await sent(kernel, "m1", "thing", "names_of_city_", ROWS, "Romeo")
        assert (end["result"]["value"], asked) == (["Bob"], [])
        kept = method_of(kernel, "thing", "names_of_city_")
        assert (kept["model"], kept["model_digest"], kept["tries"], kept["edited"]) == ("parts", "", 1, False)


@pytest.mark.parametrize(
    ("intent", "told"),
    [
        ("the sorted names whose city is the text, as price_ has it", IN_CITY),  # names a message
        ("имена по городу", IN_CITY),  # words that nobody here reads
        ("some names", Example((ROWS[:1], "Rome"), (), ["Ann"])),  # the first item has it, too
    ],
)
async def test_what_tells_too_little_is_left_to_the_model(tmp_path: Path, intent: str, told: Example) -> None:
    inference = FakeInference()
    asked = writing(inference, f"def names_of_city_(self, items, text):\n    return {told.result!r}\n")
    async with mind(tmp_path, inference, synthesis_reuse=1) as kernel:
        await taught(kernel, "names_of_city_", intent, told, price_=Method("price_", "def price_(self):\n    return 1"))
        assert (await sent(kernel, "m1", "thing", "names_of_city_", ROWS, "Rome"))["result"]["value"] == told.result
        assert len(asked) == 1


async def test_after_a_refused_draft_a_method_is_put_together(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def bill_(self, items):\n    return 0\n")
    rows = [{"price": 3, "count": 141, "name": "pen"}, {"price": 5, "count": 17, "name": "pad"}]
    async with mind(tmp_path, inference) as kernel:
        await taught(kernel, "bill_", "résumé of the total of price times count", Example((rows,), (), 508))
        end = await sent(kernel, "m1", "thing", "bill_", rows[:1])
        assert (end["result"]["value"], len(asked)) == (423, 1)
        assert (method_of(kernel, "thing", "bill_")["model"], end["result"]["wrote"][0]["tries"]) == ("parts", 1)


def test_how_likely_it_is_follows_from_share_cost_and_words() -> None:
    few = specification_of(UvmObject(), "total_", ([3, 541],), {}, intent="the total price", examples=[Example(([3, 541],), (), 544)])
    more = few._replace(known=few.known._replace(told=f"{few.known.told} of what is on the table and was not paid for yesterday morning"))
    endless = few._replace(known=few.known._replace(told=" ".join(f"word{n}" for n in range(9999))))
    assert 0 < candidate_search.chance(0.9, 1.0, endless) < 0.5
    little = few._replace(examples=[(few.examples[0][0], Example(([3, 5],), (), 8))])
    assert candidate_search.chance(0.9, 1.0, few) > 0.9 > candidate_search.chance(0.3, 4.0, few)
    for other in (
        candidate_search.chance(0.8, 1.0, few),
        candidate_search.chance(0.9, 2.0, few),
        *(candidate_search.chance(0.9, 1.0, what) for what in (more, little)),
    ):
        assert 0 < other < candidate_search.chance(0.9, 1.0, few)


@pytest.mark.parametrize("likely", [True, False])
async def test_once_every_draft_was_refused_what_is_likeliest_is_taken(tmp_path: Path, monkeypatch: Any, likely: bool) -> None:
    inference = FakeInference()
    asked = writing(inference, "def total_(self, items):\n    return 0\n")
    for name in ("AT_ONCE", "_AFTER"):
        monkeypatch.setattr(candidate_search, name, 1.1)
    if not likely:
        monkeypatch.setattr(candidate_search, "_LAST", 1.1)
    rows = [{"price": 3, "name": "pen"}, {"price": 541, "name": "pad"}]
    async with mind(tmp_path, inference, synthesis_expert_tries=1, synthesis_edits=1) as kernel:
        await taught(kernel, "total_", "the total price", Example((rows,), (), 544))
        end = await sent(kernel, "m1", "thing", "total_", rows[:1])
        if likely:
            assert (end["result"]["value"], len(asked)) == (3, 1)
            assert end["result"]["wrote"][0] == {**end["result"]["wrote"][0], "tries": 1, "edited": False}
            assert method_of(kernel, "thing", "total_")["model"] in ("parts", "handbook")
        else:
            assert end["error"]["code"] == "method_refused"
            assert "answered 0 and not 544" in end["error"]["message"]


@pytest.mark.parametrize(
    ("draft", "words", "example", "call", "nothing", "answer"),
    [
        (LARGEST, "the largest of the list, -1 if it is empty", Example(([3, 712],), (), 712), ([3, 9],), ([],), -1),
        (
            "def largest_(self, items, number):\n    return max(one for one in items if one < number)\n",
            "the largest below a number, 0 if there is none",
            Example(([3, 712], 700), (), 3),
            ([3, 9], 9),
            ([3, 9], 2),
            0,
        ),
        (
            "def largest_(self, record, text):\n    return record.get(text)\n",
            "the largest so far of a name, or not found if it is not there",
            Example(({"Ann": 712}, "Ann"), (), 712),
            ({"Bob": 9}, "Bob"),
            ({"Bob": 9}, "Ann"),
            "not found",
        ),
        (
            "def largest_(self, items):\n    return ', '.join(one for one in items if len(one) > 3)\n",
            "the larger words joined by commas, or 'nobody'",
            Example((["Anna", "Ute", "Robert"],), (), "Anna, Robert"),
            (["Hans"],),
            (["Ute"],),
            "nobody",
        ),
    ],
)
async def test_what_words_say_of_nothing_completes_a_draft(
    tmp_path: Path, draft: str, words: str, example: Example, call: tuple[Any, ...], nothing: tuple[Any, ...], answer: Any
) -> None:
    inference = FakeInference()
    asked = writing(inference, draft)
    async with mind(tmp_path, inference, synthesis_reuse=0, synthesis_parts=0) as kernel:
        await taught(kernel, "largest_", words, example)
        assert (await sent(kernel, "m1", "thing", "largest_", *call))["state"] == "COMPLETE"
        assert (await sent(kernel, "m2", "thing", "largest_", *nothing))["result"]["value"] == answer
        assert (await sent(kernel, "m3", "thing", "largest_", *example.args))["result"]["value"] == example.result
        assert len(asked) == 1
        assert method_of(kernel, "thing", "largest_")["edited"]


async def test_what_an_example_says_counts_more_than_words(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def largest_(self, items):\n    return max(items, default=7)\n")
    told = Example(([3, 712],), (), 712), Example(([],), (), 7)
    async with mind(tmp_path, inference, synthesis_reuse=0, synthesis_parts=0) as kernel:
        await taught(kernel, "largest_", "the largest of the list, -1 if it is empty", *told)
        assert (await sent(kernel, "m1", "thing", "largest_", []))["result"]["value"] == 7
        assert not method_of(kernel, "thing", "largest_")["edited"]


async def test_a_mission_cancelled_while_known_methods_are_tried_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE)
    reached, never = asyncio.Event(), asyncio.Event()

    async def held(*_: Any, **__: Any) -> Any:
        reached.set()
        await never.wait()

    async with mind(tmp_path, inference) as kernel:
        await taught(kernel, "twice_", "twice the number", Example((5,), (), 10), twice_=Intent("twice the number"))
        with monkeypatch.context() as patched:
            patched.setattr(BatchRunner, "outcomes", held)
            sending = asyncio.create_task(sent(kernel, "m1", "thing", "twice_", 7))
            await reached.wait()
            assert await kernel.scheduler.cancel("m1")
            assert (await sending)["state"] == "FAILED"
        assert isinstance(kernel.image.read(lambda root: root["lobby"].thing._slots["twice_"]), Intent)
        assert (await sent(kernel, "m2", "thing", "twice_", 7))["result"]["value"] == 14


async def test_without_an_example_nothing_is_taken_from_the_handbook(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await taught(kernel, "twice_", "twice the number")
        assert (await sent(kernel, "m1", "thing", "twice_", 7))["result"]["value"] == 14
        assert {request.system for request in asked} == {method_prompts.COMPACT_SYSTEM}
