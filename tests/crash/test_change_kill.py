"""kill -9 between any two steps from a proposal to what becomes of it: it is rehearsed and made, or refused, once, and paid for once."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.autotelic import changes, schema, trigger_missions
from batos.image import LivingImage, history
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer, user_text
from tests.support import daemon_child
from tests.support.crash import chats, keys_of, on_disk, prepare, provision, thinned
from tests.support.daemon import END_S, Daemon, Peer, daemon, provisioned

QUICK = {
    "autotelic": "on", "heartbeat_first_s": 3600, "senses_s": 0.05, "leash_s": 1e6, "crash_limit": 100, "rehearsal_least": 2,
    "rehearsal_missions": 3, "evidence_passages": 0, "remember": "off", "inference_concurrency": 2,
}  # fmt: skip
GOOD = {"kind": "facet", "target": "robin.gardener_facet_", "content": "Look at it as a gardener does.", "why": "it may help"}
BAD = {"kind": "meta_prompt", "target": "psm.SYNTHESIZING", "content": "Say nothing of $brief with $voices", "why": "it may help"}
BRIEFS = ("I feel stuck and I miss my friend", "I feel so lonely today", "I am afraid that I feel nothing")
REFUSING = ("before it is refused", "after it is refused")
IN_FLIGHT = QUICK["inference_concurrency"]


class Model(ScriptedOllama):
    """One that proposes what it is told to; its answers are all alike until the gardener is asked, and none without notes."""

    proposal: dict[str, str]

    def __enter__(self) -> Model:
        super().__enter__()
        provisioned(self)
        self.say(self._answer)
        return self

    def _answer(self, request: dict[str, Any]) -> str:
        asked, schema = user_text(request), request.get("format")
        if isinstance(schema, dict):
            return json.dumps(self.proposal) if "kind" in schema["properties"] else default_answer(request)
        if "Say nothing of" in asked:
            return "-"
        if "gardener" in asked:
            digests = (hashlib.sha256(f"{n} {asked}".encode()).digest()[:8] for n in range(12))
            return " ".join("".join(chr(97 + byte % 26) for byte in digest) for digest in digests) + "."
        return "Take one small step and look where it led."


@pytest.fixture(scope="module")
def server() -> Iterator[Model]:
    with Model() as server:
        yield server


async def fired(image: LivingImage) -> None:
    """A trigger fired, and the daemon was killed before its mission was accepted."""
    await image.system(trigger_missions.fire, "entropy_falls", "", "it has fallen.", 1.0)


@pytest.fixture(scope="module")
def home_of(server: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a daemon that has thought, and in which a trigger has fired."""
    folder = tmp_path_factory.mktemp("before")
    provision(folder, server)
    with daemon(folder, ollama_host=server.host, autotelic="off", evidence_passages=0, remember="off") as running:
        with Peer(running.endpoint) as peer:
            for n, brief in enumerate(BRIEFS):
                assert peer.ask("submit", id=f"m{n}", brief=brief)["type"] == "accepted"
            for n in range(len(BRIEFS)):
                assert peer.result(f"m{n}")["state"] == "COMPLETE"
        assert running.terminate() == 0
    prepare(folder, fired)
    return folder


@pytest.mark.parametrize("point", thinned(daemon_child.CHANGE_POINTS))
def test_killed_between_any_two_steps_of_a_change(home_of: Path, tmp_path: Path, server: Model, point: str) -> None:
    folder = Path(shutil.copytree(home_of, tmp_path / "data", ignore=shutil.ignore_patterns("*.lock")))
    refused = point in REFUSING
    server.proposal = BAD if refused else GOOD
    before = len(chats(server))
    number = "2" if "paid for is kept" in point or "mission is rehearsed" in point else "1"
    process = Daemon(folder, program=(daemon_child.__file__, point, number), ollama_host=server.host, **QUICK)
    assert process.ended(END_S) == -9, process.noise
    state, made = on_disk(folder, standing)
    assert made == (state == changes.PROMOTED), "all of it, or nothing"
    with daemon(folder, ollama_host=server.host, **QUICK) as running:
        if state == changes.PROPOSED:
            running.logged("refused" if refused else "promoted")
        assert running.terminate() == 0
    assert on_disk(folder, standing) == ((changes.REFUSED, 0) if refused else (changes.PROMOTED, 1))
    asked = Counter(keys_of(chats(server)[before:], server))
    twice = sum(times - 1 for times in asked.values())
    unkept = point == "before what was paid for is kept"  # this one is answered, and another one is under way in its place
    assert twice <= IN_FLIGHT + unkept, "only what was under way at the kill is asked for again"


def standing(root: Any) -> tuple[str, int]:
    """What the record of the one change says, and how often it was made; proposed where it is not recorded yet."""
    recorded = changes.listed(root)
    assert len(recorded) <= 1, "each proposal once"
    assert not schema.part_of(root, "rehearsals").paid or not recorded or recorded[0]["state"] in (changes.PROPOSED, changes.PROMOTED)
    robin = root["lobby"].robin
    made = sum(one["mission"] == "change:1" for one in history.revisions(root._p_jar.db(), robin._p_oid, 100))
    assert made == ("gardener_facet_" in robin._slots)
    return (recorded[0]["state"] if recorded else changes.PROPOSED), made
