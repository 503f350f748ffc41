"""Find what a mission has paid for: its inferences, by content and occurrence, and what became of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from batos.image.journal import Inference
from batos.mind.tally import Tally


class Paid(dict[tuple[bytes, int], Inference]):
    """The inferences that are in a mission's journal, by content and occurrence."""

    def __init__(self, entries: Iterable[Inference] = ()) -> None:
        super().__init__()
        self._last: dict[bytes, int] = {}  # of each content the last occurrence
        for entry in entries:
            self.add(entry)

    def add(self, entry: Inference) -> None:
        """Take one more in."""
        self[entry.key, entry.occurrence] = entry
        self._last[entry.key] = max(entry.occurrence, self._last.get(entry.key, 0))

    def occurrence(self, key: bytes, label: str, tally: Tally) -> int:
        """Which of the inferences of one content the next one is: that which the same part of the same cycle had, where it is paid for.
        Several who ask for the same at once come in another order each time, and what follows goes by who said what.

        :param label: who asks (`By.label`).
        """
        free = [n for n in range(max(self._last.get(key, -1), tally.asked[key]) + 1) if (key, n) not in tally.taken]
        own = (n for n in free if (held := self.get((key, n))) is not None and held.label == label)
        return next(own, free[0])


def is_full(reply: Inference, options: Mapping[str, Any]) -> bool:
    """Whether an answer ended because the context was full, before it came to its own longest."""
    context, longest = options.get("num_ctx") or 0, options.get("num_predict") or 0
    full = bool(context) and reply.prompt_tokens + reply.answer_tokens >= context
    return reply.done_reason == "length" and full and reply.answer_tokens < longest


def spent(paid: Inference) -> str:
    """Why there is no answer, where a model spent all of it on its thought: neither another persona nor another try mends that."""
    if paid.text.strip() or not (paid.done_reason == "length" or (paid.done_reason == "cut" and paid.thinking.strip())):
        return ""
    went = f"all {paid.answer_tokens} tokens that it may write went into its thought"
    how = went if paid.done_reason == "length" else "its thought went in circles, and was ended"
    return (
        f"{paid.model} came to no answer: {how}. Let it answer at once (setting think, off), let it write more (setting num_predict), or "
        "take another model (`batos models use NAME`)"
    )
