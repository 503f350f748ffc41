"""How often a brief becomes the right tool call on a small model, and how often none where no tool fits.

The tasks are those of the Berkeley Function Calling Leaderboard (`bfcl-eval` on PyPI, Apache 2.0), which is unpacked without its
dependencies into build/: simple_python (400), multiple (200), irrelevance (240). A call is right where BFCL's own check of the syntax tree
says so. Half of each set is kept back: rules and limits were tuned on the others alone. Sets share questions, so a question is `tuned`
where any task with an even number asks it, else `held`.

Told are, by set and half: `function`, right by likeness alone; `rules`, all arguments right by rules alone, for the right function;
`likeness`, the same with the embedder; `unasked`, right function and all arguments where the model is not asked; `chosen`, the same with
the model for what is left open; `called`, any call; `none`, no call; `asked`, inferences.
`--alone N`: beside it, N tasks of each set whose arguments the model alone fills in.

    python bench/tool_choice.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import hashlib
import importlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import types
import zipfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batos import logs
from batos.bridge.client import OllamaInference, connect
from batos.bridge.inference import ChatReply, ChatRequest
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.config import load
from batos.mind.argument_reader import read_arguments
from batos.mind.text_likeness import TextLikeness
from batos.mind.tool_choice import ChoiceServices, ToolChoice, ToolOffer, choose, offered
from batos.tools.definitions import ToolDefinition

PACKAGE = "bfcl-eval==2026.3.23"
BUILD = Path(__file__).parents[1] / "build"
SETS = ("simple_python", "multiple", "irrelevance")
HALVES = ("tuned", "held")
DEADLINE_S = 600.0


@dataclass(frozen=True)
class Task:
    """A question with the functions that are offered, in BFCL's form, and the answer; none for irrelevance."""

    set: str
    id: str
    text: str
    half: str
    functions: list[dict[str, Any]]
    answer: list[Any]

    @property
    def right(self) -> str:
        """Name of the function that is to be called."""
        return next(iter(self.answer[0])) if self.answer else ""

    def offers(self) -> list[ToolOffer]:
        """The functions as tools."""
        found = []
        for told in self.functions:
            tool = ToolDefinition(name=told["name"], description=told["description"], parameters=_schema(told["parameters"]))
            found.append(ToolOffer(told["name"], tool))
        return found


def unpacked(folder: Path) -> Path:
    """The unpacked package, which is fetched where it is not there."""
    if not (folder / "bfcl_eval").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE], check=True)
        with zipfile.ZipFile(next(folder.glob("bfcl_eval-*.whl"))) as wheel:
            wheel.extractall(folder)
    return folder


def tasks_of(folder: Path) -> list[Task]:
    """All tasks."""

    def lines(path: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (folder / "bfcl_eval" / "data" / path).read_text("utf-8").splitlines()]

    read = {name: lines(f"BFCL_v4_{name}.json") for name in SETS}
    answers = {one["id"]: one["ground_truth"] for name in SETS[:2] for one in lines(f"possible_answer/BFCL_v4_{name}.json")}

    def text(one: dict[str, Any]) -> str:
        return str(one["question"][0][-1]["content"])

    even = {text(one) for told in read.values() for one in told if int(one["id"].rsplit("_", 1)[1]) % 2 == 0}
    return [
        Task(name, one["id"], text(one), "tuned" if text(one) in even else "held", one["function"], answers.get(one["id"], []))
        for name, told in read.items()
        for one in told
    ]


def _types() -> dict[str, str]:
    return dict(importlib.import_module("bfcl_eval.constants.type_mappings").GORILLA_TO_OPENAPI)


def _schema(told: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema of a description in BFCL's own types, as BFCL makes it for models with tool calling."""
    made = {name: value for name, value in told.items() if name != "optional"}
    if "type" in made:
        made["type"] = _types().get(made["type"], "string")
    if "properties" in made:
        made["properties"] = {name: _schema(value) for name, value in made["properties"].items()}
    if "items" in made:
        made["items"] = _schema(made["items"])
    return made


def _checker(folder: Path) -> Callable[..., dict[str, Any]]:
    """BFCL's check, imported without the handlers of all its models, which need thirty packages."""
    sys.path.insert(0, str(folder))
    models: Any = types.ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = {"batos": types.SimpleNamespace(underscore_to_dot=False)}
    sys.modules[models.__name__] = models
    found = importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
    return found.ast_checker  # type: ignore[no-any-return]


class Scorer:
    """Says whether calls are right."""

    def __init__(self, folder: Path) -> None:
        self._check = _checker(folder)
        self._python = importlib.import_module("bfcl_eval.constants.enums").Language.PYTHON

    def right(self, task: Task, calls: Sequence[tuple[str, dict[str, Any]]]) -> bool:
        """Whether a task's calls are right. JSON has one type of number: a whole one counts as a float where a float is declared."""
        told = {one["name"]: one["parameters"]["properties"] for one in task.functions}
        output = [{name: {key: _floats(value, told[name].get(key, {})) for key, value in given.items()}} for name, given in calls]
        try:
            return bool(self._check(task.functions, output, task.answer, self._python, task.set, "batos")["valid"])
        except (KeyError, TypeError, IndexError, AttributeError):  # it fails on values of some wrong types
            return False


def _floats(value: Any, told: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_floats(one, told.get("items", {})) for one in value]
    return float(value) if told.get("type") == "float" and type(value) is int else value


class Remembered:
    """An inference whose answers and vectors are kept in a file: each is asked for once."""

    def __init__(self, inference: OllamaInference, file: Path) -> None:
        self._inference = inference
        file.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(file)
        self._db.execute("create table if not exists known (key text primary key, value text)")
        self.asked = 0

    async def embed(self, model: str, texts: Sequence[str], *, deadline_s: float) -> list[list[float]]:
        digest = await self._inference.digest(model)
        keys = {text: hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest() for text in texts}
        found = {text: json.loads(value) for text in keys if (value := self._known(keys[text])) is not None}
        missing = [text for text in keys if text not in found]
        if missing:
            found |= zip(missing, await self._inference.embed(model, missing, deadline_s=deadline_s), strict=True)
            self._keep({keys[text]: found[text] for text in missing})
        return [found[text] for text in texts]

    async def chat(self, request: ChatRequest, *, deadline_s: float) -> ChatReply:
        self.asked += 1
        digest = await self._inference.digest(request.model)
        said = json.dumps([digest, request.system, request.user, request.schema, request.options], sort_keys=True)
        key = hashlib.sha256(said.encode()).hexdigest()
        if (known := self._known(key)) is not None:
            return ChatReply(json.loads(known), request.model)
        reply = await self._inference.chat(request, deadline_s=deadline_s)
        self._keep({key: reply.text})
        return reply

    def _known(self, key: str) -> str | None:
        row = self._db.execute("select value from known where key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def _keep(self, values: dict[str, Any]) -> None:
        with self._db:
            self._db.executemany("insert or replace into known values (?, ?)", [(key, json.dumps(value)) for key, value in values.items()])


@dataclass(frozen=True)
class Bench:
    """What the tasks are put to."""

    inference: Remembered
    likeness: TextLikeness
    model: str
    options: dict[str, Any]
    scorer: Scorer

    async def ask(self, prompt: str, schema: dict[str, Any] | None) -> str:
        """The model's answer, at temperature 0."""
        options = tuple(sorted({**self.options, "temperature": 0.0, "seed": 1}.items()))
        return (await self.inference.chat(ChatRequest(self.model, "", prompt, schema, options), deadline_s=DEADLINE_S)).text

    async def chosen(self, task: Task) -> ToolChoice:
        """What is chosen for a task, as a mission on the embedded model would."""
        return await choose(task.text, task.offers(), ChoiceServices(likeness=self.likeness, ask=self.ask))

    async def measure(self, task: Task) -> dict[str, bool]:
        """What is right of a task."""
        choice = await self.chosen(task)
        calls = [(call.name, call.arguments) for call in choice.calls]
        if not task.answer:
            return {"none": not calls}
        offers = task.offers()
        best, _ = (await offered(task.text, offers, 1, self.likeness))[0]
        own = next(offer for offer in offers if offer.name == task.right)
        about = f"{own.tool.name} {own.tool.description}"
        rules = read_arguments(task.text, own.tool.parameters, about)
        alike = await own_reading(task.text, own, self.likeness)
        unasked = await choose(task.text, offers, ChoiceServices(likeness=self.likeness))
        return {
            "function": best.name == task.right,
            "rules": self.scorer.right(task, [(task.right, rules.arguments)]),
            "likeness": self.scorer.right(task, [(task.right, alike)]),
            "unasked": self.scorer.right(task, [(call.name, call.arguments) for call in unasked.calls]),
            "chosen": self.scorer.right(task, calls),
            "called": bool(calls),
        }

    async def alone(self, task: Task) -> bool:
        """Whether the model alone fills in the arguments of the right function."""
        own = next(offer for offer in task.offers() if offer.name == task.right)
        told = [f"- {name}: {one.get('description', '')}" for name, one in own.tool.parameters["properties"].items()]
        prompt = "\n".join(
            (f"Request: {task.text}", f"Tool: {own.tool.line()}", *told, "Fill in from the request. Answer with one JSON object.")
        )
        try:
            given = json.loads(await self.ask(prompt, {**own.tool.parameters, "additionalProperties": False}))
        except ValueError:
            return False
        return isinstance(given, dict) and self.scorer.right(task, [(task.right, given)])


async def own_reading(text: str, offer: ToolOffer, likeness: TextLikeness) -> dict[str, Any]:
    """The arguments that rules and likeness read."""
    choice = await choose(text, [offer], ChoiceServices(likeness=likeness), floor=-1.0)
    return choice.calls[0].arguments if choice.calls else {}


async def measure(bench: Bench, tasks: list[Task], alone: int) -> dict[str, Any]:
    """All figures, by set and half."""
    line: dict[str, Any] = {}
    for name in SETS:
        for half in HALVES:
            own = [task for task in tasks if task.set == name and task.half == half]
            if not own:
                continue
            asked = bench.inference.asked
            sums: collections.Counter[str] = collections.Counter()
            for task in own:
                sums.update(await bench.measure(task))
            figures = {key: round(count / len(own), 3) for key, count in sums.items()}
            line[f"{name}_{half}"] = {"n": len(own), **figures, "asked": bench.inference.asked - asked}
            if alone and name != "irrelevance":
                some = own[:: max(1, len(own) * 2 // alone)]
                line[f"{name}_{half}"]["model_alone"] = f"{sum([await bench.alone(task) for task in some])} of {len(some)}"
    return line


@contextlib.asynccontextmanager
async def started(args: argparse.Namespace) -> AsyncIterator[Bench]:
    """The profile's models on the Ollama that `args` name, or on one that lasts as long as the block."""
    profile = load_profile(args.profile)
    with tempfile.TemporaryDirectory(prefix="batos-bench-", dir=args.dir) as folder:
        service = OllamaService(load({"data": folder, "ollama_host": args.host or "127.0.0.1:1"}, environ={}))
        host = await service.start()
        try:
            async with connect(host) as client:
                await Provisioner(client, profile, modelfiles_folder()).ensure()
            inference = OllamaInference(host)
            try:
                kept = Remembered(inference, args.kept)
                likeness = TextLikeness(kept, profile.embedder, deadline_s=DEADLINE_S)  # type: ignore[arg-type]
                yield Bench(kept, likeness, args.model or profile.base, dict(profile.options), Scorer(args.data))
            finally:
                await inference.close()
        finally:
            await service.stop()


async def run(args: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    sys.path.insert(0, str(unpacked(args.data)))
    tasks = [task for task in tasks_of(args.data) if args.half in ("both", task.half)]
    async with started(args) as bench:
        figures = await measure(bench, tasks, args.alone)
        return {"bench": "tool_choice", "model": bench.model, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    parser.add_argument("--host", default="", help="address of an Ollama that runs; default: one of its own")
    parser.add_argument("--profile", default="embedded")
    parser.add_argument("--model", default="", help="for what the rules leave open; default: the profile's base")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--alone", type=int, default=0, metavar="N", help="tasks of each set whose arguments the model alone fills in")
    parser.add_argument("--data", type=Path, default=BUILD / "bfcl", help="folder of the unpacked package")
    parser.add_argument("--kept", type=Path, default=BUILD / "tool_choice" / "answers.db", help="file of answers and vectors")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models, 300 MB")
    args = parser.parse_args()
    logs.configure("error", "json")
    figures = asyncio.run(run(args))
    if not args.json:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
