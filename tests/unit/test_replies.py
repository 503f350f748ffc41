"""The reference of replies: it has each type that the source sends, and the check by it is strict."""

import ast
import typing
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import is_typeddict

from batos.comparisons.records import JUDGES, STATES
from batos.image import ledger
from batos.image.effects import CLASSES
from batos.image.grants import VERDICTS
from batos.missions.held_missions import NEEDS_INPUT, PAUSED
from batos.wire import admin_replies, image_replies, mission_replies, replies
from batos.wire.replies import ANSWERED, EVENTS, REPLIES
from batos.wire.schemas import OPS
from tests.support.replies import checked

HOUSE = Path(__file__).parents[2] / "batos"
OTHER_PROTOCOLS = ("cli", "console", "doors")
"""Packages that send nothing on the wire: what the first prints, pages of the second, and HTTP have types of their own."""
OF_SCHEMAS = {"object", "array", "string", "integer", "number", "boolean", "null", "function"}
"""What `type` says in JSON schemas and in definitions of tools."""
ERROR = {"type": "error", "code": "busy", "message": "try again"}


def _sent(tree: ast.AST) -> set[str]:
    """Return the types of replies in a module: those in dicts, and those of events that an attempt publishes."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                found |= {value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "type" and _is_text(value)}
            case ast.Call(func=ast.Attribute(attr="publish"), args=[ast.Constant(value=str()) as kind, *_]):
                found.add(kind)
    return {str(one.value) for one in found if isinstance(one, ast.Constant)}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _objects() -> list[Any]:
    modules = (mission_replies, image_replies, admin_replies, replies)
    return [one for module in modules for one in vars(module).values() if is_typeddict(one) and one.__module__ == module.__name__]


def test_the_reference_has_each_type_that_the_source_sends_and_no_other() -> None:
    modules = [path for path in HOUSE.rglob("*.py") if path.relative_to(HOUSE).parts[0] not in OTHER_PROTOCOLS]
    sent = set().union(*(_sent(ast.parse(path.read_text("utf-8"))) for path in modules))
    assert sent - OF_SCHEMAS == set(REPLIES)


def test_each_reply_answers_operations_that_there_are_and_each_operation_has_a_reply() -> None:
    assert {op for ops in ANSWERED.values() for op in ops} == set(OPS)
    assert set(ANSWERED) == set(REPLIES)
    assert set(REPLIES) >= EVENTS
    for kind, form in REPLIES.items():
        assert typing.get_args(typing.get_type_hints(form)["type"]) == (kind,)


def test_each_object_of_the_reference_is_part_of_a_reply() -> None:
    used: set[Any] = set()
    waiting: list[Any] = list(REPLIES.values())
    while waiting:
        hint = waiting.pop()
        if hint not in used:
            used.add(hint)
            waiting += typing.get_type_hints(hint, include_extras=True).values() if is_typeddict(hint) else typing.get_args(hint)
    bases = {base for one in _objects() for base in getattr(one, "__orig_bases__", ())}
    assert [one.__name__ for one in _objects() if one not in used | bases] == []


def test_closed_values_are_those_of_the_source() -> None:
    grant, comparison = (typing.get_type_hints(form) for form in (admin_replies.GrantRow, replies.ComparisonRow))
    assert typing.get_args(mission_replies.EffectClass) == CLASSES
    assert typing.get_args(grant["verdict"]) == VERDICTS
    assert set(typing.get_args(comparison["state"])) == set(STATES)
    assert typing.get_args(comparison["judge"]) == JUDGES
    assert {*typing.get_args(mission_replies.State)} >= {ledger.COMPLETE, ledger.FAILED, ledger.ACCEPTED, PAUSED, NEEDS_INPUT}


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ({**ERROR, "junk": 1}, "junk"),
        ({**ERROR, "code": 7}, "code"),
        ({"type": "error", "code": "busy"}, "message"),
        ({"type": "accepted", "id": "a", "state": "DONE"}, "state"),
        ({"type": "result", "id": "a", "state": "COMPLETE", "result": {"text": "", "usage": {"inferences": "1"}}}, "usage.inferences"),
        ({"type": "result", "id": "a", "state": "COMPLETE", "result": {"text": "", "usage": {"junk": 1}}}, "usage.junk"),
        ({"type": "nothing"}, "nothing"),
        ({}, "None"),
    ],
)
def test_the_check_refuses_what_the_reference_does_not_say(reply: dict[str, Any], fault: str) -> None:
    assert checked(dict(ERROR)) == ERROR
    with pytest.raises(AssertionError, match=fault):
        checked(reply)
