"""The wire: requests in and replies out, over ZeroMQ. The protocol is `docs/wire.md`.

The clients come on first use: a daemon that asks no other one keeps them out of its memory.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batos.wire.client import Accepted, Client
    from batos.wire.keys import ClientKeys
    from batos.wire.sync_client import SyncClient

__all__ = ["Accepted", "Client", "ClientKeys", "SyncClient"]

_MODULES = {"Accepted": "client", "Client": "client", "ClientKeys": "keys", "SyncClient": "sync_client"}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
