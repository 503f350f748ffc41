"""Runner of comparisons: one at a time, behind users' missions, each pair thought through in two mirrors of the image.

What is paid for, each pair and each judgement are durable when they are there. So a comparison that was killed, stopped or out of its
budget goes on where it was, and pays nothing twice. Nothing in a mirror reaches the image or acts outside. A recorded mission sees what its
tools answered then. A thought that would call a tool anew is left out, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import structlog

from batos.bridge.inference import Inference
from batos.comparisons import items, judging, records, variant
from batos.comparisons.limits import CompareBudget, CompareLimits
from batos.comparisons.records import ALFRED, BASE, CHANGED, RULES, ComparePayments
from batos.comparisons.variant import AskedVariant, Variant
from batos.concurrency import cancel_and_wait
from batos.config import Settings
from batos.errors import BatosError, InvalidInput
from batos.image import ledger
from batos.image.living_image import ImageLimits, LivingImage
from batos.mind import answer_schema
from batos.mind.attempt_services import REPLAYED, AttemptPolicy
from batos.missions.mirror_stage import MirroredThought, Stage, Staging, two_stages
from batos.missions.purse import Allowance, Purse, Unknown
from batos.objects import Root

log = structlog.get_logger("batos.comparisons")
_RECORDED = replace(REPLAYED, revoices=True)
_GIVEN = AttemptPolicy(keeps=False, compares=True, revoices=True)
"""Policy of a given brief: nothing of it was recorded, so memory and the embedder are asked, by both sides."""


class AskedComparison(NamedTuple):
    """A comparison in the words of its user."""

    variant: AskedVariant
    missions: int | None = None
    """Number of recorded missions; None: as many as usual, or none where briefs are given."""
    match: str | None = None
    """Words that are in the briefs of the recorded missions."""
    briefs: Sequence[Mapping[str, Any]] = ()
    """Given briefs: `brief`, and where given `depth`, `flavour`, `schema`, `exact`, `contains`."""
    judge: str = records.USER
    rules: Sequence[str] = ()
    inferences: int | None = None
    tokens: int | None = None
    minutes: float | None = None


class _Halted(Exception):
    """A comparison cannot go on now: the state that it is left in, and why."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state, self.reason = state, reason


class CompareRunner:
    """Runs comparisons. All methods are called on the loop's thread; `await run()` until cancelled."""

    def __init__(
        self,
        image: LivingImage,
        inference: Inference,
        settings: Settings,
        staging: Staging,
        *,
        models: Callable[[], Collection[str]],
        quiet: Callable[[], Awaitable[None]],
    ) -> None:
        """
        :param inference: answers what a comparison asks; its budget bounds it.
        :param models: names of the models that are there.
        :param quiet: returns when no user's mission needs the system.
        """
        self._image, self._inference, self._settings, self.staging = image, inference, settings, staging
        self._models, self._quiet = models, quiet
        self._limits = CompareLimits.of(settings)
        self._waiting: deque[str] = deque()
        self._came = asyncio.Event()
        self._at: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()

    # --- requests

    def plan(self, asked: AskedComparison) -> dict[str, Any]:
        """Return a comparison as it would be made (`records.SPEC`), with its `estimate`.

        :raises BatosError: saying why it makes no sense.
        """
        if asked.judge not in records.JUDGES:
            raise InvalidInput(f"{asked.judge!r} is not a valid judge; there are: {', '.join(records.JUDGES)}")
        if asked.judge == RULES:
            judging.check_rules(asked.rules)
        elif asked.rules:
            raise InvalidInput("only the judge `rules` takes rules")
        for brief in asked.briefs:
            if brief.get("schema") is not None:
                answer_schema.check_schema(brief["schema"])
        return self._image.read(self._planned, asked)

    def _planned(self, root: Root, asked: AskedComparison) -> dict[str, Any]:
        if asked.judge == ALFRED:
            judging.judge_in(root)
        made, limits = variant.variant_of(root, asked.variant, self._models()), self._limits
        count = asked.missions if asked.missions is not None else 0 if asked.briefs and asked.match is None else limits.missions
        found = items.recorded(root, made.persona, asked.match, count, limits.looked_at)
        chosen: list[Mapping[str, Any]] = [{"mission": id} for id in found]
        chosen += [{name: value for name, value in brief.items() if value is not None} for brief in asked.briefs]
        if not chosen:
            fitting = f" with {asked.match!r} in its brief" if asked.match else ""
            raise InvalidInput(
                f"{made.persona} has thought no mission through{fitting} that could be compared; give briefs (--briefs FILE)"
            )
        if len(chosen) > limits.briefs:
            raise InvalidInput(f"{len(chosen)} missions and briefs are too many for one comparison; at most {limits.briefs} are taken")
        budget = CompareBudget.of(limits, asked.inferences, asked.tokens, asked.minutes)
        return {
            "asked": hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()[:16],
            "words": made.words,
            "variant": made._asdict(),
            "standing": variant.standing(root, made),
            "items": chosen,
            "judge": asked.judge,
            "rules": list(asked.rules),
            "budget": budget.to_wire(),
            "before": CompareBudget(0, 0, 0.0).to_wire(),
            "estimate": items.estimated(root, made, chosen, asked.judge, limits),
        }

    async def begin(self, id: str, asked: AskedComparison) -> None:
        """Record a comparison and let it run when its turn comes. The same one again changes nothing.

        :raises BatosError: saying why it makes no sense.
        """
        seed = int.from_bytes(hashlib.sha256(f"compare {id}".encode()).digest()[:4], "big") >> 1
        if await self._image.system(records.begin, id, self.plan(asked), seed, self._limits.kept):
            log.info("comparison_begun", comparison=id)
            self._enqueue(id)

    async def resume(self, id: str, changed: Mapping[str, Any]) -> None:
        """Let a comparison go on that was stopped, interrupted, or out of its budget; or have a judged one judged by another judge.

        :param changed: `judge`, `rules`, and parts of the budget (`inferences`, `tokens`, `minutes`) that are new.
        """
        told = self._image.read(lambda root: records.described(records.record_of(root, id)))
        if id == self._at or id in self._waiting:
            return
        self._image.read(records.check_here, id)
        spec = told["spec"]
        budget = {**spec["budget"], **{name: changed[name] for name in spec["budget"] if changed.get(name) is not None}}
        judge = changed.get("judge") or spec["judge"]
        rules = list(changed.get("rules") or (spec["rules"] if judge == RULES else ()))
        if judge == RULES:
            judging.check_rules(rules)
        elif judge == ALFRED:
            self._image.read(judging.judge_in)
        again = told["state"] != records.DONE or (judge, rules) != (spec["judge"], spec["rules"])
        if again:
            await self._image.system(records.amend, id, {"budget": budget, "judge": judge, "rules": rules})
            await self._image.system(records.set_state, id, records.WAITING)
            self._enqueue(id)

    async def stop(self, id: str) -> None:
        """Stop a comparison that waits or runs; what it has paid for stays. One that does neither stays as it is."""
        self._image.read(records.check_here, id)
        state = self._image.read(lambda root: records.record_of(root, id).state)
        if id in self._waiting:
            self._waiting.remove(id)
        elif id == self._at and self._task is not None:
            await cancel_and_wait(self._task)
        if state in (records.WAITING, records.RUNNING):
            await self._image.system(records.set_state, id, records.STOPPED, "its user stopped it")
        self._tell()

    def is_at(self, id: str) -> bool:
        """Return True if a comparison runs, or waits for its turn."""
        return id == self._at or id in self._waiting

    async def moved(self, id: str, wait_s: float) -> None:
        """Return when something has happened to a comparison that is under way, or after `wait_s` seconds; at once if it is not."""
        if self.is_at(id):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._moved.wait()

    def _enqueue(self, id: str) -> None:
        self._waiting.append(id)
        self._came.set()
        self._tell()

    def _tell(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()

    # --- the work

    async def run(self) -> None:
        """Run comparisons, one after the other, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting:
                id = self._waiting.popleft()
                self._at, self._task = id, asyncio.create_task(self._run_one(id), name=f"comparison {id}")
                try:
                    await asyncio.wait([self._task])
                finally:
                    await cancel_and_wait(self._task)
                    self._at = self._task = None
                    self._tell()

    async def _run_one(self, id: str) -> None:
        system = self._image.system
        try:
            await system(records.set_state, id, records.RUNNING)
            self._tell()
            await self._compare(id)
        except _Halted as e:
            log.info("comparison_halted", comparison=id, state=e.state, why=e.reason)
            await system(records.set_state, id, e.state, e.reason)
        except BatosError as e:
            log.warning("comparison_failed", comparison=id, error=e.message)
            await system(records.set_state, id, records.FAILED, e.message)
        except Exception as e:
            log.exception("comparison_failed", comparison=id)
            await system(records.set_state, id, records.FAILED, f"{type(e).__name__}: {e}")
        else:
            await system(records.set_state, id, records.DONE)
            log.info("comparison_done", comparison=id)

    async def _compare(self, id: str) -> None:
        spec = self._image.read(lambda root: records.described(records.record_of(root, id))["spec"])
        made = records.variant_in(spec)
        if self._image.read(variant.standing, made) != spec["standing"]:
            both = " or ".join(name for name in (made.persona, made.instead) if name)
            raise _Halted(records.FAILED, f"{both} was changed since this comparison began; begin another one")
        purse = self._purse(id, spec)
        cache = ImageLimits.of(self._settings).cache
        async with two_stages(self._image, self._inference, self.staging, cache) as (base, other):
            async with other.image.unit() as unit:
                variant.apply(unit.root, made)
            services = replace(other.services, terms=variant.terms_with(other.services.terms, made.settings))
            stages = {BASE: base, CHANGED: Stage(other.image, services)}
            for stage in stages.values():
                await stage.image.system(_accept_briefs, id, made.persona, spec["items"])
            done = self._image.read(lambda root: records.pairs_of(records.record_of(root, id)))
            for number, item in enumerate(spec["items"], 1):
                if number not in done:
                    done[number] = await self._pair(stages, made, purse, item, _mission_of(id, number, item))
                    await self._image.system(records.keep_pair, id, number, done[number])
                    self._tell()
            await self._judge(id, spec, base, purse, done)

    def _purse(self, id: str, spec: Mapping[str, Any]) -> Purse:
        budget, before = spec["budget"], spec["before"]
        allowance = Allowance(
            budget["inferences"] - before["inferences"],
            budget["tokens"] - before["tokens"],
            self._settings.inference.deadline_s,
            (budget["minutes"] - before["minutes"]) * 60,
        )
        return Purse(self._inference, ComparePayments(self._image, id), allowance, quiet=self._quiet)

    async def _pair(
        self, stages: Mapping[str, Stage], made: Variant, purse: Purse, item: Mapping[str, Any], mission: str
    ) -> dict[str, Any]:
        """Think a mission through on both sides; return both outcomes, or why the pair is left out."""
        given = "brief" in item
        brief = stages[BASE].image.read(lambda root: str(ledger.mission_of(root, mission).brief))
        pair: dict[str, Any] = {"brief": brief, **{name: item[name] for name in ("mission", "exact", "contains") if name in item}}
        for side, stage in stages.items():
            policy, persona = _RECORDED, None
            if given:
                policy, persona = _GIVEN, made.persona
            if side == CHANGED:
                policy, persona = replace(policy, rethinks=made.thinks_anew), made.instead or persona
            thought = await stage.think(stage.attempt(mission, purse, policy, persona))
            if thought.passes:
                raise self._halted(purse, thought.unknown)
            if thought.unknown:
                log.info("pair_left_out", mission=mission, why=thought.unknown)
                return {**pair, "left_out": f"{thought.unknown} ({'as it is' if side == BASE else 'with the variant'})"}
            pair[side] = await self._side(thought)
        return pair

    def _halted(self, purse: Purse, why: str) -> _Halted:
        if purse.is_empty:
            return _Halted(
                records.SPENT, f"its budget is spent: {purse.inferences} inferences, {purse.tokens} tokens; a larger one goes on"
            )
        return _Halted(records.STOPPED, why)

    async def _side(self, thought: MirroredThought) -> dict[str, Any]:
        attempt, result, error = thought.attempt, thought.result or {}, thought.error
        used, usage = attempt.tally.used, attempt.usage()
        text = str(result.get("text", ""))
        schema = attempt.mission.schema
        fits = None if schema is None else error is None and (await answer_schema.read(text, schema))[1] is None
        told = {
            "text": text[: self._limits.text_chars],
            "persona": str(result.get("persona") or attempt.persona or ""),
            "depth": result.get("depth"),
            "failed": thought.failed,
            "error": "" if error is None else str(error)[:500],
            "inferences": usage["inferences"],
            "tokens": usage["prompt_tokens"] + usage["answer_tokens"],
            "seconds": round(sum(max(0.0, one.total_ms - one.load_ms) for one in used) / 1000, 3),
            "chars": len(text),
            "models": usage["models"],
            "fits": fits,
        }
        effects = attempt.tools.facts().get("tools")
        return {**told, "effects": effects} if effects else told

    async def _judge(self, id: str, spec: Mapping[str, Any], base: Stage, purse: Purse, pairs: Mapping[int, Mapping[str, Any]]) -> None:
        if spec["judge"] == records.USER:
            return
        judge = self._image.read(judging.judge_in) if spec["judge"] == ALFRED else None
        judged = self._image.read(lambda root: records.judgements_of(records.record_of(root, id), spec["judge"])) if judge else {}
        for number, pair in pairs.items():
            if "left_out" in pair or number in judged or judging.settled(pair):
                continue
            if judge is None:
                found = judging.by_rules(spec["rules"], pair)
            else:
                attempt = base.attempt(_mission_of(id, number, spec["items"][number - 1]), purse)
                try:
                    found = await judging.by_persona(judge, attempt, pair, self._limits.judged_chars)
                except Unknown as e:
                    raise self._halted(purse, str(e)) from None
            await self._image.system(records.keep_judgement, id, spec["judge"], number, found)
            self._tell()


def _mission_of(id: str, number: int, item: Mapping[str, Any]) -> str:
    """Return the id of the mission of an item: of a given brief one that only the mirrors have."""
    return str(item["mission"]) if "mission" in item else f"compare:{id}:{number}"


def _accept_briefs(root: Root, id: str, persona: str, found: Sequence[Mapping[str, Any]]) -> None:
    """System transaction in a mirror: accept the given briefs as missions."""
    for number, item in enumerate(found, 1):
        if "brief" in item:
            options = {"persona": persona, **{name: item[name] for name in ("depth", "flavour") if name in item}}
            if "schema" in item:
                options["schema"] = ledger.compact(item["schema"])
            ledger.accept(root, _mission_of(id, number, item), item["brief"], options, False)
