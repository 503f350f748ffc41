"""What the models were built from: kept in a small file, so that each is built once a content.

Ollama says what a model is, not what it was made of: weights and adapters are converted on their way in, texts with quotes are
shown as they cannot be read back. So the file holds, for each model, the digest under which Ollama lists it and the fingerprint
of its recipe. A model that was changed by others has another digest, and what is written here is void. Losing the file costs
one more build of some models.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
from pathlib import Path

import structlog

from batos import private_files
from batos.bridge.blobs import digest_of

log = structlog.get_logger(__name__)

VERSION = 1


def built_of(folder: Path, host: str) -> Path:
    """The file of a further Ollama, at `host`; that of the first one is `built.json`."""
    return folder / f"built-{re.sub(r'[^a-zA-Z0-9]+', '-', host)}.json"


class Built:
    """The file at `path`; without one, what is noted lasts as long as this object."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._models: dict[str, dict[str, str]] = {}
        self._files: dict[str, dict[str, int | str]] = {}
        if path is not None:
            self._load(path)

    def knows(self, model: str, digest: str) -> bool:
        """Whether the model of that digest was built here."""
        return self._models.get(model, {}).get("digest") == digest

    def fits(self, model: str, digest: str, fingerprint: str) -> bool:
        """Whether the model of that digest was built from just that recipe."""
        return self._models.get(model) == {"digest": digest, "fingerprint": fingerprint}

    def note(self, model: str, digest: str, fingerprint: str) -> None:
        """The model of that digest is that recipe's."""
        noted = {"digest": digest, "fingerprint": fingerprint}
        if self._models.get(model) != noted:
            self._models[model] = noted
            self._save()

    def beside(self, name: str) -> Path:
        """Path of a working file of that name that nobody else writes."""
        if self._path is None:
            return Path(tempfile.gettempdir(), f"batos-{os.getpid()}-{id(self)}-{name}")
        return self._path.with_name(f"{self._path.stem}-{name}")

    async def digest_of(self, path: Path) -> str:
        """The digest of a file's content; read again, in a thread, only where its size or its time changed.

        :raises OSError: where it cannot be read.
        """
        stat = await asyncio.to_thread(path.stat)
        known = self._files.get(str(path))
        if known is not None and (known["size"], known["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            return str(known["digest"])
        digest = await asyncio.to_thread(digest_of, path)
        self._files[str(path)] = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "digest": digest}
        return digest

    def _load(self, path: Path) -> None:
        try:
            kept = json.loads(path.read_text("utf-8"))
            if kept["version"] == VERSION:
                self._models = {
                    str(m): {"digest": str(n["digest"]), "fingerprint": str(n["fingerprint"])} for m, n in kept["models"].items()
                }
                self._files = {
                    str(f): {"size": n["size"], "mtime_ns": n["mtime_ns"], "digest": str(n["digest"])} for f, n in kept["files"].items()
                }
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            log.warning("what the models were built from cannot be read; some are built again", path=str(path), error=repr(e))

    def _save(self) -> None:
        if self._path is None:
            return
        files = {name: noted for name, noted in self._files.items() if Path(name).exists()}
        try:
            private_files.make(self._path.parent)
            private_files.write(self._path, json.dumps({"version": VERSION, "models": self._models, "files": files}, indent=1))
        except OSError as e:
            log.warning(
                "what the models were built from cannot be kept; some are built again at the next start", path=str(self._path), error=str(e)
            )
