"""The form in which a description that is not a schema becomes operations. A reader of usages, a model or its user fills it, and its user
sees it before it counts.

Of a program it holds arguments, of an API methods and paths. It names neither the program nor the server: those are its user's to name.
A placeholder is a whole argument, or a whole part of a path; nothing passes a shell.

    {"operations": [{"name": "log", "line": "Show commits.", "class": "reads", "argv": ["log", "--max-count", "{count}", "{path}"],
                     "parameters": [{"name": "count", "type": "integer"}, {"name": "path", "required": true}]}]}

    {"operations": [{"name": "order", "line": "Order tea.", "class": "acts", "method": "POST", "path": "/orders/{shop}",
                     "parameters": [{"name": "shop", "in": "path"}, {"name": "sku", "in": "body", "required": true}]}]}
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from batos.config import shown
from batos.errors import InvalidInput
from batos.image.effects import ACTS, IDEMPOTENT, READS

OPERATIONS = 200
"""Greatest number of operations of a form."""
PARAMETERS = 100
"""Greatest number of parameters of an operation."""
WORDS = 300
"""Greatest number of arguments of an operation, placeholders included."""
FORM_BYTES = 512 << 10
"""Greatest size of a form."""
_LINE = 300
_WORD = 200
_CHOICES = 60
_FAULTS = 4
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}\Z")
_OPERATION = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,79}\Z")
_PLACEHOLDER = re.compile(r"\{([A-Za-z][A-Za-z0-9_]{0,39})\}\Z")
_JOINED = re.compile(r"--[A-Za-z0-9][A-Za-z0-9-]{0,100}=\{[A-Za-z][A-Za-z0-9_]{0,39}\}\Z")
_HIDDEN = re.compile(r"[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]")
_TOKEN = re.compile(r"-{0,2}[A-Za-z0-9][A-Za-z0-9_.+-]{0,199}")
_METHODS = {"GET": READS, "PUT": IDEMPOTENT, "DELETE": IDEMPOTENT, "POST": ACTS, "PATCH": ACTS}
_MILD = (READS, IDEMPOTENT, ACTS)
"""Classes of effects that a form may name, the mildest first."""


def _one_line(said: Any) -> Any:
    return " ".join(_HIDDEN.sub(" ", said).split())[:_LINE] if isinstance(said, str) else said


_Line = Annotated[str, BeforeValidator(_one_line), StringConstraints(max_length=_LINE)]
_Short = Annotated[str, StringConstraints(max_length=_WORD)]


_FEW: dict[str, Any] = {"maxItems": 12}
"""Bounds in the schema that a model answers by, so that the answer of a small one ends; `fault_of` has those of a form."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class FormParameter(_Part):
    """A parameter of an operation."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=40)]
    type: Literal["string", "integer", "number", "boolean", "array"] = "string"
    required: bool = False
    line: _Line = ""
    choices: list[_Short] = Field(default_factory=list, json_schema_extra={"maxItems": 10})


class HttpParameter(FormParameter):
    """A parameter of an operation of an API."""

    place: Literal["path", "query", "body"] = Field("query", alias="in")


class _Operation(_Part):
    name: Annotated[str, StringConstraints(min_length=1, max_length=80)]
    line: _Line = ""
    kind: Literal["reads", "idempotent", "acts"] = Field("acts", alias="class")


class ProgramOperation(_Operation):
    """One way to call a program: its arguments, of which each is fixed or a placeholder.

    A placeholder without a value is left out, with the option before it; one of a boolean stands for that option alone.
    """

    argv: list[_Short] = Field(default_factory=list, json_schema_extra={"maxItems": 20})
    parameters: list[FormParameter] = Field(default_factory=list, json_schema_extra={"maxItems": 10})


class HttpOperation(_Operation):
    """One request of an API."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    parameters: list[HttpParameter] = Field(default_factory=list, json_schema_extra={"maxItems": 10})


class ProgramForm(_Part):
    """The operations of a program."""

    operations: list[ProgramOperation] = Field(json_schema_extra=_FEW)


class HttpForm(_Part):
    """The operations of an API."""

    operations: list[HttpOperation] = Field(json_schema_extra=_FEW)


DescriptionForm = ProgramForm | HttpForm
FORMS: Mapping[str, type[ProgramForm] | type[HttpForm]] = {"program": ProgramForm, "http": HttpForm}
"""Form by the kind of the connection."""


def read_form(kind: str, given: Any) -> DescriptionForm:
    """Return a form that a user accepted or wrote, checked.

    :param kind: of the connection: `program` or `http`.
    :raises InvalidInput: with the operation and what is wrong with it.
    """
    if isinstance(given, Mapping) and len(json.dumps(given)) > FORM_BYTES:
        raise InvalidInput(f"the form has {len(json.dumps(given))} bytes; at most {FORM_BYTES} are allowed")
    try:
        form = FORMS[kind].model_validate(given)
    except ValidationError as e:
        said = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'it'}: {one['msg']}" for one in e.errors()[:_FAULTS])
        raise InvalidInput(f"the form of {kind} operations is not valid: {said}") from None
    if not 1 <= len(form.operations) <= OPERATIONS:
        raise InvalidInput(f"the form has {len(form.operations)} operations; 1 to {OPERATIONS} are allowed")
    names: set[str] = set()
    for one in form.operations:
        if why := fault_of(one):
            raise InvalidInput(f"the form's operation {shown(one.name)} is not valid: {why}")
        if one.name in names:
            raise InvalidInput(f"the form has two operations of the name {shown(one.name)}; each needs its own")
        names.add(one.name)
    return form


def to_json(form: DescriptionForm) -> dict[str, Any]:
    """Return a form as JSON values, without what is as usual."""
    return form.model_dump(by_alias=True, exclude_defaults=True)


def fault_of(operation: ProgramOperation | HttpOperation) -> str:
    """Return what is wrong with an operation; "" if nothing is."""
    if not _OPERATION.match(operation.name):
        return "its name has to be letters, digits, _ and -, a letter first, at most 80"
    names = [one.name for one in operation.parameters]
    if len(names) > PARAMETERS or any(len(one.choices) > _CHOICES for one in operation.parameters):
        return f"it has {len(names)} parameters; at most {PARAMETERS} are allowed, each with {_CHOICES} choices"
    if twice := [name for name in names if names.count(name) > 1]:
        return f"it has two parameters of the name {shown(twice[0])}"
    for one in operation.parameters:
        if not _NAME.match(one.name):
            return f"the parameter {shown(one.name)} has to be letters, digits and _, a letter first, at most 40"
    words = operation.argv if isinstance(operation, ProgramOperation) else [operation.path]
    if any(_HIDDEN.search(word) for word in (*words, *(one for part in operation.parameters for one in part.choices))):
        return "it holds a hidden character"
    return _fault_of_words(operation) if isinstance(operation, ProgramOperation) else _fault_of_request(operation)


def _fault_of_words(operation: ProgramOperation) -> str:
    if len(operation.argv) > WORDS:
        return f"it has {len(operation.argv)} arguments; at most {WORDS} are allowed"
    types = {one.name: one.type for one in operation.parameters}
    used: set[str] = set()
    for before, word in itertools.pairwise(["", *operation.argv]):
        found = _PLACEHOLDER.match(word)
        if found is None:
            if not word or "{" in word or "}" in word:
                return f"the argument {shown(word)} is neither fixed nor a placeholder, which is a whole argument: {{name}}"
            continue
        if found[1] not in types or found[1] in used:
            return f"the placeholder {word} is {'there twice' if found[1] in used else 'of no parameter'}"
        if types[found[1]] == "boolean" and not before.startswith("-"):
            return f"the placeholder {word} of a boolean stands after the option that it means"
        used.add(found[1])
    if unused := [name for name in types if name not in used]:
        return f"the parameter {shown(unused[0])} has no placeholder in argv: {{{unused[0]}}}"
    return ""


def _fault_of_request(operation: HttpOperation) -> str:
    path = operation.path
    if not path.startswith("/") or path.startswith("//") or any(char in path for char in "?#\\ %"):
        return f"the path {shown(path)} has to begin with one /, without a server, a query, a fragment, blanks and escapes"
    places = {one.name: one for one in operation.parameters}
    for part in path[1:].split("/"):
        found = _PLACEHOLDER.match(part)
        if found is None and ("{" in part or "}" in part or part in (".", "..")):
            return f"the part {shown(part)} of the path is neither fixed nor a placeholder, which is a whole part: {{name}}"
        if found is not None and (found[1] not in places or places[found[1]].place != "path"):
            return f"the placeholder {part} is of no parameter in path"
    for one in operation.parameters:
        if one.place == "path" and f"/{{{one.name}}}/" not in f"{path}/":
            return f"the parameter {one.name} is in path, where {{{one.name}}} is not a part"
        if one.place == "body" and operation.method == "GET":
            return f"the parameter {one.name} is in the body, which a GET does not have"
    return ""


def sieved(
    operations: Sequence[ProgramOperation | HttpOperation], text: str, *, rivals: Iterable[str] = ()
) -> tuple[list[ProgramOperation | HttpOperation], list[str]]:
    """Return the operations of a model's form that count, and of the others why not. Those are not valid, or their fixed words are not
    those of the text. No class is milder than that of the request.

    :param text: what the model read.
    :param rivals: names that are taken.
    """
    words = {*_TOKEN.findall(text), *text.split()}
    names, kept, lost = set(rivals), list[ProgramOperation | HttpOperation](), list[str]()
    for one in operations:
        mended = _mended(one)
        why = fault_of(mended) or ("its name is taken" if mended.name in names else "") or _foreign(mended, words, text)
        if why:
            lost.append(f"{one.name[:_WORD]}: {why}")
            continue
        names.add(mended.name)
        kept.append(mended)
    return kept, lost


def _mended(operation: ProgramOperation | HttpOperation) -> ProgramOperation | HttpOperation:
    """Return a model's operation with what follows from the rest of it: parameters of placeholders, a class no milder than is known."""
    if isinstance(operation, ProgramOperation):
        argv = [part for word in operation.argv for part in (word.split("=", 1) if _JOINED.match(word) else [word])]
        operation = operation.model_copy(update={"argv": argv})
        said = [found[1] for word in operation.argv if (found := _PLACEHOLDER.match(word))]
        there = {one.name for one in operation.parameters}
        more = [FormParameter(name=name) for name in dict.fromkeys(said) if name not in there]
        kept = [one for one in operation.parameters if one.name in said]
        return operation.model_copy(update={"kind": ACTS, "parameters": [*kept, *more]})
    parts = [found[1] for part in operation.path.split("/") if (found := _PLACEHOLDER.match(part))]
    usual: Literal["query", "body"] = "body" if operation.method in ("POST", "PUT", "PATCH") else "query"
    held = {one.name: one for one in operation.parameters}
    places: dict[str, Any] = {
        name: "path" if name in parts else usual if one.place == "path" or (one.place == "body" and usual == "query") else one.place
        for name, one in held.items()
    }
    placed = [one.model_copy(update={"place": places[name], "required": one.required or name in parts}) for name, one in held.items()]
    lacking = [name for name in dict.fromkeys(parts) if name not in held]
    placed += [HttpParameter.model_validate({"name": name, "in": "path", "required": True}) for name in lacking]
    least = max(_MILD.index(operation.kind), _MILD.index(_METHODS[operation.method]))
    return operation.model_copy(update={"kind": _MILD[least], "parameters": placed})


def _foreign(operation: ProgramOperation | HttpOperation, words: set[str], text: str) -> str:
    """Return which fixed word of an operation its description does not have; "" if it has them all."""
    is_path = isinstance(operation, HttpOperation)
    for word in operation.path[1:].split("/") if isinstance(operation, HttpOperation) else operation.argv:
        if word and not _PLACEHOLDER.match(word) and word not in words and not (is_path and f"/{word}" in text):
            return f"{shown(word)} is not in the description"
    return ""


def parameters_of(operation: ProgramOperation | HttpOperation) -> dict[str, Any]:
    """Return the JSON schema of an operation's parameters."""
    properties = {one.name: _schema(one) for one in operation.parameters}
    required = [one.name for one in operation.parameters if one.required]
    more = {"required": required} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


def _schema(one: FormParameter) -> dict[str, Any]:
    made: dict[str, Any] = {"type": ["string", "number"] if one.type == "string" and not one.choices else one.type}
    if one.type == "array":
        made["items"] = {"type": "string", "enum": one.choices} if one.choices else {"type": ["string", "number"]}
    elif one.choices and one.type == "string":
        made["enum"] = one.choices
    return {**made, **({"description": one.line} if one.line else {})}


def document_of(form: HttpForm, base: str) -> dict[str, Any]:
    """Return a form as an OpenAPI document.

    :param base: URL that its paths are beneath.
    """
    paths: dict[str, dict[str, Any]] = {}
    for number, one in enumerate(form.operations):
        whole = parameters_of(one)
        given = [
            {"name": part.name, "in": part.place, "required": part.required, "schema": whole["properties"][part.name]}
            for part in one.parameters
            if part.place != "body"
        ]
        body = {part.name: whole["properties"][part.name] for part in one.parameters if part.place == "body"}
        needed = [part.name for part in one.parameters if part.place == "body" and part.required]
        operation: dict[str, Any] = {"operationId": one.name, "description": one.line, "parameters": given}
        if body:
            schema = {"type": "object", "properties": body, "required": needed}
            operation["requestBody"] = {"required": bool(needed), "content": {"application/json": {"schema": schema}}}
        paths[f"{one.path}#{number}"] = {one.method.lower(): operation}  # two may have one path and method
    return {"openapi": "3.1.0", "servers": [{"url": base}], "paths": paths}


def filled(argv: Sequence[str], arguments: Mapping[str, Any], text: Callable[[str, Any], str]) -> list[tuple[str, bool]]:
    """Return the arguments of a call, each with True if it is a value of the caller's.

    :param text: returns a value as an argument. Raises `InvalidInput`.
    """
    made: list[tuple[str, bool]] = []
    for before, word in itertools.pairwise(["", *argv]):
        found = _PLACEHOLDER.match(word)
        if found is None:
            made.append((word, False))
            continue
        option = [(before, False)] if before.startswith("-") and before != "--" and not _PLACEHOLDER.match(before) else []
        value = arguments.get(found[1])
        if option:
            made.pop()
        if value is True:
            made += option
        elif value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                made += [*option, (text(found[1], one), True)]
    return made
