"""Schemas as they are sent: without bounds that no grammar can have, and otherwise as they are."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batos.autotelic.changes import Proposed
from batos.bridge.structured_output import MOST, grammar_pattern, grammar_schema

UNSAFE = (
    "[a-z]+", "^[^@]+@[^@]+$", "^.+$", "^(a+)+$", "^a{3,2}$", "^a**$", "^(a$", "^a)$", "^$", "^(|a)$", "^a|b$", r"^\S+$", r"^a\\b$",
    '^"a"$',
    "^a+?$", "^a{1,2001}$", "^()$", "^a||b$", "^{a}$", "^+a$", "^(?i)a$", "^(?=a)b$", r"^\p{L}+$", r"^[\d\s]$", "^a{,3}$", r"^[a\]b]$",
)  # fmt: skip
"""Patterns of which the converter makes something else than JSON Schema says, or dies."""


ANY = {"type": ["string", "number", "boolean", "object", "array", "null"]}
WORDS = {"type": "string"}


def text(**more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"name": {"type": "string", **more}}, "required": ["name"]}


@pytest.mark.parametrize(
    "kept", [{"maxLength": MOST}, {"minLength": 1, "maxLength": 7}, {"pattern": "^[a-z]{1,2000}$"}, {"enum": ["{9999}"]}]
)
def test_what_a_grammar_can_have_stays(kept: dict[str, Any]) -> None:
    assert grammar_schema(text(**kept)) == text(**kept)


@pytest.mark.parametrize(
    "bound", [{"maxLength": MOST + 1}, {"minLength": 5000}, {"pattern": "^a{1,2001}$"}, {"pattern": "x{3000}"}, {"pattern": "x{3000,}"}]
)
def test_what_none_can_have_goes(bound: dict[str, Any]) -> None:
    assert grammar_schema(text(**bound)) == text()


def test_it_goes_however_deep_it_is_and_the_schema_given_stays() -> None:
    inner = {"type": "array", "maxItems": 9000, "items": {"anyOf": [{"type": "string", "maxLength": 9000}, {"type": "null"}]}}
    schema = {"$defs": {"a": inner}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert grammar_schema(schema)["$defs"]["a"] == {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}
    assert inner["maxItems"] == 9000
    assert grammar_schema(None) is None


def test_properties_that_are_called_so_are_none_of_that() -> None:
    schema = {"type": "object", "properties": {"maxLength": {"type": "integer"}, "pattern": {"type": "string"}}}
    assert grammar_schema(schema) == schema


def test_a_proposal_can_be_asked_for() -> None:
    """Its content may be longer than a grammar can count."""
    schema = Proposed.model_json_schema()
    assert schema["properties"]["content"]["maxLength"] > MOST
    assert "maxLength" not in grammar_schema(schema)["properties"]["content"]


@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (r"^\d{4}-\d{2}-\d{2}$", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
        (r"^\w+$", "^[A-Za-z0-9_]+$"),
        (r"^[\w.-]+@[\w-]+\.[a-z]{2,}$", "^[A-Za-z0-9_.-]+@[A-Za-z0-9_-]+[.][a-z]{2,}$"),
        ("^(yes|no)$", "^(yes|no)$"),
        ("^(?:x|y)?z*$", "^(x|y)?z*$"),
        ("^[A-Za-z0-9_-]{3,9}$", "^[A-Za-z0-9_-]{3,9}$"),
        ("^ä+$", "^ä+$"),
        *((unsafe, None) for unsafe in UNSAFE),
    ],
)
def test_a_pattern_is_sent_in_words_that_the_converter_has(asked: str, sent: str | None) -> None:
    found = grammar_schema(text(pattern=asked))["properties"]["name"]
    assert found == ({"type": "string"} if sent is None else {"type": "string", "pattern": sent})


@given(st.text(st.sampled_from('^$()[]{}|*+?.\\dwSab1,- "@'), max_size=14).map(lambda inner: f"^{inner}$"))
def test_what_is_sent_of_a_pattern_is_one_and_allows_no_more(asked_for: str) -> None:
    sent = grammar_pattern(asked_for)
    if sent is not None:
        re.compile(sent)
        try:
            asked = re.compile(asked_for)
        except re.error:
            return
        for text_ in ("", "a", "b", "ab", "1", "a1", "-", "@", "a@b", "aa", "d", "w", " ", ",", "1,", "b-a"):
            assert not re.fullmatch(sent, text_) or asked.search(text_), (sent, asked_for, text_)


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "array", "prefixItems": [{"type": "integer"}], "items": False}, {"type": "array", "prefixItems": [{"type": "integer"}]}),
        ({"type": "array", "items": False}, {"type": "array"}),
        ({"type": "object", "properties": {'a"b': {"type": "string"}}, "additionalProperties": False}, {"type": "object"}),
        ({"type": "object", "properties": {"": {"type": "string"}}, "required": [""]}, {"type": "object"}),
        ({"type": "object", "properties": {"größe": {"type": "number"}}}, {"type": "object", "properties": {"größe": {"type": "number"}}}),
        ({"type": "integer", "maximum": 2**53 + 1, "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"type": "number", "minimum": 0.5}, {"type": "number"}),
        ({"enum": []}, ANY),
        ({"type": "text"}, ANY),
        ({"$ref": "https://example.org/a.json"}, ANY),
        ({"$ref": "#"}, ANY),
        ({"not": {"type": "string"}, "if": {}, "uniqueItems": True, "patternProperties": {"x": {}}, "$schema": "x"}, ANY),
        ({"properties": {"x": True, "y": False}}, {"properties": {"x": ANY, "y": ANY}}),
        ({"properties": {"x": {"description": "any"}}}, {"properties": {"x": {"description": "any", **ANY}}}),
        ({"properties": {"$ref": {"type": "string"}}}, {"type": "object"}),
        (True, ANY),
        ({"type": "string", "format": "email"}, {"type": "string"}),
        ({"type": "object", "required": ["x"]}, {"type": "object"}),
        ({"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False}, {"type": "object"}),
        ({"type": "string", "format": ["date"]}, {"type": "string"}),
    ],
)
def test_what_is_not_known_to_be_safe_is_left_out(schema: Any, sent: Any) -> None:
    assert grammar_schema(schema) == sent


def both(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties]}


@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"allOf": [both(a=WORDS), both(b=WORDS)]}, both(a=WORDS, b=WORDS)),
        ({"allOf": [both(a=WORDS), both(b=WORDS)], "additionalProperties": False}, both(a=WORDS, b=WORDS)),
        ({**both(c=WORDS), "allOf": [both(a=WORDS)]}, both(c=WORDS, a=WORDS)),
        ({"allOf": [WORDS, {"minLength": 3}]}, {**WORDS, "minLength": 3}),
        ({"allOf": [{"anyOf": [WORDS, {"type": "null"}]}], "title": "x"}, {"anyOf": [WORDS, {"type": "null"}]}),
        ({"allOf": [{"minimum": 3}, {"minimum": 5}]}, ANY),
        ({**both(k=WORDS), "oneOf": [both(a=WORDS), both(b=WORDS)]}, {**both(k=WORDS), "additionalProperties": True}),
        (
            {"type": "object", "properties": {"k": WORDS, "l": WORDS}, "anyOf": [{"required": ["k"]}, {"required": ["l"]}]},
            {"type": "object", "properties": {"k": WORDS, "l": WORDS}},
        ),
        ({**both(a=WORDS), "if": {"required": ["a"]}, "then": both(b=WORDS)}, {**both(a=WORDS), "additionalProperties": True}),
        ({"$defs": {"q": WORDS}, "$ref": "#/$defs/q", "maxLength": 3}, {"$defs": {"q": WORDS}, **WORDS, "maxLength": 3}),
        (
            {"$defs": {"q": both(a=WORDS)}, "$ref": "#/$defs/q", **both(b=WORDS)},
            {"$defs": {"q": both(a=WORDS)}, **both(a=WORDS, b=WORDS)},
        ),
        (
            {"$defs": {"q": {"enum": ["a"]}}, **both(x={"allOf": [{"$ref": "#/$defs/q"}], "default": "a"})},
            {"$defs": {"q": {"enum": ["a"]}}, **both(x={"enum": ["a"]})},
        ),
    ],
)
def test_schemas_that_are_combined_forbid_nothing_of_one_another(schema: Any, sent: Any) -> None:
    """The converter heeds one of them alone, and takes any other property for forbidden: no answer would be valid."""
    assert grammar_schema(schema) == sent


def test_schemas_that_combine_themselves_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/n", "properties": {"y": WORDS}}}}
    assert grammar_schema({"$defs": {"n": node}, "$ref": "#/$defs/n"})["$ref"] == "#/$defs/n"
    many = {f"d{one}": {"allOf": [{"$ref": f"#/$defs/d{other}"} for other in range(9)]} for one in range(9)}
    assert grammar_schema({"$defs": many, "$ref": "#/$defs/d0"})["$defs"].keys() == many.keys()
