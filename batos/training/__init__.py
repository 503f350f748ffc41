"""Training of experts for the system's own code: tasks with proved answers, a LoRA adapter, and its measurement.

Nothing in the daemon needs it. Heavy packages (torch, transformers) are imported inside functions: the extra `training`.
"""
