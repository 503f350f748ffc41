"""Generated methods run here: a pool of jailed workers, and the membrane between them and the image (SECURITY.md)."""

from batos.sandbox.activity import Activity, Sender
from batos.sandbox.invocation import Invocation, senders
from batos.sandbox.rewrite import unsupported
from batos.sandbox.runner import Sandbox

__all__ = ["Activity", "Invocation", "Sandbox", "Sender", "senders", "unsupported"]
