"""Lists and records of a few parts, and what is wanted of each item."""

from __future__ import annotations

from typing import Any

import pytest

from batos.objects import Example
from batos.synthesis.enumeration import Expression
from batos.synthesis.literals import built
from batos.synthesis.terms import Computed
from tests.support.synthesis import asked, first, made


def parts(**held: Any) -> list[Computed]:
    return [Computed(Expression(0.5, name, frozenset()), ((value,),)) for name, value in held.items()]


def texts(expected: Any, said: frozenset[str] = frozenset(), **held: Any) -> list[str]:
    return [one.text for one in built(parts(**held), [expected], said)]


def test_what_is_wanted_is_taken_apart() -> None:
    assert texts([3, 9], low=3, high=9, other=5) == ["[low, high]"]
    assert texts({"low": 3, "high": 9}, low=3, high=9) == ["{'low': low, 'high': high}"]
    assert texts({"low": 3}, low=3) == ["{'low': low}"]


@pytest.mark.parametrize("expected", [[3], [], {}, 3, "39", [3, 8], [1, 2, 3, 4, 5], {1: 3, 2: 9}, [True, 9], [3.0, 9]])
def test_what_is_no_list_of_a_few_that_are_known_is_left_alone(expected: Any) -> None:
    assert texts(expected, low=3, high=9) == []


def test_nothing_stands_in_it_twice_and_names_that_are_said_cost_less() -> None:
    assert texts([3, 3], low=3) == []
    assert texts([3, 3], low=3, least=3) == ["[low, least]", "[least, low]"]
    said, unsaid = (next(built(parts(low=3), [{"point": 3}], frozenset(words))).cost for words in (["point"], []))
    assert said < unsaid


def test_rows_of_other_lengths_or_names_are_left_alone() -> None:
    rows = [Computed(Expression(0.5, "low", frozenset()), ((1,), (2,)))]
    assert not list(built(rows, [[1, 2], [2]], frozenset()))
    assert not list(built(rows, [{"a": 1}, {"b": 2}], frozenset()))
    assert [one.text for one in built(rows, [{"a": 1}, {"a": 2}], frozenset())] == ["{'a': low}"]


async def test_the_pairs_that_are_gone_through_are_no_tuples_in_what_comes() -> None:
    what = asked("the first two neighbours", Example(([31, 47, 5],), (), [31, 47]))
    for _, source in await made(what):
        space: dict[str, Any] = {}
        exec(source, space)
        assert type(space["m_"](None, [31, 47, 5])) is list
    assert await first(what)
