"""Requests about comparisons side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batos.api.dispatcher import handles
from batos.comparisons import promotion, records, report
from batos.comparisons.runner import AskedComparison, CompareRunner
from batos.comparisons.variant import AskedVariant
from batos.config import Settings
from batos.image.living_image import LivingImage
from batos.objects import Root
from batos.wire import compare_schemas as schemas
from batos.wire.outbox import Recipient

Reply = dict[str, Any]


class ComparisonRequests:
    """Handlers of the requests about comparisons."""

    def __init__(self, image: LivingImage, runner: CompareRunner, settings: Settings, window: Callable[[str], str]) -> None:
        """
        :param window: returns the part of a brief that is analysed (`Router.window`).
        """
        self._image, self.runner, self._settings, self._window = image, runner, settings, window

    @handles(schemas.CompareStartRequest)
    async def start(self, request: schemas.CompareStartRequest, client: Recipient) -> Reply:
        """Begin a comparison, or say what it would be."""
        asked = AskedComparison(
            AskedVariant(request.persona, request.other, request.codex, request.changed),
            request.missions,
            request.match,
            tuple(brief.model_dump(by_alias=True, exclude_none=True) for brief in request.briefs),
            request.judge,
            tuple(request.rules),
            request.inferences,
            request.tokens,
            request.minutes,
        )
        if request.dry:
            plan = self.runner.plan(asked)
            shown = {name: plan[name] for name in ("words", "judge", "rules", "budget", "estimate", "variant")}
            return {"type": "compare_plan", "id": request.id, **shown, "pairs": len(plan["items"])}
        await self.runner.begin(request.id, asked)
        return self._told(request.id)

    @handles(schemas.CompareListRequest)
    async def listed(self, request: schemas.CompareListRequest, client: Recipient) -> Reply:
        """Return the comparisons."""
        return self._listed(request.limit)

    def _listed(self, limit: int = 50) -> Reply:
        def read(root: Root) -> list[Reply]:
            found = [record for record, _ in zip(records.newest_first(root), range(limit), strict=False)]
            return [report.summary(record, is_at=self.runner.is_at(record.id)) for record in found]

        return {"type": "comparisons", "comparisons": self._image.read(read)}

    @handles(schemas.CompareShowRequest)
    async def show(self, request: schemas.CompareShowRequest, client: Recipient) -> Reply:
        """Return a comparison, when something has happened to it where that is asked for."""
        if request.wait_s:
            await self.runner.moved(request.id, request.wait_s)
        return self._told(request.id)

    def _told(self, id: str) -> Reply:
        told = self._image.read(lambda root: report.report(records.record_of(root, id), is_at=self.runner.is_at(id)))
        return {"type": "comparison", **told}

    @handles(schemas.CompareNextRequest)
    async def next(self, request: schemas.CompareNextRequest, client: Recipient) -> Reply:
        """Return the next pair to judge."""
        return self._next(request.id)

    def _next(self, id: str) -> Reply:
        return {"type": "compare_pair", "id": id, "pair": self._image.read(lambda root: report.next_pair(records.record_of(root, id)))}

    @handles(schemas.CompareJudgeRequest)
    async def judge(self, request: schemas.CompareJudgeRequest, client: Recipient) -> Reply:
        """Keep a user's judgement."""
        await self._image.system(report.judge, request.id, request.number, request.verdict)
        return self._next(request.id)

    @handles(schemas.CompareStopRequest)
    async def stop(self, request: schemas.CompareStopRequest, client: Recipient) -> Reply:
        """Stop a comparison."""
        await self.runner.stop(request.id)
        return self._told(request.id)

    @handles(schemas.CompareResumeRequest)
    async def resume(self, request: schemas.CompareResumeRequest, client: Recipient) -> Reply:
        """Let a comparison go on."""
        changed = request.model_dump(include={"judge", "rules", "inferences", "tokens", "minutes"})
        await self.runner.resume(request.id, changed)
        return self._told(request.id)

    @handles(schemas.ComparePromoteRequest)
    async def promote(self, request: schemas.ComparePromoteRequest, client: Recipient) -> Reply:
        """Make the variant what there is."""
        made = await promotion.promote(self._image, self._settings, self._window, request.id, request.note, anyway=request.anyway)
        return {**self._told(request.id), **made}

    @handles(schemas.CompareRemoveRequest)
    async def remove(self, request: schemas.CompareRemoveRequest, client: Recipient) -> Reply:
        """Forget a comparison."""
        await self._image.system(records.remove, request.id, self.runner.is_at(request.id))
        return self._listed()
