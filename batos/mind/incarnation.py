"""The Incarnation Protocol: the codex becomes personas, clones of the genesis object, in the image.

It runs at every start. A changed codex changes a persona by a three-way merge, slot by slot. The merge compares the codex when the slot
last agreed with it (kept as a digest), the image now, and the codex now. A slot that the image changed or deleted itself is left alone and
reported; an operator can accept the value of the codex.

The router learns: if a user chose another persona than the router would have, the brief becomes an exemplar of that persona. Learned
exemplars are a tree of their own in each persona, so that missions that end at the same time do not conflict. A new codex, which brings its
own exemplars, leaves them alone.

The facts about personas for `batos personas` are collected here too.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBTree

from batos.config import nearest
from batos.errors import ConfigError, InvalidInput, UnknownPersona
from batos.image.living_image import add_missing
from batos.memory.embedders import normalised
from batos.mind.brief_analysis import AUTO, Flavour
from batos.mind.codex import Codex, PersonaCodex
from batos.objects import Intent, Method, Primitive, Root, SlotList, UvmObject, lookup_order

SLOT = "learned_exemplars"


class Exemplars(NamedTuple):
    """Briefs that are a persona's own."""

    given: tuple[str, ...]
    """Exemplars of the codex."""
    learned: Mapping[bytes, str] = MappingProxyType({})
    """Digest of a brief -> the brief: briefs for which users chose the persona."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Return all exemplars, without repetitions."""
        return tuple(dict.fromkeys((*self.given, *self.learned.values())))


def exemplars_of(persona: UvmObject) -> Exemplars:
    """Return the exemplars of a persona in the image; values that are not texts are left out."""
    given = persona._slots.get("exemplars", ())
    texts = given if isinstance(given, tuple | SlotList) else ()
    learned = {key: entry[0] for key, entry in _learned(persona).items()}
    return Exemplars(tuple(text for text in texts if isinstance(text, str) and text.strip()), learned)


def learned_by(examples: Mapping[str, Exemplars], text: str) -> str | None:
    """Return the persona that was chosen for this very text before, if one was."""
    if not any(own.learned for own in examples.values()):
        return None
    key = _key(text)
    return next((name for name, own in examples.items() if key in own.learned), None)


def learn(personas: Mapping[str, UvmObject], chosen: str, text: str, mission: str, limit: int) -> None:
    """Make `text` an exemplar of the persona `chosen` and of no other; past `limit` the oldest one goes.

    Part of the mission's own transaction: it is kept with the answer, and undone with it.
    """
    key = _key(text)
    for name, persona in personas.items():
        if name != chosen and key in _learned(persona):
            del _learned(persona)[key]
    entries = _learned(personas[chosen])
    if key in entries:
        return
    while len(entries) >= max(1, limit):
        del entries[min(entries, key=lambda old: entries[old][2])]
    entries[key] = (text, mission, time.time())


@Primitive.register("persona.forget_exemplar_", reaches="what the router has learned")
async def forget_exemplar_(persona: UvmObject, text: str) -> bool:
    """Take back what the router has learned of a brief; whether there was anything. A message to the persona."""
    return _learned(persona).pop(_key(text), None) is not None if isinstance(text, str) else False


def _learned(persona: UvmObject) -> Any:
    """Return the learned exemplars by the digest of their text: text, mission, time."""
    found = persona._slots.get(SLOT)
    return found if isinstance(found, OOBTree) else {}


def _key(text: str) -> bytes:
    return hashlib.sha256(" ".join(normalised(text).casefold().split()).encode("utf-8", "surrogatepass")).digest()[:16]


CHANGED = "changed in the image"
DELETED = "deleted in the image"
OWN = "the image already has another slot with this name"
DROPPED = "no longer in the codex, but changed in the image"


class Merged(NamedTuple):
    """Result of a merge: slots to store and remove, and slots left alone."""

    store: dict[str, Any]
    remove: tuple[str, ...]
    said: dict[str, str]
    """Slot -> digest of the value on which codex and image agreed last."""
    kept: dict[str, str]
    """Slot -> reason why the image keeps another value than the codex."""


def digest(value: object) -> str | None:
    """Return the digest of a value such as a codex has: a text, texts, an Intent, yes or no. None for any other."""
    content: Any = value.text if isinstance(value, Intent) else value
    if not (isinstance(content, str | bool) or (type(content) is tuple and all(isinstance(text, str) for text in content))):
        return None
    return hashlib.sha256(json.dumps([type(value).__name__, content]).encode()).hexdigest()[:32]


def merge(said: Mapping[str, str], image: Mapping[str, Any], codex: Mapping[str, Any]) -> Merged:
    """Merge the slots of one persona.

    :param said: `Merged.said` of the last time; empty for the first.
    :param image: the persona's own slots; those of which the codex never spoke do not matter.
    :param codex: the slots as the codex has them now.
    """
    found = Merged({}, (), dict(said), {})
    remove = []
    for name in {**codex, **said}:
        was, new = said.get(name), digest(codex[name]) if name in codex else None
        if name not in image:
            _missing(found, name, was, new, codex)
        elif digest(image[name]) == new is not None:
            found.said[name] = new
        elif was is None or digest(image[name]) != was:
            found.kept[name] = DROPPED if new is None else CHANGED if was else OWN
        elif new is None:
            remove.append(name)
            del found.said[name]
        else:
            found.store[name] = codex[name]
            found.said[name] = new
    return found._replace(remove=tuple(remove))


def _missing(found: Merged, name: str, was: str | None, new: str | None, codex: Mapping[str, Any]) -> None:
    """Merge a slot that the image does not have."""
    if new is None:  # the codex no longer has it, either
        found.said.pop(name)
    elif was is None:
        found.store[name], found.said[name] = codex[name], new
    else:
        found.kept[name] = DELETED


PLAIN_FACET = "Answer the request directly and concretely, in plain words, in a few sentences."
REMOVED = "no longer in the codex: it stays in the image, and no brief is routed to it"
Said = dict[str, dict[str, str]]
Kept = dict[str, dict[str, str]]


class Incarnation:
    """The step of genesis that makes a persona of every one in the codex, and brings those there are up to date."""

    def __init__(self, codex: Codex) -> None:
        self._codex = codex
        self.changes: Kept = {}
        """Persona -> slots that the last run added, updated or removed; no slots for a new persona."""

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
                    continue  # a user or a mission deleted it in the image
                lobby._slots[name] = _clone(lobby, name)
                self.changes[name] = {}
            elif name not in known:
                raise ConfigError(
                    f"the codex has a persona {name!r}, but the image already has another object with this name; rename the persona"
                )
            elif not isinstance(lobby._slots[name], UvmObject):
                continue  # the image has another object in its place
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
    """Return the slots that the codex gives a persona."""
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
    """Return, by persona and slot, the digest of the value on which codex and image last agreed."""
    return {name: dict(slots) for name, slots in lobby.incarnation.said}


def kept(lobby: UvmObject, codex: Codex) -> Kept:
    """Return, by persona and slot, the reason why the image differs from the codex; the slot "" stands for the whole persona."""
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


def accept(root: Root, codex: Codex, name: str, slot: str | None = None) -> dict[str, str]:
    """System transaction: accept the codex's values in one slot of a persona, or in all that differ. The image's history keeps the old
    ones.

    :param slot: None: all that `kept` names for the persona; a deleted persona comes back.
    :return: slot -> reason why it differed; the slot "" is the whole persona.
    :raises UnknownPersona: if the persona is not in the codex.
    :raises InvalidInput: if the image follows the codex already, or there is no such slot.
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
    Incarnation(codex)(lobby)  # makes the missing persona
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
    """Return the personas to which briefs are routed: the codex's personas that the image has, in the order of the codex."""
    return {name: found for name in codex.personas if isinstance(found := lobby._slots.get(name), UvmObject)}


def facets(persona: UvmObject) -> Iterator[tuple[str, str]]:
    """Yield the persona's facets, its own first: selector, and the intent that guides it, or that its method was written from."""
    seen: set[str] = set()
    for holder in lookup_order(persona):
        for name, value in holder._slots.items():
            if name.endswith("_facet_") and isinstance(value, Intent | Method) and name not in seen:
                seen.add(name)
                yield name, value.text if isinstance(value, Intent) else str(dict(value.provenance).get("intent", ""))


def system_message(persona: UvmObject, flavour: Flavour = "full") -> str:
    """Return the persona's system message.

    `light` leaves its inspirations out; `off` returns an empty text and leaves the voice to the model.
    """
    if flavour == "off":
        return ""
    who = f"You are {persona.name}. {persona.core_mission} Your method: {persona.core_method}"
    return who if flavour == "light" else f"{who} You work in the spirit of: {'; '.join(persona.pillars)}."


_KINDS: dict[type, str] = {Intent: "intent", Method: "method", Primitive: "primitive"}


def describe_personas(root: Root, codex: Codex, model_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """Return the personas as plain values: the codex's in its order, then further ones of the image.

    :param model_of: returns the name of the model for a persona's role.
    """
    lobby = root["lobby"]
    left_alone = kept(lobby, codex)
    names = dict.fromkeys((*codex.personas, *lobby.personas))
    return [
        {"name": name, "routed": name in codex.personas and name in lobby._slots, **_of(lobby._slots.get(name), model_of),
         "kept": [{"slot": slot or None, "why": why} for slot, why in left_alone.get(name, {}).items()]}
        for name in names
        if name in lobby._slots or name in left_alone
    ]  # fmt: skip


def _of(persona: Any, model_of: Callable[[str], str]) -> dict[str, Any]:
    if not isinstance(persona, UvmObject):
        return {}
    exemplars = exemplars_of(persona)
    return {
        **{name: _text(getattr(persona, name, None)) for name in ("core_mission", "core_method")},
        "pillars": [_text(pillar) for pillar in getattr(persona, "pillars", ())],
        "model": model_of(_text(getattr(persona, "model", "")) or ""),
        "behaviour": _behaviour(persona),
        "exemplars": len(exemplars.given),
        "learned": len(exemplars.learned),
    }


def _behaviour(persona: UvmObject) -> list[dict[str, Any]]:
    """Return the persona's messages, its own and those common to all personas: selector, kind, whether it is a facet, text."""
    found: dict[str, dict[str, Any]] = {}
    genesis = persona._p_jar.root()["lobby"].genesis
    for holder in lookup_order(persona):
        if holder is genesis:
            continue
        for selector, value in holder._slots.items():
            kind = _KINDS.get(type(value))
            if kind is not None and selector not in found:
                text = value.source if isinstance(value, Method) else value.text
                found[selector] = {"selector": selector, "kind": kind, "facet": selector.endswith("_facet_"), "text": text}
    return list(found.values())


def _text(value: Any) -> str | None:
    return value if value is None else str(value)
