"""Preflight: validate settings in combination before start-up. `run` refuses faulty ones; `config` and `doctor` report them without a
start.

The table of settings is in a layer below profiles, endpoints and keys; this module is above them, and asks them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from batos.config import Settings
from batos.errors import ConfigError, EndpointError


def check(settings: Settings) -> None:
    """See that nothing in the settings keeps a daemon from starting.

    :raises BatosError: with the first thing that does.
    """
    for _, look in _checks(settings):
        look()


def refusals(settings: Settings) -> Iterator[tuple[str, str]]:
    """Settings with which no daemon starts, each with why and what to do."""
    for name, look in _checks(settings):
        try:
            look()
        except (ConfigError, EndpointError) as e:
            yield name, e.message


def doubts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Settings with which one starts, but does less than is wanted; each with why and what to do."""
    from batos.image.backup_schedule import hindrance

    if (settings.backup_folder or settings.backups.exists()) and (why := hindrance(settings.backups)):
        yield "backup_folder", f"there are no backups: {why}"
    if settings.crash_limit >= settings.mission_attempts > 1:
        yield (
            "crash_limit",
            f"a mission that dies with a change of the system is FAILED after {settings.mission_attempts} deaths (mission_attempts), "
            f"and the change taken back after {settings.crash_limit}: it has no attempt without that; lower crash_limit, or raise "
            "mission_attempts",
        )


def _checks(settings: Settings) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the checks in the order of a start, each with its setting; a setting that is empty and optional is skipped."""
    from batos.bridge import selection
    from batos.bridge.client import connect  # late: not every verb asks
    from batos.bridge.profiles import AUTO, modelfiles_folder
    from batos.mind.codex import load_codex
    from batos.wire.endpoints import normalised
    from batos.wire.keys import load_pair

    for endpoint in settings.endpoints:
        yield "listen", partial(normalised, endpoint, guarded=bool(settings.curve_secret))
    if settings.console == "on":
        yield "console_listen", partial(_console, settings)
    yield "data", partial(_data, settings)
    if (settings.data / "catalogue.toml").is_file():
        yield "data", partial(_catalogue, settings)
    yield "codex", partial(load_codex, settings.codex or None)
    if settings.profile != AUTO:
        yield "profile", partial(selection.configured_profile, settings)
    if settings.model:
        yield "model", lambda: selection.check_personas(settings, load_codex(settings.codex or None).personas)
    if settings.image:
        yield "image", partial(_image, settings)
    yield "modelfiles", partial(modelfiles_folder, settings.modelfiles)
    for name, host in (("ollama_host", settings.ollama_host), *(("ollama_hosts", host) for host in settings.ollama_hosts)):
        if host:
            yield name, partial(connect, host)
    if settings.curve_secret:
        yield "curve_secret", partial(load_pair, Path(settings.curve_secret))
    if settings.metrics:
        yield "metrics", partial(_metrics, settings)


def _data(settings: Settings) -> None:
    there = next(one for one in (settings.data, *settings.data.parents) if os.path.exists(one))
    if not os.path.isdir(there):
        raise ConfigError(f"{there} is a file, not a folder; name another with --data")


def _catalogue(settings: Settings) -> None:
    from batos.bridge.catalogue import offers

    offers(settings.data)


def _console(settings: Settings) -> None:
    from batos.console.server import loopback

    loopback(settings.console_listen)


def _image(settings: Settings) -> None:
    from batos.image.storage import resolve

    resolve(settings.image_uri)


def _metrics(settings: Settings) -> None:
    from batos.metrics import loopback_address

    loopback_address(settings.metrics)
