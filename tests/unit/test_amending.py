"""A refused draft amended: by examples that tell something, by what does the same elsewhere, and by nothing else."""

from __future__ import annotations

import math
from typing import Any

import pytest

from batos.forge.candidate_search import specification_of
from batos.objects import Example, Intent, Method, SlotDict, SlotList, SlotSet, UvmObject
from batos.synthesis.batch_runner import variations
from batos.synthesis.ranking import ABOUT, SURE, groups, likeliest, likely, mutants_passing
from batos.synthesis.specification import MethodCall, Specification, tells
from tests.support.synthesis import context, here, runner


def asked(intent: str, *examples: Example, **slots: Any) -> Specification:
    return specification_of(UvmObject(**slots), "count_", examples[0].args, {}, intent=intent, examples=examples)


async def amended(source: str, what: Specification, before: tuple[str, ...] = ()) -> list[str]:
    search = context(what, audit=lambda text: "eval" not in text)
    return await likely(search, await mutants_passing(search, source, before))


@pytest.mark.parametrize(
    ("example", "much"),
    [
        (Example(([3, 1, 2],), (), [1, 2, 3]), True),
        (Example(("a fox",), (), "fox a"), True),
        (Example(([300, 1, 2],), (), 303), True),
        (Example((7,), (), -2.333), True),
        (Example(([30, 1, 2],), (), 33), False),  # soon hit by chance
        (Example((1,), (), 0.5), False),
        (Example((1,), (), 7.0), False),
        (Example((2,), (), 3, (("doves", 1),), (("doves", 3),)), True),
        (Example((2,), (), None, (("doves", 1),), (("doves", 3),)), True),
        (Example(([3, 1, 2],), (), 3), False),  # one of what was given
        (Example(([["a", 7]],), (), "a"), False),
        (Example(({"fox": 2},), (), "fox"), False),
        (Example((), (("text", "fox"),), "fox"), False),
        (Example((), (), 8, (("doves", 8),)), False),
        (Example((5,), (), True), False),
        (Example((5,), (), None), False),
        (Example((5,), (), 0), False),
        (Example((5,), (), 1), False),
        (Example((5,), (), -1), False),
        (Example((5,), (), ""), False),
        (Example((5,), (), []), False),
    ],
)
def test_an_example_tells_much_or_little(example: Example, much: bool) -> None:
    assert tells(example) is much
    assert specification_of(UvmObject(), "m_", example.args, {}, intent="", examples=[example]).tells is much


def test_one_example_that_tells_is_enough_and_none_is_not() -> None:
    assert specification_of(UvmObject(), "m_", (5,), {}, intent="", examples=[Example((5,), (), True), Example((25,), (), 625)]).tells
    assert not specification_of(UvmObject(), "m_", (5,), {}, intent="", examples=[]).tells


def test_the_object_is_there_as_plain_values() -> None:
    mother = UvmObject(hens=SlotList([1, 2]), doves=4, geese=8, name="mother")
    obj = UvmObject(
        doves=7, nest=SlotDict(a=1), count_=Method("count_", "def count_(self): return 1"), more_=Intent("more"), mate=UvmObject(),
        flock=SlotList([UvmObject()]), eggs=SlotList(range(9000)), rest=1, deep=SlotList([[[[[[2]]]]]]), picture=b"abc", kinds=SlotSet([1]),
        log=SlotList([(1, 2)]),
        limit=math.inf, geese=UvmObject(), **{"parent*": mother},
    )  # fmt: skip
    what = specification_of(
        obj,
        "m_",
        (UvmObject(),),
        {},
        intent="doves hens nest mate flock eggs name deep picture kinds log limit ducks",
        examples=[Example((2,), (), 900, (("geese", 3),))],
    )
    assert set(what.known.slots) == {"doves", "hens", "nest", "geese", "deep"}
    assert what.calls == [MethodCall((2,), {}, {"doves": 7, "hens": [1, 2], "nest": {"a": 1}, "deep": [[[[[[2]]]]]], "geese": 3})], (
        "a call with an object is none"
    )


async def test_what_is_one_edit_away_is_found() -> None:
    what = asked("how many words the text has, times a hundred", Example(("the fox is red",), (), 400))
    draft = "def count_(self, text):\n    return len(text) * 100"
    assert (await amended(draft, what))[0] == "def count_(self, text):\n    return len(text.split()) * 100"


async def test_with_state_and_what_the_example_says_of_it() -> None:
    example = Example((5,), (), 17, (("doves", 12), ("hens", 1)), (("doves", 17),))
    what = asked("add the number to the doves", example, doves=3)
    draft = "def count_(self, number):\n    self.doves = self.doves - number\n    self._p_changed = True\n    return self.doves"
    assert draft.replace("-", "+") in await amended(draft, what)
    assert await amended(draft.replace("self.doves = ", "self.hens = "), what) == [], "what the example has not changed"


async def test_several_examples_must_all_pass() -> None:
    draft = "def count_(self, number):\n    return number - 3"
    assert await amended(draft, asked("", Example((60,), (), 180)))
    assert await amended(draft, asked("", Example((60,), (), 180), Example((70,), (), 220))) == []


async def test_where_the_example_leaves_it_open_nothing_is_amended() -> None:
    what = asked("put the number into the total", Example((2,), (), 4, (("total", 2),), (("total", 4),)))
    draft = "def count_(self, number):\n    self.total = self.total - number\n    self._p_changed = True\n    return self.total"
    found = await mutants_passing(context(what), draft)
    assert {text for _, text in found} >= {draft.replace("-", "+"), draft.replace("-", "*")}
    assert await likely(context(what), found) == []
    sure = [one for one in found if one[1] == draft.replace("-", "*")]
    assert await likely(context(what), tuple(sure)) == [draft.replace("-", "*")]


async def test_what_does_the_same_whatever_it_is_given_is_hardly_meant() -> None:
    what = asked("whether the number is even", Example((20,), (), "yes"))
    always = "def count_(self, number):\n    return 'yes' if number == number else 'no'"
    even = "def count_(self, number):\n    return 'yes' if number % 2 == 0 else 'no'"
    share, sources = await likeliest(context(what), ((0.5, always), (2.0, even)))
    assert (share, sources) == (1.0, [even])
    assert (await likeliest(context(what), ((0.5, always),)))[1] == [always], "where there is nothing else"


async def test_of_what_does_the_same_the_shortest_stands_first_unless_another_costs_much_less() -> None:
    plain, least, twice, other = (
        f"def count_(self, text):\n    return {one}" for one in ("len(text)", "min([len(text)])", "len(text) * 1", "0")
    )
    passed = ((-1.2, least), (-1.0, plain), (0.3, twice), (-0.5, other))
    first, second = await groups(runner(), passed, [MethodCall(("ab",), {}, {}), MethodCall(("",), {}, {})], about=ABOUT)
    assert (first.sources, first.cost) == ([plain, least, twice], -1.2)
    assert first.best == math.exp(2.4)
    assert second.sources == [other]
    (first,) = await groups(runner(), ((-1.2, least), (-0.8, plain)), [MethodCall(("ab",), {}, {})], about=ABOUT)
    assert first.sources == [least, plain]
    (first,) = await groups(runner(), ((-1.2, least), (-1.0, plain)), [MethodCall(("ab",), {}, {})])
    assert first.sources == [least, plain], "edits of drafts: what they cost tells them apart"


async def test_what_is_refused_by_the_guardian_is_not_tried() -> None:
    what = asked("the number times nine", Example((30,), (), 270))
    draft = "def count_(self, number):\n    return number * 3"
    ran: list[str] = []

    async def run(source: str, given: list[Any]) -> Any:
        ran.append(source)
        return await here()(source, given)

    assert await mutants_passing(context(what, audit=lambda text: False, run=run), draft) == ()
    assert ran == []


async def test_nothing_passes_and_nothing_is_likely() -> None:
    assert await likely(context(asked("", Example((30,), (), 270))), ()) == []


def test_most_must_do_the_same() -> None:
    assert 0.5 < SURE < 1


def test_calls_vary_in_their_values_and_never_in_their_kinds() -> None:
    call = MethodCall([3, "a fox", [1, 2], {"a": 1, "b": [2]}, True, 1.5, "2024-05-06", None, []], {"n": 4}, {"doves": [7]})
    given = repr(call)
    found = variations([call], 40)
    assert found == variations([call], 40)
    assert repr(call) == given
    assert len({repr(one) for one in found}) > 30
    for one in found:
        assert [type(value) for value in one.args] == [type(value) for value in call.args]
        assert (set(one.kwargs), set(one.slots)) == ({"n"}, {"doves"})


def test_what_is_looked_for_is_there_in_some_calls_and_each_way_to_change_a_value_has_its_turn() -> None:
    found = variations([MethodCall(["a fox and a dog", "cat", [3, 4], 7], {}, {"stock": {"apples": 2}})], 60)
    assert any(text != "cat" and text in whole.split() for whole, text, *_ in (one.args for one in found))
    assert any(number in items for _, _, items, number in (one.args for one in found))
    alone = {text for one in variations([MethodCall(["a fox"], {}, {})], 24) for text in one.args}
    assert {"aa foxfox", "A FOX", "a fox a fox", "fox a", "xof a"} <= alone
    assert "a fox" not in alone, "a call that is as it was tells nothing"


def test_a_call_that_is_given_nothing_has_no_variations() -> None:
    assert variations([MethodCall([])], 3) == [MethodCall([])] * 3
