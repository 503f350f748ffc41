"""Which mission a turn is: requests that are sent again, answers that somebody left before their end, many turns at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatRequest
from batos.console.api_client import Asker
from batos.doors.access import DoorLimits
from batos.doors.missions import TurnMissions
from batos.doors.turn_log import TurnLog
from batos.doors.turns import ChatTurn, ChatWords, digest
from batos.errors import Busy
from batos.mind.evidence import EvidenceLimits
from batos.wire.fields import Request
from batos.wire.outbox import Recipient
from tests.support.doors import assistant, chat_client, completion, events, kernel_with_doors, said, user
from tests.support.missions import WAIT_S, FakeInference, answer

TEA = "Which tea shall I drink in the evening?"
NEW, AGAIN = {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}


@pytest.fixture
def inference() -> FakeInference:
    return FakeInference()


@pytest.fixture
async def kernel(tmp_path: Path, inference: FakeInference) -> AsyncIterator[Kernel]:
    async with kernel_with_doors(tmp_path, inference) as made:
        yield made


@pytest.fixture
async def client(kernel: Kernel) -> AsyncIterator[httpx.AsyncClient]:
    async with chat_client(kernel) as made:
        yield made


async def listed(kernel: Kernel) -> dict[str, dict[str, Any]]:
    """The missions of users, by their ids."""
    found = await Asker(kernel.transport.dispatcher, kernel.settings).ask("missions", system=False)
    return {one["id"]: one for one in found["missions"]}


async def watched(kernel: Kernel, count: int) -> None:
    """Return when that many watches of missions are open."""
    async with asyncio.timeout(WAIT_S):
        while len(kernel.transport.missions.watches) != count:
            await asyncio.sleep(0.001)


async def begun_and_left(kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference, **headers: str) -> str:
    """Begin a turn whose inference is held, and leave; return its mission."""
    inference.hold()
    body = {"model": "batos", "messages": [user(TEA)], "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply:
        mission = reply.headers["x-batos-mission"]
        await inference.came(1)
    await watched(kernel, 0)
    return mission


# --- sent again


async def test_a_client_that_counts_its_tries_regenerates_by_asking_anew(kernel: Kernel, client: httpx.AsyncClient) -> None:
    first = (await completion(client, user(TEA), headers=NEW))["mission"]
    assert (await completion(client, user(TEA), headers=AGAIN))["mission"] == first, "its answer was lost on the way"
    assert (await completion(client, user(TEA)))["mission"] == first, "a client that does not count may send it again"
    second = (await completion(client, user(TEA), headers=NEW))["mission"]
    assert second == f"{first}-2"
    streamed = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [user(TEA)], "stream": True}, headers=NEW)
    assert events(streamed.text)
    assert streamed.headers["x-batos-mission"] == f"{first}-3", "an answer that was told in pieces was told, too"
    assert (await completion(client, user(TEA), headers=AGAIN))["mission"] == f"{first}-3"
    assert len(await listed(kernel)) == 3


async def test_an_answer_that_nobody_heard_to_its_end_is_not_made_twice(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    mission = await begun_and_left(kernel, client, inference, **NEW)
    waiting = asyncio.create_task(completion(client, user(TEA), headers=NEW))
    await watched(kernel, 1)
    inference.release()
    assert (await waiting)["mission"] == mission
    assert len(inference.asked) == 1


async def test_the_same_words_asked_at_once_are_several_turns_of_a_client_that_counts(kernel: Kernel, client: httpx.AsyncClient) -> None:
    told = await asyncio.gather(*(completion(client, user(TEA), headers=NEW) for _ in range(4)))
    assert len({one["mission"] for one in told}) == len(await listed(kernel)) == 4


async def test_the_name_of_another_turn_is_refused_each_time(kernel: Kernel, client: httpx.AsyncClient) -> None:
    named = {"Idempotency-Key": "evening"}
    first = await completion(client, user(TEA), headers=named)
    for _ in range(3):
        other = await completion(client, user("And in the morning?"), headers=named, status=400)
        assert other["error"]["code"] == "id_taken"
    assert (await completion(client, user(TEA), headers=named))["mission"] == first["mission"]
    assert list(await listed(kernel)) == [first["mission"]]


# --- left before the end


async def test_the_next_turn_waits_for_the_mission_that_its_reader_left(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    mission = await begun_and_left(kernel, client, inference)
    waiting = asyncio.create_task(completion(client, user(TEA), assistant("Take one small"), user("And then?")))
    await watched(kernel, 1)
    inference.release()
    following = await waiting
    rows = await listed(kernel)
    assert (rows[following["mission"]]["context"], rows[following["mission"]]["brief"]) == (mission, "And then?")


async def test_other_words_than_those_of_the_mission_that_still_ran_are_told_in_the_brief(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    await begun_and_left(kernel, client, inference)
    waiting = asyncio.create_task(completion(client, user(TEA), assistant("Green tea."), user("Why?")))
    await watched(kernel, 1)
    inference.release()
    told = await waiting
    row = (await listed(kernel))[told["mission"]]
    assert row.get("context") is None
    assert "Assistant: Green tea." in row["brief"]


async def test_a_turn_does_not_wait_for_ever(tmp_path: Path, inference: FakeInference) -> None:
    async with kernel_with_doors(tmp_path, inference, limits=(DoorLimits(follow_s=0.05),)) as kernel, chat_client(kernel) as client:
        await begun_and_left(kernel, client, inference)
        waiting = asyncio.create_task(completion(client, user(TEA), assistant("Take one small"), user("And then?")))
        async with asyncio.timeout(WAIT_S):
            while len(await listed(kernel)) < 2:
                await asyncio.sleep(0.001)
        inference.release()
        told = await waiting
        assert "Assistant: Take one small" in (await listed(kernel))[told["mission"]]["brief"]


async def test_a_stop_ends_the_wait(tmp_path: Path, inference: FakeInference) -> None:
    async with kernel_with_doors(tmp_path, inference) as kernel, chat_client(kernel) as client:
        await begun_and_left(kernel, client, inference)
        waiting = asyncio.create_task(completion(client, user(TEA), assistant("Take one small"), user("And then?"), status=503))
        await watched(kernel, 1)
        await kernel.doors.stop()  # type: ignore[union-attr]
        assert "send the same turn again" in (await waiting)["error"]["message"]
        assert len(await listed(kernel)) == 1
        inference.release()


async def test_a_turn_that_is_accepted_while_the_doors_close_is_answered_at_once(tmp_path: Path, inference: FakeInference) -> None:
    inference.hold()
    async with kernel_with_doors(tmp_path, inference) as kernel:

        class Stopping:
            """A daemon whose doors close while it accepts a mission."""

            async def handle(self, request: Request, recipient: Recipient) -> None:
                await kernel.transport.dispatcher.handle(request, recipient)
                if request.op == "submit":
                    missions.stop()

            def forget(self, recipient: Recipient) -> None:
                kernel.transport.dispatcher.forget(recipient)

        log = TurnLog(tmp_path, 10)
        missions = TurnMissions(Asker(Stopping(), kernel.settings), kernel.settings, log)
        turn = ChatTurn(ChatWords("user", TEA), (), "", None, None, "", digest(TEA))
        with pytest.raises(Busy, match="send the same turn again"):
            await missions.accept(turn)
        assert list(await listed(kernel)) == [turn.id]
        assert len(kernel.transport.missions.watches) == 0
        log.close()
        inference.release()


# --- at once


@pytest.mark.parametrize("streams", [False, True])
async def test_twenty_turns_at_once_are_neither_lost_nor_mixed(tmp_path: Path, inference: FakeInference, streams: bool) -> None:
    def say(request: ChatRequest) -> str:
        number = request.user.rpartition("number ")[2].split(".")[0]
        return answer(request) if request.schema is not None else f"You asked for number {number}, and here it is."

    inference.say = say
    async with kernel_with_doors(tmp_path, inference) as kernel, chat_client(kernel) as client:

        async def told(number: int) -> str:
            question = user(f"Please say number {number}.")
            if not streams:
                return said(await completion(client, question))
            reply = await client.post("/v1/chat/completions", json={"model": "batos", "messages": [question], "stream": True})
            pieces = [one["choices"][0]["delta"].get("content") or "" for one in events(reply.text)]
            return "".join(pieces).strip()

        found = await asyncio.gather(*(told(number) for number in range(20)))
        assert found == [f"You asked for number {number}, and here it is." for number in range(20)]
        assert len(await listed(kernel)) == 20


# --- what a chat client tells the system


def told(request: ChatRequest) -> str:
    """All that a model is told."""
    return "\n".join((request.system, *(text for turn in request.turns for text in turn), request.user))


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


async def test_a_model_is_told_the_instructions_that_the_client_has_now(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    conversation: list[dict[str, str]] = []
    for words, instructions in (("One", "In rhymes."), ("Two", "In rhymes."), ("Three", "In French."), ("Four", "In French.")):
        conversation.append(user(words))
        reply = await completion(client, system(instructions), *conversation)
        conversation.append(assistant(said(reply)))
        assert told(inference.asked[-1]).count(f"Instructions for this conversation:\n{instructions}\n\n") == 1
        assert inference.asked[-1].user.endswith(words)
    briefs = [one["brief"] for one in (await listed(kernel)).values()]
    assert [one for one in briefs if "Instructions" not in one] == ["Four", "Three", "Two"]


async def test_a_branch_is_told_the_instructions_that_its_own_turns_were_not(
    kernel: Kernel, client: httpx.AsyncClient, inference: FakeInference
) -> None:
    first = [user("One"), assistant(said(await completion(client, system("In rhymes."), user("One"))))]
    await completion(client, system("In French."), *first, user("Two"))
    await completion(client, system("In French."), *first, user("Another two"))
    assert "In French." in told(inference.asked[-1])
    await completion(client, *first, user("A third one"))
    assert "In French." not in told(inference.asked[-1])


async def test_instructions_outlive_the_turn_that_was_told_them(tmp_path: Path) -> None:
    """A long conversation leaves out its oldest turns; what the client tells the system is among what the model sees all the same."""
    inference = FakeInference()
    async with kernel_with_doors(tmp_path, inference, limits=(EvidenceLimits(context_chars=900),)) as kernel, chat_client(kernel) as client:
        conversation: list[dict[str, str]] = []
        for number in range(16):
            conversation.append(user(f"Question {number}: which tea shall I drink in the evening of a day like this one?"))
            reply = await completion(client, system("Always answer in rhymes."), *conversation)
            conversation.append(assistant(said(reply)))
    assert all("Always answer in rhymes." in told(request) for request in inference.asked)
    assert "Question 0" not in told(inference.asked[-1])
