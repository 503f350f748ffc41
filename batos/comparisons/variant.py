"""Variants: what a comparison sets against what there is. A variant is plain values, is applied in a mirror, and is promoted in the image.

There are four kinds, which may come together:

* other slots of a persona (of a codex file, or one by one);
* another persona in its place;
* another model (its slot `model`);
* other settings of thought.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from batos.bridge.modelfile import tagged
from batos.config import nearest
from batos.config.settings import SECTIONS, Settings
from batos.errors import InvalidInput, UnknownPersona
from batos.mind import incarnation
from batos.mind.attempt_services import AttemptTerms
from batos.mind.brief_analysis import AUTO, DEPTHS, FLAVOURS
from batos.mind.codex import BASE_MODEL, read_codex
from batos.objects import Intent, Method, Root, SlotList, UvmObject

SETTINGS = (
    "missions.depth",
    "missions.flavour",
    "missions.critic",
    "missions.inferences",
    "inference.think",
    "inference.window",
    "inference.answer_tokens",
    "inference.stop",
)
"""Settings that a variant may change: those that an attempt reads when it begins."""
_TEXTS = ("core_mission", "core_method")
_CHOICES: Mapping[str, tuple[str, ...]] = {"depth": (AUTO, *DEPTHS), "flavour": (AUTO, *FLAVOURS), "grounded": ("true", "false")}
_SELECTOR = re.compile(r"[a-z][a-z0-9_]{0,62}_")
_TEXT_CHARS = 4000
_OPTIONS = {"inference.answer_tokens": "num_predict", "inference.window": "num_ctx"}


class AskedVariant(NamedTuple):
    """A variant in the words of its user."""

    persona: str
    """Name of the persona whose missions are compared."""
    other: str | None = None
    """Name of another persona, or of a model."""
    codex: str | None = None
    """Text of a codex file with that persona, or with one only."""
    changed: Mapping[str, str] = {}
    """Slot of the persona (with or without its name before it), or setting -> new value."""


class Variant(NamedTuple):
    """A variant of a persona, as JSON values."""

    persona: str
    """The persona whose missions are compared, in lower case."""
    slots: Mapping[str, Any] = {}
    """Slot of the persona -> value; an Intent is `{"intent": TEXT}`; None: the slot is taken away."""
    instead: str = ""
    """The persona that thinks in its place; empty: itself."""
    settings: Mapping[str, Any] = {}

    @property
    def words(self) -> str:
        """Return what differs, in a few words."""
        told = [f"{self.instead} in its place"] if self.instead else []
        told += [f"{name}={_shown(value)}" for name, value in {**self.slots, **self.settings}.items()]
        return f"{self.persona} with {', '.join(told)}"

    @property
    def thinks_anew(self) -> bool:
        """Return True if it may be decided otherwise how much is thought about a brief."""
        return bool(self.instead or self.settings or {"depth", "flavour", "model"} & self.slots.keys())


def _shown(value: Any) -> str:
    text = (
        "(none)"
        if value is None
        else value["intent"]
        if isinstance(value, dict)
        else value
        if isinstance(value, str)
        else json.dumps(value)
    )
    return text if len(text) <= 60 else text[:59] + "…"


def variant_of(root: Root, asked: AskedVariant, models: Collection[str]) -> Variant:
    """Return the variant that was asked for.

    :param models: names of the models that are there.
    :raises UnknownPersona: for a persona that is not in the image.
    :raises InvalidInput: saying what is not allowed, or that nothing differs.
    """
    name, personas = asked.persona.strip().lower(), personas_of(root)
    if name not in personas:
        raise UnknownPersona(f"no persona {asked.persona!r}; there are: {', '.join(personas)}")
    persona = personas[name]
    slots: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    instead = ""
    if asked.codex is not None:
        slots |= _of_codex(root, name, asked.codex)
    if asked.other is not None:
        other = asked.other.strip()
        if other.lower() in personas:
            instead = other.lower()
        elif tagged(other) in {tagged(one) for one in models}:
            slots["model"] = other
        else:
            raise InvalidInput(
                f"{other!r} is neither a persona nor a model that is there{nearest(other, [*personas, *models])}; personas: "
                f"{', '.join(personas)}; models: {', '.join(sorted(models)) or 'none'}"
            )
    for given, text in asked.changed.items():
        key = given.strip().removeprefix(f"{name}.")
        if key in SETTINGS:
            settings[key] = _setting(key, text)
        else:
            slots[key] = _slot(key, text, given, models, personas)
    slots = {key: value for key, value in slots.items() if value != told_slot(persona._slots.get(key))}
    if instead == name or not (slots or instead or settings):
        raise InvalidInput(f"{name} is just that already: a comparison needs something that differs")
    if "model" in slots and (voice := getattr(persona, "voice", "")):
        raise InvalidInput(
            f"{name} speaks with the expert {voice}, whatever its model is; `batos experts --voice {name}=plain` changes that"
        )
    return Variant(name, slots, instead, settings)


def personas_of(root: Root) -> dict[str, UvmObject]:
    """Return the personas of the image by their names."""
    lobby = root["lobby"]
    return {name: found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)}


def _of_codex(root: Root, name: str, text: str) -> dict[str, Any]:
    """Return all slots of the persona in a codex, and None for those of the present codex that it does not have."""
    there = read_codex(text, "that was given").personas
    chosen = name if name in there else next(iter(there)) if len(there) == 1 else None
    if chosen is None:
        raise InvalidInput(f"the codex that was given has no persona {name!r} and more than one other: {', '.join(there)}")
    slots = {slot: told_slot(value) for slot, value in incarnation.slots_of(there[chosen]).items()}
    if slots.get("model") in (chosen, name):  # its own role, or that of the persona in whose place it stands
        del slots["model"]
    slots.pop("training_data", None)
    held = personas_of(root)[name]._slots
    gone = [slot for slot in incarnation.said_of(root["lobby"]).get(name, {}) if slot not in slots and slot in held and slot.endswith("_")]
    return {**slots, **dict.fromkeys(gone)}


def _setting(name: str, text: str) -> Any:
    section, _, key = name.partition(".")
    try:
        return getattr(SECTIONS[section].model_validate({key: text}), key)
    except ValidationError as e:
        raise InvalidInput(f"the setting {name} cannot be {text!r}: {e.errors()[0]['msg']}") from None


def _slot(name: str, text: str, given: str, models: Collection[str], personas: Collection[str]) -> Any:
    """Return the JSON value of a slot from its text."""
    if not text.strip() or len(text) > _TEXT_CHARS:
        raise InvalidInput(f"{given} takes 1 to {_TEXT_CHARS} characters; {len(text)} were given")
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            raise InvalidInput(f"{given} cannot be {text!r}; allowed are {', '.join(_CHOICES[name])}")
        return text == "true" if name == "grounded" else text
    if name == "model":
        if text not in (*personas, BASE_MODEL) and tagged(text) not in {tagged(one) for one in models}:
            raise InvalidInput(f"the model {text!r} is not there; there are: {', '.join(sorted(models)) or 'none'}")
        return text
    if name == "pillars":
        return [line.strip() for line in text.splitlines() if line.strip()]
    if name in _TEXTS:
        return text
    if _SELECTOR.fullmatch(name):
        return {"intent": text}
    allowed = (*_TEXTS, "pillars", "model", *_CHOICES, *SETTINGS)
    raise InvalidInput(
        f"{given!r} is not a slot that a comparison changes, nor a setting of thought{nearest(name, allowed)}; allowed are "
        f"{', '.join(allowed)}, and guidance such as sage_facet_"
    )


def told_slot(value: Any) -> Any:
    """Return a slot's value as JSON; None for none. A method is its source."""
    if isinstance(value, Intent):
        return {"intent": value.text}
    if isinstance(value, Method):
        return {"method": value.source}
    return [str(one) for one in value] if isinstance(value, tuple | SlotList) else value if isinstance(value, str | bool) else None


def _held_slot(told: Any) -> Any:
    return Intent(told["intent"]) if isinstance(told, dict) else tuple(told) if isinstance(told, list) else told


def apply(root: Root, variant: Variant) -> None:
    """Give the persona the variant's slots, as part of a transaction."""
    persona = personas_of(root)[variant.persona]
    for name, told in variant.slots.items():
        if told is None:
            persona._slots.pop(name, None)
        else:
            persona._slots[name] = _held_slot(told)


def standing(root: Root, variant: Variant) -> str:
    """Return a digest of what there is: the persona's own slots, and those of the persona that stands in its place."""
    personas = personas_of(root)
    found = [
        {slot: told_slot(value) for slot, value in sorted(personas[name]._slots.items()) if slot not in ("exemplars", "comment")}
        if name in personas
        else None
        for name in (variant.persona, variant.instead)
        if name
    ]
    return hashlib.sha256(json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def terms_with(terms: Callable[[], AttemptTerms], changed: Mapping[str, Any]) -> Callable[[], AttemptTerms]:
    """Return the terms of attempts with a variant's settings."""
    if not changed:
        return terms

    def made() -> AttemptTerms:
        now = terms()
        options, direct = dict(now.options), dict(now.direct)
        for name, value in changed.items():
            if name in _OPTIONS and value:
                options[_OPTIONS[name]] = value
                direct.pop(_OPTIONS[name], None)
            elif name == "inference.think" and value in ("on", "off"):
                options["think"] = value == "on"
            elif name == "inference.stop" and value:
                options["stop"] = list(value)
        settings: Settings = now.settings.model_copy(update=dict(changed))
        return replace(now, settings=settings, options=options, direct=direct)

    return made
