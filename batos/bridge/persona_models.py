"""The models of personas on a model that somebody else made: their names, and the Modelfiles that are made of the codex.

Such a Modelfile says who speaks and how warmly, and nothing else: template, stop marks, renderer and parser are those of the model that
it rests on. All names begin with `PREFIX`, so that what BAT OS made in somebody's Ollama is known, and can be taken away again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from batos.bridge.modelfile import Modelfile
from batos.bridge.names import tagged
from batos.bridge.profiles import Profile, shipped_names

PREFIX = "batos/"
MARK = re.compile(r"BAT OS expert (\S+), content ([0-9a-f]{64}), recipe ([0-9a-f]{64})")
"""What an expert's model says of itself in its license: its name, and what it was made of."""
TAG_CHARS = 80  # Ollama takes no longer tag than this


@dataclass(frozen=True, slots=True)
class Voice:
    """What the codex says of a persona, for a model of its own: its role in a profile, who it is, and how warmly it speaks.

    :ivar temperature: None: as the model that it rests on.
    """

    role: str
    system: str
    temperature: float | None = None


def name_of(persona: str, model: str) -> str:
    """The name of a persona's model: `batos/robin:qwen3-8b` is ROBIN's on `qwen3:8b`."""
    tag = re.sub(r"[^a-z0-9._-]+", "-", tagged(model).lower().removesuffix(":latest")).strip("-.")
    return f"{PREFIX}{persona}:{tag[-TAG_CHARS:].lstrip('-.')}"


def modelfile_of(voice: Voice, model: str) -> Modelfile:
    """The Modelfile of a persona's model on `model`."""
    warmth = {} if voice.temperature is None else {"temperature": voice.temperature}
    return Modelfile(from_=model, system=voice.system, parameters=warmth)


def is_ours(name: str) -> bool:
    """Whether BAT OS made a model of that name: one of a persona, or one that comes with a profile."""
    return tagged(name).startswith(PREFIX) or tagged(name) in shipped_names()


def speaking(profile: Profile, voices: Mapping[str, Voice], models: Mapping[str, str]) -> Profile:
    """A profile in which these personas speak with these models.

    :param models: a persona's name to the model that its own is made on.
    :param voices: of every persona in it.
    """
    personas, made = dict(profile.personas), dict(profile.made)
    for persona, model in models.items():
        voice = voices[persona]
        personas[voice.role] = name_of(persona, model)
        made[voice.role] = modelfile_of(voice, model)
    return profile.model_copy(update={"personas": personas, "made": made})
