"""A daemon that dies at a named point: `python daemon_child.py POINT PASS run ...`, the rest as for `python -m batos`.

At the PASSth time that it comes to the point it kills itself, as `kill -9` does. Nothing in batos/ knows of this. With +PASS only the
times count after it has started: how often a start commits depends on what it finds.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from batos.app.kernel import Kernel
from batos.app.memory import MemoryRuntime
from batos.app.model_provision import ModelProvisioning
from batos.autotelic import change_preparation, changes, provided_models, rehearsal_budget, rollback_monitor
from batos.autotelic.budget import Budget
from batos.autotelic.rehearsal import Rehearsals
from batos.bridge.client import OllamaInference
from batos.bridge.hosts import ManagedHost
from batos.bridge.lora import expert_model
from batos.bridge.provisioning import Provisioner
from batos.cli import main
from batos.comparisons import records as comparison_records
from batos.image import blobs, continuations, journal, ledger, model_registry, transaction_undo, zodb_patches
from batos.image.committer import Committer
from batos.mind import psm
from batos.missions.purse import Purse
from batos.missions.scheduler import Scheduler
from batos.stepping.session import StepSession
from batos.wire.outbox import ClientHandle
from tests.support import fake_trainer

CHANGE = "change:"  # what the annotation of a promotion begins with
_left = 0
_counting = True
_failing: list[int] = []


def die(*_: Any) -> None:
    """Kill this process, if it is the time."""
    global _left
    _left -= _counting
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def count_from_the_start_on() -> None:
    """Count what comes once the daemon has started."""
    global _counting
    _counting = False
    original = Kernel.start

    async def start(*args: Any, **kwargs: Any) -> Kernel:
        global _counting
        kernel = await original(*args, **kwargs)
        _counting = True
        return kernel

    Kernel.start = start  # type: ignore[method-assign,assignment]


def before(owner: Any, name: str, when: Callable[..., bool] = lambda *args, **kwargs: True) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if when(*args, **kwargs):
            die()
        return original(*args, **kwargs)

    setattr(owner, name, call)


def after(owner: Any, name: str, when: Callable[[Any], bool] = lambda result: True) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if when(result):
            die()
        return result

    setattr(owner, name, call)


def after_the_answer() -> None:
    original = OllamaInference.chat

    async def chat(*args: Any, **kwargs: Any) -> Any:
        reply = await original(*args, **kwargs)
        die()
        return reply

    OllamaInference.chat = chat  # type: ignore[method-assign]


def after_the_step(owner: Any, name: str) -> Callable[[], None]:
    """After a coroutine of that name came to its end."""

    def install() -> None:
        original = getattr(owner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            result = await original(*args, **kwargs)
            die()
            return result

        setattr(owner, name, call)

    return install


def fsync_fails() -> None:
    """From the PASSth sync of the image on each one fails; how many were tried then is told at the end."""
    real = os.fsync

    def fsync(fd: int) -> None:
        global _left
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".fs"):
            return real(fd)
        _left -= _counting
        if _left <= 0:
            os.write(2, b'{"event": "fsync failed"}\n')
            raise OSError(errno.EIO, "Input/output error")
        return real(fd)

    os.fsync = fsync


def after_its_own(step: str, kind: str = transaction_undo.UNDO) -> None:
    """After a step of the storage in a commit whose annotation begins so: of an undo, if nothing is said."""
    owner = zodb_patches.filestorage.FileStorage
    original = getattr(owner, step)

    def call(storage: Any, transaction: Any, *args: Any) -> Any:
        result = original(storage, transaction, *args)
        if transaction.user.startswith(kind.encode()):
            die()
        return result

    setattr(owner, step, call)


def _undoes(committer: Any, commit: Any) -> bool:
    return str(commit.tm.get().user).startswith(transaction_undo.UNDO)


def _promotes(committer: Any, commit: Any) -> bool:
    return str(commit.tm.get().user).startswith(CHANGE)


def _told(kind: str) -> Callable[..., bool]:
    return lambda handle, reply, **kwargs: reply["type"] == kind


POINTS: dict[str, Callable[[], None]] = {
    "before accept": lambda: before(ledger, "accept"),
    "before commit": lambda: before(Committer, "_unit"),
    "after vote": lambda: after(zodb_patches.filestorage.FileStorage, "tpc_vote"),
    "after commit, before sync": lambda: after(zodb_patches.filestorage.FileStorage, "tpc_finish"),
    "after sync": lambda: after(zodb_patches.Syncer, "sync", bool),
    "before accepted is told": lambda: before(ClientHandle, "send", _told("accepted")),
    "before result is told": lambda: before(ClientHandle, "send", _told("result")),
    "after the answer": after_the_answer,
    "before the answer is journaled": lambda: before(journal, "add"),
    "before it is settled": lambda: before(ledger, "settle"),
    "fsync fails": fsync_fails,
}
STEPS: dict[str, Callable[[], None]] = {
    "a transition": lambda: before(psm, "_move"),
    "a question is recorded": lambda: before(ledger, "ask_question"),
    "a question was recorded": lambda: after(ledger, "ask_question"),
    "an answer is recorded": lambda: before(ledger, "answer_question"),
    "a pause is recorded": lambda: before(ledger, "set_paused"),
}
"""Steps of a mission's life; the tests of transitions kill before or after each."""

PICTURE_POINTS: dict[str, Callable[[], None]] = {
    "before a picture is kept": lambda: before(blobs, "add_picture"),
    "after a picture is kept": lambda: after(blobs, "add_picture"),
    "before a picture is said to be there": lambda: before(ClientHandle, "send", lambda handle, reply, **_: reply.get("whole") is True),
    "before a mission holds it": lambda: before(blobs, "hold_pictures"),
    "after a mission holds it": lambda: after(blobs, "hold_pictures", bool),
    "before it is read": lambda: before(blobs, "read_picture"),
    "after it was read": lambda: after(blobs, "read_picture"),
}
"""Steps of a picture, from its upload to the first inference that shows it."""

UNDO_POINTS: dict[str, Callable[[], None]] = {
    "before it is planned": lambda: before(transaction_undo, "plan_undo"),
    "before it is written": lambda: before(transaction_undo, "write_undo"),
    "after it is written": lambda: after(transaction_undo, "write_undo"),
    "before its commit": lambda: before(Committer, "_unit", _undoes),
    "after its vote": lambda: after_its_own("tpc_vote"),
    "after its commit, before its sync": lambda: after_its_own("tpc_finish"),
    "before searches hear of it": lambda: before(MemoryRuntime, "moved"),
    "before it is told": lambda: before(ClientHandle, "send", _told("undo")),
}
"""Steps of an undo."""

STEP = "m1.step"  # what the annotation of the changes of a session begins with


STEP_POINTS: dict[str, Callable[[], None]] = {
    "before a change in the mirror": lambda: before(StepSession, "edit"),
    "before the mission goes on": lambda: before(continuations, "go_on"),
    "after the vote on the changes": lambda: after_its_own("tpc_vote", STEP),
    "after the commit of the changes, before its sync": lambda: after_its_own("tpc_finish", STEP),
    "before the mission is attempted": lambda: before(Scheduler, "go_on"),
}
"""Steps of a session of stepping, from a change to the mission that goes on."""

LEASH_POINTS: dict[str, Callable[[], None]] = {
    "before it is looked at": lambda: before(rollback_monitor, "effect_of"),
    "after it is looked at": lambda: after(rollback_monitor, "effect_of"),
    "before its record is written": lambda: before(changes, "take_back"),
    "after its record is written": lambda: after(changes, "take_back"),
    **{name: point for name, point in UNDO_POINTS.items() if name != "before it is told"},
}
"""Steps from the watch of a change to its undo."""

CHANGE_POINTS: dict[str, Callable[[], None]] = {
    "before the proposal is recorded": lambda: before(changes, "propose"),
    "after the proposal is recorded": lambda: after(changes, "propose"),
    "before a rehearsal is counted": lambda: before(rehearsal_budget, "begin_rehearsal"),
    "after a rehearsal is counted": lambda: after(rehearsal_budget, "begin_rehearsal"),
    "before a mission is rehearsed": lambda: before(Rehearsals, "_run"),
    "before what was paid for is kept": lambda: before(rehearsal_budget, "_keep"),
    "after what was paid for is kept": after_the_step(Purse, "pay"),
    "before the figures are kept": lambda: before(changes, "rehearsed"),
    "after the figures are kept": lambda: after(changes, "rehearsed"),
    "before it is made": lambda: before(changes, "promote"),
    "after it is made": lambda: after(changes, "promote"),
    "before the commit of a change": lambda: before(Committer, "_unit", _promotes),
    "after the vote on a change": lambda: after_its_own("tpc_vote", CHANGE),
    "after the commit of a change, before its sync": lambda: after_its_own("tpc_finish", CHANGE),
    "before what was paid for is let go of": lambda: before(rehearsal_budget, "forget_payments"),
    "before it is refused": lambda: before(changes, "refuse"),
    "after it is refused": lambda: after(changes, "refuse"),
}
"""Steps from a proposal to what becomes of it."""

COMPARE_POINTS: dict[str, Callable[[], None]] = {
    "after a comparison is recorded": lambda: after(comparison_records, "begin"),
    "before a payment of a comparison is kept": lambda: before(comparison_records, "_keep_paid"),
    "before a pair is kept": lambda: before(comparison_records, "keep_pair"),
    "before a judgement is kept": lambda: before(comparison_records, "keep_judgement"),
}
"""Steps of a comparison side by side."""

TRAINING_POINTS: dict[str, Callable[[], None]] = {
    "never": lambda: None,
    "before a training is counted": lambda: before(Budget, "trains"),
    "before it is trained": lambda: before(change_preparation.TrainingPreparation, "_train"),
    "after it was trained": after_the_step(change_preparation.TrainingPreparation, "_train"),
    "before its folder is in place": lambda: before(
        change_preparation.os, "replace", lambda source, target: "method-writer-change" in str(target)
    ),
    "after its folder is in place": lambda: after(change_preparation.TrainingPreparation, "_stage"),
    "after what was made is noted": lambda: before(change_preparation.TrainingPreparation, "_built"),
    "after what was made is built": after_the_step(change_preparation.TrainingPreparation, "_built"),
    "before it is chosen": lambda: before(model_registry, "choose_writer"),
    "after it is chosen": lambda: after(model_registry, "choose_writer"),
    "before it is done away with": lambda: before(change_preparation.TrainingPreparation, "clear"),
    "after its folder is gone": lambda: after(change_preparation, "_remove"),
    "after it is done away with": after_the_step(change_preparation.TrainingPreparation, "clear"),
}
"""Steps of a training; what trains is `tests/support/fake_trainer.py`."""


PROVIDE_POINTS: dict[str, Callable[[], None]] = {
    "before what is chosen is recorded": lambda: before(journal, "set_provided"),
    "after what is chosen is recorded": lambda: after(journal, "set_provided"),
    "before it is recorded that it is begun": lambda: before(provided_models, "begin"),
    "after it is recorded that it is begun": lambda: after(provided_models, "begin"),
    "before the pull": lambda: before(Provisioner, "fetch"),
    "in the middle of the pull": lambda: after(provided_models, "note_layer"),
    "after the pull": after_the_step(Provisioner, "fetch"),
    "before it is probed": lambda: before(ManagedHost, "probe", lambda place, model, *args, **kwargs: not model.startswith("batos/")),
    "after it is probed": after_the_step(ManagedHost, "probe"),
    "before its personas are made": lambda: before(Provisioner, "make"),
    "after its personas are made": after_the_step(Provisioner, "make"),
    "before it is kept": lambda: before(provided_models, "make"),
    "after it is kept": lambda: after(provided_models, "make"),
    "before the commit that keeps it": lambda: before(Committer, "_unit", _promotes),
    "after the commit that keeps it, before its sync": lambda: after_its_own("tpc_finish", CHANGE),
    "before the mission is told": lambda: before(ModelProvisioning, "_record_ready"),
    "after the mission is told": after_the_step(ModelProvisioning, "_record_ready"),
}
"""Steps from a mission that needs another model to its going on with it."""

WITHDRAW_POINTS: dict[str, Callable[[], None]] = {
    "before anything of it is deleted": lambda: before(ModelProvisioning, "_clear"),
    "before the first is deleted": lambda: before(Provisioner, "discard"),
    "after the first is deleted": after_the_step(Provisioner, "discard"),
    "after all is deleted": lambda: before(changes, "note", lambda root, number, facts: "cleared" in facts),
    "after that is noted": lambda: after(changes, "note", lambda held: bool(held.get("cleared"))),
}
"""Steps in which what was pulled and made for a mission goes again."""


def play_trainings(how: str) -> None:
    """Let nothing be trained, and no extra be missing."""
    change_preparation.TRAINING_MODULES = ()

    def words(settings: Any, image: str, work: Any, minutes: float) -> list[str]:
        return [sys.executable, fake_trainer.__file__, str(work), how]

    defaults: Any = change_preparation.TrainingPreparation.__init__.__kwdefaults__
    defaults["command"] = words


EXPERT_POINTS: dict[str, Callable[[], None]] = {
    "before it is intended": lambda: before(model_registry, "intend_expert"),
    "after it is intended": lambda: before(expert_model.adapters, "write_gguf"),
    "after it is translated": lambda: after(expert_model.adapters, "write_gguf"),
    "after it is uploaded": after_the_step(expert_model, "upload_blob"),
    "after it is created": after_the_step(expert_model.ExpertBuilder, "build"),
    "after it is tried": after_the_step(expert_model.ExpertBuilder, "attempt"),
    "before it is recorded": lambda: before(model_registry, "note_built"),
    "after it is recorded": lambda: after(model_registry, "note_built"),
}

if __name__ == "__main__":
    point, _left = sys.argv[1], int(sys.argv[2])
    if point in TRAINING_POINTS:
        play_trainings(os.environ.get("TRAINER", "good"))
    tables = (
        POINTS, STEPS, PICTURE_POINTS, UNDO_POINTS, LEASH_POINTS, CHANGE_POINTS, EXPERT_POINTS, TRAINING_POINTS, PROVIDE_POINTS,
        WITHDRAW_POINTS, STEP_POINTS, COMPARE_POINTS,
    )  # fmt: skip
    (install,) = {*(table[point] for table in tables if point in table)}
    install()
    if sys.argv[2].startswith("+"):
        count_from_the_start_on()
    sys.exit(main(sys.argv[3:]))
