"""Schemas as they are sent: without bounds that no grammar can have, and otherwise as they are."""

from __future__ import annotations

from typing import Any

import pytest

from batos.autotelic.proposals import Proposed
from batos.bridge.grammars import MOST, taken


def text(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"name": {"type": "string", **more}}, "required": ["name"]}


@pytest.mark.parametrize(
    "kept", [{"maxLength": MOST}, {"minLength": 1, "maxLength": 7}, {"pattern": "^[a-z]{1,2000}$"}, {"enum": ["{9999}"]}]
)
def test_what_a_grammar_can_have_stays(kept: dict[str, Any]) -> None:
    assert taken(text(**kept)) == text(**kept)


@pytest.mark.parametrize(
    "bound", [{"maxLength": MOST + 1}, {"minLength": 5000}, {"pattern": "^a{1,2001}$"}, {"pattern": "x{3000}"}, {"pattern": "x{3000,}"}]
)
def test_what_none_can_have_goes(bound: dict[str, Any]) -> None:
    assert taken(text(**bound)) == text()


def test_it_goes_however_deep_it_is_and_the_schema_given_stays() -> None:
    inner = {"type": "array", "maxItems": 9000, "items": {"anyOf": [{"type": "string", "maxLength": 9000}, {"type": "null"}]}}
    schema = {"$defs": {"a": inner}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert taken(schema)["$defs"]["a"] == {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    assert inner["maxItems"] == 9000
    assert taken(None) is None


def test_properties_that_are_called_so_are_none_of_that() -> None:
    schema = {"type": "object", "properties": {"maxLength": {"type": "integer"}, "pattern": {"type": "string"}}}
    assert taken(schema) == schema


def test_a_proposal_can_be_asked_for() -> None:
    """Its content may be longer than a grammar can count."""
    schema = Proposed.model_json_schema()
    assert schema["properties"]["content"]["maxLength"] > MOST
    assert "maxLength" not in taken(schema)["properties"]["content"]
