"""The sandbox: a pool of jailed workers that run generated methods, and the membrane between them and the image (SECURITY.md).

`unsupported` comes on first use: the rewriting of sources is loaded with the first method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from batos.sandbox.invocation import LOOKUP, UNDERSTANDS, Invocation, senders
from batos.sandbox.run_context import Activity, Sender
from batos.sandbox.runner import Sandbox

if TYPE_CHECKING:
    from batos.sandbox.rewriter import unsupported

__all__ = ["LOOKUP", "UNDERSTANDS", "Activity", "Invocation", "Sandbox", "Sender", "senders", "unsupported"]


def __getattr__(name: str) -> Any:
    if name != "unsupported":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from batos.sandbox import rewriter

    return rewriter.unsupported
