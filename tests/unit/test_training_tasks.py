"""Tasks for the expert that writes methods: their families, their split, their answers."""

from __future__ import annotations

import builtins
import random
import symtable
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from batos.config import Settings
from batos.errors import SandboxFailed
from batos.objects import Example
from batos.sandbox import Sandbox
from batos.synthesis.families import BLIND, EVERYDAY, HOLE, NEW_SLOT_NAMES, SLOT_NAMES, Family, draw, families, fill
from batos.synthesis.handbook import handbook
from batos.training import samplers
from batos.training.dataset import Prover, answered, as_read, generate, pairs, proved, tasks_of
from batos.training.tasks import canonical, case, make


def test_there_are_several_hundred_families_with_names_of_their_own() -> None:
    found = families()
    assert len(found) >= 900
    for family in found:
        assert family.selectors, family
        assert all(intent for intent in family.intents), family
        assert set(family.kinds) <= set(samplers.KINDS), family
    names = Counter((family.group, family.name) for family in found)
    assert [name for name, count in names.items() if count > 1] == []


def test_no_family_and_no_shape_of_one_is_in_two_parts() -> None:
    parts: dict[str, set[str]] = defaultdict(set)
    for family in families():
        parts[family.shape].add(family.part)
    assert [shape for shape, of in parts.items() if len(of) > 1] == []
    sizes = Counter(family.part for family in families())
    assert sizes["test"] >= 60
    assert sizes["far"] >= 25
    assert sizes["validation"] >= 20
    assert sizes["train"] >= 600


def test_what_people_ask_for_first_is_trained() -> None:
    everyday = [family for family in families() if family.name in EVERYDAY]
    assert {family.name for family in everyday} == EVERYDAY
    assert {family.part for family in everyday} == {"train"}


def test_a_part_stays_where_it_is_when_families_are_added() -> None:
    family = Family("new", "text", ("new",), ("anything",), ("text",), "    return text + text[::-1]\n")
    renamed = Family("newer", "lists", ("newer",), ("something",), ("word",), "    return word + word[::-1]\n")
    assert family.shape == renamed.shape
    assert family.part == renamed.part


def test_tasks_of_other_authors_have_their_first_wording() -> None:
    for family in [family for family in families() if family.group in BLIND][::60]:
        parts = [part.strip(" .!") for part in HOLE.sub("\0", family.intents[0]).lower().split("\0")]
        for task in tasks_of(family, 3, 1):
            assert not task.intent or all(part in task.intent.lower() for part in parts), task.intent


def test_the_same_seed_gives_the_same_tasks() -> None:
    few = [family for family in families() if family.group in ("state", "sends")][:20]
    one, other = ([task.to_json() for family in few for task in tasks_of(family, 2, 3)] for _ in range(2))
    assert one == other
    assert one != [task.to_json() for family in few for task in tasks_of(family, 2, 4)]


def test_tasks_of_a_family_differ() -> None:
    family = next(family for family in families() if family.name == "count_words")
    prompts = [task.prompt(example=False) for task in tasks_of(family, 8, 1)]
    assert len(set(prompts)) == len(prompts) == 8


def test_tasks_that_measure_have_slots_of_other_names() -> None:
    trained = {name for names in SLOT_NAMES.values() for name in names}
    fresh = {name for names in NEW_SLOT_NAMES.values() for name in names}
    for task in generate("test", 1, each=1)[:60]:
        assert not set(task.slots) & (trained - fresh), task.family


def test_a_method_uses_no_name_that_nothing_gives_it() -> None:
    assert not [(family.name, names) for family in families() if (names := _unbound(family))]


def _unbound(family: Family) -> set[str]:
    holes, slots, _ = draw(family, random.Random(family.name))
    _, args = case(family, slots, holes, random.Random(1))
    source = f"def m({', '.join(('self', *canonical(args, family.kinds)))}):\n{fill(family.body, holes)}"
    tables = [symtable.symtable(source, "", "exec")]
    for table in tables:
        tables += table.get_children()
    found = {one.get_name() for table in tables[1:] for one in table.get_symbols() if one.is_global() and one.is_referenced()}
    return {name for name in found if not hasattr(builtins, name)}


def test_an_example_that_is_shown_is_no_trial() -> None:
    rng = random.Random(5)
    for family in families()[::40]:
        task = make(family, rng)
        if task is not None:
            assert task.shown not in task.trials
            assert task.trials


def test_a_prompt_is_what_the_model_reads() -> None:
    tasks = generate("validation", 1, each=1)[:5]
    for (prompt, answer), task in zip(pairs(tasks, 1), tasks, strict=True):
        assert prompt.startswith("<|im_start|>system\nWrite one Python method.<|im_end|>\n<|im_start|>user\n# ")
        assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")
        assert answer == answered(task.source) == task.source.strip() + "<|im_end|>"
        assert prompt in [as_read(task.prompt(example=shown, book=handbook())) for shown in (True, False)]


def test_holes_are_filled_where_they_stand_alone() -> None:
    holes = {"SLOT": "total", "FIELD": "age", "TFIELD": "city", "K": "4", "L": "e"}
    assert fill("self.SLOT over_K FIELD_by_TFIELD x > K 'L' KEEP Level", holes) == "self.total over_4 age_by_city x > 4 'e' KEEP Level"


async def test_answers_pass_guardian_sandbox_and_trials_and_wrong_ones_do_not() -> None:
    settings = Settings()
    tasks = [task for part in ("test", "far") for task in generate(part, 2, each=1)][::12]
    good, bad = await proved(tasks, settings)
    assert bad == []
    assert len(good) == len(tasks)
    task = next(task for family in families() if family.name == "add_to_SLOT" for task in tasks_of(family, 1, 1))
    async with Prover(settings) as prover:
        right = await prover.judge(task, task.source)
        assert right.right
        wrong = await prover.judge(task, task.source.replace(" + ", " - "))
        assert not wrong.refused
        assert not wrong.right
        forgetful = await prover.judge(task, task.source.replace("    self._p_changed = True\n", ""))
        assert "covenant" in forgetful.refused
        broken = await prover.judge(task, task.source, [Example((), (), 1)])
        assert broken.passed == 0


@pytest.mark.parametrize("name", sorted(samplers.KINDS))
def test_every_kind_can_be_drawn_and_is_plain(name: str) -> None:
    rng = random.Random(name)
    before = {
        "member_word": [["a", "b"]], "member_or_word": [["a", "b"]], "member_key_slot": [{"a": 1}], "key_slot": [{"a": 1}],
        "word_in_slot": ["a b"], "name_in": [[{"name": "a"}]], "member_name": [[{"name": "a"}]], "dictionary": ["a b c"],
        "some_keys_slot": [{"a": 1}], "keys_of_slot": [{"a": 1}], "first_of": [["ab"]], "last_of": [["ab"]], "letter_of": [["ab"]],
        "member_tag": [[{"tags": ["a"]}]],
    }.get(name, ["one two three", [1, 2, 3], {"a": 1, "b": 2, "c": 3}])  # fmt: skip
    if name in ("date_near", "date_later", "month_in"):
        before = ["2026-03-14"]
    for _ in range(5):
        assert isinstance(samplers.sample(name, rng, before), str | int | float | list | dict | bool)


async def test_a_worker_that_died_is_no_judgement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, died = generate("validation", 1, each=1)[0], []
    async with Prover(Settings(data=tmp_path)) as prover:
        compile_ = Sandbox.compile

        async def dies(sandbox: Sandbox, source: str) -> None:
            died.append(source)
            if len(died) != 3:
                raise SandboxFailed("the worker died")
            await compile_(sandbox, source)

        monkeypatch.setattr(Sandbox, "compile", dies)
        assert (await prover.judge(task, task.source)).right
        with pytest.raises(SandboxFailed):
            await prover.judge(task, task.source)
        assert len(died) == 7, "not for ever"
