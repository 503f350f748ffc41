"""The verb `info`: what the daemon says of itself, a line a fact."""

from __future__ import annotations

import time
from typing import Any

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.objects import value_of_cell
from batos.cli.output import Output, size

_TIMES = {"due", "next", "until", "at", "since", "started"}
_DIGITS = 4  # of what is no whole number


@app.command()
def info(connect: Connect = None, as_json: Json = False) -> None:
    """Say what the daemon is and does: image, missions, personas, models, limits."""
    reply = ask(endpoint(connect), lambda client: client.info())
    output = Output(as_json)
    if as_json:
        output.document(reply)
    else:
        output.pairs((" ".join(path), _told(path, value)) for path, value in _flat(reply) if path != ("type",))


def _flat(facts: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Nested facts as one list, each with the names that lead to it."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in facts.items():
        found += _flat(value, (*path, name)) if isinstance(value, dict) and value else [((*path, name), value)]
    return found


def _told(path: tuple[str, ...], value: Any) -> str:
    """A fact as people read it: sizes with a unit, moments by the clock; nothing for what is not there."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value_of_cell(value)
    if any(name.endswith("bytes") for name in path) or path[-2:] == ("residency", "budget"):
        return size(value)
    if path[-1] in _TIMES and value > 0:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value) if isinstance(value, int) else f"{value:.{_DIGITS}g}" if abs(value) < 10**_DIGITS else f"{value:.0f}"
