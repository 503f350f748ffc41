"""OpenAPI documents, read by rule: the operations of a document (3.0, 3.1, Swagger 2.0; JSON or YAML) become tools.

The parameters of path, query and body become one flat schema. Header and cookie parameters are not a model's to give; a header for
idempotency keys makes an operation keyed. References are resolved within the document, to a bounded depth and size for each operation. So
reading is linear in the number of operations, whatever refers to whatever.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from batos.config import shown
from batos.errors import InvalidInput
from batos.image.effects import ACTS, IDEMPOTENT, KEYED, READS
from batos.tools import openapi_security
from batos.tools.definitions import ToolDefinition
from batos.tools.openapi_values import value_of

NODES = 300
"""Greatest number of schema nodes of one operation; what is beyond is cut off."""
PARAMETERS = 500
"""Greatest number of parameters that an operation or a path lists."""
DEEPEST = 6
"""Greatest depth of a schema, references included."""
_METHODS = {"get": READS, "put": IDEMPOTENT, "delete": IDEMPOTENT, "post": ACTS, "patch": ACTS}
_KEY_HEADER = re.compile(r"(x-)?idempotency-?key\Z", re.IGNORECASE)
_UNSENT = ("head", "options", "trace")  # operations that tell a model nothing
_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_PLAIN = (
    "enum", "const", "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf",
    "contentMediaType", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
_CHOICES = ("anyOf", "oneOf")
_DEFINITIONS = ("$defs", "definitions")
_COLLECTIONS = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
_HOPS = 32
_DESCRIPTION_CHARS = 200
_SPACED = 8  # characters that are read for each one that is kept: a text may be mebibytes long
_ENUM = 200
_VALUE_NODES = 5000
_HIDDEN = re.compile(r"[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


class OpenApiReading(NamedTuple):
    """Tools of a document, with the operations that were left out and the number of schema nodes that were resolved."""

    tools: tuple[ToolDefinition, ...]
    left_out: tuple[str, ...]
    nodes: int
    notes: tuple[str, ...] = ()
    """lines for its user: secrets and headers that operations need"""


class LostDocument(NamedTuple):
    """A file that a reference names and that cannot be had."""

    name: str
    why: str
    """in words that follow "the reference NAME " """


def parsed(data: bytes, place: str) -> dict[str, Any]:
    """Return a document of JSON or YAML.

    :raises InvalidInput: if it is neither, too large, or not an OpenAPI document.
    """
    document = value_of(data, place)
    if not isinstance(document, dict):
        raise InvalidInput(f"{shown(place)} is not an OpenAPI document: it holds {type(document).__name__}, not an object")
    version = str(document.get("openapi") or document.get("swagger") or "")
    if not version.startswith(("3.", "2.0", "2")) or (version.startswith("2") and "swagger" not in document):
        raise InvalidInput(f"{shown(place)} names the version {shown(version)}; allowed are openapi 3.0, 3.1 and swagger 2.0")
    if not isinstance(document.get("paths", {}), Mapping):
        raise InvalidInput(f"{shown(place)} is not valid: its paths are not an object")
    return document


def servers(node: Mapping[str, Any], place: str) -> list[str]:
    """Return the URLs of the servers that a document, path or operation names, with the defaults of their variables.

    :param place: URL of the document, which relative servers start from; empty for a file.
    :raises InvalidInput: if a server is not valid.
    """
    if "swagger" in node:
        split = urllib.parse.urlsplit(place)
        schemes = _texts(node.get("schemes")) or [split.scheme or "https"]
        scheme = next((one for one in ("https", "http") if one in schemes), schemes[0])
        host, path = str(node.get("host") or split.netloc), str(node.get("basePath") or "")
        return [f"{scheme}://{host}{path if not path or path.startswith('/') else f'/{path}'}"] if host else []
    found = []
    given = node.get("servers") or []
    if not isinstance(given, list):
        raise InvalidInput("the document's servers are not a list")
    for server in given:
        if not isinstance(server, Mapping) or not isinstance(server.get("url"), str):
            raise InvalidInput(f"the server {shown(server)} of the document is not valid: it has no url")
        url, variables = server["url"], server.get("variables") or {}
        for name in re.findall(r"\{([^{}]+)\}", url):
            about = variables.get(name) if isinstance(variables, Mapping) else None
            if not isinstance(about, Mapping) or "default" not in about:
                raise InvalidInput(f"the server {shown(url)} has no value for {{{name}}}; name the server in the option server")
            url = url.replace(f"{{{name}}}", str(about["default"]))
        found.append(urllib.parse.urljoin(place, url) if place else url)
    return found


def read(
    document: Mapping[str, Any],
    base: str,
    place: str = "",
    skipped: Sequence[str] = (),
    headers: Sequence[str] = (),
    files: Mapping[str, Any] | None = None,
) -> OpenApiReading:
    """Return the tools of a document's operations; one that is broken or cannot be sent is left out.

    :param base: URL that paths are beneath.
    :param place: URL of the document, where it has one.
    :param skipped: parameters of queries that the connection sets itself.
    :param headers: headers that it sets itself.
    :param files: documents that it refers to, by their locations (`openapi_files.gathered`).
    :raises InvalidInput: with the operation, if nothing of the document can be read.
    """
    schemas = _Schemas(document, files or {})
    document = _with_schemes(document, schemas)
    tools: list[ToolDefinition] = []
    left_out: list[str] = []
    broken: list[str] = []
    names: set[str] = set()
    used: list[Mapping[str, Any]] = []
    unsent: Counter[tuple[str, str]] = Counter()
    here = {base, *_own_servers(document, place)}
    hidden = (*skipped, *openapi_security.query_keys(document))
    for path, method, shared, given in _operations(document, schemas):
        where = f"{method.upper()} {path}"
        if method in _UNSENT:
            left_out.append(f"{where}: its method is {method.upper()}, which is not sent; {', '.join(map(str.upper, _METHODS))} are")
            continue
        try:
            operation = schemas.resolved(given)
            if not isinstance(operation, Mapping):
                raise InvalidInput("it is not an object")
            own = [url for node in (operation, shared) for url in servers({"servers": node.get("servers")}, place)]
            if own and own[0].rstrip("/") not in here:
                left_out.append(f"{where}: it has a server of its own, {own[0]}")
                continue
            made = _Operation(document, schemas, path, method, hidden)
            tool = made.tool(shared, operation)
        except _Unsupported as e:
            left_out.append(f"{where}: {e}")
        except InvalidInput as e:
            broken.append(f"{where}: {e.message}")
        except (TypeError, AttributeError, ValueError, KeyError) as e:
            broken.append(f"{where}: {type(e).__name__} {str(e)[:200]}")
        else:
            tools.append(_named(tool, _free(tool.name, names)))
            used.append(operation)
            unsent.update(made.unsent)
    if broken and not tools:
        raise InvalidInput(f"the OpenAPI document is broken at {broken[0]}")
    notes = openapi_security.what_is_needed(document, used, headers, skipped)
    notes += openapi_security.headers_needed(document, unsent, len(used), headers)
    left_out += [f"{one} (the document is broken there)" for one in broken]
    return OpenApiReading(tuple(tools), tuple(left_out), schemas.nodes, tuple(notes))


class _Unsupported(Exception):
    """An operation that no tool can be made of."""


def _with_schemes(document: Mapping[str, Any], schemas: _Schemas) -> Mapping[str, Any]:
    """Return a document whose security schemes are not references; one that leads nowhere is left out."""
    found: dict[str, Any] = {}
    for name, one in openapi_security.schemes_of(document).items():
        with contextlib.suppress(InvalidInput):
            found[name] = schemas.resolved(one)
    where = {"securityDefinitions": found} if document.get("securityDefinitions") else {"components": {"securitySchemes": found}}
    return {**document, **where} if found else document


def _operations(document: Mapping[str, Any], schemas: _Schemas) -> Iterator[tuple[str, str, Mapping[str, Any], Any]]:
    paths = schemas.resolved(document.get("paths") or {})
    if not isinstance(paths, Mapping):
        raise InvalidInput("the OpenAPI document is broken: its paths are not an object")
    for path, item in paths.items():
        if not isinstance(path, str) or not path.startswith("/"):
            if str(path).startswith("x-"):
                continue
            raise InvalidInput(f"the OpenAPI document is broken: the path {shown(path)} does not begin with /")
        item = schemas.resolved(item or {})
        if not isinstance(item, Mapping):
            raise InvalidInput(f"the OpenAPI document is broken: the path {shown(path)} is not an object")
        for method in (*_METHODS, *_UNSENT):
            if (operation := item.get(method)) is not None:
                yield path, method, item, operation


def _own_servers(document: Mapping[str, Any], place: str) -> set[str]:
    """Return the URLs of a document's servers, as far as they are known without its user; `//HOST` is any scheme's."""
    try:
        found = [url.rstrip("/") for url in servers(document, place)]
        return {scheme + url for url in found for scheme in (("https:", "http:") if url.startswith("//") else ("",))}
    except InvalidInput:  # one has a variable without a value
        return set()


def _free(name: str, names: set[str]) -> str:
    for count in itertools.count(2):
        if name not in names:
            names.add(name)
            return name
        name = f"{re.sub(r'_[0-9]+$', '', name) if count > 2 else name}_{count}"
    raise AssertionError("counting does not end")


def _named(tool: ToolDefinition, name: str) -> ToolDefinition:
    return ToolDefinition.of({**tool.to_wire(), "name": name})


class _Schemas:
    """Schemas of a document with their references resolved. `nodes` counts those that were made, in all."""

    def __init__(self, document: Mapping[str, Any], files: Mapping[str, Any]) -> None:
        self._document, self._files, self.nodes, self._left = document, files, 0, 0

    def begin(self) -> None:
        """Begin an operation: its schemas have nodes of their own."""
        self._left = NODES

    def resolved(self, node: Any) -> Any:
        """Return what a reference refers to, through references to references; another node as it is."""
        for _ in range(_HOPS):
            if not isinstance(node, Mapping) or not isinstance(node.get("$ref"), str):
                return node
            node = self._at(node["$ref"])
        raise InvalidInput(f"the reference {shown(node)} leads to itself")

    def schema(
        self,
        node: Any,
        *,
        response: bool = False,
        depth: int = 0,
        inside: frozenset[str] = frozenset(),
        around: tuple[Mapping[str, Any], ...] = (),
        part: bool = False,
    ) -> dict[str, Any]:
        """Return a JSON schema without references; {}, which allows all, where it is cut off.

        :param inside: references that the node stands in: another one to them is circular.
        :param around: schemas that the node stands in and that have definitions of their own, the innermost last.
        :param part: True for a part of another schema of the same value, which may require what the others name.
        """
        self.nodes += 1
        self._left -= 1
        if not isinstance(node, Mapping) or depth > DEEPEST or self._left < 0:
            return {}
        hops = 0
        while True:
            around = (*around, node) if any(isinstance(node.get(word), Mapping) for word in _DEFINITIONS) else around
            if not isinstance(node.get("$ref"), str):
                break
            ref, hops = node["$ref"], hops + 1
            place, found = self._found(ref, around)
            if place in inside or hops > _HOPS:
                return {}
            inside |= {place}
            if not isinstance(found, Mapping):
                return {}
            node = {**found, **{name: value for name, value in node.items() if name != "$ref"}}
        made = _facts(node)

        def inner(one: Any, part: bool = False) -> dict[str, Any]:
            return self.schema(one, response=response, depth=depth + 1, inside=inside, around=around, part=part)

        if isinstance(properties := node.get("properties"), Mapping):
            hidden = "writeOnly" if response else "readOnly"
            kept = ((str(name), part) for name, part in properties.items() if not (isinstance(part, Mapping) and part.get(hidden) is True))
            made["properties"] = {name: inner(one) for name, one in itertools.islice(kept, max(0, self._left))}
            made.setdefault("type", "object")
        if required := _texts(node.get("required")):
            made["required"] = list(dict.fromkeys(required))
        if isinstance(node.get("items"), Mapping):
            made["items"] = inner(node["items"])
        if isinstance(more := node.get("additionalProperties"), Mapping | bool):
            made["additionalProperties"] = inner(more) if isinstance(more, Mapping) else more
        for word in _CHOICES:
            if isinstance(parts := node.get(word), list) and parts:
                made[word] = [inner(one, part=True) for one in parts[: max(1, self._left)]]
        for one in node["allOf"][: max(1, self._left)] if isinstance(node.get("allOf"), list) else ():
            made = _both(made, inner(one, part=True))
        if "allOf" in node and "properties" in made:
            made.pop("additionalProperties", None)  # each part would refuse what the others allow
        return made if part else _without_unnamed(made)

    def _found(self, ref: str, around: Sequence[Mapping[str, Any]]) -> tuple[str, Any]:
        """Return what a reference refers to, with a name of its own: in the document, else in the innermost schema around it that has it.

        `#/$defs/NAME` is a schema's own in OpenAPI 3.1, where the schema has an `$id`; generators write it without one, too.
        """
        try:
            return ref, self._at(ref)
        except InvalidInput:
            for depth, schema in reversed(list(enumerate(around))):
                with contextlib.suppress(InvalidInput):
                    if ref.startswith("#"):
                        return f"{depth}{ref}", _pointed(schema, ref)
            raise

    def _at(self, ref: str) -> Any:
        location = ref.partition("#")[0]
        if location and location not in self._files:
            raise InvalidInput(f"the reference {shown(ref)} leaves the document, which is not followed; bundle it into one document first")
        found: Any = self._files[location] if location else self._document
        if isinstance(found, LostDocument):
            raise InvalidInput(f"the reference {shown(found.name)} {found.why}")
        return _pointed(found, ref)


class _Operation:
    """One operation, on its way to a tool."""

    def __init__(self, document: Mapping[str, Any], schemas: _Schemas, path: str, method: str, skipped: Sequence[str]) -> None:
        self._document, self._schemas, self._path, self._method = document, schemas, path, method
        self._skipped = frozenset(skipped)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self._together: dict[str, list[str]] = {}
        self._key_header = ""
        self.unsent: list[tuple[str, str]] = []
        """place and name of the headers and cookies that it requires: the connection gives them"""
        plain, _, query = path.partition("#")[0].partition("?")  # some tell operations of one path apart by a fragment
        self._details: dict[str, Any] = {"method": method.upper(), "path": plain}
        if query:
            self._details["fixed"] = [list(pair) for pair in urllib.parse.parse_qsl(query, keep_blank_values=True)]

    def tool(self, shared: Mapping[str, Any], operation: Mapping[str, Any]) -> ToolDefinition:
        """Return the tool.

        :raises _Unsupported: if its body has a form that is not sent.
        """
        self._schemas.begin()
        swagger: list[Mapping[str, Any]] = []
        sent: list[dict[str, Any]] = []
        for one in self._parameters(shared, operation):
            (swagger.append(one) if one["in"] in ("body", "formData") else self._take(one, sent))
        missing = set(re.findall(r"\{([^{}]+)\}", self._path)) - {one["name"] for one in sent if one["in"] == "path"}
        for name in sorted(missing):
            self._take({"name": name, "in": "path", "required": True, "schema": {"type": "string"}}, sent)
        body = self._swagger_body(swagger, operation) if swagger else self._schemas.resolved(operation.get("requestBody"))
        if isinstance(body, Mapping):
            self._take_body(body)
        kind = KEYED if self._key_header and _METHODS[self._method] == ACTS else _METHODS[self._method]
        self._details |= {"sent": sent, **({"key_header": self._key_header} if self._key_header else {})}
        schema: dict[str, Any] = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = list(dict.fromkeys(self._required))
        if self._together:
            schema["dependentRequired"] = self._together
        said, place = _said(operation), f"{self._method.upper()} {self._path}"
        if not said or _says_nothing(said, operation.get("operationId"), self._path):
            said = f"{said}: {place}" if said else place
        return ToolDefinition(
            name=_name(operation.get("operationId"), self._method, self._path),
            description=_words(said, 600),
            parameters=schema,
            result=self._result(operation.get("responses")),
            kind=kind,
            details=self._details,
        )

    def _parameters(self, shared: Mapping[str, Any], operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for node in (shared, operation):
            listed = node.get("parameters") or ()
            if len(listed) > PARAMETERS:
                raise _Unsupported(f"it has {len(listed)} parameters; at most {PARAMETERS} are read")
            for given in listed:
                one = self._schemas.resolved(given)
                if not isinstance(one, Mapping) or not isinstance(one.get("name"), str) or not isinstance(one.get("in"), str):
                    raise InvalidInput(f"its parameter number {len(found) + 1} has no name or no place")
                found[one["name"], one["in"]] = one
        return list(found.values())

    def _take(self, one: Mapping[str, Any], sent: list[dict[str, Any]]) -> None:
        name, place = one["name"], one["in"]
        if place == "header" and _KEY_HEADER.match(name):
            self._key_header = name
        elif place in ("header", "cookie") and one.get("required") is True:
            self.unsent.append((place, name))
        if place not in ("path", "query") or (place == "query" and name in self._skipped):
            return
        if place == "path" and f"{{{name}}}" not in self._path:
            return
        content = one.get("content")
        schema = next(iter(content.values())).get("schema") if isinstance(content, Mapping) and content else one.get("schema")
        made = self._schemas.schema(
            schema if isinstance(schema, Mapping) else {k: v for k, v in one.items() if k not in ("required", "description")}
        )
        if said := _words(one.get("description"), _DESCRIPTION_CHARS):
            made["description"] = said
        argument = self._argument(name, place)
        self._properties[argument] = made
        if one.get("required") is True or place == "path":
            self._required.append(argument)
        style = "json" if content else str(one.get("style") or ("simple" if place == "path" else "form"))
        explode = one.get("explode", style in ("form", "deepObject"))
        if "collectionFormat" in one or ("swagger" in self._document and made.get("type") == "array"):
            explode = one.get("collectionFormat") == "multi"
            style = _COLLECTIONS.get(str(one.get("collectionFormat")), style)
        sent.append({"argument": argument, "name": name, "in": place, "style": style, "explode": bool(explode)})

    def _take_body(self, body: Mapping[str, Any]) -> None:
        content = body.get("content")
        if not isinstance(content, Mapping) or not content:
            return
        media = _media(content)
        if media is None:
            if body.get("required") is True:
                raise _Unsupported(f"its body is {', '.join(map(str, content))}, which is not sent; JSON, forms and text are")
            return
        about = self._schemas.resolved(content[media]) or {}
        schema = self._schemas.schema(about.get("schema"))
        needed = body.get("required") is True
        kind = "application/json" if "*" in media else media
        flat = schema.get("type") == "object" and schema.get("properties") and not any(word in schema for word in _CHOICES)
        if flat and "multipart" in kind:
            flat = self._without_files(schema)
        if flat:
            self._details["body"] = {"type": kind, "fields": self._fields(schema, needed), "required": needed}
            if styles := _styles(about.get("encoding")):
                self._details["body"]["styles"] = styles
            return
        if "multipart" in kind:
            if needed:
                raise _Unsupported(f"its body is {kind} without fields of text, which is not sent; JSON, forms and text are")
            return
        argument = self._argument("body", "request")
        self._properties[argument] = schema
        if needed:
            self._required.append(argument)
        self._details["body"] = {"type": kind, "whole": argument, "required": needed}

    def _fields(self, schema: Mapping[str, Any], needed: bool) -> dict[str, str]:
        """Make each property of a body a parameter; return the properties by their parameters.

        Where the body may be left out, each of its fields asks for one that it requires, and these for one another in a circle.
        """
        fields: dict[str, str] = {}
        for name, part in schema["properties"].items():
            fields[argument := self._argument(name, "body")] = name
            self._properties[argument] = part
        required = set(schema.get("required") or ())
        asked = [argument for argument, name in fields.items() if name in required]
        if needed:
            self._required += asked
        elif asked:
            next_ = dict(zip(asked, [*asked[1:], asked[0]], strict=True))
            self._together = {one: [next_.get(one, asked[0])] for one in fields if next_.get(one) != one}
        return fields

    def _without_files(self, schema: dict[str, Any]) -> bool:
        """Leave the files out of the schema of a form; return False if nothing is left.

        :raises _Unsupported: if the form needs one.
        """
        files = [name for name, part in schema["properties"].items() if _is_file(part)]
        for name in files:
            if name in schema.get("required", ()):
                raise _Unsupported(f"its body needs the file {shown(name)}, and files are not sent; JSON, forms and text are")
            del schema["properties"][name]
        return bool(schema["properties"])

    def _argument(self, name: str, place: str) -> str:
        return name if name not in self._properties else _free(f"{place}_{name}", set(self._properties))

    def _swagger_body(self, given: Sequence[Mapping[str, Any]], operation: Mapping[str, Any]) -> dict[str, Any]:
        consumes = _texts(operation.get("consumes")) or _texts(self._document.get("consumes"))
        if (whole := next((one for one in given if one["in"] == "body"), None)) is not None:
            about = {"schema": whole.get("schema")}
            return {"required": whole.get("required") is True, "content": dict.fromkeys(consumes or ["application/json"], about)}
        properties, encoding = {}, {}
        for one in given:
            properties[one["name"]] = {name: value for name, value in one.items() if name not in ("in", "name", "required")}
            if one.get("type") == "file":
                properties[one["name"]] |= {"type": "string", "format": "binary"}
            elif one.get("type") == "array" and one.get("collectionFormat") != "multi":
                style = _COLLECTIONS.get(str(one.get("collectionFormat")), "form")
                encoding[one["name"]] = {"style": style, "explode": False}
        required = [one["name"] for one in given if one.get("required") is True]
        files = any(one.get("type") == "file" for one in given)
        media = _MULTIPART if files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
        schema = {"type": "object", "properties": properties, "required": required}
        return {"required": bool(required), "content": {media: {"schema": schema, "encoding": encoding}}}

    def _result(self, responses: Any) -> dict[str, Any] | None:
        if not isinstance(responses, Mapping):
            return None
        by_status = {str(status): node for status, node in responses.items()}
        status = next((one for one in sorted(by_status) if one.startswith("2")), "default")
        try:
            answer = self._schemas.resolved(by_status.get(status))
        except InvalidInput:
            return None
        if not isinstance(answer, Mapping):
            return None
        content = answer.get("content")
        schema = answer.get("schema")
        if isinstance(content, Mapping):
            about = next((node for media, node in content.items() if "json" in str(media)), None)
            schema = about.get("schema") if isinstance(about, Mapping) else None
        if not isinstance(schema, Mapping):
            return None
        try:
            body = self._schemas.schema(schema, response=True)
        except InvalidInput:  # a reference in it leads nowhere: the call can be made all the same
            return None
        return {"type": "object", "properties": {"status": {"type": "integer"}, "body": body, "url": {"type": "string"}}}


def _pointed(found: Any, ref: str) -> Any:
    """Return the part of a document that the pointer behind a reference's `#` leads to."""
    for part in ref.partition("#")[2].split("/")[1:]:
        name = urllib.parse.unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        elif isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, Mapping) and name.isdecimal() and int(name) in found:  # YAML reads 200 as a number
            found = found[int(name)]
        else:
            raise InvalidInput(f"the reference {shown(ref)} leads nowhere")
    return found


def _media(content: Mapping[str, Any]) -> str | None:
    medias = [str(one) for one in content]
    for pattern in (
        r"application/json\b",
        r"[\w.+/-]*json\b",
        r"\*/\*",
        r"application/\*",
        r"application/x-www-form-urlencoded\b",
        r"text/",
        r"multipart/form-data\b",
    ):
        for one in medias:
            if re.match(pattern, one):
                return one
    return None


def _styles(encoding: Any) -> dict[str, list[Any]]:
    """Return how a form's fields are written, where the document says so: style, and True for a pair for each part of a value."""
    given = encoding if isinstance(encoding, Mapping) else {}
    said = {str(name): one for name, one in given.items() if isinstance(one, Mapping) and ("style" in one or "explode" in one)}
    return {name: [str(one.get("style") or "form"), one.get("explode", True) is True] for name, one in said.items()}


def _is_file(part: Mapping[str, Any]) -> bool:
    inner = part.get("items") if part.get("type") == "array" else part
    return isinstance(inner, Mapping) and (inner.get("format") == "binary" or "contentMediaType" in inner)


def _facts(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a schema says of its value itself, as JSON Schema 2020-12 has it."""
    made: dict[str, Any] = {}
    types = [str(one) for one in (node["type"] if isinstance(node.get("type"), list) else [node.get("type")])]
    types = ["string" if one == "file" else one for one in types]
    types = [one for one in types if one in _TYPES]
    if node.get("nullable") is True and types and "null" not in types:
        types.append("null")
    if types:
        made["type"] = types[0] if len(types) == 1 else types
    for name in _PLAIN:
        if name in node and _is_json(node[name]):
            made[name] = node[name]
    for word, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(word), bool) and made.pop(word) and bound in made:  # as OpenAPI 3.0 has it
            made[word] = made.pop(bound)
    if isinstance(made.get("enum"), list):
        if node.get("nullable") is True and None not in made["enum"]:
            made["enum"] = [*made["enum"], None]
        if len(made["enum"]) > _ENUM or not made["enum"]:
            del made["enum"]
    if said := _words(node.get("description"), _DESCRIPTION_CHARS):
        made["description"] = said
    return made


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that asks for what two ask for, as far as flat properties and what is required go."""
    made = _requiring({**other, **one}, one, other)
    if "properties" in one or "properties" in other:
        had, more = one.get("properties", {}), other.get("properties", {})
        shared = {name: _without_unnamed(_needing(had[name], more[name])) for name in had if name in more}
        made["properties"] = {**more, **had, **shared}
        made.setdefault("type", "object")
    further = [{word: other[word]} for word in _CHOICES if word in one and word in other and one[word] != other[word]]
    if parts := [*one.get("allOf", ()), *other.get("allOf", ()), *further]:
        made["allOf"] = parts
    return made


def _requiring(made: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    required = [*one.get("required", ()), *other.get("required", ())]
    return {**made, "required": list(dict.fromkeys(required))} if required else made


def _needing(one: dict[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first of two schemas of a property, with what the second requires of what the first names."""
    made, parts = _requiring(dict(one), one, other), other.get("properties", {})
    if "properties" in one:
        made["properties"] = {name: _needing(part, parts[name]) if name in parts else part for name, part in one["properties"].items()}
    return made


def _without_unnamed(made: dict[str, Any], around: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return a schema that requires no property which neither it nor a schema around it names. One of free fields stays as it is."""
    names, made = around | made.get("properties", {}).keys(), dict(made)
    required = [name for name in made.pop("required", ()) if name in names or not names]
    if required:
        made["required"] = required
    for word in (*_CHOICES, "allOf"):
        if word in made:
            made[word] = [_without_unnamed(part, names) for part in made[word]]
    return made


def _is_json(value: Any) -> bool:
    """Return True for a value that JSON can hold in a bounded size. It is counted first: in YAML a small text may stand for a huge one."""
    left, open_ = _VALUE_NODES, [value]
    while open_:
        one = open_.pop()
        left -= 1 + (len(one) if isinstance(one, dict | list) else 0)
        if left < 0:
            return False
        open_ += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    try:
        return len(json.dumps(value, allow_nan=False)) <= 20_000
    except (TypeError, ValueError, RecursionError):
        return False


def _texts(value: Any) -> list[str]:
    return [one for one in value[: 4 * NODES] if isinstance(one, str)] if isinstance(value, list) else []


def _said(operation: Mapping[str, Any]) -> str:
    """Return the summary and the description, without saying the same twice."""
    short, long = (_words(operation.get(name), 600) for name in ("summary", "description"))
    if not short or not long or long.casefold().startswith(short.rstrip(".").casefold()):
        return long or short
    return f"{short.rstrip('.')}: {long}"


def _says_nothing(said: str, name: Any, path: str) -> bool:
    """Return True if a description is a part of the operation's name and neither tells what the path is about: `save` of `saveUsingPOST`
    at `/stock`."""
    told = str(name or "").casefold()
    about = [part.casefold().rstrip("s") for part in re.findall(r"[A-Za-z]+", re.sub(r"\{[^{}]*\}", "", path))]
    return said.casefold() in told and bool(about) and not any(word in told for word in about)


def _words(said: Any, most: int) -> str:
    if not isinstance(said, str):
        return ""
    text = " ".join(_HIDDEN.sub(" ", said[: _SPACED * most]).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _name(given: Any, method: str, path: str) -> str:
    text = given if isinstance(given, str) else ""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or re.sub(r"[^A-Za-z0-9]+", "_", f"{method}_{path}").strip("_")
    return text[:90]
