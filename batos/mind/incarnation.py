"""The Incarnation Protocol: the codex becomes personas, clones of the genesis object, in the image."""

from __future__ import annotations

from collections.abc import Iterator

from batos.image.genesis import Step, add_missing
from batos.mind.codex import Codex, PersonaCodex
from batos.objects import Intent, UvmObject, lookup_order

PLAIN_FACET = "Answer the request directly and concretely, in plain words, in a few sentences."


def incarnate(codex: Codex) -> Step:
    """The step of genesis that makes a persona of every one in the codex; what the image has changed stays."""

    def step(lobby: UvmObject) -> None:
        add_missing(
            lobby.traits,
            persona=lambda: lobby.genesis.derive(
                name="persona",
                comment="I am what all personas have in common: a way into the Prototypal State Machine, and a plain way of thinking.",
                plain_facet_=Intent(PLAIN_FACET),
            ),
        )
        for name, persona in codex.personas.items():
            add_missing(lobby, **{name: lambda name=name: _clone(lobby, name)})
            add_missing(lobby._slots[name], **_slots_of(persona))
        known = tuple(lobby._slots.get("personas", ()))
        named = known + tuple(name for name in codex.personas if name not in known)
        if named != known:
            lobby.personas = named

    return step


def _clone(lobby: UvmObject, name: str) -> UvmObject:
    genesis: UvmObject = lobby.genesis
    comment = f"I am {name.upper()}, a persona: one way in which this mind thinks."
    return genesis._clone_persistent_(**{"parent*": lobby.traits.persona, "name": name.upper(), "comment": comment})


def _slots_of(persona: PersonaCodex) -> dict[str, object]:
    return {
        "core_mission": persona.core_mission,
        "core_method": persona.core_method,
        "pillars": persona.pillars,
        "model": persona.model,
        **{selector: Intent(intent) for selector, intent in persona.protocols.items()},
    }


def facets(persona: UvmObject) -> Iterator[tuple[str, str]]:
    """The persona's facets, its own first: selector and intent."""
    seen: set[str] = set()
    for holder in lookup_order(persona):
        for name, value in holder._slots.items():
            if name.endswith("_facet_") and isinstance(value, Intent) and name not in seen:
                seen.add(name)
                yield name, value.text


def system_message(persona: UvmObject) -> str:
    """Who the persona is, as the system message of its inferences."""
    pillars = "; ".join(persona.pillars)
    return f"You are {persona.name}. {persona.core_mission} Your method: {persona.core_method} You work in the spirit of: {pillars}."
