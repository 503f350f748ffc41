"""Answers to requests: one surface for the wire, the console and other doors."""
