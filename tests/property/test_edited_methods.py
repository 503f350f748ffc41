"""Of any method of the handbook: what is one edit away from it is a method, makes sense, and is told in one order."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batos.synthesis.handbook import HandbookEntry, entries
from batos.synthesis.mutations import edits, makes_sense
from batos.synthesis.specification import RequestFacts

ENTRIES = entries()


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.sampled_from(ENTRIES), st.sampled_from(ENTRIES), st.booleans())
def test_edits_of_the_handbooks_methods(entry: HandbookEntry, other: HandbookEntry, spoken: bool) -> None:
    source, lender = entry.source, other.source
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    slots = sorted({node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "self"} - {"_p_changed"})
    known = RequestFacts(entry.purpose, slots, slots if spoken else (), slots)
    found = edits(source, known, [lender], most=150)
    assert found == sorted(found) == edits(source, known, [lender], most=150)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the compiler's, of what can never work
        for _, text in found:
            compile(text, "<edit>", "exec")
            assert makes_sense(text, known)
            assert text != ast.unparse(ast.parse(source))
