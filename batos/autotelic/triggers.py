"""Triggers: measurements that call for a mission of self-improvement.

Each has a value above which it fires, and a lower one at which it has recovered.

Pure functions of the telemetry. Each measurement comes with the words that name it to the mission it may become.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from batos.autotelic.telemetry import OTHER_KEYS, KeyTally, MethodUse, Tallies
from batos.config.limits import Limits, limit

ENOUGH_RECENT, ENOUGH_BEFORE = 8, 32  # least number of samples on each side of a comparison
ENOUGH_VERDICTS, ENOUGH_RUNS = 8, 4
LEAST_SECONDS = 1.0  # a state that takes less time is never slow
LEAST_BYTES = 16 * 1024 * 1024  # a smaller image may grow at any rate
LEAST_ANSWER = 16 * 1024  # bytes; an answer of a tool that is smaller never costs much
DAY_S = 86400.0
_NOT_FAILURES = ("cancelled", "model_blind")  # error codes: a user's decision, and a lack of models that see
STAYS = ("state_slow", "tool_costly", "missions_costly", "entropy_falls", "entropy_still")
"""Triggers that do not recover without a measurement."""


@dataclass(frozen=True, slots=True)
class TriggerLimits(Limits):
    """Limits from which the system looks into what happened."""

    failures: int = limit(3, ge=2, le=10_000)
    """Number of missions that FAILED in the same way from which the trigger fires."""
    slower: float = limit(2.0, ge=1.05, le=1000)
    """Factor by which a state gets slower, or missions or calls of a tool cost more, from which the trigger fires."""
    growth: float = limit(1.5, ge=1.01, le=1000)
    """Factor by which the image grows from which the trigger fires."""
    refusals: float = limit(0.5, gt=0, le=1)
    """Share of methods' sources that the guardian refuses from which the trigger fires."""
    unused_days: float = limit(14.0, gt=0, le=3650)
    """Days without a run of a generated method after which the trigger fires."""
    personas: int = limit(100, ge=2, le=1_000_000)
    """Number of missions without the choice of a persona from which the trigger fires."""
    still: float = limit(0.01, ge=0, le=1)
    """Greatest difference of entropy among the newest missions at which it counts as stagnant."""
    syntheses: int = limit(24, ge=1, le=1_000_000)
    """Number of methods written since their expert was made from which the system trains a new expert."""
    window_s: float = limit(86_400.0, ge=1, le=366 * 86400)
    """Seconds of telemetry on which triggers are measured."""
    recent_s: float = limit(3600.0, ge=0.05, le=365 * 86400)
    """Length in seconds of the newest part of the window, which is compared with the rest."""


class Entropy(NamedTuple):
    """State of the entropy metric; None for a value with too little data."""

    fallen: bool
    usual: float
    rolling: float | None
    spread: float | None
    """Difference between the highest and the lowest value of a full window."""


class Seen(NamedTuple):
    """Data that the triggers are measured on."""

    now: float
    recent: Tallies
    """Tallies of the last `TriggerLimits.recent_s`."""
    before: Tallies
    """Tallies of the rest of the last `TriggerLimits.window_s`."""
    window: Tallies
    """Tallies of the last `TriggerLimits.window_s`."""
    whole: Tallies
    """Tallies of all stored intervals."""
    bytes_then: float
    bytes_now: float
    """Bytes of the image now. Here and in `bytes_then`, the size at the start of the window, 0 means unknown."""
    entropy: Entropy
    personas: Sequence[str]
    methods: Sequence[MethodUse]
    learned: int = 0
    """Number of methods written since their expert was made, plus the missions for which no method could be written."""


class Measurement(NamedTuple):
    """Measurement of one trigger and one `key` (empty if the trigger has only one measurement)."""

    trigger: str
    key: str
    value: float
    high: float
    """Value from which the trigger fires."""
    low: float
    """Value up to which the trigger has recovered."""
    words: str

    @property
    def fires(self) -> bool:
        return self.value >= self.high

    @property
    def recovered(self) -> bool:
        return self.value <= self.low


def measured(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    """Yield all that can be measured now, the most urgent first."""
    yield from _failures(seen, limits)
    yield from _refusals(seen, limits)
    yield from _failing_methods(seen)
    yield from _failing_tools(seen)
    yield from _behind(seen, limits)
    yield from _entropy(seen, limits)
    yield from _slow(seen, limits)
    yield from _costly_tools(seen, limits)
    yield from _costly(seen, limits)
    yield from _growth(seen, limits)
    yield from _unused(seen, limits)
    yield from _unchosen(seen, limits)


def _failures(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    for key, tally in seen.window.rows("failures"):
        if key.split(" ")[0] not in (OTHER_KEYS, *_NOT_FAILURES):
            words = f"{tally.times} missions FAILED in the same way: {key}."
            yield Measurement("failure_repeats", key, tally.times, limits.failures, limits.failures / 2, words)


def _refusals(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    refused, all = seen.window.of("verdicts", "refused").times, seen.window.sum("verdicts").times
    if all >= ENOUGH_VERDICTS:
        words = f"the guardian refused {refused} of {all} sources of methods."
        yield Measurement("guardian_refuses", "", refused / all, limits.refusals, limits.refusals / 2, words)


def _failing_tools(seen: Seen) -> Iterator[Measurement]:
    for key, failed in seen.window.rows("tools_failed"):
        calls = failed.times + seen.window.of("tools", key).times
        if key != OTHER_KEYS and calls >= ENOUGH_RUNS:
            words = f"the tool {key} failed in {failed.times} of {calls} calls, which took {failed.total:.1f} s."
            yield Measurement("tool_fails", key, failed.times / calls, 0.5, 0.25, words)


def _failing_methods(seen: Seen) -> Iterator[Measurement]:
    for key, failed in seen.window.rows("runs_failed"):
        runs = failed.times + seen.window.of("runs", key).times
        if key != OTHER_KEYS and runs >= ENOUGH_RUNS:
            words = f"the method {key.replace(' ', '.', 1)} failed in {failed.times} of {runs} runs."
            yield Measurement("method_fails", key, failed.times / runs, 0.5, 0.25, words)


def _behind(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    if limits.syntheses:
        words = f"{seen.learned} methods were written, or could not be, since the expert that writes them was made or trained last."
        yield Measurement("expert_behind", "", seen.learned, limits.syntheses, limits.syntheses / 2, words)


def _entropy(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    found = seen.entropy
    if found.rolling is not None:
        words = f"the composite entropy of thought has fallen for good: usual was {found.usual:.2f}, now it is {found.rolling:.2f}."
        yield Measurement("entropy_falls", "", float(found.fallen), 1.0, 0.0, words)
    if found.spread is not None:
        words = f"the composite entropy of thought does not change: the last missions differ by {found.spread:.3f} at most."
        # inverted: a smaller spread gives a greater value
        yield Measurement("entropy_still", "", limits.still - found.spread, 0.0, -limits.still, words)


def _slow(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    for state, recent in seen.recent.rows("states"):
        before = seen.before.of("states", state)
        if _comparable(recent, before) and recent.mean >= LEAST_SECONDS:
            words = f"the state {state} takes {recent.mean:.1f} s on average of {recent.times} times; before, it took {before.mean:.1f} s."
            yield _ratio("state_slow", state, recent.mean / max(before.mean, 1e-3), limits.slower, words)


def _costly_tools(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    for key in [key for key, _ in seen.recent.rows("tools") if key != OTHER_KEYS]:
        found = []
        for table, least, words in _COSTS:
            recent, before = seen.recent.of(table, key), seen.before.of(table, key)
            if _comparable(recent, before) and recent.mean >= least:
                told = words.format(tool=key, recent=recent.mean, times=recent.times, before=before.mean)
                found.append((recent.mean / max(before.mean, 1e-3), told))
        if found:
            value, told = max(found)
            yield _ratio("tool_costly", key, value, limits.slower, told)


_COSTS = (
    ("tools", LEAST_SECONDS, "the tool {tool} takes {recent:.1f} s on average of {times} calls; before, it took {before:.1f} s."),
    (
        "tool_bytes",
        LEAST_ANSWER,
        "the tool {tool} answers {recent:.0f} bytes on average of {times} calls; before, it answered {before:.0f}.",
    ),
)
"""Costs of a call of a tool: the table of telemetry, the mean below which it is never much, and the words."""


def _costly(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    recent, before = seen.recent.sum("missions"), seen.before.sum("missions")
    if _comparable(recent, before) and (usual := _tokens(seen.before) / before.times) > 0:
        cost = _tokens(seen.recent) / recent.times
        words = f"a mission takes {cost:.0f} tokens on average of {recent.times}; before, it took {usual:.0f}."
        yield _ratio("missions_costly", "", cost / usual, limits.slower, words)


def _growth(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    if seen.bytes_then > 0 and seen.bytes_now >= LEAST_BYTES:
        words = f"the image has grown from {seen.bytes_then:.0f} to {seen.bytes_now:.0f} bytes."
        yield _ratio("image_grows", "", seen.bytes_now / seen.bytes_then, limits.growth, words)


def _unused(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    for use in seen.methods:
        days = (seen.now - use.last) / DAY_S
        words = f"the method {use.method.replace(' ', '.', 1)} has not run for {days:.0f} days; it ran {use.runs} times before."
        yield Measurement("method_unused", use.method, days, limits.unused_days, limits.unused_days / 2, words)


def _unchosen(seen: Seen, limits: TriggerLimits) -> Iterator[Measurement]:
    chosen = seen.whole.sum("personas").times
    for persona in seen.personas:
        times = seen.whole.of("personas", persona).times
        words = f"{persona.upper()} was not chosen for any of the last {chosen} missions."
        yield Measurement("persona_unchosen", persona, 0 if times else chosen, limits.personas, limits.personas / 2, words)


def _ratio(trigger: str, key: str, value: float, high: float, words: str) -> Measurement:
    return Measurement(trigger, key, value, high, 1 + (high - 1) / 2, words)


def _comparable(recent: KeyTally, before: KeyTally) -> bool:
    return recent.times >= ENOUGH_RECENT and before.times >= ENOUGH_BEFORE


def _tokens(tallies: Tallies) -> float:
    return tallies.sum("prompt_tokens").total + tallies.sum("answer_tokens").total
