"""Which models think: what the settings name; with the profile `auto` the best that the user's own Ollama has, else what is installed.

`auto` pulls nothing, takes no model that BAT OS made itself, and says in one sentence what it took and why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from batos.bridge import candidates
from batos.bridge.candidates import CONTEXTS, Candidate
from batos.bridge.names import tagged
from batos.bridge.persona_models import Voice, modelfile_of, speaking
from batos.bridge.profiles import AUTO, EMBEDDED, Profile, load_profile, modelfiles_folder, on_model, own_profiles, shipped_profiles
from batos.config import Settings, nearest
from batos.errors import ConfigError

OWN = "own"
"""The name of the profile that thinks with one model of the user's."""
LEAST_ANSWER, MOST_ANSWER, ANSWER_SHARE = 256, 1024, 8
"""Tokens of an answer on such a model: that share of its context, within these bounds."""


class Named(NamedTuple):
    """The models that the setting `model` names: for all personas (empty: none), and for some."""

    all: str
    personas: Mapping[str, str]


class Chosen(NamedTuple):
    """The profile in force, and why it is, in a sentence."""

    profile: Profile
    why: str


def named(settings: Settings) -> Named:
    """What the setting `model` names."""
    pairs = [entry.rpartition("=") for entry in settings.model]
    return Named(next((name for persona, _, name in pairs if not persona), ""), {persona: name for persona, _, name in pairs if persona})


def check_personas(settings: Settings, personas: Collection[str]) -> None:
    """See that the setting `model` names models for personas that there are.

    :raises ConfigError: where it does not.
    """
    for persona in named(settings).personas:
        if persona not in personas:
            raise ConfigError(
                f"setting 'model': there is no persona {persona!r}{nearest(persona, personas)}; there are {', '.join(personas)}"
            )


def profile_of(settings: Settings) -> Profile:
    """The profile that the settings name; the embedded one, which needs nothing, where they leave the choice to the daemon.

    :raises ConfigError: where there is none of that name.
    """
    return load_profile(EMBEDDED if settings.profile == AUTO else settings.profile, own=own_profiles(settings.data))


def choose(settings: Settings, voices: Mapping[str, Voice], found: Sequence[Candidate] | None, host: str = "") -> Chosen:
    """The profile to think with.

    :param voices: of each persona that has a role of its own in profiles.
    :param found: the models of the user's own Ollama at `host`; None where there is none (`host` is empty then), or it does not say.
    :raises ConfigError: for a profile that there is not, and a model that cannot chat.
    """
    wanted, have = named(settings), {one.name: one for one in found or ()}
    for name in (wanted.all, *wanted.personas.values()):
        if (one := have.get(tagged(name))) is not None and not one.can.chats:
            raise ConfigError(f"setting 'model': {name} does not answer messages; name a model that chats")
    if wanted.all:
        chosen = _on(settings, wanted.all, have.get(tagged(wanted.all)), voices, f"{wanted.all} is named (setting model)")
    elif settings.profile != AUTO:
        chosen = Chosen(_complete(profile_of(settings), voices, settings), f"the profile {settings.profile} is named (setting profile)")
    elif found is None:
        lacks = f"the Ollama at {host} does not say what it has" if host else "no Ollama of yours answers"
        chosen = Chosen(load_profile(EMBEDDED), f"{lacks}, so the installed models think")
    elif (one := candidates.best(found, settings.memory_budget_bytes)) is None:
        why = f"the Ollama at {host} has no chat model that is larger and fits {_gb(settings.memory_budget_bytes)} (memory_budget_bytes)"
        chosen = Chosen(load_profile(EMBEDDED), why)
    else:
        others = sum(not other.unfit(settings.memory_budget_bytes) for other in found) - 1
        which = f"the best of {others + 1} chat models" if others else "the one chat model"
        fits = f"that fits {_gb(settings.memory_budget_bytes)} (memory_budget_bytes)"
        why = f"{one.name} is {which} of the Ollama at {host} {fits}; `batos models use NAME` takes another"
        chosen = _on(settings, one.name, one, voices, why, pulled=False)
    if not wanted.personas:
        return chosen
    told = ", ".join(f"{persona.upper()} speaks with {name}" for persona, name in wanted.personas.items())
    return Chosen(speaking(chosen.profile, voices, wanted.personas), f"{chosen.why}; {told}")


def answer_of(context: int) -> int:
    """Tokens of an answer at most, of a model that is loaded with such a context."""
    return max(min(context // ANSWER_SHARE, MOST_ANSWER), min(LEAST_ANSWER, context // 2))


def _on(settings: Settings, model: str, facts: Candidate | None, voices: Mapping[str, Voice], why: str, *, pulled: bool = True) -> Chosen:
    """A profile on one model, for all personas that have a role of their own.

    :param facts: what its Ollama says of it; None where that is not known, as before it is pulled.
    """
    context = CONTEXTS[1] if facts is None else facts.context_within(settings.memory_budget_bytes)
    answer = answer_of(context)
    if facts is not None and facts.memory(context) > settings.memory_budget_bytes:
        why += f", though it takes {_gb(facts.memory(context))}, and memory_budget_bytes is {_gb(settings.memory_budget_bytes)}"
    profile = on_model(OWN, model, context=context, answer=answer, pulled=pulled)
    return Chosen(speaking(profile, voices, dict.fromkeys(voices, model)), why)


def _complete(profile: Profile, voices: Mapping[str, Voice], settings: Settings) -> Profile:
    """A profile of the user's own with a voice on its base for each persona for which it names none."""
    if profile.name in shipped_profiles():
        return profile
    folder = modelfiles_folder(settings.modelfiles) / profile.name
    lacking = [name for name, voice in voices.items() if voice.role not in profile.personas]
    complete = speaking(profile, voices, dict.fromkeys(lacking, profile.base))
    without = [n for n, v in voices.items() if n not in lacking and not (folder / f"{v.role}.Modelfile").exists()]
    made = {voices[name].role: modelfile_of(voices[name], profile.base) for name in without}
    return complete.model_copy(update={"made": {**complete.made, **made}})


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
