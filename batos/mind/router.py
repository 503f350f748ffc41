"""Which persona thinks a mission through, and why. On the CPU: signs in the brief, and likeness to exemplars."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from batos.errors import UnknownPersona
from batos.mind.codex import Codex
from batos.mind.learning import Exemplars, learned_by
from batos.mind.likeness import Alike, Texts

CHOSEN, OWN, LEARNED, RULES, LIKENESS, FALLBACK = "mission", "system", "learned", "rules", "rules and likeness", "fallback"
_SIGNS_KEPT = 64  # briefs whose signs are remembered: those under way
_LIKE = 0.3  # mean cosine to a persona's exemplars from which a brief without any sign speaks for it
_QUOTED = 60  # characters of the exemplar that a reason names
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Route:
    """A decision: the persona, the reason in words, and how it came about.

    `by` is one of `mission` (the mission chose), `system` (the system's own mission), `learned` (a user chose so for this
    brief before), `rules`, `rules and likeness`, and `fallback`. `scores` holds for each persona its `score`, what its
    triggers weigh (`triggers`), and how `alike` its nearest exemplars are, if that was known. `preferred` is whom the router
    would have chosen, where the mission chose.
    """

    persona: str
    why: str
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    by: str = RULES
    preferred: str | None = None

    @property
    def speaks(self) -> bool:
        """Whether the brief speaks for the persona: somebody chose it, a sign names it, or it is like what the persona is for."""
        if self.by != LIKENESS:
            return self.by != FALLBACK
        score = self.scores.get(self.persona, {})
        return score.get("triggers", 0.0) > 0 or score.get("alike", 0.0) >= _LIKE

    def to_record(self) -> str:
        """As the journal keeps it."""
        return _COMPACT.encode(self.to_wire())

    @classmethod
    def from_record(cls, record: str) -> Route:
        """The decision in a record."""
        return cls(**json.loads(record))

    def to_wire(self) -> dict[str, Any]:
        """As a JSON object; `preferred` only where there is one."""
        told = {"persona": self.persona, "why": self.why, "by": self.by, "scores": self.scores}
        return told if self.preferred is None else {**told, "preferred": self.preferred}


class Compares(Protocol):
    """`likeness.Likeness`, as the router needs it."""

    async def of(self, text: str, exemplars: Texts, nearest: int) -> dict[str, Alike] | None:
        """How alike the text is to each persona's exemplars; None if that cannot be told."""
        ...


class Router:
    """An explicit choice wins; the system's own missions go to one persona; the others by score (see `codex.Routing`)."""

    def __init__(
        self,
        codex: Codex,
        examples: Callable[[], Mapping[str, Exemplars]] | None = None,
        likeness: Compares | None = None,
        *,
        chars: int = 2000,
    ) -> None:
        """
        :param examples: the personas that may be chosen, with their exemplars as of now; left out, the codex's own.
        :param chars: how much of a brief is looked at: half of it from its beginning, half from its end.
        """
        self._codex, self._likeness, self._chars = codex, likeness, chars
        given = {name: Exemplars(persona.exemplars) for name, persona in codex.personas.items()}
        self._examples = examples or (lambda: given)
        self._texts: tuple[Mapping[str, Exemplars] | None, Texts] = None, {}
        self._rules = {
            name: [(re.compile(t.pattern, re.IGNORECASE), t.weight, t.says) for t in persona.triggers]
            for name, persona in codex.personas.items()
        }
        # A brief is looked at by those who plan ahead, by those who share it out, and for the decision.
        self._signs = functools.lru_cache(maxsize=_SIGNS_KEPT)(self._find_signs)

    @property
    def personas(self) -> tuple[str, ...]:
        """Who may be chosen."""
        return tuple(self._examples())

    def known(self, name: str) -> str:
        """The persona's name as the image has it.

        :raises UnknownPersona: listing those there are.
        """
        persona, there = name.strip().lower(), self.personas
        if persona not in there:
            raise UnknownPersona(f"no persona {name!r}; there are: {', '.join(there)}")
        return persona

    def window(self, brief: str) -> str:
        """What of a brief is looked at."""
        half = self._chars // 2
        return brief if len(brief) <= self._chars else f"{brief[:half]}\n{brief[-half:]}"

    def weights(self, text: str) -> dict[str, float]:
        """What the triggers of each persona of the codex weigh in a text: nothing else is asked."""
        return {name: sum(weight for weight, _ in found) for name, found in self._signs(text).items()}

    def guess(self, record: Mapping[str, Any]) -> str:
        """Whom a mission will probably go to, by the rules alone: for those who plan ahead and must not wait."""
        routing = self._codex.routing
        if record["persona"] is not None or (record["origin"] == "system" and routing.internal):
            return str(record["persona"] or routing.internal)
        weights = self.weights(self.window(record["brief"]))
        best = max(weights, key=lambda name: weights[name])
        return best if weights[best] > 0 else routing.fallback or next(iter(self._codex.personas))

    def _find_signs(self, text: str) -> dict[str, list[tuple[float, str]]]:
        """By persona of the codex: the weights and names of its triggers in a text, the heaviest first."""
        return {name: sorted(((w, says) for p, w, says in rules if p.search(text)), reverse=True) for name, rules in self._rules.items()}

    async def decide(self, record: Mapping[str, Any], *, compare: bool = True, among: Collection[str] | None = None) -> Route:
        """The decision for a mission.

        :param record: of it, `brief`, `persona` and `origin` are read.
        :param compare: whether to ask the embedder, if there is one.
        :param among: the personas whose models see, where that makes a difference and the brief has pictures; None: any will do.
        :raises UnknownPersona: if nobody is there to be chosen.
        """
        chosen, internal = record["persona"], self._codex.routing.internal
        examples, text = self._examples(), self.window(record["brief"])
        if record["origin"] == "system" and internal in examples and chosen is None:
            return Route(internal, "is the system's own mission", by=OWN)
        alike = None
        if compare and self._likeness is not None:
            alike = await self._likeness.of(text, self._texts_of(examples), self._codex.routing.nearest)
        route = self.judge(text, examples, alike)
        if chosen is None and among is not None:
            see = {name: own for name, own in examples.items() if name in among}
            seeing = self.judge(text, see, alike and {name: found for name, found in alike.items() if name in among})
            return route if route.persona == seeing.persona else replace(seeing, why=f"{seeing.why}, and its model sees")
        if chosen is None:
            return route
        return Route(chosen, "chosen by the mission", route.scores, CHOSEN, route.persona if record["origin"] != "system" else None)

    def _texts_of(self, examples: Mapping[str, Exemplars]) -> Texts:
        if self._texts[0] is not examples:
            self._texts = examples, {name: own.texts for name, own in examples.items()}
        return self._texts[1]

    def judge(self, text: str, examples: Mapping[str, Exemplars], alike: Mapping[str, Alike] | None = None) -> Route:
        """Whom a text is for.

        :param alike: how alike it is to each persona's exemplars; None if that is not known.
        """
        if not examples:
            raise UnknownPersona("no persona of the codex is in the image; put one back, or name another codex (setting codex)")
        routing = self._codex.routing
        signs = {name: found for name, found in self._signs(text).items() if name in examples}
        weights = {name: sum(weight for weight, _ in found) for name, found in signs.items()}
        total = sum(weights.values())
        scores = {name: {"score": weight / (total + routing.doubt), "triggers": weight} for name, weight in weights.items()}
        for name, found in (alike or {}).items():
            scores[name]["score"] += routing.likeness * found.mean
            scores[name]["alike"] = found.mean
        for score in scores.values():
            score["score"] = round(score["score"], 4)
        if (before := learned_by(examples, text)) is not None:
            return Route(before, "was chosen for this brief before", scores, LEARNED)
        best = max(scores, key=lambda name: scores[name]["score"])
        if not total and not alike:
            fallback = routing.fallback if routing.fallback in examples else best
            return Route(fallback, "nothing in the brief speaks for another", scores, FALLBACK)
        reasons = [says for _, says in signs[best]]
        if alike and best in alike:
            nearest = alike[best].nearest
            quoted = nearest if len(nearest) <= _QUOTED else nearest[: _QUOTED - 1].rstrip() + "…"
            reasons.append(f"is like “{quoted}” ({alike[best].cosine:.2f})")
        return Route(best, ", ".join(dict.fromkeys(reasons)), scores, LIKENESS if alike else RULES)
