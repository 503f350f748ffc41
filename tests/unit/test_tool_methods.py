"""Generated methods that use tools: who may, by which names, with whose leave, once, and not in trials."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.bus import ToolCalled
from batos.errors import InvalidInput, ToolFailed
from batos.forge import lessons
from batos.guardian import PersistenceGuardian
from batos.guardian.policy import ReachableTool
from batos.image import effects, history, ledger
from batos.image.history import oid_of
from batos.image.mission_record import MissionRecord
from batos.methods import inventory
from batos.mind import messages
from batos.objects import Method
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec, Delivery, ToolCall, ToolDefinition, identifier, named
from batos.wire.schemas import UndoRequest
from tests.support.methods import give, method_of, sent, writing
from tests.support.missions import WAIT_S, FakeInference, Listened, submit
from tests.support.missions import give as give_services
from tests.support.tool_missions import allow, connected

APPEND = "def note_(self, text):\n    return self.tools.my_shop.put_in(text)['count']\n"
PUT = ToolDefinition(
    name="put-in",
    description="Put a thing into the shop.",
    parameters={"type": "object", "properties": {"thing": {"type": "string"}, "from": {"type": "string"}}, "required": ["thing"]},
)
COUNT = ToolDefinition(name="count", kind="reads", outward=False)
FAIL = ToolDefinition(name="name", kind="reads", parameters={"type": "object", "properties": {"why": {"type": "string"}}}, outward=False)


class Shop:
    """A connector whose place is a list in memory."""

    def __init__(self) -> None:
        self.things, self.sent = list[Mapping[str, Any]](), 0
        self.meanwhile: Any = None

    async def tools(self) -> Sequence[ToolDefinition]:
        return [PUT, COUNT, FAIL]

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        async def send(delivery: Delivery) -> Any:
            self.sent += 1
            if self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
            if tool is FAIL or tool.name == "name":
                raise ToolFailed(f"no {arguments['why']}", sure=False)
            if tool.name == "put-in":
                self.things.append(arguments)
            return {"count": len(self.things)}

        return ToolCall(connection="my-shop", tool=tool, arguments=arguments, send=send)

    async def close(self) -> None:
        pass


@pytest.fixture
async def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference, shop: Shop) -> AsyncIterator[Kernel]:
    async with connected(tmp_path, inference, shop, "my-shop") as kernel:
        await give(kernel, **{f"slot{number}": 0 for number in range(16)}, kept=0)  # a prompt shows sixteen: it says nothing of `kept`
        yield kernel


def message(selector: str, *args: Any, target: str = "thing", **marks: bool) -> str:
    return json.dumps({"target": target, "selector": selector, "args": list(args), "kwargs": {}, "write": True, **marks})


async def with_tools(kernel: Kernel, id: str, selector: str, *args: Any) -> dict[str, Any]:
    return await (await submit(kernel, id, f"send {selector}", message=message(selector, *args, tools=True))).end()


async def waiting(kernel: Kernel, id: str, heard: Listened) -> str:
    """The question at which a mission waits."""
    async with asyncio.timeout(WAIT_S):
        while (question := record(kernel, id).open_question) is None:
            await kernel.image.system(lambda root: None)
    return str(question["question"])


def record(kernel: Kernel, id: str) -> MissionRecord:
    return kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))  # type: ignore[no-any-return]


def done(kernel: Kernel, id: str) -> list[tuple[str, str]]:
    return [(one.tool, one.state) for one in kernel.image.read(effects.load, id)]


# --- who may


async def test_a_method_that_its_user_has_written_with_tools_calls_one_once_and_keeps_its_policy(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    asked = writing(inference, APPEND)
    ended = await with_tools(kernel, "m1", "note_", "tea")
    assert ended["state"] == "COMPLETE", ended
    assert (ended["result"]["value"], shop.things) == (1, [{"thing": "tea"}]), "its trial put nothing in"
    assert method_of(kernel, "thing", "note_")["policy"] == "default+tools"
    assert "self.tools.my_shop.put_in(thing, from?): Put a thing into the shop (acts)" in asked[0].user
    assert done(kernel, "m1") == [("my-shop.put-in", "DONE")]
    assert (await sent(kernel, "m2", "thing", "note_", "tea"))["result"]["value"] == 2, "another mission does it anew"


async def test_without_that_a_draft_that_uses_tools_is_refused(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    asked = writing(inference, APPEND, "def note_(self, text):\n    return text\n")
    ended = await sent(kernel, "m1", "thing", "note_", "tea")
    assert ended["result"]["value"] == "tea"
    assert "needs the capability 'tools', which was not granted [tools]" in asked[1].user
    assert "self.tools.my_shop" not in asked[0].user
    assert (shop.sent, method_of(kernel, "thing", "note_")["policy"]) == (0, "default")


@pytest.mark.parametrize(
    "body",
    [
        "    held = self.tools\n    return held.my_shop.put_in(text)\n",
        "    return getattr(self, 'tools').my_shop.put_in(text)\n",
        "    held = self.tools\n    return held.my_shop.call_('put-in', {'thing': text})\n",
    ],
)
async def test_a_way_round_the_audit_meets_the_same_refusal(kernel: Kernel, inference: FakeInference, shop: Shop, body: str) -> None:
    await allow(kernel)
    asked = writing(inference, f"def note_(self, text):\n{body}", "def note_(self, text):\n    return text\n")
    assert (await sent(kernel, "m1", "thing", "note_", "tea"))["result"]["value"] == "tea"
    assert "my-shop.put-in is not called: the method 'note_' has the policy default, which grants no tools" in asked[1].user
    assert shop.sent == 0


async def test_a_method_without_the_leave_gets_nothing_done_by_one_that_has_it(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    writing(inference, APPEND)
    assert (await with_tools(kernel, "m1", "note_", "tea"))["result"]["value"] == 1
    passing = "def pass_(self, text):\n    try:\n        return self.note_(text)\n    except PermissionError as e:\n        return str(e)\n"
    writing(inference, passing)
    told = (await sent(kernel, "m2", "thing", "pass_", "milk"))["result"]["value"]
    assert "the method 'pass_' has the policy default, which grants no tools" in told
    assert shop.things == [{"thing": "tea"}]
    writing(inference, passing.replace("pass_", "hand_"))
    assert (await with_tools(kernel, "m3", "hand_", "milk"))["result"]["value"] == 2


async def test_a_lesson_with_tools_is_kept_untried_where_only_a_tool_could_tell(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    writing(inference, APPEND)
    pupil = kernel.image.read(lambda root: oid_of(root["lobby"].thing))
    lesson = lessons.Lesson("m1", pupil, "note_", [{"args": ["tea"], "result": 1}], "put a thing into the shop", True)
    options = {"message": message("learn_", "note_"), **lesson.options()}
    heard = Listened(kernel, "m1")
    await kernel.scheduler.submit("m1", "teach", options, lambda root: lessons.begin(root, lesson, 16))
    assert (await heard.end())["state"] == "COMPLETE"
    assert (shop.sent, method_of(kernel, "thing", "note_")["policy"]) == (0, "default+tools")
    assert (await sent(kernel, "m2", "thing", "note_", "tea"))["result"]["value"] == 1
    await kernel.undoing.undo(UndoRequest(op="undo", id="m1"))
    writing(inference, "def note_(self, text):\n    return text\n")
    await sent(kernel, "m3", "thing", "note_", "tea")
    assert method_of(kernel, "thing", "note_")["policy"] == "default", "the leave went with the lesson"


async def test_tools_are_for_a_method_that_is_yet_to_be_written(kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, "def note_(self, text):\n    return text\n")
    await sent(kernel, "m1", "thing", "note_", "tea")

    def check(root: Any, selector: str) -> None:
        messages.check_message(root, "thing", selector, ["x"], {}, tools=True)

    for selector, what in (("note_", "by a method without tools"), ("kept", "without a method"), ("revert_", "without a method")):
        with pytest.raises(InvalidInput, match=what):
            kernel.image.read(check, selector)
    kernel.image.read(check, "other_")


# --- by which names


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("my_shpo.put_in(text)", "'my_shpo' is not a connection (did you mean 'my_shop'?)"),
        ("my_shop.put_on(text)", "'put_on' is not a tool of my_shop (did you mean 'put_in'?)"),
    ],
)
async def test_names_in_the_text_are_those_of_connections_and_tools_that_are_there(
    kernel: Kernel, inference: FakeInference, shop: Shop, call: str, words: str
) -> None:
    await allow(kernel)
    asked = writing(inference, f"def note_(self, text):\n    return self.tools.{call}\n", APPEND)
    assert (await with_tools(kernel, "m1", "note_", "tea"))["result"]["value"] == 1
    assert words in asked[1].user


async def test_a_tool_that_is_not_there_any_more_is_an_error_and_no_method(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    tried = "    try:\n        return self.tools.my_shop.put_in(text)['count']\n    except RuntimeError as e:\n        return str(e)\n"
    asked = writing(inference, f"def note_(self, text):\n{tried}")
    assert (await with_tools(kernel, "m1", "note_", "tea"))["result"]["value"] == 1
    await kernel.image.system(connections.remove, "my-shop")
    assert "'my_shop' is not a connection" in (await sent(kernel, "m2", "thing", "note_", "tea"))["result"]["value"]
    await kernel.image.system(connections.add, ConnectionSpec("my-shop", "http", "https://shop.example"), [COUNT])
    assert "'put_in' is not a tool of my-shop" in (await sent(kernel, "m3", "thing", "note_", "tea"))["result"]["value"]
    assert len(asked) == 1


async def test_arguments_go_by_name_by_position_and_by_an_alias(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)
    calls = ("put_in('a')", "put_in('b', 'c')", "put_in(thing='d', from_='e')", "put_in(**{'thing': 'f', 'from': 'g'})")
    lines = "".join(f"    self.tools.my_shop.{call}\n" for call in calls)
    writing(inference, f"def note_(self):\n{lines}    return self.tools.my_shop.count()\n")
    assert (await with_tools(kernel, "m1", "note_"))["result"]["value"] == {"count": 4}
    given = [{"thing": "a"}, {"thing": "b", "from": "c"}, {"thing": "d", "from": "e"}, {"thing": "f", "from": "g"}]
    assert shop.things == given


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("put_in('a', 'b', 'c')", "takes 2 arguments (thing, from); 3 were given"),
        ("put_in('a', thing='b')", "two values for its argument 'thing'"),
        ("put_in(3)", "is not of type 'string'"),
        ("put_in({1, 2})", "is not of type 'string'"),
        ("put_in(self)", "is not of type 'string'"),
    ],
)
async def test_arguments_that_do_not_fit_are_an_error_that_the_method_gets(
    kernel: Kernel, inference: FakeInference, shop: Shop, call: str, words: str
) -> None:
    await allow(kernel)
    source = f"def note_(self):\n    try:\n        return self.tools.my_shop.{call}\n    except RuntimeError as e:\n        return str(e)\n"
    writing(inference, source)
    assert words in (await with_tools(kernel, "m1", "note_"))["result"]["value"]
    assert shop.sent == 0


def test_names_that_methods_can_write() -> None:
    assert [identifier(name) for name in ("a-b", "a.b/c:d", "from", "plain")] == ["a_b", "a_b_c_d", "from_", "plain"]
    assert named("a_b", ["a-b", "c"]) == "a-b"
    assert named("a_b", ["a-b", "a.b"]) is None, "two could be meant"
    assert named("a_b", ["a-b", "a_b"]) == "a_b"


# --- with whose leave


async def test_what_no_grant_lets_is_asked_and_done_once(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    writing(inference, APPEND)
    heard = await submit(kernel, "m1", "send note_", message=message("note_", "tea", tools=True))
    assert "my-shop.put-in" in await waiting(kernel, "m1", heard)
    assert shop.sent == 0
    await kernel.scheduler.answer("m1", "once")
    assert (await heard.end())["result"]["value"] == 1
    assert shop.things == [{"thing": "tea"}]


async def test_a_refusal_and_a_failure_reach_the_method(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    writing(
        inference,
        "def note_(self, text):\n    told = []\n"
        "    try:\n        self.tools.my_shop.put_in(text)\n    except PermissionError as e:\n        told.append(str(e))\n"
        "    try:\n        self.tools.my_shop.name(why=text)\n    except RuntimeError as e:\n        told.append(str(e))\n"
        "    return told\n",
    )
    heard = await submit(kernel, "m1", "send note_", message=message("note_", "tea", tools=True))
    await waiting(kernel, "m1", heard)
    await kernel.scheduler.answer("m1", "no")
    refused, failed = (await heard.end())["result"]["value"]
    assert refused.startswith("my-shop.put-in is not called: ")
    assert (failed, shop.things) == ("no tea", [])


async def test_what_a_method_does_not_catch_is_the_error_of_its_mission(kernel: Kernel, inference: FakeInference) -> None:
    writing(inference, "def note_(self, text):\n    return self.tools.my_shop.name(why=text)\n")
    ended = await with_tools(kernel, "m1", "note_", "tea")
    assert (ended["state"], ended["error"]["code"]) == ("FAILED", "tool_failed")


async def test_where_nothing_may_be_done_outside_the_mission_ends_and_the_method_does_not_get_round_it(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)
    toolbox = kernel.attempt_services.toolbox
    assert toolbox is not None
    toolbox.state = toolbox.state._replace(suspended="this image is a copy")
    body = "    try:\n        return self.tools.my_shop.put_in(text)\n    except Exception:\n        return 'caught'\n"
    writing(inference, f"def note_(self, text):\n{body}")
    ended = await with_tools(kernel, "m1", "note_", "tea")
    assert (ended["state"], ended["error"]["code"], shop.sent) == ("FAILED", "tools_tied", 0)


# --- once


async def test_a_conflict_repeats_the_method_and_not_what_it_did(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await allow(kernel)

    def bump(root: Any) -> None:
        root["lobby"].thing.kept += 10

    async def meanwhile() -> None:
        await kernel.image.system(bump)

    shop.meanwhile = meanwhile
    writing(
        inference,
        "def note_(self, text):\n    first = self.tools.my_shop.put_in(text)\n    second = self.tools.my_shop.put_in(text)\n"
        "    self.kept += second['count']\n    self._p_changed = True\n    return [first['count'], self.kept]\n",
    )
    ended = await with_tools(kernel, "m1", "note_", "tea")
    assert ended["result"]["value"] == [1, 12], "it began again from what another mission had kept"
    assert shop.things == [{"thing": "tea"}] * 2
    assert done(kernel, "m1") == [("my-shop.put-in", "DONE")] * 2
    assert len(inference.asked) == 1
    assert "strays" not in ended["result"]


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_settled_under_the_gate_is_told(kernel: Kernel, inference: FakeInference, shop: Shop, fails: bool) -> None:
    """A conflict leads the method to a call that it did not make before: it is made between two replays, and watchers hear how it ended."""
    await allow(kernel)
    counted: list[ToolCalled] = []
    give_services(kernel, on_called=counted.append)

    async def meanwhile() -> None:
        await kernel.image.system(lambda root: setattr(root["lobby"].thing, "kept", 10))

    shop.meanwhile = meanwhile
    late = "name('tea')" if fails else "count()"
    writing(
        inference,
        "def note_(self, text):\n    self.tools.my_shop.put_in(text)\n    if self.kept:\n        try:\n"
        f"            self.tools.my_shop.{late}\n        except RuntimeError:\n            pass\n"
        "    self.kept += 1\n    return self.kept\n",
    )
    heard = await submit(kernel, "m1", "send note_", message=message("note_", "tea", tools=True))
    assert (await heard.end())["result"]["value"] == 11
    told = [(event["tool"].partition(".")[2], event["step"]) for event in heard.events if event["type"] == "tool"]
    last = ("name", "failed") if fails else ("count", "done")
    assert told == [("put-in", "called"), ("put-in", "done"), (last[0], "called"), last]
    assert [(one.tool.partition(".")[2], one.outcome) for one in counted] == [("put-in", "done"), last]


async def test_a_trial_is_judged_alike_when_the_journal_knows_the_answer_by_then(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    """The example is wrong about the shop: the first attempt cannot know, so a replay must not find out and write another method."""
    await allow(kernel)
    pupil = kernel.image.read(lambda root: oid_of(root["lobby"].thing))
    lesson = lessons.Lesson("t1", pupil, "note_", [{"args": ["tea"], "result": 99}], "put a thing into the shop", True)
    await kernel.image.system(lambda root: lessons.begin(root, lesson, 16))

    def bump(root: Any) -> None:
        root["lobby"].thing.kept += 10

    async def meanwhile() -> None:
        await kernel.image.system(bump)

    shop.meanwhile = meanwhile
    body = "    self.kept += self.tools.my_shop.put_in(text)['count']\n    self._p_changed = True\n    return self.kept\n"
    source = f"def note_(self, text):\n{body}"
    writing(inference, source, "def note_(self, text):\n    return 99\n")
    ended = await sent(kernel, "m1", "thing", "note_", "tea")
    assert ended["result"]["value"] == 11
    assert (len(shop.things), len(inference.asked)) == (1, 1)


# --- reach


COUNTS = "def note_(self, text):\n    return self.tools.my_shop.count()['count'] if text == 'all' else len(text)\n"
PUTS_AND_COUNTS = (
    "def note_(self, text):\n    if text == 'all':\n        self.tools.my_shop.put_in(text)\n"
    "        return self.tools.my_shop.count()['count']\n    return len(text) + 2\n"
)


async def taught(kernel: Kernel, id: str) -> Listened:
    """A lesson of `note_` with tools, under way."""
    pupil = kernel.image.read(lambda root: oid_of(root["lobby"].thing))
    lesson = lessons.Lesson(id, pupil, "note_", [{"args": ["tea"], "result": 5}], "count the things", True)
    options = {"message": message("learn_", "note_"), **lesson.options()}
    heard = Listened(kernel, id)
    await kernel.scheduler.submit(id, "teach", options, lambda root: lessons.begin(root, lesson, 16))
    return heard


async def counting(kernel: Kernel, inference: FakeInference, *later: str) -> list[ChatRequest]:
    """The method that only reads is kept, and the model then writes others."""
    await allow(kernel)
    asked = writing(inference, COUNTS, *later)
    assert (await with_tools(kernel, "m1", "note_", "tea"))["state"] == "COMPLETE"
    assert method_of(kernel, "thing", "note_")["contract"]["reaches"] == ("my-shop.count=reads",)
    return asked


SIMPLER = "def note_(self, text):\n    return len(text) + 2\n"


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_a_version_that_reaches_more_is_kept_only_if_its_user_says_so(
    kernel: Kernel, inference: FakeInference, shop: Shop, answer: str
) -> None:
    asked = await counting(kernel, inference, PUTS_AND_COUNTS)
    heard = await taught(kernel, "m2")
    question = await waiting(kernel, "m2", heard)
    assert question.startswith("May a new version of 'note_' of thing reach tools that version 1 does not: my-shop.put-in (acts)?")
    assert PUTS_AND_COUNTS.strip() in question
    assert [asked["grant"] for asked in record(kernel, "m2").questions] == [True], "an operator answers it"
    assert method_of(kernel, "thing", "note_")["version"] == 1
    await kernel.scheduler.answer("m2", answer)
    ended, method = await heard.end(), method_of(kernel, "thing", "note_")
    assert (shop.things, len(asked)) == ([], 2), "what was written before the question is not written again"
    if answer == "yes":
        assert (ended["state"], method["version"]) == ("COMPLETE", 2)
        assert method["contract"]["reaches"] == ("my-shop.count=reads", "my-shop.put-in=acts")
    else:
        assert (ended["state"], ended["error"]["code"], ended["error"]["context"]["cause"]) == ("FAILED", "method_refused", "reach")
        assert "its user said no" in ended["error"]["message"]
        assert method["version"] == 1


async def test_a_version_that_reaches_no_more_is_kept_without_a_question_and_a_revert_by_its_user_asks_nothing(
    kernel: Kernel, inference: FakeInference
) -> None:
    await counting(kernel, inference, SIMPLER)
    assert (await (await taught(kernel, "m2")).end())["state"] == "COMPLETE"
    method = method_of(kernel, "thing", "note_")
    assert (method["version"], method["contract"]["reaches"], method["policy"]) == (2, (), "default+tools")
    ended = await (await submit(kernel, "m3", "revert", message=message("revert_", "note_", 1))).end()
    assert ended["state"] == "COMPLETE", ended
    assert method_of(kernel, "thing", "note_")["contract"]["reaches"] == ("my-shop.count=reads",)


async def test_a_call_outside_of_the_contract_is_refused_when_it_is_made(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    """A connection that lies in a slot is no part of the text."""
    await allow(kernel)

    def keep(root: Any) -> None:
        root["lobby"].thing.place = root["lobby"].tools._slots["my-shop"]

    await kernel.image.system(keep)
    body = "    try:\n        return self.place.put_in(text)\n    except PermissionError as e:\n        return str(e)\n"
    writing(inference, f"def note_(self, text):\n{body}")
    told = (await with_tools(kernel, "m1", "note_", "tea"))["result"]["value"]
    assert told.startswith("my-shop.put-in is not called: the contract of the method 'note_' reaches no tool; ")
    assert shop.sent == 0


async def test_a_method_that_a_connection_holds_is_sent_as_a_tool_of_the_class_of_what_it_reaches(
    kernel: Kernel, inference: FakeInference, shop: Shop
) -> None:
    await allow(kernel)

    def hold(root: Any) -> None:
        holder, guardian, there = root["lobby"].tools._slots["my-shop"], PersistenceGuardian(), connections.reachable_tools(root)
        for selector, body in (("twice_", "self.tools.my_shop.put_in(text)"), ("how_many_", "self.tools.my_shop.count()['count']")):
            source = f"def {selector}(self, text):\n    return {body}\n"
            verdict = guardian.audit(source, selector, "default+tools", tools=there).check()
            came = {"policy": verdict.policy}
            holder._slots[selector] = made = Method(selector, source, contract=verdict.contract, provenance=came)
            made.acted = "m0"  # else its first act is a question

    await kernel.image.system(hold)
    in_loop = "def note_(self, texts):\n    for text in texts:\n        self.tools.my_shop.twice_(text)\n"
    asked = writing(inference, in_loop, in_loop.replace("in texts", "in texts[:2]") + "    return self.tools.my_shop.how_many_('x')\n")
    assert (await with_tools(kernel, "m1", "note_", ["a", "b", "c"]))["result"]["value"] == 2
    assert "my-shop.twice_ (acts) is called in a loop whose rounds no literal bounds" in asked[1].user
    reached = method_of(kernel, "thing", "note_")["contract"]["reaches"]
    assert reached == ("my-shop.how_many_=reads", "my-shop.twice_=acts")
    assert shop.things == [{"thing": "a"}, {"thing": "b"}]


async def test_a_tool_that_is_no_longer_one_that_reads_is_not_called_as_one(kernel: Kernel, inference: FakeInference, shop: Shop) -> None:
    await counting(kernel, inference)
    sent_before = shop.sent

    def change(root: Any) -> None:
        connections.remove(root, "my-shop")
        connections.add(root, ConnectionSpec("my-shop", "http", "https://shop.example"), [dataclasses.replace(COUNT, kind="acts")])

    await kernel.image.system(change)
    ended = await sent(kernel, "m2", "thing", "note_", "all")
    assert (ended["state"], ended["error"]["code"]) == ("FAILED", "grant_refused")
    assert "was audited when my-shop.count only read, and its class is acts now" in ended["error"]["message"]
    assert shop.sent == sent_before


async def test_what_a_method_reaches_is_shown(kernel: Kernel, inference: FakeInference) -> None:
    await counting(kernel, inference)

    def read(root: Any) -> tuple[Any, Any]:
        thing = root["lobby"].thing
        return history.show(thing)["slots"]["note_"], inventory.methods_held([("thing", thing)], {})

    shown, (row,) = kernel.image.read(read)
    assert shown["reaches"] == row["reaches"] == ["my-shop.count=reads"]


# --- the guardian alone


def test_the_guardian_names_what_is_missing() -> None:
    guardian, source = PersistenceGuardian(), APPEND
    (finding,) = guardian.audit(source, "note_").findings
    assert (finding.rule, finding.line) == ("tools", 2)
    there = {"my_shop": {"put_in": ReachableTool("my-shop.put-in", "acts")}}
    assert guardian.audit(source, "note_", "default+tools").accepted, "unknown connections are not checked"
    assert guardian.audit(source, "note_", "default+tools", tools=there).accepted
    assert not guardian.audit(source, "note_", "default+tools", tools={}).accepted
    (finding,) = guardian.audit(source.replace("put_in", "call_"), "note_", "default+tools", tools=there).findings
    assert "something other than a literal" in finding.reason
    assert guardian.audit(source.replace("put_in(", "call_('put_in', "), "note_", "default+tools", tools=there).accepted


def test_a_tool_with_the_name_of_a_mutator_is_a_send_and_no_write() -> None:
    verdict = PersistenceGuardian().audit("def note_(self):\n    self.tools.a.append(text='x')\n", "note_", "default+tools")
    assert verdict.accepted
    assert (verdict.contract["writes"], verdict.contract["sends"]) == ((), ("append",))


def test_an_own_slot_of_that_name_stays_a_slot() -> None:
    source = "def note_(self, text):\n    self.tools.append(text)\n    self._p_changed = True\n    return self.tools[0].upper()\n"
    assert PersistenceGuardian().audit(source, "note_").accepted


@pytest.mark.parametrize(("second", "things"), [("once", 2), ("mission", 2), ("no", 1)])
async def test_the_same_call_made_again_has_a_question_and_an_answer_of_its_own(
    kernel: Kernel, inference: FakeInference, shop: Shop, second: str, things: int
) -> None:
    writing(inference, "def note_(self, text):\n    self.tools.my_shop.put_in(text)\n    return self.tools.my_shop.put_in(text)\n")
    heard = await submit(kernel, "m1", "send note_", message=message("note_", "tea", tools=True))
    effect = (await waiting(kernel, "m1", heard)).partition("]")[0]
    question = ""
    async with asyncio.timeout(WAIT_S):
        while not question.startswith("May") or question.startswith(effect):  # its marks may change, and ask about the first one anew
            if question:
                await kernel.scheduler.answer("m1", "once")
            before = question
            while (question := await waiting(kernel, "m1", heard)) == before:
                await kernel.image.system(lambda root: None)
    assert len(shop.things) == 1
    await kernel.scheduler.answer("m1", second)
    assert (await heard.end())["state"] == ("COMPLETE" if things == 2 else "FAILED")
    assert shop.things == [{"thing": "tea"}] * things
