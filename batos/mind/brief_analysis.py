"""Brief analysis: how deeply a mission is thought about and in whose voice, and which briefs are errands. By rule, without a model.

A fact, a definition, a text to write, arithmetic or a greeting is best answered at once, whatever the model; plans, problems, decisions and
feelings may gain by several ways of thinking, where the model is fit for them. A small model does best with one inference: what it
makes of its own plan and notes is worse than its first answer (docs/rationale.md, decision 13, has the figures).

An errand asks for an action outside of the system. A model that is asked to open a page, run a program or send a reminder claims that
it did. For actions that the system cannot do, it says so itself; it knows the time and date of its machine. `errands.toml` has the
patterns and the answers, by language. A false alarm refuses a good brief, a miss leaves a poor answer: so only a short brief that begins
with the request is an errand.
"""

from __future__ import annotations

import datetime
import functools
import re
import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Literal, NamedTuple, cast, get_args

from batos.memory.store import library_of
from batos.objects import Root

Depth = Literal["direct", "facets", "council"]
Flavour = Literal["full", "light", "off"]
DEPTHS: tuple[Depth, ...] = get_args(Depth)
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)
AUTO = "auto"

FIT = 1_000_000_000  # least number of parameters of a model that thinks by facets
FACETS_S = 60.0  # seconds: a mission with less time answers directly
FACETS_INFERENCES = 6  # inferences that facets take: a plan, some facets, the weaving and one revision

_GREETING = re.compile(
    r"\W*(hi|hello|hey|good (morning|afternoon|evening|night)|thanks|thank you|bye|goodbye|hallo|guten (tag|morgen|abend)|danke|tschüss|"
    r"hola|buenos d[ií]as|buenas (tardes|noches)|gracias|adiós)\b",
    re.IGNORECASE,
)
_GREETING_WORDS = 8
_ARITHMETIC = re.compile(
    r"\d\s*(%\s*(of|von|de)\b|[-+*/×÷^]|plus|minus|times|divided by|mal|geteilt durch|por|más|menos|entre)\s*\(?-?\d", re.IGNORECASE
)
_TEXT = re.compile(
    r"\b(write|draft|compose|rewrite|rephrase|reword|translate|summari[sz]e|shorten|proofread|correct|paraphrase|reply to|answer this|"
    r"schreibe?|formuliere?|übersetze?|fasse?\b.*\bzusammen|kürze?|korrigiere?|escribe|redacta|traduce|resume|corrige)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(plan|plans|planning|strateg(y|ies)|roadmap|itinerary|schedule|timetable|budget|organi[sz]e|prioriti[sz]e|"
    r"how (do|can|could|should) (i|we)|should (i|we)|what (can|could|would) (i|we)|help me|decid(e|ing)|decision|choose between|weigh|"
    r"advice|advise|problem|trouble|stuck|struggl\w+|solve|conflict|argu(e|ed|ing|ment)|"
    r"i feel|i.m (so |very |really )?(sad|lonely|afraid|anxious|worried|angry|tired|lost|scared|ashamed|stressed|overwhelmed)|"
    r"grie(f|ving)|broke up|miss (him|her|them|my)|"
    r"plane?n?|entscheiden|soll(te)? ich|wie (kann|soll) ich|ratschlag|rate mir|hilf mir|problem\w*|traurig|einsam|angst|"
    r"planifica|organiza|debería|cómo puedo|qué (puedo|debo) hacer|consejo|ayúdame|problema|triste|miedo|sol[oa])\b",
    re.IGNORECASE,
)
_FACT = re.compile(
    r"\W*(what|who|whom|whose|when|where|which|how (many|much|far|old|tall|long|big|high|fast|often)|is|are|was|were|do|does|did|can|has|"
    r"have|name|define|list|tell me (the|what|who|when|where|about)|give me (the|a definition)|"
    r"was|wer|wann|wo|welche[rsn]?|wie (viele?|hoch|alt|weit|groß|lang)|ist|sind|nenne|qué|quién|cuándo|dónde|cuál|cuánt[oa]s?|define)\b",
    re.IGNORECASE,
)


class Approach(NamedTuple):
    """A decision: how deeply, why, and how much of the persona's own flavour is in it."""

    depth: Depth
    why: str
    flavour: Flavour


class AskedApproach(NamedTuple):
    """Requested approach, and its source: a mission, a persona, or a setting. `auto` leaves it to the rules."""

    value: str
    by: str


class BriefFacts(NamedTuple):
    """Facts that the rules use besides the brief's words."""

    parameters: int | None = None
    """Number of parameters of the model that will speak; None if it is not known."""
    parts: int = 0
    """Number of personas that the brief needs."""
    follows_deep: bool = False
    """True if the mission that this one follows was thought about in several ways."""
    deadline_s: float | None = None
    inferences: int = 64
    """Greatest number of inferences of the mission."""
    speaks: bool = True
    """True if the brief speaks for a persona."""
    expert: bool = False
    """True if an expert, trained as the persona, speaks for it."""


def decide(brief: str, depths: Sequence[AskedApproach], flavours: Sequence[AskedApproach], facts: BriefFacts) -> Approach:
    """Return the approach to a brief.

    :param brief: the part of the brief that is analysed.
    :param depths: requested depths, the most specific first; `flavours` likewise.
    """
    flavour = _flavour(flavours, facts)
    asked = next((one for one in depths if one.value != AUTO), None)
    if asked is not None:
        return Approach(cast(Depth, asked.value), f"asked for by the {asked.by}", flavour)
    if facts.parameters is not None and facts.parameters < FIT:
        return Approach("direct", f"a model of {_size(facts.parameters)} parameters does best with one answer", flavour)
    if facts.deadline_s is not None and facts.deadline_s < FACETS_S:
        return Approach("direct", f"there are {facts.deadline_s:g} s for it", flavour)
    if facts.inferences < FACETS_INFERENCES:
        return Approach("direct", f"it may ask for {facts.inferences} inferences", flavour)
    if facts.parts:
        return Approach("council", f"it speaks for {facts.parts} personas", flavour)
    open_, why = kind_of(brief)
    if open_ is None and facts.follows_deep:
        open_, why = True, "it follows one that was"
    elif open_ is None and facts.speaks:
        open_, why = True, "it does not show that one answer is enough"
    elif open_ is None:
        open_, why = False, "it fits no persona"
    return Approach("facets" if open_ else "direct", why, flavour)


def kind_of(brief: str) -> tuple[bool | None, str]:
    """Return True if a brief is open, so that several ways of thinking may help it, False if not, None if unknown; and the reason."""
    if _GREETING.match(brief) and len(brief.split()) <= _GREETING_WORDS:
        return False, "it is a greeting"
    if _ARITHMETIC.search(brief):
        return False, "it is arithmetic"
    first, _, _ = brief.strip().partition("\n")
    if _TEXT.match(first.lstrip("¡¿ ").removeprefix("Please ").removeprefix("Bitte ")):
        return False, "it asks for a text"
    if _OPEN.search(brief):
        return True, "it is open: a plan, a problem, a decision or a feeling"
    if _FACT.match(first):
        return False, "it asks for a fact"
    if _TEXT.search(brief):
        return False, "it asks for a text"
    return None, ""


def _flavour(flavours: Sequence[AskedApproach], facts: BriefFacts) -> Flavour:
    asked = next((one for one in flavours if one.value != AUTO), None)
    if asked is not None:
        return cast(Flavour, asked.value)
    small = facts.parameters is not None and facts.parameters < FIT
    return "full" if facts.expert or (facts.speaks and not small) else "off"


def _size(parameters: int) -> str:
    return f"{parameters / 1e9:.1f} billion" if parameters >= FIT else f"{parameters / 1e6:.0f} million"


LONGEST = 400
"""Greatest number of characters of an errand: a longer brief includes the text that it is about."""
TIME, DATE, FILES = "time", "date", "files"
KNOWN = (TIME, DATE)
"""Errands that the system can answer itself."""
_BEFORE = " \t\n¿¡\"'“„«-–*"
_AFTER = " \t\n?!.。？！"
_READS = re.compile(r"(?:read|open|lies|öffne|lis|ouvre|lee|abre|leggi|apri|lê|lees)\b")
_NAMED = re.compile(r"[\w.~/-]{0,200}\.\w{1,5}\b")


class Errand(NamedTuple):
    """Errand: `network`, `program`, `notify`, `files`, `order`, `device`, `time` or `date`; and the language of the request."""

    kind: str
    language: str


class _Rule(NamedTuple):
    errand: Errand
    pattern: str


def errand_of(brief: str, held: Callable[[str], bool] = lambda name: False) -> Errand | None:
    """Return the errand that a brief asks for; None for any other brief.

    :param held: returns True if memory has read a file of that name: then reading it is not an errand.
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
            continue  # most briefs match none of them: testing the expressions one by one takes longer
        for errand, pattern in _tables().rules[language]:
            if _compiled(pattern).match(bare if errand.kind in KNOWN else said):
                if errand.kind == FILES and _READS.match(said) and any(held(name) for name in _NAMED.findall(said)):
                    return None
                return errand
    return None


def said_of(errand: Errand, now: datetime.datetime, *, connected: bool = False) -> str:
    """Return the answer to an errand.

    :param now: current time of the machine, with its zone.
    :param connected: True if there are tools, none of which does it.
    """
    says = _tables().says[errand.language]
    if connected and errand.kind not in KNOWN:
        return str(says["unfit"])
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


def has_read(root: Root, name: str) -> bool:
    """Return True if the memory of an image has a file of that name, in any folder."""
    last = name.rpartition("/")[2].casefold()
    return any(source.rpartition("/")[2].casefold() == last for source in library_of(root).by_source)


class _Tables(NamedTuple):
    polite: dict[str, re.Pattern[str]]
    any_of: dict[str, re.Pattern[str]]
    """Language -> all its rules in one expression."""
    rules: dict[str, list[_Rule]]
    says: dict[str, dict[str, str | list[str]]]


@functools.cache
def _tables() -> _Tables:
    """Return the patterns, compiled when a brief is first looked at."""
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
