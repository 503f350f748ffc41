"""Secrets by name, in a file beside the image: for its owner alone (0600), written atomically. A secret is never in image, journal or log.

The file is JSON: name -> value and the day on which it was set. Writers take turns by a lock on a second file, since the file itself is
replaced. Readers need no lock.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from batos import private_files
from batos.config import nearest, shown
from batos.errors import InvalidInput

SECRETS_FILE = "secrets.json"
"""Name of the file of secrets in a data folder."""
SECRET_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
VALUE_BYTES = 64 << 10
"""Bytes of one secret, in UTF-8."""
SECRETS = 1000
"""Number of secrets in one file."""
REDACTED = "[secret]"
_FILE_BYTES = SECRETS * (VALUE_BYTES * 6 + 200)  # a character of a value may take six in JSON
_FORBIDDEN = {"\0": "a NUL, which ends a text for programs", "\r": "a line end (CR)", "\n": "a line end (LF)"}


class SecretEntry(NamedTuple):
    """One secret without its value."""

    name: str
    set_at: float
    """seconds since the epoch"""


class SecretStore:
    """The secrets of one image."""

    def __init__(self, path: Path) -> None:
        """:param path: of the file; it and its folder are made when the first secret is set."""
        self._path = Path(path)

    def get(self, name: str) -> str:
        """Return the value of a secret.

        :raises InvalidInput: if it is not set, or the file is open to others.
        """
        _check_name(name)
        secrets = self._read()
        if name not in secrets:
            there = nearest(name, list(secrets))
            raise InvalidInput(f"the secret {name} is not set{there}; set it with `batos secrets set {name}`")
        return secrets[name][0]

    def set(self, name: str, value: str) -> None:
        """Set a secret, or replace it. On return it is on disk.

        :raises InvalidInput: if the name or the value is not valid, or there are too many.
        """
        _check_name(name)
        _check_value(name, value)
        with self._locked():
            secrets = self._read()
            if name not in secrets and len(secrets) >= SECRETS:
                raise InvalidInput(f"{len(secrets)} secrets are set; at most {SECRETS} are allowed; `batos secrets remove` removes one")
            self._write({**secrets, name: (value, round(time.time(), 3))})

    def remove(self, name: str) -> None:
        """Remove a secret.

        :raises InvalidInput: if it is not set.
        """
        _check_name(name)
        with self._locked():
            secrets = self._read()
            if name not in secrets:
                there = ", ".join(sorted(secrets)[:20]) or "none"
                raise InvalidInput(f"the secret {name} is not set{nearest(name, list(secrets))}; set are: {there}")
            self._write({other: kept for other, kept in secrets.items() if other != name})

    def list(self) -> list[SecretEntry]:
        """Return the names of the secrets in alphabetical order, and when each was set."""
        return [SecretEntry(name, set_at) for name, (_, set_at) in sorted(self._read().items())]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one writer after the other read and replace the file."""
        try:
            private_files.folder(self._path.parent)
            with private_files.extend(self._path.with_name(f".{self._path.name}.lock")) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield
        except private_files.Exposed as e:
            raise InvalidInput(f"secrets are not kept in {self._path.parent}: {e.why}") from None
        except OSError as e:
            raise InvalidInput(f"secrets cannot be kept in {self._path}: {e.strerror or e}; nothing was changed") from None

    def _read(self) -> dict[str, tuple[str, float]]:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as e:
            raise InvalidInput(f"the file of secrets {self._path} cannot be opened: {e.strerror}; it has to be a plain file") from None
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > _FILE_BYTES:
                raise InvalidInput(
                    f"the file of secrets {self._path} is not one: a plain file of at most {_FILE_BYTES} bytes; move it away"
                )
            if about.st_uid != os.geteuid():
                raise InvalidInput(f"the file of secrets {self._path} belongs to another user (id {about.st_uid}); it is not used")
            if mode := stat.S_IMODE(about.st_mode) & 0o077:
                remedy = f"`chmod 600 {self._path}`, and replace the secrets that others may have read"
                raise InvalidInput(f"the file of secrets {self._path} is open to others (mode {mode | 0o600:04o}); {remedy}")
            return self._parsed(file.read())

    def _parsed(self, data: bytes) -> dict[str, tuple[str, float]]:
        try:
            return {str(name): (str(kept["value"]), float(kept["set"])) for name, kept in json.loads(data)["secrets"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # no detail: it could hold a value
            raise InvalidInput(
                f"the file of secrets {self._path} is damaged; restore it, or move it away and set the secrets anew"
            ) from None

    def _write(self, secrets: dict[str, tuple[str, float]]) -> None:
        content = {"version": 1, "secrets": {name: {"value": value, "set": at} for name, (value, at) in sorted(secrets.items())}}
        private_files.write(self._path, json.dumps(content, indent=1))


def redacted(text: str, values: Iterable[str]) -> str:
    """Return a text without secret values, also where they stand in it as a URL, JSON or Basic authentication writes them."""
    forms = {form for value in values if value for form in _forms(value)}
    if not forms:
        return text
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), REDACTED, text)


def _forms(value: str) -> Iterator[str]:
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield quote(data, safe="")
    yield quote(data)
    yield quote_plus(data)
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield base64.b64encode(data).decode()


def _check_name(name: str) -> None:
    if not SECRET_NAME.match(name):
        raise InvalidInput(f"{shown(name)} is not a valid name of a secret; use up to 64 letters, digits, _ . and -, a letter first")


def _check_value(name: str, value: str) -> None:
    """Refuse a value that could not be sent as it is. No message shows it."""
    if not value:
        raise InvalidInput(f"the value of the secret {name} is empty; `batos secrets remove {name}` removes it")
    for character, words in _FORBIDDEN.items():
        if character in value:
            hint = "a header or variable could not hold it; leave it out, also at the end of what a file or pipe gives"
            raise InvalidInput(f"the value of the secret {name} holds {words}; {hint}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"the value of the secret {name} is not text: it holds half a character (a lone surrogate)") from None
    if size > VALUE_BYTES:
        raise InvalidInput(f"the value of the secret {name} has {size} bytes; at most {VALUE_BYTES} are allowed")
