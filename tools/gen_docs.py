"""Write the generated tables of docs/: settings, errors, command line. `--check` only compares, and exits 1 where one is stale.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; the prose around it is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def settings() -> str:
    """One row a setting."""
    from batos.config import ENV_PREFIX, table

    rows = ["| setting | environment | default | limits | meaning |", "|---|---|---|---|---|"]
    for row in table():
        default = " ".join(row.default) if isinstance(row.default, tuple) else str(row.default)
        limits = row.limits.replace("|", "or")
        rows.append(
            f"| `{row.name}` | `{ENV_PREFIX}{row.name.upper()}` | {f'`{default}`' if default else 'empty'} | {limits} | {row.help} |"
        )
    return "\n".join(rows)


def errors() -> str:
    """One row an error class, in the order and with the words of the tree in `batos.errors`."""
    import batos.errors as module

    rows = ["| code | class | exit code | try again? | meaning |", "|---|---|---|---|---|"]
    for name, meaning in _tree(module.__doc__ or ""):
        cls = getattr(module, name)
        if issubclass(cls, module.BatosError):
            rows.append(f"| `{cls.code}` | `{name}` | {cls.exit_code} | {'yes' if cls.retryable else 'no'} | {meaning} |")
    return "\n".join(rows)


def _tree(text: str) -> list[tuple[str, str]]:
    """Names and meanings of the tree drawn in a docstring."""
    return [(m[1], m[2].replace("|", "\\|")) for m in re.finditer(r"^[ │├└─]+([A-Z]\w+) {2,}(\S.*)$", text, re.MULTILINE)]


def verbs() -> str:
    """One section a verb: what it does, its arguments and options."""
    import typer

    import batos.cli.daemon
    import batos.cli.missions
    import batos.cli.objects
    import batos.cli.steering
    import batos.cli.upkeep  # noqa: F401
    from batos.cli.app import app

    group = typer.main.get_command(app)
    parts = []
    for name, command in sorted(group.commands.items()):  # type: ignore[attr-defined]
        words = [f"`{p.metavar or p.name.upper()}`" for p in command.params if p.param_type_name == "argument"]
        lines = [f"### batos {name}{''.join(f' {w}' for w in words)}", "", _flat(command.help)]
        options = [p for p in command.params if p.param_type_name == "option"]
        lines += ["", *(f"* `{_option(p)}`: {_flat(p.help)}" for p in options)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _option(parameter: object) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]  # type: ignore[attr-defined]
    return f"{', '.join(names)}{f' {parameter.metavar}' if parameter.metavar else ''}"  # type: ignore[attr-defined]


def _flat(text: str | None) -> str:
    return " ".join((text or "").split())


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "settings": ("settings.md", settings),
    "errors": ("errors.md", errors),
    "verbs": ("cli.md", verbs),
}


def filled(name: str) -> tuple[Path, str, str]:
    """A document: its path, its text now, its text with the table as it should be."""
    file, make = TABLES[name]
    path = DOCS / file
    text = path.read_text("utf-8")
    begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
    head, _, rest = text.partition(begin)
    _, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{path} has no place for the table: {begin!r} ... {end!r}")
    return path, text, head + begin + make() + end + tail


def main() -> int:
    """Write or compare every table."""
    stale = [(path, new) for path, old, new in map(filled, TABLES) if old != new]
    for path, new in stale:
        if "--check" not in sys.argv:
            path.write_text(new, "utf-8")
        print(f"{'stale' if '--check' in sys.argv else 'written'}: docs/{path.name}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    raise SystemExit(main())
