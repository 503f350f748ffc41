"""The verb doors: address, token and the settings of clients; and what is said where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from batos.cli import main
from batos.console.access import token_of
from tests.support.cli import daemon

ADDRESS = "http://127.0.0.1:5758"


def test_each_client_is_given_address_and_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with daemon({"info": {"type": "info", "doors": ADDRESS, "data": str(tmp_path)}}) as scripted:
        assert main(["doors", "--connect", scripted.endpoint]) == 0
        printed = capsys.readouterr().out
        token = token_of(tmp_path)
        for client in ("Open WebUI", "Continue", "llm", "openai-python", "ollama-python", "VS Code", "curl"):
            assert client in printed
        assert f"OPENAI_API_BASE_URL={ADDRESS}/v1\n  OPENAI_API_KEY={token}\n" in printed
        curl = printed[printed.index("curl http") :].split("\n\n")[0]
        assert json.loads(curl[curl.index("-d '") + 4 : curl.rindex("'")])["model"] == "batos"
        code, desktop = [json.loads(line) for line in printed.splitlines() if line.startswith('  {"')]
        assert code == {"servers": {"batos": {"type": "http", "url": f"{ADDRESS}/mcp", "headers": {"Authorization": f"Bearer {token}"}}}}
        program = desktop["mcpServers"]["batos"]
        assert (Path(program["command"]).name, program["args"]) == ("batos", ["mcp", "--connect", scripted.endpoint])
        assert f"claude mcp add --transport http batos {ADDRESS}/mcp --header 'Authorization: Bearer {token}'" in printed
        assert main(["doors", "--json", "--connect", scripted.endpoint]) == 0
    told = json.loads(capsys.readouterr().out)
    mcp = f"{ADDRESS}/mcp"
    assert told == {"type": "doors", "address": ADDRESS, "openai": f"{ADDRESS}/v1", "ollama": ADDRESS, "mcp": mcp, "token": token}


def test_a_daemon_without_doors_says_how_to_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    with daemon({"info": {"type": "info", "doors": None, "data": "/nowhere"}}) as scripted:
        assert main(["doors", "--connect", scripted.endpoint]) == 2
    assert "doors.enabled=on" in capsys.readouterr().err
