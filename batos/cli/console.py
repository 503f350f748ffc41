"""The verb `console`: the link to the web console of this data folder, and the end of its sessions."""

from __future__ import annotations

from typing import Annotated

import typer

from batos.cli.app import ConfigFlag, Connect, DataFlag, Json, SetFlag, app, endpoint, settings_from
from batos.cli.asking import ask
from batos.cli.output import Output
from batos.config import Settings
from batos.errors import ConfigError, DaemonUnavailable


@app.command()
def console(
    logout: Annotated[
        bool, typer.Option("--logout", help="With --all: end every session. Browsers show the token again. Needs no daemon.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="With --logout: every session.")] = False,
    logout_all: Annotated[bool, typer.Option("--logout-all", help="The same as --logout --all.")] = False,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the link to the web console of the daemon. It holds the token of the data folder: whoever has the link is let in."""
    output = Output(as_json)

    def settings_of(folder: str | None) -> Settings:
        return settings_from(data or folder, None, None, None, config_file, assignments)[0]

    if logout != every:
        raise typer.BadParameter(
            "--logout and --all belong together: a terminal has no session of its own. `batos console --logout --all` ends those of all "
            "browsers; one browser is signed out by Sign out, at the foot of each page"
        )
    if logout or logout_all:
        ended = _logout_all(settings_of(None if data else _folder_of_daemon(connect)))
        if as_json:
            output.document({"type": "console", "ended": ended})
        else:
            typer.echo(f"{ended} session{'' if ended == 1 else 's'} ended; `batos console` prints the link that begins another")
        return
    info = ask(endpoint(connect), lambda client: client.info())
    if not info.get("console"):
        raise ConfigError('this daemon serves no console; start it with `batos run --console`, or set console = "on" in batos.toml')
    from batos.console.access import token_of  # late: only this verb needs it

    link = f"{info['console']}/?token={token_of(settings_of(info['data']).data)}"
    if as_json:
        output.document({"type": "console", "console": info["console"], "link": link})
    else:
        typer.echo(link)


def _folder_of_daemon(connect: str | None) -> str | None:
    """The data folder of the daemon; None where none answers and the settings have to say it."""
    try:
        folder: str = ask(endpoint(connect), lambda client: client.info())["data"]
    except DaemonUnavailable:
        if connect:  # that one was meant
            raise
        return None
    return folder


def _logout_all(settings: Settings) -> int:
    from batos.console.access import token_of
    from batos.console.sessions import Sessions

    if not settings.data.is_dir():
        return 0
    return Sessions(settings.data, token_of(settings.data), settings.console_session_s, settings.console_sessions).end_all()
