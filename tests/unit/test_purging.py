"""Purging in transactions of bounded size, with a memory at work."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from batos.image.packing import pack
from batos.memory.part_log import PartLog
from tests.support.memory import memory


async def test_a_purge_is_many_short_transactions_and_takes_out_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        (tmp_path / f"n{number}.md").write_text(f"# Note {number}\n\nThe secret{number} of the harbour.\n")
    steps = 0
    purge_some = PartLog.purge_some

    def counted(self: PartLog, *args: Any) -> int | None:
        nonlocal steps
        steps += 1
        return purge_some(self, *args)

    monkeypatch.setattr(PartLog, "purge_some", counted)  # once in each of its transactions
    async with memory(tmp_path, purge_rows=1) as held:
        for number in range(12):
            await held.read(tmp_path / f"n{number}.md")
        await held.embedded()
        for number in range(0, 12, 2):
            await held.recollection.ingest.forget(str(tmp_path / f"n{number}.md"))
        steps = 0
        await held.recollection.vectors.purge()
        assert steps > 2
        assert held.look(lambda library: [log.dropped() for log in (library.text, *library.vectors.values())]) == [0, 0]
        await held.whole()
        pack(held.image.db, tmp_path / "image.fs", time.time(), threading.Event())
        data = (tmp_path / "image.fs").read_bytes()
        assert [number for number in range(12) if f"secret{number} ".encode() in data] == list(range(1, 12, 2))


async def test_what_was_dropped_past_a_limit_is_purged_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("".join(f"# Part {n}\n\nOf number{n}.\n\n" for n in range(30)))
    async with memory(tmp_path, dropped_rows=10, purge_rows=1) as held:
        await held.read(tmp_path / "a.md")
        await held.embedded()
        await held.recollection.ingest.forget(str(tmp_path / "a.md"))
        await held.until(lambda: held.look(lambda library: library.text.dropped()) == 0)
        await held.whole()
