"""Kinds of changes: each is held against what is there, done by slots, named by its history, and can be undone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import change_types, changes
from batos.autotelic.change_types import Ground
from batos.autotelic.changes import Proposal, Proposed
from batos.errors import BatosError, InvalidInput
from batos.guardian import PersistenceGuardian
from batos.image import history
from batos.image.mission_record import MissionRecord
from batos.mind import incarnation, psm
from batos.objects import Intent, Method
from tests.support.autonomy import improving
from tests.support.methods import ADD, give, sent, writing
from tests.support.missions import FakeInference, settings

BETTER = "def add_(self, number, number2):\n    total = number + number2\n    return total\n"
SHIPPED = psm.STATES["SYNTHESIZING"]["meta_prompt"]


def ground(kernel: Kernel, **more: Any) -> Ground:
    return Ground(settings(kernel.settings.data), kernel.methods.audit, lambda: ["robin:embedded", "brick:embedded"], **more)


async def made(kernel: Kernel, proposal: Proposal) -> int:
    """Do it, as the improver does; the number of the change."""
    number = await kernel.image.system(lambda root: changes.propose(root, proposal, {"words": "so"}, ""))
    async with kernel.image.unit() as unit:
        change_types.apply(unit.root, proposal, ground(kernel), changes.name_of(number))
        changes.promote(unit.root, number, {})
        unit.note(changes.name_of(number), f"{changes.NOTE}: {proposal.why}")
    return int(number)


def fault(kernel: Kernel, kind: str, target: str, content: Any, **more: Any) -> str:
    def read(root: Any) -> str:
        try:
            change_types.check(root, Proposal(kind, target, content, "why"), ground(kernel, **more))
        except BatosError as e:
            return e.message
        return ""

    return kernel.image.read(read)  # type: ignore[no-any-return]


def slot(kernel: Kernel, path: str, name: str) -> Any:
    def read(root: Any) -> Any:
        value = history.resolve(root, path)._slots.get(name)
        return value.text if isinstance(value, Intent) else value.source if isinstance(value, Method) else value

    return kernel.image.read(read)


CHANGES: list[tuple[Proposal, str, str, Callable[[Any], Any]]] = [
    (Proposal("facet", "robin.gardener_facet_", "Look at it as a gardener does.", "w"), "robin", "gardener_facet_", lambda old: None),
    (Proposal("facet", "robin.sage_facet_", "Look at it as a gardener does.", "w"), "robin", "sage_facet_", lambda old: old),
    (Proposal("meta_prompt", "psm.SYNTHESIZING", "$brief! $voices", "w"), "psm.SYNTHESIZING", "meta_prompt", lambda old: SHIPPED),
    (Proposal("retire", "robin.sage_facet_", "", "w"), "robin", "sage_facet_", lambda old: old),
    (Proposal("model", "robin", "brick:embedded", "w"), "robin", "model", lambda old: old),
    (Proposal("intent", "robin.tally_", "count what robin was told", "w"), "robin", "tally_", lambda old: None),
]


@pytest.mark.parametrize(("proposal", "path", "name", "before"), CHANGES, ids=lambda value: getattr(value, "kind", None))
async def test_a_change_of_a_slot_is_made_named_and_undone(
    tmp_path: Path, proposal: Proposal, path: str, name: str, before: Callable[[Any], Any]
) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        old = slot(kernel, path, name)
        standing = kernel.image.read(change_types.standing, proposal)
        number = await made(kernel, proposal)
        assert slot(kernel, path, name) == (proposal.content or None)
        assert kernel.image.read(change_types.standing, proposal) != standing
        oid = kernel.image.read(lambda root: history.resolve(root, path)._p_oid)
        assert history.revisions(kernel.image.db, oid, 1)[0]["mission"] == f"change:{number}"
        await kernel.undoing.undo_change(number, "the test says so")
        assert slot(kernel, path, name) == before(old) == old
        assert kernel.image.read(changes.of, number)["state"] == changes.UNDONE


async def test_exemplars_are_learned_and_unlearned(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        briefs = ["Who was it that said so", "What is said of the moon"]
        number = await made(kernel, Proposal("exemplar", "babs", briefs, "w"))

        def learned(root: Any) -> list[str]:
            return sorted(incarnation.exemplars_of(root["lobby"].babs).learned.values())

        assert kernel.image.read(learned) == sorted(briefs)
        assert (await kernel.router.decide(MissionRecord(id="m", brief=briefs[0], accepted=1.0, number=1))).persona == "babs"
        await kernel.undoing.undo_change(number, "the test says so")
        assert kernel.image.read(learned) == []


async def test_a_method_is_rewritten_reverted_and_retired(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        assert (await sent(kernel, "m1", "thing", "add_", 2, 3))["result"]["value"] == 5
        number = await made(kernel, Proposal("method", "thing.add_", BETTER, "w"))
        assert (await sent(kernel, "m2", "thing", "add_", 2, 4))["result"]["value"] == 6

        def provenance(root: Any) -> tuple[int, dict[str, Any], tuple[str, ...]]:
            method = root["lobby"].thing._slots["add_"]
            return method.version, dict(method.provenance), method.parameters

        version, told, parameters = kernel.image.read(provenance)
        assert (version, told["mission"], parameters) == (2, f"change:{number}", ("number", "number2"))
        await kernel.image.system(changes.keep, number, "", {})
        number = await made(kernel, Proposal("method", "thing.add_", ADD, "w"))
        assert kernel.image.read(provenance)[1]["reverted_to"] == 1
        await kernel.undoing.undo_change(number, "the test says so")
        assert slot(kernel, "thing", "add_") == BETTER
        number = await made(kernel, Proposal("retire", "thing.add_", "", "w"))
        assert slot(kernel, "thing", "add_") is None
        await kernel.undoing.undo_change(number, "the test says so")
        assert (await sent(kernel, "m3", "thing", "add_", 2, 5))["result"]["value"] == 7


async def test_a_retired_method_of_an_intent_is_that_intent_again(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel, add_=Intent("add two numbers"))
        await sent(kernel, "m1", "thing", "add_", 2, 3)
        await made(kernel, Proposal("retire", "thing.add_", "", "w"))
        assert slot(kernel, "thing", "add_") == "add two numbers"


FAULTS: list[tuple[str, str, Any, str]] = [
    ("poem", "robin", "x", "'poem' is not a kind of change"),
    ("facet", "nobody.a_facet_", "long enough text", "'nobody' is not a persona"),
    ("facet", "robin.meta_prompt", "long enough text", "not a valid name of a facet"),
    ("facet", "robin.a_facet_", "short", "at least 10 characters"),
    ("facet", "robin.a_facet_", ["a list of words"], "at least 10 characters"),
    ("facet", "robin.a_facet_", "x" * 5000, "at most 4000 are taken"),
    ("meta_prompt", "psm.IDLE", "long enough text", "not a state with a meta-prompt"),
    ("meta_prompt", "psm.SYNTHESIZING", SHIPPED, "is just that already"),
    ("meta_prompt", "psm.SYNTHESIZING", "Say it: $voices", "must name $brief, $voices"),
    ("meta_prompt", "psm.SYNTHESIZING", "$brief $voices $secret", "and no others"),
    ("meta_prompt", "psm.SYNTHESIZING", "$brief $voices for 5 $", "begins no name"),
    ("exemplar", "robin", "", "1 to 8 briefs"),
    ("exemplar", "robin", "\n".join(map(str, range(9))), "1 to 8 briefs"),
    ("exemplar", "robin", [1], "one in each line"),
    ("exemplar", "robin", "My best friend moved away and I miss her.", "has these exemplars already"),
    ("method", "robin.sage_facet_", "def sage_facet_(self): pass", "is not a method"),
    ("method", "robin", "def x(self): pass", "names no object and its slot"),
    ("method", "nowhere.x_", "def x(self): pass", "no object 'nowhere'"),
    ("retire", "robin.core_mission", "", "is not a method"),
    ("intent", "robin.think_", "think of something else", "is understood already"),
    ("intent", "robin.new_facet_", "think of something else", "is understood already"),
    ("intent", "robin.tally_", "count", "at least 10 characters"),
    ("intent", "tally_", "count what there is", "names no object"),
    ("retire", "psm.IDLE", "", "is not a method"),
    ("curate", "memory", "", "the curator"),
    ("model", "robin", "gpt-99", "is not there, and may not be pulled"),
    ("model", "robin", "robin", "already"),
]


async def test_what_makes_no_sense_is_refused_with_the_reason(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        for kind, target, content, words in FAULTS:
            assert words in fault(kernel, kind, target, content), (kind, target, content)
        assert fault(kernel, "curate", "memory", "", curates=True) == ""


async def test_a_source_that_the_guardian_refuses_is_refused(tmp_path: Path) -> None:
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 2, 3)
        assert fault(kernel, "method", "thing.add_", BETTER) == ""
        assert fault(kernel, "method", "thing.add_", "import os\ndef add_(self, a, b):\n    return os.getpid()\n")
        assert "just that already" in fault(kernel, "method", "thing.add_", ADD)


async def test_a_change_never_widens_what_a_method_reaches(tmp_path: Path) -> None:
    """Also where the setting `methods.policy` lets all methods use tools."""
    inference = FakeInference()
    writing(inference, ADD)
    async with improving(tmp_path, inference) as kernel:
        await give(kernel)
        await sent(kernel, "m1", "thing", "add_", 2, 3)
        wider = "def add_(self, number, number2):\n    self.tools.shop.cancel(number)\n    return number + number2\n"
        asked = ground(kernel)._replace(audit=lambda source, selector: PersistenceGuardian().audit(source, selector, "default+tools"))

        def check(root: Any, content: str) -> None:
            change_types.check(root, Proposal("method", "thing.add_", content, "why"), asked)

        with pytest.raises(InvalidInput, match=r"would reach tools that it does not reach now: shop\.cancel"):
            kernel.image.read(check, wider)
        kernel.image.read(check, BETTER)


async def test_more_facets_than_are_ever_asked_are_refused(tmp_path: Path) -> None:
    async with improving(tmp_path, FakeInference()) as kernel:
        await made(kernel, Proposal("facet", "robin.one_facet_", "Look at it as one alone.", "w"))
        assert "the most that are asked" in fault(kernel, "facet", "robin.two_facet_", "Look at it as two do.")
        assert fault(kernel, "facet", "robin.one_facet_", "Look at it otherwise.") == ""


def test_a_proposal_is_the_same_as_json_and_from_a_model() -> None:
    proposal = Proposal("exemplar", "robin", ["a", "b"], "why")
    assert Proposal.from_json(json.loads(json.dumps({**proposal.to_json(), "source": "model"}))) == proposal
    assert Proposed(kind=" facet ", target=" robin.x_facet_", content=" text ", why="w").proposal() == Proposal(
        "facet", "robin.x_facet_", "text", "w"
    )
    with pytest.raises(InvalidInput):
        change_types.exemplars_of(Proposal("exemplar", "robin", {"a": 1}, "w"))
