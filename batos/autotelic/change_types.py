"""Types of changes that the loop may make to itself: the purpose of each, the check of a proposal, and its application.

A change is applied in the caller's transaction, by changes of slots and of trees in slots. So the history names the change, and an undo can
revert it.

One type changes the voice of a persona: an expert that was trained here (`batos train persona`), or the plain model again. An expert speaks
only once it is chosen: by its user (`batos experts --voice`), or by a change that a user asks to be tried (`try_voice_`). Such a change is
rehearsed first on recorded missions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from string import Template
from typing import Any, NamedTuple

from batos.autotelic import changes, writer_evaluation
from batos.autotelic.changes import ChangeLimits, Proposal
from batos.bridge.modelfile import tagged
from batos.config import Settings
from batos.errors import BatosError, InvalidInput, UnknownTarget
from batos.guardian import Verdict
from batos.image import history, model_registry, taught_examples
from batos.image.living_image import add_missing
from batos.methods import reach
from batos.methods.runtime import may_use_tools, parameters_in
from batos.mind import incarnation, psm
from batos.mind.attempt import current
from batos.mind.incarnation import facets
from batos.mind.inference import ThinkingLimits
from batos.mind.router import RoutingLimits
from batos.objects import Intent, Method, Primitive, Root, UvmObject, find

VOICE = "voice"
ASKED_BY_USER = "user"
"""Source of a proposal from a user."""


def check_voice(root: Root, proposal: Proposal, ground: object) -> None:
    """See that the persona can speak with that voice, and does not already.

    :raises BatosError: saying why not.
    """
    persona, choice = proposal.target.lower(), str(proposal.content)
    model_registry.check_choice(root, persona, choice)
    if choice in model_registry.voices(root)[persona].values():
        raise InvalidInput(f"{persona} speaks with {choice} already")


def apply_voice(root: Root, proposal: Proposal, ground: object, name: str) -> None:
    """Set the voice of the persona."""
    model_registry.choose_voice(root, proposal.target.lower(), str(proposal.content))


def standing_voice(root: Root, proposal: Proposal) -> Any:
    """Return the current voice, and who decides about it."""
    return model_registry.voices(root).get(proposal.target.lower())


@Primitive.register("autotelic.try_voice_", reaches="the voice of a persona")
async def try_voice_(held: UvmObject, persona: str, model: str) -> dict[str, Any]:
    """Have a voice rehearsed on recorded missions; it speaks if nothing gets worse and something better. A message to `autotelic.changes`.

    :param model: model of an expert that is built.
    :raises InvalidInput: if the loop is off, or the voice speaks already.
    :raises ExpertRefused: for an expert that cannot speak for this persona.
    """
    attempt, root = current(), held._p_jar.root()
    if attempt.settings.autonomy.mode == "off":
        raise InvalidInput(
            "rehearsals are off (setting autonomy.mode); `batos experts --voice PERSONA=MODEL` puts a voice into use without one"
        )
    proposal = Proposal(VOICE, str(persona).lower(), str(model), "its user asks for it to be tried")
    check_voice(root, proposal, None)
    number = changes.propose(
        root, proposal, {"words": proposal.why}, attempt.id, source=ASKED_BY_USER, limit=ChangeLimits.of(attempt.settings).kept
    )
    return {"change": number}


def install_voices(lobby: UvmObject) -> None:
    """Let the record of changes understand `try_voice_`. A step of genesis."""
    add_missing(lobby.autotelic.changes, try_voice_=Primitive.of(try_voice_))


_FACET = re.compile(r"[a-z][a-z0-9_]{0,60}_facet_")
LEAST_CHARS = 10  # least number of characters of a facet's intent: a shorter one gives no guidance
EXEMPLARS = 8  # greatest number of exemplars in one proposal
EXEMPLAR_CHARS = 2000
STANDING = "standing"
"""Key in a comparison: the value at the target when the change was tried (`standing`)."""


class Ground(NamedTuple):
    """Context of a check, besides the image."""

    settings: Settings
    audit: Callable[..., Verdict]
    """Returns the guardian's verdict on a source, for its selector."""
    models: Callable[[], Collection[str]] = tuple
    """Returns the names of the available models."""
    curates: bool = False
    """True if there is a curator to run."""
    trains: Callable[[], str] = lambda: "training is not available here"
    """Returns the reason why no expert can be trained now; empty if one can."""

    def known(self) -> set[str]:
        """Return the names of the models that a persona may get: available ones, and those that may be pulled."""
        return {tagged(name) for name in (*self.models(), *self.settings.autonomy.models)}


class ChangeKind(NamedTuple):
    """One kind of change."""

    says: str
    """Description of the kind, for a model that may propose such a change."""
    check: Callable[[Any, Proposal, Ground], None]
    """Raises InvalidInput (or another BatosError) if a proposal makes no sense in the image of the root."""
    apply: Callable[[Any, Proposal, Ground, str], None]
    """Applies the change. The last argument names the change, for provenance."""
    standing: Callable[[Any, Proposal], Any]
    """Returns the present value as a JSON value. The loop makes a change only if this value is the one of the rehearsal."""
    rehearsed: bool = True
    """True if the change affects how missions are thought through, so that a rehearsal of missions shows its effect."""


def check(root: Root, proposal: Proposal, ground: Ground) -> None:
    """See that a proposal makes sense.

    :raises BatosError: saying why it does not.
    """
    if proposal.kind not in KINDS:
        raise InvalidInput(f"{proposal.kind!r} is not a kind of change; allowed are {', '.join(KINDS)}")
    limit = ChangeLimits.of(ground.settings).chars
    if (size := len(json.dumps(proposal.content, ensure_ascii=False))) > limit:
        raise InvalidInput(f"the content takes {size} characters; at most {limit} are taken")
    KINDS[proposal.kind].check(root, proposal, ground)


def apply(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    """Apply a proposal as part of a transaction.

    :param name: name of the change, for provenance.
    :raises BatosError: if it makes no sense any more; the transaction is to be aborted then.
    """
    check(root, proposal, ground)
    KINDS[proposal.kind].apply(root, proposal, ground, name)


def standing(root: Root, proposal: Proposal) -> str:
    """Return a digest of the current value that a proposal would change."""
    found = KINDS[proposal.kind].standing(root, proposal)
    return hashlib.sha256(json.dumps(found, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- facets


def _check_facet(root: Root, proposal: Proposal, ground: Ground) -> None:
    persona, selector = _of_persona(root, proposal.target)
    if not _FACET.fullmatch(selector):
        raise InvalidInput(f"{selector!r} is not a valid name of a facet; write lower-case words joined by '_' that end in '_facet_'")
    intent = _text(proposal, LEAST_CHARS)
    names = [name for name, _ in facets(persona)]
    if selector in names and dict(facets(persona))[selector] == intent:
        raise InvalidInput(f"the facet {proposal.target!r} says just that already")
    most = ThinkingLimits.of(ground.settings).facets
    if selector not in names and sum(name in persona._slots for name in names) >= most:
        raise InvalidInput(f"{persona.name} already has {most} facets, the most that are asked; retire one first")


def _apply_facet(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    persona, selector = _of_persona(root, proposal.target)
    persona._slots[selector] = Intent(_text(proposal, LEAST_CHARS))


# --- meta-prompts


def _check_meta_prompt(root: Root, proposal: Proposal, ground: Ground) -> None:
    state, name = _state(root, proposal.target)
    new = _text(proposal, LEAST_CHARS)
    if new == state.meta_prompt:
        raise InvalidInput(f"the meta-prompt of {name} is just that already")
    template = Template(new)
    if not template.is_valid():
        raise InvalidInput("the meta-prompt has a `$` that begins no name; write `$$` for the sign itself")
    needed, named = set(Template(psm.STATES[name]["meta_prompt"]).get_identifiers()), set(template.get_identifiers())
    if needed != named:
        told = ", ".join(f"${one}" for one in sorted(needed))
        raise InvalidInput(f"the meta-prompt of {name} must name {told}, each at least once, and no others")


def _apply_meta_prompt(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    state, _ = _state(root, proposal.target)
    state.meta_prompt = _text(proposal, LEAST_CHARS)


# --- exemplars


def exemplars_of(proposal: Proposal) -> list[str]:
    """Return the briefs of a proposal: a list, or the lines of a text."""
    lines = proposal.content.splitlines() if isinstance(proposal.content, str) else proposal.content
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise InvalidInput("exemplars are briefs: one in each line, or a list of texts")
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _check_exemplar(root: Root, proposal: Proposal, ground: Ground) -> None:
    persona, new = _persona(root, proposal.target), exemplars_of(proposal)
    if not 1 <= len(new) <= EXEMPLARS or max(map(len, new)) > EXEMPLAR_CHARS:
        raise InvalidInput(f"exemplars are 1 to {EXEMPLARS} briefs of at most {EXEMPLAR_CHARS} characters")
    known = incarnation.exemplars_of(persona).texts
    if all(text in known for text in new):
        raise InvalidInput(f"{persona.name} has these exemplars already")
    if (most := RoutingLimits.of(ground.settings).learned) < len(new):
        raise InvalidInput(f"a persona learns {most} exemplars")


def _known_exemplars(root: Root, proposal: Proposal) -> list[str]:
    """Return the briefs that the persona has already; other learned exemplars are ignored."""
    known = incarnation.exemplars_of(_persona(root, proposal.target)).texts
    return [text for text in exemplars_of(proposal) if text in known]


def _apply_exemplar(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    personas = _personas(root)
    for text in exemplars_of(proposal):
        incarnation.learn(personas, proposal.target.lower(), text, name, RoutingLimits.of(ground.settings).learned)


# --- methods


def method_at(root: Root, target: str) -> tuple[UvmObject, str, Method]:
    """Return the object that holds a method itself, the selector, the method.

    :raises InvalidInput: if it holds none.
    """
    holder, selector = _parted(root, target)
    held = holder._slots.get(selector)
    if not isinstance(held, Method):
        raise InvalidInput(f"{target!r} is not a method of this object itself; name one of its own methods")
    return holder, selector, held


def _check_method(root: Root, proposal: Proposal, ground: Ground) -> None:
    _, _, held = method_at(root, proposal.target)
    source = _text(proposal, 1)
    if source.strip() == held.source.strip():
        raise InvalidInput(f"the method {proposal.target!r} is just that already")
    verdict = _audited(ground, source, held).check()
    if more := reach.growth(held, verdict.contract["reaches"]):
        raise InvalidInput(
            f"the method {proposal.target!r} would reach tools that it does not reach now: {', '.join(more)}; only its user widens that "
            "(`batos teach … --tools`)"
        )


def _audited(ground: Ground, source: str, held: Method) -> Verdict:
    """Return the guardian's verdict on a version that would follow a method, with the leave that it has."""
    return ground.audit(source, held.selector, tools=True) if may_use_tools(held) else ground.audit(source, held.selector)


def _apply_method(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    holder, selector, held = method_at(root, proposal.target)
    source = str(proposal.content)
    verdict = _audited(ground, source, held)
    verdict.check()
    earlier = next((one for one in held.versions() if one.source == source), None)
    provenance = {"intent": dict(held.provenance).get("intent", ""), "policy": verdict.policy, "mission": name}
    if earlier is not None:
        provenance |= {**dict(earlier.provenance), "mission": name, "reverted_to": earlier.version}
    holder._slots[selector] = Method(
        selector, source, parameters=tuple(parameters_in(source)), contract=verdict.contract, provenance=provenance, previous=held
    )


def _check_intent(root: Root, proposal: Proposal, ground: Ground) -> None:
    holder, selector = _parted(root, proposal.target)
    text = _text(proposal, LEAST_CHARS)
    found = find(holder, selector)
    if selector.endswith("_facet_") or (found is not None and not isinstance(found[1], Intent)):
        raise InvalidInput(f"{proposal.target!r} is understood already: an intent is for a message that no method answers")
    if found is not None and found[1].text == text:
        raise InvalidInput(f"the intent of {proposal.target!r} is just that already")
    if taught_examples.examples_of(root, holder, selector)[1]:
        raise InvalidInput(f"a user has already said what {proposal.target!r} is for, and that takes precedence")


def _apply_intent(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    holder, selector = _parted(root, proposal.target)
    holder._slots[selector] = Intent(_text(proposal, LEAST_CHARS))


def _check_retire(root: Root, proposal: Proposal, ground: Ground) -> None:
    holder, selector = _parted(root, proposal.target)
    held = holder._slots.get(selector)
    if isinstance(held, Intent) and holder in _personas(root).values() and selector.endswith("_facet_"):
        if sum(1 for _ in facets(holder)) < 2:
            raise InvalidInput(f"{proposal.target!r} is the only way in which {holder.name} thinks")
        return
    method_at(root, proposal.target)


def _apply_retire(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    holder, selector = _parted(root, proposal.target)
    held = holder._slots[selector]
    intent = dict(held.provenance).get("intent", "") if isinstance(held, Method) else ""
    if intent:
        holder._slots[selector] = Intent(intent)  # the forge writes it anew on the next call
    else:
        del holder._slots[selector]


# --- other changes


def _check_curate(root: Root, proposal: Proposal, ground: Ground) -> None:
    if not ground.curates:
        raise InvalidInput("the curator of the memory does not run here")


def _nothing(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    """Apply nothing: the change takes place outside of the transaction, see `batos.autotelic.improver`."""


def _check_model(root: Root, proposal: Proposal, ground: Ground) -> None:
    persona, model = _persona(root, proposal.target), _text(proposal, 1)
    if model == persona.model:
        raise InvalidInput(f"{persona.name} speaks with {model} already")
    if voice := getattr(persona, "voice", ""):
        raise InvalidInput(
            f"{persona.name} speaks with the expert {voice}, whatever its model is; `batos experts` says how that is changed"
        )
    if tagged(model) not in (known := ground.known()):
        allowed = "and may not be pulled (setting autonomy.models)"
        raise InvalidInput(f"the model {model!r} is not there, {allowed}; there are: {', '.join(sorted(known)) or 'none'}")


def _apply_model(root: Root, proposal: Proposal, ground: Ground, name: str) -> None:
    _persona(root, proposal.target).model = str(proposal.content).strip()


# --- shared helpers


def _personas(root: Root) -> Mapping[str, UvmObject]:
    lobby = root["lobby"]
    return {name: found for name in lobby.personas if isinstance(found := lobby._slots.get(name), UvmObject)}


def _persona(root: Root, name: str) -> UvmObject:
    there = _personas(root)
    if name.lower() not in there:
        raise InvalidInput(f"{name!r} is not a persona; there are: {', '.join(there)}")
    return there[name.lower()]


def _parted(root: Root, target: str) -> tuple[UvmObject, str]:
    path, _, selector = target.rpartition(".")
    if not path or not selector.isidentifier():
        raise InvalidInput(f"{target!r} names no object and its slot, such as robin.sage_facet_")
    try:
        return history.resolve(root, path), selector
    except UnknownTarget as e:
        raise InvalidInput(e.message) from None


def _of_persona(root: Root, target: str) -> tuple[UvmObject, str]:
    name, _, selector = target.rpartition(".")
    return _persona(root, name), selector


def _state(root: Root, target: str) -> tuple[UvmObject, str]:
    name = target.removeprefix("psm.").removesuffix(".meta_prompt")
    if "meta_prompt" not in psm.STATES.get(name, ()):
        raise InvalidInput(f"{target!r} is not a state with a meta-prompt; there are: {', '.join(prompted())}")
    return root["lobby"].psm._slots[name], name


def prompted() -> list[str]:
    """Return the states that have a meta-prompt."""
    return [name for name, slots in psm.STATES.items() if "meta_prompt" in slots]


def _text(proposal: Proposal, least: int) -> str:
    if not isinstance(proposal.content, str) or len(text := proposal.content.strip()) < least:
        raise InvalidInput(f"the content of a change of the kind {proposal.kind} is a text of at least {least} characters")
    return text


def _slot(root: Root, proposal: Proposal) -> Any:
    """Return in words the value under an object's selector."""
    try:
        holder, selector = _parted(root, proposal.target)
    except BatosError:
        return None
    held = holder._slots.get(selector)
    return held.text if isinstance(held, Intent) else held.source if isinstance(held, Method) else held and str(held)


KINDS: dict[str, ChangeKind] = {
    "facet": ChangeKind(
        "a new or changed way of thinking of a persona; target: PERSONA.NAME_facet_, content: the guidance in one or two sentences",
        _check_facet, _apply_facet, _slot,
    ),
    "meta_prompt": ChangeKind(
        "another meta-prompt of a state of thought; target: psm.STATE, content: the whole prompt with the same $names",
        _check_meta_prompt, _apply_meta_prompt, lambda root, proposal: _state(root, proposal.target)[0].meta_prompt,
    ),
    "exemplar": ChangeKind(
        "briefs that shall go to a persona; target: PERSONA, content: one brief in each line",
        _check_exemplar, _apply_exemplar, _known_exemplars,
    ),
    "method": ChangeKind(
        "a generated method rewritten; target: OBJECT.SELECTOR, content: the whole Python source",
        _check_method, _apply_method, _slot,
    ),
    "intent": ChangeKind(
        "the purpose of a message that has no method; target: OBJECT.SELECTOR, content: the purpose in one or two sentences",
        _check_intent, _apply_intent, _slot,
    ),
    "retire": ChangeKind(
        "a generated method or a facet taken away; target: OBJECT.SELECTOR, content: empty",
        _check_retire, _apply_retire, _slot,
    ),
    "curate": ChangeKind("a run of the memory's curator; target: memory, content: empty", _check_curate, _nothing, lambda *_: None, False),
    "model": ChangeKind(
        "another model for a persona, one that is there or may be pulled; target: PERSONA, content: the model's name",
        _check_model, _apply_model, lambda root, proposal: _persona(root, proposal.target).model,
    ),
    writer_evaluation.KIND: ChangeKind(
        "a training of the expert that writes methods; target: methods, content: the minutes that it may take",
        lambda root, proposal, ground: writer_evaluation.check(root, proposal, ground.trains()),
        lambda root, proposal, ground, name: writer_evaluation.apply(root, proposal),
        lambda root, proposal: model_registry.speaks_methods(root),
    ),
    VOICE: ChangeKind(
        "a persona's voice: an expert that is built; target: PERSONA, content: the expert's model, or plain",
        check_voice, apply_voice, standing_voice,
    ),
}  # fmt: skip
"""Name of a kind of change -> the kind."""
