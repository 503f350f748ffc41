"""The protocol's own conformance suite: its scenarios for clients, against the connector; its scenarios for servers, against the doors of a
daemon. What is left out is named with its reason."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from batos.console.access import token_of
from batos.testing import ScriptedOllama
from tests.support.daemon import Peer, daemon, provisioned

pytestmark = pytest.mark.skipif(
    os.environ.get("MCP_CONFORMANCE") != "yes", reason="three minutes of other people's tests: `make mcp-conformance` runs them"
)
ROOT = Path(__file__).parents[2]
NODE = ROOT / "build" / "mcp" / "npm" / "node_modules"
SUITE = NODE / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NEXT = NODE / "conformance-next" / "dist" / "index.js"  # it knows the era of 2026-07-28, and is not yet released
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


def node(suite: Path = SUITE) -> str:
    """A node that a suite runs on: version 22 or later."""
    found = sorted(NODE.glob("node-linux-*/bin/node"))
    if not (suite.exists() and found):
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


# --- servers

_FIXTURE = "it calls tools, named `test_…`, of a server that was made for the suite; ours are in tests/unit/test_mcp_server.py"
_ABSENT = "BAT OS has tools, and no resources, prompts, completions or log messages"
_EXTENSION = "an extension that BAT OS does not have"
_OTHER_ERA = "of the other era"


class ServerSuite(NamedTuple):
    """The scenarios of one era."""

    program: Path
    era: str
    passing: Mapping[str, tuple[str, ...]]
    """scenarios that apply, each with the checks in it that do not, since they need what a server made for the suite has"""
    left_out: Mapping[str, str]
    """the others, with the reason"""


_TOOL_CALLS = (
    "tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content",
    "tools-call-error", "tools-call-with-progress", "json-schema-2020-12",
)  # fmt: skip
_SESSION_CALLS = (
    "tools-call-with-logging", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums",
)  # fmt: skip
_LISTS = (
    "completion-complete", "resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read", "prompts-list",
    "prompts-get-simple", "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image",
)  # fmt: skip
_ROUNDS = (
    "basic-elicitation", "basic-sampling", "basic-list-roots", "request-state", "multiple-input-requests", "multi-round",
    "missing-input-response", "non-tool-request", "result-type", "tampered-state", "capability-check", "ignore-extra-params",
)  # fmt: skip
_TASKS = (
    "lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers", "dispatch-and-envelope",
    "status-notifications", "required-task-error", "mrtr-composition",
)  # fmt: skip
_OF_SESSIONS = (
    "server-initialize", "server-session-lifecycle", "logging-set-level", "ping", "resources-subscribe", "resources-unsubscribe",
    "server-sse-polling", *_SESSION_CALLS,
)  # fmt: skip
SERVERS = (
    ServerSuite(
        SUITE,
        "",
        dict.fromkeys(("server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"), ()),
        {
            **dict.fromkeys((*_TOOL_CALLS, *_SESSION_CALLS), _FIXTURE),
            **dict.fromkeys((*_LISTS, "logging-set-level", "resources-subscribe", "resources-unsubscribe"), _ABSENT),
            "server-sse-polling": "streams are not resumed: a call that was cut off is made again, with the same key",
        },
    ),
    ServerSuite(
        NEXT,
        "2026-07-28",
        {
            **dict.fromkeys(("tools-list", "server-sse-multiple-streams", "dns-rebinding-protection", "http-header-validation"), ()),
            **dict.fromkeys(("input-required-result-unsupported-methods", "input-required-result-validate-input"), ()),
            "server-stateless": (
                "sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
            ),
            "caching": (
                "sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints",
                "sep-2549-resources-templates-list-caching-hints",
            ),
        },
        {
            **dict.fromkeys(_TOOL_CALLS, _FIXTURE),
            **dict.fromkeys((f"input-required-result-{name}" for name in _ROUNDS), _FIXTURE),
            **dict.fromkeys((*_LISTS, "sep-2164-resource-not-found"), _ABSENT),
            **dict.fromkeys((f"tasks-{name}" for name in _TASKS), _EXTENSION),
            **dict.fromkeys(("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"), _EXTENSION),
            "http-custom-header-server-validation": "no argument of a tool of BAT OS is also sent as a header",
            **dict.fromkeys(_OF_SESSIONS, _OTHER_ERA),
        },
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path `/mcp` of a daemon, with its token in it: the suite sends none."""
    folder = tmp_path_factory.mktemp("served")
    doors = {"doors.enabled": "on", "doors.listen": "127.0.0.1:0"}
    with ScriptedOllama() as server:
        provisioned(server).say("A cup of tea.")
        with daemon(folder, ollama_host=server.host, depth="direct", **doors) as running, Peer(running.endpoint) as peer:
            yield f"{peer.ask('info')['doors']}/token/{token_of(folder)}/mcp"


@pytest.mark.parametrize("suite", SERVERS, ids=lambda suite: suite.era or "sessions")
def test_every_scenario_for_servers_is_run_or_left_out_for_a_reason(suite: ServerSuite) -> None:
    told = subprocess.run([node(suite.program), str(suite.program), "list"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  - (\S+)", told.partition("Server scenarios")[2].partition("Client scenarios")[0], re.MULTILINE)
    assert sorted(listed) == sorted({*suite.passing, *suite.left_out})


@pytest.mark.parametrize(
    ("suite", "scenario"), [(suite, name) for suite in SERVERS for name in suite.passing], ids=lambda one: getattr(one, "era", one)
)
def test_a_scenario_for_servers_passes(suite: ServerSuite, scenario: str, address: str, tmp_path: Path) -> None:
    of_era = ["--spec-version", suite.era] if suite.era else []
    command = [node(suite.program), str(suite.program), "server", "--url", address, "--scenario", scenario, *of_era]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    told = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    passed = re.search(r"^Passed: ([1-9]\d*)/\d+", told, re.MULTILINE)
    assert passed, told[-3000:]
    assert set(re.findall(r"\[([\w-]+)\s*\] FAILURE", told)) == set(suite.passing[scenario]), told[-6000:]
