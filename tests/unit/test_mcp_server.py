"""The MCP server at the doors: its tools, missions that are waited for and asked about, both eras of the protocol, and its bounds."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.config import Settings
from batos.console.api_client import Asker
from batos.doors.access import DoorLimits
from batos.doors.mcp_tools import FORMS, covers
from batos.errors import InferenceFailed
from tests.support.doors import chat_client, door_token, kernel_with_doors
from tests.support.mcp_clients import ERAS, AnsweringUser, called, kernel_client, refused, text_of
from tests.support.missions import WAIT_S, FakeInference, answer

TEA = "Which tea shall I drink in the evening?"
TABLE = "Help me to find a restaurant for Friday"
ANSWER = "Take one small step and look where it led."
ASKS = "At what time, and where?"
in_both_eras = pytest.mark.parametrize("era", ERAS)


@pytest.fixture
def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
def asking(inference: FakeInference) -> FakeInference:
    """A model whose plans lack something, and whose answer repeats what its user said."""

    def say(request: ChatRequest) -> str:
        if request.schema is None:
            return f"Noted: {'by the window' if 'by the window' in str(request) else 'nothing'}."
        asks = {"question_to_the_user": ASKS} if "question_to_the_user" in request.schema["properties"] else {}
        return json.dumps({**json.loads(answer(request)), **asks})

    inference.say = say
    return inference


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path, inference) as kernel:
        yield kernel


async def listed(kernel: Kernel) -> list[dict[str, Any]]:
    return list((await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False))["missions"])


# --- tools


@in_both_eras
async def test_the_tools_have_schemas_and_say_the_worst_that_they_may_do(kernel: Kernel, era: str) -> None:
    async with kernel_client(kernel, era) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
    assert list(tools) == ["submit", "result", "answer", "missions", "search", "remember", "send"]
    hints = {}
    for name, tool in tools.items():
        for schema in (tool.input_schema, tool.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
        told = tool.annotations
        assert told is not None
        hints[name] = (told.read_only_hint, told.destructive_hint, told.idempotent_hint, told.open_world_hint)
    looks = (True, False, True, False)
    assert hints == {
        "submit": (False, True, True, True), "result": looks, "answer": (False, True, True, True), "missions": looks, "search": looks,
        "remember": (False, False, True, False), "send": (False, True, False, True),
    }  # fmt: skip


@in_both_eras
async def test_a_mission_is_given_and_its_answer_is_told(kernel: Kernel, inference: FakeInference, era: str) -> None:
    async with kernel_client(kernel, era) as client:
        result = await client.call_tool("submit", {"brief": TEA, "key": "tea"})
        assert (text_of(result), result.is_error) == (ANSWER, False)
        jsonschema.validate(result.structured_content, FORMS["submit"].output_schema)
        told = result.structured_content
        assert (told["state"], told["text"]) == ("COMPLETE", ANSWER)
        assert await called(client, "submit", brief=TEA, key="tea") == told, "the same key again"
        assert (await called(client, "result", id=told["id"]))["text"] == ANSWER
        assert "id_taken" in await refused(client, "submit", brief="Something else", key="tea")
        assert (await called(client, "submit", brief=TEA, key="other"))["id"] != told["id"]
        (row, _) = sorted((await called(client, "missions"))["missions"], key=lambda one: one["accepted"])
    assert (row["id"], row["brief"], row["state"]) == (told["id"], TEA, "COMPLETE")
    assert len(inference.asked) == len(await listed(kernel)) == 2


async def test_what_a_call_may_have_besides(kernel: Kernel) -> None:
    schema = {"type": "object", "properties": {"tea": {"type": "string"}}, "required": ["tea"]}
    async with kernel_client(kernel, ERAS[0]) as client:
        told = await called(client, "submit", brief=TEA, answer_schema=schema, persona="robin")
        assert (told["value"], told["persona"].lower()) == ({"tea": "what of tea"}, "robin")
        after = await called(client, "submit", brief="And in the morning?", context=told["id"])
        assert "there are" in await refused(client, "submit", brief=TEA, persona="nobody")
        assert "`foo` of submit" in await refused(client, "submit", brief=TEA, foo=1)
        assert "`brief` of submit" in await refused(client, "submit")
        assert "is empty" in await refused(client, "submit", brief="   ")
        assert "unknown_mission" in await refused(client, "result", id="nobody")
        with pytest.raises(MCPError, match="there is no tool 'sing'"):
            await client.call_tool("sing", {})
    assert [one["context"] for one in await listed(kernel) if one["id"] == after["id"]] == [told["id"]]


async def test_without_a_key_the_same_brief_is_the_same_mission_for_some_time(tmp_path: Path, inference: FakeInference) -> None:
    async with kernel_with_doors(tmp_path, inference) as kernel, kernel_client(kernel, ERAS[0]) as client:
        first, second = [(await called(client, "submit", brief=TEA))["id"] for _ in range(2)]
        other = (await called(client, "submit", brief=TEA, persona="robin"))["id"]
        assert first == second != other
        inference.fail_when = lambda request: InferenceFailed("the model is broken", cause="bad_request", model=request.model)
        failed = await client.call_tool("submit", {"brief": TABLE})
        assert failed.is_error
        assert failed.structured_content["error"]["code"] == "inference_failed"
        inference.fail_when = lambda request: None
        assert (await called(client, "submit", brief=TABLE))["id"] == f"{failed.structured_content['id']}-2", "what failed is tried anew"


async def test_after_that_time_it_is_another_mission(tmp_path: Path, inference: FakeInference) -> None:
    limits = (DoorLimits(repeat_s=0),)
    async with kernel_with_doors(tmp_path, inference, limits=limits) as kernel, kernel_client(kernel, ERAS[0]) as client:
        ids = [(await called(client, "submit", brief=TEA))["id"] for _ in range(9)]
    assert ids == [ids[0], *(f"{ids[0]}-{n}" for n in range(2, 10))]


@in_both_eras
async def test_who_does_not_wait_asks_again_later(kernel: Kernel, inference: FakeInference, era: str) -> None:
    inference.hold()
    async with kernel_client(kernel, era) as client:
        result = await client.call_tool("submit", {"brief": TEA, "wait_s": 0})
        told = result.structured_content
        assert told["state"] not in ("COMPLETE", "FAILED")
        assert "Call `result`" in text_of(result)
        again = await called(client, "result", id=told["id"], wait_s=0.05)
        assert again["state"] not in ("COMPLETE", "FAILED")
        inference.release()
        assert (await called(client, "result", id=told["id"]))["text"] == ANSWER


@in_both_eras
async def test_progress_is_told_to_whom_asks_for_it(tmp_path: Path, inference: FakeInference, era: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, message))
        if heard.count((done, message)) and len(heard) > 8:
            inference.release()

    inference.hold()
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(beat_s=0.05),)) as kernel, kernel_client(kernel, era) as client:
        result = await client.call_tool("submit", {"brief": TEA}, progress_callback=progress)
    assert text_of(result) == ANSWER
    assert [done for done, _ in heard] == [float(n) for n in range(1, len(heard) + 1)]
    said = [str(message) for _, message in heard]
    assert any(one.startswith("DELEGATING") for one in said)
    assert len(said) > len(set(said)), "it beats while nothing happens"


async def test_memory_is_written_and_searched(kernel: Kernel) -> None:
    async with kernel_client(kernel, ERAS[0]) as client:
        result = await client.call_tool("remember", {"text": "The key is under the stone.", "title": "Keys"})
        assert (text_of(result), result.structured_content["state"]) == ("It is remembered.", "COMPLETE")
        await called(client, "remember", text="The key is under the stone.")
        found = await client.call_tool("search", {"question": "Where is the key?"})
        assert [one["text"] for one in found.structured_content["passages"]] == ["The key is under the stone."]
        assert found.structured_content["passages"][0]["origin"] == "user", "the client's user said it"
        assert "Keys" in text_of(found)
        nothing = await client.call_tool("search", {"question": "Where is the key?", "source": "/nowhere"})
        assert text_of(nothing) == "The memory has nothing about it."
        far = await client.call_tool("search", {"question": "Who won the chess tournament in Zagreb?"})
        assert not far.structured_content["fits"]
        assert text_of(far).startswith(("Nothing fits well; the nearest:", "The memory has nothing"))
        cited = await client.call_tool("submit", {"brief": "Where is the key?"})
        assert "is not a valid day" in await refused(client, "search", question="key", since="yesterday")
    assert cited.structured_content["citations"][0]["title"] == "Keys"
    assert "[1] Keys" in text_of(cited)


# --- messages to objects


def test_a_pattern_names_an_object_by_its_path_and_messages_with_stars() -> None:
    assert covers("tools.shop.list_*", "tools.shop", "list_orders_")
    assert covers("tools.shop.list_*", "lobby.tools.shop", "list_orders_")
    assert covers("lobby.robin.*", "robin", "add_")
    assert not covers("tools.shop.list_*", "tools.shop", "order_")
    assert not covers("robin.*", "robin.friend", "add_"), "a path that leads on is another object"
    assert not covers("robin.*", "oid:d", "add_")
    assert not covers("tools.shop.list_", "tools.shop", "list_orders_")
    assert not covers("robin.*", "robin", "grant_"), "what changes methods is named in full"
    assert covers("robin.grant_", "robin", "grant_")


@pytest.mark.parametrize("wrong", ["robin", "*.add_", "robin.*.add_", "robin..add_", "robin.add_ .", ".add_", "robin.", "robin.add-"])
def test_a_pattern_that_names_no_message_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(ValueError, match="is not a message to an object"):
        Settings(data=tmp_path, doors={"send": (wrong,)})


async def test_messages_go_only_to_what_the_user_named(tmp_path: Path, inference: FakeInference) -> None:
    async with kernel_with_doors(tmp_path / "a", inference) as kernel, kernel_client(kernel, ERAS[0]) as client:
        assert "doors.send" in await refused(client, "send", target="memory", message="remember_", args=["A text"])
        assert "None is named" in next(one.description or "" for one in (await client.list_tools()).tools if one.name == "send")
        assert await listed(kernel) == []
    named = kernel_with_doors(tmp_path / "b", inference, doors_send="memory.remember_ robin.de*")
    async with named as kernel, kernel_client(kernel, ERAS[0]) as client:
        tool = next(one for one in (await client.list_tools()).tools if one.name == "send")
        assert "memory.remember_, robin.de*" in (tool.description or "")
        told = await called(client, "send", target="memory", message="remember_", args=["A text"], key="once")
        assert told == await called(client, "send", target="memory", message="remember_", args=["A text"], key="once")
        assert "it named memory.remember_" in await refused(client, "send", target="memory", message="forget_", args=[1])
        assert "invalid" in await refused(client, "send", target="memory", message="remember_", args=[1, 2, 3, 4])
        twice = [(await called(client, "send", target="memory", message="remember_", args=["Another"]))["id"] for _ in range(2)]
        assert len(set(twice)) == 2, "without a key each call sends it once more"


# --- questions


@in_both_eras
async def test_a_question_is_told_where_the_client_cannot_ask(tmp_path: Path, asking: FakeInference, era: str) -> None:
    async with kernel_with_doors(tmp_path, asking) as kernel, kernel_client(kernel, era) as client:
        result = await client.call_tool("submit", {"brief": TABLE, "may_ask": True})
        told = result.structured_content
        assert (told["state"], told["question"]) == ("NEEDS_INPUT", {"number": 1, "question": ASKS})
        assert ASKS in text_of(result)
        assert (await called(client, "result", id=told["id"]))["question"] == told["question"]
        assert "no question 7" in await refused(client, "answer", id=told["id"], text="At eight", number=7)
        answered = await called(client, "answer", id=told["id"], text="At eight, by the window", number=1)
        assert (answered["id"], answered["text"]) == (told["id"], "Noted: by the window.")
        assert (await called(client, "answer", id=told["id"], text="At eight, by the window"))["text"] == "Noted: by the window."


@in_both_eras
async def test_a_question_goes_to_the_clients_user(tmp_path: Path, asking: FakeInference, era: str) -> None:
    user = AnsweringUser("At eight, by the window")
    async with kernel_with_doors(tmp_path, asking) as kernel, kernel_client(kernel, era, elicitation_callback=user) as client:
        told = await called(client, "submit", brief=TABLE, may_ask=True)
        assert (user.asked, told["text"]) == ([ASKS], "Noted: by the window.")
        assert len(await listed(kernel)) == 1
        assert (await called(client, "submit", brief=TABLE, may_ask=True))["id"] == told["id"]


@in_both_eras
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_who_gives_no_answer_leaves_the_mission_waiting(tmp_path: Path, asking: FakeInference, era: str, action: Any) -> None:
    user = AnsweringUser(ElicitResult(action=action), ElicitResult(action="accept", content={"answer": "There, by the window"}))
    async with kernel_with_doors(tmp_path, asking) as kernel, kernel_client(kernel, era, elicitation_callback=user) as client:
        told = await called(client, "submit", brief=TABLE, may_ask=True, key="table")
        assert (told["state"], told["question"]["question"]) == ("NEEDS_INPUT", ASKS)
        assert (await called(client, "result", id=told["id"]))["text"] == "Noted: by the window."
        assert user.asked == [ASKS, ASKS]


async def test_a_question_that_is_answered_elsewhere_is_asked_no_longer(tmp_path: Path, asking: FakeInference) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def user(context: Any, params: Any) -> ElicitResult:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError("nobody answers here")

    async with kernel_with_doors(tmp_path, asking) as kernel, kernel_client(kernel, "legacy", elicitation_callback=user) as client:
        call = asyncio.create_task(called(client, "submit", brief=TABLE, may_ask=True))
        async with asyncio.timeout(WAIT_S):
            await asked.wait()
            (mission,) = await listed(kernel)
            await Asker(kernel.transport.dispatcher, kernel.settings).ask("answer", id=mission["id"], text="There, by the window")
            assert (await call)["text"] == "Noted: by the window."
            await left.wait()


async def test_a_round_may_come_again_after_the_answer(tmp_path: Path, asking: FakeInference) -> None:
    """A client of the era without sessions that lost the last reply sends the round again."""
    async with (
        kernel_with_doors(tmp_path, asking) as kernel,
        kernel_client(kernel, ERAS[0], elicitation_callback=AnsweringUser()) as client,
    ):
        arguments = {"brief": TABLE, "may_ask": True}
        first = await client.session.call_tool("submit", arguments, allow_input_required=True)
        assert first.result_type == "input_required"
        said: Any = {name: ElicitResult(action="accept", content={"answer": "There, by the window"}) for name in first.input_requests or {}}
        for _ in range(2):
            last = await client.session.call_tool(
                "submit", arguments, input_responses=said, request_state=first.request_state, allow_input_required=True
            )
            assert last.structured_content["text"] == "Noted: by the window."
        other = await client.session.call_tool("submit", {"brief": TEA}, request_state=first.request_state, allow_input_required=True)
        assert other.is_error, "a state of another call"
        made_up = await client.session.call_tool("submit", {"brief": TEA}, request_state="mine", allow_input_required=True)
        assert made_up.is_error
        assert len(await listed(kernel)) == 1


# --- who leaves, and who stops


@in_both_eras
async def test_a_call_that_is_cancelled_ends_waiting_not_the_mission(kernel: Kernel, inference: FakeInference, era: str) -> None:
    inference.hold()
    async with kernel_client(kernel, era) as client:
        call = asyncio.create_task(client.call_tool("submit", {"brief": TEA, "key": "tea"}))
        await inference.came(1)
        watches = kernel.transport.missions.watches
        assert len(watches) == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(WAIT_S):
            while len(watches):
                await asyncio.sleep(0)
        inference.release()
        assert (await called(client, "submit", brief=TEA, key="tea"))["text"] == ANSWER
    assert len(inference.asked) == 1


@in_both_eras
async def test_a_stop_tells_who_waits_to_call_again(tmp_path: Path, inference: FakeInference, era: str) -> None:
    inference.hold()
    async with kernel_with_doors(tmp_path, inference) as kernel, kernel_client(kernel, era) as client:
        call = asyncio.create_task(refused(client, "submit", brief=TEA, key="tea"))
        await inference.came(1)
        stopping = asyncio.create_task(kernel.doors.stop())  # type: ignore[union-attr]
        async with asyncio.timeout(WAIT_S):
            assert "make the same call again" in await call
            await stopping
        inference.release()


async def test_sessions_are_bounded_and_end_when_nobody_uses_them(tmp_path: Path) -> None:
    accept = {"Accept": "application/json, text/event-stream"}
    limits = (DoorLimits(mcp_sessions=2, mcp_session_s=0.5),)
    async with kernel_with_doors(tmp_path, limits=limits) as kernel, chat_client(kernel, **accept) as client:
        replies = [await client.post("/mcp", json=_BEGIN) for _ in range(3)]
        assert [one.status_code for one in replies] == [200, 200, 503]
        ended = {"Mcp-Session-Id": replies[0].headers["mcp-session-id"]}
        async with asyncio.timeout(WAIT_S):
            while (reply := await client.post("/mcp", json=_BEGIN)).status_code == 503:
                await asyncio.sleep(0.05)
        assert reply.status_code == 200
        gone = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=ended)
        assert gone.status_code == 404


# --- access, and what strangers send


async def test_it_is_admitted_as_the_other_interfaces_are(kernel: Kernel) -> None:
    assert kernel.doors is not None
    address, token = kernel.doors.address, door_token(kernel)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
        for method in ("POST", "GET", "DELETE"):
            assert (await client.request(method, "/mcp", json=ping)).status_code == 401
            assert (await client.request(method, "/mcp", json=ping, headers={"Authorization": "Bearer wrong"})).status_code == 401
            given = {"Authorization": f"Bearer {token}"}
            assert (await client.request(method, "/mcp", json=ping, headers={**given, "Host": "evil.example"})).status_code == 421
            assert (await client.request(method, "/mcp", json=ping, headers={**given, "Origin": "https://evil.example"})).status_code == 403
        by_path = await client.post(f"/token/{token}/mcp/", json=ping)
        assert by_path.json()["jsonrpc"] == "2.0", "it came as far as the protocol"
        assert (await client.put("/mcp", headers={"Authorization": f"Bearer {token}"})).status_code == 405


async def test_without_the_sdk_the_path_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)
    async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel) as client:
        for _ in range(2):
            reply = await client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert (reply.status_code, "pip install 'batos[mcp]'" in reply.text) == (501, True)
        assert (await client.get("/v1/models")).status_code == 200


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
_METHODS = ["initialize", "tools/list", "tools/call", "ping", "server/discover", "resources/list", "notifications/cancelled", "x"]
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
_CALL = st.fixed_dictionaries(
    {
        "name": st.sampled_from([*FORMS, "x"]),
        "arguments": st.dictionaries(st.sampled_from(["brief", "id", "key", "wait_s", "text"]), _JSON),
    },
    optional={"_meta": st.just(_META) | _JSON, "inputResponses": _JSON, "requestState": _JSON},
)
_BODY = st.one_of(
    st.binary(max_size=60),
    _JSON.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries(
        {"jsonrpc": st.just("2.0"), "method": st.sampled_from(_METHODS), "params": _CALL | _JSON},
        optional={"id": st.integers() | st.text(max_size=5) | _JSON},
    ).map(lambda value: json.dumps(value).encode()),
    st.integers(1, 3000).map(lambda depth: b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * depth + b"]" * depth + b"}"),
)


_BEGIN = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


@pytest.mark.parametrize("in_session", [False, True])
def test_no_body_is_an_error_of_the_server(tmp_path: Path, in_session: bool) -> None:
    statuses: set[int] = set()

    async def all_of_them() -> None:
        accept = "application/json, text/event-stream"
        async with kernel_with_doors(tmp_path) as kernel, chat_client(kernel, Accept=accept) as client:
            loop = asyncio.get_running_loop()
            session: dict[str, str] = {}

            async def begun() -> dict[str, str]:
                """The headers of a session; a body may have ended the one before."""
                if not session:
                    reply = await client.post("/mcp", json=_BEGIN)
                    session["Mcp-Session-Id"] = reply.headers["mcp-session-id"]
                    await client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
                return session

            async def one(body: bytes, version: str | None, method: str) -> None:
                headers = {"Content-Type": "application/json", **(await begun() if in_session else {})}
                if version is not None and not in_session:
                    headers |= {"MCP-Protocol-Version": version, "Mcp-Method": method}
                try:
                    reply = await client.post(
                        "/mcp", content=body, headers=headers, timeout=httpx.Timeout(WAIT_S, read=1 if in_session else WAIT_S)
                    )
                except httpx.ReadTimeout:
                    return  # a stream of a call that waits for a mission
                statuses.add(reply.status_code)
                assert reply.status_code < 500, (body, version, reply.text)
                if reply.status_code == 404:
                    session.clear()

            @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
            @given(_BODY, st.sampled_from([None, "2025-06-18", "2026-07-28", "1999-01-01"]), st.sampled_from(_METHODS))
            def each(body: bytes, version: str | None, method: str) -> None:
                asyncio.run_coroutine_threadsafe(one(body, version, method), loop).result(WAIT_S)

            await asyncio.to_thread(each)

    asyncio.run(all_of_them())
    assert {200, 400} <= statuses, "some came as far as the tools"
