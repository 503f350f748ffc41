"""The LoRA factory on a scripted Ollama: what is built, once, and what becomes of everything that may stand in the way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ollama import ResponseError

from batos.bridge import failures
from batos.bridge.client import connect
from batos.bridge.client_library import AsyncClient
from batos.bridge.lora.expert_model import ExpertBuilder, bases_of
from batos.bridge.lora.factory import FactoryPace, LoraFactory, OtherFactories, PlainModels
from batos.bridge.lora.staging import Staging, scratch_folder
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.errors import ImageError, InferenceFailed
from batos.image import history, model_registry
from batos.image.living_image import LivingImage
from batos.mind import psm
from batos.mind.codex import load_codex
from batos.mind.incarnation import Incarnation
from batos.testing import ScriptedOllama
from tests.support.daemon import built, provisioned
from tests.support.lora import BASE, about, peft, stage, weights

WEAVER = "babs:knowledge-weaver-v1"
PROFILE = load_profile("embedded")


class House:
    """A factory with what it needs around it; `restarted` is the next daemon on the same image."""

    def __init__(self, path: Path, server: ScriptedOllama, client: AsyncClient) -> None:
        self.path, self.server, self.client = path, server, client
        self.provisioner = Provisioner(client, PROFILE, modelfiles_folder(), built=built(server))
        self.learned: list[str] = []
        self.staging = path / "staging"
        self.staging.mkdir()

    async def begin(self, **more: Any) -> None:
        uri = f"file://{self.path / 'live_image.fs'}"
        self.image = await LivingImage.open(uri, steps=(Incarnation(load_codex()), psm.install, model_registry.install_experts))
        builder = ExpertBuilder(self.client, scratch_folder(self.path), quantize="q8_0", options=PROFILE.options, deadline_s=20)
        self.factory = LoraFactory(
            self.image,
            self.client,
            Staging(self.staging, settle_s=0, limit=50, limit_bytes=10**7),
            builder,
            bases_of(self.image.read(model_registry.plain_models), PROFILE, modelfiles_folder()),
            PROFILE,
            FactoryPace(**{"scan_s": 0.05, "settle_s": 0, "concurrency": 2, "retry_s": 0, **more}),
            PlainModels(self.provisioner.is_ready, self.provisioner.heal, self.learn),
        )
        await self.factory.begin()

    async def learn(self, model: str) -> None:
        self.learned.append(model)

    async def restarted(self) -> None:
        await self.image.close()
        await self.begin()

    @property
    def states(self) -> dict[str, str]:
        return {e["model"]: e["state"] for e in self.factory.report()["experts"]}

    @property
    def voice(self) -> str:
        return str(self.factory.report()["voices"]["babs"]["model"])

    @property
    def refused(self) -> dict[str, str]:
        return {r["folder"]: r["reason"] for r in self.factory.report()["refused"]}

    @property
    def creates(self) -> list[str]:
        return [r.body["model"] for r in self.server.requests if r.path == "/api/create" and r.body["model"].count("-v")]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    with ScriptedOllama() as server:
        provisioned(server)
        async with connect(server.host) as client:
            made = House(tmp_path, server, client)
            await made.provisioner.ensure()
            await made.begin()
            yield made
            await made.image.close()


@contextlib.asynccontextmanager
async def follower(house: House, path: Path) -> AsyncIterator[House]:
    """A factory of another kernel, with an Ollama and a folder of its own, on the same image."""
    path.mkdir()
    with ScriptedOllama() as server:
        provisioned(server)
        async with connect(server.host) as client:
            made = House(path, server, client)
            await made.provisioner.ensure()
            made.image = house.image
            made.factory = LoraFactory(
                house.image,
                client,
                Staging(made.staging, settle_s=0, limit=50, limit_bytes=10**7),
                ExpertBuilder(client, scratch_folder(path), quantize="q8_0", options=PROFILE.options, deadline_s=20),
                bases_of(house.image.read(model_registry.plain_models), PROFILE, modelfiles_folder()),
                PROFILE,
                FactoryPace(scan_s=0.05, settle_s=0, concurrency=2, retry_s=0),
                PlainModels(made.provisioner.is_ready, made.provisioner.heal, made.learn),
            )
            made.factory.others = OtherFactories(lambda: False, lambda model: True, several=True)
            await made.factory.begin()
            yield made


async def test_another_kernel_builds_what_the_image_says_from_its_own_folder_and_records_nothing(house: House, tmp_path: Path) -> None:
    stage(house.staging)
    await house.factory.scan()
    async with follower(house, tmp_path / "other") as other:
        before = house.image.db.lastTransaction()
        await other.factory.scan()
        assert "copy it from a machine that has it" in other.factory.lacks(WEAVER)
        with pytest.raises(InferenceFailed, match="copy it from"):
            await other.factory.ready(WEAVER)
        stage(other.staging)
        await other.factory.scan()
        await other.factory.scan()
        assert (other.factory.lacks(WEAVER), other.creates, other.learned) == ("", [WEAVER], [WEAVER])
        await other.factory.ready(WEAVER)
        assert house.image.db.lastTransaction() == before
        assert house.voice == WEAVER


async def test_what_only_another_kernels_folder_holds_is_no_expert_and_no_voice(house: House, tmp_path: Path) -> None:
    await house.factory.scan()
    async with follower(house, tmp_path / "other") as other:
        stage(other.staging)
        before = house.image.db.lastTransaction()
        await other.factory.scan()
        assert list(other.refused.values()) == ["the kernel that leads decides about experts: put this folder into its lora_staging, too"]
        assert (other.creates, house.voice, house.image.db.lastTransaction()) == ([], "", before)


async def test_a_lead_that_goes_to_a_kernel_without_the_expert_takes_no_voice_away(house: House, tmp_path: Path) -> None:
    stage(house.staging)
    await house.factory.scan()
    async with follower(house, tmp_path / "other") as other:
        other.factory.others = OtherFactories(lambda: True, lambda model: True, several=True)
        await other.factory.scan()
        assert (other.voice, other.states) == (WEAVER, {WEAVER: "built"})
        assert "copy it from another machine" in other.factory.lacks(WEAVER)
        stage(other.staging)
        before = house.image.read(model_registry.describe_experts)
        await other.factory.scan()
        assert (other.creates, other.factory.lacks(WEAVER)) == ([WEAVER], "")
        changed = {**house.image.read(model_registry.describe_experts)[0], "digest": "", "built": 0}
        assert changed == {**before[0], "digest": "", "built": 0}
        other.factory.others = OtherFactories(lambda: True, lambda model: False, several=True)
        shutil.rmtree(other.staging / next(other.staging.iterdir()).name)
        del other.server.models[WEAVER]
        await other.factory.scan()
        assert (other.voice, other.states) == ("", {WEAVER: "missing"})  # no kernel has it any more


async def test_built_once_and_never_again(house: House) -> None:
    stage(house.staging)
    for _ in range(3):
        await house.factory.scan()
    await house.restarted()
    await house.factory.scan()
    assert house.creates == [WEAVER]
    assert house.learned == [WEAVER]
    assert house.states == {WEAVER: "built"}
    assert house.voice == WEAVER
    (found,) = house.factory.report()["experts"]
    assert found["digest"] == house.server.models[WEAVER].digest
    assert (found["how"], found["base"], found["folder"]) == ("adapter", "smollm2:embedded", "weaver")
    created = next(r.body for r in house.server.requests if r.path == "/api/create" and r.body["model"] == WEAVER)
    assert created["from"] == "babs:embedded"
    assert list(created["adapters"]) == ["adapter.gguf"]
    assert not list(house.path.glob("lora_scratch/*")), "nothing is left behind"


async def test_each_step_names_the_expert_in_the_history(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    oid = house.image.read(lambda root: model_registry.expert_repository(root)[WEAVER]._p_oid)
    revisions = history.revisions(house.image.db, oid, 10)
    assert [r["mission"] for r in revisions] == [f"expert:{WEAVER}"] * 2  # built, intended


async def test_good_ones_go_on_beside_bad_ones(house: House) -> None:
    stage(house.staging, "good")
    stage(house.staging, "persona", name="a", persona="nobody")
    stage(house.staging, "base", name="b", base="llama3.1:8b")
    stage(house.staging, "config", name="c", config={"base_model_name_or_path": "meta-llama/Llama-3.1-8B"})
    stage(house.staging, "shape", name="d", tensors=weights(layers=31))
    stage(house.staging, "taken", name="e", persona="robin", tensors={})
    stage(house.staging, "path", name="f", config={"base_model_name_or_path": "/home/me/models/smollm2"}, seed=3)
    stage(house.staging, "known", name="g", base="HuggingFaceTB/SmolLM2-135M-Instruct", seed=4)
    (house.staging / "empty").mkdir()
    await house.factory.scan()
    assert {model for model, state in house.states.items() if state == "built"} == {WEAVER, "babs:f-v1", "babs:g-v1"}
    assert set(house.refused) == {"persona", "base", "config", "shape", "taken", "empty"}
    assert house.refused["persona"] == "unknown persona 'nobody'; there are: robin, brick, babs, alfred"
    assert house.refused["base"] == "wrong base: expert.toml says 'llama3.1:8b', babs's model is built on 'smollm2:embedded'"
    assert house.refused["config"].startswith("wrong base: adapter_config.json says 'meta-llama/Llama-3.1-8B'")
    assert house.refused["shape"].startswith("wrong shape: layer 30, attn_v: the base has 30 layers")
    assert house.states["babs:d-v1"] == "refused", "the image remembers, too"
    before = house.image.db.lastTransaction()
    await house.factory.scan()
    assert house.image.db.lastTransaction() == before, "to look again writes nothing"


async def test_what_is_corrected_is_built(house: House) -> None:
    stage(house.staging, base="wrong")
    await house.factory.scan()
    assert house.states == {WEAVER: "refused"}
    about(house.staging / "weaver")
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}
    assert house.refused == {}


async def test_what_was_refused_and_is_taken_away_is_forgotten(house: House) -> None:
    stage(house.staging, base="wrong")
    await house.factory.scan()
    shutil.rmtree(house.staging / "weaver")
    await house.factory.scan()
    assert (house.states, house.refused) == ({}, {})


async def test_another_content_under_a_built_name_is_refused(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    peft(house.staging / "weaver", weights(seed=9))
    await house.factory.scan()
    assert "a version never changes" in house.refused["weaver"]
    assert house.states == {WEAVER: "built"}
    about(house.staging / "weaver", version=2)
    await house.factory.scan()
    assert house.voice == "babs:knowledge-weaver-v2"
    assert house.creates == [WEAVER, "babs:knowledge-weaver-v2"]


async def test_words_about_an_expert_may_change(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    about(house.staging / "weaver", role="methods", comment="it only writes methods")
    await house.factory.scan()
    (found,) = house.factory.report()["experts"]
    assert (found["role"], found["about"], found["speaks"]) == ("methods", "it only writes methods", False)
    assert house.creates == [WEAVER]


# --- gone


async def test_one_that_waits_for_a_choice_is_built_and_does_not_speak(house: House) -> None:
    stage(house.staging, on_choice=True)
    await house.factory.scan()
    assert (list(house.states.values()), house.voice) == (["built"], "")
    about(house.staging / "weaver", on_choice=False)
    await house.factory.scan()
    assert house.voice == "babs:knowledge-weaver-v1", "its author thinks otherwise now"


async def test_deleted_from_ollama_it_comes_back(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    for again in (house.factory.scan, lambda: house.factory.heal(WEAVER)):
        del house.server.models[WEAVER]
        await again()
        await house.factory.ready(WEAVER)
        assert WEAVER in house.server.models
    del house.server.models[WEAVER]
    await house.restarted()
    await house.factory.scan()
    assert house.creates == [WEAVER] * 4
    assert house.voice == WEAVER


async def test_gone_with_what_it_was_built_on_both_come_back(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    for model in (WEAVER, "babs:embedded"):
        del house.server.models[model]
    await house.factory.heal(WEAVER)
    await house.factory.ready(WEAVER)
    assert {WEAVER, "babs:embedded"} <= set(house.server.models)


async def test_while_it_cannot_be_brought_back_its_persona_speaks_for_itself(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    del house.server.models[WEAVER]
    house.server.fail("status_500", times=1, path="/api/create")
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "missing"}, "")
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)


async def test_what_cannot_be_recorded_is_done_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    stage(house.staging)
    real, left = model_registry.intend_expert, [OSError(28, "No space left on device"), ImageError("the image is full")]

    def intend(root: Any, facts: dict[str, Any]) -> dict[str, Any]:
        if left:
            raise left.pop()
        return real(root, facts)

    monkeypatch.setattr(model_registry, "intend_expert", intend)
    for reason in ("the image is full", "[Errno 28] No space left on device"):
        await house.factory.scan()
        assert house.refused == {"weaver": reason}
    await house.factory.scan()
    assert (house.states, house.refused) == ({WEAVER: "built"}, {})


async def test_without_its_folder_it_goes_on_and_without_both_it_is_missing(house: House) -> None:
    folder = stage(house.staging)
    await house.factory.scan()
    aside = house.path / "aside"
    folder.rename(aside)
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}
    kept = house.server.models.pop(WEAVER)
    await house.factory.scan()
    (found,) = house.factory.report()["experts"]
    assert (found["state"], found["speaks"]) == ("missing", False)
    assert "put the folder back" in found["reason"]
    with pytest.raises(InferenceFailed, match="put the folder back") as failed:
        await house.factory.ready(WEAVER)
    assert failed.value.may_retry, "another attempt goes on with another voice"
    house.server.models[WEAVER] = kept
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)
    del house.server.models[WEAVER]
    await house.factory.scan()
    aside.rename(folder)
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)
    assert house.creates == [WEAVER] * 2


async def test_a_model_that_was_overwritten_is_put_right(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    right = house.server.models[WEAVER]
    house.server.models[WEAVER] = dataclasses.replace(right, system="somebody else's", licenses=())
    await house.factory.scan()
    assert house.server.models[WEAVER] == right


async def test_a_model_of_another_making_is_not_overwritten(house: House) -> None:
    house.server.models[WEAVER] = house.server.models["babs:embedded"]
    stage(house.staging)
    await house.factory.scan()
    assert "has a model babs:knowledge-weaver-v1 of another making; `ollama rm" in house.refused["weaver"]
    assert house.creates == []
    del house.server.models[WEAVER]
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}


async def test_one_that_another_image_built_is_taken_over(house: House, tmp_path: Path) -> None:
    stage(house.staging)
    await house.factory.scan()
    await house.image.close()
    (tmp_path / "live_image.fs").unlink()
    await house.begin()
    await house.factory.scan()
    assert (house.states, house.creates) == ({WEAVER: "built"}, [WEAVER])


# --- what it is built on


async def test_built_anew_when_its_persona_is(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    (before,) = house.factory.report()["experts"]
    house.server.models["babs:embedded"] = dataclasses.replace(house.server.models["babs:embedded"], system="Be brief.")
    await house.factory.scan()
    (after,) = house.factory.report()["experts"]
    assert house.creates == [WEAVER] * 2
    assert house.server.models[WEAVER].system == "Be brief."
    assert before["content"] == after["content"]
    assert before["recipe"] != after["recipe"]
    assert before["digest"] != after["digest"]


async def test_waits_for_its_personas_own_model(house: House) -> None:
    kept = house.server.models.pop("babs:embedded")
    stage(house.staging)
    await house.factory.scan()
    assert house.refused == {"weaver": "waits for babs's own model babs:embedded"}
    assert house.states == {}
    house.server.models["babs:embedded"] = kept
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}


async def test_whether_an_expert_for_methods_is_on_its_way(house: House) -> None:
    """Only for one that may be built here is a message kept waiting that nobody understands."""
    assert not await house.factory.writes_soon()
    stage(house.staging, "voice")
    stage(house.staging, "other", name="other", role="methods", base="another-base")
    stage(house.staging, "chosen", name="chosen", role="methods", on_choice=True)
    assert not await house.factory.writes_soon()
    stage(house.staging, "writer", name="writer", role="methods")
    assert await house.factory.writes_soon()
    shutil.rmtree(house.staging)
    assert not await house.factory.writes_soon()


# --- in the way


async def test_an_ollama_that_is_down_stops_nothing_for_good(house: House) -> None:
    stage(house.staging)
    house.server.stop()
    await house.factory.scan()
    assert house.refused["weaver"].startswith("cannot list the models")
    house.server.start()
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}


@pytest.mark.parametrize("kind", ["status_500", "junk", "refuse"])
@pytest.mark.parametrize("path", ["/api/create", "/api/show"])
async def test_a_failure_on_the_way_is_tried_again(house: House, kind: Any, path: str) -> None:
    stage(house.staging)
    house.server.fail(kind, times=1, path=path)
    await house.factory.scan()
    assert house.states.get(WEAVER) in ("intended", None)
    assert house.voice == ""
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        *(("overtaken", path) for path in ("/api/tags", "/api/show", "/api/create")),
        *(("status_404", path) for path in ("/api/show", "/api/chat")),
    ],
)
async def test_another_change_of_the_models_between_costs_nothing(house: House, kind: Any, path: str) -> None:
    """Of another client, as `ollama rm` is one: what Ollama then answers is not about this expert."""
    stage(house.staging)
    house.server.fail(kind, times=failures.RACE_TRIES - 1, path=path)
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)


async def test_a_layer_that_went_with_another_model_is_uploaded_again(house: House) -> None:
    stage(house.staging)

    def goes(_: dict[str, Any]) -> bool:
        house.server.blobs.clear()
        return True

    house.server.fail("layer_gone", times=1, path="/api/create", when=goes)
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)


async def test_one_that_is_overtaken_again_and_again_waits(house: House) -> None:
    stage(house.staging)
    house.server.fail("overtaken", times=failures.RACE_TRIES, path="/api/create")
    await house.factory.scan()
    assert (house.states, house.creates) == ({WEAVER: "intended"}, [WEAVER] * failures.RACE_TRIES)
    assert house.refused["weaver"].startswith(f"cannot build {WEAVER}: stat ")
    await house.factory.scan()
    assert house.states == {WEAVER: "built"}


async def test_between_two_tries_there_is_a_pause_that_grows(house: House) -> None:
    await house.image.close()
    await house.begin(retry_s=1000)
    stage(house.staging)
    house.server.fail("status_500", times=None, path="/api/create")
    await house.factory.scan()
    await house.factory.scan()
    assert house.creates == [WEAVER]
    assert "tried again in" in house.refused["weaver"]


async def test_one_that_ollama_cannot_run_is_refused_and_taken_away(house: House) -> None:
    stage(house.staging)
    house.server.fail("status_500", times=None, when="Say yes.")
    for _ in range(3):
        await house.factory.scan()
    assert house.states == {WEAVER: "refused"}
    assert house.refused["weaver"] == "Ollama cannot run it: the model runner ended unexpectedly"
    assert WEAVER not in house.server.models
    assert house.creates == [WEAVER], "it is not tried again and again"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("server busy, please try again.  maximum pending requests exceeded", 503),
        ("model requires more system memory (6 GiB) than is available (3 GiB)", 500),
    ],
)
async def test_one_that_ollama_cannot_run_just_now_is_tried_again(
    house: House, monkeypatch: pytest.MonkeyPatch, said: str, status: int
) -> None:
    await house.image.close()
    await house.begin(retry_s=0)
    stage(house.staging)
    chat, failed = AsyncClient.chat, []

    async def busy(client: AsyncClient, *args: Any, **more: Any) -> Any:
        if not failed:
            failed.append(said)
            raise ResponseError(said, status)
        return await chat(client, *args, **more)

    monkeypatch.setattr(AsyncClient, "chat", busy)
    await house.factory.scan()
    assert house.states == {WEAVER: "intended"}
    assert said in house.refused["weaver"]
    await house.factory.scan()
    assert (house.states, house.creates) == ({WEAVER: "built"}, [WEAVER])


async def test_experts_are_built_a_few_at_a_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    active = most = 0
    real = ExpertBuilder.build

    async def build(self: ExpertBuilder, *args: Any) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await real(self, *args)
        active -= 1

    monkeypatch.setattr(ExpertBuilder, "build", build)
    for number in range(6):
        stage(house.staging, f"e{number}", name=f"e{number}", seed=number)
    await house.factory.scan()
    assert most == 2
    assert len(house.creates) == 6
    assert set(house.states.values()) == {"built"}


async def test_missions_wait_for_an_expert_that_is_built_anew(house: House) -> None:
    stage(house.staging)
    await house.factory.scan()
    del house.server.models[WEAVER]
    house.server.fail("slow", times=1, path="/api/create")
    scanning = asyncio.create_task(house.factory.scan())
    await asyncio.to_thread(house.server.wait_for, "/api/create", house.server.counts["/api/create"] + 1)
    waiting = asyncio.create_task(house.factory.ready(WEAVER))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    house.server.release()
    await scanning
    await waiting


async def test_a_scan_cancelled_at_any_request_is_made_good(house: House) -> None:
    stage(house.staging)
    for path in ("/api/tags", "/api/show", "/api/create", "/api/chat"):
        house.server.fail("hang", times=1, path=path)
        before = house.server.counts[path]
        scanning = asyncio.create_task(house.factory.scan())
        await asyncio.to_thread(house.server.wait_for, path, before + 1)
        scanning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await scanning
        assert house.voice == ""
    await house.factory.scan()
    assert (house.states, house.voice) == ({WEAVER: "built"}, WEAVER)


async def test_it_watches_the_folder_by_itself(house: House) -> None:
    watching = asyncio.create_task(house.factory.run())
    try:
        stage(house.staging)
        async with asyncio.timeout(90):
            while house.voice != WEAVER:
                await asyncio.sleep(0.01)
        shutil.rmtree(house.staging)  # an operator's slip: said, and survived
        async with asyncio.timeout(90):
            while "cannot be read" not in house.refused.get(".", ""):
                await asyncio.sleep(0.01)
        assert not watching.done()
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def test_fusing_needs_the_weights_at_hand(house: House) -> None:
    """The scripted Ollama's are nowhere, like those of an Ollama on another machine."""
    stage(house.staging, fuse=True)
    await house.factory.scan()
    (found,) = house.factory.report()["experts"]
    assert (found["state"], found["how"]) == ("built", "adapter")
    assert found["reason"].startswith("not fused: the weights of smollm2:embedded cannot be read at /models/blobs/sha256-")


async def test_weights_with_numbers_that_are_none_are_refused(house: House) -> None:
    tensors = weights()
    next(iter(tensors.values()))[0, 0] = float("inf")
    stage(house.staging, tensors=tensors)
    await house.factory.scan()
    assert "NaN or infinite" in house.refused["weaver"]


def test_the_shape_of_the_stand_in_is_that_of_the_real_base() -> None:
    from batos.bridge.lora.adapters import AdapterBase
    from batos.testing.models import INFO

    assert AdapterBase.of(INFO) == BASE
