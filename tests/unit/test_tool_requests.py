"""Requests about tools, as the daemon answers them: connections, grants, effects, and what settles a doubt."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from batos.api.tools import EffectRequests, GrantRequests, ToolRequests
from batos.errors import InvalidInput, UnknownMission, UnknownTarget, UnknownTool
from batos.image import LivingImage, effects, history, ledger
from batos.image.effects import ACTS, DONE, IN_DOUBT, INTENDED, READS, EffectRecord
from batos.image.identity import ActingState
from batos.missions.scheduler import Scheduler
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec, ConnectorServices, ToolCall, ToolDefinition
from batos.tools.effects import HOW
from batos.tools.secrets import SecretStore
from batos.tools.toolbox import Toolbox
from batos.wire import schemas
from batos.wire.outbox import Recipient

CLIENT = cast(Recipient, None)
TOOLS = [
    ToolDefinition(name="get", kind=READS, description="Fetches it.", outward=False),
    ToolDefinition(name="post", description="Sends it. At once."),
]


class FakePlace:
    """A place whose tools the test sets."""

    offered: Sequence[ToolDefinition] = TOOLS

    def __init__(self, spec: ConnectionSpec, services: ConnectorServices) -> None:
        self.spec = spec

    async def tools(self) -> Sequence[ToolDefinition]:
        return self.offered

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        raise NotImplementedError

    async def close(self) -> None:
        """Hold nothing."""


class FakeScheduler:
    """Notes answers; `running` are the missions under way."""

    def __init__(self) -> None:
        self.answers: list[tuple[Any, ...]] = []
        self.running: set[str] = set()

    async def answer(self, id: str, text: str, number: int | None = None, *, may_grant: bool = True) -> None:
        self.answers.append((id, text, number, may_grant))

    def live(self, id: str) -> dict[str, Any]:
        return {"running": id in self.running}


class Parts:
    """The handlers over one image."""

    def __init__(self, image: LivingImage, folder: Path) -> None:
        self.image, self.scheduler, self.resumed = image, FakeScheduler(), 0
        self.secrets = SecretStore(folder / "secrets.json")
        services = ConnectorServices(secret=self.secrets.get, folder=folder)
        self.toolbox = Toolbox(image, services, ActingState("i"), FakePlace)
        self.tools, self.grants = ToolRequests(image, self.toolbox, self._resume), GrantRequests(image)
        self.effects = EffectRequests(image, cast(Scheduler, self.scheduler))

    async def _resume(self) -> None:
        self.toolbox.state = ActingState("i")
        self.resumed += 1

    async def add(self, **options: Any) -> dict[str, Any]:
        request = schemas.ToolAddRequest(op="tool_add", name="shop", kind="http", place="https://a.example", options=options)
        return await self.tools.add(request, CLIENT)

    async def listed(self, name: str | None = None) -> dict[str, Any]:
        return await self.tools.tools(schemas.ToolsRequest(op="tools", name=name), CLIENT)

    async def grant(self, verdict: Any, pattern: str, **more: Any) -> dict[str, Any]:
        request = schemas.ToolGrantRequest(op="tool_grant", verdict=verdict, pattern=pattern, **more)
        return (await self.grants.grant(request, CLIENT))["grants"][0]

    async def told(self, **more: Any) -> list[dict[str, Any]]:
        return (await self.effects.effects(schemas.EffectsRequest(op="effects", **more), CLIENT))["effects"]

    async def settle(self, key: str, how: Any) -> dict[str, Any]:
        return (await self.effects.settle(schemas.EffectSettleRequest(op="effect_settle", key=key, how=how), CLIENT))["effects"][0]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    image = await LivingImage.open(f"file://{tmp_path / 'image.fs'}", steps=(connections.install,))
    yield Parts(image, tmp_path)
    await image.close()


def effect(key: str, **fields: Any) -> EffectRecord:
    found = {"key": key, "tool": "shop.post", "kind": ACTS, "arguments": '{"n":1}', "occurrence": 0, "state": INTENDED, "at": 1.0}
    return EffectRecord(**{**found, **fields})


def doubted(root: Any, id: str, key: str, question: str = "", failed: bool = False) -> None:
    """A mission with an effect in doubt, that asks a question or has FAILED."""
    ledger.accept(root, id, "brief", {}, True)
    effects.intend(root, id, effect(key))
    effects.end(root, id, effect(key, state=IN_DOUBT, why="no answer within 60 s"))
    if question:
        ledger.ask_question(root, id, question, 0, 9, grant=True)
    if failed:
        ledger.fail(root, id, {"code": "cancelled", "message": "m"}, {}, True)


async def test_connections_tell_class_verdict_and_missing_secrets(parts: Parts) -> None:
    added = (await parts.add(headers={"Authorization": "Bearer {secret:SHOP}"}))["connections"][0]
    assert (added["missing"], added["options"]["headers"]["Authorization"]) == (["SHOP"], "Bearer {secret:SHOP}")
    parts.secrets.set("SHOP", "s3cret")
    (shop,) = (await parts.listed())["connections"]
    assert (shop["missing"], shop["open"], shop["suspended"]) == ([], False, [])
    assert [(one["name"], one["class"], one["verdict"]) for one in shop["tools"]] == [("get", READS, "allow"), ("post", ACTS, "ask")]
    await parts.grant("deny", "shop.get")
    await parts.grant("allow", "shop.post")
    assert [one["verdict"] for one in (await parts.listed())["connections"][0]["tools"]] == ["deny", "allow"]
    (tool,) = (await parts.listed("shop.post"))["connections"][0]["tools"]
    assert (tool["description"], tool["parameters"]["type"]) == ("Sends it. At once.", "object")
    for unknown in ("shap", "shop.put"):
        with pytest.raises(UnknownTool):
            await parts.listed(unknown)


@pytest.mark.parametrize(
    ("kind", "place", "details", "sends"),
    [
        ("openapi", "https://a.example/d.json", {"method": "POST", "path": "/orders", "base": "https://a.example/v1", "sent": []},
         {"method": "POST", "path": "/orders", "server": "https://a.example/v1"}),
        ("http", "https://a.example", {"method": "POST"}, {"method": "POST"}),
        ("program", "git -C '/srv/a b'", {"argv": ["log", "{count}"]}, {"argv": ["git", "-C", "/srv/a b", "log", "{count}"]}),
        ("mcp", "https://a.example/mcp", {}, {"method": "tools/call"}),
        ("folder", "/srv/notes", {}, {}),
    ],
)  # fmt: skip
async def test_a_tool_whole_tells_what_it_sends_and_how_it_answers(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, kind: str, place: str, details: dict[str, Any], sends: dict[str, Any]
) -> None:
    answer = {"type": "object", "properties": {"id": {"type": "integer"}}}
    monkeypatch.setattr(FakePlace, "offered", [ToolDefinition(name="putOrder", result=answer, details=details)])
    await parts.toolbox.add(ConnectionSpec("shop", kind, place))
    for name in ("shop.putOrder", "shop.put_order_"):
        (tool,) = (await parts.listed(name))["connections"][0]["tools"]
        assert {key: tool[key] for key in ("method", "path", "server", "argv") if key in tool} == sends
        assert (tool["name"], tool["message"], tool["result"]) == ("putOrder", "put_order_", answer)
    with pytest.raises(UnknownTool):
        await parts.listed("shop.put_ordr_")


async def test_a_message_names_a_tool_that_is_suspended_too(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    await parts.add()
    monkeypatch.setattr(FakePlace, "offered", [TOOLS[0], ToolDefinition(name="post", description="Sends it to a stranger.")])
    await parts.tools.test(schemas.ToolTestRequest(op="tool_test", name="shop"), CLIENT)
    (tool,) = (await parts.listed("shop.post_"))["connections"][0]["tools"]
    assert (tool["name"], tool["verdict"], "message" in tool) == ("post", "suspended", False)


async def test_a_large_connection_is_told_as_far_as_a_reply_has_room(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [ToolDefinition(name=f"t{number}", description="x" * 10_000) for number in range(80)]
    monkeypatch.setattr(FakePlace, "offered", many)
    (shop,) = (await parts.add())["connections"]
    assert [tool["name"] for tool in shop["tools"]] == [tool.name for tool in many]
    whole = [tool for tool in shop["tools"] if "cut" not in tool]
    assert 0 < len(whole) == len([tool for tool in shop["tools"] if "description" in tool]) < 80
    assert len(json.dumps(shop)) < 700_000
    (last,) = (await parts.listed("shop.t79"))["connections"][0]["tools"]
    assert (last["description"], "cut" in last) == ("x" * 10_000, False)


async def test_a_tool_that_changed_is_suspended_until_it_is_accepted(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    await parts.add()
    monkeypatch.setattr(FakePlace, "offered", [TOOLS[0], ToolDefinition(name="post", description="Sends it to a stranger.")])
    tested = (await parts.tools.test(schemas.ToolTestRequest(op="tool_test", name="shop"), CLIENT))["connections"][0]
    assert tested["suspended"] == ["post"]
    assert "stranger" in tested["changes"]
    (tool,) = (await parts.listed("shop.post"))["connections"][0]["tools"]
    assert tool["verdict"] == "suspended"
    accepted = (await parts.tools.accept(schemas.ToolAcceptRequest(op="tool_accept", name="shop"), CLIENT))["connections"][0]
    assert (accepted["suspended"], accepted["changes"]) == ([], "")
    left = await parts.tools.remove(schemas.ToolRemoveRequest(op="tool_remove", name="shop"), CLIENT)
    assert left["connections"] == []


async def test_an_image_that_may_not_act_says_why_until_it_is_resumed(parts: Parts) -> None:
    parts.toolbox.state = ActingState("i", "this image is a fork")
    assert (await parts.listed())["tied"] == "this image is a fork"
    assert (await parts.tools.resume(schemas.ToolsResumeRequest(op="tools_resume"), CLIENT))["tied"] == ""
    assert parts.resumed == 1


async def test_grants_are_checked_and_tell_their_use(parts: Parts) -> None:
    made = await parts.grant("allow", "shop", persona=" Robin ", args="path=/a/*", until="2h", uses=5, bytes=100)
    assert (made["pattern"], made["persona"], made["args"], made["uses"]) == ("shop.*", "robin", '{"path":"/a/*"}', 5)
    assert (made["used"], made["expired"]) == ({"uses": 0, "bytes": 0}, False)
    for wrong, error in (
        ({"pattern": "a b"}, InvalidInput), ({"args": "nonsense"}, InvalidInput), ({"until": "2001-01-01"}, InvalidInput),
        ({"mission": "gone"}, UnknownMission),
    ):  # fmt: skip
        with pytest.raises(error):
            await parts.grant("allow", **{"pattern": "shop.*", **wrong})
    listed = (await parts.grants.listed(schemas.ToolGrantsRequest(op="tool_grants"), CLIENT))["grants"]
    assert [one["number"] for one in listed] == [made["number"]]
    removing = schemas.ToolUngrantRequest(op="tool_ungrant", number=made["number"])
    assert (await parts.grants.ungrant(removing, CLIENT))["grants"] == []
    with pytest.raises(InvalidInput):
        await parts.grants.ungrant(removing, CLIENT)


async def test_a_grant_says_what_of_it_fits_nothing(parts: Parts) -> None:
    await parts.add()

    async def hints(pattern: str, **more: Any) -> list[str]:
        request = schemas.ToolGrantRequest(op="tool_grant", verdict="deny", pattern=pattern, **more)
        return (await parts.grants.grant(request, CLIENT)).get("hints", [])

    tool = (await parts.listed())["connections"][0]["tools"][0]["name"]
    for pattern in ("shop.*", "*", f"shop.{tool}"):
        assert await hints(pattern, args='{"*": true}') == []
    assert await hints(f"shop.{tool}x") == [f"no connection has a tool 'shop.{tool}x' now (did you mean 'shop.{tool}'?)"]
    assert await hints("shopp.*") == ["no connection has a tool 'shopp.*' now (did you mean 'shop.*'?)"]
    assert await hints("shop.*", args="pthx=a") == ["shop.* takes no argument 'pthx'"]
    assert await hints("shop.*", persona="robbin") == ["there is no persona 'robbin'"]


async def test_effects_are_told_of_all_missions_of_one_and_in_doubt(parts: Parts) -> None:
    def put(root: Any) -> None:
        ledger.accept(root, "m1", "brief", {}, True)
        effects.intend(root, "m1", effect("a" * 32))
        effects.end(root, "m1", effect("a" * 32, state=DONE, result='"sold"', arguments='{"n":"' + "x" * 1000 + '"}'))
        effects.end(root, "m1", effect("b" * 32, kind=READS, tool="shop.get", state=DONE, result='"seen"'))
        doubted(root, "m2", "c" * 32)

    await parts.image.system(put)
    assert [(one["mission"], one["key"][0]) for one in await parts.told()] == [("m2", "c"), ("m1", "a")]
    assert [one["tool"] for one in await parts.told(mission="m1")] == ["shop.post", "shop.get"]
    assert (await parts.told())[1]["arguments"].endswith("…")
    assert (await parts.told(mission="m1"))[0]["arguments"] == {"n": "x" * 1000}
    assert [one["key"][0] for one in await parts.told(doubt=True)] == ["c"]
    assert await parts.told(mission="m1", doubt=True) == []
    with pytest.raises(UnknownMission):
        await parts.told(mission="gone")


async def test_a_doubt_that_its_mission_asks_about_is_settled_by_the_answer(parts: Parts) -> None:
    key = "d" * 32
    question = f'shop.post {{"n":1}} was cut off (no answer) and may have happened [{key[:8]}]. Say {HOW}.'
    await parts.image.system(doubted, "m1", key, question)
    assert (await parts.settle("dddd", "again"))["settled"] == "again"
    assert parts.scheduler.answers == [("m1", "again", 1, True)]
    assert [one["state"] for one in await parts.told(doubt=True)] == [IN_DOUBT], "its mission settles it"


async def test_another_question_is_not_answered_by_a_settlement(parts: Parts) -> None:
    await parts.image.system(doubted, "m1", "d" * 32, f"May it? The payload says: may have happened [{'d' * 8}]. Say {HOW}. Or not?")
    assert (await parts.settle("d" * 32, "happened"))["state"] == "SETTLED"
    assert parts.scheduler.answers == []
    assert await parts.told(doubt=True) == []


async def test_what_cannot_be_settled_says_why(parts: Parts) -> None:
    await parts.image.system(doubted, "m1", "d" * 32)
    await parts.image.system(doubted, "m2", "da" * 16, "", True)
    for key, how, says in (("eeee", "leave", "no effect of the key 'eeee' is in doubt"), ("dada", "again", "does nothing again")):
        with pytest.raises(InvalidInput, match=says):
            await parts.settle(key, how)
    parts.scheduler.running.add("m1")
    with pytest.raises(InvalidInput, match="is at the effect dddddddd now"):
        await parts.settle("dddd", "leave")
    parts.scheduler.running.clear()
    assert (await parts.settle("dada", "happened"))["state"] == "SETTLED"
    assert (await parts.settle("dddd", "again"))["why"].startswith("again")
    assert [one["mission"] for one in await parts.told(doubt=True)] == ["m1"], "its next attempt does it"


async def test_a_path_to_a_connection_that_is_not_there_says_how_one_is_made(parts: Parts) -> None:
    for names, told in (((), "there are none"), (("shop",), "there are: shop")):
        for name in names:
            await parts.image.system(connections.add, ConnectionSpec(name, "http", "https://shop.example"), TOOLS)
        with parts.image.snapshot() as root, pytest.raises(UnknownTarget) as caught:
            history.resolve(root, "tools.nope")
        assert caught.value.message == f"no object 'nope' on the path 'tools.nope'; `batos tools add nope` connects one; {told}"
    with parts.image.snapshot() as root, pytest.raises(UnknownTarget) as caught:
        history.resolve(root, "tools.shop.nope")
    assert "tools add" not in caught.value.message
    with (
        parts.image.snapshot() as root,
        pytest.raises(UnknownTarget, match=r"on the path 'shop'; that connection is tools\.shop; there are: "),
    ):
        history.resolve(root, "shop")
