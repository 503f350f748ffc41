"""Selection of models: the one that meets a mission's needs, and the one that thinks.

Of the installed models that meet the needs it takes the best, by the same rating as the profile `auto`. Otherwise it takes, of those that
can be pulled, the smallest download that is no weaker than the current model. If none is that strong, it takes the strongest; the user's
own registry goes before the shipped catalogue. One sentence gives the reason for the choice, or for finding none.

The settings name the models that think; with the profile `auto` it is the best that the user's own Ollama has, else an installed one.
`auto` pulls nothing, takes no model that BAT OS made itself, and gives its choice and the reason in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from batos.bridge import installed_models
from batos.bridge.capabilities import Needs
from batos.bridge.catalogue import Offer
from batos.bridge.installed_models import CONTEXTS, Candidate
from batos.bridge.modelfile import tagged
from batos.bridge.profiles import (
    AUTO,
    EMBEDDED,
    Profile,
    Voice,
    load_profile,
    modelfiles_folder,
    on_model,
    own_profiles,
    persona_modelfile,
    shipped_profiles,
    with_personas,
)
from batos.config import Settings, nearest
from batos.errors import ConfigError

OWN = "own"
"""Name of the profile that uses one model of the user."""
LEAST_ANSWER, MOST_ANSWER, ANSWER_SHARE = 256, 1024, 8
"""Least and greatest tokens of an answer on such a model; between these bounds, 1/8 of the context."""


class NamedModels(NamedTuple):
    """The models that the setting `inference.model` names: for all personas (empty: none), and for some."""

    all: str
    personas: Mapping[str, str]


class ChosenProfile(NamedTuple):
    """The profile in force, and why it is, in a sentence."""

    profile: Profile
    why: str


def named_models(settings: Settings) -> NamedModels:
    """Return the models that the setting `inference.model` names."""
    pairs = [entry.rpartition("=") for entry in settings.inference.model]
    return NamedModels(
        next((name for persona, _, name in pairs if not persona), ""), {persona: name for persona, _, name in pairs if persona}
    )


def check_personas(settings: Settings, personas: Collection[str]) -> None:
    """See that the setting `inference.model` names models for personas that there are.

    :raises ConfigError: if it does not.
    """
    for persona in named_models(settings).personas:
        if persona not in personas:
            raise ConfigError(f"setting 'model': {persona!r} is not a persona{nearest(persona, personas)}; there are {', '.join(personas)}")


def configured_profile(settings: Settings) -> Profile:
    """Return the profile that the settings name; the embedded one, which needs nothing, where they leave the choice to the daemon.

    :raises ConfigError: if there is none of that name.
    """
    return load_profile(EMBEDDED if settings.inference.profile == AUTO else settings.inference.profile, own=own_profiles(settings.data))


def choose_profile(settings: Settings, voices: Mapping[str, Voice], found: Sequence[Candidate] | None, host: str = "") -> ChosenProfile:
    """Return the profile to think with.

    :param voices: of each persona that has a role of its own in profiles.
    :param found: the models of the user's own Ollama at `host`; None if there is none (`host` is empty then), or it does not say.
    :raises ConfigError: for a profile that there is not, and a model that cannot chat.
    """
    wanted, have = named_models(settings), {one.name: one for one in found or ()}
    for name in (wanted.all, *wanted.personas.values()):
        if (one := have.get(tagged(name))) is not None and not one.can.chats:
            raise ConfigError(f"setting 'model': {name} does not answer messages; name a model that chats")
    if wanted.all:
        chosen = _on(settings, wanted.all, have.get(tagged(wanted.all)), voices, f"{wanted.all} is named (setting inference.model)")
    elif settings.inference.profile != AUTO:
        chosen = ChosenProfile(
            _complete(configured_profile(settings), voices, settings),
            f"the profile {settings.inference.profile} is named (setting inference.profile)",
        )
    elif found is None:
        lacks = f"the Ollama at {host} does not say what it has" if host else "no Ollama of yours answers"
        chosen = ChosenProfile(load_profile(EMBEDDED), f"{lacks}, so the installed models think")
    elif (one := installed_models.best_model(found, settings.inference.memory_bytes)) is None:
        memory = _gb(settings.inference.memory_bytes)
        why = f"the Ollama at {host} has no chat model that is larger and fits {memory} (inference.memory_bytes)"
        chosen = ChosenProfile(load_profile(EMBEDDED), why)
    else:
        others = sum(not other.unfit(settings.inference.memory_bytes) for other in found) - 1
        which = f"the best of {others + 1} chat models" if others else "the one chat model"
        fits = f"that fits {_gb(settings.inference.memory_bytes)} (inference.memory_bytes)"
        why = f"{one.name} is {which} of the Ollama at {host} {fits}; `batos models use NAME` takes another"
        chosen = _on(settings, one.name, one, voices, why, pulled=False)
    if not wanted.personas:
        return chosen
    told = ", ".join(f"{persona.upper()} speaks with {name}" for persona, name in wanted.personas.items())
    return ChosenProfile(with_personas(chosen.profile, voices, wanted.personas), f"{chosen.why}; {told}")


def answer_limit(context: int) -> int:
    """Return the greatest number of tokens of an answer of a model with such a context."""
    return max(min(context // ANSWER_SHARE, MOST_ANSWER), min(LEAST_ANSWER, context // 2))


def _on(
    settings: Settings, model: str, facts: Candidate | None, voices: Mapping[str, Voice], why: str, *, pulled: bool = True
) -> ChosenProfile:
    """Return a profile on one model, for all personas that have a role of their own.

    :param facts: what its Ollama says of it; None if that is not known, as before it is pulled.
    """
    context = CONTEXTS[1] if facts is None else facts.context_within(settings.inference.memory_bytes)
    answer = answer_limit(context)
    if facts is not None and facts.memory(context) > settings.inference.memory_bytes:
        why += f", though it takes {_gb(facts.memory(context))}, and inference.memory_bytes is {_gb(settings.inference.memory_bytes)}"
    profile = on_model(OWN, model, context=context, answer=answer, pulled=pulled)
    return ChosenProfile(with_personas(profile, voices, dict.fromkeys(voices, model)), why)


def _complete(profile: Profile, voices: Mapping[str, Voice], settings: Settings) -> Profile:
    """Return a profile of the user's own with a voice on its base for each persona for which it names none."""
    if profile.name in shipped_profiles():
        return profile
    folder = modelfiles_folder(settings.inference.modelfiles) / profile.name
    lacking = [name for name, voice in voices.items() if voice.role not in profile.personas]
    complete = with_personas(profile, voices, dict.fromkeys(lacking, profile.base))
    without = [n for n, v in voices.items() if n not in lacking and not (folder / f"{v.role}.Modelfile").exists()]
    made = {voices[name].role: persona_modelfile(voices[name], profile.base) for name in without}
    return complete.model_copy(update={"made": {**complete.made, **made}})


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


class Space(NamedTuple):
    """The room that there is.

    :ivar memory: bytes that models may take. `disk`: bytes that may be written for one; None: not known.
    """

    memory: int
    disk: int | None = None


class ModelChoice(NamedTuple):
    """A model that meets the needs.

    :ivar model: empty: the one that thinks anyway, with another context.
    :ivar source: where the model comes from, in words; empty: it is here.
    :ivar context: tokens that it is loaded with, `answer` those of its answer at most, `memory` the bytes that it takes then.
    """

    model: str
    source: str
    bytes: int
    context: int
    answer: int
    memory: int
    why: str


def with_wider_context(present: Candidate, needs: Needs, room: Space) -> ModelChoice | None:
    """Return the model that thinks anyway, with the context that is needed; None if it cannot, or that does not fit."""
    memory = present.memory(needs.context)
    if needs.lacking(present.can) or not needs.context or memory > room.memory:
        return None
    why = f"{present.name} reads as many, with num_ctx {needs.context}, and takes {_gb_selection(memory)} then"
    return ModelChoice("", "", present.bytes, needs.context, answer_limit(needs.context), memory, why)


def best_installed(found: Sequence[Candidate], needs: Needs, room: Space, left_out: Collection[str] = ()) -> ModelChoice | None:
    """Return the best of the models that are here; None if none can or fits."""
    own = [one for one in found if not one.ours and not one.can.remote and one.name not in left_out]
    fit = [one for one in own if not _unfit(one, needs, room, disk=False)]
    best = max(fit, key=lambda one: (one.worth, one.bytes, one.name), default=None)
    if best is None:
        return None
    which = f"the best of {len(fit)} models here that do" if len(fit) > 1 else "the one model here that does"
    why = f"{best.name} {needs.told()}: it is {which} and that fits {_gb_selection(room.memory)} (inference.memory_bytes)"
    return _chosen(best, "", needs, room, why)


def best_available(
    offered: Sequence[Sequence[Offer]],
    needs: Needs,
    room: Space,
    *,
    least: int = 0,
    first: Collection[str] = (),
    left_out: Collection[str] = (),
) -> ModelChoice | None:
    """Return the best available model of several lists; an earlier list has priority. None if no model is available or fits.

    :param least: parameters of what thinks now.
    :param first: models that go before all others: those that may be pulled without asking.
    :param left_out: models that were tried and cannot, or that their user did not want.
    """
    fit = [[one for one in some if one.model.name not in left_out and not _unfit(one.model, needs, room, disk=True)] for some in offered]
    for some in ([one for all_ in fit for one in all_ if one.model.name in first], *fit):
        if not some:
            continue
        strong = [one for one in some if (one.model.can.parameters or 0) >= least]
        if strong:
            model, source = min(strong, key=lambda one: (_is_short(one.model), one.model.bytes, one.model.name))
            which = "the smallest download" if len(strong) > 1 else "the one"
            weaker = " and is no weaker than what thinks now" if least else ""
        else:
            model, source = max(some, key=lambda one: (one.model.can.parameters or 0, one.model.name))
            which, weaker = "the strongest", ", though it is weaker than what thinks now"
        disk = "" if room.disk is None else f", and {_gb_selection(room.disk)} of disk"
        fits = f"it fits {_gb_selection(room.memory)} (inference.memory_bytes){disk}"
        why = f"{model.name} is {which} of {len(some)} in {source} that {needs.told()}{weaker}; {fits}"
        return _chosen(model, source, needs, room, why)
    return None


def why_none_available(offered: Sequence[Sequence[Offer]], needs: Needs, room: Space, left_out: Collection[str] = ()) -> str:
    """Return the reason why no model is available, as text."""
    reasons = Counter(
        "was tried, or not wanted" if one.model.name in left_out else _unfit(one.model, needs, room, disk=True) or "fits"
        for some in offered
        for one in some
    )
    told = "; ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    return f"of {reasons.total()} models that could be had: {told}" if reasons else "no model is known that could be had"


def _is_short(one: Candidate) -> bool:
    """Return True if a model has less context than others get here: a mission's prompts may not fit."""
    return (one.can.context or 0) < CONTEXTS[0]


def _unfit(one: Candidate, needs: Needs, room: Space, *, disk: bool) -> str:
    """Return the reason why a model does not fit, as the end of a sentence about several models; empty if it fits."""
    if not one.can.chats:
        return "do not answer messages"
    if lacks := needs.lacking(one.can):
        return f"lack what is needed ({', '.join(lacks.words())})" if len(lacks.words()) < len(needs.words()) else "lack what is needed"
    if one.memory(_context(one, needs, room)) > room.memory:
        return f"do not fit {_gb_selection(room.memory)} of memory (inference.memory_bytes)"
    if disk and room.disk is not None and one.bytes > room.disk:
        return f"do not fit {_gb_selection(room.disk)} of free disk (a reserve stays free)"
    return ""


def _context(one: Candidate, needs: Needs, room: Space) -> int:
    """Return the context for a model: the needed one, or the larger usual one if that fits."""
    usual = one.context_within(room.memory)
    return max(needs.context, usual) if needs.context <= CONTEXTS[0] else needs.context


def _chosen(one: Candidate, source: str, needs: Needs, room: Space, why: str) -> ModelChoice:
    context = _context(one, needs, room)
    return ModelChoice(one.name, source, one.bytes, context, answer_limit(context), one.memory(context), why)


def _gb_selection(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
