"""How the dashboard looks: tables beside each other on a wide terminal, below each other on a narrow one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from batos.cli.output import Output, ago, clean, one_line, size
from batos.cli.watching import STATE_STYLES, cost, doubts, sources

WIDE = 100  # columns from which there are two of panels
_FACTS = 46  # columns of the right one
_UNDER_WAY = ("IDLE", "DECOMPOSING", "DELEGATING", "SYNTHESIZING")


class Panels:
    """What was seen last, laid out for the terminal as wide as it is now."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.seen: dict[str, Any] = {}
        self.tokens_s: float | None = None
        self.away = ""  # why there is nothing newer
        self.selected = ""  # id of the mission that is pointed at
        self.reading: dict[str, Any] | None = None  # the mission that is read, as of `status`
        self._line = 0  # the first one that is shown of it
        self._page = 1  # lines that were shown at once

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
        """What a mission asked and came to, from the line on that it was scrolled to."""
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
    """What there is to read of a mission: its brief, where it stands, its question, its answer or why there is none."""
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
    """Each persona and what it does: thinks about so many missions, or rests."""
    busy = Counter(str(mission.get("persona") or "").lower() for mission in seen["missions"] if mission["state"] in _UNDER_WAY)
    return [(name.upper(), f"thinks about {busy[name]}" if busy[name] else "rests") for name in seen["info"].get("personas", ())]


def facts_of(seen: dict[str, Any], tokens_s: float | None = None) -> list[tuple[str, str]]:
    """The figures of a daemon, as names and values."""
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
    """The models in memory, one a line; how it stands with Ollama where there are none."""
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
    """Print what there is once, for a pipe or a log."""
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
