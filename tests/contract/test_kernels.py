"""Several kernels on one image: who may serve it with whom, who is there, who is gone, and who leads; on PostgreSQL and on ZEO."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import pytest

from batos.cluster import presence, turn
from batos.cluster.membership import Alone
from batos.cluster.presence import SessionPresence
from batos.cluster.turn import SessionTurn
from batos.errors import ConfigError, ImageFailed, ImageLocked, KernelRefused
from batos.image import kernels, server
from batos.image.living_image import LivingImage
from batos.objects import Root
from tests.support.kernels import TERMS, kernel, until
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401


@pytest.fixture(params=["zeo", "postgres"])
def at(request: pytest.FixtureRequest) -> Postgres | Zeo:
    found: Postgres | Zeo = request.getfixturevalue(request.param)
    return found


def names(root: Any) -> dict[str, str]:
    return {one.name: one.gone for one in kernels.listed(root)}


async def test_several_kernels_open_one_image_each_under_a_name_of_its_own(at: Postgres | Zeo) -> None:
    uri = at.image()
    async with kernel(uri, "a") as (one, first), kernel(uri, "b") as (other, second):
        assert (first.name, second.name) == ("a.1", "b.2")
        assert (one.read(kernels.me), other.read(kernels.me)) == ("a.1", "b.2")
        assert (first.epoch, second.epoch) == (1, 2)
        await until(lambda: [k.name for k in first.others()] == ["b.2"] and [k.name for k in second.others()] == ["a.1"])
    again = await LivingImage.open(uri)
    try:
        assert again.read(names) == {"a.1": "ended", "b.2": "ended"}
        assert again.read(kernels.me) == ""
    finally:
        await again.close()


async def test_a_daemon_that_wants_the_image_to_itself_is_refused_beside_kernels_and_they_beside_it(at: Postgres | Zeo) -> None:
    uri = at.image()
    async with kernel(uri, "a"):
        with pytest.raises(ImageLocked, match="in use by"):
            await LivingImage.open(uri)
    alone = await LivingImage.open(uri)
    try:
        with pytest.raises(ImageLocked, match="in use by process"):
            async with kernel(uri, "b"):
                pass
    finally:
        await alone.close()
    async with kernel(uri, "c") as (_, third):
        assert third.epoch == 2


async def test_a_file_is_no_image_for_several_kernels(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"image\.kernels = many"):
        async with kernel(f"file://{tmp_path}/image.fs"):
            pass


@pytest.mark.parametrize(
    ("fact", "value", "told"), [("version", "2.0", "BAT OS 1.0"), ("codex", "x", "the codex"), ("format", 7, "format 6")]
)
async def test_a_kernel_that_does_not_fit_is_refused_with_the_remedy(at: Postgres | Zeo, fact: str, value: Any, told: str) -> None:
    uri = at.image()
    other = dataclasses.replace(TERMS, **{fact: value})
    async with kernel(uri, "a"):
        with pytest.raises(KernelRefused, match=rf"a\.1 .*{told}.*batos kernels"):
            async with kernel(uri, "b", other):
                pass
    async with kernel(uri, "b", other) as (_, membership):  # once the others have ended
        assert membership.name == "b.2"


async def test_what_a_kernel_that_was_killed_left_does_not_keep_a_new_version_out(at: Postgres | Zeo) -> None:
    uri = at.image()
    async with kernel(uri, "a") as (image, _):
        await image.system(kernels.register, "killed", TERMS)
    async with kernel(uri, "b", dataclasses.replace(TERMS, version="2.0")) as (image, membership):
        assert image.read(names) == {"a.1": "ended", "killed.2": "silent", "b.3": ""}
        assert membership.epoch == 3


async def test_a_profile_that_others_do_not_have_is_refused_when_it_is_known(at: Postgres | Zeo) -> None:
    uri = at.image()
    async with kernel(uri, "a") as (_, first), kernel(uri, "b") as (_, second):
        await first.describe(profile="embedded", endpoint="tcp://a:1", models=(kernels.ModelContent("m", "d", "c"),))
        with pytest.raises(KernelRefused, match="the profile embedded"):
            await second.describe(profile="workstation")
        await second.describe(profile="embedded")
        await until(lambda: second.others() and second.others()[0].endpoint == "tcp://a:1")
        assert second.others()[0].models == (kernels.ModelContent("m", "d", "c"),)


async def test_a_silent_kernel_is_declared_gone_and_registers_anew_when_it_wakes(at: Postgres | Zeo) -> None:
    uri, renamed = at.image(), []
    async with kernel(uri, "a") as (_, first), kernel(uri, "b") as (image, second):
        second.on_renamed(lambda: renamed.append(second.name))
        await second.describe(endpoint="tcp://b:1")
        await until(lambda: len(first.others()) == 1)
        assert await image.system(lambda root: kernels.declare_gone(root, "b.2", kernels.listed(root)[1].beat))
        await until(lambda: renamed == ["b.3"])
        assert (second.name, image.read(kernels.me)) == ("b.3", "b.3")
        await until(lambda: [(one.name, one.endpoint) for one in first.others()] == [("b.3", "tcp://b:1")])


async def test_one_leads_and_another_takes_the_lead_when_it_ends(at: Postgres | Zeo) -> None:
    uri, entered = at.image(), []

    def led(name: str) -> Any:
        @contextlib.asynccontextmanager
        async def entering() -> AsyncIterator[None]:
            entered.append(f"{name} in")
            yield
            entered.append(f"{name} out")

        return entering

    async with kernel(uri, "a") as (image, first):
        first.on_lead(led("a"))
        await until(lambda: entered == ["a in"])
        async with kernel(uri, "b") as (_, second):
            second.on_lead(led("b"))
            await until(lambda: len(second.others()) == 1)
            assert (first.leads, second.leads) == (True, False)
            await first.drain()
            await until(lambda: second.leads)
            assert (first.leads, image.read(kernels.lead_of)) == (False, ("b.2", 2))
            await until(lambda: entered == ["a in", "a out", "b in"])
        assert entered[-1] == "b out"
        assert image.read(kernels.lead_of) == ("", 2)


async def test_a_daemon_alone_leads_always() -> None:
    entered = []

    @contextlib.asynccontextmanager
    async def led() -> AsyncIterator[None]:
        entered.append("in")
        yield
        entered.append("out")

    alone = Alone()
    async with alone.running():
        alone.on_lead(led)
        await alone.settled()
        assert (alone.leads, alone.others(), alone.name, entered) == (True, [], "", ["in"])
        await alone.resign()
        assert entered == ["in", "out"]


async def test_a_registration_and_an_exclusive_use_at_the_same_moment_exclude_each_other(zeo: Zeo) -> None:  # noqa: F811
    uri = zeo.image()
    image = await LivingImage.open(uri)
    try:
        with pytest.raises(ImageLocked):
            await image.system(server.register_kernel, uri, "a", TERMS)
    finally:
        await image.close()


async def test_kernels_commit_their_groups_one_after_the_other(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(turn, "WAIT_S", 60.0)  # however long a commit takes on this machine
    uri = postgres.image()

    def count(root: Any) -> int:
        root["counter"] = root.get("counter", 0) + 1
        return int(root["counter"])

    async with kernel(uri, "a", lease_s=20) as (one, first):
        await one.system(count)
        assert first.turn.stats["turns"] == 0  # nobody else is there
        async with kernel(uri, "b", lease_s=20) as (other, second):
            await until(lambda: first.turn.needed and second.turn.needed)
            before = one.committer.stats["conflicts"] + other.committer.stats["conflicts"]

            async def counts(image: LivingImage) -> None:
                for _ in range(20):
                    await image.system(count)

            await asyncio.gather(counts(one), counts(other))
            assert one.committer.stats["conflicts"] + other.committer.stats["conflicts"] - before <= 2  # of what is outside a group
            assert await one.system(count) == 42
            assert first.turn.stats["turns"] >= 20
            assert first.turn.stats["without"] == 0


async def test_a_kernel_that_stands_still_in_its_turn_holds_nobody_up_for_long(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(turn, "WAIT_S", 0.2)
    uri = postgres.image()
    async with kernel(uri, "a") as (_, first), kernel(uri, "b") as (other, second):
        await until(lambda: second.turn.needed and first.turn.needed)
        held = SessionTurn(server.postgres_of(other.db.storage), 1.0)
        held.needed = True
        with held():
            for _ in range(8):
                await other.system(kernels.beat, second.name)
            assert 1 <= second.turn.stats["without"] < 8, "after one that waited in vain, others do not wait"
            await until(lambda: not postgres.ask(_IN_TURN))  # the server ends a session that stands still in it
        held.close()


async def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_takes_none(postgres: Postgres) -> None:  # noqa: F811
    uri = postgres.image()
    async with kernel(uri, "a", lease_s=20) as (one, _):
        first, second = (SessionTurn(server.postgres_of(one.db.storage), 20.0, turn.REPLAYS) for _ in range(2))
        first.needed = second.needed = True
        entered: list[str] = []

        async def waits() -> None:
            async with second.held():
                entered.append("second")

        async with first.held():
            waiting = asyncio.create_task(waits())
            await until(lambda: postgres.ask("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), "one that waits")
            waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert entered == []
        async with first.held():  # what the other one was given meanwhile it has given back
            assert first.stats == {"turns": 2, "without": 0}
        for one_of_them in (first, second):
            one_of_them.close()


_IN_TURN = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE '%turn' AND state = 'idle in transaction'"


async def test_a_kernel_that_wakes_beside_another_version_gives_up(postgres: Postgres) -> None:  # noqa: F811
    uri, failed = postgres.image(), []
    async with kernel(uri, "a", on_failed=failed.append) as (one, first):

        def changes_places(root: Root) -> None:  # in one commit: it would register anew between two
            kernels.declare_gone(root, first.name, 0)
            kernels.register(root, "b", dataclasses.replace(TERMS, version="2.0"))

        await one.system(changes_places)
        await until(lambda: failed)
        assert isinstance(failed[0], ImageFailed)
        assert "BAT OS 2.0" in str(failed[0])


async def test_kernels_outlive_a_restart_of_the_server_and_none_of_them_counts_as_gone(postgres: Postgres) -> None:  # noqa: F811
    uri = postgres.image()
    async with kernel(uri, "a", lease_s=10) as (one, first), kernel(uri, "b", lease_s=10) as (other, second):
        await until(lambda: first.others() and second.others())
        await asyncio.to_thread(postgres.stop, "immediate")
        await until(lambda: first.away and second.away)
        await asyncio.to_thread(postgres.start)
        await until(lambda: not first.away and not second.away)
        beats = other.read(kernels.listed)
        assert [one.gone for one in beats] == ["", ""]
        await until(lambda: len(held_locks(postgres)) == 2)
        assert (first.name, second.name) == ("a.1", "b.2")
        await one.system(kernels.beat, "a.1")


async def test_a_sign_of_life_that_comes_after_the_last_begins_no_session(postgres: Postgres) -> None:  # noqa: F811
    image = await LivingImage.open(postgres.image())
    try:
        signs = SessionPresence(server.postgres_of(image.db.storage))
        await signs.hold("late.77")
        assert (77,) in held_locks(postgres)
        _, late = await asyncio.gather(signs.release(), signs.beat(), return_exceptions=True)  # both wait for the thread, in this order
        assert isinstance(late, RuntimeError)
        assert "have ended" in str(late)
        await until(lambda: (77,) not in held_locks(postgres), "the end of its session")
    finally:
        await image.close()


def held_locks(postgres: Postgres) -> list[tuple[object, ...]]:  # noqa: F811
    return postgres.ask(f"SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid::bigint = {presence._LOCKS} AND objsubid = 2")
