"""Registry of models in the image: experts and voices, probed capabilities, and cached vectors.

An *expert* is a LoRA model that the factory makes. `pLLM_obj.lora_repository` maps a model's name to its proxy: its
facts, lineage and state. No weights are kept here. A persona's slot `voice` names the model that speaks for it, or is
empty if its plain model does. `voice_choice` is the rule: `newest` (the highest version that is built), `plain`, or the name of an expert.
All functions that change anything are system transactions.

The capabilities of a model, once probed, are kept in one small record, whatever becomes of its Ollama. Vectors of the
few texts that are compared again and again are cached, so that a restart need not embed them anew. Each is keyed by text and embedder and
stored as half-precision numbers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.errors import ExpertRefused, UnknownPersona
from batos.image.living_image import add_missing
from batos.objects import Root, UvmObject
from batos.objects.json_form import oid_of

INTENDED, BUILT, REFUSED, MISSING = "intended", "built", "refused", "missing"
NEWEST, PLAIN = "newest", "plain"
EXPERT_DEFAULTS: dict[str, Any] = {
    "state": INTENDED, "reason": "", "digest": "", "recipe": "", "how": "", "built": None, "role": "voice", "fuse": False,
    "on_choice": False, "about": "", "missions": (), "methods": (), "image_revision": "",
    "data": "", "seed": 0, "figures": (),
}  # fmt: skip
"""Slots of the prototype of experts; a proxy holds those that differ."""
EXPERT_FACTS = ("model", "persona", "expert", "version", "base", "content", "folder", "staged", "number", *EXPERT_DEFAULTS)


def install_experts(lobby: UvmObject) -> None:
    """Make the repository and the personas' voice slots; a step of genesis."""
    add_missing(
        lobby,
        pLLM_obj=lambda: lobby.genesis.derive(
            name="pLLM_obj", comment="I am the personal language model: what was trained for this mind, and whose voice it is."
        ),
    )
    add_missing(lobby.pLLM_obj, lora_repository=OOBTree, bases=(), methods_choice="")
    add_missing(
        lobby.traits,
        expert=lambda: lobby.genesis.derive(
            comment="I am the prototype of experts: proxies of LoRA models in Ollama. I hold no weights.", **EXPERT_DEFAULTS
        ),
    )
    add_missing(lobby.traits.expert, **EXPERT_DEFAULTS)
    add_missing(lobby.traits.persona, voice="", voice_choice=NEWEST)


def expert_repository(root: Root) -> OOBTree:
    """Return the proxies by the names of their models."""
    return root["lobby"].pLLM_obj.lora_repository


def describe_experts(root: Root) -> list[dict[str, Any]]:
    """Return every expert as plain values, in the order of their names; `speaks` is True for the voice of a persona."""
    speaking = {heard["model"] for heard in voices(root).values()}
    return [{**_facts(proxy), "speaks": proxy.model in speaking} for proxy in _known(root)]


def voices(root: Root) -> dict[str, dict[str, str]]:
    """Return for each persona the rule of its voice, and the expert that speaks (empty: its plain model)."""
    lobby = root["lobby"]
    spoken = {name: lobby._slots[name] for name in lobby.personas}
    return {name: {"choice": getattr(p, "voice_choice", PLAIN), "model": getattr(p, "voice", "")} for name, p in spoken.items()}


def report_experts(root: Root) -> dict[str, Any]:
    """Return the facts about experts and voices that the image knows."""
    return {"experts": describe_experts(root), "voices": voices(root)}


def plain_models(root: Root) -> dict[str, str]:
    """Return for each persona its slot `model`: the role of its plain model."""
    lobby = root["lobby"]
    return {name: lobby._slots[name].model for name in lobby.personas}


def speaks_for(root: Root, model: str) -> str | None:
    """Return the persona of an expert that is its voice, usable now or in a moment; None if there is none. An expert that writes methods
    belongs to a persona, too, and never speaks for it."""
    proxy = expert_repository(root).get(model)
    return str(proxy.persona) if proxy is not None and proxy.role == "voice" and _usable(proxy) else None


# --- system transactions


def begin_experts(root: Root, bases: Mapping[str, str]) -> list[dict[str, Any]]:
    """Note the base of each persona in this profile, let only experts on it speak, and return the experts. Called at
    the start."""
    held = root["lobby"].pLLM_obj
    fresh = tuple(sorted(bases.items()))
    if held.bases != fresh:
        held.bases = fresh
    for persona in root["lobby"].personas:
        _elect(root, persona)
    return describe_experts(root)


def intend_expert(root: Root, facts: dict[str, Any]) -> dict[str, Any]:
    """Record that an expert is to be built.

    :param facts: model, persona, expert, version, base, content, folder, and fields that differ from
        `EXPERT_DEFAULTS`.
    :returns: the expert, as `describe_experts` shows it.
    :raises ExpertRefused: if the name was built with another content.
    """
    proxy = _proxy(root, facts["model"])
    if proxy.built is not None and proxy.content != facts["content"]:
        raise ExpertRefused(
            f"{facts['model']} is built already, with another content; a version never changes: give the new one a higher version"
        )
    _set(proxy, {**facts, "state": INTENDED, "reason": ""})
    return _facts(proxy)


def refuse_expert(root: Root, facts: dict[str, Any], reason: str) -> None:
    """Record that an expert was refused before it was ever built; one that was built stays as it is."""
    proxy = _proxy(root, facts["model"])
    if proxy.built is None:
        _set(proxy, {**facts, "state": REFUSED, "reason": reason})


def note_built(root: Root, model: str, digest: str, recipe: str, how: str, note: str) -> dict[str, Any]:
    """Record that the model is there, and let it speak if it is its turn.

    :param how: `adapter` or `fused`.
    :param note: remark, such as the reason why it was not fused.
    """
    proxy = expert_repository(root)[model]
    _set(proxy, {"state": BUILT, "digest": digest, "recipe": recipe, "how": how, "reason": note, "built": round(time.time(), 3)})
    _elect(root, proxy.persona)
    return _facts(proxy)


def note_facts(root: Root, model: str, facts: dict[str, Any]) -> None:
    """Change facts of an expert that do not go into its model: role, topic, lineage, folder, reason."""
    proxy = expert_repository(root)[model]
    _set(proxy, facts)
    _elect(root, proxy.persona)


def note_unusable(root: Root, model: str, state: str, reason: str) -> None:
    """Record that an expert is refused or missing; its persona speaks with another voice then."""
    proxy = expert_repository(root)[model]
    _set(proxy, {"state": state, "reason": reason})
    _elect(root, proxy.persona)


def forget_expert(root: Root, model: str) -> None:
    """Drop the proxy of an expert that was never built, and whose folder is gone."""
    held = expert_repository(root)
    if held[model].built is None:
        del held[model]


def choose_voice(root: Root, persona: str, choice: str) -> None:
    """Set the rule of a persona's voice.

    :param choice: `newest`, `plain`, or the name of an expert's model.
    :raises BatosError: as `check_choice` does.
    """
    check_choice(root, persona, choice)
    _set(root["lobby"]._slots[persona], {"voice_choice": choice})
    _elect(root, persona)


def check_choice(root: Root, persona: str, choice: str) -> None:
    """Check that a choice is possible.

    :raises UnknownPersona: if there is no persona of that name.
    :raises ExpertRefused: for an expert that cannot speak for this persona now.
    """
    lobby = root["lobby"]
    if persona not in lobby.personas:
        raise UnknownPersona(f"no persona {persona!r}; there are: {', '.join(lobby.personas)}")
    if choice not in (NEWEST, PLAIN):
        proxy = expert_repository(root).get(choice)
        if proxy is None or proxy not in list(_candidates(root, persona)):
            able = ", ".join(e.model for e in _candidates(root, persona)) or "none"
            raise ExpertRefused(f"{choice!r} cannot speak for {persona}; experts that can: {able}; or choose {NEWEST} or {PLAIN}")


# --- inside


def _proxy(root: Root, model: str) -> UvmObject:
    held = expert_repository(root)
    if model not in held:
        number = 1 + max((e.number for e in held.values()), default=0)
        held[model] = UvmObject(**{"parent*": root["lobby"].traits.expert, "number": number, "staged": round(time.time(), 3)})
    return held[model]  # type: ignore[no-any-return]


def speaks_methods(root: Root) -> str:
    """Return the model of the newest usable expert for writing methods (role `methods`) on a base of this profile;
    empty if there is none.

    An expert that writes only once it is chosen counts if it is the chosen one.
    """
    chosen = getattr(root["lobby"].pLLM_obj, "methods_choice", "")
    able = [e for e in _writers(root) if not e.on_choice or e.model == chosen]
    return str(max(able, key=lambda e: (e.version, e.number)).model) if able else ""


def choose_writer(root: Root, model: str) -> None:
    """Choose the expert that writes methods, among those that write only once they are chosen. Part of a transaction.

    :raises ExpertRefused: if it cannot write methods.
    """
    if model not in (able := [e.model for e in _writers(root)]):
        raise ExpertRefused(f"{model!r} cannot write methods; experts that can: {', '.join(able) or 'none'}")
    _set(root["lobby"].pLLM_obj, {"methods_choice": model})


def _writers(root: Root) -> list[UvmObject]:
    bases = dict(root["lobby"].pLLM_obj.bases)
    return [e for e in _known(root) if e.role == "methods" and _usable(e) and e.base == bases.get(e.persona)]


def writes_methods(root: Root, model: str) -> bool:
    """Return True if a model is an expert for writing methods, usable now or not."""
    proxy = expert_repository(root).get(model)
    return proxy is not None and proxy.role == "methods"


def _known(root: Root) -> Iterator[UvmObject]:
    return iter(expert_repository(root).values())


def _facts(proxy: UvmObject) -> dict[str, Any]:
    return {**{name: getattr(proxy, name) for name in EXPERT_FACTS}, "oid": oid_of(proxy)}


def _usable(proxy: UvmObject) -> bool:
    """Return True if an expert's model is there, or is being made anew after it was there once: missions wait for
    that."""
    return bool(proxy.state == BUILT or (proxy.state == INTENDED and proxy.built is not None))


def _candidates(root: Root, persona: str) -> Iterator[UvmObject]:
    base = dict(root["lobby"].pLLM_obj.bases).get(persona)
    return (e for e in _known(root) if e.persona == persona and e.role == "voice" and _usable(e) and e.base == base)


def _elect(root: Root, persona: str) -> None:
    if persona not in root["lobby"].personas:
        return
    holder = root["lobby"]._slots[persona]
    able = {e.model: e for e in _candidates(root, persona)}
    choice, voice = getattr(holder, "voice_choice", PLAIN), ""
    if choice == NEWEST and (free := [e for e in able.values() if not e.on_choice]):
        voice = max(free, key=lambda e: (e.version, e.number)).model
    elif choice in able:
        voice = choice
    _set(holder, {"voice": voice})


def _set(obj: UvmObject, slots: Mapping[str, Any]) -> None:
    """Set the slots that differ: writing an equal value would make a revision that says nothing."""
    for name, value in slots.items():
        if getattr(obj, name, None) != value:
            obj._slots[name] = value


_KEY = "known_models"


class KnownModels(Persistent):
    """Probed capabilities as JSON, by making of a model (see `batos.bridge.capabilities`); the last one probed at the
    end."""

    __module__ = "batos.image"
    records: tuple[tuple[str, str], ...] = ()


def recall_capabilities(root: Root) -> list[tuple[str, dict[str, Any]]]:
    """Return the probed capabilities, by making."""
    held: KnownModels | None = root.get(_KEY)
    return [] if held is None else [(making, json.loads(record)) for making, record in held.records]


def keep_capabilities(root: Root, making: str, record: Mapping[str, Any], limit: int) -> None:
    """Keep the capabilities of a making, and of the `limit` last ones. A system transaction."""
    if _KEY not in root:
        root[_KEY] = KnownModels()
    held: KnownModels = root[_KEY]
    others = tuple(one for one in held.records if one[0] != making)
    held.records = (*others, (making, json.dumps(dict(record), sort_keys=True)))[-limit:]


def vector_key(embedder: str, text: str) -> bytes:
    """Return the key of a text's vector: 16 bytes of SHA-256 over the embedder's digest and the text."""
    return hashlib.sha256(f"{embedder}\0{text}".encode("utf-8", "surrogatepass")).digest()[:16]


def load_vectors(root: Root, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return those of the vectors that are cached."""
    kept = root.get("vectors", {})
    return {key: kept[key] for key in keys if key in kept}


def save_vectors(root: Root, new: Mapping[bytes, bytes], wanted: Collection[bytes]) -> None:
    """Cache the new vectors, and drop all that are not wanted any more. A system transaction."""
    if "vectors" not in root:
        root["vectors"] = OOBTree()
    for key in [key for key in root["vectors"] if key not in wanted]:
        del root["vectors"][key]
    root["vectors"].update(new)
