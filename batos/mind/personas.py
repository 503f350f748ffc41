"""What there is to say of the personas: for `batos personas`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batos.mind.codex import Codex
from batos.mind.incarnation import kept
from batos.mind.learning import exemplars_of
from batos.objects import Intent, Method, Primitive, UvmObject, lookup_order

_KINDS: dict[type, str] = {Intent: "intent", Method: "method", Primitive: "primitive"}


def describe(root: Any, codex: Codex, model_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """The personas as plain values: those of the codex in its order, then those that are in the image only.

    :param model_of: from a persona's role to the name of a model.
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
    """What the persona answers to by its own ways, or those that personas have in common: selector, kind, whether a facet, text."""
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
