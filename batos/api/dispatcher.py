"""Dispatcher of requests: it finds the handler of each operation, and sends the reply once all commits are durable.

wire.Listener ─ Dispatcher.handle ─ the service's method that is marked `@handles(ShowRequest)` ─ reply ─ barrier ─ client

A service is an object with such methods, in the module of its area: `batos.api.missions`, `queries`, `memory`, `uploads`,
`administration`. A new operation is one more marked method; a new service is also named in `batos.app.stages.open_transport`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from batos.image import storage
from batos.image.living_image import LivingImage
from batos.image.server import away_error
from batos.wire import schemas

if TYPE_CHECKING:
    from batos.wire.outbox import Recipient

Reply = dict[str, Any]
Handler = Callable[[Any, "Recipient"], Awaitable[Reply | None]]
"""Serves one request of a client. The dispatcher sends the returned reply once all earlier commits are durable. With None, the handler has
sent its replies itself."""
F = TypeVar("F", bound=Callable[..., Awaitable[Reply | None]])


def handles(request: type[schemas.Request]) -> Callable[[F], F]:
    """Mark a method of a service as the handler of a kind of request."""

    def mark(handler: F) -> F:
        handler.handles = request  # type: ignore[attr-defined]
        return handler

    return mark


def handlers_of(service: object) -> dict[type[Any], Handler]:
    """Return the handlers of a service, by kind of request."""
    marked = ((name, found.handles) for name, found in vars(type(service)).items() if hasattr(found, "handles"))
    return {request: getattr(service, name) for name, request in marked}


class Dispatcher:
    """Serves the requests of clients. Raises BatosError for a request that cannot be served; the listener makes it a reply."""

    def __init__(self, image: LivingImage, services: Iterable[object]) -> None:
        """
        :param services: objects with methods that are marked with `handles`. Services with a method `forget(client)` get a call for
            each client that is gone.
        """
        self._image, self.services = image, tuple(services)
        self._handlers: dict[type[Any], Handler] = {}
        for service in self.services:
            self._handlers |= handlers_of(service)

    @property
    def operations(self) -> frozenset[type[Any]]:
        """Return the kinds of requests that this dispatcher serves."""
        return frozenset(self._handlers)

    async def handle(self, request: schemas.Request, client: Recipient) -> None:
        """Serve one request."""
        try:
            reply = await self._handlers[type(request)](request, client)
            if reply is not None:
                await self._image.barrier()  # the reply may show commits that are not durable yet
                client.send(reply)
        except OSError as e:
            raise storage.disk_full_error(e) or e from None
        except Exception as e:
            if (away := away_error(e)) is None:
                raise
            raise away from e

    def forget(self, client: Recipient) -> None:
        """Report to the services that a client has left."""
        for service in self.services:
            if (forget := getattr(service, "forget", None)) is not None:
                forget(client)
