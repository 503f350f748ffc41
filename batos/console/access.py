"""Who may use the console: who has the token, from a page of the console itself, at a name of this machine.

Three things are checked of each request, before anything else is done with it:

* its Host is the address that the console listens at: a page of a foreign name that resolves to 127.0.0.1 (DNS rebinding) has another;
* no page of another origin made it: `Origin` and `Sec-Fetch-Site` say so, and browsers let no page forge them;
* it carries the cookie of a session that has not ended, which only the token gets (`batos.console.sessions`).
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

import structlog

from batos import private_files
from batos.errors import ConfigError
from batos.loopback import bracketed, is_foreign, names_of

log = structlog.get_logger("batos.console")

TOKEN_NAME = "console.token"  # noqa: S105  the name of its file
_TOKEN_BYTES = 32
_LONGEST = 1024  # bytes of a token's file that are read


def token_of(data: Path) -> str:
    """The token of this data folder; made at the first call, and again where others could have read it. Does file work.

    :raises ConfigError: if the file cannot be read or made.
    """
    path = data / TOKEN_NAME
    try:
        found = _read(path)
        if found is None:
            private_files.make(data)
            found = secrets.token_urlsafe(_TOKEN_BYTES)
            private_files.write(path, found + "\n")
    except OSError as e:
        raise ConfigError(
            f"the console's token {path} cannot be read or made: {e.strerror}; give the file to this user, or delete it"
        ) from None
    return found


def _read(path: Path) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if about.st_uid not in (
            os.geteuid(),
            path.parent.stat().st_uid,
        ):  # it would let in whoever put it there; root looks at others', too
            log.warning("console_token_replaced", file=str(path), why="it is another user's")
            return None
        if stat.S_IMODE(about.st_mode) & 0o077:
            log.warning("console_token_replaced", file=str(path), why="others could read it")
            return None
        text = file.read(_LONGEST).decode("ascii", "replace").strip()
    if len(text) < _TOKEN_BYTES:  # cut off by a full disk, or written by hand
        log.warning("console_token_replaced", file=str(path), why="it is too short to be safe")
        return None
    return text


class Access:
    """The rules for one console at one address. It asks for nothing and keeps nothing: any thread."""

    def __init__(self, token: str, host: str, port: int, session_s: float) -> None:
        """
        :param host: the loopback address that it listens at.
        :param session_s: how long a session lasts, in seconds.
        """
        self.address = f"http://{bracketed(host)}:{port}"
        self.hosts = names_of(host, port)
        self.cookie_name = f"batos_{port}"  # cookies know no ports: two consoles must not log each other out
        self.session_s = int(session_s)
        self._token = token.encode()

    @property
    def link(self) -> str:
        """The address with the token in it: whoever has it is let in."""
        return f"{self.address}/?token={self._token.decode()}"

    def is_token(self, text: str) -> bool:
        """Whether this is the token; takes the same time whatever it is."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token)

    def refusal(self, method: str, headers: Mapping[str, str]) -> str:
        """Why a request with these headers is refused; "" where it is not.

        :param headers: by lower-case names.
        """
        if headers.get("host", "").lower() not in self.hosts:
            return f"This console answers only at {self.address}. The name that was asked for is another one."
        if is_foreign(headers, self.hosts):
            return "A page of another site made this request."
        if method == "GET" or method == "HEAD":
            return ""
        if method != "POST":
            return f"There is nothing here that answers to {method[:16]}."
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site not in (None, "same-origin"):
            return "A page of another site made this request."
        if origin is None and site is None:
            return "The browser did not say which page made this request (it sent neither Origin nor Sec-Fetch-Site)."
        return ""
