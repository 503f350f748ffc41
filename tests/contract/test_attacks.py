"""A hostile place: whatever its documents and answers say, nothing outside the grant is reached, and time and memory are bounded.

The cases, and the places that serve them on real sockets, are those of bench/attacks.py. They run beside each other in a process of its
own, which they must not end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from batos.tools.openapi_values import YAML_DEPTH, check_depth

ATTACKS = Path(__file__).parents[2] / "bench" / "attacks.py"
SLOWEST_S = 90.0  # all cases at once on a busy machine; those that never end are given up after 3 s
MOST_MIB = 700


@pytest.mark.long
def test_no_case_reaches_anything_outside_the_grant_and_all_are_bounded() -> None:
    words = [sys.executable, str(ATTACKS), "--one", "all:"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SLOWEST_S * 2)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 40
    assert [one for one in found if one["outside"]] == []
    assert [one for one in found if one["seconds"] > SLOWEST_S] == []
    assert max(one["mib"] for one in found) < MOST_MIB
    said = {one["case"]: one["said"] for one in found if one["kind"] == "document"}
    for case in ("redirected", "server elsewhere", "deep YAML", "aliases", "drip", "60000 operations"):
        assert said[case].startswith("refused: "), case


@pytest.mark.parametrize("data", [b"a: " + b"[" * 100_000, b"- " * 100_000 + b"x", b"? " * 100_000, ("- " * 100_000).encode("utf-16")])
def test_yaml_that_may_be_nested_too_deep_is_not_given_to_its_parser(data: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        check_depth(data)


def test_yaml_of_usual_depth_passes_however_long_it_is() -> None:
    check_depth(b"a:\n  - {b: [1, 2]}\n" * 100_000 + b"c: 'half open [0, 1)'\n" * (YAML_DEPTH - 1))
