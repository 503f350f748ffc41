"""The verb `keys`: make CURVE keys, and say which there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from batos.cli.app import ConfigFlag, DataFlag, Json, SetFlag, app, settings_from
from batos.cli.output import Output
from batos.config import Settings, nearest
from batos.errors import ConfigError
from batos.wire import keys as made

ACTIONS = ("new", "list")
CLIENT = "client"  # the first one's name


@app.command()
def keys(
    action: Annotated[str, typer.Argument(metavar="new|list", help="Make keys, or list those whom the daemon lets in.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Whose: a client's; without it the daemon's own, and the first client's.")
    ] = None,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Make keys for the daemon and its clients, in the data folder, or list the clients. Needs no daemon; overwrites nothing."""
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action == "list" and name is not None:
        raise typer.BadParameter(f"list takes no NAME, got {name!r}: it lists all whom the daemon lets in")
    settings, _ = settings_from(data, None, None, None, config_file, assignments)
    output = Output(as_json)
    if action == "list":
        _list(settings, output)
    else:
        _new(settings, name, output)


def _list(settings: Settings, output: Output) -> None:
    try:
        clients = [{"name": name, "key": key.decode()} for key, name in made.Clients(settings.clients).known().items()]
    except OSError as e:
        raise ConfigError(f"the folder of clients {settings.clients} cannot be read: {e.strerror}; see --data and curve_clients") from None
    if output.as_json:
        output.document({"type": "keys", "folder": str(settings.clients), "clients": clients})
        return
    output.rows(("client", "public key"), ((one["name"], one["key"]) for one in clients))
    output.note(f"{settings.clients}: a file that is taken out keeps that client out", "dim")


def _new(settings: Settings, name: str | None, output: Output) -> None:
    folder, server = settings.data / "keys", settings.data / "keys" / f"{made.SERVER}.key"
    if name == made.SERVER:
        raise typer.BadParameter("the daemon's own key is made by `batos keys new` alone; name a client")
    written: dict[str, Any] = {}
    if name is None:
        secret, server = made.create(folder, made.SERVER)
        written = {"curve_secret": str(secret)}
    elif not server.exists():
        raise typer.BadParameter(f"there is no {server} yet: `batos keys new` makes it, and the first client's")
    own, public = made.create(folder, name or CLIENT, settings.clients)
    written |= {"curve_client": str(own), "curve_server": made.load_public(server).decode()}
    if output.as_json:
        output.document({"type": "keys", "client": name or CLIENT, "public": str(public), "settings": written})
        return
    output.say(f"made: {own}, and {public}, which lets it in")
    if "curve_secret" in written:
        output.say("\nFor the daemon, in batos.toml or the environment:")
        output.say(f'  curve_secret = "{written["curve_secret"]}"', "bold")
    output.say("\nFor this client; take its secret key to its machine, and leave no copy here unless it lives here:")
    output.say(f'  curve_client = "{own}"', "bold")
    output.say(f'  curve_server = "{written["curve_server"]}"', "bold")
    if not Path(settings.curve_secret).exists() and "curve_secret" not in written:
        output.note("the daemon asks for no keys yet: curve_secret is not set", "yellow")
