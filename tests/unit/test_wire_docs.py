import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.config import Settings, names
from batos.errors import ConfigError, DaemonUnavailable, EndpointError, ImageError, MissionPending, ModelfileError, OutputFailed, by_code
from batos.wire.payloads import PayloadLimits, parse_request
from batos.wire.replies import ANSWERED, EVENTS, REPLIES
from batos.wire.schemas import OPS
from tests.support.replies import checked

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "wire.md").read_text()
NOT_SHOWN = {"info"}
"""Replies without an example on the page: it would be as long as all others."""


def _examples() -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for block in re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        rest = block.strip()
        while rest:
            value, end = decoder.raw_decode(rest)
            yield value
            rest = rest[end:].lstrip()


EXAMPLES = list(_examples())


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "op" in e], ids=lambda e: e["op"])
def test_every_request_on_the_page_is_one(example: dict[str, Any]) -> None:
    request = parse_request(json.dumps(example).encode(), PayloadLimits.of(Settings()))
    assert request.model_dump(by_alias=True, exclude_unset=True) == example


@pytest.mark.parametrize("example", [e for e in EXAMPLES if "op" not in e], ids=lambda e: e["type"])
def test_every_reply_on_the_page_is_as_the_reference_says(example: dict[str, Any]) -> None:
    checked(example)
    if example["type"] == "result":
        assert ("result" in example) == (example["state"] == "COMPLETE")
        assert ("error" in example) == (example["state"] == "FAILED")
    if example["type"] == "error":
        assert example["code"] in by_code()


def test_the_page_has_examples_of_every_op_and_of_every_reply() -> None:
    assert {e["op"] for e in EXAMPLES if "op" in e} == set(OPS)
    assert {e["type"] for e in EXAMPLES if "type" in e} == set(REPLIES) - NOT_SHOWN


def test_the_page_names_every_op_and_field() -> None:
    for op, model in OPS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{op}` |"))
        for field in {field.alias or name for name, field in model.model_fields.items()} - {"op", "ref"}:
            assert f"`{field}`" in row, (op, field)


def test_the_page_names_the_replies_to_every_op() -> None:
    rows = {op: next(line for line in PAGE.splitlines() if line.startswith(f"| `{op}` |")).split("|")[-2] for op in OPS}
    for op in OPS:
        named = set(re.findall(r"`(\w+)`", rows["submit"] if rows[op].strip() == "as `submit`" else rows[op]))
        assert (named & REPLIES.keys()) - EVENTS == {kind for kind, ops in ANSWERED.items() if op in ops} - EVENTS, op


def test_the_page_names_the_role_of_every_op() -> None:
    for op, model in OPS.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{op}` |"))
        more = f"; `operate` with {', '.join(f'`{field}`' for field in model.operating)}" if model.operating else ""
        assert row.split("|")[2].strip() == f"`{model.least_role}`{more}"


def test_the_page_names_every_code_that_a_daemon_sends() -> None:
    at_start_or_in_the_client = (ConfigError, ImageError, EndpointError, DaemonUnavailable, MissionPending, ModelfileError, OutputFailed)
    for code, cls in by_code().items():
        assert f"`{code}`" in PAGE or issubclass(cls, at_start_or_in_the_client), code
    for code in re.findall(r"^\| (`[a-z_`, ]+`) \|", PAGE.split("## Codes")[1], re.MULTILINE):
        assert set(re.findall("[a-z_]+", code)) <= by_code().keys()


def test_the_page_names_settings_that_exist() -> None:
    for name in ("missions.brief_bytes", "wire.listen", "wire.role", "wire.folders", "image.history_days"):
        assert f"`{name}`" in PAGE
        assert name in names()
    for name in ("message_bytes", "message_depth", "client_queue", "client_queue_bytes", "ping_s", "silence_s"):
        assert f"`WireLimits.{name}`" in PAGE


@pytest.mark.parametrize("name", ["send_mission.py", "send_mission_req.py"])
def test_the_examples_are_short_and_need_pyzmq_only(name: str) -> None:
    source = (ROOT / "examples" / name).read_text()
    assert len(source.splitlines()) < 30
    assert set(re.findall(r"^import (\w+)", source, re.MULTILINE)) == {"json", "sys", "uuid", "zmq"}
    assert not re.search(r"^\s*(import|from) batos|\bbatos\.", source, re.MULTILINE)
