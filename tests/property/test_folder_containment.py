"""Folder tools on random trees with links, and while another program swaps folders for links: nothing outside is read or changed."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batos.errors import InvalidInput, ToolFailed
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery
from batos.tools.folders import READING, WRITING, FolderConnector

TOOLS = {tool.name: tool for tool in READING + WRITING}
SECRET = "outside-and-private"
NAMES = st.sampled_from(["a", "b", "c", "link", ".", "..", "", "outside"])
PATHS = st.one_of(
    st.lists(NAMES, max_size=6).map("/".join),
    st.lists(NAMES, max_size=4).map(lambda names: "/" + "/".join(names)),
    st.sampled_from(["../outside/private", "/etc/hostname", "a/../../outside/private", "link/private", "./link/./private"]),
)
TREES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["a", "b", "c", "link"]), min_size=1, max_size=4).map("/".join),
        st.sampled_from(["file", "folder", "link out", "link to file", "link up", "link absolute", "fifo"]),
    ),
    max_size=12,
)
CALLS = st.lists(st.tuples(st.sampled_from(sorted(TOOLS)), PATHS, PATHS), min_size=1, max_size=8)


def plant(place: Path, outside: Path, tree: list[tuple[str, str]]) -> None:
    """Make what can be made of a tree; parts that are in each other's way are left out."""
    for path, kind in tree:
        spot = place / path
        if any(parent.is_symlink() or parent.is_file() for parent in [spot, *spot.parents] if parent != place and place in parent.parents):
            continue
        if os.path.lexists(spot) or any(os.path.lexists(parent) and not parent.is_dir() for parent in spot.parents):
            continue
        spot.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            spot.write_text("inside")
        elif kind == "folder":
            spot.mkdir()
        elif kind == "fifo":
            os.mkfifo(spot)
        else:
            targets: dict[str, Any] = {
                "link out": os.path.relpath(outside, spot.parent),
                "link to file": outside / "private",
                "link up": "..",
                "link absolute": "/",
            }
            spot.symlink_to(targets[kind])


def state(folder: Path) -> dict[str, Any]:
    return {
        str(file.relative_to(folder)): (file.read_text() if file.is_file() else "", file.stat().st_mode)
        for file in sorted(folder.rglob("*"))
    }


async def call(connector: FolderConnector, name: str, path: str, to: str) -> str:
    """Call a tool and return all that it says."""
    arguments = {"path": path, "text": "outside" if name == "search" else "changed", "to": to}
    known = TOOLS[name].parameters["properties"]
    try:
        ready = await connector.prepare(TOOLS[name], {given: value for given, value in arguments.items() if given in known})
        return repr(await asyncio.wait_for(ready.send(Delivery("")), 90))
    except (InvalidInput, ToolFailed) as e:
        return e.message


@settings(max_examples=150, deadline=None)
@given(tree=TREES, calls=CALLS)
def test_no_path_leads_out_of_the_folder(tree: list[tuple[str, str]], calls: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        place, outside = base / "place", base / "outside"
        place.mkdir()
        (outside / "a").mkdir(parents=True)
        (outside / "private").write_text(SECRET)
        plant(place, outside, tree)
        before = state(outside)
        services = ConnectorServices(secret=str, folder=base / "kept")
        connector = FolderConnector(ConnectionSpec("f", "folder", str(place), {"writable": True}), services)

        async def all_calls() -> None:
            for tool, path, to in calls:
                assert SECRET not in await call(connector, tool, path, to)

        asyncio.run(all_calls())
        assert state(outside) == before
        assert sorted(one.name for one in base.iterdir() if one.name != "kept") == ["outside", "place"]


@pytest.mark.skipif(sys.platform != "linux", reason="two names are swapped at once by renameat2")
def test_a_folder_that_is_swapped_for_a_link_again_and_again_leads_nowhere(tmp_path: Path) -> None:
    place, outside = tmp_path / "place", tmp_path / "outside"
    (place / "a").mkdir(parents=True)
    (place / "a" / "private").write_text("inside")
    outside.mkdir()
    (outside / "private").write_text(SECRET)
    (place / "link").symlink_to(outside)
    before, stop, swapped = state(outside), threading.Event(), 0

    def swap() -> None:
        nonlocal swapped
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
        while not stop.is_set():
            assert exchange(-100, os.fsencode(place / "a"), -100, os.fsencode(place / "link"), 2) == 0, ctypes.get_errno()
            swapped += 1

    services = ConnectorServices(secret=str, folder=tmp_path / "kept")
    connector = FolderConnector(ConnectionSpec("f", "folder", str(place), {"writable": True}), services)
    swapper = threading.Thread(target=swap)

    async def work() -> tuple[int, int]:
        through = refused = 0
        for n in range(100):
            for tool, path in (
                ("read", "a/private"),
                ("write", f"a/new{n % 3}"),
                ("append", "a/log"),
                ("delete", f"a/new{n % 3}"),
                ("search", ""),
            ):
                said = await call(connector, tool, path, "")
                assert SECRET not in said
                through, refused = through + ("cannot" not in said), refused + ("cannot" in said)
        return through, refused

    swapper.start()
    try:
        through, refused = asyncio.run(work())
    finally:
        stop.set()
        swapper.join()
    assert state(outside) == before
    assert swapped > 0
    assert through > 0
    assert refused > 0
