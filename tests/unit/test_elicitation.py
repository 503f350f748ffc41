"""Questions of MCP servers in words, and answers that fit their forms; the SDK is asked for only where a connection is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batos.errors import InvalidInput
from batos.tools.elicitation import question_of, response_to

ROOT = Path(__file__).parents[2]
FIELDS: dict[str, Any] = {
    "name": {"type": "string", "minLength": 2, "maxLength": 5},
    "age": {"type": "integer", "minimum": 0, "maximum": 150, "default": 30},
    "share": {"type": "number"},
    "color": {"type": "string", "oneOf": [{"const": "red", "title": "Red"}, {"const": "blue", "title": "Blue"}]},
    "sure": {"type": "boolean"},
    "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue"]}, "maxItems": 2},
}


def form(*names: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    properties = {name: FIELDS[name] for name in names}
    return {"mode": "form", "message": "Tell.", "requestedSchema": {"type": "object", "properties": properties, "required": list(required)}}


@pytest.mark.parametrize(
    ("name", "said", "value"),
    [
        ("name", "Babs", "Babs"), ("age", "7", 7), ("age", "7.0", 7), ("share", "0.5", 0.5), ("color", "blue", "blue"),
        ("sure", "yes", True),
        ("sure", "no", False), ("days", "mon, tue", ["mon", "tue"]), ("name", "name: Babs", "Babs"), ("days", '{"days": ["tue"]}', ["tue"]),
    ],
)  # fmt: skip
def test_a_single_field_is_answered_by_its_value(name: str, said: str, value: Any) -> None:
    assert response_to(form(name), said) == {"action": "accept", "content": {name: value}}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("name", "x"), ("name", "Barbara"), ("age", "-1"), ("age", "151"), ("age", "1.5"), ("age", "nan"), ("share", "inf"),
        ("share", "half"),
        ("color", "green"), ("sure", "perhaps"), ("days", "mon, sun"), ("days", "mon, tue, mon"), ("name", '{"name": 5}'),
        ("name", '{"name"'),
        ("age", '{"age": true}'), ("name", '{"other": "x"}'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidInput):
        response_to(form(name), said)


def test_several_fields_take_lines_or_json_and_their_defaults() -> None:
    several = form("name", "age", "sure", required=("name",))
    assert response_to(several, "name: Babs\nsure = no") == {"action": "accept", "content": {"age": 30, "name": "Babs", "sure": False}}
    with pytest.raises(InvalidInput, match="the field 'name' is missing"):
        response_to(several, "age: 3")
    with pytest.raises(InvalidInput, match="does not say which field"):
        response_to(several, "Babs")
    assert response_to(several, "Decline") == {"action": "decline"}
    assert "name: string, characters at least 2" in question_of(several)
    assert "age (may be left out): integer" in question_of(several)


def test_a_form_with_bounds_that_are_no_numbers_is_told() -> None:
    with pytest.raises(InvalidInput, match="form is not valid"):
        response_to({"requestedSchema": {"properties": {"n": {"type": "integer", "minimum": "one"}}}}, "3")


def test_a_page_is_opened_and_confirmed() -> None:
    page = {"mode": "url", "message": "Pay.", "url": "https://shop.example/pay"}
    assert "https://shop.example/pay" in question_of(page)
    assert response_to(page, "done") == {"action": "accept"}
    with pytest.raises(InvalidInput, match="allowed are done"):
        response_to(page, "perhaps")


def test_the_sdk_is_imported_with_the_first_connection_and_where_it_is_missing_that_is_said(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from batos.errors import ToolFailed
from batos.tools.definitions import ConnectionSpec, ConnectorServices
from batos.tools.mcp_client import McpConnector
connector = McpConnector(ConnectionSpec("f", "mcp", "cat"), ConnectorServices(secret=str, folder=Path(sys.argv[1])))
assert not {"mcp", "mcp_types", "httpx2"} & set(sys.modules)
sys.modules["mcp"] = None
try:
    asyncio.run(connector.tools())
except ToolFailed as e:
    print(e.message)
"""
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "f needs the SDK of MCP" in told
    assert "pip install 'batos[mcp]'" in told
