"""Several kernels and the places outside: which machine a connection belongs to, and who resolves what was under way there."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from batos.api.tools import EffectRequests
from batos.app.kernel import Kernel
from batos.errors import InvalidInput
from batos.image import effects, grants, ledger
from batos.image.grants import ALLOW, GrantRecord
from batos.image.mission_record import MissionRecord, draft
from batos.tools import machines
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.machines import EVERY
from batos.tools.toolbox import Toolbox
from batos.wire import schemas
from batos.wire.outbox import Recipient
from tests.support.desk import PAY, Place, asked
from tests.support.kernels import Standstill, acts, daemon, until
from tests.support.missions import FakeInference, give, submit
from tests.support.servers import Postgres, Zeo, postgres, zeo  # noqa: F401

TIME = "Tell me the current time in the city Tokyo"


def record(kernel: Kernel, id: str) -> MissionRecord:
    return kernel.image.read(ledger.record_of, id)


async def completed(kernel: Kernel, id: str) -> MissionRecord:
    await until(lambda: record(kernel, id).state != "ACCEPTED", f"the end of {id}")
    assert record(kernel, id).state == "COMPLETE", record(kernel, id).error
    return record(kernel, id)


def told(kernel: Kernel, id: str) -> str:
    return str(kernel.scheduler.live(id).get("waits", ""))


def message(target: str, *args: Any) -> dict[str, Any]:
    return {"message": json.dumps({"target": target, "selector": "call_", "args": list(args), "kwargs": {}})}


@contextlib.asynccontextmanager
async def at_desk(folder: Path, uri: str, name: str, place: Place, inference: FakeInference | None = None) -> AsyncIterator[Kernel]:
    """A kernel whose connection `desk` belongs to the machine `a`."""
    async with daemon(folder, uri, inference or FakeInference(), name) as kernel:
        await acts(kernel)
        services = ConnectorServices(secret=str, folder=folder / name)
        state = kernel.attempt_services.toolbox.state  # type: ignore[union-attr]
        box = Toolbox(kernel.image, services, state, lambda spec, services: place, machine=name)
        if "desk" not in box.connections():
            await box.add(ConnectionSpec("desk", "http", "https://desk.example", on="a"))
        give(kernel, toolbox=box)
        await kernel.membership.describe(network=name)  # as if each were on a machine of its own
        yield kernel


@pytest.mark.parametrize(
    ("kind", "place", "of_one"),
    [
        ("folder", "/srv/notes", True),
        ("program", "/usr/bin/wc {file}", True),
        ("mcp", "/usr/bin/npx server --stdio", True),
        ("mcp", "https://mcp.example/sse", False),
        ("mcp", "http://127.0.0.1:9000/mcp", True),
        ("http", "https://shop.example", False),
        ("http", "http://localhost:8080", True),
        ("http", "http://[::1]:8080", True),
        ("http", "http://10.0.0.7", False),
        ("openapi", "/srv/shop.json", True),
        ("openapi", "https://shop.example/openapi.json", False),
        ("web", "", False),
    ],
)
def test_programs_folders_and_loopback_belong_to_a_machine_and_other_addresses_to_all(kind: str, place: str, of_one: bool) -> None:
    spec = ConnectionSpec("one", kind, place)
    assert machines.is_of_a_machine(spec) is of_one
    assert machines.placed(spec, "mill").on == ("mill" if of_one else EVERY)
    assert machines.placed(spec, "") == spec  # one daemon has the image to itself
    assert machines.placed(spec._replace(on="barn"), "mill").on == "barn"


def test_an_api_whose_server_is_on_loopback_belongs_to_the_machine() -> None:
    spec = ConnectionSpec("one", "openapi", "https://shop.example/openapi.json", {"server": "http://127.0.0.1:8080"})
    assert machines.is_of_a_machine(spec)


async def test_a_mission_that_calls_a_tool_of_another_machine_goes_on_there(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, place, never = zeo.image(), Place(), Place()
    async with at_desk(tmp_path, uri, "a", place) as one, at_desk(tmp_path, uri, "b", never) as other:
        await submit(other, "m1", TIME)
        ended = await completed(other, "m1")
        assert (ended.kernel.partition(".")[0], ended.connection, ended.attempts) == ("a", "desk", 1)
        assert [len(place.calls), len(never.calls)] == [1, 0]
        assert "17:45" in json.dumps(ended.result)
        assert [e.state for e in one.image.read(effects.load, "m1")] == [effects.DONE]


@pytest.mark.parametrize(("same", "there"), [(True, ""), (False, "a")])
async def test_an_address_of_loopback_is_reached_by_other_kernels_of_the_same_machine_and_a_program_is_not(
    zeo: Zeo,  # noqa: F811
    tmp_path: Path,
    same: bool,
    there: str,
) -> None:
    uri = zeo.image()
    local, program = (ConnectionSpec("x", kind, place, on="a") for kind, place in (("http", "http://127.0.0.1:80"), ("program", "/bin/ls")))
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        if not same:
            await other.membership.describe(network="another")
        assert [other.image.read(machines.elsewhere, spec) for spec in (local, program)] == [there, "a"]
        assert [one.image.read(machines.elsewhere, spec) for spec in (local, program)] == ["", ""]


async def test_a_mission_for_a_machine_that_is_away_waits_and_says_for_what(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, place, never = zeo.image(), Place(), Place()
    async with at_desk(tmp_path, uri, "a", place), at_desk(tmp_path, uri, "b", never) as other:
        pass
    async with at_desk(tmp_path, uri, "b", never) as other:
        await submit(other, "m1", TIME)
        await until(lambda: "needs a connection of a, and no kernel runs there" in told(other, "m1"), "why it waits")
        assert (record(other, "m1").state, record(other, "m1").kernel, record(other, "m1").attempts) == ("ACCEPTED", "", 0)
        await submit(other, "m2", "Plan the day")  # others go on
        await completed(other, "m2")
        async with at_desk(tmp_path, uri, "a", place):
            await completed(other, "m1")
        assert [len(place.calls), len(never.calls)] == [1, 0]


async def test_a_mission_whose_connection_is_removed_is_anybodys(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri, place = zeo.image(), Place()
    async with at_desk(tmp_path, uri, "a", place), at_desk(tmp_path, uri, "b", place):
        pass
    async with at_desk(tmp_path, uri, "b", place) as other:
        await submit(other, "m1", TIME)
        await until(lambda: told(other, "m1"), "it waits")
        await other.attempt_services.toolbox.remove("desk")  # type: ignore[union-attr]
        await completed(other, "m1")
        assert not place.calls


async def test_a_message_to_a_folder_of_another_machine_is_thought_there_from_the_beginning(
    zeo: Zeo,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri, folder = zeo.image(), tmp_path / "notes"
    folder.mkdir()
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        await acts(one, other)
        made = await one.attempt_services.toolbox.add(  # type: ignore[union-attr]
            ConnectionSpec("notes", "folder", str(folder), {"writable": True})
        )
        assert made.spec.on == "a"
        await one.image.system(grants.add, GrantRecord(0, ALLOW, "notes.*"), 1.0)
        await submit(other, "m1", "write", **message("tools.notes", "write", {"path": "x.txt", "text": "hello"}))
        ended = await completed(other, "m1")
        assert (ended.kernel.partition(".")[0], ended.connection) == ("a", "")
        assert (folder / "x.txt").read_text() == "hello"


async def test_what_was_under_way_on_a_machine_is_resolved_there_and_by_no_other_kernel(
    zeo: Zeo,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri, place, never = zeo.image(), Place(), Place()
    place.more, place.seconds = (PAY,), 15.0  # the call is under way until its kernel counts as gone, however late that is seen
    async with at_desk(tmp_path, uri, "a", place) as one, at_desk(tmp_path, uri, "b", never) as other:
        await one.image.system(grants.add, GrantRecord(0, ALLOW, "desk.*"), 1.0)
        place.gate.clear()
        former = one.membership.name
        await submit(one, "m1", "pay", may_ask=True, **message("tools.desk", "pay", {"euros": 10}))
        await place.entered.wait()
        async with Standstill(one.membership):
            await until(lambda: former not in [k.name for k in other.membership.others()], "it counts as gone")
            await until(lambda: "no kernel runs there" in told(other, "m1"), "why it waits")
            (doubted,) = other.image.read(effects.load, "m1")
            assert doubted.state == effects.INTENDED
        question = await asked(one, "m1")  # under its new name
        assert "may have happened" in question
        assert one.membership.name != former
        assert [len(place.calls), len(never.calls)] == [1, 0]
        await one.scheduler.answer("m1", "happened")
        await completed(other, "m1")
        assert [len(place.calls), len(never.calls)] == [1, 0]


async def test_an_act_that_is_under_way_on_one_machine_is_not_settled_at_another(
    zeo: Zeo,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri, place = zeo.image(), Place()
    place.more, place.seconds = (PAY,), 15.0
    async with at_desk(tmp_path, uri, "a", place) as one, at_desk(tmp_path, uri, "b", Place()) as other:
        await one.image.system(grants.add, GrantRecord(0, ALLOW, "desk.*"), 1.0)
        place.gate.clear()
        await submit(one, "m1", "pay", may_ask=True, **message("tools.desk", "pay", {"euros": 10}))
        await place.entered.wait()
        await until(lambda: other.image.read(effects.load, "m1"), "the act, as the other kernel sees it")
        (under_way,) = other.image.read(effects.load, "m1")
        for kernel in (one, other):
            for how in effects.SETTLEMENTS:
                request = schemas.EffectSettleRequest(op="effect_settle", key=under_way.key, how=how)
                with pytest.raises(InvalidInput, match=f"is at the effect {under_way.key[:8]} now"):
                    await EffectRequests(kernel.image, kernel.scheduler).settle(request, cast(Recipient, None))
        place.gate.set()
        await completed(one, "m1")
        (paid,) = one.image.read(effects.load, "m1")
        assert (paid.state, paid.attempts, len(place.calls)) == (effects.DONE, 1, 1)


async def test_a_connection_for_another_machine_is_added_by_that_ones_kernel(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    uri = zeo.image()
    spec = ConnectionSpec("notes", "folder", str(tmp_path))
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b"):
        box = one.attempt_services.toolbox
        assert box is not None
        with pytest.raises(InvalidInput, match=r"a connection of b is added by its own kernel"):
            await box.add(spec._replace(on="b"))
        with pytest.raises(InvalidInput, match=r"no kernel of that name serves this image; there are: a, b"):
            await box.add(spec._replace(on="c"))
        assert (await box.add(spec._replace(name="shared", on=EVERY))).spec.on == EVERY


async def test_the_first_kernel_takes_over_the_connections_that_one_daemon_had(zeo: Zeo, tmp_path: Path) -> None:  # noqa: F811
    from tests.support.missions import mind

    uri = zeo.image()
    (tmp_path / "a").mkdir()
    async with mind(tmp_path / "a", FakeInference(), image={"uri": uri}) as alone:
        box = alone.attempt_services.toolbox
        assert box is not None
        await box.add(ConnectionSpec("notes", "folder", str(tmp_path)))
        await box.add(ConnectionSpec("web", "web", ""))
        with pytest.raises(InvalidInput, match=r'image\.kernels = "many"'):
            await box.add(ConnectionSpec("more", "folder", str(tmp_path), on="a"))
        assert {name: held.spec.on for name, held in box.connections().items()} == {"notes": "", "web": ""}
    async with daemon(tmp_path, uri, FakeInference(), "a") as one, daemon(tmp_path, uri, FakeInference(), "b") as other:
        for kernel in (one, other):
            box = kernel.attempt_services.toolbox
            assert box is not None
            assert {name: held.spec.on for name, held in box.connections().items()} == {"notes": "a", "web": ""}


async def test_a_mission_that_may_use_connections_of_two_machines_is_begun_at_one_of_them(
    zeo: Zeo,  # noqa: F811
    tmp_path: Path,
) -> None:
    uri, place = zeo.image(), Place()
    async with at_desk(tmp_path, uri, "a", place) as one, at_desk(tmp_path, uri, "b", Place()) as other:
        services, state = ConnectorServices(secret=str, folder=tmp_path), other.attempt_services.toolbox.state  # type: ignore[union-attr]
        box = Toolbox(other.image, services, state, lambda spec, services: Place(), machine="b")
        await box.add(ConnectionSpec("bench", "http", "https://bench.example", on="b"))
        await one.image.system(ledger.accept, "m1", TIME, {"paused": True}, False)
        for connection in ("bench", "desk"):
            await one.image.system(grants.add, GrantRecord(0, ALLOW, f"{connection}.*", mission="m1"), 1.0)
        for options, usable in (({}, ("a", "b")), ({"connection": "desk"}, ("a",)), ({"connection": "bench"}, ("b",))):
            mission = draft("m1", "a brief", options)
            fits = [name for name, kernel in (("a", one), ("b", other)) if not kernel.image.read(machines.machine_of, mission)]
            assert tuple(fits) == usable
        sent = draft("m2", "a brief", message("tools.desk"))
        assert [k.image.read(machines.machine_of, sent) for k in (one, other)] == ["", "a"]
        handed_over = draft("m2", "a brief", {**message("tools.desk"), "connection": "bench"})
        assert [k.image.read(machines.machine_of, handed_over) for k in (one, other)] == ["b", ""]
        await other.scheduler.resume("m1")
        await completed(other, "m1")
