"""The verb `kernels`: the daemons that serve one image together."""

from __future__ import annotations

from typing import Any

from batos.cli.app import Connect, Json, app, endpoint
from batos.cli.client import ask
from batos.cli.output import Output, ago

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
