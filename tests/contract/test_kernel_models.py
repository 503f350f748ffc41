"""Several kernels, each with an Ollama of its own: models by content, and which kernel is fit to think."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.bridge.capabilities import content_of
from batos.bridge.client import connect
from batos.bridge.installed_models import list_models, show_model
from batos.errors import InferenceFailed, InvalidInput
from batos.image import kernels, ledger, shared_models
from batos.image.mission_record import draft
from batos.missions.fitness import ELSEWHERE, HERE, MissionLoads
from batos.testing import ScriptedOllama
from tests.support import ollama_fixture
from tests.support.cluster import looks_anew, member, ollama, other_manifest
from tests.support.kernels import until
from tests.support.servers import Zeo, zeo  # noqa: F401

PLAN = json.dumps({name: f"what of {name}" for name in ("sage_facet_", "still_point_facet_", "plain_facet_")})
BASE, EMBEDDER, VOICE = "smollm2:embedded", "minilm:embedded", "brick:embedded"


@pytest.fixture
def servers() -> Iterator[tuple[ScriptedOllama, ScriptedOllama]]:
    with contextlib.ExitStack() as stack:
        both = ollama(), ollama()
        for server in both:
            stack.callback(server.stop)
        yield both


@contextlib.asynccontextmanager
async def two(
    folder: Path, images: Zeo, servers: tuple[ScriptedOllama, ScriptedOllama], *, in_turn: bool = True
) -> AsyncIterator[tuple[Kernel, Kernel]]:
    """Two kernels of one image.

    :param in_turn: True: the image holds each model's name to what the first one has, which builds its models before the second starts.
    """
    uri = images.image()
    async with member(folder / "a", uri, servers[0], "a") as first:
        if in_turn:
            await first.models_settled()
            await first.fitness.look()
        async with member(folder / "b", uri, servers[1], "b") as second:
            yield first, second


def unfit(kernel: Kernel, name: str) -> tuple[str, ...]:
    """Why the kernel of a machine is unfit; of its records that which is not gone: on a busy machine it may have another name by now."""
    return next((one.unfit for one in kernel.image.read(kernels.listed) if one.host == name and not one.gone), ("it registers anew",))


async def fit(*members: Kernel) -> None:
    """Wait until kernels have built their models, and have the same."""
    for kernel in members:
        await kernel.models_settled()
        looks_anew(kernel)
    for kernel in (*members, *members):
        await kernel.fitness.look()
    await until(lambda: not any(kernel.fitness.reasons for kernel in members), "all are fit")


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


async def test_real_ollamas_with_the_same_files_show_one_content_under_two_digests(ollama_host: str, tmp_path: Path) -> None:
    with ollama_fixture.other_ollama(tmp_path) as other:
        seen = []
        for host in (ollama_host, other):
            async with connect(host) as client:
                listed = await list_models(client, lambda digest, shown: None)
                shown = {one.name: await show_model(client, one.name) for one in listed if one.name in (BASE, EMBEDDER, VOICE)}
                digests = {one.name: one.digest for one in listed}
                seen.append({name: (digests[name], content_of(told or {})) for name, told in shown.items()})
    assert set(seen[0]) == set(seen[1]) == {BASE, EMBEDDER, VOICE}
    for name, (digest, content) in seen[0].items():
        assert digest != seen[1][name][0]
        assert content == seen[1][name][1] != ""
    assert len({content for _, content in seen[0].values()}) == 3


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


async def test_a_kernel_that_builds_its_models_anew_holds_nobody_to_the_former_ones(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    """Kernels start with other Modelfiles than before, and one of them has built its models while the other builds."""
    servers[0].fail("slow", path="/api/create", times=None)  # until it is released
    former = servers[0].models[VOICE]
    async with two(tmp_path, zeo, servers, in_turn=False) as (first, second):
        await second.models_settled()
        for kernel in (first, second):
            await kernel.fitness.look()
        assert any("wait until it is built" in why for why in unfit(first, "a"))
        await until(lambda: not unfit(second, "b"), "b is fit")
        assert content_of(servers[1].models[VOICE].shown()) != content_of(former.shown()), "it was built anew"
        await second.scheduler.submit("m1", "Say hello", {"persona": "brick", "depth": "direct"})
        await completed(second, "m1")
        assert second.image.read(ledger.record_of, "m1").attempts == 1
        assert not second.image.read(lambda root: list(root["ledger"].failures))
        servers[0].clear()
        servers[0].release()
        await until(lambda: not unfit(second, "a"), "a is fit")


async def test_a_kernel_without_a_model_or_without_its_ollama_is_unfit_meanwhile(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    async with two(tmp_path, zeo, servers) as (first, second):
        await fit(first, second)
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
        await until(lambda: first.membership.leads, "the fit one leads")
        servers[1].start()
        await until(lambda: not unfit(first, "b"), "its Ollama is back")


async def test_a_kernel_that_stays_unfit_gives_the_lead_to_one_that_is_fit(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    async with two(tmp_path, zeo, servers) as (first, second):
        await fit(first, second)
        await until(lambda: first.membership.leads or second.membership.leads, "one leads")
        leads = 0 if first.membership.leads else 1  # the second one, where a lease of the first ran out on a busy machine
        leader, other = (first, second) if leads == 0 else (second, first)
        servers[leads].stop()
        looks_anew(leader)
        await until(lambda: other.membership.leads and not leader.membership.leads, "the other leads")
        servers[leads].start()
        await until(lambda: not unfit(leader, "ab"[leads]), "it is fit again")
        assert other.membership.leads


async def test_what_one_kernel_has_paid_for_another_finds_though_its_models_digests_differ(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    uri = zeo.image()
    for server in servers:
        server.say(PLAN, when=lambda request: bool(request.get("format")))
    servers[0].fail("slow", when=lambda request: not request.get("format"), times=None)  # its facets are never answered
    async with member(tmp_path / "b", uri, servers[1], "b") as second:
        async with member(tmp_path / "a", uri, servers[0], "a", daemon={"shutdown_s": 0.1}) as first:
            await fit(first, second)
            other_manifest(servers[1], "robin:embedded")
            looks_anew(second)
            assert servers[0].models["robin:embedded"].digest != servers[1].models["robin:embedded"].digest
            await first.scheduler.submit("m1", "I feel stuck: why is that?", {"persona": "robin", "depth": "facets"})
            await until(lambda: len(servers[0].chats) > 1, "its plan is paid for")
        await until(lambda: second.image.read(ledger.record_of, "m1").state == "COMPLETE", "the end")
    assert [bool(chat.get("format")) for chat in servers[0].chats].count(True) == 1
    assert len(servers[1].chats) > 1
    assert not any(chat.get("format") for chat in servers[1].chats)


async def test_a_kernel_that_cannot_go_on_gives_the_mission_back_and_no_attempt_is_counted(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    async with two(tmp_path, zeo, servers) as (first, second):
        await fit(first, second)
        servers[1].fail("status_500", path="/api/create", times=None)
        del servers[1].models[VOICE]
        looks_anew(second)
        second.fitness.reasons = ()  # it has not noticed yet
        await second.scheduler.submit("m1", "Say hello", {"persona": "brick", "depth": "direct"})
        await completed(second, "m1")
        ended = second.image.read(ledger.record_of, "m1")
        assert (ended.kernel.partition(".")[0], ended.attempts) == ("a", 1)
        assert not second.image.read(lambda root: list(root["ledger"].failures))
        await until(lambda: any("has no" in why for why in unfit(first, "b")), "that a model is missing")


async def test_missions_go_where_their_model_is_loaded(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    uri, size = zeo.image(), 10**9
    more = {"missions": {"concurrent": 1}, "inference": {"memory_bytes": size + size // 2}}
    async with (
        member(tmp_path / "a", uri, servers[0], "a", **more) as first,
        member(tmp_path / "b", uri, servers[1], "b", **more) as second,
    ):
        await fit(first, second)
        for server, kernel in zip(servers, (first, second), strict=True):
            server.models["brick:embedded"] = dataclasses.replace(server.models["brick:embedded"], weights="b" * 64)
            server.runners.sizes.update(dict.fromkeys(("robin:embedded", "brick:embedded"), size))
            server.fail("slow", when=lambda request: request["model"] != EMBEDDER, times=None, seconds=0.1)
            looks_anew(kernel)
        for kernel in (first, second, first):
            await kernel.fitness.look()
        for kernel, persona in ((first, "robin"), (second, "brick")):
            await kernel.scheduler.submit(f"of {persona}", "Say hello", {"persona": persona, "depth": "direct"})
        await completed(first, "of robin", "of brick")
        robin, brick = (draft("x", "Say hello", {"persona": persona}) for persona in ("robin", "brick"))
        await until(lambda: (first.fitness.nearness(robin), second.fitness.nearness(brick)) == (HERE, HERE), "each has its own")
        await until(lambda: (first.fitness.nearness(brick), second.fitness.nearness(robin)) == (ELSEWHERE, ELSEWHERE), "the others know")
        before = [len(server.runners.loads) for server in servers]
        ids = [f"m{n}" for n in range(24)]
        for n, id in enumerate(ids):
            persona, kernel = ("robin", "brick")[n // 2 % 2], (first, second)[n % 2]
            await kernel.scheduler.submit(id, f"In which year was treaty {n} signed?", {"persona": persona, "depth": "direct"})
        await completed(first, *ids)
        switches = [len(server.runners.loads) - count for server, count in zip(servers, before, strict=True)]
    assert sum(switches) <= 6, [server.runners.loads for server in servers]  # in turns it would be half of 24
    assert min(len(server.chats) for server in servers) >= 6  # both had work


async def test_a_mission_whose_model_is_not_loaded_has_its_turn_under_a_load_that_does_not_end(
    tmp_path: Path,
    zeo: Zeo,  # noqa: F811
    servers: tuple[ScriptedOllama, ScriptedOllama],
) -> None:
    uri, size = zeo.image(), 10**9
    more = {"missions": {"concurrent": 1}, "inference": {"memory_bytes": size + size // 2}}
    async with (
        member(tmp_path / "a", uri, servers[0], "a", **more) as kernel,
        member(tmp_path / "b", uri, servers[1], "b", **more) as second,
    ):
        await fit(kernel, second)
        await second.membership.drain()  # it is there, and takes up nothing
        kernel.scheduler.sweep.patience_s = math.inf
        weights = {"robin": "r", "brick": "b"}
        kernel.fitness.loads = MissionLoads(lambda: frozenset("r"), lambda record: weights[record.persona or "robin"])
        servers[0].fail("slow", when=lambda request: request["model"] != EMBEDDER, times=None, seconds=0.05)
        others = [f"r{n}" for n in range(100)]
        for id in others[:4]:
            await second.scheduler.submit(id, f"What of {id}?", {"persona": "robin", "depth": "direct"})
        await second.scheduler.submit("brick", "What of it?", {"persona": "brick", "depth": "direct"})
        sent = 4
        while kernel.image.read(ledger.record_of, "brick").state != "COMPLETE":
            assert sent < len(others)
            if kernel.image.read(lambda root: len(root["ledger"].pending)) < 5:
                await second.scheduler.submit(others[sent], f"What of {sent}?", {"persona": "robin", "depth": "direct"})
                sent += 1
            if sent > 6:  # some whose model is loaded went before it
                kernel.scheduler.sweep.patience_s = 0.0
            await kernel.image.system(lambda root: None)
        assert sent > 6


async def completed(kernel: Kernel, *ids: str) -> None:
    await until(lambda: all(kernel.image.read(ledger.record_of, id).state == "COMPLETE" for id in ids), f"the end of {ids}")
