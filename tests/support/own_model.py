"""An Ollama with models of its user, and settings of a daemon that chooses among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from batos.config import Settings, load
from batos.testing import ScriptedOllama
from tests.support.daemon import note_built

CHAT = "{{ range .Messages }}{{ .Role }}: {{ .Content }}{{ end }}"
THINKING = CHAT + "{{ .Thinking }}"


def settings(folder: Path, server: ScriptedOllama | None, **given: Any) -> Settings:
    note_built(server.host if server else "", folder / "ollama")
    quiet = {"listen": ("tcp://127.0.0.1:*",), "autotelic": "off", "shutdown_s": 1, "retry_backoff_s": 0.01}
    return load({"data": str(folder), "ollama_host": server.host if server else "", **quiet, **given}, environ={})
