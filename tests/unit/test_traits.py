"""What a chunk's text is like."""

from __future__ import annotations

import pytest

from batos.memory.segments import FIRST_PERSON, NUMBER, QUESTION, WHEN, traits


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("The sea is blue.", 0),
        ("What about you?", QUESTION),
        ("Nice! Where is it? Far off.", QUESTION),
        ('He said "Where?"', QUESTION),
        ("We swam.", FIRST_PERSON),
        ("She swam last week.", WHEN),
        ("She swam in 1999.", WHEN | NUMBER),
        ("It may be.", 0),
        ("She has two dogs.", NUMBER),
        ("", 0),
    ],
)
def test_flags(text: str, flags: int) -> None:
    assert traits(text).flags == flags


def test_only_what_is_outside_of_questions_tells() -> None:
    assert traits("The sea is blue. Is it cold? It is.").told == len("The sea is blue.") + len("It is.")
    assert traits("Is it cold?").told == 0
