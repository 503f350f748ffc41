"""The verbs in groups, as `batos --help` lists them, each with the module that has it.

A verb that is run needs its own module and no other, so that a command costs what it does and not what all of them could.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Missions": {
        "send": "missions",
        "chat": "chat",
        "watch": "missions",
        "result": "missions",
        "status": "missions",
        "missions": "missions",
        "answer": "steering",
        "pause": "steering",
        "resume": "steering",
        "cancel": "missions",
        "rate": "steering",
        "undo": "undo",
        "replay": "missions",
        "failures": "missions",
    },
    "Memory": {"ingest": "memory", "search": "search", "memory": "memory"},
    "Messages and methods": {
        "send-to": "missions",
        "teach": "methods",
        "method": "methods",
        "methods": "methods",
        "revert": "methods",
        "grant": "methods",
        "audit": "audit",
    },
    "Objects, now and before": {
        "ls": "objects",
        "show": "objects",
        "history": "objects",
        "diff": "objects",
        "at": "at",
        "personas": "objects",
        "changes": "changes",
    },
    "Models and experts": {"models": "models", "experts": "experts", "train": "training"},
    "The daemon": {
        "run": "daemon",
        "service": "service",
        "dashboard": "dashboard",
        "console": "console",
        "info": "info",
        "metrics": "figures",
        "doctor": "daemon",
        "config": "daemon",
        "keys": "keys",
    },
    "The image as a whole": {"backup": "upkeep", "restore": "upkeep", "fork": "upkeep", "pack": "upkeep"},
}

MODULES: Mapping[str, str] = {verb: module for verbs in GROUPS.values() for verb, module in verbs.items()}


class Grouped(TyperGroup):
    """The application's commands, listed by `GROUPS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a section a group."""
        limit = formatter.width - 6 - max(map(len, MODULES))
        for group, verbs in GROUPS.items():
            found = [(verb, self.commands[verb]) for verb in verbs if verb in self.commands]
            if found:
                with formatter.section(group):
                    formatter.write_dl([(f"{verb:{max(map(len, MODULES))}}", one.get_short_help_str(limit)) for verb, one in found])
