"""Doubts of effects over restarts: each answer of the user counts once, tries end, and what cannot be made any more is asked about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from batos.errors import BatosError, EgressFailed, GrantRefused, InvalidInput, ToolFailed
from batos.image import effects, ledger
from batos.image.living_image import LivingImage
from batos.tools.definitions import Delivery, InputRequired, ToolCall, ToolDefinition
from batos.tools.effects import MESSAGE_CHARS, RESULT_BYTES, TRIES, Effects, NeedEffect, asks_about

NAME, ARGUMENTS = "shop.pay", {"amount": 10}


class Question(BaseException):
    """The mission waits for its user."""


class Mission:
    """A mission whose answers are kept by question and occurrence, as the ledger keeps them; each attempt counts anew."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, int], str] = {}
        self.open: tuple[str, int] | None = None
        self.denied: dict[str, str] = {}  # tool -> why
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

    def refusal(self, call: ToolCall) -> str:
        return self.denied.get(call.name, "")

    def tied(self) -> str:
        return ""

    def label(self) -> str:
        return "1 DELEGATING robin -"

    def counts(self) -> Counter[tuple[str, str]]:
        return self.calls

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        return True

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
        tool = ToolDefinition(name="pay", kind=self.kind, look="receipt")
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
        return await Effects(image, "m1", "image", mission, mission.refusal).perform(NAME, ARGUMENTS, shop.prepare)
    except Question as e:
        return str(e)


def only(image: LivingImage) -> effects.EffectRecord:
    [found] = image.read(effects.load, "m1")
    return found


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(record: Any) -> None:
        pass

    monkeypatch.setattr("batos.tools.effects.end_request", nothing)


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


LINE, AWAY = ConnectionError("the line broke"), EgressFailed("nobody is there", sent=False)


@pytest.mark.parametrize("kind", [effects.KEYED, effects.IDEMPOTENT])
async def test_a_second_sending_that_did_not_leave_does_not_say_that_the_first_one_did_nothing(image: LivingImage, kind: str) -> None:
    mission, shop = Mission(), Shop(kind, LINE, AWAY, AWAY)
    question = await attempt(image, mission, shop)
    assert (len(shop.sent), only(image).state) == (TRIES, effects.IN_DOUBT)
    assert asks_about(question, only(image).key)
    assert "the line broke; sent again, it did not leave: nobody is there" in question
    mission.answer("again")
    assert await attempt(image, mission, shop) == "paid"


async def test_what_its_user_has_sent_again_and_does_not_leave_is_asked_about_again(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.ACTS, LINE, ToolFailed("it does not start", sure=True))
    first = await attempt(image, mission, shop)
    mission.answer("again")
    second = await attempt(image, mission, shop)
    assert asks_about(second, only(image).key)
    assert second != first
    assert (len(shop.sent), only(image).state) == (2, effects.IN_DOUBT)


@pytest.mark.parametrize(("kind", "status", "state"), [
    (effects.IDEMPOTENT, 404, effects.DONE), (effects.IDEMPOTENT, 422, effects.FAILED), (effects.KEYED, 409, effects.FAILED),
])  # fmt: skip
async def test_an_answer_that_the_first_sending_may_be_the_reason_of_is_no_proof_that_it_did_nothing(
    image: LivingImage, kind: str, status: int, state: str
) -> None:
    mission, shop = Mission(), Shop(kind, LINE, ToolFailed("it is not there", status=status))
    with pytest.raises(ToolFailed):
        await attempt(image, mission, shop)
    assert (only(image).state, only(image).failed, mission.open) == (state, True, None)


@pytest.mark.parametrize("kind", [effects.KEYED, effects.IDEMPOTENT])
@pytest.mark.parametrize("status", [401, 403, 429])
async def test_a_second_sending_that_a_place_does_not_look_at_does_not_say_that_the_first_one_did_nothing(
    image: LivingImage, kind: str, status: int
) -> None:
    refused = ToolFailed(f"POST /pay was answered {status}", status=status)
    mission, shop = Mission(), Shop(kind, LINE, refused, refused)
    question = await attempt(image, mission, shop)
    assert (len(shop.sent), only(image).state) == (TRIES, effects.IN_DOUBT)
    assert asks_about(question, only(image).key)
    assert f"answered {status}" in question
    mission.answer("happened")
    assert (await attempt(image, mission, shop))["happened"] is True
    assert len(shop.sent) == TRIES


async def test_a_first_sending_that_a_place_does_not_look_at_failed_for_sure(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.KEYED, ToolFailed("POST /pay was answered 401", status=401))
    with pytest.raises(ToolFailed, match="401"):
        await attempt(image, mission, shop)
    assert (only(image).state, len(shop.sent)) == (effects.FAILED, 1)


async def test_a_first_sending_that_did_not_leave_failed_for_sure(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.KEYED, AWAY)
    with pytest.raises(ToolFailed, match="nobody is there"):
        await attempt(image, mission, shop)
    assert (only(image).state, len(shop.sent)) == (effects.FAILED, 1)


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


@pytest.mark.parametrize("gated", [False, True])
async def test_what_could_not_be_made_before_an_act_is_not_made_by_a_later_attempt(image: LivingImage, gated: bool) -> None:
    mission, shop = Mission(), Shop()
    own = Effects(image, "m1", "image", mission, mission.refusal)
    shop.closed = ToolFailed("the server does not start")
    with pytest.raises(ToolFailed):
        await own.perform(NAME, ARGUMENTS, shop.prepare)
    shop.closed = None
    assert await own.perform(NAME, ARGUMENTS, shop.prepare) == "paid", "who called tries once more"
    mission.begin()
    if gated:  # the same attempt, after a conflict
        own.restart(gated=True)
    else:
        own = Effects(image, "m1", "image", mission, mission.refusal)
    with pytest.raises(ToolFailed, match="the server does not start"):
        await own.perform(NAME, ARGUMENTS, shop.prepare, gated=gated)
    assert await own.perform(NAME, ARGUMENTS, shop.prepare, gated=gated) == "paid"
    assert len(shop.sent) == 1
    assert [(one.state, one.attempts) for one in image.read(effects.load, "m1")] == [(effects.FAILED, 0), (effects.DONE, 1)]
    assert [one.state for one in own.standing()] == [effects.DONE]


async def test_what_could_not_be_made_for_a_replay_before_an_act_is_not_made_by_a_later_attempt(image: LivingImage) -> None:
    mission, shop = Mission(), Shop()
    own = Effects(image, "m1", "image", mission, mission.refusal)
    for closed in (ToolFailed("the server does not start"), None):
        mission.begin()
        own.restart(gated=True)
        if closed is None:
            with pytest.raises(ToolFailed):
                await own.perform(NAME, ARGUMENTS, shop.prepare, gated=True)
        with pytest.raises(NeedEffect) as need:
            await own.perform(NAME, ARGUMENTS, shop.prepare, gated=True)
        shop.closed = closed
        await own.settle(need.value)
    shop.closed = None
    mission.begin()
    own = Effects(image, "m1", "image", mission, mission.refusal)
    with pytest.raises(ToolFailed, match="the server does not start"):
        await own.perform(NAME, ARGUMENTS, shop.prepare)
    assert await own.perform(NAME, ARGUMENTS, shop.prepare) == "paid"
    assert len(shop.sent) == 1


async def test_what_could_not_be_made_is_tried_by_the_next_attempt_where_nothing_was_done_since(image: LivingImage) -> None:
    mission, shop = Mission(), Shop()
    shop.closed = ToolFailed("the server does not start")
    with pytest.raises(ToolFailed):
        await attempt(image, mission, shop)
    assert image.read(effects.load, "m1") == []
    shop.closed = None
    assert await attempt(image, mission, shop) == "paid"


WHY = "grant 1 denies it: deny shop.pay"


async def killed(image: LivingImage, kind: str) -> None:
    """Leave the effect as a daemon leaves it that was killed while its request was under way."""
    key = effects.key_of("image", "m1", NAME, effects.canonical(ARGUMENTS), 0)
    record = effects.EffectRecord(key, NAME, kind, effects.canonical(ARGUMENTS), 0, effects.INTENDED, effects.now(), target="till")
    await image.system(effects.intend, "m1", record)


@pytest.mark.parametrize("kind", [effects.KEYED, effects.IDEMPOTENT, effects.ACTS])
async def test_what_its_user_denied_meanwhile_is_not_sent_a_second_time(image: LivingImage, kind: str) -> None:
    await killed(image, kind)
    mission, shop = Mission(), Shop(kind)
    mission.denied[NAME] = WHY
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    assert f"it is not sent again: {WHY}" in question
    assert (only(image).state, only(image).why) == (effects.IN_DOUBT, f"the system stopped; it is not sent again: {WHY}")
    assert await attempt(image, mission, shop) == question, "the same after another restart"
    mission.answer("again")
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    assert question.startswith(f"it is not sent again: {WHY}")
    mission.answer("happened")
    assert (await attempt(image, mission, shop))["happened"] is True
    assert shop.sent == []


async def test_a_deny_that_is_lifted_lets_it_be_sent_again(image: LivingImage) -> None:
    await killed(image, effects.KEYED)
    mission, shop = Mission(), Shop(effects.KEYED)
    mission.denied[NAME] = WHY
    await attempt(image, mission, shop)
    mission.denied.clear()
    assert await attempt(image, mission, shop) == "paid"
    assert len(shop.sent) == 1


async def test_a_deny_lets_a_look_tell_unless_it_denies_that_too(image: LivingImage) -> None:
    looks = []

    async def look() -> Any:
        looks.append(1)

    await killed(image, effects.VERIFIABLE)
    mission, shop = Mission(), Shop(effects.VERIFIABLE, look=look)
    mission.denied = {NAME: WHY, "shop.receipt": WHY}
    assert asks_about(await attempt(image, mission, shop), only(image).key)
    assert looks == []
    del mission.denied["shop.receipt"]
    with pytest.raises(GrantRefused, match=r"did not happen; it is not sent again: grant 1"):
        await attempt(image, mission, shop)
    assert (looks, shop.sent, only(image).state) == ([1], [], effects.FAILED)


async def test_a_tool_that_only_asked_is_refused_for_good(image: LivingImage) -> None:
    mission, shop = Mission(), Shop(effects.ACTS, InputRequired("Which code?", "1"))
    await attempt(image, mission, shop)
    mission.denied[NAME] = WHY
    for _ in range(2):
        with pytest.raises(GrantRefused, match="grant 1 denies it"):
            await attempt(image, mission, shop)
    assert (only(image).state, shop.sent) == (effects.FAILED, [""])


async def test_an_act_stays_one_where_its_tool_is_said_to_read_meanwhile(image: LivingImage) -> None:
    await killed(image, effects.ACTS)
    mission, shop = Mission(), Shop(effects.READS, LINE)
    await attempt(image, mission, shop)
    mission.answer("again")
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    assert (only(image).state, only(image).attempts, len(shop.sent)) == (effects.IN_DOUBT, 2, 1)


@pytest.mark.parametrize("kind", [effects.KEYED, effects.IDEMPOTENT, effects.VERIFIABLE])
async def test_what_is_of_another_class_meanwhile_is_asked_about(image: LivingImage, kind: str) -> None:
    async def look() -> Any:
        return None

    await killed(image, kind)
    mission, shop = Mission(), Shop(effects.ACTS, look=look)
    question = await attempt(image, mission, shop)
    assert asks_about(question, only(image).key)
    assert shop.sent == []


@pytest.mark.parametrize("how", [effects.HAPPENED, effects.AGAIN])
async def test_what_its_user_settled_while_its_mission_waited_is_neither_asked_nor_sent_twice(
    image: LivingImage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def settle(record: Any) -> None:
        await image.system(effects.settle, record.key, how, "its user")

    await killed(image, effects.ACTS)
    monkeypatch.setattr("batos.tools.effects.end_request", settle)
    shop = Shop()
    came = await attempt(image, Mission(), shop)
    assert (came, len(shop.sent)) == (("paid", 1) if how == effects.AGAIN else ({"happened": True, "said_by": "its user"}, 0))


async def test_one_of_a_settlement_and_a_sending_wins(image: LivingImage) -> None:
    await killed(image, effects.VERIFIABLE)
    seen = only(image)

    class Sending(Shop):
        async def send(self, delivery: Delivery) -> Any:
            with pytest.raises(InvalidInput, match="is at the effect"):
                await image.system(effects.settle, seen.key, effects.LEAVE, "its user", seen)
            return await super().send(delivery)

    async def look() -> Any:
        return None

    shop = Sending(effects.VERIFIABLE, look=look)
    assert await attempt(image, Mission(), shop) == "paid"
    assert (only(image).state, len(shop.sent)) == (effects.DONE, 1)


async def test_what_a_look_found_does_not_overwrite_what_its_user_said(image: LivingImage) -> None:
    await killed(image, effects.VERIFIABLE)

    async def look() -> Any:
        await image.system(effects.settle, only(image).key, effects.LEAVE, "its user", only(image))
        return {"paid": 10}

    came = await attempt(image, Mission(), Shop(effects.VERIFIABLE, look=look))
    assert came == json.loads(only(image).result or "") == {"happened": False, "said_by": "its user"}
