"""Policies of an audit: allowed imports, granted capabilities, and the limits from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.guardian.allowlist import CAPABILITIES


@dataclass(frozen=True, slots=True)
class Policy:
    """Permissions beyond those that every method has. `DEFAULT.granting("files")` makes a policy with a capability."""

    name: str
    imports: bool = True
    """True if methods may import the modules of `allowlist.MODULES`."""
    awaits: bool = True
    """True if a method may be `async def` and await the messages that it sends."""
    capabilities: frozenset[str] = frozenset()
    """Granted capabilities: `files`, `network`, `tools`."""

    def granting(self, *capabilities: str) -> Policy:
        """Return this policy with more capabilities.

        :raises ValueError: if a capability does not exist.
        """
        unknown = sorted(set(capabilities) - set(CAPABILITIES))
        if unknown:
            raise ValueError(f"no capability {unknown[0]!r}; there are {', '.join(CAPABILITIES)}")
        granted = self.capabilities | set(capabilities)
        return replace(self, name="+".join([self.name.split("+")[0], *sorted(granted)]), capabilities=granted)


STRICT = Policy("strict", imports=False, awaits=False)
DEFAULT = Policy("default")
POLICIES = {policy.name: policy for policy in (STRICT, DEFAULT)}


def policy_named(name: str) -> Policy:
    """Return the policy of a name: `strict`, `default`, and either with capabilities: `default+tools`.

    :raises ValueError: if there is none.
    """
    first, *capabilities = name.split("+")
    if first not in POLICIES:
        raise ValueError(f"no policy {first!r}; there are {', '.join(POLICIES)}")
    return POLICIES[first].granting(*capabilities) if capabilities else POLICIES[first]


READS = "reads"
"""Class of the tools that change nothing."""


class ReachableTool(NamedTuple):
    """A tool that a method may call, as an audit knows it."""

    name: str
    """`CONNECTION.TOOL`"""
    kind: str = ""
    """class of the tool, such as `READS`; empty if it is not known"""
    parameters: tuple[str, ...] = ()
    """names of its arguments, in the order in which they may be given by position"""
    places: frozenset[str] = frozenset()
    """those of its arguments that say where in a folder, on a server or on the web"""
    denied: bool = False
    """True if its user denies each call of it: a draft may not call it"""


ToolTable = Mapping[str, Mapping[str, ReachableTool]]
"""Tools by the names by which methods reach them: of the connection, then of the tool."""


@dataclass(frozen=True, slots=True)
class AuditLimits(Limits):
    """Limits of a method's source, and of its audit."""

    bytes: int = limit(8192, ge=256, le=MIB)
    """Longest source of a method, in bytes of UTF-8."""
    nodes: int = limit(3000, ge=50, le=100_000)
    """Most nodes in the syntax tree of a method."""
    depth: int = limit(60, ge=10, le=90)
    """Deepest nesting of a method's syntax tree."""
    name: int = limit(64, ge=8, le=1000)
    """Longest name in a method, in characters."""
    value: int = limit(10_000_000, ge=1000, le=2**40)
    """Largest length, range or bit count that a method may contain as a literal."""
    steps: int = limit(50_000, ge=1000, le=10_000_000)
    """Most steps of the effect analysis of one method."""
