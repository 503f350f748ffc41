"""Doubts about methods that use tools: what a tool answered that speaks against the version that called it.

A doubt is recorded by a system transaction, since the mission that met it may fail and keep nothing. The next message that the method
would answer has it written anew, with the doubt in the prompt.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

from BTrees.OOBTree import OOBTree
from persistent import Persistent

from batos.objects import Method, Root, UvmObject

_KEPT = 4
_CHARS = 4000


class Doubt(NamedTuple):
    """One reason to doubt a version of a method."""

    version: int
    digest: str
    """of the version's source"""
    at: float
    """seconds since the epoch"""
    sign: str
    """names its subject: the same sign is recorded once for a version, or, where it is about a form, once for all versions"""
    reason: str
    """in words, for a model and for the user"""
    tool: str = ""
    """`CONNECTION.TOOL` whose answer `answer` is, or that refused the call"""
    answer: str = ""
    """JSON of what the tool answered; empty where it failed, or the answer is long"""
    lasting: bool = False
    """True if no later version is doubted for the same sign: it was written knowing it"""
    met: int = 0
    """0: it counts at once. Otherwise the number of missions in a row that met it: it counts from 2 on"""
    arguments: str = ""
    """canonical arguments of the call that `tool` refused; empty where it refused none, or they are long"""
    status: int = 0
    """HTTP status of the refusal"""
    message: str = ""
    """text of the refusal"""
    # Fields are only ever added at the end, with a default: the image keeps them as tuples.

    @property
    def counts(self) -> bool:
        """True if the next message has the version written anew."""
        return self.met != 1


class Refusal(NamedTuple):
    """Refusal of a call by a tool."""

    message: str
    status: int


class MethodDoubts(Persistent):
    """Doubts about the method of one message of one object, oldest first, each as a tuple of `Doubt`'s fields."""

    __module__ = "batos.image"
    held: tuple[tuple[Any, ...], ...] = ()


def record(root: Root, oid: bytes, selector: str, doubt: Doubt, accepted: float = math.inf) -> bool:
    """System transaction: record a doubt; return True if it is a new one, or counts now.

    :param accepted: see `is_known`.
    """
    if is_known(root, oid, selector, doubt, accepted):
        return False
    if first := [one for one in _of(root, oid, selector) if one.sign == doubt.sign and not one.counts]:
        clear(root, oid, selector, doubt.sign)
        if any(_same_version(one, doubt) for one in first):
            doubt = doubt._replace(met=2, lasting=True)
    table = root.setdefault("doubts", OOBTree())
    found = table.get((oid, selector))
    if found is None:
        found = table[oid, selector] = MethodDoubts()
    answer, arguments = (text if len(text) <= _CHARS else "" for text in (doubt.answer, doubt.arguments))
    cut = doubt._replace(reason=doubt.reason[:_CHARS], answer=answer, arguments=arguments, message=doubt.message[:_CHARS])
    found.held = (*found.held, tuple(cut))[-_KEPT:]
    return True


def is_known(root: Root, oid: bytes, selector: str, doubt: Doubt, accepted: float = math.inf) -> bool:
    """Return True if a doubt is recorded already, as it is.

    :param accepted: when the mission that met it was accepted; a doubt of before that does not count yet is met a second time.
    """
    same = [one for one in _of(root, oid, selector) if one.sign == doubt.sign and (one.lasting or _same_version(one, doubt))]
    return any(one.counts or one.at >= accepted for one in same)


def clear(root: Root, oid: bytes, selector: str, sign: str) -> None:
    """System transaction: remove the doubts that do not count yet and whose sign begins so: the call succeeds again."""
    kept = [one for one in _of(root, oid, selector) if one.counts or not one.sign.startswith(sign)]
    root["doubts"][oid, selector].held = tuple(map(tuple, kept))


def is_open(root: Root, oid: bytes, selector: str, sign: str) -> bool:
    """Return True if `clear` would remove a doubt."""
    return any(not one.counts and one.sign.startswith(sign) for one in _of(root, oid, selector))


def _same_version(one: Doubt, other: Doubt) -> bool:
    return (one.version, one.digest) == (other.version, other.digest)


def about(holder: UvmObject, method: Method, before: float) -> list[Doubt]:
    """Return the doubts about a version of a method that count.

    :param before: time before which they must have been recorded, so that a replay of a mission finds the same.
    """
    if holder._p_jar is None or not holder._p_oid:
        return []
    known = _of(holder._p_jar.root(), holder._p_oid, method.selector)
    return [one for one in known if (one.version, one.digest) == (method.version, method.digest) and one.at < before and one.counts]


def answers(doubts: list[Doubt]) -> dict[str, Any]:
    """Return what tools answered when a method was doubted, by `CONNECTION.TOOL`; the newest of each."""
    return {one.tool: json.loads(one.answer) for one in doubts if one.answer}


def refusals(doubts: list[Doubt]) -> dict[tuple[str, str], Refusal]:
    """Return the refusals of calls that tools call malformed, by `CONNECTION.TOOL` and canonical arguments.

    A doubt that counts only when it is met again is left out: what was refused then may be let now.
    """
    return {(one.tool, one.arguments): Refusal(one.message, one.status) for one in doubts if one.arguments and not one.met}


def _of(root: Root, oid: bytes, selector: str) -> list[Doubt]:
    table = root.get("doubts")
    found = None if table is None else table.get((oid, selector))
    return [] if found is None else [Doubt(*one) for one in found.held]
