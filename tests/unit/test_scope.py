"""Scopes: what a task works for, as its code and the tasks that it creates find it."""

from __future__ import annotations

import asyncio

import pytest

from batos import scope


def test_outside_of_missions_nothing_is_known() -> None:
    assert scope.current() == scope.Scope()
    assert not scope.current().in_trial


def test_a_scope_differs_in_what_it_names_and_ends_with_its_block() -> None:
    with scope.enter(cycle="outer", run="a run"):
        with scope.enter(cycle="inner") as entered:
            assert scope.current() is entered
            assert (entered.cycle, entered.run) == ("inner", "a run")
        assert scope.current().cycle == "outer"
        with scope.enter(trial="counters"):
            assert scope.current().in_trial
        with pytest.raises(RuntimeError), scope.enter(trial="counters"):
            raise RuntimeError
        assert not scope.current().in_trial
    assert scope.current() == scope.Scope()


def test_a_name_that_is_no_field_is_refused() -> None:
    with pytest.raises(ValueError, match="misson"):
        scope.enter(misson="a typo")


async def test_tasks_have_the_scope_of_who_creates_them_and_change_no_other() -> None:
    async def within(name: str) -> tuple[str, str]:
        with scope.enter(cycle=name):
            await asyncio.sleep(0)
            return scope.current().attempt, scope.current().cycle

    with scope.enter(attempt="m1"):
        assert await asyncio.gather(within("one"), within("two")) == [("m1", "one"), ("m1", "two")]
        assert scope.current().cycle is None


def test_an_attempt_begins_with_nothing_but_the_ticket() -> None:
    with scope.enter(attempt="m1", cycle="a cycle", trial="counters", writing=("m",), drafts=("d",), run="a run", ticket="a ticket"):
        with scope.begin("m2"):
            assert scope.current() == scope.Scope(attempt="m2", ticket="a ticket")
        assert scope.current().attempt == "m1"
