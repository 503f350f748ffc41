"""The verbs `keys`, `console` and `doors`. `keys` handles CURVE keys with their roles, `console` the link to the web console with its
sessions. `doors` shows address and token of the interfaces for clients of other makers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from batos.cli.app import ConfigFlag, Connect, DataFlag, Json, SetFlag, app, endpoint
from batos.cli.client import ask
from batos.cli.output import Output, counted
from batos.cli.settings import meant_folder, settings_from
from batos.config import Settings, former, nearest
from batos.errors import ConfigError, DaemonUnavailable
from batos.wire import keys as made
from batos.wire.fields import ROLES, Role

ACTIONS = ("new", "list", "role")
CLIENT = "client"  # name of the first client
_MAY: dict[Role, str] = {
    "read": "look at everything",
    "submit": "give missions, steer them and look at everything",
    "operate": "do everything",
}


@app.command()
def keys(
    action: Annotated[
        str,
        typer.Argument(
            metavar="new|list|role", help="Make keys; list the clients that the daemon lets in; or give one client another role."
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Whose: a client's; without it the daemon's own, and the first client's.")
    ] = None,
    role: Annotated[
        str | None,
        typer.Argument(
            metavar="[ROLE]", help="Role of the key: read, submit (missions; the default of a new key), or operate (everything)."
        ),
    ] = None,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Make keys for the daemon and its clients, in the data folder, list the clients, or change a client's role. Needs no daemon."""
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is not one of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if action == "list" and name is not None:
        raise typer.BadParameter(f"list takes no NAME, got {name!r}: it lists all whom the daemon lets in")
    if action == "role" and (name is None or role is None):
        raise typer.BadParameter(f"role takes a NAME and a ROLE, one of {', '.join(ROLES)}")
    output = Output(as_json)
    data = meant_folder(data, output, config_file=config_file, more=assignments)
    settings, _ = settings_from(data, None, None, None, config_file, assignments)
    if action == "list":
        _list(settings, output)
    elif action == "role":
        _give_role(settings, str(name), _role(role), output)
    else:
        _new(settings, name, made.NEW_ROLE if role is None else _role(role), output)


def _role(named: str | None) -> Role:
    for role in ROLES:
        if role == named:
            return role
    raise typer.BadParameter(f"{named!r} is not a role; allowed are {', '.join(ROLES)}{nearest(str(named), ROLES)}")


def _give_role(settings: Settings, name: str, role: Role, output: Output) -> None:
    made.give_role(settings.clients, name, role)
    if output.as_json:
        output.document({"type": "keys", "client": name, "role": role})
    else:
        output.say(f"{name} may {_MAY[role]} now")


def _list(settings: Settings, output: Output) -> None:
    try:
        known = made.Clients(settings.clients).known()
        clients = [{"name": client.name, "role": client.role, "key": key.decode()} for key, client in known.items()]
    except OSError as e:
        raise ConfigError(
            f"the folder of clients {settings.clients} cannot be read: {e.strerror}; see --data and wire.client_keys"
        ) from None
    if output.as_json:
        output.document({"type": "keys", "folder": str(settings.clients), "clients": clients})
        return
    output.rows(("client", "role", "public key"), ((one["name"], one["role"], one["key"]) for one in clients))
    output.note(f"{settings.clients}: a file that is taken out keeps that client out", "dim")


def _new(settings: Settings, name: str | None, role: Role, output: Output) -> None:
    folder, server = settings.data / "keys", settings.data / "keys" / f"{made.SERVER}.key"
    if name == made.SERVER:
        raise typer.BadParameter("the daemon's own key is made by `batos keys new` alone; name a client")
    written: dict[str, Any] = {}
    if name is None:
        secret, server = made.create(folder, made.SERVER)
        written = {"wire.secret_key": str(secret)}
    elif not server.exists():
        raise typer.BadParameter(f"the key file {server} does not exist yet: `batos keys new` makes it, and the first client's")
    own, public = made.create(folder, name or CLIENT, settings.clients, role=role)
    written |= {"wire.client_key": str(own), "wire.server_key": made.load_public(server).decode()}
    if output.as_json:
        output.document(
            {"type": "keys", "client": name or CLIENT, "role": role, "public": str(public), "settings": written | _formerly(written)}
        )
        return
    output.say(f"made: {own}, and {public}, which lets it in")
    output.say(f"it may {_MAY[role]}; `batos keys role {name or CLIENT} ROLE` changes that: {', '.join(ROLES)}")
    if "wire.secret_key" in written:
        output.say("\nFor the daemon, in batos.toml or the environment:")
        output.say(f'  wire.secret_key = "{written["wire.secret_key"]}"', "bold")
    output.say("\nFor this client; take its secret key to its machine, and leave no copy here unless it lives here:")
    output.say(f'  wire.client_key = "{own}"', "bold")
    output.say(f'  wire.server_key = "{written["wire.server_key"]}"', "bold")
    if not Path(settings.wire.secret_key).exists() and "wire.secret_key" not in written:
        output.note("the daemon asks for no keys yet: wire.secret_key is not set", "yellow")


def _formerly(written: dict[str, Any]) -> dict[str, Any]:
    """Return the same values by the former names of the settings, which scripts may read as long as these are accepted."""
    return {name: written[now] for name, now in former.RENAMED.items() if now in written}


@app.command()
def console(
    logout: Annotated[
        bool, typer.Option("--logout", help="With --all: end every session. Browsers show the token again. Needs no daemon.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --logout: every session.")] = False,
    logout_all: Annotated[bool, typer.Option("--logout-all", help="Sign all browsers out, like --logout --all.")] = False,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the link to the web console of the daemon. It holds the token of the data folder: everyone with the link gets in."""
    output = Output(as_json)

    def settings_of(folder: str | None) -> Settings:
        return settings_from(data or folder, None, None, None, config_file, assignments)[0]

    if logout != every:
        raise typer.BadParameter(
            "--logout and --all belong together, since a terminal has no session. `batos console --logout --all` ends those of all "
            "browsers; one browser is signed out by Sign out, at the foot of each page"
        )
    if logout or logout_all:
        ended = _logout_all(settings_of(None if data else _folder_of_daemon(connect)))
        if as_json:
            output.document({"type": "console", "ended": ended})
        else:
            typer.echo(f"{counted(ended, 'session')} ended; `batos console` prints the link that begins another")
        return
    info = ask(endpoint(connect), lambda client: client.info())
    if not info.get("console"):
        raise ConfigError(
            "this daemon serves no console: console.enabled is off, its packages are not installed (pip install 'batos[console]'), "
            "or another program has the address doors.listen. `batos run --console` says which"
        )
    from batos.console.access import token_of  # imported late: only this verb needs it

    link = f"{info['console']}/?token={token_of(settings_of(info['data']).data)}"
    if as_json:
        output.document({"type": "console", "console": info["console"], "link": link})
    else:
        typer.echo(link)


def _folder_of_daemon(connect: str | None) -> str | None:
    """Return the data folder of the daemon; None if none answers and the settings have to say it."""
    try:
        folder: str = ask(endpoint(connect), lambda client: client.info())["data"]
    except DaemonUnavailable:
        if connect:  # the user named this daemon
            raise
        return None
    return folder


def _logout_all(settings: Settings) -> int:
    from batos.console.access import ConsoleLimits, Sessions, token_of

    if not settings.data.is_dir():
        return 0
    limits = ConsoleLimits.of(settings)
    return Sessions(settings.data, token_of(settings.data), limits.session_s, limits.sessions).end_all()


@app.command()
def doors(connect: Connect = None, as_json: Json = False) -> None:
    """Print address and token of the interfaces of OpenAI, Ollama and MCP, with settings for their clients. Everyone with the token gets
    in."""
    output = Output(as_json)
    info = ask(endpoint(connect), lambda client: client.info())
    address = info.get("doors")
    if not address:
        raise ConfigError(
            "this daemon has no doors: the setting doors.enabled is off, or another program has the address doors.listen; "
            "`batos run --set doors.enabled=on` says which, and `--set doors.listen=127.0.0.1:PORT` takes another"
        )
    from batos.console.access import token_of  # imported late: only this verb needs it
    from batos.doors.client_settings import settings_of_clients

    token = token_of(Path(info["data"]))
    if output.as_json:
        facts = {"address": address, "openai": f"{address}/v1", "ollama": address, "mcp": f"{address}/mcp", "token": token}
        output.document({"type": "doors", **facts})
        return
    typer.echo(f"address  {address}\ntoken    {token}\nmodels   batos, batos:PERSONA, batos:plain, those of `batos experts`, the embedder")
    for name, told in settings_of_clients(address, token, connect):
        typer.echo(f"\n{name}:")
        typer.echo("".join(f"  {line}\n" for line in told.splitlines()), nl=False)
