"""Policies of an audit: allowed imports, granted capabilities, and the limits from the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batos.config import MIB
from batos.config.limits import Limits, limit
from batos.guardian.allowlist import CAPABILITIES


@dataclass(frozen=True, slots=True)
class Policy:
    """Permissions beyond those that every method has. `DEFAULT.granting("files")` makes a policy with a capability."""

    name: str
    imports: bool = True
    """whether the modules of `vocabulary.MODULES` may be imported"""
    awaits: bool = True
    """whether a method may be `async def` and await what it sends"""
    capabilities: frozenset[str] = frozenset()
    """granted capabilities: `files`, `network`"""

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
    """Return the policy of a name: `strict`, `default`, and either with capabilities: `default+files+network`.

    :raises ValueError: if there is none.
    """
    first, *capabilities = name.split("+")
    if first not in POLICIES:
        raise ValueError(f"no policy {first!r}; there are {', '.join(POLICIES)}")
    return POLICIES[first].granting(*capabilities) if capabilities else POLICIES[first]


class AuditLimits(NamedTuple):
    """Limits on the size of a source; see the settings of the same names."""

    bytes: int
    nodes: int
    depth: int
    name: int
    value: int
    steps: int

    @classmethod
    def of(cls, settings: Settings) -> AuditLimits:
        """Return the limits that the settings hold."""
        return cls(
            settings.method_bytes,
            settings.method_nodes,
            settings.method_depth,
            settings.method_name_chars,
            settings.method_value,
            settings.audit_steps,
        )
