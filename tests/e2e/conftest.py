"""Fixtures that several end-to-end tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from batos.testing import ScriptedOllama
from tests.support.daemon import provisioned


@pytest.fixture
def scripted() -> Iterator[ScriptedOllama]:
    """A scripted Ollama of the test's own, which has the models of the embedded profile."""
    with ScriptedOllama() as server:
        yield provisioned(server)
