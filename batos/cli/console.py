"""The verb `console`: the link to the web console of this data folder."""

from __future__ import annotations

import typer

from batos.cli.app import ConfigFlag, Connect, DataFlag, Json, SetFlag, app, endpoint, settings_from
from batos.cli.asking import ask
from batos.cli.output import Output
from batos.errors import ConfigError


@app.command()
def console(
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the link to the web console of the daemon. It holds the token of the data folder: whoever has the link is let in."""
    info = ask(endpoint(connect), lambda client: client.info())
    if not info.get("console"):
        raise ConfigError('this daemon serves no console; start it with `batos run --console`, or set console = "on" in batos.toml')
    settings, _ = settings_from(data or info["data"], None, None, None, config_file, assignments)
    from batos.console.access import token_of  # late: only this verb needs it

    link = f"{info['console']}/?token={token_of(settings.data)}"
    output = Output(as_json)
    if as_json:
        output.document({"type": "console", "console": info["console"], "link": link})
    else:
        typer.echo(link)
