"""Services of attempts: what each attempt at a mission works with, and the rules that it follows.

The composition root builds `AttemptServices` once; a replay and a rehearsal have their own, derived from them. What may change while the
daemon runs, such as the profile of models, is read when an attempt begins: `AttemptTerms`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from batos.bridge.inference import Inference
from batos.bus import ToolCalled
from batos.config import Settings
from batos.image.journal import InferenceRecord
from batos.image.living_image import LivingImage
from batos.methods.runtime import MethodRuntime
from batos.mind.answer_checks import Nearness, no_similarity
from batos.mind.codex import BASE_MODEL
from batos.mind.events import Events, Propose, Ruled, nothing_proposed, nothing_ruled
from batos.mind.evidence import RecallsMemory
from batos.mind.model_needs import Provider, Sight
from batos.mind.router import Router
from batos.mind.text_likeness import TextLikeness
from batos.tools.toolbox import Toolbox


async def nothing_learnt(model: str) -> None:
    """Learn nothing about a model: for an inference that says nothing of it."""


@dataclass(frozen=True, slots=True)
class AttemptTerms:
    """Settings and models in force when an attempt begins; it ends with them."""

    settings: Settings
    model_of: Callable[[str], str]
    """Returns the name of the model for a persona's role. The name of a model itself is returned unchanged."""
    base_of: Callable[[str], str] = lambda role: BASE_MODEL
    """Returns the base of the model for a persona's role; the base has no persona's voice."""
    parameters: Callable[[str], int | None] = lambda model: None
    """Returns the number of parameters of a model by its name; None if it is not known."""
    learn: Callable[[str], Awaitable[None]] = nothing_learnt
    """Returns when it is known what a model can do, or that no Ollama says it now."""
    uses_tools: Callable[[str], bool | None] = lambda model: False
    """Returns True if a model can ask for tools by itself; None as long as that is not known: `Inference.digest` learns it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Ollama's options of every inference (num_ctx, num_predict, ...)."""
    direct: Mapping[str, Any] = field(default_factory=dict)
    """Options of an answer that takes one inference."""
    plain: Mapping[str, Any] = field(default_factory=dict)
    """Options of inferences without a persona's voice."""


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
    """The memory. None: the mission recalls nothing and remembers nothing."""
    sight: Sight = field(default_factory=Sight)
    nearness: Nearness = no_similarity
    """Measures the similarity of an answer to its request."""
    provider: Provider | None = None
    """Provides models with further abilities. None: missions use the models that are there."""
    on_paid: Callable[[InferenceRecord], None] = lambda paid: None
    """Receives the record of each inference that a model answered."""
    outage: Callable[[], str] = lambda: ""
    """Returns the reason if no Ollama answers, for the error of a mission that exceeds its time limit; empty if one answers."""
    toolbox: Toolbox | None = None
    """The connections through which missions act outside. None: they cannot."""
    text_likeness: TextLikeness | None = None
    """Compares briefs with what tools say of themselves. None: by words alone."""
    on_called: Callable[[ToolCalled], None] = lambda called: None
    """Receives the outcome of each call of a tool."""
    propose: Propose = nothing_proposed
    ruled: Ruled = nothing_ruled


@dataclass(frozen=True, slots=True)
class AttemptPolicy:
    """Rules of an attempt."""

    keeps: bool = True
    """True if results are stored: decisions are recorded, and a method is claimed while it is written, so that other missions wait for
    it.
    """
    compares: bool = True
    """True if an embedder may be asked: by the router, for memory, and for similarity of texts."""
    reroutes: bool = False
    """True if the router chooses the persona anew, with its present embedder and exemplars."""
    rethinks: bool = False
    """True if it is decided anew how much is thought about a brief."""
    revoices: bool = False
    """True if personas speak with their present voices, False for the voices at the start of the mission."""


LIVE = AttemptPolicy()
"""Policy of a live mission."""
REPLAYED = AttemptPolicy(keeps=False, compares=False)
"""Policy of a replay: it stores nothing, and asks no embedder."""
