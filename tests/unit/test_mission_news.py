"""News of missions that another kernel wrote: each end once, pauses and questions, whatever became of the records meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from batos.bus import EventBus, MissionEnded, StateEntered
from batos.image import LivingImage, continuations, ledger
from batos.image.mission_index import Line
from batos.mind.events import Events
from batos.missions import mission_news
from batos.missions.mission_news import MissionNews


class Heard:
    """What is published of all missions, and the news that publish it."""

    def __init__(self, image: LivingImage) -> None:
        self.image, self.here, self.live = image, set[str](), set[str]()
        self.bus, self.ends, self.states = EventBus(), list[MissionEnded](), list[StateEntered]()
        self.bus.subscribe(MissionEnded, self.ends.append)
        self.bus.subscribe(StateEntered, self.states.append)
        self.events, self.told = Events(self.bus), list[tuple[str, str, str]]()
        for kind in ("state", "needs_input", "result"):
            self.events.listen(kind, lambda event: self.told.append((event["id"], event["type"], event["state"])))
        self.changed: list[str] = []
        self.news = MissionNews(self.events, self.here.__contains__, self.live.__contains__, lambda record: self.changed.append(record.id))

    def look(self) -> list[tuple[str, str, str]]:
        """What one look publishes."""
        self.told.clear()
        with self.image.snapshot() as root:
            self.news.look(root)
        return list(self.told)


@pytest.fixture
def heard(image: LivingImage) -> Heard:
    return Heard(image)


def accept(root: Any, *ids: str) -> None:
    for id in ids:
        ledger.accept(root, id, "Plan the day", {}, False)


def complete(root: Any, id: str) -> None:
    ledger.complete(ledger.mission_of(root, id), {"text": "done", "persona": "ROBIN"}, None)
    ledger.settle(root, id)


def fail(root: Any, id: str) -> None:
    ledger.fail(root, id, {"code": "cancelled", "message": "it was"}, {}, True)


def fold(root: Any, id: str) -> None:
    """Leave of a mission no more than its line."""
    held, mission = root["ledger"], ledger.mission_of(root, id)
    line = Line(mission.number, id, mission.state, "client", int(mission.accepted), 1, (1, 2, 3, 0), "mark", "Plan", "done")
    held.folded.keep(line)
    del held.missions[id]


ENDED = [("m1", "state", "COMPLETE"), ("m1", "result", "COMPLETE")]


async def test_what_was_there_before_the_first_look_is_no_news(heard: Heard) -> None:
    await heard.image.system(accept, "m1", "m2")
    await heard.image.system(complete, "m2")
    await heard.image.system(ledger.set_paused, "m1", True)
    assert heard.look() == []
    assert heard.look() == []
    assert len(heard.news) == 1


async def test_an_end_is_told_once_also_of_a_mission_that_came_and_ended_between_two_looks(heard: Heard) -> None:
    heard.look()
    await heard.image.system(accept, "m1")
    await heard.image.system(complete, "m1")
    assert heard.look() == ENDED
    assert heard.look() == []
    assert heard.ends == [MissionEnded("m1", "COMPLETE", "ROBIN", None, False)]
    assert len(heard.news) == 0


async def test_a_mission_that_was_folded_between_two_looks_is_told_to_have_ended(heard: Heard) -> None:
    await heard.image.system(accept, "m1")
    heard.look()
    await heard.image.system(complete, "m1")
    await heard.image.system(fold, "m1")
    assert heard.look() == ENDED
    assert heard.look() == []


async def test_what_this_kernel_ends_it_tells_itself_and_once(heard: Heard) -> None:
    await heard.image.system(accept, "m1", "m2")
    heard.look()
    heard.here |= {"m1", "m2"}
    await heard.image.system(complete, "m1")
    await heard.image.system(fail, "m2")
    assert heard.look() == []
    heard.events.publish("m1", {"type": "result", "id": "m1", "state": "COMPLETE"})
    heard.here.clear()
    assert heard.look() == [("m2", "state", "FAILED"), ("m2", "result", "FAILED")]  # which did not tell it after all
    heard.events.publish("m2", {"type": "result", "id": "m2", "state": "FAILED"})
    assert [(one.mission, one.here) for one in heard.ends] == [("m1", True), ("m2", False)]
    assert heard.ends[1].error_code == "cancelled"


async def test_the_end_of_what_comes_live_is_left_to_the_relay_for_a_moment(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    await heard.image.system(accept, "m1")
    heard.look()
    heard.live.add("m1")
    await heard.image.system(complete, "m1")
    assert heard.look() == []
    monkeypatch.setattr(mission_news, "_GRACE_S", 0.0)
    assert heard.look() == ENDED


async def test_pauses_and_questions_are_told_as_they_are_written(heard: Heard) -> None:
    await heard.image.system(accept, "m1")
    heard.look()
    await heard.image.system(ledger.set_paused, "m1", True)
    assert heard.look() == [("m1", "state", "PAUSED")]
    assert heard.look() == []
    await heard.image.system(ledger.set_paused, "m1", False)
    assert heard.look() == []
    await heard.image.system(ledger.ask_question, "m1", "Which day?", 0, 0)
    assert heard.look() == [("m1", "state", "NEEDS_INPUT"), ("m1", "needs_input", "NEEDS_INPUT")]
    assert [one.state for one in heard.states] == ["PAUSED", "NEEDS_INPUT"]
    assert heard.changed == ["m1"] * 3  # since the first look
    await heard.image.system(ledger.answer_question, "m1", "Monday", None)
    heard.here.add("m1")
    await heard.image.system(ledger.set_paused, "m1", True)
    assert heard.look() == []  # its own kernel tells it
    assert heard.changed == ["m1"] * 4  # and heeds it


async def test_of_a_crowd_that_waits_ends_are_told_at_once_and_pauses_in_turns(heard: Heard) -> None:
    ids = [f"m{number}" for number in range(3 * mission_news._WAITING_READ)]
    await heard.image.system(accept, *ids)
    heard.look()
    await heard.image.system(complete, ids[-1])
    await heard.image.system(ledger.set_paused, ids[-2], True)
    assert (ids[-1], "result", "COMPLETE") in heard.look()
    assert any((ids[-2], "state", "PAUSED") in heard.look() for _ in range(4))
    stop = heard.events.watch(ids[7], lambda event: None)
    await heard.image.system(ledger.set_paused, ids[7], True)
    assert heard.look() == [(ids[7], "state", "PAUSED")]  # what is watched is read each time
    stop()


async def test_a_mission_that_was_continued_ends_once_more(heard: Heard) -> None:
    image = heard.image
    await image.system(accept, "a")
    heard.look()
    await image.system(fail, "a")
    assert [kind for _, kind, _ in heard.look()] == ["state", "result"]
    await image.system(lambda root: continuations.go_on(root, "a", "", "again", continuations.ThoughtChange(), ()))
    assert heard.look() == []
    assert not heard.events.is_told("a")
    await image.system(complete, "a")
    assert heard.look() == [("a", "state", "COMPLETE"), ("a", "result", "COMPLETE")]
    assert heard.look() == []
    assert [one.state for one in heard.ends] == ["FAILED", "COMPLETE"]


async def test_a_mission_that_was_continued_and_ended_between_two_looks_is_told_once_more(heard: Heard) -> None:
    image = heard.image
    again = ("", "again", continuations.ThoughtChange(), ())
    await image.system(accept, "a", "b")
    heard.look()
    for id in ("a", "b"):
        await image.system(fail, id)
    assert len(heard.look()) == 4
    for id in ("a", "b"):
        await image.system(continuations.go_on, id, *again)
        await image.system(complete, id)
    assert heard.look() == [(id, kind, "COMPLETE") for id in ("a", "b") for kind in ("state", "result")]
    assert heard.look() == []
    assert [one.state for one in heard.ends] == ["FAILED"] * 2 + ["COMPLETE"] * 2


async def test_an_end_that_was_told_and_is_not_settled_is_told_once(heard: Heard) -> None:
    image = heard.image
    await image.system(accept, "a")
    heard.look()
    await image.system(lambda root: ledger.complete(ledger.mission_of(root, "a"), {"text": "done", "persona": "ROBIN"}, None))
    assert len(heard.look()) == 2
    assert heard.look() == []
    await image.system(ledger.settle, "a")
    assert heard.look() == []
