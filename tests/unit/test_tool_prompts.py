"""Tools in the prompt for a method: all that have room, the weightiest told whole, and the rules for calls that act."""

from __future__ import annotations

from typing import Any

from batos.forge import tool_prompts
from batos.tools import doubles
from batos.tools.definitions import ToolDefinition

TEXT: dict[str, Any] = {"type": "string"}


def tool(name: str, *, kind: str = "reads", about: str = "", meaning: str = "", **more: Any) -> ToolDefinition:
    schema = {**TEXT, **({"description": meaning} if meaning else {})}
    return ToolDefinition(
        name=name, description=about, kind=kind, parameters={"type": "object", "properties": {"id": schema}, "required": ["id"]}, **more
    )


async def test_operations_that_a_message_speaks_of_stand_first_and_the_others_follow() -> None:
    tools = [tool(f"count{thing}", about=f"Count the {thing} here.") for thing in ("ships", "ports", "tides", "crews", "cargoes")]
    found = await tool_prompts.ranked("sea", tools, "how many tides there are", 2)
    assert found[0].name == "counttides"
    assert {one.name for one in found} == {one.name for one in tools}


def test_each_operation_has_a_line_before_any_is_told_whole() -> None:
    tools = [tool(f"read{n}", about="Read what is there. " * 20, meaning="which one it is") for n in range(30)]
    lines = tool_prompts.operation_lines("sea", tools, 8, 1400)
    assert len(lines) == 30
    assert sum(map(len, lines)) + len(lines) <= 1400
    assert lines[0].startswith("self.tools.sea.read0(id: str): Read what is there")
    assert lines[-1] == "self.tools.sea.read29(id: str)"
    whole = tool_prompts.operation_lines("sea", tools[:2], 8, 1400)
    assert "\n    Read what is there." in whole[1]
    assert whole[1].endswith("id: which one it is")


def test_what_has_no_room_is_left_out_from_the_end() -> None:
    tools = [tool(f"read{n}") for n in range(30)]
    lines = tool_prompts.operation_lines("sea", tools, 8, 300)
    assert 0 < len(lines) < 30
    assert [line.partition("(")[0].rpartition(".")[2] for line in lines] == [f"read{n}" for n in range(len(lines))]


def test_what_acts_is_marked_and_the_rule_for_it_stands_only_where_one_acts() -> None:
    acting, reading = tool("order", kind="acts", about="Order it."), tool("look", about="Get the price.")
    assert tool_prompts.operation_lines("shop", [acting], 8, 1000) == ("self.tools.shop.order(id: str) (acts)\n    Order it.",)
    assert "a literal bounds the rounds" in tool_prompts.head([reading, acting])
    assert "a literal bounds the rounds" not in tool_prompts.head([reading])
    assert tool_prompts.tool_lines([("shop.order", acting), ("shop.look", reading)], "order", 2) == (
        "self.tools.shop.order(id): Order it (acts)", "self.tools.shop.look(id): price",
    )  # fmt: skip


def test_a_shape_says_what_may_be_missing_and_which_values_there_are() -> None:
    shapes = {
        "str or None": {"type": ["string", "null"]},
        "int or None": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "float": {"anyOf": [{"type": "number"}, {"type": "integer"}]},
        "None": {"oneOf": [{"type": "null"}]},
        '"a" or "b" or None': {"type": ["string", "null"], "enum": ["a", "b", None]},
        "True": {"const": True},
        '"night"': {"const": "night"},
        '[{"n": [str] or None}]': {
            "type": "array",
            "items": {"type": "object", "properties": {"n": {"type": ["array", "null"], "items": {"type": "string"}}}},
        },
    }
    assert {told: doubles.shape(schema) for told, schema in shapes.items()} == {told: told for told in shapes}


def test_of_an_http_answer_only_the_body_is_shown_and_maps_have_their_shape() -> None:
    body = {"type": "object", "additionalProperties": {"type": "object", "properties": {"cost": {"type": "number"}}}}
    answer = {"type": "object", "properties": {"status": {"type": "integer"}, "body": body, "url": TEXT}}
    (line,) = tool_prompts.operation_lines("trips", [tool("all", result=answer)], 8, 1000)
    assert line == 'self.tools.trips.all(id: str) -> {"body": {str: {"cost": float}}, …}'
    assert doubles.shape({"type": "object", "additionalProperties": True}) == "dict"


def test_of_many_arguments_only_the_required_ones_are_shown() -> None:
    schemas = dict.fromkeys(("id", *(f"filter{n}" for n in range(20))), TEXT)
    many = ToolDefinition(name="find", kind="reads", parameters={"type": "object", "properties": schemas, "required": ["id"]})
    assert tool_prompts.operation_lines("shop", [many], 8, 1000) == ("self.tools.shop.find(id: str, …)",)
