"""Composition root: the parts of the daemon, and how they are put together. Nothing else wires."""
