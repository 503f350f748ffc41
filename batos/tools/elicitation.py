"""Questions of an MCP server to the user in the middle of a call, and their answers. A form or a web page becomes one question in words.

A form has one level of fields with simple values. Its user answers a single field by the value, several by JSON or by lines of
`field: value`. An answer that does not fit is asked for again, with the reason; nothing is sent then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from batos.errors import InvalidInput

REFUSALS = {"decline": "decline", "no": "decline", "cancel": "cancel"}
DONE = ("done", "yes", "ok")
FIELDS = 50
_MOST = 2000
_LINE = re.compile(r"([^:=\n]{1,100})[:=](.*)")
_TRUE, _FALSE = ("true", "yes", "y", "1"), ("false", "no", "n", "0")


def question_of(form: Mapping[str, Any], complaint: str = "") -> str:
    """Return the question of a form, or of a page to open, in words.

    :param form: parameters of an elicitation, as the wire has them.
    :param complaint: why the last answer was not accepted.
    """
    head = f"{complaint}. " if complaint else ""
    message = str(form.get("message", ""))[:_MOST]
    if form.get("url"):
        return f"{head}{message} Open {form['url']} and finish there; then say `done`, or `decline`."
    fields = _fields(form)
    if not fields:
        return f"{head}{message} Say `yes`, or `decline`."
    required = set(form.get("requestedSchema", {}).get("required") or ())
    told = "; ".join(f"{name}{'' if name in required else ' (may be left out)'}: {_kind(field)}" for name, field in fields.items())
    if len(fields) == 1:
        return f"{head}{message} Say the value of {told}. Or say `decline`."
    return f"{head}{message} Fields: {told}. Answer with a JSON object or with lines of `field: value`; or say `decline`."


def response_to(form: Mapping[str, Any], answer: str) -> dict[str, Any]:
    """Return the response to a form, as the wire has it.

    :raises InvalidInput: if the answer does not fit.
    """
    said = answer.strip()
    fields = _fields(form)
    if said.casefold() in REFUSALS and not (said.casefold() == "no" and _takes_no(fields)):
        return {"action": REFUSALS[said.casefold()]}
    if form.get("url"):
        if said.casefold() in DONE:
            return {"action": "accept"}
        raise InvalidInput(f"{said[:100]!r} is not a valid answer; allowed are done, decline and cancel")
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    content |= _read(said, fields)
    required = form.get("requestedSchema", {}).get("required") or ()
    if missing := [name for name in required if name not in content]:
        raise InvalidInput(f"the field {missing[0]!r} is missing; it is {_kind(fields.get(missing[0], {}))}")
    try:
        return {"action": "accept", "content": {name: _fit(name, value, fields[name]) for name, value in content.items()}}
    except TypeError as e:  # its bounds are no numbers, say
        raise InvalidInput(f"the server's form is not valid ({e}); say decline") from None


def _fields(form: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    schema = form.get("requestedSchema")
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    return {str(name): field for name, field in list(found.items())[:FIELDS] if isinstance(field, Mapping)}


def _takes_no(fields: Mapping[str, Mapping[str, Any]]) -> bool:
    only = next(iter(fields.values()), {})
    return len(fields) == 1 and (only.get("type") == "boolean" or "no" in _choices(only))


def _read(said: str, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fields that an answer gives, as they were said."""
    if not fields or (said.casefold() in DONE and len(fields) != 1):
        return {}  # the defaults, as they are
    found: dict[str, Any] = {}
    if said.startswith("{"):
        try:
            found = json.loads(said)
        except (ValueError, RecursionError) as e:
            raise InvalidInput(f"the answer is not valid JSON ({e})") from None
    else:
        lines = [_LINE.fullmatch(line) for line in said.splitlines() if line.strip()]
        if lines and all(line is not None and line[1].strip() in fields for line in lines):
            found = {line[1].strip(): line[2].strip() for line in lines if line is not None}
        elif len(fields) == 1:
            found = {next(iter(fields)): said}
        else:
            raise InvalidInput(f"{said[:100]!r} does not say which field it is; the fields are {', '.join(fields)}")
    if unknown := [name for name in found if name not in fields]:
        raise InvalidInput(f"the form has no field {unknown[0]!r}; its fields are {', '.join(fields)}")
    return found


def _fit(name: str, value: Any, field: Mapping[str, Any]) -> Any:
    """Return a value in the form that the field wants."""
    kind = field.get("type", "string")
    wanted = InvalidInput(f"{str(value)[:100]!r} is not valid for {name!r}; it is {_kind(field)}")
    if kind == "boolean":
        word = str(value).strip().casefold()
        if isinstance(value, bool) or word in (*_TRUE, *_FALSE):
            return value if isinstance(value, bool) else word in _TRUE
        raise wanted
    if kind in ("integer", "number"):
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            raise wanted from None
        low, high = field.get("minimum", float("-inf")), field.get("maximum", float("inf"))
        if not low <= number <= high or abs(number) == float("inf") or (kind == "integer" and number != int(number)):
            raise wanted
        return int(number) if kind == "integer" else number
    if kind == "array":
        allowed = _choices(field.get("items") if isinstance(field.get("items"), Mapping) else {})
        items = value if isinstance(value, list) else [item.strip() for item in str(value).split(",") if item.strip()]
        if not all(isinstance(item, str) and (not allowed or item in allowed) for item in items):
            raise wanted
        if not field.get("minItems", 0) <= len(items) <= field.get("maxItems", len(items)):
            raise wanted
        return items
    if not isinstance(value, str):
        raise wanted
    allowed = _choices(field)
    if allowed and value not in allowed:
        raise wanted
    if not field.get("minLength", 0) <= len(value) <= field.get("maxLength", len(value)):
        raise wanted
    return value


def _choices(field: Any) -> list[str]:
    """Return the values that a field allows; empty where it allows all."""
    for key in ("enum", "oneOf", "anyOf"):
        found = field.get(key)
        if isinstance(found, list):
            return [str(one["const"]) if isinstance(one, Mapping) and "const" in one else str(one) for one in found[:FIELDS]]
    return []


def _kind(field: Mapping[str, Any]) -> str:
    """Return in words what a field takes."""
    words = [str(field.get("type", "string"))]
    if field.get("type") == "array":
        words = ["some of " + ", ".join(_choices(field.get("items") if isinstance(field.get("items"), Mapping) else {})) + ", with commas"]
    elif choices := _choices(field):
        words = ["one of " + ", ".join(choices)]
    bounds = {"minimum": "at least", "maximum": "at most", "minLength": "characters at least", "maxLength": "characters at most"}
    words += [f"{said} {field[key]}" for key, said in bounds.items() if key in field]
    words += [f"as {field['format']}"] if "format" in field else []
    words += [f"else {json.dumps(field['default'], ensure_ascii=False)}"] if "default" in field else []
    title = field.get("description") or field.get("title")
    return ", ".join(words) + (f" ({str(title)[:200]})" if title else "")
