"""What is said of a method that was written: how, and whether that is a reason for doubt."""

from __future__ import annotations

from typing import Any

import pytest

from batos.cli.methods import written


@pytest.mark.parametrize(
    ("came", "told"),
    [
        ({}, ""),
        ({"tries": 1, "trials": 2}, ", 1 tries"),
        ({"tries": 3, "trials": 2}, ", 3 tries: not sure; teach it another example"),
        ({"tries": 8, "trials": 3}, ", 8 tries"),
        ({"tries": 3, "trials": 1, "candidates": 3, "agreed": 3}, ", 3 tries, 3 of 3 written alike"),
        ({"tries": 5, "trials": 1, "candidates": 3, "agreed": 2}, ", 5 tries, 2 of 3 written alike: not sure; teach it an example"),
    ],
)
def test_a_method_says_how_sure_it_is(came: dict[str, Any], told: str) -> None:
    assert written(came) == told
