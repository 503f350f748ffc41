"""The verb `secrets`: values that connections send and that no image, prompt or log holds. They are files beside the image."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from batos.cli.app import ConfigFlag, DataFlag, Json, SetFlag, app
from batos.cli.output import Output, ago
from batos.cli.settings import meant_folder, settings_from
from batos.config import nearest
from batos.tools.secrets import SECRETS_FILE, SecretStore

ACTIONS = ("set", "list", "remove")


@app.command()
def secrets(
    action: Annotated[str, typer.Argument(metavar="set|list|remove", help="Set one, list their names, or remove one.")],
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Its name, as {secret:NAME} names it.")] = None,
    data: DataFlag = None,
    config_file: ConfigFlag = None,
    assignments: SetFlag = None,
    as_json: Json = False,
) -> None:
    """Keep secrets of connections in the data folder. The value is typed unseen, or read from the input; it is not an argument.
    Needs no daemon."""
    if action not in ACTIONS:
        raise typer.BadParameter(f"{action!r} is none of {', '.join(ACTIONS)}{nearest(action, ACTIONS)}")
    if (action == "list") != (name is None):
        raise typer.BadParameter("list takes no NAME" if name is not None else f"{action} takes the NAME of a secret")
    output = Output(as_json)
    data = meant_folder(data, output, config_file=config_file, more=assignments)
    settings, _ = settings_from(data, None, None, None, config_file, assignments)
    store = SecretStore(settings.data / SECRETS_FILE)
    if name is None:
        _list(store, output)
        return
    if action == "set":
        store.set(name, typed_secret(f"value of {name}"))
    else:
        store.remove(name)
    if as_json:
        output.document({"type": "secrets", "name": name, "set": action == "set"})
    else:
        output.say(f"{name} is {'set; a connection names it as {secret:' + name + '}' if action == 'set' else 'removed'}")


def _list(store: SecretStore, output: Output) -> None:
    found = store.list()
    if output.as_json:
        output.document({"type": "secrets", "secrets": [{"name": one.name, "set_at": one.set_at} for one in found]})
    elif not found:
        output.note("no secrets are set", "dim")
    else:
        output.rows(("secret", "age"), ((one.name, ago(one.set_at)) for one in found))


def typed_secret(what: str) -> str:
    """Return a secret value: typed without an echo on a terminal, else all of the input but a line end.

    :param what: words that ask for it.
    """
    if not sys.stdin.isatty():
        return sys.stdin.read().removesuffix("\n").removesuffix("\r")
    import getpass

    try:
        return getpass.getpass(f"{what}: ")
    except EOFError:
        return ""
