"""`batos models`: the list, lines and bars while models come, and the exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from batos.cli import main
from batos.cli.models import _Follower
from batos.cli.output import Output
from batos.testing import ScriptedOllama
from tests.support import cli

LAYER = "sha256:667b0c1932bc0000"
THERE = {"name": "big:8b", "state": "pulled", "detail": "", "remedy": ""}
FAILED = {"name": "robin:x", "state": "failed", "detail": "no route", "remedy": "look at the network"}


def listed(*models: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"type": "models", "profile": "p", "models": list(models), "under_way": False, **more}


def events(*end: dict[str, str]) -> list[dict[str, Any]]:
    step = {"type": "progress", "model": "big:8b", "layer": LAYER, "status": "pulling 667b0c1932bc", "total": 4 * 1024**3}
    return [
        listed({**THERE, "state": "waiting"}, watching=True, under_way=True),
        {"type": "progress", "model": "big:8b", "status": "pulling manifest"},
        *({**step, "completed": n * 1024**3} for n in range(5)),
        {"type": "progress", "model": "big:8b", "status": "verifying\x1b[2J sha256 digest"},
        *({"type": "model", **model} for model in end),
        listed(*end),
    ]


def batos(reply: Any, *words: str) -> tuple[int, Any]:
    with cli.daemon({"models": reply}) as daemon:
        code = main(["models", *words, "--connect", daemon.endpoint])
        return code, daemon.requests


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked] = batos(listed(THERE, FAILED), "big:8b", "robin:x")
    assert code == 0
    assert (asked.names, asked.ensure, asked.watch) == (["big:8b", "robin:x"], False, False)
    out = capsys.readouterr().out
    assert "big:8b   pulled" in out
    assert "robin:x: look at the network" in out


@pytest.mark.parametrize("more", [(), ("--watch",)])
def test_a_model_that_is_not_there_is_answered_with_the_nearest(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    tagged = {**THERE, "name": "robin:latest"}
    both = (THERE, tagged)

    def reply(request: Any) -> dict[str, Any]:
        return listed(*(one for one in both if not request.names or one["name"] in request.names))

    assert batos(reply, "big:8", *more)[0] == 4
    assert "Ollama has no model 'big:8' (did you mean 'big:8b'?); there are: big:8b, robin:latest" in capsys.readouterr().err
    assert batos(lambda request: listed(tagged), "robin", *more)[0] == 0


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, [asked] = batos(events(THERE), "--ensure", "big:8b")
    assert code == 0
    assert (asked.names, asked.ensure, asked.watch) == (["big:8b"], True, True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["big:8b: 667b0c1932bc, 4.0 GiB", "big:8b: 667b0c1932bc, 4.0 GiB, there", "big:8b: pulled"]
    assert lines[-1].split() == ["big:8b", "pulled"]


def test_json_is_one_event_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = batos(events(THERE), "--watch", "--json")
    assert code == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == events(THERE)


def test_ensure_fails_with_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert batos(events(THERE, FAILED), "--ensure")[0] == 1
    assert batos(events(THERE, FAILED), "--watch")[0] == 0
    assert "look at the network" in capsys.readouterr().out


async def test_bars_on_a_terminal() -> None:
    output, screen = Output(), io.StringIO()
    output.console = Console(file=screen, force_terminal=True, width=100)

    async def coming() -> Any:
        for event in events(THERE):
            yield event

    assert await _Follower(output).follow(coming()) == listed(THERE)
    shown = screen.getvalue()
    assert "big:8b" in shown
    assert "667b0c1932bc" in shown
    assert "\x1b[2J" not in shown  # what a registry says cannot clear the screen


FITTING = {
    "name": "qwen3:8b", "bytes": 5_000_000_000, "memory": 6_400_000_000, "fits": True, "num_ctx": 8192, "context": 40_960,
    "parameters": 8_200_000_000, "chats": True, "thinks": True, "tools": True, "vision": False, "probed": ["think"], "speed": 11.5,
    "in_use": True,
}  # fmt: skip
LARGE = {**FITTING, "name": "big:70b", "fits": False, "probed": [], "speed": None, "in_use": False, "not_by_itself": "it takes 42 GB"}


def test_another_model_from_now_on(capsys: pytest.CaptureFixture[str]) -> None:
    reply = listed(THERE, model="big:8b", why="big:8b is named (setting inference.model)", before="embedded")
    code, [asked] = batos(reply, "use", "big:8b")
    assert (code, asked.use, asked.names) == (0, "big:8b", [])
    out = capsys.readouterr().out
    assert "big:8b thinks from now on: big:8b is named (setting inference.model)" in out
    assert "`batos models use embedded` brings back what did before" in out


def test_what_there_is_to_think_with(capsys: pytest.CaptureFixture[str]) -> None:
    reply = listed(model="qwen3:8b", why="it is the best", budget=6_900_000_000, fit=[FITTING, LARGE])
    code, [asked] = batos(reply, "--fit", "qwen3:8b")
    assert (code, asked.fit, asked.names) == (0, True, ["qwen3:8b"])
    out = capsys.readouterr().out
    rows = {line.split()[0]: line for line in out.splitlines()[1:3]}
    for cell in ("now", "~6.0 GiB", "yes", "8.2B", "8192 of 40960", "chat, think, tools", "11.5"):
        assert cell in rows["qwen3:8b"]
    assert "no" in rows["big:70b"]
    assert "(says Ollama)" in rows["big:70b"]
    assert "it takes 42 GB" in rows["big:70b"]
    assert "qwen3:8b thinks: it is the best. Models may take 6.4 GiB (inference.memory_bytes)." in out
    assert batos(reply, "--fit", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out)["fit"] == [FITTING, LARGE]


@pytest.mark.parametrize("words", [("use",), ("use", "a", "b"), ("--fit", "--remove"), ("--fit", "--ensure"), ("use", "a", "--watch")])
def test_words_that_do_not_go_together(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *words]) == 2
    assert "use" in capsys.readouterr().err


def test_nothing_is_removed_while_a_daemon_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cli.daemon({}) as daemon, ScriptedOllama() as server:
        server.models["batos/robin:a"] = server.models["robin:embedded"]
        settings = tmp_path / "batos.toml"
        settings.write_text(f'ollama_host = "{server.host}"\n')
        words = ["models", "--remove", "--data", str(tmp_path), "--config", str(settings), "--connect"]
        assert main([*words, daemon.endpoint]) == 4
        assert "stop it first, or look with --dry" in capsys.readouterr().err
        assert main([*words, daemon.endpoint, "--dry"]) == 0
        assert "batos/robin:a" in capsys.readouterr().out
        assert main([*words, "tcp://127.0.0.1:9"]) == 0
        assert "1 deleted; nothing else in Ollama was touched" in capsys.readouterr().out
        assert main([*words, "tcp://127.0.0.1:9"]) == 0
        assert "Ollama has no models that BAT OS made" in capsys.readouterr().out
        assert len(server.models) == 6
