"""A connection of the console's: how long it waits for what a browser wants, and the place that it has meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from batos.console.places import Place, Places

_ASKING = (h11.IDLE, h11.SEND_BODY)


class Connection(H11Protocol):
    """One on which a request, form included, is there within a time; however it drips in. Pauses between two are uvicorn's own matter."""

    def __init__(self, within_s: float, places: Places, **given: Any) -> None:
        super().__init__(**given)
        self._within_s = within_s
        self._place = Place(places, lambda: self.transport.abort())
        self.app_state = {**self.app_state, "place": self._place}  # of each request's scope
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._place.stand()
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(between=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_be()
        self._place.leave()
        super().connection_lost(exc)

    def _look(self, between: bool = False) -> None:
        """Begin to count where a request is on its way, and end where it is there.

        :param between: the last one is answered; if there is nothing of the next one yet, uvicorn counts.
        """
        state = self.conn.their_state
        if state not in _ASKING or (between and state is h11.IDLE):
            self._leave_be()
        elif self._due is None:
            self._due = self.loop.call_later(self._within_s, self.transport.abort)

    def _leave_be(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
