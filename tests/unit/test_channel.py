"""Which words come of which pieces of code, as methods and what is said of them tell."""

from __future__ import annotations

import pytest

from batos.synthesis.handbook import entries, words_in
from batos.synthesis.word_costs import Channel, channel, pieces_of, pieces_of_idiom, priced, said_of

HELD = [
    ({"sum()", "given items"}, {"sum", "number"}),
    ({"max()", "given items"}, {"largest", "number"}),
    ({"sum()", "given record"}, {"sum", "value"}),
    ({"sorted()", "given items"}, {"sort", "number"}),
]


def test_words_are_explained_by_the_pieces_that_they_come_with() -> None:
    found = Channel(HELD)
    assert found.explains(["sum"], {"sum()", "given items"}) > 0 > found.explains(["sum"], {"max()", "given items"})
    assert found.explains(["largest"], {"max()"}) > found.explains(["largest"], {"sorted()"})
    assert found.explains(["largest", "number"], {"max()"}) > found.explains(["largest", "number"], {"sum()"})


def test_what_is_not_known_says_nothing() -> None:
    found = Channel(HELD)
    assert found.explains([], {"sum()"}) == found.explains(["elephant"], {"sum()"}) == 0
    assert found.explains(["sum"], {"unheard()"}) == found.explains(["sum"], ())
    nothing = Channel([])
    assert nothing.explains(["sum"], {"sum()"}) == 0
    assert nothing.seldom({"sum()"}) >= 0
    assert Channel([({"sum()"}, ())]).explains(["sum"], {"sum()"}) == 0


def test_what_few_methods_have_is_seldom() -> None:
    found = Channel(HELD)
    assert found.seldom({"max()"}) == found.seldom({"max()", "sum()"}) > found.seldom({"sum()"}) > found.seldom(())
    assert found.seldom({"unheard()"}) > found.seldom({"max()"})


def test_what_is_no_method_tells_its_words_and_does_not_say_what_methods_have() -> None:
    found = Channel(HELD, [({"max()", ".strip()"}, {"trim"})])
    assert found.explains(["trim"], {".strip()"}) > 0 > found.explains(["trim"], {"sum()"})
    assert Channel(HELD).explains(["trim"], {".strip()"}) == 0
    assert found.seldom({"max()"}) == Channel(HELD).seldom({"max()"})


def test_idioms_tell_what_the_handbook_has_no_method_for() -> None:
    said = ["begin", "blank"]
    assert channel().explains(said, pieces_of_idiom("{it}.lstrip()")) > channel().explains(said, pieces_of_idiom("{it}.rstrip()")) + 1


@pytest.mark.parametrize(
    ("source", "said", "held", "lacks"),
    [
        ("def m(self, items):\n    return sum(x for x in items if x > 5)", "over 5", {"sum()", "Gt", "number said", "given items"}, {"5"}),
        ("def m(self, items2):\n    return items2[-1]", "last", {"USub", "1", "given items", "Subscript"}, {"number said"}),
        ("def m(self, amount):\n    self.total = self.total + amount\n    self._p_changed = True", "add",
         {"Add", "slot", "slot =", "given other"}, {"True"}),
        ("def m(self, text):\n    import datetime\n    return datetime.date.fromisoformat(text).year", "year",
         {".year", ".fromisoformat()", "given text", ".date"}, {"Import"}),
        ("def m(self, n):\n    return self.fee_(n) or 'no fee'", "fee", {"send", "Or"}, {"text said"}),
        ("def m(self, n):\n    return 'no fee'", "no fee", {"text said"}, {"text fixed"}),
        ("(it_).split(', ')", "", {".split()", "', '"}, {"it_"}),
        ("sorted(it_, key=lambda x: -x)", "", {"sorted()", "key=", "Lambda", "USub"}, {"x"}),
    ],
)  # fmt: skip
def test_pieces_are_what_python_has(source: str, said: str, held: set[str], lacks: set[str]) -> None:
    found = pieces_of(source, said_of(said))
    assert held <= found
    assert not lacks & found


def test_all_of_the_handbook_is_read() -> None:
    assert all(pieces_of(one.source, said_of(one.purpose)) for one in entries())


def test_the_handbook_tells_which_of_those_that_pass_is_meant() -> None:
    told = "sort the numbers and take so many from the end"
    right, wrong = (f"def m_(self, items, number):\n    return {text}" for text in ("sorted(items)[-number:]", "items[-number:]"))
    (one, _), (other, _) = priced([(3.0, right), (3.0, wrong)], told)
    assert one < other
    words = sorted(words_in("the largest of the numbers"))
    assert channel().explains(words, {"max()"}) > channel().explains(words, {"min()"})


def test_slots_names_say_nothing() -> None:
    passed = [(1.0, "def m_(self):\n    return sum(self.largest)")]
    assert priced(passed, "largest sum", without=("largest",)) == priced(passed, "sum")
