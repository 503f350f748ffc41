"""Provisioning against a scripted Ollama: what is missing comes, what changed is rebuilt, what cannot be had is said."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from ollama import AsyncClient

from batos.bridge.client import connect
from batos.bridge.downloads import DiskSpace
from batos.bridge.model_builder import BuiltModels
from batos.bridge.profiles import BaseModelSource, Profile
from batos.bridge.provisioning import Provisioner
from batos.errors import InferenceFailed, ProvisioningFailed, from_wire
from batos.testing import ScriptedOllama

SMALL = BaseModelSource(name="small:test", package="batos", root="bridge", files=("launcher.py",), parameters={"num_thread": 1})
PULLED = BaseModelSource(name="big:8b")


@pytest.fixture
def scripted() -> ScriptedOllama:  # type: ignore[misc]
    with ScriptedOllama(models=(), pullable=("big:8b", "other")) as server:
        yield server  # type: ignore[misc]


@pytest.fixture
async def client(scripted: ScriptedOllama) -> AsyncIterator[AsyncClient]:
    async with connect(scripted.host) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test").mkdir()
    write(tmp_path, "robin", 'FROM small:test\nSYSTEM """You are ROBIN."""\nPARAMETER temperature 0.5\nMESSAGE user hi\n')
    write(tmp_path, "brick", "FROM big:8b\nSYSTEM You are BRICK.\n")
    return tmp_path


def write(folder: Path, role: str, text: str) -> None:
    (folder / "test" / f"{role}.Modelfile").write_text(text)


def profile(*models: BaseModelSource, roles: tuple[str, ...] = ("robin", "brick")) -> Profile:
    return Profile(
        name="test", models=models or (SMALL, PULLED), embedder=(models or (SMALL,))[0].name, dimensions=3,
        personas={r: f"{r}:test" for r in roles}, options={},
    )  # fmt: skip


async def states(provisioner: Provisioner) -> dict[str, str]:
    return {s.name: s.state for s in await provisioner.ensure()}


async def test_all_is_made_then_all_is_there(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(), folder)
    assert {s.state for s in provisioner.status()} == {"waiting"}
    events: list[dict[str, Any]] = []
    unwatch = provisioner.watch(events.append)
    made = await states(provisioner)
    unwatch()
    assert made == {"small:test": "created", "big:8b": "pulled", "robin:test": "created", "brick:test": "created"}
    layer = {"layer": "sha256:" + scripted.models["big:8b"].weights, "total": 2}
    assert {"type": "progress", "model": "big:8b", "status": "pulling layer", **layer, "completed": 1} in events
    assert {"type": "model", "name": "big:8b", "state": "pulled", "detail": "", "remedy": "", "cause": ""} in events
    assert {e["model"] for e in events if e["type"] == "progress"} == {e["name"] for e in events if e["type"] == "model"} == set(made)
    assert scripted.models["robin:test"].system == "You are ROBIN."
    assert scripted.models["robin:test"].parameters == {"num_thread": 1, "temperature": 0.5}
    creates = scripted.counts["/api/create"]
    assert set((await states(provisioner)).values()) == {"present"}
    assert set((await states(Provisioner(client, profile(), folder))).values()) == {"present"}
    assert scripted.counts["/api/create"] == creates
    assert json.loads(json.dumps([s.to_wire() for s in provisioner.status()]))[0]["state"] == "present"


async def test_what_was_deleted_comes_back(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(), folder)
    await provisioner.ensure()
    del scripted.models["robin:test"]
    assert (await states(provisioner))["robin:test"] == "created"
    del scripted.models["robin:test"], scripted.models["small:test"]
    assert (await provisioner.heal("robin:test")).state == "created"
    assert {"robin:test", "small:test"} <= set(scripted.models)
    del scripted.models["big:8b"]
    assert (await provisioner.heal("big:8b")).state == "pulled"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("You are ROBIN.", "You are ROBIN!"), ("0.5", "0.6"), ("MESSAGE user hi\n", ""), ("MESSAGE user hi\n", "TEMPLATE {{ .System }}\n"),
        ("MESSAGE user hi", "MESSAGE user ho"), ("FROM small:test", "FROM big:8b"), ("MESSAGE user hi", "LICENSE mine"),
    ],
)  # fmt: skip
async def test_a_changed_modelfile_rebuilds(scripted: ScriptedOllama, client: AsyncClient, folder: Path, old: str, new: str) -> None:
    await Provisioner(client, profile(), folder).ensure()
    before = scripted.models["robin:test"].digest
    file = folder / "test" / "robin.Modelfile"
    write(folder, "robin", file.read_text().replace(old, new))
    again = {s.name: s for s in await Provisioner(client, profile(), folder).ensure()}
    if new == "":
        # A Modelfile that says nothing of messages leaves the base's: rebuilt from its base, the old ones are gone.
        assert not scripted.models["robin:test"].messages
    assert again["robin:test"].state == "created"
    assert "rebuilt" in again["robin:test"].detail
    assert again["brick:test"].state == "present"
    assert scripted.models["robin:test"].digest != before


async def test_a_changed_base_rebuilds_its_personas(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    await Provisioner(client, profile(), folder).ensure()
    changed = SMALL.model_copy(update={"parameters": {"num_thread": 2}})
    made = await states(Provisioner(client, profile(changed, PULLED), folder))
    assert made == {"small:test": "created", "big:8b": "present", "robin:test": "created", "brick:test": "present"}
    assert scripted.models["robin:test"].parameters["num_thread"] == 2


async def test_one_that_cannot_be_had_does_not_stop_the_others(client: AsyncClient, folder: Path) -> None:
    write(folder, "brick", "FROM nowhere:8b\n")
    lost = BaseModelSource(name="lost:1", package="no_such_package_here", files=("x",))
    hollow = BaseModelSource(name="hollow:1", package="batos", files=("no_such_file",))
    found = {s.name: s for s in await Provisioner(client, profile(SMALL, PULLED, lost, hollow), folder).ensure()}
    assert {n: s.state for n, s in found.items()} == {
        "small:test": "created", "big:8b": "pulled", "robin:test": "created", "lost:1": "failed", "hollow:1": "failed",
        "brick:test": "failed", "nowhere:8b": "failed",
    }  # fmt: skip
    assert "not installed" in found["lost:1"].detail
    assert "make models" in found["lost:1"].remedy
    assert "no_such_file" in found["hollow:1"].detail
    assert "ollama pull nowhere:8b" in found["nowhere:8b"].remedy
    assert found["brick:test"].remedy == found["nowhere:8b"].remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [("FROM small:test\nPARAMETER heat 3\n", "line 2: unknown parameter 'heat'"), (None, "cannot read"), ("FROM x\n\xff", "cannot read")],
)
async def test_a_bad_modelfile_is_named(client: AsyncClient, folder: Path, text: str | None, says: str) -> None:
    file = folder / "test" / "robin.Modelfile"
    file.unlink()
    if text is not None:
        file.write_bytes(text.encode("latin-1"))
    found = {s.name: s for s in await Provisioner(client, profile(), folder).ensure()}
    assert found["robin:test"].state == "failed"
    assert says in found["robin:test"].detail
    assert "robin.Modelfile" in found["robin:test"].detail
    assert found["brick:test"].ready


async def test_waiting_for_a_model(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(), folder)
    waiting = asyncio.create_task(provisioner.ready("robin:test"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await provisioner.ensure()
    await asyncio.wait_for(waiting, 90)

    await provisioner.ready("other")  # of no profile: pulled on the spot
    assert "other:latest" in scripted.models
    with pytest.raises(ProvisioningFailed, match="Remedy: see that this machine reaches the registry") as failed:
        await provisioner.ready("unheard-of")
    scripted.pullable.add("unheard-of:latest")
    await provisioner.ready("unheard-of")
    del scripted.models["unheard-of:latest"]
    scripted.pullable.clear()
    assert (await provisioner.heal("unheard-of")).state == "failed"
    with pytest.raises(ProvisioningFailed, match="file does not exist") as failed:
        await provisioner.ready("unheard-of")
    assert failed.value.context["model"] == "unheard-of"
    assert failed.value.context["remedy"]


async def test_waiting_ends_when_it_cannot_be_had(client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(SMALL, roles=("robin", "alfred")), folder)
    waiting = asyncio.create_task(provisioner.ready("alfred:test"))
    await asyncio.sleep(0)
    await provisioner.ensure()
    with pytest.raises(ProvisioningFailed, match=r"alfred\.Modelfile"):
        await waiting
    write(folder, "alfred", "FROM small:test\n")
    await provisioner.ensure()
    await provisioner.ready("alfred:test")


@pytest.mark.parametrize(
    ("path", "kind"), [("/api/create", "status_500"), ("/api/create", "refuse"), ("/api/create", "junk"), ("/api/show", "junk")]
)
async def test_faults_of_the_server(scripted: ScriptedOllama, client: AsyncClient, folder: Path, path: str, kind: str) -> None:
    await Provisioner(client, profile(SMALL, roles=("robin",)), folder).ensure()
    del scripted.models["robin:test"]
    scripted.fail(kind, times=None, path=path)  # type: ignore[arg-type]
    provisioner = Provisioner(client, profile(SMALL, roles=("robin",)), folder)
    assert (await states(provisioner))["robin:test"] == "failed"
    scripted.clear()
    assert (await states(provisioner))["robin:test"] == "created"


async def test_a_server_that_is_down(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(), folder)
    scripted.stop()
    assert {(s.state, s.cause) for s in await provisioner.ensure()} == {("waiting", "unreachable")}
    assert provisioner.unreached.is_set()
    waiting = asyncio.create_task(provisioner.ready("robin:test"))
    assert {s.cause for s in await provisioner.ensure()} == {"unreachable"}
    assert not waiting.done(), "nothing can be said of a model without an Ollama"
    scripted.start()
    assert all(s.ready for s in await provisioner.ensure())
    await asyncio.wait_for(waiting, 90)


@pytest.mark.parametrize(("kind", "path", "cause"), [("full", "/api/create", "disk_full"), ("full", "/api/pull", "disk_full"),
    ("status_500", "/api/create", "server_error"), ("refuse", "/api/create", "truncated"), ("junk", "/api/create", "malformed"),
    ("refuse", "/api/pull", "truncated")])  # fmt: skip
async def test_what_was_in_the_way_has_a_name(
    scripted: ScriptedOllama, client: AsyncClient, folder: Path, kind: Any, path: str, cause: str
) -> None:
    """One word, in the status, in its event and in the error of who needs the model: an inference that failed like any other."""
    scripted.fail(kind, times=None, path=path)
    provisioner = Provisioner(client, profile(), folder)
    model = "small:test" if path == "/api/create" else "big:8b"
    events: list[dict[str, Any]] = []
    provisioner.watch(events.append)
    assert {s.name: s.cause for s in await provisioner.ensure()}[model] == cause
    assert [e["cause"] for e in events if e["type"] == "model" and e["name"] == model] == [cause]
    built_on_it = "robin:test" if path == "/api/create" else "brick:test"
    for needed in (model, built_on_it):
        with pytest.raises(InferenceFailed) as failed:
            await provisioner.ready(needed)
        assert (failed.value.code, failed.value.cause, failed.value.may_retry) == ("provisioning_failed", cause, False)
        assert from_wire(failed.value.to_wire()).cause == cause  # type: ignore[attr-defined]


async def test_what_no_registry_has(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    scripted.pullable.clear()
    found = {s.name: s.cause for s in await Provisioner(client, profile(), folder).ensure()}
    assert found == {"small:test": "", "robin:test": "", "big:8b": "model_missing", "brick:test": "model_missing"}


async def test_no_more_at_once_than_allowed(scripted: ScriptedOllama, client: AsyncClient, tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    roles = ("a", "b", "c", "d")
    for role in roles:
        write(tmp_path, role, f"FROM small:test\nSYSTEM {role}\n")
    await Provisioner(client, profile(SMALL, roles=()), tmp_path).ensure()
    before = scripted.counts["/api/create"]
    scripted.fail("slow", times=None, path="/api/create")
    run = asyncio.create_task(Provisioner(client, profile(SMALL, roles=roles), tmp_path, 2).ensure())
    await asyncio.to_thread(scripted.wait_for, "/api/create", before + 2)
    with pytest.raises(TimeoutError):
        await asyncio.to_thread(scripted.wait_for, "/api/create", before + 3, 0.2)
    scripted.clear()
    scripted.release()
    assert all(s.ready for s in await run)


# --- once a content


def own(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        (folder / "test" / name.replace("__", ".")).write_bytes(content)


async def run(client: AsyncClient, folder: Path, *models: BaseModelSource, roles: tuple[str, ...] = ("robin",)) -> dict[str, str]:
    """A start of the daemon: a new provisioner, the memory of the last."""
    built = BuiltModels(folder / "built.json")
    return {s.name: s.state for s in await Provisioner(client, profile(*models, roles=roles), folder, built=built).ensure()}


async def test_an_adapter_is_applied_once_a_content(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    own(folder, lora__gguf=b"one", w__gguf=b"weights")
    write(folder, "robin", "FROM ./w.gguf\nADAPTER ./lora.gguf\nSYSTEM hi\n")
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    uploads = scripted.uploads
    assert (await run(client, folder, SMALL))["robin:test"] == "present"
    assert scripted.uploads == uploads
    own(folder, lora__gguf=b"two!")
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    assert scripted.uploads == uploads + 1  # the weights are there
    assert (await run(client, folder, SMALL))["robin:test"] == "present"
    own(folder, w__gguf=b"others")
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    assert scripted.uploads == uploads + 2
    (folder / "built.json").unlink()  # lost: once more, and nothing is uploaded
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    assert (await run(client, folder, SMALL))["robin:test"] == "present"
    assert scripted.uploads == uploads + 2


async def test_new_weights_in_a_package_rebuild_base_and_personas(
    scripted: ScriptedOllama, client: AsyncClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = folder / "weights.gguf"
    weights.write_bytes(b"of the old wheel")
    monkeypatch.setattr(BaseModelSource, "paths", lambda self: {"weights.gguf": weights})
    assert await run(client, folder, SMALL) == {"small:test": "created", "robin:test": "created"}
    assert await run(client, folder, SMALL) == {"small:test": "present", "robin:test": "present"}
    weights.write_bytes(b"of the new wheel!")
    assert await run(client, folder, SMALL) == {"small:test": "created", "robin:test": "created"}
    assert await run(client, folder, SMALL) == {"small:test": "present", "robin:test": "present"}
    assert scripted.models["robin:test"].weights == hashlib.sha256(b"of the new wheel!").hexdigest()
    # Without the memory the weights tell: `show` names them by their digest.
    (folder / "built.json").unlink()
    assert await run(client, folder, SMALL) == {"small:test": "present", "robin:test": "present"}
    (folder / "built.json").unlink()
    weights.write_bytes(b"of a third")
    assert await run(client, folder, SMALL) == {"small:test": "created", "robin:test": "created"}


async def test_what_others_changed_is_rebuilt(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    await run(client, folder, SMALL)
    scripted.models["robin:test"] = dataclasses.replace(scripted.models["robin:test"], system="You are somebody else.")
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    assert scripted.models["robin:test"].system == "You are ROBIN."


async def test_texts_that_show_cannot_say_are_built_once(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    write(folder, "robin", 'FROM small:test\nSYSTEM """"Quoted", and no more"""\nTEMPLATE """{{ .Prompt }}"""\n')
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    assert scripted.models["robin:test"].system == '"Quoted", and no more'
    assert (await run(client, folder, SMALL))["robin:test"] == "present"


async def test_every_instruction_reaches_ollama(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    write(folder, "robin", "FROM small:test\nRENDERER qwen3\nPARSER qwen3\nREQUIRES 0.14.0\nLICENSE mine\nMESSAGE assistant ho\n")
    assert (await run(client, folder, SMALL))["robin:test"] == "created"
    made = scripted.models["robin:test"]
    assert (made.renderer, made.parser, made.requires, made.licenses) == ("qwen3", "qwen3", "0.14.0", ("mine",))
    assert made.messages == (("assistant", "ho"),)


async def test_a_circle_is_named(client: AsyncClient, folder: Path) -> None:
    write(folder, "robin", "FROM brick:test\n")
    write(folder, "brick", "FROM alfred:test\n")
    write(folder, "alfred", "FROM robin:test\n")
    write(folder, "babs", "FROM babs:test\n")
    roles = ("robin", "brick", "alfred", "babs")
    found = {s.name: s for s in await Provisioner(client, profile(SMALL, roles=roles), folder).ensure()}
    assert all(found[f"{role}:test"].state == "failed" for role in roles)
    assert "goes round in a circle" in found["babs:test"].detail


async def test_no_room_for_a_build(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(SMALL, roles=("robin",)), folder, room=DiskSpace(folder, 2**60))
    found = {s.name: s for s in await provisioner.ensure()}
    assert "no room on disk" in found["small:test"].detail
    assert " there; " in found["robin:test"].remedy
    assert (scripted.uploads, scripted.counts["/api/create"]) == (0, 0)


# --- who waits, and who goes away


async def test_one_slow_pull_keeps_nobody_waiting(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    scripted.fail("slow", times=None, path="/api/pull")
    provisioner = Provisioner(client, profile(), folder, 1)
    run = asyncio.create_task(provisioner.ensure())
    await asyncio.wait_for(provisioner.ready("robin:test"), 90)
    assert provisioner.under_way
    del scripted.models["robin:test"]
    assert (await provisioner.heal("robin:test")).state == "created"
    assert not run.done()
    scripted.clear()
    scripted.release()
    assert all(s.ready for s in await run)
    await provisioner.settled()
    assert not provisioner.under_way


async def test_who_asked_may_go(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    scripted.fail("slow", times=1, path="/api/pull")
    provisioner = Provisioner(client, profile(SMALL, roles=()), folder)
    asked = [asyncio.create_task(provisioner.ready("other")) for _ in range(3)]
    await asyncio.to_thread(scripted.wait_for, "/api/pull", 1)
    asked[0].cancel()
    await asyncio.wait([asked[0]])
    scripted.release()
    await asyncio.wait_for(asyncio.gather(*asked[1:]), 90)
    assert scripted.counts["/api/pull"] == 1


async def test_closing_ends_the_work_and_those_who_wait(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    scripted.fail("slow", times=None, path="/api/pull")
    provisioner = Provisioner(client, profile(), folder)
    run, waiting = asyncio.create_task(provisioner.ensure()), asyncio.create_task(provisioner.ready("brick:test"))
    await asyncio.to_thread(scripted.wait_for, "/api/pull", 1)
    await provisioner.close()
    await asyncio.to_thread(scripted.wait_abandoned, 1)
    assert {s.name: s.state for s in await run}["big:8b"] == "failed"
    with pytest.raises(ProvisioningFailed, match="the daemon is stopping"):
        await waiting


async def test_only_some(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    provisioner = Provisioner(client, profile(), folder)
    assert [(s.name, s.state) for s in await provisioner.ensure(["other", "big:8b"])] == [("other:latest", "pulled"), ("big:8b", "pulled")]
    assert set(scripted.models) == {"other:latest", "big:8b"}


async def test_loopback_registries_are_asked_without_encryption(scripted: ScriptedOllama, client: AsyncClient, folder: Path) -> None:
    scripted.pullable |= {"127.0.0.1:5000/batos/m:1"}
    provisioner = Provisioner(client, profile(SMALL, roles=()), folder)
    await provisioner.ensure(["127.0.0.1:5000/batos/m:1", "other"])
    asked = {r.body["model"]: r.body["insecure"] for r in scripted.requests if r.path == "/api/pull"}
    assert asked == {"127.0.0.1:5000/batos/m:1": True, "other": False}
