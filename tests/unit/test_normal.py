"""Texts as embedders are given them."""

from __future__ import annotations

import time

import pytest

from batos.memory.embedders import normalised


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Plain words, as they are.", "Plain words, as they are."),
        ("café naïve Ångström", "cafe naive Angstrom"),
        ("cafe\N{COMBINING ACUTE ACCENT}", "cafe"),
        ("don’t “quote” «this»", 'don\'t "quote" "this"'),
        ("one — two–three", "one  -  two - three"),
        ("well‑known", "well-known"),
        ("so…", "so..."),
        ("a=b|c", "a = b | c"),
        ("ﬁne ①", "fine 1"),
        ("non\N{NO-BREAK SPACE}breaking\N{EM SPACE}spaces", "non breaking spaces"),
        ("soft\N{SOFT HYPHEN}hyphen zero\N{ZERO WIDTH SPACE}width\N{ZERO WIDTH NO-BREAK SPACE}", "softhyphen zerowidth"),
        ("nul\x00l\x07", "null"),
        ("é nul\x00l", "e null"),
        ("half a pair \ud800 stays out", "half a pair  stays out"),
        ("¿qué?•item §7", " que? item  7"),
        ("5€ 中文。で、「す」؟", '5€ 中文 . て , "す" ? '),
        ("tab\tand\nline", "tab\tand\nline"),
        ("", ""),
    ],
)
def test_forms(text: str, expected: str) -> None:
    assert normalised(text) == expected


@pytest.mark.parametrize("text", ["a = b", "café — “x” ﬁ ①", "हिन्दी ไทย 한국어", "e\u0301\u0301"])
def test_once_is_enough(text: str) -> None:
    once = normalised(text)
    assert " ".join(normalised(once).split()) == " ".join(once.split())


def test_a_megabyte_takes_well_below_a_second() -> None:
    text = "Ein längerer Text — mit „Zeichen“ … " * 30_000
    begun = time.process_time()
    normalised(text)
    assert time.process_time() - begun < 1
