"""The daemon as a user has it: a process, a socket, a service of models (scripted), signals."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zmq

from batos.testing import ScriptedOllama
from tests.support import forked
from tests.support.daemon import A_CYCLE, END_S, ROOT, Daemon, Peer, daemon, provisioned, until

STATES = ["IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE"]
FEELING = "I'm feeling really stuck on this project, and I don't know why I'm so unmotivated."
AN_AUDIT = 4  # of ALFRED's, who has one facet less


def asked(server: ScriptedOllama, words: str) -> int:
    return sum(words in message["content"] for chat in server.chats for message in chat["messages"] if message["role"] == "user")


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, *words], capture_output=True, text=True, timeout=END_S, cwd=ROOT, **more)


# --- missions


def test_a_mission_is_submitted_watched_and_answered(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.say("Rest is part of the work.", when="Write the answer to the request")
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.send("submit", id="m1", brief=FEELING, watch=True, ref="r")
        replies = peer.until_result()
        assert {reply["ref"] for reply in replies} == {"r"}
        assert replies[0] == {"type": "accepted", "id": "m1", "state": "ACCEPTED", "ref": "r"}
        states = [reply for reply in replies if reply["type"] == "state"]
        assert [state["state"] for state in states] == STATES
        assert states[0]["persona"] == "ROBIN"
        assert "speaks of feelings" in states[0]["why"]
        assert [state["elapsed_s"] for state in states] == sorted(state["elapsed_s"] for state in states)
        answer = "".join(reply["text"] for reply in replies if reply["type"] == "token" and reply["facet"] is None)
        end = replies[-1]
        assert end["state"] == "COMPLETE"
        assert end["result"]["text"] == answer == "Rest is part of the work."
        assert end["result"]["usage"]["inferences"] == A_CYCLE == len(scripted.chats)
        assert end["result"]["usage"]["models"] == ["robin:embedded"]
        assert peer.ask("status", id="m1")["state"] == "COMPLETE"
        listed = peer.ask("missions")["missions"]
        assert [(mission["id"], mission["state"]) for mission in listed] == [("m1", "COMPLETE")]
        shown = peer.ask("show", target="m1")
        assert json.loads(shown["slots"]["result"])["text"] == answer
        revisions = peer.ask("history", target="m1")["revisions"]
        assert revisions[0]["mission"] == "m1"
        assert "COMPLETE" in revisions[0]["note"]
        assert running.terminate() == 0
    assert "BAT OS" in running.report
    assert running.noise == []


def test_the_command_line_sends_a_mission_and_finds_it_again(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host) as running:
        connect = ("--connect", running.endpoint)
        words = [sys.executable, "-m", "batos", "send", FEELING, "--watch", "--id", "by-hand", *connect]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with forked.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}, **streams) as sending:
            said = ""
            while STATES[1] not in said:  # the watch is a request of its own: it has seen the first state
                line = sending.stdout.readline()
                assert line, sending.communicate()[1]
                said += line
            scripted.release()
            rest, errors = sending.communicate(timeout=END_S)
            said += rest
        assert sending.returncode == 0, errors
        for word in (*STATES[1:], "ROBIN", "speaks of feelings", "inferences"):
            assert word in said
        found = run("-m", "batos", "result", "by-hand", "--json", *connect)
        assert json.loads(found.stdout)["result"]["text"] in said


def test_the_same_id_is_one_mission_before_and_after_its_end_and_a_restart(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert peer.ask("submit", id="m1", brief=FEELING).get("duplicate") is None
        scripted.wait_for(count=1)
        again = peer.ask("submit", id="m1", brief=FEELING)
        assert (again["duplicate"], again["state"]) == (True, "DECOMPOSING")
        peer.send("submit", id="m1", brief=FEELING, watch=True, ref="late")
        assert peer.reply()["duplicate"] is True
        scripted.release()
        end = peer.until_result()[-1]
        again = peer.ask("submit", id="m1", brief=FEELING)
        assert (again["duplicate"], again["state"], again["result"]) == (True, "COMPLETE", end["result"])
        other = peer.ask("submit", id="m1", brief="Something else")
        assert (other["type"], other["code"], other["id"]) == ("error", "id_taken", "m1")
        assert running.terminate() == 0
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        again = peer.ask("submit", id="m1", brief=FEELING)
        assert (again["duplicate"], again["result"]) == (True, end["result"])
        peer.send("submit", id="m1", brief=FEELING, watch=True)
        assert [reply["type"] for reply in peer.until_result()] == ["accepted", "result"]
        assert peer.ask("info")["image"]["accepted"] == 1
    assert len(scripted.chats) == A_CYCLE


def test_what_one_client_submits_another_watches_and_cancels(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as one, Peer(running.endpoint) as other:
        one.ask("submit", id="m1", brief=FEELING)
        scripted.wait_for(count=1)
        watched = other.ask("watch", id="m1")
        assert (watched["type"], watched["state"], watched["persona"]) == ("status", "DECOMPOSING", "ROBIN")
        assert one.ask("cancel", id="m1")["error"]["code"] == "cancelled"
        end = other.until_result()[-1]
        assert (end["state"], end["error"]["code"]) == ("FAILED", "cancelled")
        scripted.wait_abandoned(1)  # the model was told to stop, too
        scripted.release()
        assert one.ask("submit", id="m2", brief=FEELING)["type"] == "accepted"
        assert one.result("m2")["state"] == "COMPLETE"


def test_a_message_to_an_object_is_a_mission(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("send", id="s1", target="robin", selector="synthesize_response_for_", args=[FEELING])
        answered = peer.result("s1")
        assert answered["result"]["persona"] == "ROBIN"
        assert FEELING[:20] in answered["result"]["value"]
        assert len(scripted.chats) == A_CYCLE
        peer.ask("send", id="s2", target="robin", selector="name")
        assert peer.result("s2")["result"]["value"] == "ROBIN"
        peer.ask("send", id="s3", target="robin", selector="dance_")
        assert peer.result("s3")["error"]["code"] == "method_refused", "what the model says is no method"
        assert peer.ask("send", id="s4", target="nobody", selector="name")["code"] == "unknown_target"
        refused = peer.ask("send", id="s5", target="robin", selector="think_", args=["only one"])
        assert (refused["code"], "(guidance, question)" in refused["message"]) == ("invalid", True)
        refused = peer.ask("send", id="s5", target="robin", selector="thikn_", args=["a", "b"])
        assert (refused["code"], "'think_'" in refused["message"]) == ("invalid", True)
        assert peer.ask("status", id="s5")["code"] == "unknown_mission", "nothing was accepted"
        assert peer.ask("status", id="s4")["code"] == "unknown_mission"


# --- stopping and starting


def test_sigterm_in_the_middle_and_the_next_start_finishes(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"ollama_host": scripted.host, "shutdown_s": 0.5, "concurrent_missions": 1}
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="waits", brief=FEELING)
        assert peer.result("waits")["state"] == "COMPLETE"
        scripted.hold()
        peer.ask("submit", id="runs", brief="Plan the garden")
        peer.ask("submit", id="queued", brief="Plan the kitchen")
        scripted.wait_for(count=A_CYCLE + 1)
        assert running.terminate() == 0  # what it has under way would never end
    assert running.noise == []
    scripted.release()
    before = len(scripted.chats)
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:
        for id in ("runs", "queued", "waits"):
            assert peer.result(id)["state"] == "COMPLETE"
            assert peer.ask("status", id=id)["attempts"] == 1
    assert before < len(scripted.chats)
    assert asked(scripted, FEELING) == A_CYCLE, "what was complete is not thought again"


def test_ctrl_c_while_missions_end_in_time_loses_nothing(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, shutdown_s=30) as running, Peer(running.endpoint) as peer:
        peer.send("submit", id="m1", brief=FEELING, watch=True)
        scripted.wait_for(count=1)
        running.process.send_signal(signal.SIGINT)
        peer.send("submit", id="too-late", brief=FEELING, ref="late")
        while (reply := peer.reply()).get("ref") != "late":
            pass
        if reply["type"] == "error":  # the signal was faster than the message
            assert reply["code"] == "busy"
        scripted.release()
        end = next(reply for reply in iter(peer.reply, None) if reply["type"] == "result" and reply["id"] == "m1")
        assert end["state"] == "COMPLETE", "what is under way may end, and its result leaves"
        assert running.ended() == 0


def test_audits_come_by_themselves_where_there_is_news_and_complete(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"autotelic": "on", "heartbeat_first_s": 0.05, "heartbeat_s": 0.05}
    with daemon(tmp_path, ollama_host=scripted.host, **settings) as running, Peer(running.endpoint) as peer:
        first = running.logged("accepted", origin="system")["mission"]
        end = peer.result(first)
        assert end["result"]["persona"] == "ALFRED"
        assert peer.ask("submit", id="m1", brief=FEELING)["type"] == "accepted"
        second = running.logged("accepted", origin="system")["mission"]
        assert second != first
        assert peer.result(second)["state"] == "COMPLETE"
        told = peer.ask("status", id=second)
        assert told["origin"] == "system"
        assert told["brief"].startswith("self_audit")
        assert running.terminate() == 0


def test_a_mission_is_rated(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"autotelic": "on", "heartbeat_first_s": 3600}
    with daemon(tmp_path, ollama_host=scripted.host, **settings) as running, Peer(running.endpoint) as peer:
        assert peer.ask("submit", id="m1", brief=FEELING)["type"] == "accepted"
        assert peer.result("m1")["state"] == "COMPLETE"
        told = peer.ask("rate", id="m1", rating=-1, why="no use")
        assert (told["type"], told["rating"]["rating"], told["rating"]["why"]) == ("status", -1, "no use")
        assert peer.ask("show", target="m1")["record"]["rating"]["why"] == "no use"
        assert peer.ask("rate", id="none", rating=1)["code"] == "unknown_mission"
        assert peer.ask("rate", id="m1", rating=2)["code"] == "invalid_request"
        assert running.terminate() == 0
    with daemon(tmp_path, ollama_host=scripted.host, **settings) as running, Peer(running.endpoint) as peer:
        assert peer.ask("status", id="m1")["rating"]["rating"] == -1


# --- when something goes wrong


def test_missions_wait_while_ollama_is_away(tmp_path: Path, scripted: ScriptedOllama) -> None:
    """None of their attempts is used up by it, and what has a deadline fails by it, with the cause."""
    with daemon(tmp_path, ollama_host=scripted.host, breaker_probe_s=0.05) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="before", brief=FEELING)
        assert peer.result("before")["state"] == "COMPLETE"
        scripted.stop()
        peer.ask("submit", id="waits", brief=FEELING)
        running.logged("ollama does not answer; what needs it waits", host=scripted.host)
        peer.ask("submit", id="hurries", brief=FEELING, deadline_s=6)
        error = peer.result("hurries")["error"]
        assert (error["code"], error["context"]["cause"]) == ("deadline", "unreachable")
        assert f"no Ollama answers: {scripted.host}" in error["message"]
        (host,) = peer.ask("info")["ollama"]["hosts"]
        assert (host["host"], host["answers"], host["outages"]) == (scripted.host, False, 1)
        assert peer.ask("status", id="waits")["state"] == "DECOMPOSING"
        scripted.start()
        assert peer.result("waits")["state"] == "COMPLETE"
        assert peer.ask("status", id="waits")["attempts"] == 1
        assert peer.ask("info")["ollama"]["hosts"][0]["answers"]


def test_missions_wait_for_an_ollama_that_goes_away_in_the_first_provisioning(tmp_path: Path) -> None:
    """And go on as soon as it is back, not after `provision_retry_s`."""
    with ScriptedOllama(("smollm2:embedded", "minilm:embedded")) as server:
        provisioned(server).fail("hang", times=1, path="/api/create")
        more = {"provision_retry_s": 3600, "breaker_probe_s": 0.05}
        with daemon(tmp_path, ollama_host=server.host, **more) as running, Peer(running.endpoint) as peer:
            server.wait_for("/api/create")
            server.stop()
            peer.ask("submit", id="waits", brief=FEELING)
            running.logged("ollama does not answer; what needs it waits", host=server.host)
            peer.ask("submit", id="hurries", brief=FEELING, deadline_s=6)
            error = peer.result("hurries")["error"]
            assert (error["code"], error["context"]["cause"]) == ("deadline", "unreachable")
            assert {(m["state"], m["cause"]) for m in peer.ask("models")["models"]} >= {("waiting", "unreachable")}
            server.start()
            assert peer.result("waits")["state"] == "COMPLETE"
            assert peer.ask("status", id="waits")["attempts"] == 1
            assert running.terminate() == 0
        assert running.noise == []


def test_missions_do_not_wait_for_ever(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"mission_attempts": 2, "outage_wait_s": 1, "breaker_probe_s": 0.05}
    with daemon(tmp_path, ollama_host=scripted.host, **settings) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="before", brief=FEELING)
        assert peer.result("before")["state"] == "COMPLETE"
        scripted.stop()
        peer.ask("submit", id="down", brief=FEELING)
        error = peer.result("down")["error"]
        assert error["code"] == "inference_failed"
        assert error["context"]["cause"] in ("unreachable", "breaker")
        assert scripted.host in error["message"]
        assert peer.ask("info")["missions"]["FAILED"] == 1
        scripted.start()
        peer.ask("submit", id="after", brief=FEELING)
        assert peer.result("after")["state"] == "COMPLETE"


def test_a_second_ollama_takes_over(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with (
        ScriptedOllama() as second,
        daemon(tmp_path, ollama_host=scripted.host, ollama_hosts=second.host) as running,
        Peer(running.endpoint) as peer,
    ):
        while {model["state"] for model in peer.ask("models")["models"]} - {"present", "created"}:
            pass
        for name in ("robin:embedded", "brick:embedded"):
            second.models[name] = scripted.models[name]
        scripted.fail("slow", times=None, when="Work on this part", seconds=0.3)
        for n in range(20):  # a host is asked only now and then which models it has
            peer.ask("submit", id=f"both-{n}", brief=FEELING)
            assert peer.result(f"both-{n}")["state"] == "COMPLETE"
            if second.chats:
                break
        assert len(second.chats) > 0, "of facets that think at once, not all think on the busy one"
        scripted.stop()
        peer.ask("submit", id="one", brief="Plan a birthday party for a cat lover on a budget")
        assert peer.result("one")["state"] == "COMPLETE"
        assert peer.ask("status", id="one")["attempts"] == 1
        hosts = {host["host"]: host for host in peer.ask("info")["ollama"]["hosts"]}
        assert list(hosts) == [scripted.host, second.host]
        assert all(host["residency"]["loads"] > 0 for host in hosts.values()), "each has a memory of its own"
        assert {model["host"] for model in peer.ask("models")["models"]} == set(hosts)
        assert hosts[second.host]["answers"]
        assert running.terminate() == 0
    assert running.noise == []


@pytest.mark.parametrize(("kind", "attempts"), [("cut", 2), ("error", 2), ("status_500", 1), ("status_503", 1), ("refuse", 1)])
def test_a_fault_of_the_service_is_mended(tmp_path: Path, scripted: ScriptedOllama, kind: Any, attempts: int) -> None:
    """At once where nothing had come of the answer, else with the mission's next attempt."""
    scripted.fail(kind, times=1)
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="m1", brief=FEELING)
        assert peer.result("m1")["state"] == "COMPLETE"
        assert peer.ask("status", id="m1")["attempts"] == attempts


def test_what_is_no_answer_fails_the_mission(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.fail("junk", times=1)
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="m1", brief=FEELING)
        assert peer.result("m1")["error"]["context"]["cause"] == "malformed"
        peer.ask("submit", id="m2", brief=FEELING)
        assert peer.result("m2")["state"] == "COMPLETE"


def test_no_room_for_a_model_is_told_and_what_can_run_runs(tmp_path: Path) -> None:
    with ScriptedOllama(("smollm2:embedded", "minilm:embedded", "brick:embedded")) as server:
        server.fail("full", times=None, path="/api/create", when=lambda request: "robin" in str(request.get("model")))
        with daemon(tmp_path, ollama_host=provisioned(server).host) as running, Peer(running.endpoint) as peer:
            peer.ask("submit", id="m1", brief=FEELING)
            error = peer.result("m1")["error"]
            assert (error["code"], error["context"]["cause"]) == ("provisioning_failed", "disk_full")
            assert "no space left on device" in error["message"]
            assert peer.ask("status", id="m1")["attempts"] == 1
            told = {model["name"]: model for model in peer.ask("models")["models"]}
            assert (told["robin:embedded"]["state"], told["robin:embedded"]["cause"]) == ("failed", "disk_full")
            assert running.logged("model cannot be had", model="robin:embedded")["cause"] == "disk_full"
            peer.ask("submit", id="m2", brief="Plan a birthday party for a cat lover on a budget")
            assert peer.result("m2")["result"]["persona"] == "BRICK"


def test_a_model_deleted_by_hand_comes_back(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="m1", brief=FEELING)
        assert peer.result("m1")["state"] == "COMPLETE"
        del scripted.models["robin:embedded"]
        peer.ask("submit", id="m2", brief=FEELING)
        assert peer.result("m2")["state"] == "COMPLETE"
        assert "robin:embedded" in scripted.models


def test_a_model_that_could_not_be_healed_is_tried_again(tmp_path: Path, scripted: ScriptedOllama) -> None:
    settings = {"ollama_host": scripted.host, "provision_retry_s": 1, "mission_attempts": 1}
    with daemon(tmp_path, **settings) as running, Peer(running.endpoint) as peer:

        def robins() -> int:
            """How often the model has been made; it may be made before the daemon says that it has started."""
            return sum(line["event"] == "model provisioned" and line["model"] == "robin:embedded" for line in list(running.log))

        until(robins)
        peer.ask("submit", id="m1", brief=FEELING)
        assert peer.result("m1")["state"] == "COMPLETE"
        scripted.fail("status_500", times=1, path="/api/create")
        del scripted.models["robin:embedded"]
        peer.ask("submit", id="m2", brief=FEELING)
        assert peer.result("m2")["error"]["code"] == "provisioning_failed"
        until(lambda: robins() == 2)
        peer.ask("submit", id="m3", brief=FEELING)
        assert peer.result("m3")["state"] == "COMPLETE"


def test_a_full_disk_refuses_missions_and_loses_none(tmp_path: Path, scripted: ScriptedOllama) -> None:
    """The image may not grow: nothing can be recorded, not even a failure. When there is room again, the daemon goes on."""
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host, disk_retry_s=0.2) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="m1", brief=FEELING)
        scripted.wait_for(count=1)
        pid, size, room = running.process.pid, (tmp_path / "live_image.fs").stat().st_size, resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, room))
        scripted.release()
        running.logged("waits_for_room", mission="m1")
        refused = peer.ask("submit", id="m2", brief=FEELING)
        assert (refused["type"], refused["code"], refused["context"]) == ("error", "image", {"cause": "disk_full"})
        assert "make room" in peer.ask("info")["image"]["trouble"]
        assert peer.ask("show", target="robin")["slots"]["name"] == "ROBIN"
        assert peer.ask("status", id="m1")["state"] == "DECOMPOSING"
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, room))
        failed = peer.result("m1")
        assert (failed["state"], failed["error"]["code"]) == ("FAILED", "image")
        assert peer.ask("submit", id="m2", brief=FEELING)["type"] == "accepted"
        assert peer.result("m2")["state"] == "COMPLETE"
        assert peer.ask("info")["image"]["trouble"] == ""
        scripted.hold()
        asked = len(scripted.chats)
        peer.ask("submit", id="m3", brief=FEELING)
        scripted.wait_for(count=asked + 1)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, ((tmp_path / "live_image.fs").stat().st_size, room))
        scripted.release()
        running.logged("waits_for_room", mission="m3")
        assert running.terminate() == 0
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert peer.result("m3")["state"] == "COMPLETE"


def test_wrong_input_is_answered_and_touches_nothing(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert peer.ask("submit", id="m1", brief="  ")["code"] == "invalid_request"
        assert peer.ask("submit", id="m1", brief="x" * (2 * 1024 * 1024))["code"] == "too_large"
        refused = peer.ask("submit", id="m1", brief="Hello", persona="penguin")
        assert refused["code"] == "unknown_persona"
        assert "robin, brick, babs, alfred" in refused["message"]
        for payload in (b"", b"no json", b'{"op": "submit"', b"\xff\xfe", b"[]", b"[" * 100_000):
            peer.socket.send(payload)
            assert peer.reply()["type"] == "error", payload
        assert peer.ask("dance")["code"] == "unknown_op"
        assert peer.ask("info", extra=1)["code"] == "unknown_field"
        for op in ("status", "result", "watch", "cancel"):
            assert peer.ask(op, id="m1")["code"] == "unknown_mission"
        assert peer.ask("info")["image"]["accepted"] == 0
        with Peer(running.endpoint, zmq.REQ) as req:
            assert req.ask("submit", id="m1", brief=FEELING)["type"] == "accepted"
            assert req.result("m1")["state"] == "COMPLETE"


def test_a_second_daemon_on_the_image_is_refused(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        second = run("-m", "batos", "run", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:*")
        assert second.returncode == 4
        assert f"process {running.process.pid}" in second.stderr
        assert "Traceback" not in second.stderr
        peer.ask("submit", id="m1", brief=FEELING)
        assert peer.result("m1")["state"] == "COMPLETE"


def test_a_taken_port_is_named(tmp_path: Path, scripted: ScriptedOllama) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        done = run("-m", "batos", "run", "--data", str(tmp_path), "--listen", endpoint, "--set", f"ollama_host={scripted.host}")
    assert done.returncode == 4
    assert endpoint in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == [], "it was refused before anything was made"


def test_a_taken_port_leaves_recovered_missions_as_they_were(tmp_path: Path, scripted: ScriptedOllama) -> None:
    scripted.hold()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        peer.ask("submit", id="m1", brief=FEELING)
        scripted.wait_for(count=1)
        running.kill()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        endpoint = f"tcp://127.0.0.1:{holder.getsockname()[1]}"
        assert Daemon(tmp_path, listen=endpoint, ollama_host=scripted.host).ended() == 4
    scripted.release()
    with daemon(tmp_path, ollama_host=scripted.host) as running, Peer(running.endpoint) as peer:
        assert "index_renewed" in [entry.get("event") for entry in running.log], "what a kill leaves behind is told in our words"
        assert running.noise == []
        assert peer.result("m1")["state"] == "COMPLETE"
        assert peer.ask("status", id="m1")["attempts"] == 2


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broken.toml", "this is no toml", "not valid TOML"),
        ("unknown.toml", "heartbeet_s = 5", "autonomy.heartbeat_s"),
        ("wrong.toml", "missions.concurrent = 0", "missions.concurrent"),
        ("missing.toml", None, "missing.toml"),
    ],
)
def test_settings_that_cannot_be_read(tmp_path: Path, name: str, text: str | None, words: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    done = run("-m", "batos", "run", "--data", str(tmp_path / "data"), "--config", str(path))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("setting", ["codex=/no/such/codex.toml", "profile=nosuch", "image=nonsense://x"])
def test_settings_that_name_what_is_not_there(tmp_path: Path, setting: str) -> None:
    done = run("-m", "batos", "run", "--data", str(tmp_path), "--listen", "tcp://127.0.0.1:*", "--set", setting)
    assert done.returncode == 2
    assert setting.partition("=")[2].split(":")[0] in done.stderr
    assert "Traceback" not in done.stderr
