"""kill -9 while the vectors of another embedder are made, and the embedder another again and again: no vector is lost or mixed up."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from batos.memory.store import library_of
from tests.support import forked
from tests.support.crash import on_disk
from tests.support.memory import consistent

CHILD = Path(__file__).parents[1] / "support" / "embedder_child.py"
FILES, PARTS = 4, 25


class Held(NamedTuple):
    serving: str
    comes: str
    lacking: int


def looked_at(root: Any) -> Held:
    """Whose vectors searches use, whose come, and how many sections lack those. All must fit together."""
    library = library_of(root)
    consistent(library)
    change = library.change
    model = [identity.partition("@")[0].removeprefix("ollama:") for identity in (library.embedder, change.identity if change else "")]
    return Held(*model, len(change.waiting) - 1 if change else 0)


def child(folder: Path, model: str, *files: str) -> subprocess.Popen[str]:
    """A child that is open."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHILD.parents[2]), *sys.path])}
    process = forked.Popen([sys.executable, str(CHILD), str(folder), model, *files], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    while (line := process.stdout.readline()).strip() != "open":  # what is logged comes before it
        assert line, "the child has ended"
    return process


def test_killed_at_any_moment_of_a_change_of_embedder(tmp_path: Path) -> None:
    chance = random.Random(5)
    files = [tmp_path / f"note{n}.md" for n in range(FILES)]
    for path in files:
        path.write_text("".join(f"# Part {n} of {path.stem}\n\nWhat part {n} says, only {path.stem} says.\n\n" for n in range(PARTS)))
    whole = child(tmp_path, "a", *map(str, files))
    assert whole.communicate()[0].splitlines()[-1] == "done"
    was = on_disk(tmp_path, looked_at, "image.fs")
    assert was == ("a", "", 0)

    kept = False
    for life in itertools.count():
        if life >= 7 and kept:
            break
        model = "bbbcacc"[life] if life < 7 else was.comes or ("a" if was.serving == "b" else "b")
        process = child(tmp_path, model)
        time.sleep(chance.uniform(0.0, 0.25))  # not to wait for anything: the kill may come at any moment
        process.kill()
        process.communicate()
        now = on_disk(tmp_path, looked_at, "image.fs")
        assert now.serving in (was.serving, model)
        assert now.comes in ("", model, was.comes)
        if was.comes == now.comes == model:
            assert now.lacking <= was.lacking, "what was kept stays kept"
            kept |= now.lacking < was.lacking
        was = now

    whole = child(tmp_path, "b")
    assert whole.communicate()[0].splitlines()[-1] == "done"
    assert on_disk(tmp_path, looked_at, "image.fs") == ("b", "", 0)
