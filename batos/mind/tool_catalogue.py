"""Catalogue of tools: which few of many are offered for a brief.

A tool is rated by its likeness to the brief, by the words in both, and by what the brief asks to be done. Rare words count more, and a word
that a chosen tool has already counts less. Tools are taken in the order of this rating, each with those that it depends on. A tool that
needs `movie_id` brings the best of those whose answers hold movies. A tool that acts on a path brings the one that reads the path. Where
the brief names something, the tools that look for such things come first.

Nothing here knows an API. What a tool needs and gives is read from its path, its parameters, and the schema of its result (`tool_facts`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from batos.mind.brief_values import NAME, QUOTED, folded, values_of, words_of
from batos.mind.tool_facts import Kind, ToolFacts, facts_of, kinds_given, marks_of
from batos.tools.definitions import ToolDefinition

CLAUSES, NAMES = 6, 4
"""Greatest number of clauses of a brief that are compared with tools, and of the names in it."""
CLAUSE, TITLE = 0.9, 0.8
"""Weights of the likeness of a clause, and of the likeness to a tool's title alone"""
_WORDS, _ANSWERED, _AGAIN = 0.3, 0.4, 0.7  # weights of shared words, of those that only a result has, and of those that were met before
_ALIKE = 0.3  # weight of what a tool has in common with one that was chosen: a near double brings little
_SHORT = 12.0  # sum of rarities at which words count by their weight: a long brief does not thin them out as much as its length says
_PATH = 0.5  # weight of the share of a path's words that the brief has
_KIND, _BESIDE, _AGENT = 0.3, 0.4, 0.4  # weights of a thing that the brief names: in general, beside its name, and as one who did something
_LOOKUPS, _PLAUSIBLE = 2, 0.5  # lookups that come first, and the least share of the best one's plausibility
_OWN, _VERB, _MAKING = 0.2, 0.2, 0.1
_CHAIN, _SEEKS, _NEEDS = 3, 0.3, 0.3  # tools of a chain; what speaks for one that seeks, and against one that needs something itself
_KEPT = 4  # catalogues that are remembered
ON_LINE = 4
"""Greatest number of tools on a line."""
_CLAUSE_END = re.compile(r"[.;:!?,]\s|\s(?:and|then|und|dann|et|puis|y|luego)\s", re.IGNORECASE)
_MINE = re.compile(r"\b(?:my|mine|I|me|mein\w?|ich|mon|mes|je|mi|mis|yo)\b")
_REMOVES = re.compile(
    r"\b(?:delet|remov|clear|cancel|drop|eras|discard|unfollow|unsubscrib|empty|revok|lösch|entfern|supprim|elimin|borr)", re.IGNORECASE
)
_MAKES = re.compile(r"\b(?:creat|mak|new|add|open|post|register|book|order|erstell|neu|anleg|cré|crea|nuev)", re.IGNORECASE)
_AGENT_BEFORE = re.compile(r"\b(?:by|von|par|por)\s{1,3}(?:the\s)?\Z", re.IGNORECASE)


class NamedThing(NamedTuple):
    """Name in a brief."""

    text: str
    beside: frozenset[str]
    """stems of the words right before and behind it"""
    agent: bool
    """True if the brief speaks of what it did or has: `by NAME`, `NAME's`"""


class ToolCatalogue:
    """The tools that a mission may call, compared with one another."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self.tools = tuple(tools)
        self._facts = [facts_of(tool) for tool in tools]
        self.labels: dict[Kind, str] = {need: label for one in self._facts for need, label in zip(one.needs, one.labels, strict=True)}
        """a word for each thing that a tool needs"""
        self._marks = marks_of(self._facts, set(self.labels))
        self._gives = [kinds_given(one, set(self.labels), self._marks) for one in self._facts]
        counts = Counter(stem for one in self._facts for stem in {*one.words, *one.answers})
        self._rarity = {stem: math.log(1 + len(tools) / count) for stem, count in counts.items()}
        self._path_rarity = [math.fsum(self._rarity[stem] for stem in one.path_words) for one in self._facts]
        self._shared_words: dict[tuple[int, int], float] = {}
        self._callers = {
            kind: min(able, key=lambda at: (len(self._facts[at].path), at))
            for kind in self.labels
            if (able := [at for at, one in enumerate(self._facts) if self._tells_of_caller(one) and kind in self._gives[at]])
        }
        """the tool that answers who calls, by the things that it gives"""
        self._readers = {one.path: at for at, one in enumerate(self._facts) if one.path and not one.acts}
        self.lookups: dict[Kind, list[int]] = {}
        """places of the tools that look for a thing by a free text"""
        for at, one in enumerate(self._facts):
            if one.seeks and not one.needs:
                own = one.about(set(self.labels))
                for kind in [own] if own is not None and own in self._gives[at] and () in one.holds else self._gives[at]:
                    self.lookups.setdefault(kind, []).append(at)

    def by_words(self, text: str, k: int) -> list[int]:
        """Return the places of the `k` tools that share most with a text, by words alone, in their order here."""
        known, said = self._known(text), _said(text)
        rated = [_worth(self._shares(at, known, said), ()) for at in range(len(self.tools))]
        return sorted(sorted(range(len(rated)), key=lambda at: -rated[at])[:k])

    def plausibility(self, named: Sequence[NamedThing], alike: Sequence[Sequence[float]] | None) -> dict[Kind, float]:
        """Return how likely a name is that of a thing of each kind that can be looked for.

        :param alike: likeness of each name to the label of each kind of `lookups`; None without an embedder.
        """
        persons = {kind for kind, label in self.labels.items() if _is_person(label, self._marks.get(kind, frozenset()))}
        found = dict.fromkeys(self.lookups, 0.0)
        for at, name in enumerate(named):
            for place, kind in enumerate(self.lookups):
                by_name = 0.0 if alike is None else alike[at][place]
                told = by_name + _BESIDE * bool(name.beside & set(kind)) + _AGENT * (name.agent and kind in persons)
                found[kind] = max(found[kind], told)
        return found

    def taken(self, text: str, near: Sequence[float], k: int, plausible: Mapping[Kind, float] | None = None) -> list[int]:
        """Return the places of the tools that are offered, at most `k`.

        :param near: likeness of each tool to the text.
        :param plausible: what `plausibility` says of the names in it; None where it has none.
        """
        return list(islice(self._ordered(text, near, plausible or {}), k))

    def lines(
        self, text: str, near: Sequence[float], k: int, owners: Sequence[str], plausible: Mapping[Kind, float] | None = None
    ) -> list[list[int]]:
        """Return the places of the tools that are offered in at most `k` lines. The other parameters are those of `taken`.

        Tools that read parts of one resource and require the same share a line, at most four tools (`ToolFacts.resource`). First come those
        that would be taken, then those that are most alike.

        :param owners: the connection of each tool. Tools of two connections share no line.
        """
        found: list[list[int]] = []
        for at in self._ordered(text, near, plausible or {}):
            room = next((line for line in found if len(line) < ON_LINE and self._go_together(line, at, owners)), None)
            if room is not None:
                room.append(at)
            elif len(found) < k:
                found.append([at])
            else:
                break
        shown = {at for line in found for at in line}
        for line in found:
            rest = sorted((at for at in range(len(near)) if at not in shown), key=lambda at: -near[at])
            for at in rest:
                if len(line) < ON_LINE and self._go_together(line, at, owners):
                    line.append(at)
                    shown.add(at)
        return found

    def _ordered(self, text: str, near: Sequence[float], plausible: Mapping[Kind, float]) -> Iterator[int]:
        """Yield the places of all tools in the order in which they are taken."""
        said, known = _said(text), self._known(text)
        base = [near[at] + self._asked(at, text, plausible) for at in range(len(self.tools))]
        found: dict[int, None] = {}
        ordered = sorted(plausible, key=lambda kind: -plausible[kind])[:_LOOKUPS]
        for kind in ordered:
            if plausible[kind] >= _PLAUSIBLE * plausible[ordered[0]]:
                lookup = max(self.lookups[kind], key=base.__getitem__)
                if lookup not in found:
                    yield lookup
                found[lookup] = None
        shares = [self._shares(at, known, said) for at in range(len(self.tools))]
        met: set[str] = set()
        doubled = [max((self._common(at, other) for other in found), default=0.0) for at in range(len(self.tools))]
        while len(found) < len(self.tools):
            rated = [one + _worth(shares[at], met) - _ALIKE * doubled[at] for at, one in enumerate(base)]
            best = max((at for at in range(len(rated)) if at not in found), key=rated.__getitem__)
            for at in self._chain(best, rated, found):
                found[at] = None
                yield at
                met |= known.keys() & self._facts[at].words.keys()
                doubled = [max(one, self._common(at, other)) for other, one in enumerate(doubled)]

    def _go_together(self, line: Sequence[int], at: int, owners: Sequence[str]) -> bool:
        """Return True if one call can say which tool it is of. Then all read parts of one resource, and what they take under one name has
        one type."""
        if not self._facts[at].resource or (self._facts[at].resource, owners[at]) != (self._facts[line[0]].resource, owners[line[0]]):
            return False
        two = self.tools[at].parameters.get("properties") or {}
        others = (self.tools[one].parameters.get("properties") or {} for one in line)
        return all(_plain(one[name]) == _plain(two[name]) for one in others for name in one.keys() & two.keys())

    def _known(self, text: str) -> dict[str, float]:
        """Return the words of a text that a tool has, with their rarity."""
        return {stem: self._rarity[stem] for stem in _said(text) if stem in self._rarity}

    def _shares(self, at: int, known: Mapping[str, float], said: frozenset[str]) -> list[tuple[str, float]]:
        """Return what each word of a text says for a tool, by the tool's words and by its path; `_worth` adds it up.

        :param known: the words that a tool has, with their rarity.
        :param said: all words of the text.
        """
        one = self._facts[at]
        whole, whole_path = math.fsum(known.values()), self._path_rarity[at]
        thinned = _WORDS / (whole * _SHORT) ** 0.5 if whole else 0.0
        told = {stem: max(one.words.get(stem, 0.0), _ANSWERED * one.answers.get(stem, 0.0)) for stem in known}
        by_words = [(stem, thinned * rare * told[stem]) for stem, rare in known.items() if told[stem]]
        return by_words + [(stem, _PATH * self._rarity[stem] / whole_path) for stem in one.path_words & said]

    def _common(self, at: int, other: int) -> float:
        """Return the share of the words of two tools that both have, by rarity."""
        key = (min(at, other), max(at, other))
        if (share := self._shared_words.get(key)) is None:
            one, two = self._facts[at].words.keys(), self._facts[other].words.keys()
            whole = math.fsum(self._rarity[stem] for stem in one | two)
            share = math.fsum(self._rarity[stem] for stem in one & two) / whole if whole else 0.0
            self._shared_words[key] = share
        return share

    @staticmethod
    def _tells_of_caller(one: ToolFacts) -> bool:
        return one.own and not one.acts and not one.needs and () in one.holds and "{" not in one.path

    def _asked(self, at: int, text: str, plausible: Mapping[Kind, float]) -> float:
        """Return what speaks for a tool by what it does and for whom."""
        one = self._facts[at]
        removes = bool(_REMOVES.search(text))
        rated = _KIND * plausible.get(one.needs[0], 0.0) if one.needs else 0.0
        if one.method == "DELETE":
            rated += _VERB if removes else -_VERB
        if one.method == "POST" and _MAKES.search(text):
            rated += _MAKING
        return rated + (_OWN if one.own and _MINE.search(text) else 0.0)

    def _chain(self, at: int, rated: Sequence[float], found: Mapping[int, None]) -> list[int]:
        """Return a tool and those that it depends on, as far as they are not among those that were found."""
        chain, open_ = [at], list(self._facts[at].needs[:1])
        if self._facts[at].acts and (reading := self._readers.get(self._facts[at].path)) is not None:
            chain.append(reading)
        while open_ and len(chain) < _CHAIN:
            need = open_.pop(0)
            if (caller := self._callers.get(need)) is not None:  # a thing that another made is not the caller's
                chain += [] if caller in chain else [caller]
                continue
            if any(need in self._gives[one] for one in (*found, *chain) if one != at):
                continue
            able = [one for one, gives in enumerate(self._gives) if need in gives and one not in chain]
            if able:
                best = max(able, key=lambda one: rated[one] + _SEEKS * self._facts[one].seeks - _NEEDS * len(self._facts[one].needs))
                chain.append(best)
                open_ += self._facts[best].needs[:1]
        return [one for one in chain if one not in found]


def catalogue_of(tools: Sequence[ToolDefinition]) -> ToolCatalogue:
    """Return the catalogue of some tools; the last few are remembered."""
    key = tuple(map(id, tools))
    held = _HELD.pop(key, None) or ToolCatalogue(tools)  # it holds the tools, so that no other one gets their places
    _HELD[key] = held
    while len(_HELD) > _KEPT:
        del _HELD[next(iter(_HELD))]
    return held


_HELD: dict[tuple[int, ...], ToolCatalogue] = {}


def clauses_of(text: str) -> list[str]:
    """Return the parts of a brief that may each ask for a tool; none where it has one part."""
    found = [part.strip() for part in _CLAUSE_END.split(text)]
    found = [part for part in found if len(part.split()) > 1]
    return found[:CLAUSES] if len(found) > 1 else []


def names_in(text: str) -> list[NamedThing]:
    """Return the names and quotations in a brief that lie in no other one; words in capitals alone are none."""
    found = [one for one in values_of(text) if one.kind in (NAME, QUOTED) and isinstance(one.value, str)]
    outer = [one for one in found if not any(one.value != other.value and one.value in other.value for other in found)]
    names = []
    for one in outer:
        if one.value.isupper() and len(one.value) < 4:
            continue
        before, behind = text[: one.start], text[one.end :]
        beside = {word.stem for word in (*words_of(before)[-2:], *words_of(behind)[:1]) if word.stem}
        agent = behind[:2] in ("'s", "’s") or _AGENT_BEFORE.search(before) is not None
        names.append(NamedThing(one.value, frozenset(beside), agent))
    return list({name.text: name for name in names}.values())[:NAMES]


def _worth(shares: Sequence[tuple[str, float]], met: Collection[str]) -> float:
    """Return what words say for a tool; those that were met before count less."""
    return math.fsum(_AGAIN * share if stem in met else share for stem, share in shares)


def _plain(schema: Any) -> Any:
    """Return a parameter's schema without what it says in words."""
    return {name: told for name, told in schema.items() if name not in _SAYS} if isinstance(schema, Mapping) else schema


_SAYS = frozenset({"description", "title", "example", "examples", "default"})


def _said(text: str) -> frozenset[str]:
    return frozenset(word.stem for word in words_of(text) if word.stem)


def _is_person(label: str, fields: frozenset[str]) -> bool:
    return folded(label).rstrip("s") in _PERSONS or len(_PERSONAL & fields) > 1


_PERSONS = frozenset({
    "person", "people", "user", "artist", "author", "actor", "member", "contact", "customer", "employee", "player", "owner", "friend",
    "patient", "student",
})  # fmt: skip
_PERSONAL = frozenset({
    "birthday", "gender", "first_name", "last_name", "firstname", "lastname", "email", "biography", "birthdate", "date_of_birth", "phone",
})  # fmt: skip
