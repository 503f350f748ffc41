"""What of BAT OS is public: what users' images, clients, scripts, dashboards and settings name. `make pins` writes it to tests/pins.

Each function of `KINDS` collects one kind from the code as it is, as JSON: objects by name, and lists whose order does not matter.
What is written there changes only by addition; `compared` says what to do about anything else.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import pkgutil
import re
import sys
import tempfile
import typing
from collections import deque
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import Any, NamedTuple

import typer
from persistent import Persistent

import batos
from batos import config, errors
from batos.cli.app import app, register
from batos.config import former
from batos.image.journal import content_of, key_of
from batos.objects import Primitive, UvmObject
from batos.objects.slot_values import FORMER
from batos.wire.replies import REPLIES
from batos.wire.schemas import OPS
from tests.support.missions import FakeInference, mind

ROOT = Path(__file__).parents[2]
PINS = Path(__file__).parents[1] / "pins"
STABLE = ("batos.image", "batos.memory", "batos.objects")
"""The packages under whose names classes are written into images, whatever module they live in."""
PYTHON = (
    "batos.guardian.PersistenceGuardian", "batos.errors.CovenantViolationError", "batos.objects.UvmObject", "batos.wire.Client",
    "batos.wire.SyncClient",
)  # fmt: skip


# --- what images name


def primitives() -> dict[str, Any]:
    """Each Primitive, with what images of earlier versions call it."""
    _import_all()
    found = {name: sorted(old for old, new in FORMER.items() if new == name) for name in Primitive.names()}
    return {name: {"aliases": aliases} for name, aliases in found.items() if not name.startswith("test.")}


def classes() -> list[str]:
    """Each class of ours that is written into images."""
    _import_all()
    found = {cls for cls in _subclasses(Persistent) if cls.__module__.split(".")[0] == "batos"}
    for module in [module for name, module in list(sys.modules.items()) if name.startswith("batos.")]:
        found |= {value for value in vars(module).values() if isinstance(value, type) and value.__module__ in STABLE}
    bases = {"batos.memory.part_log.PartLog"}  # has no instances of its own
    return sorted({f"{cls.__module__}.{cls.__qualname__}" for cls in found} - bases)


def slots() -> dict[str, Any]:
    """The slots of each object of a new image, by the shortest path to it, and the keys of the image's root."""

    async def collected() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            async with mind(Path(folder), FakeInference()) as kernel:
                return kernel.image.read(_slots)  # type: ignore[no-any-return]

    return asyncio.run(collected())


def _slots(root: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"(the root)": sorted(root)}
    seen, waiting = set(), deque([("lobby", root["lobby"])])
    while waiting:
        path, obj = waiting.popleft()
        if obj._p_oid in seen:
            continue
        seen.add(obj._p_oid)
        found[path] = sorted(obj._slots)
        for name, value in sorted(obj._slots.items()):
            if isinstance(value, UvmObject) and not name.endswith("*"):
                waiting.append((f"{path}.{name}".removeprefix("lobby."), value))
    return found


def journal_keys() -> dict[str, str]:
    """Keys of the journal for given contents: what was paid for is found by them."""
    schema, options = {"type": "object", "properties": {"b": {}, "a": {}}}, {"temperature": 0.2, "seed": 7, "num_ctx": 4096}
    contents = {
        "plain": content_of("d" * 64, "You are Robin.", "Plan the day", None, {}),
        "with options": content_of("d" * 64, "You are Robin.", "Plan the day", None, options),
        "with a schema": content_of("d" * 64, "You are Robin.", "Plan the day", schema, options),
        "with turns": content_of("d" * 64, "", "And then?", None, options, [("Plan the day", "Sleep in.")]),
        "with images": content_of("d" * 64, "", "What is this?", None, {}, (), [["a" * 64]]),
        "not of this world": content_of("", "\udcff", "Grüße aus Köln, 你好 \U0001f987", {"ü": "\udc80"}, {"stop": ["\n", "é"]}),
    }
    return {name: key_of(content).hex() for name, content in contents.items()}


# --- what clients, scripts and dashboards name


def error_codes() -> dict[str, Any]:
    """Each code, with what the command line exits with and whether asking again may help."""
    own = {code: cls for code, cls in errors.by_code().items() if cls.__module__.split(".")[0] == "batos"}
    return {code: {"exit_code": cls.exit_code, "retryable": cls.retryable} for code, cls in own.items()}


def exit_codes() -> dict[str, list[str]]:
    """The exit codes that the documents promise, of the command line and of the daemon."""
    found = {}
    for who, page in (("command line", "errors.md"), ("daemon", "operations.md")):
        table = (ROOT / "docs" / page).read_text("utf-8").partition("\n| exit code | ")[2].partition("\n\n")[0]
        found[who] = sorted({code for row in re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE) for code in re.findall(r"\d+", row)})
    return found


def wire_ops() -> dict[str, Any]:
    """Each operation: who may ask it, and its fields with their types."""
    found = {}
    for op, model in OPS.items():
        schema = model.model_json_schema(by_alias=True)
        required, kinds = schema.get("required", ()), schema.get("$defs", {})
        aliases = {info.alias or name: name for name, info in model.model_fields.items()}
        fields = {
            name: {**_typed(value, kinds), "required": name in required} | ({"role": "operate"} if aliases[name] in model.operating else {})
            for name, value in schema["properties"].items()
            if name != "op"
        }
        found[op] = {"role": model.least_role, "fields": fields}
    return found


def _typed(value: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Any]:
    """The type of a JSON schema, in words, and the values that it lists; its limits are left out."""
    if "$ref" in value:
        value = kinds[value["$ref"].rpartition("/")[2]]
    if "anyOf" in value:
        parts = [_typed(one, kinds) for one in value["anyOf"]]
        found: dict[str, Any] = {"type": " | ".join(sorted({part["type"] for part in parts}))}
        values = sorted({one for part in parts for one in part.get("values", ())})
    else:
        found = {"type": value.get("type", "any")}
        values = sorted(str(one) for one in value.get("enum", [value["const"]] if "const" in value else ()))
        if value.get("items"):
            found["items"] = _typed(value["items"], kinds)
        if "properties" in value:
            found["fields"] = {name: _typed(one, kinds) for name, one in value["properties"].items()}
    return found | ({"values": values} if values else {})


def wire_events() -> dict[str, list[str]]:
    """The fields of each type of reply and event, as `batos.wire.replies` describes them; each reply in the tests is held against that."""
    return {kind: sorted(typing.get_type_hints(form)) for kind, form in REPLIES.items()}


def cli() -> dict[str, Any]:
    """Each verb: its arguments in their order, and its options."""
    register()
    group: Any = typer.main.get_command(app)
    found = {"(alone)": _command(group), **{name: _command(command) for name, command in group.commands.items()}}
    assert not any(hasattr(command, "commands") for command in group.commands.values()), "verbs of verbs are not looked into"
    return found


def _command(command: Any) -> dict[str, Any]:
    given = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    arguments = {str(at): {"name": one.name.upper(), "required": bool(one.required)} for at, one in enumerate(given, 1)}
    options = {
        flag: {
            "takes": "nothing" if parameter.is_flag else "a value",
            "repeated": bool(parameter.multiple),
            "required": bool(parameter.required),
        }
        for parameter in command.params
        if parameter.param_type_name == "option" and parameter.expose_value  # others are typer's own
        for flag in [*parameter.opts, *parameter.secondary_opts]
    }
    return {"arguments": arguments, "options": options}


def metrics() -> dict[str, Any]:
    """Each metric, as docs/metrics.md lists them: test_docs.py sees that the list is that of the code."""
    rows = re.findall(r"^\| `(batos_\w+)` \| (\w+) \| (.*) \|$", (ROOT / "docs" / "metrics.md").read_text("utf-8"), re.MULTILINE)
    return {name: {"kind": kind, "labels": sorted(re.findall(r"`(\w+)`", says))} for name, kind, says in rows}


def settings() -> dict[str, Any]:
    """Each setting that is understood, by its name and by former ones, with the type of its value."""
    found = {}
    for row in config.table():
        choice = {"values": sorted(row.limits.split(" | "))} if row.type == "choice" else {}
        found[row.name] = {"type": row.type, **choice}
    for name, now in former.RENAMED.items():
        found[name] = found[now]
    for name in former.LIMITS:
        kind = former.type_name(name)
        choice = {"values": sorted(typing.get_args(former.type_of(name)))} if kind == "choice" else {}
        found[name] = {"type": kind, **choice}
    return found


def python() -> dict[str, Any]:
    """The classes that Python programs import, with their methods and what those take."""
    found = {}
    for path in PYTHON:
        module, _, name = path.rpartition(".")
        cls = getattr(importlib.import_module(module), name)
        methods = {
            name: {"takes": sorted(parameter for parameter in inspect.signature(method).parameters if parameter != "self")}
            for name, method in inspect.getmembers(cls, inspect.isroutine)
            if not name.startswith("_") and getattr(method, "__module__", "").startswith("batos")
        }
        found[path] = methods
    return found


KINDS: dict[str, Callable[[], Any]] = {
    one.__name__: one
    for one in (
        primitives, classes, slots, journal_keys, error_codes, exit_codes, wire_ops, wire_events, cli, metrics, settings, python,
    )
}  # fmt: skip


# --- comparing

_UNDER = " › "


class Difference(NamedTuple):
    """What differs from what is pinned, each in words."""

    broken: list[str]
    """What was public and is not as it was."""
    new: list[str]


def compared(kind: str, pinned: Any, now: Any) -> Difference:
    """Say what differs from what is pinned, and what to do about it."""
    before, after = dict(_lines(pinned)), dict(_lines(now))
    file = f"tests/pins/{kind}.json"
    remedy = (
        "users rely on it: bring it back, or let the old name stand beside the new one. If it has to go, say so in CHANGELOG.md, "
        f"take it out of {file} by hand, and run `make pins`"
    )
    gone, new = _topmost(before.keys() - after.keys(), before), _topmost(after.keys() - before.keys(), after)
    broken = [f"{kind}: {path} is gone; {remedy}" for path in gone]
    broken += [
        f"{kind}: {path} is {after[path]!r} and was {value!r}; {remedy}"
        for path, value in before.items()
        if path in after and after[path] != value
    ]
    demanded = [path for path in new if after.get(f"{path}{_UNDER}required") is True]
    broken += [f"{kind}: {path} is new and required; who does not know of it would be refused: make it optional" for path in demanded]
    more = f"is new; if it is meant to be public and to stay, run `make pins` and commit {file}"
    return Difference(broken, [f"{kind}: {path} {more}" for path in new if path not in demanded])


def _topmost(paths: Set[str], order: Iterable[str]) -> list[str]:
    """Those of the paths that are not below another one, in a given order."""
    return [path for path in order if path in paths and path.rpartition(_UNDER)[0] not in paths]


def _lines(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """Every name and value in a JSON value, by the way to it; the items of a list are names."""
    if isinstance(value, list):
        yield from ((f"{path}{_UNDER}{one}".removeprefix(_UNDER), True) for one in value)
    elif isinstance(value, dict):
        for name, one in value.items():
            here = f"{path}{_UNDER}{name}".removeprefix(_UNDER)
            if isinstance(one, dict | list):
                yield here, type(one).__name__
            yield from _lines(one, here)
    else:
        yield path, value


def pinned(kind: str) -> Any:
    """What is written in tests/pins."""
    return json.loads((PINS / f"{kind}.json").read_text("utf-8"))


def written(value: Any) -> str:
    """A kind as its file has it."""
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def main() -> int:
    """Write what was added; where something is gone or changed, say so and leave that file."""
    status = 0
    for kind, collect in KINDS.items():
        path, now = PINS / f"{kind}.json", collect()
        text = written(now)
        if broken := compared(kind, pinned(kind), now).broken if path.exists() else []:
            print("\n".join(broken))
            status = 1
        elif not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"written: {path.relative_to(ROOT)}")
    return status


def _import_all() -> None:
    for module in pkgutil.walk_packages(batos.__path__, "batos."):
        if not module.name.endswith("__main__") and not module.name.startswith("batos.training"):
            importlib.import_module(module.name)


def _subclasses(cls: type) -> Iterable[type]:
    for one in cls.__subclasses__():
        yield one
        yield from _subclasses(one)


if __name__ == "__main__":
    raise SystemExit(main())
