"""Services of the doors: the models that they ask directly, and the log of turns that several kernels share, in the image."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from batos.bridge.inference import ChatRequest, EmbeddedTexts, Inference
from batos.bridge.profiles import Profile
from batos.errors import BatosError, InferenceFailed
from batos.image import answered_turns
from batos.image.living_image import LivingImage
from batos.mind import prompts
from batos.mind.inference import is_full

if TYPE_CHECKING:  # the doors are loaded with their first connection
    from batos.doors.turn_log import LoggedTurn
    from batos.doors.turns import ChatWords, EmbeddedReply, PlainReply

log = structlog.get_logger("batos.doors")


class SharedTurns:
    """Log of turns in the image, as `batos.doors.turn_log.TurnLog` is one in a file."""

    def __init__(self, image: LivingImage, limit: int) -> None:
        """:param limit: turns that are kept."""
        self._image, self._limit = image, limit

    async def find(self, kind: str, key: str, count: int = 1) -> list[LoggedTurn]:
        """Return the newest turns of a key."""
        from batos.doors.turn_log import LoggedTurn

        return [LoggedTurn(*one) for one in self._image.read(answered_turns.find, kind, key, count)]

    async def add(self, kind: str, key: str, mission: str, at: float) -> None:
        """Log a turn: it is durable, and seen by the other kernels, when this returns. One that cannot be logged costs only a link."""
        try:
            await self._image.system(answered_turns.add, kind, key, (mission, at), self._limit, mission=mission)
        except (BatosError, OSError) as e:
            log.warning("turn_not_logged", mission=mission, error=str(e)[:200])

    def close(self) -> None:
        """Do nothing: the image is another part's."""


class DirectModel:
    """The models of the profile in force: the one that its personas are made of, its experts, its embedder."""

    def __init__(self, inference: Inference, profile: Callable[[], Profile], options: Callable[[], Mapping[str, Any]]) -> None:
        """:param options: those with which missions load the models; with others Ollama would load them anew."""
        self._inference, self._profile, self._options = inference, profile, options

    @property
    def embedder(self) -> str:
        """Return the name of the model that embeds."""
        return self._profile().embedder

    async def embed(self, texts: Sequence[str], *, deadline_s: float) -> EmbeddedReply:
        """Embed texts."""
        from batos.doors.turns import EmbeddedReply

        vectors = await self._inference.embed(self.embedder, texts, deadline_s=deadline_s)
        return EmbeddedReply(vectors, vectors.tokens if isinstance(vectors, EmbeddedTexts) else 0)

    async def chat(
        self,
        words: Sequence[ChatWords],
        *,
        model: str | None = None,
        schema: dict[str, Any] | None,
        options: Mapping[str, Any],
        deadline_s: float,
        on_text: Callable[[str], None] | None = None,
    ) -> PlainReply:
        """Answer a conversation whose last message is the user's. Of one that is too long, the oldest messages are left out first, then
        the middle of the last one.
        """
        from batos.doors.turns import PlainReply

        profile = self._profile()
        given = {**self._options(), **profile.direct, **profile.plain, **options}
        system = "\n\n".join(one.text for one in words if one.role == "system")
        said = [one for one in words if one.role != "system"]
        turns, images = _turns(said[:-1])
        images.append(said[-1].images)
        room: int | None = None
        while True:
            told = prompts.fitted_to_window(said[-1].text, "", turns, (), room, gap=False)
            user, seen = prompts.with_brief(told.before, told.brief), images[len(turns) - len(told.turns) :]
            request = ChatRequest(model or profile.base, system, user, schema, tuple(sorted(given.items())), turns=told.turns)
            if any(seen):
                digests = tuple(tuple(hashlib.sha256(one.encode()).hexdigest() for one in each) for each in seen)
                request = replace(request, images=tuple(seen), shown=digests)
            length = len(system) + len(user) + sum(map(len, itertools.chain.from_iterable(told.turns)))
            less = prompts.narrower(length, room)
            try:
                reply = await self._inference.chat(request, deadline_s=deadline_s, on_text=on_text)
            except InferenceFailed as e:
                if e.cause != "too_long":
                    raise
                if less is None:
                    why = prompts.TOO_LONG.format(model=request.model)
                    raise InferenceFailed(f"{e.message}; {why}", cause="too_long", model=request.model) from e
            else:
                if on_text is not None or less is None or not is_full(reply, given):
                    break
            room = less
        if told.left_out:
            log.info("left_out", model=request.model, **dict(told.left_out))
        cut = reply.done_reason in ("length", "cut")
        return PlainReply(reply.text, reply.prompt_tokens, reply.answer_tokens, cut, reply.thinking, dict(told.left_out))


def _turns(said: Sequence[ChatWords]) -> tuple[list[tuple[str, str]], list[tuple[str, ...]]]:
    """Return a conversation as pairs of what was said and answered, with the images of each; messages in a row are one."""
    turns: list[tuple[str, str]] = []
    images: list[tuple[str, ...]] = []
    for one in said:
        if one.role == "assistant" and turns:
            asked, answered = turns[-1]
            turns[-1] = asked, f"{answered}\n\n{one.text}".strip()
        elif turns and not turns[-1][1]:
            turns[-1] = f"{turns[-1][0]}\n\n{one.text}".strip(), ""
            images[-1] += one.images
        else:
            turns.append(("", one.text) if one.role == "assistant" else (one.text, ""))
            images.append(one.images)
    return turns, images
