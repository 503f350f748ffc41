"""Kernels: the register of the daemons that serve one image together, and which of them leads.

Each start of a daemon is a *run* with a name that never recurs. The name joins that of its machine and the number of its registration
(*epoch*). Its record says where it answers and what it can do. That a kernel is *gone* is one write here that meets a conflict with its own
beat; who is silent is only guessed elsewhere (`batos.cluster.presence`). A kernel that is gone, or has no record, never comes back under
that name. Functions of the root are short system transactions, or reads.

An image that one daemon has to itself has no kernels: `me` is empty there, and nothing here is read or written.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from typing import Any

import ZODB
from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.errors import KernelRefused
from batos.objects import Root

KERNELS = "kernels"
"""Key of the register in the root."""
ENDED, SILENT, EXCLUSIVE = "ended", "silent", "one daemon took the image"
"""Reasons why a kernel is gone: it was stopped; the others did not hear of it; a daemon with `image.kernels = one` began."""

_names: weakref.WeakKeyDictionary[ZODB.DB, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class ModelContent:
    """A model that a kernel can ask."""

    name: str
    digest: str
    """Digest of its Ollama."""
    content: str
    """Digest of what it is made of, the same on each machine."""


@dataclass(frozen=True, slots=True)
class KernelTerms:
    """Facts that all kernels of one image share; a kernel with others is refused."""

    codex: str
    """Digest of the personas' codex."""
    version: str
    format: int
    """Format of the image that it writes."""
    profile: str = ""
    """Profile of its models; empty until it is chosen."""


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """Kernel as plain values."""

    name: str
    epoch: int
    endpoint: str
    doors: str
    """Address of its HTTP server; empty: it has none."""
    wire_key: str
    """Public key of its endpoint; empty: it asks for no keys."""
    version: str
    codex: str
    profile: str
    models: tuple[ModelContent, ...]
    beat: int
    gone: str
    """Empty while it lives, else why not."""
    draining: bool
    """True if it takes up no mission any more."""
    leads: bool
    began: float
    """Time of its registration, in seconds since the epoch."""
    ended: float
    """Time at which it ended, or was found to be gone; 0 while it lives."""
    network: str = ""
    """Identity of the network that it is in: kernels of one network have the same addresses of loopback."""
    acts: bool = False
    """True if missions act outside from its machine (`batos.image.identity`)."""
    unfit: tuple[str, ...] = ()
    """Why it takes up no missions now, in words; empty if it does."""
    loaded: tuple[str, ...] = ()
    """Names of the files of weights in the memory of its Ollamas."""
    abilities: tuple[str, ...] = ()
    """Abilities that all its models have, as `batos.bridge.capabilities.Needs` says it in words."""

    @property
    def host(self) -> str:
        """Return the name of its machine."""
        return host_of(self.name)


class KernelRecord(Persistent):
    """Record of one run of a kernel."""

    __module__ = "batos.image"

    endpoint = ""
    doors = ""
    wire_key = ""
    began = ended = 0.0
    profile = ""
    models: tuple[tuple[str, str, str], ...] = ()
    """Name, digest and content of each."""
    beat = 0
    """Number that rises while it lives, where the image itself is what tells of its life."""
    gone = ""
    draining = False
    network = ""
    acts = False
    unfit: tuple[str, ...] = ()
    abilities: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()

    def __init__(self, name: str, terms: KernelTerms) -> None:
        self.name, self.codex, self.version, self.format = name, terms.codex, terms.version, terms.format
        self.began = time.time()
        if terms.profile:
            self.profile = terms.profile


class Lead(Persistent):
    """Record of the kernel that leads; it is written when the lead changes, and never else."""

    __module__ = "batos.image"

    kernel = ""
    """Name of the leader; empty: no kernel leads."""
    term = 0
    """Number of the lead: it rises with each leader."""


class Kernels(Persistent):
    """Register of the kernels."""

    __module__ = "batos.image"

    def __init__(self) -> None:
        self.runs = OOBTree()
        """Name -> `KernelRecord`."""
        self.epoch = 0
        """Number of registrations so far."""
        self.lead = Lead()


# --- which kernel a connection belongs to


def name_database(db: ZODB.DB, name: str) -> None:
    """Set the name of the kernel that a database belongs to; an empty name makes it one that a daemon has to itself."""
    if name:
        _names[db] = name
    else:
        _names.pop(db, None)


def me(root: Root) -> str:
    """Return the name of the kernel to whose database the root belongs; empty where one daemon has the image to itself."""
    if not _names:
        return ""
    connection = getattr(root, "_p_jar", None)
    return "" if connection is None else _names.get(connection.db(), "")


def name_of(db: ZODB.DB) -> str:
    """Return the name of the kernel that a database belongs to, or the empty name."""
    return _names.get(db, "")


def host_of(name: str) -> str:
    """Return the machine of a kernel, or the name that its user gave it."""
    return name.rpartition(".")[0]


def epoch_of(name: str) -> int:
    """Return the number of a kernel's registration; 0 for the empty name."""
    return int(name.rpartition(".")[2] or 0)


# --- system transactions


def register(root: Root, host: str, terms: KernelTerms) -> str:
    """Register a run; return its name.

    :param host: name of the machine, or another name that the user gave the kernel.
    :raises KernelRefused: if kernels are registered that it does not fit to.
    """
    held = root.get(KERNELS)
    if held is None:
        held = root[KERNELS] = Kernels()
    for one in _living(held):
        _require_fit(one, terms)
    held.epoch += 1
    name = f"{host}.{held.epoch}"
    held.runs[name] = KernelRecord(name, terms)
    return name


def _require_fit(one: KernelRecord, terms: KernelTerms) -> None:
    pairs = (
        ("BAT OS", one.version, terms.version),
        ("the image's format", one.format, terms.format),
        ("the codex", one.codex, terms.codex),
        ("the profile", one.profile or terms.profile, terms.profile or one.profile),
    )
    for what, there, here in pairs:
        if there != here:
            raise KernelRefused(
                f"kernel {one.name} serves this image with {what} {there}, this one has {here}. Give both the same, or stop all kernels "
                "(`batos kernels` lists them) and start them again with the new one"
            )


def describe(root: Root, name: str, **facts: Any) -> None:
    """Change facts of a kernel's record: `endpoint`, `doors`, `wire_key`, `profile`, `models`, `draining`, `network`, `acts`, `unfit`,
    `abilities`, `loaded`. One that is gone stays as it is.

    :raises KernelRefused: for a profile that other kernels do not have.
    """
    held = root[KERNELS]
    record = held.runs.get(name)
    if record is None or record.gone:
        return
    if profile := facts.get("profile"):
        for one in _living(held):
            if one.name != name and one.profile:
                _require_fit(one, KernelTerms(record.codex, record.version, record.format, profile))
    if "models" in facts:
        facts["models"] = tuple((one.name, one.digest, one.content) for one in facts["models"])
    for fact, value in facts.items():
        if getattr(record, fact) != value:
            setattr(record, fact, value)


def beat(root: Root, name: str) -> bool:
    """Say that a kernel lives; return False if it was declared gone."""
    record = root[KERNELS].runs.get(name)
    if record is None or record.gone:
        return False
    record.beat += 1
    return True


def declare_gone(root: Root, name: str, seen: int, why: str = SILENT) -> bool:
    """Declare a kernel gone; return False if it is not, since its beat went on.

    :param seen: its beat, as the observer saw it all the while.
    """
    record = root[KERNELS].runs.get(name)
    if record is None or record.gone:
        return True
    if record.beat != seen:
        return False
    record.gone, record.ended = why, time.time()
    return True


def leave(root: Root, name: str) -> None:
    """End a run in order: its lead is free, and its missions are."""
    hand_over(root, name)
    record = root[KERNELS].runs.get(name)
    if record is not None and not record.gone:
        record.gone, record.ended = ENDED, time.time()


def end_all(root: Root) -> None:
    """Declare all kernels gone: a daemon has the image to itself."""
    for one in _living(root.get(KERNELS)):
        one.gone, one.ended = EXCLUSIVE, time.time()


def take_lead(root: Root, name: str) -> int:
    """Take the lead if no living kernel has it; return the term if the kernel leads now, else 0."""
    lead: Lead = root[KERNELS].lead
    if lead.kernel == name:
        return lead.term
    if is_gone(root, name) or (lead.kernel and not is_gone(root, lead.kernel)):
        return 0
    lead.kernel, lead.term = name, lead.term + 1
    return lead.term


def hand_over(root: Root, name: str) -> None:
    """Give up the lead, if the kernel has it."""
    lead: Lead = root[KERNELS].lead
    if lead.kernel == name:
        lead.kernel = ""


def prune(root: Root, names: tuple[str, ...]) -> None:
    """Remove the records of kernels that are gone, and that no pending mission has in its record any more."""
    runs = root[KERNELS].runs
    for name in names:
        if name in runs and runs[name].gone:
            del runs[name]


# --- reads


def is_gone(root: Root, name: str) -> bool:
    """Return True if a kernel is gone, or was so long ago that its record is, too."""
    held = root.get(KERNELS)
    record = None if held is None else held.runs.get(name)
    return record is None or bool(record.gone)


def lead_of(root: Root) -> tuple[str, int]:
    """Return the name of the leader, empty if there is none, and its term."""
    held = root.get(KERNELS)
    return ("", 0) if held is None else (held.lead.kernel, held.lead.term)


def listed(root: Root) -> list[KernelInfo]:
    """Return all kernels in the register, in the order of their registration; also those that are gone."""
    held = root.get(KERNELS)
    return [] if held is None else sorted((_info(one, held.lead) for one in held.runs.values()), key=lambda one: one.epoch)


def record(root: Root, name: str) -> KernelRecord | None:
    """Return the record of a kernel; None if there is none."""
    held = root.get(KERNELS)
    return None if held is None else held.runs.get(name)


def living(root: Root) -> list[KernelRecord]:
    """Return the records of the kernels that are not gone."""
    return _living(root.get(KERNELS))


def _info(one: KernelRecord, lead: Lead) -> KernelInfo:
    models = tuple(ModelContent(*model) for model in one.models)
    facts = (one.endpoint, one.doors, one.wire_key, one.version, one.codex, one.profile, models, one.beat, one.gone, one.draining)
    more = {name: getattr(one, name) for name in ("began", "ended", "network", "acts", "unfit", "loaded", "abilities")}
    return KernelInfo(one.name, epoch_of(one.name), *facts, lead.kernel == one.name, **more)


def _living(held: Kernels | None) -> list[KernelRecord]:
    return [] if held is None else [one for one in held.runs.values() if not one.gone]
