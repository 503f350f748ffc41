"""Replay: a finished mission thought through again from its journal, without any model call, and compared with its result.

Where the two differ, something that decides the result has changed since: the code, a prompt, an option, a persona's slots, the model. A
replay works on the image as it is now, in a unit of work that is doomed, so nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import Any

from batos.bridge.inference import ChatRequest, Inference
from batos.errors import BatosError, DeadlineExceeded, InferenceFailed, InvalidInput
from batos.image import journal, ledger
from batos.image.living_image import LivingImage
from batos.image.mission_record import MissionRecord
from batos.mind.attempt import Attempt
from batos.mind.attempt_services import REPLAYED, AttemptServices
from batos.mind.events import Events, TextBatch, nothing_proposed
from batos.mind.inference import JournaledAnswers, JournalPlace, NeedAnswer
from batos.missions.execution import Attempts
from batos.objects import Root, UvmObject

PROMPTS_BYTES = 2 * 1024 * 1024
_SHOWN = 400  # characters of each text where two differ
_COMPARED = ("persona", "facets", "plan", "text", "value")  # of a result, in the order in which they come about
_PART_NAMES = {"digest": "model", "system": "system", "user": "prompt", "schema": "format", "options": "options"}


class JournalOnlySource:
    """Source that has only the journal: an inference that the journal lacks fails."""

    def __init__(self, mission: str, image: LivingImage, offline: OfflineInference | None = None, *, transcribes: bool = False) -> None:
        """
        :param mission: its id.
        :param offline: names the digests of models. Where one is not known, the model is taken for the one that answered then.
        :param transcribes: whether to keep `prompts`.
        """
        self._mission, self._image, self._offline = mission, image, offline
        self.recorded = JournaledAnswers()
        self.unused: dict[journal.Key, journal.InferenceRecord] = {}
        """Inferences of the journal that nothing has asked for."""
        self.missed: dict[str, Any] | None = None
        """The first inference that was not in the journal."""
        self.prompts: list[dict[str, Any]] | None = [] if transcribes else None
        """Requests and answers of the inferences; the journal has the answers, but only checksums of the requests."""

    def recall(self) -> None:
        """See `InferenceSource`."""
        self.recorded = JournaledAnswers(self._image.read(journal.load, self._mission))
        self.unused = dict(self.recorded)

    def known(self, request: ChatRequest, place: JournalPlace, label: str) -> journal.InferenceRecord | None:
        """See `InferenceSource`."""
        found = self.recorded.get(place[:2])
        if found is None and self._offline is not None and self._offline.failed:
            fitting = [e for e in self.unused.values() if e.parts and not set(journal.changed_parts(e.parts, place.parts)) - {"digest"}]
            found = next((e for e in fitting if e.label == label), next(iter(fitting), None))
        if found is not None:
            self.unused.pop((found.key, found.occurrence), None)
        if self.prompts is not None:
            self.prompts.append(_asked(request, label, found))
        return found

    async def pay(self, request: ChatRequest, place: JournalPlace, label: str, heard: TextBatch | None) -> journal.InferenceRecord:
        """Pay for nothing.

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
        raise InferenceFailed(f"the journal does not have this inference of {request.model}", cause="not_in_journal", retryable=False)

    def unanswered(self, need: NeedAnswer) -> BaseException:
        """Return an error: a replay asks no user."""
        return InvalidInput(f"the question {need.question[:60]!r} was not answered")


def _asked(request: ChatRequest, label: str, found: journal.InferenceRecord | None) -> dict[str, Any]:
    """Return an inference as `Replays.replay` tells it."""
    cycle, state, persona, part = label.split(" ", 3)
    whose = {"state": state} if cycle == "-" else {"cycle": cycle, "state": state, "persona": persona}
    asked: dict[str, Any] = {
        **whose, "part": None if part == "-" else part, "model": request.model, "system": request.system, "user": request.user,
    }  # fmt: skip
    if request.turns:
        asked["turns"] = [list(turn) for turn in request.turns]
    if request.schema is not None:
        asked["schema"] = request.schema
    return asked if found is None else {**asked, "said": found.text}


async def ruled_as_recorded(root: Root, mission: UvmObject, persona: UvmObject) -> dict[str, Any] | None:
    """Return the recorded result of a mission of the system's own that a rule gave, since it followed from measurements of then.
    Return None where a model thought."""
    told = json.loads(mission.result) if mission.result else {}
    return {"text": told["text"], "value": told.get("value")} if told.get("by_rule") else None


def replay_services(services: AttemptServices, inference: Inference, **parts: Any) -> AttemptServices:
    """Return the services of attempts of which nothing is kept: nothing hears their events, they propose nothing and provide no model.

    :param services: those of live attempts.
    :param inference: names the digests of models.
    :param parts: other services that differ: image, methods and router of a mirror.
    """
    return replace(
        services, inference=inference, events=Events(), provider=None, propose=nothing_proposed, ruled=ruled_as_recorded, **parts
    )


class OfflineInference:
    """Inference that only names digests. `failed` is True once it could not name one in time."""

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
    """Replays of the missions of one image."""

    def __init__(self, services: AttemptServices, *, digest_s: float, limit_s: float) -> None:
        """
        :param services: those of live attempts. Their inference is asked for digests only, and for no longer than `digest_s`.
        :param limit_s: time for one replay.
        """
        self._image = services.image
        self.services = services
        """Services for replays that begin from now on."""
        self._digest_s, self._limit_s = digest_s, limit_s
        self._attempts = Attempts(services.image, conflict_retries=1)

    async def replay(self, id: str, *, prompts: bool = False) -> dict[str, Any]:
        """Replay a mission.

        :param prompts: True: return the prompt of each inference too, in at most `PROMPTS_BYTES`.
        :returns: `id`, `state`, `outcome` (same, different, journal_ended), `inferences` (taken from the journal),
            `journaled`, `unused`, and the first `difference`.
        :raises UnknownMission: if no mission has that id.
        :raises InvalidInput: if it has not ended, or its journal was dropped.
        """
        record, dropped = self._image.read(_read, id)
        if not record.is_final:
            raise InvalidInput(f"mission {id!r} is {record.state}; only what has ended can be replayed")
        if dropped:
            raise InvalidInput(f"the journal of mission {id!r} has lost its texts (setting image.journal_days); its cost is still known")
        offline = OfflineInference(self.services.inference, self._digest_s)
        source = JournalOnlySource(id, self._image, offline, transcribes=prompts)
        attempt = Attempt(record, replay_services(self.services, offline), source, REPLAYED)
        attempt.recall()
        journaled = len(source.unused)
        result, error = await self._rehearse(attempt)
        difference = _difference(record, attempt, source, result, error)
        facts = {"inferences": journaled - len(source.unused), "journaled": journaled, "unused": len(source.unused)}
        if offline.failed:
            facts["models_unknown"] = True
        if source.prompts is not None:
            facts |= _told(source.prompts)
        if difference is None:
            return {"id": id, "state": record.state, "outcome": "same", **facts}
        ended = record.state == ledger.FAILED and difference["what"] == "inference" and not source.unused
        return {"id": id, "state": record.state, "outcome": "journal_ended" if ended else "different", **facts, "difference": difference}

    async def _rehearse(self, attempt: Attempt) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the result, or the error as the wire shows it."""
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
    """Return the first prompts that fit into a reply, and `more` if there are others."""
    sizes = itertools.accumulate(len(json.dumps(one)) for one in prompts)
    told = prompts[: max(1, sum(size <= PROMPTS_BYTES for size in sizes))]
    return {"prompts": told, **({"more": True} if len(told) < len(prompts) else {})}


def _read(root: Root, id: str) -> tuple[MissionRecord, bool]:
    mission = ledger.mission_of(root, id)
    return ledger.describe(mission), bool(journal.of(mission).spent)


def _difference(
    record: MissionRecord, attempt: Attempt, source: JournalOnlySource, result: dict[str, Any], error: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the first difference between a replay and its mission; None if there is none."""
    was = record.error
    if record.state == ledger.COMPLETE and error is None:
        found = _compared(record.result or {}, result, attempt.state)
    elif was is not None and error is not None and was["code"] == error["code"]:
        # It failed alike; but not for want of an inference while the journal holds others, which were not asked for.
        found = None if source.missed is None or not source.unused else {}
    else:
        before, now = (f"FAILED: {e['code']}: {e['message']}" if e else "COMPLETE" for e in (was, error))
        found = {"what": "end", "state": attempt.reached, "expected": before[:_SHOWN], "found": now[:_SHOWN]}
    if found is None or source.missed is None:
        return found
    place: JournalPlace = source.missed.pop("place")
    return {**source.missed, "changed": _changed(place, source)}


def _compared(was: dict[str, Any], now: dict[str, Any], state: str) -> dict[str, Any] | None:
    now = json.loads(json.dumps(now))  # as the ledger keeps it
    for name in _COMPARED:
        if was.get(name) != now.get(name):
            return {"what": name, "state": state, "expected": str(was.get(name))[:_SHOWN], "found": str(now.get(name))[:_SHOWN]}
    return None


def _changed(place: JournalPlace, source: JournalOnlySource) -> list[str]:
    """Return the parts in which the missed inference differs from the most similar one of the journal; empty if that is not known."""
    unused = [entry.parts for entry in source.unused.values() if entry.parts]
    if not unused:
        return []
    nearest = min((journal.changed_parts(parts, place.parts) for parts in unused), key=len)
    return [_PART_NAMES[name] for name in nearest]
