"""Services of attempts: what each attempt at a mission works with, and the rules that it follows.

The composition root builds `AttemptServices` once; a replay and a rehearsal have their own, derived from them. What may change while the
daemon runs, such as the profile of models, is read when an attempt begins: `AttemptTerms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batos.bridge.inference import Inference
from batos.config import Settings
from batos.image.journal import InferenceRecord
from batos.image.living_image import LivingImage
from batos.methods.runtime import MethodRuntime
from batos.mind.answer_checks import Nearness, not_told
from batos.mind.codex import BASE_MODEL
from batos.mind.events import Events, Propose, Ruled, nothing_proposed, nothing_ruled
from batos.mind.evidence import RecallsMemory
from batos.mind.model_needs import Provider, Sight
from batos.mind.router import Router


@dataclass(frozen=True, slots=True)
class AttemptTerms:
    """Settings and models in force when an attempt begins; it ends with them."""

    settings: Settings
    model_of: Callable[[str], str]
    """From a persona's role to the name of its model; the name of a model stays what it is."""
    base_of: Callable[[str], str] = lambda role: BASE_MODEL
    """From a persona's role to the model that its own is made of, which speaks in nobody's voice."""
    parameters: Callable[[str], int | None] = lambda model: None
    """From the name of a model to the number of its parameters; None where that is not known."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Ollama's options of every inference (num_ctx, num_predict, ...)."""
    direct: Mapping[str, Any] = field(default_factory=dict)
    """Options of an answer that is thought about in one inference."""
    plain: Mapping[str, Any] = field(default_factory=dict)
    """Options of inferences in nobody's voice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptServices:
    """Parts of the daemon that attempts work with. The composition root builds them once."""

    image: LivingImage
    inference: Inference
    events: Events
    router: Router
    methods: MethodRuntime
    terms: Callable[[], AttemptTerms]
    memory: RecallsMemory | None = None
    """None: nothing is recalled, and nothing can be remembered."""
    sight: Sight = field(default_factory=Sight)
    nearness: Nearness = not_told
    """Measures how near an answer is to what it answers to."""
    provider: Provider | None = None
    """Provides models that can do more. None: missions think with those that there are."""
    on_paid: Callable[[InferenceRecord], None] = lambda paid: None
    """Hears of each inference that a model was asked for."""
    outage: Callable[[], str] = lambda: ""
    """Says that no Ollama answers, for the error of a mission whose time is up; empty where one does."""
    propose: Propose = nothing_proposed
    ruled: Ruled = nothing_ruled


@dataclass(frozen=True, slots=True)
class AttemptPolicy:
    """Rules of an attempt."""

    keeps: bool = True
    """Whether anything that comes of it is kept: decisions are recorded, and a method that it writes is claimed, so that others wait."""
    compares: bool = True
    """Whether an embedder may be asked: by the router, for memory, for the nearness of texts."""
    reroutes: bool = False
    """Whether the persona is chosen anew, as embedder and exemplars have it now."""
    revoices: bool = False
    """Whether personas speak with the voice that they have now, and not with the one that the mission began with."""


LIVE = AttemptPolicy()
"""The rules of a mission that is really thought through."""
REPLAYED = AttemptPolicy(keeps=False, compares=False)
"""The rules of a replay: it leaves no trace, and asks no embedder."""
