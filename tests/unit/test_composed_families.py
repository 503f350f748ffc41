"""Families that are put together of parts: what their words say is what their code does, and none measures."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from batos.synthesis.families import FAR, HOLE, Family, families
from batos.training.composed_tasks import composed, reworded
from batos.training.dataset import tasks_of
from batos.training.tasks import Task, make

MANY = 1200


@pytest.fixture(scope="module")
def drawn() -> list[Family]:
    return composed(MANY, 1)


@pytest.fixture(scope="module")
def tasks(drawn: list[Family]) -> list[Task]:
    return [task for family in drawn for task in tasks_of(family, 1, 1)]


def test_they_are_many_and_different_and_the_same_from_a_seed(drawn: list[Family]) -> None:
    assert len({family.name for family in drawn}) == MANY
    assert [(one.name, one.body, one.intents) for one in composed(50, 1)] == [(one.name, one.body, one.intents) for one in drawn[:50]]
    assert {one.name for one in composed(50, 2)} != {one.name for one in drawn[:50]}


def test_none_computes_what_a_family_that_measures_does(drawn: list[Family]) -> None:
    measuring = {family.shape for family in families() if family.part != "train"}
    assert any(family.group == FAR for family in families())
    assert not measuring & {family.shape for family in drawn}


def test_they_are_said_in_several_ways_that_keep_what_is_filled_in(drawn: list[Family]) -> None:
    assert sum(len(family.intents) > 1 for family in drawn) > 0.8 * MANY
    for family in drawn:
        assert len({frozenset(HOLE.findall(said)) for said in family.intents}) == 1, family.intents
        assert not any(re.search(r"  | ,|\w(?=SLOT)|FIELD[a-z]|\\\d", said) for said in family.intents), family.intents


@pytest.mark.parametrize(
    ("words", "may_be"),
    [
        ("how many numbers that are even there are", "the number of numbers that are even"),
        ("append the text to SLOT", "push the text onto SLOT"),
        ("the numbers of the list that are odd", "the odd numbers of the list"),
        ("the remainder of the number divided by K", "the number modulo K"),
    ],
)
def test_other_words_say_the_same(words: str, may_be: str) -> None:
    assert may_be in {reworded(words, random.Random(seed)) for seed in range(200)}


def test_nearly_all_make_a_task_with_nothing_left_open(tasks: list[Task]) -> None:
    assert len(tasks) > 0.98 * MANY
    for task in tasks:
        text = f"{task.selector} {task.intent} {task.source}"
        assert not re.search(r"<\w+>|SLOT|FIELD|HELPER|\bK\b|\bL\b", text), text
        assert len(task.trials) >= 1


def test_what_changes_a_slot_says_so_and_what_does_not_changes_none(tasks: list[Task]) -> None:
    changing = [task for task in tasks if any(one.after for one in (task.shown, *task.trials))]
    assert len(changing) > MANY / 10
    for task in tasks:
        assert ("self._p_changed = True" in task.source) is bool(
            re.search(r"self\.\w+(\[\w+\])? = |self\.\w+\.(append|extend|insert|pop|update)\(", task.source)
        ), task.source


def run(family: Family, *args: Any, k: str = "") -> Any:
    """What the method of a family answers whose hole `K` is that."""
    rng = random.Random(1)
    for _ in range(200):
        task = make(family, rng)
        if task is not None and k in task.selector:
            scope: dict[str, Any] = {}
            exec(task.source, scope)
            return scope[task.selector](None, *args)
    raise AssertionError(family.name)


@pytest.fixture(scope="module")
def by_name() -> dict[str, Family]:
    return {family.name: family for family in composed(2_500, 3)}


TIMES = "if K divides it, half of the number, else the number times the second number"


@pytest.mark.parametrize(
    ("name", "words", "args", "answer"),
    [
        ("sorted_numbers_plus_K", "the numbers, each plus K, sorted", ([3, 1, 2],), [3, 4, 5]),
        (
            "by_initial_text_words",
            "a record of the words of the text by their first letters",
            ("ox a owl",),
            {"o": ["ox", "owl"], "a": ["a"]},
        ),
        ("product_words_count_L", "the product of how often the letter L occurs in each of the words", (["", "x"],), 0),
        ("running_nonzero_numbers", "the running totals of the numbers of the list that are not zero", ([1, 0, 3],), [1, 4]),
        ("half_if_by_K_else_times", TIMES, (4, 3), 2),
        ("half_if_by_K_else_times", TIMES, (3, 3), 9),
    ],
)
def test_words_and_code_say_the_same(by_name: dict[str, Family], name: str, words: str, args: tuple[Any, ...], answer: Any) -> None:
    assert by_name[name].intents[0] == words
    assert run(by_name[name], *args, k="2" if "K" in name.split("_") else "") == answer
