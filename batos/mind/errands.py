"""Errands: what a brief asks to be done outside of the system, told by rule before any model is asked.

A model that is asked to open a page, to run a program or to remind somebody says that it did. What the system cannot do it says
itself; the time and the date of its machine it knows. `errands.toml` has the patterns and what is answered, by language. A false alarm
refuses an answer to somebody, a miss leaves him a poor one: so only a short brief that begins with the request is an errand.
"""

from __future__ import annotations

import datetime
import functools
import re
import tomllib
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

from batos.memory.library import library_of

LONGEST = 400
"""Characters of a brief that may be an errand: a longer one brings what it is about."""
TIME, DATE, FILES = "time", "date", "files"
KNOWN = (TIME, DATE)
"""What it can tell by itself."""
_BEFORE = " \t\n¿¡\"'“„«-–*"
_AFTER = " \t\n?!.。？！"
_READS = re.compile(r"(?:read|open|lies|öffne|lis|ouvre|lee|abre|leggi|apri|lê|lees)\b")
_NAMED = re.compile(r"[\w.~/-]{0,200}\.\w{1,5}\b")


class Errand(NamedTuple):
    """What is asked for: `network`, `program`, `notify`, `files`, `order`, `device`, `time` or `date`; and the language of the request."""

    kind: str
    language: str


class _Rule(NamedTuple):
    errand: Errand
    pattern: str


def errand_of(brief: str, held: Callable[[str], bool] = lambda name: False) -> Errand | None:
    """What a brief asks to be done, or of the clock; None for any other brief.

    :param held: whether memory has read a file of that name: then to read it is no errand.
    """
    if len(brief) > LONGEST or "```" in brief:
        return None
    asked = " ".join(brief.casefold().strip(_BEFORE).split())
    for language, polite in _tables().polite.items():
        found = polite.match(asked)
        said = asked[found.end() :] if found else asked
        bare = said.rstrip(_AFTER)
        some = _tables().any_of[language]
        if not (some.match(said) or some.match(bare)):
            continue  # as most briefs: the expressions one by one take longer
        for errand, pattern in _tables().rules[language]:
            if _compiled(pattern).match(bare if errand.kind in KNOWN else said):
                if errand.kind == FILES and _READS.match(said) and any(held(name) for name in _NAMED.findall(said)):
                    return None
                return errand
    return None


def said_of(errand: Errand, now: datetime.datetime) -> str:
    """What is answered to an errand.

    :param now: what the clock of the machine shows, with its zone.
    """
    says = _tables().says[errand.language]
    text = str(says[errand.kind])
    if errand.kind not in KNOWN:
        return text
    return text.format(
        time=f"{now:%H:%M}",
        zone=now.tzname() or "UTC",
        weekday=says["weekdays"][now.weekday()],
        day=now.day,
        month=says["months"][now.month - 1],
        year=now.year,
    )


def has_read(root: Any, name: str) -> bool:
    """Whether the memory of an image has a file of that name, wherever it lies."""
    last = name.rpartition("/")[2].casefold()
    return any(source.rpartition("/")[2].casefold() == last for source in library_of(root).by_source)


class _Tables(NamedTuple):
    polite: dict[str, re.Pattern[str]]
    any_of: dict[str, re.Pattern[str]]
    """All rules of a language as one expression."""
    rules: dict[str, list[_Rule]]
    says: dict[str, dict[str, str | list[str]]]


@functools.cache
def _tables() -> _Tables:
    """The patterns, compiled when a brief is first looked at."""
    table = tomllib.loads(resources.files("batos.mind").joinpath("errands.toml").read_text("utf-8"))
    shared = table.pop("shared")
    polite, any_of, rules, says = {}, {}, {}, {}
    for language, told in table.items():
        polite[language] = re.compile(f"(?:{told['polite']}){{1,3}}" if "polite" in told else r"(?!)")
        rules[language] = [
            _Rule(Errand(kind, language), _filled(pattern, shared)) for kind, patterns in told["rules"].items() for pattern in patterns
        ]
        any_of[language] = re.compile("|".join(f"(?:{rule.pattern})" for rule in rules[language]))
        says[language] = told["says"]
    return _Tables(polite, any_of, rules, says)


_compiled = functools.cache(re.compile)


def _filled(pattern: str, shared: dict[str, str]) -> str:
    for name, what in shared.items():
        pattern = pattern.replace(f"{{{name}}}", what)
    return pattern
