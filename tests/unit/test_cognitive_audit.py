"""The audit: a mission of the loop's own ends with one proposal, of the model's or of the measurements', and nothing is paid for twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.app.kernel import Kernel
from batos.autotelic import audit, change_types, changes, schema, trigger_missions
from batos.autotelic.change_types import STANDING
from batos.autotelic.changes import Proposal
from batos.bridge.inference import ChatRequest
from batos.errors import InferenceFailed
from batos.image import history, journal
from batos.missions.replay import Replays
from batos.objects import Method
from tests.support.autonomy import BRIEFS, fire, improver_of, improving, overlooked, proposing, stepped, thought
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, submit, written

FACET = {"kind": "facet", "target": "robin.gardener_facet_", "content": "Look at it as a gardener looks at a bed in spring."}


def asked(inference: FakeInference) -> list[ChatRequest]:
    return inference.asked_about("Name one change of this system that would help")


async def audited(kernel: Kernel, id: str = "self_audit-1") -> dict[str, Any]:
    end = await (await submit(kernel, id, "self_audit: all is well.", origin="system")).end()
    assert end["state"] == "COMPLETE", end
    await written(kernel)
    return dict(end["result"])


async def test_the_model_is_told_what_was_measured_what_it_thought_and_what_there_is(tmp_path: Path) -> None:
    inference = FakeInference()
    proposing(inference, **FACET)
    async with improving(tmp_path, inference) as kernel:
        result = await fire(kernel, "entropy_falls", words="it has fallen to 0.31.")
        (request,) = asked(inference)
        for words in ("it has fallen to 0.31.", result["text"], "robin.sage_facet_", "psm.SYNTHESIZING", "- retire:"):
            assert words in request.user
        assert request.schema is not None
        assert result["proposal"]["source"] == changes.MODEL
        labels = [one.label for one in kernel.image.read(journal.load, "self_improvement-1-entropy_falls")]
        assert labels[-1] == "1 COMPLETE ALFRED proposal"
        assert result["usage"]["inferences"] == len(labels)


async def test_what_makes_no_sense_is_asked_for_again_with_the_reason_then_the_measurement_decides(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        proposing(inference, **{**FACET, "target": "nobody.gardener_facet_"})
        result = await fire(kernel, "entropy_falls")
        assert len(asked(inference)) == 2
        assert "was refused: 'nobody' is not a persona" in asked(inference)[1].user
        assert (result["proposal"]["source"], result["proposal"]["kind"]) == (changes.MEASUREMENT, "facet")
        assert result["proposal"]["why"].startswith("ROBIN thought 4 of the last 4 missions")


async def test_what_is_no_json_at_all_is_no_failure_and_a_service_that_fails_is_tried_again(tmp_path: Path) -> None:
    inference = FakeInference()
    before = inference.say
    inference.say = lambda request: "no idea" if "Name one change" in request.user else before(request)
    failures = [InferenceFailed("away", cause="unreachable"), None, None, None]
    inference.fail_when = lambda request: failures.pop(0) if "Name one change" in request.user and failures else None
    async with improving(tmp_path, inference) as kernel:
        result = await fire(kernel, "guardian_refuses")
        assert result["proposal"] is None
        assert len(asked(inference)) == 4, "one that failed, then three answers that are no JSON"
        assert len(inference.asked_about("it was measured")) - len(asked(inference)) <= 6, "the thought itself was paid for once"


async def test_an_improvement_whose_trigger_has_recovered_proposes_nothing(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        row = await kernel.image.system(trigger_missions.fire, "entropy_falls", "", "w", 1.0)
        await kernel.image.system(trigger_missions.let_fire_again, [("entropy_falls", "")])
        end = await (await submit(kernel, row[2], "self_improvement", origin="system")).end()
        assert "proposal" not in end["result"]
        assert asked(inference) == []


async def test_an_audit_takes_up_what_has_not_recovered_and_asks_nobody_where_nothing_stands(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        proposing(inference, **FACET)
        before = len(inference.asked)
        result = await audited(kernel, "self_audit-1")
        assert (result["by_rule"], "proposal" in result, result["usage"]["inferences"]) == (True, False, 0)
        assert result["text"].startswith("No trigger is in force")
        assert len(inference.asked) == before
        row = await kernel.image.system(trigger_missions.fire, "state_slow", "DELEGATING", "it is slow.", 1.0)
        assert "proposal" not in await audited(kernel, "self_audit-0"), "its own mission is on its way"
        await kernel.image.system(trigger_missions.let_fire_again, [row[:2]])
        await overlooked(kernel, inference, "entropy_falls", words="it has fallen.")
        result = await audited(kernel, "self_audit-4")
        assert (result["proposal"]["source"], result["proposal"]["evidence"]["words"]) == (changes.MODEL, "it has fallen.")
        assert "by_rule" not in result


async def test_a_model_that_is_not_fit_is_not_asked_and_the_measurement_decides(tmp_path: Path) -> None:
    inference = FakeInference()
    proposing(inference, **FACET)
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        before = len(inference.asked)

        async def too_small(model: str) -> str:
            return f"{model} is too small"

        improver_of(kernel).audits.why_unfit = too_small
        result = await fire(kernel, "entropy_falls", words="it has fallen to 0.31.")
        assert (result["by_rule"], result["proposal"]["source"], result["proposal"]["kind"]) == (True, changes.MEASUREMENT, "facet")
        assert "it has fallen to 0.31." in result["text"]
        assert "No model was asked: alfred:embedded is too small." in result["text"]
        assert result["usage"]["inferences"] == 0
        assert len(inference.asked) == before
        await written(kernel)
        replays: Replays = kernel.replays
        assert (await replays.replay("self_improvement-1-entropy_falls"))["outcome"] == "same"


async def test_what_a_mission_proposed_that_no_change_records_yet_is_under_way(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        proposing(inference, **FACET)
        assert (await fire(kernel, "entropy_falls"))["proposal"]["source"] == changes.MODEL
        assert "proposal" not in await audited(kernel, "self_audit-1"), "the improver has not come to the first one yet"
        (refused,) = await stepped(kernel)
        assert refused["state"] == changes.REFUSED
        assert (await audited(kernel, "self_audit-2"))["proposal"]["source"] == changes.MEASUREMENT


async def test_an_audit_asks_the_model_once_in_so_many_missions_and_looks_at_each_trouble_in_turn(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        await overlooked(kernel, inference, "guardian_refuses", words="nothing follows by rule.")
        await overlooked(kernel, inference, "state_slow", "DELEGATING", "it is slow.")
        await overlooked(kernel, inference, "state_slow", "SYNTHESIZING", "so is that.")
        result = await audited(kernel, "self_audit-1")
        assert (len(asked(inference)), result["proposal"]["target"]) == (2, "psm.DELEGATING")
        await stepped(kernel)
        result = await audited(kernel, "self_audit-2")
        assert (len(asked(inference)), result["proposal"]["target"]) == (2, "psm.SYNTHESIZING"), "no new missions: by rule only"


async def test_a_user_s_mission_and_others_of_the_system_s_propose_nothing(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await kernel.image.system(trigger_missions.fire, "entropy_falls", "", "w", 1.0)
        for id, origin in (("self_audit-of-a-user", "client"), ("another", "system")):
            end = await (await submit(kernel, id, BRIEFS[0], origin=origin)).end()
            assert "proposal" not in end["result"]


async def test_nothing_is_proposed_twice_and_what_did_no_good_is_not_asked_of_the_model_first(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, *BRIEFS)
        proposing(inference, **FACET)
        await fire(kernel, "entropy_falls", words="it falls.")
        (first,) = await stepped(kernel)
        assert (first["state"], first["source"]) == (changes.REFUSED, changes.MODEL)
        result = await audited(kernel)
        assert (result["proposal"]["source"], len(asked(inference))) == (changes.MEASUREMENT, 1)
        refused = {one["target"] for one in await stepped(kernel)}
        seen: list[str] = []
        for n in range(2, 12):
            result = await audited(kernel, f"self_audit-{n}")
            if "proposal" not in result:
                break
            seen.append(result["proposal"]["target"])
            await stepped(kernel)
        assert len(seen) == len(set(seen)), "each once"
        assert not refused & set(seen)


async def test_a_change_that_was_refused_for_want_of_missions_may_be_proposed_again_when_there_are_more(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        await thought(kernel, BRIEFS[0])
        proposing(inference, **FACET)
        await fire(kernel, "entropy_falls")
        (first,) = await stepped(kernel)
        assert first["reason"].startswith("too little is known")
        fault = improver_of(kernel).audits.fault_of
        proposal = Proposal(**{**FACET, "why": "w"})
        assert "it was proposed before and is refused" in kernel.image.read(fault, proposal, audit.Cause("", "", ""))
        await thought(kernel, *BRIEFS[1:], prefix="n")
        assert kernel.image.read(fault, proposal, audit.Cause("", "", "")) == ""


async def test_a_method_that_was_not_taken_away_may_be_for_another_reason_or_when_it_is_another(tmp_path: Path) -> None:
    """The content of such a proposal is always the same."""
    retire = Proposal("retire", "thing.add_", "", "w")
    async with improving(tmp_path, FakeInference()) as kernel:
        await give(kernel, add_=Method("add_", ADD, parameters=("number", "number2")))

        def proposed(root: Any, trigger: str) -> int:
            return changes.propose(root, retire, {"trigger": trigger, "key": "k", "words": "w"}, f"m-{trigger}")

        def refused(root: Any, trigger: str) -> int:
            number = proposed(root, trigger)
            changes.refuse(root, number, "nothing gets better", {"missions": 9, "least": 3, STANDING: change_types.standing(root, retire)})
            return number

        def fault(trigger: str) -> str:
            faulty = improver_of(kernel).audits.fault_of
            return str(kernel.image.read(faulty, retire, audit.Cause(trigger, "k", "w")))

        await kernel.image.system(refused, "method_fails")
        assert "it was proposed before and is refused" in fault("method_fails")
        assert fault("method_unused") == ""
        await kernel.image.system(refused, "method_unused")
        assert "refused" in fault("method_unused")
        assert "refused" in fault("method_fails"), "not by turns"

        def rewrite(root: Any) -> None:
            root["lobby"].thing._slots["add_"] = Method("add_", ADD.replace("return", "return 1 +"), parameters=("number", "number2"))

        await kernel.image.system(rewrite)
        assert fault("method_fails") == fault("method_unused") == ""
        number = await kernel.image.system(proposed, "state_slow")
        assert "is proposed" in fault("method_fails"), "one at a time"
        await kernel.image.system(changes.promote, number, {})
        await kernel.image.system(changes.take_back, number, changes.UNDONE, "a user said so", {})
        assert "is undone (a user said so)" in fault("method_unused"), "a user's word"


async def test_a_replay_of_an_audit_proposes_nothing_and_is_the_same(tmp_path: Path) -> None:
    inference = FakeInference()
    proposing(inference, **FACET)
    async with improving(tmp_path, inference) as kernel:
        await fire(kernel, "entropy_falls")
        await written(kernel)
        replays: Replays = kernel.replays
        count = len(inference.asked)
        assert (await replays.replay("self_improvement-1-entropy_falls"))["outcome"] == "same"
        assert len(inference.asked) == count


async def test_off_proposes_nothing(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference, autotelic="off") as kernel:
        await kernel.image.system(trigger_missions.fire, "entropy_falls", "", "w", 1.0)
        end = await (await submit(kernel, "self_audit-1", "self_audit", origin="system")).end()
        assert "proposal" not in end["result"]
        assert kernel.improving.improver is None


async def test_the_methods_that_there_are_are_named(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 2, 3)
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing))

        def note(root: Any) -> None:
            for key in ("oid:ffffff gone_", f"{oid} add_", f"{oid} name"):
                schema.part_of(root, "usage").methods[key] = (1.0, 1.0, 1)

        await kernel.image.system(note)
        assert [line for line in kernel.image.read(audit.changeable) if "the method" in line] == [f"- the method {oid}.add_"]
