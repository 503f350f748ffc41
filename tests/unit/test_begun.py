"""Unfinished answers: kept while they come, gone on with, let go of when they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.inference import ChatReply, ChatRequest
from batos.errors import InferenceFailed
from batos.image import journal
from batos.mind.inference import PartialAnswers
from tests.support.missions import FakeInference, mind, submit

KEY = (b"k" * 16, 0)


class Breaking(FakeInference):
    """Streams an answer; the first one about `break_at` breaks off after so many words. Goes on from what was begun."""

    def __init__(self, break_after: int, *, open_ended: bool = True) -> None:
        super().__init__()
        self.break_after: int | None = break_after
        self.open_ended = open_ended

    async def continues(self, model: str) -> bool:
        return self.open_ended

    async def chat(self, request: ChatRequest, *, deadline_s: float, on_text: Any = None) -> ChatReply:
        self.asked.append(request)
        text = self.say(request)
        words = [word + " " for word in text.split(" ")]
        assert "".join(words).startswith(request.begun)
        words = words[request.begun_tokens :]
        breaks = self.break_after is not None and "Notes to use" in request.user
        for word in words[: self.break_after] if breaks else words:
            if on_text is not None:
                on_text(word)
        if breaks:
            self.break_after = None
            raise InferenceFailed("the stream ended", cause="truncated")
        self.answered += 1
        return ChatReply(
            "".join(words if not request.begun else [request.begun, *words]).strip(), request.model, "d" * 64, 7, len(words), 0.5, 2.0
        )


def long_answer(request: ChatRequest) -> str:
    if request.schema is not None:
        return '{"plain_facet_": "what"}'
    return " ".join(f"word{i}" for i in range(30))


async def kept(kernel: Kernel, id: str) -> dict[journal.Key, tuple[str, int]]:
    await kernel.image.system(lambda root: None)  # what was to be kept later is kept now
    return dict(kernel.image.read(journal.load_partials, id))


@pytest.mark.parametrize("open_ended", [True, False])
async def test_a_broken_stream_is_gone_on_with(tmp_path: Path, open_ended: bool) -> None:
    inference = Breaking(20, open_ended=open_ended)
    inference.say = long_answer
    async with mind(tmp_path, inference, partial_tokens=8) as kernel:
        end = await (await submit(kernel, "m")).end()
        assert end["result"]["text"] == long_answer(inference.asked[-1])
        broken, again = inference.asked_about("Notes to use")
        assert broken.begun == ""
        # In the same process nothing that was heard is lost, not only what was kept.
        assert (again.begun_tokens, again.begun.split()[-1:]) == ((20, ["word19"]) if open_ended else (0, []))
        spent = 20 + 10 if open_ended else 20 + 30
        assert end["result"]["usage"]["answer_tokens"] >= spent
        assert await kept(kernel, "m") == {}


async def test_a_later_daemon_goes_on_from_what_was_kept(tmp_path: Path) -> None:
    inference = Breaking(20)
    inference.say = long_answer
    async with mind(tmp_path, inference, partial_tokens=8, mission_attempts=3, retry_backoff_s=600, shutdown_s=0.1) as kernel:
        listened = await submit(kernel, "m")
        while not kernel.image.read(lambda root: len(root["ledger"].failures)):
            await kernel.image.system(lambda root: None)
        ((text, tokens),) = (await kept(kernel, "m")).values()
        assert (tokens, text.split()[-1]) == (16, "word15")
        assert listened.states[-1] != "COMPLETE"
    async with mind(tmp_path, inference, partial_tokens=8) as kernel:
        await kernel.scheduler.quiet()
        again = inference.asked_about("Notes to use")[-1]
        assert (again.begun, again.begun_tokens) == (text, 16)
        assert kernel.image.read(lambda root: root["ledger"].missions["m"].state) == "COMPLETE"
        assert await kept(kernel, "m") == {}


async def test_what_comes_is_kept_by_tokens_and_by_time(tmp_path: Path) -> None:
    clock = [0.0]
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.scheduler.submit("m", "Plan the day", {})
        begun = PartialAnswers("m", kernel.image, every_s=2, every_tokens=5, clock=lambda: clock[0])
        listen = begun.listener(KEY, None)
        for _ in range(4):
            listen("a ")
        assert await kept(kernel, "m") == {}
        listen("b ")
        assert await kept(kernel, "m") == {KEY: ("a a a a b ", 5)}
        clock[0] = 2.0
        listen("c ")
        assert await kept(kernel, "m") == {KEY: ("a a a a b c ", 6)}


async def test_a_shorter_text_does_not_take_the_place_of_a_longer_one(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.scheduler.submit("m", "Plan the day", {})
        await kernel.image.system(journal.keep_partial, "m", KEY, "one two three", 3)
        await kernel.image.system(journal.keep_partial, "m", KEY, "other", 1)
        assert await kept(kernel, "m") == {KEY: ("one two three", 3)}
