"""Chosen calls fit the schemas of their tools, whatever the brief, the schema and the model's answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from batos.bridge.inference import ChatReply
from batos.mind.argument_reader import read_arguments
from batos.mind.tool_choice import ChoiceServices, ChosenCall, FailedCall, ToolChoice, ToolOffer, choose
from batos.tools.definitions import ToolDefinition

WORDS = (
    "find",
    "Oslo",
    "New York",
    "'quoted text'",
    "12",
    "3.5",
    "-4",
    "$2,000",
    "5%",
    "and",
    ",",
    "from",
    "to",
    "March 5, 2024",
    "name",
    "count",
    "with",
    "without",
    "[1, 2]",
    '{"a": 1}',
    "a@b.org",
    "x^2 + 1",
    "two",
    "1e400",
    "99999999999999999999",
    "\n",
    "“",
    "日本",
    "=",
    ": the rest",
    "true",
)
briefs = st.one_of(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join), st.text(max_size=60))
names = st.sampled_from(("name", "count", "city", "from_year", "is_open", "tags", "date", "größe", "x"))
scalars = st.one_of(
    st.sampled_from(
        (
            {"type": "string"},
            {"type": "integer"},
            {"type": "number"},
            {"type": "boolean"},
            {},
            {"type": ["null", "integer"]},
            {"const": 4},
            {"type": "string", "format": "date"},
            {"type": "string", "maxLength": 3},
            {"type": "integer", "minimum": 5, "maximum": 20},
            {"enum": ["Oslo", 12, None]},
            {"type": "string", "enum": ["from", "to"]},
            {"type": "object"},
            {"type": "number", "default": "wrong"},
            {"type": "wrong"},
            {"type": "array", "items": [1]},
            {"type": "string", "minLength": "x"},
            {"$ref": "#/$defs/one"},
            {"$ref": "#/nowhere"},
            {"anyOf": [{"type": "null"}, {"type": "string"}]},
        )
    ),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def made(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": [name for name in required if name in properties]}

    return st.builds(made, st.dictionaries(names, inner, max_size=4), st.lists(names, max_size=4, unique=True))


parts = st.recursive(
    scalars, lambda inner: st.one_of(objects(inner), st.builds(lambda items: {"type": "array", "items": items}, inner)), max_leaves=6
)
schemas = objects(parts).map(lambda schema: {**schema, "$defs": {"one": {"type": "string"}}})
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=3)),
    max_leaves=6,
)


def fits(arguments: Any, schema: dict[str, Any]) -> None:
    json.dumps(arguments, allow_nan=False)
    jsonschema.Draft202012Validator(schema).validate(arguments)


@settings(max_examples=150, deadline=None)
@given(briefs, schemas)
def test_each_argument_that_rules_read_fits_its_own_schema(brief: str, schema: dict[str, Any]) -> None:
    reading = read_arguments(brief, schema)
    for name, value in reading.arguments.items():
        if "#/nowhere" not in json.dumps(schema) and not isinstance(value, dict):
            fits(value, {**schema["properties"][name], "$defs": schema["$defs"]})
    assert 0 <= reading.evident <= 1


@settings(max_examples=150, deadline=None)
@given(briefs, schemas, values, st.booleans())
def test_each_chosen_call_fits(brief: str, schema: dict[str, Any], answer: Any, failed: bool) -> None:
    offer = ToolOffer("c.tool", ToolDefinition(name="tool", description="Finds a name, a count or a city.", parameters=schema))

    async def ask(prompt: str, form: dict[str, Any] | None) -> str:
        return json.dumps(answer)

    async def ask_with_tools(prompt: str, tools: tuple[dict[str, Any], ...]) -> ChatReply:
        return ChatReply("", "m", calls=((tools[0]["function"]["name"], json.dumps(answer)),))

    again = FailedCall(ChosenCall("c.tool", answer if isinstance(answer, dict) else {}), "it failed: name") if failed else None
    for services in (ChoiceServices(ask=ask), ChoiceServices(), ChoiceServices(ask_with_tools=ask_with_tools)):
        choice = asyncio.run(choose(brief, [offer], services, again=again, floor=-1.0))
        for call in choice.calls:
            fits(call.arguments, schema)
            assert again is None or call != again.call
        assert ToolChoice.of(json.loads(json.dumps(choice.to_wire()))) == choice
        assert choice.why
