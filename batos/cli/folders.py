"""Which data folder is meant, where none is named: the user's own, unless an earlier version of `make run` kept the image in the checkout.

`make run`, `batos run`, `doctor` and `service` mean one folder. Whoever has an image in another one is asked, on a terminal, or told.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from batos.cli.app import settings_from
from batos.cli.output import Output
from batos.config import Settings

IMAGE = "live_image.fs"
_OF_CHECKOUT = "var"


def meant(
    data: str | None, output: Output, *, image: str | None = None, config_file: str | None = None, more: list[str] | None = None
) -> str | None:
    """The flag --data as it was given, or as it is meant where it was not: see `chosen`."""
    if data is not None:
        return data
    settings, sources = settings_from(None, image, None, None, config_file, more)
    return chosen(settings, sources, output)


def other_images(settings: Settings, sources: Mapping[str, str]) -> list[Path]:
    """Data folders with an image, of this checkout, that would not be used, since nothing names a folder."""
    if any(sources[name] != "default" for name in ("data", "image")):
        return []
    try:
        here = [Path.cwd()]
    except FileNotFoundError:  # it was deleted under this process
        here = []
    found = dict.fromkeys((folder / _OF_CHECKOUT).resolve() for folder in (*here, Path(__file__).parents[2]))
    return [folder for folder in found if folder != settings.data.resolve() and (folder / IMAGE).is_file()]


def chosen(
    settings: Settings, sources: Mapping[str, str], output: Output, ask: Callable[[str], str] = input, *, terminal: bool | None = None
) -> str | None:
    """The data folder that is to be named, where there is a doubt and somebody to ask; None where it stays as it is.

    :param ask: shows a question, and answers what was said to it.
    :param terminal: whether there is somebody to ask; found out, if left out.
    """
    others = other_images(settings, sources)
    if not others:
        return None
    other, own = others[0], settings.data
    if (own / IMAGE).is_file():
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
    """A folder as somebody would type it here."""
    try:
        near = os.path.relpath(folder)
    except OSError:
        return str(folder)
    return str(folder) if near.startswith("..") else f"./{near}"
