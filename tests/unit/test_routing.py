"""A mission is routed once, and that is on record; and what users choose instead is learned."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from transaction import TransactionManager
from ZODB.utils import u64

from batos.api.queries import Queries
from batos.app.kernel import Kernel
from batos.errors import InferenceFailed
from batos.image import journal, ledger
from batos.memory.embedders import normalised
from batos.mind.codex import load_codex
from batos.mind.incarnation import exemplars_of
from batos.mind.router import Route
from batos.objects import UvmObject
from tests.support.codex import PENGUIN, SHIPPED
from tests.support.missions import FakeInference, mind, replayed, submit

BRIEF = "xyzzy"  # no trigger knows it
PERSONAS = ("robin", "brick", "babs", "alfred")


def like(persona: str) -> FakeInference:
    """An inference whose embedder finds every brief to be like the exemplars of one persona, and unlike all others'."""
    own = {normalised(text): name for name, p in load_codex().personas.items() for text in p.exemplars}
    inference = FakeInference()
    inference.embedder = lambda text: [float(own.get(text, persona) == name) for name in PERSONAS]
    return inference


def route_of(kernel: Kernel, id: str) -> Route | None:
    record = kernel.image.read(journal.route_of, id)
    return None if record is None else Route.from_record(record)


def learned(kernel: Kernel) -> dict[str, list[str]]:
    def read(root: Any) -> dict[str, list[str]]:
        there = {name: found for name in PERSONAS if isinstance(found := root["lobby"]._slots.get(name), UvmObject)}
        return {name: sorted(exemplars_of(persona).learned.values()) for name, persona in there.items()}

    return {name: texts for name, texts in kernel.image.read(read).items() if texts}


async def think(kernel: Kernel, id: str, brief: str = BRIEF, **options: Any) -> dict[str, Any]:
    return await (await submit(kernel, id, brief, **options)).end()


# --- decided once


async def test_the_decision_is_on_record_with_its_scores(tmp_path: Path) -> None:
    async with mind(tmp_path, like("babs")) as kernel:
        end = await think(kernel, "m1")
        assert end["result"]["persona"] == "BABS"
        found = route_of(kernel, "m1")
    assert found is not None
    assert (found.persona, found.by, found.preferred) == ("babs", "rules and likeness", None)
    assert found.scores["babs"] == {"score": 2.0, "triggers": 0, "alike": 1.0}
    assert found.scores["robin"]["alike"] == 0.0
    assert found.why == end["result"]["why"]


async def test_in_no_moment_of_the_image_is_there_an_inference_without_the_decision(tmp_path: Path) -> None:
    """Every transaction is a place at which a kill may stop the world."""
    async with mind(tmp_path, like("babs")) as kernel:
        await asyncio.gather(*(think(kernel, f"m{i}") for i in range(8)))
        await kernel.image.system(lambda root: None)
        moments = with_entries = 0
        for transaction in kernel.image.db.storage.iterator():
            with kernel.image.snapshot(at=transaction.tid) as root:
                for mission in ledger.newest_first(root) if "ledger" in root else ():
                    moments += 1
                    held = journal.of(mission)
                    if held.entries or held.partials or mission.state != ledger.ACCEPTED:
                        with_entries += 1
                        assert held.decided is not None, u64(transaction.tid)
                        assert held.decided.route is not None, u64(transaction.tid)
        assert moments > with_entries > 8


async def test_a_restart_thinks_on_as_it_was_decided(tmp_path: Path) -> None:
    first = like("babs")
    async with mind(tmp_path, first, shutdown_s=0.01) as kernel:
        first.fail_when = lambda request: first.hold() if request.schema is not None else None  # type: ignore[func-returns-value]
        await submit(kernel, "m1", BRIEF)
        await first.came(2)
        assert route_of(kernel, "m1") is not None
    second = like("robin")
    async with mind(tmp_path, second) as kernel:
        await kernel.scheduler.quiet()
        record = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")))
        assert record.result["persona"] == "BABS"
        assert record.result["usage"]["replayed"] == 1, "the plan was paid for"
        assert BRIEF not in second.embedded
        assert {request.model for request in second.asked} == {"babs:embedded"}
        assert (await think(kernel, "m2"))["result"]["persona"] == "ROBIN"


async def test_a_restart_thinks_on_with_a_persona_that_left_the_codex(tmp_path: Path) -> None:
    path = tmp_path / "codex.toml"
    path.write_text(SHIPPED + PENGUIN, "utf-8")
    first = FakeInference()
    async with mind(tmp_path, first, shutdown_s=0.01, codex=str(path)) as kernel:
        first.hold()
        await submit(kernel, "m1", "Tell me of ice")
        await submit(kernel, "m2", "Tell me more", persona="penguin")
        await first.came(2)
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.scheduler.quiet()
        for id in ("m1", "m2"):
            assert kernel.image.read(lambda root, id=id: ledger.describe(ledger.mission_of(root, id))).result["persona"] == "PENGUIN"


async def test_a_persona_that_is_gone_is_a_failure_that_says_so(tmp_path: Path) -> None:
    first = like("babs")
    async with mind(tmp_path, first, shutdown_s=0.01) as kernel:
        first.hold()
        await submit(kernel, "m1", BRIEF)
        await first.came(1)
        await kernel.image.system(lambda root: root["lobby"]._slots.__delitem__("babs"))
    async with mind(tmp_path, like("robin")) as kernel:
        await kernel.scheduler.quiet()
        record = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "m1")))
        assert (record.state, record.error["code"]) == ("FAILED", "unknown_persona")
        assert "'babs'" in record.error["message"]


async def test_retries_and_replays_ask_no_embedder_again(tmp_path: Path) -> None:
    inference = like("babs")
    failures = iter([InferenceFailed("once", cause="unreachable")])
    inference.fail_when = lambda request: next(failures, None)
    async with mind(tmp_path, inference) as kernel:
        end = await think(kernel, "m1")
        assert end["result"]["persona"] == "BABS"
        assert inference.embedded.count(BRIEF) == 1
        inference.embedder = like("robin").embedder
        assert (await replayed(kernel, inference))["outcome"] == "same"
        assert inference.embedded.count(BRIEF) == 1


async def test_a_mission_cancelled_while_it_is_routed_ends_once(tmp_path: Path) -> None:
    asked, gate = asyncio.Event(), asyncio.Event()

    class Held(FakeInference):
        async def embed(self, model: str, texts: Any, *, deadline_s: float) -> list[list[float]]:
            if BRIEF in texts:
                asked.set()
                await gate.wait()
            return [[1.0] for _ in texts]

    async with mind(tmp_path, Held(), routing_s=30) as kernel:
        heard = await submit(kernel, "m1", BRIEF)
        await asked.wait()
        await kernel.scheduler.cancel("m1")
        assert (await heard.end())["error"]["code"] == "cancelled"
        assert route_of(kernel, "m1") is None
        gate.set()
        assert (await think(kernel, "m2"))["state"] == "COMPLETE"


async def test_without_an_embedder_missions_are_routed_by_rules(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        assert (await think(kernel, "m1", "I feel sad"))["result"]["persona"] == "ROBIN"
        assert kernel.personas()["embedder"]["state"] == "away"
        found = route_of(kernel, "m1")
        assert found is not None
        assert found.by == "rules"


async def test_status_and_show_tell_the_decision_also_of_a_failed_mission(tmp_path: Path) -> None:
    inference = like("babs")
    inference.fail_when = lambda request: InferenceFailed("never", cause="refused", retryable=False)
    async with mind(tmp_path, inference) as kernel:
        assert (await think(kernel, "m1"))["state"] == "FAILED"
        shown = Queries(kernel.image.db, kernel.image.snapshot).show("m1")["record"]["routing"]
        assert (shown["persona"], shown["by"]) == ("babs", "rules and likeness")


# --- learned


async def test_a_choice_of_the_user_is_learned_when_the_mission_is_complete(tmp_path: Path) -> None:
    inference = like("babs")
    async with mind(tmp_path, inference) as kernel:
        inference.fail_when = lambda request: InferenceFailed("no", cause="refused", retryable=False)
        assert (await think(kernel, "m1", persona="alfred"))["state"] == "FAILED"
        assert learned(kernel) == {}
        inference.fail_when = lambda request: None
        await think(kernel, "m2", persona="alfred")
        assert learned(kernel) == {"alfred": [BRIEF]}
        found = route_of(kernel, "m2")
        assert found is not None
        assert (found.persona, found.by, found.preferred) == ("alfred", "mission", "babs")
        assert (await think(kernel, "m3", f"  {BRIEF.upper()} "))["result"]["persona"] == "ALFRED"
        found = route_of(kernel, "m3")
        assert found is not None
        assert (found.by, found.why) == ("learned", "was chosen for this brief before")
    async with mind(tmp_path, like("babs")) as kernel:
        assert (await think(kernel, "m4"))["result"]["persona"] == "ALFRED", "it is in the image"


@pytest.mark.parametrize("origin", ["hook", "folder"])
async def test_text_of_others_teaches_nothing(tmp_path: Path, origin: str) -> None:
    async with mind(tmp_path, like("babs")) as kernel:
        assert (await think(kernel, "m1", persona="alfred", origin=origin))["result"]["persona"] == "ALFRED"
        assert learned(kernel) == {}


async def test_what_is_like_a_learned_brief_follows_it(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.embedder = lambda text: [1.0, 0.0] if "yzz" in text else [0.0, 1.0]
    async with mind(tmp_path, inference) as kernel:
        before = await think(kernel, "m1", "xyzzyx")
        await think(kernel, "m2", "xyzzy", persona="alfred")
        after = await think(kernel, "m3", "xyzzyx")
        assert (before["result"]["persona"], after["result"]["persona"]) == ("ROBIN", "ALFRED")


async def test_what_says_nothing_new_is_not_learned(tmp_path: Path) -> None:
    async with mind(tmp_path, like("babs")) as kernel:
        await think(kernel, "m1", persona="babs")
        await think(kernel, "m2", persona="alfred", origin="system")
        await think(kernel, "m3")
        message = {"target": "robin", "selector": "synthesize_response_for_", "args": [BRIEF], "kwargs": {}}
        await think(kernel, "m4", "send", message=json.dumps(message))
        assert learned(kernel) == {}
        assert route_of(kernel, "m4") is None
    async with mind(tmp_path, like("babs"), learned_exemplars=0) as kernel:
        await think(kernel, "m5", persona="alfred")
        assert learned(kernel) == {}


async def test_the_last_choice_for_a_brief_is_the_one_that_holds(tmp_path: Path) -> None:
    async with mind(tmp_path, like("babs")) as kernel:
        await think(kernel, "m1", persona="alfred")
        await think(kernel, "m2", "Xyzzy", persona="robin")
        assert learned(kernel) == {"robin": ["Xyzzy"]}
        await think(kernel, "m3", "“xyzzy”", persona="robin")
        await think(kernel, "m4", '"xyzzy"', persona="robin")
        assert learned(kernel) == {"robin": ["Xyzzy", "“xyzzy”"]}, "quotes of another kind make no other brief"


async def test_so_many_are_kept_and_the_oldest_goes(tmp_path: Path) -> None:
    async with mind(tmp_path, like("babs"), learned_exemplars=3) as kernel:
        for i in range(5):
            await think(kernel, f"m{i}", f"brief {i}", persona="alfred")
        assert learned(kernel) == {"alfred": ["brief 2", "brief 3", "brief 4"]}


async def test_many_choices_at_once_are_all_learned(tmp_path: Path) -> None:
    inference = like("babs")
    async with mind(tmp_path, inference, concurrent_missions=20) as kernel:
        ends = await asyncio.gather(*(think(kernel, f"m{i}", f"brief {i}", persona="alfred") for i in range(20)))
        assert {end["state"] for end in ends} == {"COMPLETE"}
        assert len(learned(kernel)["alfred"]) == 20
        assert len(inference.asked) == 20 * 4, "nothing was paid twice"


async def test_a_lesson_is_undone_with_its_mission_and_taken_back_by_a_message(tmp_path: Path) -> None:
    async with mind(tmp_path, like("babs")) as kernel:
        await think(kernel, "m1", persona="alfred")
        last = next(entry for entry in kernel.image.db.undoLog(0, 20) if entry["user_name"] == "m1" and "COMPLETE" in entry["description"])

        def undo() -> None:
            tm = TransactionManager(explicit=True)
            tm.begin()
            kernel.image.db.undo(last["id"], tm.get())
            tm.commit()

        await asyncio.to_thread(undo)
        assert learned(kernel) == {}

        await think(kernel, "m2", persona="alfred")
        assert learned(kernel) == {"alfred": [BRIEF]}
        for expected in (True, False):
            message = json.dumps({"target": "alfred", "selector": "forget_exemplar_", "args": [" XYZZY"], "kwargs": {}})
            end = await think(kernel, f"m3-{expected}", f"send {expected}", message=message)
            assert end["result"]["value"] is expected
        assert learned(kernel) == {}


@pytest.mark.parametrize("junk", [7, ("a", 7, ""), "text", None])
async def test_exemplars_that_the_image_made_a_mess_of(tmp_path: Path, junk: Any) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await kernel.image.system(lambda root: root["lobby"].robin._slots.update(exemplars=junk, learned_exemplars=junk))
        await kernel.image.system(lambda root: root["lobby"]._slots.update(brick=junk))
    async with mind(tmp_path, like("babs")) as kernel:
        assert (await think(kernel, "m1"))["state"] == "COMPLETE"
        assert (await think(kernel, "m2", persona="robin"))["state"] == "COMPLETE"
        assert (await think(kernel, "m3", persona="alfred"))["state"] == "COMPLETE"
        assert learned(kernel) == {"alfred": [BRIEF]}
        assert next(p for p in kernel.personas()["personas"] if p["name"] == "robin")["exemplars"] == (1 if junk == ("a", 7, "") else 0)
