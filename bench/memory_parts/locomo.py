"""Evidence found in long conversations, a catalogue for each (LoCoMo, given as an argument)."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING, Any

from bench.memory_parts import conversations

if TYPE_CHECKING:
    from bench.memory import Bench

AIMS = {"locomo_recall_5": (">=", 0.76), "locomo_recall_10": (">=", 0.85), "locomo_recall_20": (">=", 0.90)}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--locomo", metavar="FILE", type=pathlib.Path, help="conversations as LoCoMo has them, for locomo and onecat")


def lacks(args: argparse.Namespace) -> str:
    return "" if args.locomo else "no --locomo FILE"


async def measure(bench: Bench) -> dict[str, Any]:
    samples = [await conversations.case([sample]) for sample in conversations.conversations(bench.args.locomo)]
    return await conversations.measure(samples, "locomo")
