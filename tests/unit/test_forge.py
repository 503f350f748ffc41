"""What nobody understands is written: synthesis, audit, trials, installing, versions; on a scripted model, in the real sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.errors import BatosError, InvalidInput, MissionIdTaken
from batos.forge import lessons, method_prompts, versions
from batos.image import ledger, model_registry, taught_examples
from batos.methods.runtime import Making
from batos.objects import Intent, Method, Primitive, UvmObject
from batos.wire import Client
from tests.support.methods import ADD, give, method_of, sent, writing
from tests.support.missions import WAIT_S, FakeInference, Listened, mind, settings, submit

COUNT = "def count_(self, number):\n    self.total = self.total + number\n    self._p_changed = True\n    return self.total\n"


async def test_a_message_that_nobody_understands_is_written_kept_and_answered(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", "add_", 2, 3)
        assert end["state"] == "COMPLETE", end
        assert end["result"]["value"] == 5
        assert end["result"]["wrote"][0]["selector"] == "add_"
        (request,) = asked
        for words in ("Object: thing. I am a thing for tests.", "Write: def add_(self, number, number2):", "Called with: 2, 3"):
            assert words in request.user
        kept = method_of(kernel, "thing", "add_")
        assert (kept["version"], kept["mission"], kept["tries"], kept["policy"]) == (1, "m1", 1, "default")
        assert kept["contract"]["writes"] == ()
        assert (await sent(kernel, "m2", "thing", "add_", 20, 30))["result"]["value"] == 50
        assert len(asked) == 1
    async with mind(tmp_path, inference) as kernel:
        assert (await sent(kernel, "m3", "thing", "add_", 1, 1))["result"]["value"] == 2
        assert len(asked) == 1


async def test_an_expert_that_is_being_built_after_a_start_is_waited_for(tmp_path: Path) -> None:
    """Else the first message of a new image is left to a voice that cannot write methods."""
    inference, known = FakeInference(), asyncio.Event()
    inference.say, looked = (lambda request: ADD), asyncio.Event()
    expert = {"model": "brick:writer-v1", "persona": "brick", "expert": "writer", "version": 1, "base": "brick:embedded", "content": "c",
              "folder": "writer", "role": "methods"}  # fmt: skip

    async def writers_known() -> None:
        looked.set()
        await known.wait()

    async with mind(tmp_path, inference) as kernel:
        kernel.methods.writers_known = writers_known
        await kernel.image.system(model_registry.begin_experts, {"brick": "brick:embedded"})
        await give(kernel)
        message = json.dumps({"target": "thing", "selector": "add_", "args": [2, 3], "kwargs": {}})
        first = await submit(kernel, "m1", "send thing add_", message=message)
        await asyncio.wait_for(looked.wait(), WAIT_S)
        assert not inference.asked
        await kernel.image.system(model_registry.intend_expert, expert)
        await kernel.image.system(model_registry.note_built, expert["model"], "d", "r", "adapter", "")
        known.set()
        end = await first.end()
        assert (end["state"], end["result"]["value"]) == ("COMPLETE", 5)
        assert {(one.model, one.system) for one in inference.asked} == {("brick:writer-v1", method_prompts.COMPACT_SYSTEM)}


async def test_where_no_expert_came_the_writers_own_voice_writes(tmp_path: Path) -> None:
    inference, looks = FakeInference(), 0
    asked = writing(inference, ADD)

    async def writers_known() -> None:
        nonlocal looks
        looks += 1

    async with mind(tmp_path, inference) as kernel:
        kernel.methods.writers_known = writers_known
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["result"]["value"] == 5
        assert (await sent(kernel, "m2", "thing", "plus_", 2, 3))["result"]["value"] == 5
        assert (looks, len(asked)) == (1, 2)


async def test_a_method_that_writes_writes_in_the_missions_transaction_and_a_trial_writes_nothing(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, COUNT)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, total=10)
        assert (await sent(kernel, "m1", "thing", "count_", 5))["result"]["value"] == 15
        assert kernel.image.read(lambda root: root["lobby"].thing.total) == 15
        assert (await sent(kernel, "m2", "thing", "count_", 5))["result"]["value"] == 20


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("def count_(self, number):\n    self.total = self.total + number\n    return self.total\n", None),  # mended without the model
        ("def count_(self, number):\n    import os\n    return os.getcwd()\n", "os"),
        ("def count_(self):\n    return 1\n", "called with 1 arguments"),
        ("def count_(self, number):\n    return self.totals.missing + number\n", "failed"),
        ("I cannot write that.", "def"),
    ],
    ids=["flag", "import", "arguments", "trial", "prose"],
)
async def test_what_is_refused_goes_back_with_the_reason(tmp_path: Path, bad: str, reason: str | None) -> None:
    inference = FakeInference()
    asked = writing(inference, bad, COUNT)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, total=1)
        end = await sent(kernel, "m1", "thing", "count_", 5)
        assert end["state"] == "COMPLETE", end
        assert end["result"]["value"] == 6
        if reason is None:
            assert len(asked) == 1
            assert method_of(kernel, "thing", "count_")["repairs"]
            return
        assert len(asked) == 2
        assert "It cannot be kept:" in asked[1].user
        assert reason in asked[1].user.split("It cannot be kept:")[1]
        assert dict(asked[1].options)["temperature"] > dict(asked[0].options)["temperature"]


async def test_a_draft_that_sends_one_of_our_messages_wrongly_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(
        inference,
        "def plus_(self, number):\n    return self.think_('count on', number)\n",
        "def plus_(self, number):\n    return number + 1\n",
    )
    async with mind(tmp_path, inference) as kernel:
        end = await sent(kernel, "m1", "brick", "plus_", 5)
        assert (end["state"], end["result"]["value"]) == ("COMPLETE", 6), end
        assert "two texts" in asked[1].user.split("It cannot be kept:")[1]


async def test_after_so_many_tries_it_fails_cleanly_and_is_remembered(tmp_path: Path) -> None:
    inference = FakeInference()
    bad = "def count_(self, number):\n    import os\n    return os.getcwd()\n"
    asked = writing(inference, bad)
    async with mind(tmp_path, inference, synthesis_tries=2) as kernel:
        await give(kernel, total=1)
        end = await sent(kernel, "m1", "thing", "count_", 5)
        assert end["error"]["code"] == "method_refused"
        assert len(asked) == 2
        assert kernel.image.read(lambda root: "count_" in root["lobby"].thing._slots) is False
        (failure,) = kernel.image.read(lambda root: ledger.failures(root, selector="count_"))
        assert failure["context"]["method"]["source"].strip() == bad.strip()
        writing(inference, COUNT)
        later = writing(inference, COUNT)
        assert (await sent(kernel, "m2", "thing", "count_", 5))["result"]["value"] == 6
        assert "Avoid: " in later[0].user


async def test_an_intent_is_compiled_where_it_is_held(tmp_path: Path) -> None:
    inference = FakeInference()
    koan = "def sages_koan_protocol_(self, text):\n    return 'What is the sound of ' + text + '?'\n"
    asked = writing(inference, koan)
    async with mind(tmp_path, inference) as kernel:
        end = await sent(kernel, "m1", "robin", "sages_koan_protocol_", "I am stuck")
        assert end["result"]["text"] == "What is the sound of I am stuck?"
        assert "gentle, playful paradox" in asked[0].user
        assert method_of(kernel, "robin", "sages_koan_protocol_")["intent"].startswith("Offer a gentle")


async def test_a_facet_is_compiled_by_rule_and_thinks_on_the_personas_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "no method")
    async with mind(tmp_path, inference) as kernel:
        end = await sent(kernel, "m1", "robin", "sage_facet_", "What now?")
        assert end["result"]["text"] == "Take one small step and look where it led."
        assert asked == []
        thought = inference.asked_about("What now?")
        assert "philosopher grounded in non-duality" in thought[0].user
        assert len(thought) == 1, "the trial's inference is the one that is used"
        end = await (await submit(kernel, "m2", "I feel stuck", persona="robin")).end()
        assert end["result"]["facets"][0] == "sage_facet_"
        assert end["state"] == "COMPLETE"
        assert method_of(kernel, "robin", "sage_facet_")["version"] == 1


async def test_a_method_sends_what_nobody_understands_and_that_is_written_too(tmp_path: Path) -> None:
    inference = FakeInference()
    outer = "def outer_(self, number):\n    return self.inner_(number) + 1\n"
    inner = "def inner_(self, number):\n    return number * 10\n"
    asked = writing(inference, lambda request: outer if "Write: def outer_" in request.user else inner)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", "outer_", 4)
        assert end["state"] == "COMPLETE", end
        assert end["result"]["value"] == 41
        assert {dict(r.options)["temperature"] for r in asked} == {0.1}
        assert len(asked) == 2, "what the trial paid for is what the real run finds"
        assert {one["selector"] for one in end["result"]["wrote"]} == {"outer_", "inner_"}


async def test_what_a_refused_draft_had_written_for_it_is_left_behind_with_its_trial(tmp_path: Path) -> None:
    """The cycle that wrote `inner_` is of the trial's transaction: kept with the mission's, it could not be stored."""
    inference = FakeInference()
    drafts = iter(["def outer_(self, number):\n    return self.inner_(number)\n", "def outer_(self, number):\n    return number + 1\n"])
    inner = "def inner_(self, number):\n    return number * 10\n"
    writing(inference, lambda request: next(drafts) if "Write: def outer_" in request.user else inner)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        await kernel.image.system(taught_examples.teach, oid, "outer_", [{"args": [1], "result": 2}], "", 16)
        end = await sent(kernel, "m1", "thing", "outer_", 4)
        assert (end["state"], end["result"].get("value")) == ("COMPLETE", 5), end
        assert [one["selector"] for one in end["result"]["wrote"]] == ["outer_"]


async def test_a_record_of_an_example_keeps_its_order(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def keys_(self, record):\n    return list(record)\n")
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        told = [{"args": [{"b": 1, "a": 2}], "result": ["b", "a"]}]
        assert await kernel.image.system(taught_examples.teach, oid, "keys_", told, "", 16) == 1
        assert (
            await kernel.image.system(taught_examples.teach, oid, "keys_", [{"result": ["b", "a"], "args": [{"b": 1, "a": 2}]}], "", 16)
            == 1
        )
        assert (await sent(kernel, "m1", "thing", "keys_", {"d": 1, "c": 2}))["result"]["value"] == ["d", "c"]


async def test_writing_has_a_depth(tmp_path: Path) -> None:
    inference = FakeInference()

    def deeper(request: ChatRequest) -> str:
        name = request.user.split("Write: def ")[1].split("(")[0]
        number = int(name.strip("_")[4:] or 0) + 1
        return f"def {name}(self):\n    return self.step{number}_()\n"

    writing(inference, deeper)
    async with mind(tmp_path, inference, synthesis_depth=3) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", "step_")
        assert end["error"]["code"] == "budget_spent"
        assert "is inside more than" in end["error"]["message"]


async def test_methods_that_send_each_other_are_written(tmp_path: Path) -> None:
    """In the trial of the one the other is missing, and in the trial of that the first: which is being tried, and not written again."""
    inference = FakeInference()
    even = "def is_even_(self, number):\n    return number == 0 or self.is_odd_(number - 1)\n"
    odd = "def is_odd_(self, number):\n    return number != 0 and self.is_even_(number - 1)\n"
    asked = writing(inference, lambda request: even if "Write: def is_even_" in request.user else odd)
    async with mind(tmp_path, inference, mission_deadline_s=WAIT_S / 2) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", "is_even_", 4)
        assert (end["state"], end["result"].get("value")) == ("COMPLETE", True), end
        assert len(asked) == 2
        assert {one["selector"] for one in end["result"]["wrote"]} == {"is_even_", "is_odd_"}
        assert (await sent(kernel, "m2", "thing", "is_odd_", 4))["result"]["value"] is False
        assert len(asked) == 2


async def test_a_method_sends_itself_to_others_who_inherit_it(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def count_(self):\n    return 1 + sum([one.count_() for one in self.below])\n")
    async with mind(tmp_path, inference, mission_deadline_s=WAIT_S / 2) as kernel:

        def make(root: Any) -> None:
            lobby = root["lobby"]
            lobby.node = lobby.genesis.derive(name="node", count_=Intent("count me and all that is below me"), below=())
            lobby.top = lobby.node.derive(below=(lobby.node.derive(), lobby.node.derive(below=(lobby.node.derive(),))))

        await kernel.image.system(make)
        end = await sent(kernel, "m1", "top", "count_")
        assert (end["state"], end["result"].get("value")) == ("COMPLETE", 4), end
        assert len(asked) == 1
        assert method_of(kernel, "node", "count_")["version"] == 1


async def test_where_waiting_would_go_round_in_a_circle_nobody_waits(tmp_path: Path) -> None:
    """Two parts of one mission: each writes a method whose trial needs the other's."""
    waited: list[bool] = []
    both = asyncio.Barrier(2)

    async def write(own: str, needed: str) -> None:
        async with making.writing(own):
            await both.wait()
            async with making.writing(needed) as written_before:
                waited.append(written_before)

    async with mind(tmp_path, FakeInference()) as kernel, asyncio.timeout(WAIT_S):
        making = Making("m1", 0.0, kernel.methods)
        await asyncio.gather(write("x", "y"), write("y", "x"))
        assert sorted(waited) == [False, True]
        async with making.writing("x"), making.writing("x") as written_before:
            assert not written_before


async def test_examples_are_trials(tmp_path: Path) -> None:
    inference = FakeInference()
    minus = "def add_(self, number, number2):\n    return number - number2\n"
    asked = writing(inference, minus, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        told = [{"args": [2, 3], "result": 5}, {"args": [1, 1], "result": 2}]
        assert await kernel.image.system(taught_examples.teach, oid, "add_", told, "the sum of two numbers", 16) == 2
        end = await sent(kernel, "m1", "thing", "add_", 10, 0)
        assert end["result"]["value"] == 10
        assert "Example: add_(2, 3) -> 5" in asked[0].user
        assert "It does: the sum of two numbers" in asked[0].user
        assert "add_(2, 3) answered -1 and not 5" in asked[1].user
        assert method_of(kernel, "thing", "add_")["trials"] == 3


@pytest.mark.parametrize(
    ("body", "args", "result"),
    [
        ("text * 1000", ["fox"], "fox" * 1000),
        ("[[[[[[text]]]]]]", ["fox"], [[[[[["fox"]]]]]]),
        ("set(text.split())", ["red hen fox ant"], ["ant", "fox", "hen", "red"]),
    ],
)
async def test_an_example_may_be_long_or_deep_or_of_a_set(tmp_path: Path, body: str, args: list[Any], result: Any) -> None:
    inference = FakeInference()
    asked = writing(inference, f"def m_(self, text):\n    return {body}\n")
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        await kernel.image.system(taught_examples.teach, oid, "m_", [{"args": args, "result": result}], "", 16)
        assert (await sent(kernel, "m1", "thing", "m_", *args))["result"]["value"] == result
        assert len(asked) == 1


async def test_examples_tell_of_slots(tmp_path: Path) -> None:
    inference = FakeInference()
    wrong = "def count_(self, number):\n    self.total = number\n    self._p_changed = True\n    return self.total\n"
    asked = writing(inference, wrong, COUNT)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, total=0)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        told = [{"args": [5], "slots": {"total": 7}, "result": 12, "after": {"total": 12}}]
        await kernel.image.system(taught_examples.teach, oid, "count_", told, "", 16)
        assert (await sent(kernel, "m1", "thing", "count_", 1))["result"]["value"] == 1
        assert "answered 5 and not 12" in asked[1].user
        assert kernel.image.read(lambda root: root["lobby"].thing.total) == 1


async def test_many_missions_that_miss_the_same_method_have_it_written_once(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with mind(tmp_path, inference, concurrent_missions=8) as kernel:
        await give(kernel)
        ends = await asyncio.gather(*(sent(kernel, f"m{i}", "thing", "add_", i, i) for i in range(8)))
        assert [end["result"]["value"] for end in ends] == [2 * i for i in range(8)]
        assert len(asked) == 1
        assert method_of(kernel, "thing", "add_")["version"] == 1
        assert kernel.methods.claims.owners == {}


async def test_when_the_writer_fails_the_next_one_writes(tmp_path: Path) -> None:
    inference = FakeInference()
    bad = "def add_(self, number, number2):\n    import os\n    return 1\n"
    asked = writing(inference, bad, bad, ADD)
    async with mind(tmp_path, inference, synthesis_tries=2) as kernel:
        await give(kernel)
        ends = await asyncio.gather(*(sent(kernel, f"m{i}", "thing", "add_", i, i) for i in range(3)))
        assert sorted(end["state"] for end in ends) == ["COMPLETE", "COMPLETE", "FAILED"]
        assert len(asked) == 3


async def test_a_mission_killed_while_it_writes_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def count_(self):\n    return 1\n", COUNT)
    async with mind(tmp_path, inference, shutdown_s=0.05) as kernel:
        await give(kernel, total=1)
        message = {"target": "thing", "selector": "count_", "args": [5], "kwargs": {}}
        inference_hold_after(inference, 1)
        await submit(kernel, "m1", "send thing count_", message=json.dumps(message))
        await inference.came(2)
    inference.release()
    async with mind(tmp_path, inference) as kernel:
        end = await Listened(kernel, "m1").end()
        assert end["result"]["value"] == 6
        assert end["result"]["usage"]["replayed"] == 1
        assert len(asked) == 2  # the second one was under way when the daemon stopped, and was never answered


def inference_hold_after(inference: FakeInference, count: int) -> None:
    """Hold every chat after so many."""
    say = inference.say

    def then_hold(request: ChatRequest) -> str:
        if len(inference.asked) >= count:
            inference.hold()
        return say(request)

    inference.say = then_hold


async def test_an_object_may_answer_for_itself(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)

    def shrug(obj: UvmObject, selector: str, *args: Any) -> str:
        return f"{selector} of {len(args)}? I would not know."

    Primitive.register("test.shrug")(shrug)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, _doesNotUnderstand_=Primitive.of(shrug))
        assert (await sent(kernel, "m1", "thing", "add_", 1, 2))["result"]["value"] == "add_ of 2? I would not know."
        assert asked == []


async def test_a_replay_comes_out_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def count_(self):\n    return 1\n", COUNT)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, total=1)
        await sent(kernel, "m1", "thing", "count_", 5)
        await kernel.image.system(lambda root: root["lobby"].thing._slots.pop("count_"))
        await kernel.image.system(lambda root: setattr(root["lobby"].thing, "total", 1))
        replayed = await kernel.replays.replay("m1")
        assert replayed["outcome"] == "same", replayed


async def test_a_replay_does_not_wait_for_whoever_writes_the_same_method(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "I cannot write that.", ADD)
    async with mind(tmp_path, inference, synthesis_tries=1) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["error"]["code"] == "method_refused"
        inference.hold()
        second = asyncio.create_task(sent(kernel, "m2", "thing", "add_", 2, 3))
        await inference.came(len(asked) + 1)
        found = await kernel.replays.replay("m1")
        assert (found["outcome"], found["inferences"]) == ("same", 1)
        inference.release()
        assert (await second)["result"]["value"] == 5


async def test_a_method_changed_on_disk_is_not_run(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 1, 2)
        await kernel.image.system(lambda root: setattr(root["lobby"].thing._slots["add_"], "source", ADD.replace("+", "-")))
        assert (await sent(kernel, "m2", "thing", "add_", 1, 2))["error"]["code"] == "image_damaged"


async def test_the_states_of_the_forge_are_objects(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:

        def check(root: Any) -> None:
            forge = root["lobby"].forge
            assert forge.writer == "brick"
            for name in ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"):
                assert isinstance(forge._slots[name]._slots["behaviour"], Primitive)
            assert isinstance(root["lobby"].robin._slots["sages_koan_protocol_"], Intent)

        kernel.image.read(check)


async def test_the_transitions_are_events(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def count_(self):\n    return 1\n", COUNT)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel, total=1)
        message = {"target": "thing", "selector": "count_", "args": [5], "kwargs": {}}
        heard = await submit(kernel, "m1", "send thing count_", message=json.dumps(message))
        await heard.end()
        assert heard.states == [
            "IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "DELEGATING", "SYNTHESIZING", "COMPLETE",
        ]  # fmt: skip


# --- versions


async def test_an_earlier_version_is_brought_back(tmp_path: Path) -> None:
    inference = FakeInference()
    minus = "def add_(self, number, number2):\n    return number - number2\n"
    writing(inference, minus, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 5, 3))["result"]["value"] == 2
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        await kernel.image.system(taught_examples.teach, oid, "add_", [{"args": [2, 3], "result": 5}], "", 16)
        learned = await sent(kernel, "m2", "thing", "learn_", "add_")
        assert learned["result"]["value"] == {"selector": "add_", "version": 2, "examples": 1, "written": True}
        assert (await sent(kernel, "m3", "thing", "learn_", "add_"))["result"]["value"]["written"] is False
        assert (await sent(kernel, "m4", "thing", "add_", 5, 3))["result"]["value"] == 8
        back = await sent(kernel, "m5", "thing", "revert_", "add_")
        assert back["result"]["value"] == {"selector": "add_", "version": 3, "kind": "method", "reverted_to": 1}
        assert (await sent(kernel, "m6", "thing", "add_", 5, 3))["result"]["value"] == 2
        told = kernel.image.read(lambda root: versions.describe(root, root["lobby"].thing, "add_"))
        assert [one["version"] for one in told["versions"]] == [3, 2, 1]
        assert told["versions"][0]["provenance"]["reverted_to"] == 1
        assert all(one["intact"] for one in told["versions"])
        assert (await sent(kernel, "m7", "thing", "revert_", "add_", 0))["result"]["value"]["kind"] == "missing"
        assert kernel.image.read(lambda root: "add_" in root["lobby"].thing._slots) is False


async def test_before_the_first_version_there_was_the_intent(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def sages_koan_protocol_(self, text):\n    return text\n")
    async with mind(tmp_path, inference) as kernel:
        intent = kernel.image.read(lambda root: root["lobby"].robin._slots["sages_koan_protocol_"])
        await sent(kernel, "m1", "robin", "sages_koan_protocol_", "x")
        await sent(kernel, "m2", "robin", "revert_", "sages_koan_protocol_")
        assert kernel.image.read(lambda root: root["lobby"].robin._slots["sages_koan_protocol_"]) == intent
        again = (await sent(kernel, "m3", "robin", "revert_", "sages_koan_protocol_", 1))["error"]["message"]
        assert "has no method 'sages_koan_protocol_', but an intent; `batos methods robin` lists" in again
        assert "`batos undo` with that mission's id brings it back" in again


@pytest.mark.parametrize(
    ("selector", "args", "words"),
    [("revert_", ["nothing_"], "no method"), ("revert_", ["name"], "no method"), ("learn_", ["nothing_"], "has no taught example")],
)
async def test_what_cannot_be_reverted_or_learned(tmp_path: Path, selector: str, args: list[Any], words: str) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", selector, *args)
        assert end["error"]["code"] == "invalid"
        assert words in end["error"]["message"]


async def test_a_version_that_there_is_not(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 1, 2)
        for version in (1, 7):
            assert "versions 1 to 1" in (await sent(kernel, f"r{version}", "thing", "revert_", "add_", version))["error"]["message"]


async def test_a_running_mission_finishes_on_the_versions_it_began_with(tmp_path: Path) -> None:
    inference = FakeInference()
    wait = "def wait_(self, text):\n    said = self.think_('Answer.', text)\n    return [said, self.version_()]\n"
    writing(inference, lambda request: wait if "Write: def wait_" in request.user else "def version_(self):\n    return 1\n")
    async with mind(tmp_path, inference) as kernel:
        assert (await sent(kernel, "m1", "robin", "wait_", "one"))["result"]["value"][1] == 1
        asked = len(inference.asked)
        inference.hold()
        running = asyncio.create_task(sent(kernel, "m2", "robin", "wait_", "two"))
        await inference.came(asked + 1)

        def change(root: Any) -> None:
            robin = root["lobby"].robin
            robin._slots["version_"] = Method("version_", "def version_(self):\n    return 2\n", previous=robin._slots["version_"])

        await kernel.image.system(change)
        inference.release()
        assert (await running)["result"]["value"][1] == 1
        assert (await sent(kernel, "m3", "robin", "wait_", "three"))["result"]["value"][1] == 2


# --- lessons, as a client gives them


@contextlib.asynccontextmanager
async def school(folder: Path, inference: FakeInference, **more: Any) -> AsyncIterator[tuple[Kernel, Client]]:
    """A daemon with an object `thing` that knows `add_`, and a client."""
    wanted = {"listen": ["tcp://127.0.0.1:*"], "linger_s": 0.2, "synthesis_tries": 1, **more}
    kernel = await Kernel.start(settings(folder, **wanted), inference=inference)
    try:
        await give(kernel, total=0)
        async with Client(kernel.endpoints[0]) as client:
            yield kernel, client
    finally:
        await kernel.stop()


async def taught(client: Client, id: str, selector: str, *pairs: tuple[list[Any], Any], intent: str | None = None) -> str:
    """The state in which a lesson ends, and why it FAILED."""
    told = [{"args": args, "result": result} for args, result in pairs]
    await client.teach("thing", selector, told, intent=intent, id=id)
    try:
        await client.result(id, timeout_s=WAIT_S)
    except BatosError as e:
        return f"FAILED: {e.message}"
    return "COMPLETE"


def held(kernel: Kernel, selector: str) -> list[tuple[list[Any], Any]]:
    """The examples of a message."""
    found, _ = kernel.image.read(lambda root: taught_examples.examples_of(root, root["lobby"].thing, selector))
    return [(list(one.args), one.result) for one in found]


async def test_another_lesson_under_the_same_id_is_refused_and_the_same_one_is_answered(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with school(tmp_path, inference) as (kernel, client):
        assert await taught(client, "lesson", "add_", ([2, 3], 5), intent="the sum") == "COMPLETE"
        again = await client.teach("thing", "add_", [{"result": 5, "args": [2, 3]}], intent="the sum", id="lesson")
        assert (again.duplicate, again.state) == (True, "COMPLETE")
        for pairs, intent in (([([1, 1], 2)], "the sum"), ([([2, 3], 5), ([1, 1], 2)], "the sum"), ([([2, 3], 5)], "what both make")):
            with pytest.raises(MissionIdTaken, match="'lesson' names another mission already"):
                await taught(client, "lesson", "add_", *pairs, intent=intent)
        assert held(kernel, "add_") == [([2, 3], 5)], "what is not accepted leaves no example"
        assert len(asked) == 1

        def forget(root: Any) -> None:  # as an earlier version recorded it
            del ledger.mission_of(root, "lesson")._slots["lesson"]

        await kernel.image.system(forget)
        assert (await client.teach("thing", "add_", [{"args": [2, 3], "result": 5}], intent="the sum", id="lesson")).duplicate


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("learn_", "'learn_' of thing is BAT OS's own code, and no method"),
        ("name", "'name' of thing holds a value, and no method"),
        ("__init__", "'__init__' is not a valid selector, so no method can be written for it"),
        ("_p_changed", "'_p_changed' is not a valid selector"),
        ("class", "'class' is not a valid selector"),
    ],
)
async def test_what_no_lesson_could_mend_is_refused_at_once_and_leaves_no_example(tmp_path: Path, selector: str, words: str) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with school(tmp_path, inference) as (kernel, client):
        with pytest.raises(InvalidInput, match=words):
            await taught(client, "lesson", selector, ([1], 1))
        assert held(kernel, selector) == []
        assert kernel.image.read(lambda root: list(ledger.newest_first(root))) == []
        assert asked == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([{"result": 1}, {"slots": {"parent*": 3}, "result": 1}], r"examples\[1\].slots: parent slot 'parent\*' holds a UvmObject"),
        ([{"slots": {"": 3}, "result": 1}], r"examples\[0\].slots: a slot's name is a text that is not empty"),
        ([{"after": {"_p_oid": 3}, "result": 1}], r"examples\[0\].after: '_p_oid' is a reserved name"),
        ([{"args": [n], "result": n} for n in range(4)], r"a lesson of 4 examples, and 3 are kept "),
    ],
)
async def test_examples_that_cannot_be_kept_or_tried_are_refused_at_once(tmp_path: Path, told: list[dict[str, Any]], words: str) -> None:
    async with school(tmp_path, FakeInference(), examples_limit=3) as (kernel, client):
        with pytest.raises(InvalidInput, match=words):
            await client.teach("thing", "same_", told, id="lesson")
        assert held(kernel, "same_") == []
        assert kernel.image.read(lambda root: list(ledger.newest_first(root))) == []


async def test_a_message_under_a_name_that_no_method_may_have_asks_no_model(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, ADD)
    async with mind(tmp_path, inference) as kernel:
        await give(kernel)
        end = await sent(kernel, "m1", "thing", "class", 1)
        assert end["error"]["message"].startswith("'class' is not a valid selector, so no method can be written for it")
        assert asked == []


async def test_a_slot_that_holds_no_method_is_named_in_words(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await give(kernel)
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        await kernel.image.system(taught_examples.teach, oid, "name", [{"result": 1}], "", 16)  # as an earlier version accepted it
        end = await sent(kernel, "m1", "thing", "learn_", "name")
        assert end["error"]["message"].startswith("'name' of thing holds a value, and no method")


TWICE = "def tw_(self, number):\n    return number * 2\n"


async def test_the_examples_of_a_failed_lesson_stay_until_it_is_undone(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TWICE)
    async with school(tmp_path, inference) as (kernel, client):
        assert await taught(client, "l1", "tw_", ([2], 4), ([5], 10), intent="twice a number") == "COMPLETE"
        own = await taught(client, "l2", "tw_", ([3], 7), intent="something else")
        assert "tw_(3) answered 6 and not 7; the example tw_(3) -> 7 stays" in own
        assert "`batos undo l2` takes it back" in own
        earlier = await taught(client, "l3", "tw_", ([4], 8))
        assert "tw_(3) answered 6 and not 7; the example tw_(3) -> 7 is of the earlier lesson 'l2'" in earlier
        assert "if it is wrong, `batos undo l2` takes it back" in earlier
        everything = held(kernel, "tw_")
        assert everything == [([2], 4), ([5], 10), ([3], 7), ([4], 8)]
        shown = await client.undo("l2", dry=True)
        assert [one["id"] for one in shown["missions"]] == ["l2"]
        assert [one["parts"] for one in shown["objects"]] == [["examples of tw_"]]
        assert held(kernel, "tw_") == everything
        await client.undo("l2")
        assert held(kernel, "tw_") == [([2], 4), ([5], 10), ([4], 8)]
        assert kernel.image.read(lambda root: taught_examples.examples_of(root, root["lobby"].thing, "tw_")[1]) == "twice a number"
        status = await client.status("l2")
        assert (status["state"], status["undone"]["with"]) == ("FAILED", "l2")
        assert (await client.undo("l2"))["already"] is True
        assert (await client.teach("thing", "tw_", [{"args": [3], "result": 7}], intent="something else", id="l2")).duplicate
        assert held(kernel, "tw_") == [([2], 4), ([5], 10), ([4], 8)], "a repetition teaches nothing again"
        assert await taught(client, "l4", "tw_", ([3], 6)) == "COMPLETE"
        with pytest.raises(InvalidInput, match="no method keeps both"):
            await client.undo("l2", redo=True)
        await client.undo("l4")
        await client.undo("l2", redo=True)
        assert held(kernel, "tw_") == [([2], 4), ([5], 10), ([4], 8), ([3], 7)]
        assert (await client.undo("l2", redo=True))["already"] is True


async def test_an_undo_of_a_lesson_takes_its_examples_back_with_its_method(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TWICE)
    async with school(tmp_path, inference) as (kernel, client):
        assert await taught(client, "l1", "tw_", ([2], 4)) == "COMPLETE"
        told = await client.undo("l1")
        assert sorted(part for one in told["objects"] for part in one["parts"]) == ["examples of tw_", "tw_"]
        assert held(kernel, "tw_") == []
        await client.undo("l1", redo=True)
        assert held(kernel, "tw_") == [([2], 4)]


async def test_a_method_that_several_have_keeps_what_each_of_them_was_taught(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TWICE, "def tw_(self, number):\n    return number + 2\n", TWICE)
    async with school(tmp_path, inference) as (kernel, client):

        def born(root: Any) -> None:
            lobby = root["lobby"]
            lobby.kind = lobby.genesis.derive(name="kind", tw_=Intent("twice the number"))
            lobby.ann, lobby.bob = lobby.kind.derive(name="ann"), lobby.kind.derive(name="bob")

        await kernel.image.system(born)

        async def lesson(id: str, pupil: str, *pairs: tuple[int, int]) -> str:
            await client.teach(pupil, "tw_", [{"args": [number], "result": result} for number, result in pairs], id=id)
            try:
                await client.result(id, timeout_s=WAIT_S)
            except BatosError as e:
                return e.message
            return "COMPLETE"

        assert await lesson("l1", "ann", (5, 10)) == "COMPLETE"
        refused = await lesson("l2", "bob", (3, 5))
        assert "tw_(5) answered 7 and not 10; the example tw_(5) -> 10 is of the earlier lesson 'l1'" in refused
        assert method_of(kernel, "kind", "tw_")["version"] == 1, "what ann learned is not unlearned"
        await client.undo("l2")
        assert await lesson("l3", "bob", (3, 6)) == "COMPLETE"
        await client.undo("l1", cascade=True)
        assert kernel.image.read(lambda root: lessons.kin(root, root["lobby"].bob, root["lobby"].kind, "tw_")) == []


async def test_a_lesson_that_brought_nothing_leaves_nothing_to_take_back(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TWICE)
    async with school(tmp_path, inference) as (kernel, client):
        for id in ("l1", "l2"):
            assert "the example tw_(3) -> 7" in await taught(client, id, "tw_", ([3], 7))
        with pytest.raises(InvalidInput, match="what it taught, 'l1' had brought: undo that"):
            await client.undo("l2")
        await client.undo("l1")
        assert held(kernel, "tw_") == []
        await sent(kernel, "s1", "thing", "learn_", "nothing_")
        with pytest.raises(InvalidInput, match="'s1' FAILED: it changed nothing"):
            await client.undo("s1")


async def test_examples_that_no_method_can_keep_are_refused_at_once(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, TWICE)
    async with school(tmp_path, inference) as (kernel, client):
        with pytest.raises(InvalidInput, match=r"no method keeps both tw_\(1\) -> 2 and tw_\(1\) -> 3; teach the one that is right"):
            await taught(client, "l0", "tw_", ([1], 2), ([1], 3))
        assert (held(kernel, "tw_"), asked) == ([], [])
        assert await taught(client, "l1", "tw_", ([1], 2), ([1], 2.0)) == "COMPLETE"
        with pytest.raises(InvalidInput, match=r"tw_\(1\) -> 3: the former was taught by 'l1'; `batos undo l1` takes that lesson back"):
            await taught(client, "l2", "tw_", ([1], 3))
        slots = [
            {"args": [1], "slots": {"total": 7}, "result": 2, "after": {"total": 7}},
            {"args": [1], "slots": {"total": 8}, "result": 2},
        ]
        await client.teach("thing", "tw_", slots, id="l3")
        assert (await client.result("l3", timeout_s=WAIT_S))["value"]["written"] is False
        with pytest.raises(InvalidInput, match=r"tw_\(1\) with total=7 -> 2, and total=9 after it"):
            await client.teach("thing", "tw_", [{**slots[0], "after": {"total": 9}}], id="l4")
        count = len(held(kernel, "tw_"))

        def before(root: Any) -> None:
            oid = root["lobby"].thing._p_oid
            taught_examples.teach(root, oid, "of_before_", [{"result": 1}], "", 16)
            del root["examples"][oid, "of_before_"].brought

        await kernel.image.system(before)
        with pytest.raises(InvalidInput, match="taught in an earlier version"):
            await taught(client, "l5", "of_before_", ([], 2))
        assert len(held(kernel, "tw_")) == count
