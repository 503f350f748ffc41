"""`batos` alone: what the daemon does, live on a terminal; where there is none, once and plainly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from batos.cli.app import Connect, Json, app, check_reachable, endpoint, run_async
from batos.cli.asking import client_of
from batos.cli.output import Output
from batos.cli.panels import Panels, summary
from batos.config import load
from batos.errors import BatosError, DaemonUnavailable
from batos.wire import Client

SHOWN_MISSIONS = 50  # that are asked for; what fits is shown
WINDOW_S = 30.0  # over which tokens a second are taken


@app.command()
def dashboard(
    once: Annotated[bool, typer.Option("--once", help="Say it once, plainly, also on a terminal.")] = False,
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Show what the daemon does, live: missions, personas, tokens a second, models, image. Arrows select a mission, Enter reads it, q
    leaves. `batos` alone is this."""
    output, address = Output(as_json), endpoint(connect)
    check_reachable(address)
    if once or as_json or not output.console.is_terminal:
        seen = run_async(_once(address))
        if as_json:
            output.document({"type": "dashboard", **seen})
        else:
            summary(seen, output)
        return
    with contextlib.suppress(KeyboardInterrupt):
        run_async(_live(address, output))


class Speed:
    """Tokens of answers a second, over the last `WINDOW_S` of what was seen."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, now: float, tokens: int) -> float | None:
        """The speed as of now; None while too little was seen.

        :param now: seconds of a clock that never goes back.
        :param tokens: of all answers ever.
        """
        if self._seen and tokens < self._seen[-1][1]:  # another daemon, or another image
            self._seen.clear()
        self._seen.append((now, tokens))
        while now - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        begun, before = self._seen[0]
        return (tokens - before) / (now - begun) if now > begun else None


async def _once(address: str) -> dict[str, Any]:
    async with client_of(address) as client:
        return await look(client)


async def look(client: Client) -> dict[str, Any]:
    """What there is to show: `info`, and `missions`, those under way first and with their personas; the system's own are left out."""
    info = await client.info()
    under_way = info.get("missions", {}).get("under_way", ())[:SHOWN_MISSIONS]
    live = [status for id in under_way if (status := await client.status(id)).get("origin") != "system"]
    listed = (await client.missions(limit=SHOWN_MISSIONS, system=False))["missions"]
    return {"info": info, "missions": live + [mission for mission in listed if mission["id"] not in under_way]}


async def _live(address: str, output: Output) -> None:
    from rich.live import Live

    panels, speed, pause_s = Panels(address), Speed(), load().dashboard_s
    pressed: asyncio.Queue[str] = asyncio.Queue()
    with _keys(pressed), Live(panels, console=output.console, screen=True, auto_refresh=False) as live:
        async with client_of(address) as client:
            while True:
                try:
                    panels.seen = await look(client)
                    if panels.reading is not None:
                        panels.reading = await client.status(str(panels.reading["id"]))
                    panels.away = ""
                    costs = panels.seen["info"].get("costs", {})
                    panels.tokens_s = speed.take(time.monotonic(), costs.get("answer_tokens", 0))
                except DaemonUnavailable as e:
                    panels.away = e.message
                except BatosError as e:  # busy, or a mission that was taken out between two questions: look again
                    panels.away = f"{e.code}: {e.message}"
                live.refresh()
                if not await _heeded(pressed, panels, live.refresh, pause_s):
                    return


async def _heeded(pressed: asyncio.Queue[str], panels: Panels, redraw: Callable[[], None], pause_s: float) -> bool:
    """Heed what is pressed until there is something to be looked at anew; whether it goes on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            while True:
                match panels.press(await pressed.get()):
                    case "leave":
                        return False
                    case "read":  # at once, and not at the next look
                        return True
                redraw()
    return True


def keys_of(read: bytes) -> list[str]:
    """What was pressed, by the bytes that a terminal sends: `up`, `down`, `enter`, `back`, `q` ...; others are left out."""
    found, text = [], read.decode("ascii", "ignore")
    while text:
        known = next((sent for sent in _SENT if text.startswith(sent)), text[0])
        if known in _SENT:
            found.append(_SENT[known])
        text = text[len(known) :]
    return found


_SENT = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down", "\x1b[5~": "page up",
    "\x1b[6~": "page down", " ": "page down", "\r": "enter", "\n": "enter", "\x1b[C": "enter", "\x1b[D": "back", "\x1b": "back",
    "\x7f": "back", "q": "q", "Q": "q",
}  # fmt: skip
"""What a terminal sends for a key; longer ones first where one begins another."""


@contextlib.contextmanager
def _keys(pressed: asyncio.Queue[str]) -> Iterator[None]:
    """Keys are heard one by one, and not shown, while the block lasts."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()

    def heard() -> None:
        read = os.read(descriptor, 64)
        for key in keys_of(read) if read else ["gone"]:
            pressed.put_nowait(key)
        if not read:
            loop.remove_reader(descriptor)

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, heard)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
