"""Settings as the flags of a command line give them, and the data folder that is meant where no flag names one.

The default data folder is the user's own, unless an earlier version of `make run` kept the image in the checkout. `make run`, `batos run`,
`doctor` and `service` use the same folder. A user with an image in another folder gets a question on a terminal, and a message elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batos import config
from batos.config import Settings
from batos.errors import ConfigError

if TYPE_CHECKING:
    from batos.cli.output import Output

IMAGE_FILE = "live_image.fs"
_OF_CHECKOUT = "var"


def settings_from(
    data: str | None,
    image: str | None,
    listen: list[str] | None,
    profile: str | None,
    file: str | None,
    more: list[str] | None,
    model: list[str] | None = None,
) -> tuple[config.Settings, dict[str, str]]:
    """Return the settings in force with these flags, and the source of each.

    :raises ConfigError: for a setting that does not exist (with the nearest name) or a value it cannot have.
    """
    flags: dict[str, Any] = {
        "data": data,
        "image.uri": image,
        "wire.listen": tuple(listen or ()),
        "inference.profile": profile,
        "inference.model": tuple(model or ()),
    }
    for assignment in more or ():
        name, equals, value = assignment.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ConfigError(f"--set takes NAME=VALUE, got {config.shown(assignment)}")
        flags[name] = value
    return config.load_with_sources(flags, config_file=file)


def meant_folder(
    data: str | None, output: Output, *, image: str | None = None, config_file: str | None = None, more: list[str] | None = None
) -> str | None:
    """Return the flag --data as it was given, or the folder chosen by `chosen_folder`."""
    if data is not None:
        return data
    settings, sources = settings_from(None, image, None, None, config_file, more)
    return chosen_folder(settings, sources, output)


def other_images(settings: Settings, sources: Mapping[str, str]) -> list[Path]:
    """Return data folders with an image of this checkout that the command would not use, since no folder is named."""
    if any(sources[name] != "default" for name in ("data", "image.uri")):
        return []
    try:
        here = [Path.cwd()]
    except FileNotFoundError:  # another process deleted the folder
        here = []
    found = dict.fromkeys((folder / _OF_CHECKOUT).resolve() for folder in (*here, Path(__file__).parents[2]))
    return [folder for folder in found if folder != settings.data.resolve() and (folder / IMAGE_FILE).is_file()]


def chosen_folder(
    settings: Settings, sources: Mapping[str, str], output: Output, ask: Callable[[str], str] = input, *, terminal: bool | None = None
) -> str | None:
    """Return the data folder to use, if there is a doubt and a user to ask; None if the setting stays.

    :param ask: shows a question, and returns the answer.
    :param terminal: True if there is a user to ask; default: True on a terminal.
    """
    others = other_images(settings, sources)
    if not others:
        return None
    other, own = others[0], settings.data
    if (own / IMAGE_FILE).is_file():
        output.note(f"the image is the one in {own}; there is another one in {other}: --data {_shown(other)}", "yellow")
        return None
    if terminal is None:
        terminal = not output.as_json and sys.stdin.isatty() and sys.stderr.isatty()
    if not terminal:
        output.note(f"a new image is made in {own}; there is one in {other}: --data {_shown(other)}", "yellow")
        return None
    output.note(f"There is no image in {own} yet, and one in {other}.")
    while True:
        try:
            said = ask("Use that one? [Y/n] ").strip().lower()
        except EOFError:
            return None
        if said in ("", "y", "yes"):
            return str(other)
        if said in ("n", "no"):
            return str(own)


def _shown(folder: Path) -> str:
    """Return a folder as a user would type it here."""
    try:
        near = os.path.relpath(folder)
    except OSError:
        return str(folder)
    return str(folder) if near.startswith("..") else f"./{near}"
