"""Composition root: the parts of the daemon, and the code that puts them together. Only this package does."""
