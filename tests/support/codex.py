"""The shipped codex, and a persona beside those in it."""

from __future__ import annotations

from pathlib import Path

from batos.mind import psm

SHIPPED = Path(psm.__file__).with_name("codex.toml").read_text("utf-8")
PENGUIN = """
[personas.penguin]
core_mission = "To stand still."
core_method = "Standing."
pillars = ["Patience", "Ice"]
model = "robin"
triggers = [{ pattern = 'ice', weight = 9.0, says = "speaks of ice" }]
[personas.penguin.protocols]
waddle_facet_ = "Go slowly."
"""
