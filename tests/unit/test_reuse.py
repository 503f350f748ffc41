"""Methods that are known, put to another use: found by what they do, called with what there is, with another answer where that is all they
lack."""

from __future__ import annotations

from typing import Any

import pytest

from batos.forge.candidate_search import specification_of
from batos.objects import Example, UvmObject
from batos.synthesis import adaptation, repair
from batos.synthesis.batch_runner import Run
from batos.synthesis.handbook import Handbook, HandbookEntry
from batos.synthesis.ranking import likely
from batos.synthesis.specification import Specification
from tests.support.synthesis import LARGEST, asked, context, entry, here

OVER = entry("the numbers over 3", "def over_3_(self, items):\n    return [one for one in items if one > 3]")
ADD = entry(
    "add the number to total",
    "def add_(self, number):\n    self.total = self.total + number\n    self._p_changed = True\n    return self.total",
)
CITIES = entry(
    "the names of one city", "def in_city_(self, items, text):\n    return [one['name'] for one in items if one['city'] == text]"
)
SPEND = entry("the budget less the number", "def left_(self, number):\n    return self.budget - number")
SENDS = entry("the fees added up", "def fees_(self, items):\n    return sum(self.fee_(one) for one in items)")
LOOP = entry("wait until it is over", "def wait_(self, number):\n    while number:\n        number = number - 1\n    return number")
POWER = entry("two to the number", "def power_(self, number):\n    return 2 ** number")
BOOK = Handbook([LARGEST, OVER, ADD, CITIES, SPEND, SENDS, LOOP, POWER])


async def found(
    what: Specification, *, most: int = 500, audit: Any = lambda text: True, book: Handbook = BOOK, run: Run | None = None
) -> list[str]:
    known = book.alike(what.known.told, without=what.known.slots)
    return [text for _, text in await adaptation.adapted_passing(context(what, audit=audit, run=run, adaptations=most), known)]


async def test_a_method_is_found_by_what_it_does_whatever_the_words() -> None:
    text, *_ = await found(asked("how far the best one came", Example(([30, 712, 45],), (), 712)))
    assert text == "def m_(self, items):\n    return max(items)"


async def test_numbers_and_fields_are_those_of_the_words() -> None:
    over = "def m_(self, items):\n    return [one for one in items if one > {}]"
    assert over.format(120) in await found(asked("what is over 120", Example(([130, 7, 121, 120],), (), [130, 121])))
    rows = [{"name": "Ann", "team": "red"}, {"name": "Bob", "team": "blue"}]
    teams = "def m_(self, items, text):\n    return [one['name'] for one in items if one['team'] == text]"
    assert await found(asked("who is in a team", Example((rows, "red"), (), ["Ann"]))) == [teams]


async def test_arguments_may_come_the_other_way_round() -> None:
    rows = [{"name": "Ann", "city": "Rome"}, {"name": "Bob", "city": "Bern"}]
    turned = "def m_(self, text, items):\n    return [one['name'] for one in items if one['city'] == text]"
    assert await found(asked("who lives in a city", Example(("Rome", rows), (), ["Ann"]))) == [turned]


async def test_slots_are_those_that_are_spoken_of_and_may_stand_for_arguments() -> None:
    spent = Example((30,), (), 512, (("savings", 482),), (("savings", 512),))
    (text,) = await found(asked("put it to my savings", spent))
    assert text == ADD.source.replace("total", "savings").replace("add_", "m_")
    text, *_ = await found(asked("the highest of my marks", Example((), (), 371, (("marks", [52, 371, 4]),))))
    assert text == "def m_(self):\n    return max(self.marks)"
    text, *_ = await found(asked("what is left of an amount", Example((900, 237), (), 663)))
    assert text == "def m_(self, number, number2):\n    return number - number2"


async def test_what_changes_no_slot_is_no_method_that_shall() -> None:
    assert await found(asked("the total and the number", Example((30,), (), 512, (("total", 482),)))) == []


async def test_another_answer_is_made_of_its_own() -> None:
    (text,) = await found(asked("the best, as a text", Example(([30, 712],), (), "712")))
    assert text == "def m_(self, items):\n    return str(max(items))"
    told = [Example(([7, 9, 8],), (), [9, 8, 7]), Example(([4],), (), [4])]
    assert "def m_(self, items):\n    return sorted([one for one in items if one > 3], reverse=True)" in await found(asked("3", *told))


async def test_another_answer_is_made_of_what_it_leaves() -> None:
    text, *_ = await found(asked("put it to my savings", Example((30,), (), True, (("savings", 482),), (("savings", 512),))))
    assert text.endswith("self._p_changed = True\n    return True")
    text, *_ = await found(asked("put it to my savings", Example((37,), (), 37, (("savings", 482),), (("savings", 519),))))
    assert text.endswith("self._p_changed = True\n    return number")


async def test_an_answer_inside_a_function_of_the_method_stays() -> None:
    inner = "def m_(self, items):\n\n    def key(one):\n        return -one\n    return sorted(items, key=key)"
    what = asked("", Example(([3, 21, 5],), (), 21))
    did = (await context(what).runner.outcomes([inner], [call for call, _ in what.examples]))[0]
    texts = [text for _, text in repair.other_answers(inner, did, what, ["items"])]
    assert inner.replace("return sorted(items, key=key)", "return sorted(items, key=key)[0]") in texts
    assert all("return -one\n" in text for text in texts)


@pytest.mark.parametrize(
    ("told", "text", "left_out"),
    [
        ("what is over 4", "items[4]", 0),
        ("what is over 4", "items[3]", 1),
        ("the place from 0 of the letter x", "text.index('x')", 0),
        ("the mean of what is over 4, or 0 if there are none\nmean over", "[one for one in items if one > 0]", 1),
        ("the mean of what is over 4, or 0 if there are none\nmean over", "[one for one in items if one > 4]", 0),
    ],
)
def test_a_number_that_is_spoken_of_and_left_out_costs_something(told: str, text: str, left_out: int) -> None:
    assert adaptation.unused(text, told) == pytest.approx(0.8 * left_out)


def test_a_letter_may_be_an_article() -> None:
    example = Example((["tea", "sky"],), (), "tea")
    for words, letters in (("the first word that contains the letter a", ("a",)), ("a word that I know", ()), ("a word with b", ("b",))):
        request = adaptation.asked(asked(words, example))
        assert request is not None
        assert set(request.texts) - {"m"} == set(letters)  # m is of the selector


async def test_all_examples_must_be_answered() -> None:
    both = [Example(([30, 712],), (), "712"), Example(([1, 2],), (), "1")]
    assert await found(asked("the best, as a text", *both)) == []


async def test_what_sends_or_loops_while_something_is_so_is_not_tried() -> None:
    assert adaptation.anatomy(SENDS.source, SENDS.purpose) is None
    assert adaptation.anatomy(LOOP.source, LOOP.purpose) is None
    assert adaptation.anatomy("no method", "") is None


async def test_of_a_large_number_nothing_is_tried_that_may_turn_as_often() -> None:
    ran: list[str] = []

    async def run(source: str, given: list[Any]) -> Any:
        ran.append(source)
        return await here()(source, given)

    assert await found(asked("two to the number", Example((9,), (), 512)), run=run) != []
    assert any("**" in text for text in ran)
    ran.clear()
    assert await found(asked("two to the number", Example((10**9,), (), 512)), run=run) == []
    assert not any("**" in text for text in ran)


async def test_so_many_are_tried_the_likest_first_and_none_that_the_guardian_refuses_passes() -> None:
    what = asked("the largest of the numbers", Example(([30, 712, 45],), (), 712))
    assert await found(what, most=1) == ["def m_(self, items):\n    return max(items)"]
    assert await found(asked("numbers over 3", Example(([30, 712, 45],), (), 712)), most=1) == [
        "def m_(self, items):\n    return max([one for one in items if one > 3])"
    ]
    assert await found(what, audit=lambda text: False) == []


@pytest.mark.parametrize(
    "examples",
    [
        [],
        [Example(([3, 1],), (), 3), Example((), (), 3)],  # called in two ways
        [Example(([3, 1],), (("not a name", 1),), 3)],
    ],
)
async def test_where_it_is_not_clear_what_is_given_nothing_is_tried(examples: list[Example]) -> None:
    what = specification_of(UvmObject(), "m_", ([3, 1],), {}, intent="the largest of the numbers", examples=examples)
    assert await found(what) == []


async def test_a_way_to_call_is_found_among_very_many_at_once() -> None:
    limits = "def m_(self, number):\n    return sum(number > one for one in (1, 6, 12, 30, 45, 60, 72, 84, 90, 96, 99, 100))"
    many = entry("how many of the limits 1, 6, 12, 30, 45, 60, 72, 84, 90, 96, 99, 100 the number is over", limits)
    names = [f"number{n}" if n else "number" for n in range(12)]
    wide = entry("all of them", f"def m_(self, {', '.join(names)}):\n    return 0")
    what = asked("12 below 5 kilos, 20 below 10, 35 below 50", Example(tuple(range(12)), (), 412))
    assert await found(what, book=Handbook([many, wide])) == []
    assert await found(asked("12 below 5 kilos, 20 below 10, 35 below 50", Example((7,), (), 412)), book=Handbook([many, wide])) == []


@pytest.mark.parametrize("words", ["a path below 'C:\\data'", "those in '{'", "what is in '\"'", "the 'a\nb' part"])
async def test_quoted_words_may_be_anything(words: str) -> None:
    marked = entry("the text behind a 'mark'", "def m_(self, text):\n    return f\"{'mark'}{text}\"")
    assert isinstance(await found(asked(words, Example(("A",), (), "b")), book=Handbook([marked])), list)


@pytest.mark.parametrize(("selector", "slot"), [("import", "total"), ("m_", "class"), ("m_", "_total")])
async def test_what_is_no_name_of_python_s_is_none_of_a_method_s(selector: str, slot: str) -> None:
    example = Example((30,), (), 512, ((slot, 482),), ((slot, 512),))
    what = specification_of(UvmObject(), selector, (30,), {}, intent=f"put it to {slot}", examples=[example])
    assert await adaptation.adapted_passing(context(what), BOOK.alike(what.known.told)) == ()


async def test_a_setter_without_an_answer_has_none_that_could_be_another() -> None:
    setter = entry("put the number to total", "def put_(self, number):\n    self.total = number\n    self._p_changed = True")
    example = Example((30,), (), True, (("total", 482),), (("total", 30),))
    assert await found(asked("put the number to total", example), book=Handbook([setter])) == []


async def test_a_slot_with_a_name_that_no_method_can_say_is_left_alone() -> None:
    evil = "total or print(1)"
    example = Example((30,), (), 512, ((evil, 482),), ((evil, 512),))
    assert await found(asked(f"put it to {evil}", example)) == []


async def test_values_that_have_no_like_are_no_trouble() -> None:
    deep = HandbookEntry(
        "dig",
        "def dig_(self, items):\n    for _ in range(900):\n        items = [items]\n    return items",
        frozenset(),
        ("items",),
        False,
        "d",
    )
    huge = HandbookEntry("huge", "def huge_(self, items):\n    return 10 ** 400 + len(items)", frozenset(), ("items",), False, "h")
    assert await found(asked("dig", Example(([1],), (), 2.5)), book=Handbook([deep, huge])) == []


async def test_words_tell_which_of_two_is_likelier() -> None:
    first = entry("the first of the items", "def first_(self, items):\n    return items[0]")
    what = asked("the largest of the numbers", Example(([712, 30],), (), 712))
    known = Handbook([first, *[LARGEST, OVER]]).alike(what.known.told)
    passed = await adaptation.adapted_passing(context(what), known)
    assert [text.rsplit(" ", 1)[-1] for _, text in passed][:2] == ["max(items)", "items[0]"]
    assert (await likely(context(what), passed))[0].endswith("max(items)")


@pytest.mark.parametrize(
    ("intent", "texts"),
    [
        ("I need words with the letter e", ("e",)),
        ("words that don't begin with b, it's said", ("b",)),
        ("a word with 'c' or Q", ("c", "q")),
        ("a text, I said", ()),
    ],
)
def test_letters_stand_alone_and_are_no_words(intent: str, texts: tuple[str, ...]) -> None:
    request = adaptation.asked(asked(intent, Example(("sea ice",), (), ["ice"]))._replace(selector="words_"))
    assert request is not None
    assert tuple(one for one in request.texts if one != "m") == texts  # `m_` is what it asks for in all tests here
