"""Bodies of deliveries: JSON, a form, or text, as plain values."""

from __future__ import annotations

import json
import math
import urllib.parse
from typing import Any, NoReturn

from batos.errors import MalformedMessage

DEPTH = 64
_FORM = "application/x-www-form-urlencoded"
_FORM_FIELDS = 1000
_PAYLOAD = "payload"  # the field of a form in which GitHub and Slack send their JSON


def parsed_body(data: bytes, kind: str) -> Any:
    """Return the body of a delivery: JSON unless its kind says that it is a form or text. Nothing at all is an empty object.

    :param kind: its `Content-Type`.
    :raises MalformedMessage: with the fault and its place.
    """
    media = kind.partition(";")[0].strip().lower()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise MalformedMessage(f"the body is not UTF-8: {e.reason} at byte {e.start}") from None
    if media.startswith("text/"):
        return text
    if media == _FORM and text.lstrip()[:1] not in ("{", "["):  # `curl -d '{…}'` calls JSON a form
        return _form(text)
    return _json(text) if text.strip() else {}


def _form(text: str) -> Any:
    try:
        found = urllib.parse.parse_qs(text, keep_blank_values=True, errors="strict", max_num_fields=_FORM_FIELDS)
    except UnicodeDecodeError as e:
        raise MalformedMessage(f"the form is not UTF-8: {e.reason} in one of its fields") from None
    except ValueError:
        raise MalformedMessage(f"the form has more than {_FORM_FIELDS} fields") from None
    fields: dict[str, Any] = {name: values[0] if len(values) == 1 else values for name, values in found.items()}
    held = fields.get(_PAYLOAD)
    return _json(held) if len(fields) == 1 and isinstance(held, str) and held.lstrip()[:1] == "{" else fields


def _json(text: str) -> Any:
    try:
        value = _STRICT.decode(text)
    except json.JSONDecodeError as e:
        raise MalformedMessage(f"the body is not valid JSON: {e.msg} at line {e.lineno} column {e.colno}") from None
    except RecursionError:
        raise MalformedMessage(f"the body is nested deeper than {DEPTH} levels") from None
    except ValueError:
        raise MalformedMessage("a number in the body has more digits than can be read") from None
    level = [value]
    for _ in range(DEPTH):
        level = [
            child
            for held in level
            if isinstance(held, dict | list)
            for child in (held.values() if isinstance(held, dict) else held)
        ]  # fmt: skip
        if not level:
            return value
    raise MalformedMessage(f"the body is nested deeper than {DEPTH} levels")


def _refused(name: str) -> NoReturn:
    raise MalformedMessage(f"{name} in the body is not valid JSON")


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise MalformedMessage(f"the number {literal[:32]} in the body is too large")
    return number


_STRICT = json.JSONDecoder(parse_constant=_refused, parse_float=_finite)
