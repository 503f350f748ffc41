"""The daemon as a process: start, signals, status for the service manager, and an end in good order or at once.

SIGTERM and SIGINT end the daemon: missions under way get `daemon.shutdown_s`; a second signal cuts that short. SIGHUP makes the daemon
read its settings again. In a daemon started from a terminal, SIGHUP means that the terminal was closed, and ends the daemon. If the
loop stalls, it handles no signals, and the watchdog ends the daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from batos import logs
from batos.api.administration import REPORT_WAIT_S
from batos.app.kernel import Kernel
from batos.concurrency import cancel_and_wait
from batos.config import Settings, supervision
from batos.errors import EXIT_IMAGE_FAILED, BatosError, ImageFailed
from batos.resources import one_arena
from batos.supervision import StallLimits, Supervisor, Watchdog

log = structlog.get_logger("batos")

# seconds of extra start time; the daemon asks the service manager for them repeatedly while it opens and recovers the image
_EXTENDED_S = 30.0
_STATUS_S = 10.0  # seconds between two status lines
_BEATS = 3  # beats within the watchdog's time: two may be lost
# new objects between two collections; a hundred requests exceed Python's default of 700, and each was scanned many times
_COLLECTED_AFTER = 2000


def calm_collector() -> None:
    """Freeze the loaded objects for the garbage collector: they stay, and scanning them stops the loop for 30 to 60 ms. Make it collect
    new objects less often.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)


async def run(settings: Settings, on_started: Callable[[Kernel], None] | None = None, reload: Callable[[], Settings] | None = None) -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT.

    :param on_started: called once missions are accepted and the state of the models is known, or a little later.
    :param reload: reads the settings again; without it SIGHUP ends the daemon.

    The process ends at once, with `EXIT_IMAGE_FAILED`, if the storage failed for good. It ends with `EXIT_STALLED` if the loop has stalled
    for `StallLimits.stall_s`, once the image is recovered: before that it may take the time it needs.
    :raises BatosError: if it cannot start.
    """
    surroundings = supervision()
    logs.configure(settings.daemon.log_level, settings.daemon.log_format, journal=surroundings.journal)
    _warn(settings)
    supervisor = Supervisor(surroundings)
    one_arena()
    stopping = asyncio.Event()
    kernel: Kernel | None = None
    changed = False  # before the kernel exists: the kernel may have read the old settings already

    def stop() -> None:
        if kernel is not None and stopping.is_set():
            kernel.scheduler.hurry()
        stopping.set()

    def hang_up() -> None:
        nonlocal changed
        if reload is None or (sys.stdin is not None and sys.stdin.isatty()):
            stop()
        elif kernel is None:
            changed = True
        else:
            _reload(kernel, reload, supervisor)

    loop = asyncio.get_running_loop()
    heard = {signal.SIGTERM: stop, signal.SIGINT: stop}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # else nohup(1) has set it to be ignored
        heard[signal.SIGHUP] = hang_up
    for number, hear in heard.items():
        loop.add_signal_handler(number, hear)
    stop_asked = asyncio.create_task(stopping.wait())
    with contextlib.ExitStack() as stack:
        watch = Watchdog(StallLimits.of(settings).stall_s).over(loop)
        # Begin before any mission runs: a resumed mission may stall the loop in its first turn.
        kernel = await _started(Kernel.start(settings, on_recovered=lambda: stack.enter_context(watch)), stop_asked, supervisor)
        if kernel is not None:
            if changed and reload is not None:
                _reload(kernel, reload, supervisor)
            calm_collector()
            await _run(kernel, supervisor, stop_asked, on_started)


async def _run(kernel: Kernel, supervisor: Supervisor, stop_asked: asyncio.Task[bool], on_started: Callable[[Kernel], None] | None) -> None:
    """Run a daemon that has started, up to its end."""
    supervisor.ready(_status(kernel))
    beating = asyncio.create_task(_beat(kernel, supervisor), name="beats to the service manager")
    try:
        await _until_asked(kernel, stop_asked, on_started)
    except ImageFailed as e:
        # Write nothing more, not even for an orderly end: recovery decides what the disk holds.
        log.critical("image_failed", error=str(e))
        os._exit(EXIT_IMAGE_FAILED)
    finally:
        stop_asked.cancel()
        supervisor.stopping()
        await kernel.stop()
        await cancel_and_wait(beating)


async def _until_asked(kernel: Kernel, stop_asked: asyncio.Task[bool], on_started: Callable[[Kernel], None] | None) -> None:
    """Return when the daemon is to end.

    :raises BatosSignal: if the storage failed for good.
    """
    ended = asyncio.create_task(kernel.ended())
    if on_started is not None:
        settled = asyncio.create_task(kernel.models_settled())
        await asyncio.wait([settled, stop_asked, ended], timeout=REPORT_WAIT_S, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if not ended.done():
            on_started(kernel)
    await asyncio.wait([ended, stop_asked], return_when=asyncio.FIRST_COMPLETED)
    if ended.done():
        ended.result()
    ended.cancel()


async def _started(start: Coroutine[Any, Any, Kernel], stop_asked: asyncio.Task[bool], supervisor: Supervisor) -> Kernel | None:
    """Start a kernel that lets missions in; return None if it was stopped before. The service manager is asked for time meanwhile."""
    starting = asyncio.create_task(start)
    while not (starting.done() or stop_asked.done()):
        supervisor.starting_for(_EXTENDED_S)
        await asyncio.wait([starting, stop_asked], timeout=_EXTENDED_S / _BEATS, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        supervisor.stopping()
        await cancel_and_wait(starting)
        return None
    return starting.result()


async def _beat(kernel: Kernel, supervisor: Supervisor) -> None:
    """Report regularly to the service manager that the loop turns, with a status line."""
    pause_s = min(_STATUS_S, supervisor.watchdog_s / _BEATS) if supervisor.watchdog_s else _STATUS_S
    while True:
        supervisor.alive(_status(kernel))
        await asyncio.sleep(pause_s)


def _warn(settings: Settings) -> None:
    """Log each name of a setting that the next version does not accept."""
    for note in settings.notes:
        log.warning("setting_renamed", note=note)


def _reload(kernel: Kernel, read: Callable[[], Settings], supervisor: Supervisor) -> None:
    """Read the settings again. If any is invalid, log that and keep the present settings."""
    supervisor.reloading()
    try:
        settings = read()
        done = kernel.reload(settings)
    except BatosError as e:
        log.error("reload_failed", code=e.code, error=e.message)
        supervisor.ready(f"settings not reloaded: {e.message}")
        return
    _warn(settings)
    waiting = f"; a restart is needed for {', '.join(done['restart'])}" if done["restart"] else ""
    supervisor.ready(f"{_status(kernel)}{waiting}")


def _status(kernel: Kernel) -> str:
    facts = kernel.scheduler.facts()
    return f"{facts['running']} missions under way, {facts['queued']} waiting; {', '.join(kernel.endpoints)}"
