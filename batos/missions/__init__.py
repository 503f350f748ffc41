"""The way of a mission: accepted, queued, attempted, ended, replayed and remembered."""
