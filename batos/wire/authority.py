"""Who may ask what: the role of each message's sender, and the folders that he may name.

A sender is known by what he cannot choose: the CURVE key of his connection, or the user who opened a local socket, as the kernel told
libzmq. Over TCP without keys nothing is known of him but that he is on this machine. `docs/wire.md` lists each operation's role.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from batos.config import Settings
from batos.errors import KeyRefused, PathRefused, RoleRefused
from batos.wire.inbox import Message
from batos.wire.keys import Clients
from batos.wire.request import ROLES, Request, Role
from batos.wire.schemas import BackupRequest

_LOCAL = "localhost"  # how libzmq names the host of a local socket: no numeric address reads so


class Authority:
    """Decides on each request, by its sender. On the loop's thread."""

    def __init__(self, settings: Settings, clients: Clients | None = None) -> None:
        """
        :param clients: the keys that are let in, where the socket asks for keys.
        """
        self._clients = clients
        self._local_role: Role = settings.local_role
        self._backups = settings.backups
        self._folders = (settings.data, settings.backups, *map(Path, settings.folders))
        self._own = os.getuid()

    def check(self, request: Request, message: Message) -> None:
        """See that a sender may make a request.

        :raises KeyRefused: where his key was taken out of the folder of clients since he came in.
        :raises RoleRefused: where his role is too little for it.
        """
        if self._clients is not None and message.key not in self._clients:
            # libzmq asks for a key once a connection, and knows no way to end one
            raise KeyRefused("this client's key was taken out of the daemon's folder of clients (curve_clients)")
        if ROLES.index(request.role) > ROLES.index(role := self._role(message)):
            raise RoleRefused(_refusal(request, role, with_keys=self._clients is not None))

    def operates(self, message: Message) -> bool:
        """Whether a message is from an operator."""
        return self._role(message) == ROLES[-1]

    def bounds(self, request: Request, message: Message) -> bool:
        """Whether the files and folders that a request names have to be looked at: see `check_paths`."""
        return bool(request.named) and not self._is_own(message)

    async def check_paths(self, request: Request) -> None:
        """See that all that a request names is in folders that may be named, wherever links lead.

        :raises PathRefused: naming the first that is not.
        """
        for named in request.named:
            path = self._backups / named if isinstance(request, BackupRequest) else Path(named)
            if not await asyncio.to_thread(_is_within, path, self._folders):
                raise PathRefused(
                    f"{request.op}: {named!r} is in no folder that this client may name; there are the data folder and what the "
                    f"daemon's setting `folders` lists: put {os.fspath(path.parent)!r} there, or ask as the daemon's own user at ipc://"
                )

    def _role(self, message: Message) -> Role:
        if self._is_own(message):
            return "operate"
        return self._local_role if self._clients is None else self._clients.role(message.key)

    def _is_own(self, message: Message) -> bool:
        """Whether the daemon's user, or root, opened the local socket by which a message came: he can do by himself what the daemon can."""
        host, *ids = message.address.split(":")
        return host == _LOCAL and len(ids) == 3 and ids[0].isdecimal() and int(ids[0]) in (self._own, 0)


def _refusal(request: Request, role: Role, *, with_keys: bool) -> str:
    needs = f"{request.op} needs the role {request.role}"
    if with_keys:
        return f"{needs}, and this client's key has the role {role}; beside the daemon, `batos keys role NAME {request.role}` changes that"
    return (
        f"{needs}, and clients without keys have the role {role} here; ask as the daemon's own user at its ipc:// endpoint, or raise the "
        "daemon's setting `local_role`"
    )


def _is_within(path: Path, folders: tuple[Path, ...]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in folders)
