"""Recall: what speaks to a brief, and nothing else."""

from __future__ import annotations

from pathlib import Path

from batos.memory.drafts import Draft, DraftPart
from batos.memory.section_builder import prepare_document, store_document
from batos.memory.segments import build
from tests.support.memory import CountsWords, Memory, memory

GARDEN = "The tomatoes stand on the balcony since the second week of May.\n"
ENGINE = "The impeller of the engine is changed every two hundred hours.\n"


async def filled(held: Memory, folder: Path) -> None:
    for name, text in (("garden.txt", GARDEN), ("engine.txt", ENGINE)):
        (folder / name).write_text(text)
    await held.read(folder / "garden.txt", folder / "engine.txt")
    await lived(held)


async def lived(held: Memory) -> None:
    draft = Draft("mission", "Tomatoes", [DraftPart("When may tomatoes go out?\n\nTomatoes go out to the balcony in May.", "Tomatoes")])
    prepared = prepare_document(draft, held.recollection.shelver, source="mission:m1", mission="m1", section_chars=10_000)
    segment = build(prepared.entries)
    await held.image.system(store_document, prepared, segment)
    held.recollection.stored(segment, [])
    await held.embedded()


async def recalled(held: Memory, brief: str) -> list[str]:
    numbers = await held.recollection.recall(brief)
    return held.look(lambda library: [library.chunks[number].document.source.rsplit("/", 1)[-1] for number in numbers])  # type: ignore[no-any-return]


async def test_what_speaks_to_a_brief_is_recalled_and_nothing_else(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        assert await recalled(held, "anything") == [], "there is nothing yet"
        await filled(held, tmp_path)
        assert await recalled(held, "When do the tomatoes go to the balcony?") == ["garden.txt"]
        assert await recalled(held, "When is the impeller of the engine changed?") == ["engine.txt"]
        assert await recalled(held, "Compose a waltz for accordion") == []
        assert await recalled(held, "?!") == []


async def test_earlier_missions_are_recalled_where_the_brief_speaks_of_them_also_when_they_were_cut_anew(tmp_path: Path) -> None:
    async with memory(tmp_path) as held:
        await filled(held, tmp_path)
        assert "mission:m1" not in await recalled(held, "Where do tomatoes go in May?")
        assert "mission:m1" in await recalled(held, "What did you say about tomatoes on the balcony in May?")


async def test_words_decide_where_no_embedder_answers_and_none_is_more_than_asked_for(tmp_path: Path) -> None:
    embedder = CountsWords()
    async with memory(tmp_path, embedder=embedder, evidence_passages=1) as held:
        await filled(held, tmp_path)
        embedder.away = True
        assert await recalled(held, "tomatoes balcony") == ["garden.txt"]
        assert await recalled(held, "tomatoes and a walrus, an aardvark, an okapi") == []
    async with memory(tmp_path, evidence_passages=0) as held:
        assert await recalled(held, "tomatoes balcony") == []


async def test_nobody_is_asked_where_memory_holds_nothing_but_missions_and_the_brief_is_not_about_them(tmp_path: Path) -> None:
    embedder = CountsWords()
    async with memory(tmp_path, embedder=embedder) as held:
        await lived(held)
        asked = len(embedder.texts)
        assert await recalled(held, "Where do tomatoes go in May?") == []
        assert len(embedder.texts) == asked
        assert await recalled(held, "What did you say about tomatoes on the balcony in May?") == ["mission:m1"]
        assert len(embedder.texts) > asked
