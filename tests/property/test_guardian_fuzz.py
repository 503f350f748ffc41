"""Whatever a source holds, the guardian answers with a verdict, and soon; so does the repair."""

from __future__ import annotations

import json
import re
import string
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batos.guardian import PersistenceGuardian, Verdict, repair

DATA = Path(__file__).parents[1] / "data"
GUARDIAN = PersistenceGuardian()
SOURCES = [json.loads(line)["source"] for line in (DATA / "methods.jsonl").read_text("utf-8").splitlines()]
SOURCES = [source for source in SOURCES if len(source) < 4000]
SOURCES += [part.partition("\n")[2] for part in (DATA / "guardian_accepted.txt").read_text("utf-8").split("\n### ")[1:]]
TOKENS = [
    *re.findall(r"\w+|[^\w\s]", "\n".join(SOURCES)),
    "\n    ",
    "\n        ",
    "self._p_changed = True",
    "lambda:",
    "yield",
    "*",
    "**",
    ":=",
    "\0",
    "\ud800",
    "ｅ",
]
SOON_S = 2.0  # on a machine that does other things too; the median is a tenth of a millisecond


def check(source: str) -> None:
    began = time.process_time()
    verdict = GUARDIAN.audit(source, "m")
    assert time.process_time() - began < SOON_S
    assert isinstance(verdict, Verdict)
    assert json.dumps(verdict.to_wire())
    assert all(finding.reason and finding.hint and finding.line >= 0 for finding in verdict.findings)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A known source with a few cuts, copies, swaps and insertions."""
    source = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(source)))
        to = draw(st.integers(at, min(len(source), at + 40)))
        what = draw(st.integers(0, 4))
        if what == 0:
            source = source[:at] + source[to:]
        elif what == 1:
            source = source[:to] + source[at:to] * draw(st.integers(1, 30)) + source[to:]
        elif what == 2:
            source = source[:at] + draw(st.sampled_from(TOKENS)) + source[at:]
        elif what == 3:
            source = source[:at] + draw(st.sampled_from(TOKENS)) + source[to:]
        else:
            lines = source.split("\n")
            line = draw(st.integers(0, len(lines) - 1))
            lines.insert(draw(st.integers(0, len(lines))), lines[line])
            source = "\n".join(lines)
    return source


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated())
def test_mutations_of_methods_get_a_verdict(source: str) -> None:
    check(source)


@settings(max_examples=300, deadline=None)
@given(st.text(st.one_of(st.characters(), st.sampled_from(string.printable)), max_size=300))
def test_any_text_gets_a_verdict(source: str) -> None:
    check(source)
    check(f"def m(self):\n    {source}\n    return 1\n")


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_get_a_verdict(source: bytes) -> None:
    assert isinstance(GUARDIAN.audit(source, "m"), Verdict)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(mutated(), st.sampled_from(["", "Sure!\n", "```python\n", "    "]), st.sampled_from(["", "\n```\nDone.", "\nThat is all."]))
def test_repairs_are_made_once(source: str, before: str, behind: str) -> None:
    mended = repair(before + source + behind, "m")
    assert repair(mended.source, "m") == (mended.source, ())
