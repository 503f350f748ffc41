"""Replay: a finished mission thought through again from its journal, without any model call, to see whether it comes out the same.

Where it does not, something that decides it has changed since: the code, a prompt, an option, a persona's slots, the
model. The image of now is used; the unit is doomed, so nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

from batos.bridge.inference import ChatReply, ChatRequest, Inference
from batos.errors import BatosError, DeadlineExceeded, InferenceFailed, InvalidInput
from batos.image import journal, ledger
from batos.image.living_image import LivingImage
from batos.mind.attempt_context import Thinking
from batos.mind.events import TextBatch
from batos.mind.inference import JournalPlace, NeedAnswer
from batos.missions.execution import Attempts
from batos.objects import UvmObject

PROMPTS_BYTES = 2 * 1024 * 1024
_SHOWN = 400  # characters of each text where two differ
_COMPARED = ("persona", "facets", "plan", "text", "value")  # of a result, in the order in which they come about
_PART_NAMES = {"digest": "model", "system": "system", "user": "prompt", "schema": "format", "options": "options"}


class Replaying(Thinking):
    """Takes every inference from the journal. What is not there fails, as it may have failed the first time."""

    compare = proposes = keeps = False
    missed: dict[str, Any] | None = None  # the first that was not there
    prompts: list[dict[str, Any]] | None = None  # what each inference was asked, where that is wanted

    def recall(self) -> None:
        super().recall()
        self.unused = dict(self._recorded)

    def known(self, place: JournalPlace, label: str) -> journal.InferenceRecord | None:
        found = super().known(place, label)
        if found is None and getattr(self._inference, "failed", False):  # it is not known which model this is now: taken for the same
            fitting = [e for e in self.unused.values() if e.parts and not set(journal.changed_parts(e.parts, place.parts)) - {"digest"}]
            found = next((e for e in fitting if e.label == label), next(iter(fitting), None))
        if found is not None:
            self.unused.pop((found.key, found.occurrence), None)
        return found

    async def chat(self, role: str, system: str, user: str, **more: Any) -> ChatReply:
        """See `Thinking.chat`; what is asked is kept, where that is wanted: the journal has answers, and sums of what was asked."""
        if self.prompts is None:
            return await super().chat(role, system, user, **more)
        by, turns = more.get("by"), more.get("turns", ())
        state = {"cycle": by.cycle, "state": by.state, "persona": by.persona} if by is not None else {"state": self.state}
        asked: dict[str, Any] = {**state, "part": more.get("part"), "model": self.model_of(role), "system": system, "user": user}
        if turns:
            asked["turns"] = [list(turn) for turn in turns]
        if more.get("schema") is not None:
            asked["schema"] = more["schema"]
        self.prompts.append(asked)
        reply = await super().chat(role, system, user, **more)
        asked["said"] = reply.text
        return reply

    async def ruled(self, root: Any, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
        """What was told by rule is told again: it went by what was measured then."""
        told = self.mission["result"] or {}
        return {"text": told["text"], "value": told.get("value")} if told.get("by_rule") else None

    def ask(self, question: str) -> str:
        """Nobody is asked here.

        :raises InvalidInput: where the user had not answered.
        """
        try:
            return super().ask(question)
        except NeedAnswer:
            raise InvalidInput(f"the question {question[:60]!r} was not answered") from None

    async def look(self) -> None:
        """Nothing is looked at: what the journal has was seen, or was not."""

    def _keep(self, record: Callable[..., None], *what: Any) -> None:
        """A replay leaves no trace."""

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None = None) -> journal.InferenceRecord:
        """Nothing is paid here.

        :raises InferenceFailed: always.
        """
        if self.missed is None:
            _, state, _, part = label.split(" ", 3)
            self.missed = {
                "what": "inference",
                "state": state,
                "facet": None if part == "-" else part,
                "model": request.model,
                "place": place,
            }
        raise InferenceFailed(f"the journal has no such inference of {request.model}", cause="not_in_journal", retryable=False)


class _Offline:
    """An inference that only names digests; where it cannot within its time, it says so."""

    def __init__(self, inference: Inference, patience_s: float) -> None:
        self._inference, self._patience = inference, patience_s
        self._digests: dict[str, str] = {}
        self.failed = False

    async def digest(self, model: str) -> str:
        if model not in self._digests:
            try:
                async with asyncio.timeout(self._patience):
                    self._digests[model] = await self._inference.digest(model)
            except (TimeoutError, BatosError):
                self._digests[model], self.failed = "", True
        return self._digests[model]

    async def continues(self, model: str) -> bool:
        return False

    async def chat(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a replay asks no model")

    embed = chat


class Replays:
    """Replays missions of one image."""

    def __init__(
        self,
        image: LivingImage,
        inference: Inference,
        replaying: Callable[[dict[str, Any], Inference], Replaying],
        *,
        digest_s: float,
        limit_s: float,
    ) -> None:
        """
        :param inference: asked for digests only, and for no longer than `digest_s`.
        :param replaying: makes the host's side of a replay from a mission's record.
        :param limit_s: time for one replay.
        """
        self._image, self._inference, self._replaying = image, inference, replaying
        self._digest_s, self._limit_s = digest_s, limit_s
        self._attempts = Attempts(image, conflict_retries=1)

    async def replay(self, id: str, *, prompts: bool = False) -> dict[str, Any]:
        """Replay a mission.

        :param prompts: whether what each inference was asked is told, too, as far as the replay comes; at most `PROMPTS_BYTES` of it.
        :returns: `id`, `state`, `outcome` (same, different, journal_ended), `inferences` (taken from the journal),
            `journaled`, `unused`, and the first `difference`.
        :raises UnknownMission: if there is none of that id.
        :raises InvalidInput: if it has not ended, or its journal was dropped.
        """
        record, dropped = self._image.read(_read, id)
        if record["state"] not in ledger.FINAL:
            raise InvalidInput(f"mission {id!r} is {record['state']}; only what has ended can be replayed")
        if dropped:
            raise InvalidInput(f"the journal of mission {id!r} has lost its texts (setting image.journal_days); its cost is still known")
        offline = _Offline(self._inference, self._digest_s)
        attempt = self._replaying(record, offline)
        attempt.prompts = [] if prompts else None
        attempt.recall()
        journaled = len(attempt.unused)
        result, error = await self._rehearse(attempt)
        difference = _difference(record, attempt, result, error)
        facts = {"inferences": journaled - len(attempt.unused), "journaled": journaled, "unused": len(attempt.unused)}
        if offline.failed:
            facts["models_unknown"] = True
        if attempt.prompts is not None:
            facts |= _told(attempt.prompts)
        if difference is None:
            return {"id": id, "state": record["state"], "outcome": "same", **facts}
        ended = record["state"] == ledger.FAILED and difference["what"] == "inference" and not attempt.unused
        return {"id": id, "state": record["state"], "outcome": "journal_ended" if ended else "different", **facts, "difference": difference}

    async def _rehearse(self, attempt: Replaying) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """The result, or the error as the wire shows it."""
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._attempts.rehearse(attempt), None
        except TimeoutError:
            return {}, DeadlineExceeded(f"the replay was not finished within {self._limit_s:g} s").to_wire()
        except BatosError as e:
            return {}, e.to_wire()
        except Exception as e:
            return {}, BatosError(f"{type(e).__name__}: {e}").to_wire()


def _told(prompts: list[dict[str, Any]]) -> dict[str, Any]:
    """The first prompts that have room in a reply, and whether there are more."""
    sizes = itertools.accumulate(len(json.dumps(one)) for one in prompts)
    told = prompts[: max(1, sum(size <= PROMPTS_BYTES for size in sizes))]
    return {"prompts": told, **({"more": True} if len(told) < len(prompts) else {})}


def _read(root: Any, id: str) -> tuple[dict[str, Any], bool]:
    mission = ledger.mission_of(root, id)
    return ledger.describe(mission), bool(journal.of(mission).spent)


def _difference(record: dict[str, Any], attempt: Replaying, result: dict[str, Any], error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Where this replay first came out otherwise than the mission; None if it did not."""
    was = record["error"]
    if record["state"] == ledger.COMPLETE and error is None:
        found = _compared(record["result"] or {}, result, attempt.state)
    elif was is not None and error is not None and was["code"] == error["code"]:
        # It failed alike; but not for want of an inference while the journal holds others, which nobody asked for.
        found = None if attempt.missed is None or not attempt.unused else {}
    else:
        before, now = (f"FAILED: {e['code']}: {e['message']}" if e else "COMPLETE" for e in (was, error))
        found = {"what": "end", "state": attempt.reached, "expected": before[:_SHOWN], "found": now[:_SHOWN]}
    if found is None or attempt.missed is None:
        return found
    place: JournalPlace = attempt.missed.pop("place")
    return {**attempt.missed, "changed": _changed(place, attempt)}


def _compared(was: dict[str, Any], now: dict[str, Any], state: str) -> dict[str, Any] | None:
    now = json.loads(json.dumps(now))  # as the ledger keeps it
    for name in _COMPARED:
        if was.get(name) != now.get(name):
            return {"what": name, "state": state, "expected": str(was.get(name))[:_SHOWN], "found": str(now.get(name))[:_SHOWN]}
    return None


def _changed(place: JournalPlace, attempt: Replaying) -> list[str]:
    """What differs from the inference of the journal that is most like the one that was missed; empty if that cannot be told."""
    unused = [entry.parts for entry in attempt.unused.values() if entry.parts]
    if not unused:
        return []
    nearest = min((journal.changed_parts(parts, place.parts) for parts in unused), key=len)
    return [_PART_NAMES[name] for name in nearest]
