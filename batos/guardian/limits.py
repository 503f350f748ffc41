"""The limits of an audit, from the settings."""

from __future__ import annotations

from typing import NamedTuple

from batos.config import Settings


class Limits(NamedTuple):
    """How large a source may be; see the settings of the same names."""

    bytes: int
    nodes: int
    depth: int
    name: int
    value: int
    steps: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """The limits that the settings hold."""
        return cls(
            settings.method_bytes,
            settings.method_nodes,
            settings.method_depth,
            settings.method_name_chars,
            settings.method_value,
            settings.audit_steps,
        )
