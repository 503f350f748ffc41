"""Verbs about missions: submit, inspect, steer, rate and undo them.

Steering is: pause, resume, cancel, and answer a question. `undo` reverts a mission's changes to the image, or applies them again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from batos.cli.app import Connect, Json, NumbersCommand, app, endpoint
from batos.cli.client import DAEMON, AtFlag, QuerySource, agreed, ask, grouped, look, moment, with_nearest
from batos.cli.mission_view import (
    FOLDED,
    STATE_STYLES,
    MissionWatcher,
    called,
    cost,
    doubts,
    provided_pairs,
    rated,
    routing_pairs,
    sources,
    undone_pairs,
)
from batos.cli.output import Output, ago, one_line
from batos.cli.process import INTERRUPTED
from batos.config import nearest, shown
from batos.errors import Busy, InvalidInput, MissionCancelled, MissionFailed, MissionPending, UnknownPersona, UnknownTarget
from batos.wire import Accepted, Client

T = TypeVar("T")

Id = Annotated[str, typer.Argument(metavar="ID", help="The mission's id.")]
IdFlag = Annotated[str | None, typer.Option("--id", metavar="ID", help="The mission's id; submitting an id twice gives one mission.")]
WatchFlag = Annotated[bool, typer.Option("--watch", "-w", help="Show the mission's progress until it ends.")]
Deadline = Annotated[float | None, typer.Option("--deadline", metavar="SECONDS", help="Fail after this time.")]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="Missions with a higher number go first.")]
OUTCOMES = {
    "same": "the same",
    "different": "different: what decides this mission has changed since",
    "journal_ended": "the same as far as its journal goes",
}
STATES = ("ACCEPTED", "PAUSED", "NEEDS_INPUT", "PROVISIONING", "IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING", "COMPLETE", "FAILED")
ENDED = ("COMPLETE", "FAILED")
DEPTHS, FLAVOURS = ("auto", "direct", "facets", "council"), ("auto", "full", "light", "off")
_SPELL_S = 5.0  # seconds between two checks of what an awaited mission does
MayAsk = Annotated[
    bool, typer.Option("--may-ask", help="The mission may ask you a question: here with --watch, else it waits for `batos answer`.")
]
_HELD = {
    "NEEDS_INPUT": "{id} has a question, and waits for its answer: `batos status {id}` shows it, `batos answer {id} ...` answers it",
    "PAUSED": "{id} is paused: `batos resume {id}` lets it go on",
}


@app.command()
def send(  # noqa: PLR0913  each is an option of the command line
    brief: Annotated[list[str], typer.Argument(metavar="BRIEF...", help="What the mission is; - reads it from standard input.")],
    watch: WatchFlag = False,
    persona: Annotated[
        str | None, typer.Option("--persona", metavar="NAME", help="Persona that thinks it; default: the router chooses.")
    ] = None,
    id: IdFlag = None,
    deadline: Deadline = None,
    priority: Priority = None,
    context: Annotated[str | None, typer.Option("--context", metavar="ID", help="The mission that this one follows.")] = None,
    schema: Annotated[str | None, typer.Option("--schema", metavar="FILE", help="JSON schema of the answer.")] = None,
    may_ask: MayAsk = False,
    depth: Annotated[
        str | None, typer.Option("--depth", metavar="DEPTH", help="Depth of the answer: direct, facets, council, or auto.")
    ] = None,
    flavour: Annotated[
        str | None, typer.Option("--flavour", metavar="FLAVOUR", help="Strength of the persona's style: full, light, off, or auto.")
    ] = None,
    needs: Annotated[
        str | None,
        typer.Option("--needs", metavar="NEEDS", help="Abilities of its model: vision, tools, thinking, context:32k; auto: see its plan."),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--image", metavar="FILE", help="An image to look at: PNG, JPEG or WebP; may be repeated."),
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Give the daemon a mission."""
    for option, value, known in (("--depth", depth, DEPTHS), ("--flavour", flavour, FLAVOURS)):
        if value is not None and value not in known:
            raise typer.BadParameter(f"{option}: {value!r} is not one of {', '.join(known)}{nearest(value, known)}")
    text = read_brief() if brief == ["-"] else " ".join(brief)
    form = None if schema is None else read_schema(schema)

    async def submit(client: Client) -> Accepted:
        try:
            more: dict[str, Any] = {"context": context, "schema": form, "may_ask": may_ask, "depth": depth, "flavour": flavour}
            more["needs"] = [word.strip() for word in (needs or "").split(",") if word.strip()]
            more["images"] = images or ()
            return await client.submit(text, id=id, persona=persona, deadline_s=deadline, priority=priority, **more)
        except UnknownPersona as e:
            raise with_nearest(e, persona or "") from None

    give(submit, endpoint(connect), Output(as_json), watch)


@app.command("send-to", cls=NumbersCommand)
def send_to(  # noqa: PLR0913  each is an option of the command line
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Path of an object (robin, psm.IDLE) or its oid (oid:1f).")],
    selector: Annotated[str, typer.Argument(metavar="SELECTOR", help="Name of the message.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="[ARG]...", help="Arguments: JSON where they are JSON, else text.")] = None,
    keywords: Annotated[list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An argument by name; may be repeated.")] = None,
    watch: WatchFlag = False,
    id: IdFlag = None,
    deadline: Deadline = None,
    priority: Priority = None,
    may_ask: MayAsk = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write and keep a method, also for a name that is similar to a known one.")
    ] = False,
    tools: Annotated[bool, typer.Option("--tools", help="Let the method that is written for it use tools (self.tools.NAME.tool).")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Send a message to an object of the image; that is a mission too."""
    values = [value_of(arg) for arg in args or ()]
    named = _by_name(keywords or ())

    async def submit(client: Client) -> Accepted:
        try:
            more: dict[str, Any] = {"id": id, "deadline_s": deadline, "priority": priority, "may_ask": may_ask}
            return await client.send_message(target, selector, values, named, write=write, tools=tools, **more)
        except UnknownTarget as e:
            raise with_nearest(e, target) from None

    give(submit, endpoint(connect), Output(as_json), watch)


@app.command()
def watch(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Show a mission live. Ctrl-C ends the display, not the mission."""

    async def look(client: Client, output: Output) -> int:
        return await MissionWatcher(output, client).follow(client.watch(id))

    _looking(id, endpoint(connect), Output(as_json), look)


@app.command()
@grouped
def missions(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="Only those whose brief has all of these words, or whose id begins so.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help=f"Only missions in this state: {', '.join(STATES)}.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Greatest number of missions listed, the newest first.")
    ] = 20,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Only missions that are older than this one.")] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Also the system's own missions.")] = False,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List missions, the newest first, or those with these words; with --all also the system's own."""
    if state is not None and state.upper() not in STATES:
        raise typer.BadParameter(f"no state {state!r}{nearest(state, STATES)}; there are {', '.join(STATES)}")
    wanted, then, sought = state and state.upper(), moment(at), " ".join(words or ())
    reply = look(
        source,
        lambda looks: looks.missions(wanted, limit, then, before, sought, everyone),
        lambda client: client.missions(wanted, limit, then, before=before, words=sought or None, system=everyone),
    )
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    if not reply["missions"]:
        told = "no missions" + (f" in {state.upper()}" if state else "") + " that fit" * bool(sought or before)
        output.note(told + ("" if everyone else "; --all: also the system's own"), "dim")
        return
    print_missions(reply["missions"], output)
    if len(reply["missions"]) == limit:
        same = " ".join(["batos missions", *(words or ()), *(["--state", wanted] if wanted else ())])
        output.note(f"older ones: {same} --before {reply['missions'][-1]['id']}", "dim")


@app.command()
def result(
    id: Id,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the mission has a result.")] = True,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", min=0, help="Greatest time to wait for the result.")
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the result of a mission; exit code 1 if it FAILED."""
    output = Output(as_json)
    try:
        found = ask(endpoint(connect), lambda client: _awaited(client, id, timeout, output) if wait else client.result(id, False))
    except MissionFailed as e:
        if not as_json:
            raise
        error = {"code": e.context.get("code", e.code), "message": e.message}
        output.document({"type": "result", "id": id, "state": "FAILED", "error": error})
        raise typer.Exit(e.exit_code) from None
    if as_json:
        output.document({"type": "result", "id": id, "state": "COMPLETE", "result": found})
    else:
        output.say(str(found.get("text", "")))
        if found.get("folded"):
            output.note(FOLDED, "dim")
        for line in (*sources(found), *called(found), *doubts(found), cost(found)):
            output.note(line, "dim")


async def _awaited(client: Client, id: str, timeout: float | None, output: Output) -> dict[str, Any]:
    """Return the result once there is one. Report that the mission waits for its user, since only the user can end that.

    :raises MissionPending: if there is no result in that time.
    :raises Busy: if the daemon is stopping or too many clients wait for results, until that time is over.
    """
    now, told = asyncio.get_running_loop().time, ""
    end = math.inf if timeout is None else now() + timeout
    while True:
        spell = min(_SPELL_S, max(0.0, end - now()))
        try:
            return await client.result(id, True, spell)
        except MissionPending as e:
            state = str(e.context.get("state"))
            if end - now() <= 0:
                raise
        except Busy:  # the client has repeated its request for the whole interval
            if end - now() <= _SPELL_S:
                raise
            continue
        if state != told and state in _HELD:
            output.note(_HELD[state].format(id=id), "yellow")
        told = state


@app.command()
def status(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Show the state of a mission."""
    print_status(ask(endpoint(connect), lambda client: client.status(id)), Output(as_json))


@app.command()
def cancel(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Cancel a mission: it ends FAILED with the code `cancelled`, unless it had ended before."""
    steered(ask(endpoint(connect), lambda client: client.cancel(id)), "cancelled", Output(as_json))


@app.command()
@grouped
def failures(
    mission: Annotated[str | None, typer.Option("--mission", metavar="ID", help="Only attempts at this mission.")] = None,
    code: Annotated[str | None, typer.Option("--code", metavar="CODE", help="Only failures with this code, or this cause.")] = None,
    selector: Annotated[
        str | None, typer.Option("--selector", metavar="NAME", help="Only failures of messages with this selector.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Greatest number of missions listed, the newest first.")
    ] = 20,
    at: AtFlag = None,
    source: QuerySource = DAEMON,
    as_json: Json = False,
) -> None:
    """List failed attempts, the newest first: when, at which mission, in which state, why."""
    then = moment(at)
    reply = look(
        source,
        lambda looks: looks.failures(mission, code, selector, limit, then),
        lambda client: client.failures(mission, code=code, selector=selector, limit=limit, at=then),
    )
    output = Output(as_json)
    if as_json:
        output.document(reply)
        return
    listed = reply["failures"]
    if not listed:
        output.note("no failures that fit" if mission or code or selector else "no failures", "dim")
        return
    rows = ((ago(f["at"]), f["mission"], _attempt(f), f["context"].get("state", ""), _why(f["error"])) for f in listed)
    output.rows(("age", "mission", "attempt", "state", "error"), rows)
    if reply.get("more"):
        output.note("older ones had no room; --mission, --code and --selector narrow it", "dim")


@app.command()
def replay(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Think a finished mission again from its journal, without any model; exit code 1 if the result differs."""
    reply = ask(endpoint(connect), lambda client: client.replay(id))
    output = Output(as_json)
    if as_json:
        output.document(reply)
    else:
        output.say(OUTCOMES.get(reply["outcome"], reply["outcome"]), "red" if reply["outcome"] == "different" else "green")
        shown = {"mission": reply["id"], "state": reply["state"], "from the journal": f"{reply['inferences']} of {reply['journaled']}"}
        difference = reply.get("difference", {})
        shown |= {f"first: {name}": _text(value) for name, value in difference.items() if value is not None}
        output.pairs(shown.items())
    raise typer.Exit(1 if reply["outcome"] == "different" else 0)


# --- helpers of these verbs


def print_missions(listed: list[dict[str, Any]], output: Output) -> None:
    """Print the rows of a reply `missions`."""
    marked = {"undone": "(undone) ", "folded": "(folded) "}
    briefs = ((m, "".join(mark for name, mark in marked.items() if m.get(name)) + m.get("brief", "")) for m in listed)
    rows = ((m["id"], m["state"], m.get("origin", ""), ago(m.get("accepted")), one_line(brief)) for m, brief in briefs)
    output.rows(("id", "state", "from", "age", "brief"), rows, STATE_STYLES)


def read_brief() -> str:
    """Return the brief on standard input.

    :raises typer.BadParameter: if it is not UTF-8.
    """
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig").strip()  # some shells write a byte order mark first
    except UnicodeDecodeError as e:
        raise typer.BadParameter(f"the brief on standard input is not UTF-8 (byte {e.start})") from None


def read_schema(file: str) -> dict[str, Any]:
    """Return the JSON object in a file.

    :raises typer.BadParameter: if it cannot be read, or is none.
    """
    try:
        found = json.loads(Path(file).read_text("utf-8-sig"))
    except OSError as e:
        raise typer.BadParameter(f"--schema {file}: {e.strerror or e}") from None
    except (ValueError, RecursionError) as e:
        raise typer.BadParameter(f"--schema {file}: the file is not valid JSON: {e}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f"--schema {file}: a JSON schema is an object")
    return found


def value_of(word: str) -> Any:
    """Return an argument of a message: the JSON value it is, else the word itself."""
    try:
        value = json.loads(word, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # also a number with too many digits, JSON that is nested too deep, half of a character
        return word
    return value


def _finite(number: str) -> float:
    """
    :raises ValueError: for a number that is too large: as another one it would be wrong.
    """
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{number} is too large")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is a word, and not valid JSON")


def _by_name(keywords: Iterable[str]) -> dict[str, Any]:
    """Return the named arguments.

    :raises typer.BadParameter: if one is not NAME=VALUE, or is given twice.
    """
    given: dict[str, Any] = {}
    for name, value in map(_named, keywords):
        if name in given:
            raise typer.BadParameter(f"--arg {name} is given twice: {json.dumps(given[name])} and {json.dumps(value)}; give it once")
        given[name] = value
    return given


def _named(keyword: str) -> tuple[str, Any]:
    name, equals, value = keyword.partition("=")
    if not equals or not name.isidentifier():
        raise typer.BadParameter(f"--arg takes NAME=VALUE, got {shown(keyword)}")
    return name, value_of(value)


def give(submit: Callable[[Client], Awaitable[Accepted]], address: str, output: Output, watching: bool) -> None:
    """Submit a mission; then watch it, or say how to find it again."""
    if not watching:
        accepted = ask(address, submit)
        _print_accepted(accepted, output)
        return
    given: list[str] = []

    async def look(client: Client, output: Output) -> int:
        accepted = await submit(client)
        given.append(accepted.id)
        if output.as_json:
            output.event({"type": "accepted", **dataclasses.asdict(accepted)})
        else:
            output.say(f"mission {accepted.id}{' (accepted before)' if accepted.duplicate else ''}", "bold")
        return await MissionWatcher(output, client).follow(client.watch(accepted.id))

    _looking(given, address, output, look)


def _looking(id: str | list[str], address: str, output: Output, look: Callable[[Client, Output], Awaitable[int]]) -> None:
    """Run a look at a mission that Ctrl-C ends without touching the mission; exits with the look's code."""
    try:
        code = ask(address, lambda client: look(client, output), shows=True)
    except KeyboardInterrupt:
        for known in [id] if isinstance(id, str) else id:
            output.note(f"\nThe mission goes on. Look again: batos watch {known}")
            output.note(f"Its result: batos result {known}; take it back: batos cancel {known}")
        raise typer.Exit(INTERRUPTED) from None
    raise typer.Exit(code)


def _attempt(failure: dict[str, Any]) -> str:
    return f"{failure['attempt']}, the last" if failure["final"] else str(failure["attempt"])


def _why(error: dict[str, Any]) -> str:
    cause = error.get("context", {}).get("cause")
    return one_line(f"{error['code']}{f' ({cause})' if cause else ''}: {error['message']}", 160)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) or "cannot be told" if isinstance(value, list) else str(value)


def _print_accepted(accepted: Accepted, output: Output) -> None:
    if output.as_json:
        output.document({"type": "accepted", **dataclasses.asdict(accepted)})
        return
    output.say(accepted.id)
    known = " before" if accepted.duplicate else ""
    output.note(f"accepted{known}, {accepted.state}; see it with: batos watch {accepted.id}, or: batos result {accepted.id}", "dim")


def steered(reply: dict[str, Any], what: str, output: Output) -> None:
    """Print the state of a mission after it was steered, or report that it had ended before.

    :param what: requested action: cancelled, paused, resumed.
    """
    print_status(reply, output)
    cancelled = (reply.get("error") or {}).get("code") == MissionCancelled.code
    if what == "cancelled" and cancelled:
        if reply.get("already"):
            output.note(f"{reply['id']} was cancelled before", "dim")
    elif reply.get("already") or reply["state"] in ENDED:
        output.note(f"{reply['id']} had ended before it could be {what}: it is {reply['state']}, and stays so", "yellow")


def print_status(reply: dict[str, Any], output: Output) -> None:
    """Print the state of a mission."""
    if output.as_json:
        output.document(reply)
        return
    shown = {
        "mission": reply["id"],
        "state": reply["state"],
        "persona": reply.get("persona"),
        "brief": one_line(reply.get("brief", ""), 200),
    }
    shown |= {**undone_pairs(reply), **routing_pairs(reply)}
    if reply.get("kernel"):
        shown["kernel"] = reply["kernel"] + (", which is asked to end it" if reply.get("cancelled") else "")
    if reply.get("place"):
        shown["in the queue"] = f"number {reply['place']}"
    if reply.get("question"):
        shown["asks"] = reply["question"]["question"]
    if reply.get("waits_for"):
        shown["waits for"] = reply["waits_for"]
    if reply.get("waits"):
        shown["waits"] = f"no kernel takes it up: {reply['waits']}"
    if reply.get("progress"):
        shown["tool"] = one_line(reply["progress"], 200)
    shown |= provided_pairs(reply)
    shown |= {"from": reply.get("origin"), "attempts": reply.get("attempts") or None}
    shown |= {name: f"{ago(reply[name])} ago" for name in ("accepted", "finished") if reply.get(name)}
    if reply.get("folded"):
        shown["kept"] = FOLDED
    if reply.get("rating"):
        shown["rated"] = rated(reply["rating"])
    if reply.get("error"):
        shown["error"] = f"{reply['error'].get('code')}: {reply['error'].get('message')}"
    output.pairs((name, value) for name, value in shown.items() if value is not None)


@app.command()
def pause(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Pause a mission, also over restarts, until it is resumed. It keeps what it paid for; its deadline continues."""
    steered(ask(endpoint(connect), lambda client: client.pause(id)), "paused", Output(as_json))


@app.command()
def resume(id: Id, connect: Connect = None, as_json: Json = False) -> None:
    """Resume a paused mission."""
    steered(ask(endpoint(connect), lambda client: client.resume(id)), "resumed", Output(as_json))


@app.command()
def answer(
    id: Id,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What you answer.")],
    number: Annotated[
        int | None, typer.Option("--number", metavar="N", min=1, help="Number of the question; default: the open one.")
    ] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Answer the question of a mission; it goes on with the answer."""
    print_status(ask(endpoint(connect), lambda client: client.answer(id, " ".join(text), number)), Output(as_json))


@app.command(context_settings={"ignore_unknown_options": True})  # else -1 would be an option
def rate(
    id: Id,
    rating: Annotated[str, typer.Argument(metavar="+1|-1", help="Whether it was good.")],
    why: Annotated[str | None, typer.Option("--why", metavar="TEXT", help="Reason of the rating; it is kept with the mission.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Rate a mission that has ended. The system learns from it; a later rating replaces an earlier one."""
    given: dict[str, Literal[1, -1]] = {"+1": 1, "1": 1, "-1": -1}
    if rating not in given:
        raise typer.BadParameter(f"a rating is +1 or -1, not {rating!r}")
    print_status(ask(endpoint(connect), lambda client: client.rate(id, given[rating], why)), Output(as_json))


@app.command()
def undo(
    id: Id,
    redo: Annotated[bool, typer.Option("--redo", help="Redo an undone mission.")] = False,
    cascade: Annotated[bool, typer.Option("--cascade", help="Undo also all later work that depends on it; shows it, and asks.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Undo what a mission did to the image: objects, methods, examples, memory. Its record stays. Refused if later work needs it."""
    output, address = Output(as_json), endpoint(connect)
    expect = None
    if cascade and redo:
        raise typer.BadParameter("what was undone in a cascade is done again one by one, the oldest first")
    if cascade and not (yes or dry):
        shown = ask(address, lambda client: client.undo(id, redo=redo, cascade=True, dry=True))
        expect = [one["id"] for one in shown["missions"]]
        if len(expect) > 1:
            _agreed(shown, output)
    reply = ask(address, lambda client: client.undo(id, redo=redo, cascade=cascade, dry=dry, expect=expect))
    if as_json:
        output.document(reply)
    else:
        print_undo(reply, output)


def _agreed(shown: dict[str, Any], output: Output) -> None:
    """Show everything that would be undone, and ask.

    :raises typer.Exit: if the answer is no.
    :raises InvalidInput: if there is no user to ask.
    """
    if output.as_json or not sys.stdin.isatty():
        lot = ", ".join(one["id"] for one in shown["missions"])
        raise InvalidInput(f"{len(shown['missions'])} missions would be undone: {lot}; --yes undoes them without asking")
    _rows(shown, output)
    agreed(f"Undo these {len(shown['missions'])} missions?", output)


def print_undo(reply: dict[str, Any], output: Output) -> None:
    """Print the changes that were undone or done again, or would be."""
    done = "done again" if reply["redo"] else "undone"
    if reply.get("already"):
        output.say(f"{reply['id']} is {'not undone' if reply['redo'] else 'undone'} already")
        return
    output.say(f"{'would be ' if reply['dry'] else ''}{done}:", "bold")
    _rows(reply, output)
    documents = [f"{title} ({what})" for side, what in (("gone", "gone"), ("back", "back")) for title in reply["documents"][side]]
    objects = [f"{one['oid']} {', '.join(one['parts'])}" for one in reply["objects"]]
    output.pairs((name, "; ".join(found)) for name, found in (("objects", objects), ("memory", documents)) if found)
    for one in reply.get("effects", []):
        remedy = f"; {one['compensation']} takes it back" if one.get("compensation") else ""
        output.note(f"stays done outside: {one['tool']} [{one['key'][:8]}], {one['state']}{remedy}", "yellow")
    if not reply["redo"] and not reply["dry"]:
        output.note(f"done again with: batos undo {reply['id']} --redo", "dim")


def _rows(reply: dict[str, Any], output: Output) -> None:
    rows = ((one["id"], ago(one["finished"]), one_line(one["brief"])) for one in reply["missions"])
    output.rows(("mission", "age", "brief"), rows)
