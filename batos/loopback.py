"""Loopback addresses of this machine, and the names by which a browser may ask for one.

For a browser, a page of a foreign name that resolves to 127.0.0.1 (DNS rebinding) has the same origin as the server there. But it sends
its own name as `Host`, and is recognised by that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_HTTP = 80  # the port that browsers omit from Host and Origin


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def names_of(host: str, port: int) -> frozenset[str]:
    """Return the valid values of `Host`, in lower case, for a loopback address asked for by itself or as localhost."""
    name = bracketed(host)
    own = {f"{name}:{port}", f"localhost:{port}"}
    return frozenset(own | {name, "localhost"} if port == _HTTP else own)


def is_foreign(headers: Mapping[str, str], names: Collection[str]) -> bool:
    """Return True if a page of another site wants to read, by headers that no page can forge. Following a link does not count.

    :param headers: by lower-case names.
    :param names: valid values of `Host`.
    """
    origin = headers.get("origin")
    if origin is not None and origin.removeprefix("http://") not in names:
        return True
    navigates = headers.get("sec-fetch-mode", "navigate") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and not navigates
