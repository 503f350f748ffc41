"""Places of connections, those of browsers that are signed in apart from all others: who has no session cannot take the place of who has.

Whoever connects stands first. A request with a session seats its connection; one without has it stand again. Where too many stand, the one
that came, or made its last request, before all others is cut off: half a request, or a slow one, holds no place against who comes and asks.
"""

from __future__ import annotations

from collections.abc import Callable


class Places:
    """Those of one console. On the loop's thread."""

    def __init__(self, standing: int, seats: int) -> None:
        """
        :param standing: most connections without a session.
        :param seats: most connections with one.
        """
        self._standing_limit, self._seats = standing, seats
        self._standing: dict[Place, None] = {}  # who asked last is the last
        self._seated: set[Place] = set()

    def stand(self, place: Place) -> None:
        """One without a session, which has come just now, or made a request."""
        self._seated.discard(place)
        self._standing.pop(place, None)
        self._standing[place] = None
        while len(self._standing) > self._standing_limit:
            first = next(iter(self._standing))
            del self._standing[first]
            first.cut_off()

    def ask(self, place: Place) -> None:
        """One that makes a request, and keeps what it has until it is known whose it is."""
        if place in self._standing:
            self.stand(place)

    def sit(self, place: Place) -> bool:
        """One with a session. Whether there is a seat for it; else it stands on."""
        if place not in self._seated:
            if len(self._seated) >= self._seats:
                return False
            self._standing.pop(place, None)
            self._seated.add(place)
        return True

    def leave(self, place: Place) -> None:
        """It is gone."""
        self._standing.pop(place, None)
        self._seated.discard(place)


class Place:
    """That of one connection."""

    def __init__(self, places: Places, cut_off: Callable[[], None]) -> None:
        """:param cut_off: ends the connection."""
        self._places, self.cut_off = places, cut_off
        self._left = False

    def ask(self) -> None:
        """It makes a request, and nothing is known of a session yet."""
        if not self._left:
            self._places.ask(self)

    def stand(self) -> None:
        """It has no session."""
        if not self._left:
            self._places.stand(self)

    def sit(self) -> bool:
        """It has a session. Whether there is a seat for it."""
        return self._left or self._places.sit(self)

    def leave(self) -> None:
        """It is gone."""
        self._left = True
        self._places.leave(self)
