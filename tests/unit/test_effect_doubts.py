"""Doubts of effects over restarts: each answer of the user counts once, tries end, and what cannot be made any more is asked about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batos.errors import BatosError, ToolFailed
from batos.image import effects, ledger
from batos.image.living_image import LivingImage
from batos.tools.definitions import Delivery, InputRequired, ToolCall, ToolDefinition
from batos.tools.effects import MESSAGE_CHARS, RESULT_BYTES, TRIES, Effects, asks_about

NAME, ARGUMENTS = "shop.pay", {"amount": 10}


class Question(BaseException):
    """The mission waits for its user."""


class Mission:
    """A mission whose answers are kept by question and occurrence, as the ledger keeps them; each attempt counts anew."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], str] = {}
        self.open: tuple[str, int] | None = None
        self.begin()

    def begin(self) -> None:
        self.calls, self.asked = Counter[tuple[str, str]](), Counter[str]()

    def answer(self, text: str) -> None:
        assert self.open is not None
        self.answers[self.open], self.open = text, None

    async def allow(self, call: ToolCall) -> str:
        return "always"

    def ask(self, question: str) -> str:
        asked = question, self.asked[question]
        self.asked[question] += 1
        if asked not in self.answers:
            self.open = asked
            raise Question(question)
        return self.answers[asked]

    def tied(self) -> str:
        return ""

    def label(self) -> str:
        return "1 DELEGATING robin -"

    def counts(self) -> Counter[tuple[str, str]]:
        return self.calls

    def tell(self, name: str, line: str) -> None:
        pass


class Shop:
    """A shop whose calls end as `script` says: an error is raised, all else is the result."""

    def __init__(self, kind: str = effects.ACTS, *script: Any, look: Callable[[], Awaitable[Any]] | None = None) -> None:
        self.kind, self.script, self.look = kind, list(script), look
        self.sent: list[str] = []
        self.closed: BatosError | None = None

    async def prepare(self) -> ToolCall:
        if self.closed is not None:
            raise self.closed
        tool = ToolDefinition(name="pay", kind=self.kind)
        return ToolCall(connection="shop", tool=tool, arguments=ARGUMENTS, send=self.send, seconds=1, look=self.look, target="till")

    async def send(self, delivery: Delivery) -> Any:
        self.sent.append(delivery.answer)
        came = self.script.pop(0) if self.script else "paid"
        if isinstance(came, Exception):
            raise came
        return came


@pytest.fixture
async def image(tmp_path: Path) -> Any:
    image = await LivingImage.open(f"file://{tmp_path}/image.fs")
    await image.system(ledger.accept, "m1", "buy tea", {}, True)
    yield image
    await image.close()


async def attempt(image: LivingImage, mission: Mission, shop: Shop) -> Any:
    """Begin an attempt, as after a restart; return its result, or its question."""
    mission.begin()
    try:
        return await Effects(image, "m1", "image", mission).perform(NAME, ARGUMENTS, shop.prepare)
    except Question as e:
        return str(e)


def only(image: LivingImage) -> effects.EffectRecord:
    [found] = image.read(effects.load, "m1")
    return found


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(record: Any) -> None:
        pass

    monkeypatch.setattr("batos.tools.effects._nothing_left", nothing)


async def test_an_answer_settles_only_the_try_that_it_was_given_for(image: LivingImage) -> None:
    broken = ConnectionError("the line broke")
    mission, shop = Mission(), Shop(effects.ACTS, broken, broken)
    await attempt(image, mission, shop)
    mission.answer("perhaps")
    await attempt(image, mission, shop)
    mission.answer("again")
    question = await attempt(image, mission, shop)
    assert len(shop.sent) == 2
    assert asks_about(question, only(image).key)
    mission.answer("perhaps")
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    mission.answer("happened")
    assert (await attempt(image, mission, shop))["happened"] is True
    assert len(shop.sent) == 2, "its user said that it happened"
    assert only(image).state == effects.SETTLED


async def test_an_answer_to_a_tool_is_not_given_to_its_next_question(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.ACTS, InputRequired("Which code?", "1"), InputRequired("Which code?", "2"))
    await attempt(image, mission, shop)
    mission.answer("123")
    await attempt(image, mission, shop)
    mission.answer("456")
    assert await attempt(image, mission, shop) == "paid"
    assert shop.sent == ["", "123", "456"]


@pytest.mark.parametrize("state", ["looked, and failed", "looked for ever"])
async def test_a_look_that_finds_nothing_sends_again_and_comes_to_an_end(image: LivingImage, state: str) -> None:
    async def look() -> Any:
        return None

    broken = ConnectionError("the line broke")
    script = [broken, ToolFailed("the card is not valid", status=400)] if state == "looked, and failed" else [broken] * 10
    mission, shop = Mission(), Shop(effects.VERIFIABLE, *script, look=look)
    with pytest.raises(ToolFailed) as failed:
        await attempt(image, mission, shop)
    assert len(shop.sent) == (2 if state == "looked, and failed" else TRIES)
    assert only(image).state == effects.FAILED
    assert effects.index_of(image.read(dict)) is not None
    with pytest.raises(ToolFailed) as replayed:
        await attempt(image, mission, shop)
    assert failed.value.message == replayed.value.message


async def test_a_look_that_hangs_or_floods_ends(image: LivingImage) -> None:
    async def flood() -> Any:
        return "x" * (RESULT_BYTES + 1)

    mission, shop = Mission(), Shop(effects.VERIFIABLE, ConnectionError("the line broke"), look=flood)
    with pytest.raises(ToolFailed, match="bytes"):
        await attempt(image, mission, shop)
    assert only(image).state == effects.DONE
    assert len(only(image).result or "") < 1000


@pytest.mark.parametrize(("said", "state"), [("happened", effects.SETTLED), ("leave", effects.SETTLED), ("again", effects.DONE)])
async def test_a_doubt_whose_call_cannot_be_made_any_more_is_asked(image: LivingImage, said: str, state: str) -> None:
    mission, shop = Mission(), Shop(effects.ACTS, ConnectionError("the line broke"))
    await attempt(image, mission, shop)
    mission = Mission()
    shop.closed = ToolFailed("the server does not start")
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    assert "does not start" in question
    mission.answer(said)
    if said == "again":
        other = await attempt(image, mission, shop)
        assert asks_about(other, only(image).key)
        assert other != question
        mission.answer("again")
        shop.closed = None
    await attempt(image, mission, shop)
    assert only(image).state == state
    assert len(shop.sent) == (2 if said == "again" else 1)
    assert json.loads(only(image).result or "") is not None


async def test_the_text_of_an_error_is_bounded(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.ACTS, ToolFailed("x" * 1_000_000, sure=False))
    with pytest.raises(ToolFailed) as failed:
        await attempt(image, mission, shop)
    assert len(failed.value.message) == len(only(image).why) == MESSAGE_CHARS
