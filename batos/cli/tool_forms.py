"""Forms of operations, as `batos tools add` gets them: from a description by rule, by a model, or from a file. They are shown before they
count, and asked about; what a model filled is never taken without that.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from batos import private_files
from batos.cli.client import agreed, ask
from batos.cli.output import Output, counted, one_line
from batos.cli.tool_places import Place
from batos.errors import BatosError
from batos.wire import Client

Reply = dict[str, Any]
FORM_BYTES = 512 << 10
"""Greatest size of a file with a form."""
_MODEL_S = 1800.0
_EMPTY: dict[str, Reply] = {
    "http": {"name": "list_orders", "line": "List orders.", "class": "reads", "method": "GET", "path": "/orders/{shop}", "parameters": [
        {"name": "shop", "in": "path", "required": True}, {"name": "status", "in": "query", "choices": ["open", "paid"]}]},
    "program": {"name": "log", "line": "Show commits.", "class": "reads", "argv": ["log", "--max-count", "{count}", "{path}"],
                "parameters": [{"name": "count", "type": "integer"}, {"name": "path", "required": True}]},
}  # fmt: skip


def form_of(name: str, place: Place, address: str, output: Output) -> Reply | None:
    """Return the form of a connection that is to be added; None where it is only written to a file.

    :raises typer.Exit: if its user does not accept it.
    """
    if place.form.file:
        return _from_file(place.form.file)
    found = ask(address, lambda client: _described(client, place, output))
    form, notes = found["form"], found["notes"]
    if place.form.target:
        _write(name, place, form or {"operations": [_EMPTY[place.kind]]}, notes, output, empty=form is None)
        return None
    if form is None:
        by_hand = f"{_command(name, place, described=True)} --write-form {name}.json` writes one to be filled by hand"
        raise typer.BadParameter(f"no operation could be read: {'; '.join(notes)[:1000]}. `{by_hand}")
    _show(place, form, found["by"], notes, output)
    _confirm(name, place, found, output)
    return dict(form)


async def _described(client: Client, place: Place, output: Output) -> Reply:
    """Return `form` (None: it could not be filled), `by` (rule or model), and `notes`."""
    options: Reply = {
        option: place.options[option] for option in ("env", "folders", "memory_mib", "without_walls") if option in place.options
    }
    source = place.form.source
    read = await client.tool_describe("text", source) if source else await client.tool_describe("usage", place.place, options)
    if read["form"] is not None:
        return {"form": read["form"], "by": "rule", "notes": read["notes"]}
    if not output.as_json:
        output.note("a model fills the form from the description; that is a mission", "dim")
    try:
        accepted = await client.send_message("tools", "describe_", [place.kind, read["text"]])
        result = await client.result(accepted.id, timeout_s=_MODEL_S)
    except BatosError as e:
        return {"form": None, "by": "model", "notes": [*read["notes"], f"the model failed: {e.message}"]}
    said = result["value"]
    form = said["form"] if said["form"].get("operations") else None
    return {"form": form, "by": "model", "notes": [*read["notes"], *said["left_out"]], "mission": accepted.id}


def _from_file(path: str) -> Reply:
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(FORM_BYTES + 1)
    except OSError as e:
        raise typer.BadParameter(f"the form {path!r} cannot be read: {e.strerror or e}") from None
    if len(data) > FORM_BYTES:
        raise typer.BadParameter(f"the form {path!r} has more than {FORM_BYTES} bytes")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise typer.BadParameter(f"the form {path!r} is not JSON: {e}") from None
    if not isinstance(found, dict):
        raise typer.BadParameter(f'the form {path!r} is not a JSON object: write {{"operations": […]}}')
    return found


def _write(name: str, place: Place, form: Reply, notes: list[str], output: Output, *, empty: bool) -> None:
    target = Path(place.form.target).expanduser()
    try:
        with private_files.create(target) as file:
            file.write(json.dumps(form, indent=2, ensure_ascii=False).encode() + b"\n")
    except FileExistsError:
        raise typer.BadParameter(f"{place.form.target!r} is there already; name another file, or remove it first") from None
    except OSError as e:
        raise typer.BadParameter(f"the form cannot be written to {place.form.target!r}: {e.strerror or e}") from None
    what = "an example to be filled by hand, for no operation could be read" if empty else f"{len(form['operations'])} operations"
    if output.as_json:
        output.document({"type": "tool_form", "file": os.fspath(target), "form": form, "notes": notes})
        return
    output.say(f"{place.form.target} holds {what}; look at it, edit it, then:")
    output.say(f"{_command(name, place)} --form {shlex.quote(place.form.target)}")
    for note in notes:
        output.note(note, "yellow")


def _show(place: Place, form: Reply, by: str, notes: list[str], output: Output) -> None:
    if output.as_json:
        return
    count = counted(len(form["operations"]), "operation")
    output.say(f"{count} of {place.place}, read by {'rule' if by == 'rule' else 'a model'}", "bold")
    rows = ((one["name"], one.get("class", "acts"), one_line(_call(one), 100), one_line(one.get("line", ""))) for one in form["operations"])
    output.rows(("operation", "class", "call", ""), rows)
    for note in notes:
        output.note(note, "yellow")


def _call(operation: Reply) -> str:
    if "path" not in operation:
        return shlex.join(operation.get("argv") or []).replace("'{", "{").replace("}'", "}")
    given = [f"{one['name']} in {one.get('in', 'query')}" for one in operation.get("parameters") or () if one.get("in") != "path"]
    return f"{operation['method']} {operation['path']}" + (f" ({', '.join(given)})" if given else "")


def _confirm(name: str, place: Place, found: Reply, output: Output) -> None:
    if place.form.yes and found["by"] == "rule":
        return
    how = f"write it with `{_command(name, place, described=True)} --write-form {name}.json`, look at it, and give it with --form"
    if place.form.yes:
        raise typer.BadParameter(f"--yes is for what is read by rule, and a model filled this form: {how}, or answer without --yes")
    if output.as_json or not sys.stdin.isatty():
        more = " or accept it with --yes" if found["by"] == "rule" else ""
        raise typer.BadParameter(f"the form is shown before it counts, and here there is no terminal to ask at: {how}{more}")
    agreed(f"Add {name} with these operations?", output)


def _command(name: str, place: Place, *, described: bool = False) -> str:
    """Return the words that add the connection, without its other options."""
    if described and not place.form.source:
        return shlex.join(["batos", "tools", "add", name, "--help-of", place.place])
    source = ["--described-by", place.form.source] if described else []
    return shlex.join(["batos", "tools", "add", name, f"--{place.kind}", place.place, *source])
