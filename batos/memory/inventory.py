"""What there is in the memory, as plain values for whoever asks."""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Mapping
from typing import Any

from ZODB.POSException import POSKeyError

from batos.errors import ImageDamaged
from batos.image.folded import descending
from batos.image.history import oid_of
from batos.memory.library import Library, library_of
from batos.memory.origins import origin_of
from batos.objects import UvmObject

_SHOWN = 100  # refusals that are told of at a time


def described(root: Any, documents: int | None, away: Mapping[str, str], left: Mapping[str, Any]) -> dict[str, Any]:
    """How much there is of everything, as plain values; with `documents` that many of them, the newest first.

    :param away: watched folders that cannot be looked through, and why.
    :param left: what is not read of watched folders (`batos.memory.files.LeftOut`).
    """
    library = library_of(root)
    told: dict[str, Any] = {
        **library.counts.told(),
        "archives": len(library.archives),
        "waiting": {"files": len(library.queue), "sections": len((library.change or library).waiting) - 1},
        "refused": [{"path": path, "code": code, "message": text, "at": at} for path, (code, text, at, *_) in library.refused.items()][
            :_SHOWN
        ],
        "followed": [
            {
                "folder": folder,
                "away": away.get(folder, ""),
                **({"exclude": exclude} if exclude else {}),
                **({"left_out": left[folder]} if left.get(folder) else {}),
            }
            for folder, (_, _, *exclude) in library.watched.items()
        ],
    }
    if documents is not None:
        told["listed"] = []
        for _, document in itertools.islice(descending(library.documents), documents):
            with contextlib.suppress(ImageDamaged, POSKeyError):  # the self-audit tells of it
                told["listed"].append(_listed(root, library, document))
    return told


def _listed(root: Any, library: Library, document: UvmObject) -> dict[str, Any]:
    return {
        "source": document.source,
        "sources": list(document.sources),
        "title": document.title,
        "kind": document.kind,
        "origin": origin_of(root, document),
        "chunks": sum(section.size for section in library.sections_of(document)),
        "day": datetime.date.fromordinal(document.day).isoformat() if document.day else None,
        "mission": document.mission,
        "complete": document.complete,
        "doubts": list(document.doubts),
        "archives": [node.number for node in document.archives],
        "oid": oid_of(document),
    }
