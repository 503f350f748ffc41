"""Part of the client for comparisons side by side."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack

from batos.wire.schedule_client import Scheduling


class CompareTerms(TypedDict, total=False):
    """Terms of a comparison; each may be left out, but one of `other`, `codex` and `changed`."""

    other: str | None
    """another persona, or a model"""
    codex: str | None
    """text of a codex file with that persona, or with one only"""
    changed: Mapping[str, str] | None
    """slot of the persona, or setting of thought -> new value"""
    missions: int | None
    """number of recorded missions; default: 8, or none where briefs are given"""
    match: str | None
    """words in the briefs of the recorded missions"""
    briefs: Sequence[Mapping[str, Any]] | None
    """given briefs: `brief`, optional `depth`, `flavour`, `schema`, `exact`, `contains`"""
    judge: Literal["me", "alfred", "rules"] | None
    rules: Sequence[str] | None
    """rules of the judge `rules`, the most important first: schema, exact, contains, length, latency, tokens"""
    inferences: int | None
    """greatest number of inferences that it may pay for"""
    tokens: int | None
    minutes: float | None
    """greatest model time"""


class Comparing(Scheduling):
    """Part of `batos.wire.client.Client` for comparisons side by side."""

    async def compare_start(
        self, persona: str, *, id: str | None = None, dry: bool = False, **terms: Unpack[CompareTerms]
    ) -> dict[str, Any]:
        """Compare a variant of a persona with what there is. The same id and terms again mean the same comparison.

        :param id: its name; default: a new one.
        :param dry: only say what would be compared (`words`, `pairs`), its `budget`, and in `estimate` what it would probably cost.
        :param terms: other, codex, changed, missions, match, briefs, judge, rules, inferences, tokens, minutes (`CompareTerms`).
        :raises InvalidInput: if it makes no sense, saying why.
        """
        told: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
        return await self._ask("compare.start", id=id or f"{persona}-{uuid.uuid4().hex[:6]}", persona=persona, dry=dry or None, **told)

    async def compare_list(self, limit: int | None = None) -> dict[str, Any]:
        """Return the comparisons in `comparisons`, the last begun first."""
        return await self._ask("compare.list", limit=limit)

    async def compare_show(self, id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a comparison with its `figures`, its `verdict`, and in `compared` its pairs; one that its user has still to judge is
        hidden.

        :param wait_s: greatest number of seconds to wait for a change of a comparison that is under way; 0: do not wait.
        """
        return await self._ask("compare.show", hold_s=wait_s, id=id, wait_s=wait_s or None)

    async def compare_next(self, id: str) -> dict[str, Any]:
        """Return in `pair` the next pair to judge, with `left` and `right`; None if there is none."""
        return await self._ask("compare.next", id=id)

    async def compare_judge(self, id: str, number: int, verdict: Literal["left", "right", "tie"]) -> dict[str, Any]:
        """Judge a pair; return the next one."""
        return await self._ask("compare.judge", id=id, number=number, verdict=verdict)

    async def compare_stop(self, id: str) -> dict[str, Any]:
        """Stop a comparison. What it has paid for stays, and `compare_resume` goes on."""
        return await self._ask("compare.stop", id=id)

    async def compare_resume(self, id: str, **terms: Unpack[CompareTerms]) -> dict[str, Any]:
        """Let a comparison go on that was stopped, killed, or out of its budget; or have it judged otherwise.

        :param terms: judge, rules, inferences, tokens, minutes.
        """
        told: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
        return await self._ask("compare.resume", id=id, **told)

    async def compare_promote(self, id: str, note: str, *, anyway: bool = False) -> dict[str, Any]:
        """Make the variant what there is, in one transaction; `change` is the number by which `undo_change` takes it back.

        :param note: why; it is kept with it.
        :param anyway: also where pairs are not judged yet, or the verdict is not that it is better.
        :raises InvalidInput: saying why not.
        """
        return await self._ask("compare.promote", id=id, note=note, anyway=anyway or None)

    async def compare_remove(self, id: str) -> dict[str, Any]:
        """Forget a comparison that is not under way; return those that are left."""
        return await self._ask("compare.remove", id=id)
