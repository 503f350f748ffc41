"""Methods put together of parts: of what is given, of the items of it, and of what a slot becomes."""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.objects import Example
from batos.synthesis import adaptation, aggregations, enumeration, terms
from batos.synthesis.enumeration import tidied
from batos.synthesis.handbook import words_in
from batos.synthesis.idiom_costs import MODULES
from batos.synthesis.ranking import likely
from batos.synthesis.specification import same
from batos.synthesis.transformations import COUNTED, GROUPED, OF_EACH, ORDERED, WHOLE, compiled_frame
from batos.synthesis.word_costs import tables
from tests.support.synthesis import LARGEST, ROWS, SHORT, asked, context, entry, first, made


@pytest.mark.parametrize(
    ("intent", "example", "text"),
    [
        ("the sorted names of all", Example((ROWS,), (), ["Abe", "Ann", "Bob"]), "return sorted((item['name'] for item in items))"),
        ("names whose age is under 30", Example((ROWS,), (), ["Bob", "Abe"]),
         "return [item['name'] for item in items if item['age'] < 30]"),
        ("the total age", Example((ROWS,), (), 81), "return sum((item['age'] for item in items))"),
        ("names, sorted by age", Example((ROWS,), (), ["Bob", "Abe", "Ann"]), None),
        ("the name of the oldest by age", Example((ROWS[::-1],), (), "Ann"), "return max(items, key=lambda item: item['age'])['name']"),
        ("the age for each name", Example((ROWS,), (), {"Ann": 41, "Bob": 17, "Abe": 23}), None),
        ("the total age by city", Example((ROWS,), (), {"Rome": 64, "Bern": 17}), None),
        ("the names by city", Example((ROWS,), (), {"Rome": ["Ann", "Abe"], "Bern": ["Bob"]}), None),
        ("how many of each city", Example((ROWS,), (), {"Rome": 2, "Bern": 1}), None),
        ("names that are no member", Example((ROWS,), (), ["Abe"]), None),
        ("the longest word", Example(("we had a wonderful day yes",), (), "wonderful"), "return max(text.split(), key=len)"),
        ("the length of each word", Example(("we had fun",), (), [2, 3, 3]), "return [len(item) for item in text.split()]"),
        ("every second word, joined", Example(("we had a good day",), (), "we a day"), "return ' '.join(text.split()[::2])"),
        ("the third power", Example((7,), (), 343), "return number ** 3"),
        ("sum up to the number of squares", Example((9,), (), 285), None),
        ("the values of the record, sorted", Example(({"a": 31, "b": 12},), (), [12, 31]), None),
        ("the words of each line", Example(("a bc\nd ef",), (), [["a", "bc"], ["d", "ef"]]), None),
        ("how many are over the number", Example(([121, 5, 300, 7, 15], 14), (), 3),
         "return sum((x > number for x in items))"),
    ],
)  # fmt: skip
async def test_what_goes_through_items_is_found_by_what_it_gives(intent: str, example: Example, text: str | None) -> None:
    what = asked(intent, example)
    found = await first(what)
    assert text is None or found == text
    for source in [source for _, source in await made(what)]:
        space: dict[str, Any] = {}
        exec(source, space)
        assert same(space["m_"](None, *example.args), example.result)


@pytest.mark.parametrize(
    ("intent", "args", "result", "text"),
    [
        (
            "thank somebody for a thing",
            ("Bob", "cake"),
            "Thank you, Bob, for the cake!",
            "'Thank you, ' + text + ', for the ' + text2 + '!'",
        ),
        ("small letters and .txt behind it", ("Summer Plans",), "summer plans.txt", "text.lower() + '.txt'"),
        ("the birthday in a year", ("1999-03-21", 2024), "2024-03-21", "str(number) + '-' + text[5:]"),
        ("hello to the name", ({"name": "Eve", "age": 7},), "Hello, Eve!", "'Hello, ' + record['name'] + '!'"),
        ("how many pears", (12,), "12 pears", "str(number) + ' pears'"),
        ("half of the price, with km behind it", (5,), "2.5 km", "str(number / 2) + ' km'"),
    ],
)
async def test_a_text_may_be_parts_with_something_fixed_between_them(intent: str, args: Any, result: str, text: str) -> None:
    assert await first(asked(intent, Example(args, (), result))) == f"return {text}"


async def test_what_is_fixed_is_so_in_all_examples() -> None:
    told = [Example((12,), (), "12 pears"), Example((1,), (), "1 pear")]
    assert await made(asked("how many pears", *told)) == []
    told = [Example((12,), (), "12 pears"), Example((5,), (), "5 pears")]
    assert await first(asked("how many pears", *told)) == "return str(number) + ' pears'"


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (({"name": "eve", "size": "blue"},), "Eve: BLUE"),  # the name is in what is given, in other letters
        (("2024-08-26",), "2024-08-01"),  # a figure that nobody speaks of
    ],
)
async def test_what_is_given_is_not_fixed_nor_a_figure_that_nobody_speaks_of(args: Any, result: str) -> None:
    for _, text in await made(asked("a label of name and size", Example(args, (), result))):
        assert "Eve" not in text
        assert "01" not in text


async def test_nothing_is_lost_where_a_key_comes_twice() -> None:
    rows = [{"city": "Rome", "age": 41}, {"city": "Bern", "age": 17}, {"city": "Rome", "age": 23}]
    found = [text for _, text in await made(asked("age by city", Example((rows,), (), {"Rome": 23, "Bern": 17})))]
    assert not [text for text in found if "{item['city']: " in text and " if " not in text]


async def test_the_last_by_alphabet_is_not_what_is_meant_by_the_largest() -> None:
    found = [text for _, text in await made(asked("the longest word", Example(("we yess a had",), (), "yess")))]
    assert "def m_(self, text):\n    return max(text.split(), key=len)" in found
    assert not [text for text in found if "max(text.split())" in text]


async def test_a_slot_may_be_what_it_is_computed_of_and_what_it_becomes() -> None:
    doubled = Example((), (), [62, 8], (("marks", [31, 4]),), (("marks", [62, 8]),))
    text = "self.marks = [item * 2 for item in self.marks]; self._p_changed = True; return self.marks"
    assert await first(asked("double all marks", doubled)) == text
    grows = Example(("three more words",), (), None, (("pages", 310),), (("pages", 313),))
    assert (await first(asked("pages grow by how many words there are", grows))).startswith("self.pages = self.pages + len(text.split())")
    spent = Example((), (), 274, (("budget", 500), ("spent", [12, 214])))
    assert await first(asked("what is left of my budget, all spent off", spent)) == "return self.budget - sum(self.spent)"
    assert await first(asked("the sum of my marks", Example((), (), 371, (("marks", [52, 319]),)))) == "return sum(self.marks)"


async def test_two_slots_may_change_and_a_slot_that_is_not_told_is_left_alone() -> None:
    two = Example((5,), (), None, (("a", 1), ("b", 2)), (("a", 6), ("b", 7)))
    assert "self.a, self.b = (self.a + number, self.b + number)" in (await made(asked("a and b", two)))[0][1]
    untold = [Example((5,), (), None, (), (("a", 6),)), Example((5,), (), None)]
    assert await made(asked("a", *untold)) == []


async def test_known_methods_are_parts() -> None:
    what = asked("every word without its x and y", Example(("sexy foxes yell",), (), ["se", "foes", "ell"]))
    known = "return [''.join((c for c in item if c not in 'xy')) for item in text.split()]"
    assert await first(what, SHORT) == known
    assert not [text for _, text in await made(what, LARGEST) if text.endswith(known)]


async def test_words_say_which_of_those_that_pass_is_meant() -> None:
    rows = [{"name": "Ann", "due": "2024-03-01"}, {"name": "Bob", "due": "2024-03-09"}, {"name": "Cy", "due": "2024-03-05"}]
    before = asked("names due before the day", Example((rows, "2024-03-04"), (), ["Ann"]))
    assert (await first(before)).replace("item[", "x[").replace("item ", "x ") == "return [x['name'] for x in items if x['due'] < text]"
    least = asked("numbers of at least 30", Example(([12, 31, 40],), (), [31, 40]))
    assert await first(least) == "return [x for x in items if x >= 30]"
    over = asked("numbers over 30", Example(([12, 31, 40],), (), [31, 40]))
    assert await first(over) == "return [x for x in items if x > 30]"


@pytest.mark.parametrize(
    ("intent", "given", "result", "text"),
    [
        ("double the numbers over 10, the others stay", [3, 12, 8, 40], [3, 24, 8, 80],
         "[item * 2 if item > 10 else item for item in items]"),
        ("texts that contain 'ea' in capitals, the others stay", ["sea", "sky", "tide", "beat"], ["SEA", "sky", "tide", "BEAT"],
         "[item.upper() if 'ea' in item else item for item in items]"),
    ],
)  # fmt: skip
async def test_some_items_become_others_and_the_rest_stays(intent: str, given: list[Any], result: list[Any], text: str) -> None:
    assert f"return {text}" in [made.split(":\n    ", 1)[1] for _, made in await made(asked(intent, Example((given,), (), result)))]


async def test_all_examples_count_and_one_that_nothing_fits_has_none() -> None:
    told = [Example(([12, 31],), (), [31]), Example(([30, 41],), (), [41])]
    assert await first(asked("numbers over 30", *told)) == "return [x for x in items if x > 30]"
    assert await made(asked("numbers over 30", *told, Example(([1],), (), [7]))) == []
    assert await made(asked("a riddle", Example(("abc", 5), (), "xyzzy"))) == []


async def test_none_are_tried_where_none_may_be_and_all_are_audited() -> None:
    what = asked("the total age", Example((ROWS,), (), 81))
    assert await made(what, most=0) == await made(what, audit=lambda text: False) == []
    assert not [text for _, text in await made(what, audit=lambda text: "sum(" not in text) if "sum(" in text]
    assert len(await made(what)) <= 100


def test_it_is_the_same_in_each_process() -> None:
    script = """
import asyncio
from batos.image.taught_examples import Example
from tests.support.synthesis import context, ROWS, SHORT, asked, made
print(asyncio.run(made(asked("the sorted names of the city 'Rome'", Example((ROWS,), (), ["Abe", "Ann"])), SHORT)))
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    came = [
        subprocess.run(
            [sys.executable, "-c", script], env={**env, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "77")
    ]
    assert came[0] == came[1]
    assert "sorted(" in came[0]


async def test_what_is_likely_is_told_from_what_passes_by_chance() -> None:
    what = asked("the names sorted by age", Example((ROWS,), (), ["Bob", "Abe", "Ann"]))
    sources = await likely(context(what), tuple(await made(what)))
    assert sources[0].endswith("return [item['name'] for item in sorted(items, key=lambda item: item['age'])]")


@pytest.mark.parametrize("given", [("ab", 10**9), ("ab", 101), (["a"], 10**9), ({"a": "b"}, 10**9), (10**9, 10**9), (2.5, 10**14)])
def test_nothing_is_repeated_a_million_times_nor_raised_to_such_a_power(given: tuple[Any, ...]) -> None:
    atoms = [enumeration.valued(0.2, name, [value]) for name, value in zip(("one", "number"), given, strict=True)]
    found = enumeration.grown([atom for atom in atoms if atom], [], words_in("times power of"), most=60_000)
    assert found
    assert max(len(repr(one.values)) for one in found) < 10_000


@pytest.mark.parametrize(
    "examples",
    [
        [Example((), (), 3, (("scores", {"a": 1, "b": 2}),)), Example((), (), 0)],
        [Example((), (("data", {"a": 1}),), 1), Example((), (("data", ["a"]),), 0)],
        [Example((3,), (), 10**400)],
        [Example((1.5,), (), 10**400)],
        [Example((), (("item", "milk"),), "MILK")],
        [Example((), (("found", "milk"), ("self", 3)), "MILK")],
        [Example((list(range(5000)), 3), (), 77777)],
        [Example((), tuple((f"n{n}", n) for n in range(30, 46)), 77777)],
        [Example(("x{}y", "{it}"), (), "x{}y{it}!")],
        [Example(({"{b}": 1, "a}": "\ud800"},), (), "\ud800")],
        [Example((10**4000,), (), 10**4000 + 1)],
    ],
)  # fmt: skip
async def test_whatever_is_given_nothing_fails(examples: list[Example]) -> None:
    assert isinstance(await made(asked("the scores of data, capitals", *examples)), list)


async def test_what_comes_as_a_set_has_no_order_here() -> None:
    letters = entry("the letters of the text", "def letters_(self, text):\n    return set(text)")
    found = [text for _, text in await made(asked("the letters of the text", Example(("abc",), (), "abc")), letters)]
    assert not [text for text in found if "set(text)" in text.replace("sorted(set(text))", "")]


@pytest.mark.parametrize("given", [[1, "a"], list(range(41)), [], None, ["x" * 500] * 3])
async def test_what_has_no_items_of_one_kind_or_too_many_is_taken_as_a_whole(given: Any) -> None:
    what = asked("all", Example((given,), (), 7))
    request = adaptation.asked(what)
    assert request is not None
    first, *texts = [over.text for over in terms.overs(request, what)]
    assert first == ""
    assert ("items" in texts) is (given == ["x" * 500] * 3)
    assert isinstance(await made(what), list)


VALUES = (3, 2.5, True, "b", "a", None, [1, 2], ["x"], {"a": 1}, 0, "", [], float("nan"))


@pytest.mark.parametrize(
    "frame",
    [*OF_EACH, *COUNTED, *ORDERED, *GROUPED, *WHOLE],
    ids=lambda one: one.template,
)
def test_a_frame_gives_nothing_but_what_it_may_give(frame: aggregations.Frame) -> None:
    came = 0
    for one, other in itertools.product(VALUES, repeat=2):
        for rows in ([(one, one, other), (other, other, one)], [(one, other, one)], [(one, one, one)] * 3):
            with contextlib.suppress(*aggregations._FAILS):
                value = compiled_frame(frame)(rows)
                assert frame.may_give(value), value
                came += 1
    assert came


def test_every_idiom_is_an_expression_that_stands_once_and_uses_nothing_but_its_holes_and_what_it_binds() -> None:
    names = {name: name for name in ("it", "number", "number2", "text", "text2", "items", "record", "flag", "date", "moment")}
    known = tables()
    titled = [*known.made_of.values(), *known.long.values(), *known.numeric.values(), *known.counted.values()]
    for held in (*titled, known.of_any, known.of_two):
        templates = [one.template for one in held]
        assert len(set(templates)) == len(templates), sorted(text for text in templates if templates.count(text) > 1)
        for template in templates:
            nodes = list(ast.walk(ast.parse(template.format(**names), mode="eval")))
            bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            read = {node.id for node in nodes if isinstance(node, ast.Name)} - bound
            assert read <= {*names, *dir(builtins), *MODULES}, template
            assert "it" in read, template


@pytest.mark.parametrize(
    ("rough", "text"),
    [
        ("[item for item in items]", "list(items)"),
        ("[item for item in sorted(items)]", "sorted(items)"),
        ("sum((item for item in items))", "sum(items)"),
        ("[item for item in sorted(items, key=lambda item: len(item), reverse=True)][0]", "max(items, key=len)"),
        ("[item['a'] for item in sorted(items, key=lambda item: item['b'])][0]", "min(items, key=lambda item: item['b'])['a']"),
        ("[item for item in sorted(items, key=lambda item: item)][0]", "min(items)"),
        ("[item + item for item in sorted(items)][0]", "[item + item for item in sorted(items)][0]"),  # would be computed twice
        ("[item for item in items if item]", "[item for item in items if item]"),
        ("next((item for item in iter(items)))", "next((item for item in iter(items)))"),
        ("[item for item in sorted(items) if item > 'a'][0]", "next((item for item in sorted(items) if item > 'a'), None)"),
        ("sorted(items, reverse=False)[0]", "sorted(items, reverse=False)[0]"),
        ("[item for x, item in sorted(zip(items, items))][0]", "[item for x, item in sorted(zip(items, items))][0]"),
        ("sorted(items, key=lambda x: x)[0]", "min(items, key=lambda x: x)"),
        ("sorted(list(items), key=lambda item: item)", "sorted(items)"),
    ],
)
def test_what_is_made_of_parts_is_told_as_one_would_write_it(rough: str, text: str) -> None:
    assert ast.unparse(tidied(ast.parse(rough))) == text
    for items in (["bb", "a", "ccc"], ["a", "b"]):
        if "['a']" not in rough:
            assert eval(text, {"items": items}) == eval(rough, {"items": items}) if "sum" not in text else True


@pytest.mark.parametrize(
    ("rough", "text"),
    [
        ("(items[0] + 0) * (number + 10)", "items[0] * (number + 10)"),
        ("(number + 0.0) * 2", "(number + 0.0) * 2"),
        ("(number + False) * 2", "(number + False) * 2"),
        ("number + 0", "number + 0"),  # of a flag it makes a number
    ],
)
def test_what_makes_sure_of_a_factor_is_not_written(rough: str, text: str) -> None:
    assert ast.unparse(tidied(ast.parse(rough))) == text
