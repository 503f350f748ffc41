"""The table of settings as text: what `batos config` prints and the documentation lists."""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.config.settings import Settings


class SettingRow(NamedTuple):
    """One line of the table: what `batos config` prints and the documentation lists."""

    name: str
    type: str
    default: Any
    limits: str
    help: str


def table() -> list[SettingRow]:
    """The table of settings, in the order of their definition."""
    rows = []
    for name, info in Settings.model_fields.items():
        bounds = {type(m).__name__: m for m in info.metadata}
        low = getattr(bounds.get("Ge"), "ge", None)
        above = getattr(bounds.get("Gt"), "gt", None)
        high = getattr(bounds.get("Le"), "le", None)
        limits = ""
        if high is not None:
            limits = f"{low if low is not None else f'> {above}'} to {high}"
        kind = getattr(info.annotation, "__name__", str(info.annotation))
        if str(info.annotation).startswith("typing.Literal"):
            kind, limits = "choice", " | ".join(map(str, info.annotation.__args__))  # type: ignore[union-attr]
        rows.append(SettingRow(name, kind, info.default, limits, info.description or ""))
    return rows
