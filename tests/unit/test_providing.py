"""A mission that needs what no model here can do: what it is provided with, whom it asks, what is left, and what an undo takes back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batos import preflight
from batos.app.kernel import Kernel
from batos.autotelic import changes, provided_models
from batos.bridge.capabilities import Needs
from batos.errors import InferenceFailed, InvalidInput, MissionFailed
from batos.image import journal, ledger
from batos.mind.attempt import Attempt
from batos.mind.inference import PromptTooLong
from batos.mind.model_needs import NeedModel, Provision
from batos.testing import ScriptedOllama
from batos.wire.client import Client
from tests.support.daemon import provisioned
from tests.support.missions import WAIT_S, Listened
from tests.support.own_model import CHAT, THINKING, settings
from tests.support.pictures import png

SEER, SEER_TOO = "seer:9b", "seer-too:9b"
ENTRY = 'bytes = {bytes}\nparameters = 9_000_000_000\ncontext = 32768\ncan = ["vision", "tools", "thinking"]\n'
Start = Callable[..., Awaitable[Kernel]]


@pytest.fixture
def server(scripted: ScriptedOllama, tmp_path: Path) -> ScriptedOllama:
    """An Ollama with the embedded models, and a catalogue of two that can be pulled."""
    provisioned(scripted)
    scripted.say("Take one small step and look where it led.")
    for name, size in ((SEER, 40_000_000), (SEER_TOO, 50_000_000)):
        scripted.pullable.add(name)
        made = replace(scripted.models["robin:embedded"], template=THINKING, can=("completion", "tools", "vision"))
        scripted.pulled[name] = replace(made, weights=f"{size:064x}", info=(("llama.context_length", 32_768),))
        with (tmp_path / "catalogue.toml").open("a") as catalogue:
            catalogue.write(f'[models."{name}"]\n{ENTRY.format(bytes=size)}')
    return scripted


@pytest.fixture
async def start(tmp_path: Path, server: ScriptedOllama) -> AsyncIterator[Start]:
    running: list[Kernel] = []

    async def begin(**given: Any) -> Kernel:
        for kernel in running:
            await kernel.stop()
        quiet: dict[str, Any] = {"remember": "off", "evidence_passages": 0, "profile": "embedded", "mission_attempts": 2}
        quiet["lora_staging"] = str(tmp_path / "staging")  # no expert is built meanwhile
        running[:] = [await Kernel.start(settings(tmp_path, server, **{**quiet, **given}))]
        await running[0].models_settled()
        return running[0]

    yield begin
    for kernel in running:
        await kernel.stop()


async def submit(kernel: Kernel, id: str, *needs: str, brief: str = "What is in it?", may_ask: bool = True) -> None:
    async with Client(kernel.endpoints[0]) as client:
        await client.submit(brief, id=id, persona="robin", needs=needs, may_ask=may_ask)


async def question(kernel: Kernel, id: str) -> str:
    """What a mission asks, once it does."""
    async with asyncio.timeout(WAIT_S), Client(kernel.endpoints[0]) as client:
        while (told := await client.status(id))["state"] != "NEEDS_INPUT":
            assert told["state"] not in ("COMPLETE", "FAILED"), told
            await asyncio.sleep(0.01)
        return str(told["question"]["question"])


async def answered(kernel: Kernel, id: str, text: str | None = "yes") -> dict[str, Any]:
    """The result of a mission, after its question was answered, where it has one."""
    async with Client(kernel.endpoints[0]) as client:
        if text is not None:
            await question(kernel, id)
            await client.answer(id, text)
        return await client.result(id, timeout_s=WAIT_S)


async def failed(kernel: Kernel, id: str, text: str | None = None) -> dict[str, Any]:
    """The error of a mission that FAILED."""
    with pytest.raises(MissionFailed):
        await answered(kernel, id, text)
    async with Client(kernel.endpoints[0]) as client:
        return dict((await client.status(id))["error"])


async def until(kernel: Kernel, id: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S), Client(kernel.endpoints[0]) as client:
        while (told := await client.status(id))["state"] != state:
            await asyncio.sleep(0.01)
        return dict(told)


def pulls(server: ScriptedOllama) -> list[str]:
    return [request.body["model"] for request in server.requests if request.path == "/api/pull"]


def made_for(server: ScriptedOllama) -> set[str]:
    """The models beside those that were there from the beginning."""
    return {name for name in server.models if not name.endswith(":embedded")}


def change(kernel: Kernel, number: int = 1) -> dict[str, Any]:
    return dict(kernel.image.read(changes.of, number))


async def cleared(kernel: Kernel, number: int = 1) -> dict[str, Any]:
    """What was brought about for a change, once it is gone again."""
    async with asyncio.timeout(WAIT_S):
        while not (held := kernel.image.read(provided_models.facts, number)).get("cleared"):
            await asyncio.sleep(0.01)
    return dict(held)


async def test_it_asks_pulls_tries_goes_on_and_an_undo_takes_it_back(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    heard = Listened(kernel, "m1")
    await submit(kernel, "m1", "vision", "context:16k")
    asked = await question(kernel, "m1")
    for said in (SEER, "40.0 MB", "sees images and reads 16,384 tokens at once", "smallest download", "batos changes undo"):
        assert said in asked
    assert pulls(server) == []
    result = await answered(kernel, "m1")
    assert pulls(server) == [SEER]
    assert result["usage"]["models"] == ["batos/robin:seer-9b"]
    assert (result["provided"]["model"], result["provided"]["change"], result["provided"]["num_ctx"]) == (SEER, 1, 16384)
    assert "PROVISIONING" in heard.states
    assert any(event["type"] == "provision" and event["model"] == SEER for event in heard.events)
    thought = [chat for chat in server.chats if chat["model"] == "batos/robin:seer-9b"]
    assert all(chat["options"]["num_ctx"] == 16384 for chat in thought)
    made = change(kernel)
    assert (made["state"], made["kind"], made["target"], made["content"]) == ("kept", "provide", "vision context:16384", SEER)
    assert made["comparison"]["prepared"]["by"] == "user"
    assert {f"batos/{name}:seer-9b" for name in ("robin", "brick", "babs", "alfred")} | {SEER} == made_for(server)
    async with Client(kernel.endpoints[0]) as client:
        assert (await client.status("m1"))["provided"]["state"] == "ready"
        undone = await client.undo_change(1)
        assert sorted(undone["models"]) == sorted({f"batos/{name}:seer-9b" for name in ("robin", "brick", "babs", "alfred")} | {SEER})
    assert made_for(server) == set()
    assert kernel.image.read(provided_models.standing, SEER) is None
    await submit(kernel, "m2", "vision")
    assert SEER in await question(kernel, "m2"), "asked for again, it is asked about again"


async def test_the_next_mission_thinks_with_it_and_asks_nobody(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    await submit(kernel, "m1", "vision")
    await answered(kernel, "m1")
    await submit(kernel, "m2", "vision", "tools", may_ask=False)
    result = await answered(kernel, "m2", None)
    assert (result["provided"]["model"], result["provided"]["change"]) == (SEER, 1)
    assert pulls(server) == [SEER]
    kernel = await start()
    await submit(kernel, "m3", "vision", may_ask=False)
    assert (await answered(kernel, "m3", None))["provided"]["change"] == 1
    await submit(kernel, "m4", may_ask=False)
    assert "provided" not in await answered(kernel, "m4", None), "who needs nothing thinks with what there is"
    assert server.chats[-1]["model"] == "robin:embedded"


async def test_two_missions_at_once_pull_it_once(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(autotelic="on", heartbeat_first_s=6e5, autotelic_models=SEER)
    await asyncio.gather(*(submit(kernel, f"m{n}", "vision", may_ask=False) for n in range(3)))
    results = await asyncio.gather(*(answered(kernel, f"m{n}", None) for n in range(3)))
    assert {result["provided"]["change"] for result in results} == {1}
    assert pulls(server) == [SEER]


@pytest.mark.parametrize(
    ("may_ask", "text", "said"), [(True, "no, thanks", "its user said no to"), (False, None, "it may not ask for (`--may-ask`)")]
)
async def test_without_leave_it_fails_and_names_model_size_and_command(
    start: Start, server: ScriptedOllama, may_ask: bool, text: str | None, said: str
) -> None:
    kernel = await start()
    await submit(kernel, "m1", "vision", may_ask=may_ask)
    error = await failed(kernel, "m1", text)
    assert error["code"] == "model_needed"
    assert error["context"] == {"needs": ["vision"], "model": SEER, "bytes": 40_000_000, "command": f"batos models --ensure {SEER}"}
    for words in (said, SEER, f"`batos models --ensure {SEER}` gets it", "autotelic is off"):
        assert words in error["message"]
    assert pulls(server) == []
    async with Client(kernel.endpoints[0]) as client:
        await client.models([SEER], ensure=True)
    await submit(kernel, "m2", "vision", may_ask=False)
    assert (await answered(kernel, "m2", None))["provided"]["model"] == SEER, "the command gets it"


async def test_by_itself_within_its_budget(start: Start, server: ScriptedOllama) -> None:
    own = {"autotelic": "on", "heartbeat_first_s": 6e5, "autotelic_models": SEER_TOO}
    kernel = await start(**own, loop_pull_bytes=45_000_000)
    await submit(kernel, "m1", "vision", may_ask=False)
    error = await failed(kernel, "m1")
    assert "45.0 MB are left of what it may pull in 24 hours (autonomy.pull_bytes)" in error["message"]
    assert error["context"]["model"] == SEER_TOO, "what it may pull goes before what is smaller"
    kernel = await start(**own)
    await submit(kernel, "m2", "vision", may_ask=False)
    assert (await answered(kernel, "m2", None))["provided"]["model"] == SEER_TOO
    assert change(kernel)["comparison"]["prepared"]["by"] == "itself"
    assert (await kernel.loop.budget.spent()).pull_bytes == 50_000_000, "what it is said to have is counted"
    assert (await kernel.loop.budget.spent()).changes == 1
    await kernel.undoing.undo_change(1, "I do not want it")
    await submit(kernel, "m3", "vision", may_ask=False)
    assert "its user has taken it back before" in (await failed(kernel, "m3"))["message"]


async def test_a_model_that_is_here_is_taken_unasked_and_stays_after_an_undo(start: Start, server: ScriptedOllama) -> None:
    server.models["own:8b"] = replace(server.pulled[SEER], weights=f"{77:064x}", template=CHAT)
    kernel = await start()
    await submit(kernel, "m1", "tools", may_ask=False)
    result = await answered(kernel, "m1", None)
    assert (result["provided"]["model"], result["usage"]["models"]) == ("own:8b", ["batos/robin:own-8b"])
    assert "the one model here that does" in result["provided"]["why"]
    assert change(kernel)["comparison"]["prepared"]["by"] == "here"
    async with Client(kernel.endpoints[0]) as client:
        assert "own:8b" not in (await client.undo_change(1))["models"]
    assert made_for(server) == {"own:8b"}
    assert pulls(server) == []


async def test_more_context_is_given_by_the_model_that_thinks_where_it_has_it(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    await submit(kernel, "m1", "context:6k", may_ask=False)
    result = await answered(kernel, "m1", None)
    assert (result["provided"]["model"], result["provided"]["num_ctx"]) == (None, 6144)
    assert (server.chats[-1]["model"], server.chats[-1]["options"]["num_ctx"]) == ("robin:embedded", 6144)
    assert server.chats[-1]["options"]["num_predict"] == 400
    assert kernel.image.read(changes.listed) == []
    await submit(kernel, "m2", brief="Sum it up: " + "a word " * 2000, may_ask=False)
    result = await answered(kernel, "m2", None)
    assert result["provided"]["needs"] == ["context:5120"], "a brief that does not fit is a need"


async def test_a_brief_that_does_not_fit_goes_on_without_more_context_where_none_may_be_had(start: Start, server: ScriptedOllama) -> None:
    for name in ("smollm2:embedded", "robin:embedded"):
        server.models[name] = replace(server.models[name], info=(("llama.context_length", 2048),))
    kernel = await start(autotelic="on", heartbeat_first_s=6e5)
    brief = "Sum it up: " + "a word " * 2000
    await submit(kernel, "m1", brief=brief, may_ask=False)
    result = await answered(kernel, "m1", None)
    assert "provided" not in result
    async with Client(kernel.endpoints[0]) as client:
        told = (await client.status("m1"))["provided"]
    assert (told["state"], told["needs"]) == ("declined", ["context:5120"])
    assert f"batos models --ensure {SEER}" in told["why"]
    await submit(kernel, "m2", brief=brief)
    assert SEER in await question(kernel, "m2")
    assert "provided" not in await answered(kernel, "m2", "no")
    await submit(kernel, "m3", brief=brief)
    assert (await answered(kernel, "m3"))["provided"]["model"] == SEER
    assert pulls(server) == [SEER]


async def test_a_context_that_none_here_has_is_a_need_of_another_model(start: Start, server: ScriptedOllama) -> None:
    server.models["smollm2:embedded"] = replace(server.models["smollm2:embedded"], info=(("llama.context_length", 4096),))
    server.models["robin:embedded"] = replace(server.models["robin:embedded"], info=(("llama.context_length", 4096),))
    kernel = await start()
    await submit(kernel, "m1", "context:16k")
    assert SEER in await question(kernel, "m1")


async def test_what_is_claimed_and_not_so_goes_again_and_the_next_is_asked_about(start: Start, server: ScriptedOllama) -> None:
    def is_shown(request: dict[str, Any]) -> bool:
        return request["model"] == SEER and any(message.get("images") for message in request["messages"])

    kernel = await start()
    server.fail("status_500", times=None, when=is_shown)
    await submit(kernel, "m1", "vision")
    assert SEER in await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
    assert SEER_TOO in (await question_about(kernel, "m1", SEER_TOO))
    assert change(kernel)["state"] == "refused"
    assert "is not a model that sees images" in change(kernel)["reason"]
    assert made_for(server) == set()
    result = await answered(kernel, "m1")
    assert (result["provided"]["model"], result["provided"]["change"]) == (SEER_TOO, 2)


async def question_about(kernel: Kernel, id: str, words: str) -> str:
    async with asyncio.timeout(WAIT_S):
        while words not in (asked := await question(kernel, id)):
            await asyncio.sleep(0.01)
    return asked


async def test_a_pull_that_fails_leaves_nothing_half(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.pullable.clear()
    await submit(kernel, "m1", "vision")
    error = await failed(kernel, "m1", "yes")
    assert (error["code"], error["context"]["cause"]) == ("provisioning_failed", "model_missing")
    assert (change(kernel)["state"], made_for(server)) == ("refused", set())
    await cleared(kernel)


async def test_cancelled_in_the_middle_of_the_pull(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.fail("hang", times=1, path="/api/pull")
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        await asyncio.to_thread(server.wait_for, "/api/pull")
        assert (await until(kernel, "m1", "PROVISIONING"))["running"]
        assert (await client.cancel("m1"))["error"]["code"] == "cancelled"
    await asyncio.to_thread(server.wait_abandoned)
    await cleared(kernel)
    assert (change(kernel)["state"], change(kernel)["reason"]) == ("refused", "its mission ended before it was there")
    assert made_for(server) == set()


async def test_paused_in_the_middle_of_the_pull_it_goes_on_with_the_same(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.fail("hang", times=1, path="/api/pull")
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        await asyncio.to_thread(server.wait_for, "/api/pull")
        assert (await client.pause("m1"))["state"] == "PAUSED"
        await asyncio.to_thread(server.wait_abandoned)
        assert change(kernel)["state"] == "proposed"
        await client.resume("m1")
        result = await client.result("m1", timeout_s=WAIT_S)
    assert (result["provided"]["model"], result["provided"]["change"]) == (SEER, 1)
    assert pulls(server) == [SEER, SEER]
    assert len(kernel.image.read(lambda root: root["ledger"].missions["m1"].questions)) > 0


async def test_a_deadline_ends_the_pull_too(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(autotelic="on", heartbeat_first_s=6e5, autotelic_models=SEER)
    server.fail("hang", times=1, path="/api/pull")
    async with Client(kernel.endpoints[0]) as client:
        await client.submit("What is in it?", id="m1", persona="robin", needs=["vision"], deadline_s=4)
    assert (await failed(kernel, "m1"))["code"] == "deadline"
    await asyncio.to_thread(server.wait_abandoned)
    await cleared(kernel)
    assert (await kernel.loop.budget.spent()).pull_bytes == 0, "what did not come does not count"


async def test_a_daemon_that_stops_in_the_pull_does_not_wait_for_it(start: Start, server: ScriptedOllama) -> None:
    own = {"autotelic": "on", "heartbeat_first_s": 6e5, "autotelic_models": SEER, "shutdown_s": 600}
    kernel = await start(**own)
    server.fail("hang", times=1, path="/api/pull")
    await submit(kernel, "m1", "vision", may_ask=False)
    await asyncio.to_thread(server.wait_for, "/api/pull")
    kernel = await start(**own)
    assert (await answered(kernel, "m1", None))["provided"]["change"] == 1
    assert pulls(server) == [SEER, SEER]


async def test_personas_that_speak_with_models_of_their_own_are_all_looked_at(start: Start, server: ScriptedOllama) -> None:
    server.models["deaf:8b"] = replace(server.pulled[SEER], weights=f"{78:064x}", template=CHAT, can=("completion",))
    server.models["own:8b"] = replace(server.pulled[SEER], weights=f"{77:064x}", template=CHAT)
    kernel = await start(profile="auto", model="own:8b,brick=deaf:8b")
    await submit(kernel, "m1", "tools", may_ask=False)
    result = await answered(kernel, "m1", None)
    assert (result["provided"]["model"], result["usage"]["models"]) == ("own:8b", ["batos/robin:own-8b"])
    await kernel.undoing.undo_change(1, "not so")
    assert "batos/robin:own-8b" in server.models, "what the profile in force needs stays"


async def test_other_missions_think_while_one_waits_for_its_model(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(concurrent_missions=1)
    server.fail("hang", times=1, path="/api/pull")
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        await asyncio.to_thread(server.wait_for, "/api/pull")
        await submit(kernel, "m2", may_ask=False)
        assert (await client.result("m2", timeout_s=WAIT_S))["text"]
        assert (await client.status("m1"))["state"] == "PROVISIONING"
        assert (await client.status("m1"))["attempts"] == 0, "waiting is no attempt"


async def test_its_user_takes_it_back_in_the_middle_of_the_pull(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.fail("hang", times=1, path="/api/pull")
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        await asyncio.to_thread(server.wait_for, "/api/pull")
        assert (await client.undo_change(1))["refused"]
    assert "its user has refused change 1" in (await failed(kernel, "m1"))["message"]
    await cleared(kernel)
    assert made_for(server) == set()


async def test_its_user_takes_it_back_while_it_is_tried(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    server.fail("slow", times=1, when=lambda request: request["model"] == SEER)
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        async with asyncio.timeout(WAIT_S):
            while not any(chat["model"] == SEER for chat in server.chats):
                await asyncio.sleep(0.01)
        undoing = asyncio.create_task(client.undo_change(1))
        async with asyncio.timeout(WAIT_S):
            while change(kernel)["state"] != "refused":
                await asyncio.sleep(0.01)
        server.release()
        assert SEER in (await undoing)["models"]
    assert "change 1 was taken back" in (await failed(kernel, "m1"))["message"]
    assert made_for(server) == set()


async def test_taken_back_while_a_mission_rests_it_is_not_pulled_again_for_it(start: Start, server: ScriptedOllama) -> None:
    def is_thought(request: dict[str, Any]) -> bool:
        return request["model"] == "batos/robin:seer-9b" and "What is in it?" in str(request["messages"])

    kernel = await start()
    server.fail("hang", times=1, when=is_thought)
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        await client.answer("m1", "yes")
        await until(kernel, "m1", "DECOMPOSING")
        await client.pause("m1")
        await client.undo_change(1)
        await client.resume("m1")
        told = await until(kernel, "m1", "NEEDS_INPUT")
    assert [(SEER in one["question"], one["answer"]) for one in told["questions"]] == [(True, "yes"), (False, None)]
    assert SEER_TOO in told["question"]["question"]
    assert made_for(server) == set()
    assert made_for(server) == set()


async def test_the_plan_names_what_it_needs(start: Start, server: ScriptedOllama) -> None:
    def plans(request: dict[str, Any]) -> str:
        names = request["format"]["properties"]
        return json.dumps({name: ["vision"] if name == "needs_of_the_model" else "" for name in names})

    kernel = await start()
    server.clear()
    server.say(plans, when=lambda request: isinstance(request.get("format"), dict))
    server.say("Take one small step and look where it led.")
    await submit(kernel, "m1", "auto")
    assert "sees images" in await question(kernel, "m1")
    result = await answered(kernel, "m1")
    assert result["provided"]["needs"] == ["vision"]
    assert result["usage"]["models"] == ["batos/robin:seer-9b"]


async def test_no_ollama_answers_it_is_tried_again(start: Start, server: ScriptedOllama) -> None:
    kernel = await start(mission_attempts=3)
    await submit(kernel, "m1", "vision")
    await question(kernel, "m1")
    server.fail("refuse", times=1, path="/api/pull")
    assert (await answered(kernel, "m1"))["provided"]["model"] == SEER
    assert change(kernel)["state"] == "kept"


async def test_thinking_is_asked_of_a_model_that_thinks(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    await submit(kernel, "m1", "thinking")
    await answered(kernel, "m1")
    assert server.chats[-1]["think"] is True


async def test_a_replay_comes_out_the_same(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    await submit(kernel, "m1", "vision")
    await answered(kernel, "m1")
    async with Client(kernel.endpoints[0]) as client:
        assert (await client.replay("m1"))["outcome"] == "same"


async def test_a_catalogue_that_is_none_keeps_a_daemon_from_starting(start: Start, server: ScriptedOllama, tmp_path: Path) -> None:
    (tmp_path / "catalogue.toml").write_text("[models.x]\nbytes = 1\n")
    assert [name for name, _ in preflight.refusals(settings(tmp_path, server))] == ["data"]


async def test_what_is_no_need_is_refused(start: Start) -> None:
    kernel = await start()
    with pytest.raises(InvalidInput, match="a need is vision, tools, thinking, context:TOKENS"):
        await submit(kernel, "m1", "hearing")
    with pytest.raises(InvalidInput, match="at most"):
        await submit(kernel, "m1", "context:999999999k")
    assert kernel.image.read(journal.provided_of, "m1") == {}


async def test_images_where_no_model_here_sees_are_a_need_too(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    async with Client(kernel.endpoints[0]) as client:
        await client.submit("What is in it?", id="m1", persona="robin", images=[png()], may_ask=True)
        assert "sees images" in await question(kernel, "m1")
        result = await answered(kernel, "m1")
        assert (result["provided"]["model"], result["usage"]["models"]) == (SEER, ["batos/robin:seer-9b"])
        assert server.chats[-1]["messages"][-1]["images"]
        await client.undo_change(1)
        await client.submit("What is in it?", id="m2", persona="robin", images=[png()])
        error = await failed(kernel, "m2")
    assert error["code"] == "model_blind"
    assert f"`batos models --ensure {SEER}` gets it" in error["message"]


@pytest.mark.parametrize("allowed", [False, True])
async def test_an_image_and_a_brief_that_does_not_fit_are_each_done_without(start: Start, server: ScriptedOllama, allowed: bool) -> None:
    for name in ("smollm2:embedded", "robin:embedded"):
        server.models[name] = replace(server.models[name], info=(("llama.context_length", 2048),))
    kernel = await start()
    brief = "Sum it up: " + "a word " * 2000
    async with Client(kernel.endpoints[0]) as client:
        await client.submit(brief, id="m1", persona="robin", images=[png()], may_ask=allowed)
        if allowed:
            assert "5,120 tokens" in await question(kernel, "m1")
            await client.answer("m1", "no")
            assert "sees images" in await question_about(kernel, "m1", "sees images")
            assert (await answered(kernel, "m1"))["provided"]["needs"] == ["vision"]
            assert len((await client.status("m1"))["questions"]) == 2, "what it was declined is not asked for again"
            assert kernel.image.read(journal.provided_of, "m1")["declined"] == ["context:5120"]
            return
        error = await failed(kernel, "m1")
        told = (await client.status("m1"))["provided"]
    assert error["code"] == "model_blind"
    assert f"needs a model that sees images, and none here does; it may not ask for (`--may-ask`) {SEER}" in error["message"]
    assert (told["state"], told["needs"]) == ("declined", ["vision", "context:5120"])


async def test_the_error_of_blindness_tells_why_none_that_sees_may_be_had(start: Start, server: ScriptedOllama) -> None:
    kernel = await start()
    async with Client(kernel.endpoints[0]) as client:
        await client.submit("Sum it up: " + "a word " * 2000, id="m1", persona="robin", images=[png()])
        error = await failed(kernel, "m1")
        assert (await client.status("m1"))["provided"]["needs"] == ["context:5120"], "that it was provided with"
    assert f"`batos models --ensure {SEER}` gets it" in error["message"]


@pytest.mark.parametrize(
    ("raised", "code"), [(OSError(28, "No space left on device"), "image"), (ValueError("a fault of ours"), "internal")]
)
async def test_whatever_is_raised_while_a_model_is_brought_about_fails_the_attempt(
    start: Start, server: ScriptedOllama, raised: Exception, code: str
) -> None:
    kernel = await start()

    async def had(*_: Any) -> None:
        raise raised

    assert kernel.providing is not None
    kernel.providing.choice_for = had  # type: ignore[method-assign]
    await submit(kernel, "m1", "vision")
    error = await failed(kernel, "m1")
    assert error["code"] == code
    async with Client(kernel.endpoints[0]) as client:
        told = await client.status("m1")
    assert told["attempts"] >= 1


@pytest.mark.parametrize("wider", [True, False], ids=["with another context", "without"])
async def test_what_did_not_fit_is_told_to_a_model_that_the_mission_is_provided_with_afterwards(start: Start, wider: bool) -> None:
    kernel = await start()
    await submit(kernel, "m1", may_ask=False)
    await answered(kernel, "m1", None)

    class Provides:
        async def provide(self, *_: Any, **__: Any) -> Provision:
            return Provision(Needs(tools=True), options={"num_ctx": 32_768}) if wider else Provision(declined=Needs(tools=True))

    attempt = Attempt(kernel.image.read(lambda root: ledger.record_of(root, "m1")), replace(kernel.attempt_services, provider=Provides()))
    attempt.narrow(PromptTooLong(1000, InferenceFailed("too long", cause="too_long", model="robin")))
    assert attempt.room == 700

    await attempt.provide(NeedModel(Needs(tools=True)))
    await kernel.image.system(lambda root: None)
    room = None if wider else 700
    assert (attempt.room, kernel.image.read(journal.room_of, "m1")) == (room, room)
