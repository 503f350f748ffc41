"""An acceptance that is cancelled at each turn of the loop in turn: what is on disk goes on by itself, and a retry is the same mission."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.console.api_client import Asker
from batos.doors.access import DoorLimits
from batos.doors.answer_text import Answered
from batos.doors.missions import TurnMissions
from batos.doors.turn_log import TurnLog
from batos.doors.turns import ChatTurn, ChatWords
from batos.image import ledger
from tests.support.cancellation import cancelled_after
from tests.support.doors import accepted, kernel_with_doors
from tests.support.missions import WAIT_S, FakeInference, settings

TURNS = 300  # more than an acceptance takes on a machine that is not busy


def tell_late(kernel: Kernel) -> None:
    """Let some turns of the loop pass between a commit and its telling, in which a caller may be cancelled."""
    real = kernel.image.system

    async def late(*args: Any, **more: Any) -> Any:
        value = await real(*args, **more)
        for _ in range(3):
            await asyncio.sleep(0)
        return value

    kernel.image.system = late  # type: ignore[method-assign]


async def ended(kernel: Kernel, id: str) -> None:
    """Wait until a mission has ended; fail where nothing thinks it through."""
    async with asyncio.timeout(WAIT_S):
        await kernel.scheduler.quiet()
    assert kernel.image.read(ledger.record_of, id).state == "COMPLETE"


@pytest.mark.parametrize("places", [1, 0], ids=["begun at once", "queued behind another"])
async def test_a_mission_whose_acceptance_was_cancelled_goes_on(tmp_path: Path, places: int) -> None:
    inference = FakeInference()
    kernel = await Kernel.start(
        settings(tmp_path, depth="direct", remember="off", missions={"concurrent": 1}), inference=inference, listen=False
    )
    asker = Asker(kernel.transport.dispatcher, kernel.settings)
    try:
        tell_late(kernel)
        kept = 0
        for turns in range(TURNS):
            id, before = f"m{turns}", len(inference.asked)
            if not places:
                inference.hold()
                await asker.ask("submit", id=f"first-{turns}", brief="Another one")
                await inference.came(before + 1)
            cancelled = await cancelled_after(turns, asker.ask("submit", id=id, brief="Plan the day"))
            inference.release()
            await kernel.image.system(lambda root: None)  # what the cancelled one had handed in is done
            if cancelled and kernel.image.read(ledger.is_known, id):
                kept += 1
                await ended(kernel, id)
            again = await asker.ask("submit", id=id, brief="Plan the day")
            await ended(kernel, id)
            assert kernel.image.read(ledger.record_of, id).attempts == 1, f"cancelled after {turns} turns"
            assert len(inference.asked) == before + 1 + (not places), "it is paid for once"
            assert again["state"] in ("COMPLETE", "ACCEPTED", "IDLE")
            if kept and not cancelled:
                break
        assert kept, "some were cancelled between the disk and the reply"
    finally:
        await kernel.stop()


async def test_a_turn_whose_acceptance_was_cancelled_is_the_same_mission_when_it_is_sent_again(tmp_path: Path) -> None:
    inference = FakeInference()
    async with kernel_with_doors(tmp_path, inference) as kernel:
        tell_late(kernel)
        log = TurnLog(tmp_path, DoorLimits.of(kernel.settings).turns)
        turns_of = TurnMissions(Asker(kernel.transport.dispatcher, kernel.settings), kernel.settings, log)
        kept = 0
        for turns in range(TURNS):
            words = f"Plan day {turns}"
            turn = ChatTurn(
                ChatWords("user", words), (), "", None, None, "", f"{turns:032}" * 2, fresh=True
            )  # a reader that is left behind makes it another
            before, known = len(inference.asked), set(await accepted(kernel))

            cancelled = await cancelled_after(turns, _left(turns_of, turn))
            await kernel.image.system(lambda root: None)
            made = set(await accepted(kernel)) - known
            assert len(made) <= 1
            kept += bool(cancelled and made)
            for id in made:
                await ended(kernel, id)
            following = await turns_of.accept(turn)
            assert not made or following.mission in made
            answered = [one async for one in turns_of.parts(following)][-1]
            assert isinstance(answered, Answered)
            assert answered.error is None
            assert len(inference.asked) == before + 1, "it is paid for once"
            if kept and not cancelled:
                break
        assert kept, "some were cancelled between the disk and the reply"
        log.close()


async def _left(turns: TurnMissions, turn: ChatTurn) -> None:
    turns.leave(await turns.accept(turn))
