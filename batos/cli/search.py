"""The verb `search`: passages of the memory that answer a question."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from batos.cli.app import SOURCES, Connect, Json, app, check_named, endpoint
from batos.cli.asking import ask
from batos.cli.output import Output, one_line

SHOWN_CHARS = 600  # of a passage; --json has all of it
SHOWN_SOURCES = 5  # that are named of what a summary is of
_SAID = {"user": "you said so", "self": "it said so itself", "tool": "a method noted it"}


@app.command()
def search(
    question: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="What you look for, in words.")],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, max=100, help="At most so many passages.")] = 5,
    explain: Annotated[bool, typer.Option("--explain", help="Say what the question was taken to ask, and why each was found.")] = False,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Only text, markdown, html, pdf, code or conversation.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="SOURCE", help="Only from this file, or from below this folder.")
    ] = None,
    speaker: Annotated[str | None, typer.Option("--speaker", metavar="NAME", help="Only what they say; a first name will do.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="DAY", help="Only from this day on: 2026-05-31.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="DAY", help="Only up to this day.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Search the memory for passages that answer a question; where nothing fits well, say so and show the nearest. Exit code 1 if there
    are none."""
    check_named(source)
    output = Output(as_json)
    path = source if source is None or "://" in source or source.startswith(SOURCES) else os.path.abspath(source)
    fits = {"kind": kind, "source": path, "speaker": speaker, "since": since, "until": until}
    reply = ask(endpoint(connect), lambda client: client.search(" ".join(question), k, explain=explain, **fits))
    if as_json:
        output.document(reply)
    else:
        _print(reply, output)
    if not reply["hits"]:
        raise typer.Exit(1)


def _print(reply: dict[str, Any], output: Output) -> None:
    if "understood" in reply:
        output.pairs((name.replace("_", " "), _plain(value)) for name, value in reply["understood"].items())
        output.say()
    if not reply["hits"]:
        output.say("nothing in the memory fits; `batos memory documents` lists what it holds")
    elif not reply.get("fits", True):
        output.say("nothing fits well; the nearest:", "yellow")
    for place, hit in enumerate(reply["hits"], 1):
        about = [hit["section"], hit["speaker"], hit["day"], _SAID.get(hit.get("origin", ""), "")]
        if reply.get("fits", True) and not hit.get("fits", True):
            about.append("fits less well")
        where = ", ".join(part for part in (hit["source"], *about) if part)
        output.say(f"[{place}] {where}", "bold")
        output.say(f"    {one_line(hit['text'], SHOWN_CHARS)}")
        if "signals" in hit:
            signals = ", ".join(f"{name} {value:+.2f}" for name, value in sorted(hit["signals"].items(), key=lambda s: -abs(s[1])))
            output.say(f"    {hit['score']:.2f} = {signals}", "dim")
            if "of" in hit:
                named = ", ".join(os.path.basename(source) or source for source in hit["of"][:SHOWN_SOURCES])
                output.say(f"    a summary of {named}: `batos memory restore {hit['archive']}` brings it back", "dim")
            if len(hit["path"]) > 1:
                output.say(f"    by way of {' -> '.join(hit['path'])}", "dim")
    if not reply["by_vectors"]:
        output.note(f"found by words, names and days alone: {reply['why']}", "yellow")


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(" to ".join(one) if isinstance(one, list) else str(one) for one in value) or "–"
    return str(value)
