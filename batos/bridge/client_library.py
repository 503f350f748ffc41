"""The `ollama` library, imported so that the environment cannot fail the import.

It makes a client of its own while it is imported, out of `OLLAMA_HOST`, the variables of proxies and those of certificates; one that
cannot be used would end the daemon there, though an Ollama on this machine needs nothing of the kind. Whoever needs the library at run
time takes it from here; what an address really needs of the environment, `batos.bridge.addresses` says.
"""

from __future__ import annotations

import os

__all__ = ["AsyncClient", "ProgressResponse", "ResponseError"]

_READ_BY_IT = ("OLLAMA_HOST", "OLLAMA_API_KEY", "SSL_CERT_FILE", "SSL_CERT_DIR")

_aside = {name: os.environ.pop(name) for name in list(os.environ) if name in _READ_BY_IT or name.lower().endswith("_proxy")}
try:
    from ollama import AsyncClient, ProgressResponse, ResponseError
finally:
    os.environ.update(_aside)
