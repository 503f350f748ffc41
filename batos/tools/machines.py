"""Which machine a connection belongs to, where several kernels serve one image.

A program, a folder, a server that is started as a process and an address of loopback are things of one machine. That is the machine where
their connection was added. An address elsewhere can be reached from all, one of loopback also from other kernels of the same machine. A
call is made on the machine of its connection, and an effect in doubt is resolved there. No other kernel can look, or end the process that
may be at it still. No other kernel has the notes of a folder's changes. A mission that needs a connection of another
machine is handed over to a kernel there.

Where one daemon has the image to itself, its machine has no name (`""`), and nothing is kept or asked.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from batos.errors import BatosSignal, InvalidInput
from batos.image import grants, kernels
from batos.image.mission_record import MissionRecord
from batos.objects import Root, UvmObject
from batos.tools import connections
from batos.tools.definitions import ConnectionSpec

EVERY = "*"
"""In place of the machine of a connection: all can reach it."""
_OF_MACHINES = ("folder", "program")
_TOOLS = "tools."  # paths of messages to connections begin so


class NeedMachine(BatosSignal):
    """Signal of a mission that calls a tool of another machine, and goes on there."""

    def __init__(self, connection: str, machine: str) -> None:
        super().__init__(f"{connection} belongs to {machine}")
        self.connection, self.machine = connection, machine


def is_of_a_machine(spec: ConnectionSpec) -> bool:
    """Return True if what a connection reaches is there on one machine only."""
    if spec.kind in _OF_MACHINES:
        return True
    if spec.kind == "web":
        return False
    place = spec.place.split(" ", 1)[0]
    if "://" not in place:
        return True  # the command of a server, or the file of a description
    server = spec.options.get("server")
    return _is_loopback(place) or (isinstance(server, str) and _is_loopback(server))


def _is_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def placed(spec: ConnectionSpec, here: str) -> ConnectionSpec:
    """Return a new connection with its machine. That is the one that its user named, else the one where the connection is added if it is of
    one machine.

    :param here: name of this machine; "" where one daemon has the image.
    """
    if not here or spec.on:
        return spec
    return spec._replace(on=here if is_of_a_machine(spec) else EVERY)


def elsewhere(root: Root, spec: ConnectionSpec) -> str:
    """Return the machine that a connection belongs to if it is another one; "" if the kernel of this root can use it."""
    me = kernels.me(root)
    here = kernels.host_of(me)
    if not here or spec.on in ("", EVERY, here):
        return ""
    if "://" not in spec.place.split(" ", 1)[0]:
        return spec.on
    known = kernels.listed(root)
    network = next((one.network for one in known if one.name == me), "")
    return "" if network and any(one.host == spec.on and one.network == network for one in known) else spec.on


def network() -> str:
    """Return the identity of the network that this process is in: loopback addresses are the same for all of one."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/net')}"
    except OSError:
        return socket.gethostname()


def check(root: Root, on: str, here: str) -> None:
    """Check the machine that a user names for a connection.

    :param here: see `placed`.
    :raises InvalidInput: if no kernel of that machine is known, or one daemon has the image to itself.
    """
    if not on or on == EVERY:
        return
    if not here:
        raise InvalidInput(f'`--on {on}`: one daemon has this image to itself; `--on` goes with the setting image.kernels = "many"')
    there = kernels.listed(root)
    known = sorted({one.host for one in there} | {here})
    if on not in known:
        raise InvalidInput(f"`--on {on}`: no kernel of that name serves this image; there are: {', '.join(known)}, and {EVERY!r} for all")
    if on != here:
        endpoint = next((one.endpoint for one in there if one.host == on and not one.gone), "")
        how = f"`--connect {endpoint}`" if endpoint else "once it runs"
        raise InvalidInput(f"a connection of {on} is added by its own kernel, which asks the place for its tools; ask that one: {how}")


def adopt(root: Root, here: str) -> list[str]:
    """System transaction: give the connections of an image that one daemon had to itself to this machine, as far as they are of one.
    Return their names."""
    found = []
    for name, held in connections.load(root).items():
        if not held.spec.on and is_of_a_machine(held.spec):
            root["lobby"].tools._slots[name]._slots["on"] = here
            found.append(name)
    return found


def machine_of(root: Root, mission: MissionRecord) -> str:
    """Return the other machine that a mission has to be thought on, as far as it is known before. It is that of the connection that the
    mission was handed over for, else of one that the mission sends a message to. Else it is that of one that a grant of the mission's own
    names. "" if this kernel suffices: of connections of several machines that grants name, one of its own is enough to begin.
    """
    wanted = (_machine_of(root, names) for names in _connections_of(root, mission))
    return next((there for there in wanted if there is not None), "")


def _machine_of(root: Root, names: Iterable[str]) -> str | None:
    """Return the machine that all of these connections need, "" if this kernel can use one of them; None if none of them is there."""
    found: str | None = None
    for name in names:
        held = root["lobby"].tools._slots.get(name)
        if isinstance(held, UvmObject) and connections.is_connection(root, held):
            if not (there := elsewhere(root, connections.pinned(held).spec)):
                return ""
            found = found or there
    return found


def _connections_of(root: Root, mission: MissionRecord) -> Iterator[list[str]]:
    """Yield the connections that a mission needs, as far as they are known; the next ones count only where those before are not there."""
    if mission.connection:
        yield [mission.connection]
    if mission.message is not None:
        target = str(json.loads(mission.message)["target"])
        if target.startswith(_TOOLS):
            yield [target.removeprefix(_TOOLS).partition(".")[0]]
    yield grants.connections_for(root, mission.id)
