"""An image that version 0.1.0 wrote opens and goes on, whatever has moved since; tools/old_image.py says what is in it."""

from __future__ import annotations

import io
import json
import pickletools
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from batos.app.kernel import Kernel
from batos.autotelic import changes
from batos.bridge.inference import ChatRequest
from batos.image import ledger
from batos.image.history import show
from batos.image.journal import load
from batos.image.scrubber import Walk
from batos.image.storage import FORMAT, open_database, probe
from batos.memory.store import library_of
from batos.objects.slot_values import FORMER
from batos.wire.admin_schemas import SearchRequest
from tests.support.memory import QUICK, CountsWords
from tests.support.methods import sent
from tests.support.missions import FakeInference, Listened, mind, submit
from tests.support.public_names import pinned
from tests.support.undo import Held

PACKED = Path(__file__).parents[1] / "data" / "image-0.1.0.tar.gz"
KEY = "The key is under the third stone of the garden wall."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a daemon of version 0.1.0 that was killed while a mission was thought through."""
    with tarfile.open(PACKED) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.fixture
def inference() -> FakeInference:
    inference = FakeInference()
    inference.embedder = CountsWords().vector
    return inference


@pytest.fixture
async def held(folder: Path, inference: FakeInference) -> AsyncIterator[Held]:
    """The image in use, once the unfinished mission has ended."""
    inference.hold()
    async with mind(folder, inference, **QUICK) as kernel:
        listened = Listened(kernel, "unfinished")
        inference.release()
        assert (await listened.end())["state"] == "COMPLETE"
        yield Held(kernel)


def texts_of_records(path: Path) -> Iterator[str]:
    """All texts in the newest revisions of all records of an image, names of classes among them, as `module class`."""
    db = open_database(f"file://{path}", cache_size=100, pool_size=1, read_only=True)
    try:
        following: bytes | None = b""
        while following is not None:
            _, _, data, following = db.storage.record_iternext(following or None)
            record = io.BytesIO(data)
            for _ in range(2):
                yield from (arg for _, arg, _ in pickletools.genops(record) if isinstance(arg, str))
    finally:
        db.close()


async def all_checked(kernel: Kernel) -> dict[str, str]:
    """What is wrong with the image, once all of it was looked at."""
    walk = Walk(kernel.image.db)
    while not (walk.rounds and walk.file and walk.file.rounds):
        walk.step(1000, 1_000_000)
    return walk.damaged


def test_it_names_every_primitive_by_function_and_has_the_format_of_its_time(folder: Path) -> None:
    """It is what it is said to be: all names of the table but that of what came later."""
    assert probe(f"file://{folder / 'live_image.fs'}")["format"] == 4 < FORMAT
    texts = set(texts_of_records(folder / "live_image.fs"))
    assert texts & FORMER.keys() == FORMER.keys() - {"batos.mind.grants.grant_"}
    classes = {text.replace(" ", ".") for text in texts if text.startswith("batos.") and text.count(" ") == 1}
    assert "batos.memory.Words" in classes
    assert classes <= set(pinned("classes"))


async def test_a_new_image_names_no_function(tmp_path: Path, inference: FakeInference) -> None:
    async with mind(tmp_path, inference) as kernel:
        await (await submit(kernel, "m", "Plan the day", persona="robin")).end()
    texts = set(texts_of_records(tmp_path / "live_image.fs"))
    assert set(FORMER.values()) <= texts
    assert not FORMER.keys() & texts


async def test_a_mission_is_thought_and_the_unfinished_one_goes_on_from_its_journal(folder: Path, inference: FakeInference) -> None:
    inference.hold()
    async with mind(folder, inference, **QUICK) as kernel:
        listened = Listened(kernel, "unfinished")
        paid = len(kernel.image.read(load, "unfinished"))
        assert paid == 1
        inference.release()
        end = await listened.end()
        assert (end["state"], end["persona"]) == ("COMPLETE", "ALFRED")
        total = len(kernel.image.read(load, "unfinished"))
        assert 0 < len(inference.asked) == total - paid, "what was paid for is not asked again"
        new = await (await submit(kernel, "new", "Plan the evening", persona="robin")).end()
        assert (new["state"], new["persona"]) == ("COMPLETE", "ROBIN")
        kept = kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "plan")))
        assert (kept.state, kept.rating["rating"]) == ("COMPLETE", 1)
        assert kernel.image.read(lambda root: ledger.describe(ledger.mission_of(root, "fails"))).state == "FAILED"


async def test_its_methods_answer_are_taught_and_reverted(held: Held, inference: FakeInference) -> None:
    kernel = held.kernel
    inference.asked.clear()
    assert (await sent(kernel, "m1", "thing", "add_", 20, 30))["result"]["value"] == 50
    assert (await sent(kernel, "m2", "thing", "count_", 2))["result"]["value"] == 7
    assert (await sent(kernel, "m3", "thing", "greet_", "Bob"))["result"]["value"] == "Good day, Bob"
    assert (await sent(kernel, "m4", "thing", "revert_", "greet_"))["state"] == "COMPLETE"
    assert (await sent(kernel, "m5", "thing", "greet_", "Bob"))["result"]["value"] == "Hello Bob"
    assert inference.asked == []


async def test_a_message_to_a_new_selector_is_written(held: Held, inference: FakeInference) -> None:
    source = "def double_(self, number):\n    return 2 * number\n"

    def say(request: ChatRequest) -> str:
        return source if "Write: def double_" in request.user else "Take one small step and look where it led."

    inference.say = say
    assert (await sent(held.kernel, "m1", "thing", "double_", 21))["result"]["value"] == 42


async def test_its_memory_is_searched_and_its_archive_comes_back(held: Held) -> None:
    await held.embedded()
    told = await held.recollection.search(SearchRequest(op="search", question="Where is the key?"))
    assert told["by_vectors"]
    assert told["hits"][0]["text"] == KEY
    assert held.found("dentist") == [], "it was undone before"
    assert held.found("tomatoes") == []
    (number,) = held.look(lambda library: list(library.archives))
    await held.recollection.curator.restore(str(number))
    await held.whole()
    assert len(held.found("tomatoes")) == 1


async def test_what_its_missions_did_is_undone_and_done_again(held: Held) -> None:
    await held.embedded()
    assert (await held.undo("remembers"))["documents"] == {"gone": ["Keys", "memory remember_"], "back": []}
    assert (await held.undo("forgotten", redo=True))["documents"] == {"gone": [], "back": ["Dentist"]}
    await held.whole()
    assert held.found("stone") == []
    assert held.found("dentist") == ["The dentist is on Tuesday at nine."]
    assert (await held.undo("counts"))["objects"]
    assert held.image.read(lambda root: root["lobby"].thing.total) == 0
    assert "count_" not in held.image.read(lambda root: list(root["lobby"].thing._slots))


async def test_its_changes_are_listed_and_undone(held: Held) -> None:
    states = [held.image.read(changes.of, number)["state"] for number in (1, 2)]
    assert states == [changes.KEPT, changes.REFUSED]
    reply = await held.kernel.undoing.undo_change(1, "it surprises nobody")
    assert [one["parts"] for one in reply["objects"]] == [["surprise_facet_"]]
    assert "surprise_facet_" not in held.image.read(lambda root: list(root["lobby"].robin._slots))


async def test_it_is_walked_packed_and_forked(held: Held, tmp_path: Path, inference: FakeInference) -> None:
    kernel = held.kernel
    await held.whole()
    assert await all_checked(kernel) == {}
    fork = await kernel.upkeep.fork(str(tmp_path / "fork"))
    await kernel.upkeep.pack(0)
    assert await all_checked(kernel) == {}
    shown = kernel.image.read(lambda root: show(root["lobby"].psm.IDLE))
    assert "psm.idle" in json.dumps(shown)
    async with mind(Path(fork["image"]).parent, inference) as other:
        assert (await sent(other, "m1", "thing", "add_", 1, 1))["result"]["value"] == 2
        assert other.image.read(lambda root: len(library_of(root).documents)) > 3
