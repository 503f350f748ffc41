"""What proposals come to: rehearsed in mirrors, made or refused; of a rehearsal nothing reaches the image, and a kill loses nothing."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from transaction import TransactionManager

from batos.app.kernel import Kernel
from batos.autotelic import change_types, changes, rehearsal_budget, schema, trigger_missions
from batos.autotelic import improver as improving_module
from batos.autotelic import replay_selection as recorded_missions
from batos.autotelic.changes import Proposal
from batos.autotelic.rehearsal_budget import WorkTime
from batos.bridge.inference import ChatRequest
from batos.errors import ImageError, ImageFailed, InferenceFailed
from batos.image import history, ledger, taught_examples
from batos.image.mission_record import MissionRecord
from batos.image.usage_totals import CostMeter
from batos.memory.curator import Curator
from batos.mind import incarnation
from batos.objects import Method
from tests.support.autonomy import BRIEFS, fire, improver_of, improving, listed, overlooked, proposing, recorded, stepped, thought, varied
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, answer, submit, written

FACET = {"kind": "facet", "target": "robin.gardener_facet_", "content": "Look at it as a gardener looks at a bed in spring."}
PROMPT = {"kind": "meta_prompt", "target": "psm.SYNTHESIZING", "content": "The gardener is asked: $brief. Notes: $voices"}
BAD = "def add_(self, number, number2):\n    return number + self.nowhere\n"
ANEW = "def add_(self, number, number2):\n    total = number + number2\n    return total\n"


def lively(inference: FakeInference, **proposal: str) -> None:
    """A model whose answers are all alike, until the gardener is asked."""
    inference.say = varied(lambda request: "gardener" in request.user)
    proposing(inference, **(proposal or FACET))


def facet(kernel: Kernel) -> str | None:
    return kernel.image.read(lambda root: getattr(root["lobby"].robin._slots.get("gardener_facet_"), "text", None))  # type: ignore[no-any-return]


async def test_a_good_proposal_is_rehearsed_and_made_in_one_annotated_transaction(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls", words="it has fallen to 0.31.")
        (change,) = await stepped(kernel)
        assert (change["state"], change["source"], change["mission"]) == (
            changes.PROMOTED,
            changes.MODEL,
            "self_improvement-1-entropy_falls",
        )
        assert change["evidence"] == {"trigger": "entropy_falls", "key": "", "words": "it has fallen to 0.31."}
        told = change["comparison"]
        assert (told["missions"], told["unknown"], told["worse"]) == (4, 0, [])
        assert told["changed"]["cem"] > told["without"]["cem"]
        assert told["paid"]["inferences"] == len(inference.asked_about("gardener"))
        assert facet(kernel) == FACET["content"]
        oid = kernel.image.read(lambda root: root["lobby"].robin._p_oid)
        assert history.revisions(kernel.image.db, oid, 1)[0]["mission"] == "change:1"
        assert kernel.image.read(
            lambda root: (len(schema.part_of(root, "rehearsals").paid), len(schema.part_of(root, "rehearsals").begun))
        ) == (0, 0)
        await kernel.undoing.undo_change(1, "a user said so")
        assert facet(kernel) is None
        assert [one["state"] for one in listed(kernel)] == [changes.UNDONE]


def refusing(request: ChatRequest) -> str:
    return "" if "gardener" in request.user and request.schema is None else answer(request)


async def test_a_harmful_prompt_is_refused_and_nothing_of_it_stays(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = refusing
    proposing(inference, **PROMPT)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        before = kernel.image.read(lambda root: root["lobby"].psm.SYNTHESIZING.meta_prompt)
        await fire(kernel, "state_slow", "SYNTHESIZING")
        (change,) = await stepped(kernel)
        assert change["state"] == changes.REFUSED
        assert "missions that fail: 0 before, 4 with it" in change["reason"]
        assert kernel.image.read(lambda root: root["lobby"].psm.SYNTHESIZING.meta_prompt) == before


async def test_a_facet_that_says_nothing_and_a_prompt_that_costs_too_much_are_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.say = refusing
    proposing(inference, **FACET)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        assert "answers that the gate refuses" in (await stepped(kernel))[0]["reason"]
        inference.say = varied(lambda request: "gardener" in request.user, words=200)
        proposing(inference, **PROMPT)
        await fire(kernel, "state_slow", "SYNTHESIZING")
        change = (await stepped(kernel))[0]
        assert change["state"] == changes.REFUSED
        assert "tokens" in change["reason"]


async def test_a_rehearsal_touches_nothing_but_its_own_records(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        await written(kernel)

        def seen(root: Any) -> Any:
            missions = [(one.id, one.state, one.result, one.attempts, len(one.journal.entries)) for one in ledger.newest_first(root)]
            held = [root["lobby"]._slots[name] for name in ("robin", "brick", "babs", "alfred", "psm")]
            own = [one._p_serial for one in held if one._p_activate() is None]  # one that is not loaded has none yet
            return missions, own, len(ledger.ledger_of(root).failures)

        costs = CostMeter(kernel.image)
        before, facts = kernel.image.read(seen), costs.facts()
        improver = kernel.improving.improver
        assert improver is not None
        assert await improver.step()
        assert listed(kernel)[0]["comparison"]["reason"] == ""
        assert (kernel.image.read(seen), costs.facts()) == (before, facts)
        assert kernel.image.oldest_view() is None, "a pack is not held up"


async def test_observed_it_proposes_and_rehearses_only(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, autotelic="observe") as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        (change,) = await stepped(kernel)
        assert (change["state"], change["comparison"]["reason"]) == (changes.PROPOSED, "")
        assert facet(kernel) is None
        await recorded(kernel, "facet", "robin.dull_facet_", "Say what everybody says about it.")
        assert (await stepped(kernel))[0]["reason"] == "nothing gets better"
    async with improving(tmp_path, inference) as kernel:
        assert (await stepped(kernel))[-1]["state"] == changes.PROMOTED, "once it may, it does"


async def test_what_the_allowance_does_not_reach_is_unknown_and_too_little_says_nothing(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, rehearsal_inferences=4) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        (change,) = await stepped(kernel)
        assert (change["comparison"]["missions"], change["comparison"]["unknown"]) == (1, 3)
        assert change["comparison"]["paid"]["inferences"] == 4
        assert change["reason"].startswith("too little is known to judge")


async def test_a_service_that_is_away_makes_missions_unknown_not_failed(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        inference.fail_when = lambda request: InferenceFailed("away", cause="unreachable")
        (change,) = await stepped(kernel)
        assert (change["comparison"]["unknown"], change["comparison"]["changed"]["failures"]) == (4, 0)


async def test_where_nobody_can_name_a_model_missions_are_unknown_too(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")

        async def away(model: str) -> str:
            raise InferenceFailed("nobody there", cause="unreachable")

        inference.digest = away  # type: ignore[method-assign]
        (change,) = await stepped(kernel)
        assert (change["comparison"]["unknown"], change["comparison"]["missions"]) == (4, 0)


async def test_a_prompt_that_breaks_the_code_is_a_failure_and_not_the_end_of_the_improver(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        say, broken = inference.say, KeyError("a fault of the host's own code")

        def fails(request: ChatRequest) -> str:
            if "gardener" in request.user:
                raise broken
            return say(request)

        inference.say = fails
        await recorded(kernel, **PROMPT)
        assert "missions that fail: 0 before, 4 with it" in (await stepped(kernel))[0]["reason"]


async def test_users_missions_go_first(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        inference.hold()
        heard = await submit(kernel, "urgent", "I feel lost and I need my friend")
        count = len(inference.asked)
        await inference.came(count + 1)
        stepping = asyncio.create_task(stepped(kernel))
        await asyncio.sleep(0)
        inference.release()
        await heard.end()
        ended = len(inference.asked)
        await stepping
        assert all("gardener" not in request.user for request in inference.asked[count:ended])
        assert inference.asked_about("gardener")


async def test_a_good_change_waits_for_the_watch_over_another_and_for_the_day_s_budget(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, loop_changes=1) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        assert (await stepped(kernel))[0]["state"] == changes.PROMOTED
        inference.say = varied(lambda request: "potter" in request.user)
        await recorded(kernel, "meta_prompt", "psm.SYNTHESIZING", "The potter is asked: $brief. Notes: $voices")
        (second, _) = await stepped(kernel)
        assert (second["state"], second["comparison"]["reason"]) == (changes.PROPOSED, "")
        await kernel.image.system(changes.keep, 1, "", {})
        assert (await stepped(kernel))[0]["state"] == changes.PROPOSED, "one a day"
    async with improving(tmp_path, inference) as kernel:
        assert (await stepped(kernel))[0]["state"] == changes.PROMOTED


async def test_what_was_changed_since_it_was_tried_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference, **PROMPT)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "state_slow", "SYNTHESIZING")
        improver = kernel.improving.improver
        assert improver is not None
        await improver.step()

        def rewrite(root: Any) -> None:
            root["lobby"].psm.SYNTHESIZING.meta_prompt = "An operator's own: $brief $voices"

        await kernel.image.system(rewrite)
        (change,) = await stepped(kernel)
        assert change["reason"] == "psm.SYNTHESIZING was changed since this was tried"
        assert kernel.image.read(lambda root: root["lobby"].psm.SYNTHESIZING.meta_prompt).startswith("An operator's own")


async def test_what_was_tried_before_another_change_was_made_is_tried_again_on_top_of_it(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, loop_changes=9) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        improver = kernel.improving.improver
        assert improver is not None
        await improver.step()

        def other(root: Any) -> None:
            number = changes.propose(root, Proposal("model", "babs", "brick:embedded", "w"), {}, "")
            changes.promote(root, number, {})
            changes.keep(root, number, "", {})

        await kernel.image.system(other)
        paid = len(inference.asked)
        assert (await stepped(kernel))[-1]["state"] == changes.PROMOTED
        assert listed(kernel)[-1]["comparison"]["after"] == "2"
        assert len(inference.asked) == paid, "what was paid for is not paid again"


async def test_a_promotion_that_meets_a_conflict_is_made_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        improver = kernel.improving.improver
        assert improver is not None
        await improver.step()
        met: list[int] = []
        apply = change_types.apply

        def meets(*args: Any) -> None:
            apply(*args)
            if not met:  # another commits what this is about to
                met.append(1)
                tm = TransactionManager(explicit=True)
                tm.begin()
                connection = kernel.image.db.open(transaction_manager=tm)
                connection.root()["lobby"].robin.mood = "met"
                tm.commit()
                connection.close()

        monkeypatch.setattr(change_types, "apply", meets)
        conflicts = kernel.image.committer.stats["conflicts"]
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED
        assert kernel.image.committer.stats["conflicts"] > conflicts
        assert kernel.image.read(lambda root: root["lobby"].robin.mood) == "met"
        assert facet(kernel) == FACET["content"]


async def test_a_proposal_whose_record_was_dropped_is_not_taken_up_again(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference, changes_kept=2) as kernel:
        await thought(kernel, *BRIEFS)
        for n in range(4):
            proposing(inference, kind="facet", target="robin.gardener_facet_", content=f"Look at it as a gardener on day {n}.")
            await fire(kernel, "entropy_falls", str(n))
        await stepped(kernel, 16)
        ever = kernel.image.read(lambda root: schema.part_of(root, "changes").ever)
        await stepped(kernel, 16)
        assert kernel.image.read(lambda root: schema.part_of(root, "changes").ever) == ever == 4


# --- methods


async def worsened(kernel: Kernel) -> str:
    """A method with a version that worked and one that does not; its object's id."""

    def worsen(root: Any) -> None:
        slots = root["lobby"].thing._slots
        slots["add_"] = Method("add_", BAD, parameters=("number", "number2"), previous=slots["add_"])

    await kernel.image.system(worsen)
    return str(kernel.image.read(lambda root: history.oid_of(root["lobby"].thing)))


async def test_a_method_that_fails_again_and_again_goes_back_to_the_version_that_did_not(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "good", "thing", "add_", 2, 3)
        oid = await worsened(kernel)
        for n in range(3):
            assert (await sent(kernel, f"bad{n}", "thing", "add_", 2, n))["state"] == "FAILED"
        result = await fire(kernel, "method_fails", f"{oid} add_", "it failed in 3 of 4 runs.")
        assert (result["proposal"]["kind"], result["proposal"]["content"]) == ("method", ADD)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED, change
        assert (change["comparison"]["without"]["failures"], change["comparison"]["changed"]["failures"]) == (4, 0)
        assert (await sent(kernel, "after", "thing", "add_", 20, 3))["result"]["value"] == 23


async def test_a_retired_method_is_rehearsed_by_writing_it_anew_there(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, BAD.replace("self.nowhere", "1"), ANEW)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "good", "thing", "add_", 2, 3)

        def break_it(root: Any) -> None:
            root["lobby"].thing._slots["add_"] = Method("add_", BAD, parameters=("number", "number2"))

        await kernel.image.system(break_it)
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing))
        for n in range(3):
            assert (await sent(kernel, f"bad{n}", "thing", "add_", 2, n))["state"] == "FAILED"
        await fire(kernel, "method_fails", f"{oid} add_")
        (change,) = await stepped(kernel)
        assert (change["kind"], change["state"]) == ("retire", changes.PROMOTED), change
        assert change["comparison"]["paid"]["inferences"] >= 3
        assert kernel.image.read(lambda root: "add_" in root["lobby"].thing._slots) is False


async def test_a_method_that_does_what_it_was_taught_is_not_retired_because_it_is_called_wrongly(tmp_path: Path) -> None:
    inference = FakeInference()
    total = "def total_(self, values):\n    return sum(values)\n"
    writing(inference, "def total_(self, values):\n    return sum(map(int, values))\n")
    async with improving(tmp_path, inference) as kernel:
        await give(kernel, total_=Method("total_", total, parameters=("values",)))
        taught = [{"args": [[1, 3]], "result": 4}, {"args": [[]], "result": 0}]
        await kernel.image.system(lambda root: taught_examples.teach(root, root["lobby"].thing._p_oid, "total_", taught, "", 8))
        for n in range(3):
            assert (await sent(kernel, f"bad{n}", "thing", "total_", "13"))["error"]["code"] == "method_failed"
        await kernel.loop.tick()
        await recorded(kernel, "retire", "thing.total_", "")
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, "nothing gets better"), change
        assert change["comparison"]["trials"] == 2

        def age(root: Any) -> None:
            uses = schema.part_of(root, "usage").methods
            for key, (written, last, runs) in list(uses.items()):
                uses[key] = (written, last - 86400 * kernel.settings.trigger_unused_days, runs)

        await written(kernel)
        await kernel.image.system(age)
        await kernel.image.system(lambda root: schema.part_of(root, "changes").log.clear())
        await recorded(kernel, "retire", "thing.total_", "")
        assert [one["state"] for one in await stepped(kernel)] == [changes.PROMOTED], "nobody has sent it for long"


async def test_a_rewritten_method_that_answers_otherwise_or_fails_its_examples_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        for n in range(2):
            await sent(kernel, f"m{n}", "thing", "add_", 2, n)
        await recorded(kernel, "method", "thing.add_", ADD.replace("+", "-"))
        (change,) = await stepped(kernel)
        assert "messages that are answered otherwise: 0 before, 1 with it" in change["reason"]
        example = {"args": [4, 4], "result": 8}
        await kernel.image.system(lambda root: taught_examples.teach(root, root["lobby"].thing._p_oid, "add_", [example], "", 8))
        await recorded(kernel, "method", "thing.add_", ADD.replace("+ number2", "+ number2 if number < 4 else 0"))
        change = (await stepped(kernel))[0]
        assert "trials that fail: 0 before, 1 with it" in change["reason"]
        assert change["comparison"]["trials"] == 1


async def test_a_rewritten_method_that_fails_what_another_was_taught_who_inherits_it_is_refused(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        await give(kernel, add_=Method("add_", ADD, parameters=("number", "number2")))
        example = {"args": [4, 4], "result": 8}

        def taught(root: Any) -> None:
            root["lobby"].heir = root["lobby"].thing.derive(name="heir")
            root._p_jar.add(root["lobby"].heir)
            taught_examples.teach(root, root["lobby"].heir._p_oid, "add_", [example], "", 8)

        await kernel.image.system(taught)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["result"]["value"] == 5
        await recorded(kernel, "method", "thing.add_", ADD.replace("+ number2", "+ number2 if number < 4 else 0"))
        (change,) = await stepped(kernel)
        assert (change["state"], change["comparison"]["trials"]) == (changes.REFUSED, 1)
        assert "trials that fail: 0 before, 1 with it" in change["reason"]


# --- routes


async def test_exemplars_that_make_briefs_go_astray_are_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        astray = "Tell me about my cat"
        for n in range(3):
            await thought(kernel, astray + "!" * n, prefix=f"c{n}", persona="robin")
        await kernel.image.system(lambda root: root["lobby"].robin.learned_exemplars.clear())
        await recorded(kernel, "exemplar", "babs", [astray])
        (change,) = await stepped(kernel)
        assert change["state"] == changes.REFUSED


async def test_exemplars_that_get_variety_into_a_rut_are_promoted(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        inference.say = varied(lambda request: "BRICK" in request.system)
        await recorded(kernel, "exemplar", "brick", [BRIEFS[0], BRIEFS[2]])
        improver = kernel.improving.improver
        assert improver is not None
        await improver.step()
        await kernel.image.system(lambda root: incarnation.learn({"brick": root["lobby"].brick}, "brick", "A user's own", "m", 9))
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED, change["reason"]
        assert (await kernel.router.decide(MissionRecord(id="m", brief=BRIEFS[0], accepted=1.0, number=1))).persona == "brick"


async def test_where_the_model_cannot_think_its_own_mission_through_the_measurement_decides_all_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference, mission_attempts=1) as kernel:
        await thought(kernel, *BRIEFS)
        inference.say = lambda request: "-" if "ALFRED" in request.system else varied(lambda request: True)(request)
        row = await kernel.image.system(trigger_missions.fire, "entropy_falls", "", "it has fallen.", 1.0)
        end = await (await submit(kernel, row[2], "self_improvement", origin="system")).end()
        assert end["state"] == "FAILED"
        (change,) = await stepped(kernel)
        assert (change["source"], change["mission"], change["kind"]) == (changes.MEASUREMENT, row[2], "facet")
        assert change["state"] == changes.PROMOTED
        assert len(await stepped(kernel)) == 1, "once"
        await kernel.image.system(changes.keep, 1, "", {})
        await overlooked(kernel, inference, "state_slow", "DELEGATING")
        assert len(await stepped(kernel)) == 1, "who cancels it wants nothing of it"


async def test_a_message_that_the_guardian_refuses_gets_the_rule_told_and_is_written(tmp_path: Path) -> None:
    inference = FakeInference()
    bad = "def add_(self, number, number2):\n    import os\n    return number + number2\n"
    writing(inference, lambda request: ADD if "Mind: the module os" in request.user else bad)
    async with improving(tmp_path, inference, mission_attempts=1, synthesis_tries=1) as kernel:
        await give(kernel)
        for n in range(3):
            assert (await sent(kernel, f"m{n}", "thing", "add_", n, 3))["state"] == "FAILED"
        result = await fire(kernel, "guardian_refuses", words="the guardian refused 8 of 8 sources of methods.")
        assert (result["proposal"]["kind"], result["proposal"]["source"]) == ("intent", changes.MEASUREMENT)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED, change["reason"]
        assert change["comparison"]["better"] == ["missions that fail: 3 before, 0 with it"]
        assert (await sent(kernel, "n1", "thing", "add_", 2, 3))["result"]["value"] == 5


async def test_a_rule_that_is_told_in_vain_is_not_told_again(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def add_(self, number, number2):\n    import os\n    return number + number2\n")
    async with improving(tmp_path, inference, mission_attempts=1, synthesis_tries=1) as kernel:
        await give(kernel)
        for n in range(3):
            assert (await sent(kernel, f"m{n}", "thing", "add_", n, 3))["state"] == "FAILED"
        await fire(kernel, "guardian_refuses")
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, "nothing gets better")
        assert kernel.image.read(lambda root: "add_" in root["lobby"].thing._slots) is False
        assert (await fire(kernel, "guardian_refuses"))["proposal"] is None
        assert len(await stepped(kernel)) == 1


# --- ratings


async def test_what_a_user_liked_keeps_a_change_out_that_would_answer_otherwise(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await kernel.loop.rate("m2", 1, "just right")
        await fire(kernel, "entropy_falls")
        (change,) = await stepped(kernel)
        assert change["state"] == changes.REFUSED
        assert "answers that users liked and that are no longer given: 0 before, 1 with it" in change["reason"]


async def test_what_a_user_did_not_like_and_stays_is_no_reason_for_a_change(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference, **{**FACET, "target": "brick.gardener_facet_"})
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        for n in range(1, 4):
            await kernel.loop.rate(f"m{n}", -1, "the same again")
        await fire(kernel, "entropy_falls")
        (change,) = await stepped(kernel)
        told = change["comparison"]
        assert (told["missions"], told["unliked"], told["changed"]["disliked"]) == (1, 3, 3), "it is BRICK's facet, and they are ROBIN's"
        assert "3 more were rated -1" in change["reason"]


async def test_rated_missions_are_tried_first(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await kernel.loop.rate("m1", 1, "")
        proposal = Proposal("facet", FACET["target"], FACET["content"], "w")
        assert kernel.image.read(recorded_missions.chosen, proposal, "", 2) == ["m1", "m4"]


# --- kills: another kernel goes on with what the image has


async def test_killed_after_each_step_another_daemon_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        assert listed(kernel) == []
    asked = len(inference.asked_about("gardener"))
    async with improving(tmp_path, inference) as kernel:
        improver = kernel.improving.improver
        assert improver is not None
        inference.hold()
        stepping = asyncio.create_task(improver.step())
        await inference.came(len(inference.asked) + 1)
        stepping.cancel()
        await asyncio.wait([stepping])
        inference.release()
        assert [one["state"] for one in listed(kernel)] == [changes.PROPOSED]
        assert kernel.image.oldest_view() is None
    interrupted = len(inference.asked_about("gardener")) - asked
    async with improving(tmp_path, inference, rehearsal_tries=1) as kernel:
        improver = kernel.improving.improver
        assert improver is not None
        assert await improver.step(), "what was interrupted in good order does not count"
        (change,) = listed(kernel)
        assert (change["state"], change["comparison"]["reason"]) == (changes.PROPOSED, "")
        assert len(inference.asked_about("gardener")) - asked == change["comparison"]["paid"]["inferences"] + interrupted
    paid = len(inference.asked)
    async with improving(tmp_path, inference) as kernel:
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED
        assert len(inference.asked) == paid
    async with improving(tmp_path, inference) as kernel:
        assert not await kernel.improving.improver.step()  # type: ignore[union-attr]
        assert [one["number"] for one in listed(kernel)] == [1], "each once"


async def test_what_a_rehearsal_has_paid_for_is_there_for_the_next(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        improver = kernel.improving.improver
        assert improver is not None
        count = len(inference.asked_about("gardener"))

        def dies(request: ChatRequest) -> None:
            if "gardener" in request.user and len(inference.asked_about("gardener")) > count + 5:
                raise ImageFailed("the daemon dies here")

        inference.fail_when = dies
        with pytest.raises(ImageFailed):
            await improver.step()
        inference.fail_when = lambda request: None
        kept = kernel.image.read(lambda root: len(schema.part_of(root, "rehearsals").paid))
        assert kept == 5
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED
        asked = len(inference.asked_about("gardener")) - count
        assert asked == change["comparison"]["paid"]["inferences"] + 1, "but for the one under way"


async def test_what_a_kill_left_of_a_decided_change_is_let_go_of(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        improver = kernel.improving.improver
        assert improver is not None
        await improver.step()

        def left(root: Any) -> tuple[int, int]:
            return len(schema.part_of(root, "rehearsals").paid), len(schema.part_of(root, "rehearsals").begun)

        await kernel.image.system(rehearsal_budget.forget_payments)
        assert kernel.image.read(left) == (12, 1), "it is not decided yet"
        await kernel.image.system(changes.refuse, 1, "and killed here", {})
        await kernel.image.system(rehearsal_budget.forget_payments)
        assert kernel.image.read(left) == (0, 0)


async def test_a_rehearsal_that_kills_the_daemon_does_not_do_so_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, rehearsal_tries=2) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        with monkeypatch.context() as patched:
            patched.setattr(change_types, "check", Mock(side_effect=SystemError("killed")))  # the first step of a rehearsal
            for _ in range(2):
                with pytest.raises(SystemError):
                    await improver_of(kernel).step()
        (change,) = await stepped(kernel)
        assert (change["state"], change["reason"]) == (changes.REFUSED, "its rehearsal was begun 2 times and never ended")


async def test_what_takes_too_long_is_tried_again_as_often_as_it_may(tmp_path: Path) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, rehearsal_s=0.05, rehearsal_tries=2) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        inference.hold()
        (change,) = await stepped(kernel)
        inference.release()
        assert (change["state"], change["reason"]) == (changes.REFUSED, "its rehearsal was begun 2 times and never ended")


async def test_a_rehearsal_that_only_waits_for_users_is_left_and_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    lively(inference)
    async with improving(tmp_path, inference, rehearsal_tries=1) as kernel:
        await thought(kernel, *BRIEFS)
        await fire(kernel, "entropy_falls")
        improver = kernel.improving.improver
        assert improver is not None
        quiet, waited = improver.quiet, asyncio.Event()

        async def busy() -> None:
            monkeypatch.setattr(improver, "quiet", never)
            await quiet()

        async def never() -> None:
            waited.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patched:
            patched.setattr(improving_module, "WorkTime", functools.partial(WorkTime, waiting_s=0.01))
            patched.setattr(improver, "quiet", busy)
            assert not await improver.step()
        assert waited.is_set()
        assert listed(kernel)[0]["state"] == changes.PROPOSED
        monkeypatch.setattr(improver, "quiet", quiet)
        (change,) = await stepped(kernel)
        assert change["state"] == changes.PROMOTED


# --- what is done outside


async def test_the_curator_is_run_when_that_is_promoted_and_says_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    curate = AsyncMock(return_value={"archived": 7})
    monkeypatch.setattr(Curator, "round", curate)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, BRIEFS[0])
        await recorded(kernel, "curate", "memory", "")
        (change,) = await stepped(kernel)
        assert (change["state"], change["comparison"]["curated"], curate.await_count) == (changes.KEPT, {"archived": 7}, 1)
        curate.side_effect = ImageError("the storage keeps no blobs")
        await thought(kernel, BRIEFS[1], prefix="n")
        await recorded(kernel, "curate", "memory", "")
        change = (await stepped(kernel))[0]
        assert (change["state"], change["reason"]) == (changes.REFUSED, "the storage keeps no blobs")


async def test_the_real_curator_is_run_for_an_image_that_grows(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        await thought(kernel, BRIEFS[0])
        result = await fire(kernel, "image_grows", words="the image has grown from 20 to 40 MB.")
        assert (result["proposal"]["kind"], result["proposal"]["source"]) == ("curate", changes.MEASUREMENT)
        (change,) = await stepped(kernel)
        assert (change["state"], change["comparison"]["curated"]["clusters"]) == (changes.KEPT, []), change
        assert kernel.image.read(changes.watched) is None, "nothing else waits for it"
