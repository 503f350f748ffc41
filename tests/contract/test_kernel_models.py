"""Several kernels, each with an Ollama of its own: models by content, and which kernel is fit to think."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge.capabilities import content_of
from batos.errors import InferenceFailed, InvalidInput
from batos.image import kernels, shared_models
from batos.testing import ScriptedOllama
from tests.support.cluster import member, ollama, other_manifest
from tests.support.kernels import until
from tests.support.servers import Zeo, zeo  # noqa: F401

BASE, EMBEDDER, VOICE = "smollm2:embedded", "minilm:embedded", "brick:embedded"


@pytest.fixture
def servers() -> Iterator[tuple[ScriptedOllama, ScriptedOllama]]:
    with contextlib.ExitStack() as stack:
        both = ollama(), ollama()
        for server in both:
            stack.callback(server.stop)
        yield both


@contextlib.asynccontextmanager
async def two(folder: Path, images: Zeo, servers: tuple[ScriptedOllama, ScriptedOllama]) -> AsyncIterator[tuple[Kernel, Kernel]]:
    uri = images.image()
    async with member(folder / "a", uri, servers[0], "a") as first, member(folder / "b", uri, servers[1], "b") as second:
        yield first, second


def unfit(kernel: Kernel, name: str) -> tuple[str, ...]:
    return next(one.unfit for one in kernel.image.read(kernels.listed) if one.host == name)


def looks_anew(kernel: Kernel) -> None:
    """Let a kernel ask its Ollama for its models now, and not when what it knows is old."""
    for place in kernel.substrate.places:
        place._ollama.models_changed()


def test_content_is_what_a_model_is_made_of_and_not_where_its_files_came_from() -> None:
    with ScriptedOllama() as server:
        model = server.models[BASE]
        same = dataclasses.replace(model, parent="/home/robin/models/smollm2.gguf", licenses=("MIT",))
        assert same.digest != model.digest
        assert content_of(same.shown()) == content_of(model.shown()) != ""
        others = [
            dataclasses.replace(model, weights="0" * 64),
            dataclasses.replace(model, adapters=("1" * 64,)),
            dataclasses.replace(model, system="You are a cat."),
            dataclasses.replace(model, template="{{ .Prompt }}"),
            dataclasses.replace(model, parameters={"temperature": 0.5}),
            dataclasses.replace(model, messages=(("user", "hello"),)),
        ]
        assert len({content_of(one.shown()) for one in (model, *others)}) == 1 + len(others)


def test_an_expert_is_what_its_recipe_says_on_each_machine() -> None:
    with ScriptedOllama() as server:
        mark = f"BAT OS expert kind:1, content {'a' * 64}, recipe {'b' * 64}"
        one = dataclasses.replace(server.models[BASE], licenses=(mark,), adapters=("1" * 64,))
        rounded_otherwise = dataclasses.replace(one, adapters=("2" * 64,))
        of_another_recipe = dataclasses.replace(one, licenses=(mark.replace("b" * 64, "c" * 64),))
        assert content_of(one.shown()) == content_of(rounded_otherwise.shown())
        assert content_of(one.shown()) != content_of(of_another_recipe.shown())


async def test_a_model_has_one_digest_in_the_image_whichever_kernel_asks(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    other_manifest(servers[1], EMBEDDER)
    async with two(tmp_path, zeo, servers) as (first, second):
        for kernel in (first, second):
            await kernel.models_settled()
            await until(lambda kernel=kernel: not kernel.fitness.reasons, "fit")
        ours, theirs = servers[0].models[EMBEDDER].digest, servers[1].models[EMBEDDER].digest
        assert ours != theirs
        inferences = [one.substrate.asked_only for one in (first, second)]
        assert [await one.digest(EMBEDDER) for one in inferences if one is not None] == [ours, ours]
        published = {k.host: {one.name: one.digest for one in k.models} for k in first.image.read(kernels.listed)}
        assert (published["a"][EMBEDDER], published["b"][EMBEDDER]) == (ours, theirs)
        with pytest.raises(InvalidInput, match=r"a\.1 serves this image, too.*start them again"):
            await second.substrate.models.use("robin:embedded")


async def test_a_kernel_with_another_model_under_the_name_is_unfit_until_nobody_has_the_former(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    other = dataclasses.replace(servers[1].models[EMBEDDER], weights="0" * 64)
    servers[1].models[EMBEDDER] = other
    async with two(tmp_path, zeo, servers) as (first, second):
        await until(lambda: not unfit(first, "a"), "a is fit")
        await until(lambda: any("another model here" in why and "ollama pull" in why for why in unfit(first, "b")), "b is unfit")
        assert second.substrate.asked_only is not None
        with pytest.raises(InferenceFailed, match="another model here"):
            await second.substrate.asked_only.digest(EMBEDDER)
        assert second.info()["kernel"]["fit"] is False
        servers[0].models[EMBEDDER] = other  # its user pulls the new one there, too
        looks_anew(first)
        await until(lambda: not unfit(first, "b"), "b is fit")
        await until(lambda: not unfit(first, "a"), "a is fit again")
        held = first.image.read(shared_models.held, EMBEDDER)
        assert held is not None
        assert held.digest == other.digest


async def test_a_kernel_without_a_model_or_without_its_ollama_is_unfit_meanwhile(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    async with two(tmp_path, zeo, servers) as (first, second):
        await until(lambda: not (second.fitness.reasons or first.fitness.reasons), "both are fit")
        servers[1].fail("status_500", path="/api/create", times=None)
        missing = servers[1].models.pop(VOICE)
        looks_anew(second)
        await until(lambda: any(VOICE in why and "(brick)" in why for why in unfit(first, "b")), "b lacks a voice")
        servers[1].models[VOICE] = missing
        looks_anew(second)
        await until(lambda: not unfit(first, "b"), "b has it")
        servers[1].stop()
        looks_anew(second)
        await until(lambda: any("does not answer" in why for why in unfit(first, "b")), "its Ollama is away")
        servers[1].start()
        await until(lambda: not unfit(first, "b"), "its Ollama is back")
