"""The mind: codex, personas, router, the Prototypal State Machine, weaving, and the context of one attempt at a mission."""
