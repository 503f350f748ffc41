"""The wire: requests in and replies out, over ZeroMQ. The protocol is `docs/wire.md`."""

from batos.wire.client import Accepted, Client
from batos.wire.keys import ClientKeys
from batos.wire.sync_client import SyncClient

__all__ = ["Accepted", "Client", "ClientKeys", "SyncClient"]
