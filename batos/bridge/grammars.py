"""JSON schemas as Ollama can make grammars of them.

llama.cpp takes no more than 2,000 repetitions of anything, and Ollama's runner dies of a grammar that it does not take (0.17.4: SIGSEGV,
an answer 500, and the model is loaded anew). So what a schema bounds beyond that is left out of what is sent; who asked checks the answer
against all of it.
"""

from __future__ import annotations

import re
from typing import Any

MOST = 2000  # repetitions: MAX_REPETITION_THRESHOLD of llama.cpp
_BOUNDS = ("minLength", "maxLength", "minItems", "maxItems")
_TIMES = re.compile(r"\{\s*+(\d*+)\s*+,?+\s*+(\d*+)\s*+\}")


def taken(schema: Any) -> Any:
    """The schema, or a copy without the bounds that no grammar can have."""
    if isinstance(schema, dict):
        return {name: taken(value) for name, value in schema.items() if not _is_beyond(name, value)}
    return [taken(value) for value in schema] if isinstance(schema, list) else schema


def _is_beyond(name: str, value: Any) -> bool:
    if name in _BOUNDS:
        return isinstance(value, int | float) and value > MOST  # else it is a property of that name
    return name == "pattern" and isinstance(value, str) and any(int(n) > MOST for pair in _TIMES.findall(value) for n in pair if n)
