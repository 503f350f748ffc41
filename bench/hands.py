"""How many operations of APIs that the system never saw it performs as messages, by rule and without a model.

The APIs are the eight stateful classes of the Berkeley Function Calling Leaderboard behind OpenAPI documents on loopback
(bench/agency_world.py). Each task's document is added as a connection; each known call of its turns is then sent to that connection's
object as a message (`send`), one mission a call: by turns as one JSON object, by name, and in the order of the schema. The selectors are
those that the daemon lists (`show tools.NAME`). The same calls with one argument of another type must be refused before a mission is
accepted.

Told are: `right`, calls that were carried out once with the known arguments and ended COMPLETE, of `calls`; `equal`, the tasks whose states
equal those of the known calls after every turn, by BFCL's own check; `operations`, those that were called, and `offered`, all that the
classes have (for the others BFCL knows no call); `refused`, wrong calls that were refused at once, of `wrong`; `inferences`, requests to a
model; `added_ms`, from a document to its connection, and `call_ms`, medians.

    python bench/hands.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from agency import Mortal, world_of
from agency_world import canonical, known_tasks
from tool_choice import BUILD, unpacked

from batos import logs
from batos.errors import BatosError, InvalidInput
from batos.testing import ScriptedOllama
from batos.testing.ollama import EMBEDDED
from batos.wire import Client

CALL_S = 60.0
_FORMS = ("object", "names", "order")


@dataclass
class Tally:
    """What came of the calls."""

    equal: int = 0
    faults: list[str] = field(default_factory=list)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    called: set[tuple[str, str]] = field(default_factory=set)
    offered: set[tuple[str, str]] = field(default_factory=set)
    added_ms: list[float] = field(default_factory=list)
    call_ms: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200, help="so many, spread over all")
    parser.add_argument("--data", type=Path, default=BUILD / "bfcl", help="folder of the unpacked package")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    args.slow, args.seed = 0.0, 1
    sys.path.insert(0, str(unpacked(args.data)))
    print(json.dumps(asyncio.run(measure(args))))


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    tasks, tally, begun = known_tasks(args.data), Tally(), time.monotonic()
    chosen = list(tasks)[:: max(1, len(tasks) // args.tasks)][: args.tasks]
    folder = Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    with ScriptedOllama(EMBEDDED) as model:
        daemon = Mortal(folder / "0", model.host, args.seed)
        async with world_of(args, args.slow) as world, httpx.AsyncClient(timeout=60) as web:
            await daemon.start()
            try:
                async with Client(daemon.endpoint, timeout_s=CALL_S) as client:
                    await client.tool_grant("allow", "*", leaks=True)
                    for number in chosen:
                        await _play(client, web, f"{world}/tasks/{number}", f"{world}/control/{number}", tasks[number], tally)
                        if not args.json:
                            print(f"task {number}: {tally.counts['right']} of {tally.counts['calls']} right", flush=True)
            finally:
                await daemon.kill()
        inferences = len(model.chats)
    shutil.rmtree(folder)
    return {
        "bench": "hands", "tasks": len(chosen), "equal": tally.equal, "calls": tally.counts["calls"], "right": tally.counts["right"],
        "operations": len(tally.called), "offered": len(tally.offered), "wrong": tally.counts["wrong"], "refused": tally.counts["refused"],
        "inferences": inferences, "added_ms": round(statistics.median(tally.added_ms)), "call_ms": round(statistics.median(tally.call_ms)),
        "faults": tally.faults[:10], "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


async def _play(client: Client, web: httpx.AsyncClient, url: str, control: str, task: dict[str, Any], tally: Tally) -> None:
    """Send the known calls of a task; note what came of them."""
    name = f"t{url.rpartition('/')[2]}"
    began = time.perf_counter()
    await client.tool_add(name, "openapi", f"{url}/openapi.json", {})
    tally.added_ms.append(1000 * (time.perf_counter() - began))
    document = (await web.get(f"{url}/openapi.json")).json()
    classes = {path.rpartition("/")[2]: path.split("/")[1] for path in document["paths"]}
    tally.offered |= {(of, method) for method, of in classes.items()}
    selectors = {one["tool"]: one["message"] for one in (await client.show(f"tools.{name}"))["understands"]}
    tools = {one["name"]: one for one in (await client.tools(name))["connections"][0]["tools"]}
    valid, sent = True, 0
    for turn, calls in enumerate(task["calls"]):
        for at, (method, arguments) in enumerate(calls):
            tally.counts["calls"] += 1
            tally.called.add((classes[method], method))
            known = list(tools[method]["parameters"]["properties"])
            await _wrong(client, name, selectors.get(method, method), arguments, tools[method]["parameters"], tally)
            began = time.perf_counter()
            fault = await _send(client, name, selectors.get(method, method), arguments, known, f"{name}-{turn}-{at}", tally.counts["calls"])
            tally.call_ms.append(1000 * (time.perf_counter() - began))
            done = [tuple(one) for one in (await web.get(control)).json()["done"]]
            if not fault and done[sent:] != [(method, canonical(arguments))]:
                fault = f"carried out was {done[sent:]}"
            sent = len(done)
            if fault:
                tally.faults.append(f"{name}.{method}({canonical(arguments)}): {fault}"[:400])
            else:
                tally.counts["right"] += 1
        valid = (await web.post(control, json={"turn": turn})).json()["valid"] and valid
    tally.equal += valid
    await client.tool_remove(name)


async def _send(client: Client, name: str, selector: str, arguments: dict[str, Any], known: list[str], id: str, number: int) -> str:
    """Send a call as a message; return why it failed, if so."""
    form = _FORMS[number % len(_FORMS)]
    if form == "order" and list(arguments) != known[: len(arguments)]:
        form = "names"  # one is left out
    args = {"object": [arguments], "names": [], "order": list(arguments.values())}[form]
    try:
        await client.send_message(f"tools.{name}", selector, args, arguments if form == "names" else {}, id=id)
        await client.result(id, timeout_s=CALL_S)
    except BatosError as e:
        return f"{form}: {e.message}"
    return ""


async def _wrong(client: Client, name: str, selector: str, arguments: dict[str, Any], schema: dict[str, Any], tally: Tally) -> None:
    """Send a call whose first argument is of another type: it must be refused at once."""
    if not arguments:
        return
    first = next(iter(arguments))
    other: Any = "five" if schema["properties"][first].get("type") == "object" else {"five": 5}
    tally.counts["wrong"] += 1
    try:
        await client.send_message(f"tools.{name}", selector, [], {**arguments, first: other})
    except InvalidInput:
        tally.counts["refused"] += 1


if __name__ == "__main__":
    main()
