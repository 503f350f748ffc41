"""Expressions grown from parts by what they come to, and what several things that are wanted are put together of."""

from __future__ import annotations

import ast
import contextlib
import datetime
import itertools
import math
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from batos.objects import Example, Method
from batos.synthesis import adaptation, aggregations, enumeration, idiom_costs, targets, terms
from batos.synthesis.enumeration import Expression, Valued, grown, modules_in, valued
from batos.synthesis.handbook import entries, words_in
from batos.synthesis.specification import tells
from batos.synthesis.word_costs import PHRASES, channel, entry, tables
from tests.support.synthesis import WIDE, asked, made


def atoms(**given: Any) -> list[Valued]:
    return [one for name, value in given.items() if (one := valued(0.2, name, [value])) is not None]


def texts(found: list[Valued]) -> dict[str, Any]:
    return {one.part.text: one.values[0] for one in found}


def test_what_is_grown_comes_to_what_python_makes_of_it() -> None:
    given = {"text": "sea ice", "number": 3, "items": [3, 1, 2], "record": {"a": 1}, "moment": "2024-03-01T10:00:00"}
    found = texts(grown(atoms(**given), [], words_in("words sorted hours later longest"), most=20_000))
    assert len(found) > 300
    for text, value in found.items():
        space: dict[str, Any] = {**given, "math": math, "datetime": datetime}
        exec("\n".join(f"import {one}" for one in modules_in(text)), space)
        came = eval(text, space)
        assert (list(came) if isinstance(came, tuple) else came) == value


def test_arguments_that_come_to_the_same_are_all_used() -> None:
    found = texts(grown(atoms(number=2, number2=2), [], words_in("the product of both"), most=5_000))
    assert found["number * number2"] == 4
    assert {"number", "number2", "number2 % 2 == 0"} <= set(found)


def test_the_cheapest_come_first_and_what_words_speak_of_is_cheaper() -> None:
    plain = grown(atoms(text="sea ice"), [], frozenset(), most=500)
    assert [one.part.cost for one in plain] == sorted(one.part.cost for one in plain)
    spoken = {one.part.text: one.part.cost for one in grown(atoms(text="sea ice"), [], words_in("backwards"), most=500)}
    unsaid = {one.part.text: one.part.cost for one in plain}
    assert spoken["text[::-1]"] < unsaid["text[::-1]"] - 0.3


def test_all_uses_that_cost_little_enough_are_gone_through_and_no_others() -> None:
    def held(kind: str, *costs: float) -> list[Valued]:
        return [Valued(Expression(cost, f"{kind}{n}", kind=kind), (n,)) for n, cost in enumerate(costs)]

    costs = idiom_costs.priced(words_in("the sum of two numbers, and the times that so many days have"))
    idioms = {kind: enumeration.arranged([*costs[kind], *costs["any"]]) for kind in idiom_costs.KINDS} | {
        "two": enumeration.arranged(costs["two"])
    }
    (one,) = held("number", 1.1)
    beside = {"number": held("other", 3.4, 0.2), "text": held("text", 0.9)}
    before = {"number": held("before", 0.4, 1.2, 2.5), "items": held("items", 0.3, 1.9)}
    came = [(round(cost, 9), idiom.spoken.template, operands) for cost, idiom, operands in enumeration.uses_of(one, idioms, beside, before)]

    def expected() -> Iterator[tuple[float, idiom_costs.Idiom, tuple[Valued, ...]]]:
        others = {kind: [*beside.get(kind, ()), *before.get(kind, ())] for kind in idiom_costs.KINDS}
        for cost, idiom in (*costs["number"], *costs["any"]):
            for more in itertools.product(*(others[hole.rstrip("2")] for hole in idiom.holes[1:])):
                yield cost, idiom, (one, *more)
        for other, (cost, idiom) in itertools.product(before["number"], costs["two"]):
            yield cost, idiom, (one, other)
            yield cost, idiom, (other, one)
        for kind in before:
            for other, (cost, idiom) in itertools.product(before[kind], (*costs[kind], *costs["any"])):
                if idiom.holes[1:] in (("number",), ("number2",)):
                    yield cost, idiom, (other, one)

    whole = [(cost + sum(one.part.cost for one in operands), idiom, operands) for cost, idiom, operands in expected()]
    wanted = [
        (round(cost, 9), idiom.spoken.template, operands)
        for cost, idiom, operands in whole
        if cost <= enumeration.DEAREST and len({*map(id, operands)}) == len(operands)
    ]
    assert len(wanted) > 500
    assert sorted(came, key=repr) == sorted(wanted, key=repr)


def test_what_is_seldom_asked_for_is_looked_at_only_where_its_words_are_said() -> None:
    def looked_at(said: str) -> set[str]:
        return {one.spoken.template for _, one in idiom_costs.priced(words_in(said))["number"]}

    feet = "{it} / 0.3048"
    assert feet in looked_at("how many feet so many metres are")
    assert feet not in looked_at("the number doubled")
    assert "{it} * 2" in looked_at("how many feet so many metres are")


@pytest.mark.parametrize("value", ["x" * 501, list(range(101)), {str(n): n for n in range(101)}])
def test_what_is_seldom_asked_for_is_not_done_with_what_is_long(value: Any) -> None:
    seldom = [one for kind in ("items", "text", "record") for one in idiom_costs.all_idioms()[kind] if one.spoken.needs]
    assert len(seldom) > 1000
    assert not any(one.able is None or one.able(value) for one in seldom)


ROOM = 5_000_000  # bytes


@pytest.mark.long
def test_no_phrase_makes_very_much_of_a_large_number() -> None:
    """Beside a text or a list in a record, a number may say how often that is repeated; so may one in a text, or in a pair."""
    given = {
        "number": [20_240_208, -3_000_000], "text": ["time", "x3000000y20240208z", "3-3000000"],
        "items": [[["a", 3_000_000]], [[3_000_000, "a"]], [3_000_000, 2], ["a", "b"], [3_000_000, "a"]],
        "record": [{"a": "Ada", "time": 3_000_000}, {"a": [1, 2], "time": 3_000_000}],
        "flag": [True], "date": [datetime.date(2024, 2, 29)], "moment": [datetime.datetime(2024, 2, 29, 12)],
    }  # fmt: skip
    for one in itertools.chain(*idiom_costs.all_idioms().values()):
        assert callable(one.compute)  # compiled before memory is traced, which makes it slow
    tracemalloc.start()
    try:
        for kind, held in idiom_costs.all_idioms().items():
            for one in held if kind not in ("any", "two") else ():
                for row in itertools.product(*(given[hole.rstrip("2")] for hole in (kind, *one.holes[1:]))):
                    if one.able is not None and not all(map(one.able, row)):
                        continue
                    tracemalloc.reset_peak()
                    before = tracemalloc.get_traced_memory()[0]
                    with contextlib.suppress(*idiom_costs.FAILS):
                        one.compute(*row)
                    assert tracemalloc.get_traced_memory()[1] - before < ROOM, (one.spoken.template, row)
    finally:
        tracemalloc.stop()


def test_long_wishes_are_weighed_by_the_words_that_tell_most() -> None:
    known = channel()
    said = words_in(" ".join(one.purpose for one in entries()[::9]))
    assert len(known.rarest(said, 60)) == 60
    assert known.rarest(["letter", "zzzz"], 60) == ["letter"]
    assert "letter" not in known.rarest(said | {"letter"}, 5)


def test_what_counts_is_not_done_with_large_numbers() -> None:
    counted = [
        one for one in idiom_costs.all_idioms()["items"] if "factorial(x)" in one.spoken.template or "'#' * x" in one.spoken.template
    ]
    assert len(counted) > 2
    for one in counted:
        assert one.able is not None
        assert one.able([3, 500])
        assert not one.able([20240208])


def test_however_many_words_are_said_the_costs_are_numbers() -> None:
    said = words_in(" ".join(one.purpose for one in entries()[::9]))
    assert len(said) > 300
    assert all(0 <= cost < 4 for held in idiom_costs.priced(said).values() for cost, _ in held)


def test_of_what_comes_to_the_same_a_few_are_held() -> None:
    found = grown(atoms(number=1), [], frozenset(), most=20_000)
    alike: dict[str, int] = {}
    for one in found:
        alike[repr(one.values)] = alike.get(repr(one.values), 0) + 1
    assert max(alike.values()) == enumeration._ALIKE


def test_a_known_expression_that_is_cheaper_otherwise_is_held_once_and_as_cheap() -> None:
    dear = valued(3.0, "number + 1", [4])
    assert dear is not None
    (one,) = [one for one in grown([*atoms(number=3), dear], [], words_in("one more"), most=500) if one.part.text == "number + 1"]
    assert one.part.cost < 1.5


def test_what_is_of_a_kind_is_not_made_of_that_kind_again() -> None:
    whole = texts(grown(atoms(number=7, text="12"), [], words_in("the whole number of a text"), most=20_000))
    assert not {"int(number)", "str(text)"} & whole.keys()
    assert {"str(number)", "int(text)"} <= whole.keys()
    assert "int(number)" in texts(grown(atoms(number=7.5), [], words_in("the whole number"), most=20_000))


def test_no_more_values_are_computed_than_may_be() -> None:
    assert grown([], [], frozenset(), most=100) == []
    few, many = (len(grown(atoms(text="sea ice"), [], frozenset(), most=most)) for most in (20, 2000))
    assert few <= 21 < many
    rows = [Valued(enumeration.Expression(0.2, "item", frozenset(), "text"), tuple("abcdefghij"))]
    assert len(grown(rows, [], frozenset(), most=20)) <= 3  # ten values each


def test_what_is_long_counts_as_more_values() -> None:
    few, many = (len(grown(atoms(items=list(range(count))), [], frozenset(), most=3000)) for count in (400, 4))
    assert few * 3 < many


async def test_what_needs_a_function_is_not_made_where_an_argument_has_its_name() -> None:
    passed = await made(asked("the length of the list", Example((), (("len", [4, 8, 1]),), 3)), most=WIDE)
    assert not any("len(" in text for _, text in passed)


async def test_a_method_that_is_named_back_is_audited() -> None:
    what = asked("the number doubled", Example((), (("x", 31),), 62))
    seen: list[str] = []
    assert await made(what, audit=lambda text: seen.append(text) or "x_" in text.partition(":")[0]) == []
    assert any("x_" not in text.partition(":")[0] for text in seen)


async def test_an_argument_is_used_by_its_whole_name() -> None:
    found = await made(asked("the numbers without number2", Example(([1, 2, 3], 7, 2), (), [1, 3])), most=WIDE)
    for _, text in found:
        assert {"number", "number2"} <= {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def test_a_number_larger_than_any_float_tells_much() -> None:
    assert tells(Example((1,), (), 10**400))
    assert not tells(Example((1,), (), 12))


@pytest.mark.parametrize(
    "value", [10**400, float("nan"), "x" * 8001, list(range(8001)), {1, 2}, object(), [["x" * 7999]], {"a": {1}}, {"x" * 8000: 1}, 2j]
)
def test_what_is_large_or_has_no_order_or_is_of_no_known_kind_is_left_out(value: Any) -> None:
    assert valued(0.2, "it", [value]) is None


def test_modules_are_those_that_an_expression_uses() -> None:
    assert modules_in("math.sqrt(number) + datetime.date(2024, 1, 1).day") == ["datetime", "math"]
    assert modules_in("self.math.total + text.math.x") == []


@pytest.mark.parametrize(
    "source",
    [
        "def fee_(self, number):\n    return number + self.total",  # reads a slot
        "def fee_(self, number):\n    return self.rate_(number)",  # sends
        "def fee_(self, number):\n    while number:\n        number -= 1\n    return number",
        "def fee_(self, number",
    ],
)
async def test_a_message_that_is_more_than_a_function_is_sent_by_nothing_put_together(source: str) -> None:
    what = asked("what fee_ answers", Example((31,), (), 968), fee_=Method("fee_", source))
    assert (what.helpers, what.known.sends) == ({}, ())


def test_a_phrase_is_looked_at_where_a_word_of_each_group_that_it_demands_is_said() -> None:
    one = entry("{it} // 2 if {it} % 2 == 0 else {it}", "!half,halve !even number", {})
    assert one.meant(words_in("halve it if it is even"))
    assert one.meant(words_in("half of an even one"))
    assert not one.meant(words_in("halve the number"))
    assert not one.meant(words_in("yes if the number is even"))
    assert {"half", "halv", "even", "number"} <= one.words


def test_what_a_phrase_demands_can_be_said() -> None:
    held = list(tables().everything())
    assert all(all(one.needs) for one in held)
    lines = [line for line in PHRASES.read_text("utf-8").splitlines() if " | " in line]
    assert sum(bool(one.needs) for one in held) == len(lines) > 20_000


def test_a_phrase_that_finds_nothing_where_it_looks_comes_to_nothing() -> None:
    """Python makes a `RuntimeError` of what ends a generator from within."""
    (idiom,) = idiom_costs.callables([entry("sum(next(y for y in {items} if y == x) for x in {it})", "!sum", {})])
    operands = [Valued(Expression(0.1, "items", kind="items"), ([4],)), Valued(Expression(0.1, "items2", kind="items"), ([5],))]
    assert enumeration.applied(idiom, operands, 1.0, "")[0] is None


def test_names_that_idioms_use_are_reserved() -> None:
    """They are read without a parser, which takes a second for all of them."""
    texts = [one.spoken.template.format(**{name: name for name in one.holes}) for held in idiom_costs.all_idioms().values() for one in held]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text, mode="eval"))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)} | {node.arg for node in nodes if isinstance(node, ast.arg)}
    assert idiom_costs.reserved() == used - {*idiom_costs.KINDS, "it", "number2", "text2"}


def test_no_idiom_takes_what_is_given_for_a_pattern() -> None:
    """Of a pattern like `(a+)+$` a search does not end, and it is the daemon that computes idioms."""

    def open_names(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.Call) and "re.escape" in (ast.unparse(node.func), *map(ast.unparse, node.args)):
            return
        if isinstance(node, ast.Name):
            yield node.id
        for one in ast.iter_child_nodes(node):
            yield from open_names(one)

    for held in idiom_costs.all_idioms().values():
        for one in held:
            text = one.spoken.template.format(**{name: name for name in one.holes})
            for node in ast.walk(ast.parse(text, mode="eval")):
                if isinstance(node, ast.Call) and re.fullmatch(r"re\.(?!escape)\w+", ast.unparse(node.func)):
                    assert not {*one.holes} & {*open_names(node.args[0])}, text


def test_what_an_idiom_computes_is_read_when_it_is_first_asked_for() -> None:
    (one,) = idiom_costs.callables([entry("{it} // 2 if {it} % 2 == 0 else {it}", "!half !even", {})])
    assert not {"compute", "pieces", "holes"} & vars(one).keys()
    assert [one.compute(8), one.compute(7), one.holes] == [4, 7, ("it",)]


async def test_the_condition_for_one_of_two_words_is_searched_for_without_them() -> None:
    what = asked("yes if it is even, no otherwise", Example((12,), (), "yes"))
    request = adaptation.asked(what)
    assert request is not None
    found = [goal for goal in targets.goals(what, request) if goal.spoken]
    assert {goal.around for goal in found} == {"'yes' if {} else 'no'", "'no' if {} else 'yes'"}
    assert all(words_in("yes no if otherwise") <= goal.spoken and "even" not in goal.spoken for goal in found)


def test_words_that_nobody_speaks_of_cost_more_to_go_through() -> None:
    """Most requests that want the words of a text say so."""
    for text, said in (("the longest word", 0.0), ("who comes first", 1.0)):
        what = asked(text, Example(("ann bob",), (), "ann"))
        request = adaptation.asked(what)
        assert request is not None
        (over,) = [one for one in terms.overs(request, what) if one.text == "text.split()"]
        shout = terms.Computed(Expression(0.2, "item + '!'", kind="text"), (("ann!", "bob!"),))
        (made_of,) = aggregations.lists(over, [shout], words_in(text))
        assert made_of.part.cost == pytest.approx(0.2 + aggregations.FILTERED + said)
