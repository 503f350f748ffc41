"""Stepping into missions: where it stands, what can be seen and changed there, and how the mission goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.errors import BatosError, Busy, InvalidInput, MethodRefused, MissionFolded, StepConflict, UnknownSession
from batos.image import grants as image_grants
from batos.image import journal, ledger
from batos.image.grants import ALLOW, GrantRecord
from batos.objects import Method
from batos.stepping.session import StepLimits
from tests.support.failing_missions import ANSWER, BRIEF, KINDS, METHODS, Failing, asked, continued, edit, failed, failing, opened
from tests.support.missions import FakeInference, answer, mind, submit


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Failing]:
    async with failing(tmp_path) as world:
        yield world


def written(world: Failing) -> list[bytes]:
    """The transactions that wrote the personas, the states and the mission last."""

    def serials(root: Any) -> list[bytes]:
        lobby, found = root["lobby"], []
        mission = ledger.mission_of(root, "m1")
        for one in (lobby.robin, lobby.brick, lobby.psm.DELEGATING, lobby.psm.SYNTHESIZING, mission, mission.journal):
            if one is not None:
                one._p_activate()
                found.append(one._p_serial)
        return found

    return world.kernel.image.read(serials)  # type: ignore[no-any-return]


# --- where it stands


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_mission_is_stepped_to_where_it_failed(world: Failing, kind: str) -> None:
    error = await failed(world, kind)
    await world.kernel.image.system(lambda root: None)
    before, count, sent = written(world), len(world.inference.asked), len(world.shop.sent)
    reply = await opened(world)
    assert reply["error"]["code"] == error["code"]
    state = world.kernel.image.read(lambda root: ledger.failures(root, id="m1", limit=1)[0]["context"]["state"])
    own = [one["state"] for one in reply["rail"] if one["number"] <= reply["at"]["number"] and "." not in one["cycle"]]
    assert own[-1] == state or "question" in reply
    journaled = world.kernel.image.read(lambda root: len(journal.of(ledger.mission_of(root, "m1")).entries))
    assert reply["counts"]["recorded"] == journaled
    assert reply["counts"]["new"] == 0
    await world.desk.ask("step.close", session="s")
    assert (written(world), len(world.inference.asked), len(world.shop.sent)) == (before, count, sent), "nothing left the mirror"


async def test_the_image_is_seen_as_it_was_before_the_failing_attempt(world: Failing) -> None:
    await failed(world, "answer: unreachable, tried again")
    await world.change(lambda root: setattr(root["lobby"].robin, "core_mission", "To sell teas."))
    reply = await opened(world)
    assert reply["moment"].startswith("the image as it was")
    assert reply["counts"] == {"recorded": 4, "new": 0, "missing": 1}, "a changed persona would have asked something else"
    shown = (await world.desk.ask("step.show", session="s", target="robin"))["object"]["slots"]
    assert shown["core_mission"] != "To sell teas."


async def test_history_that_was_packed_away_is_said(world: Failing) -> None:
    await failed(world, "answer: refused")
    await world.change(lambda root: setattr(root["lobby"].robin, "core_mission", "To sell teas."))
    await world.kernel.upkeep.pack(0)
    reply = await opened(world)
    assert "no longer kept" in reply["moment"]
    assert reply["error"]["code"] == "inference_failed"


async def test_a_mission_that_is_complete_is_seen_before_its_own_commit(world: Failing) -> None:
    def give(root: Any) -> None:
        source = "def note_(self, text):\n    self.noted = text\n    self._p_changed = True\n    return text\n"
        root["lobby"].brick._slots["note_"] = Method(
            "note_", source, contract={"writes": ("noted",)}, provenance={"intent": "", "policy": "default"}
        )

    await world.change(give)
    assert "error" not in await world.message("m1", "brick", "note_", "a")
    await world.desk.ask("rate", id="m1", rating=1)
    await opened(world)
    shown = (await world.desk.ask("step.show", session="s", target="brick"))["object"]["slots"]
    assert shown["noted"] == "a", "as it stands at its end"
    await world.desk.ask("step.go", session="s", to=0)
    shown = (await world.desk.ask("step.show", session="s", target="brick"))["object"]["slots"]
    assert "noted" not in shown


async def test_a_failure_of_an_earlier_version_is_seen_as_of_its_moment(world: Failing) -> None:
    await failed(world, "answer: refused")

    def older(root: Any) -> None:
        [record] = [one for key, one in ledger.ledger_of(root).failures.items() if key.endswith(" m1")]
        record.context = json.dumps({name: value for name, value in json.loads(record.context).items() if name != "saw"})

    await world.change(older)
    await world.change(lambda root: setattr(root["lobby"].robin, "core_mission", "To sell teas."))
    reply = await opened(world)
    assert reply["moment"].startswith("the image as it was")
    assert reply["counts"]["recorded"] == 4


async def test_a_missing_answer_shows_its_prompt_and_the_recorded_error(world: Failing) -> None:
    error = await failed(world, "answer: unreachable, tried again")
    reply = await opened(world)
    assert (reply["at"]["state"], reply["recorded"], reply["error"]) == ("SYNTHESIZING", True, error)
    assert [one["source"] for one in reply["inferences"]] == ["recorded"] * 4 + ["missing"]
    whole = (await world.desk.ask("step.show", session="s", inference=5))["inference"]
    assert whole["said"] is None
    assert BRIEF in whole["user"]
    with pytest.raises(InvalidInput, match="there are 5"):
        await world.desk.ask("step.show", session="s", inference=6)


async def test_one_goes_on_and_back_by_numbers_and_states(world: Failing) -> None:
    await failed(world, "no facet speaks")
    reply = await opened(world, at=0)
    assert (reply["at"]["number"], reply["inferences"], reply["ended"]) == (0, [], False)
    seen = [(await world.desk.ask("step.go", session="s", to="next"))["at"]["state"] for _ in range(3)]
    assert seen == ["IDLE", "DECOMPOSING", "DELEGATING"]
    reply = await world.desk.ask("step.go", session="s", to="next")
    assert (reply["ended"], reply["error"]["code"], reply["at"]["state"]) == (True, "quality_refused", "DELEGATING")
    reply = await world.desk.ask("step.go", session="s", to="decomposing")
    assert (reply["at"]["number"], reply["slots"]["brief"]) == (2, BRIEF)
    assert len(reply["rail"]) == 4, "what is known of the way stays"
    with pytest.raises(InvalidInput, match="no state 'NOWHERE'"):
        await world.desk.ask("step.go", session="s", to="NOWHERE")


async def test_new_inferences_are_paid_for_within_the_allowance(world: Failing) -> None:
    await failed(world, "facets: timeout")
    await opened(world)
    count = len(world.inference.asked)
    reply = await world.desk.ask("step.go", session="s", to="end", inferences=2)
    assert reply["counts"] == {"recorded": 1, "new": 2, "missing": 2}
    reply = await world.desk.ask("step.go", session="s", to="end", inferences=2)
    assert reply["counts"] == {"recorded": 1, "new": 4, "missing": 0}, "what the session has paid for is not paid for again"
    assert "result" in reply
    assert len(world.inference.asked) == count + 4


# --- looking and trying


async def test_expressions_and_messages_are_tried_and_nothing_is_kept(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    before = written(world)
    ask = world.desk.ask
    assert (await ask("step.eval", session="s", expression="len(cycle.plan) + len(robin.name)"))["value"] == 3 + len("ROBIN")
    assert (await ask("step.eval", session="s", expression="mission.brief"))["value"] == BRIEF
    sent = await ask("step.eval", session="s", target="brick", selector="count_words_", args=["a,b"])
    assert sent["value"] == 2
    await ask("step.eval", session="s", target="robin", selector="clone")
    for wrong in ("import os", "1 +", "(lambda: 1)(", ""):
        with pytest.raises(BatosError):
            await ask("step.eval", session="s", expression=wrong)
    with pytest.raises(MethodRefused):
        await ask("step.eval", session="s", expression="__import__('os')")
    with pytest.raises(BatosError):
        await ask("step.eval", session="s", target="tools.shop", selector="call_", args=["order", {"sku": "x"}])
    with pytest.raises(BatosError, match="journal"):
        await ask("step.eval", session="s", target="robin", selector="think_", args=["Be short.", "Why?"])
    paid = await ask("step.eval", session="s", target="robin", selector="think_", args=["Be short.", "Why?"], inferences=1)
    assert paid["value"] == answer(world.inference.asked[-1])
    assert written(world) == before
    assert world.shop.sent == []
    reply = await ask("step.go", session="s", to="failure")
    assert reply["counts"] == {"recorded": 4, "new": 0, "missing": 1}, "what was tried does not count"


async def test_a_method_alone_shows_its_lines_and_local_values(world: Failing) -> None:
    reply = await world.desk.ask("step.open", session="s", target="brick", selector="count_words_", args=["a b"])
    assert reply["result"]["value"] == 1, "it splits at commas"
    run = (await world.desk.ask("step.show", session="s", run=1))["method"]
    assert (run["steps"], run["line"], run["locals"]["words"], run["locals"]["count"]) == ([2, 3, 4], 4, "['a b']", "1")
    run = (await world.desk.ask("step.show", session="s", run=1, line=2))["method"]
    assert (run["line"], "count" in run["locals"]) == (3, False)
    new = METHODS["count_words_"].replace("','", "")
    await edit(world, "method", "brick.count_words_", new)
    reply = await world.desk.ask("step.go", session="s", to="end")
    assert reply["result"]["value"] == 2
    done = await world.desk.ask("step.continue", session="s", note="words are split at blanks")
    source = world.kernel.image.read(lambda root: root["lobby"].brick._slots["count_words_"].source)
    assert (source, world.kernel.image.read(lambda root: ledger.mission_of(root, done["with"]).state)) == (new, "COMPLETE")
    await world.desk.ask("undo", id=done["with"])
    assert world.kernel.image.read(lambda root: root["lobby"].brick._slots["count_words_"].source) == METHODS["count_words_"]


async def test_a_method_that_raised_stands_at_its_line(world: Failing) -> None:
    await failed(world, "method raises")
    reply = await opened(world)
    assert reply["runs"][0]["line"] == 3
    run = (await world.desk.ask("step.show", session="s", run=1))["method"]
    assert (run["line"], run["locals"]["left"], run["error"]["code"]) == (3, "0", "method_failed")


# --- changing


@pytest.mark.parametrize(
    ("kind", "target", "value"),
    [
        ("slot", "robin", "x"),
        ("slot", "nobody.slot", "x"),
        ("slot", "m1.state", "COMPLETE"),
        ("slot", "tools.shop.place", "x"),
        ("slot", "brick.divide_", "x"),
        ("slot", "psm.IDLE.behaviour", "x"),
        ("slot", "robin.parent*", "x"),
        ("prompt", "SYNTHESIZING", "Say anything, and say it well."),
        ("prompt", "NOWHERE", "x"),
        ("method", "brick.nothing_", "def nothing_(self):\n    return 1\n"),
        ("model", "robin", "no-such-model"),
        ("answer", "9", "x"),
        ("answer", "1", " "),
        ("cycle", "state*", "x"),
        ("cycle", "persona", "x"),
        ("reply", "", "x"),
    ],
)
async def test_a_change_that_makes_no_sense_is_refused(world: Failing, kind: str, target: str, value: str) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    with pytest.raises(BatosError):
        await edit(world, kind, target, value)
    assert (await world.desk.ask("step.show", session="s"))["edits"] == []


async def test_a_method_passes_the_guardian(world: Failing) -> None:
    await failed(world, "method raises")
    await opened(world)
    with pytest.raises(MethodRefused):
        await edit(world, "method", "brick.divide_", "def divide_(self, number):\n    import os\n    return os.getcwd()\n")


async def test_a_dropped_change_is_gone(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "slot", "robin.core_mission", "To sell teas.")
    await edit(world, "answer", "5", ANSWER)
    reply = await world.desk.ask("step.edit", session="s", drop=1)
    assert [one["number"] for one in reply["edits"]] == [2]
    reply = await world.desk.ask("step.go", session="s", to="end")
    assert (reply["result"]["text"], reply["counts"]["missing"]) == (ANSWER, 0)
    with pytest.raises(InvalidInput, match="there are: 2"):
        await world.desk.ask("step.edit", session="s", drop=1)


async def test_a_slot_of_the_cycle_is_changed_for_its_state(world: Failing) -> None:
    await failed(world, "answer: unreachable, tried again")
    await opened(world, at="DELEGATING")
    await edit(world, "cycle", "plan", [["plain_facet_", "what of plain_facet_"]])
    reply = await world.desk.ask("step.go", session="s", to="SYNTHESIZING")
    assert [one[0] for one in reply["slots"]["_tmp_synthesis_"]] == ["plain_facet_"]
    assert reply["counts"]["recorded"] == 2, "the plan, and one facet"
    await world.desk.ask("step.go", session="s", to="end", inferences=1)
    reply, ended = await continued(world, note="one facet is enough")
    assert ended["result"]["usage"]["inferences"] == 3
    replay = await world.desk.ask("replay", id="m1")
    assert replay["outcome"] == "same"


# --- going on

Mend = Callable[[Failing], Awaitable[None]]


def _edits(*edits: tuple[str, str, Any]) -> Mend:
    async def mend(world: Failing) -> None:
        for one in edits:
            await edit(world, *one)
        await world.desk.ask("step.go", session="s", to="end", inferences=9)

    return mend


def _facets_say(text: str) -> Mend:
    return _edits(*(("answer", str(number), text) for number in (2, 3, 4)))


async def _allow(world: Failing) -> None:
    await world.change(lambda root: image_grants.remove(root, 1))
    await world.change(lambda root: image_grants.add(root, GrantRecord(0, ALLOW, "shop.*"), 1.0))


GOOD = "def divide_(self, number):\n    return 0 if number == 1 else 10 // (number - 1)\n"
TIDY = "def tidy_m1_(self, number):\n    return number\n"
MENDED: dict[str, Mend] = {
    "plan: unreachable": _edits(),
    "facets: timeout": _facets_say(ANSWER),
    "answer: unreachable, tried again": _edits(("answer", "5", ANSWER)),
    "no facet speaks": _facets_say(ANSWER),
    "no answer": _edits(("answer", "1", ANSWER)),
    "deadline": _edits(),
    "cancelled": _edits(("slot", "robin.core_mission", "To be kind.")),
    "attempts exhausted": _edits(),
    "method raises": _edits(("method", "brick.divide_", GOOD)),
    "method sends too deep": _edits(("method", "brick.deep_", "def deep_(self, number):\n    return number\n")),
    "answer too large": _edits(("method", "brick.large_", "def large_(self, number):\n    return number\n")),
    "method refused": _edits(("answer", "1", TIDY)),
    "tool failed": _edits(),
    "grant refused": _allow,
}


@pytest.mark.parametrize("kind", MENDED)
async def test_what_can_be_mended_is_continued(world: Failing, kind: str) -> None:
    error = await failed(world, kind)
    await opened(world)
    await MENDED[kind](world)
    changes = (await world.desk.ask("step.continue", session="s", dry=True))["diff"]
    if kind in ("deadline", "attempts exhausted", "plan: unreachable", "tool failed", "grant refused"):
        assert changes == []
    paid = len(world.inference.asked)
    if kind == "tool failed":  # that it failed is recorded, and it is not tried again by itself
        _, ended = await continued(world)
        assert ended["error"]["code"] == "tool_failed"
        assert len(world.shop.sent) == 1
        return
    _, ended = await continued(world, note="it is mended")
    assert "error" not in ended, ended
    if kind != "grant refused":
        assert len(world.inference.asked) == paid, "what was paid for is not paid for again"
    status = await world.desk.ask("status", id="m1")
    assert (status["state"], status["attempts"]) == ("COMPLETE", 1)
    [fact] = status["continued"]
    assert (fact["state"], fact["error"]["code"], fact["with"]) == ("FAILED", error["code"], "m1.step1" if changes else None)
    kept = world.kernel.image.read(lambda root: [one["final"] for one in ledger.failures(root, id="m1")])
    assert kept[0], "its failures stay in the ledger"
    listed = world.kernel.image.read(lambda root: [one.id for one in ledger.listed(root, "FAILED")])
    assert "m1" not in listed
    if changes:
        await world.desk.ask("undo", id="m1.step1")


async def test_undo_takes_the_changes_back(world: Failing) -> None:
    await failed(world, "answer: refused")
    was = world.kernel.image.read(lambda root: root["lobby"].alfred.core_mission)
    await opened(world)
    await edit(world, "slot", "alfred.core_mission", "To keep the house.")
    await edit(world, "answer", "5", ANSWER)
    _, ended = await continued(world, note="a broken pipe")
    assert ended["result"]["text"] == ANSWER
    shown = await world.desk.ask("history", target="alfred", limit=1)
    assert shown["revisions"][0]["mission"] == "m1.step1"
    assert "a broken pipe" in shown["revisions"][0]["note"]
    undone = await world.desk.ask("undo", id="m1.step1")
    assert [one["id"] for one in undone["missions"]] == ["m1.step1"]
    assert world.kernel.image.read(lambda root: root["lobby"].alfred.core_mission) == was
    assert world.kernel.image.read(lambda root: len(journal.of(ledger.mission_of(root, "m1")).entries)) == 4, "none came, so none is left"
    with pytest.raises(InvalidInput, match="which it mends"):
        await world.desk.ask("step.open", id="m1.step1")
    await world.desk.ask("undo", id="m1.step1", redo=True)
    assert world.kernel.image.read(lambda root: root["lobby"].alfred.core_mission) == "To keep the house."


async def test_an_image_that_went_on_meanwhile_is_named(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "slot", "robin.core_mission", "To be kind.")
    await edit(world, "answer", "5", ANSWER)
    await world.kernel.image.system(lambda root: setattr(root["lobby"].robin, "core_mission", "To be brief."), mission="other")
    [found] = (await world.desk.ask("step.continue", session="s", dry=True))["conflicts"]
    assert (found["target"], found["now"], found["yours"], found["mission"]) == (
        "robin.core_mission",
        "To be brief.",
        "To be kind.",
        "other",
    )
    before = written(world)
    with pytest.raises(StepConflict, match=r"robin.core_mission \(by other\)"):
        await world.desk.ask("step.continue", session="s")
    assert written(world) == before
    await continued(world, anyway=True)
    assert world.kernel.image.read(lambda root: root["lobby"].robin.core_mission) == "To be kind."


async def test_the_diff_says_how_it_goes_in_the_image_as_it_is_now(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    ahead = (await world.desk.ask("step.continue", session="s", dry=True))["ahead"]
    assert ahead == {"known": 5, "missing": 0, "edits_unused": 0, "ends": True}
    await edit(world, "slot", "robin.core_mission", "To be kind.")
    before = written(world)
    ahead = (await world.desk.ask("step.continue", session="s", dry=True))["ahead"]
    assert ahead == {"known": 0, "missing": 1, "edits_unused": 1, "ends": False}, "another persona asks something else"
    assert written(world) == before


async def test_a_mission_that_waits_with_a_question_is_given_its_answer(world: Failing) -> None:
    await asked(world, "m1")
    world.mend()
    reply = await opened(world)
    assert (reply["question"], reply["at"]["state"], "error" in reply) == ("For how many guests?", "DECOMPOSING", False)
    await edit(world, "reply", "", "Twelve")
    reply = await world.desk.ask("step.go", session="s", to="end", inferences=4)
    assert "result" in reply
    count = len(world.inference.asked)
    reply, ended = await continued(world)
    assert "Twelve" in world.inference.asked[-1].user
    assert (len(world.inference.asked), ended["state"]) == (count, "COMPLETE")
    assert (await world.desk.ask("status", id="m1"))["questions"][0]["answer"] == "Twelve"


async def test_a_mission_that_waits_for_a_grant_is_given_it(world: Failing) -> None:
    source = "def order_(self, sku):\n    return self.tools.shop.order(sku=sku)\n"
    contract = world.kernel.methods.audit(source, "order_", tools=True).contract

    def give(root: Any) -> None:
        root["lobby"].brick._slots["order_"] = Method(
            "order_", source, contract=contract, provenance={"intent": "", "policy": "default+tools"}
        )

    await world.change(give)
    message = {"target": "brick", "selector": "order_", "args": ["assam"], "kwargs": {}, "write": True}
    heard = await submit(world.kernel, "m1", "send brick order_", message=json.dumps(message))
    while "NEEDS_INPUT" not in heard.states:
        await world.kernel.image.system(lambda root: None)
    reply = await opened(world)
    assert "shop.order" in reply["question"]
    await edit(world, "reply", "", "once")
    assert world.shop.sent == [], "nothing is sent in the mirror"
    _, ended = await continued(world)
    assert (ended["result"]["value"]["body"]["id"], len(world.shop.sent)) == (7, 1)


async def test_a_mission_in_its_back_off_is_continued(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, retry_backoff_s=600) as kernel:
        from tests.support.failing_missions import Desk
        from tests.support.tea_connection import Shop

        world = Failing(kernel, inference, Shop())
        fail = KINDS["answer: unreachable, tried again"]
        world.brief = lambda id, **options: submit(kernel, id, BRIEF, depth="facets")  # type: ignore[method-assign,assignment,return-value]
        heard: Any = await fail(world, "m1")
        while not kernel.image.read(lambda root: ledger.failures(root, id="m1", limit=1)):
            await kernel.image.system(lambda root: None)
        world.mend()
        world.desk = Desk(kernel)
        reply = await opened(world)
        assert (reply["error"]["code"], reply["at"]["state"]) == ("inference_failed", "SYNTHESIZING")
        await edit(world, "answer", "5", ANSWER)
        _, ended = await continued(world)
        assert ended["result"]["text"] == ANSWER
        assert heard.events[-1]["type"] == "result", "who watched it hears its end"


async def test_what_is_over_or_lost_is_not_continued(world: Failing) -> None:
    ended = await world.brief("done")
    assert "error" not in ended
    await opened(world, "done")
    assert "is COMPLETE" in (await world.desk.ask("step.continue", session="s", dry=True))["why_not"]
    with pytest.raises(InvalidInput, match="is COMPLETE"):
        await world.desk.ask("step.continue", session="s")
    await world.desk.ask("step.close", session="s")
    await failed(world, "answer: refused")
    await world.change(lambda root: journal.drop_texts(journal.of(ledger.mission_of(root, "m1"))))
    reply = await opened(world)
    assert any("lost its texts" in note for note in reply["notes"])
    assert reply["counts"]["recorded"] == 0, "nothing is invented"
    with pytest.raises(InvalidInput, match="lost its texts"):
        await world.desk.ask("step.continue", session="s")


async def test_an_effect_that_is_done_is_never_done_again(world: Failing) -> None:
    await world.change(lambda root: image_grants.add(root, GrantRecord(0, ALLOW, "shop.*"), 1.0))
    source = "def buy_(self, text):\n    made = self.tools.shop.order(sku=text)\n    return 1 // 0\n"

    contract = world.kernel.methods.audit(source, "buy_", tools=True).contract

    def give(root: Any) -> None:
        root["lobby"].brick._slots["buy_"] = Method("buy_", source, contract=contract, provenance={"intent": "", "policy": "default+tools"})

    await world.change(give)
    ended = await world.message("m1", "brick", "buy_", "assam")
    if world.shop.sent == []:  # its first act asks
        await world.kernel.scheduler.answer("m1", "once")
    error = ended["error"]
    assert (error["code"], len(world.shop.sent)) == ("method_failed", 1)
    reply = await opened(world)
    assert reply["tools"][0]["tool"] == "shop.order"
    await edit(world, "method", "brick.buy_", source.replace("1 // 0", "made['body']['id']"))
    reply = await world.desk.ask("step.go", session="s", to="end")
    assert reply["result"]["value"] == 7
    _, ended = await continued(world)
    assert (ended["result"]["value"], len(world.shop.sent)) == (7, 1)


async def test_what_mends_is_counted_once_and_the_cost_of_the_mission_too(world: Failing) -> None:
    await failed(world, "answer: refused")
    before = world.kernel.image.read(ledger.counts)
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    await continued(world)
    await world.kernel.image.system(lambda root: None)
    assert world.kernel.image.read(ledger.counts) == {"accepted": before["accepted"] + 1, "pending": 0}
    from batos.image.usage_totals import total_spent

    assert sum(row.inferences for row in world.kernel.image.read(total_spent)) == 5


async def test_memory_forgets_the_failure_and_remembers_the_answer(world: Failing) -> None:
    def documents() -> dict[str, str]:
        library = world.kernel.image.read
        return library(lambda root: {  # type: ignore[no-any-return]
            one.source: one.kind for one in root["lobby"].memory.library.documents.values() if one.source.startswith("mission:")
        })  # fmt: skip

    async def remembered(kind: str) -> None:
        while documents().get("mission:m1") != kind:
            await world.kernel.image.system(lambda root: None)

    await failed(world, "answer: refused")
    await remembered("failure")
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    await continued(world)
    await remembered("mission")
    assert documents() == {"mission:m1": "mission"}, "what mends is no memory of its own"


# --- sessions


async def test_sessions_are_bounded_and_those_left_are_dropped(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, limits=(StepLimits(sessions=1),)) as kernel:
        from tests.support.failing_missions import Desk

        desk = Desk(kernel)
        await (await submit(kernel, "m1", BRIEF, depth="facets")).end()
        await desk.ask("step.open", id="m1", session="s")
        assert (await desk.ask("step.open", id="m1", session="s"))["session"] == "s", "the same name is the same session"
        with pytest.raises(Busy, match="at most 1"):
            await desk.ask("step.open", id="m1", session="t")
        assert [one["session"] for one in (await desk.ask("step.show"))["sessions"]] == ["s"]
        await kernel.stepping.sweep()
        assert len(kernel.stepping) == 1
        kernel.stepping.listed()[0].used -= StepLimits().idle_s + 1
        await kernel.stepping.sweep()
        assert (await desk.ask("step.show"))["sessions"] == []
        with pytest.raises(UnknownSession, match="nothing was changed"):
            await desk.ask("step.go", session="s")


async def test_a_folded_mission_is_refused(world: Failing) -> None:
    await failed(world, "answer: refused")

    def fold(root: Any) -> None:
        from batos.image.mission_index import Line

        records = ledger.ledger_of(root)
        mission = records.missions.pop("m1")
        records.folded.keep(Line(mission.number, "m1", "FAILED", "client", 1, 1, (0, 0, 0, 0), "x", "b", "c"))

    await world.change(fold)
    with pytest.raises(MissionFolded):
        await opened(world)


async def test_a_daemon_that_ends_with_a_session_open_has_changed_nothing(tmp_path: Path) -> None:
    async with failing(tmp_path) as world:
        await failed(world, "answer: refused")
        await opened(world)
        await edit(world, "slot", "robin.core_mission", "To be kind.")
        await edit(world, "answer", "5", ANSWER)
    async with mind(tmp_path, FakeInference()) as kernel:
        assert kernel.image.read(lambda root: root["lobby"].robin.core_mission) != "To be kind."
        assert kernel.image.read(lambda root: ledger.mission_of(root, "m1").state) == "FAILED"


async def test_a_daemon_that_dies_after_the_transaction_goes_on_with_the_mission(tmp_path: Path) -> None:
    async with failing(tmp_path) as world:
        await failed(world, "answer: refused")
        await opened(world)
        await edit(world, "answer", "5", ANSWER)

        async def dies(id: str) -> None:
            raise BatosError("killed")

        requests = next(one for one in world.kernel.transport.dispatcher.services if type(one).__name__ == "StepRequests")
        requests.continuation = requests.continuation._replace(go_on=dies)
        with pytest.raises(BatosError, match="killed"):
            await world.desk.ask("step.continue", session="s", note="mended")
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.scheduler.quiet()
        record = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")))
        assert (record.state, record.result and record.result["text"]) == ("COMPLETE", ANSWER)
