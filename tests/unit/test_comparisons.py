"""Comparisons side by side: in mirrors, paid for once, judged without knowing the sides, promoted in one transaction that can be undone."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from batos.api.comparisons import ComparisonRequests
from batos.app.kernel import Kernel
from batos.autotelic import changes
from batos.bridge.inference import ChatRequest
from batos.comparisons import figures, judging, records, report
from batos.errors import BatosError, InferenceFailed, InvalidInput, UnknownComparison, UnknownPersona
from batos.image import history, kernels, ledger
from batos.image.identity import ActingState
from batos.mind import incarnation
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.toolbox import Toolbox
from tests.support.autonomy import BRIEFS, improving, thought
from tests.support.comparing import DEEP, FOUR, GARDENER, SPRING, Desk, gardening
from tests.support.desk import Place
from tests.support.missions import FakeInference, answer, give, mind, submit, written


def _slots(mission: Any) -> dict[str, Any]:
    mission._p_activate()
    return {name: value for name, value in mission.__dict__.items() if isinstance(value, str | int | float)}


def missions_of(kernel: Kernel) -> dict[str, dict[str, Any]]:
    return kernel.image.read(lambda root: {one.id: _slots(one) for one in ledger.newest_first(root)})  # type: ignore[no-any-return]


def facet(kernel: Kernel) -> str:
    return str(kernel.image.read(lambda root: root["lobby"].robin.sage_facet_.text))


async def test_a_changed_facet_is_compared_on_recorded_missions_and_leaves_no_trace(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await thought(kernel, *BRIEFS, **DEEP)
        await written(kernel)
        before, asked = missions_of(kernel), len(inference.asked)
        told = await desk.start(changed=GARDENER, **SPRING)
        assert (told["state"], told["done"], told["left_out"], told["unjudged"]) == ("done", 4, 0, 0)
        assert [one["mission"] for one in told["compared"]] == ["m1", "m2", "m3", "m4"]
        assert told["cost"]["inferences"] == len(inference.asked) - asked > 0
        assert {one["base"]["text"] for one in told["compared"]} == {answer(ChatRequest("m", "", ""))}  # from the journal
        assert missions_of(kernel) == before
        assert facet(kernel) != GARDENER["robin.sage_facet_"]


async def test_another_persona_is_compared_on_given_briefs_which_become_no_missions(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        told = await Desk(kernel).start(other="brick", briefs=FOUR, **SPRING)
        assert (told["words"], told["done"], missions_of(kernel)) == ("robin with brick in its place", 4, {})
        assert {(one["base"]["persona"], one["changed"]["persona"]) for one in told["compared"]} == {("ROBIN", "BRICK")}
        assert told["figures"]["wins"] == {"base": 0, "changed": 4, "tie": 0}
        assert told["figures"]["verdict"] == "undecided"
        assert "too few to say anything" in told["figures"]["why"]


async def test_one_that_lost_its_model_in_the_middle_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    inference.fail_when = lambda request: (
        InferenceFailed("it is away", cause="unreachable", model="m", retryable=True) if len(inference.asked) > 5 else None
    )
    async with improving(tmp_path, inference) as kernel:
        told = await Desk(kernel).start(other="brick", briefs=FOUR, **SPRING)
        assert (told["state"], told["reason"], told["done"], told["cost"]["inferences"]) == ("stopped", "it is away", 2, 5)
    inference.fail_when = lambda request: None
    async with improving(tmp_path, inference) as kernel:  # also over a restart
        told = await Desk(kernel).resumed()
        assert (told["state"], told["done"], told["cost"]["inferences"]) == ("done", 4, 8)
        assert inference.answered == 8


async def test_a_daemon_that_ends_in_the_middle_leaves_one_that_can_go_on(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        inference.hold()
        await desk.ask("start", id="c1", persona="robin", other="brick", briefs=FOUR, **SPRING)
        await inference.came(1)
    inference.release()
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.ask("show", id="c1")
        assert (told["state"], told["reason"], told["done"]) == ("stopped", "the daemon ended in the middle of it", 0)
        assert (await desk.resumed())["done"] == 4


async def test_a_spent_budget_is_told_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=FOUR, inferences=3, **SPRING)
        assert (told["state"], told["done"], told["cost"]["inferences"]) == ("spent", 1, 3)
        assert "its budget is spent: 3 inferences" in told["reason"]
        told = await desk.resumed(inferences=8)
        assert (told["state"], told["done"], inference.answered) == ("done", 4, 8)


async def test_what_another_kernel_is_at_is_left_to_it_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await desk.start(other="brick", briefs=FOUR, inferences=2, **SPRING)

        def taken(root: Any) -> None:
            record = records.record_of(root, "c1")
            record.kernel, record.state = "beech.4", records.RUNNING

        await kernel.image.system(taken)
        gone = False
        monkeypatch.setattr(kernels, "is_gone", lambda root, name: gone)
        assert (await desk.ask("show", id="c1"))["state"] == "running"
        for op in ("resume", "stop", "remove"):
            with pytest.raises(InvalidInput, match=r"the kernel beech\.4 is at the comparison 'c1'"):
                await desk.ask(op, id="c1")
        gone = True
        assert (await desk.ask("show", id="c1"))["state"] == "stopped"
        assert (await desk.resumed(inferences=20))["state"] == "done"


async def test_it_is_stopped_and_waits_behind_users_missions(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        inference.hold()
        heard = await submit(kernel, "user", "Plan the day", depth="direct")
        await inference.came(1)
        await desk.ask("start", id="c1", persona="robin", other="brick", briefs=FOUR, **SPRING)
        second = await desk.ask("start", id="c2", persona="robin", other="babs", briefs=FOUR, **SPRING)
        assert second["state"] == "waiting"
        assert (await desk.ask("stop", id="c2"))["state"] == "stopped"
        told = await desk.ask("show", id="c1", wait_s=0.2)
        assert (told["state"], told["done"], len(inference.asked)) == ("running", 0, 1)  # the user's mission alone
        assert (await desk.ask("stop", id="c1"))["state"] == "stopped"
        inference.release()
        assert (await heard.end())["state"] == "COMPLETE"
        assert (await desk.resumed())["state"] == "done"


async def test_a_user_judges_without_knowing_the_sides_and_can_stop_in_between(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=FOUR)
        assert (told["judge"], told["unjudged"]) == ("me", 4)
        assert all(one["hidden"] and "base" not in one for one in told["compared"])
        lefts = set()
        for turn in range(4):
            pair = (await desk.ask("next", id="c1"))["pair"]
            assert (pair["judged"], pair["of"]) == (turn, 4)
            assert pair.keys() == {"number", "brief", "left", "right", "judged", "of"}
            spring = "left" if "spring" in pair["left"] else "right"
            lefts.add(spring)
            assert (await desk.ask("next", id="c1"))["pair"] == pair  # the same, however often it is looked at
            await desk.ask("judge", id="c1", number=pair["number"], verdict="tie" if turn == 3 else spring)
        assert (await desk.ask("next", id="c1"))["pair"] is None
        told = await desk.ask("show", id="c1")
        assert told["figures"]["wins"] == {"base": 0, "changed": 3, "tie": 1}
        assert lefts == {"left", "right"}


async def test_pairs_that_say_the_same_or_failed_on_one_side_need_no_judge(tmp_path: Path) -> None:
    inference = FakeInference()
    inference.fail_when = lambda request: (
        InferenceFailed("it cannot", cause="malformed", model="m", retryable=False)
        if "sad" in request.user and "You are BRICK" in request.system
        else None
    )
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=FOUR)
        assert (told["unjudged"], told["figures"]["settled"]) == (0, 4)
        assert told["figures"]["wins"] == {"base": 1, "changed": 0, "tie": 3}
        with pytest.raises(InvalidInput, match="needs no judge"):
            await desk.ask("judge", id="c1", number=1, verdict="left")


@pytest.mark.parametrize(("prefers", "wins", "disagreed"), [("first", {"tie": 4}, 4), ("spring", {"changed": 4}, 0)])
async def test_alfred_judges_in_both_orders(tmp_path: Path, prefers: str, wins: dict[str, int], disagreed: int) -> None:
    inference = FakeInference()
    gardening(inference)
    before = inference.say

    def say(request: ChatRequest) -> str:
        if request.schema is None or "better" not in request.schema["properties"]:
            return before(request)
        first = request.user.partition("First answer:")[2].partition("Second answer:")[0]
        return json.dumps({"better": "first" if prefers == "first" or "spring" in first else "second", "why": "it grows"})

    inference.say = say
    async with improving(tmp_path, inference) as kernel:
        told = await Desk(kernel).start(other="brick", briefs=FOUR, judge="alfred")
        assert told["figures"]["wins"] == {"base": 0, "changed": 0, "tie": 0, **wins}
        assert told["figures"]["disagreed"] == disagreed
        assert told["cost"]["inferences"] == inference.answered == 4 * 2 + 4 * 2


async def test_what_is_better_is_made_so_in_one_transaction_that_can_be_undone(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk, was = Desk(kernel), facet(kernel)
        await thought(kernel, *BRIEFS, **DEEP)
        told = await desk.start(changed=GARDENER, **SPRING)
        assert told["figures"]["verdict"] == "undecided"
        with pytest.raises(InvalidInput, match="does not say that the variant is better"):
            await desk.ask("promote", id="c1", note="I like gardens")
        assert facet(kernel) == was
        made = await desk.ask("promote", id="c1", note="I like gardens", anyway=True)
        assert (facet(kernel), made["promoted"]) == (GARDENER["robin.sage_facet_"], made["change"])
        assert (await desk.ask("promote", id="c1", note="again", anyway=True))["change"] == made["change"]
        oid = kernel.image.read(lambda root: root["lobby"].robin._p_oid)
        (revision, *_) = history.revisions(kernel.image.db, oid, 1)
        assert (revision["mission"], revision["note"]) == (
            f"change:{made['change']}",
            f"PROMOTED: comparison c1: {told['words']}: I like gardens",
        )
        change = kernel.image.read(changes.of, made["change"])
        assert (change["kind"], change["source"], change["state"], change["why"]) == ("comparison", "user", "kept", "I like gardens")
        await kernel.undoing.undo_change(made["change"], "I changed my mind")
        assert facet(kernel) == was
        assert (await desk.ask("show", id="c1"))["promoted"] is None


async def test_a_persona_that_won_gets_such_briefs_from_then_on(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    six = [{**FOUR[0], "brief": f"Why do I feel tired on {day}?"} for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat")]
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=six, **SPRING)
        assert (told["figures"]["verdict"], told["figures"]["interval"]) == ("better", [0.5407, 1.0])
        made = await desk.ask("promote", id="c1", note="plain words help")
        learned = kernel.image.read(lambda root: set(incarnation.exemplars_of(root["lobby"].brick).learned.values()))
        assert learned == {one["brief"] for one in six}
        end = await (await submit(kernel, "m1", six[0]["brief"])).end()
        assert end["result"]["persona"] == "BRICK"
        await kernel.undoing.undo_change(made["change"], "no")
        assert kernel.image.read(lambda root: incarnation.exemplars_of(root["lobby"].brick).learned) == {}


async def test_a_setting_and_a_depth_are_compared_but_a_setting_is_not_promoted(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        brief = [{"brief": "Why do I feel tired on Mondays?"}]
        told = await desk.start("c1", changed={"missions.depth": "direct", "inference.answer_tokens": "40"}, briefs=brief, **SPRING)
        (pair,) = told["compared"]
        assert (pair["base"]["depth"], pair["changed"]["depth"]) == ("facets", "direct")
        assert pair["base"]["inferences"] > pair["changed"]["inferences"] == 1
        assert dict(inference.asked[-1].options)["num_predict"] == 40
        with pytest.raises(InvalidInput, match=r"settings are not of the image: write missions\.depth = 'direct', inference"):
            await desk.ask("promote", id="c1", note="deep", anyway=True)
        told = await desk.start("c2", changed={"depth": "direct"}, briefs=brief, **SPRING)
        assert told["compared"][0]["changed"]["depth"] == "direct"


async def test_a_persona_of_a_codex_file_is_compared(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    codex = (
        '[personas.gardener]\ncore_mission = "To let things grow, as a gardener."\ncore_method = "Patience."\npillars = ["the seasons"]\n'
        '[personas.gardener.protocols]\nbed_facet_ = "Look at it as a gardener looks at a bed."\n'
    )
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(codex=codex, briefs=[{**FOUR[0], "depth": "facets"}], **SPRING)
        slots = told["variant"]["slots"]
        assert (slots["core_method"], slots["bed_facet_"], slots["sage_facet_"]) == (
            "Patience.",
            {"intent": "Look at it as a gardener looks at a bed."},
            None,
        )
        assert any("To let things grow" in request.system for request in inference.asked)
        with pytest.raises(BatosError, match=r"line 1, key personas\.robin\.core_mission"):
            await desk.ask("start", id="c2", persona="robin", codex="[personas.robin]\n", briefs=FOUR)


async def test_what_there_is_must_not_change_in_the_middle(tmp_path: Path) -> None:
    inference = FakeInference()
    gardening(inference)
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await desk.start(other="brick", briefs=FOUR, inferences=2, **SPRING)

        def change(root: Any) -> None:
            root["lobby"].robin.core_method = "Other words."

        await kernel.image.system(change)
        told = await desk.resumed(inferences=100)
        assert (told["state"], told["reason"]) == (
            "failed",
            "robin or brick was changed since this comparison began; begin another one",
        )


async def test_a_plan_names_what_it_will_cost_before_anything_begins(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        await thought(kernel, *BRIEFS[:2], **DEEP)
        asked = len(inference.asked)
        plan = await desk.ask("start", id="c1", persona="robin", other="brick", dry=True)
        assert (plan["type"], plan["pairs"], plan["budget"]["inferences"]) == ("compare_plan", 2, 200)
        assert plan["estimate"]["inferences"] == asked  # as much as the missions took, on one side
        assert plan["estimate"]["large"] is False
        plan = await desk.ask("start", id="c1", persona="robin", other="brick", judge="alfred", briefs=FOUR * 5, dry=True)
        assert plan["estimate"]["large"] is True
        assert (await desk.ask("list"))["comparisons"] == []
        assert len(inference.asked) == asked


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"persona": "nobody", "other": "brick"}, "no persona 'nobody'; there are: robin, brick, babs, alfred"),
        ({"other": "brik"}, r"'brik' is neither a persona nor a model that is there \(did you mean 'brick'\?\)"),
        ({"other": "robin"}, "robin is just that already"),
        ({"changed": {"depth": "deepest"}}, "depth cannot be 'deepest'; allowed are auto, direct, facets, council"),
        ({"changed": {"robin.colour": "green"}}, "'robin.colour' is not a slot that a comparison changes"),
        ({"changed": {"missions.depth": "deepest"}}, "the setting missions.depth cannot be 'deepest'"),
        ({"changed": {"missions.queue": "5"}}, "'missions.queue' is not a slot that a comparison changes"),
        ({"other": "brick", "judge": "rules"}, "a judgement by rules needs rules"),
        ({"other": "brick", "judge": "rules", "rules": ["beauty"]}, "'beauty' is not a valid rule; there are: schema, exact"),
        ({"other": "brick", "rules": ["length"]}, "only the judge `rules` takes rules"),
        ({"other": "brick", "briefs": []}, "robin has thought no mission through that could be compared"),
        ({"other": "brick", "match": "moon"}, "robin has thought no mission through with 'moon' in its brief"),
    ],
)
async def test_what_makes_no_sense_is_refused_and_said(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        desk = Desk(kernel)
        with pytest.raises(BatosError, match=said):
            await desk.ask("start", **{"id": "c1", "persona": "robin", "briefs": FOUR if "match" not in fields else [], **fields})
        assert (await desk.ask("list"))["comparisons"] == []


async def test_ids_name_one_comparison_and_what_ended_can_be_removed(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        desk = Desk(kernel)
        told = await desk.start(other="brick", briefs=FOUR, **SPRING)
        answered = inference.answered
        assert await desk.start(other="brick", briefs=FOUR, **SPRING) == told
        assert inference.answered == answered
        with pytest.raises(InvalidInput, match="names another comparison already"):
            await desk.ask("start", id="c1", persona="robin", other="babs", briefs=FOUR)
        assert [one["id"] for one in (await desk.ask("list"))["comparisons"]] == ["c1"]
        assert (await desk.ask("remove", id="c1"))["comparisons"] == []
        with pytest.raises(UnknownComparison, match="no comparison 'c1'"):
            await desk.ask("show", id="c1")
        with pytest.raises(UnknownPersona):
            await desk.ask("start", id="c1", persona="x", other="brick", briefs=FOUR)


async def test_what_tools_answered_is_shown_and_a_thought_that_would_call_one_anew_is_left_out(tmp_path: Path) -> None:
    place, inference = Place(), FakeInference()
    greeting = "Greet my friend and mention the current time in the city Tokyo"
    inference.say = lambda request: f"It is 17:45 JST in Tokyo [1]{', says BRICK' if 'You are BRICK' in request.system else ''}."
    async with mind(tmp_path, inference) as kernel:
        services = ConnectorServices(secret=str, folder=tmp_path)
        toolbox = Toolbox(kernel.image, services, ActingState("image", ""), lambda spec, services: place)
        await toolbox.add(ConnectionSpec("desk", "http", "https://desk.example"))
        give(kernel, toolbox=toolbox)
        (requests,) = (one for one in kernel.transport.dispatcher.services if isinstance(one, ComparisonRequests))
        staging: Any = requests.runner.staging
        requests.runner.staging = functools.partial(staging.func, kernel.attempt_services)
        end = await (await submit(kernel, "m1", greeting, persona="robin", depth="direct", flavour="full")).end()
        assert (end["state"], len(place.calls)) == ("COMPLETE", 1)
        await written(kernel)
        told = await Desk(kernel).start(other="brick", missions=1, briefs=[{"brief": greeting, "depth": "direct"}], **SPRING)
        assert len(place.calls) == 1, "nothing left the mirrors"
        recorded, given = told["compared"]
        assert [(one["tool"], one["state"]) for one in recorded["changed"]["effects"]] == [("desk.current_time", "DONE")]
        assert "17:45" in recorded["changed"]["text"]
        assert given["left_out"] == "it would have called a tool that the mission never called (as it is)"
        assert (told["state"], told["left_out"]) == ("done", 1)


async def test_a_report_of_long_answers_is_no_longer_than_a_reply_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inference = FakeInference()
    monkeypatch.setattr(report, "SHOWN_CHARS", 4000)
    inference.say = lambda request: " ".join(f"word{n} of {request.system[:20]}" for n in range(200))
    async with improving(tmp_path, inference) as kernel:
        told = await Desk(kernel).start(other="brick", briefs=FOUR[:2], judge="rules", rules=["length"])
        sides = [one[side] for one in told["compared"] for side in ("base", "changed")]
        assert {len(side["text"]) for side in sides} == {1000}
        assert all(side["text"].endswith("…") and side["chars"] > 2000 for side in sides)


# --- figures and rules


@pytest.mark.parametrize(
    ("wins", "decided", "interval"),
    [(0, 1, (0.0, 0.975)), (6, 6, (0.5407, 1.0)), (5, 5, (0.4782, 1.0)), (9, 10, (0.5550, 0.9975)), (50, 100, (0.3983, 0.6017))],
)
def test_the_interval_of_a_share_is_the_exact_binomial_one(wins: int, decided: int, interval: tuple[float, float]) -> None:
    assert figures.interval_of_share(wins, decided) == pytest.approx(interval, abs=5e-5)  # Clopper and Pearson's tables


def test_the_interval_of_a_mean_holds_it_and_says_nothing_of_one_value() -> None:
    assert figures.interval_of_mean([3.0], 1) is None
    assert figures.interval_of_mean([2.0, 2.0, 2.0], 1) == (2.0, 2.0)
    values = [float(n % 7) for n in range(40)]
    low, high = figures.interval_of_mean(values, 1) or (0, 0)
    assert low < sum(values) / 40 < high
    assert high - low == pytest.approx(2 * 1.96 * 2.0 / 40**0.5, rel=0.15)  # a deviation of 2.0


def side(text: str = "a", *, seconds: float = 1.0, tokens: int = 10, failed: str = "", fits: bool | None = None) -> dict[str, Any]:
    return {"text": text, "chars": len(text), "seconds": seconds, "tokens": tokens, "inferences": 1, "failed": failed, "fits": fits}


@pytest.mark.parametrize(
    ("rules", "base", "changed", "winner"),
    [
        (["length"], side("long enough"), side("short"), "changed"),
        (["length"], side("x" * 100), side("x" * 99), "tie"),
        (["latency", "length"], side(seconds=1.0), side("bb", seconds=2.0), "base"),
        (["tokens"], side(tokens=10), side(tokens=5), "changed"),
        (["exact"], side("42."), side(" The Answer "), "changed"),
        (["exact:42."], side("42."), side("The answer"), "base"),
        (["contains"], side("of tea and milk"), side("of tea"), "base"),
        (["schema", "length"], side("{}", fits=False), side("{...}", fits=True), "changed"),
        (["schema"], side("a"), side("b"), "tie"),
    ],
)
def test_the_first_rule_that_tells_the_sides_apart_decides(rules: list[str], base: Any, changed: Any, winner: str) -> None:
    pair = {"brief": "x", "base": base, "changed": changed, "exact": "the answer", "contains": ["tea", "milk"]}
    judging.check_rules(rules)
    assert judging.by_rules(rules, pair)["winner"] == winner


def test_chance_shows_both_sides_on_either_hand_and_stays_the_same() -> None:
    lefts = [judging.left_side(7, number) for number in range(200)]
    assert lefts == [judging.left_side(7, number) for number in range(200)]
    assert 70 < lefts.count("base") < 130
    for number in (1, 2, 3, 4):
        left = judging.left_side(7, number)
        assert judging.winner_of("left", 7, number) == left != judging.winner_of("right", 7, number)
        assert judging.winner_of("tie", 7, number) == "tie"
