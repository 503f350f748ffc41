"""Doubts about methods that use tools: what a tool answered that speaks against the version that called it.

A doubt is recorded by a system transaction, since the mission that met it may fail and keep nothing. The next message that the method
would answer has it written anew, with the doubt in the prompt.
"""

from __future__ import annotations

import json
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
    """`CONNECTION.TOOL` whose answer `answer` is"""
    answer: str = ""
    """JSON of what the tool answered; empty where it failed, or the answer is long"""
    lasting: bool = False
    """True if no later version is doubted for the same sign: it was written knowing it"""


class MethodDoubts(Persistent):
    """Doubts about the method of one message of one object, oldest first, each as a tuple of `Doubt`'s fields."""

    __module__ = "batos.image"
    held: tuple[tuple[Any, ...], ...] = ()


def record(root: Root, oid: bytes, selector: str, doubt: Doubt) -> bool:
    """System transaction: record a doubt; return True if it is a new one."""
    if is_known(root, oid, selector, doubt):
        return False
    table = root.setdefault("doubts", OOBTree())
    found = table.get((oid, selector))
    if found is None:
        found = table[oid, selector] = MethodDoubts()
    cut = doubt._replace(reason=doubt.reason[:_CHARS], answer=doubt.answer if len(doubt.answer) <= _CHARS else "")
    found.held = (*found.held, tuple(cut))[-_KEPT:]
    return True


def is_known(root: Root, oid: bytes, selector: str, doubt: Doubt) -> bool:
    """Return True if a doubt is recorded already."""
    same = (doubt.version, doubt.digest)
    return any(one.sign == doubt.sign and (one.lasting or (one.version, one.digest) == same) for one in _of(root, oid, selector))


def about(holder: UvmObject, method: Method, before: float) -> list[Doubt]:
    """Return the doubts about a version of a method.

    :param before: time before which they must have been recorded, so that a replay of a mission finds the same.
    """
    if holder._p_jar is None or not holder._p_oid:
        return []
    known = _of(holder._p_jar.root(), holder._p_oid, method.selector)
    return [one for one in known if (one.version, one.digest) == (method.version, method.digest) and one.at < before]


def answers(doubts: list[Doubt]) -> dict[str, Any]:
    """Return what tools answered when a method was doubted, by `CONNECTION.TOOL`; the newest of each."""
    return {one.tool: json.loads(one.answer) for one in doubts if one.answer}


def _of(root: Root, oid: bytes, selector: str) -> list[Doubt]:
    table = root.get("doubts")
    found = None if table is None else table.get((oid, selector))
    return [] if found is None else [Doubt(*one) for one in found.held]
