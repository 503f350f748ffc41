"""Where the values of settings come from: flags, the environment, what was chosen while the daemon ran, a file, the defaults.

What was given, and the name that was meant.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batos.config.settings import Settings
from batos.errors import ConfigError

_SHOWN = 200


def shown(given: Any) -> str:
    """What somebody gave, as an error tells it: somebody may have given a megabyte."""
    text = repr(given)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def nearest(word: str, names: Iterable[str], prefix: str = "") -> str:
    """A helping half sentence for a name that does not exist: ` (did you mean 'x'?)`, `prefix` before the x, or nothing."""
    import difflib  # late: only mistakes need it

    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return f" (did you mean {prefix + lower[found[0]]!r}?)" if found else ""


ENV_PREFIX = "BATOS_"
CONFIG_NAME = "batos.toml"
CHOSEN_NAME = "chosen.toml"
"""The file in the data folder of what a user chose while the daemon ran (`batos models use`): it goes before the settings file."""
_CHOSEN_HEAD = "# What was chosen while the daemon ran: `batos models use NAME`; `batos models use auto` takes it back."


def load(
    flags: dict[str, Any] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: dict[str, str] | None = None,
) -> Settings:
    """The settings in force.

    :param flags: values given on the command line; `None` values count as not given.
    :param config_file: a settings file that must exist; without it `BATOS_CONFIG`, else `batos.toml` in the working
        folder or in the data folder, is read if it is there.
    :param environ: the environment; `os.environ` if left out.
    :raises ConfigError: naming the setting, the place it came from, and what it may be.
    """
    return load_with_sources(flags, config_file=config_file, environ=environ)[0]


def load_with_sources(
    flags: dict[str, Any] | None = None,
    *,
    config_file: str | os.PathLike[str] | None = None,
    environ: dict[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """As `load`, with the source of every setting: `default`, `flag`, an environment variable or a file."""
    environ = dict(os.environ) if environ is None else environ
    given_flags = {k: v for k, v in (flags or {}).items() if v is not None and v != ()}
    env_values, env_sources = _from_environ(environ)
    data = given_flags.get("data") or env_values.get("data") or Settings.model_fields["data"].default
    path = _find_file(environ.get(ENV_PREFIX + "CONFIG") or None if config_file is None else config_file, _path(data))
    chosen_path = _path(data) / CHOSEN_NAME
    chosen = _read_file(chosen_path) if chosen_path.is_file() else {}
    file_values = {**(_read_file(path) if path else {}), **chosen}
    values = {**file_values, **env_values, **given_flags}
    file_sources = {**dict.fromkeys(file_values, str(path)), **dict.fromkeys(chosen, str(chosen_path))}
    sources = {
        name: "flag" if name in given_flags else env_sources.get(name) or file_sources.get(name, "default")
        for name in Settings.model_fields
    }
    if not values.get("ollama_host") and environ.get("OLLAMA_HOST"):
        values["ollama_host"], sources["ollama_host"] = environ["OLLAMA_HOST"], "OLLAMA_HOST"
    unknown = sorted(set(values) - set(Settings.model_fields))
    if unknown:
        hint = nearest(unknown[0], Settings.model_fields)
        raise ConfigError(
            f"unknown setting {unknown[0]!r} in {file_sources.get(unknown[0], path)}{hint}; `batos config` lists the settings"
        )
    try:
        return Settings(**values), sources
    except ValidationError as e:
        first = e.errors()[0]
        if not first["loc"]:  # of several together, which it names with their values
            named = [f"{name} from {sources[name]}" for name in Settings.model_fields if re.search(rf"\b{name}\b", first["msg"])]
            raise ConfigError(f"settings that cannot be together: {first['ctx']['error']} ({', '.join(named)})") from None
        name = str(first["loc"][0])
        why = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"setting {name!r} (from {sources.get(name, 'default')}): {why}; got {shown(first['input'])}") from None


def choose(data: Path, chosen: Mapping[str, str | tuple[str, ...]]) -> None:
    """Keep what a user chose for settings while the daemon runs; durable when this returns.

    :raises ConfigError: where the file cannot be read.
    :raises OSError: where it cannot be written.
    """
    path = data / CHOSEN_NAME
    kept = {**(_read_file(path) if path.is_file() else {}), **chosen}
    lines = [_CHOSEN_HEAD, *(f"{key} = {json.dumps(of)}" for key, of in kept.items())]
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def unknown_variables(environ: dict[str, str] | None = None) -> list[str]:
    """Variables of the environment that look like settings and are none, each with the nearest name; they have no effect."""
    known = [name.upper() for name in Settings.model_fields]
    given = [name.removeprefix(ENV_PREFIX) for name in (os.environ if environ is None else environ) if name.startswith(ENV_PREFIX)]
    return [ENV_PREFIX + name + nearest(name, known, ENV_PREFIX) for name in sorted(given) if name not in (*known, "CONFIG")]


def _from_environ(environ: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    names = {ENV_PREFIX + name.upper(): name for name in Settings.model_fields}
    values = {name: environ[key] for key, name in names.items() if environ.get(key)}
    return dict(values), {name: key for key, name in names.items() if name in values}


def _here() -> tuple[Path, ...]:
    """The working folder; none where it was deleted under this process."""
    try:
        return (Path.cwd(),)
    except FileNotFoundError:
        return ()


def _path(named: str | os.PathLike[str]) -> Path:
    try:
        return Path(named).expanduser()
    except RuntimeError:  # there is no such user: whoever checks the setting, or opens the file, says so
        return Path(named)


def _find_file(named: str | os.PathLike[str] | None, data: Path) -> Path | None:
    if named == "":  # a shell variable that is not set, say: what it was to say must not be left out silently
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
        raise ConfigError(f"the settings file {path} is no valid TOML: {e}") from None
