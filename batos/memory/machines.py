"""Machines of paths: of several kernels on one image each has files of its own, and the same path may name another file elsewhere.

A queued file and a watched folder belong to the machine of the kernel that took them in. A leader on another machine leaves them alone:
they wait until a kernel of their machine leads. Where one daemon has the image to itself, all paths are its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from BTrees.OOBTree import OOBTree

from batos.image import kernels
from batos.memory.store import Library, library_of
from batos.objects import Root


def keep_machine(root: Root, paths: Iterable[str]) -> None:
    """Part of a system transaction: note that paths are of this machine."""
    if host := kernels.host_of(kernels.me(root)):
        library: Library = library_of(root)
        if library.machines is None:
            library.machines = OOBTree()
        for path in paths:
            if library.machines.get(path) != host:
                library.machines[path] = host


def drop_machine(root: Root, path: str) -> None:
    """Part of a system transaction: forget the machine of a path."""
    machines = library_of(root).machines
    if machines is not None and path in machines:
        del machines[path]


def elsewhere(root: Root, path: str) -> str:
    """Return the name of the machine that a path is of; empty if it is this one, or not known."""
    machines = library_of(root).machines
    if machines is None or not (host := kernels.host_of(kernels.me(root))):
        return ""
    found: str = machines.get(path, host)
    return "" if found == host else found
