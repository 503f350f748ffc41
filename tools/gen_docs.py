"""Write the generated tables and lists of docs/. `--check` only compares, and exits 1 where one is stale.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; the prose around it is written by hand.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import sys
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typing_extensions import get_original_bases, is_typeddict

DOCS = Path(__file__).parents[1] / "docs"


def settings() -> str:
    """Write one table a section, with one row a setting."""
    from batos.config import table
    from batos.config.settings import SECTIONS

    parts = ["| setting | default | allowed | meaning |\n|---|---|---|---|"]
    section = ""
    for row in table():
        own, _, _ = row.name.rpartition(".")
        if own != section:
            section = own
            head = (SECTIONS[own].__doc__ or "").partition(": ")[2]
            parts.append(f"\n### [{own}]\n\n{head[0].upper()}{head[1:]}\n\n| setting | default | allowed | meaning |\n|---|---|---|---|")
        default = " ".join(row.default) if isinstance(row.default, tuple) else str(row.default)
        allowed = row.limits.replace(" | ", ", ")
        parts.append(f"| `{row.name}` | {f'`{default}`' if default else 'empty'} | {allowed} | {row.help} |")
    return "\n".join(parts)


def errors() -> str:
    """One row an error class, in the order and with the words of the tree in `batos.errors`."""
    import batos.errors as module

    rows = ["| code | class | exit code | try again? | meaning |", "|---|---|---|---|---|"]
    for name, meaning in _tree(module.__doc__ or ""):
        cls = getattr(module, name)
        if issubclass(cls, module.BatosError):
            rows.append(f"| `{cls.code}` | `{name}` | {cls.exit_code} | {'yes' if cls.retryable else 'no'} | {meaning} |")
    return "\n".join(rows)


def _tree(text: str) -> list[tuple[str, str]]:
    """Names and meanings of the tree drawn in a docstring."""
    return [(m[1], m[2].replace("|", "\\|")) for m in re.finditer(r"^[ │├└─]+([A-Z]\w+) {2,}(\S.*)$", text, re.MULTILINE)]


def verbs() -> str:
    """One section a verb: what it does, its arguments and options."""
    import typer

    from batos.cli.app import app, register

    register()
    group = typer.main.get_command(app)
    parts = []
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        words = [f"`{p.metavar or p.name.upper()}`" for p in command.params if p.param_type_name == "argument"]
        lines = [f"### batos {name}{''.join(f' {w}' for w in words)}", "", _flat(command.help)]
        options = [p for p in command.params if p.param_type_name == "option"]
        lines += ["", *(f"* `{_option(p)}`: {_flat(p.help)}" for p in options)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def rules() -> str:
    """One section a rule of the guardian, with its examples."""
    from batos.guardian.rules import RULES

    parts = []
    for rule in RULES:
        policy = "" if rule.policy == "default" else f" (policy `{rule.policy}`)"
        lines = [f"### {rule.id}", "", rule.asks, "", f"*Why:* {rule.why}", "", "Accepted:", "", "```python", rule.accepted, "```", ""]
        parts.append("\n".join([*lines, f"Refused{policy}:", "", "```python", _shown(rule.refused), "```"]))
    return "\n\n".join(parts)


def clients() -> str:
    """One section a method of `Client`: how it is called, and its docstring."""
    from batos.wire import Client
    from batos.wire.client import Operating
    from batos.wire.compare_client import Comparing
    from batos.wire.folder_client import FolderWatching
    from batos.wire.hook_client import Hooking
    from batos.wire.notice_client import Noticing
    from batos.wire.schedule_client import Scheduling
    from batos.wire.step_client import StepClient

    parts = []
    kinds = (Client, Operating, Scheduling, Noticing, Hooking, FolderWatching, StepClient, Comparing)
    for name, method in {name: method for kind in kinds for name, method in vars(kind).items()}.items():
        if name.startswith("_"):
            continue
        signature = _signature(inspect.signature(method))
        kind = "async for event in " if inspect.isasyncgenfunction(method) else "await "
        text = inspect.cleandoc(method.__doc__ or "")
        text = re.sub(r"^:(param|raises|returns)(?: (\w+))?:((?:.|\n +)*)", _item, text, flags=re.MULTILINE)
        parts.append(f"### {name}\n\n```python\n{kind}batos.{name}{signature}\n```\n\n{text}")
    return "\n\n".join(parts)


def metrics() -> str:
    """One row a metric, out of the calls that make them, since some are there only once something happened."""
    import batos.metrics as module

    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    names = {  # of a loop over pairs of a name and its meaning
        id(call): [(pair.elts[0].value, pair.elts[1].value) for pair in loop.iter.elts]  # type: ignore[attr-defined]
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple) and isinstance(loop.iter.elts[0], ast.Tuple)
        for call in ast.walk(loop)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    for call in sorted(calls, key=lambda call: call.lineno):
        kind = call.func.id.removesuffix("MetricFamily").lower()  # type: ignore[attr-defined]
        if kind not in ("counter", "gauge", "histogram"):
            continue
        lists = [value for value in (*call.args, *(k.value for k in call.keywords if k.arg == "labels")) if isinstance(value, ast.List)]
        labels = ", ".join(f"`{label.value}`" for found in lists for label in found.elts)  # type: ignore[attr-defined]
        first, meaning = call.args[:2]
        if isinstance(first, ast.JoinedStr):
            made = [(f"batos_{name}", words) for name, words in names[id(call)]]
        else:
            made = [(first.value, meaning.value)]  # type: ignore[attr-defined]
        for name, words in made:
            rows.append(f"| `{name}{'_total' * (kind == 'counter')}` | {kind} | {labels or '–'} | {words} |")
    return "\n".join(rows)


def doors() -> str:
    """One row a path of the doors: its methods, the role that it needs, and what its handler says of itself."""
    from unittest.mock import MagicMock

    from batos.config import Settings
    from batos.doors.app import application
    from batos.doors.routes import DoorServices

    rows: list[tuple[str, str, str, Any]] = []
    for route in application(DoorServices(MagicMock(), MagicMock(), MagicMock(), Settings())).routes:  # type: ignore[call-arg]
        handler = route.endpoint.args[0] if isinstance(route.endpoint, functools.partial) else type(route.endpoint)  # type: ignore[attr-defined]
        methods = ", ".join(sorted(route.methods - {"HEAD"}))  # type: ignore[attr-defined]
        path = route.path.replace(":path", "")  # type: ignore[attr-defined]
        if (methods, path.rstrip("/"), handler) not in [(row[0], row[1], row[3]) for row in rows]:
            rows.append((methods, path, "its hook" if path.startswith("/hooks/") else "`operate`", handler))
    return _paths(rows)


def console() -> str:
    """One row a path of the console."""
    from batos.console.app import GET, POST
    from batos.console.login import PUBLIC

    pages = [(method, path, page) for method, of in (("GET", GET), ("POST", POST)) for path, page in of.items()]
    return _paths([(method, path, "–" if path.startswith(PUBLIC) else "`operate`", page) for method, path, page in pages])


def _paths(rows: list[tuple[str, str, str, Any]]) -> str:
    lines = ["| method | path | role | what it does |", "|---|---|---|---|"]
    for method, path, role, handler in rows:
        says = inspect.getdoc(handler)
        if not says:
            raise SystemExit(f"{handler.__qualname__}, which answers {method} {path}, has no docstring")
        lines.append(f"| {method} | `{path}` | {role} | {_flat(says.partition(chr(10) * 2)[0])} |")
    return "\n".join(lines)


def requests() -> str:
    """One section an operation of the wire protocol: its purpose, its role, and a row for each field."""
    from batos.wire.schemas import OPS

    parts = []
    for op, model in OPS.items():
        schema = model.model_json_schema(by_alias=True)
        role = f"Role `{model.least_role}`"
        if model.operating:
            role += f"; `operate` with {', '.join(f'`{field}`' for field in model.operating)}"
        lines = [f"### {op}", "", f"{_flat(model.__doc__)}", f"{role}.", ""]
        rows = [
            f"| `{name}` | {_allowed(of)} | {_default(name, of, schema)} |"
            for name, of in schema["properties"].items()
            if name not in ("op", "ref")
        ]
        lines += ["| field | allowed | default |", "|---|---|---|", *rows] if rows else ["It has no fields."]
        if nested := schema.get("$defs"):
            for kind in nested.values():
                lines += ["", _flat(kind["description"]), "", "| field | allowed | default |", "|---|---|---|"]
                lines += [f"| `{name}` | {_allowed(of)} | {_default(name, of, kind)} |" for name, of in kind["properties"].items()]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def replies() -> str:
    """One section a type of reply or event: what it says, what it answers, and a row for each field; then the objects in it."""
    from batos.wire.replies import ANSWERED, EVENTS, REPLIES

    parts: list[str] = []
    shown: set[str] = set()
    for kind, form in REPLIES.items():
        ops = ", ".join(f"`{op}`" for op in ANSWERED[kind]) or "any operation"
        whose = f"An event for a client that watches: {ops}." if kind in EVENTS else f"It answers {ops}."
        lines, inner = _fields_of(form)
        parts.append("\n".join([f"### {kind}", "", _flat(form.__doc__), whose, "", *(lines or ["It has no fields."])]))
        waiting = inner
        while waiting:
            part = waiting.pop(0)
            if part.__name__ not in shown:
                shown.add(part.__name__)
                lines, inner = _fields_of(part)
                parts.append("\n".join([f"#### {part.__name__}", "", _flat(part.__doc__), *(["", *lines] if lines else [])]))
                waiting = inner + waiting
    return "\n\n".join(parts)


def _fields_of(form: Any) -> tuple[list[str], list[Any]]:
    """Return a table of the fields of a reply or of an object in it, and the objects in those fields."""
    from batos.wire.mission_replies import WireReply

    is_reply, common = "ref" in form.__annotations__, typing.get_type_hints(WireReply, include_extras=True)
    rows, inner = [], []
    inherited = {name for base in get_original_bases(form) if is_typeddict(base) for name in base.__annotations__}
    hints = sorted(typing.get_type_hints(form, include_extras=True).items(), key=lambda one: (one[0] != "id", one[0] in inherited))
    for name, hint in hints:
        if is_reply and (name == "type" or common.get(name) == hint):
            continue
        optional = typing.get_origin(hint) is typing.NotRequired
        value, meaning = typing.get_args(typing.get_args(hint)[0] if optional else hint)
        rows.append(f"| `{name}` | {_type_in_words(value)} | {'sometimes' if optional else 'always'} | {meaning} |")
        inner += _objects_in(value)
    return (["| field | type | there | meaning |", "|---|---|---|---|", *rows] if rows else []), inner


def _type_in_words(hint: Any, one: bool = True) -> str:
    """Say what the type of a field allows; objects that have a table of their own are links."""
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", Any: "any JSON value"}
    if hint in plain:
        return plain[hint] if one else {Any: "JSON values"}.get(hint, f"{plain[hint]}s")
    if is_typeddict(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    of = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{value}`" if value != "" else "empty" for value in of)
    if typing.get_origin(hint) is list:
        return f"array{'' if one else 's'} of {_type_in_words(of[0], one=False)}"
    if typing.get_origin(hint) is dict:
        return f"object{'' if one else 's'}" + ("" if of[1] is Any else f" of {_type_in_words(of[1], one=False)}")
    return " or ".join(_type_in_words(part, one) for part in of)


def _objects_in(hint: Any) -> list[Any]:
    """Return the objects with a table of their own in a type."""
    return [hint] if is_typeddict(hint) else [found for part in typing.get_args(hint) for found in _objects_in(part)]


def _default(name: str, of: dict[str, Any], schema: dict[str, Any]) -> str:
    if name in schema.get("required", ()):
        return "required"
    default = of.get("default")
    return "–" if default in (None, "") else f"`{json.dumps(default)}`"


def _allowed(of: dict[str, Any], one: bool = True) -> str:
    """Say in words what the JSON schema of a field allows."""
    from batos.wire.fields import WORDS

    if "$ref" in of:
        return "object of the fields below" if one else "objects of the fields below"
    if kinds := of.get("anyOf"):
        return " or ".join(_allowed(kind, one) for kind in kinds if kind.get("type") != "null")
    if "enum" in of or "const" in of:
        return ", ".join(f"`{value}`" for value in of.get("enum", [of.get("const")]))
    kind = of.get("type", "any JSON value" if one else "JSON values")
    if kind == "array":
        count = _range(of.get("minItems"), of.get("maxItems"))
        items = _allowed(of["items"], one=False) if of.get("items") else "JSON values"
        return f"array of {count} {items}".replace("  ", " ")
    if kind == "string" and (pattern := of.get("pattern")):
        return f"{'string' if one else 'strings'} ({WORDS[pattern][1]})"
    if kind == "string":
        count = _range(of.get("minLength"), of.get("maxLength"))
        return f"{'string' if one else 'strings'}{f' of {count} characters' if count else ''}"
    least, above = of.get("minimum"), of.get("exclusiveMinimum")
    most = of["exclusiveMaximum"] - 1 if "exclusiveMaximum" in of else of.get("maximum")
    found = f"above {above:g}, {_range(None, most)}" if above is not None else _range(least, most)
    return f"{kind if one else f'{kind}s'}{f', {found}' if found else ''}"


def _range(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return f"at most {most:,.0f}" if most is not None else f"{least:,.0f} or more" if least is not None else ""
    return f"{least:,.0f} to {most:,.0f}"


def _item(match: re.Match[str]) -> str:
    name = {"param": f"`{match[2]}`", "raises": f"raises `{match[2]}`", "returns": "returns"}[match[1]]
    return f"* {name}: {_flat(match[3])}"


def _signature(signature: inspect.Signature) -> str:
    """As it stands in the source, without `self`: annotations without quotes around them, texts in double quotes."""

    class Plain(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return str(self)

    def plain(parameter: inspect.Parameter) -> inspect.Parameter:
        default = Plain(json.dumps(parameter.default)) if isinstance(parameter.default, str) else parameter.default
        return parameter.replace(annotation=Plain(parameter.annotation.replace("'", '"')), default=default)

    own = [plain(parameter) for name, parameter in signature.parameters.items() if name != "self"]
    return str(signature.replace(parameters=own, return_annotation=Plain(signature.return_annotation.replace("'", '"'))))


def _shown(source: str) -> str:
    """A source as it can be printed: long lines cut, characters that hide text as their names."""
    visible = "".join(c if c.isprintable() or c == "\n" else f"<U+{ord(c):04X}>" for c in source)
    return "\n".join(line if len(line) <= 120 else f"{line[:100]}…" for line in visible.split("\n"))


def _option(parameter: object) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]  # type: ignore[attr-defined]
    return f"{', '.join(names)}{f' {parameter.metavar}' if parameter.metavar else ''}"  # type: ignore[attr-defined]


def _flat(text: str | None) -> str:
    return " ".join((text or "").split())


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("settings.md", settings),
    "errors": ("errors.md", errors),
    "verbs": ("cli.md", verbs),
    "rules": ("guardian.md", rules),
    "clients": ("clients.md", clients),
    "metrics": ("metrics.md", metrics),
    "doors": ("http.md", doors),
    "console": ("http.md", console),
    "requests": ("requests.md", requests),
    "replies": ("replies.md", replies),
}


def filled(name: str) -> tuple[Path, str, str]:
    """A document: its path, its text now, its text with the table as it should be."""
    file, make = TABLES[name]
    path = DOCS / file
    text = path.read_text("utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no place for the table: {begin!r} ... {end!r}")
    return path, text, head + begin + make() + end + tail


def main() -> int:
    """Write or compare every table."""
    check, stale = "--check" in sys.argv, False
    for name in TABLES:  # one after the other: a page may have two
        path, old, new = filled(name)
        if old != new:
            stale = True
            if not check:
                path.write_text(new, "utf-8")
            print(f"{'stale' if check else 'written'}: docs/{path.name}")
    return int(stale and check)


if __name__ == "__main__":
    raise SystemExit(main())
