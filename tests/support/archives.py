"""Archives of the memory: sections put away, and all that the memory holds as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from batos.image import LivingImage
from batos.memory import archive_format, archiver
from batos.memory.drafts import Draft, DraftPart
from batos.memory.records import SUMMARY
from batos.memory.section_builder import prepare_document
from batos.memory.segments import build
from batos.memory.store import library_of
from tests.support.memory import Memory


def everything(root: Any) -> dict[str, Any]:
    """All that the memory holds, as plain values: two that are equal hold the same, bit for bit."""
    library = library_of(root)
    storage = root._p_jar.db().storage
    vectors = {}
    for ids, rows in library.vectors[library.embedder].blocks() if library.embedder else ():
        vectors |= {int(id): row.tobytes() for id, row in zip(ids, rows, strict=True)}
    entries: dict[int, Any] = {}
    for segment in library.text.segments():
        term = np.repeat(np.arange(len(segment.terms)), np.diff(segment.starts))
        for row, facts in enumerate(segment.facts):
            said = segment.rows == row
            words = sorted((segment.terms[t], float(n)) for t, n in zip(term[said], segment.counts[said], strict=True))
            links = segment.links[segment.links[:, 0] == facts["id"], 1]
            entries[int(facts["id"])] = (facts.tobytes(), words, links.tolist())
    return {
        "sections": {number: tuple(library.section(number)) for number in library.sections},
        "chunks": {n: (chunk._p_oid, storage.load(chunk._p_oid)[0]) for n, chunk in library.chunks.items()},
        "documents": {
            n: (d._p_oid, {k: v for k, v in d._slots.items() if k != "parent*" and not hasattr(v, "_p_oid")})
            for n, d in library.documents.items()
        },
        "sources": dict(library.by_source),
        "kinds": {kind: sorted(library.catalogue.find(kind=kind) or ()) for kind in ("markdown", "conversation")},
        "entities": {key: (e._p_oid, e.name, e.kind, list(e.chunks)) for key, e in library.entities.items()},
        "vectors": vectors,
        "entries": entries,
        "waiting": list(library.without_vectors()),
    }


async def put_away(
    held: Memory, *sources: Path | str, sections: list[int] | None = None, text: str = "Gardens and pianos of all kinds."
) -> int:
    """Archive all sections of some documents, or these; the number of the archive."""
    recollection = held.recollection
    wanted = sections or held.look(lambda library: [n for source in sources for n in library.document(str(source)).sections])
    material = material_of(held, wanted)
    number = recollection.numbers.take()
    data = archive_format.pack_archive(material)
    change = await held.image.system(archiver.archive_sections, material, data, made_of(held, material, number, text))
    assert change is not None
    recollection.stored(change.segment, change.dropped)
    return number


def material_of(held: Memory, sections: list[int]) -> archive_format.ArchiveContent:
    found = held.image.read(archiver.sections_as_archived, sections)
    segment, vectors, has = held.recollection.collection.excerpt([n for one in found for n in one.section.numbers])
    assert has.all()
    parted = np.split(vectors, np.cumsum([one.section.size for one in found])[:-1])
    embedder = held.look(lambda library: library.embedder)
    return archive_format.ArchiveContent(
        tuple(one._replace(vectors=rows) for one, rows in zip(found, parted, strict=True)), segment, embedder
    )


def made_of(held: Memory, material: archive_format.ArchiveContent, number: int, text: str, level: int = 1) -> archiver.NewSummary:
    shelver = held.recollection.shelver
    documents = tuple(dict.fromkeys(one.section.document for one in material.held))
    draft = Draft(SUMMARY, "Summary", [DraftPart(text, "Summary")])
    prepared = prepare_document(draft, shelver, source=f"archive:{number}", mission="", section_chars=8000, about=documents)
    return archiver.NewSummary(number, prepared, build(prepared.entries), documents, 1.0, level)


async def pack(image: LivingImage, folder: Path) -> None:
    from batos.image.upkeep import Upkeep, UpkeepPlan

    await Upkeep(image, None, UpkeepPlan(0, 1, interval_s=1, first_s=1), backups=folder).pack(0)  # type: ignore[arg-type]
