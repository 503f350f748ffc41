"""Answers of a form: schemas that are none are refused, answers that do not keep theirs are told why."""

from __future__ import annotations

from typing import Any

import pytest

from batos.errors import InvalidInput, MessageTooLarge
from batos.mind import forms

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"$ref": "#/$defs/count"}},
    "required": ["name"],
    "additionalProperties": False,
    "$defs": {"count": {"type": "integer", "minimum": 0}},
}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "not empty"),
        ([], "not empty"),
        ("object", "not empty"),
        ({"type": "objekt"}, r"at \['type'\]: 'objekt'"),
        ({"properties": {"a": {"minimum": "1"}}}, r"\['properties'\]\['a'\]\['minimum'\]"),
        ({"$ref": "#/nowhere"}, "cannot be followed"),
        ({"items": [{"$ref": "http://localhost:1/schema"}]}, "no JSON schema"),
        ({"items": {"$ref": "http://localhost:1/schema"}}, "cannot be followed"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(schema: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        forms.check_schema(schema)


def test_a_schema_has_a_size() -> None:
    forms.check_schema(CITY)
    with pytest.raises(MessageTooLarge, match="at most 16384"):
        forms.check_schema({"description": "x" * forms.SCHEMA_BYTES})


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ('{"name": "Ulm", "people": 126000}', {"name": "Ulm", "people": 126000}, None),
        ('```json\n{"name": "Ulm"}\n```', {"name": "Ulm"}, None),
        ("Ulm has many people", None, "it is no JSON"),
        ("[" * 50_000, None, "it is no JSON"),
        ('{"name": "Ulm", "people": NaN}', None, "it is no JSON"),
        ('{"name": "Ulm", "people": 1e999}', None, "it is no JSON"),
        ('{"name": "Ulm\\ud83d"}', None, "it is no JSON"),
        ('{"people": 3}', {"people": 3}, "at the top: 'name' is a required property"),
        ('{"name": "Ulm", "people": -1}', {"name": "Ulm", "people": -1}, "at ['people']: -1 is less than the minimum of 0"),
        ('{"name": "Ulm", "more": 1}', {"name": "Ulm", "more": 1}, "at the top: Additional properties are not allowed"),
    ],
    ids=range(10),
)
def test_an_answer_is_read_and_held_against_it(text: str, value: Any, problem: str | None) -> None:
    found, why = forms.read(text, CITY)
    assert found == value
    assert (why or "").startswith(problem or "")
    assert bool(why) == bool(problem)
