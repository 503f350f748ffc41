"""Sources of settings: flags, the environment, choices made while the daemon ran, a file, the defaults.

Each name that is not a setting is refused with the one that was perhaps meant; a former name is accepted with a note.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batos.config import former
from batos.config.settings import SECTIONS, Settings, names
from batos.errors import ConfigError

_SHOWN = 200


def shown(given: Any) -> str:
    """Return a given value for an error text, cut at 200 characters."""
    text = repr(given)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def nearest(word: str, names: Iterable[str], prefix: str = "") -> str:
    """Return a half sentence with the name that was perhaps meant: ` (did you mean 'x'?)`, `prefix` before the x, or nothing."""
    import difflib  # imported late: only mistakes need it

    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f" (did you mean {prefix + lower[found[0]]!r}?)" if found else ""


ENV_PREFIX = "BATOS_"
CONFIG_NAME = "batos.toml"
CHOSEN_NAME = "chosen.toml"
"""File in the data folder with the choices that a user made while the daemon ran (`batos models use`). It overrides the settings file."""
_CHOSEN_HEAD = "# What was chosen while the daemon ran: `batos models use NAME`; `batos models use auto` takes it back."


def load(
    flags: dict[str, Any] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: dict[str, str] | None = None,
) -> Settings:
    """Return the settings in force.

    :param flags: values of the command line by name, with its section or former; `None` and `()` count as not given.
    :param config_file: a settings file that must exist. Without it `BATOS_CONFIG`, else `batos.toml` in the working folder or in the data
        folder, is read if it is there.
    :param environ: the environment; `os.environ` if left out.
    :raises ConfigError: for a setting that does not exist, or a value that it cannot have, with its source and what is allowed.
    """
    return load_with_sources(flags, config_file=config_file, environ=environ)[0]


def load_with_sources(
    flags: dict[str, Any] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: dict[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """Return the settings in force, as `load` does, and the source of each: `default`, `flag`, an environment variable or a file."""
    environ = dict(os.environ) if environ is None else environ
    given = _Given()
    given_flags = {k: v for k, v in (flags or {}).items() if v is not None and v != ()}
    data = given_flags.get("data") or environ.get(ENV_PREFIX + "DATA") or Settings.model_fields["data"].default
    path = _find_file(environ.get(ENV_PREFIX + "CONFIG") or None if config_file is None else config_file, _path(data))
    if path:
        given.take(_flat(_read_file(path), path), str(path))
    chosen_path = _path(data) / CHOSEN_NAME
    if chosen_path.is_file():
        given.take(_flat(_read_file(chosen_path), chosen_path), str(chosen_path), notes=False)  # the daemon writes this file, not the user
    given.take_variables(environ)
    given.take(given_flags, "flag")
    if not given.values.get("inference.host") and environ.get("OLLAMA_HOST"):
        given.values["inference.host"], given.sources["inference.host"] = environ["OLLAMA_HOST"], "OLLAMA_HOST"
    sources = {name: given.sources.get(name, "default") for name in (*names(), *given.former)}
    try:
        limits = former.limits_from(given.former)
    except former.WrongLimit as e:
        if not e.name:
            raise ConfigError(f"settings that cannot be together: {e.reason} ({_named(e.reason, sources)})") from None
        raise ConfigError(f"setting {e.name!r} (from {sources[e.name]}): {e.reason}; got {shown(given.former[e.name])}") from None
    try:
        return Settings.model_validate({**former.in_sections(given.values, SECTIONS), "limits": limits, "notes": given.notes}), sources
    except ValidationError as e:
        first = e.errors()[0]
        name = ".".join(str(part) for part in first["loc"][:2])
        name = name if name in sources else str(first["loc"][0])
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"setting {name!r} (from {sources.get(name, 'default')}): {why}; got {shown(first['input'])}") from None


class _Given:
    """Values gathered from one source after the other; a later source goes before an earlier one."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        """Values of settings by name, including the section."""
        self.former: dict[str, Any] = {}
        """Values of limits by the former name of their setting."""
        self.sources: dict[str, str] = {}
        self.notes: list[str] = []

    def take(self, values: Mapping[str, Any], source: str, *, notes: bool = True) -> None:
        """Take the values of a flag or a file over.

        :raises ConfigError: for a name that is not a setting.
        """
        known = names()
        for name, value in values.items():
            now = former.RENAMED.get(name, name)
            if now not in known and name not in former.LIMITS:
                where = "" if source == "flag" else f" in {source}"
                raise ConfigError(f"unknown setting {name!r}{where}{meant(name)}; `batos config` lists the settings")
            if name != now and now in values:  # the present name overrides the former one
                self._note(f"{name} (from {source}) has no effect, since its new name {now} is given too; take it out", notes)
                continue
            self._note(_former_note(name, source), notes)
            self._keep(now, value, source)

    def take_variables(self, environ: Mapping[str, str]) -> None:
        """Take the variables of the environment over; an empty one counts as not given."""
        now = {_variable(name): name for name in names()}
        then = {_variable(name): name for name in former.NAMES if _variable(name) not in now}
        for variable, name in then.items():
            if environ.get(variable):
                self._note(_former_note(name, variable, _variable), True)
                self._keep(former.RENAMED.get(name, name), environ[variable], variable)
        for variable, name in now.items():
            if environ.get(variable):
                self._keep(name, environ[variable], variable)

    def _keep(self, name: str, value: Any, source: str) -> None:
        (self.former if name in former.LIMITS else self.values)[name] = value
        self.sources[name] = source

    def _note(self, note: str, told: bool) -> None:
        if note and told:
            self.notes.append(note)


def _former_note(name: str, source: str, spelled: Callable[[str], str] = str) -> str:
    """Return a warning about a former name, or nothing for a name of today."""
    if name in former.RENAMED and former.RENAMED[name] != name:
        now = spelled(former.RENAMED[name])
        return f"{spelled(name)} (from {source}) is a former name of {now}; write {now}, since the next version refuses the former name"
    if name in former.LIMITS:
        return (
            f"{spelled(name)} (from {source}) is no longer a setting. This version still uses it, and the next one refuses it; "
            "take it out, or ask in an issue for a setting"
        )
    return ""


def _named(text: str, sources: Mapping[str, str]) -> str:
    """Return the sources of the former settings that a text names."""
    return ", ".join(f"{name} from {sources.get(name, 'default')}" for name in former.LIMITS if re.search(rf"\b{name}\b", text))


def _variable(name: str) -> str:
    return ENV_PREFIX + name.replace(".", "_").upper()


def meant(name: str) -> str:
    """Return a half sentence with the setting that was perhaps meant: ` (did you mean 'missions.queue'?)`, or nothing."""
    found = _likely(name)
    return f" (did you mean {found!r}?)" if found else ""


def _likely(name: str) -> str:
    """Return the name of the setting that a wrong name most likely means; empty if there is none."""
    import difflib  # imported late: only mistakes need it

    asked = name.lower().replace("-", "_").replace(".", "_")
    whole = {one.replace(".", "_"): one for one in names()}
    keys = {**{one.rpartition(".")[2]: one for one in reversed(names())}, **former.RENAMED}
    for known, word, cutoff in ((whole, asked, 0.8), (keys, name.lower().rpartition(".")[2], 0.6), (whole, asked, 0.6)):
        if found := difflib.get_close_matches(word, known, n=1, cutoff=cutoff):
            return known[found[0]]
    return ""


def _flat(values: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the values of a settings file by name with its section.

    :raises ConfigError: for a section that is written as a value.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": of for key, of in value.items()})
        elif name in SECTIONS and name not in former.RENAMED:
            raise ConfigError(f"{name!r} in {path} is a section, and not a setting; write [{name}] and its settings below it")
        else:
            found[name] = value
    return found


def choose(data: Path, chosen: Mapping[str, str | tuple[str, ...]]) -> None:
    """Keep the values that a user chose for settings while the daemon runs. They are durable when this returns.

    :param chosen: value by name with its section.
    :raises ConfigError: if the file cannot be read.
    :raises OSError: if it cannot be written.
    """
    path = data / CHOSEN_NAME
    kept = _flat(_read_file(path), path) if path.is_file() else {}
    lines = [_CHOSEN_HEAD, *(f"{name} = {json.dumps(of)}" for name, of in {**_named_now(kept), **_named_now(chosen)}.items())]
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _named_now(values: Mapping[str, Any]) -> dict[str, Any]:
    return {former.RENAMED.get(name, name): value for name, value in values.items()}


def unknown_variables(environ: dict[str, str] | None = None) -> list[str]:
    """Return the variables of the environment that look like settings and are none, each with the one that was perhaps meant."""
    known = {_variable(name) for name in (*names(), *former.NAMES, "config")}
    given = sorted(name for name in (os.environ if environ is None else environ) if name.startswith(ENV_PREFIX))
    unknown = [(name, _likely(name.removeprefix(ENV_PREFIX))) for name in given if name not in known]
    return [f"{name} (did you mean {_variable(likely)!r}?)" if likely else name for name, likely in unknown]


def _here() -> tuple[Path, ...]:
    """Return the working folder, or nothing if it was deleted under this process."""
    try:
        return (Path.cwd(),)
    except FileNotFoundError:
        return ()


def _path(named: str | os.PathLike[str]) -> Path:
    try:
        return Path(named).expanduser()
    except RuntimeError:  # unknown user: the check of the setting, or the opening of the file, reports it
        return Path(named)


def _find_file(named: str | os.PathLike[str] | None, data: Path) -> Path | None:
    if named == "":  # for example an unset shell variable: its value must not be dropped silently
        raise ConfigError("'' names no settings file; name one that exists, or leave --config out")
    if named:
        return _path(named)
    for folder in (*_here(), data):
        if (folder / CONFIG_NAME).is_file():
            return folder / CONFIG_NAME
    return None


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as f:
            return tomllib.load(f)
    except FileNotFoundError:
        raise ConfigError(f"no settings file {path}; name one that exists, or leave --config out") from None
    except OSError as e:
        raise ConfigError(f"cannot read the settings file {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"the settings file {path} is not valid TOML: {e}") from None
