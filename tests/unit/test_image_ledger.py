"""Ledger and journal: missions are accepted once, counted, ended once, and never lost."""

from __future__ import annotations

import dataclasses
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from BTrees.OOBTree import OOTreeSet

from batos.errors import AttemptsExhausted, MissionIdTaken, UnknownMission
from batos.image import Journal, LivingImage, PendingSet, journal, ledger
from batos.image.journal import InferenceRecord
from batos.image.mission_record import MissionRecord, draft
from batos.image.storage import FORMAT
from batos.objects import UvmObject


async def accept(image: LivingImage, id: str, brief: str = "b", begin: bool = False, **options: Any) -> tuple[bool, MissionRecord]:
    found: tuple[bool, MissionRecord] = await image.system(ledger.accept, id, brief, options, begin)
    return found


async def finish(image: LivingImage, id: str, thought: UvmObject | None = None) -> None:
    async with image.unit() as unit:
        ledger.complete(ledger.mission_of(unit.root, id), {"text": "ü"}, thought)


def described(image: LivingImage, id: str) -> MissionRecord:
    return image.read(lambda root: ledger.describe(ledger.mission_of(root, id)))  # type: ignore[no-any-return]


def inference(text: str, occurrence: int = 0) -> InferenceRecord:
    return InferenceRecord(b"k" * 16, occurrence, text, "model", "0" * 64, 1, 2, 0.5, 1.5, "stop", journal.now())


def test_what_is_about_to_be_accepted_reads_as_it_will_once_it_is() -> None:
    given = {"images": None, "needs": '["vision"]', "schema": None, "persona": "robin", "no_slot": 1}
    found = draft("m1", "brief", given)
    assert (found.id, found.images, found.needs, found.schema, found.persona) == ("m1", [], ["vision"], None, "robin")
    assert not found.has_own_pictures


async def test_accepting_twice_is_accepting_once(image: LivingImage) -> None:
    new, first = await accept(image, "m1", "the brief", priority=3)
    assert new
    assert (first.id, first.brief, first.state, first.priority, first.attempts) == ("m1", "the brief", "ACCEPTED", 3, 0)
    again, second = await accept(image, "m1", "the brief", priority=3)
    assert not again
    assert second == first
    assert image.read(ledger.counts) == {"accepted": 1, "pending": 1}


async def test_accepting_the_same_in_one_group(image: LivingImage) -> None:
    import asyncio

    found = await asyncio.gather(*(accept(image, "m1", begin=True) for _ in range(10)))
    assert [new for new, _ in found] == [True] + [False] * 9
    assert all(record.attempts == 1 for _, record in found)


@pytest.mark.parametrize("options", [{}, {"message": '{"selector":"x"}'}])
async def test_an_id_is_taken_by_its_brief_and_message(image: LivingImage, options: dict[str, Any]) -> None:
    await accept(image, "m1", "the brief", **options)
    for brief, other in (("another", options), ("the brief", {"message": "another"})):
        with pytest.raises(MissionIdTaken, match=r"'m1' names another mission already .*the brief"):
            await accept(image, "m1", brief, **other)
    assert not (await accept(image, "m1", "the brief", **options))[0]
    assert image.read(ledger.counts)["accepted"] == 1


async def test_accepting_again_after_the_end_answers_with_the_result(image: LivingImage) -> None:
    await accept(image, "m1")
    await finish(image, "m1")
    new, record = await accept(image, "m1")
    assert (new, record.state, record.result) == (False, "COMPLETE", {"text": "ü"})


async def test_attempts_are_counted_up_to_their_limit(image: LivingImage) -> None:
    await accept(image, "m1")
    assert [await image.system(ledger.begin_attempt, "m1", 3) for _ in range(3)] == [1, 2, 3]
    with pytest.raises(AttemptsExhausted, match="begun 3 times"):
        await image.system(ledger.begin_attempt, "m1", 3)
    assert described(image, "m1").attempts == 3
    await image.system(ledger.uncount_attempt, "m1", 2)
    assert await image.system(ledger.begin_attempt, "m1", 3) == 3


async def test_counting_back_stops_at_those_that_have_ended_and_at_the_end(image: LivingImage) -> None:
    await accept(image, "m1")
    await image.system(ledger.uncount_attempt, "m1", 0)
    assert described(image, "m1").attempts == 0
    for _ in range(2):
        await image.system(ledger.begin_attempt, "m1", 3)
    for _ in range(2):  # said twice, it is taken back once
        await image.system(ledger.uncount_attempt, "m1", 1)
    assert described(image, "m1").attempts == 1
    await finish(image, "m1")
    await image.system(ledger.uncount_attempt, "m1", 0)
    assert described(image, "m1").attempts == 1


async def test_an_attempt_that_died_with_progress_does_not_count(image: LivingImage) -> None:
    await accept(image, "m1", begin=True)
    for n in range(5):  # more than the limit: each paid for something new
        await image.system(journal.add, "m1", inference("paid", n))
        assert [one.attempts for one in await image.system(ledger.recover, 64)] == [0]
        assert [one.attempts for one in await image.system(ledger.recover, 64)] == [0], "a kill between the start and the next attempt"
        assert await image.system(ledger.begin_attempt, "m1", 3) == 1
    for n in range(2):
        assert [one.attempts for one in await image.system(ledger.recover, 64)] == [n + 1]
        assert await image.system(ledger.begin_attempt, "m1", 3) == n + 2
    assert [one.attempts for one in await image.system(ledger.recover, 64)] == [3]
    with pytest.raises(AttemptsExhausted, match="made no progress"):
        await image.system(ledger.begin_attempt, "m1", 3)


async def test_more_of_an_unfinished_answer_is_progress(image: LivingImage) -> None:
    await accept(image, "m1", begin=True)
    for tokens, attempts in ((10, 0), (30, 0), (30, 1)):
        await image.system(journal.keep_partial, "m1", (b"k" * 16, 0), "text", tokens)
        assert [one.attempts for one in await image.system(ledger.recover, 64)] == [attempts]
        await image.system(ledger.begin_attempt, "m1", 3)


async def test_what_pays_for_more_than_a_mission_may_ask_for_is_no_progress(image: LivingImage) -> None:
    await accept(image, "m1", begin=True)
    for n in range(3):
        await image.system(journal.add, "m1", inference("paid", n))
    assert [one.attempts for one in await image.system(ledger.recover, 2)] == [1]
    assert [one.attempts for one in await image.system(ledger.recover, 3)] == [0]


async def test_an_attempt_that_failed_counts_whatever_it_paid_for(image: LivingImage) -> None:
    """It is no death: that it failed is recorded, and the start after it does not judge it anew; nor one that was stopped in good order."""
    await accept(image, "m1", begin=True)
    await image.system(journal.add, "m1", inference("paid"))
    await image.system(ledger.fail, "m1", {"code": "a", "message": ""}, {}, False)
    assert [one.attempts for one in await image.system(ledger.recover, 64)] == [1]
    await image.system(ledger.begin_attempt, "m1", 3)
    await image.system(journal.add, "m1", inference("paid", 1))
    await image.system(ledger.uncount_attempt, "m1", 1)
    assert [one.attempts for one in await image.system(ledger.recover, 64)] == [1]


async def test_failures_are_recorded_and_the_last_ends_the_mission(image: LivingImage) -> None:
    for id in ("m1", "xm1"):
        await accept(image, id, begin=True)
        assert await image.system(ledger.fail, id, {"code": "a", "message": id}, {"state": "IDLE"}, False) is None
    assert described(image, "m1").state == "ACCEPTED"
    assert await image.system(ledger.fail, "m1", {"code": "b", "message": "ü"}, {}, True) is None
    record = described(image, "m1")
    assert (record.state, record.error) == ("FAILED", {"code": "b", "message": "ü"})
    assert record.finished >= record.accepted
    found = image.read(ledger.failures_of, "m1")
    assert [(f["error"]["code"], f["final"], f["attempt"], f["context"]) for f in found] == [
        ("a", False, 1, {"state": "IDLE"}),
        ("b", True, 1, {}),
    ]
    assert image.read(ledger.counts)["pending"] == 1  # xm1's


async def test_what_is_final_stays_as_it_is(image: LivingImage) -> None:
    await accept(image, "m1")
    await finish(image, "m1")
    stays = await image.system(ledger.fail, "m1", {"code": "cancelled", "message": ""}, {}, True)
    assert (stays.state, stays.error, stays.result) == ("COMPLETE", None, {"text": "ü"})
    assert image.read(ledger.failures_of, "m1") == []


async def test_a_mission_that_fails_while_it_completes_is_one_of_both(image: LivingImage) -> None:
    from transaction.interfaces import TransientError

    await accept(image, "m1")
    with pytest.raises(TransientError):  # noqa: PT012  the unit's exit is what is tested
        async with image.unit() as unit:
            ledger.complete(ledger.mission_of(unit.root, "m1"), {"text": "late"}, None)
            await image.system(ledger.fail, "m1", {"code": "cancelled", "message": ""}, {}, True)
    record = described(image, "m1")
    assert (record.state, record.result) == ("FAILED", None)


async def test_settling_is_idempotent(image: LivingImage) -> None:
    await accept(image, "m1")
    await finish(image, "m1")
    assert image.read(ledger.counts)["pending"] == 1
    for _ in range(2):
        await image.system(ledger.settle, "m1")
        assert image.read(ledger.counts) == {"accepted": 1, "pending": 0}


async def test_recovery_gives_the_pending_missions_in_their_order_also_after_a_restart(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri)
    for id in ("z", "a", "m", "done", "failed"):
        await accept(image, id, begin=id == "a")
    await finish(image, "done")
    await image.system(ledger.fail, "failed", {"code": "x", "message": ""}, {}, True)
    await image.close()
    image = await LivingImage.open(uri)
    assert image.read(ledger.counts)["pending"] == 4
    assert [(m.id, m.attempts) for m in await image.system(ledger.recover, 64)] == [("z", 0), ("a", 1), ("m", 0)]
    assert image.read(ledger.counts) == {"accepted": 5, "pending": 3}
    await image.close()


async def test_newest_first_and_numbers(image: LivingImage) -> None:
    assert image.read(lambda root: list(ledger.newest_first(root))) == []
    assert image.read(ledger.counts) == {"accepted": 0, "pending": 0}
    for i in range(40):
        await accept(image, f"m{i * 7919 % 40}")
    found = image.read(lambda root: [(m.id, m.number) for m in ledger.newest_first(root)])
    assert found == [(f"m{i * 7919 % 40}", i + 1) for i in reversed(range(40))]


@pytest.mark.parametrize("work", [(ledger.begin_attempt, "m1", 3), (ledger.fail, "m1", {}, {}, True), (ledger.uncount_attempt, "m1", 0)])
async def test_missions_that_do_not_exist(image: LivingImage, work: tuple[Any, ...]) -> None:
    with pytest.raises(UnknownMission, match="no mission 'm1'"):
        await image.system(*work)
    with pytest.raises(UnknownMission):
        described(image, "m1")


async def test_descriptions_are_plain_values(image: LivingImage) -> None:
    import json

    await accept(image, "m1", deadline_s=1.5, persona="robin", origin="heartbeat", message="{}")
    await finish(image, "m1", UvmObject())
    record = described(image, "m1")
    facts = dataclasses.asdict(record)
    assert json.loads(json.dumps(facts)) == facts
    assert (record.persona, record.deadline_s, record.origin, record.message) == ("robin", 1.5, "heartbeat", "{}")
    assert image.read(lambda root: type(ledger.mission_of(root, "m1").thought)) is UvmObject


async def test_a_record_has_every_field_and_stays_as_it_was_read(image: LivingImage) -> None:
    await accept(image, "m1", begin=True)
    record = described(image, "m1")
    assert vars(record) == vars(MissionRecord(id="m1", brief="b", accepted=record.accepted, number=1, attempts=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.attempts = 2  # type: ignore[misc]
    assert dataclasses.replace(record, attempts=2).attempts == 2
    await finish(image, "m1")
    assert (record.state, record.is_final, described(image, "m1").is_final) == ("ACCEPTED", False, True)
    assert record.to_wire(("priority", "state")) == {"priority": 0, "state": "ACCEPTED"}


async def test_a_mission_holds_only_what_differs_from_its_prototype(image: LivingImage) -> None:
    await accept(image, "m1", priority=0, persona=None)
    names = image.read(lambda root: set(ledger.mission_of(root, "m1")._slots))
    assert names == {"parent*", "id", "brief", "accepted", "before", "number"}


async def test_one_of_before_an_upgrade_is_described_with_what_its_prototype_lacks(image: LivingImage) -> None:
    await accept(image, "m1")
    await image.system(lambda root: root["ledger"].prototype._slots.pop("images") and None)
    assert described(image, "m1").images == []


async def test_a_changed_default_is_described_at_once_and_what_is_rolled_back_is_not(image: LivingImage) -> None:
    await accept(image, "m1")

    def attempts(root: Any, changed: int | None = None) -> int:
        mission = ledger.mission_of(root, "m1")
        if changed is not None:
            getattr(mission, "parent*").attempts = changed
        return ledger.describe(mission).attempts

    assert image.read(attempts) == 0
    with pytest.raises(ZeroDivisionError):
        await image.system(lambda root: 1 // (attempts(root, 5) - 5))
    assert image.read(attempts) == 0
    assert await image.system(lambda root: (attempts(root), attempts(root, 7), attempts(root))) == (0, 7, 7)
    assert image.read(attempts) == 7
    assert await image.system(attempts) == 7
    first, second = described(image, "m1"), described(image, "m1")
    first.questions.append({})  # type: ignore[typeddict-item]
    assert second.questions == described(image, "m1").questions == [], "no two records share a value"


async def test_unfinished_missions_are_found_without_a_look_at_the_others(image: LivingImage) -> None:
    for n in range(6):
        await accept(image, f"m{n}")
    await image.system(ledger.fail, "m4", {"code": "x", "message": ""}, {}, True)
    async with image.unit() as unit:
        ledger.complete(ledger.mission_of(unit.root, "m2"), {"text": ""}, None)  # not settled yet: it is still listed as pending
    assert image.read(lambda root: [m.id for m in ledger.unfinished(root)]) == ["m5", "m3", "m1", "m0"]


# --- journal


def test_an_entry_of_before_is_read_with_what_it_lacks() -> None:
    """Written before an entry had times of evaluation, seed and thought; the first ones of all had no checksums either."""
    entry = journal.JournalEntry(inference("old"))
    for lacking in (4, 5):
        fields = tuple(entry.inference)[:-lacking]
        old = journal.JournalEntry.__new__(journal.JournalEntry)
        old.__setstate__((*fields, journal._check(fields)))
        assert old.intact()
        assert (old.inference.text, old.inference.seed, old.inference.thinking, old.inference.eval_ms) == ("old", None, "", 0.0)


@pytest.mark.parametrize(
    "text", ["", "short", "The cat sat on the mat. " * 40, "naïve 猫 \ud800 " * 30, bytes(range(256)).decode("latin-1") * 2]
)
def test_the_text_of_an_entry_is_stored_smaller_and_comes_back(text: str) -> None:
    entry = journal.JournalEntry(inference(text))
    state = entry.__getstate__()
    again = journal.JournalEntry.__new__(journal.JournalEntry)
    again.__setstate__(pickle.loads(pickle.dumps(state)))
    assert again.intact()
    assert again.inference == entry.inference
    stored = next(field for field in state if field == text or (isinstance(field, bytes) and field[:1] == b"x"))
    assert len(stored) <= len(text.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("broken", [b"", b"no stream", zlib.compress(b"another text"), zlib.compress(b"\xff\xfe")])
def test_an_entry_whose_text_is_not_what_was_written_is_not_intact(broken: bytes) -> None:
    entry = journal.JournalEntry(inference("The cat sat on the mat. " * 40))
    state = [broken if isinstance(field, bytes) and field[:1] == b"x" else field for field in entry.__getstate__()]
    assert broken in state
    entry.__setstate__(tuple(state))
    assert not entry.intact()


async def test_decisions_of_an_earlier_version_are_read_and_kept_with_later_ones(image: LivingImage) -> None:
    """It wrote them into the journal itself."""
    await accept(image, "m1")
    one, two, three = (journal.mark_of(text) for text in ("one", "two", "three"))

    def as_before(root: Any) -> None:
        held = journal.opened(ledger.mission_of(root, "m1"))
        held.shared, held.approaches, held.nothing_on = ((one, (("robin", "part"),)),), ((one, ("direct", "why", "off")),), (one,)

    await image.system(as_before)
    assert image.read(journal.shared_of, "m1") == {one: (("robin", "part"),)}
    assert image.read(journal.approaches_of, "m1") == {one: ("direct", "why", "off")}
    assert image.read(journal.nothing_on, "m1") == {one}
    await image.system(journal.add_shared, "m1", two, ())
    await image.system(journal.add_approach, "m1", one, ("facets", "another why", "full"))  # the first record stays
    await image.system(journal.add_approach, "m1", two, ("facets", "why", "full"))
    await image.system(journal.add_recalled, "m1", "three", ())
    assert image.read(journal.route_of, "m1") is None
    await image.system(journal.set_route, "m1", "{}")
    await image.system(journal.set_route, "m1", "[]")
    assert image.read(journal.route_of, "m1") == "{}"
    assert image.read(journal.shared_of, "m1") == {one: (("robin", "part"),), two: ()}
    assert image.read(journal.approaches_of, "m1") == {one: ("direct", "why", "off"), two: ("facets", "why", "full")}
    assert image.read(journal.nothing_on, "m1") == {one, three}
    assert await image.system(lambda root: journal.drop_texts(journal.of(ledger.mission_of(root, "m1"))))
    assert not await image.system(lambda root: journal.drop_texts(journal.of(ledger.mission_of(root, "m1"))))
    assert image.read(journal.shared_of, "m1") == image.read(journal.approaches_of, "m1") == {}
    assert image.read(journal.nothing_on, "m1") == frozenset()
    assert image.read(journal.route_of, "m1") == "{}"


async def test_the_journal_keeps_inferences_in_their_order_across_a_restart(tmp_path: Path) -> None:
    uri = f"file://{tmp_path / 'i.fs'}"
    image = await LivingImage.open(uri)
    await accept(image, "m1")
    await accept(image, "m2")
    entries = [inference(f"answer {i}", i) for i in range(5)]
    for entry in entries:
        await image.system(journal.add, "m1", entry, mission="m1")
    await image.close()
    image = await LivingImage.open(uri)
    assert image.read(journal.load, "m1") == entries
    assert image.read(journal.load, "m2") == []
    assert image.read(journal.load, "nobody") == []
    await image.close()


def test_keys_are_of_the_content() -> None:
    request: dict[str, Any] = {"digest": "d", "system": "s", "user": "ü \ud800", "schema": None, "options": {"seed": 1, "num_ctx": 2}}

    def key(**changed: Any) -> bytes:
        return journal.key_of(journal.content_of(**{**request, **changed}))

    assert len(key()) == 16
    assert key() == key(options={"num_ctx": 2, "seed": 1})
    others = [key(digest="e"), key(options={"seed": 2}), key(schema={}), key(system="", user="sü \ud800"), key(user="")]
    assert len({key(), *others}) == 6


async def test_a_mission_has_a_journal_from_its_first_attempt_on(image: LivingImage) -> None:
    await accept(image, "m1")
    await accept(image, "m2", begin=True)

    def held(root: Any, id: str) -> Any:
        return ledger.mission_of(root, id)._slots.get("journal")

    assert image.read(held, "m1") is None
    assert image.read(journal.load, "m1") == []
    assert image.read(journal.recalled_of, "m1") == image.read(journal.shared_of, "m1") == {}
    assert image.read(journal.route_of, "m1") is None
    assert image.read(journal.nothing_on, "m1") == frozenset()
    assert image.read(lambda root: journal.spent_on(journal.of(ledger.mission_of(root, "m1")))) == []
    assert await image.system(lambda root: journal.drop_texts(journal.of(ledger.mission_of(root, "m1")))) is False
    assert image.read(held, "m1") is None, "looking makes none"
    assert isinstance(image.read(held, "m2"), Journal)
    await image.system(ledger.begin_attempt, "m1", 3)
    made = image.read(lambda root: held(root, "m1")._p_oid)
    await image.system(ledger.begin_attempt, "m1", 3)
    await image.system(journal.add, "m1", inference("one"))
    assert image.read(lambda root: held(root, "m1")._p_oid) == made
    assert [entry.text for entry in image.read(journal.load, "m1")] == ["one"]


async def test_what_is_journaled_while_a_cycle_goes_on_does_not_meet_what_it_commits(image: LivingImage) -> None:
    await accept(image, "m1")
    await image.system(ledger.begin_attempt, "m1", 3)
    async with image.unit() as unit:
        mission = ledger.mission_of(unit.root, "m1")
        await image.system(journal.add, "m1", inference("one"))
        ledger.complete(mission, {"text": "one"}, None)
    assert described(image, "m1").state == ledger.COMPLETE


async def test_a_mission_that_ends_before_it_began_needs_no_journal(image: LivingImage) -> None:
    await accept(image, "m1")
    await image.system(ledger.fail, "m1", {"code": "cancelled", "message": ""}, {}, True)
    assert described(image, "m1").state == ledger.FAILED
    assert image.read(ledger.counts) == {"accepted": 1, "pending": 0}


async def test_an_image_of_format_3_goes_on_with_its_missions(image: LivingImage) -> None:
    """There each mission has its journal from the first, and the pending ones are in another kind of set."""

    def as_before(root: Any) -> None:
        root["format"] = 3
        del root["lobby"].traits.mission.journal
        for id in ("m1", "m2"):
            ledger.mission_of(root, id).journal = Journal()
        journal.add(root, "m1", inference("paid for"))
        ledger.ledger_of(root).pending = OOTreeSet(ledger.ledger_of(root).pending)

    for id in ("m1", "m2", "m3"):
        await accept(image, id)
    await image.system(as_before)
    await finish(image, "m3")
    await image.close()
    for _ in range(2):
        again = await LivingImage.open(image.uri)
        with again.snapshot() as root:
            assert root["format"] == FORMAT
            assert type(ledger.ledger_of(root).pending) is PendingSet
            assert [entry.text for entry in journal.load(root, "m1")] == ["paid for"]
            assert journal.load(root, "m2") == []
        assert [record.id for record in await again.system(ledger.recover, 64)] == ["m1", "m2"]
        assert await again.system(ledger.begin_attempt, "m2", 9) >= 1
        await again.system(journal.add, "m2", inference("another"))
        assert again.read(journal.load, "m2")[0].text == "another"
        await again.system(lambda root: setattr(ledger.mission_of(root, "m2").journal, "entries", ()))
        await again.close()
