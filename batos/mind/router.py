"""Router: choose the persona that thinks a mission through, and say why, by trigger words in the brief and similarity to exemplars.

* Similarity is the cosine of embeddings, if an embedder answers in time. The vectors of the exemplars are computed once for each text and
  embedder, and kept in memory and in the image. An embedder that is unavailable or slow costs a mission `limit_s`, and the missions of
  the next `pause_s` nothing.
* The fractal: a brief that needs several personas is shared out, and becomes a cycle of cycles. By rule, and cautiously: only a brief of
  several sentences, of which two or more clearly match different personas. A brief of one sentence is one thought.
* Prediction: a table of which persona followed which in a user's missions, in which the past fades. It is not stored: each start computes
  it from the personas of the last missions in the ledger.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import structlog

from batos.bridge.inference import Inference
from batos.concurrency import SingleFlight
from batos.config.limits import Limits, limit
from batos.errors import BatosError, InferenceFailed, UnknownPersona
from batos.image import ledger, model_registry
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.memory.embedders import normalised
from batos.mind.codex import Codex
from batos.mind.incarnation import Exemplars, learned_by
from batos.objects import Root

if TYPE_CHECKING:
    import numpy as np

CLEAR = 2.5  # score of a sentence that clearly speaks for a persona: one strong trigger, or two weak ones
LEAD = 1.0  # lead over the next persona that a decision needs
LEAST_WORDS = 3
_BETWEEN = re.compile(r"(?<=[.!?;])\s+|(?<!\s)\s*\n\s*")

Scores = Callable[[str], Mapping[str, float]]
Shares = tuple[tuple[str, str], ...]


def shares(brief: str, scores: Scores, limit: int) -> Shares:
    """Return the personas that a brief needs, each with its part of it, in the order of the brief; empty if one is enough.

    A sentence that matches no persona goes with the one before it (at the beginning: with the one after it).

    :param scores: each persona's score for a sentence.
    :param limit: maximum number of personas; a brief that needs more is not shared out.
    """
    parts: dict[str, list[str]] = {}
    waiting: list[str] = []
    current: str | None = None
    for sentence in filter(None, _BETWEEN.split(brief.strip())):
        current = _persona_of(sentence, scores) or current
        if current is None:
            waiting.append(sentence)
        else:
            parts.setdefault(current, []).extend((*waiting, sentence))
            waiting.clear()
    if not 2 <= len(parts) <= limit:
        return ()
    return tuple((persona, " ".join(sentences)) for persona, sentences in parts.items())


def _persona_of(sentence: str, scores: Scores) -> str | None:
    if len(sentence.split()) < LEAST_WORDS:
        return None
    ranked = sorted(scores(sentence).items(), key=lambda pair: pair[1], reverse=True)
    if not ranked or ranked[0][1] < CLEAR or (len(ranked) > 1 and ranked[0][1] - ranked[1][1] < LEAD):
        return None
    return ranked[0][0]


FADE = 0.95  # factor by which each new observation reduces the weight of older ones after the same persona
LIKELY = 0.2  # least share of the cases
REMEMBERED = 200  # number of missions; of the first observation 0.95 ** 200 is left


@dataclass(frozen=True, slots=True)
class RoutingLimits(Limits):
    """Limits of the choice of a persona."""

    look_s: float = limit(2.0, gt=0, le=600)
    """Seconds for the embedder to look at a brief; after a timeout the triggers decide."""
    pause_s: float = limit(30.0, ge=0, le=86_400)
    """Seconds for which an embedder that did not answer is not asked again."""
    chars: int = limit(2000, ge=100, le=64_000)
    """Number of characters of a brief that the router looks at, half of them from each end."""
    learned: int = limit(64, ge=0, le=1000)
    """Greatest number of briefs that a persona learns from users who chose it; 0: none."""


class PersonaForecast:
    """Counts transitions between personas."""

    def __init__(self) -> None:
        self._after: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._last: str | None = None

    def note(self, persona: str) -> None:
        """Record that a mission of this persona begins."""
        if self._last is not None:
            row = self._after[self._last]
            for name in row:
                row[name] *= FADE
            row[persona] = row.get(persona, 0.0) + 1.0
        self._last = persona

    def likely(self) -> list[str]:
        """Return the personas that are likely to come next, the likeliest first."""
        row = self._after.get(self._last or "", {})
        total = sum(row.values())
        return sorted((name for name in row if row[name] >= LIKELY * total), key=lambda name: (-row[name], name))


def recent_personas(root: Root) -> list[str]:
    """Return the personas of the last missions, oldest first, to fill `PersonaForecast` at the start."""
    missions = (m for m in itertools.islice(ledger.newest_first(root), REMEMBERED) if m.origin != "system")
    named = [m.persona or (json.loads(m.result).get("persona") if m.result else None) for m in missions]
    return [str(name).lower() for name in reversed(named) if name]


log = structlog.get_logger("batos.mind")

_T = TypeVar("_T")
Texts = Mapping[str, tuple[str, ...]]
"""Persona -> its exemplars."""


class ExemplarSimilarity(NamedTuple):
    """Similarity of a brief to a persona's exemplars: the mean cosine of the nearest ones, and the nearest of all."""

    mean: float
    nearest: str
    cosine: float


class _Matrix(NamedTuple):
    texts: Texts
    digest: str
    rows: np.ndarray[Any, Any]
    """Vectors of the exemplars, persona by persona."""
    parts: dict[str, tuple[int, int]]
    """Persona -> its first row, and the row after its last one."""


class Likeness:
    """SimilarityIndex briefs with exemplars. All methods are called on the loop's thread."""

    def __init__(
        self,
        image: LivingImage,
        inference: Inference,
        model: str,
        *,
        limit_s: float,
        pause_s: float,
        deadline_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        :param model: the embedder.
        :param limit_s: time for one brief; past it, it is routed without.
        :param pause_s: seconds for which a failed embedder is not asked again.
        :param deadline_s: time for a batch of exemplars, which are embedded in the background.
        """
        self._image, self._inference, self.model = image, inference, model
        self._limit_s, self._pause_s, self._deadline_s, self._now = limit_s, pause_s, deadline_s, now
        self._away_until, self.state = -math.inf, "waiting"
        self._memory: dict[bytes, bytes] = {}
        self._matrix: _Matrix | None = None
        self._builds: SingleFlight[_Matrix] = SingleFlight("embedding of exemplars")
        self._one_build = asyncio.Lock()

    async def of(self, text: str, exemplars: Texts, nearest: int) -> dict[str, ExemplarSimilarity] | None:
        """Return the similarity of `text` to each persona's exemplars; None if it cannot be computed now.

        :param nearest: number of a persona's exemplars that count, the most similar first.
        """

        async def compared() -> dict[str, ExemplarSimilarity]:
            matrix = await self._ready(exemplars)
            (vector,) = await self._embed([text], self._limit_s)
            return _compared(matrix, _packed(vector, self.model), nearest, self.model)

        return await self._in_time(compared())

    async def nearest(self, text: str, others: Sequence[str]) -> float | None:
        """Return the cosine of a text to the most similar of others; None if it is not available now."""

        async def compared() -> float:
            import numpy as np

            rows = [_unpacked(_packed(vector, self.model)) for vector in await self._embed([text, *others], self._limit_s)]
            return float(max(np.einsum("i,i->", rows[0], row) for row in rows[1:]))

        return await self._in_time(compared())

    async def _in_time(self, comparing: Coroutine[Any, Any, _T]) -> _T | None:
        """Return the result of a comparison; None if the embedder is unavailable, or does not answer in time."""
        if self._now() < self._away_until:
            comparing.close()
            return None
        try:
            async with asyncio.timeout(self._limit_s):
                return await comparing
        except (TimeoutError, BatosError) as e:
            self._away_until, self.state = self._now() + self._pause_s, "away"
            cause = e.message if isinstance(e, BatosError) else f"no answer within {self._limit_s:g} s"
            log.warning("routing_by_rules_only", embedder=self.model, pause_s=self._pause_s, cause=cause)
            return None

    async def warm(self, exemplars: Texts) -> None:
        """Prepare the exemplars' vectors before the first brief, without a time limit."""
        try:
            await self._ready(exemplars)
        except BatosError as e:
            log.warning("exemplars_not_embedded", embedder=self.model, cause=e.message)

    async def stop(self) -> None:
        """Stop the background work."""
        await self._builds.stop()

    async def _ready(self, exemplars: Texts) -> _Matrix:
        digest = await self._inference.digest(self.model)
        if self._matrix is not None and self._matrix.digest == digest and self._matrix.texts == exemplars:
            return self._matrix
        # Many briefs wait for one build, and a cancelled one does not stop it.
        return await self._builds.of((digest, *sorted(exemplars.items())), lambda: self._built(exemplars, digest))

    async def _built(self, exemplars: Texts, digest: str) -> _Matrix:
        async with self._one_build:  # one at a time, also if the exemplars change with each brief
            matrix = self._matrix = await self._build(exemplars, digest)
        self._away_until, self.state = -math.inf, "ready"
        return matrix

    async def _build(self, exemplars: Texts, digest: str) -> _Matrix:
        keys = {text: model_registry.vector_key(digest, text) for own in exemplars.values() for text in own}
        missing = {text: key for text, key in keys.items() if key not in self._memory}
        self._memory |= self._image.read(model_registry.load_vectors, missing.values())
        missing = {text: key for text, key in missing.items() if key not in self._memory}
        if missing:
            found = await self._embed(list(missing), self._deadline_s)
            packed = await asyncio.to_thread(lambda: [_packed(vector, self.model) for vector in found])  # imports numpy there
            new = dict(zip(missing.values(), packed, strict=True))
            self._memory |= new
            self._image.later(model_registry.save_vectors, new, frozenset(keys.values()))
        self._memory = {key: self._memory[key] for key in keys.values()}
        rows = {name: [self._memory[keys[text]] for text in own] for name, own in exemplars.items()}
        return _Matrix(exemplars, digest, *await asyncio.to_thread(_stacked, rows, self.model))

    async def _embed(self, texts: list[str], deadline_s: float) -> list[list[float]]:
        return await self._inference.embed(self.model, [normalised(text) for text in texts], deadline_s=deadline_s)


def _packed(vector: Sequence[float], model: str) -> bytes:
    """Return a vector of length 1 in half precision, as it is stored, so that the decision after a restart is the same."""
    import numpy as np

    row = np.asarray(vector, dtype=np.float32)
    # No BLAS, here and below: its threads wait for each other on a busy machine.
    length = math.sqrt(np.einsum("i,i->", row, row)) if row.ndim == 1 else 0.0
    if not math.isfinite(length) or length == 0:
        raise InferenceFailed(f"{model} answered with an invalid vector", cause="malformed", model=model)
    return (row / length).astype(np.float16).tobytes()


def _unpacked(vector: bytes) -> np.ndarray[Any, Any]:
    import numpy as np

    return np.frombuffer(vector, np.float16).astype(np.float32)


def _stacked(rows: dict[str, list[bytes]], model: str) -> tuple[np.ndarray[Any, Any], dict[str, tuple[int, int]]]:
    import numpy as np

    if len({len(row) for own in rows.values() for row in own}) > 1:
        raise InferenceFailed(f"{model} answered with vectors of different lengths", cause="malformed", model=model)
    together = np.frombuffer(b"".join(row for own in rows.values() for row in own), np.float16).astype(np.float32)
    ends = list(itertools.accumulate(map(len, rows.values())))
    parts = {name: (end - len(own), end) for (name, own), end in zip(rows.items(), ends, strict=True) if own}
    return together.reshape(ends[-1] if ends else 0, -1) if len(together) else together.reshape(0, 0), parts


def _compared(matrix: _Matrix, vector: bytes, nearest: int, model: str) -> dict[str, ExemplarSimilarity]:
    import numpy as np

    row = _unpacked(vector)
    if not matrix.parts:
        return {}
    if matrix.rows.shape[1:] != row.shape:
        raise InferenceFailed(f"{model} answered with a vector of another length than before", cause="malformed", model=model)
    cosines = np.einsum("ij,j->i", matrix.rows, row).tolist()
    found = {}
    for name, (begin, end) in matrix.parts.items():
        own = cosines[begin:end]
        most = sorted(own)[-nearest:]
        found[name] = ExemplarSimilarity(round(sum(most) / len(most), 4), matrix.texts[name][own.index(most[-1])], round(most[-1], 4))
    return found


CHOSEN, OWN, LEARNED, RULES, LIKENESS, FALLBACK = "mission", "system", "learned", "rules", "rules and likeness", "fallback"
_SIGNS_KEPT = 64  # briefs whose signs are cached: those of missions under way
_LIKE = 0.3  # mean cosine to a persona's exemplars from which a brief without any sign speaks for the persona
_QUOTED = 60  # characters of an exemplar that a reason quotes
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Route:
    """A decision: the persona, the reason in words, and how it came about.

    `by` is `mission` (the mission chose), `system` (the system's own mission), or `learned` (a user chose so for this brief before).
    Otherwise it is `rules`, `rules and likeness`, or `fallback`. `scores` holds for each persona its `score`, what its triggers weigh
    (`triggers`), and how `alike` its nearest exemplars are, if that was known. `preferred` is whom the router would have chosen, where the
    mission chose.
    """

    persona: str
    why: str
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    by: str = RULES
    preferred: str | None = None

    @property
    def speaks(self) -> bool:
        """Return True if the choice is well founded: explicit, by a trigger word, or by similarity to the persona's exemplars."""
        if self.by != LIKENESS:
            return self.by != FALLBACK
        score = self.scores.get(self.persona, {})
        return score.get("triggers", 0.0) > 0 or score.get("alike", 0.0) >= _LIKE

    def to_record(self) -> str:
        """Return the decision as the journal stores it."""
        return _COMPACT.encode(self.to_wire())

    @classmethod
    def from_record(cls, record: str) -> Route:
        """Return the decision in a record."""
        return cls(**json.loads(record))

    def to_wire(self) -> dict[str, Any]:
        """Return a JSON object; `preferred` only if there is one."""
        told = {"persona": self.persona, "why": self.why, "by": self.by, "scores": self.scores}
        return told if self.preferred is None else {**told, "preferred": self.preferred}


class SimilarityIndex(Protocol):
    """`likeness.Likeness`, as the router needs it."""

    async def of(self, text: str, exemplars: Texts, nearest: int) -> dict[str, ExemplarSimilarity] | None:
        """Return the similarity of the text to each persona's exemplars; None if it cannot be computed."""
        ...


class Router:
    """An explicit choice wins; the system's own missions go to one persona; the others by score (see `codex.Routing`)."""

    def __init__(
        self,
        codex: Codex,
        examples: Callable[[], Mapping[str, Exemplars]] | None = None,
        likeness: SimilarityIndex | None = None,
        *,
        chars: int = 2000,
    ) -> None:
        """
        :param examples: the personas that may be chosen, with their exemplars as of now; left out, the codex's own.
        :param chars: number of characters of a brief that the router looks at, half of them from each end.
        """
        self._codex, self._likeness, self._chars = codex, likeness, chars
        given = {name: Exemplars(persona.exemplars) for name, persona in codex.personas.items()}
        self._examples = examples or (lambda: given)
        self._texts: tuple[Mapping[str, Exemplars] | None, Texts] = None, {}
        self._rules = {
            name: [(re.compile(t.pattern, re.IGNORECASE), t.weight, t.says) for t in persona.triggers]
            for name, persona in codex.personas.items()
        }
        # Several callers look at a brief: the planner, the sharing of parts, and the decision.
        self._signs = functools.lru_cache(maxsize=_SIGNS_KEPT)(self._find_signs)

    @property
    def personas(self) -> tuple[str, ...]:
        """Return the names of the personas that may be chosen."""
        return tuple(self._examples())

    def known(self, name: str) -> str:
        """Return the persona's name as the image has it.

        :raises UnknownPersona: listing those there are.
        """
        persona, there = name.strip().lower(), self.personas
        if persona not in there:
            raise UnknownPersona(f"no persona {name!r}; there are: {', '.join(there)}")
        return persona

    def window(self, brief: str) -> str:
        """Return the part of a brief that is analysed."""
        half = self._chars // 2
        return brief if len(brief) <= self._chars else f"{brief[:half]}\n{brief[-half:]}"

    def weights(self, text: str) -> dict[str, float]:
        """Return the weights of the triggers of each persona of the codex in a text; nothing else is considered."""
        return {name: sum(weight for weight, _ in found) for name, found in self._signs(text).items()}

    def guess(self, record: MissionRecord) -> str:
        """Return the probable persona of a mission by the rules alone, for callers that plan ahead and must not wait."""
        routing = self._codex.routing
        if record.persona is not None or (record.origin == "system" and routing.internal):
            return str(record.persona or routing.internal)
        weights = self.weights(self.window(record.brief))
        best = max(weights, key=lambda name: weights[name])
        return best if weights[best] > 0 else routing.fallback or next(iter(self._codex.personas))

    def _find_signs(self, text: str) -> dict[str, list[tuple[float, str]]]:
        """Return, by persona of the codex, the weights and names of its triggers in a text, the heaviest first."""
        return {name: sorted(((w, says) for p, w, says in rules if p.search(text)), reverse=True) for name, rules in self._rules.items()}

    async def decide(self, record: MissionRecord, *, compare: bool = True, among: Collection[str] | None = None) -> Route:
        """Choose the persona of a mission.

        :param record: its `brief`, `persona` and `origin` are read.
        :param compare: ask the embedder, if there is one.
        :param among: personas whose models see, if the brief has pictures and that makes a difference; None: any.
        :raises UnknownPersona: if there is no persona to choose.
        """
        chosen, internal = record.persona, self._codex.routing.internal
        examples, text = self._examples(), self.window(record.brief)
        if record.origin == "system" and internal in examples and chosen is None:
            return Route(internal, "is the system's own mission", by=OWN)
        alike = None
        if compare and self._likeness is not None:
            alike = await self._likeness.of(text, self._texts_of(examples), self._codex.routing.nearest)
        route = self.judge(text, examples, alike)
        if chosen is None and among is not None:
            see = {name: own for name, own in examples.items() if name in among}
            seeing = self.judge(text, see, alike and {name: found for name, found in alike.items() if name in among})
            return route if route.persona == seeing.persona else replace(seeing, why=f"{seeing.why}, and its model sees")
        if chosen is None:
            return route
        return Route(chosen, "chosen by the mission", route.scores, CHOSEN, route.persona if record.origin != "system" else None)

    def _texts_of(self, examples: Mapping[str, Exemplars]) -> Texts:
        if self._texts[0] is not examples:
            self._texts = examples, {name: own.texts for name, own in examples.items()}
        return self._texts[1]

    def judge(self, text: str, examples: Mapping[str, Exemplars], alike: Mapping[str, ExemplarSimilarity] | None = None) -> Route:
        """Return the persona for a text.

        :param alike: similarity of the text to each persona's exemplars; None if it is not known.
        """
        if not examples:
            raise UnknownPersona("no persona of the codex is in the image; put one back, or name another codex (setting missions.codex)")
        routing = self._codex.routing
        signs = {name: found for name, found in self._signs(text).items() if name in examples}
        weights = {name: sum(weight for weight, _ in found) for name, found in signs.items()}
        total = sum(weights.values())
        scores = {name: {"score": weight / (total + routing.doubt), "triggers": weight} for name, weight in weights.items()}
        for name, found in (alike or {}).items():
            scores[name]["score"] += routing.likeness * found.mean
            scores[name]["alike"] = found.mean
        for score in scores.values():
            score["score"] = round(score["score"], 4)
        if (before := learned_by(examples, text)) is not None:
            return Route(before, "was chosen for this brief before", scores, LEARNED)
        best = max(scores, key=lambda name: scores[name]["score"])
        if not total and not alike:
            fallback = routing.fallback if routing.fallback in examples else best
            return Route(fallback, "the brief fits no other persona better", scores, FALLBACK)
        reasons = [says for _, says in signs[best]]
        if alike and best in alike:
            nearest = alike[best].nearest
            quoted = nearest if len(nearest) <= _QUOTED else nearest[: _QUOTED - 1].rstrip() + "…"
            reasons.append(f"is like “{quoted}” ({alike[best].cosine:.2f})")
        return Route(best, ", ".join(dict.fromkeys(reasons)), scores, LIKENESS if alike else RULES)
