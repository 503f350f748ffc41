"""The model factory: LoRA adapters, built into models that Ollama serves."""
