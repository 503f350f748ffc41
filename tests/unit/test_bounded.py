"""What is computed in the daemon's own process does what Python does, or fails where it would become too much."""

from __future__ import annotations

import datetime
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.synthesis.transformations import LONGEST, compiled, product, times

LARGE = 10**12


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("lambda a, b: a * b", ("x", LARGE)),
        ("lambda a, b: a * b", (LARGE, [1])),
        ("lambda a: a * 1000000", ("x" * 500,)),
        ("lambda a, b: [c * int(b) for c in a]", ("xy", str(LARGE))),
        ("lambda a: a ** a", (10**5,)),
        ("lambda a: 9 ** a", (LARGE,)),
        ("lambda a: pow(9, a)", (LARGE,)),
        ("lambda a: 1 << a", (LARGE,)),
        ("lambda a: list(range(a))", (LARGE,)),
        ("lambda a: [x for x in range(a, 0, -1)]", (LARGE,)),
        ("lambda a, b: a.ljust(b)", ("x", LARGE)),
        ("lambda a, b: a.rjust(b, '0')", ("x", LARGE)),
        ("lambda a, b: a.center(b)", ("x", LARGE)),
        ("lambda a, b: a.zfill(b)", ("x", LARGE)),
        ("lambda a, b: a.expandtabs(b)", ("\t", LARGE)),
        ("lambda a, b: f'{a:>{b}}'", ("x", LARGE)),
        ("lambda a: math.factorial(a)", (10**6,)),
        ("lambda a: math.comb(a, a // 2)", (10**6,)),
        ("lambda a: math.prod(a)", (["x", LARGE],)),
        ("lambda a: math.prod(range(1, a))", (50_000,)),
    ],
)
def test_what_would_become_too_much_fails_at_once(text: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(OverflowError):
        compiled(text, {"math": math})(*given)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("lambda a: a * 3", ("ab",)),
        ("lambda a, b: a * b", (2.5, 4)),
        ("lambda a, b: a * b", (datetime.timedelta(days=2), 3)),
        ("lambda a, b: a * b", ("x", -LARGE)),
        ("lambda a: a ** 0.5", (9,)),
        ("lambda a: 2 ** a", (-1,)),
        ("lambda a: pow(a, -1, 7)", (3,)),
        ("lambda a: (a << 3, a % 2, a // 2)", (5,)),
        ("lambda a: [list(range(a)), list(range(5, a)), list(range(a, -3, -2)), list(range(-2))]", (7,)),
        ("lambda a, b: [a.ljust(b, '.'), a.zfill(5), a.center(b)]", ("x", 6)),
        ("lambda a, b: f'{a:>{b}}|{b:03d}'", ("x", 4)),
        ("lambda a: [math.factorial(a), math.comb(a, 2), math.perm(a, 2)]", (6,)),
        ("lambda a: [math.prod(a), math.prod(a, start=2)]", ([1.5, 2, 3],)),
        ("lambda a: {k: v * 2 for k, v in a.items()}", ({"b": 1},)),
    ],
)
def test_all_else_is_as_it_is_in_python(text: str, given: tuple[Any, ...]) -> None:
    assert compiled(text, {"math": math})(*given) == eval(text, {"math": math})(*given)


@given(st.lists(st.integers() | st.floats(allow_nan=False), max_size=8))
def test_a_product_is_that_of_the_library(values: list[Any]) -> None:
    def made(of: Any) -> Any:
        try:
            return repr(of(values))
        except OverflowError:
            return OverflowError

    assert made(product) == made(math.prod)


def test_what_is_just_not_too_much() -> None:
    assert len(times("x", LONGEST)) == LONGEST
    with pytest.raises(OverflowError, match=str(LONGEST)):
        times("x", LONGEST + 1)
