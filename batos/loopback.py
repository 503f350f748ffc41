"""Addresses of this machine alone, and the names by which a browser may ask for one.

A page of a foreign name that resolves to 127.0.0.1 (DNS rebinding) is of the same origin as what answers there, for the browser. What it
sends as `Host` is its own name: that is how it is told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_HTTP = 80  # the port that browsers leave out of Host and Origin


def bracketed(host: str) -> str:
    """A host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def names_of(host: str, port: int) -> frozenset[str]:
    """What `Host` may be, in lower case, where a loopback address is asked for by itself or as localhost."""
    name = bracketed(host)
    own = {f"{name}:{port}", f"localhost:{port}"}
    return frozenset(own | {name, "localhost"} if port == _HTTP else own)


def is_foreign(headers: Mapping[str, str], names: Collection[str]) -> bool:
    """Whether a page of another site wants to read, by what browsers say of a request and let no page forge. A link is none.

    :param headers: by lower-case names.
    :param names: what `Host` may be.
    """
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in names:
        return True
    navigates = headers.get("sec-fetch-mode", "navigate") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not navigates
