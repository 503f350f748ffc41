"""What a user meets of a folded mission: over the wire, on the command line and in the console."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batos.cli import mission_view
from batos.cli.output import Output
from batos.errors import MissionFolded
from batos.image import ledger, retention
from batos.image.retention import FoldTerms
from batos.memory.store import library_of
from tests.support.missions import FakeInference, mind

ALL = FoldTerms(kept=1, days=0, history_days=0)
STRETCH = ledger.MILESTONE


async def folded(kernel: Any, count: int = STRETCH + 1, *, remembered: bool = False) -> None:
    """Have the kernel's image hold missions m1 to m<count>, of which all but the last are lines, once they are `remembered` if need be."""

    def put(root: Any) -> None:
        for n in range(1, count + 1):
            ledger.accept(root, f"m{n}", f"What is {n}?", {"context": f"m{n - 1}" if n > 1 else None}, True)
            ledger.complete(ledger.mission_of(root, f"m{n}"), {"text": f"It is {n}."}, None)
            ledger.settle(root, f"m{n}")

    await kernel.image.system(put)
    while remembered and (await kernel.memory.tell())["documents"] < count:
        kernel.memory.look_back()
        await asyncio.sleep(0.01)
    await kernel.costs.fold()
    await kernel.image.committer.told()
    assert await retention.fold(kernel.image, ALL) == count - 1


async def test_a_resubmission_a_pause_and_a_cancel_find_it_as_it_ended(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference()) as kernel:
        await folded(kernel)
        new, told = await kernel.scheduler.submit("m7", "What is 7?", {"context": "m6"})
        assert (new, told.state, told.result["text"], told.folded) == (False, "COMPLETE", "It is 7.", True)
        await kernel.scheduler.pause("m7")
        await kernel.scheduler.resume("m7")
        assert not await kernel.scheduler.cancel("m7")
        with pytest.raises(MissionFolded):
            await kernel.loop.rate("m7", 1, "")


async def test_a_follow_up_of_one_sees_what_is_left(tmp_path: Path) -> None:
    inference = FakeInference()
    async with mind(tmp_path, inference) as kernel:
        await folded(kernel)
        ended: list[Any] = []
        kernel.events.listen("result", ended.append)
        await kernel.scheduler.submit("next", "And then?", {"context": "m7"})
        await kernel.scheduler.quiet()
        assert [event["state"] for event in ended] == ["COMPLETE"]
        asked = str(inference.asked)
        assert "What is 7?" in asked
        assert "It is 7." in asked
        assert "What is 6?" not in asked


async def test_its_record_says_what_is_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from batos.api.queries import Queries

    async with mind(tmp_path, FakeInference()) as kernel:
        await folded(kernel)
        shown = Queries(kernel.image.db, kernel.image.snapshot).show("m7")["record"]
    capsys.readouterr()
    mission_view.page(shown, Output(as_json=False))
    printed = capsys.readouterr()
    assert "What is 7?" in printed.out
    assert "It is 7." in printed.out
    assert "image.mission_days" in printed.out + printed.err


async def test_what_memory_holds_of_it_goes_to_an_archive_unless_somebody_reads_it(tmp_path: Path) -> None:
    async with mind(tmp_path, FakeInference(), curate_fresh_days=0, curate_age_days=1000, curate_tokens=0, remember_pause_s=0) as kernel:
        await folded(kernel, remembered=True)

        def read(root: Any) -> list[int]:
            library = library_of(root)
            return [library.section(library.document(f"mission:m{n}").sections[0]).first for n in (3, 4)]

        kernel.memory.curator.reads.add(kernel.image.read(read))
        told = await kernel.memory.curator.round("it is time")
        assert {one["why"] for one in (await kernel.memory.curator.round("again", dry=True))["clusters"]} == set()
        assert told["chunks"] == STRETCH - 2
        left = kernel.image.read(lambda root: [d.source for d in library_of(root).documents.values() if d.kind == "mission" and d.sections])
        assert left == ["mission:m3", "mission:m4", f"mission:m{STRETCH + 1}"]
        assert (await kernel.memory.tell(restore="mission:m9"))["restored"]
        assert kernel.image.read(
            lambda root: [chunk.text for chunk in library_of(root).chunks_of(library_of(root).document("mission:m9"))]
        ) == ["What is 9?\n\nIt is 9."]
