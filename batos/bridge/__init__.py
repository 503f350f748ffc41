"""The Synaptic Bridge: everything between BAT OS and Ollama.

`inference` defines requests and answers and does no I/O. `client` does inferences. `ollama_server` finds or runs the Ollama server.
`profiles`, `modelfile` and `provisioning` provide the models. Only `inference` is imported with the package: the others import httpx.
"""

from batos.bridge.inference import ChatReply, ChatRequest, Inference

__all__ = ["ChatReply", "ChatRequest", "Inference"]
