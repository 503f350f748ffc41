"""A scripted Ollama as a service of a machine that a test booted: `python -m tests.support.booted_ollama`, of `Type=notify`.

Its status says its address."""

from __future__ import annotations

import signal

from batos.config import supervision
from batos.supervision import Supervisor
from batos.testing import ScriptedOllama
from tests.support.daemon import provisioned

SET_MOOD = "def set_mood_(self, text):\n    self.mood = text\n    self._p_changed = True\n    return text\n"

if __name__ == "__main__":
    with ScriptedOllama() as server:
        provisioned(server)
        server.say(SET_MOOD, when=lambda request: "You write one method" in request["messages"][0]["content"])
        Supervisor(supervision()).ready(server.host)
        signal.sigwait([signal.SIGTERM])
