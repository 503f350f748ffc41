"""What does not fit the context of a model: left out by rule, told, recorded, and nothing is paid twice for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.bridge.inference import ChatReply, ChatRequest
from batos.cli.mission_view import doubts
from batos.doors.answer_text import AnswerText
from batos.doors.mcp_missions import MissionOutcome
from batos.errors import InferenceFailed
from batos.image import journal, ledger
from batos.memory.objects import TOOL
from batos.mind import prompts
from batos.mind.evidence import RecalledPassage
from tests.support.missions import FakeInference, Narrow, length, mind, submit, written

LONG = " ".join(f"Item {n} of the list is here." for n in range(400)) + " Which items are there?"
ASKED = "Which items are there?"


@pytest.mark.parametrize("depth", ["direct", "facets"])
async def test_of_a_brief_that_is_too_long_the_middle_is_left_out_and_that_is_said(tmp_path: Path, depth: str) -> None:
    inference = Narrow(4000)
    async with mind(tmp_path, inference, depth=depth) as kernel:
        end = await (await submit(kernel, "m1", LONG)).end()
        assert end["state"] == "COMPLETE"
        told = inference.asked[-1].user
        assert "Item 0 of the list" in told
        assert ASKED in told
        assert "characters of the request are left out here" in told
        left = end["result"]["left_out"]
        assert list(left) == ["request"]
        assert 0 < left["request"] < len(LONG)
        (cycle,) = kernel.image.read(lambda root: [ledger.mission_of(root, "m1").thought])
        assert cycle is not None


async def test_a_brief_that_is_too_long_beside_a_schema_is_shortened_and_the_schema_is_whole(tmp_path: Path) -> None:
    inference = Narrow(2000)
    schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
    async with mind(tmp_path, inference, depth="direct") as kernel:
        end = await (await submit(kernel, "m1", LONG, schema=json.dumps(schema))).end()
        assert end["result"]["value"] == {"item": "what of item"}
        assert end["result"]["left_out"]["request"] > 0
        assert json.dumps(schema) in inference.asked[-1].user
        assert ASKED in inference.asked[-1].user


async def test_what_fits_is_told_whole_and_nothing_is_said(tmp_path: Path) -> None:
    inference = Narrow(100_000)
    async with mind(tmp_path, inference, depth="direct") as kernel:
        end = await (await submit(kernel, "m1", LONG)).end()
        assert LONG in inference.asked[-1].user
        assert "left_out" not in end["result"]
        assert inference.refused == 0


async def test_of_a_conversation_the_oldest_goes_first(tmp_path: Path) -> None:
    inference = Narrow(100_000)
    async with mind(tmp_path, inference, depth="direct") as kernel:
        await (await submit(kernel, "m1", f"First {'a' * 900}")).end()
        await (await submit(kernel, "m2", f"Second {'b' * 900}", context="m1")).end()
        inference.context = 2400
        end = await (await submit(kernel, "m3", f"Third {'c' * 700}", context="m2")).end()
        last = inference.asked[-1]
        ((said, _),) = last.turns
        assert said.startswith("(Earlier messages of this conversation are left out.)\n\nSecond")
        assert f"Third {'c' * 700}" in last.user, "what is asked is whole"
        assert list(end["result"]["left_out"]) == ["conversation"]


async def test_what_cannot_fit_is_refused_with_the_remedy(tmp_path: Path) -> None:
    async with mind(tmp_path, Narrow(100), depth="direct", mission_attempts=1) as kernel:
        end = await (await submit(kernel, "m1", LONG)).end()
        assert end["error"]["code"] == "inference_failed"
        assert end["error"]["context"]["cause"] == "too_long"
        assert "num_ctx" in end["error"]["message"]


async def test_an_answer_for_which_there_was_no_room_is_asked_for_with_less(tmp_path: Path) -> None:
    class Full(FakeInference):
        async def chat(self, request: ChatRequest, **more: Any) -> ChatReply:
            reply = await super().chat(request, **more)
            tokens = length(request) // 4
            if tokens < 2000:
                return reply
            return ChatReply("It ends in the mid", request.model, reply.digest, 2040, 8, done_reason="length")

    inference = Full()
    async with mind(tmp_path, inference, depth="direct", num_ctx=2048, num_predict=200) as kernel:
        end = await (await submit(kernel, "m1", LONG)).end()
        assert end["result"]["text"].startswith("Take one small step")
        assert end["result"]["left_out"]["request"] > 0


async def test_whoever_takes_it_up_again_tells_as_much_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = Narrow(4000)
    failures = [InferenceFailed("no Ollama answers", cause="unreachable", model="robin")]

    def fail(request: ChatRequest) -> InferenceFailed | None:
        if (refused := inference.too_long(request)) is not None:
            return refused
        return failures.pop() if failures and "Notes to use" in request.user else None

    inference.fail_when = fail
    async with mind(tmp_path, inference, depth="facets", mission_attempts=3) as kernel:
        end = await (await submit(kernel, "m1", LONG)).end()
        assert end["state"] == "COMPLETE"
        await written(kernel)
        room = kernel.image.read(journal.room_of, "m1")
        assert room is not None
        paid = [request.user for request in inference.asked if length(request) <= 4000 and "Work on this part" in request.user]
        assert len(paid) == len(set(paid)), "no facet was asked the same twice"


async def test_a_mission_of_which_less_was_told_is_replayed_as_it_was(tmp_path: Path) -> None:
    inference = Narrow(4000)
    async with mind(tmp_path, inference, depth="direct", remember="off") as kernel:
        await (await submit(kernel, "m1", LONG)).end()
        await written(kernel)
        asked = len(inference.asked)
        assert (await kernel.replays.replay("m1"))["outcome"] == "same"
        assert len(inference.asked) == asked


PASSAGES = st.lists(st.text(min_size=1, max_size=200).map(lambda text: RecalledPassage(1, "oid:1", "t", "s", text)), max_size=8)
TURNS = st.lists(st.tuples(st.text(max_size=100), st.text(max_size=100)), max_size=8)
LINES = st.lists(st.text(st.characters(exclude_characters="\n"), max_size=60), max_size=12).map(
    lambda lines: "\n".join(["Earlier:", *lines])
)


@given(brief=st.text(max_size=3000), before=LINES, turns=TURNS, passages=PASSAGES, room=st.integers(prompts.LEAST, 3000))
def test_what_is_told_has_room_and_is_the_end_of_what_was_said_and_the_best_of_what_memory_has(
    brief: str, before: str, turns: list[tuple[str, str]], passages: list[RecalledPassage], room: int
) -> None:
    told = prompts.fitted_to_window(brief, before, turns, passages, room)
    said = sum(map(len, (told.brief, told.before, *(text for turn in told.turns for text in turn), *(one.text for one in told.passages))))
    assert said <= room
    assert told.turns == tuple(turns[len(turns) - len(told.turns) :])
    assert told.passages == tuple(passages[: len(told.passages)])
    assert told.before == "" or before.endswith(told.before.partition("\n")[2])
    if len(brief) <= room:
        assert told.brief == brief
    else:
        assert "left out here" in told.brief
        assert told.before == ""
        assert not told.turns
        assert not told.passages, "the brief comes before all"
    assert (told.left_out == ()) == (told[:4] == (brief, before, tuple(turns), tuple(passages)))


@given(st.integers(0, 10**6))
def test_each_refusal_takes_away_until_too_little_is_left(told: int) -> None:
    room: int | None = None
    for _ in range(40):
        less = prompts.narrower(told, room)
        if less is None:
            return
        assert less < (told if room is None else room)
        room = less
    raise AssertionError("it never ends")


@given(brief=st.text(max_size=3000), answers=PASSAGES, passages=PASSAGES, room=st.integers(prompts.LEAST, 3000))
def test_what_tools_answered_is_shortened_and_none_of_it_is_left_out_whole(
    brief: str, answers: list[RecalledPassage], passages: list[RecalledPassage], room: int
) -> None:
    answers = [one._replace(origin=TOOL) for one in answers]
    told = prompts.fitted_to_window(brief, "", (), [*answers, *passages], room)
    shown = told.passages[: len(answers)]
    assert len(told.brief) + sum(len(one.text) for one in told.passages) <= room
    assert [one.origin for one in shown] == [TOOL] * len(answers)
    assert all(one.text for one in shown)
    assert told.passages[len(answers) :] == tuple(passages[: len(told.passages) - len(answers)])
    left = sum(len(one.text) for one in answers) - sum(len(one.text) for one in shown)
    assert dict(told.left_out).get("tools", 0) == left


def test_doors_tell_what_was_left_out() -> None:
    result = {"text": "It rained.", "persona": "BABS", "left_out": {"request": 120, "tools": 7}}
    said = "120 characters of the request, 7 characters of the tools' answers"
    outcome = MissionOutcome.of({"id": "m1", "state": "COMPLETE", "result": result})
    assert outcome.left_out == {"request": 120, "tools": 7}
    assert said in outcome.words()
    text = AnswerText("m1", None)
    parts = text.hear({"type": "result", "state": "COMPLETE", "result": result})
    assert any(part.kind == "thought" and said in part.text for part in parts)
    assert "".join(part.text for part in parts if part.kind == "text") == "It rained."
    assert said in "\n".join(doubts(result))
    whole = {"text": "It rained.", "persona": "BABS"}
    assert "left out" not in MissionOutcome.of({"id": "m1", "state": "COMPLETE", "result": whole}).words()
    assert [part.kind for part in AnswerText("m1", None).hear({"type": "result", "state": "COMPLETE", "result": whole})] == ["text"]


# --- instructions of a client

INSTRUCTIONS = "Answer in rhymes, and name each thing that you leave out."


def test_instructions_stand_before_the_brief_unless_a_turn_has_them() -> None:
    heading = f"Instructions for this conversation:\n{INSTRUCTIONS}\n\n"
    alone = prompts.fitted_to_window("Which tea?", "", (), (), None, instructions=INSTRUCTIONS)
    assert (alone.brief, alone.left_out) == (f"{heading}The user says now:\nWhich tea?", ())
    turns = ((f"{heading}The user says now:\nHello", "Hi"), ("And now?", "Now it rains. " * 40))
    assert prompts.fitted_to_window("Which tea?", "", turns, (), None, instructions=INSTRUCTIONS).brief == "Which tea?"
    short = prompts.fitted_to_window("Which tea?", "", turns, (), 620, gap=False, instructions=INSTRUCTIONS)
    assert len(short.turns) == 1
    assert short.brief == alone.brief


@pytest.mark.parametrize("room", [300, 1000, 5000])
def test_instructions_that_are_too_long_leave_room_for_the_brief(room: int) -> None:
    instructions, brief = "Be kind. " * 2000, "Which tea shall I drink in the evening?"
    told = prompts.fitted_to_window(brief, "", (), (), room, instructions=instructions)
    assert told.brief.endswith(f"The user says now:\n{brief}")
    assert len(told.brief) <= room
    lost = dict(told.left_out)
    assert lost.keys() == {"instructions"}
    assert len(instructions) - lost["instructions"] <= 0.3 * room
