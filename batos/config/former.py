"""Former names of settings. This version accepts each of them, with a warning; the next one does not, and this module goes.

Until then `queue_limit` was a setting of its own; now it is `missions.queue`. `curate_alike` is not a setting any more. It is a default of
`CuratorLimits`, and a value that is given under the former name still replaces it.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast

from pydantic import Field, TypeAdapter, ValidationError

from batos.config.limits import Limits

RENAMED: Mapping[str, str] = {
    "image": "image.uri",
    "history_days": "image.history_days",
    "journal_days": "image.journal_days",
    "missions_kept": "image.missions_kept",
    "mission_days": "image.mission_days",
    "backup_folder": "backup.folder",
    "backup_every_h": "backup.every_h",
    "loop_bytes": "autonomy.bytes",
    "backup_keep_days": "backup.keep_days",
    "backup_keep_fulls": "backup.keep_fulls",
    "codex": "missions.codex",
    "concurrent_missions": "missions.concurrent",
    "queue_limit": "missions.queue",
    "mission_attempts": "missions.attempts",
    "mission_deadline_s": "missions.deadline_s",
    "mission_inferences": "missions.inferences",
    "depth": "missions.depth",
    "flavour": "missions.flavour",
    "critic": "missions.critic",
    "brief_bytes": "missions.brief_bytes",
    "profile": "inference.profile",
    "model": "inference.model",
    "modelfiles": "inference.modelfiles",
    "ollama_host": "inference.host",
    "ollama_hosts": "inference.hosts",
    "inference_deadline_s": "inference.deadline_s",
    "inference_concurrency": "inference.concurrency",
    "think": "inference.think",
    "stop": "inference.stop",
    "num_ctx": "inference.window",
    "num_predict": "inference.answer_tokens",
    "num_thread": "inference.threads",
    "memory_budget_bytes": "inference.memory_bytes",
    "lora_staging": "inference.staging",
    "model_registry": "inference.registry",
    "embedder": "memory.embedder",
    "embedder_folder": "memory.embedder_folder",
    "remember": "memory.remember",
    "evidence_passages": "memory.passages",
    "ingest_file_bytes": "memory.file_bytes",
    "curate": "memory.curate",
    "curate_chunks": "memory.curate_chunks",
    "curate_age_days": "memory.curate_age_days",
    "training_consent": "memory.training_consent",
    "guardian_policy": "methods.policy",
    "synthesis_model": "methods.writer",
    "sandbox_time_s": "methods.time_s",
    "sandbox_memory": "methods.memory_bytes",
    "listen": "wire.listen",
    "local_role": "wire.role",
    "folders": "wire.folders",
    "curve_secret": "wire.secret_key",
    "curve_clients": "wire.client_keys",
    "curve_client": "wire.client_key",
    "curve_server": "wire.server_key",
    "metrics": "wire.metrics",
    "console": "console.enabled",
    "console_listen": "console.listen",
    "autotelic": "autonomy.mode",
    "heartbeat_s": "autonomy.heartbeat_s",
    "loop_tokens": "autonomy.tokens",
    "loop_minutes": "autonomy.minutes",
    "loop_changes": "autonomy.changes",
    "autotelic_models": "autonomy.models",
    "loop_training_minutes": "autonomy.training_minutes",
    "loop_pull_bytes": "autonomy.pull_bytes",
    "shutdown_s": "daemon.shutdown_s",
    "log_level": "daemon.log_level",
    "log_format": "daemon.log_format",
}
"""Maps the former name of a setting to its present name."""

_MOVED: Mapping[str, str] = {
    "batos.api.uploads:UploadLimits": (
        "brief_image_bytes=image_bytes brief_image_pixels=image_pixels uploads_bytes=memory_bytes uploads_disk_bytes=disk_bytes "
        "upload_hours=hours"
    ),
    "batos.app.undo:UndoLimits": "undo_missions=missions",
    "batos.autotelic.audit:SelfAuditLimits": (
        "audit_window_s=window_s audit_keys=keys audit_missions=missions audit_records=records audit_bytes=bytes"
    ),
    "batos.autotelic.changes:ChangeLimits": "changes_kept=kept proposal_chars=chars",
    "batos.autotelic.entropy_records:WeightBounds": "weights_step=step weights_least=least weights_most=most",
    "batos.autotelic.entropy_worker:EntropyLimits": "cem_window=window cem_baseline=baseline cem_missions=missions cem_queue=queue",
    "batos.autotelic.heartbeat:HeartbeatLimits": "heartbeat_jitter=jitter heartbeat_first_s=first_s",
    "batos.autotelic.change_preparation:LoopTrainingLimits": "training_threads=threads training_limit_s=limit_s",
    "batos.autotelic.rehearsal_budget:RehearsalLimits": (
        "rehearsal_missions=missions rehearsal_least=least rehearsal_inferences=inferences rehearsal_tokens=tokens rehearsal_s=limit_s "
        "rehearsal_tries=tries rehearsal_costlier=costlier rehearsal_tasks=tasks rehearsal_alike=alike rehearsal_slower=slower "
        "rehearsal_better=better"
    ),
    "batos.autotelic.rollback_monitor:EffectLimits": (
        "leash_missions=missions leash_failures=failures leash_slower=slower leash_fall=fall leash_s=period_s crash_limit=deaths"
    ),
    "batos.autotelic.telemetry:SensesLimits": "senses_s=every_s senses_intervals=intervals senses_keys=keys",
    "batos.autotelic.triggers:TriggerLimits": (
        "trigger_failures=failures trigger_slower=slower trigger_growth=growth trigger_refusals=refusals "
        "trigger_unused_days=unused_days trigger_personas=personas trigger_still=still trigger_syntheses=syntheses "
        "trigger_window_s=window_s trigger_recent_s=recent_s"
    ),
    "batos.bridge.downloads:ProvisionLimits": (
        "provision_concurrency=concurrency provision_retry_s=retry_s disk_reserve_bytes=reserve_bytes pull_note_s=note_s"
    ),
    "batos.bridge.failures:RetryPolicy": (
        "inference_retries=inference_retries inference_backoff_s=inference_backoff_s breaker_failures=breaker_failures "
        "breaker_probe_s=breaker_probe_s outage_wait_s=outage_wait_s switch_wait_s=switch_wait_s"
    ),
    "batos.bridge.lora.factory:FactoryLimits": (
        "lora_scan_s=scan_s lora_settle_s=settle_s lora_limit=folders lora_bytes=file_bytes lora_concurrency=concurrency "
        "lora_quantize=quantize"
    ),
    "batos.bridge.residency:ResidencyLimits": "group_missions=group_missions group_wait_s=group_wait_s preload_idle_s=preload_idle_s",
    "batos.bridge.ollama_server:ServiceLimits": "ollama_start_s=start_s broken_pull_days=broken_pull_days",
    "batos.cli.dashboard:DashboardLimits": "dashboard_s=every_s",
    "batos.console.access:ConsoleLimits": (
        "console_session_s=session_s console_sessions=sessions console_request_s=request_s console_form_bytes=form_bytes "
        "console_rows=rows console_revisions=revisions console_pages=pages console_refresh_s=refresh_s"
    ),
    "batos.doctor.installation:DoctorLimits": "disk_needed_bytes=disk_bytes",
    "batos.forge.method_prompts:SynthesisLimits": (
        "synthesis_tries=tries synthesis_expert_tries=expert_tries synthesis_candidates=candidates synthesis_edits=edits "
        "synthesis_reuse=reuse synthesis_parts=parts synthesis_ahead_s=ahead_s synthesis_chars=chars synthesis_reasons=reasons "
        "synthesis_lessons=lessons examples_limit=examples"
    ),
    "batos.guardian.policy:AuditLimits": (
        "method_bytes=bytes method_nodes=nodes method_depth=depth method_name_chars=name method_value=value audit_steps=steps"
    ),
    "batos.image.backup_schedule:BackupLimits": "backup_full_h=full_h backup_first_s=first_s backup_retry_s=retry_s",
    "batos.image.living_image:ImageLimits": "connection_cache=cache committer_batch=batch",
    "batos.image.upkeep:UpkeepLimits": "upkeep_s=every_s upkeep_first_s=first_s",
    "batos.memory.chunking:ChunkLimits": "chunk_smallest=smallest chunk_largest=largest ingest_section_chars=section_chars",
    "batos.memory.curator:CuratorLimits": (
        "curate_s=every_s curate_check_s=check_s curate_flush_s=flush_s curate_growth=growth curate_fresh_days=fresh_days "
        "curate_reads=reads curate_half_life_days=half_life_days curate_alike=alike curate_cluster=cluster curate_archive=archive "
        "curate_least=least curate_sections=sections curate_clusters=clusters curate_sentences=sentences curate_tokens=tokens"
    ),
    "batos.memory.embedders.selection:EmbedderLimits": "embed_texts=texts embed_deadline_s=deadline_s search_s=search_s",
    "batos.memory.embedding_worker:EmbeddingLimits": (
        "embed_sections=sections purge_rows=purge_rows link_chunks=link_chunks embed_retry_s=retry_s embed_check_s=check_s "
        "dropped_rows=dropped_rows"
    ),
    "batos.memory.ingest:IngestLimits": (
        "read_s=read_s read_memory_bytes=read_bytes ingest_batch_bytes=batch_bytes ingest_queue=queue ingest_folder_files=folder_files "
        "ingest_attempts=attempts ingest_retry_s=retry_s refused_files=refused watch_s=watch_s"
    ),
    "batos.mind.evidence:EvidenceLimits": (
        "evidence_chars=chars evidence_alike=alike context_missions=context_missions context_chars=context_chars"
    ),
    "batos.mind.inference:ThinkingLimits": (
        "brief_images=images facets_limit=facets cycle_depth=depth synthesis_depth=method_depth voices_limit=voices "
        "question_chars=question_chars call_methods=call_methods token_batch_s=token_batch_s structured_repairs=repairs "
        "malformed_chars=malformed_chars thinking_chars=thinking_chars partial_s=partial_s partial_tokens=partial_tokens"
    ),
    "batos.mind.router:RoutingLimits": "routing_s=look_s routing_pause_s=pause_s routing_chars=chars learned_exemplars=learned",
    "batos.missions.memory_writer:RememberLimits": "remember_pause_s=pause_s",
    "batos.missions.mission_queue:AttemptLimits": (
        "retry_backoff_s=backoff_s disk_retry_s=disk_retry_s conflict_retries=conflict_retries background_wait_s=background_wait_s "
        "failure_source_bytes=source_bytes"
    ),
    "batos.sandbox.run_context:SandboxLimits": (
        "sandbox_parallel=parallel sandbox_depth=depth sandbox_ready=ready sandbox_total_s=total_s sandbox_recursion=recursion "
        "sandbox_host_calls=host_calls sandbox_sends=sends sandbox_nodes=nodes sandbox_text_bytes=text_bytes sandbox_start_s=start_s"
    ),
    "batos.supervision:StallLimits": "loop_stall_s=stall_s",
    "batos.training.workspace:TrainingLimits": (
        "training_save_s=save_s training_missions=missions training_held_out=held_out training_chars=chars training_answers=answers "
        "training_entropy=entropy"
    ),
    "batos.wire.endpoints:WireLimits": (
        "message_bytes=message_bytes message_depth=message_depth client_queue=client_queue client_queue_bytes=client_queue_bytes "
        "clients_limit=clients watches_per_client=watches outbox_bytes=outbox_bytes requests_at_once=requests waits_limit=waits "
        "handshake_s=handshake_s ping_s=ping_s silence_s=silence_s linger_s=linger_s curve_look_s=key_check_s probe_s=probe_s"
    ),
}
"""Maps a dataclass of limits, by its module, to pairs: the former name of a setting, and the field that has its value now."""

LIMITS: Mapping[str, tuple[str, str]] = {
    name: (path, field) for path, pairs in _MOVED.items() for name, _, field in (pair.partition("=") for pair in pairs.split())
}
"""Maps the former name of a removed setting to the dataclass of limits and the field that replace it."""

NAMES = frozenset({*RENAMED, *LIMITS})
"""All former names of settings."""

ORDERED = (("chunk_smallest", "chunk_largest"),)
"""Pairs of former settings: the first must not exceed the second."""

PARTS = (("trigger_recent_s", "trigger_window_s"),)
"""Pairs of former settings: the first is a part of the second and is compared with the rest. So the first must be smaller than the second.
"""


class WrongLimit(ValueError):
    """An error in a value that was given under a former name.

    :param name: the former name, or "" where several names are wrong together.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}" if name else reason)
        self.name, self.reason = name, reason


def kind_of(name: str) -> tuple[type[Limits], str]:
    """Import the dataclass of limits that a former name belongs to; return it with the field.

    The dataclass is in a layer above. This lookup serves former names only, and the next version drops it.
    """
    path, field = LIMITS[name]
    module, _, kind = path.partition(":")
    return cast(type[Limits], getattr(importlib.import_module(module), kind)), field


def type_of(name: str) -> Any:
    """Return the type of the value that a former name of a limit has."""
    kind, field = kind_of(name)
    return typing.get_type_hints(kind)[field]


def type_name(name: str) -> str:
    """Return the name of that type, as the table of settings has it."""
    kind = type_of(name)
    return "choice" if typing.get_origin(kind) is typing.Literal else str(kind.__name__)


def limit_value(given: Iterable[Limits], name: str) -> Any:
    """Return the value in force of a limit, by its former name."""
    kind, field = kind_of(name)
    return getattr(next((one for one in given if isinstance(one, kind)), kind()), field)


def limits_from(values: Mapping[str, Any], given: Iterable[Limits] = ()) -> tuple[Limits, ...]:
    """Build the dataclasses of limits for values by former name.

    :param given: limits that the values are added to.
    :raises WrongLimit: for a value that its limit does not allow.
    """
    built = {type(one): one for one in given}
    for name, value in values.items():
        kind, field = kind_of(name)
        built[kind] = dataclasses.replace(cast(Any, built.get(kind, kind())), **{field: _checked(name, kind, field, value)})
    _check_order(tuple(built.values()), values)
    return tuple(built.values())


def _checked(name: str, kind: type[Limits], field: str, value: Any) -> Any:
    hint = typing.get_type_hints(kind)[field]
    if isinstance(value, bool) and hint in (int, float):
        raise WrongLimit(name, "true and false are not numbers; write a number")
    bounds = next(one.metadata for one in dataclasses.fields(cast(Any, kind)) if one.name == field)
    try:
        return TypeAdapter(Annotated[hint, Field(**bounds)] if bounds else hint).validate_python(value)
    except ValidationError as e:
        raise WrongLimit(name, e.errors()[0]["msg"]) from None


def _check_order(limits: tuple[Limits, ...], values: Mapping[str, Any]) -> None:
    for low, high in ORDERED:
        if {low, high} & values.keys() and (least := limit_value(limits, low)) > (most := limit_value(limits, high)):
            raise WrongLimit("", f"{low} ({least}) is more than {high} ({most}); lower {low}, or raise {high}")
    for part, whole in PARTS:
        if {part, whole} & values.keys() and (its := limit_value(limits, part)) >= (most := limit_value(limits, whole)):
            why = f"{part} ({its}) is not less than {whole} ({most}): nothing is left to compare it with"
            raise WrongLimit("", f"{why}; lower {part}, or raise {whole}")


def in_sections(given: Mapping[str, Any], sections: Iterable[str], limits: Iterable[Limits] = ()) -> dict[str, Any]:
    """Sort values by any name into the form of `Settings`: sections as mappings, limits as dataclasses.

    :param given: value by name: a former one (`queue_limit`), one with its section (`missions.queue`), a whole section.
    :param limits: limits that values are added to where former names give some.
    :raises WrongLimit: for a value that its limit does not allow.
    """
    found: dict[str, Any] = {}
    by_former_name = {}
    whole = frozenset(sections)
    for name, value in given.items():
        if name in LIMITS:
            by_former_name[name] = value
        elif name in whole and not isinstance(value, str):  # image and console were settings and are sections now
            found[name] = {**found[name], **value} if isinstance(value, Mapping) and name in found else value
        else:
            section, _, key = RENAMED.get(name, name).rpartition(".")
            if section and isinstance(found.get(section, {}), Mapping):
                found.setdefault(section, {})[key] = value
            else:
                found[name] = value
    if by_former_name:
        found["limits"] = limits_from(by_former_name, found.get("limits", limits))
    return found
