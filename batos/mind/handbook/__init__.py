"""The handbook: small methods with their purposes, from which an expert that writes a new one is shown the nearest."""

from batos.mind.handbook.entries import Entry
from batos.mind.handbook.nearest import Handbook, handbook

__all__ = ["Entry", "Handbook", "handbook"]
