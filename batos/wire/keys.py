"""CURVE keys: key pairs in files, the clients that a daemon admits, and the keys that a client needs.

A file has ZeroMQ's own form (`zmq.auth`). `NAME.key` holds a public key and may be read by anyone. `NAME.key_secret` holds both and must be
readable by its owner only. The `role` of a client is in the metadata of its public key in the daemon's folder. Keys are of Curve25519 in
Z85, 40 characters. Source: rfc.zeromq.org/spec/25 and 26 (CurveZMQ), 27 (ZAP).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Callable, Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
import zmq

from batos import private_files
from batos.config import Settings
from batos.errors import ConfigError
from batos.wire.endpoints import WireLimits
from batos.wire.fields import ROLES, Role

if TYPE_CHECKING:
    from zmq.auth.asyncio import AsyncioAuthenticator

log = structlog.get_logger("batos.wire")

SERVER = "server"
DOMAIN = "batos"
"""The domain for authentication (rfc.zeromq.org/spec/27) of the daemon's socket, with and without keys. A socket with a domain refuses
peers that speak ZMTP before version 3. Those versions accept any bytes as frames, even bytes that a web page makes its browser send."""
_KEY = re.compile(r"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}\Z")  # characters of Z85
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_Signature = tuple[tuple[str, int, int], ...]


_ROLE = re.compile(r"^[ \t]*role[ \t]*=[ \t]*[\"']?([^\"'\s]*)", re.M)
_CURVE = re.compile(r"^curve\s*$", re.M)  # the head of the section with the keys, after the metadata
NEW_ROLE: Role = "submit"
"""The role of a key whose file names none."""


class KeyPair(NamedTuple):
    """A public key and its secret one, in Z85."""

    public: bytes
    secret: bytes


class ClientKeys(NamedTuple):
    """Keys of a client: its own pair, and the public key of the only daemon that it talks to."""

    own: KeyPair
    server: bytes

    @classmethod
    def load(cls, own: str | os.PathLike[str], server: str | os.PathLike[str]) -> ClientKeys:
        """Read them.

        :param own: the client's file `NAME.key_secret`.
        :param server: the daemon's file `server.key`, or the key itself.
        :raises ConfigError: for a file that cannot be read, holds no key, or is open to others.
        """
        return cls(load_pair(Path(own)), load_public(server))

    @classmethod
    def of(cls, settings: Settings) -> ClientKeys | None:
        """Return the keys that the settings name; None if they name none.

        :raises ConfigError: if a key is invalid, or only one of the two is named.
        """
        if not settings.wire.client_key and not settings.wire.server_key:
            return None
        if not settings.wire.client_key or not settings.wire.server_key:
            raise ConfigError(
                "a client needs both settings, wire.client_key (its own secret key) and wire.server_key (the daemon's public key)"
            )
        return cls.load(Path(settings.wire.client_key), settings.wire.server_key)  # a literal key may end in a slash

    def use(self, socket: zmq.Socket[Any]) -> None:
        """Set these keys on a socket, before it connects."""
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server)


class KnownClient(NamedTuple):
    """Admitted client: the name of its key's file, and its role."""

    name: str
    role: Role


def create(folder: Path, name: str, public: Path | None = None, *, role: Role | None = None) -> tuple[Path, Path]:
    """Create a pair of keys; overwrite nothing.

    :param public: the folder of the public key, if it is another one.
    :param role: role of a client.
    :returns: the files of the secret and of the public key.
    :raises ConfigError: if one of the files exists, or they cannot be written.
    """
    if not _NAME.match(name):
        raise ConfigError(f"{name!r} is not a valid name of a key: write at most 64 letters, digits, '.', '_' or '-'")
    secret_file, public_file = folder / f"{name}.key_secret", (public or folder) / f"{name}.key"
    for taken in (secret_file, public_file):
        if private_files.taken(taken):
            raise ConfigError(f"{taken} exists; nothing is overwritten: name another, or move it away")
    own = KeyPair(*zmq.curve_keypair())
    try:
        for made in {folder, public_file.parent}:
            private_files.folder(made)
        _write(secret_file, own, private_files.FILE_MODE)
        _write(public_file, own._replace(secret=b""), 0o644, role)
    except OSError as e:
        raise ConfigError(f"the key {name!r} cannot be written to {folder}: {e.strerror}") from None
    return secret_file, public_file


def load_pair(path: Path) -> KeyPair:
    """Load the key pair in a secret key's file.

    :raises ConfigError: if it cannot be read, is not a pair, or others may read it.
    """
    public, secret = _read(path)
    if secret is None:
        raise ConfigError(f"{path} holds no secret key; name the file that ends in .key_secret")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise ConfigError(f"others may read the secret key {path}; `chmod 600 {path}`, or make a new one if others have read it")
    return KeyPair(public, secret)


def load_public(named: str | os.PathLike[str]) -> bytes:
    """Return a public key: from its file, or as given.

    :raises ConfigError: if it is neither.
    """
    text, path = os.fspath(named), Path(named).expanduser()
    if _KEY.match(text) and not path.exists():
        return text.encode()
    return _read(path)[0]


def give_role(folder: Path, name: str, role: Role) -> None:
    """Give a client another role. Its open connections have it after the daemon's next look into the folder.

    :raises ConfigError: if there is no public key with that name, or it cannot be written.
    """
    path = folder / f"{name}.key"
    public, _ = _read(path)
    try:
        private_files.write(path, _text(KeyPair(public, b""), role), 0o644)
    except OSError as e:
        raise ConfigError(f"the role of the key {path} cannot be changed: {e.strerror}") from None


class Clients:
    """Public keys in a folder, as of the last look: at the last handshake, or a moment ago."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: _Signature | None = None
        self._known: dict[bytes, KnownClient] = {}
        self.kernels: dict[bytes, KnownClient] = {}
        """Keys of other kernels of the image, which the image tells and no file."""
        self._looking = asyncio.Lock()
        self._readable = True

    def __contains__(self, key: object) -> bool:
        """Return True if the client with this public key was admitted at the last look into the folder."""
        return key in self._known or key in self.kernels

    def role(self, key: bytes) -> Role:
        """Return the role of the client with this public key, by the last look; the least role for an unknown key."""
        known = self._known.get(key) or self.kernels.get(key)
        return ROLES[0] if known is None else known.role

    async def callback(self, domain: str, key: bytes) -> bool:
        """Return True if the client with this public key is admitted; `zmq.auth` calls this. Never raises: that would end its loop."""
        await self.look()
        if key not in self:
            log.warning("client_refused", key=key.decode(), hint=f"put its public key into {self.folder}")
        return key in self

    async def look(self) -> None:
        """Read the keys of the folder again. There are none while the folder cannot be read."""
        async with self._looking:  # so that an older result never replaces a newer one
            before, readable = self._seen, self._readable
            try:
                known = await asyncio.to_thread(self.known)
                self._readable = True
            except OSError as e:
                self._known, self._seen, self._readable = {}, None, False
                if readable:
                    log.error("clients_unreadable", folder=str(self.folder), error=str(e), hint="no client is let in")
                return
            if self._seen != before:
                log.info("clients", folder=str(self.folder), names=sorted(one.name for one in known.values()))

    def known(self) -> dict[bytes, KnownClient]:
        """Return the public keys, and whose each is; read again where a file has changed."""
        seen = self._signature()
        if seen != self._seen:
            known = {}
            for name, _, _ in seen:
                try:
                    known[_read(self.folder / name)[0]] = KnownClient(name.removesuffix(".key"), _role(self.folder / name))
                except ConfigError as e:
                    log.warning("client_key_unreadable", error=e.message)
            self._known, self._seen = known, seen
        return self._known

    def _signature(self) -> _Signature:
        try:
            with os.scandir(self.folder) as found:
                files = [entry for entry in found if entry.name.endswith(".key")]
        except FileNotFoundError:
            return ()
        seen = []
        for entry in files:
            with contextlib.suppress(FileNotFoundError):  # a file was removed, or is a dangling link: the other keys remain valid
                seen.append((entry.name, entry.stat().st_mtime_ns, entry.stat().st_size))
        return tuple(sorted(seen))


class KeyGate:
    """Authentication of clients for a daemon with keys."""

    def __init__(self, settings: Settings) -> None:
        """
        :raises ConfigError: if the daemon's own key cannot be used.
        """
        self._own = load_pair(Path(settings.wire.secret_key))
        self.clients = Clients(settings.clients)
        self._look_s = WireLimits.of(settings).key_check_s
        self._asked: AsyncioAuthenticator | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def public(self) -> str:
        """Return the daemon's public key."""
        return self._own.public.decode()

    def open(self, context: zmq.Context[Any], socket: zmq.Socket[Any], looked: Callable[[Container[bytes]], object]) -> None:
        """Have a socket let in only clients that are known; before it binds, on the loop's thread.

        :param looked: called after each look at the folder, with the public keys that are in it.
        """
        from zmq.auth.asyncio import AsyncioAuthenticator  # imported late: a daemon without keys does not need it

        self._asked = AsyncioAuthenticator(context)
        self._asked.start()
        self._asked.configure_curve_callback(DOMAIN, self.clients)
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._own.secret)
        self._watch = asyncio.create_task(self._look(looked), name="folder of clients")

    def close(self) -> None:
        """End the authentication; no client is admitted after that."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._asked is not None:
            self._asked.stop()
            self._asked = None

    async def _look(self, looked: Callable[[Container[bytes]], object]) -> None:
        while True:
            await asyncio.sleep(self._look_s)
            await self.clients.look()
            looked(self.clients)


def _read(path: Path) -> tuple[bytes, bytes | None]:
    from zmq.auth import load_certificate

    try:
        public, secret = load_certificate(path)
    except (OSError, ValueError, UnicodeDecodeError) as e:
        raise ConfigError(f"no key in {path}: {getattr(e, 'strerror', None) or e}; `batos keys new` makes keys") from None
    if not all(_KEY.match(key.decode("latin-1")) for key in (public, secret) if key is not None):
        raise ConfigError(f"no key in {path}: a key is 40 characters of Z85; `batos keys new` makes keys")
    return public, secret


def _role(path: Path) -> Role:
    """Return the role that a public key's file names among its metadata.

    :raises ConfigError: for one that there is not: it was meant for something, and a guess might give too much.
    """
    found = _ROLE.search(_CURVE.split(path.read_text(encoding="utf-8", errors="replace"), maxsplit=1)[0])
    if found is None:
        return NEW_ROLE
    for role in ROLES:
        if role == found[1]:
            return role
    raise ConfigError(f"{path} names the role {found[1]!r}; there are {', '.join(ROLES)}")


def _write(path: Path, own: KeyPair, mode: int, role: Role | None = None) -> None:
    with private_files.create(path, mode) as file:
        file.write(_text(own, role).encode())


def _text(own: KeyPair, role: Role | None) -> str:
    said = "a secret key of BAT OS: keep it to yourself" if own.secret else "a public key of BAT OS: others may have it"
    named = [f'    role = "{role}"'] if role else []
    lines = [f"#   {said}", "", "metadata", *named, "curve", f'    public-key = "{own.public.decode()}"']
    if own.secret:
        lines.append(f'    secret-key = "{own.secret.decode()}"')
    return "\n".join([*lines, ""])
