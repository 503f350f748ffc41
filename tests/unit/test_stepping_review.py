"""Faults that were found in stepping: changes that were dropped, answers that never came, undo, requests that come twice, and voices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import BatosError, InvalidInput, UnknownSession
from batos.image import continuations, journal, ledger, model_registry
from batos.image.journal import JournalEntry
from batos.image.usage_totals import total_spent
from tests.support.failing_missions import ANSWER, BRIEF, Desk, Failing, continued, edit, failed, failing, opened, part_of
from tests.support.missions import FakeInference, answer, mind, submit


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Failing]:
    async with failing(tmp_path) as world:
        yield world


def texts(world: Failing) -> list[str]:
    return world.kernel.image.read(lambda root: [one.text for one in journal.load(root, "m1")])  # type: ignore[no-any-return]


async def test_what_follows_a_dropped_change_of_the_same_place_is_no_conflict(world: Failing) -> None:
    await failed(world, "answer: refused")
    was = world.kernel.image.read(lambda root: root["lobby"].robin.core_mission)
    await opened(world)
    await edit(world, "slot", "robin.core_mission", "To sell teas.")
    await edit(world, "slot", "robin.core_mission", "To be kind.")
    await edit(world, "answer", "5", ANSWER)
    reply = await world.desk.ask("step.edit", session="s", drop=1)
    assert [one["before"] for one in reply["edits"] if one["kind"] == "slot"] == [was]
    await world.desk.ask("step.continue", session="s", note="kinder")


async def test_an_answer_that_never_came_is_kept_wherever_the_session_stands(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    await world.desk.ask("step.go", session="s", to=1)
    asked = len(world.inference.asked)
    _, ended = await continued(world, note="it stands at its first state")
    assert (ended["result"]["text"], len(world.inference.asked)) == (ANSWER, asked)


async def test_a_redo_brings_an_added_answer_back(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "slot", "alfred.core_mission", "To keep the house.")
    await edit(world, "answer", "5", ANSWER)
    await continued(world, note="a broken pipe")
    before = texts(world)
    await world.desk.ask("undo", id="m1.step1")
    assert texts(world) == before[:-1]
    await world.desk.ask("undo", id="m1.step1", redo=True)
    assert texts(world) == before
    assert (await world.desk.ask("replay", id="m1"))["outcome"] == "same"


async def test_an_undo_leaves_what_a_later_continuation_changed(world: Failing) -> None:
    await failed(world, "answer: refused")
    world.inference.fail_when = None

    def mending(root: Any, made: str, text: str) -> None:
        mission = ledger.mission_of(root, "m1")
        one = journal.of(mission).entries[0].inference
        thought = continuations.ThoughtChange((one._replace(text=text),))
        continuations.record_mending(root, made, "m1", "", thought, [])
        continuations.put_answers(journal.opened(mission), thought.answers)

    was = texts(world)[0]
    await world.change(lambda root: mending(root, "m1.step1", "one"))
    await world.change(lambda root: mending(root, "m1.step2", "two"))
    await world.change(lambda root: continuations.turn_back(root, "m1.step1", redo=False))
    assert texts(world)[0] == "two"
    await world.change(lambda root: continuations.turn_back(root, "m1.step2", redo=False))
    assert texts(world)[0] == "one", "what it stood on; the former one was taken back before"
    await world.change(lambda root: continuations.turn_back(root, "m1.step1", redo=False))
    assert texts(world)[0] == was


async def test_a_continuation_that_is_asked_for_twice_at_once_is_one(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    other = Desk(world.kernel)
    asked = {"session": "s", "note": "twice"}
    one, two = await asyncio.gather(world.desk.ask("step.continue", **asked), other.ask("step.continue", **asked))
    assert one == two
    listed = world.kernel.image.read(lambda root: [known.id for known in ledger.listed(root, None)])
    assert [id for id in listed if ".step" in id] == ["m1.step1"]


async def test_a_deadline_begins_anew_also_where_it_was_continued_while_it_waited(world: Failing) -> None:
    await failed(world, "answer: refused")

    def state(root: Any) -> float:
        mission = ledger.mission_of(root, "m1")
        mission.deadline_s, now = 100.0, mission.accepted + 150
        mission.continued = ledger.compact([{"at": mission.accepted + 90, "with": None, "note": "", "attempts": 0, "state": "ACCEPTED"}])
        continuations.reopen(root, mission, now)
        return float(mission.accepted + mission.deadline_s - now)

    assert await world.kernel.image.system(state) == pytest.approx(100.0)


async def test_a_question_in_an_evaluation_is_an_error_and_not_a_fault(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    with pytest.raises(BatosError) as found:
        await world.desk.ask("step.eval", session="s", target="robin", selector="ask_user_", args=["What?"])
    assert "What?" in found.value.message
    assert isinstance(found.value, InvalidInput)


async def test_an_expert_that_writes_methods_is_nobodys_voice(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m", "Look up the moon")).end()
        writer = "babs:method-writer-v1"
        inference.digests[writer] = "e" * 64
        facts = {"model": writer, "persona": "babs", "expert": "w", "version": 1, "base": "b", "role": "methods"}
        await kernel.image.system(model_registry.begin_experts, {"babs": "b"})
        await kernel.image.system(model_registry.intend_expert, {**facts, "content": "w", "folder": "w"})
        await kernel.image.system(model_registry.note_built, writer, "d", "r", "adapter", "")

        def wrote(root: Any) -> None:
            held = journal.opened(ledger.mission_of(root, "m"))
            draft = held.entries[0].inference._replace(key=b"a draft of a method.", model=writer)
            held.entries = (JournalEntry(draft), *held.entries)

        await kernel.image.system(wrote)
        told = await kernel.replays.replay("m")
        assert told["outcome"] == "same", told


async def test_where_ends_are_told_once_a_continued_mission_ends_once_more(world: Failing) -> None:
    world.kernel.events.tell_once()
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    async with asyncio.timeout(90):
        _, ended = await continued(world, note="told again")
    assert ended["state"] == "COMPLETE"


async def test_a_session_of_the_same_name_continues_once_more(world: Failing) -> None:
    """The console names a session by its mission."""
    await failed(world, "answer: refused")
    await opened(world)
    await edit(world, "slot", "alfred.core_mission", "To keep the house.")
    await world.desk.ask("step.continue", session="s", note="first")
    await world.desk.ask("pause", id="m1")
    await opened(world)
    await edit(world, "slot", "alfred.core_mission", "To keep the garden.")
    reply = await world.desk.ask("step.continue", session="s", note="second", anyway=True)
    assert reply["with"] == "m1.step2"
    assert world.kernel.image.read(lambda root: root["lobby"].alfred.core_mission) == "To keep the garden."


async def test_a_mission_that_was_cancelled_while_it_was_paused_goes_on(world: Failing) -> None:
    await failed(world, "answer: refused")

    def steered(root: Any) -> None:  # by another kernel: its words stay in the record
        mission = ledger.mission_of(root, "m1")
        mission.cancelled, mission.paused = True, True

    await world.change(steered)
    await opened(world)
    await edit(world, "answer", "5", ANSWER)
    async with asyncio.timeout(90):
        _, ended = await continued(world, note="after all")
    assert ended["state"] == "COMPLETE"


async def test_a_session_is_closed_in_the_middle_of_going(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    world.inference.hold()
    asked = len(world.inference.asked)
    other = Desk(world.kernel)
    going = asyncio.create_task(other.ask("step.go", session="s", to="failure", inferences=3))
    await world.inference.came(asked + 1)
    async with asyncio.timeout(90):
        reply = await world.desk.ask("step.close", session="s")
    assert reply["sessions"] == []
    async with asyncio.timeout(90):
        with pytest.raises(UnknownSession):
            await going
    world.inference.release()
    await opened(world)
    assert (await world.desk.ask("step.go", session="s", to="end", inferences=3))["counts"]["new"] == 1


@pytest.mark.parametrize("target", ["comparisons.log", "autotelic.changes.log"])
async def test_a_tree_in_which_bat_os_keeps_things_is_not_changed(world: Failing, target: str) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    with pytest.raises(InvalidInput, match="no plain data"):
        await edit(world, "slot", target, {})


async def test_the_name_of_an_open_session_is_not_taken_for_another_mission(world: Failing) -> None:
    await failed(world, "answer: refused")
    await world.brief("m2")
    await opened(world)
    assert (await opened(world))["id"] == "m1", "the same one again"
    with pytest.raises(InvalidInput, match="'s' is of 'm1'"):
        await opened(world, "m2")


async def test_a_text_stays_a_text(world: Failing) -> None:
    await failed(world, "answer: refused")
    await opened(world)
    with pytest.raises(InvalidInput, match="holds a text"):
        await edit(world, "slot", "robin.core_mission", 5)
    await edit(world, "slot", "robin.core_mission", "5")


async def test_what_a_session_paid_for_is_told_also_where_it_is_dropped_and_counted_once_where_it_goes_on(world: Failing) -> None:
    def told() -> list[int]:
        meter = world.kernel.info()["costs"]["inferences"]
        return [meter, sum(row.inferences for row in world.kernel.image.read(total_spent))]

    await failed(world, "answer: refused")
    world.mend()
    before = told()
    for paid in (1, 2):
        await opened(world, inferences=1)
        await world.desk.ask("step.go", session="s", to="end", inferences=1)
        assert told() == [one + paid for one in before]
        await world.desk.ask("step.close", session="s")
    await opened(world)
    await world.desk.ask("step.go", session="s", to="end", inferences=1)
    await continued(world, note="as it is")
    assert told() == [one + 3 for one in before], "the third is in the mission's journal"


async def test_a_method_is_stepped_into_whatever_missions_are_called(world: Failing) -> None:
    await world.message("step-count_words_", "brick", "count_words_", "a b")
    for selector in ("count_words_", "count_words_"):
        reply = await world.desk.ask("step.open", session="s", target="brick", selector=selector, args=["a b"])
        assert (reply["id"], reply["result"]["value"]) == ("step-count_words_-2", 1)
    with pytest.raises(InvalidInput, match="choose another name"):
        await world.desk.ask("step.open", session="s", target="brick", selector="divide_", args=[3])


async def test_an_attempt_that_ends_as_its_mission_is_continued_does_not_end_it_by_its_old_thought(world: Failing) -> None:
    """The transaction of the continuation is committed, and the attempt under way has not been told yet."""
    asked = len(world.inference.asked)
    world.inference.say = lambda request: "A facet of before." if part_of(request) == "facet" else answer(request)
    heard = await submit(world.kernel, "m1", BRIEF, depth="facets")
    await world.inference.came(asked + 4)
    world.inference.hold()
    await world.inference.came(asked + 5)

    def change(root: Any) -> None:
        facet = next(one for one in journal.load(root, "m1") if one.text == "A facet of before.")
        continuations.go_on(root, "m1", "", "kinder", continuations.ThoughtChange((facet._replace(text="A facet of now."),)), [])

    await world.kernel.image.system(change)
    world.inference.release()
    end = await heard.end()
    assert end["state"] == "COMPLETE"
    entries = world.kernel.image.read(journal.load, "m1")
    assert "A facet of now." in world.inference.asked[-1].user
    assert end["result"]["usage"]["inferences"] == len(entries) - 1, "the answer that nothing asks for any more stays in the journal"
    assert world.kernel.image.read(lambda root: ledger.mission_of(root, "m1").attempts) == 1
