"""Access to the daemon's HTTP server: for a user with the token, from no page of another site, at a name of this machine.

Three things are checked of each request, before anything else is done with it:

* its Host is an address that the server listens at: a page of a foreign name that resolves to 127.0.0.1 (DNS rebinding) has another;
* no page of another origin made it: `Origin` and `Sec-Fetch-Site` say so, and browsers let no page forge them;
* at a page of the console, it carries the cookie of an open session, which only the token opens. At an interface for clients, it carries
  the token itself (`batos.doors.access`).

Sessions are kept in the data folder. A restart ends none, and restores none that was ended. A browser holds a random key in its cookie; the
file holds only a keyed hash of it, made with the token. So reading the file is not enough to get in, and another token ends every session.
`batos console --logout --all` changes the same file, whether a daemon runs or not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from batos import private_files
from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.errors import ConfigError
from batos.loopback import bracketed, is_foreign, names_of

log = structlog.get_logger("batos.console")

TOKEN_NAME = "doors.token"  # noqa: S105  the name of its file
_FORMER_NAME = "console.token"  # the console had a server and a token of its own
_TOKEN_BYTES = 32
_LONGEST = 1024  # bytes read of a token's file


def token_of(data: Path) -> str:
    """Return the token of this data folder; made at the first call, and again where others could have read it. Does file work.

    The token that an earlier version made for the console becomes that of the server: its links and sessions stay valid.

    :raises ConfigError: if the file cannot be read or made.
    """
    path, former = data / TOKEN_NAME, data / _FORMER_NAME
    try:
        found = _read(path)
        if found is None:
            private_files.make(data)
            found = _read(former) or secrets.token_urlsafe(_TOKEN_BYTES)
            private_files.write(path, found + "\n")
        former.unlink(missing_ok=True)  # else it would come back where the user deletes the token for a new one
    except OSError as e:
        raise ConfigError(f"the token {path} cannot be read or made: {e.strerror}; give the file to this user, or delete it") from None
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
        ):  # a token of another user would admit that user; root reads the files of others, too
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


@dataclass(frozen=True, slots=True)
class ConsoleLimits(Limits):
    """Limits of the web console."""

    session_s: float = limit(7 * 86400, ge=60, le=366 * 86400)
    """Seconds after which a browser has to show the token again."""
    sessions: int = limit(256, ge=1, le=10_000)
    """Largest number of console sessions at the same time. One more ends the oldest."""
    request_s: float = limit(30.0, ge=0.05, le=3600)
    """Seconds that a browser may take to send its request, including the form."""
    form_bytes: int = limit(524_288, ge=1024, le=64 * MIB)
    """Largest form in bytes that the console accepts, as sent."""
    rows: int = limit(50, ge=1, le=1000)
    """Most missions, passages or documents that one page of the console lists."""
    revisions: int = limit(200, ge=1, le=1000)
    """Most revisions of an object that the console's slider covers."""
    pages: int = limit(32, ge=1, le=10_000)
    """Most live pages of the console that may be open at the same time."""
    refresh_s: float = limit(0.5, ge=0.05, le=60)
    """Shortest time in seconds between two updates of a live page."""


class Access:
    """The rules of one server. It asks for nothing and keeps nothing: any thread."""

    def __init__(self, token: str, host: str, port: int, session_s: float, also: Collection[str] = ()) -> None:
        """
        :param host: the loopback address at which people reach it.
        :param session_s: how long a session lasts, in seconds.
        :param also: further names, as in `Host`, at which it answers.
        """
        self.address = f"http://{bracketed(host)}:{port}"
        self.hosts = names_of(host, port) | frozenset(also)
        self.cookie_name = f"batos_{port}"  # cookies ignore ports: two servers must not log each other out
        self.session_s = int(session_s)
        self._token = token.encode()

    @property
    def token(self) -> str:
        """Return the token. It admits every user who has it."""
        return self._token.decode()

    @property
    def link(self) -> str:
        """Return the address with the token. It admits every user who has it."""
        return f"{self.address}/?token={self.token}"

    def is_token(self, text: str) -> bool:
        """Return True if the text is the token, in constant time."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._token)

    def foreignness(self, headers: Mapping[str, str], names: Collection[str] = (), *, links: bool = True) -> tuple[int, str]:
        """Return status and reason for refusing a request by its Host and Origin; 0 if they are ours.

        :param headers: by lower-case names.
        :param names: valid values of `Host`, in lower case, in the place of the server's own.
        :param links: True if a link may be followed from a page of another site.
        """
        names = names or self.hosts
        if headers.get("host", "").lower() not in names:
            return 421, f"This server answers only at {self.address}. The name that was asked for is another one."
        if is_foreign(headers, names) or (not links and headers.get("sec-fetch-site") in ("cross-site", "same-site")):
            return 403, "A page of another site made this request."
        return 0, ""

    def refusal(self, method: str, headers: Mapping[str, str]) -> str:
        """Return the reason for refusing a request for a page with these headers; "" if it is allowed.

        :param headers: by lower-case names.
        """
        if why := self.foreignness(headers)[1]:
            return why
        if method == "GET" or method == "HEAD":
            return ""
        if method != "POST":
            return f"This page does not accept the method {method[:16]}."
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if site not in (None, "same-origin"):
            return "A page of another site made this request."
        if origin is None and site is None:
            return "The browser did not say which page made this request (it sent neither Origin nor Sec-Fetch-Site)."
        return ""


SESSIONS_NAME = "console.sessions"
_KEY_BYTES = 32
_LONGEST_SESSIONS = 4 * 1024 * 1024  # bytes read of the session file: room for more sessions than the setting allows
_Seen = tuple[int, int, int] | None


class Sessions:
    """Those of one data folder. Each call does file work; any thread."""

    def __init__(self, data: Path, token: str, lasts_s: float, limit: int) -> None:
        """
        :param lasts_s: how long a session lasts, in seconds.
        :param limit: how many there are at most; one more ends the oldest.
        """
        self._path = data / SESSIONS_NAME
        self._token, self._lasts_s, self._limit = token.encode(), lasts_s, limit
        self._lock = threading.Lock()
        self._seen: _Seen = None  # state of the file when it was last read
        self._kept: dict[str, float] = {}  # session: its end in seconds since 1970; the oldest first
        # sessions begun while the file could not be written; a change of the file by another process ends them
        self._unkept: dict[str, float] = {}

    def begin(self, instead: str = "") -> str:
        """Return the key of a new session. Where the disk is full it lasts until the daemon ends.

        :param instead: the key of a session that it takes the place of.
        """
        key = secrets.token_urlsafe(_KEY_BYTES)
        until = time.time() + self._lasts_s

        def add(kept: dict[str, float]) -> None:
            kept.pop(self._name(instead), None)
            kept[self._name(key)] = until

        with self._lock:
            try:
                self._change(add)
            except OSError as e:
                log.warning("console_session_not_kept", file=str(self._path), error=e.strerror, effect="it ends with the daemon")
                add(self._unkept)
                self._tidy(self._unkept)
        return key

    def is_open(self, key: str) -> bool:
        """Return True if there is a session with this key that has not ended."""
        name = self._name(key)
        with self._lock:
            self._look()
            return time.time() < max(self._kept.get(name, 0), self._unkept.get(name, 0))

    def end(self, key: str) -> None:
        """End a session, for good.

        :raises ConfigError: if that cannot be written.
        """
        name = self._name(key)
        with self._lock:
            if self._unkept.pop(name, None) is None:
                self._end(lambda kept: kept.pop(name, None))

    def end_all(self) -> int:
        """End every session; how many there were.

        :raises ConfigError: if that cannot be written.
        """
        with self._lock:
            self._look()
            now = time.time()
            count = sum(until > now for until in (*self._kept.values(), *self._unkept.values()))
            self._unkept.clear()
            self._end(lambda kept: kept.clear())
        return count

    def _name(self, key: str) -> str:
        return hmac.new(self._token, b"console session " + key.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _end(self, change: Callable[[dict[str, float]], object]) -> None:
        """Change the file, or take it away with all sessions: on a full disk that can still be done."""
        try:
            self._change(change)
        except OSError as e:
            log.warning("console_sessions_ended", file=str(self._path), error=e.strerror)
            try:
                self._path.unlink(missing_ok=True)
            except OSError as again:
                raise ConfigError(f"the session cannot be ended: {self._path}: {again.strerror}; delete that file") from None
            self._kept, self._seen = {}, None

    def _change(self, change: Callable[[dict[str, float]], object]) -> None:
        with _held(self._path.with_name(f"{SESSIONS_NAME}.lock")):
            self._look()
            kept = dict(self._kept)
            change(kept)
            self._tidy(kept)
            private_files.write(self._path, json.dumps(kept))
            self._kept, self._seen = kept, _seen(self._path)

    def _look(self) -> None:
        """Read the file where it is not the one that was read last."""
        seen = _seen(self._path)
        if seen != self._seen:
            self._kept, self._seen = _read_sessions(self._path), seen
            self._unkept.clear()

    def _tidy(self, sessions: dict[str, float]) -> None:
        now = time.time()
        for name in [name for name, until in sessions.items() if until <= now]:
            del sessions[name]
        while len(sessions) > self._limit:
            del sessions[next(iter(sessions))]


def _seen(path: Path) -> _Seen:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read_sessions(path: Path) -> dict[str, float]:
    """Return the sessions that a file holds; none if it is damaged."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            found = json.loads(file.read(_LONGEST_SESSIONS))
        return {str(name): float(until) for name, until in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, OverflowError) as e:
        log.warning("console_sessions_ended", file=str(path), error=str(e))
        return {}


@contextlib.contextmanager
def _held(path: Path) -> Generator[None]:
    """Keep other processes from changing the sessions meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
