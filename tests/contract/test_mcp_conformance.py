"""The protocol's own conformance suite: its scenarios for clients, against the connector. What is left out is named with its reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.environ.get("MCP_CONFORMANCE") != "yes", reason="two minutes of other people's tests: `make mcp-conformance` runs them"
)
ROOT = Path(__file__).parents[2]
NODE = ROOT / "build" / "mcp" / "npm" / "node_modules"
SUITE = NODE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
CLIENT = ROOT / "tests" / "support" / "conformance_client.py"
LEFT_OUT = {
    "auth/client-credentials-jwt": "an extension: BAT OS has no key to sign assertions with",
    "auth/2025-03-26-oauth-metadata-backcompat": "its metadata names another issuer than where it is found: RFC 8414 has it refused",
    "auth/cross-app-access-complete-flow": "an extension: BAT OS has no identity provider of an enterprise",
}
"""Scenarios that do not apply, with the reason."""
DIFFERS = {"elicitation-sep1034-client-defaults": ("client-elicitation-sep1034-general",)}
"""Checks that fail by intent: a question in the middle of a call is put off by `cancel`, and answered when the call is sent again."""
PASS = (
    "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry", "auth/metadata-default", "auth/metadata-var1",
    "auth/metadata-var2", "auth/metadata-var3", "auth/basic-cimd", "auth/scope-from-www-authenticate", "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined", "auth/scope-step-up", "auth/scope-retry-limit", "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post", "auth/token-endpoint-auth-none", "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback", "auth/resource-mismatch", "auth/offline-access-scope", "auth/offline-access-not-supported",
    "auth/client-credentials-basic",
)  # fmt: skip


def node() -> str:
    """A node that the suite runs on: version 22 or later."""
    found = sorted(NODE.glob("node-linux-*/bin/node"))
    if not (SUITE.exists() and found):
        pytest.skip("the conformance suite is not here: `make mcp-servers` installs it where the machine has npm")
    return str(found[0])


def test_every_scenario_for_clients_is_run_or_left_out_for_a_reason() -> None:
    told = subprocess.run([node(), str(SUITE), "list"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  - (\S+)", told.partition("Client scenarios")[2], re.MULTILINE)
    assert sorted(listed) == sorted({*PASS, *LEFT_OUT})


@pytest.mark.parametrize("scenario", PASS)
def test_a_scenario_passes(scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"
    done = subprocess.run(
        [node(), str(SUITE), "client", "--command", command, "--scenario", scenario, "--timeout", "60000"],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    failed = set(re.findall(r"\[([\w-]+)\s*\] FAILURE", told))
    assert re.search(r"^Passed: \d+/\d+", told, re.MULTILINE), told[-3000:]
    assert failed == set(DIFFERS.get(scenario, ())), told[-6000:]
