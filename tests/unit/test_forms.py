"""Answers of a form: schemas that are none are refused, answers that do not keep theirs are told why."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from batos.errors import InvalidInput, MessageTooLarge
from batos.isolation import ChildStopped, IsolatedChild
from batos.mind import answer_schema

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
        ({"items": [{"$ref": "http://localhost:1/schema"}]}, "not a valid JSON schema"),
        ({"items": {"$ref": "http://localhost:1/schema"}}, "cannot be followed"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_place(schema: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        answer_schema.check_schema(schema)


def test_a_schema_that_python_cannot_count_or_walk_is_refused_as_any_other() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    for odd in (deep, {"type": "string", "pattern": "a{99999999999}"}):
        with pytest.raises(InvalidInput):
            answer_schema.check_schema(odd)


def test_a_schema_has_a_size() -> None:
    answer_schema.check_schema(CITY)
    with pytest.raises(MessageTooLarge, match="at most 16384"):
        answer_schema.check_schema({"description": "x" * answer_schema.SCHEMA_BYTES})


@pytest.mark.parametrize(
    ("text", "value", "problem"),
    [
        ('{"name": "Ulm", "people": 126000}', {"name": "Ulm", "people": 126000}, None),
        ('```json\n{"name": "Ulm"}\n```', {"name": "Ulm"}, None),
        ("Ulm has many people", None, "it is not valid JSON"),
        ("[" * 50_000, None, "it is not valid JSON"),
        ('{"name": "Ulm", "people": NaN}', None, "it is not valid JSON"),
        ('{"name": "Ulm", "people": 1e999}', None, "it is not valid JSON"),
        ('{"name": "Ulm\\ud83d"}', None, "it is not valid JSON"),
        ('{"people": 3}', {"people": 3}, "at the top: 'name' is a required property"),
        ('{"name": "Ulm", "people": -1}', {"name": "Ulm", "people": -1}, "at ['people']: -1 is less than the minimum of 0"),
        ('{"name": "Ulm", "more": 1}', {"name": "Ulm", "more": 1}, "at the top: Additional properties are not allowed"),
    ],
    ids=range(10),
)
async def test_an_answer_is_read_and_held_against_it(text: str, value: Any, problem: str | None) -> None:
    found, why = await answer_schema.read(text, CITY)
    assert found == value
    assert (why or "").startswith(problem or "")
    assert bool(why) == bool(problem)


DOUBLING = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(40)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": "^(a+)+$"}, "a" * 60 + "!"),
        ({"type": "object", "patternProperties": {"^(\\w+\\s?)*$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"type": "object", "propertyNames": {"pattern": "(x+x+)+y"}}, {"x" * 60: 1}),
        ({"type": "array", "items": {"anyOf": [{"pattern": "^(.*a){30}$"}]}}, ["a" * 60]),
        ({"$ref": "#/$defs/d0", "$defs": {**DOUBLING, "d40": {"type": "integer"}}}, 1),
        ({"$ref": "#/$defs/d", "$defs": {"d": {"$ref": "#/$defs/d"}}}, 1),
    ],
    ids=["pattern", "patternProperties", "propertyNames", "anyOf", "references that double", "a reference to itself"],
)
async def test_a_schema_that_takes_for_ever_holds_up_nobody(schema: Any, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    answer_schema.check_schema(schema)
    monkeypatch.setattr(answer_schema, "CHECK_S", 0.3)
    reading = asyncio.create_task(answer_schema.read(json.dumps(value), schema))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        turns += 1
    assert turns > 2
    assert "takes too long" in str(reading.result()[1]) or "without end" in str(reading.result()[1])


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "string", "pattern": "^[a-z]+$"}, "abc", None),
        ({"type": "string", "pattern": "^[a-z]+$"}, "ab1", "at the top: 'ab1' does not match '^[a-z]+$'"),
        ({"properties": {"x": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}}, {"x": None}, None),
        ({"type": "array", "uniqueItems": True}, [1, 1], "at the top: [1, 1] has non-unique elements"),
        ({"type": "string", "pattern": "^\\ud83d"}, "é\x00", "at the top: 'é\\x00' does not match"),
        ({"properties": {"pattern": {"type": "string"}, "not": {"type": "integer"}}}, {"pattern": "(", "not": "x"}, "at ['not']: 'x'"),
    ],
    ids=range(6),
)  # fmt: skip
async def test_what_is_not_plain_is_checked_elsewhere_and_alike(schema: Any, value: Any, problem: str | None) -> None:
    found, why = await answer_schema.read(json.dumps(value), schema)
    assert found == value
    assert (why or "").startswith(problem or "")
    assert bool(why) == bool(problem)


@pytest.mark.parametrize(("value", "factor", "fits"), [("19.99", 0.01, True), ("0.3", 0.1, True), ("19.995", 0.01, False), ("7", 2, False)])
async def test_a_price_is_a_multiple_of_a_cent(value: str, factor: float, fits: bool) -> None:
    _, why = await answer_schema.read(value, {"type": "number", "multipleOf": factor})
    assert why == (None if fits else f"at the top: {value} is not a multiple of {factor}")


@pytest.mark.parametrize("schema", [{"type": "number", "multipleOf": 0.5}, {"anyOf": [{"multipleOf": 0.5}]}], ids=["here", "in a child"])
async def test_a_number_may_be_too_large_for_a_schema(schema: Any) -> None:
    answer_schema.check_schema(schema)
    assert await answer_schema.read("1" + "0" * 400, schema) == (10**400, "a number in it is too large to be checked against the schema")


async def test_what_a_child_died_of_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def died(*_: Any, **__: Any) -> Any:
        raise ChildStopped("died", "by SIGKILL")

    monkeypatch.setattr(IsolatedChild, "ask", died)
    assert await answer_schema.read("1", {"anyOf": [{}]}) == (1, "it could not be checked against the schema (by SIGKILL)")
