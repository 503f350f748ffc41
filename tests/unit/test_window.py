"""What does not fit the context of a model: left out by rule, told, recorded, and nothing is paid twice for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import InferenceFailed
from batos.image import journal, ledger
from batos.mind import prompts
from batos.mind.evidence import RecalledPassage
from tests.support.missions import FakeInference, mind, submit, written

LONG = " ".join(f"Item {n} of the list is here." for n in range(400)) + " Which items are there?"
ASKED = "Which items are there?"


class Narrow(FakeInference):
    """A model whose context holds so many characters; it refuses what is longer, as Ollama does."""

    def __init__(self, context: int) -> None:
        super().__init__()
        self.context, self.refused = context, 0
        self.fail_when = self._too_long

    def _too_long(self, request: ChatRequest) -> InferenceFailed | None:
        if length(request) <= self.context:
            return None
        self.refused += 1
        return InferenceFailed("the input length exceeds the context length", cause="too_long", model=request.model)


def length(request: ChatRequest) -> int:
    return len(request.system) + len(request.user) + sum(len(said) + len(answered) for said, answered in request.turns)


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
        assert [said.split()[0] for said, _ in last.turns] == ["Second"]
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
        if (refused := inference._too_long(request)) is not None:
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
