"""Backups of an image in PostgreSQL, made while a daemon writes, by the commands of docs/several-machines.md; each is restored."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.errors import ImageError
from batos.image import grants, identity, ledger
from batos.image.grants import ALLOW, GrantRecord
from batos.image.living_image import LivingImage
from batos.image.scrubber import Walk
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.toolbox import Toolbox
from tests.support.desk import PAY, Place
from tests.support.failing_missions import Desk
from tests.support.missions import FakeInference, give, mind, submit
from tests.support.servers import Postgres, folder_of_server, postgres, programs  # noqa: F401
from tests.support.shown_pages import commands_of

WAIT_S = 60
DUMP, COPY, CREATE, RESTORE = commands_of("docs/several-machines.md", "tests/contract/test_server_backups.py")


def database(uri: str) -> str:
    return uri.rpartition("/")[2].partition("?")[0]


@pytest.fixture
def copies(postgres: Postgres) -> Iterator[list[Postgres]]:  # noqa: F811
    """Servers that a test makes as copies."""
    made: list[Postgres] = []
    yield made
    for one in made:
        one.stop()
        shutil.rmtree(one.folder)


def dumped(at: Postgres, uri: str, copies: list[Postgres]) -> str:
    """The image in a database of its own that was restored from a dump; the page's database is called `image`."""
    for words in (DUMP, CREATE, RESTORE):
        at.shell(re.sub(r"\bimage(?!\.)", database(uri), words), at.folder)
    return at.address(f"{database(uri)}_restored")


def copied(at: Postgres, uri: str, copies: list[Postgres]) -> str:
    """The image at a copy of the whole server."""
    folder = folder_of_server()
    at.shell(COPY, folder)
    copies.append(Postgres(programs(), folder, data=folder / "standby"))
    return copies[-1].address(database(uri))


def count(root: Any, n: int) -> None:
    root["lobby"].n = n
    root[f"n{n}"] = n


@pytest.mark.parametrize("how", [dumped, copied], ids=["pg_dump", "pg_basebackup"])
async def test_what_is_restored_is_an_image_of_one_moment(postgres: Postgres, copies: list[Postgres], how: Any) -> None:  # noqa: F811
    uri = postgres.image()
    image = await LivingImage.open(uri)
    written = asyncio.Event()

    async def write() -> int:
        n = 3
        while not written.is_set():
            n += 1
            await image.system(count, n)
        return n

    for n in range(1, 4):
        await image.system(count, n)
    writing = asyncio.create_task(write())
    restored = await asyncio.to_thread(how, postgres, uri, copies)
    written.set()
    last = await writing
    await image.close()
    again = await LivingImage.open(restored)
    n = again.read(lambda root: root["lobby"].n)
    assert n <= last
    assert again.read(lambda root: [root[f"n{one}"] for one in range(1, n + 1)]) == list(range(1, n + 1))
    assert again.read(lambda root: f"n{n + 1}" in root) is False
    walk = Walk(again.db)
    while not walk.rounds:
        assert await asyncio.to_thread(walk.step, 50) == []
    await again.system(count, n + 1)  # objects get ids that are free
    assert again.read(lambda root: root[f"n{n}"]) == n
    await again.close()


@pytest.mark.parametrize("how", [dumped, copied], ids=["pg_dump", "pg_basebackup"])
async def test_missions_of_a_restored_image_go_on_and_act_when_their_user_says_so(
    postgres: Postgres,  # noqa: F811
    tmp_path: Path,
    copies: list[Postgres],
    how: Any,
) -> None:
    uri, inference = postgres.image(), FakeInference()
    async with mind(tmp_path, inference, image=uri, shutdown_s=0.1) as kernel:
        inference.hold()
        for n in range(2):
            await submit(kernel, f"m{n}", depth="direct")
        await inference.came(2)
        restored = await asyncio.to_thread(how, postgres, uri, copies)
        inference.release()
    (tmp_path / "image.epoch").unlink()  # as the page says: what the original did since is not known to the restored one
    async with mind(tmp_path, inference, image=restored) as kernel:
        of = kernel.image.read(identity.epochs)
        assert "is a copy, or was moved without image.epoch" in identity.why_suspended(of, "", tmp_path / "image.epoch")
        async with asyncio.timeout(WAIT_S):
            while kernel.image.read(ledger.unfinished):
                await asyncio.sleep(0.01)
        assert kernel.image.read(lambda root: {ledger.record_of(root, f"m{n}").state for n in range(2)}) == {"COMPLETE"}


async def test_the_verb_says_how_a_server_is_backed_up(postgres: Postgres, tmp_path: Path) -> None:  # noqa: F811
    async with mind(tmp_path, FakeInference(), image=postgres.image()) as kernel:
        with pytest.raises(ImageError, match=r"pg_dump.*several-machines"):
            await kernel.upkeep.backup()


@pytest.mark.parametrize("later", [True, False])
async def test_an_image_that_was_put_back_within_a_run_does_not_act_again(postgres: Postgres, tmp_path: Path, later: bool) -> None:  # noqa: F811
    """The file beside it is left as it was: the epochs agree."""
    uri, place = postgres.image(), Place()
    place.more = (PAY,)
    async with mind(tmp_path, FakeInference(), image=uri) as kernel:
        assert kernel.attempt_services.toolbox is not None
        state = kernel.attempt_services.toolbox.state
        services = ConnectorServices(secret=str, folder=tmp_path)
        box = Toolbox(kernel.image, services, state, lambda spec, services: place)
        await box.add(ConnectionSpec("desk", "http", "https://desk.example"))
        await kernel.image.system(grants.add, GrantRecord(0, ALLOW, "desk.*"), 1.0)
        give(kernel, toolbox=box)

        async def pay(id: str) -> None:
            said = {"target": "tools.desk", "selector": "call_", "args": ["pay", {"euros": 10}], "kwargs": {}}
            assert (await (await submit(kernel, id, "pay", message=json.dumps(said))).end())["state"] == "COMPLETE"

        await pay("m1")
        await submit(kernel, "m2", "wait for it", context="m1")
        restored = await asyncio.to_thread(dumped, postgres, uri, [])
        if later:
            await pay("m3")
    async with mind(tmp_path, FakeInference(), image=restored) as kernel:
        toolbox = kernel.attempt_services.toolbox
        assert toolbox is not None
        assert ("before the last 1 acts" in toolbox.tied()) is later, toolbox.tied()
        await Desk(kernel).ask("tools_resume")
        assert not toolbox.tied()
    async with mind(tmp_path, FakeInference(), image=restored) as kernel:
        assert not kernel.attempt_services.toolbox.tied()  # type: ignore[union-attr]
