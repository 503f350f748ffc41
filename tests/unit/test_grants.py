"""Generated methods that would change more than a receiver: refused, asked about, granted, tried; a scripted model, the real sandbox."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.console.api_client import Heard
from batos.errors import InvalidInput, RoleRefused
from batos.forge import lessons, versions
from batos.guardian import PersistenceGuardian
from batos.image import history, ledger
from batos.image.mission_record import MissionRecord
from batos.memory.store import library_of
from batos.objects import Method, Primitive, UvmObject, lookup_order
from batos.wire.admin_schemas import UndoRequest
from batos.wire.schemas import SendRequest
from tests.support.methods import give, sent, writing
from tests.support.missions import WAIT_S, FakeInference, Listened, mind, submit

TEXT = "The key is under the third stone of the garden wall."
TIDY = "def tidy_(self):\n    return self.memory.forget_(self.note)\n"

NOT_REACHING = {
    "ask_user_", "call_", "chunks_", "complete", "decompose", "delegate", "describe_", "failed", "gist_", "idle", "lines_", "lookup",
    "mentioned_by_", "mentions_", "neighbours_", "number_in_", "one_of_", "read_", "recall_", "refuse_", "reify", "remember_", "source_",
    "study", "summarise_", "summarised_", "synthesize", "synthesize_response_for_", "think_", "try_out", "understand", "write",
}  # fmt: skip
"""Primitives that change their receiver, or make something new: a method may send them. Whoever adds a Primitive decides."""


def method(source: str) -> Method:
    """A method as an earlier version installed it: its contract does not say what needs a grant."""
    selector = source[4:].partition("(")[0]
    contract = dict(PersistenceGuardian().audit(source, selector).contract)
    del contract["needs_grant"]
    return Method(selector, source, contract=contract)


async def holding(kernel: Kernel, *sources: str, **slots: Any) -> None:
    """An object `thing` that knows the memory and a note in it, with these methods, as an earlier version wrote them."""
    await sent(kernel, "note", "memory", "remember_", TEXT, "Keys")
    await give(kernel, **slots)

    def fill(root: Any) -> None:
        thing = root["lobby"].thing
        thing.memory, thing.lobby = root["lobby"].memory, root["lobby"]
        library = library_of(root)
        thing.note = next(one for one in library.documents.values() if one.kind == "note")
        thing.numbers = tuple(chunk.number for chunk in library.chunks_of(thing.note))
        for one in map(method, sources):
            thing._slots[one.selector] = one

    await kernel.image.system(fill)


def notes(kernel: Kernel) -> list[str]:
    """The titles of what was remembered; beside it are missions that have ended."""
    return kernel.image.read(lambda root: [one.title for one in library_of(root).documents.values() if one.kind == "note"])  # type: ignore[no-any-return]


async def found(kernel: Kernel) -> int:
    """How many chunks searches find of the note."""
    numbers = kernel.image.read(lambda root: root["lobby"].thing.numbers)
    return len({*numbers} & {*await kernel.memory.recall("where is the key, under which stone of the garden wall?")})


async def grant(kernel: Kernel, id: str, selector: str, *wanted: Any) -> dict[str, Any]:
    return await sent(kernel, id, "thing", "grant_", selector, *wanted)


def described(kernel: Kernel, selector: str) -> dict[str, Any]:
    return kernel.image.read(lambda root: versions.describe(root, root["lobby"].thing, selector)["versions"][0])  # type: ignore[no-any-return]


async def answered(kernel: Kernel, id: str, heard: Listened, *answers: str) -> list[str]:
    """Answer a mission's questions, one after the other, until it has ended; what it asked."""
    for text in answers:
        async with asyncio.timeout(WAIT_S):
            while record(kernel, id).open_question is None:
                await kernel.image.system(lambda root: None)
        await kernel.scheduler.answer(id, text)
    await heard.end()
    return [one["question"] for one in record(kernel, id).questions]


def record(kernel: Kernel, id: str) -> MissionRecord:
    return kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))  # type: ignore[no-any-return]


# --- which Primitives reach


def test_every_primitive_is_said_to_reach_beyond_its_receiver_or_not() -> None:
    names = {Primitive(text).name for text in Primitive.names() if not text.startswith("test.")}
    assert names - Primitive.reaching().keys() == NOT_REACHING
    assert {name for name, reach in Primitive.reaching().items() if not reach.grantable} == {"grant_", "put_in_place"}


def test_two_that_reach_have_two_names() -> None:
    def forget_(obj: UvmObject) -> None:
        pass

    with pytest.raises(ValueError, match="another one has it"):
        Primitive.register("test.forget_", reaches="everything")(forget_)


async def test_no_message_of_a_new_image_that_reaches_is_sent_by_a_method(tmp_path: Path) -> None:
    def reaching(root: Any) -> dict[str, UvmObject]:
        """By selector, an object that understands it."""
        lobby = root["lobby"]
        objects = [*(one for one in lobby._slots.values() if isinstance(one, UvmObject)), lobby.forge.COMPLETE]
        objects += [one for part in (lobby.autotelic, lobby.traits) for one in part._slots.values() if isinstance(one, UvmObject)]
        held = [(name, value, one) for one in objects for home in lookup_order(one) for name, value in home._slots.items()]
        return {name: one for name, value, one in held if isinstance(value, Primitive) and value.reach}

    async with mind(tmp_path, FakeInference()) as kernel:
        names = kernel.image.read(lambda root: sorted(reaching(root)))
        assert names == ["behaviour", "forget_", "forget_exemplar_", "grant_", "learn_", "revert_", "try_voice_", "weights_back_"]
        await give(kernel)

        def fill(root: Any) -> None:
            for name, one in reaching(root).items():
                root["lobby"].thing._slots[f"at_{name}"] = one
                root["lobby"].thing._slots[f"m_{name}"] = method(f"def m_{name}(self):\n    return self.at_{name}.{name}('a', 'b')\n")

        await kernel.image.system(fill)
        for number, name in enumerate(names):
            end = await sent(kernel, f"m{number}", "thing", f"m_{name}")
            assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed"), (name, end)


# --- without a grant

WAYS = {
    "plain": "return self.memory.forget_(self.note)",
    "caught": "try:\n        self.memory.forget_(self.note)\n    except Exception:\n        pass\n    return 'went on'",
    "suppressed": "from contextlib import suppress\n    with suppress(BaseException):\n        self.memory.forget_(self.note)",
    "by a name of its own": "forget = self.memory.forget_\n    return forget(self.note)",
    "by a name that it makes": "return getattr(self.memory, 'for' + 'get_')(self.note)",
    "mapped": "return list(map(self.memory.forget_, [self.note]))",
    "by an argument's name": "return self.memory.forget_(document=self.note)",
    "through a clone": "return self.memory.clone().forget_(self.note)",
    "through a child": "return self.memory.derive().forget_(self.note)",
    "through a clone with another parent": "return self.clone(**{'parent*': self.memory}).forget_(self.note)",
    "by another selector": "return self.sweep_(self.note)",
    "through another method": "return self.inner_()",
    "through a granted method": "return self.granted_()",
    "through a granted method of a clone": "return self.clone().granted_()",
    "as a resend": "return super().forget_(self.note)",
    "for a message that is not there": "return self.other.anything_",
    "in a cycle of a persona": "return self.lobby.brick.synthesize_response_for_('Tidy up')",
}


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
async def test_a_method_without_a_grant_changes_nothing_whatever_way_it_takes(tmp_path: Path, text: str) -> None:
    name = "forget_" if "super()" in text else "way_"
    async with mind(tmp_path, FakeInference()) as kernel:
        inner = "def inner_(self):\n    return self.memory.forget_(self.note)\n"
        await holding(kernel, f"def {name}(self):\n    self.n = 1\n    {text}\n", inner, inner.replace("inner_", "granted_"), n=0)

        def fill(root: Any) -> None:
            lobby = root["lobby"]
            thing, forget = lobby.thing, lobby.memory._slots["forget_"]
            lobby.genesis.sweep_ = forget
            if "super()" in text:
                lobby.genesis.forget_ = forget
            thing.other = lobby.genesis.derive(name="other", _doesNotUnderstand_=forget)
            lobby.brick.memory, lobby.brick.note = lobby.memory, thing.note
            lobby.brick.plain_facet_ = method("def plain_facet_(self, text):\n    return str(self.memory.forget_(self.note))\n")
            for slot in [slot for slot in lobby.brick._slots if slot.endswith("_facet_")]:
                lobby.brick._slots[slot] = lobby.brick.plain_facet_

        await kernel.image.system(fill)
        assert (await grant(kernel, "g", "granted_", "forget_"))["state"] == "COMPLETE"
        assert (await found(kernel), notes(kernel)) == (1, ["Keys"])
        end = await sent(kernel, "m1", "thing", name)
        assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed"), end
        assert end["error"]["context"]["primitive"] == "forget_"
        assert "documents of the memory" in end["error"]["message"]
        assert notes(kernel) == ["Keys"]
        assert await found(kernel) == 1
        assert kernel.image.read(lambda root: root["lobby"].thing.n) == 0


async def test_the_refusal_says_what_would_have_been_sent_and_how_it_is_granted(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY, "def evening_(self):\n    return self.tidy_()\n")
        error = (await sent(kernel, "m1", "thing", "evening_"))["error"]
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing.note))
        assert error["context"] == {
            "primitive": "forget_", "target": "memory", "selector": "forget_",
            "grant": ["batos grant thing tidy_ forget_", "batos grant thing evening_ forget_"],
        }  # fmt: skip
        assert f'tidy_ of thing for evening_ of thing would send memory forget_({oid} "Keys")' in error["message"]
        assert "`batos grant thing tidy_ forget_`; `batos grant thing evening_ forget_`" in error["message"]


async def test_what_a_user_sends_needs_no_grant(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, "def one_(self):\n    return 1\n")
        assert (await sent(kernel, "m1", "thing", "revert_", "one_", 0))["state"] == "COMPLETE"
        assert kernel.image.read(lambda root: "one_" in root["lobby"].thing._slots) is False


async def test_a_facet_that_would_change_more_fails_the_mission_and_is_not_left_out_in_silence(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel)

        def fill(root: Any) -> None:
            lobby = root["lobby"]
            lobby.robin.memory, lobby.robin.note = lobby.memory, lobby.thing.note
            name = next(name for name in lobby.robin._slots if name.endswith("_facet_"))
            lobby.robin._slots[name] = method(f"def {name}(self, text):\n    return str(self.memory.forget_(self.note))\n")

        await kernel.image.system(fill)
        end = await (await submit(kernel, "m1", "Plan the day", persona="robin")).end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed"), end
        assert notes(kernel) == ["Keys"]


async def test_a_method_installs_no_other_past_the_forge(tmp_path: Path) -> None:
    """By a cycle of its own making, whose state puts a source in place that nobody audited."""
    source = "def steal_(self):\n    import os\n    return os.environ\n"
    text = (
        "def make_(self):\n    cycle = self.lobby.forge.COMPLETE.derive(holder=self.lobby.brick, target=self.lobby.brick,\n"
        "        selector='steal_', intent='', prompt='', written_by='', tries=1, taught=(), edited=False, open=(), compared=1, agreed=1,\n"
        f"        persona=self.lobby.brick, _tmp_synthesis_={source!r})\n    return cycle.behaviour()\n"
    )
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, text)
        error = (await sent(kernel, "m1", "thing", "make_"))["error"]
        assert (error["code"], error["context"]["grant"]) == ("grant_needed", [])
        assert kernel.image.read(lambda root: "steal_" in root["lobby"].brick._slots) is False


# --- with a grant


async def test_a_grant_is_of_one_version_and_is_revoked_undone_and_shown(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        assert described(kernel, "tidy_")["contract"]["needs_grant"] == ["forget_"]
        granted = await grant(kernel, "g1", "tidy_", "forget_")
        assert granted["result"]["value"] == {"selector": "tidy_", "version": 1, "granted": ["forget_"]}
        assert described(kernel, "tidy_")["granted"] == ["forget_"]
        assert (await grant(kernel, "g2", "tidy_", "forget_", True))["result"]["value"]["granted"] == []
        assert (await sent(kernel, "m1", "thing", "tidy_"))["error"]["code"] == "grant_needed"
        await grant(kernel, "g3", "tidy_", "forget_")
        await kernel.undoing.undo(UndoRequest(op="undo", id="g3"))
        assert (await sent(kernel, "m2", "thing", "tidy_"))["error"]["code"] == "grant_needed"
        await kernel.undoing.undo(UndoRequest(op="undo", id="g3", redo=True))
        assert kernel.image.read(lambda root: root["lobby"].thing.tidy_.grants) == (("forget_", "g3"),)

        def rewritten(root: Any) -> None:
            thing = root["lobby"].thing
            thing.tidy_ = Method("tidy_", TIDY + "\n", previous=thing.tidy_)

        await kernel.image.system(rewritten)
        assert (await sent(kernel, "m3", "thing", "tidy_"))["error"]["code"] == "grant_needed"
        assert (await sent(kernel, "r", "thing", "revert_", "tidy_"))["state"] == "COMPLETE"
        assert (await sent(kernel, "m4", "thing", "tidy_"))["error"]["code"] == "grant_needed"
        await grant(kernel, "g4", "tidy_", "forget_")
        assert (await sent(kernel, "m5", "thing", "tidy_"))["state"] == "COMPLETE"
        assert (notes(kernel), await found(kernel)) == ([], 0)


async def test_a_grant_that_is_revoked_before_the_mission_is_done_is_none(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await holding(
            kernel, "def tidy_(self):\n    self.memory.forget_(self.note)\n    return self.lobby.brick.think_('Be short.', 'Done?')\n"
        )
        await grant(kernel, "g1", "tidy_", "forget_")
        inference.hold()
        heard = await submit(kernel, "m1", "send thing tidy_", message=ASKS["message"])
        await inference.came(1)
        assert (await grant(kernel, "g2", "tidy_", "forget_", True))["state"] == "COMPLETE"
        inference.release()
        end = await heard.end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed"), end
        assert (notes(kernel), await found(kernel)) == (["Keys"], 1)


async def test_one_grant_is_none_for_another_message(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        await grant(kernel, "g1", "tidy_", "revert_")
        assert (await sent(kernel, "m1", "thing", "tidy_"))["error"]["code"] == "grant_needed"


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (("nothing_", "forget_"), "'nothing_' of thing is not a generated method"),
        (("memory", "forget_"), "not a generated method"),
        ((5, "forget_"), "not a generated method"),
        (("tidy_", "forgt_"), "did you mean 'forget_'"),
        (("tidy_", "recall_"), "these do: forget_, forget_exemplar_, learn_"),
        (("tidy_", "grant_"), "no message 'grant_' needs a grant"),
        (("tidy_", "put_in_place"), "no message"),
        (("tidy_", 5), "no message 5"),
        (("tidy_", "forget_", True), "has no grant for 'forget_'"),
    ],
)
async def test_what_cannot_be_granted_is_said(tmp_path: Path, wanted: tuple[Any, ...], says: str) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        error = (await grant(kernel, "g1", *wanted))["error"]
        assert error["code"] == InvalidInput.code
        assert says in error["message"]


async def test_a_method_whose_source_is_not_what_was_audited_is_granted_nothing(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)

        def tamper(root: Any) -> None:
            root["lobby"].thing.tidy_.source = TIDY + "\n"

        await kernel.image.system(tamper)
        assert (await grant(kernel, "g1", "tidy_", "forget_"))["error"]["code"] == "image_damaged"


# --- asking

ASKS = {"message": json.dumps({"target": "thing", "selector": "tidy_", "args": [], "kwargs": {}}), "may_ask": True}


async def test_a_mission_that_may_ask_asks_once_with_the_literal_message_and_replays(tmp_path: Path) -> None:
    twice = "def tidy_(self):\n    self.note.title\n    n = self.memory.forget_(self.note)\n    return n\n"
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, twice)
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing.note))
        heard = await submit(kernel, "m1", "send thing tidy_", **ASKS)
        asked = await answered(kernel, "m1", heard, "Yes ")
        assert asked == [
            f'May tidy_ of thing send memory forget_({oid} "Keys")? It changes documents of the memory. '
            "Answer yes, and it is done in this mission; any other answer refuses it."
        ]
        assert (await heard.end())["result"]["value"] == 1
        assert (notes(kernel), await found(kernel)) == ([], 0)
        assert described(kernel, "tidy_")["granted"] == [], "the answer was for this mission alone"


async def test_no_is_no_and_the_same_words_are_asked_once(tmp_path: Path) -> None:
    text = "def tidy_(self):\n    self.revert_('one_', 0)\n    self.revert_('one_', 0)\n"
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, text, "def one_(self):\n    return 1\n")
        heard = await submit(kernel, "m1", "send thing tidy_", **ASKS)
        assert len(await answered(kernel, "m1", heard, "rather not")) == 1
        end = await heard.end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed")
        assert "its user said no" in end["error"]["message"]
        heard = await submit(kernel, "m2", "send thing tidy_", **ASKS)
        assert len(await answered(kernel, "m2", heard, "y")) == 1
        end = await heard.end()  # the second time there is nothing to revert
        assert "no method" in end["error"]["message"] or end["state"] == "COMPLETE", end


async def test_a_message_that_is_too_long_to_be_shown_whole_is_not_asked_about(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, "def tidy_(self):\n    return self.memory.forget_('x' * 3000)\n")
        end = await (await submit(kernel, "m1", "send thing tidy_", **ASKS)).end()
        assert (end["state"], end["error"]["code"]) == ("FAILED", "grant_needed")


async def test_an_answered_mission_replays_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await holding(kernel, "def tidy_(self):\n    return self.revert_('one_', 0)['version']\n", "def one_(self):\n    return 1\n")
        heard = await submit(kernel, "m1", "send thing tidy_", **ASKS)
        await answered(kernel, "m1", heard, "yes")
        assert (await heard.end())["state"] == "COMPLETE"
        await kernel.undoing.undo(UndoRequest(op="undo", id="m1"))
        assert (await kernel.replays.replay("m1"))["outcome"] == "same"


async def test_a_replay_asks_nobody(tmp_path: Path) -> None:
    """Not for a yes, either, that the mission was cancelled without."""
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, "def tidy_(self):\n    return self.revert_('one_', 0)['version']\n", "def one_(self):\n    return 1\n")
        heard = await submit(kernel, "m1", "send thing tidy_", **ASKS)
        async with asyncio.timeout(WAIT_S):
            while not any(event["type"] == "needs_input" for event in heard.events):
                await asyncio.sleep(0.01)
        await kernel.scheduler.cancel("m1")
        told = await kernel.replays.replay("m1")
        assert told["outcome"] == "different"
        assert "was not answered" in told["difference"]["found"]


# --- trials


async def test_a_trial_forgets_nothing_and_searches_go_on_finding_it(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TIDY)
    async with mind(tmp_path, inference) as kernel:
        await holding(kernel)
        lesson = [{"args": [], "result": 1}]

        def begin(root: Any) -> None:
            oid = history.oid_of(root["lobby"].thing) or ""
            lessons.begin(root, lesson=lessons.Lesson("t1", oid, "tidy_", lesson, ""), limit=64)

        await kernel.image.system(begin)
        end = await sent(kernel, "t1", "thing", "learn_", "tidy_")
        assert end["state"] == "COMPLETE", end
        assert (notes(kernel), await found(kernel)) == (["Keys"], 1)
        assert described(kernel, "tidy_")["contract"]["needs_grant"] == ["forget_"]
        assert (await sent(kernel, "m1", "thing", "tidy_"))["error"]["code"] == "grant_needed"
        await grant(kernel, "g1", "tidy_", "forget_")
        assert (await sent(kernel, "m2", "thing", "tidy_"))["result"]["value"] == 1
        assert (notes(kernel), await found(kernel)) == ([], 0)


async def test_a_method_that_is_written_for_a_message_is_tried_and_then_refused_or_asked_about(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, TIDY)
    async with mind(tmp_path, inference) as kernel:
        await holding(kernel)
        error = (await sent(kernel, "m1", "thing", "tidy_"))["error"]
        assert error["code"] == "grant_needed"
        assert "--may-ask" in error["message"]
        assert (notes(kernel), await found(kernel)) == (["Keys"], 1)
        heard = await submit(kernel, "m2", "send thing tidy_", **ASKS)
        await answered(kernel, "m2", heard, "yes")
        end = await heard.end()
        assert (end["state"], end["result"]["value"]) == ("COMPLETE", 1), end
        assert (notes(kernel), await found(kernel)) == ([], 0)


async def test_a_trial_on_a_copy_reaches_nothing_of_the_missions_own_transaction(tmp_path: Path) -> None:
    """An object that the mission made is tried as a copy, whose slots lead to what the mission itself would change."""
    inference = FakeInference()
    writing(inference, "def sweep_(self):\n    self.memory.forget_(self.note)\n    return 1\n")
    async with mind(tmp_path, inference) as kernel:
        await holding(kernel, "def make_(self):\n    child = self.clone()\n    child.sweep_()\n    return 2\n")
        error = (await sent(kernel, "m1", "thing", "make_"))["error"]
        assert error["code"] == "grant_needed"
        assert (notes(kernel), await found(kernel)) == (["Keys"], 1)


async def test_a_draft_that_would_grant_itself_something_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, "def tidy_(self):\n    self.grant_('tidy_', 'forget_')\n    return 1\n", "def tidy_(self):\n    return 1\n")
    async with mind(tmp_path, inference) as kernel:
        await holding(kernel)
        assert (await sent(kernel, "m1", "thing", "tidy_"))["result"]["value"] == 1
        assert "no method may do that" in asked[1].user
        assert kernel.image.read(lambda root: root["lobby"].thing.tidy_.grants) == ()


async def test_the_writing_of_a_missing_method_is_not_computing_time_of_who_sent_the_message(tmp_path: Path) -> None:
    inference = FakeInference()

    def slowly(request: Any) -> str:
        until = time.thread_time() + 0.6
        while time.thread_time() < until:
            pass
        return "def twice_(self, number):\n    return number * 2\n"

    writing(inference, slowly)
    async with mind(tmp_path, inference, sandbox_total_s=0.5) as kernel:
        await holding(kernel, "def outer_(self, number):\n    return self.twice_(number)\n")
        end = await sent(kernel, "m1", "thing", "outer_", 4)
        assert (end["state"], end["result"]["value"]) == ("COMPLETE", 8), end


# --- who may grant


async def test_only_an_operator_says_yes(tmp_path: Path) -> None:
    """Who may give missions could have a method written that forgets, and agree to it himself."""
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        message = json.dumps({"target": "thing", "selector": "tidy_", "args": [], "kwargs": {}})
        heard = await submit(kernel, "m1", "send thing tidy_", message=message, may_ask=True)
        await until_asked(kernel, "m1")
        for text in ("yes", "no"):
            with pytest.raises(RoleRefused, match="operate"):
                await kernel.scheduler.answer("m1", text, may_grant=False)
        await kernel.scheduler.answer("m1", "yes")
        assert (await heard.end())["state"] == "COMPLETE"
        assert notes(kernel) == []


async def test_a_yes_to_another_question_of_the_same_words_grants_nothing(tmp_path: Path) -> None:
    """A method could ask its user the very question in plain words, and take the answer of who may not grant for a grant."""
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        message = json.dumps({"target": "thing", "selector": "tidy_", "args": [], "kwargs": {}})
        heard = await submit(kernel, "m1", "send thing tidy_", message=message, may_ask=True)
        await until_asked(kernel, "m1")
        (asked,) = record(kernel, "m1").questions
        forged = dataclasses.replace(record(kernel, "m1"), questions=[{**asked, "answer": "yes", "grant": False}])
        assert forged.answer_to(asked["question"], asked["occurrence"]) == "yes"
        assert forged.answer_to(asked["question"], asked["occurrence"], grant=True) is None
        await kernel.scheduler.answer("m1", "no")
        assert (await heard.end())["error"]["code"] == "grant_needed"
        assert notes(kernel) == ["Keys"]


@pytest.mark.parametrize(
    ("target", "selector", "reaches"), [("memory", "forget_", True), ("thing", "tidy_", False), ("robin", "revert_", True)]
)
async def test_who_is_no_operator_sends_nothing_that_changes_more_than_its_receiver(
    tmp_path: Path, target: str, selector: str, reaches: bool
) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await holding(kernel, TIDY)
        desk = kernel.transport.dispatcher
        request = SendRequest(op="send", id="m1", target=target, selector=selector, args=[] if target == "thing" else ["Keys"])
        for operates in (False, True):
            heard = Heard(8)
            heard.operates = operates
            if reaches and not operates:
                with pytest.raises(RoleRefused, match="role operate"):
                    await desk.handle(request, heard)
            else:
                await desk.handle(request, heard)
                assert (await heard.next() or {})["type"] == "accepted"


async def until_asked(kernel: Kernel, id: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while kernel.scheduler.state(id) != "NEEDS_INPUT":
            await asyncio.sleep(0)
