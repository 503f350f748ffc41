"""Which persona thinks a mission through, and why. On the CPU, without inference: rules from the codex's triggers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from batos.errors import UnknownPersona
from batos.mind.codex import Codex

SYSTEM_PERSONA = "alfred"


@dataclass(frozen=True, slots=True)
class Route:
    """A decision: the persona, the reason in words, and every persona's score."""

    persona: str
    why: str
    scores: dict[str, float]


class Router:
    """Rules over the triggers of the codex; an explicit choice wins, the system's own missions go to ALFRED."""

    def __init__(self, codex: Codex) -> None:
        self._rules = {
            name: [(re.compile(t.pattern, re.IGNORECASE), t.weight, t.says) for t in persona.triggers]
            for name, persona in codex.personas.items()
        }
        self._fallback = "brick" if "brick" in self._rules else next(iter(self._rules))

    @property
    def personas(self) -> tuple[str, ...]:
        return tuple(self._rules)

    def known(self, name: str) -> str:
        """The persona's name as the image has it.

        :raises UnknownPersona: listing those there are.
        """
        persona = name.strip().lower()
        if persona not in self._rules:
            raise UnknownPersona(f"no persona {name!r}; there are: {', '.join(self._rules)}")
        return persona

    def route(self, brief: str, *, persona: str | None = None, origin: str = "client") -> Route:
        """Choose the persona for a brief."""
        if persona is not None:
            return Route(self.known(persona), "chosen by the mission", {})
        if origin == "system" and SYSTEM_PERSONA in self._rules:
            return Route(SYSTEM_PERSONA, "is the system's own mission", {})
        scores, reasons = {}, {}
        for name, rules in self._rules.items():
            hits = [(weight, says) for pattern, weight, says in rules if pattern.search(brief)]
            scores[name] = sum(weight for weight, _ in hits)
            reasons[name] = ", ".join(says for _, says in sorted(hits, reverse=True))
        best = max(scores, key=lambda name: scores[name])
        if scores[best] == 0:
            return Route(self._fallback, "nothing in the brief speaks for another", scores)
        return Route(best, reasons[best], scores)
