"""Methods that nobody vouches for answer once; what they say is looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.mind import answer_checks
from batos.objects import Intent
from batos.wire.admin_schemas import UndoRequest
from tests.support.methods import ADD, give, method_of, writing
from tests.support.missions import FakeInference, mind, submit

TWICE = "def twice_(self, number):\n    return self.add_(number, number)\n"


async def sent(kernel: Kernel, id: str, selector: str, *args: Any, **more: Any) -> dict[str, Any]:
    message = {"target": "thing", "selector": selector, "args": list(args), "kwargs": {}, **more}
    return await (await submit(kernel, id, f"send thing {selector}", message=json.dumps(message))).end()


def holds(kernel: Kernel, selector: str) -> bool:
    return kernel.image.read(lambda root: selector in root["lobby"].thing._slots)  # type: ignore[no-any-return]


async def rate(kernel: Kernel, id: str, rating: int) -> None:
    await kernel.loop.rate(id, rating, "")


async def test_what_nobody_vouches_for_answers_once_and_says_so(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        for id in ("m1", "m2"):
            end = await sent(kernel, id, "add_", 2, 3)
            assert (end["state"], end["result"]["value"]) == ("COMPLETE", 5)
            assert end["result"]["unsure"].startswith("no user said what add_ is for")
            assert f"batos rate {id} +1" in end["result"]["unsure"]
            assert not holds(kernel, "add_")
        assert len(asked) == 2, "written anew"


async def test_a_rating_confirms_it_also_after_a_restart_and_takes_it_back(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "add_", 2, 3)
    async with mind(tmp_path, inference) as kernel:
        await rate(kernel, "m1", 1)
        assert method_of(kernel, "thing", "add_")["mission"] == "m1"
        end = await sent(kernel, "m2", "add_", 20, 30)
        assert (end["result"]["value"], "unsure" in end["result"], len(asked)) == (50, False, 1)
        await rate(kernel, "m1", -1)
        assert not holds(kernel, "add_")


async def test_a_rating_takes_nothing_out_of_its_place_that_is_another_s(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "add_", 2, 3)
        await sent(kernel, "m2", "add_", 2, 3, write=True)
        for rating in (1, -1):
            await rate(kernel, "m1", rating)
            assert method_of(kernel, "thing", "add_")["mission"] == "m2"


async def test_what_its_user_wants_written_or_an_intent_speaks_for_is_kept(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "add_", 2, 3, write=True)
        assert "unsure" not in end["result"]
        assert holds(kernel, "add_")
    async with mind(tmp_path / "other", inference) as kernel:
        await give(kernel, add_=Intent("the sum of two numbers"))
        end = await sent(kernel, "m1", "add_", 2, 3)
        assert "unsure" not in end["result"]
        assert method_of(kernel, "thing", "add_")["intent"] == "the sum of two numbers"


async def test_what_a_kept_method_sends_is_kept_and_what_a_tentative_one_sends_is_not(tmp_path: Path) -> None:
    def model() -> FakeInference:
        inference = FakeInference()
        writing(inference, lambda request: TWICE if "Write: def twice_" in request.user else ADD)
        return inference

    async with mind(tmp_path / "kept", model()) as kernel:
        await give(kernel, twice_=Intent("twice a number"))
        end = await sent(kernel, "m1", "twice_", 4)
        assert end["state"] == "COMPLETE", end
        assert (end["result"]["value"], "unsure" in end["result"]) == (8, False)
        assert holds(kernel, "twice_")
        assert holds(kernel, "add_")
    async with mind(tmp_path / "tentative", model()) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "twice_", 4)
        assert (end["result"]["value"], "unsure" in end["result"]) == (8, True)
        assert not holds(kernel, "twice_")
        assert not holds(kernel, "add_")
        await rate(kernel, "m1", 1)
        assert holds(kernel, "twice_")
        assert holds(kernel, "add_")


async def test_a_confirmed_one_goes_with_the_mission_that_is_undone(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "add_", 2, 3)
        await rate(kernel, "m1", 1)
        await kernel.undoing.undo(UndoRequest(op="undo", id="m1"))
        assert not holds(kernel, "add_")
        await kernel.undoing.undo(UndoRequest(op="undo", id="m1", redo=True))
        assert holds(kernel, "add_")


async def test_an_insult_is_refused_with_the_reason(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def greet_(self):\n    return 'Go away, you idiot.'\n", "def greet_(self):\n    return 'Hello.'\n")
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "greet_")
        assert end["result"]["value"] == "Hello."
        assert "it says 'idiot', which insults its reader" in asked[1].user


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 'You idiot'", "idiot"),
        ("return 'stupid'", "stupid"),
        ("return f'{number} is a stupid number'", "stupid"),
        ("raise ValueError('What a moron')", "moron"),
        ("text = 'Sie sind ein Trottel'\n    return text", "Trottel"),
        ("return 'no' if number else 'you loser'", "loser"),
        ("return ' '.join(['blah blah'] * 3) + ' " + "la " * 40 + "'", "repeats a few words"),
        ("return number in ('stupid', 'idiot')", None),
        ("return 'The quick brown fox jumps over the lazy dog.'", None),
        ("return 'abcdefghijklmnopqrstuvwxyz'", None),
        ("return ', '.join(number)", None),
        ("return 'Scunthorpe and its glass bottles'", None),
    ],
)
def test_what_a_method_may_say(body: str, said: str | None) -> None:
    fault = answer_checks.fault_of_method_texts(f"def say_(self, number):\n    {body}\n")
    assert (fault is None) if said is None else (said in (fault or ""))


def test_words_that_the_user_brought_are_his_own() -> None:
    source = "def say_(self):\n    return 'stupid'\n"
    assert answer_checks.fault_of_method_texts(source, "answers the word stupid") is None
    assert answer_checks.fault_of_method_texts(source) is not None
