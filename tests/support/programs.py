"""Programs in the place of real ones."""

from __future__ import annotations

from pathlib import Path


def command(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
