"""Test doubles for BAT OS and for programs built on it. They speak the real protocol on a real socket."""

from batos.testing.ollama import Recorded, ScriptedOllama

__all__ = ["Recorded", "ScriptedOllama"]
