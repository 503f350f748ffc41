"""The verb about LoRA experts: experts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.asking import ask
from batos.cli.output import Output, ago, one_line
from batos.errors import InvalidInput

STYLES = {"built": "green", "intended": "yellow", "missing": "bold red", "refused": "bold red", "waits": "yellow"}


@app.command()
def experts(
    scan: Annotated[bool, typer.Option("--scan", help="Look into the staging folder now, and build what is to be built.")] = False,
    voice: Annotated[
        str | None,
        typer.Option("--voice", metavar="PERSONA=CHOICE", help="Who speaks for a persona: newest, plain, or an expert's model."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List the LoRA experts: how each stands and why, and whose voice each persona has."""
    persona, choice = _chosen(voice)
    output = Output(as_json)
    reply = ask(endpoint(connect), lambda client: client.experts(scan=scan, persona=persona, voice=choice))
    if as_json:
        output.document(reply)
        return
    if reply["staging"]:
        output.say(f"staging folder: {reply['staging']}", "dim")
    said = {facts["folder"] for facts in reply["experts"] if facts["state"] == "refused"}
    rows = [*map(_expert, reply["experts"]), *(_folder(found) for found in reply["refused"] if found["folder"] not in said)]
    if rows:
        output.rows(("expert", "state", "speaks for", "built", "about"), rows, STYLES)
    else:
        output.say("no experts yet: put a folder with an adapter and expert.toml into the staging folder")
    for name, heard in reply["voices"].items():
        if heard["choice"] != "newest":
            output.say(f"{name}: {heard['model'] or 'its plain model'} speaks, by choice ({heard['choice']})", "dim")


def _chosen(voice: str | None) -> tuple[str | None, str | None]:
    if voice is None:
        return None, None
    persona, equals, choice = voice.partition("=")
    if not (persona and equals and choice):
        raise InvalidInput(f"--voice takes PERSONA=CHOICE, such as babs=plain; got {voice!r}")
    return persona, choice


def _expert(facts: dict[str, Any]) -> tuple[str, ...]:
    about = facts["reason"] or f"{facts['how']} on {facts['base']}{_waits(facts)}"
    return facts["model"], facts["state"], facts["persona"] if facts["speaks"] else "", ago(facts["built"]), one_line(about, 200)


def _waits(facts: dict[str, Any]) -> str:
    """What an expert waits for that does its work only once it is chosen."""
    if not facts.get("on_choice") or facts["speaks"]:
        return ""
    if facts.get("role") == "methods":  # no voice: who writes, the loop decides
        return "; writes methods once its rehearsal was good: batos changes"
    return f"; waits to be chosen: --voice {facts['persona']}={facts['model']}"


def _folder(refusal: dict[str, Any]) -> tuple[str, ...]:
    return f"{refusal['folder']}/", "waits" if refusal["waits"] else "refused", "", "", one_line(refusal["reason"], 200)
