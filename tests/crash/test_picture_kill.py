"""kill -9 between any two steps of a picture: its upload, the acceptance of its mission, the first inference that shows it.

What was told to be there is there; an accepted mission has its picture without its client; and the same messages again end it.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.image import blobs, ledger
from batos.testing import ScriptedOllama
from tests.support import daemon_child
from tests.support.crash import SETTINGS, on_disk, provision, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned
from tests.support.pictures import png

PICTURE = png(300, 300)
DIGEST = hashlib.sha256(PICTURE).hexdigest()
ENCODED = base64.b64encode(PICTURE).decode()
KEPT_LATER = ("before a picture is kept", "after a picture is kept")
ACCEPTED_BEFORE = ("before it is read", "after it was read")
Ask = Callable[..., dict[str, Any]]


class Died(Exception):
    """The daemon died before it answered."""


def bring(ask: Ask) -> None:
    """What any client does to give a mission with a picture."""
    have, whole = 0, False
    while not whole:
        part = base64.b64encode(PICTURE[have : have + 150_000]).decode()
        reply = ask("upload", digest=DIGEST, bytes=len(PICTURE), offset=have, data=part)
        have, whole = reply["have"], reply["whole"]
    named = [{"digest": DIGEST, "name": "this.png"}]
    assert ask("submit", id="m1", brief="What is this?", depth="direct", persona="robin", images=named)["type"] == "accepted"


def asking(peer: Peer, process: Daemon) -> Ask:
    peer.socket.setsockopt(zmq.RCVTIMEO, 100)

    def ask(op: str, **fields: Any) -> dict[str, Any]:
        peer.send(op, **fields)
        while True:
            try:
                return peer.reply()
            except zmq.Again:
                if process.process.poll() is not None:
                    raise Died from None

    return ask


def _held(root: Any) -> list[str]:
    return list(ledger.ledger_of(root).pictures.kept[DIGEST].missions)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", thinned(daemon_child.PICTURE_POINTS))
def test_killed_at_each_step_of_a_picture(tmp_path: Path, point: str) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.give_sight("smollm2:embedded")
        provision(tmp_path, server)
        process = Daemon(tmp_path, program=(daemon_child.__file__, point, "1"), ollama_host=server.host, **SETTINGS)
        try:
            with Peer(process.started().endpoint) as peer, contextlib.suppress(Died):
                bring(asking(peer, process))
            assert process.ended(END_S) == -9, f"it did not come to {point!r}"
        finally:
            if process.process.poll() is None:
                process.kill()
        accepted = on_disk(tmp_path, lambda root: "m1" in ledger.ledger_of(root).missions)
        assert accepted == (point in ACCEPTED_BEFORE)
        if point not in KEPT_LATER:
            assert on_disk(tmp_path, lambda root: blobs.read_picture(root, DIGEST)) == PICTURE
        with daemon(tmp_path, ollama_host=server.host, **SETTINGS) as running, Peer(running.endpoint) as peer:
            if not accepted:
                bring(peer.ask)
            assert peer.result("m1")["state"] == "COMPLETE"
            assert peer.ask("pack", days=0)["type"] == "pack"
            assert running.terminate() == 0
        assert [chat["messages"][-1].get("images") for chat in server.chats if chat] == [[ENCODED]]
        folder = blobs.folder_of(tmp_path / "live_image.fs")
        (file,) = folder.rglob("*.blob")  # what a killed commit left went with the pack
        assert not any(one.stat().st_mode & 0o077 for one in (folder, file))
        assert on_disk(tmp_path, _held) == ["m1"]


@pytest.mark.timeout(300)
def test_what_came_in_part_is_forgotten_with_the_daemon_and_begun_again(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        for offset, have in ((0, 1000), (1000, 0)):
            with daemon(tmp_path, ollama_host=server.host) as running, Peer(running.endpoint) as peer:
                part = base64.b64encode(PICTURE[offset : offset + 1000]).decode()
                assert peer.ask("upload", digest=DIGEST, bytes=len(PICTURE), offset=offset, data=part)["have"] == have
                running.kill()
