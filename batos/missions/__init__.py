"""Life of a mission: accepted, queued, attempted, ended, replayed, reported and remembered."""
