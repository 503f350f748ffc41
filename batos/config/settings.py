"""The settings that a user may turn, in the sections of `batos.toml`, and their table for `batos config` and the documentation.

Other bounds of the house are not settings: each is the default of a dataclass of `batos.config.limits.Limits` beside its code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator

from batos.config import former
from batos.config.environment import local_endpoint
from batos.config.limits import Limits
from batos.config.validators import (
    DataFolder,
    Folders,
    GuardianPolicy,
    HomePath,
    ImageUri,
    Messages,
    ModelNames,
    Sequences,
    SettingsSection,
    Several,
    Speakers,
)

MIB = 1024 * 1024

RELOADED = (
    "image.history_days", "image.journal_days", "image.missions_kept", "image.mission_days",
    "backup.every_h", "backup.keep_days", "backup.keep_fulls",
    "missions.queue", "missions.attempts", "missions.deadline_s", "missions.inferences", "missions.critic",
    "daemon.log_level",
)  # fmt: skip
"""Settings that a running daemon takes over at SIGHUP; it reads the others at its start."""

RELOADED_FORMER = ("retry_backoff_s", "question_chars", "examples_limit", "upkeep_s", "backup_full_h", "backup_retry_s")
"""Former settings that a running daemon takes over at SIGHUP as long as they are accepted."""


class ImageSettings(SettingsSection):
    """Section `image`: where the living image is, and what it keeps."""

    uri: ImageUri = Field(
        "", description="URI of the living image: file://, zeo:// or postgres://; empty: the file live_image.fs in the data folder"
    )
    history_days: float = Field(
        30, ge=0, le=36_500, description="age in days up to which a pack keeps former states of the image; 0: the current state only"
    )
    journal_days: float = Field(
        30, ge=0, le=36_500, description="age in days of a finished mission from which its journal loses its texts; 0: at the next upkeep"
    )
    missions_kept: int = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="number of newest missions that are kept whole; of an older one a line stays (about 1 KB with its index)",
    )
    mission_days: float = Field(
        365,
        ge=0,
        le=36_500,
        description="age in days from which a mission is kept as one line (about 1 KB), unless it was rated, taught "
        "or followed up. 0: at the next upkeep",
    )
    kernels: Literal["one", "many"] = Field(
        "one",
        description="whether this daemon has the image to itself (one), or serves it with others (many): at postgres:// and zeo:// only",
    )
    kernel_name: str = Field(
        "",
        max_length=64,
        pattern=r"^$|^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$",
        description="name of this daemon among several kernels; empty: the name of the machine",
    )
    lease_s: float = Field(
        5, ge=1, le=3600, description="seconds of silence after which a kernel counts as gone, and others go on with its missions"
    )
    look_s: float = Field(0.2, ge=0.01, le=60, description="seconds between two looks of a kernel at what others committed")


class BackupSettings(SettingsSection):
    """Section `backup`: when the daemon backs the image up, and where."""

    folder: HomePath = Field("", description="folder of backups; empty: the folder backups in the data folder")
    every_h: float = Field(24, ge=0, le=8760, description="hours between two backups, incremental where possible; 0: no backups")
    keep_days: float = Field(30, ge=0, le=36_500, description="age in days up to which backups are kept; the newest is always kept")
    keep_fulls: int = Field(
        3, ge=1, le=10_000, description="greatest number of full backups that are kept, each with its incremental backups"
    )


class MissionSettings(SettingsSection):
    """Section `missions`: how many missions there are at a time, and how much each may take."""

    codex: HomePath = Field("", description="file with the persona codex (TOML); empty: the codex shipped with BAT OS")
    concurrent: int = Field(4, ge=1, le=1000, description="greatest number of missions at work at the same time")
    queue: int = Field(10_000, ge=1, le=1_000_000, description="greatest number of waiting missions; further ones are refused as busy")
    attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="greatest number of attempts at a mission; one in which the daemon died does not count if it paid for something new",
    )
    deadline_s: float = Field(
        900, gt=0, le=7 * 86400, description="seconds that a mission without its own deadline may take, waiting not counted"
    )
    inferences: int = Field(64, ge=1, le=10_000, description="greatest number of inferences in one attempt at a mission")
    depth: Literal["auto", "direct", "facets", "council"] = Field(
        "auto",
        description="how thoroughly a brief is answered: by one inference (direct), in parts (facets), by several personas (council); "
        "auto: chosen by brief and model",
    )
    flavour: Literal["auto", "full", "light", "off"] = Field(
        "auto",
        description="how much a persona's style shapes its answers; auto: full where the brief asks for that persona and the model is fit",
    )
    critic: Literal["on", "off"] = Field("off", description="whether ALFRED judges each answer after the built-in checks")
    brief_bytes: int = Field(64 * 1024, ge=16, le=512 * 1024, description="greatest size of a brief, in bytes of UTF-8")


class InferenceSettings(SettingsSection):
    """Section `inference`: which models answer, on which Ollama, and with what."""

    profile: str = Field(
        "auto",
        min_length=1,
        max_length=64,
        description="set of models in use: embedded, workstation, or a profile of profiles.toml in the data folder. With auto, the best "
        "chat model of the user's own Ollama that fits inference.memory_bytes, else embedded",
    )
    model: Speakers = Field(
        (), max_length=65, description="model that all personas speak with, or PERSONA=MODEL for one persona; empty: the profile's models"
    )
    modelfiles: HomePath = Field(
        "", description="folder of Modelfiles, with one folder for each profile; empty: the Modelfiles shipped with BAT OS"
    )
    host: str = Field(
        "", description="address of an Ollama; empty: OLLAMA_HOST, else Ollama's default port, else an Ollama that the daemon starts"
    )
    hosts: Several = Field(
        (),
        max_length=16,
        description="addresses of further Ollamas beside inference.host; the daemon provides the profile's models there too",
    )
    deadline_s: float = Field(300, gt=0, le=86400, description="seconds that one inference may take")
    concurrency: int = Field(2, ge=1, le=64, description="greatest number of inferences at the same time on one Ollama")
    think: Literal["profile", "on", "off"] = Field("profile", description="whether models that can reason before they answer do so")
    stop: Sequences = Field((), max_length=16, description="sequences of characters that end an answer; empty: the profile's")
    window: int = Field(0, ge=0, le=131_072, description="context window of an inference (num_ctx), in tokens; 0: the profile's")
    answer_tokens: int = Field(
        0, ge=0, le=32_768, description="greatest length of an inference's answer (num_predict), in tokens; 0: the profile's"
    )
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="processors that a model computes on (num_thread); 0: Ollama's choice, half the processors of a small machine",
    )
    memory_bytes: int = Field(
        6_900_000_000,
        ge=MIB,
        le=2**50,
        description="memory in bytes for loaded models; the least recently used model makes room for another",
    )
    staging: HomePath = Field(
        "", description="folder of LoRA experts to build; empty: lora_staging in the checkout, else in the data folder"
    )
    registry: str = Field(
        "",
        max_length=256,
        pattern=r"^$|^[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?$",
        description="host:port of a model registry, asked by plain HTTP on loopback, HTTPS elsewhere; empty: no registry. If a mission "
        "needs an ability that no local model has, BAT OS offers models of the registry, then of the shipped catalogue",
    )


class MemorySettings(SettingsSection):
    """Section `memory`: what the memory takes in, how it is searched, and what its curator archives."""

    embedder: Literal["ollama", "sentence-transformers", "onnx", "onnx-int8"] = Field(
        "ollama", description="program that computes embeddings; all but ollama need the extra sentence-transformers"
    )
    embedder_folder: HomePath = Field(
        "",
        description="folder of a sentence-transformers model for an embedder other than ollama; empty: the MiniLM of the profiles",
    )
    remember: Literal["on", "off"] = Field("on", description="whether finished missions become searchable memory")
    passages: int = Field(5, ge=0, le=50, description="greatest number of passages from memory in a prompt; 0: none")
    file_bytes: int = Field(64 * MIB, ge=1, le=16_384 * MIB, description="greatest size in bytes of a file that is read into the memory")
    curate: Literal["on", "off"] = Field("on", description="whether the curator archives old passages without being asked")
    curate_chunks: int = Field(
        100_000, ge=10, le=100_000_000, description="number of chunks in the memory above which the curator archives the least used"
    )
    curate_age_days: float = Field(
        30, ge=0, le=36_500, description="days without a read after which the curator may archive a section as old; 0: at once"
    )
    training_consent: Literal["on", "off"] = Field(
        "off",
        description="whether `batos train persona` may learn from the texts of missions; they go into weights, which may be passed on",
    )


class MethodSettings(SettingsSection):
    """Section `methods`: who writes generated methods, and what each may do and use."""

    policy: GuardianPolicy = Field(
        "default",
        min_length=1,
        max_length=64,
        description="policy of the guardian for generated methods: default or strict, with capabilities as +tools",
    )
    writer: str = Field(
        "expert",
        min_length=1,
        max_length=256,
        description="model that writes methods: expert (the newest one of role methods, if there is one), plain (the persona's own), or a "
        "model's name",
    )
    time_s: float = Field(2.0, gt=0, le=600, description="processor seconds that one run of a method may take, waiting not counted")
    memory_bytes: int = Field(32 * MIB, ge=8 * MIB, le=512 * MIB, description="memory in bytes that one run of a method may use")


class ToolSettings(SettingsSection):
    """Section `tools`: how missions use the tools of connections."""

    rounds: int = Field(
        4, ge=0, le=32, description="greatest number of rounds in which a mission chooses tools; 0: it chooses none by itself"
    )
    offered: int = Field(8, ge=1, le=64, description="number of tools that BAT OS offers to a model: the most similar ones to the brief")
    result_chars: int = Field(4000, ge=100, le=100_000, description="greatest number of characters of one tool's result in a prompt")
    call_s: float = Field(60, gt=0, le=86_400, description="seconds for one call of a tool, unless its connection sets another time")


class WireSettings(SettingsSection):
    """Section `wire`: where clients reach the daemon, and what they may do."""

    listen: Several = Field(
        (), max_length=8, description="endpoints of the ROUTER socket; empty: a local socket (ipc://) that only the daemon's user can reach"
    )
    role: Literal["read", "submit", "operate"] = Field(
        "operate", description="role of clients without keys; the daemon's own user at an ipc:// endpoint may do everything"
    )
    folders: Folders = Field(
        (),
        max_length=64,
        description="folders, besides the data folder, in which clients may name files to read and folders to write into. The daemon's own "
        "user at an ipc:// endpoint may name any",
    )
    secret_key: HomePath = Field(
        "", description="file with the daemon's secret CURVE key, with which every client needs a key; empty: no keys, loopback only"
    )
    client_keys: HomePath = Field(
        "", description="folder with the public keys of the clients that are let in; empty: keys/clients in the data folder"
    )
    client_key: HomePath = Field("", description="file with the secret CURVE key of the command line as a client; empty: no key")
    server_key: HomePath = Field(
        "", description="public CURVE key of the daemon that the command line talks to, or the file with it; empty: no key"
    )
    metrics: str = Field("", max_length=64, description="host:port on loopback where Prometheus reads metrics; empty: no metrics")


class ConsoleSettings(SettingsSection):
    """Section `console`: the web console, pages of the daemon's HTTP server."""

    enabled: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether the HTTP server has the pages of the web console (`batos console`); auto: if the server runs and "
        "Jinja is installed. With on (`batos run --console`), the daemon does not start without them",
    )
    listen: str = Field("", max_length=64, description="second host:port of the HTTP server, on loopback; empty: `doors.listen` alone")


class DoorSettings(SettingsSection):
    """Section `doors`: the daemon's HTTP server, and its interfaces for clients of other makers."""

    enabled: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether the daemon serves the interfaces of OpenAI, Ollama and MCP (`batos doors`); auto: if the address is free",
    )
    listen: str = Field("127.0.0.1:5758", max_length=64, description="host:port of the HTTP server, on loopback")
    send: Messages = Field(
        (),
        max_length=64,
        description="messages that MCP clients may send to objects, such as tools.shop.list_* (the path of an object, and a message of it)",
    )


class AutonomySettings(SettingsSection):
    """Section `autonomy`: what the system may change in itself, and what that may cost."""

    mode: Literal["on", "observe", "off"] = Field(
        "on", description="on: the system changes itself within the limits below; observe: it only proposes changes; off: neither"
    )
    heartbeat_s: float = Field(
        600,
        ge=0.05,
        le=7 * 86400,
        description="seconds between two heartbeats, each with a self-audit if there is news; without news the pause doubles up to a day",
    )
    tokens: int = Field(
        2_000_000, ge=0, le=10**12, description="tokens that self-improvement may use in 24 hours, rehearsals included; 0: none"
    )
    minutes: float = Field(240, ge=0, le=1440, description="minutes of model time that self-improvement may use in 24 hours; 0: none")
    bytes: int = Field(256 * MIB, ge=0, le=2**50, description="bytes that self-improvement may write into the image in 24 hours; 0: none")
    changes: int = Field(4, ge=0, le=1000, description="greatest number of changes that the system makes to itself in 24 hours; 0: none")
    models: ModelNames = Field(
        (), max_length=64, description="models that the system may pull and give to a persona; empty: only the models of the profile"
    )
    training_minutes: float = Field(
        0, ge=0, le=1440, description="minutes that the system may train its expert for methods in 24 hours; 0: no training"
    )
    pull_bytes: int = Field(8192 * MIB, ge=0, le=2**50, description="bytes of models that the system may pull in 24 hours; 0: none")


class ProcessSettings(SettingsSection):
    """Section `daemon`: its log and its end."""

    shutdown_s: float = Field(
        15, gt=0, le=600, description="seconds that missions at work have to end after SIGTERM; the others go on at the next start"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe level that is logged")
    log_format: Literal["auto", "console", "json", "journal"] = Field(
        "auto",
        description="format of the log; auto: console on a terminal, lines with a priority for the systemd journal, else JSON lines",
    )


class Settings(BaseModel):
    """The settings in force, each section an object of its own: `settings.missions.queue`.

    Programs and tests may still give and read a setting under its former flat name: `Settings(queue_limit=1).queue_limit`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data: DataFolder = Field(Path("~/.local/share/batos"), description="folder of the image, Ollama's models, keys and logs")
    image: ImageSettings = ImageSettings.model_validate({})
    backup: BackupSettings = BackupSettings.model_validate({})
    missions: MissionSettings = MissionSettings.model_validate({})
    inference: InferenceSettings = InferenceSettings.model_validate({})
    memory: MemorySettings = MemorySettings.model_validate({})
    methods: MethodSettings = MethodSettings.model_validate({})
    tools: ToolSettings = ToolSettings.model_validate({})
    wire: WireSettings = WireSettings.model_validate({})
    console: ConsoleSettings = ConsoleSettings.model_validate({})
    doors: DoorSettings = DoorSettings.model_validate({})
    autonomy: AutonomySettings = AutonomySettings.model_validate({})
    daemon: ProcessSettings = ProcessSettings.model_validate({})
    limits: tuple[InstanceOf[Limits], ...] = Field((), exclude=True)
    """Limits that replace the defaults of their classes."""
    notes: tuple[str, ...] = Field((), exclude=True)
    """Warnings about names that the next version does not accept; empty for settings that a program made."""

    @model_validator(mode="before")
    @classmethod
    def _former_names(cls, given: Any) -> Any:
        return former.in_sections(given, SECTIONS) if isinstance(given, Mapping) else given

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some values replaced, unchecked.

        :param update: value by name: `missions.queue`, a former flat name, or a whole section.
        """
        changed: dict[str, Any] = {}
        for name, value in former.in_sections(update or {}, SECTIONS, self.limits).items():
            whole = name not in SECTIONS or isinstance(value, SettingsSection)
            changed[name] = value if whole else getattr(self, name).model_copy(update=value)
        return super().model_copy(update=changed, deep=deep)

    def value(self, name: str) -> Any:
        """Return the value of a setting by its name, `missions.queue`, or by a former name."""
        section, _, key = former.RENAMED.get(name, name).rpartition(".")
        if section or key == "data":
            return getattr(getattr(self, section) if section else self, key)
        return former.limit_value(self.limits, name)

    if not TYPE_CHECKING:  # the type checker shall know only of sections

        def __getattr__(self, name: str) -> Any:
            """Return the value of a setting by its former name."""
            if name in former.NAMES:
                return self.value(name)
            return super().__getattr__(name)

    def reloaded(self, after: Settings) -> tuple[Self, list[str], list[str]]:
        """Take over other settings, as far as a running daemon can: those of `RELOADED`.

        :returns: the settings in force then, the names that were applied, and those that differ and wait for a restart.
        """
        changed = [name for name in self._names(after) if after.value(name) != self.value(name)]
        applied = [name for name in changed if name in RELOADED or name in RELOADED_FORMER]
        return self.model_copy(update={name: after.value(name) for name in applied}), applied, [n for n in changed if n not in applied]

    def _names(self, after: Settings) -> Iterator[str]:
        """Yield every public name, and the former names of limits that these settings or the others give."""
        yield from names()
        kinds = {type(given) for given in (*self.limits, *after.limits)}
        yield from (name for name in former.LIMITS if former.LIMITS[name][0].rpartition(":")[2] in {kind.__name__ for kind in kinds})

    @property
    def image_uri(self) -> str:
        """URI of the living image, the default filled in."""
        return self.image.uri or f"file://{self.data / 'live_image.fs'}"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Endpoints of the ROUTER socket, the default filled in."""
        return self.wire.listen or (local_endpoint(),)

    @property
    def clients(self) -> Path:
        """Folder of the public keys of clients, the default filled in."""
        return Path(self.wire.client_keys).absolute() if self.wire.client_keys else self.data / "keys" / "clients"

    @property
    def backups(self) -> Path:
        """Folder of backups that name none, the default filled in."""
        return Path(self.backup.folder).absolute() if self.backup.folder else self.data / "backups"


SECTIONS: Mapping[str, type[SettingsSection]] = {
    name: info.annotation
    for name, info in Settings.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, SettingsSection)
}
"""The sections of `batos.toml`, each with its class."""


class SettingRow(NamedTuple):
    """A row of the table of settings: what `batos config` prints and the documentation lists."""

    name: str
    """Name with its section: `missions.queue`."""
    type: str
    default: Any
    limits: str
    help: str


def table() -> list[SettingRow]:
    """Return the table of settings, section by section."""
    rows = [_row("data", Settings.model_fields["data"])]
    for section, kind in SECTIONS.items():
        rows += [_row(f"{section}.{key}", info) for key, info in kind.model_fields.items()]
    return rows


def names() -> list[str]:
    """Return the names of all settings, each with its section."""
    return ["data", *(f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.model_fields)]


def _row(name: str, info: Any) -> SettingRow:
    bounds = {type(m).__name__: m for m in info.metadata}
    low = getattr(bounds.get("Ge"), "ge", None)
    above = getattr(bounds.get("Gt"), "gt", None)
    high = getattr(bounds.get("Le"), "le", None)
    limits = f"{low if low is not None else f'> {above}'} to {high}" if high is not None else ""
    kind = getattr(info.annotation, "__name__", str(info.annotation))
    if str(info.annotation).startswith("typing.Literal"):
        kind, limits = "choice", " | ".join(map(str, info.annotation.__args__))
    return SettingRow(name, kind, info.default, limits, info.description or "")
