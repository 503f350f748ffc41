"""What an Ollama that does not run has in its folder: the models that it will list once it is started."""

from __future__ import annotations

import json
from pathlib import Path

from batos.bridge.names import tagged


def kept(folder: Path) -> frozenset[str]:
    """Names of the models in a folder of Ollama's (`OLLAMA_MODELS`) that are there with all their blobs."""
    manifests = folder / "manifests"
    try:
        found = [path for path in manifests.glob("*/*/*/*") if path.is_file()]
    except OSError:
        return frozenset()
    return frozenset(_name(path.relative_to(manifests).parts) for path in found if _is_whole(path, folder / "blobs"))


def _name(parts: tuple[str, ...]) -> str:
    *before, tag = parts
    return tagged(f"{'/'.join(before)}:{tag}")


def _is_whole(manifest: Path, blobs: Path) -> bool:
    try:
        told = json.loads(manifest.read_text("utf-8"))
        parts = [told["config"], *told["layers"]]
        return all((blobs / part["digest"].replace(":", "-")).stat().st_size == part["size"] for part in parts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # it is read as well as can be; Ollama itself will say more
        return False
