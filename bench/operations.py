"""Operations that a catalogue offers for a brief, and what reading a description costs. No model is asked but the embedder.

Ends with one JSON line.

`recall` is measured on RestBench (repository Yifan-Song793/RestGPT: `specs/tmdb_oas.json`, `specs/spotify_oas.json`, `datasets/tmdb.json`,
`datasets/spotify.json`, all four in the folder `--restbench`): the share of tasks of which ALL operations of the known solution are in
the 8 lines that a model is offered which uses tools by itself: operations that read parts of one resource share a line, at most four. Names
of path parameters do not count. Tasks of even numbers are `tuned`: what the rules are was chosen by looking at them; those of odd numbers
are `held`. `words` is the same without an embedder, and `single` that of 8 lines with one operation each, which rules choose from for any
other model. `forms`: tokens of the 8 functions that are sent, and of 8 with one operation each, at 4 characters a token, on average.
`unknown`: tasks that name an operation which the document does not have; they count as missed.

`told` is the same for the prompt in which a method of the connection is asked for: all operations of the known solution stand in it, of
those that have room (`SynthesisLimits.tool_chars`); words alone choose them.

`prompt`: tokens of one line each for all operations of a document, at 4 characters a token (`chars`) and by the embedded model's own
tokenizer (`tokens`). By the same tokenizer, `method` is what the prompt for a method of the connection has of operations, and `offer` the
functions that a mission sends a model which uses tools by itself; both are of the task of which they have their median length.

`answer_s`: median seconds from a document at a URL to the answer of a reading operation, without a model: the document is fetched, read,
checked and pinned in an image, a call is checked, sent and answered (over loopback). It is of a document of a few lines, and for each
part of RestBench of its own document (`kib`: its size). `--answers` measures nothing else. `documents`, with
`--documents FOLDER`: of each document there its operations, the seconds to read it, the mebibytes that the process grew by beyond what it
is after its imports, and how many operations are left out; or why it is refused.

`picks`: whether a large model picks the operations out of what it is offered, of every third task all of whose operations are offered in
both forms. `--prompts FOLDER` writes what it is sent, as `NAME-FORM.json`; a fresh writer who sees nothing else puts the calls of the whole
solution beside it, as `NAME-FORM.picks` (a list of [function, arguments]); `--picks FOLDER` counts those in which all known operations are.

`usages`, with `--usages 'PROGRAM …'`: of each program on this machine the operations that rules read of its usage, or why they do not, and
the seconds; `by_rule` counts those that are read.

    python bench/operations.py --json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

from tool_choice import BUILD, DEADLINE_S, HALVES, Remembered

from batos import logs
from batos.bridge.client import OllamaInference, connect
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.config import load
from batos.errors import BatosError, InvalidInput
from batos.forge import tool_prompts
from batos.forge.method_prompts import SynthesisLimits
from batos.image.effects import READS
from batos.image.identity import ActingState
from batos.image.living_image import LivingImage
from batos.mind.text_likeness import TextLikeness
from batos.mind.tool_choice import OFFERED, ToolOffer, functions_of, offered, offered_lines
from batos.tools import connections, descriptions, openapi_document, openapi_files
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolLimits, check_definitions
from batos.tools.toolbox import Toolbox

SETS = ("tmdb", "spotify")
Lines = Callable[[str], Awaitable[list[tuple[ToolOffer, ...]]]]
"""Lines that are offered for a brief."""


class Task(NamedTuple):
    """A request, with the operations of its known solution, as `METHOD /path/{}`."""

    text: str
    half: str
    gold: frozenset[str]


class Catalogue(NamedTuple):
    """The operations of a document."""

    offers: list[ToolOffer]
    tasks: list[Task]

    def operations(self, chosen: Sequence[ToolOffer]) -> set[str]:
        """The operations of some tools, in the form of the tasks."""
        return {_form(f"{one.tool.details['method']} {one.tool.details['path']}") for one in chosen}


def _form(operation: str) -> str:
    return re.sub(r"\{[^{}]*\}", "{}", operation.strip())


def catalogue(folder: Path, name: str) -> Catalogue:
    """One part of RestBench."""
    offers = [ToolOffer(f"{name}.{tool.name}", tool) for tool in _read(folder / "specs" / f"{name}_oas.json").tools]
    told = json.loads((folder / "datasets" / f"{name}.json").read_text("utf-8"))
    tasks = [Task(one["query"], HALVES[at % 2], frozenset(map(_form, one["solution"]))) for at, one in enumerate(told)]
    return Catalogue(offers, tasks)


def _read(file: Path, document: dict[str, Any] | None = None, files: dict[str, Any] | None = None) -> openapi_document.OpenApiReading:
    document = document or openapi_document.parsed(file.read_bytes(), str(file))
    return openapi_document.read(document, next(iter(openapi_document.servers(document, "")), "").rstrip("/"), files=files)


def _whole(file: Path) -> openapi_document.OpenApiReading:
    """The reading of a document, with the files that it refers to."""
    place = str(file.resolve())
    document = openapi_document.parsed(file.read_bytes(), place)
    load = lambda at: asyncio.to_thread(openapi_files.file_bytes, at, place)  # noqa: E731
    return _read(file, document, asyncio.run(openapi_files.gathered(document, place, load)))


async def recall(held: Catalogue, lines: Lines, missed: list[str]) -> dict[str, Any]:
    """Tasks of which all operations are in the lines, by half, and what the lines cost."""
    found, chars = dict.fromkeys(HALVES, 0), 0
    for task in held.tasks:
        shown = await lines(task.text)
        offers = held.operations([offer for line in shown for offer in line])
        chars += len(json.dumps([one.form() for one in functions_of(shown).values()]))
        found[task.half] += task.gold <= offers
        if not task.gold <= offers and task.half == HALVES[0]:
            missed.append(f"{task.text}: lacks {sorted(task.gold - offers)}; offered {sorted(offers)}")
    of = {half: sum(task.half == half for task in held.tasks) for half in HALVES}
    return {half: f"{found[half]} of {of[half]}" for half in HALVES} | {"forms": chars // (4 * len(held.tasks))}


def shared(held: Catalogue, likeness: TextLikeness | None) -> Lines:
    """The lines that a model is offered which uses tools by itself."""
    return lambda text: offered_lines(text, held.offers, OFFERED, likeness)


def single(held: Catalogue, likeness: TextLikeness | None) -> Lines:
    """Lines of one operation each."""

    async def lines(text: str) -> list[tuple[ToolOffer, ...]]:
        return [(offer,) for offer, _ in await offered(text, held.offers, OFFERED, likeness)]

    return lines


async def told(name: str, held: Catalogue) -> dict[str, str]:
    """Tasks all of whose operations stand in the prompt for a method of the connection, by half."""
    found, limits = dict.fromkeys(HALVES, 0), SynthesisLimits()
    for task in held.tasks:
        tools = await tool_prompts.ranked(name, [offer.tool for offer in held.offers], task.text, OFFERED)
        lines = tool_prompts.operation_lines(name, tools, OFFERED, limits.tool_chars)
        shown = {tool.name for tool in tools[: len(lines)]}
        found[task.half] += task.gold <= held.operations([offer for offer in held.offers if offer.tool.name in shown])
    return {half: f"{found[half]} of {sum(task.half == half for task in held.tasks)}" for half in HALVES}


async def prompt(name: str, held: Catalogue, lines: Lines, host: str, model: str) -> dict[str, int]:
    """What operations cost a prompt: a line for each of them, and what the prompt for a method and a mission's offer have of them."""
    text = "\n".join(offer.tool.line() for offer in held.offers)
    methods, offers = list[str](), list[str]()
    for task in held.tasks:
        tools = await tool_prompts.ranked(name, [offer.tool for offer in held.offers], task.text, OFFERED)
        methods.append("\n".join(tool_prompts.operation_lines(name, tools, OFFERED, SynthesisLimits().tool_chars)))
        offers.append(json.dumps([one.form() for one in functions_of(await lines(task.text)).values()]))
    usual = [sorted(texts, key=len)[len(texts) // 2] for texts in (methods, offers)]
    method, offer = [await tokens_of(one, host, model) for one in usual]
    tokens = await tokens_of(text, host, model)
    return {"operations": len(held.offers), "chars": len(text) // 4, "tokens": tokens, "method": method, "offer": offer}


async def tokens_of(text: str, host: str, model: str) -> int:
    """Tokens of a text by a model's own tokenizer."""
    options = {"num_predict": 1, "num_ctx": 8192, "temperature": 0}
    async with connect(host) as client:
        told = await client.generate(model=model, prompt=text, raw=True, options=options, keep_alive=0)
    return int(told.prompt_eval_count or 0)


async def prompts(name: str, held: Catalogue, forms: dict[str, Lines]) -> dict[str, str]:
    """What a model is sent for a third of the tasks that both forms serve, by the name of its file."""
    at, found = 0, dict[str, str]()
    for task in held.tasks:
        shown = {form: await lines(task.text) for form, lines in forms.items()}
        if not all(task.gold <= held.operations([offer for line in lines for offer in line]) for lines in shown.values()):
            continue
        at += 1
        for form, lines in shown.items() if at % 3 == 1 else ():
            said = {"request": task.text, "functions": [one.form()["function"] for one in functions_of(lines).values()]}
            found[f"{name}-{at:03}-{form}.json"] = json.dumps(said, ensure_ascii=False)
    return found


def written(texts: dict[str, str], folder: Path) -> None:
    """Write texts into a folder, by the names of their files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


def picks(folder: Path, catalogues: dict[str, Catalogue]) -> dict[str, str]:
    """Count the answers that have all operations of the known solution, by catalogue and form."""
    right, of = Counter[str](), Counter[str]()
    for file in sorted(folder.glob("*.picks")):
        said = json.loads(file.with_suffix(".json").read_text("utf-8"))
        name, _, form = file.stem.split("-")
        held = catalogues[name]
        gold = next(task.gold for task in held.tasks if task.text == said["request"])
        by_tool = {tool: offer for offer in held.offers for tool in (offer.tool.name, *functions_of([(offer,)]))}
        asked = json.loads(file.read_text("utf-8"))
        named = [next((value for value in map(str, given.values()) if value in by_tool), function) for function, given in asked]
        right[f"{name} {form}"] += gold <= held.operations([by_tool[tool] for tool in named if tool in by_tool])
        of[f"{name} {form}"] += 1
    return {key: f"{right[key]} of {of[key]}" for key in of}


_SMALL = {"openapi": "3.1.0", "paths": {f"/things{n}": {"get": {"operationId": f"thing{n}"}} for n in range(54)}}


class _Place(BaseHTTPRequestHandler):
    """An API with a document; each operation answers with its path."""

    document = b""

    def do_GET(self) -> None:
        data = self.document if self.path == "/doc.json" else json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


async def first_answer(document: bytes, times: int = 9) -> float:
    """Median seconds from a document to the first answer, of its first operation that reads and requires no argument."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Place", (_Place,), {"document": document}))
    origin = f"http://127.0.0.1:{server.server_port}"
    Thread(target=server.serve_forever, daemon=True).start()
    taken = []
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        image = await LivingImage.open(f"file://{folder}/image.fs", steps=(connections.install,))
        services = ConnectorServices(secret=lambda name: "", folder=Path(folder))
        toolbox = Toolbox(image, services, ActingState("bench"))
        for at in range(times):
            begun = time.perf_counter()
            added = await toolbox.add(ConnectionSpec(f"api{at}", "openapi", f"{origin}/doc.json", {"server": origin}))
            read = next(tool for tool in added.tools if tool.kind == READS and not tool.parameters.get("required"))
            call = await toolbox.prepare(f"api{at}.{read.name}", {})
            answer = await call.send(Delivery(f"key{at}"))
            taken.append(time.perf_counter() - begun)
            assert answer["body"]["path"] == read.details["path"], answer
        await toolbox.close()
        await image.close()
    server.shutdown()
    server.server_close()
    return round(statistics.median(taken), 3)


async def first_answers(folder: Path) -> dict[str, Any]:
    """The first answers of a small document, and of those of RestBench."""
    found: dict[str, Any] = {"answer_s": await first_answer(json.dumps(_SMALL).encode())}
    for name in SETS:
        file = folder / "specs" / f"{name}_oas.json"
        data = await asyncio.to_thread(file.read_bytes)
        found[f"{name} answer"] = {"kib": len(data) >> 10, "answer_s": await first_answer(data)}
    return found


def documents(folder: Path) -> dict[str, Any]:
    """What reading each document of a folder costs, each in a process of its own. Folders in it hold files that documents refer to."""
    found: dict[str, Any] = {}
    for file in sorted(one for one in folder.iterdir() if one.is_file()):
        done = subprocess.run([sys.executable, __file__, "--one", file], capture_output=True, text=True, check=True, timeout=120)
        found[file.name] = json.loads(done.stdout)
    return found


async def usages(programs: Sequence[str]) -> dict[str, Any]:
    """What rules read of the usages of programs, each in its jail."""
    services, found = ConnectorServices(secret=lambda name: "", folder=Path(tempfile.gettempdir())), dict[str, Any]()
    for name in programs:
        begun, path = time.perf_counter(), shutil.which(name)
        if path is None:
            continue
        try:
            read = await descriptions.of_program(path, {}, services)
            came = "; ".join(read.notes)[:120] if read.form is None else len(read.form.operations)
        except BatosError as e:
            came = e.message[:120]
        found[name] = [came, round(time.perf_counter() - begun, 2)]
    by_rule = sum(isinstance(came, int) for came, _ in found.values())
    return {"bench": "operations", "by_rule": f"{by_rule} of {len(found)}", "usages": found}


def one(file: Path) -> dict[str, Any]:
    """What reading one document costs."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    try:
        reading = _whole(file)
        check_definitions(file.stem, reading.tools, ToolLimits())
    except InvalidInput as e:
        return {"refused": e.message[:300], "seconds": round(time.perf_counter() - begun, 2)}
    seconds, grown = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    size = sum(len(json.dumps(tool.to_wire())) for tool in reading.tools)
    return {
        "operations": len(reading.tools), "left_out": len(reading.left_out), "seconds": round(seconds, 2), "mib": grown >> 10,
        "pinned_mib": round(size / (1 << 20), 1), "notes": len(reading.notes),
    }  # fmt: skip


@contextlib.asynccontextmanager
async def started(args: argparse.Namespace) -> AsyncIterator[str]:
    """The address of an Ollama with the profile's models: the one that `args` names, or one that lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="batos-bench-", dir=args.dir) as folder:
        service = OllamaService(load({"data": folder, "ollama_host": args.host or "127.0.0.1:1"}, environ={}))
        host = await service.start()
        try:
            async with connect(host) as client:
                await Provisioner(client, load_profile(args.profile), modelfiles_folder()).ensure()
            yield host
        finally:
            await service.stop()


async def run(args: argparse.Namespace) -> dict[str, Any]:
    """The figures."""
    profile = load_profile(args.profile)
    figures: dict[str, Any] = {"bench": "operations", **await first_answers(args.restbench)}
    if args.documents is not None:
        figures["documents"] = documents(args.documents)
    async with started(args) as host:
        inference = OllamaInference(host)
        likeness = TextLikeness(Remembered(inference, args.kept), profile.embedder, deadline_s=DEADLINE_S)  # type: ignore[arg-type]
        for name in SETS:
            held, missed = catalogue(args.restbench, name), list[str]()
            if args.prompts is not None:
                asked = await prompts(name, held, {"shared": shared(held, likeness), "single": single(held, likeness)})
                await asyncio.to_thread(written, asked, args.prompts)
                continue
            unknown = held.operations(held.offers)
            figures[name] = {
                "recall": await recall(held, shared(held, likeness), missed),
                "words": await recall(held, shared(held, None), []),
                "single": await recall(held, single(held, likeness), []),
                "single words": await recall(held, single(held, None), []),
                "told": await told(name, held),
                "unknown": sum(not task.gold <= unknown for task in held.tasks),
                "prompt": await prompt(name, held, shared(held, likeness), host, profile.base),
            }
            if args.missed:
                print("\n".join(missed))
        await inference.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    parser.add_argument("--host", default="", help="address of an Ollama that runs; default: one of its own")
    parser.add_argument("--profile", default="embedded")
    parser.add_argument("--restbench", type=Path, default=BUILD / "restbench", help="folder of RestBench's four files")
    parser.add_argument("--documents", type=Path, help="folder of OpenAPI documents that are read")
    parser.add_argument("--missed", action="store_true", help="say which tasks of the tuned half are missed")
    parser.add_argument("--kept", type=Path, default=BUILD / "operations" / "vectors.db", help="file of vectors")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models, 300 MB")
    parser.add_argument("--usages", default="", help="names of programs whose usages are read, and nothing else")
    parser.add_argument("--prompts", type=Path, help="write what a model is sent into this folder, and measure nothing else")
    parser.add_argument("--answers", action="store_true", help="measure the first answers of documents, and nothing else")
    parser.add_argument("--picks", type=Path, help="count the answers in this folder, and measure nothing else")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    logs.configure("error", "json")
    if args.picks is not None:
        print(json.dumps(picks(args.picks, {name: catalogue(args.restbench, name) for name in SETS})))
        return
    if args.answers:
        print(json.dumps({"bench": "operations", **asyncio.run(first_answers(args.restbench))}))
        return
    if args.usages:
        print(json.dumps(asyncio.run(usages(args.usages.split()))))
        return
    if args.one is not None:
        print(json.dumps(one(args.one)))
        return
    figures = asyncio.run(run(args))
    if not args.json:
        for name, value in figures.items():
            print(f"{name:12} {json.dumps(value)}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
