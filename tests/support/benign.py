"""Plain, harmless methods of many kinds (`benign_methods.txt`), as engineers and models write them: run in CPython, to compare."""

from __future__ import annotations

import ast
import copy
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batos.objects import Method, UvmObject
from tests.support.sandbox import method, plain

_TEXT = Path(__file__).with_name("benign_methods.txt")


@dataclass(frozen=True)
class Benign:
    """One method, how it is called, and the slots of its receiver before. A text that begins with `def ` is a method."""

    source: str
    args: list[Any]
    slots: dict[str, Any]

    @property
    def selector(self) -> str:
        return method(self.source).selector


def benign() -> list[Benign]:
    """The methods of the file: `#! [arguments], {slots}`, then the source."""
    found = []
    for part in _TEXT.read_text(encoding="utf-8").split("#! ")[1:]:
        head, _, source = part.partition("\n")
        args, slots = ast.literal_eval(head)
        found.append(Benign(source, list(args), slots))
    return found


class Plain:
    """What `self` is in CPython."""


def in_cpython(case: Benign) -> tuple[Any, Any]:
    """What a method answers and what it leaves, run as plain Python."""
    receiver = _bound(copy.deepcopy(case.slots))
    before = _data(receiver)
    space: dict[str, Any] = {}
    exec(case.source, space)
    try:
        value = space[case.selector](receiver, *copy.deepcopy(case.args))
    except Exception as e:
        return ("raised", _builtin(e)), before  # a method that raises leaves nothing written
    return value, _data(receiver)


def _builtin(error: Exception) -> str:
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def _bound(slots: dict[str, Any]) -> Plain:
    made = Plain()
    for name, value in slots.items():
        if isinstance(value, str) and value.startswith("def "):
            space: dict[str, Any] = {}
            exec(value, space)
            setattr(made, name, types.MethodType(space[name], made))
        else:
            setattr(made, name, _each(value, _bound))
    return made


def _each(value: Any, make: Any) -> Any:
    if isinstance(value, list):
        return [_each(item, make) for item in value]
    return make(value["$uvm"]) if isinstance(value, dict) and "$uvm" in value else value


def _data(receiver: Any) -> Any:
    if not isinstance(receiver, Plain):
        return [_data(item) for item in receiver] if isinstance(receiver, list) else receiver
    held = {name: value for name, value in vars(receiver).items() if name != "_p_changed"}
    return {name: _data(value) for name, value in held.items() if not isinstance(value, types.MethodType)}


def stored_object(slots: dict[str, Any]) -> UvmObject:
    """The receiver as the image would store it."""
    made = UvmObject(
        **{
            name: method(value) if isinstance(value, str) and value.startswith("def ") else _each(value, stored_object)
            for name, value in copy.deepcopy(slots).items()
        }
    )
    made.__getstate__()
    return made


def left(target: Any) -> Any:
    """What an object's slots hold, as plain data."""
    if isinstance(target, UvmObject):
        return {name: left(value) for name, value in target._slots.items() if not isinstance(value, Method)}
    value = plain(target)
    return [left(item) for item in value] if isinstance(value, list) else value
