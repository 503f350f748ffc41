"""An expert writes methods: which model is asked, in which words, and how many candidates agree."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import ImageDamaged
from batos.forge import method_prompts, versions
from batos.forge.method_prompts import WantedMethod
from batos.image import history, ledger, taught_examples
from batos.objects import Example, Intent, Method, UvmObject
from batos.synthesis.batch_runner import BatchRunner
from batos.synthesis.handbook import NEAR
from batos.training.dataset import HARD_FROM_IMAGE, answered, as_read, pairs_from_image
from tests.support import missions
from tests.support.method_writer import DOUBLE, EXPERT, SQUARE, hire, teach, writing
from tests.support.methods import give, method_of, sent
from tests.support.missions import FakeInference, submit

TRIPLE = "def twice_(self, number):\n    return number * 3\n"


def mind(folder: Path, inference: FakeInference, **settings: Any) -> AbstractAsyncContextManager[Kernel]:
    """A mind that leaves what it knows to the model, if nothing else is said."""
    return missions.mind(folder, inference, **{"synthesis_reuse": 0, "synthesis_parts": 0, **settings})


async def test_an_expert_is_asked_in_few_words_and_three_candidates_are_compared(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, SQUARE, DOUBLE, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number of doves"), total=3)
        await hire(kernel)
        end = await sent(kernel, "m1", "thing", "twice_", 5)
        assert end["result"]["value"] == 10, "two of three doubled"
        assert end["result"]["wrote"][0] == {**end["result"]["wrote"][0], "tries": 3, "candidates": 3, "agreed": 2}
        assert [request.model for request in asked] == [EXPERT] * 3
        parts = [request.user.split("\n\n") for request in asked]
        assert {one[-1] for one in parts} == {"def twice_(self, number):\ntwice the number of doves\nself.total = 3\ncalled with 5"}
        shown = [one[:-1] for one in parts]
        assert [len(one) for one in shown] == [NEAR] * 3
        assert all(one.startswith("# ") and "\ndef " in one for near in shown for one in near), "methods of the handbook"
        assert len(set(map(tuple, shown))) == 2, "others by turns"
        options = [dict(request.options) for request in asked]
        assert [one["temperature"] for one in options] == [0.0, 0.0, 0.4]
        assert len({one["seed"] for one in options}) == 3
        assert {one["repeat_penalty"] for one in options} == {1.0}
        kept = method_of(kernel, "thing", "twice_")
        assert (kept["candidates"], kept["agreed"], kept["model"]) == (3, 2, EXPERT)


async def test_an_example_decides_and_no_candidates_are_needed(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, SQUARE, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        end = await sent(kernel, "m1", "thing", "twice_", 7)
        assert end["result"]["value"] == 14
        assert len(asked) == 2, "the first was refused by the example"
        assert "twice_(5) -> 10" in asked[0].user
        assert asked[0].user.split("\n\n")[-1] == asked[1].user.split("\n\n")[-1], "an expert is asked the same again"
        assert end["result"]["wrote"][0]["candidates"] == 1


@pytest.mark.parametrize(
    ("taught", "constant"),
    [
        ([Example((5,), (), True)], True),
        ([Example((5,), (), None), Example((6,), (), None)], True),
        ([Example((5,), (), True), Example((6,), (), False)], False),
        ([Example((5,), (), 1)], False),
        ([Example((5,), (), None, (), (("total", 8),))], False),
        ([], False),
    ],
)
def test_an_answer_of_true_false_or_nothing_tells_little(taught: list[Example], constant: bool) -> None:
    assert taught_examples.all_constant(taught) is constant


async def test_a_method_tells_that_its_example_tells_little(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def odd_(self, number):\n    return number > 3\n")
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, odd_=Intent("whether the number is odd"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), True), "odd_")
        assert (await sent(kernel, "m1", "thing", "odd_", 7))["state"] == "COMPLETE"
        assert method_of(kernel, "thing", "odd_")["constant"]


async def test_when_the_tries_are_spent_what_there_is_is_taken(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE, "no method at all")
    async with mind(tmp_path, inference, synthesis_expert_tries=2) as kernel:
        await give(kernel)
        await hire(kernel)
        end = await sent(kernel, "m1", "thing", "twice_", 5)
        assert end["result"]["value"] == 10
        assert end["result"]["wrote"][0] == {**end["result"]["wrote"][0], "tries": 2, "candidates": 1, "agreed": 1}


async def test_a_draft_that_was_refused_before_is_no_further_try(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, SQUARE, SQUARE, SQUARE, DOUBLE)
    async with mind(tmp_path, inference, synthesis_expert_tries=2) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        end = await sent(kernel, "m1", "thing", "twice_", 7)
        assert end["result"]["value"] == 14
        assert end["result"]["wrote"][0]["tries"] == 2
        draws = {(request.user, dict(request.options)["seed"]) for request in asked}
        assert len(draws) == len(asked) == 4, "each is another draw"


async def test_it_is_asked_with_another_draw_and_with_others_of_the_handbook_by_turns(tmp_path: Path) -> None:
    inference, views = FakeInference(), len(method_prompts.VIEWS)
    asked = writing(inference, *(f"def twice_(self, number):\n    return number + {n}\n" for n in range(20, 60)))
    async with mind(tmp_path, inference, synthesis_expert_tries=2 * views, synthesis_edits=0) as kernel:
        await give(kernel, twice_=Intent("twice the number of doves"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        assert (await sent(kernel, "m1", "thing", "twice_", 7))["error"]["code"] == "method_refused"
    assert len(asked) == len({one.user + str(dict(one.options)) for one in asked}) == 2 * views
    nearest, others = asked[0::2], asked[1::2]
    assert {one.user for one in nearest} == {asked[0].user}
    assert [dict(one.options)["temperature"] for one in nearest] == [0.0, 0.4, 0.6, 0.7, 0.8]
    assert len({one.user for one in others[: views - 1]} - {asked[0].user}) == views - 1
    assert [dict(one.options)["temperature"] for one in others] == [0.0] * (views - 1) + [0.4]


async def test_a_refused_draft_is_amended_and_nothing_more_is_asked(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, TRIPLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((50,), (), 100))
        end = await sent(kernel, "m1", "thing", "twice_", 7)
        assert (end["result"]["value"], len(asked)) == (14, 1)
        kept = method_of(kernel, "thing", "twice_")
        assert (kept["edited"], kept["tries"], kept["model"]) == (True, 1, EXPERT)
        assert kept["prompt_digest"] == hashlib.sha256(asked[0].user.encode()).hexdigest()
        await kernel.image.system(lambda root: root["lobby"].thing._slots.update(twice_=Intent("twice the number")))
        assert (await kernel.replays.replay("m1"))["outcome"] == "same"


async def test_slots_that_it_changes_are_amended_too(tmp_path: Path) -> None:
    inference = FakeInference()
    wrong = "def spend_(self, number):\n    self.budget = self.budget + number\n    self._p_changed = True\n    return self.budget\n"
    asked = writing(inference, wrong)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, spend_=Intent("take the price from the budget"), budget=100)
        await hire(kernel)
        await kernel.image.system(teach, Example((2,), (), 98, (("budget", 100),), (("budget", 98),)), "spend_")
        end = await sent(kernel, "m1", "thing", "spend_", 30)
        assert (end["result"]["value"], len(asked)) == (70, 1)
        assert kernel.image.read(lambda root: root["lobby"].thing.budget) == 70


@pytest.mark.parametrize(
    ("example", "hired", "settings"),
    [
        (Example((50,), (), 100), True, {"synthesis_edits": 0}),
        (Example((50,), (), 100), False, {}),  # a model that writes anything is told what was wrong
        (Example((0,), (), 0, (("total", 1),)), True, {}),  # tells little: TRIPLE passes, so another is refused
    ],
)
async def test_a_draft_is_left_as_it_is(tmp_path: Path, example: Example, hired: bool, settings: dict[str, Any]) -> None:
    inference = FakeInference()
    asked = writing(inference, TRIPLE.replace("* 3", "* 3 + 1"), DOUBLE)
    async with mind(tmp_path, inference, **settings) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        if hired:
            await hire(kernel)
        await kernel.image.system(teach, example)
        end = await sent(kernel, "m1", "thing", "twice_", 7)
        assert (end["result"]["value"], len(asked)) == (14, 2)
        assert not method_of(kernel, "thing", "twice_")["edited"]


async def test_a_mission_that_is_cancelled_while_a_draft_is_amended_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    writing(inference, TRIPLE)
    reached, never = asyncio.Event(), asyncio.Event()

    async def held(*_: Any, **__: Any) -> Any:
        reached.set()
        await never.wait()

    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((50,), (), 100))
        with monkeypatch.context() as patched:
            patched.setattr(BatchRunner, "outcomes", held)
            sending = asyncio.create_task(sent(kernel, "m1", "thing", "twice_", 7))
            await reached.wait()
            assert await kernel.scheduler.cancel("m1")
            assert (await sending)["state"] == "FAILED"
        assert isinstance(kernel.image.read(lambda root: root["lobby"].thing._slots["twice_"]), Intent)
        assert (await sent(kernel, "m2", "thing", "twice_", 7))["result"]["value"] == 14


async def test_what_an_edit_leaves_open_a_further_draft_decides(tmp_path: Path) -> None:
    inference = FakeInference()
    draft = "def put_(self, number):\n    self.total = self.total - number\n    self._p_changed = True\n    return self.total\n"
    asked = writing(inference, draft, draft.replace("-", "+"))
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, put_=Intent("put the number into the total"), total=5)
        await hire(kernel)
        await kernel.image.system(teach, Example((2,), (), 4, (("total", 2),), (("total", 4),)), "put_")  # 2 * 2 as well
        end = await sent(kernel, "m1", "thing", "put_", 7)
        assert (end["result"]["value"], len(asked)) == (12, 2)
        assert not method_of(kernel, "thing", "put_")["edited"]


OVER = "def over_(self, items):\n    return [one for one in items if one > 5]\n"


async def test_a_method_tells_what_its_example_leaves_open_until_another_is_taught(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, OVER)

    def version(root: Any) -> dict[str, Any]:
        return dict(versions.describe(root, root["lobby"].thing, "over_")["versions"][0]["provenance"])

    async with mind(tmp_path, inference) as kernel:
        await give(kernel, over_=Intent("the numbers over five"))
        await kernel.image.system(teach, Example(([3, 9],), (), [9]), "over_")  # at least five as well
        open_ = [{"args": [[5, 6]], "result": [6]}, {"args": [[5, 6]], "result": [5, 6]}]
        end = await sent(kernel, "m1", "thing", "over_", [5, 7])
        assert (end["result"]["value"], end["result"]["wrote"][0]["open"]) == ([7], open_)
        assert kernel.image.read(version)["open"] == open_
        await kernel.image.system(teach, Example(([5, 6],), (), [6]), "over_")
        assert kernel.image.read(version)["open"] == []


async def test_what_is_open_is_asked_of_the_receiver_whose_examples_it_is_about(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, OVER)

    def inherit(root: Any) -> None:
        root["lobby"].thing = root["lobby"].kind.derive(name="thing")

    def teach_last(root: Any, example: dict[str, Any]) -> int:
        return taught_examples.teach(root, root["lobby"].thing._p_oid, "over_", [example], "", 1)  # the one before is dropped

    def open_of(root: Any, name: str) -> list[Any]:
        came: dict[str, Any] = versions.describe(root, root["lobby"]._slots[name], "over_")["versions"][0]["provenance"]
        assert came["receiver"] == history.oid_of(root["lobby"].thing)
        return list(came["open"])

    async with mind(tmp_path, inference) as kernel:
        await give(kernel, over_=Intent("the numbers over five"))
        await kernel.image.system(lambda root: root["lobby"]._slots.update(kind=root["lobby"].thing))
        await kernel.image.system(inherit)
        await kernel.image.system(teach_last, Example(([3, 9],), (), [9]).to_json())
        wrote = (await sent(kernel, "m1", "thing", "over_", [5, 7]))["result"]["wrote"][0]
        assert wrote["receiver"] == kernel.image.read(lambda root: history.oid_of(root["lobby"].thing)) != wrote["object"]
        for name in ("thing", "kind"):
            assert kernel.image.read(open_of, name) == wrote["open"] != []
        assert await kernel.image.system(teach_last, wrote["open"][0]) == 1
        for name in ("thing", "kind"):
            assert kernel.image.read(open_of, name) == []


async def test_what_is_open_of_a_slot_that_is_inherited_is_asked_too(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def put_(self, number):\n    if number > 5:\n        self.total = number\n        self._p_changed = True\n")

    def inherit(root: Any) -> None:
        root["lobby"].kind = root["lobby"].genesis.derive(total=1, put_=Intent("put the number into the total"))
        root["lobby"].thing = root["lobby"].kind.derive(name="thing")

    async with mind(tmp_path, inference) as kernel:
        await kernel.image.system(inherit)
        await kernel.image.system(teach, Example((9,), (), None, (("total", 2),), (("total", 9),)), "put_")
        one, other = (await sent(kernel, "m1", "thing", "put_", 5))["result"]["wrote"][0]["open"]
        assert (one["after"], other["after"]) == ({"total": 1}, {"total": 5})


async def test_a_draft_that_is_nested_too_deep_is_refused_as_any_other(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, f"def twice_(self, number):\n    return {'-' * 400}number\n", DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((358,), (), 716))
        assert (await sent(kernel, "m1", "thing", "twice_", 7))["result"]["value"] == 14
        assert len(asked) == 2


@pytest.mark.parametrize(("settings", "more"), [({"synthesis_edits": 0}, []), ({}, [Example(([4, 5, 6],), (), [6])])])
async def test_a_method_of_which_nothing_is_open_says_so(tmp_path: Path, settings: dict[str, Any], more: list[Example]) -> None:
    inference = FakeInference()
    writing(inference, OVER)
    async with mind(tmp_path, inference, **settings) as kernel:
        await give(kernel, over_=Intent("the numbers over five"))
        for example in (Example(([3, 9],), (), [9]), *more):
            await kernel.image.system(teach, example, "over_")
        assert (await sent(kernel, "m1", "thing", "over_", [5, 7]))["result"]["wrote"][0]["open"] == []


async def test_a_refusal_says_what_is_open_between_what_passes(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def put_(self, number):\n    self.total = self.total - number\n    self._p_changed = True\n    return self.total\n")
    async with mind(tmp_path, inference, synthesis_expert_tries=1) as kernel:
        await give(kernel, put_=Intent("put the number into the total"), total=5)
        await hire(kernel)
        await kernel.image.system(teach, Example((2,), (), 4, (("total", 2),), (("total", 4),)), "put_")  # 2 * 2 as well
        error = (await sent(kernel, "m1", "thing", "put_", 7))["error"]
        assert "; the examples leave open whether put_(7) when total = 5 answers " in error["message"]
        one, other = error["context"]["open"]
        assert one["result"] != other["result"]
        assert {one["args"][0], other["slots"]["total"]} == {7, 5}


def test_where_there_is_one_request_each_draw_is_of_it() -> None:
    assert [method_prompts.expert_draw(draw, 1) for draw in range(3)] == [(0, 0.0), (0, 0.4), (0, 0.6)]


async def test_a_method_knows_the_request_that_it_answered(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, SQUARE, DOUBLE, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await sent(kernel, "m1", "thing", "twice_", 5)
        assert method_of(kernel, "thing", "twice_")["prompt_digest"] == hashlib.sha256(asked[1].user.encode()).hexdigest()


async def test_one_that_writes_the_same_again_and_again_comes_to_an_end(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, SQUARE)
    async with mind(tmp_path, inference, synthesis_expert_tries=3) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        end = await sent(kernel, "m1", "thing", "twice_", 7)
        assert end["error"]["code"] == "method_refused"
        assert "after 1 try:" in end["error"]["message"]
        assert len(asked) == 6


async def test_who_writes_is_a_setting_and_an_expert_on_another_base_does_not(tmp_path: Path) -> None:
    for number, (more, base, wanted) in enumerate(
        (
            ({"synthesis_model": "plain"}, "smollm2:embedded", "brick:embedded"),
            ({}, "llama3.1:8b", "brick:embedded"),
            ({"synthesis_model": "codes:7b"}, "smollm2:embedded", "codes:7b"),
        )
    ):
        inference = FakeInference()
        asked = writing(inference, DOUBLE)
        async with mind(tmp_path / str(number), inference, **more) as kernel:
            await give(kernel)
            await hire(kernel, base)
            end = await sent(kernel, "m1", "thing", "twice_", 5)
            assert end["result"]["value"] == 10
            assert [request.model for request in asked] == [wanted]
            assert asked[0].system == method_prompts.SYSTEM


def test_of_an_object_only_what_the_purpose_speaks_of_is_told() -> None:
    parent = UvmObject(budget=100, unrelated=1, think_=Method("think_", "def think_(self, a, b):\n    return a\n"))
    slots: dict[str, Any] = {f"slot{n}": n for n in range(9)}
    obj = UvmObject(**slots, **{"parent*": parent}, price_=Method("price_", "def price_(self, n):\n    return n\n"))
    told = method_prompts.compact(WantedMethod(obj, "spend_", (3,), {}, "take the price_ from the budget"), chars=4000)[0].split("\n")
    assert told[0] == "def spend_(self, number):"
    assert told[2].startswith("self.budget = 100; self.slot")
    assert told[2].count("self.") == 3
    assert "unrelated" not in told[2]
    assert told[3] == "sends: price_, think_"
    assert told[4] == "called with 3"
    long = Example((1,), (), "x" * 60)
    assert len(method_prompts.compact(WantedMethod(obj, "spend_", (3,), {}, "i", [long] * 2), chars=120)[0]) <= 120


async def learned(kernel: Kernel) -> list[tuple[str, str]]:
    return kernel.image.read(lambda root: pairs_from_image(root, chars=4000))


async def test_what_an_image_accepted_is_learned_from_hard_ones_more(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE, "no method", "def thrice_(self, number):\n    return number * 3\n")
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        for number in range(8):
            assert (await sent(kernel, f"m{number}", "thing", "twice_", number))["state"] == "COMPLETE"
        assert len(await learned(kernel)) == 6, "of one method not every call counts"
        await kernel.image.system(teach, Example((5,), (), 15), "thrice_")
        assert (await sent(kernel, "n1", "thing", "thrice_", 2))["result"]["value"] == 6
        found = await learned(kernel)
    hard = [pair for pair in found if "thrice_" in pair[0]]
    assert len(hard) == HARD_FROM_IMAGE, "it was refused once"
    asked, said = hard[0]
    assert said == answered("def thrice_(self, number):\n    return number * 3")
    request = as_read("def thrice_(self, number):\nwhat its name says: thrice\ncalled with 2\nthrice_(5) -> 15")
    assert asked.endswith(request.partition("user\n")[2])
    easy = [pair for pair in found if "twice_" in pair[0]]
    assert {pair[1] for pair in easy} == {answered(DOUBLE)}
    assert len({pair[0] for pair in easy}) == len(easy) == 6


async def test_a_refused_synthesis_asks_for_what_was_accepted_later(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, SQUARE, "no method", DOUBLE)
    async with mind(tmp_path, inference, synthesis_expert_tries=2) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        assert (await sent(kernel, "m1", "thing", "twice_", 3))["error"]["code"] == "method_refused"
        assert await learned(kernel) == [], "nothing was accepted so far"
        assert (await sent(kernel, "m2", "thing", "twice_", 4))["result"]["value"] == 8
        found = await learned(kernel)
        assert {answer for _, answer in found} == {answered(DOUBLE)}
        asked = ["called with 4", "called with 3"]
        assert [prompt.count(words) for words in asked for prompt in dict.fromkeys(p for p, _ in found)] == [1, 0, 0, 1]
        assert len(found) == 2 * HARD_FROM_IMAGE


async def test_what_nobody_vouches_for_is_not_learned(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE, DOUBLE, DOUBLE, "no method")
    async with mind(tmp_path, inference, synthesis_expert_tries=3) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        assert (await sent(kernel, "m1", "thing", "twice_", 3))["state"] == "COMPLETE"
        assert await learned(kernel) == [], "no example, no rating"
        await kernel.image.system(ledger.rate, "m1", 1, "")
        assert len(await learned(kernel)) == 1
        await kernel.image.system(ledger.rate, "m1", -1, "")
        await kernel.image.system(teach, Example((5,), (), 25))
        assert await learned(kernel) == [], "it is wrong"
        await kernel.image.system(ledger.rate, "m1", 1, "")
        assert (await sent(kernel, "m2", "thing", "learn_", "twice_"))["error"]["code"] == "method_refused"
        assert await learned(kernel) == [], "it is in place because nothing better could be written"


async def test_a_lesson_is_learned_before_anybody_sends_the_message(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        assert (await sent(kernel, "m1", "thing", "learn_", "twice_"))["state"] == "COMPLETE"
        found = await learned(kernel)
        assert [answer for _, answer in found] == [answered(DOUBLE)]
        assert "called with 5\ntwice_(5) -> 10" in found[0][0]


async def test_a_mission_whose_record_is_damaged_holds_up_no_lesson(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, DOUBLE)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the number"))
        await hire(kernel)
        assert (await (await submit(kernel, "m1", "Plan the first day")).end())["state"] == "COMPLETE"
    path = tmp_path / "live_image.fs"
    path.write_bytes(path.read_bytes().replace(b"Plan the first day", b"Plan the First day"))
    async with mind(tmp_path, inference) as kernel:
        with pytest.raises(ImageDamaged), kernel.image.snapshot() as root:
            _ = ledger.mission_of(root, "m1").state
        await kernel.image.system(teach, Example((5,), (), 10))
        end = await sent(kernel, "m2", "thing", "learn_", "twice_")
        assert (end["state"], end.get("error")) == ("COMPLETE", None)
        assert await learned(kernel) != [], "what came after it is learned from"


@pytest.mark.parametrize(
    ("example", "source"),
    [
        (Example((), (), "good morning"), "def greet_(self):\n    return 'good morning'\n"),
        (Example((), (), 60, (("sold", 30),)), "def greet_(self):\n    return self.sold * 2\n"),  # a slot that the pupil has not yet
    ],
)
@pytest.mark.parametrize("settings", [{}, {"synthesis_reuse": 600, "synthesis_parts": 60000}])
async def test_a_message_without_arguments_is_taught_as_any_other(
    tmp_path: Path, example: Example, source: str, settings: dict[str, Any]
) -> None:
    inference = FakeInference()
    writing(inference, source)
    async with mind(tmp_path, inference, **settings) as kernel:
        await give(kernel, greet_=Intent("twice of what was sold, or good morning"))
        await hire(kernel)
        await kernel.image.system(teach, example, "greet_")
        end = await sent(kernel, "m1", "thing", "learn_", "greet_")
        assert (end["state"], end.get("error")) == ("COMPLETE", None)


async def test_a_lesson_about_a_slot_that_its_pupil_has_not_yet_is_tried_as_its_example_says(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "no method")
    async with missions.mind(tmp_path, inference) as kernel:
        await give(kernel, sell_=Intent("add the number to what was sold"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 35, (("sold", 30),), (("sold", 35),)), "sell_")
        end = await sent(kernel, "m1", "thing", "learn_", "sell_")
        assert end["state"] == "COMPLETE", end
        (source,) = method_of(kernel, "thing", "sell_")["versions"]
        assert "self.sold" in source.replace("self.sold =", ""), f"else it would fail where the pupil has no such slot: {source}"
        assert "sold" not in kernel.image.read(lambda root: list(root["lobby"].thing._slots)), "a trial leaves nothing"


async def test_what_was_accepted_here_is_shown_when_something_like_it_is_asked_for(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, DOUBLE, *["def increment_(self, number):\n    return number\n"] * 4)

    def intend(root: Any, selector: str, text: str) -> None:
        root["lobby"].thing._slots[selector] = Intent(text)

    async with mind(tmp_path, inference) as kernel:
        await give(kernel, twice_=Intent("twice the flimflam of a number"))
        await hire(kernel)
        await kernel.image.system(teach, Example((5,), (), 10))
        assert (await sent(kernel, "m1", "thing", "twice_", 3))["state"] == "COMPLETE"
        shown = f"# twice the flimflam of a number\n{DOUBLE.strip()}\n\n"
        assert shown not in asked[0].user
        await kernel.image.system(intend, "increment_", "the flimflam and one more")
        assert (await sent(kernel, "m2", "thing", "increment_", 3))["state"] == "COMPLETE"
        assert asked[1].user.startswith(shown), "nearer than any of the handbook's"
        await kernel.image.system(ledger.rate, "m1", -1, "")
        before = len(asked)
        await kernel.image.system(intend, "enlarge_", "the flimflam and two more")
        await sent(kernel, "m3", "thing", "enlarge_", 3)
        assert len(asked) > before
        assert shown not in asked[before].user, "it is wrong"
