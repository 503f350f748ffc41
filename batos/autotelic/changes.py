"""Changes that the loop proposes and makes, in the image: numbered from 1, each with its evidence and its outcome.

proposed ─ refused                     by its rehearsal
         └ promoted ─ kept             nothing got worse while it was watched
                    ├ undone           automatically, or by its user
                    └ disabled         the daemon died again and again

All functions are parts of a transaction, or reads. A promotion is a unit of work of its own, annotated with `name_of` and a note that
begins with `NOTE`. It applies the change and calls `promote`, so it can be undone like a mission.

A proposal is one change of the system, as plain values; a model is asked for it in the form `Proposed`. `batos.autotelic.change_types` has
the possible targets, the checks, and the application.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field, field_validator

from batos.autotelic import schema
from batos.config.limits import Limits, limit
from batos.errors import InvalidInput, UnknownChange
from batos.image import ledger
from batos.objects import Root, UvmObject

TARGET_CHARS, WHY_CHARS = 200, 500


@dataclass(frozen=True, slots=True)
class ChangeLimits(Limits):
    """Limits of the changes that the system makes to itself."""

    kept: int = limit(500, ge=2, le=100_000)
    """Number of records of changes that the image keeps, the newest."""
    chars: int = limit(4000, ge=100, le=100_000)
    """Greatest number of characters of a proposed value."""


class Proposal(NamedTuple):
    """One change. `batos.autotelic.changes` records it."""

    kind: str
    """Name of the kind, one of `change_types.KINDS`."""
    target: str
    """Target of the change: a persona, a state, or an object and a selector, separated by a dot (`robin.sage_facet_`)."""
    content: Any
    """New value at the target, as a JSON value, mostly a text."""
    why: str
    """Expected effect of the change."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object for a mission's result."""
        return self._asdict()

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Proposal:
        """Return the proposal from the result of `to_json` or from a change's record; other keys are ignored."""
        return cls(*(told[name] for name in cls._fields))


_SCHEMA_DESCRIPTION = "What a model says when it is asked for a proposal: its JSON schema goes along."


class Proposed(BaseModel):
    """Answer of a model that is asked for a proposal: its JSON schema goes along."""

    # A model gets the schema's description, and it is a part of keys in journals: it must not follow the docstring.
    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "description": _SCHEMA_DESCRIPTION})

    kind: str = Field(min_length=1, max_length=32)
    target: str = Field(min_length=1, max_length=TARGET_CHARS)
    content: str = Field(max_length=8000)
    why: str = Field(min_length=1, max_length=WHY_CHARS)

    @field_validator("kind", "target", "why", mode="before")
    @classmethod
    def _trimmed(cls, value: Any) -> Any:
        return value.strip() if isinstance(value, str) else value

    def proposal(self) -> Proposal:
        """Return the proposal."""
        return Proposal(self.kind, self.target, self.content.strip(), self.why)


PROPOSED, REFUSED, PROMOTED, KEPT, UNDONE, DISABLED = "proposed", "refused", "promoted", "kept", "undone", "disabled"
STATES = (PROPOSED, REFUSED, PROMOTED, KEPT, UNDONE, DISABLED)
STANDING = (PROMOTED, KEPT)
"""States of a change that is in the image."""
LESSONS = (REFUSED, UNDONE, DISABLED)
"""States of a change that the loop must not propose again."""
MODEL, MEASUREMENT, MISSION = "model", "measurement", "mission"
"""Sources of a proposal: a model, a measurement, or a mission that needs it (`batos.autotelic.provided_models`)."""
PREPARED = "prepared"
"""Key in a comparison: the preparations that allow a trial of the change (`batos.autotelic.change_preparation`)."""
COMPARED = "comparison"
"""Kind of a change that a user made after a comparison side by side (`batos.comparisons`)."""
ITSELF = "itself"
"""Name of the system where it permitted the pull of a model itself, without a question to a user."""
NOTE = "PROMOTED"
"""Prefix of the note of a promotion's commit."""
LISTED = 500
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)
_JSON = ("content", "evidence", "comparison", "effect")


class ChangeContent(Protocol):
    """Content of a proposal: see `batos.autotelic.changes`."""

    @property
    def kind(self) -> str:
        """Return the kind of the change."""

    @property
    def target(self) -> str:
        """Return the target: a path or id of the image, or a name."""

    @property
    def content(self) -> Any:
        """Return the new content, a JSON value."""

    @property
    def why(self) -> str:
        """Return the expected effect."""


def name_of(number: int) -> str:
    """Return the annotation of a change's promotion."""
    return f"change:{number}"


def number_in(name: str) -> int | None:
    """Return the number of the change that an annotation names; None for any other."""
    kind, _, number = name.partition(":")
    return int(number) if kind == "change" and number.isdecimal() else None


# --- parts of system transactions


def propose(
    root: Root, proposal: ChangeContent, evidence: Mapping[str, Any], mission: str, *, source: str = MEASUREMENT, limit: int = LISTED
) -> int:
    """Record a proposal; its number. The same one of the same mission again, while it is undecided, is the one that is there.

    :param evidence: the measurement: `words`, and its figures; a JSON object.
    :param mission: whose work the proposal is; empty for none.
    :param limit: records that are kept; of more, the oldest go, but none that is watched.
    """
    held, digest = schema.part_of(root, "changes"), digest_of(proposal)
    same = next((one for one in newest_first(root) if one.digest == digest and one.state == PROPOSED and one.mission == mission), None)
    if same is not None:
        return int(same.number)
    held.ever += 1
    held.log[held.ever] = held.derive(
        **{"number": held.ever, "digest": digest, "source": source, "mission": mission, "state": PROPOSED, "reason": ""},
        **{"kind": proposal.kind, "target": proposal.target, "content": _COMPACT.encode(proposal.content), "why": proposal.why},
        **{"evidence": _COMPACT.encode(dict(evidence)), "comparison": "{}", "effect": "{}"},
        **{"missions": 0, "proposed": time.time(), "decided": None, "ended": None},
    )
    old = [number for number, one in held.log.items() if one.state != PROMOTED and number != held.ever]
    for number in old[: max(0, len(held.log) - limit)]:
        del held.log[number]
    return int(held.ever)


def rehearsed(root: Root, number: int, comparison: Mapping[str, Any]) -> None:
    """Keep what a rehearsal found, until the proposal is decided; empty: it is to be rehearsed again.

    :raises InvalidInput: if it was decided already.
    """
    record = _undecided(root, number)
    record.comparison = _COMPACT.encode(dict(comparison))


def refuse(root: Root, number: int, why: str, comparison: Mapping[str, Any]) -> None:
    """Record that a proposal is not made, and why.

    :param comparison: figures of the rehearsal; empty if it came to none.
    :raises InvalidInput: if it was decided already.
    """
    _decide(root, number, REFUSED, why, comparison)


def promote(root: Root, number: int, comparison: Mapping[str, Any]) -> None:
    """Record that a proposal is made, in the same transaction that makes it. From then on it is watched.

    :raises InvalidInput: if it was decided already, or another change is being watched: their effects could not be distinguished.
    """
    if (watched_now := watched(root)) is not None:
        raise InvalidInput(f"change {watched_now['number']} is being watched; the next one is made when that has ended")
    _decide(root, number, PROMOTED, "", comparison)
    newest = ledger.ledger_of(root).newest.mission
    record_of(root, number).missions = 0 if newest is None else int(newest.number)
    schema.part_of(root, "changes").last = number


def make(root: Root, number: int, comparison: Mapping[str, Any], why: str) -> None:
    """Record that a proposal is made and stays, in the very transaction that makes it. Such a proposal changes no way of thinking, so it is
    not watched.

    :raises InvalidInput: if it was decided already.
    """
    _decide(root, number, PROMOTED, "", comparison)
    _end(record_of(root, number), KEPT, why, {})


def note(root: Root, number: int, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Add facts to the preparations of a change, in any state of the change. Return all its preparations."""
    record = record_of(root, number)
    comparison = json.loads(record.comparison)
    comparison[PREPARED] = {**comparison.get(PREPARED, {}), **facts}
    record.comparison = _COMPACT.encode(comparison)
    return dict(comparison[PREPARED])


def keep(root: Root, number: int, why: str, effect: Mapping[str, Any]) -> bool:
    """Record that a change stays, and is watched no more; False if something else has become of it.

    :param effect: figures of its watch.
    """
    record = record_of(root, number)
    if record.state != PROMOTED:
        return False
    _end(record, KEPT, why, effect)
    return True


def take_back(root: Root, number: int, state: str, why: str, effect: Mapping[str, Any]) -> None:
    """Record that a change is `UNDONE` or `DISABLED`, in the very transaction that takes it back.

    :raises InvalidInput: if nothing of it is in the image.
    """
    record = record_of(root, number)
    if record.state not in STANDING:
        raise InvalidInput(f"change {number} is {record.state}, so there is nothing to undo")
    _end(record, state, why, effect)


def _end(record: UvmObject, state: str, why: str, effect: Mapping[str, Any]) -> None:
    record.state, record.reason, record.ended = state, why, time.time()
    if effect:
        record.effect = _COMPACT.encode(dict(effect))


def _decide(root: Root, number: int, state: str, why: str, comparison: Mapping[str, Any]) -> None:
    record = _undecided(root, number)
    record.state, record.reason, record.comparison, record.decided = state, why, _COMPACT.encode(dict(comparison)), time.time()


def _undecided(root: Root, number: int) -> UvmObject:
    record = record_of(root, number)
    if record.state != PROPOSED:
        raise InvalidInput(f"change {number} is {record.state} already")
    return record


# --- reads


def record_of(root: Root, number: int) -> UvmObject:
    """Return the object of the change of that number.

    :raises UnknownChange: if there is none.
    """
    found = _log(root).get(number)
    if found is None:
        raise UnknownChange(f"no change {number} in this image; `batos changes` lists them")
    return found  # type: ignore[no-any-return]


def of(root: Root, number: int) -> dict[str, Any]:
    """Return the change of that number as plain values.

    :raises UnknownChange: if there is none.
    """
    return described(record_of(root, number))


def described(record: UvmObject) -> dict[str, Any]:
    """Return a change as plain values.

    The keys are `number`, `kind`, `target`, `content`, `why`, `evidence`, `source`, `mission`, `state`, `reason`, `comparison` (of its
    rehearsal), `effect` (of its watch) and `digest`. `proposed`, `decided` and `ended` are its times (seconds since the epoch, or None).
    `missions` is the number of the last mission accepted before it was made.
    """
    record._p_activate()
    told = {name: value for name, value in record._slots.items() if name != "parent*"}
    return {**told, **{name: json.loads(told[name]) for name in _JSON}}


def _log(root: Root) -> Any:
    loop = root["lobby"]._slots.get("autotelic")
    held = None if loop is None else loop._slots.get("changes")
    return {} if held is None else held.log  # an image of an earlier version, opened read-only, has none


def newest_first(root: Root) -> Iterator[UvmObject]:
    """Yield the objects of all changes that are kept, the last proposed first."""
    log = _log(root)
    for number in reversed(log.keys()):
        yield log[number]


def whole_since(root: Root) -> float:
    """Return the time since which no record was dropped (`propose`): earlier decisions about a mission may be unknown."""
    last = schema.part_of(root, "changes").ever
    since = 0.0
    for record in newest_first(root):
        if record.number != last:
            break
        last, since = last - 1, float(record.proposed)
    return since if last else 0.0


def listed(root: Root, limit: int = LISTED, state: str | None = None) -> list[dict[str, Any]]:
    """Return the last changes as plain values, the newest first; those in a state, if one is given."""
    found: list[dict[str, Any]] = []
    for record in newest_first(root):
        if len(found) >= limit:
            break
        if state is None or record.state == state:
            found.append(described(record))
    return found


def watched(root: Root) -> dict[str, Any] | None:
    """Return the change that was promoted and is being watched, if there is one."""
    last = schema.part_of(root, "changes").last
    record = schema.part_of(root, "changes").log.get(last) if last else None
    return None if record is None or record.state != PROMOTED else described(record)


def lesson(root: Root, proposal: ChangeContent) -> dict[str, Any] | None:
    """Return the last change with the same content that was refused, undone or disabled: it must not be tried again."""
    digest = digest_of(proposal)
    return next((described(one) for one in newest_first(root) if one.digest == digest and one.state in LESSONS), None)


def promoted_since(root: Root, at: float, until: float = math.inf) -> int:
    """Count the changes that the system made after the time `at`, up to `until`, in seconds since the epoch. What a user permitted or
    made does not count."""
    decided = (one for one in newest_first(root) if one.kind != COMPARED and one.state not in (PROPOSED, REFUSED))
    made = (one for one in decided if at < one.decided <= until)
    return sum(one.source != MISSION or json.loads(one.comparison).get(PREPARED, {}).get("by") == ITSELF for one in made)


def digest_of(proposal: ChangeContent) -> str:
    """Return the digest that equal proposals share: of kind, target and content."""
    return hashlib.sha256(_COMPACT.encode([proposal.kind, proposal.target, proposal.content]).encode()).hexdigest()[:32]


def is_record(root: Root, obj: UvmObject) -> bool:
    """Return True if an object is a change's record, or the container of the records: not part of the effects of a change."""
    held = schema.part_of(root, "changes")
    return obj is held or obj._slots.get("parent*") is held
