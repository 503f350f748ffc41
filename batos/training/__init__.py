"""Training an expert for the system's own code: tasks with proved answers, a LoRA adapter, its measurement.

Above the mind, since it asks in the mind's own words; nothing in the daemon needs it. What is heavy (torch, transformers) is imported
inside functions: the extra `training`.
"""
