"""Remedies: each rule on a history made for it; what no rule knows anything about has none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import rule_proposals
from batos.autotelic.change_types import Ground
from batos.autotelic.changes import Proposal
from batos.image import history, ledger, taught_examples
from batos.methods import runtime as parameters_of
from batos.mind import psm
from batos.objects import Example, Intent, Method
from tests.support.autonomy import BRIEFS, improving, thought
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, submit, written

BAD = "def add_(self, number, number2):\n    return number + self.nowhere\n"
SHIPPED = psm.STATES["SYNTHESIZING"]["meta_prompt"]


def of(kernel: Kernel, trigger: str, key: str = "") -> list[Proposal]:
    ground = Ground(kernel.settings, kernel.methods.audit)
    return kernel.image.read(lambda root: list(rule_proposals.remedies(root, trigger, key, ground)))  # type: ignore[no-any-return]


async def rewrite(kernel: Kernel, state: str, prompt: str) -> None:
    def write(root: Any) -> None:
        root["lobby"].psm._slots[state].meta_prompt = prompt

    await kernel.image.system(write)


async def test_a_failing_method_goes_back_to_the_version_before_it_or_is_retired(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 2, 3)
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing))

        def worsen(root: Any) -> None:
            slots = root["lobby"].thing._slots
            slots["add_"] = Method("add_", BAD, parameters=("number", "number2"), previous=slots["add_"])

        assert [(p.kind, p.target, p.content) for p in of(kernel, "method_fails", f"{oid} add_")] == [("retire", f"{oid}.add_", "")]
        await kernel.image.system(worsen)
        wanted = [("method", f"{oid}.add_", ADD), ("retire", f"{oid}.add_", "")]
        assert [(p.kind, p.target, p.content) for p in of(kernel, "method_fails", f"{oid} add_")] == wanted
        assert [(p.kind, p.target, p.content) for p in of(kernel, "failure_repeats", "method_failed raised thing add_")] == wanted
        assert [p.kind for p in of(kernel, "method_unused", f"{oid} add_")] == ["retire"]


async def test_a_method_is_not_retired_for_calls_that_it_does_not_take_or_for_what_it_needs(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def total_(self, values):\n    return sum(values) / len(values)\n")
    key = "method_failed thing total_"
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        example = {"args": [[1, 3]], "result": 2}
        await kernel.image.system(lambda root: taught_examples.teach(root, root["lobby"].thing._p_oid, "total_", [example], "", 8))
        await sent(kernel, "m1", "thing", "total_", [1, 3])
        for n in range(3):
            assert (await sent(kernel, f"w{n}", "thing", "total_", "[1, 3]"))["error"]["code"] == "method_failed"
        assert of(kernel, "failure_repeats", key) == []
        await sent(kernel, "m2", "thing", "total_", [])
        assert [p.kind for p in of(kernel, "failure_repeats", key)] == ["retire"], "that it does take"
        assert of(kernel, "failure_repeats", "inference_failed refused thing total_") == [], "the service was away"


@pytest.mark.parametrize(
    ("parameters", "taught", "given", "takes"),
    [
        ("number, number2", [], (1, 2.5), True),
        ("number, number2", [], (1, "2"), False),
        ("number, number2", [], (1,), False),
        ("number, number2", [], (1, None), False),
        ("number", [], (True,), False),
        ("number", [("12",)], ("13",), True),
        ("values", [], ("13",), True),
        ("values", [([1],)], ("13",), False),
        ("values", [([1],), (None,)], (None,), True),
        ("values", [(None,)], ("13",), True),
        ("values", [([1], 2, 3)], ([1],), True),
        ("values=None", [([1],)], (), True),
        ("*items", [], (1, 2), True),
        ("**record", [], (), True),
    ],
)
def test_which_calls_a_method_takes(parameters: str, taught: list[Any], given: tuple[Any, ...], takes: bool) -> None:
    source = f"def do_(self, {parameters}):\n    return 1\n"
    assert parameters_of.takes(source, [Example(args) for args in taught], given, {}) is takes


def test_what_is_given_by_name_counts_as_well() -> None:
    source = "def do_(self, number, *, text=''):\n    return 1\n"
    assert parameters_of.takes(source, [], (1,), {"text": "a"})
    assert not parameters_of.takes(source, [], (1,), {"text": 2})
    assert not parameters_of.takes(source, [], (1,), {"more": 2})


async def test_where_no_method_fails_a_changed_prompt_becomes_what_it_was(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        assert of(kernel, "failure_repeats", "quality_refused") == []
        await rewrite(kernel, "SYNTHESIZING", "$brief $voices and more")
        (found,) = of(kernel, "failure_repeats", "quality_refused")
        assert (found.kind, found.target, found.content) == ("meta_prompt", "psm.SYNTHESIZING", SHIPPED)


async def test_what_takes_longer_or_costs_more_is_to_be_said_in_fewer_words(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        (slow,) = of(kernel, "state_slow", "DELEGATING")
        assert (slow.target, slow.content.endswith(rule_proposals.BRIEFLY)) == ("psm.DELEGATING", True)
        assert of(kernel, "state_slow", "IDLE") == of(kernel, "state_slow", "DECOMPOSING") == []
        await rewrite(kernel, "SYNTHESIZING", f"{SHIPPED} {rule_proposals.BRIEFLY}")
        assert [(p.target, p.content == SHIPPED) for p in of(kernel, "missions_costly")] == [
            ("psm.SYNTHESIZING", True), ("psm.DELEGATING", False),
        ]  # fmt: skip


async def test_a_facet_of_which_nothing_gets_into_answers_is_retired(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        await thought(kernel, *BRIEFS)

        def weave(root: Any) -> None:
            for mission in ledger.newest_first(root):
                mission.thought.woven = ("sage_facet_",) * 5 + (None,)

        await kernel.image.system(weave)
        first = of(kernel, "missions_costly")[0]
        assert (first.kind, first.target) == ("retire", "robin.still_point_facet_")
        assert "of 24 sentences of ROBIN's last answers 0 came from it" in first.why


async def test_a_rut_gets_another_persona_s_way_of_thinking_then_other_briefs_for_the_others(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        assert of(kernel, "entropy_falls") == [], "nothing was thought yet"
        await thought(kernel, *BRIEFS)
        found = of(kernel, "entropy_falls")
        lent = [p for p in found if p.kind == "facet"]
        assert lent
        for one in lent:
            persona, _, selector = one.target.partition(".")
            assert persona == "robin"
            assert any(selector in lender for lender in kernel.image.read(facets_of))
        assert "ROBIN thought 4 of the last 4 missions" in lent[0].why
        assert of(kernel, "entropy_still") == found


def facets_of(root: Any) -> list[set[str]]:
    lobby = root["lobby"]
    return [
        {name for name, value in lobby._slots[other]._slots.items() if isinstance(value, Intent)} for other in ("brick", "babs", "alfred")
    ]


async def test_where_all_personas_think_there_is_no_rut(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        for n, persona in enumerate(("robin", "brick", "babs", "alfred")):
            await thought(kernel, BRIEFS[n], prefix=persona, persona=persona)
        assert of(kernel, "entropy_falls") == []


async def test_a_persona_that_nobody_chooses_gets_the_briefs_that_came_nearest_to_it(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference) as kernel:
        near = "I feel stuck: how do I plan my next step?"
        await thought(kernel, "My cat died and I am so sad", near, "I am afraid and I miss her")
        (found,) = of(kernel, "persona_unchosen", "brick")
        assert (found.kind, found.target, found.content) == ("exemplar", "brick", [near])
        assert "nearest" in found.why
        assert of(kernel, "persona_unchosen", "robin") == []


async def test_whom_a_user_chose_or_what_was_undone_or_failed_is_no_example(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        near = "I feel stuck: how do I plan my next step?"
        await thought(kernel, near, persona="robin")
        assert of(kernel, "persona_unchosen", "brick") == []
        await (await submit(kernel, "own", near, origin="system")).end()
        await written(kernel)
        assert of(kernel, "persona_unchosen", "brick") == []


async def test_an_image_that_grows_is_curated_and_what_no_rule_knows_has_no_remedy(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        assert [p.kind for p in of(kernel, "image_grows")] == ["curate"]
        assert of(kernel, "guardian_refuses") == of(kernel, "no such trigger") == []
        assert of(kernel, "failure_repeats", "method_refused guardian thing count_") == []
        assert of(kernel, "failure_repeats", "inference_failed unreachable") == []


async def test_models_that_their_operator_allows_come_last_and_for_whom_it_concerns(tmp_path: Path) -> None:
    inference = FakeInference()
    async with improving(tmp_path, inference, autotelic_models=("a:1b", "b:2b"), mission_attempts=1) as kernel:
        assert of(kernel, "missions_costly")[-1].kind == "meta_prompt", "nobody thought anything yet"
        await thought(kernel, *BRIEFS)
        found = of(kernel, "missions_costly")
        assert [(p.kind, p.target, p.content) for p in found[-2:]] == [("model", "robin", "a:1b"), ("model", "robin", "b:2b")]
        assert "ROBIN thought 4 of the missions" in found[-1].why
        assert {p.kind for p in found[:-2]} == {"meta_prompt"}
        inference.say = lambda request: "-"
        end = await (await submit(kernel, "bad", "How do I build a shelf of oak?", persona="brick")).end()
        assert end["state"] == "FAILED"
        code = end["error"]["code"]
        assert [p.target for p in of(kernel, "failure_repeats", code)] == ["brick", "brick"]
        assert of(kernel, "failure_repeats", "no_such_code") == of(kernel, "guardian_refuses") == []


IMPORTS = "def count_(self, number):\n    import os\n    return number\n"


async def test_what_the_guardian_refuses_again_is_told_before_the_method_is_written(tmp_path: Path) -> None:
    inference = FakeInference()
    asked = writing(inference, IMPORTS)
    async with improving(tmp_path, inference, mission_attempts=1, synthesis_tries=1) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "count_", 1))["state"] == "FAILED"
        assert of(kernel, "guardian_refuses") == [], "once is no pattern"
        assert (await sent(kernel, "m2", "thing", "count_", 2))["state"] == "FAILED"
        oid = kernel.image.read(lambda root: history.oid_of(root["lobby"].thing))
        (found,) = of(kernel, "guardian_refuses")
        text = "what its name says: count. Mind: the module os may not be imported: Do without it."
        assert (found.kind, found.target, found.content) == ("intent", f"{oid}.count_", text)
        assert "2 missions FAILED because the guardian refused count_ by the rule import" in found.why
        assert of(kernel, "failure_repeats", "method_refused guardian thing count_") == [found]

        def told(root: Any) -> None:
            root["lobby"].thing.count_ = Intent(text)

        await kernel.image.system(told)
        assert of(kernel, "guardian_refuses") == [], "it is told already"
        writing(inference, IMPORTS.replace("    import os\n", ""))
        asked.clear()
        assert (await sent(kernel, "m3", "thing", "count_", 2))["state"] == "COMPLETE"
        assert of(kernel, "guardian_refuses") == [], "by now it is understood"


async def test_what_a_user_said_of_a_message_and_what_no_rule_refused_stay_as_they_are(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, "def count_(self, number):\n    return self.nowhere\n")
    async with improving(tmp_path, inference, mission_attempts=1, synthesis_tries=1) as kernel:
        await give(kernel)
        for n in range(2):
            assert (await sent(kernel, f"m{n}", "thing", "count_", 1))["state"] == "FAILED"
        assert of(kernel, "guardian_refuses") == [], "it failed in its trial"
        writing(inference, IMPORTS)
        for n in range(2):
            assert (await sent(kernel, f"n{n}", "thing", "count_", 1))["state"] == "FAILED"
        assert len(of(kernel, "guardian_refuses")) == 1
        oid = kernel.image.read(lambda root: root["lobby"].thing._p_oid)
        await kernel.image.system(taught_examples.teach, oid, "count_", [], "count the calls", 9)
        assert of(kernel, "guardian_refuses") == []
