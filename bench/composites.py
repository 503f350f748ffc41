"""How often a message that is none of an API's operations is written, tried and performed right, at the first try.

The 40 messages (bench/composites.jsonl) are about BFCL's eight API classes, five each: two to four operations with a condition or a loop,
an intent in words and one example. They were written from the documents of the classes alone, before their author had seen how the forge
asks for methods. Each has a solution in calls of the class, and a second instance with other arguments and another state, which is not
shown. A document here also describes the answers of its operations, by the `Returns` of the docstrings.

For each message a connection is added, the example is taught, and the message is sent, on the state of the example and on the hidden one;
the first call that acts is allowed once where it is asked. A message is right where both results and both end states are those of the
solution, on fresh instances, by BFCL's own check of states.

The large model is played over HTTP by recorded answers (bench/composites_answers.jsonl): each was written by a fresh writer who saw
nothing but the prompt that the forge sends. A prompt without an answer is written to the folder `--prompts`, as `DIGEST.txt`, and its
message counts as not answered; `--record FOLDER` takes up the answers that lie there as `DIGEST.answer`. With `--model embedded` the
expert for methods of the embedded model writes instead, on a real Ollama.

Told are: `right`, at the first try; `right_later`, after a refusal that the forge itself gave; `kept_wrong`, kept and not right;
`refused`; `unanswered`; `asked`, questions that were answered; `seconds`.

    python bench/composites.py --json
    python bench/composites.py --prompts /tmp/prompts     # and, once there is an answer beside each of them:
    python bench/composites.py --record /tmp/prompts
    python bench/composites.py --model embedded
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import copy
import hashlib
import importlib
import inspect
import json
import re
import shutil
import sys
import tempfile
import threading
import time
import typing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agency import Mortal
from agency_world import Handler, LocalServer, Served
from tool_choice import BUILD, unpacked

from batos import logs
from batos.bridge.ollama_server import OllamaService
from batos.config import load
from batos.errors import BatosError, MissionPending
from batos.testing import ScriptedOllama
from batos.testing.ollama import EMBEDDED
from batos.wire import Client

HERE = Path(__file__).parent
WRITES = "You write one method of an object in Python."
"""Begin of the system prompt by which the forge asks a general model."""
WAIT_S = 120.0
SPEAKER = "speaker:8b"


class Message(NamedTuple):
    """A composite message."""

    id: str
    of: str
    """the class"""
    selector: str
    intent: str
    example: dict[str, Any]
    """`args`, `config` (the state before) and `result`"""
    hidden: dict[str, Any]
    solution: str
    """source of `solve(api, *args)`"""

    def named(self, case: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a case by name: a message is sent so."""
        names = re.findall(r"\w+", self.solution.partition("(")[2].partition(")")[0])[1:]
        return dict(zip(names, case["args"], strict=True))


def messages() -> list[Message]:
    """All composite messages."""
    lines = (HERE / "composites.jsonl").read_text("utf-8").splitlines()
    return [Message(**{"of" if name == "class" else name: value for name, value in json.loads(line).items()}) for line in lines]


# --- the world


class Api:
    """An instance as a solution calls it: answers are what HTTP would carry."""

    def __init__(self, instance: Any) -> None:
        self._instance = instance

    def __getattr__(self, name: str) -> Any:
        return lambda **arguments: json.loads(json.dumps(getattr(self._instance, name)(**arguments), default=str))


class Composite(Served):
    """A fresh instance for one call of a message, beside one on which the solution is played."""

    def __init__(self, message: Message, case: dict[str, Any]) -> None:
        config = copy.deepcopy(case["config"])
        if "comments" in config:  # JSON has no numbers as keys
            config["comments"] = {int(key): value for key, value in config["comments"].items()}
        task = {"involved_classes": [message.of], "initial_config": {message.of: config}}
        super().__init__(task)
        known = Served(task).instances
        scope: dict[str, Any] = {}
        exec(message.solution, scope)
        self.known, self.wanted = known, scope["solve"](Api(known[message.of]), *copy.deepcopy(case["args"]))

    def equal(self) -> str:
        """Return what the state differs in from that of the solution; empty if in nothing."""
        checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker").state_checker
        with self.lock:
            found = checker(self.instances, self.known)
        return "" if found["valid"] else repr(found.get("details", {}).get("differences", found))[:300]

    def document(self, number: int, base: str) -> dict[str, Any]:
        """The OpenAPI document, with the answers described."""
        document = super().document(number, base)
        document["info"]["title"] = next(iter(self.instances))
        for path, item in document["paths"].items():
            (operation,) = item.values()
            schema = answer_schema(getattr(next(iter(self.instances.values())), path.rpartition("/")[2]))
            operation["responses"]["200"]["content"]["application/json"] = {"schema": schema}
        return document


class OneWorld:
    """The place behind the handler: one instance at a time, which the bench exchanges."""

    current: Composite

    def served(self, _: int) -> Composite:
        """The instance."""
        return self.current

    def pause(self) -> None:
        """Take no time."""


_ENTRY = re.compile(r"^(\s*)(?:- )?(\w[\w()]*)\s*\(([^()]*(?:\[.*\])?)\)\s*:\s*(.+)$")
_ANSWERS: dict[str, Any] = {
    "get_order_history": {"history": {"type": "array", "items": {"type": "integer"}, "description": "IDs of the orders."}},
    "compute_exchange_rate": {"exchanged_value": {"type": "number", "description": "The value after the exchange."}},
    "send_message": {
        "sent_status": {"type": "boolean"}, "message_id": {"type": "object", "properties": {"new_id": {"type": "integer"}}},
        "message": {"type": "string", "description": "A message describing the result of the send attempt."},
    },
    "adjustClimateControl": {
        "currentACTemperature": {"type": "number"}, "climateMode": {"type": "string"}, "humidityLevel": {"type": "number"}
    },
}  # fmt: skip
"""Answers that the docstrings tell otherwise than the classes give them."""
_KEYED = frozenset({"booking_history", "credit_card_list"})
"""Objects whose keys are ids, each with what the docstring lists."""
_FLAT = frozenset({"check_tire_pressure", "displayCarStatus"})
"""Methods whose docstring lists what they answer below a name that the answer does not have."""
_LISTS = frozenset({"messages"})
"""Objects whose values are lists of texts."""


def answer_schema(method: Any) -> dict[str, Any]:
    """The schema of what a method answers, by its docstring. Where it was not done, all answer an object with `error`."""
    failed = {"error": {"type": "string", "description": "Why it was not done; only then it is there."}}
    if method.__name__ in _ANSWERS:
        return {"type": "object", "properties": _ANSWERS[method.__name__] | failed}
    told = (inspect.getdoc(method) or "").partition("Returns:")[2]
    if not told:
        return {"type": ["object", "null"], "properties": failed}
    found: list[tuple[int, str, dict[str, Any]]] = []
    for line in told.splitlines():
        if entry := _ENTRY.match(line):
            found.append((len(entry[1]), entry[2], _typed(entry[3], entry[4])))
    parts = _nested(found)
    if method.__name__ in _FLAT:
        (parts,) = (one["properties"] for one in parts.values())
    if str(inspect.signature(method).return_annotation).startswith("typing.List"):
        (only,) = list(parts.values())[:1]
        return only if only.get("type") == "array" else {"type": "array", "items": {"type": "object", "properties": parts}}
    may_be_none = type(None) in typing.get_args(inspect.signature(method).return_annotation)
    return {"type": ["object", "null"] if may_be_none else "object", "properties": parts | failed}


def _nested(found: list[tuple[int, str, dict[str, Any]]]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    while found:
        depth, name, schema = found.pop(0)
        inner = []
        while found and found[0][0] > depth:
            inner.append(found.pop(0))
        if inner or name in _LISTS:
            below = {"type": "object", "properties": _nested(inner)}
            if schema["type"] == "array":
                schema = schema | {"items": below}
            elif name in _LISTS:
                schema = schema | {"additionalProperties": {"type": "array", "items": {"type": "string"}}}
            else:
                schema = schema | ({"additionalProperties": below} if name in _KEYED else below)
        parts[name] = schema
    return parts


def _typed(said: str, about: str) -> dict[str, Any]:
    kinds = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "Dict": "object", "List": "array"}
    outer, _, inner = said.partition("[")
    schema: dict[str, Any] = {"type": kinds[outer], "description": about.strip()}
    if outer == "List":
        schema["items"] = {"type": kinds.get(inner.strip("]"), "object")}
    return schema


@contextlib.contextmanager
def world() -> Iterator[tuple[OneWorld, str]]:
    """A world and its URL, as long as the block lasts."""
    place = OneWorld()
    server = LocalServer(("127.0.0.1", 0), type("CompositeHandler", (Handler,), {"world": place}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield place, f"http://127.0.0.1:{server.server_address[1]}/tasks/0"
    finally:
        server.shutdown()
        server.server_close()


# --- the writer


class Recorded:
    """A model that answers each prompt as a fresh writer did, and keeps the prompts that nobody answered."""

    def __init__(self, file: Path, folder: Path | None) -> None:
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        self.answers = {one["prompt"]: one["answer"] for one in map(json.loads, lines)}
        self.folder, self.message, self.unanswered = folder, "", False

    def answer(self, request: dict[str, Any]) -> str:
        """Answer a request for a method."""
        system, user = (next(one["content"] for one in request["messages"] if one["role"] == role) for role in ("system", "user"))
        digest = hashlib.sha256(f"{system}\n\n{user}".encode()).hexdigest()[:16]
        known, self.unanswered = not self.unanswered, self.unanswered or digest not in self.answers
        if digest not in self.answers and known and self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / f"{digest}.json").write_text(json.dumps({"prompt": digest, "id": self.message, "system": system, "user": user}))
            (self.folder / f"{digest}.txt").write_text(f"{system}\n\n{user}\n")
        return str(self.answers.get(digest, "No answer."))


def record(folder: Path, answers: Path) -> None:
    """Take up the answers that lie beside prompts; an answer to a prompt that has one is replaced."""
    lines = answers.read_text("utf-8").splitlines() if answers.exists() else []
    known = {one["prompt"]: one for one in map(json.loads, lines)}
    for file in sorted(folder.glob("*.answer")):
        told = json.loads(file.with_suffix(".json").read_text("utf-8"))
        known[told["prompt"]] = {"id": told["id"], "prompt": told["prompt"], "answer": file.read_text("utf-8")}
    rows = sorted(known.values(), key=lambda one: (one["id"], one["prompt"]))
    answers.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), "utf-8")


# --- the measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    parser.add_argument("--only", default="", metavar="ID,ID", help="these messages")
    parser.add_argument("--model", choices=("recorded", "embedded"), default="recorded")
    parser.add_argument("--prompts", type=Path, help="folder for prompts that have no recorded answer")
    parser.add_argument("--record", type=Path, help="take up the answers that lie in this folder, before the measure")
    parser.add_argument("--answers", type=Path, default=HERE / "composites_answers.jsonl", help="file of recorded answers")
    parser.add_argument("--host", default="", help="of --model embedded: address of an Ollama that runs; default: one of its own")
    parser.add_argument("--data", type=Path, default=BUILD / "bfcl", help="folder of the unpacked package")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for the image")
    args = parser.parse_args()
    logs.configure("error", "json")
    if args.record is not None:
        record(args.record, args.answers)
    sys.path.insert(0, str(unpacked(args.data)))
    print(json.dumps(asyncio.run(measure(args))))


@contextlib.asynccontextmanager
async def writer(args: argparse.Namespace, folder: Path, recorded: Recorded) -> AsyncIterator[Mortal]:
    """A daemon that does not run yet, and the models that write, as long as the block lasts."""
    if args.model == "embedded":
        service = OllamaService(load({"data": folder, "ollama_host": args.host or "127.0.0.1:1"}, environ={}))
        more = {"inference.model": None, "inference.staging": HERE.parent / "lora_staging", "tools.offered": None}
        try:
            yield Mortal(folder / "0", await service.start(), 1, **more)
        finally:
            await service.stop()
        return
    with ScriptedOllama([*EMBEDDED, SPEAKER]) as server:
        server.say(recorded.answer, when=lambda request: str(request["messages"][0].get("content", "")).startswith(WRITES))
        yield Mortal(folder / "0", server.host, 1, **{"tools.offered": None})


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    begun, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    chosen = [one for one in messages() if not args.only or one.id in args.only.split(",")]
    tally: collections.Counter[str] = collections.Counter()
    faults = []
    recorded = Recorded(args.answers, args.prompts)
    with world() as (place, url):
        async with writer(args, folder, recorded) as daemon, Client(daemon.endpoint, timeout_s=WAIT_S) as client:
            await daemon.start()
            try:
                await client.tool_grant("allow", "*", leaks=True)
                for message in chosen:
                    recorded.message, recorded.unanswered = message.id, False
                    became, fault, tries = await one(client, place, url, message, tally)
                    if became == "refused" and recorded.unanswered:
                        became, fault = "unanswered", ""
                    if became == "right" and tries != 1:
                        became = "right_later"
                    tally[became] += 1
                    if fault:
                        faults.append(f"{message.id}: {fault}")
                    if not args.json:
                        print(f"{message.id}: {became}, {tries} tries; {fault}"[:600], flush=True)
            finally:
                await daemon.kill()
    shutil.rmtree(folder)
    return {
        "bench": "composites", "model": args.model, "messages": len(chosen),
        **{name: tally[name] for name in ("right", "right_later", "kept_wrong", "refused", "unanswered", "asked")},
        "faults": [fault[:300] for fault in faults], "seconds": round(time.monotonic() - begun),
    }  # fmt: skip


async def one(client: Client, place: OneWorld, url: str, message: Message, tally: collections.Counter[str]) -> tuple[str, str, int]:
    """Have one message taught and sent; return what became of it, the fault, and how many tries the writer had."""
    name = message.of.lower()
    place.current = Composite(message, message.example)
    await client.tool_add(name, "openapi", f"{url}/openapi.json", {})
    try:
        example = {"kwargs": message.named(message.example), "result": message.example["result"]}
        lesson = await client.teach(f"tools.{name}", message.selector, [example], intent=message.intent)
        try:
            await _ended(client, lesson.id, tally)
        except BatosError as e:
            return "refused", e.message, 0
        tries = (await client.method(f"tools.{name}", message.selector))["versions"][0]["provenance"]["tries"]
        for which, case in (("example", message.example), ("hidden", message.hidden)):
            place.current = current = Composite(message, case)
            if case["result"] != current.wanted:
                raise SystemExit(f"{message.id}: the solution answers {current.wanted!r} to the {which} case, and not {case['result']!r}")
            try:
                sent = await client.send_message(f"tools.{name}", message.selector, (), message.named(case), id=f"{message.id}-{which}")
                value = (await _ended(client, sent.id, tally))["value"]
            except BatosError as e:
                return "kept_wrong", f"{which}: {e.message}", tries
            if value != current.wanted:
                return "kept_wrong", f"{which}: answered {value!r} and not {current.wanted!r}", tries
            if fault := current.equal():
                return "kept_wrong", f"{which}: left another state: {fault}", tries
        return "right", "", tries
    finally:
        await client.tool_remove(name)


async def _ended(client: Client, id: str, tally: collections.Counter[str]) -> dict[str, Any]:
    """The result of a mission, whose questions are answered with leave for this once."""
    while True:
        for one in (await client.status(id)).get("questions", ()):
            if one["answer"] is None:
                tally["asked"] += 1
                await client.answer(id, "once")
        with contextlib.suppress(MissionPending):
            return await client.result(id, timeout_s=0.2)


if __name__ == "__main__":
    main()
