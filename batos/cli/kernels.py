"""Verbs about kernels, the daemons that serve one image together: which there are, and the orderly end of one."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, check_reachable, endpoint
from batos.cli.client import ask, showing
from batos.cli.output import Output, ago
from batos.errors import DaemonUnavailable

_LOOK_S = 0.2  # between two looks whether the daemon has stopped
_STYLES = {"leads": "green", "gone": "red", "unfit": "yellow", "drains": "yellow"}


@app.command()
def kernels(connect: Connect = None, as_json: Json = False) -> None:
    """List the kernels (daemons) that serve this image: where, which one leads, what they have under way, fit or why not."""
    output = Output(as_json)
    reply = ask(endpoint(connect), lambda client: client.kernels())
    if as_json:
        output.document(reply)
    elif not reply["name"]:
        output.note("this daemon has its image to itself (setting image.kernels = one)", "dim")
    else:
        _list(reply["name"], reply["kernels"], output)


@app.command()
def drain(
    wait: Annotated[bool, typer.Option("--wait", help="Return when the daemon has stopped.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Stop the daemon so that nothing is cut off: it takes no more missions, hands its lead over, ends those under way, and stops.

    Missions under way have the seconds of the setting daemon.shutdown_s. Unfinished and waiting missions go on at another kernel of the
    image, or at the next start; no attempt is counted.
    """
    output, address = Output(as_json), endpoint(connect)
    before = ask(address, lambda client: client.info()) if wait else {}
    reply = ask(address, lambda client: client.kernels(drain=True))
    name, under_way = reply.get("name", ""), reply.get("under_way", 0)
    if not as_json:
        output.say(f"{name or 'the daemon'} stops when its missions have ended; under way: {under_way}")
    if wait:
        with showing(lambda: "draining"):
            while _runs(address, before.get("pid")):
                time.sleep(_LOOK_S)
    if as_json:
        output.document({"type": "drain", "name": name, "under_way": under_way, "stopped": wait})
    elif wait:
        output.say("stopped", "green")


def _runs(address: str, pid: int | None) -> bool:
    """Return True while the daemon of that process answers: another one may have been started in its place."""
    try:
        check_reachable(address)
        return bool(ask(address, lambda client: client.info(), shows=True)["pid"] == pid)
    except DaemonUnavailable:
        return False


def _list(name: str, listed: list[dict[str, Any]], output: Output) -> None:
    rows = (
        (
            one["name"] + (" *" if one["name"] == name else ""),
            one["state"],
            "" if one["gone"] else one["missions"],
            ago(one["ended"] if one["gone"] else one["began"]),
            one["version"],
            len(one["models"]) or "",
            one["endpoint"],
        )
        for one in listed
    )
    output.rows(("kernel", "state", "missions", "since", "version", "models", "endpoint"), rows, _STYLES)
    for one in listed:
        for why in (*one["unfit"], *([f"not reached from here: {one['unreached']}"] if one["unreached"] else ())):
            output.note(f"{one['name']}: {why}", "yellow")
        if one["gone"]:
            output.note(f"{one['name']} is gone: {one['gone']}", "dim")
