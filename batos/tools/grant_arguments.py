"""Constraints of a grant on the arguments of a call.

A constraint belongs to the name of an argument, `*` to all arguments that are not named. It has one of these forms:

* a text: a pattern, in which `*` stands for any characters
* `true`: any value, or none
* `false`: the argument is not given
* a JSON schema with the keywords of `KEYWORDS`
* another JSON value: the argument equals it

Constraints lean to the safe side. A list fits an allow if each of its values does, and a deny if one does. A path that goes back (`..`)
fits no pattern of an allow, and a deny's pattern wherever it leads. A deny also fits other spellings: letters of another case, the same
address with a port or in Punycode, a number as text. What an allow's pattern says of the server of a URL fits that server alone, and a
pattern of a mail address one address.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
import shlex
import socket
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from batos.errors import InvalidInput
from batos.image.effects import canonical

OTHERS = "*"
KEYWORDS = ("const", "enum", "type", "minimum", "maximum", "minLength", "maxLength", "items")
CONSTRAINT_CHARS = 8192
"""Characters of all constraints of one grant."""
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict, "null": type(None),
}  # fmt: skip
_SEPARATORS = re.compile(r"[/\\]+")
_ADDRESS = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):[/\\]{2,}([^/\\?#]*)([^?#]*)(\??[^#]*)", re.DOTALL)
"""Matches a URL; its groups are scheme, server, path and query."""
_PORTS = {"http": ":80", "https": ":443", "ws": ":80", "wss": ":443", "ftp": ":21"}


def parse_constraints(text: str) -> str:
    """Return what a user writes as constraints (`path=notes/* mode=r`, or a JSON object) as canonical JSON; empty for none.

    :raises InvalidInput: if it is neither, or a constraint is not valid.
    """
    text = text.strip()
    if len(text) > CONSTRAINT_CHARS:
        raise InvalidInput(f"constraints of arguments have {len(text)} characters; at most {CONSTRAINT_CHARS} are allowed")
    if not text:
        return ""
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise InvalidInput(f"the constraints {text[:80]!r} are not valid JSON: {e}") from None
    else:
        parsed = _pairs(text)
    for name, constraint in parsed.items():
        check_constraint(name, constraint)
    return canonical(parsed) if parsed else ""


def _pairs(text: str) -> dict[str, str]:
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise InvalidInput(f"the constraints {text[:80]!r} are not valid ({e}); write NAME=PATTERN, quoted where it has blanks") from None
    found: dict[str, str] = {}
    for word in words:
        name, equals, pattern = word.partition("=")
        if not equals or not name or name in found:
            why = "appears twice" if name in found and equals else "is not of the form NAME=PATTERN"
            raise InvalidInput(f"the constraint {word[:80]!r} {why}; write `--args 'path=notes/*'`, or a JSON object")
        found[name] = pattern
    return found


def check_constraint(name: str, constraint: Any) -> None:
    """Refuse a constraint that could not be applied.

    :raises InvalidInput: with the argument, and what is allowed.
    """
    if not isinstance(constraint, dict):
        return
    if unknown := sorted(constraint.keys() - set(KEYWORDS)):
        raise InvalidInput(f"the constraint of {name!r} has the keyword {unknown[0]!r}; allowed are {', '.join(KEYWORDS)}")
    types = constraint.get("type", [])
    if bad := [one for one in (types if isinstance(types, list) else [types]) if not isinstance(one, str) or one not in _TYPES]:
        raise InvalidInput(f"the constraint of {name!r} has the type {bad[0]!r}; allowed are {', '.join(_TYPES)}")
    if not isinstance(constraint.get("enum", []), list):
        raise InvalidInput(f"the constraint of {name!r} has an `enum` that is not a list of values")
    for keyword in ("minimum", "maximum", "minLength", "maxLength"):
        if not _is_number(constraint.get(keyword, 0)):
            raise InvalidInput(f"the constraint of {name!r} has {constraint[keyword]!r} as its `{keyword}`; allowed is a number")
    if "items" in constraint:
        if not isinstance(constraint["items"], dict):
            raise InvalidInput(f"the constraint of {name!r} has `items` that are not a JSON schema")
        check_constraint(name, constraint["items"])


def fits(constraints: str, arguments: Mapping[str, Any], *, strict: bool) -> bool:
    """Return True if the arguments of a call fit all constraints of a grant.

    :param constraints: as `parse_constraints` returns them.
    :param strict: True for a grant that allows; False for one that denies or asks, which doubt lets fit.
    """
    if not constraints:
        return True
    parsed = json.loads(constraints)
    others = parsed.pop(OTHERS, True)
    named = all(_fits(constraint, arguments, name, strict) for name, constraint in parsed.items())
    return named and all(_fits(others, arguments, name, strict) for name in arguments if name not in parsed)


def _fits(constraint: Any, arguments: Mapping[str, Any], name: str, strict: bool) -> bool:
    if isinstance(constraint, bool):
        return constraint or name not in arguments
    return name in arguments and _fits_value(constraint, arguments[name], strict)


def _fits_value(constraint: Any, value: Any, strict: bool) -> bool:
    if isinstance(constraint, str):
        if isinstance(value, list):
            each = [_fits_value(constraint, one, strict) for one in value]
            return bool(each) and all(each) if strict else any(each)
        return _fits_pattern(constraint, value, strict)
    fits_one = _valid if isinstance(constraint, dict) else _same
    if strict:
        return fits_one(constraint, value)
    within = value if isinstance(value, list) else []
    return any(fits_one(constraint, read) for one in (value, *within) for read in _readings(one))


def _readings(value: Any) -> Iterator[Any]:
    """Yield a value, and what a place may read in its stead: the number that a text spells, or the text of a number."""
    yield value
    if isinstance(value, bool | int | float):
        yield json.dumps(value)
    elif isinstance(value, str):
        word = value.strip().casefold()
        if word in ("true", "false"):
            yield word == "true"
        try:
            number = float(word)
        except ValueError:
            return
        yield int(number) if number.is_integer() else number


def _fits_pattern(pattern: str, value: Any, strict: bool) -> bool:
    if isinstance(value, dict):
        return not strict
    text = value if isinstance(value, str) else json.dumps(value)
    if glob(pattern, text):
        return not (strict and "*" in pattern and (goes_back(text) or _leaves_server(pattern, text) or _has_more_addresses(pattern, text)))
    return not strict and any(glob(_folded(pattern), _folded(form)) for form in _forms(text))


def _leaves_server(pattern: str, text: str) -> bool:
    """Return True if a URL fits a pattern only since a `*` in the server's name stands for more than a name."""
    wanted, given = _ADDRESS.match(pattern), _ADDRESS.match(text)
    if wanted is None or given is None:
        return False
    rest = pattern[wanted.end(2) :] or ("*" if wanted[2].endswith("*") else "")
    return not (glob(wanted[2], given[2]) and glob(rest, text[given.end(2) :]))


def _has_more_addresses(pattern: str, text: str) -> bool:
    """Return True if a text fits the pattern of a mail address, and has others before or behind it."""
    return 0 < pattern.count("@") < text.count("@")


def _folded(text: str) -> str:
    """Return a text without what only differs in the case of letters, or in their width."""
    return unicodedata.normalize("NFKC", text).casefold()


def _forms(text: str) -> list[str]:
    """Return other ways to write the same path or address."""
    plain = unquote(text)
    straight = posixpath.normpath(_SEPARATORS.sub("/", plain))
    return [text, plain, straight, straight.lstrip("/"), "/" + straight.lstrip("/"), *_addresses(text), *_addresses(plain)]


def _addresses(text: str) -> list[str]:
    """Return other ways to write a URL: without a name and password, with and without its usual port, and with a straight path.

    The name of its server is also written in other letters, and its address in other numbers.
    """
    if (found := _ADDRESS.match(text)) is None:
        return []
    scheme, usual = found[1].lower(), _PORTS.get(found[1].lower(), "")
    server = found[2].rpartition("@")[2].removesuffix(usual).rstrip(".")
    host, colon, port = server.partition(":")
    servers = [f"{one}{colon}{port}" for one in _spellings(host.rstrip("."))]
    straight = posixpath.normpath("/" + _SEPARATORS.sub("/", found[3])).replace("//", "/")
    paths = dict.fromkeys((found[3] or "/", straight, straight.rstrip("/") + "/"))
    ports = dict.fromkeys(("", "" if port else usual))
    return [f"{scheme}://{server}{more}{path}{found[4]}" for server in servers for more in ports for path in paths]


def _spellings(host: str) -> list[str]:
    """Return a server's name with other letters in their own script and in ASCII (Punycode), and an IPv4 address in its usual form."""
    import httpx  # with the first URL that a deny is about: most daemons have none

    found = [host]
    with contextlib.suppress(OSError, UnicodeError):
        found.append(socket.inet_ntoa(socket.inet_aton(host)))
    with contextlib.suppress(httpx.InvalidURL, UnicodeError):
        url = httpx.URL(scheme="http", host=host)
        found += [url.host, url.raw_host.decode("ascii")]
    return list(dict.fromkeys(found))


def goes_back(text: str) -> bool:
    """Return True if a path, also a percent-encoded one, has a part `..`."""
    return ".." in _SEPARATORS.split(text) or ".." in _SEPARATORS.split(unquote(unquote(text)))


def glob(pattern: str, text: str) -> bool:
    """Return True if a text fits a pattern, in which `*` stands for any characters, and all others for themselves. The time is linear in
    their product."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


def _valid(schema: Mapping[str, Any], value: Any) -> bool:
    types = schema.get("type", [])
    types = types if isinstance(types, list) else [types]
    size = len(value) if isinstance(value, str) else None
    number = value if _is_number(value) else None
    checks = (
        "const" not in schema or _same(schema["const"], value),
        "enum" not in schema or any(_same(one, value) for one in schema["enum"]),
        not types or any(_is_type(value, one) for one in types),
        number is None or schema.get("minimum", number) <= number <= schema.get("maximum", number),
        size is None or schema.get("minLength", size) <= size <= schema.get("maxLength", size),
        not isinstance(value, list) or all(_valid(schema.get("items", {}), one) for one in value),
    )
    bounded = any(word in schema for word in ("minimum", "maximum")) and number is None
    measured = any(word in schema for word in ("minLength", "maxLength")) and size is None
    return all(checks) and not bounded and not measured and not ("items" in schema and not isinstance(value, list))


def _is_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name]) or (name == "integer" and isinstance(value, float) and value.is_integer())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(expected: Any, value: Any) -> bool:
    """Return True if two JSON values are equal; true is not 1."""
    return isinstance(expected, bool) == isinstance(value, bool) and bool(expected == value)
