"""Grants: more denies never allow more, and the order of grants of one verdict does not matter to the verdict."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batos.image.grants import ALLOW, ASK, DENY, VERDICTS, CurrentGrant, GrantRecord, GrantUse
from batos.tools.definitions import ToolDefinition
from batos.tools.grant_arguments import fits, glob
from batos.tools.grant_questions import narrowed
from batos.tools.grants import MARKS, SYSTEM, USER, ToolRequest, decide

RANK = {verdict: rank for rank, verdict in enumerate(VERDICTS)}
NAMES = st.sampled_from(["path", "to", "text", "count"])
VALUES = st.one_of(st.text("ab*./", max_size=6), st.integers(0, 3), st.booleans(), st.lists(st.text("ab", max_size=2), max_size=2))
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=3)
CONSTRAINTS = st.sampled_from(["", '{"path":"a*"}', '{"to":"*"}', '{"count":{"maximum":1}}', '{"*":false}'])


@st.composite
def held(draw: Any, verdicts: tuple[str, ...] = VERDICTS) -> CurrentGrant:
    verdict = draw(st.sampled_from(verdicts))
    allows = verdict == ALLOW
    record = GrantRecord(
        draw(st.integers(1, 99)),
        verdict,
        draw(st.sampled_from(["*", "n.*", "n.read", "n.write", "m.*"])),
        persona=draw(st.sampled_from(["", "babs", "ana"])),
        args=draw(CONSTRAINTS),
        until=draw(st.sampled_from([0.0, 5.0, 50.0])),
        uses=draw(st.integers(0, 2)) if allows else 0,
        leaks=draw(st.booleans()) if allows else False,
        system=draw(st.booleans()) if allows else False,
    )
    return CurrentGrant(record, GrantUse(0, draw(st.integers(0, 2))))


@st.composite
def requests(draw: Any) -> ToolRequest:
    reads = draw(st.booleans())
    tool = ToolDefinition(name="read" if reads else "write", kind="reads" if reads else "acts", outward=draw(st.booleans()))
    marks = draw(st.frozensets(st.sampled_from(sorted(MARKS))))
    return ToolRequest(
        connection="n", tool=tool, arguments=draw(ARGUMENTS), mission="m", persona="babs", origin=draw(st.sampled_from([USER, SYSTEM])),
        now=10.0, marks=marks,
    )  # fmt: skip


@given(st.lists(held(), max_size=6), held((DENY, ASK)), requests(), st.integers(0, 6))
def test_a_deny_or_an_ask_more_never_allows_more(grants: list[CurrentGrant], more: CurrentGrant, request: ToolRequest, at: int) -> None:
    before, after = decide(grants, request), decide([*grants[:at], more, *grants[at:]], request)
    assert RANK[after.verdict] <= RANK[before.verdict]


@given(st.lists(held(), max_size=6), held((ALLOW,)), requests())
def test_an_allow_more_never_outweighs_a_deny_or_an_ask_that_fits(
    grants: list[CurrentGrant], more: CurrentGrant, request: ToolRequest
) -> None:
    before = decide(grants, request)
    if before.grant is not None and before.verdict != ALLOW:
        assert decide([more, *grants], request) == before


@given(st.lists(held(), max_size=6).flatmap(lambda held: st.tuples(st.just(held), st.permutations(held))), requests())
def test_the_order_of_grants_does_not_change_the_verdict(
    orders: tuple[list[CurrentGrant], list[CurrentGrant]], request: ToolRequest
) -> None:
    first, second = (decide(order, request) for order in orders)
    assert (first.verdict, first.leak) == (second.verdict, second.leak)


@given(st.lists(held(), max_size=6), requests(), st.sampled_from(sorted(MARKS)))
def test_a_mark_more_never_allows_more(grants: list[CurrentGrant], request: ToolRequest, mark: str) -> None:
    if not request.tool.outward:
        return
    marked = ToolRequest(**{**{name: getattr(request, name) for name in ToolRequest.__slots__}, "marks": request.marks | {mark}})
    assert RANK[decide(grants, marked).verdict] <= RANK[decide(grants, request).verdict]


@given(CONSTRAINTS, ARGUMENTS)
def test_what_fits_an_allow_fits_a_deny_of_the_same(constraints: str, arguments: dict[str, Any]) -> None:
    if fits(constraints, arguments, strict=True):
        assert fits(constraints, arguments, strict=False)


@given(ARGUMENTS)
def test_a_narrowed_grant_lets_the_very_call_again(arguments: dict[str, Any]) -> None:
    assert fits(narrowed(arguments), arguments, strict=True)


@given(st.text("ab*", max_size=6), st.text("ab", max_size=8))
def test_a_pattern_matches_as_its_definition_says(pattern: str, text: str) -> None:
    def slow(pattern: str, text: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(slow(pattern[1:], text[at:]) for at in range(len(text) + 1))
        return bool(text) and text[0] == pattern[0] and slow(pattern[1:], text[1:])

    assert glob(pattern, text) is slow(pattern, text)
