"""The expert that is shipped, on a real Ollama: plain tasks are understood, on a machine that has nothing but BAT OS."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batos.app.kernel import Kernel
from batos.bridge.client import connect
from batos.config import Settings
from batos.image import taught_examples
from batos.image.model_registry import speaks_methods
from tests.support.daemon import ROOT

SHIPPED = ROOT / "lora_staging" / "method-writer"
WAIT_S = 120
TASKS: list[tuple[str, str, list[Any], dict[str, Any], dict[str, Any], Any]] = [
    # selector, intent, arguments, slots, an example, what must come of it
    ("count_words_", "count the words of a text", ["the cat sat on the mat"], {}, {"args": ["a b c"], "result": 3}, 6),
    ("largest_", "largest of a list", [[3, 9, 4]], {}, {"args": [[1, 5, 2]], "result": 5}, 9),
    ("smallest_", "smallest of a list", [[3, 9, 4]], {}, {"args": [[7, 5, 8]], "result": 5}, 3),
    (
        "add_to_total_", "add to a running total", [5], {"total": 10},
        {"args": [1], "result": 3, "slots": {"total": 2}, "after": {"total": 3}}, 15,
    ),
    ("sum_of_", "the sum of the list", [[3, 9, 4]], {}, {"args": [[1, 5, 2]], "result": 8}, 16),
    ("average_", "the average of the numbers", [[3, 9, 6]], {}, {"args": [[2, 4]], "result": 3}, 6),
    ("reverse_text_", "reverse the text", ["bat"], {}, {"args": ["abc"], "result": "cba"}, "tab"),
    ("shout_", "the text in upper case", ["bat os"], {}, {"args": ["abc"], "result": "ABC"}, "BAT OS"),
    ("sort_ascending_", "sort the numbers from small to large", [[3, 9, 4]], {}, {"args": [[2, 1]], "result": [1, 2]}, [3, 4, 9]),
    ("count_items_", "count the items of a list", [["a", "b"]], {}, {"args": [[1, 2, 3]], "result": 3}, 2),
    ("longest_word_", "the longest word of a text", ["a bat flies"], {}, {"args": ["one three"], "result": "three"}, "flies"),
    ("is_even_", "tell whether the number is even", [4], {}, {"args": [3], "result": False}, True),
]  # fmt: skip


@pytest.fixture
def staging(tmp_path: Path, ollama_host: str) -> Iterator[Path]:
    """A staging folder with what is shipped, under a name of its own on the shared Ollama."""
    name = f"writer-{uuid.uuid4().hex[:8]}"
    folder = tmp_path / "lora_staging" / name
    shutil.copytree(SHIPPED, folder)
    about = folder / "expert.toml"
    about.write_text(about.read_text().replace('name = "method-writer"', f'name = "{name}"'))
    yield folder.parent

    async def remove() -> None:
        async with connect(ollama_host) as client:
            for model in (await client.list()).models:
                if model.model and name in model.model:
                    await client.delete(model.model)

    asyncio.run(remove())


async def ended(kernel: Kernel, name: str, target: str, selector: str, args: list[Any]) -> dict[str, Any]:
    """The end of a mission that sends a message."""
    end: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    kernel.events.watch(name, lambda event: end.set_result(event) if event["type"] == "result" and not end.done() else None)
    message = {"target": target, "selector": selector, "args": args, "kwargs": {}}
    await kernel.scheduler.submit(name, f"send {selector}", {"message": json.dumps(message)})
    async with asyncio.timeout(WAIT_S):
        return await end


def place(root: Any) -> None:
    """System transaction: an object with what the tasks need, its intents and an example of each."""
    lobby = root["lobby"]
    lobby.thing = thing = lobby.genesis.derive(name="thing", **{name: held for task in TASKS for name, held in task[3].items()})
    root._p_jar.add(thing)
    for selector, intent, _, _, example, _ in TASKS:
        taught_examples.teach(root, thing._p_oid, selector, [example], intent, 8)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", [{"synthesis_reuse": 0, "synthesis_parts": 0}, {}], ids=["by the model alone", "as it is shipped"])
async def test_plain_tasks_and_the_sages_koan_are_understood(tmp_path: Path, ollama_host: str, staging: Path, how: dict[str, Any]) -> None:
    settings = Settings(
        data=tmp_path, ollama_host=ollama_host, autotelic="off", remember="off", lora_staging=str(staging), lora_settle_s=0, num_predict=96,
        **how,
    )  # fmt: skip
    kernel = await Kernel.start(settings, listen=False)
    try:
        assert kernel.substrate.factory is not None
        await kernel.substrate.places[0].provisioner.ready("brick:embedded")  # what it is built on
        await kernel.substrate.factory.scan_settled()
        expert = kernel.image.read(speaks_methods)
        assert expert.startswith("brick:writer-"), kernel.substrate.factory.report()
        await kernel.image.system(place)
        done: dict[str, Any] = {}
        for selector, _, args, _, _, _ in TASKS:
            end = await ended(kernel, selector, "thing", selector, args)
            done[selector] = end["result"]["value"] if end["state"] == "COMPLETE" else end["error"]["message"]
        assert done == {selector: wanted for selector, _, _, _, _, wanted in TASKS}
        koan = await ended(kernel, "koan", "robin", "sages_koan_protocol_", ["I am stuck"])
        assert koan["state"] == "COMPLETE", koan
        assert koan["result"]["text"].strip()
        written = kernel.image.read(lambda root: root["lobby"].robin._slots["sages_koan_protocol_"].source)
        assert "self.think_(" in written
        assert "playful paradox" in written, "it thinks by the intent of the protocol"
    finally:
        await kernel.stop()
