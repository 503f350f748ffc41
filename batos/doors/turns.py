"""Turns of a chat: which words are the same conversation, which mission a turn is, and the brief that it becomes. Pure functions.

Also the interface of plain inferences, which are not missions: the daemon's composition root implements it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

_ASSISTANT, _USER = "assistant", "user"
_REASONING = (("<details", "</details>"), ("<think>", "</think>"))
"""Marks between which chat clients keep the reasoning of an answer."""
_MARK_CHARS = 200  # characters in which the opening mark of a block says what it is
_CHORES = (
    "### Task:",  # Open WebUI
    "Please generate a concise, 5-word-or-less title",  # LibreChat
    "Provide a concise, 5-word-or-less title for the conversation",
)
"""First words of the prompts with which chat clients ask for titles, tags and follow-up questions."""
_SPEAKERS = {_USER: "User", _ASSISTANT: "Assistant", "tool": "Tool"}


class ChatWords(NamedTuple):
    """One message of a conversation."""

    role: str
    """`system`, `user`, `assistant` or `tool`"""
    text: str
    images: tuple[str, ...] = ()
    """each in base64"""


class PlainReply(NamedTuple):
    """Answer of a model."""

    text: str
    prompt_tokens: int
    answer_tokens: int
    cut: bool
    """True: it came to the greatest number of tokens"""
    thinking: str = ""
    left_out: Mapping[str, int] = MappingProxyType({})
    """Characters that the model did not read, since all was too long for it, by part."""


class EmbeddedReply(NamedTuple):
    """Vectors of texts, in order, and the tokens that were read for them."""

    vectors: Sequence[Sequence[float]]
    tokens: int


class PlainModel(Protocol):
    """The models of the daemon, asked directly: the one that its personas are made of, its experts, its embedder."""

    @property
    def embedder(self) -> str:
        """Return the name of the model that embeds."""
        ...

    async def embed(self, texts: Sequence[str], *, deadline_s: float) -> EmbeddedReply:
        """Embed texts; one that is longer than the model reads gets the mean of its parts.

        :raises InferenceFailed: with its cause.
        """
        ...

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
        """Answer a conversation whose last message is the user's; `on_text` gets each piece as it is written. Of one that is longer than
        the model reads, parts are left out.

        :param model: an expert; None: the model that the personas are made of.
        :param options: of Ollama's names: `temperature`, `seed`, `top_p`, `num_predict`, `stop`.
        :raises InferenceFailed: with its cause.
        """
        ...


class EarlierTurn(NamedTuple):
    """A turn by the mission that answered it."""

    mission: str
    answers: int = 0
    """number of the mission's question that the turn answered; 0: none"""


class ChatTurn(NamedTuple):
    """Turn of a conversation: the user's last message, and what was said before it."""

    words: ChatWords
    before: tuple[ChatWords, ...]
    """without messages of the system"""
    system: str
    persona: str | None
    schema: dict[str, Any] | None
    name: str
    """the client's own name of the turn; "" if it has none"""
    content: str
    """digest of the request; the same request has the same"""
    follows: EarlierTurn | None = None
    """the turn before, where the client names it; None: the conversation says it"""
    fresh: bool = False
    """True: the client says that it does not send the request again"""

    @property
    def said(self) -> tuple[ChatWords, ...]:
        """Return the conversation with the turn."""
        return (*self.before, self.words)

    @property
    def request_key(self) -> str:
        """Return the key of the request: the same one, sent again under the same name, has the same."""
        return digest([self.name, self.content])

    @property
    def id(self) -> str:
        """Return the id of the turn's mission."""
        return f"chat-{digest(['named', self.name])[:32]}" if self.name else f"chat-{self.content[:32]}"


def digest(value: Any) -> str:
    """Return the SHA-256 of a value of JSON."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def conversation_key(words: Sequence[ChatWords]) -> str:
    """Return the key of a conversation: branches of it differ, the prompt of the system does not count."""
    return digest([[one.role, visible_text(one.text), *one.images] for one in words if one.role != "system"])


def visible_text(text: str) -> str:
    """Return an answer without the reasoning that a client kept in it, and with single blanks."""
    for begin, end in _REASONING:
        kept, at = [], 0
        while (start := text.find(begin, at)) >= 0 and (stop := text.find(end, start)) >= 0:
            of_reasoning = begin != "<details" or 'type="reasoning"' in text[start : start + _MARK_CHARS]
            kept.append(text[at : start if of_reasoning else stop + len(end)])
            at = stop + len(end)
        text = "".join((*kept, text[at:]))
    return " ".join(text.split())


def is_answer(given: str, told: str) -> bool:
    """Return True if a message of a conversation is what a door sent, or as much of it as had come when its reader left."""
    given, told = visible_text(given), visible_text(told)
    return bool(told and given) and (told in given or told.startswith(given))


def is_chore(words: Sequence[ChatWords], task: str, streams: bool) -> bool:
    """Return True if a chat client asks for itself: for the title of a chat, its tags, what could be asked next.

    :param task: the name that the client gives the request, "" if none.
    """
    last = words[-1].text.lstrip() if words else ""
    return bool(task) or (not streams and last.startswith(_CHORES))


def brief_of(turn: ChatTurn, *, alone: bool, chars: int) -> str:
    """Return the brief of a turn's mission.

    :param alone: False for one that follows the mission which answered the turn before, and has nothing else to say than its last words.
    :param chars: most characters of the conversation before.
    """
    if not alone:
        return turn.words.text
    parts = []
    if turn.system.strip():
        parts.append(f"Instructions for this conversation:\n{turn.system.strip()}")
    lines: list[str] = []
    for one in reversed(turn.before):
        line = f"{_SPEAKERS.get(one.role, one.role)}: {visible_text(one.text) if one.role == _ASSISTANT else one.text.strip()}"
        if sum(map(len, lines)) + len(line) > chars:
            lines.append("(earlier messages are left out)")
            break
        lines.append(line)
    if lines:
        parts.append("The conversation so far:\n" + "\n".join(reversed(lines)))
    return "\n\n".join([*parts, f"The user says now:\n{turn.words.text}"]) if parts else turn.words.text
