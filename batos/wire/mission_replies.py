"""Replies and events about missions, and the objects in them, as the daemon sends them.

Each field has its meaning in its annotation. A field that is not always there is `NotRequired`. `docs/replies.md` is made of these types,
and the tests hold each reply of a daemon against them. Nothing of a daemon imports them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict  # of `typing`, pydantic takes it from Python 3.12 on

from batos.wire.fields import State

EndState = Literal["COMPLETE", "FAILED"]
EffectClass = Literal["reads", "keyed", "idempotent", "verifiable", "acts"]
EffectState = Literal["INTENDED", "DONE", "FAILED", "IN_DOUBT", "SETTLED"]
Origin = Literal["file", "user", "tool", "self"]
JsonObject = dict[str, Any]


class WireReply(TypedDict):
    """A reply or an event."""

    ref: NotRequired[Annotated[str | int, "`ref` of the request"]]
    dropped: NotRequired[Annotated[int, "number of events of this stream that the client lost, since it read too slowly"]]


class WireError(TypedDict):
    """An error."""

    code: Annotated[str, "code of the error (wire.md, Codes)"]
    message: Annotated[str, "what was wrong, what is allowed and what to do, in words"]
    context: NotRequired[Annotated[JsonObject, "facts about the error, by its code"]]


class ErrorReply(WireReply, WireError):
    """Refusal of a request: nothing was changed."""

    type: Literal["error"]
    id: NotRequired[Annotated[str, "`id` of the request"]]


# --- missions


class WaitingQuestion(TypedDict):
    """The question that a mission waits with."""

    number: Annotated[int, "number of the question, from 1"]
    question: Annotated[str, "the question in words"]


class QuestionRow(WaitingQuestion):
    """A question that a mission asked."""

    occurrence: Annotated[int, "number of earlier questions in the same words"]
    answer: Annotated[str | None, "the user's answer; null: it is open"]
    asked: Annotated[float, "time of the question"]
    answered: NotRequired[Annotated[float, "time of the answer"]]
    grant: NotRequired[Annotated[bool, "true: a yes lets a method do more than change its receiver"]]


class RatingRow(TypedDict):
    """A user's rating of a mission."""

    rating: Annotated[Literal[1, -1], "good or bad"]
    why: Annotated[str, "the reason in words; may be empty"]
    at: Annotated[float, "time of the rating"]


_UndoneWith = TypedDict("_UndoneWith", {"with": Annotated[str, "the mission that the undo named"]})


class UndoneRow(_UndoneWith):
    """The undo of a mission."""

    at: Annotated[float | None, "time of the undo; null for an old mission of which one line is kept"]
    missions: Annotated[int, "number of missions that the undo took back"]


_ContinuedWith = TypedDict(
    "_ContinuedWith", {"with": Annotated[str | None, "the mission that holds the changes; null: nothing was changed"]}
)


class ContinuedRow(_ContinuedWith):
    """A continuation of a mission after its user stepped into it."""

    at: Annotated[float, "time of the continuation"]
    note: Annotated[str, "the user's note; may be empty"]
    attempts: Annotated[int, "number of attempts until then"]
    state: Annotated[State, "state of the mission then"]
    error: NotRequired[Annotated[WireError, "error of the mission then"]]
    finished: NotRequired[Annotated[float | None, "time at which the mission had ended"]]


class ImageRow(TypedDict):
    """An image of a mission."""

    digest: Annotated[str, "SHA-256 of the image"]
    name: Annotated[str, "name that the client gave it; may be empty"]
    type: Annotated[Literal["image/png", "image/jpeg", "image/webp"], "media type, by the content"]
    bytes: Annotated[int, "size of the image"]
    width: Annotated[int, "pixels"]
    height: Annotated[int, "pixels"]
    of: NotRequired[Annotated[str, "the earlier mission that the image came with"]]


class PersonaScore(TypedDict):
    """Fit of a brief to a persona."""

    score: NotRequired[Annotated[float, "fit in all"]]
    triggers: NotRequired[Annotated[float, "weight of the words of the persona's that the brief has"]]
    alike: NotRequired[Annotated[float, "likeness to the persona's exemplars, if it is known"]]


class RoutingRow(TypedDict):
    """The choice of the persona."""

    persona: Annotated[str, "the persona that thinks the mission"]
    why: Annotated[str, "the reason in words"]
    by: Annotated[str, "`rules`, `rules and likeness`, `learned`, `fallback`, `system`, or `mission`: the mission chose"]
    scores: Annotated[dict[str, PersonaScore], "fit by persona"]
    preferred: NotRequired[Annotated[str, "the persona that the router would have chosen, where the mission chose"]]


class ProvidedRow(TypedDict):
    """The model that is provided for a mission. Empty fields are left out."""

    state: NotRequired[Annotated[Literal["chosen", "begun", "ready", "declined"], "progress; left out while no other model is chosen"]]
    needs: NotRequired[Annotated[list[str], "abilities that the model must have"]]
    model: NotRequired[Annotated[str, "the model; left out: the usual one, with another context"]]
    source: NotRequired[Annotated[str, "where the model comes from"]]
    bytes: NotRequired[Annotated[int, "size of the download"]]
    context: NotRequired[Annotated[int, "tokens of its context"]]
    memory: NotRequired[Annotated[int, "memory that it takes, in bytes"]]
    why: NotRequired[Annotated[str, "why this model"]]
    change: NotRequired[Annotated[int, "number of the change that provided it"]]
    left_out: NotRequired[Annotated[list[str], "models that were not chosen again"]]


class UsageRow(TypedDict):
    """The cost of an answer."""

    inferences: Annotated[int, "number of inferences"]
    replayed: NotRequired[Annotated[int, "number of those that came from the journal"]]
    prompt_tokens: Annotated[int, "tokens read"]
    answer_tokens: Annotated[int, "tokens written"]
    model_ms: Annotated[float, "time of the models, in milliseconds"]
    prompt_ms: NotRequired[Annotated[float, "part of `model_ms` that reading took"]]
    models: NotRequired[Annotated[list[str], "the models that were asked"]]


class CitationRow(TypedDict):
    """A passage of the memory that an answer comes from."""

    n: Annotated[int, "its mark in the text"]
    chunk: Annotated[str, "its id, which `show` takes"]
    title: Annotated[str, "title of its document"]
    source: Annotated[str, "its file, or where else it comes from"]
    sentences: Annotated[list[str], "the sentences of the answer that come from it"]
    origin: Annotated[Origin, "speaker of the passage"]
    day: Annotated[str | None, "its day, if it is known"]


_EffectClass = TypedDict("_EffectClass", {"class": Annotated[EffectClass, "what a repetition of the call does"]})


class ToolEffect(_EffectClass):
    """A call of a tool."""

    key: Annotated[str, "key of the effect, the same at each repetition"]
    tool: Annotated[str, "the tool, as `CONNECTION.TOOL`"]
    state: Annotated[EffectState, "`INTENDED`: on its way; `FAILED`: it certainly did not happen; `SETTLED`: by its user"]
    arguments: Annotated[Any, "the arguments as JSON; long ones are a text that ends in `…`"]
    at: Annotated[float | None, "time of the call"]
    ended: Annotated[float | None, "time of its end; null: it has not ended"]
    grant: Annotated[str, "the permission in words; empty: none was needed, or it is not known"]
    attempts: Annotated[int, "number of sendings"]
    result: NotRequired[Annotated[Any, "the result as JSON, or a text that ends in `…`"]]
    error: NotRequired[Annotated[Any, "the error in place of a result, or a text that ends in `…`"]]
    question: NotRequired[Annotated[str, "what the tool asks before it goes on"]]
    target: NotRequired[Annotated[str, "the thing that the call changes"]]
    why: NotRequired[Annotated[str, "why it failed or is in doubt"]]


class AnsweringMethod(TypedDict):
    """The method that answered in a model's place."""

    target: Annotated[str, "id of its object"]
    name: Annotated[str, "name of its object"]
    selector: Annotated[str, "the message"]
    args: Annotated[list[Any], "the arguments"]


class WrittenMethod(TypedDict):
    """A method that was written for a message."""

    selector: Annotated[str, "the message"]
    object: Annotated[str | None, "id of the object that holds the method"]
    receiver: Annotated[str | None, "id of the object that got the message"]
    tries: Annotated[int, "number of drafts"]
    candidates: Annotated[int, "number of methods that were compared"]
    agreed: Annotated[int, "number of compared methods that did the same"]
    edited: Annotated[bool, "true: a check was added to what the model wrote"]
    open: Annotated[list[Any], "inputs for which candidates disagreed"]


class ThoughtProvision(TypedDict):
    """The model that a mission was provided with."""

    needs: Annotated[list[str], "abilities that the model had to have"]
    model: Annotated[str | None, "the model; null: the usual one, with another context"]
    num_ctx: Annotated[int | None, "tokens of its context; null: the usual number"]
    why: Annotated[str, "why this model"]
    change: NotRequired[Annotated[int, "number of the change that provided it"]]


class MissionResult(TypedDict):
    """The result of a COMPLETE mission."""

    text: Annotated[str, "the answer"]
    value: NotRequired[Annotated[Any, "the answer as a value: by `schema`, or of a `send`; else null"]]
    persona: NotRequired[Annotated[str | None, "the persona that answered"]]
    usage: NotRequired[Annotated[UsageRow, "cost of the answer"]]
    why: NotRequired[Annotated[str, "why this persona, or why no model was asked"]]
    facets: NotRequired[Annotated[list[str], "the parts of the plan"]]
    plan: NotRequired[Annotated[str, "who planned"]]
    depth: NotRequired[Annotated[str, "how much BAT OS thought about the brief"]]
    silent: NotRequired[Annotated[list[str], "parts that said nothing"]]
    citations: NotRequired[Annotated[list[CitationRow], "passages of the memory that the answer comes from"]]
    quoted: NotRequired[Annotated[bool, "true: the answer is a quotation: whole sentences of the memory in quotation marks, with numbers"]]
    cut: NotRequired[Annotated[bool, "true: the answer reached its greatest length (`num_predict`), and ends with its last whole sentence"]]
    unsure: NotRequired[Annotated[str, "why the answer may not be one: the better of two refused ones, or of an unconfirmed method"]]
    left_out: NotRequired[
        Annotated[
            dict[str, int],
            "characters that the model did not read, all being too long: of `conversation`, `memory`, `tools`, `request`, `instructions`",
        ]
    ]
    images_left_out: NotRequired[
        Annotated[
            int,
            "number of images of earlier missions that were not shown again: all was too long, or they are more than `thinking.images`",
        ]
    ]
    by_rule: NotRequired[
        Annotated[bool, "true: no model was asked; the memory has the user's own words, or measurements decide a mission of the system"]
    ]
    cannot: NotRequired[
        Annotated[str, "what BAT OS has no way to: `network`, `program`, `notify`, `account`, `senses`, `files`, `order`, `device`"]
    ]
    program: NotRequired[Annotated[str, "source of the plan that called the tools"]]
    called: NotRequired[Annotated[AnsweringMethod, "the method that answered in a model's place"]]
    wrote: NotRequired[Annotated[list[WrittenMethod], "methods that were written for a `send`"]]
    sent_to: NotRequired[Annotated[str, "the connection that a message went to, if it was another than its target"]]
    provided: NotRequired[Annotated[ThoughtProvision, "the model that the mission was provided with"]]
    tools: NotRequired[Annotated[list[ToolEffect], "calls of tools that the answer comes from"]]
    strays: NotRequired[Annotated[list[ToolEffect], "calls of earlier attempts that this one did not make"]]
    proposal: NotRequired[Annotated[JsonObject | None, "what a mission of the system's own proposes; null: a model was asked in vain"]]
    folded: NotRequired[Annotated[bool, "true: one line is kept of the mission, and `text` is the beginning"]]


class EndFields(TypedDict):
    """The end of a mission."""

    result: NotRequired[Annotated[MissionResult, "the result, if it is COMPLETE"]]
    error: NotRequired[Annotated[WireError, "the error, if it is FAILED"]]
    folded: NotRequired[Annotated[bool, "true: one line is kept of this old mission"]]


class AcceptedReply(WireReply, EndFields):
    """Acceptance of a mission: it is on disk, and completes or fails even if the daemon is killed now."""

    type: Literal["accepted"]
    id: Annotated[str, "id of the mission"]
    state: Annotated[State, "state of the mission"]
    duplicate: NotRequired[Annotated[bool, "true: the mission existed before"]]


class StatusReply(WireReply, EndFields):
    """The state of a mission, and facts about it."""

    type: Literal["status"]
    id: Annotated[str, "id of the mission"]
    state: Annotated[State, "state of the mission"]
    brief: Annotated[str, "the whole brief; of an old mission the beginning"]
    persona: Annotated[str | None, "the persona that thinks the mission; null: it is not chosen"]
    origin: Annotated[str, "source of the mission: `client`, `console`, `system`, `schedule`, `hook`, `folder` and others"]
    priority: Annotated[int, "the higher goes first"]
    attempts: Annotated[int, "number of attempts that count"]
    accepted: Annotated[float, "time of the acceptance"]
    finished: Annotated[float | None, "time of the end; null: it has not ended"]
    context: NotRequired[Annotated[str, "the mission that this one follows"]]
    questions: NotRequired[Annotated[list[QuestionRow], "all questions of the mission"]]
    rating: NotRequired[Annotated[RatingRow, "the user's rating"]]
    undone: NotRequired[Annotated[UndoneRow, "the undo that took the mission back"]]
    images: NotRequired[Annotated[list[ImageRow], "images of the brief, and of earlier missions of the conversation"]]
    kernel: NotRequired[Annotated[str, "the kernel that thinks the mission, where several serve the image"]]
    continued: NotRequired[Annotated[list[ContinuedRow], "each time that its user stepped into it and let it go on"]]
    routing: NotRequired[Annotated[RoutingRow, "which persona thinks the mission, and why"]]
    provided: NotRequired[Annotated[ProvidedRow, "the model that is provided for it"]]
    cancelled: NotRequired[Annotated[bool, "true: the cancellation is on disk, and the mission has not ended yet"]]
    already: NotRequired[Annotated[bool, "true: the mission had ended before, and the request changed nothing"]]
    running: NotRequired[Annotated[bool, "true: it is thought now; left out after its end"]]
    why: NotRequired[Annotated[str | None, "why this persona, while it is thought"]]
    progress: NotRequired[Annotated[str, "last line of a tool under way, after the tool's name"]]
    place: NotRequired[Annotated[int, "place in the queue of its kernel, from 1"]]
    question: NotRequired[Annotated[WaitingQuestion, "the question that it waits with"]]
    waits_for: NotRequired[Annotated[str, "the mission whose end it waits for"]]
    waits: NotRequired[Annotated[str, "why no kernel takes the mission"]]


class MissionEvent(WireReply):
    """Fields of all events of a mission."""

    id: Annotated[str, "id of the mission"]
    state: Annotated[State, "state of the cycle that speaks"]
    persona: Annotated[str | None, "the persona that thinks; null: none is chosen"]
    cycle: NotRequired[Annotated[str, "number of the cycle that speaks: `1` is the mission's own; left out by another kernel"]]
    model: NotRequired[Annotated[str | None, "the model of the cycle; left out by another kernel"]]
    elapsed_s: Annotated[float, "seconds since the attempt began"]


class StateEvent(MissionEvent):
    """A state of the mission's thought."""

    type: Literal["state"]
    why: NotRequired[Annotated[str, "of IDLE: why this persona thinks"]]
    error: NotRequired[Annotated[WireError, "of FAILED: the error of the cycle"]]
    needs: NotRequired[Annotated[list[str], "of PROVISIONING: abilities that a model must have"]]


class TokenEvent(MissionEvent):
    """A piece of text as a model wrote it."""

    type: Literal["token"]
    text: Annotated[str, "the text"]
    pieces: Annotated[int, "number of tokens of the model in it"]
    facet: Annotated[str | None, "the part of the plan that speaks; null: the mission's own voice"]


class RevisedEvent(MissionEvent):
    """Refusal of the answer whose pieces came: those after it belong to another answer."""

    type: Literal["revised"]
    why: Annotated[str, "the reason in words"]


class ToolEvent(MissionEvent):
    """A step of a call of a tool."""

    type: Literal["tool"]
    tool: Annotated[str, "the tool, as `CONNECTION.TOOL`"]
    step: Annotated[Literal["called", "progress", "done", "failed", "denied"], "the step"]
    arguments: NotRequired[Annotated[str, "of `called`: the arguments as JSON, cut if long"]]
    line: NotRequired[Annotated[str, "of `progress`: one line"]]
    result: NotRequired[Annotated[str, "of `done`: the result, cut if long"]]
    error: NotRequired[Annotated[WireError, "of `failed` and `denied`"]]


class NeedsInputEvent(MissionEvent, WaitingQuestion):
    """A question of the mission to its user: it waits for `answer`."""

    type: Literal["needs_input"]


class ProvisionEvent(MissionEvent):
    """Progress of the model that is provided for a mission."""

    type: Literal["provision"]
    status: Annotated[str, "step of the pull, in words"]
    completed: NotRequired[Annotated[int, "bytes that have come"]]
    total: NotRequired[Annotated[int, "bytes in all"]]


class ResultReply(WireReply, EndFields):
    """The end of a mission. As the last event of a watch it has the fields of its events, too."""

    type: Literal["result"]
    id: Annotated[str, "id of the mission"]
    state: Annotated[EndState, "state of the mission"]
    persona: NotRequired[Annotated[str | None, "of an event: the persona that thought"]]
    cycle: NotRequired[Annotated[str, "of an event: number of the cycle"]]
    model: NotRequired[Annotated[str | None, "of an event: the model of the cycle"]]
    elapsed_s: NotRequired[Annotated[float, "of an event: seconds since the attempt began"]]


class ListedMission(TypedDict):
    """A mission in a list."""

    id: Annotated[str, "id of the mission"]
    state: Annotated[State, "state of the mission; for a past moment the recorded one"]
    brief: Annotated[str, "the first 500 characters of the brief, followed by `…` if it is longer"]
    origin: Annotated[str, "source of the mission, as in `status`"]
    accepted: Annotated[float, "time of the acceptance"]
    finished: Annotated[float | None, "time of the end; null: it has not ended"]
    undone: NotRequired[Annotated[bool, "true: it was undone"]]
    context: NotRequired[Annotated[str, "the mission that it follows"]]
    folded: NotRequired[Annotated[bool, "true: one line is kept of it"]]


class MissionsReply(WireReply):
    """The missions, the newest first."""

    type: Literal["missions"]
    missions: Annotated[list[ListedMission], "the missions that match"]


class UploadedImage(TypedDict):
    """Facts about an image."""

    type: Annotated[Literal["image/png", "image/jpeg", "image/webp"], "media type, by the content"]
    bytes: Annotated[int, "size of the image"]
    width: Annotated[int, "pixels"]
    height: Annotated[int, "pixels"]


class UploadReply(WireReply):
    """Progress of the upload of an image."""

    type: Literal["upload"]
    digest: Annotated[str, "SHA-256 of the image"]
    bytes: Annotated[int, "size of the whole image"]
    have: Annotated[int, "bytes that have come: the next part begins here"]
    whole: Annotated[bool, "true: the image is complete and on disk"]
    part: NotRequired[Annotated[int, "most bytes of a part; left out once the image is whole"]]
    image: NotRequired[Annotated[UploadedImage, "the image, once it is whole"]]


class ImageReply(WireReply):
    """A part of an image of a mission."""

    type: Literal["image"]
    id: Annotated[str, "id of the mission"]
    digest: Annotated[str, "SHA-256 of the image"]
    format: Annotated[Literal["image/png", "image/jpeg", "image/webp"], "media type, by the content"]
    bytes: Annotated[int, "size of the whole image"]
    offset: Annotated[int, "where this part begins"]
    data: Annotated[str, "the part in base64"]


# --- what came of missions


class FailureRow(TypedDict):
    """A failed attempt."""

    at: Annotated[float, "time of the failure"]
    mission: Annotated[str, "id of the mission"]
    attempt: Annotated[int, "number of the attempt"]
    final: Annotated[bool, "true: the mission ended with it"]
    error: Annotated[WireError, "the error"]
    context: Annotated[JsonObject, "`state`, `persona`, `class` of the error, `saw`, and for a message its `target` and `selector`"]


class FailuresReply(WireReply):
    """Failed attempts, the newest first."""

    type: Literal["failures"]
    failures: Annotated[list[FailureRow], "the attempts that match"]
    more: NotRequired[Annotated[bool, "true: older matches were left out, since the reply has 4 MiB at most"]]


class ReplayedPrompt(TypedDict):
    """An inference of a replay."""

    cycle: NotRequired[Annotated[str, "number of the cycle"]]
    state: Annotated[str, "state that asked"]
    persona: NotRequired[Annotated[str, "persona that asked"]]
    part: Annotated[str | None, "part of the plan; null: the mission's own voice"]
    model: Annotated[str, "the model"]
    system: Annotated[str, "the system prompt"]
    user: Annotated[str, "the prompt"]
    turns: NotRequired[Annotated[list[list[str]], "earlier turns: pairs of prompt and answer"]]
    schema: NotRequired[Annotated[JsonObject, "JSON schema of the answer"]]
    said: NotRequired[Annotated[str, "the answer in the journal"]]


class ReplayDifference(TypedDict):
    """The first difference between a replay and its mission."""

    what: NotRequired[
        Annotated[str, "`inference`: one that the journal lacks; `end`; or a field of the result (`text`, `persona` and others)"]
    ]
    state: NotRequired[Annotated[str, "state in which it occurs"]]
    facet: NotRequired[Annotated[str | None, "of an inference: the part of the plan"]]
    model: NotRequired[Annotated[str, "of an inference: the model"]]
    changed: NotRequired[Annotated[list[str], "of an inference: parts in which it differs from the journal; empty: not known"]]
    expected: NotRequired[Annotated[str, "the recorded value, cut if long"]]
    found: NotRequired[Annotated[str, "the value of the replay, cut if long"]]


class ReplayReply(WireReply):
    """Comparison of a mission with its replay from the journal."""

    type: Literal["replay"]
    id: Annotated[str, "id of the mission"]
    state: Annotated[EndState, "state of the mission"]
    outcome: Annotated[
        Literal["same", "different", "journal_ended"], "`journal_ended`: a FAILED mission that went so as far as its journal goes"
    ]
    inferences: Annotated[int, "number of journaled inferences that were used"]
    journaled: Annotated[int, "number of journaled inferences"]
    unused: Annotated[int, "number of journaled inferences that were not used"]
    difference: NotRequired[Annotated[ReplayDifference, "the first difference"]]
    models_unknown: NotRequired[Annotated[bool, "true: Ollama could not be asked which models these are now; they were taken for equal"]]
    prompts: NotRequired[Annotated[list[ReplayedPrompt], "the inferences in their order, if they were asked for"]]
    more: NotRequired[Annotated[bool, "true: other prompts did not fit (2 MiB)"]]


class EffectRow(ToolEffect):
    """A call of a tool by a mission."""

    mission: Annotated[str, "id of the mission"]
    settled: NotRequired[Annotated[Literal["happened", "again", "leave"], "of `effect_settle`: its outcome by the user"]]


class EffectsReply(WireReply):
    """Effects: calls of tools by missions."""

    type: Literal["effects"]
    effects: Annotated[list[EffectRow], "of all missions: acts, the newest first; of one: reads, too, in the order of the record"]
