"""What a request spells out: words for bands of numbers."""

from __future__ import annotations

import pytest

from batos.synthesis.targets import spelled


@pytest.mark.parametrize(
    ("told", "template"),
    [
        ("cold below 10 degrees, warm below 25, else hot", "'cold' if {it} < 10 else 'warm' if {it} < 25 else 'hot'"),
        ("passed from 60 points, else failed", "'passed' if {it} >= 60 else 'failed'"),
        ("I need Good morning before 12, Good day before 18, otherwise Good evening greeting",
         "'Good morning' if {it} < 12 else 'Good day' if {it} < 18 else 'Good evening'"),
        ("short for up to 2 words, medium for up to 4, else long", "'short' if {it} <= 2 else 'medium' if {it} <= 4 else 'long'"),
        ("'coat' below 5, \"rain coat\" below 15.5 and else 't-shirt'",
         "'coat' if {it} < 5 else 'rain coat' if {it} < 15.5 else 't-shirt'"),
        ("cold below 05, mild below 1.50, else hot", "'cold' if {it} < 5 else 'mild' if {it} < 1.5 else 'hot'"),
        ("debt below -5, even below 5, otherwise: gain", "'debt' if {it} < -5 else 'even' if {it} < 5 else 'gain'"),
        ("much over 100, some over 10, else little", "'much' if {it} > 100 else 'some' if {it} > 10 else 'little'"),
    ],
)  # fmt: skip
def test_bands_are_read(told: str, template: str) -> None:
    assert [one.template for one in spelled(told)] == [template]


@pytest.mark.parametrize(
    "told",
    [
        "", "the number doubled", "cold below 10, warm below 25", "cold, else hot", "below 10, else", "else hot, cold below 10",
        "same below 10, else same", ", ".join(f"a{n} below {n}" for n in range(12)) + ", else z", "x" * 50_000 + " else", "below 1 " * 9000,
        "cold below ٥ else hot", "small below 10k, else big", "small below 1,000, else big", "early before 9:30, else late",
        "morning before 9, noon before 13:00, else evening",
    ],
)  # fmt: skip
def test_what_spells_out_nothing_is_no_idiom(told: str) -> None:
    assert list(spelled(told)) == []


def test_much_that_is_said_is_soon_read() -> None:
    (one,) = spelled("a below 5" + " it" * 200_000 + ", b below 6 else x" + " it" * 200_000)
    assert one.template == "'a' if {it} < 5 else 'b' if {it} < 6 else 'x'"


def test_what_is_quoted_cannot_leave_its_quotes() -> None:
    (one,) = spelled("'{one} + 1' below 3, \"a\\\" + x + \\\"b\" below 4, b' + x + 'c below 5, else d")
    for value in (1, 3.5, 4.5, 9):
        assert isinstance(eval(one.template.format(it=value)), str)
