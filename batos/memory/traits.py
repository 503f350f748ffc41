"""What a chunk's text is like, whatever it is about: whether it asks, says when or how many, tells of its speaker, and how much.

Told once, at ingest, and kept in the chunk's facts: questions then prefer what can answer them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from batos.memory.segments import QUESTION

WHEN, NUMBER, FIRST_PERSON, LIVED = 4, 8, 16, 32
"""Flags of a chunk beside QUESTION and SUMMARY: it says when something was or will be; it names a number; it tells of its speaker; it
is of a mission, not of a document that was read."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_CLOSING = "\"'”’)]* "
_WHEN = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|last|next|ago|recently|since|just|"
    r"weeks?|weekends?|months?|years?|mornings?|evenings?|summer|winter|spring|autumn|fall|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|"
    r"january|february|march|april|may \d+|june|july|august|september|october|november|december|"
    r"(?:19|20)\d\d|\d{1,2}:\d\d)\b"
)
_NUMBER = re.compile(
    r"\b(?:\d[\d.,]*\w*|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundreds?|thousands?|millions?|"
    r"couple|several|once|twice|dozens?|many|few)\b"
)
_FIRST_PERSON = re.compile(r"\b(?:i|my|mine|me|we|our|us)\b")


class Traits(NamedTuple):
    """Of a text: flags for `Facts.flags`, and how many characters tell something, for `Facts.length`."""

    flags: int
    told: int
    """Characters outside of questions: what only asks answers nothing."""


def traits(text: str) -> Traits:
    """What a chunk's text is like."""
    told = asked = 0
    for sentence in _SENTENCE.split(text.strip()):
        size = len(sentence)
        if sentence.rstrip(_CLOSING).endswith("?"):
            asked += size
        else:
            told += size
    low = text.lower()
    flags = QUESTION if asked else 0
    for flag, pattern in ((WHEN, _WHEN), (NUMBER, _NUMBER), (FIRST_PERSON, _FIRST_PERSON)):
        if pattern.search(low):
            flags |= flag
    return Traits(flags, told)
