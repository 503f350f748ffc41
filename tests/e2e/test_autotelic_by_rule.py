"""An unattended run where the model has bad ideas only: a good change follows from the measurements by rule. See `test_autotelic.py`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from batos.autotelic import changes
from batos.mind.codex import load_codex
from batos.testing import ScriptedOllama
from batos.testing.script import default_answer, user_text
from tests.support.crash import on_disk
from tests.support.daemon import Daemon, Peer, daemon, provisioned

UNATTENDED = {
    "autotelic": "on", "heartbeat_first_s": 0.2, "heartbeat_s": 0.5, "audit_missions": 1000, "senses_s": 0.2, "remember": "off",
    "evidence_passages": 0, "mission_attempts": 1, "cem_window": 4, "cem_baseline": 8, "trigger_failures": 10_000,
    "trigger_personas": 1_000_000, "trigger_still": 0, "rehearsal_missions": 4, "rehearsal_least": 3, "leash_s": 3600,
    "leash_missions": 4, "routing_s": 0.05,
}  # fmt: skip
HARMFUL = {"kind": "meta_prompt", "target": "psm.SYNTHESIZING", "content": "Say nothing of $brief with $voices", "why": "it is shorter"}
LIVELY, RUT = 14, 12
BRIEF = "I feel stuck and I miss my friend, for the {n}th time"
CODEX = load_codex()
OTHERS = {
    selector.removesuffix("_facet_").replace("_", " "): intent
    for name, persona in CODEX.personas.items()
    if name != "robin"
    for selector, intent in persona.protocols.items()
    if selector.endswith("_facet_")
}
"""How other personas look at things: as the notes name it, and as facets are guided."""


class Model(ScriptedOllama):
    """Proposes harm. Its answers for ROBIN are lively, then all alike; lively again where another's way of thinking is asked, then bad."""

    lively, sour = True, False

    def answered(self, request: dict[str, Any]) -> str:
        asked, schema = user_text(request), request.get("format")
        if isinstance(schema, dict):
            return json.dumps(HARMFUL) if "kind" in schema["properties"] else default_answer(request)
        if "Say nothing of" in asked:
            return "-"
        woven = any(f"\n{label}: " in asked for label in OTHERS)
        lent = woven or any(intent in asked for intent in OTHERS.values())
        if self.sour and woven and request["messages"][0]["content"].startswith("You are ROBIN"):
            return "-"
        return varied(asked) if self.lively or lent else "Take one small step and look where it led."


def varied(text: str) -> str:
    digests = (hashlib.sha256(f"{n} {text}".encode()).digest()[:8] for n in range(12))
    return " ".join("".join(chr(97 + byte % 26) for byte in digest) for digest in digests) + "."


def think(peer: Peer, first: int, count: int) -> list[str]:
    """Missions of a user's, one after the other; their states."""
    states = []
    for n in range(first, first + count):
        assert peer.ask("submit", id=f"m{n}", brief=BRIEF.format(n=n))["type"] == "accepted"
        states.append(peer.result(f"m{n}")["state"])
    return states


def test_a_rut_is_noticed_and_left_harm_is_refused_and_undone_without_anyone_asking(tmp_path: Path) -> None:
    with Model() as server:
        provisioned(server)
        server.say(server.answered)
        with daemon(tmp_path, ollama_host=server.host, **UNATTENDED) as running, Peer(running.endpoint) as peer:
            assert set(think(peer, 0, LIVELY)) == {"COMPLETE"}
            server.lively = False
            assert set(think(peer, LIVELY, RUT)) == {"COMPLETE"}
            running.logged("trigger_fired", trigger="entropy_falls")
            running.logged("proposed", source=changes.MODEL)
            refused = running.logged("refused")
            assert (refused["kind"], refused["target"]) == ("meta_prompt", "psm.SYNTHESIZING")
            assert "missions that fail: 0 before, 4 with it" in refused["why"]
            assert promoted(running)["target"].startswith("robin.")
            assert set(think(peer, LIVELY + RUT, 2)) == {"COMPLETE"}
            server.sour = True
            after = LIVELY + RUT + 2
            # it is taken back at a look, if more have failed since the one before: a look may come after any of them
            while not any(one["event"] == "change_taken_back" for one in running.log):
                think(peer, after, 1)
                after += 1
            running.logged("change_taken_back", state=changes.UNDONE)
            server.sour = False
            assert set(think(peer, after, 2)) == {"COMPLETE"}
            told = {one["number"]: one for one in peer.ask("changes")["changes"]}
            assert running.terminate() == 0
    first, second = told[1], told[2]
    assert (first["state"], first["source"]) == (changes.REFUSED, changes.MODEL)
    assert (second["state"], second["source"], second["kind"]) == (changes.UNDONE, changes.MEASUREMENT, "facet")
    assert "worse since it was made" in second["reason"]
    assert on_disk(tmp_path, lambda root: second["target"].partition(".")[2] in root["lobby"].robin._slots) is False


def promoted(running: Daemon) -> dict[str, Any]:
    """The next promotion, after a proposal that follows from the measurement."""
    running.logged("proposed", source=changes.MEASUREMENT)
    return running.logged("promoted", kind="facet")
