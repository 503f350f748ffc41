"""Likeness: vectors computed once, kept over restarts, and an embedder that is away, slow or mad."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from batos.errors import ProvisioningFailed
from batos.image.living_image import LivingImage
from batos.mind.router import Likeness, Texts
from tests.support.missions import WAIT_S, FakeInference

EXEMPLARS: Texts = {"robin": ("sad",), "brick": ("plan", "build"), "babs": ()}


def letters(text: str) -> list[float]:
    """How often each letter occurs: a vector that the test can foresee."""
    return [float(text.count(letter)) for letter in "abdilnpsu"]


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[LivingImage]:
    image = await LivingImage.open(f"file://{folder}/image.fs")
    try:
        yield image
    finally:
        await image.close()


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def of(image: LivingImage, inference: FakeInference, *, limit_s: float = WAIT_S, now: Callable[[], float] | None = None) -> Likeness:
    return Likeness(image, inference, "minilm", limit_s=limit_s, pause_s=30, deadline_s=WAIT_S, now=now or Clock())


def embedding() -> FakeInference:
    inference = FakeInference()
    inference.embedder = letters
    return inference


async def test_the_nearest_count_and_the_nearest_of_all_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        found = await of(image, embedding()).of("sad", EXEMPLARS, 1)
        assert found is not None
        assert set(found) == {"robin", "brick"}, "who has no exemplars is like nothing"
        assert found["robin"].nearest == "sad"
        assert found["robin"].cosine == found["robin"].mean == pytest.approx(1.0, abs=0.002), "kept in half precision"
        both = await of(image, embedding()).of("sad", EXEMPLARS, 2)
        assert both is not None
        assert both["brick"].mean < both["brick"].cosine == found["brick"].mean
        assert both["robin"].mean == found["robin"].mean


async def test_exemplars_are_embedded_once_also_over_restarts(tmp_path: Path) -> None:
    first = embedding()
    async with opened(tmp_path) as image:
        likeness = of(image, first)
        await likeness.warm(EXEMPLARS)
        assert sorted(first.embedded) == ["build", "plan", "sad"]
        first.embedded.clear()
        before = await likeness.of("bad plan", EXEMPLARS, 3)
        assert first.embedded == ["bad plan"]
    second = embedding()
    async with opened(tmp_path) as image:
        likeness = of(image, second)
        assert await likeness.of("bad plan", EXEMPLARS, 3) == before, "as it was kept, so it was compared"
        assert second.embedded == ["bad plan"]
        more: Texts = {**EXEMPLARS, "babs": ("list",)}
        assert await likeness.of("bad plan", more, 3) != before
        assert second.embedded == ["bad plan", "list", "bad plan"]


async def test_another_embedder_means_other_vectors_and_the_old_ones_go(tmp_path: Path) -> None:
    async with opened(tmp_path) as image:
        await of(image, embedding()).warm(EXEMPLARS)
        await image.system(lambda root: None)
        old = set(image.read(lambda root: list(root["vectors"])))
        inference = embedding()
        inference.digests["minilm"] = "e" * 64
        await of(image, inference).warm(EXEMPLARS)
        assert sorted(inference.embedded) == ["build", "plan", "sad"]
        await image.system(lambda root: None)
        new = set(image.read(lambda root: list(root["vectors"])))
        assert len(old) == len(new) == 3
        assert not old & new


async def test_texts_are_made_plain_before_they_are_embedded(tmp_path: Path) -> None:
    inference = embedding()
    async with opened(tmp_path) as image:
        await of(image, inference).of("“Café” – don’t", {"robin": ("naïve…",)}, 1)
    assert inference.embedded == ["naive...", '"Cafe"  -  don\'t']


async def test_an_embedder_that_fails_is_left_alone_for_a_while(tmp_path: Path) -> None:
    clock, inference = Clock(), FakeInference()
    async with opened(tmp_path) as image:
        likeness = of(image, inference, now=clock)
        assert await likeness.of("sad", EXEMPLARS, 3) is None
        asked = len(inference.embedded)
        assert asked > 0
        assert likeness.state == "away"
        inference.embedder = letters
        clock.at = 29.9
        assert await likeness.of("sad", EXEMPLARS, 3) is None
        assert len(inference.embedded) == asked, "nobody asked it"
        clock.at = 30.0
        assert await likeness.of("sad", EXEMPLARS, 3) is not None
        assert likeness.state == "ready"


async def test_an_embedder_that_is_slow_costs_the_limit_and_serves_those_who_come_later(tmp_path: Path) -> None:
    gate = asyncio.Event()

    class Slow(FakeInference):
        async def digest(self, model: str) -> str:
            return "d" * 64

        async def embed(self, model: str, texts: object, *, deadline_s: float) -> list[list[float]]:
            await gate.wait()
            return await super().embed(model, list(texts), deadline_s=deadline_s)  # type: ignore[call-overload]

    inference = Slow()
    inference.embedder = letters
    async with opened(tmp_path) as image:
        likeness = of(image, inference, limit_s=0.05)
        assert await likeness.of("sad", EXEMPLARS, 3) is None
        gate.set()  # the exemplars were being embedded all the while
        await likeness.warm(EXEMPLARS)
        assert sorted(inference.embedded) == ["build", "plan", "sad"]
        assert likeness.state == "ready"
        assert await likeness.of("sad", EXEMPLARS, 3) is not None, "it is asked again at once"


async def test_stopping_ends_what_goes_on(tmp_path: Path) -> None:
    class Hanging(FakeInference):
        async def embed(self, model: str, texts: object, *, deadline_s: float) -> list[list[float]]:
            await asyncio.Event().wait()
            raise AssertionError

    async with opened(tmp_path) as image:
        likeness = of(image, Hanging(), limit_s=0.01)
        assert await likeness.of("sad", EXEMPLARS, 3) is None
        async with asyncio.timeout(WAIT_S):
            await likeness.stop()


@pytest.mark.parametrize("mad", [[], [0.0] * 9, [float("nan")] * 9, [float("inf")] * 9])
async def test_what_is_no_vector_counts_as_away(tmp_path: Path, mad: list[float]) -> None:
    inference = FakeInference()
    inference.embedder = lambda text: mad
    async with opened(tmp_path) as image:
        assert await of(image, inference).of("sad", EXEMPLARS, 3) is None


async def test_vectors_of_different_lengths_count_as_away(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.embedder = lambda text: [1.0] * len(text)
    async with opened(tmp_path) as image:
        assert await of(image, inference).of("sad", EXEMPLARS, 3) is None
        assert await of(image, inference).of("four", {"robin": ("sad",)}, 3) is None
        assert await of(image, inference).of("cat", {"robin": ("sad",)}, 3) is not None


async def test_a_model_that_cannot_be_had_does_not_hinder(tmp_path: Path) -> None:
    class Unready(FakeInference):
        async def digest(self, model: str) -> str:
            raise ProvisioningFailed("no such model", cause="registry")

    async with opened(tmp_path) as image:
        likeness = of(image, Unready())
        await likeness.warm(EXEMPLARS)
        assert await likeness.of("sad", EXEMPLARS, 3) is None


async def test_a_brief_that_is_given_up_is_no_failure_of_the_embedder(tmp_path: Path) -> None:
    class Held(FakeInference):
        async def embed(self, model: str, texts: object, *, deadline_s: float) -> list[list[float]]:
            came.set()
            await gate.wait()
            return await super().embed(model, list(texts), deadline_s=deadline_s)  # type: ignore[call-overload]

    gate, came, inference = asyncio.Event(), asyncio.Event(), Held()
    inference.embedder = letters
    async with opened(tmp_path) as image:
        likeness = of(image, inference)
        first, second = (asyncio.create_task(likeness.of("sad", EXEMPLARS, 3)) for _ in range(2))
        await came.wait()
        first.cancel()
        gate.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await second is not None
        assert sorted(set(inference.embedded) - {"sad"}) == ["build", "plan"]
        assert inference.embedded.count("plan") == 1
