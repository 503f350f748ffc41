"""The mind: codex, personas, router, the Prototypal State Machine, weaving, and the missions' way through them."""
