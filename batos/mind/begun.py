"""Answers that have begun: kept every few seconds while they come, and gone on with after a restart or a broken stream."""

from __future__ import annotations

import time
from collections.abc import Callable

from batos.image import journal, partials
from batos.image.living import LivingImage


class Begun:
    """The unfinished answers of one mission."""

    def __init__(
        self, mission: str, image: LivingImage, *, every_s: float, every_tokens: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """
        :param every_s: seconds after which what has come is kept.
        :param every_tokens: tokens after which it is, if that is sooner.
        """
        self._mission, self._image = mission, image
        self._every_s, self._every_tokens, self._clock = every_s, every_tokens, clock
        self._texts: dict[journal.Key, tuple[str, int]] = {}

    def recall(self) -> None:
        """Load what earlier daemons kept."""
        self._texts = self._image.read(partials.load, self._mission)

    def of(self, key: journal.Key) -> tuple[str, int]:
        """What is there of an answer, and the tokens it took."""
        return self._texts.get(key, ("", 0))

    def listener(self, key: journal.Key, hear: Callable[[str], None] | None) -> Callable[[str], None]:
        """What hears the pieces of an answer, notes them, and passes them on to `hear`."""
        kept_at, kept_tokens = self._clock(), self.of(key)[1]

        def listen(piece: str) -> None:
            nonlocal kept_at, kept_tokens
            text, tokens = self.of(key)
            text, tokens = text + piece, tokens + 1
            self._texts[key] = text, tokens
            now = self._clock()
            if tokens - kept_tokens >= self._every_tokens or now - kept_at >= self._every_s:
                kept_at, kept_tokens = now, tokens
                self._image.later(partials.keep, self._mission, key, text, tokens)
            if hear is not None:
                hear(piece)

        return listen

    def drop(self, key: journal.Key) -> None:
        """Forget what is there: the answer is whole, or the model begins again."""
        self._texts.pop(key, None)
