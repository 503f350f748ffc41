"""Every setting and limit, with what it may be and what it means.

The table of settings as text: what `batos config` prints and the documentation lists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from batos.config.environment import local_endpoint
from batos.config.validators import ValidatedSettings

MIB = 1024 * 1024


RELOADED = (
    "log_level", "queue_limit", "mission_attempts", "mission_deadline_s", "mission_inferences", "retry_backoff_s", "critic",
    "question_chars", "examples_limit", "history_days", "journal_days", "missions_kept", "mission_days", "upkeep_s",
    "backup_every_h", "backup_full_h", "backup_keep_days", "backup_keep_fulls", "backup_retry_s",
)  # fmt: skip
"""Settings that a running daemon takes over at SIGHUP; the others are read at its start."""


class Settings(ValidatedSettings):
    """Every setting and limit of BAT OS. Times in seconds, sizes in bytes, unless the name says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # --- where things are
    data: Path = Field(Path("~/.local/share/batos"), description="folder of the image, Ollama's models, keys and logs")
    image: str = Field("", description="URI of the living image (file://, zeo://, postgres://); empty: live_image.fs in the data folder")
    listen: tuple[str, ...] = Field(
        (), max_length=8, description="endpoints of the ROUTER socket; empty: a local socket (ipc://) that only the daemon's user can reach"
    )
    profile: str = Field(
        "auto",
        min_length=1,
        max_length=64,
        description="which models serve: auto (the best chat model of the user's own Ollama that fits memory_budget_bytes, else "
        "embedded), embedded, workstation, or one of profiles.toml in the data folder",
    )
    model: tuple[str, ...] = Field(
        (), max_length=65, description="model that all personas speak with, PERSONA=MODEL for one of them; empty: the profile's"
    )
    modelfiles: str = Field("", description="folder of Modelfiles, one folder a profile; empty: the one shipped with BAT OS")
    codex: str = Field("", description="persona codex (TOML); empty: the one shipped with BAT OS")

    # --- missions
    concurrent_missions: int = Field(4, ge=1, le=1000, description="missions thought through at the same time")
    queue_limit: int = Field(10_000, ge=1, le=1_000_000, description="missions waiting; one more is answered busy")
    brief_bytes: int = Field(64 * 1024, ge=16, le=512 * 1024, description="longest brief, in UTF-8 bytes")
    brief_images: int = Field(8, ge=0, le=64, description="images of one brief, and most that one inference shows; 0: none are taken")
    brief_image_bytes: int = Field(16 * MIB, ge=1024, le=128 * MIB, description="largest image of a brief")
    brief_image_pixels: int = Field(
        64_000_000, ge=1, le=1_000_000_000, description="most pixels of such an image: who decodes it takes four bytes for each"
    )
    uploads_bytes: int = Field(64 * MIB, ge=1024, le=4096 * MIB, description="memory for images that have come in part")
    uploads_disk_bytes: int = Field(
        1024 * MIB, ge=1024, le=2**50, description="disk for images that no mission has; past it, those that wait longest go"
    )
    upload_hours: float = Field(24, ge=0, le=8760, description="hours for which an image that no mission has is kept")
    mission_attempts: int = Field(
        3, ge=1, le=100, description="attempts at one mission; such as the daemon died in count where they paid for nothing new"
    )
    mission_deadline_s: float = Field(900, gt=0, le=7 * 86400, description="time for a mission without a deadline_s, waiting not counted")
    retry_backoff_s: float = Field(1.0, ge=0, le=600, description="pause before the second attempt; doubled for each further one")
    disk_retry_s: float = Field(5, ge=0.05, le=86400, description="pause after which a mission that a full disk holds up is tried again")
    conflict_retries: int = Field(8, ge=1, le=100, description="replays of a cycle whose commit met a conflict")
    routing_s: float = Field(2.0, gt=0, le=600, description="time for the embedder to look at a brief; past it, the triggers decide")
    routing_pause_s: float = Field(30, ge=0, le=86400, description="time for which an embedder that did not answer is not asked again")
    routing_chars: int = Field(2000, ge=100, le=64_000, description="characters of a brief that the router looks at, from both its ends")
    learned_exemplars: int = Field(64, ge=0, le=1000, description="briefs that a persona learns from users who chose it; 0: none")
    depth: Literal["auto", "direct", "facets", "council"] = Field(
        "auto", description="how much a brief is thought about: one inference, facets, several personas; auto: by brief and model"
    )
    flavour: Literal["auto", "full", "light", "off"] = Field(
        "auto",
        description="how much of a persona's own flavour is in its answers; auto: all, where the brief speaks for it and the model is fit",
    )
    facets_limit: int = Field(3, ge=1, le=16, description="facets that one cycle delegates to")

    cycle_depth: int = Field(2, ge=1, le=8, description="cycles inside cycles: 1 lets one persona think alone")
    voices_limit: int = Field(3, ge=1, le=8, description="personas that one brief is shared out to")
    mission_inferences: int = Field(64, ge=1, le=10_000, description="inferences that one attempt at a mission may ask for")
    call_methods: Literal["on", "off"] = Field(
        "on", description="on: a brief that says just what a method of the lobby or a persona is for, and what it takes, is answered by it"
    )
    critic: Literal["on", "off"] = Field("off", description="whether ALFRED judges an answer too, after the gate's own checks")
    question_chars: int = Field(2000, ge=1, le=100_000, description="longest question to a mission's user, and longest answer")
    context_missions: int = Field(6, ge=0, le=100, description="earlier missions of a conversation that a follow-up sees")
    evidence_passages: int = Field(5, ge=0, le=50, description="passages from memory that a brief gets; 0: none")
    evidence_chars: int = Field(2000, ge=100, le=100_000, description="characters of them")
    evidence_alike: float = Field(0.3, ge=-1, le=1, description="cosine with a brief from which a passage speaks to it")
    remember: Literal["on", "off"] = Field("on", description="whether missions that have ended become memory")
    remember_pause_s: float = Field(1.0, ge=0, le=3600, description="time over which missions that end are gathered")
    context_chars: int = Field(4000, ge=0, le=1_000_000, description="characters of them, the newest first")

    token_batch_s: float = Field(0.05, gt=0, le=10, description="time over which pieces of an answer are gathered into one event")

    # --- inference
    ollama_host: str = Field("", description="address of an Ollama; empty: OLLAMA_HOST, else the default port, else a child of the daemon")
    ollama_hosts: tuple[str, ...] = Field(
        (), max_length=16, description="further Ollamas beside that one; the profile's models are seen to there, too"
    )
    ollama_start_s: float = Field(60, gt=0, le=600, description="time for a started Ollama to answer")
    inference_deadline_s: float = Field(300, gt=0, le=86400, description="time for one inference")
    inference_concurrency: int = Field(2, ge=1, le=64, description="inferences under way at the same time on one Ollama")
    inference_retries: int = Field(2, ge=0, le=20, description="times that a request is made again at once, if no token has come")
    inference_backoff_s: float = Field(0.2, ge=0, le=60, description="pause before the first of these; doubled for each further one")
    breaker_failures: int = Field(3, ge=1, le=1000, description="failures in a row after which an Ollama is left alone until it answers")
    breaker_probe_s: float = Field(1.0, ge=0.01, le=600, description="pause between two questions whether it answers again")
    outage_wait_s: float = Field(600, ge=0, le=7 * 86400, description="time that an inference waits while no Ollama answers")
    switch_wait_s: float = Field(
        30, ge=0, le=7 * 86400, description="the same while one answers whose model of that name has other weights"
    )
    structured_repairs: int = Field(2, ge=0, le=10, description="times that a model is asked again for an answer of the wrong form")
    malformed_chars: int = Field(2000, ge=0, le=100_000, description="characters kept of each answer of the wrong form")
    think: Literal["profile", "on", "off"] = Field("profile", description="whether models that can think before they answer")
    thinking_chars: int = Field(4000, ge=0, le=1_000_000, description="characters of a thought that the journal keeps")
    stop: tuple[str, ...] = Field((), max_length=16, description="sequences that end an answer; empty: the profile's")
    num_ctx: int = Field(0, ge=0, le=131_072, description="context of an inference, in tokens; 0: the profile's")
    num_predict: int = Field(0, ge=0, le=32_768, description="longest answer of an inference, in tokens; 0: the profile's")
    num_thread: int = Field(
        0, ge=0, le=1024, description="processors that a model computes on; 0: as Ollama sees fit, half of them on a small machine"
    )
    partial_s: float = Field(2.0, gt=0, le=3600, description="time after which what has come of an unfinished answer is kept")
    partial_tokens: int = Field(24, ge=1, le=100_000, description="tokens after which it is kept, if that is sooner")
    memory_budget_bytes: int = Field(6_900_000_000, ge=MIB, le=2**50, description="memory for models; the least recently used make room")
    group_missions: int = Field(
        64, ge=1, le=4096, description="missions of which those on a loaded model may go first: 2, 4, 8 ...; 1: as they came"
    )
    group_wait_s: float = Field(120, ge=0, le=86400, description="longest time for which others on a loaded model go first; 0: none")
    preload_idle_s: float = Field(
        1.0, ge=0, le=86400, description="pause of inferences after which the likely next model is loaded; 0: never"
    )
    provision_concurrency: int = Field(2, ge=1, le=16, description="models pulled, and models created, at the same time")
    provision_retry_s: float = Field(60, ge=1, le=86400, description="pause before a model that could not be had is tried again")
    disk_reserve_bytes: int = Field(512 * MIB, ge=0, le=2**50, description="free disk that a pull or a create must leave")
    pull_note_s: float = Field(
        60, ge=0.1, le=86400, description="time after which Ollama is made to note how far a pull is: what a kill may cost"
    )
    broken_pull_days: float = Field(7, ge=0, le=3650, description="days for which the parts of a pull that broke off are kept")

    # --- experts (LoRA)
    lora_staging: str = Field(
        "", description="folder of LoRA experts to be built; empty: lora_staging of the checkout, else in the data folder"
    )
    lora_scan_s: float = Field(10, ge=0.05, le=86400, description="time between two looks into lora_staging")
    lora_settle_s: float = Field(2, ge=0, le=600, description="time for which an expert's folder must not have changed")
    lora_limit: int = Field(256, ge=1, le=10_000, description="folders looked at in lora_staging")
    lora_bytes: int = Field(2048 * MIB, ge=1024, le=2**50, description="largest file of an adapter")
    lora_concurrency: int = Field(2, ge=1, le=16, description="experts built at the same time")
    lora_quantize: Literal["q8_0", "q4_K_M", "q4_K_S", "f16"] = Field(
        "q8_0", description="how the weights of a fused expert (`fuse = true`) are kept"
    )

    # --- embedding
    embedder: Literal["ollama", "sentence-transformers", "onnx", "onnx-int8"] = Field(
        "ollama", description="what makes vectors for the memory; all but ollama need the extra sentence-transformers"
    )
    embedder_folder: str = Field(
        "", description="folder of a sentence-transformers model for these; empty: MiniLM, as the profiles have it"
    )
    embed_texts: int = Field(16, ge=1, le=32, description="texts embedded at a time; a question waits for one such batch at most")
    embed_deadline_s: float = Field(60, gt=0, le=3600, description="time for Ollama to embed one batch")

    # --- the image
    connection_cache: int = Field(2000, ge=100, le=1_000_000, description="objects that one connection keeps loaded")
    committer_batch: int = Field(512, ge=1, le=100_000, description="system transactions in one group commit")

    undo_missions: int = Field(100, ge=1, le=100_000, description="missions that one undo with all that depends on it takes back")
    history_days: float = Field(30, ge=0, le=36_500, description="days of history that a pack keeps")
    failure_source_bytes: int = Field(8192, ge=0, le=MIB, description="bytes of a refused method's source that the failure ledger keeps")
    journal_days: float = Field(30, ge=0, le=36_500, description="days after which a finished mission's journal loses its texts")
    missions_kept: int = Field(
        10_000, ge=1, le=100_000_000, description="missions kept whole, the newest; of older ones a line of 200 bytes stays"
    )
    mission_days: float = Field(
        365, ge=0, le=36_500, description="days after which a mission becomes such a line, unless it was rated, taught or is followed"
    )
    upkeep_s: float = Field(86400, ge=0.05, le=30 * 86400, description="time between two runs of upkeep: retention, then pack")
    upkeep_first_s: float = Field(3600, ge=0.05, le=30 * 86400, description="time from start to the first run of upkeep")
    backup_every_h: float = Field(24, ge=0, le=8760, description="hours between two backups, incremental where that can be; 0: none")
    backup_full_h: float = Field(
        168, ge=0, le=8760, description="hours after which the next backup is a whole one; after a pack it always is"
    )
    backup_keep_days: float = Field(30, ge=0, le=36_500, description="days that a backup is kept; the newest always is")
    backup_keep_fulls: int = Field(3, ge=1, le=10_000, description="whole backups that are kept, with what was added to each")
    backup_folder: str = Field("", description="folder of backups that name none; empty: backups in the data folder")
    backup_first_s: float = Field(300, ge=0, le=30 * 86400, description="time from start to a backup that is due then")
    backup_retry_s: float = Field(900, ge=0.05, le=30 * 86400, description="time after which a backup that failed is tried again")

    # --- memory
    ingest_file_bytes: int = Field(64 * MIB, ge=1, le=16_384 * MIB, description="largest file that is read into the memory")
    read_s: float = Field(
        120, ge=1, le=86400, description="processor time for the child process that reads a file; past it, the file is refused"
    )
    read_memory_bytes: int = Field(
        2048 * MIB,
        ge=256 * MIB,
        le=1024 * 1024 * MIB,
        description="address space of the child process that reads files; past it, one is refused",
    )
    ingest_batch_bytes: int = Field(256 * 1024, ge=1024, le=256 * MIB, description="text that one transaction of an ingest stores")
    ingest_section_chars: int = Field(
        8000, ge=500, le=1_000_000, description="longest section: neighbours are of one section, and an unchanged one keeps its chunks"
    )
    ingest_queue: int = Field(1_000_000, ge=1, le=100_000_000, description="files that wait to be read; one more is answered busy")
    ingest_folder_files: int = Field(100_000, ge=1, le=100_000_000, description="files that are looked at in one folder and those in it")
    ingest_attempts: int = Field(3, ge=1, le=100, description="attempts at a file during which the daemon may die; then it is refused")
    ingest_retry_s: float = Field(10, ge=0.05, le=86400, description="pause after which an ingest that the disk was too full for goes on")
    refused_files: int = Field(1000, ge=1, le=1_000_000, description="files that could not be read whose reason is kept, the newest")
    watch_s: float = Field(2, ge=0.05, le=86400, description="pause between two looks into the watched folders")
    chunk_smallest: int = Field(160, ge=20, le=100_000, description="characters of a chunk, where the text lets it")
    chunk_largest: int = Field(1200, ge=100, le=100_000, description="characters of a chunk past which it is cut")
    embed_sections: int = Field(8, ge=1, le=1024, description="sections that get their vectors in one transaction")
    purge_rows: int = Field(4096, ge=1, le=1_000_000, description="rows of the index that one transaction of a purge writes anew, about")
    link_chunks: int = Field(1000, ge=0, le=1_000_000, description="chunks that are looked at for a new title which they may name")
    embed_retry_s: float = Field(5, ge=0.05, le=86400, description="pause after which an embedder that was away is asked again")
    search_s: float = Field(5, gt=0, le=600, description="time for the embedder to read a question; past it, the words alone decide")
    embed_check_s: float = Field(60, ge=0.05, le=86400, description="time after which an embedder with nothing to do is asked who it is")
    dropped_rows: int = Field(
        4096,
        ge=0,
        le=10_000_000,
        description="dropped chunks past which the index is rid of them when there is nothing else to do",
    )

    # --- the memory's curator
    curate: Literal["on", "off"] = Field("on", description="whether the curator looks after the memory of its own accord")
    curate_s: float = Field(21_600, ge=0.05, le=365 * 86400, description="time between two of its rounds")
    curate_check_s: float = Field(60, ge=0.05, le=86400, description="time between two looks at whether a round is due")
    curate_flush_s: float = Field(300, ge=0.05, le=86400, description="time after which it is written down what was read")
    curate_chunks: int = Field(100_000, ge=10, le=100_000_000, description="chunks past which those that count least are archived")
    curate_growth: float = Field(2.0, gt=1, le=1000, description="times as large as after the last round, the image makes it look again")
    curate_age_days: float = Field(30, ge=0, le=36_500, description="days without a read after which a section is old")
    curate_fresh_days: float = Field(1, ge=0, le=36_500, description="days after a read, or its coming, in which a section is left alone")
    curate_reads: float = Field(0.5, ge=0, le=1_000_000, description="reads, as they count by now, up to which a section is rarely read")
    curate_half_life_days: float = Field(14, gt=0, le=36_500, description="days in which a read comes to count half")
    curate_alike: float = Field(0.95, ge=0, le=1, description="cosine from which two sections say the same")
    curate_cluster: int = Field(64, ge=2, le=10_000, description="chunks that one archive holds, about")
    curate_archive: int = Field(512, ge=2, le=100_000, description="chunks of archives at most that are put together later")
    curate_least: int = Field(8, ge=2, le=10_000, description="chunks that are old and of one theme below which they stay")
    curate_sections: int = Field(4096, ge=2, le=1_000_000, description="sections that are looked at in one round")
    curate_clusters: int = Field(32, ge=1, le=100_000, description="archives that one round makes")
    curate_sentences: int = Field(12, ge=1, le=50, description="sentences of a summary at most")
    curate_tokens: int = Field(20_000, ge=0, le=100_000_000, description="tokens that a round spends on a model; 0: none is asked")

    # --- generated methods
    guardian_policy: str = Field(
        "default", min_length=1, max_length=64, description="what methods may do: default or strict, +files, +network"
    )
    synthesis_tries: int = Field(4, ge=1, le=32, description="times that a model may write one method, repairs included")
    synthesis_model: str = Field(
        "expert",
        min_length=1,
        max_length=256,
        description="what writes methods: expert (the newest one of role methods, if there is one), plain (none), or a model's name",
    )
    synthesis_expert_tries: int = Field(
        8, ge=1, le=64, description="different methods that an expert may write for one message; each takes it about a second"
    )
    synthesis_candidates: int = Field(
        3, ge=1, le=16, description="methods that an expert writes where no example was taught; how many agree is told"
    )
    synthesis_edits: int = Field(
        600, ge=0, le=10_000, description="edits of a method that are tried on its examples, a second's worth; 0: none"
    )
    synthesis_reuse: int = Field(
        1500, ge=0, le=100_000, description="calls of methods that are known which are tried on its examples, a second's worth; 0: none"
    )
    synthesis_parts: int = Field(
        300_000,
        ge=0,
        le=10_000_000,
        description="values computed of what is given, of which a method may be put together, three seconds' worth; 0: none",
    )
    synthesis_ahead_s: float = Field(
        10,
        ge=0,
        le=86400,
        description="time from start after which what lessons of an expert are made of is read in a pause; 0: at the first lesson",
    )
    synthesis_depth: int = Field(4, ge=1, le=16, description="methods written while methods are written: their trials may send messages")
    synthesis_chars: int = Field(4000, ge=500, le=100_000, description="longest request for a method, in characters")
    synthesis_reasons: int = Field(4, ge=1, le=32, description="reasons of a refusal that go back to the model")
    synthesis_lessons: int = Field(20, ge=0, le=1000, description="earlier failures of a selector that are looked at for lessons")
    training_save_s: float = Field(60, gt=0, le=86400, description="time between two states of a training that it can go on from")
    training_threads: int = Field(2, ge=1, le=256, description="threads of a training")
    training_consent: Literal["on", "off"] = Field(
        "off", description="whether `batos train persona` may learn what missions say: it goes into weights, which may be passed on"
    )
    training_missions: int = Field(12, ge=2, le=1_000_000, description="missions rated +1 below which a persona's voice is not trained")
    training_held_out: float = Field(0.25, gt=0, lt=1, description="share of these missions that is not learned, and measures what was")
    training_chars: int = Field(6000, ge=200, le=1_000_000, description="longest prompt with its answer that a voice learns, in characters")
    training_answers: int = Field(6, ge=0, le=1000, description="answers that a new voice gives, and the plain model, to compare entropy")
    training_entropy: float = Field(0.05, ge=0, le=1, description="by how much the entropy of a new voice's answers may be lower")
    examples_limit: int = Field(16, ge=1, le=1000, description="examples kept for one message of one object, the newest")
    method_bytes: int = Field(8 * 1024, ge=256, le=MIB, description="longest source of a method, in UTF-8 bytes")
    method_nodes: int = Field(3000, ge=50, le=100_000, description="nodes in the syntax tree of a method")
    method_depth: int = Field(60, ge=10, le=90, description="nesting of a method's syntax tree")
    method_name_chars: int = Field(64, ge=8, le=1000, description="longest name in a method, in characters")
    method_value: int = Field(10_000_000, ge=1000, le=2**40, description="largest length, range or bit count that a method may spell out")
    audit_steps: int = Field(50_000, ge=1000, le=10_000_000, description="steps of the effect analysis of one method")
    sandbox_parallel: int = Field(8, ge=1, le=256, description="chains of sends between methods under way at the same time")
    sandbox_depth: int = Field(16, ge=1, le=64, description="sends from method to method inside one another; each holds a worker")
    sandbox_ready: int = Field(6, ge=0, le=64, description="workers kept loaded with methods that were used last")
    sandbox_time_s: float = Field(2.0, gt=0, le=600, description="computing time of one method in its worker, waiting not counted")
    sandbox_total_s: float = Field(
        60,
        gt=0,
        le=86400,
        description="computing time of all methods of one attempt at a mission, the daemon's for them included",
    )
    sandbox_memory: int = Field(32 * MIB, ge=8 * MIB, le=512 * MIB, description="memory of one method")
    sandbox_recursion: int = Field(800, ge=50, le=10_000, description="calls inside one another within one method")
    sandbox_host_calls: int = Field(10_000, ge=10, le=10_000_000, description="reads, sends and the like of one method")
    sandbox_sends: int = Field(2000, ge=1, le=10_000_000, description="sends by the methods of one attempt at a mission")
    sandbox_nodes: int = Field(
        25_000,
        ge=100,
        le=10_000_000,
        description="values that pass between method and image at a time; a container counts as 8",
    )
    sandbox_text_bytes: int = Field(8 * MIB, ge=1024, le=256 * MIB, description="text that passes between method and image at a time")
    sandbox_start_s: float = Field(5, gt=0, le=60, description="time for a worker to come free or start")

    # --- the wire
    local_role: Literal["read", "submit", "operate"] = Field(
        "operate", description="what clients without keys may do, but for the daemon's own user at ipc://, who may do all"
    )
    folders: tuple[str, ...] = Field(
        (),
        max_length=64,
        description="folders, besides the data folder, in which clients may name files to read and folders to write into; the daemon's "
        "own user at ipc:// may name any",
    )
    message_bytes: int = Field(MIB, ge=1024, le=64 * MIB, description="largest message, all frames together")
    message_depth: int = Field(32, ge=2, le=512, description="nesting of the JSON in a message")
    client_queue: int = Field(1024, ge=8, le=1_000_000, description="replies waiting for one client; past it, events are dropped")
    clients_limit: int = Field(4096, ge=1, le=1_000_000, description="clients with replies waiting or missions watched")
    watches_per_client: int = Field(256, ge=1, le=100_000, description="missions that one client watches")
    client_queue_bytes: int = Field(16 * MIB, ge=1024, le=1024 * MIB, description="bytes of replies waiting for one client")
    outbox_bytes: int = Field(256 * MIB, ge=1024, le=65_536 * MIB, description="bytes of replies waiting for all blocked clients")
    requests_at_once: int = Field(1024, ge=1, le=100_000, description="requests answered at the same time; past it, reading pauses")
    waits_limit: int = Field(10_000, ge=1, le=1_000_000, description="`result` requests that wait; one more is answered busy")
    handshake_s: float = Field(5, gt=0, le=60, description="time for a new connection to shake hands")
    ping_s: float = Field(15, ge=0.1, le=600, description="pause between two pings of a connection")
    silence_s: float = Field(60, ge=0.1, le=3600, description="silence after a ping by which a connection counts as dead")
    curve_secret: str = Field(
        "", description="file of the daemon's secret key; every client needs a key then. Empty: no keys, loopback only"
    )
    curve_clients: str = Field(
        "", description="folder of the public keys of clients that are let in; empty: keys/clients in the data folder"
    )
    curve_look_s: float = Field(
        1.0, ge=0.05, le=3600, description="time after which a key that was taken out of that folder shuts out connections that are open"
    )
    curve_client: str = Field("", description="file of a client's secret key, for the command line")
    curve_server: str = Field("", description="public key of the daemon that the command line talks to, or its file")
    linger_s: float = Field(1.0, ge=0, le=60, description="time for the last replies to leave at shutdown")

    # --- looking after itself
    autotelic: Literal["on", "observe", "off"] = Field("on", description="on: it changes itself; observe: it only proposes; off: neither")
    heartbeat_s: float = Field(
        600,
        ge=0.05,
        le=7 * 86400,
        description="time between beats, each with a self_audit where there is news; without, it doubles up to a day",
    )
    heartbeat_jitter: float = Field(0.1, ge=0, le=0.5, description="share of that time by which one may come earlier or later, by chance")
    heartbeat_first_s: float = Field(30, ge=0.05, le=7 * 86400, description="time from start to the first self_audit that is due")
    audit_window_s: float = Field(86400, ge=1, le=366 * 86400, description="time of which a self_audit is told what the senses noted")
    audit_keys: int = Field(3, ge=1, le=100, description="rows of each of their tables that it is told, the most frequent")
    background_wait_s: float = Field(
        30, ge=0, le=86400, description="longest time for which heartbeat, triggers, curator and their missions wait for those of users"
    )
    senses_s: float = Field(600, ge=0.05, le=86400, description="time between two records of what happened")
    senses_intervals: int = Field(1008, ge=2, le=100_000, description="such records that the image keeps, those of quiet times not counted")
    senses_keys: int = Field(64, ge=4, le=1000, description="rows of one table in such a record; more are summed up as `other`")
    cem_window: int = Field(32, ge=2, le=256, description="last missions that a mission's entropy is measured against")
    cem_baseline: int = Field(32, ge=4, le=10_000, description="missions from which is learned what entropy is usual")
    cem_missions: int = Field(10_000, ge=10, le=10_000_000, description="missions whose entropy the image keeps, the last ones")
    cem_queue: int = Field(4096, ge=1, le=100_000, description="ended missions that wait to be measured; of more, the oldest are left out")
    weights_step: float = Field(0.02, ge=0, le=0.1, description="most that one outcome moves a weight of the entropy metric; 0: they stay")
    weights_least: float = Field(0.1, ge=0, le=0.25, description="least weight of a part of the entropy metric")
    weights_most: float = Field(0.5, ge=0.25, le=1, description="greatest weight of a part of the entropy metric")
    trigger_window_s: float = Field(86400, ge=1, le=366 * 86400, description="time over which triggers are measured")
    trigger_recent_s: float = Field(3600, ge=0.05, le=365 * 86400, description="its last part, which is compared with the rest")
    trigger_failures: int = Field(3, ge=2, le=10_000, description="missions that FAILED in the same way before the system looks into it")
    trigger_slower: float = Field(
        2.0, ge=1.05, le=1000, description="times that a state gets slower, or a mission costlier, before it does"
    )
    trigger_growth: float = Field(1.5, ge=1.01, le=1000, description="times that the image grows before it does")
    trigger_refusals: float = Field(0.5, gt=0, le=1, description="share of methods' sources that the guardian refuses before it does")
    trigger_unused_days: float = Field(14, gt=0, le=3650, description="days that a generated method does not run before it does")
    trigger_personas: int = Field(100, ge=2, le=1_000_000, description="missions for which a persona is not chosen before it does")
    trigger_syntheses: int = Field(
        24, ge=1, le=1_000_000, description="methods written since their expert was made before it does, where it may train one"
    )
    trigger_still: float = Field(
        0.01, ge=0, le=1, description="most that the entropy of the last missions differs when it counts as stagnant"
    )
    loop_tokens: int = Field(2_000_000, ge=0, le=10**12, description="tokens that the loop may spend in 24 hours, rehearsals counted")
    loop_minutes: float = Field(240, ge=0, le=1440, description="minutes of model time that it may spend in 24 hours")
    loop_bytes: int = Field(256 * MIB, ge=0, le=2**50, description="bytes that it may write into the image in 24 hours")
    loop_changes: int = Field(4, ge=0, le=1000, description="changes of itself that it may make in 24 hours")
    autotelic_models: tuple[str, ...] = Field(
        (), max_length=64, description="models that it may pull and give to a persona; empty: only those of the profile"
    )
    loop_training_minutes: float = Field(
        0, ge=0, le=1440, description="minutes that it may train the expert for methods in 24 hours, beside all else; 0: not at all"
    )
    training_limit_s: float = Field(6 * 3600, gt=0, le=7 * 86400, description="time after which such a training is given up")
    loop_pull_bytes: int = Field(8192 * MIB, ge=0, le=2**50, description="bytes of such models that it may pull in 24 hours")
    model_registry: str = Field(
        "",
        max_length=256,
        pattern=r"^$|^[A-Za-z0-9.-]+(:[0-9]{1,5})?$|^\[[0-9A-Fa-f:]+\](:[0-9]{1,5})?$",
        description="host:port of a registry whose models missions are offered that need what no model here can do, before those of the "
        "shipped catalogue; plain HTTP on loopback, else HTTPS; empty: none",
    )
    leash_s: float = Field(6 * 3600, ge=0.05, le=366 * 86400, description="time for which a change is watched; no other is made meanwhile")
    leash_missions: int = Field(12, ge=4, le=1000, description="missions after a change that are enough to say whether it does harm")
    leash_failures: float = Field(0.15, gt=0, le=1, description="share of missions more that FAILED before a change is undone")
    leash_slower: float = Field(1.5, ge=1.05, le=1000, description="times that missions get slower before it is")
    leash_fall: float = Field(0.08, gt=0, le=1, description="fall of entropy (CEM) before it is")
    crash_limit: int = Field(
        2,
        ge=1,
        le=1000,
        description="deaths of the daemon while a change is watched before it is disabled; with fewer than mission_attempts, a "
        "mission that died with it has an attempt left",
    )
    changes_kept: int = Field(500, ge=2, le=100_000, description="records of the loop's changes that the image keeps, the last ones")
    proposal_chars: int = Field(4000, ge=100, le=100_000, description="characters of what the loop proposes to put in place")
    audit_missions: int = Field(
        8, ge=1, le=1_000_000, description="missions of users after which an audit asks a model again what to do about what stands"
    )
    rehearsal_missions: int = Field(8, ge=1, le=1000, description="recorded missions that a proposal is tried on")
    rehearsal_least: int = Field(3, ge=1, le=1000, description="of these, so many must be comparable; else the proposal is refused")
    rehearsal_inferences: int = Field(
        48, ge=0, le=100_000, description="inferences that one rehearsal may pay for, where the journal has no answer"
    )
    rehearsal_tokens: int = Field(30_000, ge=0, le=10**9, description="tokens of them, read and written")
    rehearsal_s: float = Field(1800, gt=0, le=7 * 86400, description="time for one rehearsal, and for its waiting for users' missions")
    rehearsal_tries: int = Field(3, ge=1, le=100, description="times that a rehearsal is begun, restarts of the daemon counted")
    rehearsal_costlier: float = Field(0.5, ge=0, le=100, description="share by which a mission may cost more tokens before that is worse")
    rehearsal_tasks: int = Field(
        10,
        ge=1,
        le=1000,
        description="methods of the image, and as many tasks that none was trained on, that a new expert for methods has to write",
    )
    rehearsal_alike: float = Field(
        0.5, gt=0, le=1, description="likeness by words, from 0 to 1, at which an answer counts as the one that a user has rated"
    )
    rehearsal_slower: float = Field(
        2.0, ge=1, le=1000, description="times that a mission may take longer with another model before that is worse"
    )
    rehearsal_better: float = Field(0.01, ge=0, le=1, description="most by which entropy may differ before it is better or worse")
    audit_records: int = Field(500, ge=1, le=100_000, description="records of the image that one self_audit checks for damage")
    audit_bytes: int = Field(8 * MIB, ge=1024, le=1024 * MIB, description="bytes of the image's file that one self_audit checks for damage")

    # --- the operator
    metrics: str = Field("", max_length=64, description="host:port on loopback where Prometheus may read metrics; empty: nowhere")
    console: Literal["on", "off"] = Field("off", description="whether the web console is served (`batos run --console`)")
    console_listen: str = Field("127.0.0.1:5780", max_length=64, description="host:port of the web console, on loopback")
    console_session_s: float = Field(7 * 86400, ge=60, le=366 * 86400, description="time after which a browser has to show the token again")
    console_sessions: int = Field(256, ge=1, le=10_000, description="sessions of the console at the same time; one more ends the oldest")
    console_request_s: float = Field(30, ge=0.05, le=3600, description="time for a browser to send what it wants, form included")
    console_form_bytes: int = Field(512 * 1024, ge=1024, le=64 * MIB, description="largest form that the console takes, as it is sent")
    console_rows: int = Field(50, ge=1, le=1000, description="missions, passages or documents that one page of the console lists")
    console_revisions: int = Field(200, ge=1, le=1000, description="revisions of an object that the console's slider goes through")
    console_pages: int = Field(32, ge=1, le=10_000, description="live pages of the console open at the same time")
    console_refresh_s: float = Field(0.5, ge=0.05, le=60, description="shortest time between two updates of a live page")
    probe_s: float = Field(2.0, gt=0, le=60, description="time for an answer when `doctor` asks whether somebody is there")
    dashboard_s: float = Field(1.0, ge=0.1, le=60, description="time between two looks of the dashboard, `batos` alone on a terminal")
    disk_needed_bytes: int = Field(1024 * MIB, ge=0, le=2**50, description="free disk below which `doctor` warns")

    # --- the process
    shutdown_s: float = Field(
        15, gt=0, le=600, description="time for missions under way to end at SIGTERM; the rest goes on at the next start"
    )
    loop_stall_s: float = Field(
        30,
        ge=1,
        le=86400,
        description="time for which the loop may stand before the daemon ends, to be started again (exit code 62)",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least severe line that is logged")
    log_format: Literal["auto", "console", "json", "journal"] = Field(
        "auto", description="auto: console on a terminal, lines with their priority where the journal reads them, JSON lines elsewhere"
    )

    @property
    def image_uri(self) -> str:
        """URI of the living image, the default filled in."""
        return self.image or f"file://{self.data / 'live_image.fs'}"

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Endpoints of the ROUTER socket, the default filled in."""
        return self.listen or (local_endpoint(),)

    @property
    def clients(self) -> Path:
        """Folder of the public keys of clients, the default filled in."""
        return Path(self.curve_clients).absolute() if self.curve_clients else self.data / "keys" / "clients"

    @property
    def backups(self) -> Path:
        """Folder of backups that name none, the default filled in."""
        return Path(self.backup_folder).absolute() if self.backup_folder else self.data / "backups"


class SettingRow(NamedTuple):
    """One line of the table: what `batos config` prints and the documentation lists."""

    name: str
    type: str
    default: Any
    limits: str
    help: str


def table() -> list[SettingRow]:
    """The table of settings, in the order of their definition."""
    rows = []
    for name, info in Settings.model_fields.items():
        bounds = {type(m).__name__: m for m in info.metadata}
        low = getattr(bounds.get("Ge"), "ge", None)
        above = getattr(bounds.get("Gt"), "gt", None)
        high = getattr(bounds.get("Le"), "le", None)
        limits = ""
        if high is not None:
            limits = f"{low if low is not None else f'> {above}'} to {high}"
        kind = getattr(info.annotation, "__name__", str(info.annotation))
        if str(info.annotation).startswith("typing.Literal"):
            kind, limits = "choice", " | ".join(map(str, info.annotation.__args__))  # type: ignore[union-attr]
        rows.append(SettingRow(name, kind, info.default, limits, info.description or ""))
    return rows
