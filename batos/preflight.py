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
    """Refuse settings that keep a daemon from starting.

    :raises BatosError: for the first setting that does.
    """
    for _, look in _checks(settings):
        look()


def refusals(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting that keeps a daemon from starting, with the reason and the remedy."""
    for name, look in _checks(settings):
        try:
            look()
        except (ConfigError, EndpointError) as e:
            yield name, e.message


def doubts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield each setting with which a daemon starts but does less than is wanted, with the reason and the remedy."""
    from batos.autotelic.rollback_monitor import EffectLimits  # imported late: few verbs check it
    from batos.image.backup_schedule import hindrance

    if (settings.backup.folder or settings.backups.exists()) and (why := hindrance(settings.backups)):
        yield "backup.folder", f"no backups are made: {why}"
    attempts, deaths = settings.missions.attempts, EffectLimits.of(settings).deaths
    if deaths >= attempts > 1:
        yield (
            "missions.attempts",
            f"a mission that dies with a change of the system is FAILED after {attempts} deaths, and the change is taken back after "
            f"{deaths}. No attempt is left to the mission without the change; raise missions.attempts above {deaths}",
        )


def _checks(settings: Settings) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the checks in the order of a start, each with its setting; a setting that is empty and optional is skipped."""
    from batos.bridge import selection
    from batos.bridge.client import connect  # imported late: few verbs check it
    from batos.bridge.profiles import AUTO, modelfiles_folder
    from batos.doors.server import check_pages, web_address
    from batos.mind.codex import load_codex
    from batos.wire.endpoints import normalised
    from batos.wire.keys import load_pair

    inference, wire, codex = settings.inference, settings.wire, settings.missions.codex or None
    for endpoint in settings.endpoints:
        yield "wire.listen", partial(normalised, endpoint, guarded=bool(wire.secret_key))
    yield "console.enabled", partial(check_pages, settings)
    for setting in ("doors.listen", "console.listen"):
        yield setting, partial(web_address, settings, setting)
    yield "data", partial(_data, settings)
    if (settings.data / "catalogue.toml").is_file():
        yield "data", partial(_catalogue, settings)
    yield "missions.codex", partial(load_codex, codex)
    if inference.profile != AUTO:
        yield "inference.profile", partial(selection.configured_profile, settings)
    if inference.model:
        yield "inference.model", lambda: selection.check_personas(settings, load_codex(codex).personas)
    if settings.image.uri:
        yield "image.uri", partial(_image, settings)
    yield "inference.modelfiles", partial(modelfiles_folder, inference.modelfiles)
    for name, host in (("inference.host", inference.host), *(("inference.hosts", host) for host in inference.hosts)):
        if host:
            yield name, partial(connect, host)
    if wire.secret_key:
        yield "wire.secret_key", partial(load_pair, Path(wire.secret_key))
    if wire.metrics:
        yield "wire.metrics", partial(_metrics, settings)


def _data(settings: Settings) -> None:
    there = next(one for one in (settings.data, *settings.data.parents) if os.path.exists(one))
    if not os.path.isdir(there):
        raise ConfigError(f"{there} is a file, not a folder; name another with --data")


def _catalogue(settings: Settings) -> None:
    from batos.bridge.catalogue import offers

    offers(settings.data)


def _image(settings: Settings) -> None:
    from batos.image.storage import resolve

    resolve(settings.image_uri)


def _metrics(settings: Settings) -> None:
    from batos.metrics import loopback_address

    loopback_address(settings.wire.metrics)
