"""Follow-ups: a mission that follows another sees what was asked and answered before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.image import ledger
from batos.mind import prompts
from tests.support.missions import FakeInference, mind, submit


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
