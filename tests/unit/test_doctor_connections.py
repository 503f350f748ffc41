"""The doctor's look at connections: what cannot be reached, lacks a secret, or has changed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from batos import doctor
from batos.config import Settings
from tests.support.cli import daemon


def connection(name: str, kind: str, place: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "place": place, "suspended": [], "missing": [], "open": False, "tools": [], **more}


async def test_places_that_are_there_and_that_are_not(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    file = tmp_path / "api.json"
    file.write_text("{}")
    fine = [
        ("folder", str(tmp_path)), ("openapi", str(file)), ("program", f"{sys.executable} -m x"), ("web", ""),
        ("http", f"http://127.0.0.1:{port}"),
    ]  # fmt: skip
    assert [await doctor.unreachable(*place) for place in fine] == [""] * len(fine)
    server.close()
    await server.wait_closed()
    gone = [
        ("folder", str(file)), ("openapi", str(tmp_path / "no.json")), ("mcp", f"{tmp_path}/server serve"), ("program", "'open"),
        ("http", f"http://127.0.0.1:{port}"), ("mcp", "http://127.0.0.1:99999/mcp"),
    ]  # fmt: skip
    for place in gone:
        assert await doctor.unreachable(*place), place


@pytest.mark.parametrize(
    ("told", "state", "says"),
    [
        ({}, "ok", "notes: folder"),
        ({"missing": ["SHOP"]}, "warn", "notes lacks the secret SHOP"),
        ({"suspended": ["write"]}, "warn", "suspended: write"),
        ({"place": "/no/such/folder"}, "warn", "notes cannot be reached"),
    ],
)
async def test_each_connection_has_a_check(told: dict[str, Any], state: str, says: str, tmp_path: Path) -> None:
    one = {**connection("notes", "folder", str(tmp_path)), **told}
    with daemon({"tools": {"type": "tools", "connections": [one], "tied": "a fork", "in_doubt": 2}}) as scripted:
        first, tied, doubt = await doctor.connections(Settings(), scripted.endpoint)
    assert (first.name, first.state) == ("tools", state)
    assert says in first.finding
    assert (tied.state, doubt.state) == ("warn", "warn")
    assert "a fork" in tied.finding
