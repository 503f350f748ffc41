"""Follow-ups: a mission that follows another sees what was asked and answered before."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from batos.app.kernel import Kernel
from batos.image import journal, ledger
from batos.mind import prompts
from batos.mind.evidence import EvidenceLimits
from batos.missions import report
from tests.support.missions import FakeInference, mind, submit, written


def test_a_brief_alone_is_told_as_it_is() -> None:
    assert prompts.with_brief("", "Why?") == "Why?"
    assert prompts.with_brief("Earlier", "Why?") == "Earlier\n\nNow the user says: Why?"


async def test_a_follow_up_sees_the_conversation(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m1", "I feel stuck")).end()
        await (await submit(kernel, "m2", "And what then?", context="m1")).end()
        count = len(inference.asked)
        await (await submit(kernel, "m3", "And after that?", context="m2")).end()
        for request in inference.asked[count:]:
            assert (
                "User: I feel stuck\nAnswer: Take one small step and look where it led.\nUser: And what then?\nAnswer: Take" in request.user
            )
            assert "Now the user says: And after that?" in request.user

        def told(missions: int, chars: int) -> str:
            return kernel.image.read(  # type: ignore[no-any-return]
                lambda root: prompts.conversation_text(root, ledger.mission_of(root, "m3"), missions=missions, chars=chars)
            )

        assert "I feel stuck" not in told(1, 1000)
        assert told(0, 1000) == told(6, 0) == ""
        assert told(6, 30) == "Earlier in this conversation:\nUser: And what then?\nAnswer: …"
        assert len(told(6, 100)) <= 100 + len("Earlier in this conversation:\n\n")


async def test_a_conversation_goes_on_after_a_mission_that_failed(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = lambda request: ""
    async with mind(tmp_path, inference) as kernel:
        assert (await (await submit(kernel, "m1", "I feel stuck")).end())["state"] == "FAILED"
        inference.say = FakeInference().say
        end = await (await submit(kernel, "m2", "Again?", context="m1")).end()
        assert end["state"] == "COMPLETE"
        assert "User: I feel stuck\nAnswer: (none)" in inference.asked[-1].user


async def test_a_conversation_that_goes_in_circles_ends(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        for id in ("m1", "m2"):
            await kernel.image.system(ledger.accept, id, f"brief of {id}", {}, False)

        def tie(root: Any) -> None:
            ledger.mission_of(root, "m1").context, ledger.mission_of(root, "m2").context = "m2", "m1"

        await kernel.image.system(tie)
        told = kernel.image.read(lambda root: prompts.conversation_text(root, ledger.mission_of(root, "m1"), missions=6, chars=1000))
        assert told.count("User:") == 1


GAP = "(Earlier messages of this conversation are left out.)"


async def chat(kernel: Kernel, *briefs: str) -> list[dict[str, Any]]:
    """The results of missions that follow one another: `t1`, `t2` and so on."""
    ends: list[dict[str, Any]] = []
    for n, brief in enumerate(briefs, 1):
        end = await (await submit(kernel, f"t{n}", brief, context=f"t{n - 1}" if n > 1 else None)).end()
        assert end["state"] == "COMPLETE"
        ends.append(end["result"])
    return ends


@pytest.mark.parametrize("depth", ["direct", "facets"])
async def test_earlier_turns_beyond_the_bounds_are_told_to_the_model_in_the_result_the_record_and_the_log(
    tmp_path: Path, depth: str
) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth=depth, context_missions=1) as kernel:
        with capture_logs() as logs:
            first, second, third = await chat(kernel, "I feel stuck", "And what then?", "And after that?")
        last = inference.asked[-1]
        told = "\n".join((*(said for said, _ in last.turns), last.user))
        assert GAP in told
        assert "And what then?" in told
        assert "I feel stuck" not in told
        lost = {"conversation": len("I feel stuck") + len(first["text"])}
        assert "left_out" not in second
        assert third["left_out"] == lost
        record = kernel.image.read(lambda root: report.report_of(root, "t3"))
        assert record["thought"]["left_out"] == lost
        assert [one for one in logs if one["event"] == "left_out"] == [{"event": "left_out", "log_level": "info", "mission": "t3", **lost}]
        await written(kernel)
        assert (await kernel.replays.replay("t3"))["outcome"] == "same"


async def test_a_conversation_is_whole_as_long_as_it_fits_half_of_the_window(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct", num_ctx=8192) as kernel:
        ends = await chat(kernel, *(f"Turn {n} {'w' * 500}" for n in range(1, 13)))
        assert [said.split()[1] for said, _ in inference.asked[-1].turns] == [str(n) for n in range(1, 12)]
        assert not any("left_out" in one for one in ends)
    async with mind(tmp_path, inference, depth="direct", num_ctx=2048) as kernel:
        end = await (await submit(kernel, "last", "And now?", context="t12")).end()
        assert GAP in inference.asked[-1].turns[0][0]
        assert sum(len(said) + len(answered) for said, answered in inference.asked[-1].turns) < 4096
        assert end["result"]["left_out"]["conversation"] > 2000


async def test_a_replay_shows_the_turns_that_its_mission_showed_whatever_the_bounds_are_now(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct") as kernel:
        await chat(kernel, *(f"Turn {n}" for n in range(1, 5)))
    async with mind(tmp_path, inference, depth="direct", context_missions=1) as kernel:
        assert (await kernel.replays.replay("t4"))["outcome"] == "same"


async def test_most_follow_ups_begin_with_what_the_model_has_read(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct", context_chars=1000) as kernel:
        await chat(kernel, *(f"Turn {n} {'w' * 50}" for n in range(1, 31)))
    starts = [request.turns[0] for request in inference.asked[1:]]
    shown = [sum(len(said) + len(answered) for said, answered in request.turns) for request in inference.asked[1:]]
    changes = sum(one != other for one, other in itertools.pairwise(starts))
    assert max(shown) <= 1000 + len(f"{GAP}\n\n")
    assert 3 <= changes <= len(starts) / 2


async def test_of_a_turn_that_is_too_long_alone_the_middle_is_left_out(tmp_path: Path) -> None:
    inference = FakeInference()
    long = f"Begin {'w ' * 3000} end"
    async with mind(tmp_path, inference, depth="direct", context_chars=500) as kernel:
        _, second = await chat(kernel, long, "And now?")
    ((said, answered),) = inference.asked[-1].turns
    assert said.startswith("Begin w")
    assert said.endswith("w  end")
    assert "characters of this message are left out here" in said
    assert answered == "Take one small step and look where it led."
    assert len(said) + len(answered) <= 1000
    assert second["left_out"] == {"conversation": len(long) - len(said)}


async def test_a_mission_that_a_former_version_began_keeps_its_prompts(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth="direct", num_ctx=8192) as kernel:
        await chat(kernel, *(f"Turn {n} {'w' * 50}" for n in range(1, 9)))
        former = EvidenceLimits().former_bounds

        def forget(root: Any) -> None:
            journal.opened(root["ledger"].missions["t6"]).told_before = None

        await kernel.image.system(forget)
        assert (await kernel.replays.replay("t6"))["outcome"] == "same"
        talk = kernel.image.read(lambda root: prompts.earlier_talk(root, ledger.mission_of(root, "t8"), None, former))
        assert [said.split()[1] for said, _ in talk.turns] == ["2", "3", "4", "5", "6", "7"]
        told = prompts.fitted_to_window("Now", "", talk.turns, (), None, untold=talk.untold, gap=talk.gap)
        assert (told.turns, told.left_out) == (talk.turns, ())
    assert EvidenceLimits(context_missions=3).former_bounds == {"missions": 3, "chars": 4000}


async def test_what_a_method_answers_leaves_nothing_out(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), depth="direct", context_missions=1) as kernel:
        await chat(kernel, "I feel stuck", "And what then?")
        end = await (await submit(kernel, "t3", "What time is it?", context="t2")).end()
        assert "left_out" not in end["result"]


async def test_what_is_left_out_of_a_long_conversation_is_counted_to_its_beginning(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), depth="direct", context_chars=300) as kernel:
        ends = await chat(kernel, *(f"Turn {n} {'w' * 50}" for n in range(1, 13)))
        lengths = [len(f"Turn {n} {'w' * 50}") + len(end["text"]) for n, end in enumerate(ends, 1)]
        for n, end in enumerate(ends[1:], 1):
            talk = kernel.image.read(
                lambda root, n=n: prompts.earlier_talk(
                    root,
                    ledger.mission_of(root, f"t{n + 1}"),
                    prompts.ConversationRange(*journal.told_before_of(root, f"t{n + 1}")),  # type: ignore[misc]
                    {},
                )
            )
            assert end.get("left_out", {}).get("conversation", 0) == talk.untold == sum(lengths[: n - len(talk.turns)])


@pytest.mark.parametrize("depth", ["direct", "facets"])
async def test_instructions_of_a_mission_are_told_and_told_again_in_a_replay(tmp_path: Path, depth: str) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference, depth=depth) as kernel:
        end = await (await submit(kernel, "t1", "I feel stuck", instructions="Answer in French.")).end()
        assert end["state"] == "COMPLETE"
        assert inference.asked
        assert all("Instructions for this conversation:\nAnswer in French.\n\n" in one.user for one in inference.asked)
        record = kernel.image.read(lambda root: report.report_of(root, "t1"))
        assert record["brief"] == "I feel stuck"
        await written(kernel)
        assert (await kernel.replays.replay("t1"))["outcome"] == "same"
