"""Gists: what sections of the memory say, in a model's words; asked for by the curator as a mission of the system's own.

As a mission it goes after those of users, is journaled, and is paid for once: the curator asks under an id made of what it asks about,
and a daemon that was killed in between finds the answer. What it says is kept with the summary, and taken out of the mission then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from batos.config import Settings
from batos.errors import BatosError, InvalidInput
from batos.image import ledger
from batos.image.genesis import add_missing
from batos.mind.events import Event, Events
from batos.mind.summarising import in_few_words
from batos.objects import Primitive, UvmObject

if TYPE_CHECKING:
    from batos.memory.curator import Gist  # it brings numpy

log = structlog.get_logger("batos.mind")


class Submits(Protocol):
    """The scheduler of missions (`batos.mind.scheduler.Scheduler`), as it is needed here."""

    settings: Settings

    async def submit(self, id: str, brief: str, options: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Accept a mission."""


def install(lobby: UvmObject) -> None:
    """The step of genesis that lets the memory say what sections of it hold."""
    add_missing(lobby.memory, gist_=Primitive.of(gist_))


@Primitive.register("memory.gist_")
async def gist_(memory: UvmObject, sections: Sequence[int], sentences: int = 3) -> str:
    """What some sections say, by the persona that the prototype of summaries names.

    :param sections: their numbers; those that are gone are left out.
    :raises InvalidInput: if none of them is there.
    """
    library = memory.library
    there = [number for number in sections if number in library.sections]
    if not there:
        raise InvalidInput("none of these sections is in the memory")
    return await in_few_words(memory, [library.text_of(library.section(number)) for number in there], sentences)


def asking(scheduler: Submits, events: Events) -> Callable[[str, Sequence[int], int], Awaitable[Gist]]:
    """What the curator asks by.

    :returns: takes an id, numbers of sections, and sentences; answers a Gist, a blank one if none is to be had.
    """

    from batos.memory.curator import Gist  # late: it brings numpy

    async def ask(id: str, sections: Sequence[int], sentences: int) -> Gist:
        ended: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        stop = events.watch(id, lambda event: None if event["type"] != "result" or ended.done() else ended.set_result(event))
        message = {"target": "memory", "selector": "gist_", "args": [list(sections), sentences], "kwargs": {}}
        options = {"origin": "system", "message": json.dumps(message)}
        try:
            _, record = await scheduler.submit(id, f"what {len(sections)} sections of the memory say", options)
            if record["state"] not in ledger.FINAL:
                async with asyncio.timeout(2 * scheduler.settings.mission_deadline_s):  # somebody may have paused it
                    record = await ended
        except (TimeoutError, BatosError) as e:
            log.warning("no_gist", mission=id, error=str(e) or "it took too long")
            return Gist()
        finally:
            stop()
        result = record.get("result") or {}
        usage = result.get("usage") or {}
        tokens = int(usage.get("prompt_tokens") or 0) + int(usage.get("answer_tokens") or 0)
        return Gist(str(result.get("text") or ""), tokens, id)

    return ask
