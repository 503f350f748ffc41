"""The `ollama` library, imported so that the environment cannot fail the import.

At import the library makes a client of its own from `OLLAMA_HOST`, the proxy variables and the certificate variables. A value that is not
usable would end the daemon there, although an Ollama on this machine needs none of them. Every module that needs the library at run time
takes it from here. `batos.bridge.addresses` determines what an address really needs of the environment.
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
