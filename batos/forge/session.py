"""The working state of a cycle of the forge. It lives beside the cycle, in memory only: the image keeps the cycle alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from batos.objects import Example, UvmObject

if TYPE_CHECKING:  # a daemon without an expert writer does not load the search
    from batos.forge.tool_readings import ToolReading
    from batos.synthesis.handbook import HandbookEntry
    from batos.synthesis.ranking import Passed


class MethodCandidate(NamedTuple):
    """A source that passed all trials.

    :ivar mended: repairs that were made to the model's text.
    :ivar did: its outcome on the call that asked for the method.
    :ivar prompt: the prompt that it answers; "" where no model wrote it.
    """

    source: str
    mended: tuple[str, ...]
    did: str
    prompt: str


@dataclass
class SynthesisSession:
    """The inputs of a cycle, and its results so far.

    :ivar args: positional arguments of the call that asked for the method.
    :ivar kwargs: its keyword arguments, as pairs.
    :ivar lacked: slots that the receiver has for that call, beside its own.
    :ivar taught: examples of the message.
    :ivar tools: True if the method may use tools.
    :ivar readings: what the connection that the method is for answers now, where an expert writes it.
    :ivar sealed: True if it is a plan's: free texts that tools answer it are sealed.
    :ivar agreed: tools of other connections that its user lets the method reach.
    :ivar prompts: requests that a model may be asked, the first one first.
    :ivar prompt: the request that the current draft answers; "" where no model wrote it.
    :ivar candidates: sources that passed all trials.
    :ivar passed: sources near a refused draft that pass the examples.
    :ivar known: known methods, the likest first, each with its likeness; None before they were looked for.
    :ivar adapted: known methods that pass the examples; None before they were tried.
    :ivar composed: methods composed of parts that pass the examples; None before they were tried.
    """

    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    lacked: tuple[tuple[str, Any], ...] = ()
    taught: tuple[Example, ...] = ()
    tools: bool = False
    readings: tuple[ToolReading, ...] = ()
    sealed: bool = False
    agreed: frozenset[str] = frozenset()
    prompts: tuple[str, ...] = ()
    prompt: str = ""
    candidates: tuple[MethodCandidate, ...] = ()
    passed: Passed = ()
    known: Sequence[tuple[float, HandbookEntry]] | None = None
    adapted: Passed | None = None
    composed: Passed | None = None


_sessions: WeakKeyDictionary[UvmObject, SynthesisSession] = WeakKeyDictionary()


def open_session(cycle: UvmObject, args: Sequence[Any], kwargs: Mapping[str, Any], lacked: Sequence[tuple[str, Any]]) -> None:
    """Begin the session of a new cycle. It ends with the cycle object."""
    _sessions[cycle] = SynthesisSession(tuple(args), tuple(kwargs.items()), tuple(lacked))


def session_of(cycle: UvmObject) -> SynthesisSession:
    """Return the session of a cycle. A cycle that the forge did not begin gets an empty one."""
    return _sessions.setdefault(cycle, SynthesisSession())
