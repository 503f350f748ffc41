"""What the leader changes in the image by itself, while the lead is taken from it: made once, taken back once, put away once."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from batos import scope
from batos.app.kernel import Kernel
from batos.autotelic import change_types, changes, improver
from batos.autotelic.changes import Proposal
from batos.errors import LeadLost
from batos.image import fence, history, ledger
from batos.memory.curator import Curator
from batos.memory.store import library_of
from tests.support.autonomy import AT_HAND
from tests.support.curator import PLACES, text_of
from tests.support.kernels import until
from tests.support.leaders import AFTER, BEFORE, Seizure, daemon, leads
from tests.support.memory import QUICK, CountsWords
from tests.support.missions import FakeInference
from tests.support.servers import Postgres, postgres  # noqa: F401

FACET = Proposal("facet", "robin.gardener_facet_", "Look at it as a gardener looks at a bed in spring.", "it may help")


@contextlib.asynccontextmanager
async def two(uri: str, folder: Path, **more: Any) -> AsyncIterator[tuple[Kernel, Kernel]]:
    async with daemon(uri, folder / "a", **{**AT_HAND, **more}) as one:
        await leads(one)
        async with daemon(uri, folder / "b", **{**AT_HAND, **more}) as other:
            yield one, other


async def led(kernel: Kernel, work: Callable[[], Awaitable[Any]]) -> Any:
    """Do some work as the leader does it; it ends where the lead is lost."""
    with scope.enter(lead=kernel.image.read(fence.fence_of)), contextlib.suppress(LeadLost):
        return await work()


async def done_by_both(one: Kernel, other: Kernel, seizure: Seizure, work: Callable[[Kernel], Awaitable[Any]]) -> None:
    """The one does it until it stands still, the other does it, then the one goes on."""
    first = asyncio.create_task(led(one, lambda: work(one)))
    await leads(other)
    await led(other, lambda: work(other))
    await until(lambda: seizure.done, "the end of the standstill")
    await first


def rehearsed(root: Any) -> int:
    """A proposal that its rehearsal found good."""
    number = changes.propose(root, FACET, {"trigger": "t", "key": "", "words": "w"}, "")
    found = {"reason": "", improver.STANDING: change_types.standing(root, FACET), improver.AFTER: improver.last_change(root)}
    changes.rehearsed(root, number, found)
    return int(number)


def state(kernel: Kernel) -> str:
    return str(kernel.image.read(changes.of, 1)["state"])


def notes(kernel: Kernel) -> list[str]:
    """Changes and undos that wrote ROBIN, the newest first."""
    oid = kernel.image.read(lambda root: root["lobby"].robin._p_oid)
    found = [one["mission"] for one in history.revisions(kernel.image.db, oid, 20)]
    return [note for note in found if "change:" in note]


def lived(root: Any, prefix: str, failed: bool) -> None:
    """A dozen missions, accepted and ended in one transaction, so that no kernel takes one up."""
    for id in (f"{prefix}-{n}" for n in range(12)):
        ledger.accept(root, id, "brief", {}, True)
        if failed:
            ledger.fail(root, id, {"code": "internal", "message": "x"}, {}, True)
        else:
            ledger.complete(ledger.mission_of(root, id), {"text": "x", "usage": {"model_ms": 4000}}, None)


async def promote(kernel: Kernel) -> None:
    assert kernel.improving.improver is not None
    await kernel.improving.improver.step()


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_change_is_promoted_once(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    async with two(postgres.image(), tmp_path) as (one, other):
        await one.image.system(rehearsed)
        seizure = Seizure(one, other, "change:1", when, lambda: state(other) == changes.PROMOTED)
        await done_by_both(one, other, seizure, promote)
        assert (state(other), notes(other)) == (changes.PROMOTED, ["change:1"])


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_a_harmful_change_is_taken_back_once(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    async with two(postgres.image(), tmp_path, leash_s=0.05) as (one, other):
        await one.image.system(lived, "before", False)
        await one.image.system(rehearsed)
        await led(one, lambda: promote(one))
        await one.image.system(lived, "after", True)
        await until(lambda: time.time() > one.image.read(changes.of, 1)["decided"] + 0.1, "the end of the watch")
        seizure = Seizure(one, other, "undo:change:1", when, lambda: state(other) == changes.UNDONE)

        async def check(kernel: Kernel) -> None:
            assert kernel.loop.leash is not None
            await kernel.loop.leash.check()

        await done_by_both(one, other, seizure, check)
        assert (state(other), notes(other)) == (changes.UNDONE, ["undo:change:1", "change:1"])


@pytest.mark.parametrize("when", [BEFORE, AFTER])
async def test_an_archive_is_made_once(postgres: Postgres, tmp_path: Path, when: str) -> None:  # noqa: F811
    inference, uri = FakeInference(), f"{postgres.image()}&shared_blob_dir=0&blob_dir="
    inference.embedder = CountsWords().vector
    quick = {**QUICK, "chunk_smallest": 20, "curate_least": 4, "curate_cluster": 12, "curate_alike": 0.999, "curate": "on"}

    def place(name: str) -> str:
        return f"{uri}{tmp_path / name}-blobs"

    for at in PLACES:
        (tmp_path / f"{at}.md").write_text("".join(f"# Of boats {part}\n\n{text_of('boats', part, at)}\n\n" for part in range(3)))
    async with daemon(place("a"), tmp_path / "a", inference, **quick) as one:
        await leads(one)
        await (await one.memory.ask([str(tmp_path / f"{at}.md") for at in PLACES], [])).done(lambda event: None)
        await until(lambda: not one.image.read(lambda root: list(library_of(root).without_vectors())), "vectors")
        await led(one, lambda: one.memory.curator.round("to see what is there"))
        async with daemon(place("b"), tmp_path / "b", inference, **quick) as other:

            def archives() -> int:
                return int(other.image.read(lambda root: len(library_of(root).archives)))

            async def late(kernel: Kernel) -> None:
                curator: Curator = kernel.memory.curator
                curator.now = lambda: 4e9
                await curator.round("it is late")

            seizure = Seizure(one, other, "put_away", when, archives)
            await done_by_both(one, other, seizure, late)
            texts = other.image.read(lambda root: [one.text for one in library_of(root).chunks.values() if "harbour" in one.text])
            assert archives() == 1
            assert len(texts) == len(set(texts))
