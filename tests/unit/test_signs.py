"""Tests of signs that words name."""

from __future__ import annotations

import pytest

from batos.synthesis.adaptation import signs_named
from batos.synthesis.handbook import words_in


@pytest.mark.parametrize(
    ("told", "value", "found"),
    [
        ("the number of commas in a text", "a,b,c", {","}),
        ("how many commas and dots there are", ["a,b", "c."], {",", "."}),
        ("what is behind the colon of each key", {"a:b": 1}, {":"}),
        ("the part between the brackets", ("x (y)",), {"(", ")"}),
        ("the part between the parentheses", "x (y)", {"(", ")"}),
        ("without the quotation marks", 'say "so"', {'"'}),
        ("the number of commas in a text", "no such sign", set()),
        ("the number of letters in a text", "a,b,c", set()),
        ("the commas", [1, None, 2.5, {"n": [3]}], set()),
    ],
)
def test_signs_are_those_that_the_words_name_and_the_values_have(told: str, value: object, found: set[str]) -> None:
    assert set(signs_named(words_in(told), [value])) == found


def test_each_stands_with_the_words_that_name_it() -> None:
    assert signs_named(words_in("a dash or a comma"), ["a - b, c"]) == {"-": words_in("dash"), ",": words_in("comma")}
