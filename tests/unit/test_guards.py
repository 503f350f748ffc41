"""What keeps a slot from changing, where a method answers whether it did."""

from __future__ import annotations

from typing import Any

import pytest

from batos.objects import Example
from batos.synthesis.targets import guards
from tests.support.synthesis import WIDE, asked, made


@pytest.mark.parametrize(
    ("held", "given", "likeliest", "never"),
    [
        ({"joe": 4, "hal": 26}, {"text": "joe"}, "text not in self.s", "text in self.s"),
        ({"joe": 4}, {"text": "ann"}, "text in self.s", "text not in self.s"),
        (["tea"], {"text": "milk"}, "text in self.s", "text not in self.s"),
        (100, {"number": 20}, "number > self.s", "number < self.s"),
        (False, {}, "self.s", "not self.s"),
        (True, {}, "not self.s", "self.s"),
        (3, {}, "self.s == 0", None),
    ],
)
def test_guards_are_those_that_did_not_keep_it(held: Any, given: dict[str, Any], likeliest: str, never: str | None) -> None:
    found = list(guards("self.s", [held], {name: [value] for name, value in given.items()}))
    assert found[0] == likeliest
    assert never not in found


def test_what_is_of_another_kind_is_compared_with_nothing() -> None:
    assert list(guards("self.s", [{"joe": 4}], {"number": [4], "items": [["joe"]]})) == ["not self.s"]
    assert list(guards("self.s", [5], {"text": ["joe"]})) == ["self.s == 0"]
    assert list(guards("self.s", [None], {"text": ["joe"]})) == []
    assert next(guards("self.s", [10], {"flag": [True], "number": [3]})) == "number > self.s"


def test_all_examples_count() -> None:
    assert "number >= self.s" in list(guards("self.s", [100], {"number": [20]}))
    assert "number >= self.s" not in list(guards("self.s", [100, 20], {"number": [20, 20]}))


async def test_a_slot_is_guarded_where_the_answer_says_that_it_changed() -> None:
    pay = Example((20,), (), True, (("budget", 100),), (("budget", 80),))
    (_, text), *_ = await made(asked("pay from budget, if there is enough", pay, budget=100))
    space: dict[str, Any] = {}
    exec(text, space)
    purse = type("Purse", (), {"budget": 5})()
    assert space["m_"](purse, 9) is False
    assert purse.budget == 5
    assert space["m_"](purse, 2) is True
    assert purse.budget == 3


async def test_a_slot_whose_new_value_is_answered_has_no_guard() -> None:
    pay = Example((20,), (), 80, (("budget", 100),), (("budget", 80),))
    assert not any("return False" in text for _, text in await made(asked("pay from budget", pay, budget=100), most=WIDE))
