"""The command line, against a real socket with scripted replies behind it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import typer

from batos.cli import app, client, main
from batos.cli.app import GROUPS, MODULES
from batos.cli.mission_view import sources
from batos.cli.missions import value_of
from batos.cli.output import ago, clean, one_line, size
from batos.cli.process import with_verb
from batos.errors import AttemptsExhausted, Busy, UnknownMission, UnknownPersona, UnknownTarget
from tests.support import forked
from tests.support.cli import Script, batos, daemon

ROOT = Path(__file__).parents[2]
RESULT = {
    "text": "Cake, shaped like a cat.",
    "value": None,
    "persona": "BABS",
    "why": "asks to plan",
    "usage": {"inferences": 5, "replayed": 1, "prompt_tokens": 900, "answer_tokens": 300, "model_ms": 7400.0},
}
ACCEPTED = {"type": "accepted", "state": "ACCEPTED"}
EVENTS = [
    {"type": "status", "state": "ACCEPTED"},
    {"type": "state", "state": "IDLE", "persona": "BABS", "why": "asks to plan", "elapsed_s": 0.0},
    {"type": "state", "state": "DECOMPOSING", "persona": "BABS", "elapsed_s": 0.01},
    {"type": "state", "state": "DELEGATING", "persona": "BABS", "elapsed_s": 1.2},
    {"type": "token", "state": "DELEGATING", "facet": "sage", "text": "not for the answer"},
    {"type": "state", "state": "SYNTHESIZING", "persona": "BABS", "elapsed_s": 3.0},
    {"type": "token", "state": "SYNTHESIZING", "facet": None, "text": "Cake, "},
    {"type": "token", "state": "SYNTHESIZING", "facet": None, "text": "shaped like a cat."},
    {"type": "state", "state": "COMPLETE", "persona": "BABS", "elapsed_s": 5.5},
    {"type": "result", "state": "COMPLETE", "persona": "BABS", "elapsed_s": 5.5, "result": RESULT},
]
FAILED = {"type": "result", "state": "FAILED", "error": {"code": "attempts_exhausted", "message": "three attempts"}}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file and no variable of the machine reaches a test."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("BATOS_") or n in ("OLLAMA_HOST", "NO_COLOR", "FORCE_COLOR")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for child processes, which start in another folder


# --- words and flags


@pytest.mark.parametrize(
    ("given", "run"),
    [
        ([], ["run"]),
        (["--data", "x"], ["run", "--data", "x"]),
        (["--data=x", "--listen", "a", "--listen", "b"], ["run", "--data=x", "--listen", "a", "--listen", "b"]),
        (["--help"], ["--help"]),
        (["--version"], ["--version"]),
        (["send", "x"], ["send", "x"]),
        (["no-such-verb"], ["no-such-verb"]),
        (["--json", "missions", "--limit", "1"], ["missions", "--limit", "1", "--json"]),
        (["--connect", "x", "--json", "tools", "list"], ["tools", "list", "--connect", "x", "--json"]),
        (["--connect=x", "send-to", "a", "--", "-5"], ["send-to", "a", "--connect=x", "--", "-5"]),
        (["--json", "--help"], ["dashboard", "--json", "--help"]),
        (["--connect", "x"], ["dashboard", "--connect", "x"]),
        (["--data"], ["run", "--data"]),
    ],
)
def test_without_a_verb_it_is_run(given: list[str], run: list[str]) -> None:
    assert with_verb(given, "dashboard" if given else "run") == run


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("batos ")
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    verbs = [
        "run",
        "send",
        "send-to",
        "missions",
        "result",
        "status",
        "watch",
        "cancel",
        "info",
        "models",
        "personas",
        "show",
        "history",
        "doctor",
        "config",
    ]
    assert all(verb in out for verb in verbs)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["sned", "x"], "'send'"),
        (["send", "x", "--perona", "robin"], "--persona"),
        (["run", "--set", "heartbeet_s=3"], "did you mean 'autonomy.heartbeat_s'"),
        (["config", "profil"], "did you mean 'inference.profile'"),
        (["missions", "--state", "compleet"], "did you mean 'COMPLETE'"),
        (["send-to", "robin", "x", "--arg", "novalue"], "NAME=VALUE"),
        (["send-to", "robin", "x", "--arg", "a=1", "--arg", "a=2"], "--arg a is given twice: 1 and 2"),
        (["keys", "list", "anna"], "list takes no NAME, got 'anna'"),
        (["run", "--set", "novalue"], "NAME=VALUE"),
        (["run", "--set", "heartbeat_s=soon"], "heartbeat_s"),
        (["run", "--config", "absent.toml"], "absent.toml"),
        (["missions", "--limit", "0"], "limit"),
        (["send"], "BRIEF"),
        (["What is 2+2?"], "'What is 2+2?' is no verb; a mission is sent by: batos send 'What is 2+2?'"),
        (["run", "why", "not"], "options only; a mission is sent by: batos send 'why not'"),
        (["info", "--connect", ""], "'' names no endpoint"),
        (["personas", "--accept", ""], "'' names no persona"),
        (["teach", "brick", "foo_", "-e", "[1] -> "], "an empty text is written"),
    ],
)
def test_wrong_usage_is_2_and_helps(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert hint in capsys.readouterr().err


def test_a_misspelt_key_in_the_settings_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "batos.toml").write_text("heartbeet_s = 3\n")
    assert main(["config"]) == 2
    err = capsys.readouterr().err
    assert "did you mean 'autonomy.heartbeat_s'" in err
    assert "batos.toml" in err


@pytest.mark.parametrize(
    ("word", "value"), [("3", 3), ("[1, 2]", [1, 2]), ("true", True), ("a b", "a b"), ('"3"', "3"), ("", ""), ("{oops", "{oops")]
)
def test_arguments_are_json_where_they_are(word: str, value: Any) -> None:
    assert value_of(word) == value


# --- nobody there, refused


@pytest.mark.parametrize(
    "words", [["info"], ["send", "x"], ["send", "x", "--watch"], ["missions"], ["result", "m"], ["watch", "m"], ["show", "robin"]]
)
def test_no_daemon_is_3_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with daemon({}) as gone:
        pass
    assert main([*words, "--connect", gone.endpoint]) == 3
    err = capsys.readouterr().err
    assert "no_daemon" in err
    assert "batos run" in err


def test_no_daemon_behind_an_ipc_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--connect", f"ipc://{tmp_path}/none.sock"]) == 3
    assert "no_daemon" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:99999"])
def test_an_endpoint_that_is_none_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--connect", address]) == 4
    assert capsys.readouterr().err.startswith("endpoint: no endpoint: ")


def test_ctrl_c_ends_a_wait_at_once_whichever_thread_takes_the_signal() -> None:
    main_thread = Path(f"/proc/self/task/{threading.get_native_id()}/stat")
    begun, ended = threading.Event(), threading.Event()

    def press() -> None:
        begun.wait(20)
        while main_thread.read_text().rpartition(")")[2].split()[0] != "S":  # it still runs, and would see the signal by itself
            ended.wait(0.001)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    async def wait() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    user = threading.Thread(target=press)
    user.start()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        app.run_async(wait())
    user.join()
    assert ended.is_set()
    assert signal.getsignal(signal.SIGINT) is before


def test_errors_as_documents(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"submit": Busy("the queue is full")}, "send", "x", "--json")
    assert code == 4
    assert json.loads(capsys.readouterr().out) == {"type": "error", "code": "busy", "message": "the queue is full"}


def test_a_misspelt_persona(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = UnknownPersona("no persona 'robbin'; there are: robin, brick, babs, alfred")
    code, _ = batos({"submit": refusal}, "send", "x", "--persona", "robbin")
    assert code == 4
    assert "did you mean 'robin'" in capsys.readouterr().err


def test_a_misspelt_object(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = UnknownTarget("no object 'robbin' on the path 'robbin'; there are: alfred, robin")
    code, _ = batos({"show": refusal}, "show", "robbin")
    assert code == 4
    assert "did you mean 'robin'" in capsys.readouterr().err


# --- missions


def test_send_prints_the_id_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("send", "Plan", "a party", "--id", "m1", "--persona", "babs", "--deadline", "9", "--priority", "5")
    code, [request] = batos({"submit": ACCEPTED}, *words)
    assert code == 0
    assert (request.brief, request.id, request.persona, request.deadline_s, request.priority) == ("Plan a party", "m1", "babs", 9, 5)
    shown = capsys.readouterr()
    assert shown.out == "m1\n"
    assert "batos watch m1" in shown.err


def test_send_reads_a_brief_from_standard_input() -> None:
    with daemon({"submit": ACCEPTED}) as scripted:
        done = run_batos("send", "-", "--connect", scripted.endpoint, stdin="\ufeffWie heißt\ndu?\n")
    assert done.returncode == 0
    assert scripted.requests[0].brief == "Wie heißt\ndu?"


def test_send_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"submit": {**ACCEPTED, "duplicate": True}}, "send", "x", "--id", "m1", "--json")
    assert code == 0
    assert json.loads(capsys.readouterr().out) == {
        "type": "accepted", "id": "m1", "state": "ACCEPTED", "duplicate": True, "result": None, "error": None,
    }  # fmt: skip


def test_send_watch_shows_states_persona_answer_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"submit": ACCEPTED, "watch": EVENTS}, "send", "x", "--watch", "--id", "m1")
    assert code == 0
    out = capsys.readouterr().out
    places = [out.index(state) for state in ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE")]
    assert places == sorted(places)
    assert "BABS: asks to plan" in out
    assert out.count("Cake, shaped like a cat.") == 1
    assert "not for the answer" not in out
    assert "5 inferences (1 replayed), 900 tokens read, 300 written, 7.4 s of model time" in out
    assert "\x1b" not in out


def test_watch_of_a_finished_mission_prints_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"watch": EVENTS[-1]}, "watch", "m1")
    assert code == 0
    out = capsys.readouterr().out
    assert "Cake, shaped like a cat." in out
    assert "BABS: asks to plan" in out


def test_watch_prints_the_final_answer_when_the_stream_had_holes(capsys: pytest.CaptureFixture[str]) -> None:
    holes = [e for e in EVENTS if e.get("text") != "Cake, "]
    batos({"watch": [*holes[:-1], {**holes[-1], "dropped": 1}]}, "watch", "m1")
    shown = capsys.readouterr()
    assert "Cake, shaped like a cat." in shown.out
    assert "1 events were dropped" in shown.err


def test_a_mission_that_was_provided_with_a_model_says_so_and_how_that_is_taken_back(capsys: pytest.CaptureFixture[str]) -> None:
    provided = {"needs": ["vision"], "model": "seer:9b", "change": 3, "why": "seer:9b is the smallest download", "state": "ready"}
    coming = {"type": "provision", "state": "PROVISIONING", "model": "seer:9b", "status": "pulling", "completed": 5, "total": 10}
    state = {"type": "state", "state": "PROVISIONING", "persona": "BABS", "elapsed_s": 0.0}
    end = {**EVENTS[-1], "result": {**RESULT, "provided": provided}}
    code, [request, _] = batos(
        {"submit": ACCEPTED, "watch": [state, coming, end]}, "send", "x", "--needs", "vision, context:32k", "--watch"
    )
    assert (code, request.needs) == (0, ["vision", "context:32k"])
    out = capsys.readouterr().out
    assert "PROVISIONING" in out
    assert "thought with seer:9b, since it needs vision; `batos changes undo 3` takes it back" in out
    status = {"type": "status", "state": "PROVISIONING", "brief": "x", "provided": {**provided, "state": "begun"}}
    batos({"status": status}, "status", "m1")
    assert "seer:9b, begun (change 3): seer:9b is the smallest download" in " ".join(capsys.readouterr().out.split())
    batos({"submit": ACCEPTED}, "send", "x", "--needs", "hearing")
    assert "a need is vision, tools, thinking, context:TOKENS" in " ".join(capsys.readouterr().err.split())


def test_watch_of_a_failed_mission_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"watch": [EVENTS[1], FAILED]}, "watch", "m1")
    assert code == 1
    assert "attempts_exhausted: three attempts" in capsys.readouterr().out


def test_watch_json_is_one_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"submit": ACCEPTED, "watch": EVENTS}, "send", "x", "--watch", "--json")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert [line["type"] for line in lines] == ["accepted", *(event["type"] for event in EVENTS)]


def test_result(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos({"result": EVENTS[-1]}, "result", "m1", "--timeout", "3")
    assert code == 0
    assert request.wait_s == 3
    shown = capsys.readouterr()
    assert shown.out == "Cake, shaped like a cat.\n"
    assert "5 inferences" in shown.err


def test_result_of_a_failed_mission_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"result": FAILED}, "result", "m1")
    assert code == 1
    assert "three attempts" in capsys.readouterr().err
    code, _ = batos({"result": FAILED}, "result", "m1", "--json")
    assert code == 1
    reply = json.loads(capsys.readouterr().out)
    assert (reply["type"], reply["state"], reply["error"]["code"]) == ("result", "FAILED", AttemptsExhausted.code)


@pytest.mark.parametrize(("state", "hint"), [("NEEDS_INPUT", "`batos answer m1 ...`"), ("PAUSED", "`batos resume m1`")])
def test_result_of_a_mission_that_waits_for_its_user_says_so(state: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else would end it."""
    replies = [{"type": "status", "state": state}, {"type": "status", "state": state}, EVENTS[-1]]
    code, requests = batos({"result": lambda request: replies.pop(0)}, "result", "m1")
    assert (code, len(requests)) == (0, 3)
    told = capsys.readouterr()
    assert told.out == "Cake, shaped like a cat.\n"
    assert told.err.replace("\n", " ").count(hint) == 1


def test_result_outlives_a_daemon_that_is_busy_for_longer_than_a_spell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is stopping, say: it is back soon."""
    monkeypatch.setattr("batos.cli.missions._SPELL_S", 0.5)
    replies = [Busy("the daemon is stopping"), Busy("the daemon is stopping"), EVENTS[-1]]
    code, requests = batos({"result": lambda request: replies.pop(0)}, "result", "m1")
    assert (code, len(requests)) == (0, 3), capsys.readouterr()
    code, _ = batos({"result": Busy("too many clients wait")}, "result", "m1", "--timeout", "0.1")
    assert code == 4


def test_result_that_is_not_there_yet_is_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"result": {"type": "status", "state": "DELEGATING"}}, "result", "m1", "--no-wait")
    assert code == 4
    assert "DELEGATING" in capsys.readouterr().err


def test_an_unknown_mission_is_4(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("status", "result", "watch", "cancel", "pause", "resume"):
        code, _ = batos({verb: UnknownMission("no mission 'm1'")}, verb, "m1")
        assert code == 4
        assert "unknown_mission: no mission 'm1'" in capsys.readouterr().err


EXPERTS = {
    "type": "experts", "staging": "/srv/lora_staging",
    "experts": [
        {"model": "babs:log-v1", "persona": "babs", "state": "built", "speaks": True, "built": 0, "reason": "", "how": "adapter",
         "base": "smollm2:embedded", "folder": "log"},
        {"model": "babs:bad-v1", "persona": "babs", "state": "refused", "speaks": False, "built": None, "reason": "wrong base", "how": "",
         "base": "x", "folder": "bad"},
        {"model": "robin:voice-v1", "persona": "robin", "state": "built", "speaks": False, "built": 0, "reason": "", "how": "adapter",
         "base": "smollm2:embedded", "folder": "robin-voice", "on_choice": True},
        {"model": "brick:method-writer-v6", "persona": "brick", "state": "built", "speaks": False, "built": 0, "reason": "",
         "how": "adapter", "base": "smollm2:embedded", "folder": "method-writer-change-3", "on_choice": True, "role": "methods"},
    ],
    "voices": {"babs": {"choice": "newest", "model": "babs:log-v1"}, "robin": {"choice": "plain", "model": ""}},
    "refused": [
        {"folder": "bad", "reason": "wrong base", "waits": False},
        {"folder": "new", "reason": "still being copied", "waits": True},
    ],
}  # fmt: skip


def test_experts(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos({"experts": EXPERTS}, "experts", "--scan")
    assert (code, request.scan) == (0, True)
    out = capsys.readouterr().out
    assert re.search(r"babs:log-v1 +built +babs +\d+ d +adapter on smollm2:embedded", out)
    assert "waits to be chosen: --voice robin=robin:voice-v1" in " ".join(out.split())
    assert "writes methods once its rehearsal was good: batos changes" in " ".join(out.split())
    assert "--voice brick" not in out, "it is no voice"
    assert re.search(r"babs:bad-v1 +refused +wrong base", out)
    assert out.count("wrong base") == 1, "said once"
    assert re.search(r"new/ +waits +still being copied", out)
    assert "robin: its plain model speaks, by choice (plain)" in out
    code, [request] = batos({"experts": EXPERTS}, "experts", "--voice", "babs=babs:log-v1", "--json")
    assert (code, request.persona, request.voice) == (0, "babs", "babs:log-v1")
    assert json.loads(capsys.readouterr().out) == EXPERTS
    assert batos({"experts": EXPERTS}, "experts", "--voice", "babs")[0] == 4
    assert "PERSONA=CHOICE" in capsys.readouterr().err


def test_no_experts_yet(capsys: pytest.CaptureFixture[str]) -> None:
    batos({"experts": {**EXPERTS, "experts": [], "refused": [], "voices": {}}}, "experts")
    assert "no experts yet" in capsys.readouterr().out


def test_missions(capsys: pytest.CaptureFixture[str]) -> None:
    listed = [{"id": "m1", "state": "COMPLETE", "brief": "Plan\na \x1b[31mparty", "origin": "client", "accepted": 0.0, "finished": 1.0}]
    code, [request] = batos({"missions": {"type": "missions", "missions": listed}}, "missions", "--state", "complete", "--limit", "3")
    assert code == 0
    assert (request.state, request.limit, request.system) == ("COMPLETE", 3, False)
    out = capsys.readouterr().out
    assert "Plan a [31mparty" in out
    assert all(line == line.rstrip() for line in out.splitlines())
    code, _ = batos({"missions": {"type": "missions", "missions": []}}, "missions")
    assert code == 0
    assert "no missions; --all: also the system's own" in capsys.readouterr().err
    _, [request] = batos({"missions": {"type": "missions", "missions": listed}}, "missions", "--all")
    assert request.system is True


@pytest.mark.parametrize(
    ("state", "said"), [("FOO", "no state 'FOO'; there are ACCEPTED, "), ("fialed", "did you mean 'FAILED'?); there are")]
)
def test_a_state_that_is_none_is_answered_with_those_there_are(state: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({}, "missions", "--state", state) == (2, [])
    assert said in " ".join(capsys.readouterr().err.split())


def test_status_and_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    reply = {
        "type": "status", "state": "ACCEPTED", "brief": "x", "persona": None, "origin": "client", "attempts": 1, "accepted": 1.0,
        "finished": None, "place": 4, "error": {"code": "busy", "message": "soon"},
    }  # fmt: skip
    for verb in ("status", "cancel", "pause", "resume"):
        assert batos({verb: reply}, verb, "m1")[0] == 0
        out = capsys.readouterr().out
        assert "number 4" in out
        assert "busy: soon" in out
        assert "None" not in out


def test_what_a_call_waits_for_is_shown_by_status_and_at_the_begin_of_a_watch(capsys: pytest.CaptureFixture[str]) -> None:
    waiting = {"type": "status", "state": "DELEGATING", "brief": "x", "progress": "shop.order: was cut off\x1b[2J"}
    for verb, replies in (("status", waiting), ("watch", [waiting, EVENTS[-1]])):
        assert batos({verb: replies}, verb, "m1")[0] == 0
        out = capsys.readouterr().out
        assert "shop.order: was cut off" in out
        assert "\x1b" not in out


def test_a_question_and_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    asking = {"type": "status", "state": "NEEDS_INPUT", "brief": "x", "question": {"number": 2, "question": "How many?"}, "waits_for": "m0"}
    assert batos({"status": asking}, "status", "m1")[0] == 0
    out = capsys.readouterr().out
    assert "How many?" in out
    assert "m0" in out
    code, [request] = batos({"answer": asking}, "answer", "m1", "twelve", "guests", "--number", "2")
    assert code == 0
    assert (request.id, request.text, request.number) == ("m1", "twelve guests", 2)


def test_ratings(capsys: pytest.CaptureFixture[str]) -> None:
    rated = {"type": "status", "state": "COMPLETE", "brief": "x", "rating": {"rating": -1, "why": "too long", "at": 1.0}}
    code, [request] = batos({"rate": rated}, "rate", "m1", "-1", "--why", "too long")
    assert code == 0
    assert (request.id, request.rating, request.why) == ("m1", -1, "too long")
    assert "-1: too long" in capsys.readouterr().out
    _, [request] = batos({"rate": rated}, "rate", "m1", "+1")
    assert (request.rating, request.why) == (1, "")
    for wrong in ("2", "good", "--loud"):
        assert batos({"rate": rated}, "rate", "m1", wrong)[0] == 2


def test_what_a_mission_may_bring_along(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "city.json"
    schema.write_text('{"type": "object"}')
    code, [request] = batos({"submit": ACCEPTED}, "send", "And", "then?", "--context", "m0", "--schema", str(schema), "--may-ask")
    assert code == 0
    assert (request.context, request.form, request.may_ask) == ("m0", {"type": "object"}, True)
    for text in ("[]", "", "{'type': 1}"):
        schema.write_text(text)
        assert batos({}, "send", "x", "--schema", str(schema))[0] == 2
        assert ("a JSON schema is an object" if text == "[]" else "the file is not valid JSON") in " ".join(capsys.readouterr().err.split())
    assert batos({}, "send", "x", "--schema", str(tmp_path / "absent"))[0] == 2
    assert "No such file" in capsys.readouterr().err


def test_send_to(capsys: pytest.CaptureFixture[str]) -> None:
    code, [request] = batos({"send": ACCEPTED}, "send-to", "robin", "say_", "hello there", "3", "--arg", "loud=true", "--id", "m2")
    assert code == 0
    assert (request.target, request.selector, request.args, request.kwargs) == ("robin", "say_", ["hello there", 3], {"loud": True})
    assert capsys.readouterr().out == "m2\n"


# --- objects and the daemon


ROUTING = {
    "persona": "brick", "why": "requests a plan", "by": "mission", "preferred": "babs",
    "scores": {"brick": {"score": 0.5, "triggers": 1}, "babs": {"score": 1.25, "triggers": 2.5, "alike": 0.4}},
}  # fmt: skip


def test_who_thinks_a_mission_through_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    status = {"id": "m1", "state": "COMPLETE", "brief": "b", "origin": "client", "attempts": 1, "routing": ROUTING}
    record = {**status, **dict.fromkeys(("accepted", "finished", "priority", "context", "schema")), "questions": [], "inferences": [],
              "cost": [], "texts_dropped": False, "failures": []}  # fmt: skip
    for op, reply in (("status", {"type": "status", **status}), ("show", {"type": "show", "slots": {}, "record": record})):
        code, _ = batos({op: reply}, op, "m1")
        out = capsys.readouterr().out
        assert code == 0
        assert "BRICK (by mission): requests a plan" in out
        assert "the router's own  BABS" in out
        assert "BABS 1.25, BRICK 0.50" in out


def test_personas(capsys: pytest.CaptureFixture[str]) -> None:
    behaviour = [
        {"selector": "sage_facet_", "kind": "intent", "facet": True, "text": "Be wise."},
        {"selector": "koan_", "kind": "method", "facet": False, "text": "def koan_(self): ..."},
    ]
    robin = {
        "name": "robin", "routed": True, "core_mission": "To listen.", "core_method": "Listening.", "pillars": ["Watts"],
        "model": "robin:x", "behaviour": behaviour, "exemplars": 46, "learned": 2,
        "kept": [{"slot": "core_mission", "why": "changed in the image"}],
    }  # fmt: skip
    gone = {"name": "babs", "routed": False, "kept": [{"slot": None, "why": "deleted in the image"}]}
    reply = {"type": "personas", "personas": [robin, gone], "embedder": {"model": "minilm:x", "state": "away"}}
    code, _ = batos({"personas": reply}, "personas")
    told = capsys.readouterr()
    assert code == 0
    for part in (
        "ROBIN\n", "To listen.", "robin:x", "facets               sage_facet_ (intent)", "answers to           koan_ (method)",
        "46, and 2 learned", "core_mission: changed in the image", "BABS  (no brief is routed to it)",
        "the whole persona: deleted in the image",
    ):  # fmt: skip
        assert part in told.out
    assert "embedder minilm:x: away" in told.err
    _, asked = batos({"personas": reply}, "personas", "--json")
    assert json.loads(capsys.readouterr().out) == reply
    assert asked[0].accept is None
    for given, accept in (("robin.core_mission", {"persona": "robin", "slot": "core_mission"}), ("babs", {"persona": "babs"})):
        _, asked = batos({"personas": reply}, "personas", "--accept", given)
        assert asked[0].accept.model_dump(exclude_unset=True) == accept


def test_show_history_info_models(capsys: pytest.CaptureFixture[str]) -> None:
    slots = {
        "name": "ROBIN",
        "parent*": {"oid": "oid:1f", "class": "UvmObject"},
        "greet": {"intent": "greet\nkindly"},
        "n": 3,
        "tags": ["a", "b"],
    }
    code, _ = batos({"show": {"type": "show", "oid": "oid:2", "slots": slots}}, "show", "robin")
    out = capsys.readouterr().out
    assert code == 0
    for part in ("oid:2", "ROBIN", "→ oid:1f", "intent greet kindly", "a, b"):
        assert part in out
    operation = {"type": "show", "oid": None, "slots": {"message": "order_", "method": "POST"}, "tid": None}
    assert batos({"show": operation}, "show", "tools.shop.order")[0] == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "tools.shop.order"
    assert "order_" in out
    revisions = [{"tid": "0", "time": 0.0, "mission": "m1", "note": "COMPLETE by BABS", "size": 2048}]
    code, _ = batos({"history": {"type": "history", "target": "robin", "revisions": revisions}}, "history", "robin")
    out = capsys.readouterr().out
    assert code == 0
    assert "COMPLETE by BABS" in out
    assert "2.0 KiB" in out
    facts = {"version": "1", "image": {"objects": 7, "bytes": 2048}, "loop": {"due": 1e9, "cem": 0.123456, "last": None}}
    code, _ = batos({"info": {"type": "info", **facts}}, "info")
    assert code == 0
    out = {line.rstrip() for line in capsys.readouterr().out.splitlines()}
    assert {"image objects  7", "image bytes    2.0 KiB", "loop cem       0.1235", "loop last"} <= out
    assert any(line.startswith("loop due       2001-09-0") for line in out)
    models = [{"name": "robin:x", "state": "failed", "detail": "no route", "remedy": "look at the network"}]
    code, _ = batos({"models": {"type": "models", "models": models}}, "models")
    assert code == 0
    assert "look at the network" in capsys.readouterr().out


def test_config_says_value_and_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BATOS_MISSIONS_QUEUE", "7")
    (tmp_path / "batos.toml").write_text("missions.attempts = 2\n")
    assert (
        main(["config", "--json", "--listen", "tcp://127.0.0.1:1", "--listen", "tcp://127.0.0.1:2", "--set", "inference.answer-tokens=512"])
        == 0
    )
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["missions.queue"]["value"], rows["missions.queue"]["source"]) == (7, "BATOS_MISSIONS_QUEUE")
    assert (rows["missions.attempts"]["value"], rows["missions.attempts"]["source"]) == (2, str(tmp_path / "batos.toml"))
    assert (rows["wire.listen"]["value"], rows["wire.listen"]["source"]) == (["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"], "flag")
    assert (rows["inference.answer_tokens"]["value"], rows["inference.profile"]["source"]) == (512, "default")
    assert main(["config", "missions.queue"]) == 0
    assert "BATOS_MISSIONS_QUEUE" in capsys.readouterr().out


# --- the terminal


def run_batos(*words: str, stdin: str | None = None, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return forked.run(
        [sys.executable, "-m", "batos", *words], input=None if stdin is None else stdin.encode(), capture_output=True, timeout=60, **more
    )


def on_a_terminal(*words: str, **environ: str) -> str:
    """What `batos` prints on a pseudo-terminal."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", **environ}
    child = forked.Popen([sys.executable, "-m", "batos", *words], stdout=follower, stderr=follower, stdin=follower, env=env)
    os.close(follower)
    read = b""
    try:
        while piece := os.read(leader, 65536):
            read += piece
    except OSError:  # the other side is closed: the way a terminal ends on Linux
        pass
    finally:
        os.close(leader)
        child.wait(timeout=30)
    return read.decode()


def test_colours_only_on_a_terminal_and_not_with_no_color() -> None:
    with daemon({"watch": EVENTS}) as scripted:
        words = ("watch", "m1", "--connect", scripted.endpoint)
        assert "\x1b[32m" in on_a_terminal(*words)
        assert "\x1b[32m" not in on_a_terminal(*words, NO_COLOR="1")


def test_a_reader_of_a_pipe_may_go_away() -> None:
    listed = [{"id": f"m{n}", "state": "COMPLETE", "brief": "x" * 70, "origin": "client"} for n in range(5000)]
    with daemon({"missions": {"type": "missions", "missions": listed}}) as scripted:
        child = forked.Popen(
            [sys.executable, "-m", "batos", "missions", "--connect", scripted.endpoint], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
        child.stderr.close()
        child.wait(timeout=30)


def test_control_c_leaves_the_mission_running() -> None:
    with daemon({"submit": ACCEPTED, "watch": EVENTS[:3]}) as scripted:
        child = forked.Popen(
            [sys.executable, "-m", "batos", "send", "x", "--watch", "--id", "m1", "--connect", scripted.endpoint],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert scripted.heard.wait(30)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert child.returncode == 130
    assert b"batos watch m1" in err
    assert b"Traceback" not in err
    assert [request.op for request in scripted.requests] == ["submit", "watch"]


@pytest.mark.parametrize("module", ["batos.wire", "batos.app.kernel"])
def test_the_daemon_loads_nothing_of_the_command_line(module: str) -> None:
    code = f"import sys, {module}; assert not {{'typer', 'batos.cli', 'batos.doctor'}} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_what_takes_long_says_on_a_terminal_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", shown := Terminal())
    monkeypatch.setattr(client, "SHOWN_AFTER_S", 0.01)
    monkeypatch.setattr(client, "LOOK_S", 0.01)
    work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    steps = iter(["backup: writing", "backup: restoring, 1.0 MiB of 2.0 MiB"])

    async def step() -> str:
        if "restoring" in shown.getvalue() and not work.done():
            work.set_result(7)
        return next(steps, "backup: restoring, 1.0 MiB of 2.0 MiB")

    async with asyncio.timeout(90):
        assert await client.shown(work, step) == 7
    assert "backup: restoring, 1.0 MiB of 2.0 MiB" in shown.getvalue()


async def test_what_is_answered_soon_or_fails_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", shown := Terminal())

    async def answer(error: bool) -> int:
        if error:
            raise Busy("a pack is under way")
        return 7

    assert await client.shown(answer(False), None) == 7
    with pytest.raises(Busy):
        await client.shown(answer(True), None)
    assert shown.getvalue() == ""


@pytest.mark.parametrize(
    ("told", "said"), [({"step": "writing"}, "writing"), ({"step": "copying", "done": 512, "total": 2048}, "copying, 512 B of 2.0 KiB")]
)
def test_a_step_in_words(told: dict[str, Any], said: str) -> None:
    assert client.step_of(told) == said


# --- small things


def test_texts() -> None:
    assert clean("a\x1b[31mb\x07\tc\u202ed\x9b") == "a[31mb\tcd"
    assert one_line("a\n b  c") == "a b c"
    assert one_line("x" * 80, 10) == "x" * 9 + "…"
    assert (size(12), size(1536), size(3 * 1024**4)) == ("12 B", "1.5 KiB", "3.0 TiB")
    assert ago(None) == ""


def test_printing_needs_no_unicode() -> None:
    with daemon({"result": {"type": "result", "state": "COMPLETE", "result": {"text": "Käse → 🐈"}}}) as scripted:
        env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
        done = run_batos("result", "m1", "--connect", scripted.endpoint, env=env)
    assert done.returncode == 0
    assert done.stdout.startswith(b"K")


def test_a_fault_of_ours_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("batos.cli.dashboard.ask", broken)
    assert main(["info"]) == 4
    assert capsys.readouterr().err.startswith("internal: ZeroDivisionError: by zero")


def test_any_name_may_be_a_keyword_of_a_message_and_any_word_an_argument() -> None:
    assert value_of("9" * 5000) == "9" * 5000
    assert value_of("[" * 100_000) == "[" * 100_000
    assert value_of('{"a": 1}') == {"a": 1}
    for word in ("1e999", "-1e999", "[1e999]", '"\\ud800"'):  # a number that is too large, half of a character
        assert value_of(word) == word


# --- a question of a mission that is watched, and drafts that are no answer

_OWN_TERMINAL = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
ASKS = {"type": "needs_input", "state": "NEEDS_INPUT", "question": "How many guests?", "number": 1}
STANDS_ASKED = {"type": "status", "state": "NEEDS_INPUT", "question": {"question": "How many guests?", "number": 1}}


def _answered_at_a_terminal(script: Script, typed: list[tuple[str, str]], *words: str) -> tuple[int, str, list[Any]]:
    """Exit code, what was shown and the requests, where each text is typed once another one has been shown.

    The first answer that is no error brings the mission to its end.
    """

    def answer(request: Any) -> Any:
        if request.text == "many":
            return Busy("say a number")
        scripted.watchers[0].send({"id": "m1", **EVENTS[-1]})
        return {"type": "status", "state": "DELEGATING"}

    leader, follower = pty.openpty()
    with daemon({**script, "answer": answer}) as scripted:
        command = [sys.executable, "-m", "batos", *words, "--connect", scripted.endpoint]
        child = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *command],
            stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(follower)
        seen = b""
        with contextlib.suppress(OSError):
            while piece := os.read(leader, 65536):
                seen += piece
                while typed and typed[0][0].encode() in seen:
                    os.write(leader, typed.pop(0)[1].encode())
        os.close(leader)
        return child.wait(timeout=30), seen.decode(), scripted.requests


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"submit": ACCEPTED, "watch": [STANDS_ASKED, ASKS]}, ("send", "x", "--watch", "--may-ask", "--id", "m1")),
        ({"watch": [STANDS_ASKED]}, ("watch", "m1")),
    ],
)
def test_a_question_is_answered_where_the_mission_is_watched(script: Script, words: tuple[str, ...]) -> None:
    typed = [("> ", "\n"), ("> \r\n> ", "many\n"), ("say a number", "twelve\n")]
    code, shown, requests = _answered_at_a_terminal(script, typed, *words)
    assert code == 0
    assert shown.count("How many guests?") == 1
    assert "Cake, shaped like a cat." in shown
    assert [(one.text, one.number) for one in requests if one.op == "answer"] == [("many", 1), ("twelve", 1)]


def test_a_question_that_is_left_open_says_how_it_is_answered() -> None:
    _, shown, requests = _answered_at_a_terminal({"watch": [ASKS]}, [("> ", "\x04"), ("batos answer", "\x03")], "watch", "m1")
    assert "batos answer m1 TEXT" in shown
    assert "The mission goes on" in shown
    assert [one.op for one in requests] == ["watch"]


def test_without_a_terminal_it_is_said_how_a_question_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({"watch": [ASKS, EVENTS[-1]]}, "watch", "m1")
    assert code == 0
    assert "batos answer m1 TEXT" in capsys.readouterr().err


DRAFT = [EVENTS[5], {**EVENTS[6], "text": "Dogs, mostly."}]


@pytest.mark.parametrize(
    ("events", "marked"),
    [
        (
            [*DRAFT, {"type": "revised", "why": "it has nothing to do with it"}, *EVENTS[6:]],
            "that was refused, it has nothing to do with it",
        ),
        ([*DRAFT, *EVENTS[2:]], "(the text above was a draft, and is discarded: it begins again)"),
        ([*DRAFT, EVENTS[-1]], "(the text above was a draft, and is discarded: the answer is another)"),
        ([*DRAFT, FAILED], "(the text above was a draft, and is discarded: it came to no answer)"),
        (EVENTS[5:], ""),
        ([EVENTS[5], *EVENTS[7:]], ""),
        ([EVENTS[5], EVENTS[6], EVENTS[-1]], ""),
    ],
)
def test_a_draft_that_is_no_answer_is_marked(events: list[dict[str, Any]], marked: str, capsys: pytest.CaptureFixture[str]) -> None:
    batos({"watch": events}, "watch", "m1")
    said = capsys.readouterr().out
    if not marked:
        assert "draft" not in said
        return
    assert said.index("Dogs, mostly.") < said.index(marked)
    assert said.count(marked) == 1


@pytest.mark.parametrize(
    ("verb", "stands", "said"),
    [
        ("cancel", {"state": "COMPLETE", "already": True}, "m1 had ended before it could be cancelled: it is COMPLETE"),
        ("cancel", {"state": "COMPLETE"}, "m1 had ended before it could be cancelled: it is COMPLETE"),
        ("cancel", {"state": "FAILED", "already": True, "error": {"code": "deadline", "message": "x"}}, "it is FAILED"),
        ("cancel", {"state": "FAILED", "already": True, "error": {"code": "cancelled", "message": "x"}}, "m1 was cancelled before"),
        ("cancel", {"state": "FAILED", "error": {"code": "cancelled", "message": "x"}}, ""),
        ("pause", {"state": "COMPLETE", "already": True}, "m1 had ended before it could be paused"),
        ("pause", {"state": "PAUSED"}, ""),
        ("resume", {"state": "FAILED", "already": True}, "m1 had ended before it could be resumed"),
        ("resume", {"state": "ACCEPTED"}, ""),
    ],
)
def test_what_has_ended_is_said_to_stay_so(verb: str, stands: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos({verb: {"type": "status", "brief": "x", **stands}}, verb, "m1")
    assert code == 0
    told = capsys.readouterr().err
    assert said in told
    assert bool(told) == bool(said)


# --- standard streams that take nothing

_ITSELF = "import sys; from batos.cli import main; sys.exit(main())"


def _run_into(sink: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command line whose standard output goes where the shell's words say."""
    line = f'exec "{sys.executable}" -c "$0" "$@" {sink}'
    return subprocess.run(["sh", "-c", line, _ITSELF, *words], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("sink", [">/dev/full", ">&-"])
@pytest.mark.parametrize("words", [("info",), ("info", "--json"), ("missions",), ("--version",), ("--help",), ("config", "--json")])
def test_a_result_that_nobody_gets_is_an_error_of_its_own(sink: str, words: tuple[str, ...]) -> None:
    connect: tuple[str, ...] = ()
    with daemon({"info": {"type": "info", "version": "1"}, "missions": {"type": "missions", "missions": []}}) as scripted:
        if words[0] in ("info", "missions"):
            connect = ("--connect", scripted.endpoint)
        done = _run_into(sink, *words, *connect)
    if words == ("missions",):  # it has nothing for standard output: that there are none is said on standard error
        assert (done.returncode, done.stderr.strip()) == (0, "no missions; --all: also the system's own")
        return
    assert done.returncode == 4
    assert done.stderr.startswith("output: standard output cannot be written (")
    assert "Traceback" not in done.stderr
    assert "fault" not in done.stderr


@pytest.mark.parametrize("sink", ["2>/dev/full", "2>&-", "2>&- >&- <&-", "2>/dev/full >/dev/full"])
def test_an_error_that_nobody_gets_has_its_exit_code(sink: str) -> None:
    assert _run_into(sink, "status", "x", "--connect", "tcp://127.0.0.1:9").returncode == 3
    assert _run_into(sink, "no-such-verb").returncode == 2


def test_a_socket_never_comes_to_be_a_standard_stream() -> None:
    code = "import os, sys; from batos.cli.process import own_process; own_process('info'); sys.exit(min(os.open('/', 0), 9) < 3)"
    assert subprocess.run(["sh", "-c", f'exec "{sys.executable}" -c "$0" <&- >&- 2>&-', code], timeout=60).returncode == 0


# --- verbs in groups, and what a short command loads


def test_every_verb_is_in_one_group_and_in_the_module_that_it_names() -> None:
    app.register()
    named = [verb for verbs in GROUPS.values() for verb in verbs]
    assert len(named) == len(set(named))
    group = typer.main.get_command(app.app)
    found = {name: one.callback.__module__.removeprefix("batos.cli.") for name, one in group.commands.items()}  # type: ignore[attr-defined]
    assert found == MODULES


def test_help_lists_the_verbs_in_their_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    heads = [said.index(f"\n{group}:\n") for group in GROUPS]
    assert heads == sorted(heads)
    for (_, verbs), start, end in zip(GROUPS.items(), heads, [*heads[1:], len(said)], strict=True):
        assert re.findall(r"^  ([\w-]+) ", said[start:end], re.M) == list(verbs)


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--version"], ("typer", "rich", "pydantic", "zmq", "asyncio")),
        (
            ["status", "x", "--connect", "tcp://127.0.0.1:9"],
            ("batos.app.kernel", "batos.cli.models", "batos.cli.methods", "ZODB", "ollama"),
        ),
    ],
)
def test_a_short_command_loads_what_it_needs(words: list[str], without: tuple[str, ...]) -> None:
    code = (
        f"import sys; from batos.cli import main; main({words!r}); sys.exit(' '.join(n for n in {without!r} if n in sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_a_mission_was_asked_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        "cycle": "1", "state": "SYNTHESIZING", "persona": "ROBIN", "part": None, "model": "robin:embedded", "system": "You are ROBIN.",
        "user": "Cake?", "turns": [["Hello", "Hi"]], "schema": {"type": "object"}, "said": "Cake.",
    }  # fmt: skip
    reply = {"type": "replay", "state": "COMPLETE", "outcome": "different", "prompts": [asked], "more": True}
    code, [request] = batos({"replay": reply}, "show", "m1", "--prompts")
    assert (code, request.id, request.prompts) == (0, "m1", True)
    told = capsys.readouterr()
    for words in ("1: robin:embedded, ROBIN, SYNTHESIZING", "You are ROBIN.", "Hello", "Hi", "Cake?", '{"type": "object"}', "Cake."):
        assert words in told.out
    assert "others did not fit" in told.err
    assert "has changed since" in told.err
    assert batos({}, "show", "m1", "--prompts", "--at", "2h")[0] == 2


def test_a_quotation_is_said_to_be_one_and_who_said_it() -> None:
    file = {"n": 1, "chunk": "oid:1", "title": "Mills", "source": "/n/mills.md", "sentences": [], "origin": "file", "day": None}
    told = {**file, "n": 2, "title": "x", "source": "said:m1", "origin": "user", "day": "2026-11-24"}
    own = {**file, "n": 3, "source": "mission:m2", "origin": "self"}
    old = {name: value for name, value in file.items() if name not in ("origin", "day")}  # of an earlier version
    quoted, *lines = sources({"quoted": True, "citations": [file, told, own, old]})
    assert quoted.startswith("quoted from memory")
    assert lines == [
        "[1] /n/mills.md (Mills): batos show oid:1",
        "[2] you said so on 2026-11-24 (said:m1): batos show oid:1",
        "[3] an answer of its own (mission:m2): batos show oid:1",
        "[1] /n/mills.md (Mills): batos show oid:1",
    ]
    assert sources({}) == []


@pytest.mark.parametrize(
    ("words", "args", "priority"),
    [
        (("-5",), [-5], 0),
        (("-0.5", "3", "-1e3", "-.5"), [-0.5, 3, -1000.0, "-.5"], 0),
        (("-5", "--priority", "-2", "-7"), [-5, -7], -2),
        (("-5%", "-1,5", "-10:30"), ["-5%", "-1,5", "-10:30"], 0),
        (("NaN", "Infinity"), ["NaN", "Infinity"], 0),
    ],
)
def test_negative_numbers_are_arguments(words: tuple[str, ...], args: list[Any], priority: int) -> None:
    code, [request] = batos({"send": ACCEPTED}, "send-to", "brick", "clamp_percent_", *words)
    assert (code, request.args, request.priority) == (0, args, priority)


def test_what_is_no_number_is_still_an_option_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos({}, "send-to", "brick", "clamp_percent_", "-5x") == (2, [])
    assert "No such option" in capsys.readouterr().err
    code, [request] = batos({"send": ACCEPTED}, "send-to", "brick", "clamp_", "5", "--write")
    assert (code, request.write) == (0, True)
