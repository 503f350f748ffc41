"""Reach of a method: the tools that it may call, by the contract that its audit made (`Contract.reaches`)."""

from __future__ import annotations

from collections.abc import Iterable

from batos.guardian.policy import READS
from batos.objects import Method


def tools_in(reaches: Iterable[str]) -> dict[str, str]:
    """Return the classes of the tools of a contract, by `CONNECTION.TOOL`; empty texts where they are not known."""
    return {name: kind for name, _, kind in (one.partition("=") for one in reaches)}


def reach_of(method: Method) -> dict[str, str] | None:
    """Return the tools that a method may call, with their classes; None if it was audited before contracts named them."""
    contract = dict(method.contract)
    return tools_in(contract["reaches"]) if "reaches" in contract else None


def growth(before: Method, reaches: Iterable[str]) -> list[str]:
    """Return what a new version of a method reaches beyond the version before it: other tools, and tools that only read at that time.

    :param reaches: the reach of the new version, as its contract has it.
    """
    known = reach_of(before) or {}
    return [f"{name} ({kind})" for name, kind in sorted(tools_in(reaches).items()) if _is_more(known, name, kind)]


def fault_of_call(method: Method, name: str, kind: str) -> str:
    """Return why a method may not call a tool: its contract does not have it, or has it as one that only reads. "" if it may.

    :param name: `CONNECTION.TOOL`
    :param kind: the tool's class now.
    """
    known = reach_of(method)
    if known is None or not _is_more(known, name, kind):
        return ""
    if name in known:
        return f"the method {method.selector!r} was audited when {name} only read, and its class is {kind} now"
    return f"the contract of the method {method.selector!r} reaches {', '.join(known) or 'no tool'}"


def _is_more(known: dict[str, str], name: str, kind: str) -> bool:
    return name not in known or (known[name] == READS and kind != READS)
