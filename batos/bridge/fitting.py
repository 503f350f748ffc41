"""What is sent to a model of a request: what it can take, and no more. The request itself, which the journal's key is made of, stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from batos.bridge.capabilities import Capabilities
from batos.bridge.types import ChatRequest

THOUGHT_TOKENS = 2048
"""Tokens beside those of the answer for a model that thinks first: else the thought would take them all."""
AS_WORDS = "Answer with nothing but one JSON object of this JSON schema:"


def fitted(request: ChatRequest, can: Capabilities | None, marks: Sequence[str], writes: Callable[[str], bool]) -> ChatRequest:
    """The request as it is sent.

    `think` goes only to a model that can, which is told not to where nobody asked for it; one that cannot be silenced is let think. Who
    thinks has tokens of its own for that. Stop marks of the
    profile's template go only to models in whose template they stand. A schema that a model does not keep to is said in words.

    :param can: what the model can do; None: not known, then nothing is changed.
    :param marks: the stop marks of the profile's template; others were named by the user, and are always sent.
    :param writes: whether a mark stands in the model's own template.
    """
    if can is None:
        return request
    options: dict[str, Any] = dict(request.options)
    if marks and tuple(options.get("stop", ())) == tuple(marks):
        options["stop"] = tuple(mark for mark in marks if writes(mark))
        if not options["stop"]:
            del options["stop"]
    if not can.thinks:
        options.pop("think", None)
    else:  # Ollama lets it think where nothing is said, which takes an answer's tokens and more
        options["think"] = bool(options.get("think")) or not can.silenced
    if options.get("think") and "num_predict" in options:
        answer, context = options["num_predict"], options.get("num_ctx", 0)
        options["num_predict"] = max(answer, min(answer + THOUGHT_TOKENS, context // 2))
    if options != dict(request.options):
        request = replace(request, options=tuple(sorted(options.items())))
    if request.schema is not None and not can.format:
        words = json.dumps(request.schema, ensure_ascii=False)
        request = replace(request, schema=None, user=f"{request.user}\n\n{AS_WORDS}\n{words}")
    return request
