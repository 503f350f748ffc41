"""Limits: bounds of the house that are not settings. Each is a frozen dataclass beside the code that it bounds.

Users do not change limits. A test replaces one by construction: `Settings(limits=(CuratorLimits(check_s=0.05),))`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol, Self, cast


class GivesLimits(Protocol):
    """An object that may hold limits other than the defaults: `batos.config.Settings`."""

    @property
    def limits(self) -> tuple[Limits, ...]:
        """Return the limits that replace the defaults of their classes."""


class Limits:
    """The base of each dataclass of limits; every field has a default."""

    __slots__ = ()

    @classmethod
    def of(cls, settings: GivesLimits) -> Self:
        """Return the limits of this class that the settings hold, else the defaults."""
        for given in settings.limits:
            if isinstance(given, cls):
                return given
        if cls not in _DEFAULTS:
            _DEFAULTS[cls] = cls()
        return cast(Self, _DEFAULTS[cls])


_DEFAULTS: dict[type[Limits], Limits] = {}


def limit(default: Any, *, ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None) -> Any:
    """Declare a field of a `Limits` dataclass: its default, and the bounds that a value given under a former name must keep.

    :param ge: the least value that is allowed.
    :param gt: the value above which all are allowed.
    :param le: the greatest value that is allowed.
    :param lt: the value below which all are allowed.
    """
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None}
    return dataclasses.field(default=default, metadata=bounds)
