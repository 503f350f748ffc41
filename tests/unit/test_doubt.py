"""What the examples of a method leave open: a call on which another that passes them does otherwise, and nothing where there is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batos.forge.candidate_search import specification_of
from batos.objects import Example, UvmObject
from batos.synthesis import ranking
from batos.synthesis.ranking import OpenQuestion, Passed, mutants_passing
from batos.synthesis.specification import Specification
from tests.support.synthesis import context


def asked(call: tuple[Any, ...], intent: str, *examples: Example, **slots: Any) -> Specification:
    return specification_of(UvmObject(**slots), "m_", call, {}, intent=intent, examples=examples)


async def of_kept(source: str, what: Specification, did: str | None = None, other: Passed = ()) -> OpenQuestion | None:
    """:param did: in its trial; as it does here, if it is not said."""
    if did is None:
        did = (await context(what).runner.outcomes([source], what.calls))[0][-1]
    return await ranking.ambiguity_of_kept(context(what), source, did, other=other)


async def test_what_another_method_that_passes_answers_is_asked() -> None:
    over = "def m_(self, items):\n    return [one for one in items if one > 5]"
    what = asked(([5, 6],), "those over 5", Example(([3, 9],), (), [9]))
    assert await of_kept(over, what) == OpenQuestion(Example(([5, 6],), (), [6]), Example(([5, 6],), (), [5, 6]))


async def test_nothing_is_asked_where_the_examples_say_it() -> None:
    over = "def m_(self, items):\n    return [one for one in items if one > 5]"
    told = [Example(([3, 9],), (), [9]), Example(([4, 5, 6, 7],), (), [6, 7]), Example(([6, 5],), (), [6])]
    assert await of_kept(over, asked(([5, 6],), "those over 5", *told)) is None


async def test_the_method_that_is_kept_is_compared_however_many_cost_less() -> None:
    over, what = (
        "def m_(self, items):\n    return [one for one in items if one > 5]",
        asked(([5, 6],), "those over 5", Example(([3, 9],), (), [9])),
    )
    others = tuple((-1.5, f"def m_(self, items):\n    return [one for one in items if one > 4][-{n}:]") for n in range(2, 80))
    assert await of_kept(over, what, other=others) == OpenQuestion(Example(([5, 6],), (), [6]), Example(([5, 6],), (), [5, 6]))


async def test_an_example_tells_of_the_slots_that_the_kept_method_reads() -> None:
    kept = "def m_(self, number):\n    return number + self.total - self.total"
    others: Passed = ((-1.0, "def m_(self, number):\n    return number"), (-0.9, "def m_(self, number):\n    return max(number, 9)"))
    question = await of_kept(kept, asked((5,), "the total of it", Example((9,), (), 9), total=2), other=others)
    assert question is not None
    assert [name for name, _ in question.answer.slots] == ["total"]


async def test_nothing_is_asked_of_a_method_that_sends() -> None:
    sends = "def m_(self, items):\n    return [one for one in items if self.wants_(one) and one > 5]"
    assert await of_kept(sends, asked(([5, 6],), "those over 5", Example(([3, 9],), (), [9]))) is None


async def test_the_call_of_the_user_is_asked_before_any_other() -> None:
    least = "def m_(self, items):\n    return min(items)"
    example = Example(([4],), (), 4)
    found = await of_kept(least, asked(([7, 2, 9],), "the least", example))
    assert found == OpenQuestion(Example(([7, 2, 9],), (), 2), Example(([7, 2, 9],), (), 9))
    elsewhere = await of_kept(least, asked(([4],), "the least", example))
    assert elsewhere is not None, "one that is like it, where it says nothing"
    assert elsewhere.answer.args != ([4],)
    assert elsewhere.answer.result == min(elsewhere.answer.args[0])
    assert elsewhere.other.result != elsewhere.answer.result


async def test_slots_are_of_it() -> None:
    add = "def m_(self, number):\n    self.total = self.total + number\n    self._p_changed = True"
    what = asked((7,), "put the number into the total", Example((2,), (), None, (("total", 2),), (("total", 4),)), total=5, other=1)
    found = await of_kept(add, what)
    assert found is not None
    assert found.answer == Example((7,), (), None, (("total", 5),), (("total", 12),))
    ((_, other),) = found.other.after
    assert other in (14, 35)
    assert found.other == found.answer._replace(after=(("total", other),))
    assert found.said("m_") == f"m_(7) when total = 5 answers null and leaves total = 12 or null and leaves total = {other}"


async def test_what_fails_or_no_example_can_say_is_not_asked() -> None:
    first = "def m_(self, items):\n    return items[0]"
    what = asked(([],), "the first", Example(([7],), (), 7))
    found = await of_kept(first, what)
    assert found is None or found.answer.args != ([],)
    to = "def m_(self, number):\n    return range(number + 1) if number > 1 else []"  # no value of an example
    assert await of_kept(to, asked((3,), "", Example((0,), (), []))) is None


async def test_of_a_slot_that_one_of_them_changes_both_tell() -> None:
    put = "def m_(self, number):\n    if number >= 5:\n        self.total = number\n        self._p_changed = True"
    what = asked((5,), "put the number into the total", Example((9,), (), None, (("total", 2),), (("total", 9),)), total=1)
    found = await of_kept(put, what)
    assert found is not None
    assert [[name for name, _ in one.after] for one in found] == [["total"]] * 2, "else teaching the other would change nothing"


async def test_what_one_makes_and_the_other_does_not_is_nothing_before_and_can_be_taught() -> None:
    put = "def m_(self, number):\n    if number > 5:\n        self.total = number\n        self._p_changed = True"
    first = Example((9,), (), None, (), (("total", 9),))
    found = await of_kept(put, asked((5,), "put the number into the total", first))
    assert found == OpenQuestion(Example((5,), (), None, (), (("total", None),)), Example((5,), (), None, (), (("total", 5),)))
    taught = asked((5,), "put the number into the total", first, found.answer)
    passed = await mutants_passing(context(taught), put.replace("5", "4"))
    assert put in [source for _, source in passed]


@pytest.mark.parametrize("kept", ["self.total = getattr(self, 'total', 0) + number", "me = self; self.total = me.total + number"])
async def test_nothing_is_said_of_what_uses_its_receiver_otherwise(kept: str) -> None:
    what = asked((7,), "add to the total", Example((2,), (), None, (("total", 0),), (("total", 2),)), total=5)
    assert await of_kept(f"def m_(self, number):\n    {kept}\n    self._p_changed = True", what, "(None, {'total': 12})") is None


@pytest.mark.parametrize("did", ["", "(None, {'total': 11})", "(1, {'total': 12})"])
async def test_nothing_is_said_of_what_its_trial_did_otherwise(did: str) -> None:
    add = "def m_(self, number):\n    self.total = self.total + number\n    self._p_changed = True"
    what = asked((7,), "add to the total", Example((2,), (), None, (("total", 0),), (("total", 2),)), total=5)
    assert await of_kept(add, what, "(None, {'total': 12})") is not None
    assert await of_kept(add, what, did) is None


async def test_what_is_in_a_set_is_told_in_its_order() -> None:
    kinds = "def m_(self, words):\n    return {one.lower() for one in words}"
    found = await of_kept(kinds, asked((["Fox", "hen", "red", "Ant"],), "the words, in small letters", Example((["a"],), (), ["a"])))
    assert found is not None
    assert found.answer.result == ["ant", "fox", "hen", "red"]


async def test_a_slot_that_is_nested_deep_is_as_it_was() -> None:
    first = "def m_(self, items):\n    return [self.deep, items[0]]"
    deep = [[[[[[2]]]]]]
    what = asked(([1, 2],), "the deep and the first", Example(([7],), (), [[], 7], (("deep", []),)), deep=deep)
    found = await of_kept(first, what)
    assert found is not None
    assert (found.answer.result[0], found.answer.after) == (deep, ())


async def test_a_question_is_short() -> None:
    what = asked(("fox " * 200,), "loud", Example(("A",), (), "A"))
    found = await of_kept("def m_(self, text):\n    return text.upper()", what)
    assert found is not None
    assert max(map(len, found.texts())) < 400


async def test_of_several_that_pass_the_likeliest_two_are_held_against_each_other() -> None:
    what = asked((7,), "put the number into the total", Example((2,), (), 4, (("total", 2),), (("total", 4),)), total=5)
    draft = "def m_(self, number):\n    self.total = self.total - number\n    self._p_changed = True\n    return self.total"
    passed = await mutants_passing(context(what), draft)
    found = await ranking.ambiguity_of_refused(context(what), passed)
    assert found is not None
    assert found.answer.args == (7,)
    assert {found.answer.result, found.other.result} == {12, 35}
    assert await ranking.ambiguity_of_refused(context(what), ()) is None
    alone = tuple(one for one in passed if "total * number" in one[1] or "number * self" in one[1])
    assert await ranking.ambiguity_of_refused(context(what), alone) is None


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (Example((), (), 3), "m_() answers 3 or 4"),
        (Example(("a", [1]), (("n", None),), 3), 'm_("a", [1], n=null) answers 3 or 4'),
    ],
)
def test_it_is_said_in_words_and_as_examples(example: Example, said: str) -> None:
    question = OpenQuestion(example, example._replace(result=4))
    assert question.said("m_") == said
    assert [Example.from_json(json.loads(text)) for text in question.texts()] == list(question)
