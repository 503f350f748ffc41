"""What words say of nothing: which call they mean, what it answers, and a method that is completed by it."""

from __future__ import annotations

from typing import Any

import pytest

from batos.forge.candidate_search import specification_of
from batos.objects import Example, UvmObject
from batos.synthesis.repair import Implied, implied, with_edge_case
from batos.synthesis.specification import MethodCall


def of(intent: str, example: Example, **slots: Any) -> tuple[Implied, ...]:
    return implied(specification_of(UvmObject(**slots), "m_", example.args, {}, intent=intent, examples=[example]))


NUMBERS = Example(([3, 9],), (), 9)


@pytest.mark.parametrize(
    ("intent", "example", "name", "result"),
    [
        ("the largest of the list, 0 if it is empty", NUMBERS, "items", 0),
        ("the largest of the list, or None if the list is empty", NUMBERS, "items", None),
        ("the largest of the list, zero when there are none", NUMBERS, "", 0),
        ("the largest, -1.5 where there is nothing", NUMBERS, "", -1.5),
        ("If the list is empty answer 7, else the largest", NUMBERS, "items", 7),
        ("when there are no numbers, it is none; the largest else", NUMBERS, "", None),
        ('the best name, "nobody" if the list is empty', Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the best name, 'nobody' if the list is empty", Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the best name, the word nobody if the list is empty", Example((["Ann"],), (), "Ann"), "items", "nobody"),
        ("the longest word, an empty text if there are no words", Example(("a fox",), (), "fox"), "", ""),
        ("the words, an empty list if there is no text", Example(("a fox",), (), ["a", "fox"]), "", []),
        ("who leads, None if the record is empty", Example(({"Ann": 3},), (), "Ann"), "record", None),
        ("whether all are there, true if the list is empty", Example((["a"],), (), False), "items", True),
    ],
)
def test_words_that_say_it(intent: str, example: Example, name: str, result: Any) -> None:
    (one,) = of(intent, example)
    assert (one.of, one.result, type(one.result)) == (name, result, type(result))
    assert not one.call.args[0]


def test_of_several_it_is_what_the_words_name() -> None:
    example = Example((["a"], "b"), (), 3)
    both = of("how often the text is in the list, 0 if the list is empty", example)
    assert both == (Implied("items", MethodCall(([], "b"), {}, {}), 0),)
    slots = Example(("job",), (), 3, (("queue", ["a"]), ("log", ["b"])))
    one = of("the place of the job, 0 if the queue is empty", slots)
    assert one == (Implied("self.queue", MethodCall(("job",), {}, {"queue": [], "log": ["b"]}), 0),)


@pytest.mark.parametrize(
    ("intent", "example"),
    [
        ("the largest of the list", NUMBERS),
        ("the numbers that are not empty", NUMBERS),
        ("0 if it is odd", NUMBERS),
        ("the mean for each name, 0 if none is known", Example((["Ann"],), (), {"Ann": 3})),  # of a part of the answer
        ("how many are in both, 0 if the list is empty", Example((["a"], ["b", "a"]), (), 1)),  # which of the two?
        ("on or off", Example((["a"],), (), "on")),
        ("52 or 53", NUMBERS),
        ('"yes" or "no"', Example((["a"],), (), "yes")),
        ("the numbers that 2 divides, or 3", Example(([3, 4],), (), [3, 4])),
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
    assert of(intent, example) == ()


def test_a_slot_with_a_name_that_no_method_can_say_is_not_meant() -> None:
    assert of("the count, 0 if the jobs list is empty", Example((), (), 3, (("jobs or 1", ["a"]),))) == ()


def calls(intent: str, example: Example) -> list[tuple[Any, ...]]:
    said = of(intent, example)
    assert not any(one.of for one in said)
    return [tuple(one.call.args) for one in said]


def test_where_something_is_not_there_it_is_called_with_what_is_not() -> None:
    record = Example(({"Ann": 3}, "Ann"), (), 3)
    for words in (
        "not found if it is not there",
        "not found if the key is missing",
        "'not found' where the name is unknown",
        "-1 if missing",
    ):
        ((held, key),) = calls(f"the value of a key, or {words}", record)
        assert held == {"Ann": 3}, words
        assert key not in held, words
    (one,) = of("the value of a key, or not found if it is not there", record)
    assert one.result == "not found", "of another kind than what it answers: the words say it of what is not there, not of a part"
    rows = Example(([{"name": "Ann", "age": 3}], "Ann"), (), 3)
    ((_, name),) = calls("the age of the one with that name, 0 if it is not there", rows)
    assert name != "Ann"
    assert not of("the age of the one with that name, 0 if it is not there", Example(([{"name": "Ann", "age": 3}], 7), (), 3))


def test_where_there_is_none_it_is_called_with_nothing_and_with_what_is_far() -> None:
    came = calls("the first that is over the number, or None", Example(([3, 9], 4), (), 9))
    assert ([], 4) in came
    assert {one > 9 for _, one in came if one != 4} == {True, False}


@pytest.mark.parametrize(
    ("said", "texts", "value"),
    [
        ("None", True, None), ("none", True, "none"), ("none", False, None), ("null", True, None), ("'none'", False, "none"),
        ("-2.5", False, -2.5), ("the text none", False, None), ("the text none", True, "none"), ("say nobody", True, "nobody"),
        ("an empty dictionary", False, {}),
    ],
)  # fmt: skip
def test_values_as_they_are_said(said: str, texts: bool, value: Any) -> None:
    example = Example(([3, 9],), (), "a" if texts else 9)
    words = f"the largest of the list, {said} if the list is empty"
    held = of(words, Example(([3, 9],), (), None) if not texts and type(value) not in (int, float, type(None)) else example)
    assert [(one.result, type(one.result)) for one in held] == [(value, type(value))]


def test_a_method_is_completed() -> None:
    one = Implied("items", MethodCall(([],), {}, {}), "")
    assert (
        with_edge_case("def m_(self, items):\n    return max(items)", one, "")
        == "def m_(self, items):\n    if not items:\n        return ''\n    return max(items)"
    )
    assert with_edge_case("def m_(self, items):\n    return self.best_(items)", one, "") is None, "what sends is not run aside"
    assert with_edge_case("no method", one, "") is None
    assert with_edge_case("def m_(self, items):\n    self.log = items\n    self._p_changed = True\n    return items[0]", one, "") is None


def test_a_method_that_fails_or_answers_nothing_is_completed() -> None:
    one = Implied("", MethodCall(([],), {}, {}), 0)
    assert with_edge_case("def m_(self, items):\n    import math\n    return math.prod(items) / len(items)", one, "") == (
        "def m_(self, items):\n    import math\n    try:\n        return math.prod(items) / len(items)\n"
        "    except (ArithmeticError, LookupError, StopIteration, ValueError):\n        return 0"
    )
    nothing = "(None, {})"
    assert with_edge_case("def m_(self, record, text):\n    return record.get(text)", one, nothing) == (
        "def m_(self, record, text):\n    found = record.get(text)\n    return 0 if found is None else found"
    )
    assert with_edge_case("def m_(self, items):\n    for one in items:\n        return one", one, nothing) is None, (
        "where it answers nothing is not said"
    )
