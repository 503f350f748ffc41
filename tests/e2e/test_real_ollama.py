"""The daemon on a real Ollama with the embedded models: what it says is small, that it says it is what counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batos.bridge.profiles import load_profile
from batos.image import journal
from batos.image.storage import open_database
from batos.image.unit_of_work import snapshot
from tests.support.daemon import Peer, daemon

QUICK = {"num_predict": 48, "facets_limit": 2, "mission_attempts": 1, "depth": "facets", "flavour": "full"}
STATES = ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]


@pytest.mark.long
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
        assert 4 <= usage["inferences"] <= 7  # plan (asked for again up to twice), two facets, answer, perhaps a revision
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


def test_a_first_mission_on_a_small_model_is_one_inference_in_nobodys_voice(tmp_path: Path, ollama_host: str) -> None:
    """All states are passed, and the first token comes with the one inference that there is."""
    with daemon(tmp_path, ollama_host=ollama_host) as running, Peer(running.endpoint) as peer:
        peer.send("submit", id="first", brief="What is the capital of Australia?", watch=True)
        replies = peer.until_result()
        result = replies[-1]["result"]
        assert [reply["state"] for reply in replies if reply["type"] == "state"] == STATES
        assert (result["depth"], result["usage"]["inferences"], result["usage"]["models"]) == ("direct", 1, ["smollm2:embedded"])
        heard = "".join(reply["text"] for reply in replies if reply["type"] == "token")
        assert heard.strip() == result["text"]
        assert peer.ask("show", target="first")["record"]["thought"]["flavour"] == "off"
        assert running.terminate() == 0


@pytest.mark.parametrize(
    "words",
    [
        "यह एक लंबा पाठ है जिसमें कई वाक्य हैं। ",
        pytest.param("花园里有许多苹果树，每棵树秋天都会结果。", marks=pytest.mark.long),
        pytest.param("🍎🌳🚀👩‍👩‍👧‍👦🇩🇪 ", marks=pytest.mark.long),
    ],
    ids=["hindi", "chinese", "emoji"],
)
def test_a_conversation_longer_than_the_window_is_shortened_and_says_so(tmp_path: Path, ollama_host: str, words: str) -> None:
    """Such texts take more than a token a character, which only Ollama's refusal tells."""
    window, question = 512, "What is the capital of France?"
    said = (words * 300)[:300]
    with (
        daemon(tmp_path, ollama_host=ollama_host, num_ctx=window, num_predict=16, depth="direct") as running,
        Peer(running.endpoint) as peer,
    ):
        context: dict[str, str] = {}
        for n in range(2):
            peer.send("submit", id=f"t{n}", brief=f"{said} {n}. {question}", watch=True, **context)
            end = peer.until_result()[-1]
            assert end["state"] == "COMPLETE", end
            context = {"context": f"t{n}"}
        record, told = peer.ask("show", target="t1")["record"], peer.ask("replay", id="t1", prompts=True)
        assert max(one["prompt_tokens"] for one in record["inferences"]) < window
        assert end["result"]["left_out"]["conversation"] > 0
        assert record["thought"]["left_out"] == end["result"]["left_out"]
        assert told["outcome"] == "same"
        for asked in told["prompts"]:
            assert f"1. {question}" in asked["user"]
            assert "left out" in json.dumps([asked.get("turns"), asked["user"]], ensure_ascii=False)
        assert running.terminate() == 0


@pytest.mark.parametrize("depth", ["direct", pytest.param("facets", marks=pytest.mark.long)])
def test_a_long_answer_goes_on_after_a_kill(tmp_path: Path, ollama_host: str, depth: str) -> None:
    """At 80 % of the longest answer of the profile; with all settings as they are not more than a quarter is generated again."""
    profile, given = load_profile("embedded"), {"ollama_host": ollama_host, "facets_limit": 1, "depth": depth}
    limit = {**profile.options, **(profile.direct if depth == "direct" else {})}["num_predict"]
    ids = (f"long-{n}" for n in range(40))  # each has a seed of its own, and not every answer is long enough
    kept_texts: list[tuple[str, int]] = []
    while not kept_texts:  # an answer that had just ended when the kill came has nothing half done
        with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
            heard, reply = 0, {"type": "result"}
            while reply["type"] == "result":
                id = next(ids)
                peer.send("submit", id=id, brief="Tell me the long story of a lighthouse keeper and her cat", watch=True)
                heard, reply = 0, peer.reply()
                while heard < limit * 8 // 10 and reply["type"] != "result":
                    reply = peer.reply()
                    heard += reply["pieces"] if reply["type"] == "token" and reply["facet"] is None else 0
            running.kill()
        db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=400, pool_size=7, read_only=True)
        with snapshot(db) as root:
            kept_texts = list(journal.load_partials(root, id).values())
        db.close()
    ((text, kept),) = kept_texts
    with daemon(tmp_path, **given) as running, Peer(running.endpoint) as peer:
        end = peer.result(id)
        assert end["state"] == "COMPLETE", end
        assert end["result"]["text"].startswith(text.strip())
        assert (
            end["result"]["usage"]["replayed"] >= {"direct": 0, "facets": 2}[depth]
        )  # the plan, however often it was asked for, and the facet
        assert running.terminate() == 0
    db = open_database(f"file://{tmp_path / 'live_image.fs'}", cache_size=400, pool_size=7, read_only=True)
    with snapshot(db) as root:
        answer = next(entry for entry in journal.load(root, id) if entry.text.startswith(text))
    db.close()
    again = max(0, heard - kept)
    print(f"heard {heard} of {answer.answer_tokens} tokens at the kill, kept {kept}: {again} generated again, {again / heard:.0%} of them")
    # What comes behind what was kept is drawn anew, and may end before what was heard did.
    assert answer.answer_tokens >= kept, "what was kept counts as what it took"
    assert again <= heard // 4


def test_the_worked_example_of_the_codex(tmp_path: Path, ollama_host: str) -> None:
    """Feeling and "why" choose ROBIN; his facets speak, each for its part; the record says who said what."""
    brief = "I'm feeling really stuck on this project, and I don't know why I'm so unmotivated."
    with (
        daemon(tmp_path, ollama_host=ollama_host, num_predict=48, depth="facets", flavour="full") as running,
        Peer(running.endpoint) as peer,
    ):
        peer.send("submit", id="stuck", brief=brief, watch=True)
        end = peer.until_result()[-1]
        assert end["state"] == "COMPLETE", end
        assert end["result"]["persona"] == "ROBIN"
        assert "feelings" in end["result"]["why"]
        record = peer.ask("show", target="stuck")["record"]
        thought = record["thought"]
        assert (thought["persona"], thought["state"], thought["cycles"]) == ("ROBIN", "COMPLETE", [])
        spoken = {part["part"] for part in thought["plan"] if part.get("said")}
        assert spoken
        assert spoken <= {"sage_facet_", "still_point_facet_", "plain_facet_"}
        assert set(thought["woven_from"]) <= spoken | {None}
        asked = [(i["state"], i["part"]) for i in record["inferences"]]
        assert ("DECOMPOSING", "plan") in asked
        assert {part for state, part in asked if state == "DELEGATING"} == {"sage_facet_", "still_point_facet_", "plain_facet_"}
        assert record["cost"][0]["answer_tokens"] > 0
