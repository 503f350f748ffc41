"""Settings that clients need to reach the doors, as their users paste them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_CLIENTS: tuple[tuple[str, str], ...] = (
    ("curl", "curl {address}/v1/chat/completions -H 'Authorization: Bearer {token}' -H 'Content-Type: application/json' \\\n"
             "  -d '{{\"model\": \"batos\", \"messages\": [{{\"role\": \"user\", \"content\": \"What is in my notes?\"}}]}}'"),
    ("openai-python", "client = OpenAI(base_url=\"{address}/v1\", api_key=\"{token}\")"),
    ("ollama-python", "client = Client(\"{address}\", headers={{\"Authorization\": \"Bearer {token}\"}})"),
    ("Open WebUI", "OPENAI_API_BASE_URL={address}/v1\nOPENAI_API_KEY={token}\nENABLE_FORWARD_USER_INFO_HEADERS=true"),
    (
        "Continue (config.yaml)",
        "models:\n  - name: BAT OS\n    provider: openai\n    model: batos\n    apiBase: {address}/v1\n    apiKey: {token}",
    ),
    ("llm (extra-openai-models.yaml; `llm keys set batos` takes the token)",
     "- model_id: batos\n  model_name: batos\n  api_base: {address}/v1\n  api_key_name: batos"),
    ("VS Code, and other clients of Ollama that take only an address", "{address}/token/{token}"),
    ("Claude Code, with the tools of MCP", "claude mcp add --transport http batos {address}/mcp --header 'Authorization: Bearer {token}'"),
    ("VS Code, with the tools of MCP (.vscode/mcp.json)",
     "{{\"servers\": {{\"batos\": {{\"type\": \"http\", \"url\": \"{address}/mcp\", "
     "\"headers\": {{\"Authorization\": \"Bearer {token}\"}}}}}}}}"),
    ("Claude Desktop (claude_desktop_config.json), and other clients of MCP that start a program",
     "{{\"mcpServers\": {{\"batos\": {program}}}}}"),
)  # fmt: skip
"""Clients, each with its settings; address, token and program are filled in."""


def settings_of_clients(address: str, token: str, endpoint: str | None = None) -> list[tuple[str, str]]:
    """Return clients, each with its settings.

    :param address: of the doors, without a slash at its end.
    :param endpoint: endpoint of the wire that a program of a client is to ask; None: that of the settings.
    """
    filled = {"address": address, "token": token, "program": json.dumps(own_program(endpoint))}
    return [(name, told.format(**filled)) for name, told in _CLIENTS]


def own_program(endpoint: str | None = None) -> dict[str, Any]:
    """Return how a client of MCP starts `batos mcp`: its `command`, by the whole path where that is known, and `args`.

    :param endpoint: as in `settings_of_clients`.
    """
    own = Path(sys.executable).with_name("batos")
    return {"command": str(own) if own.exists() else "batos", "args": ["mcp", *(["--connect", endpoint] if endpoint else [])]}
