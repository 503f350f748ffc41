"""The Synaptic Bridge: everything between BAT OS and Ollama.

`types` says what an inference is and is free of I/O; `client` does inferences; `service` finds or runs the Ollama server;
`profiles`, `modelfile` and `provision` see to it that the models are there. Only `types` is imported with the package: the
others pull in httpx.
"""

from batos.bridge.inference import ChatReply, ChatRequest, Inference

__all__ = ["ChatReply", "ChatRequest", "Inference"]
