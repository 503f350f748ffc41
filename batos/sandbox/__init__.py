"""The sandbox: a pool of jailed workers that run generated methods, and the membrane between them and the image (SECURITY.md)."""

from batos.sandbox.invocation import LOOKUP, UNDERSTANDS, Invocation, senders
from batos.sandbox.rewriter import unsupported
from batos.sandbox.run_context import Activity, Sender
from batos.sandbox.runner import Sandbox

__all__ = ["LOOKUP", "UNDERSTANDS", "Activity", "Invocation", "Sandbox", "Sender", "senders", "unsupported"]
