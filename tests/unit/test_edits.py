"""What is one edit away from a draft: the usual mistakes, each undone by one; nothing that makes no sense."""

from __future__ import annotations

import ast
import math

import pytest

from batos.synthesis.mutations import SMALLEST, edits, fields_of, makes_sense
from batos.synthesis.specification import RequestFacts

DOVES = RequestFacts(
    "add the number to the doves and answer how many there are", ("doves", "hens"), ("doves",), ("doves",), ("name", "age")
)
NUMBERS = RequestFacts("of the numbers", ())


def method(line: str, parameters: str = "items", before: str = "") -> str:
    return f"def m_(self, {parameters}):\n{before}    return {line}"


@pytest.mark.parametrize(
    ("written", "meant", "parameters"),
    [
        ("[x for x in items if x > 2]", "[x for x in items if x >= 2]", "items"),
        ("[x for x in items if x > 2]", "[x for x in items if not x > 2]", "items"),
        ("[x for x in items if x]", "[x for x in items]", "items"),
        ("number - other", "other - number", "number, other"),
        ("number / other", "number // other", "number, other"),
        ("max(items)", "min(items)", "items"),
        ("text.lower()", "text.upper()", "text"),
        ("text in text2", "text not in text2", "text, text2"),
        ("sorted(items, reverse=True)", "sorted(items)", "items"),
        ("len(text)", "len(text.split())", "text"),
        ("items", "sorted(items)", "items"),
        ("sorted(items)", "items", "items"),
        ("number * 2", "number * 3", "number"),
        ("items[0]", "items[1]", "items"),
        ("items[0] or number", "items[0] and number", "items, number"),
        ("text if number else text2", "text2 if number else text", "text, text2, number"),
        ("items[1:2, number]", "items[1:2, number + 1]", "items, number"),
        ("f'{text:>5}'", "f'{text.lower():>5}'", "text"),
        ("max(items, key=lambda one: one)", "max(items, key=lambda one: -one)", "items"),
    ],
)
def test_a_mistake_is_undone_by_one_edit(written: str, meant: str, parameters: str) -> None:
    found = [text for _, text in edits(method(written, parameters), NUMBERS, most=5000)]
    assert ast.unparse(ast.parse(method(meant, parameters))) in found


def test_of_the_smallest_each_is_a_word_or_a_sign() -> None:
    all_, smallest = (edits(method("sorted(items)[0] + 1"), NUMBERS, most=5000, within=within) for within in (math.inf, SMALLEST))
    found = {text for _, text in smallest}
    assert found < {text for _, text in all_}
    assert {method("sorted(items)[1] + 1"), method("sorted(items)[0] + 2"), method("items[0] + 1")} <= found
    assert method("sorted(items)[0]") not in found


def test_what_the_words_and_the_examples_name_is_at_hand() -> None:
    known = RequestFacts('after 7 days or twice, by "fox"', ("doves",), (), (), ("fox", "age"))
    found = {text for _, text in edits(method("number + 1", "number"), known, most=5000)}
    for meant in ("number + 7", "number + 2", "number + 'fox'", "number + 0"):
        assert method(meant, "number") in found
    assert method("number + 'age'", "number") not in found


def test_another_draft_lends_its_expressions() -> None:
    draft, other = method("[items[1::2], items[0]]"), method("[items[::2], items]")
    meant = method("[items[1::2], items[::2]]")
    assert meant not in {text for _, text in edits(draft, NUMBERS, most=5000)}
    assert meant in {text for _, text in edits(draft, NUMBERS, [other, "no method", draft], most=5000)}


def test_a_statement_is_left_out_or_comes_sooner() -> None:
    begin, told = "def add_(self, number):\n    self.doves = self.doves + number\n", "    self._p_changed = True\n"
    more, end = "    self.doves += 1\n", "    return self.doves"
    draft = begin + told + more + end
    found = {text for _, text in edits(draft, DOVES, most=5000)}
    assert {begin + told + end, begin + more + told + end} <= found


def test_the_cheapest_come_first_and_each_once() -> None:
    source = method("[x for x in items if x > 2]")
    found = edits(source, NUMBERS, most=100)
    assert found == edits(source, NUMBERS, most=1000)[:100] == sorted(found)
    assert len({text for _, text in found}) == 100
    longer = method(f"[x for x in items if x > 2] or '{'long' * 100}'")
    assert len(longer) < 500
    assert len(edits(longer, NUMBERS, most=100)) < 100, "those that are longer take longer"
    assert source not in {text for _, text in found}


@pytest.mark.parametrize(
    "source",
    [
        "no method",
        "",
        "x = 1",
        "def m_(self, text):\n    return self.greet_(text)",
        "def m_(self, number):\n    while number > 3:\n        number -= 1\n    return number",
        "async def m_(self, text):\n    return text",
        "def m_(self):\n    return 1\ndef n_(self):\n    return 2",
        "def m_():\n    return 1",
        "def m_(text):\n    return text",
        "def m_(self):\n    return getattr(self, 'doves', 0)",
        "def m_(self):\n    me = self\n    return me.doves",
        method("items" + " + items" * 80),
        method("x" + "+x" * 150),
        method("-" * 400 + "number", "number"),
    ],
)
def test_what_is_long_sends_uses_its_receiver_or_may_not_end_is_left_as_it_is(source: str) -> None:
    assert edits(source, NUMBERS, most=100) == []


@pytest.mark.parametrize(
    ("source", "sense"),
    [
        (method("len(items) + self.doves"), True),
        (method("len(items)"), False),  # the words name the doves, and so does the example
        (method("1 + self.doves"), False),  # what it is given
        (method("items + self.doves", before="    import math\n"), False),
        (method("items + self.doves", before="    first = items[0]\n"), False),
        (method("first + self.doves", before="    first = items[0]\n"), True),
        (method("self.doves + len(items)"), True),
        (method("self.doves + self.hens + len(items)"), False),  # spoken of by nobody
        (method("self.doves + self.geese + len(items)"), False),
        (method("items", before="    self.doves = 1\n    self._p_changed = True\n"), True),
        (method("items + self.doves", before="    self.hens = 1\n    self._p_changed = True\n"), False),
        (method("self.count_(items) + self.doves"), False),
        (method("3[0] + items + self.doves"), False),
        (method("'age'['age'] + items + self.doves"), False),
        (method("(x for x in items)[0] + self.doves"), False),
        (method("[items]['age'] + self.doves"), False),
        (method("[](items) + self.doves"), False),
        (method("items is 3 or self.doves"), False),
        (method("items is None or self.doves"), True),
        ("def m_(self", False),
    ],
)
def test_an_edit_makes_sense(source: str, sense: bool) -> None:
    assert makes_sense(source, DOVES) is sense


def test_a_slot_is_spoken_of_in_part() -> None:
    known = RequestFacts("the price of all", ("unit_price", "hens"), ("hens",))
    assert [known.speaks_of(slot) for slot in ("unit_price", "hens", "unit", "geese")] == [True, True, False, False]


def test_the_fields_of_records() -> None:
    assert set(fields_of([{"a": {"b": 1}, "c": [{"d": 2}]}, "e", 3])) == {"a", "b", "c", "d"}
