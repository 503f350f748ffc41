"""The daemon as a process: it starts, hears signals, and ends in good order or at once."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable

import structlog

from batos import logs
from batos.config import Settings
from batos.errors import ImageFailed
from batos.kernel import REPORT_WAIT_S, Kernel

log = structlog.get_logger("batos")

EXIT_IMAGE_FAILED = 70  # EX_SOFTWARE of sysexits.h


_COLLECTED_AFTER = 2000  # new objects; a hundred requests under way are more than Python's 700, and each was looked through many times


def calm_collector() -> None:
    """Have the garbage collector leave alone what is loaded now, since it stays: to look through all of it stops the loop for 30 to
    60 ms. And have it look at what is new less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_AFTER)


async def run(settings: Settings, on_started: Callable[[Kernel], None] | None = None) -> None:
    """Run the daemon in the foreground until SIGTERM or SIGINT.

    :param on_started: called once missions are let in and it is known how it stands with the models, or a little later.
    The process ends at once, with code 70, if the storage failed for good.

    :raises BatosError: if it cannot start.
    """
    logs.configure(settings.log_level, settings.log_format)
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: kernel.scheduler.hurry() if kernel is not None and stopping.is_set() else stopping.set())
    kernel: Kernel | None = None
    starting = asyncio.create_task(Kernel.start(settings))
    stop_asked = asyncio.create_task(stopping.wait())
    await asyncio.wait([starting, stop_asked], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        return
    kernel = starting.result()
    calm_collector()
    ended = asyncio.create_task(kernel.ended())
    try:
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
    except ImageFailed as e:
        # Nothing may be written any more, not even in good order: what the disk holds is decided by recovery.
        log.critical("image_failed", error=str(e))
        os._exit(EXIT_IMAGE_FAILED)
    finally:
        stop_asked.cancel()
        await kernel.stop()
