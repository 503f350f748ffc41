"""The verb `audit`: the guardian's verdict on a file, without a daemon."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from batos.cli.app import ConfigFlag, Json, SetFlag, app, check_named, settings_from
from batos.cli.output import Output
from batos.errors import ConfigError

REFUSED = 4


@app.command()
def audit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file that holds one method; - reads standard input.")],
    selector: Annotated[
        str | None, typer.Option("--selector", metavar="NAME", help="The selector it is meant for; else the name of its definition.")
    ] = None,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="default, or strict (no imports); with capabilities: default+files+network.")
    ] = "default",
    mend: Annotated[bool, typer.Option("--repair", help="Mend what needs no model, show the result and audit that.")] = False,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Audit the source of a method as the guardian does before it installs one: exit code 0 if accepted, 4 if refused."""
    from batos import kernel  # noqa: F401  brings what registers Primitives
    from batos.guardian import PersistenceGuardian, policy_named, repair, selector_of
    from batos.objects import Primitive

    settings, _ = settings_from(None, None, None, None, config_file, assignments)
    try:
        chosen = policy_named(policy)
    except ValueError as e:
        raise ConfigError(f"--policy: {e}") from None
    given = _read(file)
    source: str | bytes = given
    name = selector or selector_of(given)
    output = Output(as_json)
    repairs: tuple[str, ...] = ()
    if mend:
        source, repairs = repair(given.decode("utf-8", "surrogateescape"), name, settings)
    verdict = PersistenceGuardian(settings, Primitive.reaching()).audit(source, name, chosen)
    if as_json:
        mended = {"repairs": list(repairs), "source": verdict.source} if mend else {}
        output.document({"type": "audit", **verdict.to_wire(), **mended})
    else:
        for text in repairs:
            output.note(f"repair: {text}", "dim")
        if mend:
            output.write(verdict.source.rstrip("\n") + "\n")
        for finding in verdict.findings:
            output.say(f"{finding.severity}: {finding}", "red" if finding.severity == "error" else "yellow")
        output.pairs([(verdict.selector, "accepted" if verdict.accepted else "refused"), *_effects(verdict.contract)])
    if not verdict.accepted:
        raise typer.Exit(REFUSED)


def _effects(contract: object) -> list[tuple[str, str]]:
    assert isinstance(contract, dict)
    return [(name, ", ".join(names)) for name, names in contract.items() if names]


def _read(file: str) -> bytes:
    check_named(file)
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None
