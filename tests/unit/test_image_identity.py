"""An image's right to act: it is lost by copies, forks, restores and older images, and no crash gives or takes it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from BTrees.OOBTree import OOBTree

from batos.app.tools import ToolStage
from batos.errors import ImageError
from batos.image import backup, effects, identity, ledger
from batos.image.effects import IN_DOUBT, EffectRecord
from batos.image.identity import ActingState, EpochFile
from batos.image.living_image import LivingImage
from batos.tools.definitions import ConnectorServices, Delivery, ToolCall, ToolDefinition
from batos.tools.effects import Effects
from batos.tools.toolbox import Toolbox


def uri(folder: Path) -> str:
    return f"file://{folder / backup.FORK_NAME}"


def epoch(folder: Path) -> Path:
    found = identity.epoch_path(uri(folder), folder)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[LivingImage, ActingState]]:
    folder.mkdir(exist_ok=True)
    image = await LivingImage.open(uri(folder))
    try:
        yield image, await identity.begin(image, epoch(folder))
    finally:
        await image.close()


async def state_of(folder: Path) -> ActingState:
    async with opened(folder) as (_, state):
        return state


async def test_an_image_acts_from_its_first_start_on_and_keeps_its_identity(tmp_path: Path) -> None:
    first = await state_of(tmp_path)
    assert first.suspended == ""
    assert len(first.identity) == 32
    assert [await state_of(tmp_path) for _ in range(2)] == [first, first]
    assert epoch(tmp_path).stat().st_mode & 0o077 == 0


async def test_acts_noted_at_the_same_time_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower write of the earlier count must not come last: the file would not know the last act."""
    in_thread, gate, writes = asyncio.to_thread, asyncio.Event(), 0

    async def written(write: Callable[..., Any], *args: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes == 1:
            await gate.wait()
        return await in_thread(write, *args)

    def act(root: Any) -> None:
        counts = root.setdefault("acted", OOBTree())
        counts["here"] = counts.get("here", 0) + 1

    async with opened(tmp_path) as (image, _):
        monkeypatch.setattr(asyncio, "to_thread", written)
        marks = identity.ActMarks(image, epoch(tmp_path))
        notes = []
        for _ in range(2):
            await image.system(act)
            notes.append(asyncio.create_task(marks.note()))
            for _ in range(20):
                await in_thread(lambda: None)
        gate.set()
        await asyncio.gather(*notes)
        monkeypatch.undo()
        assert marks.known == {"here": 2}
        beside = identity.read_file(epoch(tmp_path))
        assert isinstance(beside, EpochFile)
        assert beside.acted == {"here": 2}


def paid(root: Any) -> None:
    root.setdefault("acted", OOBTree())["here"] = 1


def unpaid(root: Any) -> None:
    """As the image was before the act."""
    root["acted"].clear()


async def test_a_resume_is_not_undone_by_a_kernel_that_saw_the_older_image_before(tmp_path: Path) -> None:
    async with opened(tmp_path) as (image, _):
        mine, late = (identity.ActMarks(image, tmp_path / name / "image.epoch") for name in ("a", "b"))
        await image.system(paid)
        for marks in (mine, late):
            await marks.note()
        await image.system(unpaid)
        assert "before the last 1 acts of here" in image.read(late.put_back)
        await image.system(mine.suspend)
        assert image.read(identity.suspension)
        await identity.resume(image, tmp_path / "a" / "image.epoch")
        await mine.forget()
        await image.system(late.suspend)
        assert [image.read(look) for look in (identity.suspension, mine.put_back, late.put_back)] == ["", "", ""]
        assert not image.read(late.are_of)
        await late.note()
        assert (late.known, image.read(late.are_of)) == ({}, True)
        await image.system(lambda root: root.pop("acts_resumed"))
        assert "before its last 1 resumes" in image.read(late.put_back)


async def test_a_kernel_that_saw_an_older_image_does_not_act_because_another_has_not_seen_it(tmp_path: Path) -> None:
    members = Members()
    async with opened(tmp_path) as (image, _):
        marks = identity.ActMarks(image, epoch(tmp_path))
        toolbox = Toolbox(image, ConnectorServices(secret=str, folder=tmp_path), ActingState("id", "", marks))
        stage = ToolStage(image, toolbox, epoch(tmp_path), members)  # type: ignore[arg-type]
        await image.system(paid)
        image.read(stage.look)
        await stage.tasks.drain()
        assert marks.known == {"here": 1}
        await image.system(unpaid)
        image.read(stage.look)
        await members.looked(stage)  # what it saw is not committed yet, and the other kernel acts
        assert "before the last 1 acts" in toolbox.tied()
        await stage.tasks.drain()
        await members.looked(stage)
        assert "before the last 1 acts" in toolbox.tied()
        assert members.told == [{"acts": False}]
        await stage.resume()
        assert (toolbox.tied(), members.told[1:]) == ("", [{"acts": True}])


class Members:
    """Membership beside a kernel that acts."""

    look_s = 0.001

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def alive(self) -> list[Any]:
        return [SimpleNamespace(acts=True)]

    async def describe(self, **facts: Any) -> None:
        self.told.append(facts)

    async def looked(self, stage: ToolStage) -> None:
        """Let a stage try to join, several times."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await stage.joined()


async def test_an_image_of_an_earlier_version_acts(tmp_path: Path) -> None:
    await (await LivingImage.open(uri(tmp_path))).close()
    assert (await state_of(tmp_path)).suspended == ""


async def test_a_copied_folder_does_not_act_and_a_moved_one_does(tmp_path: Path) -> None:
    await state_of(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert "is a copy of" in (await state_of(tmp_path / "b")).suspended
    assert "is a copy of" in (await state_of(tmp_path / "b")).suspended, "a restart changes nothing"
    (tmp_path / "a").rename(tmp_path / "c")
    assert (await state_of(tmp_path / "c")).suspended == ""


async def test_an_image_without_its_file_does_not_act(tmp_path: Path) -> None:
    await state_of(tmp_path)
    epoch(tmp_path).unlink()
    assert f"without {epoch(tmp_path).name}; look at `batos effects`" in (await state_of(tmp_path)).suspended


@pytest.mark.parametrize("content", ["", "{", "[]", '{"epoch": 1}', '"x"'])
async def test_a_damaged_file_suspends(tmp_path: Path, content: str) -> None:
    await state_of(tmp_path)
    epoch(tmp_path).write_text(content)
    assert "cannot be read" in (await state_of(tmp_path)).suspended
    async with opened(tmp_path) as (image, _):
        await identity.resume(image, epoch(tmp_path))
    assert (await state_of(tmp_path)).suspended == ""


async def test_an_older_image_put_in_place_does_not_act(tmp_path: Path) -> None:
    await state_of(tmp_path)
    shutil.copy(tmp_path / backup.FORK_NAME, tmp_path / "older.fs")
    await state_of(tmp_path)
    (tmp_path / f"{backup.FORK_NAME}.index").unlink()
    (tmp_path / backup.FORK_NAME).write_bytes((tmp_path / "older.fs").read_bytes())
    assert "an older or another one" in (await state_of(tmp_path)).suspended


async def test_an_image_without_identity_beside_the_file_of_another_does_not_act(tmp_path: Path) -> None:
    await state_of(tmp_path)
    await (await LivingImage.open(uri(tmp_path / "old"))).close()
    for file in (backup.FORK_NAME, f"{backup.FORK_NAME}.index"):
        (tmp_path / file).unlink()
        shutil.copy(tmp_path / "old" / file, tmp_path / file)
    for _ in range(2):
        assert "an older or another one" in (await state_of(tmp_path)).suspended


@pytest.mark.parametrize("started", [True, False])
async def test_a_fork_and_a_restored_backup_do_not_act(tmp_path: Path, started: bool) -> None:
    image = await LivingImage.open(uri(tmp_path / "image"))
    if started:
        await identity.begin(image, epoch(tmp_path / "image"))
    backup.fork(image.db, tmp_path / "image" / backup.FORK_NAME, tmp_path / "fork", None, threading.Event())
    backup.backup(tmp_path / "image" / backup.FORK_NAME, tmp_path / "backups", full=True, before=image.db.lastTransaction())
    await image.close()
    backup.restore(tmp_path / "backups", tmp_path / "restored" / backup.FORK_NAME)
    assert "this image is a fork of" in (await state_of(tmp_path / "fork")).suspended
    assert "this image is a restored backup" in (await state_of(tmp_path / "restored")).suspended
    assert (await state_of(tmp_path / "image")).suspended == ""


async def test_a_restore_that_fails_leaves_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = await LivingImage.open(uri(tmp_path / "image"))
    backup.backup(tmp_path / "image" / backup.FORK_NAME, tmp_path / "backups", full=True, before=image.db.lastTransaction())
    await image.close()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup, "_place", full)
    with pytest.raises(ImageError, match="No space left"):
        backup.restore(tmp_path / "backups", tmp_path / "restored" / backup.FORK_NAME)
    assert not epoch(tmp_path / "restored").exists()


class Died(Exception):
    """The process died here."""


def dies(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Let the process die before the durable step of that number: 0, 2 are writes of the file, 1 is the commit."""
    steps = iter(range(9))

    def step(real: Callable[..., Any]) -> Callable[..., Any]:
        def die(*given: Any) -> Any:
            if next(steps) == at:
                raise Died
            return real(*given)

        return die

    monkeypatch.setattr(identity, "write_file", step(identity.write_file))
    monkeypatch.setattr(identity, "keep_epoch", step(identity.keep_epoch))


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("new", [True, False])
async def test_a_start_that_dies_between_its_steps_suspends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, new: bool
) -> None:
    if not new:
        await state_of(tmp_path)
    with monkeypatch.context() as patch:
        dies(patch, at)
        with pytest.raises(Died):
            await state_of(tmp_path)
    assert (await state_of(tmp_path)).suspended == ""


@pytest.mark.parametrize("at", [0, 1])
async def test_a_resume_that_dies_between_its_steps_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    await state_of(tmp_path)
    epoch(tmp_path).unlink()
    async with opened(tmp_path) as (image, _):
        with monkeypatch.context() as patch:
            dies(patch, at)
            with pytest.raises(Died):
                await identity.resume(image, epoch(tmp_path))
    assert (await state_of(tmp_path)).suspended
    async with opened(tmp_path) as (image, _):
        assert (await identity.resume(image, epoch(tmp_path))).suspended == ""
    assert (await state_of(tmp_path)).suspended == ""


@pytest.mark.parametrize("new", [True, False])
async def test_a_file_that_cannot_be_written_suspends_for_this_run_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool) -> None:
    if not new:
        await state_of(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(identity, "write_file", full)
        assert "No space left on device" in (await state_of(tmp_path)).suspended
    assert (await state_of(tmp_path)).suspended == ""


async def test_after_a_resume_what_had_not_ended_is_in_doubt_and_older_missions_ask(tmp_path: Path) -> None:
    intended = EffectRecord(
        "k1", "shop.buy", effects.KEYED, "{}", 0, effects.INTENDED, 1.0, until=99.0, process="1 1", pending='{"left": ""}'
    )
    async with opened(tmp_path) as (image, _):
        await image.system(ledger.accept, "m1", "buy", {}, True)
        await image.system(effects.intend, "m1", intended)
        await image.system(effects.intend, "m1", intended._replace(key="k2"))
        await image.system(effects.end, "m1", intended._replace(key="k2", state=effects.DONE))
        assert not image.read(identity.asks_first, 1)
        await identity.resume(image, epoch(tmp_path))
        await image.system(ledger.accept, "m2", "buy", {}, True)
        (open_one, ended) = image.read(effects.load, "m1")
        assert (open_one.state, open_one.process, open_one.pending) == (IN_DOUBT, "", "")
        assert open_one.why.startswith(identity.RESUMED)
        assert ended.state == effects.DONE
        assert [image.read(identity.asks_first, number) for number in (1, 2)] == [True, False]


class Asked:
    """The attempt on whose behalf calls are made; its user says that it happened."""

    def __init__(self) -> None:
        self.questions: list[str] = []
        self.counted: Counter[tuple[str, str]] = Counter()

    async def allow(self, call: ToolCall) -> str:
        return "grant 1"

    def ask(self, question: str) -> str:
        self.questions.append(question)
        return effects.HAPPENED

    def tied(self) -> str:
        return ""

    def label(self) -> str:
        return ""

    def counts(self) -> Counter[tuple[str, str]]:
        return self.counted

    def permits(self, call: ToolCall, arguments: Mapping[str, Any]) -> bool:
        return True

    def tell(self, name: str, line: str) -> None: ...


@pytest.mark.parametrize("kind", [effects.KEYED, effects.IDEMPOTENT, effects.VERIFIABLE])
@pytest.mark.parametrize("resumed", [True, False])
async def test_after_a_resume_even_what_could_be_sent_again_is_asked(tmp_path: Path, kind: str, resumed: bool) -> None:
    sent: list[Delivery] = []

    async def send(delivery: Delivery) -> str:
        sent.append(delivery)
        return "bought"

    async def look() -> str:
        return "seen"

    async def prepare() -> ToolCall:
        return ToolCall(connection="shop", tool=ToolDefinition(name="buy", kind=kind), arguments={}, send=send, look=look)

    async with opened(tmp_path) as (image, state):
        await image.system(ledger.accept, "m1", "buy", {}, True)
        key = effects.key_of(state.identity, "m1", "shop.buy", "{}", 0)
        await image.system(effects.intend, "m1", EffectRecord(key, "shop.buy", kind, "{}", 0, effects.INTENDED, 1.0, until=2.0))
        if resumed:
            await identity.resume(image, epoch(tmp_path))
        caller = Asked()
        found = await Effects(image, "m1", state.identity, caller).perform("shop.buy", {}, prepare)
        if resumed:
            assert (found["happened"], len(caller.questions), sent) == (True, 1, [])
            assert "copied, restored or replaced" in caller.questions[0]
        else:
            assert (found in ("bought", "seen"), caller.questions) == (True, [])


async def test_an_image_in_memory_acts_and_needs_no_file(tmp_path: Path) -> None:
    image = await LivingImage.open("memory://")
    assert identity.epoch_path("memory://", tmp_path) is None
    assert (await identity.begin(image, None)).suspended == ""
    assert (await identity.resume(image, None)).suspended == ""
    await image.close()


def test_a_mark_is_never_taken_for_an_epoch(tmp_path: Path) -> None:
    identity.mark_copied(tmp_path / "x.epoch", "a fork of y")
    assert identity.why_suspended((), identity.read_file(tmp_path / "x.epoch"), tmp_path / "x.epoch").startswith(
        "this image is a fork of y"
    )
