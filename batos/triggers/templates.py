"""Templates: briefs of a user with fields such as `{issue.title}`, which text of others fills.

What fills a field stands between two marks that it cannot hold itself. That is a help for the model and no wall. What a mission may do
outside is decided by its grants, for which it has read untrusted text from its first moment. No sentence explains the marks: with one, a
small model writes about that sentence in place of the text.

Braces that hold no field stay as they are; `{{name}}` gives `{name}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from batos.config import nearest
from batos.errors import InvalidInput

OPENING, CLOSING = "⟦", "⟧"
BODY = "body"
"""Field that stands for all of a body, unless the body has a field of this name."""
VALUE_CHARS = 8000
_PATH = r"[A-Za-z_@$][\w@$-]{0,63}(?:\.[\w@$:-]{1,64}){0,15}"
_FIELD = re.compile(rf"\{{\{{({_PATH})\}}\}}|\{{({_PATH})(\?)?\}}")
_UNSEEN = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_TOLD = 12  # fields that a message lists
_TOLD_CHARS = 64


class MissingField(Exception):
    """A body has no such field. The text says what it has in that place."""


def fields_of(template: str) -> list[str]:
    """Return the fields of a template, each once, in their order."""
    return list(dict.fromkeys(found[2] for found in _FIELD.finditer(template) if found[2]))


def filled(template: str, value_of: Callable[[str], Any]) -> str:
    """Return a template with its fields filled in.

    :param value_of: returns the value of a field, as JSON has it; raises MissingField.
    :raises InvalidInput: naming the fields that are missing; a field that is written `{name?}` may be.
    """
    missing: list[str] = []

    def put(found: re.Match[str]) -> str:
        if found[1]:
            return f"{{{found[1]}}}"
        try:
            return quoted(value_of(found[2]))
        except MissingField as e:
            if not found[3]:
                missing.append(str(e))
            return ""

    text = _FIELD.sub(put, template)
    if missing:
        more = f"; and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InvalidInput(f"{'; '.join(missing[:3])}{more}. Send it, or write {{name?}} in the brief where it may be missing")
    return text


def quoted(value: Any, chars: int = VALUE_CHARS) -> str:
    """Return a value between the marks, without characters that would not be seen.

    :param chars: most characters of it; what is longer is cut, and says so.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = _UNSEEN.sub(" ", text[: chars + 1].replace("\r\n", "\n")).replace(OPENING, "[").replace(CLOSING, "]")
    return f"{OPENING}{text if len(text) <= chars else f'{text[:chars]} […]'}{CLOSING}"


def field_of(body: Any, path: str) -> Any:
    """Return a field of a body, such as `issue.labels.0.name`.

    :raises MissingField: if there is none.
    """
    names = path.split(".")
    if names[0] == BODY and not (isinstance(body, dict) and BODY in body):
        names = names[1:]
    held, way = body, ""
    for name in names:
        if isinstance(held, dict) and name in held:
            held = held[name]
        elif isinstance(held, list) and name.isascii() and name.isdecimal() and len(name) < 9 and int(name) < len(held):
            held = held[int(name)]
        else:
            raise MissingField(f"the body has no field {path!r}: {_content(held, way, name)}")
        way = f"{way}.{name}" if way else name
    return held


def _content(held: Any, way: str, wanted: str) -> str:
    """Return what there is where a field was looked for."""
    place = f"`{way}`" if way else "it"
    if isinstance(held, dict):
        names = [_UNSEEN.sub(" ", str(name)[:_TOLD_CHARS]) for name in list(held)[:_TOLD]]
        shown = ", ".join(names) + (", …" if len(held) > _TOLD else "")
        return f"{place} has {shown or 'no fields'}{nearest(wanted, names)}"
    if isinstance(held, list):
        return f"{place} is a list of {len(held)}"
    return f"{place} is {'text' if isinstance(held, str) else 'a single value'}"
