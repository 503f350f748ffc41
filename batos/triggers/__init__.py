"""Triggers: what makes missions besides users and clocks. Requests of other programs (hooks), and files that appear in a folder."""
