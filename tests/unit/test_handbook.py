"""The handbook: which methods it holds, and which of them are near to a purpose."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.forge import method_prompts
from batos.forge.method_prompts import WantedMethod
from batos.guardian import PersistenceGuardian
from batos.methods.runtime import parameters_in
from batos.objects import UvmObject
from batos.synthesis.families import families
from batos.synthesis.handbook import NEAR, Handbook, HandbookEntry, entries, entry_of, handbook, words_in
from batos.training.tasks import make


def entry(purpose: str, code: str, *parameters: str, keeps: bool = False) -> HandbookEntry:
    source = f"def m({', '.join(('self', *parameters))}):\n    return {code}"
    return HandbookEntry(purpose, source, words_in(purpose), parameters, keeps, code)


SMALL = [
    entry("add up every number modulo 8", "sum(x % 8 for x in items)", "items"),
    entry("add up the numbers", "sum(items)", "items"),
    entry("each value of the record doubled", "{k: x * 2 for k, x in record.items()}", "record"),
    entry("the largest of the numbers", "max(items)", "items"),
    entry("the largest value of the record", "max(record.values())", "record"),
]


def purposes(found: list[HandbookEntry]) -> list[str]:
    return [one.purpose for one in found]


def test_it_holds_what_experts_are_trained_on_and_nothing_that_measures_them() -> None:
    held = {family.shape for family in families() if family.part != "train"}
    assert len(entries()) > 1_500
    assert not held & {one.shape for one in entries()}


def test_its_methods_are_called_as_messages_are_that_ask_for_them() -> None:
    """The handbook knows what arguments are called without drawing any; a task knows by those it has drawn."""
    by_value = {"item_of", "member_of"}  # of the type of what they are of
    alike = [family for family in families() if family.part == "train" and not by_value & set(family.kinds)]
    for family in random.Random(1).sample(alike, 200):
        task = make(family, random.Random(1))
        if task is not None and not task.kwargs:
            names = [name.rstrip("0123456789") for name in parameters_in(task.source)]
            assert list(entry_of(family).parameters) == names, family


def test_the_guardian_accepts_its_methods() -> None:
    guardian = PersistenceGuardian()
    for one in random.Random(2).sample(entries(), 200):
        name = one.source.partition("(")[0].removeprefix("def ")
        assert guardian.audit(one.source, name).accepted, one.source


def test_the_first_is_the_nearest_and_the_next_tells_what_it_does_not() -> None:
    found = Handbook(SMALL).near("each value of the record modulo 2", ["record"], keeps=False)
    assert purposes(found)[:2] == ["each value of the record doubled", "add up every number modulo 8"]


def test_of_two_equally_near_the_one_that_is_called_alike_comes_first() -> None:
    assert purposes(Handbook(SMALL).near("the largest", ["record"], keeps=False))[0] == "the largest value of the record"
    assert purposes(Handbook(SMALL).near("the largest", ["items"], keeps=False))[0] == "the largest of the numbers"


def test_what_is_not_wanted_is_left_out() -> None:
    assert "sum(items)" in [one.shape for one in Handbook(SMALL).near("add up numbers", ["items"], keeps=False)]
    assert "sum(items)" not in [one.shape for one in Handbook(SMALL).near("add up numbers", ["items"], keeps=False, but=["sum(items)"])]
    assert Handbook(SMALL).near("largest", ["items"], keeps=False, without=["largest_"]) == [], "the name of a slot says nothing"


@pytest.mark.parametrize("text", ["", "the of a", "zzz"])
def test_of_words_that_say_nothing_nothing_is_near(text: str) -> None:
    assert handbook().near(text, [], keeps=False) == []


@given(st.text(max_size=60), st.lists(st.sampled_from(["text", "number", "items"]), max_size=3), st.booleans())
def test_whatever_is_asked_few_of_different_shapes_are_found_and_the_same_ones_again(text: str, parameters: list[str], keeps: bool) -> None:
    found = handbook().near(text, parameters, keeps=keeps)
    assert len(found) == len({one.shape for one in found}) <= NEAR
    assert found == handbook().near(text, parameters, keeps=keeps)
    more = handbook().near(text, parameters, keeps=keeps, count=3 * NEAR)
    assert more[:NEAR] == found
    assert len(more) == len({one.shape for one in more}) <= 3 * NEAR


def test_a_view_shows_these_of_the_nearest() -> None:
    book = Handbook(SMALL)

    def shown(view: Sequence[int]) -> list[str]:
        (asked,) = method_prompts.compact(
            WantedMethod(UvmObject(), "m_", ([1],), {}, "add up numbers"), chars=4000, book=book, views=[view]
        )
        return asked.split("\n\n")[:-1]

    near = [f"# {one.purpose}\n{one.source}" for one in book.near("add up numbers m", ["items"], keeps=False, count=99)]
    assert len(near) > 1
    assert shown((1, 0)) == [near[1], near[0]]
    assert shown((0, 99)) == [near[0]], "where there are no more of them"
    assert shown(()) == []
    wanted = WantedMethod(UvmObject(), "m_", ([1],), {}, "add up")
    requests = method_prompts.compact(wanted, chars=4000, book=book, views=[(), (0,), (99,)])
    assert len(requests) == 2, "no two alike"


def test_where_the_nearest_tells_all_that_is_asked_nothing_else_is_shown() -> None:
    def requests(intent: str) -> int:
        wanted = WantedMethod(UvmObject(), "add_up_", ([1],), {}, intent)
        return len(method_prompts.compact(wanted, chars=4000, book=Handbook(SMALL), views=[(0,), (1,), ()]))

    assert requests("add up the numbers") == 1
    assert requests("add up the numbers of a purple list") == 3


def test_how_much_of_what_is_asked_a_method_tells() -> None:
    book, (first, *_) = Handbook(SMALL), SMALL
    assert book.told(first.purpose, first) == 1.0
    assert 0 < book.told(f"{first.purpose} purple", first) < 1
    assert book.told(f"{first.purpose} purple", first, without=["purple_"]) == 1.0
    assert book.told("purple", first) == book.told("", first) == 0.0


def test_a_request_has_the_nearest_first_and_no_more_than_fits() -> None:
    book, obj = Handbook(SMALL), UvmObject()

    def asked(chars: int) -> str:
        return method_prompts.compact(WantedMethod(obj, "m_", ([1],), {}, "add up numbers"), chars=chars, book=book)[0]

    (bare,) = method_prompts.compact(WantedMethod(obj, "m_", ([1],), {}, "add up numbers"), chars=4000)
    assert asked(4000).startswith("# add up the numbers\ndef m(self, items):\n    return sum(items)\n\n# ")
    assert asked(4000).endswith(f"\n\n{bare}")
    assert asked(len(bare)) == bare
    for chars in range(len(bare), 300):
        assert len(asked(chars)) <= chars
        assert asked(chars).endswith(bare)
