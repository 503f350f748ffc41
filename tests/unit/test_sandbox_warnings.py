"""What Python warns of in a method's source: warnings are errors here, so that one would be refused as no Python."""

from __future__ import annotations

import pytest

from batos.sandbox import unsupported


@pytest.mark.parametrize("text", ["[1]['a']", "1 is 1", "'\\d'"])
def test_what_python_only_warns_of_is_not_told_on_the_daemons_output(text: str) -> None:
    assert unsupported(f"def m(self):\n    return {text}\n") == []
