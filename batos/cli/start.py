"""Start of the daemon from a command line without typer and rich, which a daemon would keep in memory for months (5 MB).

`batos run` as typer knows it has the same options. It serves whatever `flags_of` does not read: `--help`, `--supervise`, and wrong usage,
for which it has the message.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from batos.cli.output import Output, clean, size
from batos.cli.settings import meant_folder, settings_from
from batos.cli.streams import discard_output
from batos.config import Settings, supervision
from batos.errors import OutputFailed

CONSOLE_ON = "console.enabled=on"
"""The setting that the flag --console stands for."""


@dataclass(frozen=True)
class StartFlags:
    """Options of `batos run`, as given."""

    data: str | None = None
    image: str | None = None
    listen: Sequence[str] = ()
    profile: str | None = None
    model: Sequence[str] = ()
    config: str | None = None
    set: Sequence[str] = ()
    as_json: bool = False

    def with_folder(self) -> StartFlags:
        """Return these flags with the data folder that is meant where none is named. The user may be asked."""
        return replace(
            self, data=meant_folder(self.data, Output(self.as_json), image=self.image, config_file=self.config, more=list(self.set))
        )

    def settings(self) -> Settings:
        """Read the settings in force.

        :raises ConfigError: for a setting that does not exist or a value that it cannot have.
        """
        return settings_from(self.data, self.image, list(self.listen), self.profile, self.config, list(self.set), list(self.model))[0]

    def words(self) -> list[str]:
        """Return these flags as words of a command line."""
        single = {"--data": self.data, "--image": self.image, "--profile": self.profile, "--config": self.config}
        several = {"--listen": self.listen, "--model": self.model, "--set": self.set}
        pairs = [(flag, value) for flag, value in single.items() if value is not None]
        pairs += [(flag, value) for flag, values in several.items() for value in values]
        return [*(word for pair in pairs for word in pair), *(["--json"] if self.as_json else [])]


def flags_of(words: Sequence[str]) -> StartFlags | None:
    """Read the words after `run`. Return None for a word that only the whole command line understands."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--data", "--image", "--profile", "--config"):
        parser.add_argument(flag)
    for flag in ("--listen", "--model", "--set"):
        parser.add_argument(flag, action="append", default=[])
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--console", action="store_const", const=CONSOLE_ON, dest="set_console")
    try:
        found, rest = parser.parse_known_args(list(words))
    except argparse.ArgumentError:
        return None
    if rest:
        return None
    given = vars(found)
    console = given.pop("set_console")
    given["set"] += [console] if console else []
    return StartFlags(**given)


def start(flags: StartFlags) -> None:
    """Run the daemon in the foreground until it is asked to end.

    :raises BatosError: if it cannot start.
    """
    flags = flags.with_folder()
    output = Output(flags.as_json)

    from batos import daemon  # imported late: a wrong flag is told at once
    from batos.app import kernel

    def started(daemon: kernel.Kernel) -> None:
        try:
            if flags.as_json:
                output.event({"type": "started", **daemon.info()})
            elif not supervision().journal:  # under systemd the log reports it, and only the log may appear there
                report(daemon.info(), output, daemon.console.link if daemon.console else "")
        except (BrokenPipeError, OutputFailed) as e:  # a closed pipe or a full disk must not keep the daemon from serving
            discard_output()
            output.note(f"its state cannot be announced: {e}")

    asyncio.run(daemon.run(flags.settings(), on_started=started, reload=flags.settings))


def report(info: dict[str, Any], output: Output, link: str = "") -> None:
    """Print the parts of a started daemon: image, personas, models, endpoint, profile.

    :param link: the link to the console with its token: shown on a terminal only, since a log could keep it.
    """
    image, served, missions = info.get("image", {}), info.get("ollama", {}), info.get("missions", {})
    models = [f"{model['name']} {model['state']}" for model in info.get("models", ())]
    waiting = missions.get("queued", 0) + missions.get("running", 0)
    title = f"BAT OS {info['version']}, process {info['pid']}"
    pairs = [
        ("image", f"{image.get('uri')}, {image.get('objects')} objects, {size(image.get('bytes', 0))}"),
        ("missions", f"{image.get('accepted', 0)} so far{f', {waiting} go on now' if waiting else ''}"),
        ("personas", ", ".join(info.get("personas", ()))),
        ("profile", info.get("profile", "")),
        *([("model", f"{info['model']}: {info.get('why_model', '')}")] if info.get("model") else ()),
        ("ollama", f"{served.get('version')} at {served.get('host')} ({served.get('state')})"),
        ("models", ", ".join(models)),
        ("endpoint", ", ".join(info.get("endpoints", ()))),
        *([("console", link if output.is_terminal else f"{info['console']} (`batos console` prints the link)")] if link else ()),
    ]
    hint = 'Give it a mission: batos send "..." --watch     Ctrl-C stops it; no mission is lost.'
    if output.is_terminal:
        output.say(title, "bold")
        output.pairs(pairs)
        output.say(hint, "dim")
    else:  # without rich, which would stay in memory
        width = max(len(name) for name, _ in pairs)
        print(*(clean(line) for line in (title, *(f"{name:{width}}  {value}".rstrip() for name, value in pairs), hint)), sep="\n")
    sys.stdout.flush()
