"""Composition root: the parts of the daemon, and the code that puts them together. Only this package does."""

from batos import logs as logs  # first of all: it imports structlog as the daemon needs it
