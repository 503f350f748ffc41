"""Interface of plain inferences: what is asked of a model and is no mission. The daemon's composition root implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from batos.doors.turns import ChatWords


class PlainReply(NamedTuple):
    """Answer of a model."""

    text: str
    prompt_tokens: int
    answer_tokens: int
    cut: bool
    """True: it came to the greatest number of tokens"""
    thinking: str = ""


class PlainModel(Protocol):
    """The model that the daemon's personas are made of, asked directly."""

    async def chat(
        self,
        words: Sequence[ChatWords],
        *,
        schema: dict[str, Any] | None,
        options: Mapping[str, Any],
        deadline_s: float,
        on_text: Callable[[str], None] | None = None,
    ) -> PlainReply:
        """Answer a conversation whose last message is the user's; `on_text` gets each piece as it is written.

        :param options: of Ollama's names: `temperature`, `seed`, `top_p`, `num_predict`, `stop`.
        :raises InferenceFailed: with its cause.
        """
        ...
