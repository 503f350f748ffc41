"""A message that nobody understands, as a user sends it: written, kept and brought back; and a real small model, which fails cleanly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import ROOT, Peer, daemon, provisioned

BAD = "```python\ndef sages_koan_protocol_(self, text):\n    import os\n    return os.getcwd()\n```"
GOOD = (
    "Here is the method:\n```python\ndef sages_koan_protocol_(self, text):\n"
    "    self.last_koan = text\n    return 'Who is it that says: ' + text + '?'\n```"
)


def batos(endpoint: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command line, as a user types it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_"))}
    return forked.run(
        [sys.executable, "-m", "batos", *words, "--connect", endpoint],
        capture_output=True, text=True, timeout=60, env={**environment, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip


def writes(server: ScriptedOllama) -> list[dict[str, Any]]:
    """The requests for a method that came."""
    return [chat for chat in server.chats if chat and chat["messages"][0]["content"].startswith("You write one method")]


def test_the_sages_koan(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(BAD, when="You write one method", times=1)
        server.say(GOOD, when="You write one method")
        message = ("send-to", "robin", "sages_koan_protocol_", '"I am stuck"', "--watch")
        with daemon(tmp_path, ollama_host=server.host) as running:
            done = batos(running.endpoint, *message)
            assert done.returncode == 0, done.stderr
            assert "Who is it that says: I am stuck?" in done.stdout
            assert len(writes(server)) == 2, "the first was refused, and the reason went back"
            assert "It cannot be kept:" in writes(server)[1]["messages"][1]["content"]
            shown = batos(running.endpoint, "method", "robin", "sages_koan_protocol_")
            assert "version 1" in shown.stdout
            assert "self._p_changed = True" in shown.stdout, "the missing line was mended without the model"
            assert "writes: last_koan" in shown.stdout
            running.kill()
        with daemon(tmp_path, ollama_host=server.host) as running:
            asked = len(server.chats)
            done = batos(running.endpoint, *message)
            assert "Who is it that says: I am stuck?" in done.stdout
            assert len(server.chats) == asked, "no model was asked"
            with Peer(running.endpoint) as peer:
                slots = peer.ask("show", target="robin")["slots"]
                assert slots["last_koan"] == "I am stuck"
                assert slots["sages_koan_protocol_"]["version"] == 1
            assert batos(running.endpoint, "revert", "robin", "sages_koan_protocol_", "--watch").returncode == 0
            with Peer(running.endpoint) as peer:
                assert "intent" in peer.ask("show", target="robin")["slots"]["sages_koan_protocol_"]
            assert running.terminate() == 0


def test_taught_by_examples(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say("def double_(self, number):\n    return number ** 2\n", when="You write one method", times=1)
        server.say("def double_(self, number):\n    return number * 2\n", when="You write one method")
        with daemon(tmp_path, ollama_host=server.host) as running:
            done = batos(
                running.endpoint, "teach", "brick", "double_", "-e", "[2] -> 4", "-e", "3 -> 6", "--intent", "twice a number", "--watch"
            )
            assert done.returncode == 0, done.stderr
            assert len(writes(server)) == 2
            assert "double_(3) answered 9 and not 6" in writes(server)[1]["messages"][1]["content"]
            assert "14" in batos(running.endpoint, "send-to", "brick", "double_", "7", "--watch").stdout
            assert batos(running.endpoint, "teach", "brick", "double_", "-e", "nonsense").returncode == 2
            assert batos(running.endpoint, "method", "brick", "nothing_").returncode == 4


def test_what_changes_more_than_its_receiver_is_refused_asked_about_granted_and_taken_back(tmp_path: Path) -> None:
    settle = "def settle_(self):\n    return self.revert_('double_', 0)['version']\n"
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(settle, when="Write: def settle_")
        server.say("def double_(self, number):\n    return number * 2\n", when="You write one method")
        with daemon(tmp_path, ollama_host=server.host) as running:

            def say(*words: str) -> subprocess.CompletedProcess[str]:
                return batos(running.endpoint, *words)

            assert say("teach", "brick", "double_", "-e", "[2] -> 4", "--watch").returncode == 0
            done = say("teach", "brick", "settle_", "-e", "-> 0", "--watch")
            assert done.returncode == 0, done.stderr
            assert "14" in say("send-to", "brick", "double_", "7", "--watch").stdout, "the trial reverted nothing"
            refused = say("send-to", "brick", "settle_", "--watch")
            assert refused.returncode == 1
            assert "batos grant brick settle_ revert_" in refused.stderr + refused.stdout
            assert "no grant for revert_" in say("methods", "brick").stdout
            assert say("send-to", "brick", "settle_", "--may-ask", "--id", "asks").returncode == 0
            with Peer(running.endpoint) as peer:
                peer.send("watch", id="asks")
                while (event := peer.reply()).get("state") != "NEEDS_INPUT":
                    assert event["type"] != "result", event
                assert 'settle_ of brick send brick revert_("double_", 0)?' in str(peer.ask("status", id="asks")["questions"])
                peer.send("answer", id="asks", text="no")
                assert peer.until_result()[-1]["error"]["code"] == "grant_needed"
            assert say("grant", "brick", "settle_", "forget", "--watch").returncode == 1
            assert say("grant", "brick", "settle_", "revert_", "--id", "g1", "--watch").returncode == 0
            shown = say("method", "brick", "settle_").stdout
            assert "needs grant: revert_" in shown
            assert "granted: revert_" in shown
            assert say("undo", "g1", "--yes").returncode == 0
            assert say("send-to", "brick", "settle_", "--watch").returncode == 1
            assert say("undo", "g1", "--redo", "--yes").returncode == 0
            running.kill()
        with daemon(tmp_path, ollama_host=server.host) as running:
            assert say("send-to", "brick", "settle_", "--watch").returncode == 0
            assert say("grant", "brick", "settle_", "revert_", "--revoke", "--watch").returncode == 0
            assert "granted" not in say("method", "brick", "settle_").stdout
            assert running.terminate() == 0


@pytest.mark.long
def test_a_real_small_model_fails_cleanly_and_is_remembered(tmp_path: Path, ollama_host: str) -> None:
    with daemon(tmp_path, ollama_host=ollama_host, num_predict=96, synthesis_tries=2) as running, Peer(running.endpoint) as peer:
        peer.send("send", id="m1", target="brick", selector="reverse_words_", args=["one two three"], watch=True)
        end = peer.until_result()[-1]
        if end["state"] == "FAILED":
            assert end["error"]["code"] in ("method_refused", "covenant_violation", "budget_spent"), end
            found = peer.ask("failures", selector="reverse_words_")["failures"]
            assert found
            if end["error"]["code"] != "budget_spent":
                assert "def " in found[0]["context"]["method"]["source"] or found[0]["context"]["method"]["reasons"]
        record = peer.ask("show", target="m1")["record"]
        assert record["inferences"][0]["part"] == "reverse_words_"
        peer.send("send", id="m2", target="robin", selector="sage_facet_", args=["What is a river?"])
        assert peer.reply()["type"] == "accepted"
        end = peer.result("m2")
        assert end["state"] == "COMPLETE", end
        assert end["result"]["text"].strip()
        assert running.terminate() == 0


def test_what_was_taught_answers_a_brief_and_a_slip_is_refused(tmp_path: Path) -> None:
    with ScriptedOllama() as server:
        provisioned(server)
        server.say("def celsius_(self, number):\n    return (number - 32) * 5 / 9\n", when="def celsius_")
        server.say("def frobnicate_(self, number):\n    return number * 7\n", when="def frobnicate_")
        with daemon(tmp_path, ollama_host=server.host) as running:

            def say(*words: str) -> subprocess.CompletedProcess[str]:
                return batos(running.endpoint, *words)

            taught = say("teach", "brick", "celsius_", "-e", "[212] -> 100.0", "--intent", "Fahrenheit to Celsius", "--watch")
            assert taught.returncode == 0, taught.stderr
            asked = len(server.chats)
            done = say("send", "Convert 50 Fahrenheit to Celsius", "--watch")
            assert "10.0" in done.stdout
            assert "answered by celsius_(50)" in done.stdout + done.stderr
            assert len(server.chats) == asked, "no model was asked"
            assert "-40.0" in say("send-to", "brick", "celsius_", "-40", "--watch").stdout
            slip = say("send-to", "brick", "celcius_", "50", "--watch")
            assert slip.returncode != 0
            assert "'celsius_'" in slip.stderr
            unsure = say("send-to", "brick", "frobnicate_", "3", "--id", "f1", "--watch")
            assert "21" in unsure.stdout
            assert "not sure: no user said what frobnicate_ is for" in unsure.stdout + unsure.stderr
            assert say("method", "brick", "frobnicate_").returncode == 4
            assert say("rate", "f1", "+1").returncode == 0
            assert "version 1" in say("method", "brick", "frobnicate_").stdout
            assert running.terminate() == 0
