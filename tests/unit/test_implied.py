"""What words say of nothing: which call they mean, what it answers, and a method that is completed by it."""

from __future__ import annotations

from typing import Any

import pytest

from batos.image.examples import Example
from batos.mind.amending import wanted
from batos.mind.implied import Implied, completing, implied
from batos.mind.side_by_side import Call
from batos.objects import UvmObject


def of(intent: str, example: Example, **slots: Any) -> Implied | None:
    return implied(wanted(UvmObject(**slots), "m_", example.args, {}, intent=intent, examples=[example]))


NUMBERS = Example(([3, 9],), (), 9)


@pytest.mark.parametrize(
    ("intent", "example", "name", "result"),
    [
        ("the largest of the list, 0 if it is empty", NUMBERS, "items", 0),
        ("the largest of the list, or None if the list is empty", NUMBERS, "items", None),
        ("the largest of the list, zero when there are none", NUMBERS, "items", 0),
        ("the largest, -1.5 where there is nothing", NUMBERS, "items", -1.5),
        ("If the list is empty answer 7, else the largest", NUMBERS, "items", 7),
        ("when there are no numbers, it is none; the largest else", NUMBERS, "items", None),
        ('the best name, "nobody" if the list is empty', Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the best name, 'nobody' if the list is empty", Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the best name, the word nobody if the list is empty", Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the longest word, an empty text if there are no words", Example(("a fox",), (), "fox"), "text", ""),
        ("the words, an empty list if there is no text", Example(("a fox",), (), ["a", "fox"]), "text", []),
        ("who leads, None if the record is empty", Example(({"Ann": 3},), (), "Ann"), "record", None),
        ("whether all are there, true if the list is empty", Example((["a"],), (), False), "items", True),
    ],
)
def test_words_that_say_it(intent: str, example: Example, name: str, result: Any) -> None:
    one = of(intent, example)
    assert one is not None
    assert (one.of, one.result, type(one.result)) == (name, result, type(result))
    assert not one.call.args[0]


def test_of_several_it_is_what_the_words_name() -> None:
    example = Example((["a"], "b"), (), 3)
    both = of("how often the text is in the list, 0 if the list is empty", example)
    assert both == Implied("items", Call(([], "b"), {}, {}), 0)
    slots = Example(("job",), (), 3, (("queue", ["a"]), ("log", ["b"])))
    one = of("the place of the job, 0 if the queue is empty", slots)
    assert one == Implied("self.queue", Call(("job",), {}, {"queue": [], "log": ["b"]}), 0)


@pytest.mark.parametrize(
    ("intent", "example"),
    [
        ("the largest of the list", NUMBERS),
        ("the numbers that are not empty", NUMBERS),
        ("0 if it is odd", NUMBERS),
        ("the mean for each name, 0 if none is known", Example((["Ann"],), (), {"Ann": 3})),  # of a part of the answer
        ("how many are in both, 0 if there are none", Example((["a"], ["b", "a"]), (), 1)),  # which of the two?
        ("twice the number, 0 if there is none", Example((3,), (), 6)),
        ("", NUMBERS),
        ("10 if the list is not empty", NUMBERS),
        ("10 if the list isn't empty", NUMBERS),
        ("10 if the list is non-empty", NUMBERS),
        ("the total, 1,000 if the list is empty", NUMBERS),
        ("the total, counting 0 for empty fields", NUMBERS),
        ("add it to the log, 0 if the log is empty", Example((3,), (), 3, (("log", [1]),), (("log", [1, 3]),))),  # what is added then?
    ],
)
def test_words_that_do_not(intent: str, example: Example) -> None:
    assert of(intent, example) is None


def test_a_slot_with_a_name_that_no_method_can_say_is_not_meant() -> None:
    assert of("the count, 0 if the jobs list is empty", Example((), (), 3, (("jobs or 1", ["a"]),))) is None


def test_a_method_is_completed() -> None:
    one = Implied("items", Call(([],), {}, {}), "")
    assert (
        completing("def m_(self, items):\n    return max(items)", one)
        == "def m_(self, items):\n    if not items:\n        return ''\n    return max(items)"
    )
    assert completing("def m_(self, items):\n    return self.best_(items)", one) is None, "what sends is not run aside"
    assert completing("no method", one) is None
    assert completing("def m_(self, items):\n    self.log = items\n    self._p_changed = True\n    return items[0]", one) is None
