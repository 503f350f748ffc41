"""The dashboard of `batos` without a verb, live on a terminal; and the verbs `info` and `metrics`.

If there is no terminal, it prints once and plainly. Tables stand side by side on a wide terminal, below each other on a narrow one. `info`
prints the daemon's facts, a line a fact. `metrics` prints its counters; Prometheus reads the same from the setting `wire.metrics`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from batos.cli.app import Connect, Json, app, check_reachable, endpoint, run_async
from batos.cli.client import ask, client_of
from batos.cli.mission_view import STATE_STYLES, cost, doubts, sources
from batos.cli.objects import value_of_cell
from batos.cli.output import Output, ago, clean, one_line, size
from batos.config import load
from batos.config.limits import Limits, limit
from batos.errors import BatosError, DaemonUnavailable
from batos.wire import Client

WIDE = 100  # width in columns from which the panels stand in two columns
_FACTS = 46  # width of the right column
_UNDER_WAY = ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")


@dataclass(frozen=True, slots=True)
class DashboardLimits(Limits):
    """Limits of the dashboard."""

    every_s: float = limit(1.0, ge=0.1, le=60)
    """Seconds between two updates of the dashboard."""


class Panels:
    """Panels with the latest data, laid out for the current width of the terminal."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen: dict[str, Any] = {}
        self.tokens_s: float | None = None
        self.away = ""  # the reason for showing old data; empty while the data are fresh
        self.selected = ""  # id of the selected mission
        self.reading: dict[str, Any] | None = None  # the mission on display, as `status` describes it
        self._line = 0  # its first visible line
        self._page = 1  # visible lines at a time

    def press(self, key: str) -> str:
        """Heed a key: `read` where the mission that is read has to be asked for, `leave`, or nothing to do but to draw anew."""
        if key == "gone" or (key == "q" and self.reading is None):
            return "leave"
        step = {"up": -1, "down": 1, "page up": -self._page, "page down": self._page}.get(key, 0)
        if self.reading is not None:
            if key in ("back", "q"):
                self.reading = None
            self._line = max(0, self._line + step)
            return ""
        ids = [str(one["id"]) for one in self.seen.get("missions", ())]
        if step and ids:
            at = ids.index(self.selected) + step if self.selected in ids else 0
            self.selected = ids[min(len(ids) - 1, max(0, at))]
        if key == "enter" and ids:
            self.selected = self.selected if self.selected in ids else ids[0]
            self.reading = next(one for one in self.seen["missions"] if one["id"] == self.selected)
            self._line = 0
            return "read"
        return ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width, height = options.max_width, options.height or console.height
        yield self._head(width)
        if self.reading is not None:
            yield self._reader(self.reading, console, width, height - 3)
            yield Text("arrows scroll, Esc goes back", style="dim", end="")
            return
        if self.seen:
            facts = Panel(_pairs(facts_of(self.seen, self.tokens_s)), title="now", border_style="dim")
            who = Panel(_pairs(personas_of(self.seen)), title="personas", border_style="dim")
            if width >= WIDE:
                grid = Table.grid(expand=True)
                grid.add_column(ratio=1)
                grid.add_column(width=_FACTS)
                grid.add_row(self._missions(width - _FACTS, height - 3), Group(facts, who))
                yield grid
            else:
                taken = len(facts_of(self.seen, self.tokens_s)) + len(personas_of(self.seen)) + 7
                yield from (self._missions(width, max(5, height - taken)), facts, who)
        more = "; the daemon goes on" if width >= WIDE else ""
        yield Text(f"arrows select, Enter reads, q leaves{more}", style="dim", end="")

    def _reader(self, mission: dict[str, Any], console: Console, width: int, height: int) -> Panel:
        """Return the panel with a mission's brief and answer, from the line scrolled to."""
        self._page = max(1, height - 2)
        lines = [line for text in told_of(mission) for line in text.wrap(console, max(10, width - 4))]
        self._line = min(self._line, max(0, len(lines) - self._page))
        shown = lines[self._line : self._line + self._page]
        more = len(lines) - self._line - len(shown)
        below = f"{more} more lines" if more > 0 else None
        return Panel(Text("\n").join(shown), title=clean(mission["id"]), subtitle=below, height=height, border_style="dim")

    def _head(self, width: int) -> Text:
        if self.away:
            return Text(one_line(self.away, width), style="bold red")
        info = self.seen.get("info", {})
        if not info:
            return Text(f"asking {self.address}", style="dim")
        up = ago(time.time() - info.get("uptime_s", 0.0))
        thinks = f"profile {info.get('profile')}" + (f", {info['model']} thinks" if info.get("model") else "")
        return Text(one_line(f"BAT OS {info.get('version')} at {self.address}, up {up}, {thinks}", width), style="bold")

    def _missions(self, width: int, height: int) -> Panel:
        table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
        for heading in ("state", "persona", "age"):
            table.add_column(heading, no_wrap=True)
        table.add_column("brief", no_wrap=True, ratio=1, overflow="ellipsis")
        rows = max(1, height - 3)
        ids = [one["id"] for one in self.seen["missions"]]
        first = max(0, ids.index(self.selected) - rows + 1) if self.selected in ids else 0
        for mission in self.seen["missions"][first : first + rows]:
            state = str(mission["state"])
            style = STATE_STYLES.get(state, "cyan" if state in _UNDER_WAY else "")
            persona = str(mission.get("persona") or "").upper()
            brief = one_line(mission.get("brief", ""), max(20, width))
            table.add_row(
                Text(state, style=style), Text(clean(persona)), ago(mission.get("accepted")), Text(brief),
                style="reverse" if mission["id"] == self.selected else "",
            )  # fmt: skip
        return Panel(table, title="missions", border_style="dim")


def told_of(mission: dict[str, Any]) -> list[Text]:
    """Return the text of a mission: its brief, its state, its question, its answer or the reason why there is none."""
    state, result, error = str(mission["state"]), mission.get("result") or {}, mission.get("error")
    facts = [state, str(mission.get("persona") or "").upper(), f"{ago(mission.get('accepted'))} ago" if mission.get("accepted") else ""]
    told = [
        Text(clean(mission.get("brief", "")), style="bold"),
        Text(", ".join(filter(None, facts)), style=STATE_STYLES.get(state, "cyan")),
        Text(),
    ]
    if isinstance(mission.get("question"), dict):
        told += [
            Text(clean(mission["question"].get("question", "")), style="bold yellow"),
            Text(f"batos answer {clean(mission['id'])} TEXT", "dim"),
        ]
    if result.get("text"):
        told += [Text(line) for line in clean(result["text"]).split("\n")]
        told += [Text(clean(line), style="dim") for line in ("", *sources(result), *doubts(result), cost(result)) if line is not None]
    elif error:
        told.append(Text(clean(f"{error.get('code')}: {error.get('message')}"), style="red"))
    else:
        told.append(Text("nothing yet", style="dim"))
    return told


def _pairs(pairs: list[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in pairs:
        table.add_row(Text(clean(name), style="bold"), Text(clean(value), overflow="ellipsis"))
    return table


def personas_of(seen: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each persona and its state: the number of missions it thinks about, or resting."""
    busy = Counter(str(mission.get("persona") or "").lower() for mission in seen["missions"] if mission["state"] in _UNDER_WAY)
    return [(name.upper(), f"thinks about {busy[name]}" if busy[name] else "rests") for name in seen["info"].get("personas", ())]


def facts_of(seen: dict[str, Any], tokens_s: float | None = None) -> list[tuple[str, str]]:
    """Return the figures of a daemon, as names and values."""
    info = seen["info"]
    missions, costs, image = info.get("missions", {}), info.get("costs", {}), info.get("image", {})
    counted = [
        f"{missions[name]} {name.replace('_', ' ')}" for name in ("running", "queued", "paused", "needs_input") if missions.get(name)
    ]
    shown = [("missions", ", ".join(counted) or "none under way")]
    if tokens_s is not None:
        shown.append(("tokens/s", f"{tokens_s:.1f}"))
    shown.append(("answered", _answered(costs)))
    shown.append(("image", f"{size(image.get('bytes', 0))}, {image.get('objects', 0)} objects"))
    shown += [("entropy", one) for one in _entropy(info)]
    shown += [("models", one) for one in _models(info)]
    upkeep = info.get("upkeep", {})
    if upkeep.get("under_way"):
        shown.append(("upkeep", f"{upkeep['under_way']}: {upkeep.get('progress', {}).get('step', '')}"))
    if backups := _backups(upkeep.get("backups", {})):
        shown.append(("backup", backups))
    quiet = info.get("autotelic", {}).get("triggers", {}).get("fired", ())
    return [*shown, ("triggers", ", ".join(map(str, quiet)))] if quiet else shown


def _answered(costs: dict[str, Any]) -> str:
    tokens, seconds = costs.get("answer_tokens", 0), costs.get("model_s", 0.0)
    return f"{tokens} tokens" + (f", {tokens / seconds:.1f} a second of model time" if seconds else "")


def _entropy(info: dict[str, Any]) -> list[str]:
    cem = info.get("autotelic", {}).get("cem", {})
    if not cem.get("last"):
        return []
    return [f"{cem['last']['cem']:.2f} last, {cem['rolling']:.2f} rolling"]


def _models(info: dict[str, Any]) -> list[str]:
    """Return the models in memory, one a line; the state of Ollama if there are none."""
    memory = info.get("residency", {})
    if memory.get("resident"):
        held = f"{size(memory['bytes'])} of {size(memory['budget'])}"
        return [*map(str, memory["resident"]), held]
    served = info.get("ollama", {})
    return [f"none in memory; Ollama {served.get('state', 'is not asked')}"]


def _backups(told: dict[str, Any]) -> str:
    if told.get("failures"):
        return f"failed {told['failures']} times: {told['error']}"
    return f"{ago(told['last'])} ago" if told.get("last") else ""


def summary(seen: dict[str, Any], output: Output) -> None:
    """Print the dashboard once, for a pipe or a log."""
    info = seen["info"]
    output.pairs(
        [("version", info.get("version", "")), ("endpoint", ", ".join(info.get("endpoints", ()))), *facts_of(seen), *personas_of(seen)]
    )
    output.say()
    columns = ("state", "persona", "age", "id", "brief")
    rows = (
        (m["state"], str(m.get("persona") or "").upper(), ago(m.get("accepted")), m["id"], one_line(m.get("brief", "")))
        for m in seen["missions"]
    )
    output.rows(columns, rows, STATE_STYLES)


SHOWN_MISSIONS = 50  # missions requested; the dashboard shows as many as fit
WINDOW_S = 30.0  # seconds over which the tokens per second are averaged


@app.command()
def dashboard(
    once: Annotated[bool, typer.Option("--once", help="Print it once, as plain text, also on a terminal.")] = False,
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
    """Tokens of answers per second, averaged over the last `WINDOW_S`."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def take(self, now: float, tokens: int) -> float | None:
        """Return the speed as of now; None while too little was seen.

        :param now: seconds of a clock that never goes back.
        :param tokens: of all answers ever.
        """
        if self._seen and tokens < self._seen[-1][1]:  # the counter fell: another daemon, or another image
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
    """Return the data to show: `info`, and `missions`, those under way first and with their personas; without system missions."""
    info = await client.info()
    under_way = info.get("missions", {}).get("under_way", ())[:SHOWN_MISSIONS]
    live = [status for id in under_way if (status := await client.status(id)).get("origin") != "system"]
    listed = (await client.missions(limit=SHOWN_MISSIONS, system=False))["missions"]
    return {"info": info, "missions": live + [mission for mission in listed if mission["id"] not in under_way]}


async def _live(address: str, output: Output) -> None:
    from rich.live import Live

    panels, speed, pause_s = Panels(address), Speed(), DashboardLimits.of(load()).every_s
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
                except BatosError as e:  # busy, or the mission was removed between two requests: try again later
                    panels.away = f"{e.code}: {e.message}"
                live.refresh()
                if not await _heeded(pressed, panels, live.refresh, pause_s):
                    return


async def _heeded(pressed: asyncio.Queue[str], panels: Panels, redraw: Callable[[], None], pause_s: float) -> bool:
    """Handle keys until the view changes. Return True if the dashboard goes on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            while True:
                match panels.press(await pressed.get()):
                    case "leave":
                        return False
                    case "read":  # at once, not at the next update
                        return True
                redraw()
    return True


def keys_of(read: bytes) -> list[str]:
    """Return the keys pressed, from the bytes that a terminal sends: `up`, `down`, `enter`, `back`, `q` ...; others are left out."""
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
"""Maps the characters that a terminal sends to keys. Longer sequences come first where one is the beginning of another."""


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


_TIMES = {"due", "next", "until", "at", "since", "started"}
_DIGITS = 4  # significant digits of a fraction


@app.command()
def info(connect: Connect = None, as_json: Json = False) -> None:
    """Show what the daemon is and does: image, missions, personas, models, limits."""
    reply = ask(endpoint(connect), lambda client: client.info())
    output = Output(as_json)
    if as_json:
        output.document(reply)
    else:
        output.pairs((" ".join(path), _told(path, value)) for path, value in _flat(reply) if path != ("type",))


def _flat(facts: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return nested facts as one list, each with the names that lead to it."""
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in facts.items():
        found += _flat(value, (*path, name)) if isinstance(value, dict) and value else [((*path, name), value)]
    return found


def _told(path: tuple[str, ...], value: Any) -> str:
    """Return a fact as people read it: sizes with a unit, moments by the clock; empty for a missing one."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value_of_cell(value)
    if any(name.endswith("bytes") for name in path) or path[-2:] == ("residency", "budget"):
        return size(value)
    if path[-1] in _TIMES and value > 0:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    return str(value) if isinstance(value, int) else f"{value:.{_DIGITS}g}" if abs(value) < 10**_DIGITS else f"{value:.0f}"


@app.command()
def metrics(
    name: str | None = typer.Argument(None, metavar="[NAME]", help="Only metrics whose names begin with this."),
    connect: Connect = None,
    as_json: Json = False,
) -> None:
    """Print the daemon's metrics: counts since its start, and states. Histograms by their count and sum; --json has the buckets."""
    reply = ask(endpoint(connect), lambda client: client.metrics())
    chosen = [metric for metric in reply["metrics"] if metric["name"].startswith(name or "")]
    output = Output(as_json)
    if as_json:
        output.document({**reply, "metrics": chosen})
    elif chosen:
        _print(chosen, output)
    else:
        names = ", ".join(metric["name"] for metric in reply["metrics"])
        output.note(f"no metric begins with {name!r}; there are {names}", "dim")
    if not chosen:
        raise typer.Exit(1)


def _print(chosen: list[dict[str, Any]], output: Output) -> None:
    samples = [sample for metric in chosen for sample in metric["samples"] if not sample["name"].endswith("_bucket")]
    labels = (", ".join(f"{key}={value}" for key, value in sample["labels"].items()) for sample in samples)
    output.rows(("metric", "of", "value"), ((s["name"], of, f"{s['value']:g}") for s, of in zip(samples, labels, strict=True)))
