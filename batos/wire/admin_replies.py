"""Replies about the daemon itself: facts, models, personas, kernels, and tools. See `batos.wire.mission_replies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from typing_extensions import TypedDict  # of `typing`, pydantic takes it from Python 3.12 on

from batos.wire.image_replies import EmbedderState
from batos.wire.mission_replies import EffectClass, JsonObject, WireReply

# --- info


class ReloadedRow(TypedDict):
    """The last reload of the settings."""

    at: Annotated[float, "time of the reload"]
    applied: Annotated[list[str], "settings that were applied"]
    restart: Annotated[list[str], "settings that wait for a restart"]


class ImageFacts(TypedDict):
    """Facts about the image."""

    uri: Annotated[str, "its URI, without secrets"]
    objects: Annotated[int, "number of objects"]
    bytes: Annotated[int, "size"]
    accepted: Annotated[int, "number of missions that were ever accepted"]
    pending: Annotated[int, "number of missions that have not ended, at most"]
    folded: Annotated[int, "number of missions of which one line is kept"]
    rounds: Annotated[int, "number of writes through to the disk"]
    groups: Annotated[int, "number of commits of the system"]
    system: Annotated[int, "number of changes in those commits"]
    units: Annotated[int, "number of commits of missions"]
    aborts: Annotated[int, "number of aborted commits"]
    conflicts: Annotated[int, "number of commits that met a conflict"]
    trouble: Annotated[str, "why the last commit could not be written; empty: it was"]


class MissionFacts(TypedDict):
    """Facts about missions."""

    running: Annotated[int, "number of missions under way"]
    under_way: Annotated[list[str], "ids of missions under way, at most 100"]
    queued: Annotated[int, "number of missions that wait for their turn"]
    paused: Annotated[int, "number of paused missions"]
    needs_input: Annotated[int, "number of missions that wait for their user"]
    following: Annotated[int, "number of missions that wait for another one"]
    COMPLETE: Annotated[int, "number of missions that completed since the start"]
    FAILED: Annotated[int, "number of missions that failed since the start"]


class RelayFacts(TypedDict):
    """Missions of other kernels whose events come here."""

    missions: Annotated[int, "number of those missions now"]
    unreached: Annotated[dict[str, str], "why kernels cannot be reached, by name"]


class KernelFacts(TypedDict):
    """This kernel among others."""

    name: Annotated[str, "its name"]
    leads: Annotated[bool, "true: it leads"]
    draining: Annotated[bool, "true: it takes no missions any more"]
    states: Annotated[dict[str, int], "number of kernels by state"]
    missions: Annotated[dict[str, int], "number of missions under way, by kernel"]
    relayed: Annotated[RelayFacts, "missions of others whose events come here"]
    fit: NotRequired[Annotated[bool, "true: it can take missions"]]
    why_not: NotRequired[Annotated[list[str], "why it cannot"]]


class ToolTotals(TypedDict):
    """Facts about tools."""

    connections: Annotated[int, "number of connections"]
    tools: Annotated[int, "number of their tools"]
    suspended: Annotated[list[str], "connections whose place changed a tool"]
    open: Annotated[list[str], "connections in use"]
    in_doubt: Annotated[int, "number of effects that wait to be settled"]
    tied: Annotated[str, "why nothing may act; empty: all may"]


class SpentRow(TypedDict):
    """Cost of inferences."""

    inferences: Annotated[int, "number of inferences"]
    prompt_tokens: Annotated[int, "tokens read"]
    answer_tokens: Annotated[int, "tokens written"]
    model_s: Annotated[float, "seconds of the models"]


class DurableCosts(SpentRow):
    """Cost of the missions of all kernels."""

    until: Annotated[int, "number of the last mission in it"]


class CostFacts(SpentRow):
    """Cost of all missions ever; with several kernels of this one since its start."""

    by_model: Annotated[dict[str, SpentRow], "cost by model"]
    counting: NotRequired[Annotated[bool, "true: earlier missions are still being read"]]
    kernel: NotRequired[Annotated[str, "name of the kernel, where several serve the image"]]
    durable: NotRequired[Annotated[DurableCosts, "cost of all kernels, where several serve the image"]]


class UpkeepStep(TypedDict):
    """Progress of upkeep."""

    step: Annotated[str, "what is done now"]
    done: NotRequired[Annotated[int, "bytes that are done"]]
    total: NotRequired[Annotated[int, "bytes in all"]]


class BackupFacts(TypedDict):
    """Facts about backups by schedule."""

    folder: Annotated[str, "their folder"]
    kept: Annotated[int, "number of whole backups"]
    last: Annotated[float | None, "time of the last good one"]
    next: Annotated[float | None, "time of the next one"]
    failures: Annotated[int, "number of failures in a row"]
    failed: Annotated[int, "number of failures since the start"]
    error: Annotated[str | None, "the last failure"]


class UpkeepFacts(TypedDict):
    """Facts about upkeep. The last run of each kind has its figures and the time `at`."""

    under_way: Annotated[str | None, "kind of upkeep under way"]
    progress: NotRequired[Annotated[UpkeepStep, "its progress"]]
    pack: NotRequired[Annotated[JsonObject, "the last pack, as in `pack`"]]
    backup: NotRequired[Annotated[JsonObject, "the last backup, as in `backup`"]]
    fork: NotRequired[Annotated[JsonObject, "the last fork, as in `fork`"]]
    retention: NotRequired[Annotated[JsonObject, "the last retention: `missions`, `dropped` texts, `folded` missions, `uploads`"]]
    backups: Annotated[BackupFacts, "backups by schedule"]


class IntegrityFacts(TypedDict):
    """Facts about the check of all records."""

    checked: Annotated[int, "number of records that were checked"]
    rounds: Annotated[int, "number of rounds through all records"]
    damaged: Annotated[dict[str, str], "damage by record, the first ones"]
    damages: Annotated[int, "number of damaged records"]
    checked_bytes: NotRequired[Annotated[int, "bytes of the file that were checked"]]
    file_rounds: NotRequired[Annotated[int, "number of rounds through the file"]]


class SpentOf(TypedDict):
    """A part of the budget."""

    spent: Annotated[float, "spent in 24 hours"]
    limit: Annotated[float, "its limit"]


class BudgetFacts(TypedDict):
    """Budget of the loop."""

    spent: Annotated[dict[str, SpentOf], "by part: `tokens`, `minutes`, `bytes`, `changes`, `pull_bytes`, `training_minutes`"]
    deferred: Annotated[str | None, "why the loop waits"]


class WatchedRow(TypedDict):
    """A change under watch."""

    number: Annotated[int, "number of the change"]
    until: Annotated[float, "end of its watch"]


class EndedWatch(TypedDict):
    """The outcome of a change."""

    number: Annotated[int, "number of the change"]
    state: Annotated[str, "its state"]
    reason: Annotated[str, "the reason"]


class LeashFacts(TypedDict):
    """Watch over changes."""

    watched: Annotated[WatchedRow | None, "the change under watch"]
    deaths: Annotated[int, "number of daemons that died in that time"]
    last: Annotated[EndedWatch | None, "outcome of the last change that ended"]
    proposed: Annotated[int, "number of open proposals"]


class HeartbeatFacts(TypedDict):
    """Heartbeat of the loop."""

    due: Annotated[float | None, "time of the next beat"]
    last: Annotated[str | None, "mission of the last beat"]
    beats: Annotated[int, "number of beats"]
    quiet: Annotated[int, "number of beats in a row without news"]


class MeasuredEntropy(TypedDict):
    """Entropy of one mission."""

    cem: Annotated[float, "the composite"]
    relevance: Annotated[float, "part of it"]
    diversity: Annotated[float, "part of it"]
    novelty: Annotated[float, "part of it"]
    structure: Annotated[float, "part of it"]
    source: Annotated[str, "what texts were compared by"]


class EntropyFacts(TypedDict):
    """Entropy of the last missions ([entropy.md](entropy.md))."""

    rolling: Annotated[float | None, "mean of the window"]
    last: Annotated[MeasuredEntropy | None, "the last mission"]
    weights: Annotated[dict[str, float], "weights of the parts"]
    fallen: Annotated[bool, "true: it has fallen for good"]
    usual: Annotated[float | None, "the usual mean, once it is learned"]
    waiting: Annotated[int, "number of missions that wait to be measured"]
    left_out: Annotated[int, "number of missions that were not measured"]


class FiredRow(TypedDict):
    """A trigger that fired."""

    trigger: Annotated[str, "the trigger"]
    key: Annotated[str, "what it is about"]
    mission: Annotated[str, "its mission"]
    at: Annotated[float, "time of the alarm"]
    words: Annotated[str, "the measurement in words"]


class TriggerFacts(TypedDict):
    """Triggers of the loop."""

    fired: Annotated[list[FiredRow], "triggers that fired and are quiet now"]
    ever: Annotated[int, "number of alarms ever"]


class LoopFacts(TypedDict):
    """The autotelic loop ([autotelic.md](autotelic.md)). While it is off, it has `state`, and the others if known."""

    state: Annotated[str, "the setting `autonomy.mode`"]
    budget: NotRequired[Annotated[BudgetFacts, "its budget"]]
    leash: NotRequired[Annotated[LeashFacts, "watch over its changes"]]
    heartbeat: NotRequired[Annotated[HeartbeatFacts, "its heartbeat"]]
    cem: NotRequired[Annotated[EntropyFacts, "entropy"]]
    triggers: NotRequired[Annotated[TriggerFacts, "its triggers"]]


class CuratorFacts(TypedDict):
    """Facts about the curator."""

    state: Annotated[str, "the setting `memory.curate`"]
    under_way: Annotated[bool, "true: it is at work"]
    last: Annotated[JsonObject | None, "figures of the last round, as in `curate`, with the number of `clusters` and the time `at`"]


class MemoryFacts(TypedDict):
    """Facts about the memory."""

    chunks: Annotated[int, "number of passages"]
    under_way: Annotated[str | None, "the file that is read now"]
    trouble: Annotated[str, "why nothing can be stored now; empty: all is well"]
    embedder: Annotated[EmbedderState, "the embedder"]
    curator: Annotated[CuratorFacts, "the curator"]


class ResidencyFacts(TypedDict):
    """Models in the memory of an Ollama."""

    budget: Annotated[int, "bytes that models may take; 0: no limit"]
    bytes: Annotated[int, "bytes of models that are loaded"]
    foreign_bytes: Annotated[int, "bytes of models that others loaded"]
    resident: Annotated[list[str], "models that are loaded"]
    loads: Annotated[int, "number of loads"]
    unloads: Annotated[int, "number of unloads"]
    preloads: Annotated[int, "number of loads in advance"]
    waiting: Annotated[int, "number of inferences that wait for room"]


class NoFacts(TypedDict):
    """An empty object: there is no Ollama."""


class HostFacts(TypedDict):
    """An Ollama."""

    host: Annotated[str, "its address"]
    answers: Annotated[bool, "true: it answers"]
    outages: Annotated[int, "number of outages"]
    away_s: NotRequired[Annotated[float, "seconds since it answered last"]]
    why: NotRequired[Annotated[str, "why it does not answer"]]
    under_way: Annotated[int, "number of inferences under way"]
    models: Annotated[int, "number of its models that were seen"]
    differs: Annotated[list[str], "models that differ from those of another host"]
    residency: Annotated[ResidencyFacts, "models in its memory"]


class OllamaFacts(TypedDict):
    """Ollama; empty without one."""

    host: NotRequired[Annotated[str, "address of the first one"]]
    version: NotRequired[Annotated[str, "its version"]]
    state: NotRequired[Annotated[str, "`external`, or the state of the daemon's own"]]
    restarts: NotRequired[Annotated[int, "number of restarts of the daemon's own"]]
    hosts: NotRequired[Annotated[list[HostFacts], "all of `inference.hosts`"]]


class ModelStateRow(TypedDict):
    """State of a model."""

    name: Annotated[str, "the model"]
    state: Annotated[Literal["waiting", "present", "created", "pulled", "failed"], "its state"]
    detail: Annotated[str, "the reason in words; may be empty"]
    remedy: Annotated[str, "what to do; may be empty"]
    cause: Annotated[str, "the obstacle in one word; may be empty"]


class ModelRow(ModelStateRow):
    """A model. Facts about its memory are there once it is known."""

    resident: NotRequired[Annotated[bool, "true: it is loaded"]]
    bytes: NotRequired[Annotated[int, "memory that it takes"]]
    measured: NotRequired[Annotated[bool, "true: `bytes` was measured, and not estimated"]]
    last_used: NotRequired[Annotated[float | None, "time of its last use; null: it was not used"]]
    loads: NotRequired[Annotated[int, "number of loads"]]
    host: NotRequired[Annotated[str, "its Ollama, where there are several"]]


class InfoReply(WireReply):
    """Facts about the daemon."""

    type: Literal["info"]
    version: Annotated[str, "version of BAT OS"]
    pid: Annotated[int, "number of the process"]
    uptime_s: Annotated[float, "seconds since the start"]
    reloaded: NotRequired[Annotated[ReloadedRow, "the last reload of the settings"]]
    profile: Annotated[str, "profile of the models"]
    model: Annotated[str, "model that thinks"]
    why_model: Annotated[str, "why this model; may be empty"]
    endpoints: Annotated[list[str], "where the daemon listens"]
    console: Annotated[str | None, "address of the web console"]
    doors: Annotated[str | None, "address of the interfaces for chat clients"]
    sendable: Annotated[list[str], "the setting `doors.send`"]
    data: Annotated[str, "the data folder"]
    personas: Annotated[list[str], "the personas"]
    image: Annotated[ImageFacts, "the image"]
    missions: Annotated[MissionFacts, "missions"]
    kernel: NotRequired[Annotated[KernelFacts, "this kernel, where several serve the image"]]
    tools: Annotated[ToolTotals, "tools"]
    costs: Annotated[CostFacts, "cost of missions"]
    upkeep: Annotated[UpkeepFacts, "upkeep"]
    integrity: Annotated[IntegrityFacts, "the check of all records"]
    autotelic: Annotated[LoopFacts, "the loop"]
    memory: Annotated[MemoryFacts, "the memory"]
    ollama: Annotated[OllamaFacts, "Ollama"]
    residency: Annotated[ResidencyFacts | NoFacts, "models in the memory of the first Ollama"]
    models: Annotated[list[ModelRow], "the models"]


class SampleRow(TypedDict):
    """A value of a metric."""

    name: Annotated[str, "its name"]
    labels: Annotated[dict[str, str], "its labels"]
    value: Annotated[float, "its value"]


class MetricRow(TypedDict):
    """A metric ([metrics.md](metrics.md))."""

    name: Annotated[str, "its name"]
    kind: Annotated[Literal["counter", "gauge", "histogram"], "its kind"]
    help: Annotated[str, "its meaning"]
    samples: Annotated[list[SampleRow], "its values"]


class MetricsReply(WireReply):
    """The metrics."""

    type: Literal["metrics"]
    metrics: Annotated[list[MetricRow], "each metric"]


# --- models, personas, experts


class FitRow(TypedDict):
    """A model of the first Ollama. What is not known is left out."""

    name: Annotated[str, "the model"]
    bytes: Annotated[int, "size of its files"]
    memory: Annotated[int, "approximate memory that it takes with that context, in bytes"]
    fits: Annotated[bool, "true: that memory is within the budget"]
    num_ctx: Annotated[int, "tokens of the context"]
    parameters: NotRequired[Annotated[int, "number of parameters"]]
    context: NotRequired[Annotated[int, "greatest number of tokens that it reads and writes"]]
    quantization: NotRequired[Annotated[str, "as Ollama names it"]]
    chats: Annotated[bool, "true: it answers messages"]
    thinks: Annotated[bool, "true: it can think before it answers"]
    silenced: Annotated[bool, "true: it answers at once if asked to"]
    tools: Annotated[bool, "true: it calls tools"]
    vision: Annotated[bool, "true: it sees images"]
    format: Annotated[bool, "true: its answers keep to a JSON schema"]
    remote: Annotated[bool, "true: it is a model of a service elsewhere"]
    speed: NotRequired[Annotated[float, "tokens a second, as measured"]]
    probed: Annotated[list[str], "properties that were tried, and not only claimed"]
    in_use: Annotated[bool, "true: it thinks now"]
    not_by_itself: NotRequired[Annotated[str, "why the profile `auto` would not choose it"]]


class ModelsReply(WireReply):
    """The required models, and the state of each."""

    type: Literal["models"]
    profile: Annotated[str, "the profile"]
    models: Annotated[list[ModelRow], "the models"]
    under_way: Annotated[bool, "true: the daemon works on a model"]
    watching: NotRequired[Annotated[bool, "true: events `progress` and `model` follow"]]
    model: NotRequired[Annotated[str, "of `use` and `fit`: the model that thinks now"]]
    why: NotRequired[Annotated[str, "of `use` and `fit`: why this model"]]
    before: NotRequired[Annotated[str, "of `use`: the argument that restores the former one"]]
    budget: NotRequired[Annotated[int, "of `fit`: bytes that models may take"]]
    fit: NotRequired[Annotated[list[FitRow], "of `fit`: the models of Ollama"]]


class ProgressEvent(WireReply):
    """A step of a model that is pulled or made."""

    type: Literal["progress"]
    model: Annotated[str, "the model"]
    status: Annotated[str, "the step in words"]
    layer: NotRequired[Annotated[str, "digest of a blob, or name of a file"]]
    completed: NotRequired[Annotated[int, "bytes that are done"]]
    total: NotRequired[Annotated[int, "bytes in all"]]


class ModelEvent(WireReply, ModelStateRow):
    """The final state of a model."""

    type: Literal["model"]


class BehaviourRow(TypedDict):
    """A message that a persona answers."""

    selector: Annotated[str, "the message"]
    kind: Annotated[Literal["intent", "method", "primitive"], "kind of its behaviour"]
    facet: Annotated[bool, "true: it is a facet of thought"]
    text: Annotated[str, "the intent, or the source"]


class KeptRow(TypedDict):
    """A difference between image and codex."""

    slot: Annotated[str | None, "the slot; null: the whole persona"]
    why: Annotated[str, "why the image's value stays"]


class PersonaRow(TypedDict):
    """A persona. One that was deleted in the image has `name`, `routed` and `kept` only."""

    name: Annotated[str, "its name"]
    routed: Annotated[bool, "true: briefs may go to it"]
    core_mission: NotRequired[Annotated[str | None, "its mission in words"]]
    core_method: NotRequired[Annotated[str | None, "its method in words"]]
    pillars: NotRequired[Annotated[list[str | None], "what it builds on"]]
    model: NotRequired[Annotated[str, "its model"]]
    behaviour: NotRequired[Annotated[list[BehaviourRow], "messages that it answers"]]
    exemplars: NotRequired[Annotated[int, "number of given exemplars"]]
    learned: NotRequired[Annotated[int, "number of learned exemplars"]]
    kept: Annotated[list[KeptRow], "differences from the codex"]


class RouterEmbedder(TypedDict):
    """The embedder by which briefs are routed."""

    model: Annotated[str, "the embedder"]
    state: Annotated[Literal["waiting", "working", "ready", "away", "elsewhere"], "its state"]


class PersonasReply(WireReply):
    """The personas."""

    type: Literal["personas"]
    personas: Annotated[list[PersonaRow], "the personas"]
    embedder: Annotated[RouterEmbedder, "the embedder by which briefs are routed"]


class ExpertRow(TypedDict):
    """A LoRA expert."""

    model: Annotated[str, "its model"]
    persona: Annotated[str, "its persona"]
    expert: Annotated[str, "its name"]
    version: Annotated[int, "its version"]
    base: Annotated[str, "the model that it was trained on"]
    content: Annotated[str, "digest of its files"]
    folder: Annotated[str, "its folder in `staging`"]
    staged: Annotated[float, "time at which it was found"]
    number: Annotated[int, "its place in the order of the finds"]
    state: Annotated[Literal["intended", "built", "refused", "missing"], "its state"]
    reason: Annotated[str, "why it has that state; may be empty"]
    digest: Annotated[str, "digest of the built model"]
    recipe: Annotated[str, "digest of all that it was built from"]
    how: Annotated[str, "how it was built"]
    built: Annotated[float | None, "time of the build"]
    role: Annotated[str, "`voice`, or what else it is for"]
    fuse: Annotated[bool, "true: it is merged into its base"]
    on_choice: Annotated[bool, "true: it speaks only where it is chosen"]
    about: Annotated[str, "what it is, in words"]
    missions: Annotated[list[Any], "missions that it was trained on"]
    methods: Annotated[list[Any], "methods that it was trained on"]
    image_revision: Annotated[str, "transaction of the image that it was trained on"]
    data: Annotated[str, "digest of the training data"]
    seed: Annotated[int, "seed of the training"]
    figures: Annotated[list[Any], "figures of the training"]
    oid: Annotated[str, "its id"]
    speaks: Annotated[bool, "true: it is its persona's voice"]


class VoiceRow(TypedDict):
    """The voice of a persona."""

    choice: Annotated[str, "`newest`, `plain`, or the name of an expert's model"]
    model: Annotated[str, "the model that speaks; empty: its own"]


class RefusedFolder(TypedDict):
    """A folder that is not taken as an expert."""

    folder: Annotated[str, "the folder"]
    reason: Annotated[str, "the reason"]
    waits: Annotated[bool, "true: it may still be accepted"]


class ExpertsReply(WireReply):
    """The LoRA experts that the image knows."""

    type: Literal["experts"]
    staging: Annotated[str | None, "the staging folder; null without an Ollama"]
    experts: Annotated[list[ExpertRow], "the experts"]
    voices: Annotated[dict[str, VoiceRow], "voice by persona"]
    refused: Annotated[list[RefusedFolder], "folders that were refused"]


class KernelRow(TypedDict):
    """A kernel."""

    name: Annotated[str, "its name"]
    host: Annotated[str, "its machine"]
    state: Annotated[Literal["works", "leads", "unfit", "drains", "gone"], "its state"]
    leads: Annotated[bool, "true: it leads"]
    draining: Annotated[bool, "true: it takes no missions any more"]
    gone: Annotated[str | None, "why it is gone"]
    began: Annotated[float, "time of its registration"]
    ended: Annotated[float | None, "time since which it is gone"]
    endpoint: Annotated[str | None, "where it listens"]
    doors: Annotated[str | None, "address of its interfaces for chat clients"]
    version: Annotated[str, "its version of BAT OS"]
    codex: Annotated[str, "digest of its codex"]
    profile: Annotated[str | None, "its profile"]
    missions: Annotated[int, "number of missions that it thinks"]
    models: Annotated[list[str], "models that it can ask"]
    unfit: Annotated[list[str], "why it takes no missions"]
    unreached: Annotated[str | None, "why the answering kernel could not reach it"]


class KernelsReply(WireReply):
    """The kernels that serve the image together."""

    type: Literal["kernels"]
    name: Annotated[str, "the kernel that answers; empty: the daemon has the image to itself"]
    draining: Annotated[bool, "true: the kernel that answers takes no missions any more"]
    kernels: Annotated[list[KernelRow], "the kernels, in the order of their registration"]
    under_way: NotRequired[Annotated[int, "with `drain`: number of missions under way"]]


# --- tools

_ToolClass = TypedDict("_ToolClass", {"class": Annotated[EffectClass, "what a repetition does"]})


class ToolRow(_ToolClass):
    """A tool. Its definition is there for a single connection."""

    name: Annotated[str, "its name"]
    verdict: Annotated[
        Literal["allow", "ask", "deny", "suspended"], "what the grants say of a call by a user's mission; `suspended`: its place changed it"
    ]
    line: Annotated[str, "one line on it"]
    message: NotRequired[Annotated[str, "the message that performs it; empty: only `call_` does"]]
    method: NotRequired[Annotated[str, "of HTTP: the method of a call; of an MCP server `tools/call`"]]
    path: NotRequired[Annotated[str, "of HTTP: the path of a call"]]
    server: NotRequired[Annotated[str, "of HTTP: the address of the place, if its document says it"]]
    argv: NotRequired[Annotated[list[str], "of a program: its words"]]
    description: NotRequired[Annotated[str, "what its place says of it"]]
    parameters: NotRequired[Annotated[JsonObject, "JSON schema of its arguments"]]
    result: NotRequired[Annotated[JsonObject | None, "JSON schema of its result"]]
    untrusted: NotRequired[Annotated[bool, "true: a result may hold text of strangers"]]
    private: NotRequired[Annotated[bool, "true: a result may hold what belongs to the user alone"]]
    outward: NotRequired[Annotated[bool, "true: a call carries its arguments out, or changes something"]]
    look: NotRequired[Annotated[str, "the tool that shows whether a call happened; may be empty"]]
    undo: NotRequired[Annotated[str, "the tool that takes a call back; may be empty"]]
    says_reads: NotRequired[Annotated[bool, "true: its MCP server says that it only reads"]]
    cut: NotRequired[Annotated[bool, "true: `description`, `parameters` and `result` are left out, since there is too much"]]


class ConnectionRow(TypedDict):
    """A connection."""

    name: Annotated[str, "its name"]
    kind: Annotated[str, "`mcp`, `openapi`, `http`, `folder`, `program` or `web`"]
    place: Annotated[str, "command line, URL, origin or path"]
    suspended: Annotated[list[str], "tools that the place changed since you accepted them"]
    on: NotRequired[Annotated[str, "machine that it belongs to, where several kernels serve the image; `*`: all"]]
    open: Annotated[bool, "true: it is in use"]
    tools: Annotated[list[ToolRow], "its tools"]
    missing: Annotated[list[str], "secrets that are not set"]
    options: NotRequired[Annotated[JsonObject, "of a single connection: its options"]]
    changes: NotRequired[Annotated[str, "of a single connection: difference from what you accepted; may be empty"]]
    notes: NotRequired[Annotated[list[str], "of a single connection: lines about its place"]]


class ToolsReply(WireReply):
    """The connections, or one of them with all details."""

    type: Literal["tools"]
    connections: Annotated[list[ConnectionRow], "the connections"]
    tied: Annotated[str, "why nothing may act; empty: all may"]
    in_doubt: Annotated[int, "number of effects that wait to be settled"]


class OfferRow(TypedDict):
    """A place that may be proposed."""

    name: Annotated[str, "its name"]
    line: Annotated[str, "one line on what it does"]
    kind: Annotated[str, "kind of the place, as of a connection"]
    place: Annotated[str, "command line, URL, origin or path"]
    options: Annotated[JsonObject, "options of the kind"]
    origin: Annotated[Literal["listed", "removed", "connected", "shipped"], "where it is known from"]


class ToolOffersReply(WireReply):
    """The places that BAT OS may propose."""

    type: Literal["tool_offers"]
    offers: Annotated[list[OfferRow], "the places"]


class ToolDescriptionReply(WireReply):
    """The reading of a description without a schema."""

    type: Literal["tool_description"]
    kind: Annotated[Literal["usage", "text"], "kind of the description"]
    by: Annotated[Literal["rule", ""], "`rule`: rules read all of it"]
    form: Annotated[JsonObject | None, "the operations, for the option `form` of `tool_add`; null: a model has to read it"]
    text: Annotated[str, "the text for a model; empty with a form"]
    notes: Annotated[list[str], "lines about the reading"]


class GrantUsed(TypedDict):
    """Use of a grant today (UTC)."""

    uses: Annotated[int, "number of uses"]
    bytes: Annotated[int, "bytes of payload"]


class GrantRow(TypedDict):
    """A grant. Parts that narrow nothing are left out."""

    number: Annotated[int, "its number"]
    verdict: Annotated[Literal["deny", "ask", "allow"], "its verdict"]
    pattern: Annotated[str, "the `CONNECTION.TOOL` that it covers; `*` stands for any characters"]
    created: Annotated[float, "time of its making"]
    persona: NotRequired[Annotated[str, "only for missions of this persona"]]
    mission: NotRequired[Annotated[str, "only for this mission"]]
    args: NotRequired[Annotated[str, "constraints of arguments as JSON"]]
    until: NotRequired[Annotated[float, "its end"]]
    uses: NotRequired[Annotated[int, "most uses a day"]]
    bytes: NotRequired[Annotated[int, "most bytes of payload a day"]]
    leaks: NotRequired[Annotated[bool, "true: a mission that read untrusted text and private data may act outward"]]
    system: NotRequired[Annotated[bool, "true: it counts for missions of the system's own, too"]]
    origin: NotRequired[Annotated[str, "who made it"]]
    effect: NotRequired[Annotated[str, "key of the only call that it counts for"]]
    used: Annotated[GrantUsed, "use today"]
    text: Annotated[str, "the grant in words"]
    expired: Annotated[bool, "true: it no longer counts"]


class ToolGrantsReply(WireReply):
    """The grants."""

    type: Literal["tool_grants"]
    grants: Annotated[list[GrantRow], "in the order in which they were made"]
    hints: NotRequired[Annotated[list[str], "parts of a new grant that fit nothing at present"]]
