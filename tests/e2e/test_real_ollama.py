"""The daemon on a real Ollama with the embedded models: what it says is small, that it says it is what counts."""

from __future__ import annotations

from pathlib import Path

from tests.daemon import Peer, daemon

QUICK = {"num_predict": 48, "facets_limit": 2, "mission_attempts": 1}
STATES = ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]


def test_a_real_mission_and_one_that_was_taken_back(tmp_path: Path, ollama_host: str) -> None:
    with daemon(tmp_path, ollama_host=ollama_host, **QUICK) as running, Peer(running.endpoint) as peer:
        peer.send("submit", id="real", brief="Plan a birthday party for a cat lover on a budget", watch=True)
        replies = peer.until_result()
        end = replies[-1]
        assert end["state"] == "COMPLETE", end
        assert [reply["state"] for reply in replies if reply["type"] == "state"] == STATES
        result = end["result"]
        assert (result["persona"], result["facets"]) == ("BRICK", ["tamland_facet_", "rogues_gallery_facet_"])
        tokens = [reply for reply in replies if reply["type"] == "token"]
        assert {token["facet"] for token in tokens} == {"tamland_facet_", "rogues_gallery_facet_", None}
        heard = "".join(token["text"] for token in tokens if token["facet"] is None)
        assert result["text"] in heard, "what was streamed is what was answered (an answer may have been revised)"
        usage = result["usage"]
        assert usage["models"] == ["brick:embedded"]
        assert 4 <= usage["inferences"] <= 5  # plan, two facets, answer, perhaps a revision
        assert usage["prompt_tokens"] > 100
        assert 4 <= usage["answer_tokens"] <= 48 * usage["inferences"]

        peer.send("submit", id="back", brief="Tell me a long story", watch=True)
        while peer.reply()["type"] != "token":
            pass
        peer.send("cancel", id="back", ref="cancel")
        replies = [peer.reply()]
        while not {"result", "status"} <= {reply["type"] for reply in replies}:
            replies.append(peer.reply())
        end = next(reply for reply in replies if reply["type"] == "result")
        assert (end["state"], end["error"]["code"]) == ("FAILED", "cancelled")
        assert next(reply for reply in replies if reply["type"] == "status")["ref"] == "cancel"
        assert running.terminate() == 0
    assert running.noise == []
