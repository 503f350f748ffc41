"""The verb `tools`: the connections through which missions act outside, and their tools."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated, Any

import typer

from batos.cli import tool_forms
from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import ask, grouped
from batos.cli.output import Output, counted, one_line
from batos.cli.tool_places import ConnectionOptions, PlaceOptions, place_of
from batos.config import nearest
from batos.errors import MissionFailed, from_wire
from batos.wire import Client

Reply = dict[str, Any]
ACTIONS = ("add", "show", "call", "test", "accept", "remove", "resume", "offer", "offers", "withdraw")
_NAMELESS = (None, "resume", "offers")
_NO_PLACE, _NO_OPTIONS = PlaceOptions(), ConnectionOptions()


@app.command()
@grouped
def tools(
    action: Annotated[
        str | None, typer.Argument(metavar="[" + "|".join(ACTIONS) + "]", help="What to do; without it, the connections are listed.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A connection; of show and call CONNECTION.TOOL.")] = None,
    arguments: Annotated[str | None, typer.Argument(metavar="[JSON]", help="Arguments of the call; - reads them from the input.")] = None,
    places: PlaceOptions = _NO_PLACE,
    options: ConnectionOptions = _NO_OPTIONS,
    line: Annotated[str | None, typer.Option("--line", metavar="TEXT", help="Of offer: description of the place, in one line.")] = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """List connections, add one, show or call its tools, test whether they changed, accept that, or remove it. Or let a copied image act
    again (resume). Or manage the places that BAT OS proposes for missing connections (offer, offers, withdraw)."""
    output = Output(as_json)
    _check(action, name, arguments)
    if action not in ("add", "offer") and (places, options) != (_NO_PLACE, _NO_OPTIONS):
        raise typer.BadParameter("only `tools add NAME` takes a place and its options, and `tools offer NAME`")
    if (line is not None) is not (action == "offer"):
        raise typer.BadParameter("`tools offer NAME --line TEXT` with a place says in one line what it does; no other action takes --line")
    if action in ("offer", "offers", "withdraw"):
        _offers(_asked_offers(action, str(name), places, options, line or "", endpoint(connect)), output)
        return
    if action == "call":
        _call(str(name), arguments, endpoint(connect), output)
        return
    reply = _asked(action, name, places, options, endpoint(connect), output)
    if reply is None:
        return
    if as_json:
        output.document(reply)
    elif action in ("show", "add", "test", "accept"):
        _page(reply["connections"][0], output, added=action == "add", whole=action == "show")
    else:
        _list(reply, output)
    if not as_json and reply["tied"]:
        output.note(f"nothing may act now: {reply['tied']}", "yellow")


def _check(action: str | None, name: str | None, arguments: str | None) -> None:
    if action is not None and action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action in _NAMELESS and name is not None:
        raise typer.BadParameter(f"`tools {action}` takes no NAME, got {name!r}")
    if action not in _NAMELESS and name is None:
        how = "one of your choice, such as: batos tools add notes --folder ~/notes" if action == "add" else "`batos tools` lists them"
        raise typer.BadParameter(f"`tools {action}` takes a NAME; {how}")
    if action != "call" and arguments is not None:
        raise typer.BadParameter(f"only `tools call` takes arguments, got {arguments!r}")


def _asked(
    action: str | None, name: str | None, places: PlaceOptions, options: ConnectionOptions, address: str, output: Output
) -> Reply | None:
    """Ask the daemon; return its reply of type `tools`. None where a form was only shown, or written to a file."""
    if action is None or name is None:
        return ask(address, lambda client: client.tools() if action is None else client.tools_resume())
    if action == "add":
        kind, place, more, form = place_of(places, options)
        if form.described or form.file:
            found = tool_forms.form_of(name, place_of(places, options), address, output)
            if found is None:
                return None
            more = {**more, "form": found}
        return ask(address, lambda client: client.tool_add(name, kind, place, more, on=options.on))
    if action == "show":
        return ask(address, lambda client: client.tools(name))
    if action == "test":
        return ask(address, lambda client: client.tool_test(name))
    return ask(address, lambda client: client.tool_accept(name) if action == "accept" else client.tool_remove(name))


def _asked_offers(action: str, name: str, places: PlaceOptions, options: ConnectionOptions, line: str, address: str) -> Reply:
    """Ask the daemon; return its reply of type `tool_offers`."""
    if action == "offer":
        kind, place, more, form = place_of(places, options)
        if form.described or form.file:
            raise typer.BadParameter(
                "an offer has no form of operations: nothing of it is read before it is used. Add the place with `tools add`, and remove "
                "it: it is proposed as it was"
            )
        return ask(address, lambda client: client.tool_offer(name, line, kind, place, more))
    return ask(address, lambda client: client.tool_withdraw(name) if action == "withdraw" else client.tool_offers())


def _call(name: str, given: str | None, address: str, output: Output) -> None:
    """Call a tool by hand: a mission of its own, whose user allows the call by making it."""
    connection, _, tool = name.partition(".")
    if not tool:
        raise typer.BadParameter(f"{name!r} names no tool; write CONNECTION.TOOL")
    arguments = _arguments(given)

    async def called(client: Client) -> Reply:
        accepted = await client.send_message(f"tools.{connection}", "call_", [tool, arguments], may_ask=True)
        last: Reply = {}
        async for event in client.watch(accepted.id):
            last = event
            if event.get("type") == "needs_input" or event.get("question"):
                break
        return {**last, "id": accepted.id}

    found = ask(address, called)
    if found.get("question"):
        _asks(found, output)
        return
    if found.get("state") != "COMPLETE":
        error = from_wire(found["error"])
        raise MissionFailed(error.message, **{**error.context, "code": found["error"]["code"]})
    if output.as_json:
        output.document(found)
        return
    result = found["result"]
    value = result.get("value", result.get("text"))
    output.say(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))
    output.note(f"mission {found['id']}: `batos effects {found['id']}` shows what it did", "dim")


def _asks(found: Reply, output: Output) -> None:
    question = found["question"]
    text = question["question"] if isinstance(question, dict) else question
    if output.as_json:
        output.document({"type": "needs_input", "id": found["id"], "state": "NEEDS_INPUT", "question": text})
        return
    output.say(text)
    output.note(f"the call waits for your answer: batos answer {found['id']} ANSWER", "yellow")


def _arguments(given: str | None) -> Reply:
    text = sys.stdin.read() if given == "-" else given
    try:
        parsed = {} if text is None or not text.strip() else json.loads(text)
    except (ValueError, RecursionError) as e:
        raise typer.BadParameter(
            f'the arguments {one_line(text, 60)!r} are not JSON ({e}); write an object: \'{{"path": "a.txt"}}\''
        ) from None
    if not isinstance(parsed, dict):
        raise typer.BadParameter(f"the arguments are a JSON object, not {one_line(text, 60)}")
    return parsed


# --- output


def _list(reply: Reply, output: Output) -> None:
    if not reply["connections"]:
        output.note("no connections; `batos tools add NAME` makes one, such as: batos tools add notes --folder ~/notes:rw", "dim")
        return
    placed = any(one.get("on") for one in reply["connections"])  # several kernels serve the image
    rows = (
        (one["name"], one["kind"], one["place"], *placed * [one.get("on", "")], str(len(one["tools"])), _state(one), _verdicts(one))
        for one in reply["connections"]
    )
    columns = ("name", "kind", "place", *placed * ["machine"], "tools", "state", "grants")
    output.rows(columns, rows, {"changed": "yellow", "lacks a secret": "yellow"})
    if reply["in_doubt"]:
        output.note(f"effects that have not ended: {reply['in_doubt']}; `batos effects --doubt` shows them", "yellow")


def _offers(reply: Reply, output: Output) -> None:
    if output.as_json:
        output.document(reply)
        return
    rows = ((one["name"], one["kind"], one["place"], one["origin"], one["line"]) for one in reply["offers"])
    output.rows(("name", "kind", "place", "", "what it does"), rows)
    output.note("a message to a connection that is not there proposes the one that fits: batos send-to tools.NAME …", "dim")


def _state(one: Reply) -> str:
    if one["missing"]:
        return f"lacks the secret {', '.join(one['missing'])}"
    return "changed" if one["suspended"] else "in use" if one["open"] else "ready"


def _verdicts(one: Reply) -> str:
    """Return what grants say of the tools: `3 allow, 1 ask`."""
    counts: dict[str, int] = {}
    for tool in one["tools"]:
        counts[tool["verdict"]] = counts.get(tool["verdict"], 0) + 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no tools"


def _page(one: Reply, output: Output, *, added: bool, whole: bool) -> None:
    if added:
        output.say(f"{one['name']} is added, with {counted(len(one['tools']), 'tool')}", "bold")
    machine = [("machine", one["on"])] if one.get("on") else []
    facts = [("name", one["name"]), ("kind", one["kind"]), ("place", one["place"]), *machine, ("state", _state(one))]
    options = {name: value for name, value in (one.get("options") or {}).items() if name != "form"}
    output.pairs([*facts, *([("options", json.dumps(options, ensure_ascii=False))] if options else [])])
    if one.get("changes"):
        output.say("\nwhat changed since it was accepted", "bold")
        output.say(one["changes"])
        output.note(f"accepted with: batos tools accept {one['name']}", "yellow")
    if whole and len(one["tools"]) == 1 and not one["tools"][0].get("cut"):
        _tool(one["tools"][0], output)
        return
    output.say()
    output.rows(("tool", "class", "grants", ""), ((tool["name"], tool["class"], tool["verdict"], tool["line"]) for tool in one["tools"]))
    if cut := [tool["name"] for tool in one["tools"] if tool.get("cut")]:
        output.note(f"the definitions of {len(cut)} tools have no room here: batos tools show {one['name']}.{cut[0]}", "dim")
    if one["missing"]:
        output.note(f"set what it lacks: batos secrets set {one['missing'][0]}", "yellow")
    for told in one.get("notes") or ():
        output.note(told, "yellow")
    if added:
        for hint in _hints(one):
            output.note(hint, "dim")


def _hints(one: Reply) -> list[str]:
    """Return what the user of a connection that was just added may want to do next."""
    name, asking = one["name"], [tool for tool in one["tools"] if tool["verdict"] == "ask"]
    acting = [tool for tool in asking if tool["class"] != "reads"]
    leaking = any(tool.get("untrusted") and tool.get("private") and tool.get("outward") for tool in asking)
    hints = []
    if leaking:
        hints.append(
            "what its tools tell is private and may hold text of strangers, and what they are asked leaves. So they ask first, also "
            f"to read. `batos allow {name}.{asking[0]['name']} --leaks` lets that one"
        )
    elif acting:
        hints.append(f"what acts asks first; `batos allow {name}.{acting[0]['name']}` lets that one")
    if reading := [tool["name"] for tool in acting if tool.get("says_reads")]:
        of = "all its tools" if len(reading) == len(one["tools"]) else f"{len(reading)} of its {len(one['tools'])} tools"
        listed = " ".join(f"--class {tool}=reads" for tool in reading[:3]) + " …" * (len(reading) > 3)
        hints.append(f"the server says that {of} only read; to believe it, remove {name} and add it with --trust, or with {listed}")
    return hints


def _tool(tool: Reply, output: Output) -> None:
    output.say(f"\n{tool['name']}", "bold")
    if tool["description"]:
        output.say(tool["description"])
    marks = [name for name in ("untrusted", "private", "outward") if tool.get(name)]
    named = [(name, tool[name]) for name in ("look", "undo") if tool.get(name)]
    sent = [("message", tool.get("message", "")), ("request", request_words(tool))]
    facts = [("class", tool["class"]), ("grants", tool["verdict"]), ("marks", ", ".join(marks)), *named]
    output.pairs([*(one for one in sent if one[1]), *facts])
    for title, schema in (("parameters", tool["parameters"]), ("answer", tool.get("result"))):
        if schema is not None:
            output.say(f"\n{title}", "bold")
            output.say(json.dumps(schema, indent=2, ensure_ascii=False))


def request_words(tool: Reply) -> str:
    """Return what a call of a tool sends, in words: `POST /orders`, or a command line; "" where nothing is known of it."""
    if "argv" in tool:
        return shlex.join(tool["argv"])
    return " ".join([tool.get("method", ""), tool.get("server", "") + tool.get("path", "")]).strip()
