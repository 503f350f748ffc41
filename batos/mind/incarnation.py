"""The Incarnation Protocol: the codex becomes personas, clones of the genesis object, in the image.

It runs at every start. A codex that has changed meanwhile changes what the image has not changed itself (`merging`); where the
image goes its own way, an operator can accept what the codex says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from BTrees.OOBTree import OOBTree

from batos.config import nearest
from batos.errors import ConfigError, InvalidInput, UnknownPersona
from batos.image.genesis import add_missing
from batos.mind.codex import Codex, PersonaCodex
from batos.mind.depth import AUTO, Flavour
from batos.mind.learning import SLOT, forget_exemplar_
from batos.mind.merging import DELETED, Merged, digest, merge
from batos.objects import Intent, Method, Primitive, UvmObject, lookup_order

PLAIN_FACET = "Answer the request directly and concretely, in plain words, in a few sentences."
REMOVED = "no longer in the codex: it stays in the image, and no brief is routed to it"
Said = dict[str, dict[str, str]]
Kept = dict[str, dict[str, str]]


class Incarnation:
    """The step of genesis that makes a persona of every one in the codex, and brings those there are up to date."""

    def __init__(self, codex: Codex) -> None:
        self._codex = codex
        self.changes: Kept = {}
        """By persona and slot, what the last run did: added, updated or removed. Empty for a persona that is new."""

    def __call__(self, lobby: UvmObject) -> None:
        """
        :raises ConfigError: for a persona whose name something else in the image has.
        """
        self.changes = {}
        add_missing(
            lobby.traits,
            persona=lambda: lobby.genesis.derive(
                name="persona",
                comment="I am what all personas have in common: a way into the Prototypal State Machine, and a plain way of thinking.",
                plain_facet_=Intent(PLAIN_FACET),
            ),
        )
        add_missing(lobby.traits.persona, grounded=False, depth=AUTO, flavour=AUTO)
        add_missing(lobby.traits.persona, forget_exemplar_=Primitive.of(forget_exemplar_))
        add_missing(
            lobby,
            incarnation=lambda: lobby.genesis.derive(
                name="incarnation", comment="I remember what the codex said of each persona when image and codex last agreed.", said=()
            ),
        )
        said, known = said_of(lobby), tuple(lobby._slots.get("personas", ()))
        for name, persona in self._codex.personas.items():
            if name not in lobby._slots:
                if name in said:
                    continue  # it was deleted in the image
                lobby._slots[name] = _clone(lobby, name)
                self.changes[name] = {}
            elif name not in known:
                raise ConfigError(f"the codex has a persona {name!r}, but the image has something else under this name; call it otherwise")
            elif not isinstance(lobby._slots[name], UvmObject):
                continue  # the image put something else in its place
            said[name] = self._merge(name, lobby._slots[name], merge(said.get(name, {}), lobby._slots[name]._slots, slots_of(persona)))
            add_missing(lobby._slots[name], **{SLOT: OOBTree})
        _set(lobby.incarnation, "said", _told(said))
        _set(lobby, "personas", known + tuple(name for name in self._codex.personas if name not in known))

    def _merge(self, name: str, persona: UvmObject, merged: Merged) -> dict[str, str]:
        done = {slot: "updated" if slot in persona._slots else "added" for slot in merged.store}
        done |= dict.fromkeys(merged.remove, "removed")
        if done and name not in self.changes:
            self.changes[name] = done
        persona._slots.update(merged.store)
        for slot in merged.remove:
            del persona._slots[slot]
        return merged.said


def _set(target: UvmObject, slot: str, value: object) -> None:
    if target._slots.get(slot) != value:
        target._slots[slot] = value


def _clone(lobby: UvmObject, name: str) -> UvmObject:
    genesis: UvmObject = lobby.genesis
    comment = f"I am {name.upper()}, a persona: one way in which this mind thinks."
    return genesis._clone_persistent_(**{"parent*": lobby.traits.persona, "name": name.upper(), "comment": comment})


def slots_of(persona: PersonaCodex) -> dict[str, object]:
    """The slots that the codex gives a persona."""
    return {
        "core_mission": persona.core_mission,
        "core_method": persona.core_method,
        "pillars": persona.pillars,
        **({"grounded": True} if persona.grounded else {}),
        **({"depth": persona.depth} if persona.depth != AUTO else {}),
        **({"flavour": persona.flavour} if persona.flavour != AUTO else {}),
        "model": persona.model,
        **({"raises": persona.raises} if persona.raises else {}),
        **({"training_data": persona.training_data} if persona.training_data else {}),
        "exemplars": persona.exemplars,
        **{selector: Intent(intent) for selector, intent in persona.protocols.items()},
    }


def said_of(lobby: UvmObject) -> Said:
    """By persona and slot: the digest of what codex and image last agreed on."""
    return {name: dict(slots) for name, slots in lobby.incarnation.said}


def kept(lobby: UvmObject, codex: Codex) -> Kept:
    """By persona and slot, why the image does not hold what the codex says; the slot "" stands for the whole persona."""
    found: Kept = {}
    said = said_of(lobby)
    for name in {**dict.fromkeys(lobby.personas), **codex.personas}:
        persona = lobby._slots.get(name)
        if not isinstance(persona, UvmObject):
            why = {"": DELETED} if name in codex.personas else {}
        elif name not in codex.personas:
            why = {"": REMOVED}
        else:
            why = merge(said.get(name, {}), persona._slots, slots_of(codex.personas[name])).kept
        if why:
            found[name] = why
    return found


def accept(root: Any, codex: Codex, name: str, slot: str | None = None) -> dict[str, str]:
    """System transaction: let the codex have its way where the image went its own: in one slot of a persona, or in all of
    them. What was there stays in the image's history.

    :param slot: None: whatever `kept` names of the persona; one that was deleted comes back.
    :return: by slot, what it was kept for; the slot "" is the whole persona.
    :raises UnknownPersona: for a persona that is not in the codex.
    :raises InvalidInput: where the image follows the codex already, or there is no such slot.
    """
    if name not in codex.personas:
        raise UnknownPersona(f"the codex has no persona {name!r}; it has: {', '.join(codex.personas)}")
    lobby: UvmObject = root["lobby"]
    left = kept(lobby, codex).get(name, {})
    wanted = left if slot is None else {slot: left[slot]} if slot in left else {}
    if not wanted:
        others = ", ".join(repr(one) if one else "the whole persona" for one in left)
        instead = f"it differs in: {others}" if left else "so it does everywhere"
        _check_slot(lobby, codex, name, slot)
        where = "" if slot is None else f" in its slot {slot!r}"
        raise InvalidInput(f"the persona {name!r} follows the codex{where} already; {instead}")
    said = said_of(lobby)
    if "" in wanted:
        said.pop(name, None)
        lobby._slots.pop(name, None)
    else:
        _take_over(lobby._slots[name], slots_of(codex.personas[name]), wanted, said[name])
    _set(lobby.incarnation, "said", _told(said))
    Incarnation(codex)(lobby)  # makes the persona that is missing
    return wanted


def _check_slot(lobby: UvmObject, codex: Codex, name: str, slot: str | None) -> None:
    """
    :raises InvalidInput: for a slot that neither the codex nor the image has.
    """
    persona, told = lobby._slots.get(name), slots_of(codex.personas[name])
    held = persona._slots if isinstance(persona, UvmObject) else {}
    if slot is not None and slot not in told and slot not in held:
        raise InvalidInput(f"the persona {name!r} has no slot {slot!r}{nearest(slot, told)}; the codex gives it: {', '.join(told)}")


def _take_over(persona: UvmObject, codex: Mapping[str, object], wanted: Mapping[str, str], said: dict[str, str]) -> None:
    for slot in wanted:
        agreed = digest(codex[slot]) if slot in codex else None
        if agreed is None:
            del persona._slots[slot]
            said.pop(slot, None)
        else:
            persona._slots[slot], said[slot] = codex[slot], agreed


def _told(said: Said) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    return tuple((name, tuple(sorted(slots.items()))) for name, slots in sorted(said.items()))


def present(lobby: UvmObject, codex: Codex) -> Mapping[str, UvmObject]:
    """The personas to which briefs are routed: those of the codex that the image has, in the order of the codex."""
    return {name: found for name in codex.personas if isinstance(found := lobby._slots.get(name), UvmObject)}


def facets(persona: UvmObject) -> Iterator[tuple[str, str]]:
    """The persona's facets, its own first: selector, and the intent that guides it, or that its method was written from."""
    seen: set[str] = set()
    for holder in lookup_order(persona):
        for name, value in holder._slots.items():
            if name.endswith("_facet_") and isinstance(value, Intent | Method) and name not in seen:
                seen.add(name)
                yield name, value.text if isinstance(value, Intent) else str(dict(value.provenance).get("intent", ""))


def system_message(persona: UvmObject, flavour: Flavour = "full") -> str:
    """Who the persona is, as the system message of its inferences; `light` leaves its inspirations out, `off` leaves it to
    the model: it is nobody then."""
    if flavour == "off":
        return ""
    who = f"You are {persona.name}. {persona.core_mission} Your method: {persona.core_method}"
    return who if flavour == "light" else f"{who} You work in the spirit of: {'; '.join(persona.pillars)}."
