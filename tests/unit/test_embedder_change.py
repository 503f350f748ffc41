"""Another embedder: the vectors of the one before serve until all the new ones are there, whatever comes between; two are never mixed."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ZODB.POSException import ConflictError

from batos.config import Settings
from batos.errors import EmbedderFailed, InferenceFailed
from batos.memory.drafts import Draft, DraftPart
from batos.memory.embedders import NORMALISATION, Identity, Maker
from batos.memory.embedders.selection import Readers
from batos.memory.embedding_worker import adopt_embedder, load_collection
from batos.memory.section_builder import remember_document
from batos.memory.store import Library, library_of
from batos.wire.admin_schemas import SearchRequest
from tests.support.memory import CountsWords, Memory, memory

PLACES = ("wall", "harbour", "cellar", "attic", "garage", "mill")


class Becoming(CountsWords):
    """Becomes another model while it embeds `at` texts for the first time; the vectors of the other point the other way."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        way = 1.0 if self.digest_now == "d1" else -1.0
        rows = [[way * x for x in row] for row in await super().embed(model, texts, deadline_s=deadline_s)]
        if any(self.at in text for text in texts):
            self.digest_now = "d2"
        return rows


async def test_vectors_made_while_the_embedder_became_another_are_made_again(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\nThe tomatoes grow by the wall. The boat lies in the harbour.\n")
    async with memory(tmp_path, embedder=Becoming("tomatoes")) as held:
        await held.read(tmp_path / "notes.md")
        await held.embedded()
        await held.whole()
        view = held.recollection.collection.view()
        assert held.look(lambda library: "@d2" in library.embedder)
        assert view.has.all()
        assert (view.matrix.sum(axis=1) < 0).all()


class Models(CountsWords):
    """A service of several models. What each made is told apart by its first number; some may be held up after some requests, or gone."""

    FIRST = {"old": 1.0, "new": 2.0, "third": 3.0}

    def __init__(self) -> None:
        super().__init__()
        self.gone: set[str] = set()
        self.made: list[tuple[str, str]] = []
        self.asked: Counter[str] = Counter()
        self.holds, self.after, self.going = "", 0, asyncio.Semaphore(0)

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        self._there(model)
        if model == self.holds and self.asked[model] >= self.after:
            await self.going.acquire()
            self._there(model)
        self.asked[model] += 1
        self.made += [(model, text) for text in texts]
        return [[self.FIRST[model] * 9, *self.vector(text)] for text in texts]

    async def digest(self, model: str) -> str:
        self._there(model)
        return f"d-{model}"

    def let(self, requests: int = 100) -> None:
        """Answer so many of those that are held up."""
        for _ in range(requests):
            self.going.release()

    def by(self, model: str) -> list[str]:
        """The texts that a model was given, but for probes and questions."""
        return [text for made, text in self.made if made == model and "in the" in text]

    def _there(self, model: str) -> None:
        if model in self.gone:
            raise InferenceFailed(f"there is no model {model!r}", cause="model_missing", model=model)


def model_of(held: Memory) -> str:
    """Whose vectors searches use."""
    return held.recollection.collection.maker.identity.partition(":")[2].partition("@")[0]


async def ask(held: Memory, question: str) -> dict[str, Any]:
    return await held.recollection.search(SearchRequest.model_validate({"op": "search", "question": question}))


def written(folder: Path, *places: str) -> list[Path]:
    """A note for each place."""
    paths = [folder / f"{place}.md" for place in places]
    for path in paths:
        path.write_text(f"# Notes\n\nThe {path.stem} dog sleeps in the {path.stem}.\n")
    return paths


async def filled(folder: Path, models: Models) -> None:
    """A memory with notes and the vectors of "old"."""
    async with memory(folder, embedder=models, model="old") as held:
        await held.read(*written(folder, *PLACES))
        await held.embedded()
        await held.whole()


async def under_way(held: Memory, model: str = "new") -> None:
    """Wait until a change to that model is, and the model has got as far as it may: two sections."""
    await held.until(lambda: held.look(lambda library: left(library, model) == len(PLACES) - 2))


def left(library: Library, model: str) -> int:
    """Sections that lack a model's vectors; -1 if it is not to have them all."""
    identity = next((name for name in library.vectors if name.startswith(f"ollama:{model}@")), "")
    return len(library.lacking(identity)) - 1 if identity else -1


async def test_searches_go_by_the_old_vectors_until_all_new_ones_are_there(tmp_path: Path) -> None:
    models = Models()
    await filled(tmp_path, models)
    models.holds, models.after = "new", 3  # the probe, and two sections
    async with memory(tmp_path, embedder=models, model="new", embed_sections=1) as held:
        await under_way(held)
        assert (await ask(held, "Where does the harbour dog sleep?"))["by_vectors"]
        assert ("old", "Where does the harbour dog sleep?") in models.made
        assert held.recollection.vectors.facts()["serving"].startswith("ollama:old@")

        await held.read(*written(tmp_path, "tower"))  # it comes meanwhile, and its turn after the section that is being embedded
        models.let(1)
        await held.until(lambda: "The tower dog sleeps in the tower." in " ".join(models.by("old")))
        await held.until(lambda: held.recollection.collection.view().has.all())
        assert "tower" in (await ask(held, "Who is in the tower?"))["hits"][0]["text"]
        assert model_of(held) == "old"

        models.let()
        await held.until(lambda: model_of(held) == "new")
        await held.whole()
        assert held.look(lambda library: (list(library.vectors), library.change)) == ([held.look(lambda library: library.embedder)], None)
        reply = await ask(held, "Where does the cellar dog sleep?")
        assert (reply["by_vectors"], models.made[-1]) == (True, ("new", "Where does the cellar dog sleep?"))
    assert len(models.by("new")) == len(set(models.by("new"))) == len(PLACES) + 1


async def test_with_the_old_embedder_gone_words_decide_until_the_change_is_done(tmp_path: Path) -> None:
    models = Models()
    await filled(tmp_path, models)
    models.holds, models.after, models.gone = "new", 3, {"old"}
    async with memory(tmp_path, embedder=models, model="new", embed_sections=1) as held:
        await under_way(held)
        reply = await ask(held, "Where does the harbour dog sleep?")
        assert (reply["by_vectors"], reply["why"]) == (False, "the embedder is away: there is no model 'old'")
        assert "harbour" in reply["hits"][0]["text"]
        await held.read(*written(tmp_path, "tower"))
        assert held.found("tower")
        models.let()
        await held.until(lambda: model_of(held) == "new")
        await held.whole()
        assert (await ask(held, "Where does the tower dog sleep?"))["by_vectors"]  # no pause is left from the old one


async def test_from_whatever_was_committed_a_start_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill leaves what the last transaction committed: each such state of a change is kept, and gone on from."""
    models = Models()
    await filled(tmp_path, models)
    kept: list[tuple[Path, int]] = []
    async with memory(tmp_path, embedder=models, model="new", embed_sections=2) as held:
        system = held.image.system

        async def copied(*args: Any, **more: Any) -> Any:
            result = await system(*args, **more)
            state = tmp_path / f"state{len(kept)}"
            state.mkdir()
            shutil.copy(tmp_path / "image.fs", state)
            kept.append((state, held.look(lambda library: left(library, "new"))))
            return result

        monkeypatch.setattr(held.image, "system", copied)
        await held.until(lambda: model_of(held) == "new")
    assert len(kept) >= 2 + len(PLACES) // 2  # adopted, the sections, arrived
    changing = 0
    for state, lacking in kept:
        again = Models()
        async with memory(state, embedder=again, model="new") as held:
            changing += model_of(held) == "old"
            await held.until(lambda: model_of(held) == "new")
            await held.embedded()
            await held.whole()
        assert len(again.by("new")) == lacking, "what was kept is not made again"
    assert changing >= 1 + len(PLACES) // 2


async def test_an_embedder_that_changes_again_in_the_middle(tmp_path: Path) -> None:
    models = Models()
    await filled(tmp_path, models)
    models.holds, models.after = "new", 3
    async with memory(tmp_path, embedder=models, model="new", embed_sections=1) as held:
        await under_way(held)
    models.holds = "third"
    async with memory(tmp_path, embedder=models, model="third", embed_sections=1) as held:
        await under_way(held, "third")
        assert model_of(held) == "old"
        assert held.look(lambda library: sorted(name.partition("@")[0] for name in library.vectors)) == ["ollama:old", "ollama:third"]
        assert (await ask(held, "Where does the mill dog sleep?"))["by_vectors"]
        models.let()
        await held.until(lambda: model_of(held) == "third")
        await held.whole()
        assert held.look(lambda library: len(library.vectors)) == 1


async def test_an_embedder_that_comes_back_in_the_middle_has_its_vectors_still(tmp_path: Path) -> None:
    models = Models()
    await filled(tmp_path, models)
    models.holds, models.after, models.gone = "new", 3, {"old"}
    async with memory(tmp_path, embedder=models, model="new", embed_sections=1) as held:
        await under_way(held)
        await held.read(*written(tmp_path, "tower"))
    models.gone = set()
    before = len(models.by("old"))
    async with memory(tmp_path, embedder=models, model="old") as held:
        await held.until(lambda: held.look(lambda library: library.change is None))
        await held.embedded()
        await held.whole()
        assert held.look(lambda library: len(library.vectors)) == 1
    assert models.by("old")[before:] == ["The tower dog sleeps in the tower."]


async def test_a_mission_that_began_before_the_change_meets_it(tmp_path: Path) -> None:
    """What it remembers would lack the new vectors, and nobody would know of it; what it forgets would keep them."""
    models = Models()
    await filled(tmp_path, models)
    async with memory(tmp_path, embedder=models, model="old") as held:
        image, shelver = held.image, held.recollection.shelver

        def forget(root: Any) -> None:
            library_of(root).forget(library_of(root).document(str(tmp_path / "mill.md")))

        def keep(root: Any) -> None:
            remember_document(
                root, Draft("note", "", [DraftPart("A swan.")]), shelver, source="mission:m", mission="m", section_chars=2_000
            )

        for at, change in enumerate((keep, forget)):
            unit = image.unit()
            change((await unit.__aenter__()).root)
            await image.system(adopt_embedder, f"test:other@{at}:3", 3)
            with pytest.raises(ConflictError):
                await unit.__aexit__(None, None, None)


async def test_a_collection_takes_no_vectors_of_another_embedder(tmp_path: Path) -> None:
    models = Models()
    await filled(tmp_path, models)
    async with memory(tmp_path, embedder=models, model="old") as held:
        collection = held.image.read(load_collection)
        held.recollection.collection = collection
        before = collection.view().matrix.copy()
        held.recollection.embedded("ollama:new@x:65", [int(collection.view().ids[0])], before[:1] * 2)
        assert (collection.view().matrix == before).all()


async def test_who_reads_questions(tmp_path: Path) -> None:
    readers = Readers(Settings(data=tmp_path, embedder="onnx"), Models(), Models(), "old")
    packaged = Maker("onnx:all-MiniLM-L6-v2@x.1:384")
    assert readers.of(packaged) is readers.of(Maker()) is readers.present
    assert readers.former(packaged) is None
    assert readers.former(Maker("onnx:mine@x.1:384")) is None  # of an image that does not say where it was
    assert readers.former(Maker("something:else@x.1:384")) is None

    ollama = readers.of(Maker("ollama:minilm:embedded@x.1:384"))
    assert ollama is readers.of(Maker("ollama:minilm:embedded@y.1:384")), "its weights may have changed; that is for its identity to say"
    assert await readers.of(Maker("ollama:new@x.1:65")).identity() == Identity("ollama", "new", f"d-new.{NORMALISATION}", 65)

    local = readers.of(Maker("onnx:mine@x.1:384", str(tmp_path / "mine")))
    with pytest.raises(EmbedderFailed, match="holds no sentence-transformers model"):
        await local.identity()
    await readers.let_go()
    with pytest.raises(EmbedderFailed, match="is closed"):
        await local.identity()
    await readers.close()


async def test_a_model_of_ollama_and_one_of_this_process_are_two_embedders(tmp_path: Path) -> None:
    readers = Readers(Settings(data=tmp_path), Models(), Models(), "old")
    assert readers.former(Maker("ollama:old@x.1:65")) is None
    assert readers.former(Maker("onnx:all-MiniLM-L6-v2@x.1:384")) is not None
    await readers.close()
