"""Security schemes of OpenAPI documents: which secret an API asks for, and the option of `batos tools add` that gives it.

A scheme's secret is never a parameter that a model fills in. It is an option of the connection, which names a secret of its user's. So is a
header or cookie that operations require.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

SCHEMES = 50
"""Greatest number of a document's schemes that are read."""
_TOLD = 3  # requirements that are told
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}\Z")  # a user pastes it into a shell: nothing that a shell reads as more than a word
_OWN = frozenset({"accept", "content-type", "authorization"})  # OpenAPI has no parameters of these names: they are sent, or a secret
_NOT_SECRET = re.compile(r"[^A-Za-z0-9_.-]")


def schemes_of(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the security schemes of a document of any version, by name."""
    components = document.get("components")
    given = document.get("securityDefinitions") or (components.get("securitySchemes") if isinstance(components, Mapping) else None)
    if not isinstance(given, Mapping):
        return {}
    return {str(name): one for name, one in list(given.items())[:SCHEMES] if isinstance(one, Mapping)}


def query_keys(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the query's parameters that carry a scheme's key."""
    return [str(one.get("name")) for one in schemes_of(document).values() if one.get("type") == "apiKey" and one.get("in") == "query"]


def what_is_needed(
    document: Mapping[str, Any], operations: Iterable[Mapping[str, Any]], headers: Iterable[str], query: Iterable[str]
) -> list[str]:
    """Return in words which secrets a document's operations need that a connection does not give, with the options that do.

    :param headers: names of the headers that the connection gives.
    :param query: names of the query's parameters that it gives.
    """
    schemes = schemes_of(document)
    given = {name.lower() for name in headers}, set(query)
    counts: Counter[tuple[tuple[str, ...], ...]] = Counter()
    total = 0
    for operation in operations:
        total += 1
        counts[_alternatives(operation.get("security", document.get("security")), schemes)] += 1
    if set(counts) == {()} and schemes and not isinstance(document.get("security"), list):
        counts = Counter({tuple((name,) for name in schemes): total})  # it describes schemes, and does not say where they are needed
    said: dict[str, int] = {}
    for alternatives, count in counts.most_common():
        if not alternatives or any(all(_is_given(schemes[name], *given) for name in one) for one in alternatives):
            continue
        ways = [" and ".join(_way(name, schemes[name]) for name in one) for one in alternatives[:_TOLD]]
        text = "; or ".join(dict.fromkeys(ways))
        said[text] = said.get(text, 0) + count
    return [f"{count} of {total} operations ask for a secret: {text}" for text, count in list(said.items())[:_TOLD]]


def headers_needed(document: Mapping[str, Any], unsent: Mapping[tuple[str, str], int], total: int, headers: Iterable[str]) -> list[str]:
    """Return in words which headers and cookies operations require that a connection does not give, with the options that do.

    :param unsent: number of operations by the place of what they require (`header`, `cookie`) and its name.
    :param total: number of operations.
    :param headers: names of the headers that the connection gives.
    """
    keys = {(one.get("in"), str(one.get("name")).lower()) for one in schemes_of(document).values()}  # those are told as secrets
    given = {name.lower() for name in headers} | _OWN
    found = []
    for (place, name), count in sorted(unsent.items(), key=lambda pair: (-pair[1], pair[0])):
        if not _NAME.match(name) or (place, name.lower()) in keys or ("cookie" if place == "cookie" else name.lower()) in given:
            continue
        way = f"'Cookie: {name}=VALUE'" if place == "cookie" else f"'{name}: VALUE'"
        found.append(f"{count} of {total} operations need the {place} {name}, given by --header {way}")
    return found[:_TOLD]


def _alternatives(given: Any, schemes: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Return the sets of schemes one of which an operation needs; none where it needs none."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        return ()
    found = [tuple(str(name) for name in one if str(name) in schemes) for one in given[:SCHEMES] if isinstance(one, Mapping)]
    return tuple(found) if all(found) else ()


def _is_given(scheme: Mapping[str, Any], headers: set[str], query: set[str]) -> bool:
    kind, place, name = scheme.get("type"), scheme.get("in"), str(scheme.get("name") or "")
    if kind != "apiKey":
        return "authorization" in headers
    return name in query if place == "query" else ("cookie" if place == "cookie" else name.lower()) in headers


def _way(name: str, scheme: Mapping[str, Any]) -> str:
    return f"{_shown(name)}, given by {next(_options(name, scheme), 'a way that is not known here')}"


def _options(name: str, scheme: Mapping[str, Any]) -> Iterator[str]:
    secret = f"{{secret:{_secret(name)}}}"
    kind, place, key = scheme.get("type"), scheme.get("in"), str(scheme.get("name") or "")
    if kind == "apiKey" and _NAME.match(key):
        if place == "query":
            yield f"--option 'query={json.dumps({key: secret})}'"
        yield f"--header 'Cookie: {key}={secret}'" if place == "cookie" else f"--header '{key}: {secret}'"
    elif kind == "basic" or (kind == "http" and str(scheme.get("scheme")).lower() == "basic"):
        yield f"--header 'Authorization: Basic {secret}' (the secret is USER:PASSWORD in base64)"
    elif kind in ("oauth2", "openIdConnect"):
        yield f"--header 'Authorization: Bearer {secret}' (the secret is an access token)"
    elif kind == "http":
        yield f"--header 'Authorization: Bearer {secret}'"


def _secret(name: str) -> str:
    text = _NOT_SECRET.sub("_", name)[:60]
    return text if text[:1].isalpha() else f"key_{text}"


def _shown(name: str) -> str:
    return _NOT_SECRET.sub("_", name)[:60]
