"""Replies about schedules, hooks, folders, notices, stepping and comparisons; and the tables of all replies and events.

`docs/replies.md` is made of these types, and the tests hold each reply of a daemon against them. Nothing of a daemon imports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict  # of `typing`, pydantic takes it from Python 3.12 on

from batos.wire import admin_replies, image_replies, mission_replies
from batos.wire.fields import State
from batos.wire.image_replies import SlotEntry
from batos.wire.mission_replies import JsonObject, ToolEffect, WireError, WireReply

# --- missions that are made by themselves


class ScheduleRun(TypedDict):
    """A run of a schedule."""

    id: Annotated[str, "its mission"]
    planned: Annotated[float, "its planned time"]
    state: Annotated[str, "state of its mission"]


class ScheduleRow(TypedDict):
    """A schedule."""

    name: Annotated[str, "its name"]
    when: Annotated[str, "when it runs, as it was given"]
    rule: Annotated[str, "when it runs, as it was understood"]
    zone: Annotated[str, "its time zone"]
    brief: Annotated[str, "its brief; in a list the first 200 characters"]
    persona: Annotated[str | None, "the persona of its missions"]
    missed: Annotated[Literal["once", "skip", "all"], "treatment of times that pass while no daemon runs"]
    overlap: Annotated[Literal["run", "skip"], "treatment of a time that comes while the last run has not ended"]
    stop_after: Annotated[int | None, "failures in a row after which it stops"]
    next: Annotated[float | None, "the next planned time; null: it is paused or has ended"]
    last: Annotated[ScheduleRun | None, "the last run"]
    failures: Annotated[int, "number of failed runs in a row up to now"]
    paused: Annotated[bool, "true: it is paused"]
    why: NotRequired[Annotated[str, "why it stopped by itself"]]
    times: NotRequired[Annotated[list[float], "of a single schedule: the next five times"]]
    runs: NotRequired[Annotated[list[ScheduleRun], "of a single schedule: its last runs, the newest first"]]


class SchedulesReply(WireReply):
    """The schedules by name."""

    type: Literal["schedules"]
    schedules: Annotated[list[ScheduleRow], "all schedules, or the one that was asked for"]
    id: NotRequired[Annotated[str, "of `schedule_run`: its mission"]]


class TriggerRun(TypedDict):
    """A mission that a hook or folder made."""

    id: Annotated[str, "the mission"]
    at: Annotated[float, "time of its making"]
    state: Annotated[str, "its state"]


class HookRow(TypedDict):
    """A hook."""

    name: Annotated[str, "its name"]
    path: Annotated[str, "path of its URL"]
    brief: Annotated[str, "its brief; in a list the first 200 characters"]
    fields: Annotated[list[str], "fields of a delivery that the brief names"]
    persona: Annotated[str | None, "the persona of its missions"]
    depth: Annotated[str | None, "how much they think"]
    priority: Annotated[int, "the higher goes first"]
    rate: Annotated[int, "missions in a minute, at most"]
    hosts: Annotated[list[str], "names of hosts under which a proxy may bring requests"]
    when: Annotated[list[str], "conditions of the body"]
    last: Annotated[TriggerRun | None, "the last mission"]
    paused: Annotated[bool, "true: it is paused"]
    has_secret: Annotated[bool, "true: the daemon keeps a secret for it"]
    runs: NotRequired[Annotated[list[TriggerRun], "of a single hook: its last missions, the newest first"]]


class HooksReply(WireReply):
    """The hooks by name."""

    type: Literal["hooks"]
    hooks: Annotated[list[HookRow], "all hooks, or the one that was asked for"]
    secret: NotRequired[Annotated[str, "of `hook_add` and `hook_roll`: the secret"]]


class HookDeliverReply(WireReply):
    """The outcome of a delivery to a hook."""

    type: Literal["hook_deliver"]
    hook: Annotated[str, "the hook"]
    id: Annotated[str | None, "the mission; null: there is none"]
    state: NotRequired[Annotated[str, "state of the mission"]]
    duplicate: NotRequired[Annotated[bool, "true: the mission existed before"]]
    why: NotRequired[Annotated[str, "why the delivery became no mission"]]


class FolderRow(TypedDict):
    """A watched folder whose files become missions."""

    name: Annotated[str, "its name"]
    folder: Annotated[str, "its path"]
    brief: Annotated[str, "its brief; in a list the first 200 characters"]
    persona: Annotated[str | None, "the persona of its missions"]
    depth: Annotated[str | None, "how much they think"]
    priority: Annotated[int, "the higher goes first"]
    stop_after: Annotated[int | None, "failures in a row after which it stops"]
    watched: Annotated[bool, "true: the memory watches it"]
    waiting: Annotated[int, "number of files that wait for their turn"]
    last: Annotated[TriggerRun | None, "the last mission"]
    failures: Annotated[int, "number of failed missions in a row up to now"]
    paused: Annotated[bool, "true: it is paused"]
    away: NotRequired[Annotated[str, "why it cannot be read now"]]
    why: NotRequired[Annotated[str, "why it stopped by itself"]]
    runs: NotRequired[Annotated[list[TriggerRun], "of a single folder: its last missions, the newest first"]]


class FoldersReply(WireReply):
    """The watched folders whose files become missions, by name."""

    type: Literal["folders"]
    folders: Annotated[list[FolderRow], "all folders, or the one that was asked for"]
    present: NotRequired[Annotated[int, "of `folder_add`: number of files that were there"]]
    reopened: NotRequired[Annotated[int, "of `folder_run`: number of files that become missions now"]]


class NoticeFact(TypedDict):
    """A fact that a message tells."""

    fact: Annotated[str, "kind of the fact"]
    subject: Annotated[str, "what it is about: a mission, a change and others"]


class MessageRow(TypedDict):
    """A message to a channel."""

    key: Annotated[str, "its key"]
    channel: Annotated[str, "the channel"]
    state: Annotated[Literal["INTENDED", "DONE", "FAILED", "IN_DOUBT", "SETTLED"], "its state"]
    title: Annotated[str, "its title"]
    facts: Annotated[list[NoticeFact], "its facts"]
    at: Annotated[float, "time of its making"]
    ended: Annotated[float | None, "time of its end"]
    attempts: Annotated[int, "number of sendings"]
    again: Annotated[float | None, "time of the next try"]
    why: NotRequired[Annotated[str, "reason of a failure"]]


class WaitingNotice(TypedDict):
    """A notice that waits."""

    fact: Annotated[str, "kind of the fact"]
    subject: Annotated[str, "what it is about"]
    at: Annotated[float, "time of the fact"]
    title: Annotated[str, "its title"]


class ChannelRow(TypedDict):
    """A channel of notices."""

    name: Annotated[str, "its name"]
    way: Annotated[Literal["program", "hook", "apprise"], "its way"]
    place: Annotated[str, "command line or URL; a secret in it is named"]
    on: Annotated[list[str], "facts that it tells"]
    persona: Annotated[str | None, "only of missions of this persona"]
    origin: Annotated[str | None, "only of missions of this origin"]
    quiet: Annotated[str | None, "hours in which it keeps quiet"]
    zone: Annotated[str, "its time zone"]
    once: Annotated[bool, "true: a message that may have been sent is not sent again"]
    paused: Annotated[bool, "true: it is paused"]
    waiting: Annotated[int, "number of notices that wait"]
    next: Annotated[float | None, "time of the next sending"]
    last: Annotated[MessageRow | None, "the last message"]
    options: NotRequired[Annotated[JsonObject, "of a single channel: options of the way"]]
    queue: NotRequired[Annotated[list[WaitingNotice], "of a single channel: the first 50 notices that wait"]]


class NoticesReply(WireReply):
    """The channels of notices by name."""

    type: Literal["notices"]
    channels: Annotated[list[ChannelRow], "all channels, or the one that was asked for"]
    untold: Annotated[int, "number of messages of the last week that may not have arrived; of a single channel 0"]
    tied: Annotated[str, "why nothing may be sent; empty: all may"]
    settled: NotRequired[Annotated[int, "of `notice_settle`: number of messages"]]


class NoticeLogReply(WireReply):
    """Messages to channels."""

    type: Literal["notice_log"]
    messages: Annotated[list[MessageRow], "the newest first"]


# --- stepping


class TransitionRow(TypedDict):
    """A transition."""

    number: Annotated[int, "its number; 0: before any thought"]
    cycle: Annotated[str, "number of the cycle, `1.2` for one inside `1`; empty: none"]
    state: Annotated[str, "the state, whose behaviour has not run yet"]
    persona: Annotated[str | None, "the persona"]


class _SteppedInference(TypedDict):
    number: Annotated[int, "its number, from 1"]
    cycle: Annotated[str, "number of the cycle that asks"]
    state: Annotated[str, "state that asks"]
    persona: Annotated[str, "persona that asks"]
    part: Annotated[str | None, "part of the plan; null: the mission's own voice"]
    model: Annotated[str, "the model"]
    source: Annotated[Literal["recorded", "edited", "new", "missing"], "where the answer comes from"]
    said: Annotated[str | None, "the answer, in a list its beginning; null: it is missing"]


class SteppedInference(_SteppedInference):
    """An inference up to here."""

    asked: Annotated[str, "the end of its prompt"]


class WholeInference(_SteppedInference):
    """An inference with its prompts."""

    system: Annotated[str, "the system prompt"]
    user: Annotated[str, "the prompt"]
    changed: Annotated[list[str], "parts in which it differs from the journal"]
    turns: NotRequired[Annotated[list[list[str]], "earlier turns: pairs of prompt and answer"]]
    schema: NotRequired[Annotated[JsonObject, "JSON schema of the answer"]]
    prompt_tokens: NotRequired[Annotated[int, "tokens read"]]
    answer_tokens: NotRequired[Annotated[int, "tokens written"]]
    thinking: NotRequired[Annotated[str, "what the model thought before it answered"]]


class MethodRunRow(TypedDict):
    """A run of a method."""

    number: Annotated[int, "its number, from 1"]
    selector: Annotated[str, "the message"]
    object: Annotated[str, "the object"]
    args: Annotated[list[Any], "the arguments"]
    line: Annotated[int | None, "the last line that ran"]
    value: NotRequired[Annotated[Any, "its answer"]]
    error: NotRequired[Annotated[Any, "its error in place of an answer"]]


class WholeRun(MethodRunRow):
    """A run of a method with its lines."""

    kwargs: Annotated[JsonObject, "the arguments by name"]
    version: Annotated[int, "version of the method"]
    source: Annotated[str, "its source"]
    steps: Annotated[list[int], "the lines that ran"]
    step: NotRequired[Annotated[int, "which of `steps` the locals belong to, from 1"]]
    locals: NotRequired[Annotated[JsonObject, "the local variables there"]]
    why: NotRequired[Annotated[str, "why the locals are not available"]]


class EditRow(TypedDict):
    """A change in a session."""

    number: Annotated[int, "its number"]
    kind: Annotated[str, "its kind (wire.md, `step.edit`)"]
    target: Annotated[str, "its place"]
    before: Annotated[Any, "the value before; null: none"]
    after: Annotated[Any, "the new value; null: removed"]


class InferenceCounts(TypedDict):
    """Number of inferences by source."""

    recorded: Annotated[int, "from the journal"]
    new: Annotated[int, "paid for in this session"]
    missing: Annotated[int, "not known"]


class LookedAt(TypedDict):
    """An object."""

    target: Annotated[str, "the requested object"]
    oid: Annotated[str | None, "its id"]
    slots: Annotated[JsonObject, "its own slots as plain values"]
    tid: Annotated[str | None, "id of the transaction that wrote it"]
    entries: NotRequired[Annotated[list[SlotEntry], "its slots, with kinds"]]


class StepReply(WireReply):
    """The state of a session ([stepping.md](stepping.md))."""

    type: Literal["step"]
    session: Annotated[str, "its name"]
    id: Annotated[str, "the mission; of a method a made-up one"]
    brief: Annotated[str, "the first 500 characters of the brief"]
    state: Annotated[State, "state of the mission"]
    moment: Annotated[str, "the moment of the image, in words"]
    at: Annotated[TransitionRow, "the transition"]
    ended: Annotated[bool, "true: the thought has ended"]
    changed: Annotated[bool, "true: something was changed, and the mission is thought again when it goes on"]
    rail: Annotated[list[TransitionRow], "all known transitions"]
    slots: Annotated[JsonObject, "slots of the cycle, or of the mission before a cycle"]
    inferences: Annotated[list[SteppedInference], "inferences up to here"]
    tools: Annotated[list[ToolEffect], "recorded calls of tools"]
    runs: Annotated[list[MethodRunRow], "runs of methods"]
    edits: Annotated[list[EditRow], "changes in this session"]
    counts: Annotated[InferenceCounts, "number of inferences by source"]
    notes: Annotated[list[str], "what is not known or not repeated, in words"]
    error: NotRequired[Annotated[WireError, "the error at the end"]]
    recorded: NotRequired[Annotated[bool, "true: `error` is the recorded one, and did not occur again"]]
    question: NotRequired[Annotated[str, "the question that the mission waits with"]]
    result: NotRequired[Annotated[JsonObject, "the result, as in `result`, if the mission ended well"]]
    object: NotRequired[Annotated[LookedAt, "with `target`: the object"]]
    inference: NotRequired[Annotated[WholeInference, "with `inference`: the inference"]]
    method: NotRequired[Annotated[WholeRun, "with `run`: the run"]]


class SessionRow(TypedDict):
    """An open session."""

    session: Annotated[str, "its name"]
    id: Annotated[str, "its mission"]
    at: Annotated[TransitionRow, "the transition"]
    edits: Annotated[int, "number of changes"]


class StepsReply(WireReply):
    """The open sessions."""

    type: Literal["steps"]
    sessions: Annotated[list[SessionRow], "the sessions"]


class StepValueReply(WireReply):
    """The value of an expression, or the answer to a message."""

    type: Literal["step_value"]
    session: Annotated[str, "the session"]
    value: Annotated[Any, "the value"]


class ConflictRow(TypedDict):
    """A place that others have changed since."""

    target: Annotated[str, "the place"]
    before: Annotated[Any, "its value in the session before the change"]
    now: Annotated[Any, "its present value in the image"]
    yours: Annotated[Any, "its value in the session"]
    mission: Annotated[str | None, "the mission that changed it"]


class AheadRow(TypedDict):
    """The mission thought again with the changes in the present image."""

    known: Annotated[int, "number of known inferences"]
    missing: Annotated[int, "number of inferences that a model would be asked for; more may follow"]
    edits_unused: Annotated[int, "number of edited answers that no inference would use any more"]
    ends: Annotated[bool, "true: the mission ends well"]


_StepWith = TypedDict(
    "_StepWith", {"with": NotRequired[Annotated[str | None, "the mission that holds the changes; null: nothing was changed"]]}
)


class StepContinuedReply(WireReply, _StepWith):
    """Continuation of a mission with the changes of a session; with `dry`, what it would do."""

    type: Literal["step_continued"]
    session: Annotated[str, "the session"]
    id: Annotated[str, "the mission"]
    dry: Annotated[bool, "true: nothing was done"]
    diff: Annotated[list[EditRow], "the changes, one row for each place"]
    conflicts: Annotated[list[ConflictRow], "places that others have changed since"]
    why_not: NotRequired[Annotated[str, "with `dry`: why the mission cannot go on"]]
    ahead: NotRequired[Annotated[AheadRow, "with `dry`: the mission thought again"]]


# --- comparisons


class VariantRow(TypedDict):
    """The difference from the persona as it is."""

    persona: Annotated[str, "the persona whose missions are compared"]
    slots: Annotated[JsonObject, "other slots of the persona; null: the slot is taken away"]
    instead: Annotated[str, "the persona that thinks in its place; empty: itself"]
    settings: Annotated[JsonObject, "other settings of thought"]


class CompareCost(TypedDict):
    """Cost of a comparison, or its limit."""

    inferences: Annotated[int, "number of inferences"]
    tokens: Annotated[int, "tokens read and written"]
    minutes: Annotated[float, "minutes of the models"]


class CompareEstimate(CompareCost):
    """The probable cost."""

    large: Annotated[bool, "true: a client should ask its user first"]


class ComparePlanReply(WireReply):
    """The comparison that `compare.start` would begin."""

    type: Literal["compare_plan"]
    id: Annotated[str, "its id"]
    words: Annotated[str, "what is compared, in words"]
    judge: Annotated[Literal["me", "alfred", "rules"], "who judges"]
    rules: Annotated[list[str], "rules by which it is judged"]
    pairs: Annotated[int, "number of missions and briefs"]
    variant: Annotated[VariantRow, "the difference"]
    budget: Annotated[CompareCost, "the highest cost"]
    estimate: Annotated[CompareEstimate, "the probable cost"]


class ComparisonRow(TypedDict):
    """A comparison without its pairs."""

    id: Annotated[str, "its id"]
    state: Annotated[
        Literal["waiting", "running", "done", "spent", "failed", "stopped"],
        "`spent`: its budget is; `stopped`: by its user, by the daemon's end, or because no model answered",
    ]
    reason: Annotated[str, "why it has that state; may be empty"]
    words: Annotated[str, "what is compared, in words"]
    persona: Annotated[str, "the persona whose missions are compared"]
    judge: Annotated[Literal["me", "alfred", "rules"], "who judges"]
    rules: Annotated[list[str], "rules by which it is judged"]
    pairs: Annotated[int, "number of pairs"]
    done: Annotated[int, "number of pairs that were thought"]
    left_out: Annotated[int, "number of pairs that are not compared"]
    unjudged: Annotated[int, "number of pairs that were not judged yet"]
    budget: Annotated[CompareCost, "the highest cost"]
    cost: Annotated[CompareCost, "the cost so far"]
    estimate: Annotated[CompareEstimate, "the probable cost"]
    begun: Annotated[float, "time of its beginning"]
    ended: Annotated[float | None, "time of its end"]
    promoted: Annotated[int | None, "number of the change that it became, which `undo_change` undoes"]
    note: Annotated[str, "its user's note; may be empty"]
    verdict: Annotated[Literal["better", "worse", "undecided"], "the verdict on the variant"]


class ComparedCosts(TypedDict):
    """A cost on both sides."""

    base: Annotated[float | None, "mean as it is"]
    changed: Annotated[float | None, "mean with the variant"]
    difference: Annotated[float | None, "difference of the means"]
    interval: Annotated[list[float] | None, "interval of the difference, 95 %"]


class CompareWins(TypedDict):
    """Number of won pairs."""

    base: Annotated[int, "pairs won as it is"]
    changed: Annotated[int, "pairs won with the variant"]
    tie: Annotated[int, "pairs that are equal"]


class CompareFigures(TypedDict):
    """Figures of a comparison."""

    pairs: Annotated[int, "number of compared pairs"]
    judged: Annotated[int, "number of judged pairs"]
    wins: Annotated[CompareWins, "won pairs"]
    share: Annotated[float | None, "share of the decided pairs that the variant won"]
    interval: Annotated[list[float] | None, "interval of that share, 95 %"]
    verdict: Annotated[Literal["better", "worse", "undecided"], "the verdict"]
    why: Annotated[str, "its ground in words"]
    costs: Annotated[dict[str, ComparedCosts], "costs by name: `inferences`, `tokens`, `seconds`, `chars`"]
    methods: Annotated[dict[str, str], "how the intervals are made"]
    settled: Annotated[int, "number of pairs that needed no judge, since their sides are equal or one failed"]
    disagreed: Annotated[int, "number of pairs that ALFRED judged differently in the other order"]


class CompareSide(TypedDict):
    """A side of a pair."""

    text: Annotated[str, "the answer, cut if long"]
    persona: Annotated[str, "the persona that answered"]
    depth: Annotated[str | None, "how much it thought"]
    failed: Annotated[str, "code of the error; empty: it did not fail"]
    error: Annotated[str, "the error in words"]
    inferences: Annotated[int, "number of inferences"]
    tokens: Annotated[int, "tokens read and written"]
    seconds: Annotated[float, "seconds of the models"]
    chars: Annotated[int, "length of the answer"]
    models: Annotated[list[str], "the models"]
    fits: Annotated[bool | None, "true: it keeps to the schema of the brief; null: there is none"]
    effects: NotRequired[Annotated[list[ToolEffect], "calls of tools"]]


class PairRow(TypedDict):
    """A pair."""

    number: Annotated[int, "its number, from 1"]
    brief: Annotated[str, "the brief"]
    mission: Annotated[str | None, "the recorded mission"]
    left_out: NotRequired[Annotated[str, "why it is not compared"]]
    hidden: NotRequired[Annotated[bool, "true: its user has still to judge it, and the sides are hidden"]]
    base: NotRequired[Annotated[CompareSide, "as it is"]]
    changed: NotRequired[Annotated[CompareSide, "with the variant"]]
    winner: NotRequired[Annotated[Literal["base", "changed", "tie"] | None, "the winner; null: its judge could not tell"]]
    why: NotRequired[Annotated[str, "the judge's reason; may be empty"]]


class ComparisonReply(WireReply, ComparisonRow):
    """A comparison with its figures and pairs ([side_by_side.md](side_by_side.md))."""

    type: Literal["comparison"]
    figures: Annotated[CompareFigures, "its figures"]
    compared: Annotated[list[PairRow], "its pairs"]
    variant: Annotated[VariantRow, "the difference"]
    change: NotRequired[Annotated[int, "of `compare.promote`: number of the change"]]


class ComparisonsReply(WireReply):
    """The comparisons in the image."""

    type: Literal["comparisons"]
    comparisons: Annotated[list[ComparisonRow], "the last begun first"]


class NextPair(TypedDict):
    """A pair to judge."""

    number: Annotated[int, "its number"]
    brief: Annotated[str, "the brief"]
    left: Annotated[str, "one answer"]
    right: Annotated[str, "the other answer"]
    judged: Annotated[int, "number of judged pairs"]
    of: Annotated[int, "number of pairs to judge in all"]


class ComparePairReply(WireReply):
    """The next pair that its user has to judge."""

    type: Literal["compare_pair"]
    id: Annotated[str, "the comparison"]
    pair: Annotated[NextPair | None, "the pair; null: all are judged"]


REPLIES: Mapping[str, type] = {
    "accepted": mission_replies.AcceptedReply,
    "status": mission_replies.StatusReply,
    "result": mission_replies.ResultReply,
    "state": mission_replies.StateEvent,
    "token": mission_replies.TokenEvent,
    "revised": mission_replies.RevisedEvent,
    "tool": mission_replies.ToolEvent,
    "needs_input": mission_replies.NeedsInputEvent,
    "provision": mission_replies.ProvisionEvent,
    "error": mission_replies.ErrorReply,
    "upload": mission_replies.UploadReply,
    "image": mission_replies.ImageReply,
    "missions": mission_replies.MissionsReply,
    "failures": mission_replies.FailuresReply,
    "replay": mission_replies.ReplayReply,
    "effects": mission_replies.EffectsReply,
    "show": image_replies.ShowReply,
    "ls": image_replies.LsReply,
    "history": image_replies.HistoryReply,
    "diff": image_replies.DiffReply,
    "method": image_replies.MethodReply,
    "methods": image_replies.MethodsReply,
    "undo": image_replies.UndoReply,
    "changes": image_replies.ChangesReply,
    "undo_change": image_replies.UndoChangeReply,
    "fork": image_replies.ForkReply,
    "pack": image_replies.PackReply,
    "backup": image_replies.BackupReply,
    "ingest": image_replies.IngestReply,
    "file": image_replies.FileEvent,
    "memory": image_replies.MemoryReply,
    "curate": image_replies.CurateReply,
    "search": image_replies.SearchReply,
    "info": admin_replies.InfoReply,
    "metrics": admin_replies.MetricsReply,
    "models": admin_replies.ModelsReply,
    "progress": admin_replies.ProgressEvent,
    "model": admin_replies.ModelEvent,
    "personas": admin_replies.PersonasReply,
    "experts": admin_replies.ExpertsReply,
    "kernels": admin_replies.KernelsReply,
    "tools": admin_replies.ToolsReply,
    "tool_offers": admin_replies.ToolOffersReply,
    "tool_description": admin_replies.ToolDescriptionReply,
    "tool_grants": admin_replies.ToolGrantsReply,
    "schedules": SchedulesReply,
    "hooks": HooksReply,
    "hook_deliver": HookDeliverReply,
    "folders": FoldersReply,
    "notices": NoticesReply,
    "notice_log": NoticeLogReply,
    "step": StepReply,
    "steps": StepsReply,
    "step_value": StepValueReply,
    "step_continued": StepContinuedReply,
    "compare_plan": ComparePlanReply,
    "comparison": ComparisonReply,
    "comparisons": ComparisonsReply,
    "compare_pair": ComparePairReply,
}
"""Types of replies and events by their field `type`."""
EVENTS = frozenset({"state", "token", "revised", "tool", "needs_input", "provision", "progress", "model", "file"})
"""Types that only a client gets that watches."""
_WATCHED = ("submit", "send", "teach", "revert", "grant", "watch")
_ANSWERED: Mapping[str, tuple[str, ...]] = {
    "accepted": ("submit", "send", "teach", "revert", "grant"),
    "status": ("status", "result", "watch", "cancel", "pause", "resume", "answer", "rate"),
    "result": ("result", *_WATCHED),
    **dict.fromkeys(("state", "token", "revised", "tool", "needs_input", "provision"), _WATCHED),
    "error": (),
    "progress": ("models",),
    "model": ("models",),
    "file": ("ingest",),
    "effects": ("effects", "effect_settle"),
    "tools": ("tools", "tool_add", "tool_test", "tool_accept", "tool_remove", "tools_resume"),
    "tool_offers": ("tool_offers", "tool_offer", "tool_withdraw"),
    "tool_description": ("tool_describe",),
    "tool_grants": ("tool_grants", "tool_grant", "tool_ungrant"),
    "schedules": ("schedules", "schedule_add", "schedule_pause", "schedule_resume", "schedule_remove", "schedule_run"),
    "hooks": ("hooks", "hook_add", "hook_pause", "hook_resume", "hook_remove", "hook_roll"),
    "folders": ("folders", "folder_add", "folder_pause", "folder_resume", "folder_remove", "folder_run"),
    "notices": ("notices", "notice_add", "notice_pause", "notice_resume", "notice_remove", "notice_settle"),
    "notice_log": ("notice_log", "notice_test"),
    "step": ("step.open", "step.show", "step.go", "step.edit"),
    "steps": ("step.show", "step.close"),
    "step_value": ("step.eval",),
    "step_continued": ("step.continue",),
    "compare_plan": ("compare.start",),
    "comparison": ("compare.start", "compare.show", "compare.stop", "compare.resume", "compare.promote"),
    "comparisons": ("compare.list", "compare.remove"),
    "compare_pair": ("compare.next", "compare.judge"),
}
ANSWERED: Mapping[str, tuple[str, ...]] = {kind: _ANSWERED.get(kind, (kind,)) for kind in REPLIES}
"""Operations that a reply answers, by its type; of an event those whose client gets it. An `error` answers any."""
