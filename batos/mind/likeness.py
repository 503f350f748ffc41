"""How alike a brief and the personas' exemplars are: cosines of embeddings, if there is an embedder, in time.

The vectors of the exemplars are computed once per text and embedder, and kept in memory and in the image. An embedder
that is away or slow costs a mission `limit_s`, and the missions of the next `pause_s` nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import structlog

from batos.bridge.types import Inference
from batos.concurrency import SingleFlight
from batos.errors import BatosError, InferenceFailed
from batos.image import vectors
from batos.image.living import LivingImage
from batos.memory.embedders import normalised

if TYPE_CHECKING:
    import numpy as np

log = structlog.get_logger("batos.mind")

_T = TypeVar("_T")
Texts = Mapping[str, tuple[str, ...]]
"""By persona: its exemplars."""


class Alike(NamedTuple):
    """How alike a brief is to a persona's exemplars: the mean cosine of the nearest ones, and the nearest of all."""

    mean: float
    nearest: str
    cosine: float


class _Matrix(NamedTuple):
    texts: Texts
    digest: str
    rows: np.ndarray[Any, Any]
    """The exemplars' vectors, persona by persona."""
    parts: dict[str, tuple[int, int]]
    """By persona: the first of its rows, and the one after the last."""


class Likeness:
    """Compares briefs with exemplars. All methods are called on the loop's thread."""

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
        :param pause_s: how long an embedder that failed is left alone.
        :param deadline_s: time for a batch of exemplars, which are embedded in the background.
        """
        self._image, self._inference, self.model = image, inference, model
        self._limit_s, self._pause_s, self._deadline_s, self._now = limit_s, pause_s, deadline_s, now
        self._away_until, self.state = -math.inf, "waiting"
        self._memory: dict[bytes, bytes] = {}
        self._matrix: _Matrix | None = None
        self._builds: SingleFlight[_Matrix] = SingleFlight("embedding of exemplars")
        self._one_build = asyncio.Lock()

    async def of(self, text: str, exemplars: Texts, nearest: int) -> dict[str, Alike] | None:
        """How alike `text` is to each persona's exemplars; None if that cannot be told now.

        :param nearest: how many of a persona's exemplars count, the most alike first.
        """

        async def compared() -> dict[str, Alike]:
            matrix = await self._ready(exemplars)
            (vector,) = await self._embed([text], self._limit_s)
            return _compared(matrix, _packed(vector, self.model), nearest, self.model)

        return await self._in_time(compared())

    async def nearest(self, text: str, others: Sequence[str]) -> float | None:
        """The cosine of a text to the one of others that is most alike; None if that cannot be told now."""

        async def compared() -> float:
            import numpy as np

            rows = [_unpacked(_packed(vector, self.model)) for vector in await self._embed([text, *others], self._limit_s)]
            return float(max(np.einsum("i,i->", rows[0], row) for row in rows[1:]))

        return await self._in_time(compared())

    async def _in_time(self, comparing: Coroutine[Any, Any, _T]) -> _T | None:
        """What a comparison finds; None where the embedder is away, or does not answer in time."""
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
        """Have the exemplars' vectors ready before the first brief comes, whatever time it takes."""
        try:
            await self._ready(exemplars)
        except BatosError as e:
            log.warning("exemplars_not_embedded", embedder=self.model, cause=e.message)

    async def stop(self) -> None:
        """End what goes on in the background."""
        await self._builds.stop()

    async def _ready(self, exemplars: Texts) -> _Matrix:
        digest = await self._inference.digest(self.model)
        if self._matrix is not None and self._matrix.digest == digest and self._matrix.texts == exemplars:
            return self._matrix
        # Many briefs wait for one build, and none of them ends it by giving up.
        return await self._builds.of((digest, *sorted(exemplars.items())), lambda: self._built(exemplars, digest))

    async def _built(self, exemplars: Texts, digest: str) -> _Matrix:
        async with self._one_build:  # in order, also where the exemplars change with each brief
            matrix = self._matrix = await self._build(exemplars, digest)
        self._away_until, self.state = -math.inf, "ready"
        return matrix

    async def _build(self, exemplars: Texts, digest: str) -> _Matrix:
        keys = {text: vectors.key_of(digest, text) for own in exemplars.values() for text in own}
        missing = {text: key for text, key in keys.items() if key not in self._memory}
        self._memory |= self._image.read(vectors.load, missing.values())
        missing = {text: key for text, key in missing.items() if key not in self._memory}
        if missing:
            found = await self._embed(list(missing), self._deadline_s)
            packed = await asyncio.to_thread(lambda: [_packed(vector, self.model) for vector in found])  # imports numpy there
            new = dict(zip(missing.values(), packed, strict=True))
            self._memory |= new
            self._image.later(vectors.save, new, frozenset(keys.values()))
        self._memory = {key: self._memory[key] for key in keys.values()}
        rows = {name: [self._memory[keys[text]] for text in own] for name, own in exemplars.items()}
        return _Matrix(exemplars, digest, *await asyncio.to_thread(_stacked, rows, self.model))

    async def _embed(self, texts: list[str], deadline_s: float) -> list[list[float]]:
        return await self._inference.embed(self.model, [normalised(text) for text in texts], deadline_s=deadline_s)


def _packed(vector: Sequence[float], model: str) -> bytes:
    """A vector of length 1 in half precision: as it is kept, so that a restart decides alike."""
    import numpy as np

    row = np.asarray(vector, dtype=np.float32)
    # No BLAS, here and below: its threads wait for each other on a busy machine.
    length = math.sqrt(np.einsum("i,i->", row, row)) if row.ndim == 1 else 0.0
    if not math.isfinite(length) or length == 0:
        raise InferenceFailed(f"{model} answered with what is no vector", cause="malformed", model=model)
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


def _compared(matrix: _Matrix, vector: bytes, nearest: int, model: str) -> dict[str, Alike]:
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
        found[name] = Alike(round(sum(most) / len(most), 4), matrix.texts[name][own.index(most[-1])], round(most[-1], 4))
    return found
