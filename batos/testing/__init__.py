"""Test doubles for programs built on BAT OS. They speak the real protocols on real sockets; `docs/embedding.md` shows them."""

from batos.testing.daemon import DaemonProcess
from batos.testing.ollama import Recorded, ScriptedOllama

__all__ = ["DaemonProcess", "Recorded", "ScriptedOllama"]
