"""Faults of several kernels: what starves, what is written without need, and what is done twice."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.errors import ToolsTied
from batos.image import effects, grants, identity, kernels, ledger
from batos.image.effects import EffectRecord
from batos.image.grants import ALLOW, GrantRecord
from batos.image.identity import EpochFile
from batos.image.mission_record import MissionRecord
from batos.image.ownership import LeaseLapsed, Overtaken
from batos.missions import sweep
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolCall, ToolDefinition
from batos.tools.toolbox import Toolbox
from tests.support.cluster import looks_anew, member, ollama
from tests.support.desk import PAY, Place, asked
from tests.support.failing_missions import Desk
from tests.support.kernels import Standstill, daemon, record, until
from tests.support.missions import FakeInference, give, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401


def orphans(root: Any, ids: list[str], owner: str) -> None:
    """Missions that a kernel left which is gone."""
    for id in ids:
        ledger.accept(root, id, f"robin, what of {id}?", {}, False)
        ledger.mission_of(root, id).kernel = owner


@pytest.mark.parametrize("owner", ["gone.7", ""])
async def test_missions_that_a_kernel_cannot_take_do_not_keep_others_from_their_turn(zeo: Zeo, tmp_path: Path, owner: str) -> None:  # noqa: F811
    unfit = [f"a{n:04}" for n in range(2 * sweep.LOOKED_AT + 1)]
    async with daemon(tmp_path, zeo.image(), FakeInference(), "k") as kernel:
        looked_at = set()

        def may_claim(record: MissionRecord) -> bool:
            looked_at.add(record.id)
            return record.id not in unfit

        kernel.scheduler.sweep.may_claim = may_claim
        await kernel.image.system(orphans, unfit, "gone.7")
        await until(lambda: len(looked_at) == len(unfit), "a look at all of them")
        await kernel.image.system(orphans, ["z"], owner)
        await until(lambda: record(kernel, "z").state == "COMPLETE", "the end of the last one")
        now_fit = unfit[-5:]
        del unfit[-5:]
        await until(lambda: all(record(kernel, id).state == "COMPLETE" for id in now_fit), "those that it can think by now")
        assert record(kernel, unfit[0]).kernel == "gone.7"


async def test_a_look_at_the_own_models_writes_only_what_changed(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    server = ollama()
    try:
        async with member(tmp_path, postgres.image(), server, "a") as one:
            await until(lambda: not one.fitness.reasons, "fitness")
            assert await looks_that_write(one) == 0
            name = "robin:embedded"
            server.fail("status_500", path="/api/create", times=None)
            kept = server.models.pop(name)
            looks_anew(one)
            await until(lambda: any("has no" in why for why in one.fitness.reasons), "that a model is missing")
            assert not any(model.name == name for own in one.image.read(kernels.listed) for model in own.models)
            assert await looks_that_write(one) == 0, "while a model is missing, too"
            server.models[name] = kept
            looks_anew(one)
            await until(lambda: not one.fitness.reasons, "fitness again")
            assert any(model.name == name for own in one.image.read(kernels.listed) for model in own.models)
    finally:
        server.stop()


async def looks_that_write(kernel: Kernel) -> int:
    """The number of system transactions of three looks."""
    await kernel.fitness.look()
    written, real, mine = 0, kernel.image.system, asyncio.current_task()

    def counting(*args: Any, **more: Any) -> Any:
        nonlocal written
        written += asyncio.current_task() is mine
        return real(*args, **more)

    kernel.image.system = counting  # type: ignore[method-assign]
    try:
        for _ in range(3):
            await kernel.fitness.look()
    finally:
        kernel.image.system = real  # type: ignore[method-assign]
    return written


CALL_S = 12.0
"""The limit of a call: longer than another kernel needs for a takeover, which begins anew where a busy machine held its looks up."""


class Till(Place):
    """A till on which the call leaves once its way is free."""

    more = (PAY,)

    def __init__(self) -> None:
        super().__init__()
        self.free, self.came = asyncio.Event(), asyncio.Event()
        self.refused: list[BaseException] = []

    async def prepare(self, tool: ToolDefinition, arguments: Mapping[str, Any]) -> ToolCall:
        call = await super().prepare(tool, arguments)

        async def send(delivery: Delivery) -> Any:
            self.came.set()
            await self.free.wait()  # a connection is opened, say
            try:
                delivery.leave()
            except BaseException as e:
                self.refused.append(e)
                raise
            return await call.send(delivery)

        return dataclasses.replace(call, send=send, seconds=CALL_S)


@contextlib.asynccontextmanager
async def at_till(folder: Path, uri: str, name: str, till: Till) -> AsyncIterator[Kernel]:
    """A kernel that may pay at a till which all machines reach."""
    async with daemon(folder, uri, FakeInference(), name) as kernel:
        toolbox = kernel.attempt_services.toolbox
        assert toolbox is not None
        await until(lambda: not toolbox.tied(), "the right to act")
        services = ConnectorServices(secret=str, folder=folder / name)
        box = Toolbox(kernel.image, services, toolbox.state, lambda spec, services: till, machine=name)
        if "desk" not in box.connections():
            await box.add(ConnectionSpec("desk", "http", "https://desk.example"))
            await kernel.image.system(grants.add, GrantRecord(0, ALLOW, "desk.*"), 1.0)
        give(kernel, toolbox=box)
        yield kernel


async def pay(kernel: Kernel) -> None:
    said = {"target": "tools.desk", "selector": "call_", "args": ["pay", {"euros": 10}], "kwargs": {}}
    await submit(kernel, "m1", "pay", may_ask=True, message=json.dumps(said))


async def test_a_call_that_was_about_to_leave_when_its_kernel_was_overtaken_does_not_leave(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, till, other_till = zeo.image(), Till(), Till()
    other_till.free.set()
    async with at_till(tmp_path, uri, "a", till) as one, at_till(tmp_path, uri, "b", other_till) as other:
        await pay(one)
        await till.came.wait()  # after its look at the record
        async with Standstill(one.membership):
            await until(lambda: record(other, "m1").kernel == "b.2", "a takeover")
            till.free.set()
            await until(lambda: till.refused, "the last look")
            assert isinstance(till.refused[0], Overtaken)
            assert "may have happened" in await asked(other, "m1")
            await other.scheduler.answer("m1", "again")
            await until(lambda: record(other, "m1").state == "COMPLETE", "the end")
        assert [len(till.calls), len(other_till.calls)] == [0, 1]


async def test_a_call_waits_for_a_sign_of_life_where_another_kernel_could_have_taken_over(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    till = Till()
    async with at_till(tmp_path, zeo.image(), "a", till) as one:
        await pay(one)
        await till.came.wait()
        async with Standstill(one.membership):
            await until(lambda: has_lapsed(one), "the end of what is surely its time")
            till.free.set()
            await until(lambda: till.refused, "the last check")
            assert (type(till.refused[0]), till.calls, record(one, "m1").kernel) == (LeaseLapsed, [], "a.1")
        await until(lambda: record(one, "m1").state == "COMPLETE", "the end")
        assert len(till.calls) == 1
        (effect,) = one.image.read(effects.load, "m1")
        assert (effect.state, effect.attempts) == (effects.DONE, 1)


def has_lapsed(kernel: Kernel) -> bool:
    try:
        kernel.image.lease.check()
    except LeaseLapsed:
        return True
    return False


async def test_kernels_under_way_in_an_image_that_is_put_back_act_no_more_until_one_is_told_to(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, till, other_till = zeo.image(), Till(), Till()
    till.free.set()
    async with at_till(tmp_path, uri, "a", till) as one, at_till(tmp_path, uri, "b", other_till) as other:
        await pay(one)
        await until(lambda: record(one, "m1").state == "COMPLETE", "the end")
        # private: the toolboxes that the kernels began with look after the right to act; attempts have those of `at_till`
        boxes = [kernel._facts.tools.toolbox for kernel in (one, other)]
        done = one.image.read(effects.acted)["a"]  # more than one where it was held back first
        await until(lambda: all(box.state.marks.known == {"a": done} for box in boxes), "its act is known at both")  # type: ignore[union-attr]
        await one.image.system(lambda root: root["acted"].clear())  # as it was before
        await until(lambda: all(f"before the last {done} acts of a" in box.tied() for box in boxes), "that it is an older image")
        with pytest.raises(ToolsTied, match="was put back"):
            await one.image.system(effects.intend, "m1", EffectRecord("k", "desk.pay", "acts", "{}", 0, "INTENDED", 1.0), {"a": done})
        await until(lambda: not any(member.acts for kernel in (one, other) for member in kernel.membership.alive()), "both said so")
        await other._facts.tools.resume()
        await until(lambda: not any(box.tied() for box in boxes), "the right to act at both")


async def test_a_kernel_that_starts_after_a_resume_acts(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    """Its own file knows acts that the image lacks; the user of the image has looked since, at another kernel."""
    uri, tills = zeo.image(), (Till(), Till())
    for till in tills:
        till.free.set()

    def noted(name: str) -> dict[str, int]:
        file = identity.epoch_path(uri, tmp_path / name)
        assert file is not None
        beside = identity.read_file(file)
        return beside.acted if isinstance(beside, EpochFile) else {}

    async with at_till(tmp_path, uri, "a", tills[0]) as one:
        async with at_till(tmp_path, uri, "b", tills[1]):
            await pay(one)
            await until(lambda: record(one, "m1").state == "COMPLETE", "the end")
            await until(lambda: noted("a") == noted("b") == one.image.read(effects.acted), "its act is known at both")
        await one.image.system(lambda root: root["acted"].clear())
        await until(lambda: one.image.read(identity.suspension), "that it is an older image")
        await Desk(one).ask("tools_resume")
        async with daemon(tmp_path, uri, FakeInference(), "b") as other:
            assert other.attempt_services.toolbox is not None
            assert other.attempt_services.toolbox.tied() == ""
            assert (noted("b"), one.image.read(identity.suspension)) == ({}, "")
