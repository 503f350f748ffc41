"""What the bridge costs beside a bare client, and what grouping missions by model gains. On a real Ollama. Prints one JSON line.

`overhead`: chats through all of the bridge (provisioning's gate, residency, turns, digests, runaway watch) and through a bare
`ollama.AsyncClient`, taken in turns: answers of one token, and answers of about a second. The figure is the median of the differences
between two that follow each other; beside it stands that of the processor time, which other programs on the machine do not blur.
Both once more with the real answers sent by the clock (`pacing.py`; `paced_*`): what the server takes for one and the same answer
differs by more, from one time to the next, than what is measured.

`grouping`: missions over four LoRA experts on one base (adapters of random numbers, made here: what they say does not matter, what
they take to load does), through the whole daemon without its socket. They are small, as those of a mixed load are where grouping matters:
three inferences, prompts of some 60 to 100 tokens, answers of up to 4. (Loading takes 0.3 to 0.5 s here, ten times a short prompt; on
an 8B model it takes seconds, which is as many times a prompt of its usual length.) First come first served is the daemon without
residency and grouping.

    python bench/bridge.py --missions 80
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from batos import logs
from batos.app.kernel import Kernel
from batos.bridge.admission import Fairness
from batos.bridge.client import OllamaInference, connect
from batos.bridge.hosts import Hosts, ManagedHost, ManagedHosts
from batos.bridge.inference import ChatRequest, ReadyInference
from batos.bridge.ollama_server import OllamaService
from batos.bridge.profiles import load_profile, modelfiles_folder
from batos.bridge.provisioning import Provisioner
from batos.bridge.residency import Residency
from batos.config import load

PERSONAS = ("robin", "brick", "babs", "alfred")
BASE = "smollm2:embedded"
CODEX = """
[personas.{name}]
core_mission = "Answer."
core_method = "Briefly."
pillars = ["Brevity"]
model = "expert-{name}:bench"
[personas.{name}.protocols]
plain_facet_ = "Say it plainly."
"""
LAYERS, WIDTH, RANK = 30, 576, 16  # of SmolLM2-135M
LOADED = "starting go runner"  # a line of Ollama's log, once a load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--missions", type=int, default=80)
    parser.add_argument("--threads", type=int, default=0, help="the setting num_thread, for both ways of `grouping`")
    parser.add_argument("--rounds", type=int, default=60, help="one-token chats each way; a sixth as many of a second")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models and the images, 600 MB")
    parser.add_argument("--only", default="overhead,grouping", help="parts to run")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        print(json.dumps(asyncio.run(measure(folder, args))))
    finally:
        shutil.rmtree(folder)


async def measure(folder: pathlib.Path, args: argparse.Namespace) -> dict[str, Any]:
    line: dict[str, Any] = {"bench": "bridge"}
    say = (lambda words: None) if args.json else print
    service = OllamaService(load({"data": folder, "ollama_host": "127.0.0.1:1"}, environ={}))  # nobody answers there: one of its own
    host = await service.start()
    try:
        async with connect(host) as client:
            profile = load_profile("embedded")
            failed = [s for s in await Provisioner(client, profile, modelfiles_folder()).ensure() if not s.ready]
            assert not failed, failed
            if "overhead" in args.only:
                line.update(await overhead(client, host, args.rounds))
                async with paced(host) as (even, evenly):
                    line.update({f"paced_{name}": value for name, value in (await overhead(evenly, even, args.rounds)).items()})
                say(json.dumps(line))
            if "grouping" in args.only:
                await make_experts(client, folder / "experts")
                line.update(await grouping(folder, host, args.missions, args.threads, say))
    finally:
        await service.stop()
    return line


# --- overhead


@contextlib.asynccontextmanager
async def paced(host: str) -> AsyncIterator[tuple[str, Any]]:
    """Address of a server before this one whose answers keep time, and a client of it."""
    script = pathlib.Path(__file__).with_name("pacing.py")
    pacing = await asyncio.create_subprocess_exec(
        sys.executable, str(script), host, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert pacing.stdin is not None
    assert pacing.stdout is not None
    try:
        even = f"127.0.0.1:{int(await pacing.stdout.readline())}"
        async with connect(even) as client:
            yield even, client
    finally:
        pacing.stdin.close()
        await pacing.wait()


async def overhead(client: Any, host: str, rounds: int) -> dict[str, Any]:
    profile = load_profile("embedded")
    inner = OllamaInference(host, 2, profile.options)
    provisioner = Provisioner(client, profile, modelfiles_folder())
    await provisioner.ensure()
    residency = Residency(client, 6_900_000_000, profile.options, Fairness(64, 60))
    place = ManagedHost(inner, residency, provisioner)
    everywhere = ManagedHosts([place], 30)
    hosts = Hosts([place], wait_s=30, switch_s=30, crowded=lambda place, model: place.crowded(model))
    bridge = ReadyInference(hosts, ready=everywhere.ready, heal=everywhere.heal)

    def asked(tokens: int) -> ChatRequest:
        options = {**profile.options, "num_predict": tokens, "temperature": 0.0, "seed": 1}
        return ChatRequest("robin:embedded", "You are ROBIN.", "Tell me about the sea.", options=tuple(sorted(options.items())))

    async def bare(tokens: int) -> int:
        request = asked(tokens)
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
        part: Any = None
        async for part in await client.chat(request.model, messages, stream=True, options=dict(request.options)):  # noqa: B007
            pass
        return int(part.eval_count)

    async def through(tokens: int) -> int:
        return (await bridge.chat(asked(tokens), deadline_s=300)).answer_tokens

    def median(pairs: list[tuple[float, float]]) -> float:
        return statistics.median(more - less for more, less in pairs)

    figures: dict[str, Any] = {}
    for name, tokens, times in (("short", 1, rounds), ("second", await in_a_second(bare), max(5, rounds // 6))):
        taken: dict[Callable[[int], Awaitable[int]], list[float]] = {bare: [], through: []}
        worked: dict[Callable[[int], Awaitable[int]], list[float]] = {bare: [], through: []}
        for i in range(times + 2):
            for ask in (bare, through) if i % 2 else (through, bare):
                begun, used = time.perf_counter(), time.process_time()
                assert await ask(tokens) == tokens
                taken[ask].append((time.perf_counter() - begun) * 1e3)
                worked[ask].append((time.process_time() - used) * 1e3)
        alone = statistics.median(taken[bare][2:])  # the first warm up
        more = median(list(zip(taken[through], taken[bare], strict=True))[2:])
        figures[f"{name}_tokens"], figures[f"{name}_bare_ms"] = tokens, round(alone, 2)
        figures[f"{name}_overhead_ms"], figures[f"{name}_overhead_percent"] = round(more, 2), round(100 * more / alone, 2)
        figures[f"{name}_overhead_cpu_ms"] = round(median(list(zip(worked[through], worked[bare], strict=True))[2:]), 2)
    await hosts.close()
    return figures


async def in_a_second(bare: Callable[[int], Awaitable[int]]) -> int:
    """How many tokens an answer of about a second has."""
    await bare(40)
    begun = time.perf_counter()
    await bare(40)
    return max(8, round(40 / (time.perf_counter() - begun)))


# --- grouping


async def make_experts(client: Any, folder: pathlib.Path) -> None:
    """Four models `expert-NAME:bench`, each with an adapter of its own on all layers' queries and values."""
    import numpy

    from batos.bridge.model_builder import upload_blob

    for seed, name in enumerate(PERSONAS):
        numbers = numpy.random.default_rng(seed)
        path = folder / name
        path.mkdir(parents=True)
        tensors = {}
        for layer in range(LAYERS):
            for part, out in (("q_proj", WIDTH), ("v_proj", WIDTH // 3)):  # three query heads share one of values
                stem = f"base_model.model.model.layers.{layer}.self_attn.{part}"
                tensors[f"{stem}.lora_A.weight"] = numbers.normal(0, 0.01, (RANK, WIDTH)).astype("float32")
                tensors[f"{stem}.lora_B.weight"] = numbers.normal(0, 0.01, (out, RANK)).astype("float32")
        save(tensors, path / "adapter_model.safetensors")
        config = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": ["q_proj", "v_proj"]}
        (path / "adapter_config.json").write_text(json.dumps(config))
        adapters = {file.name: await upload_blob(client, file) for file in sorted(path.iterdir())}
        await client.create(f"expert-{name}:bench", from_=BASE, adapters=adapters)


def save(tensors: dict[str, Any], path: pathlib.Path) -> None:
    """Write float32 arrays as a safetensors file: length of the header, header, data."""
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in tensors.values()))


async def grouping(folder: pathlib.Path, host: str, count: int, threads: int, say: Callable[[str], None]) -> dict[str, Any]:
    codex = folder / "codex.toml"
    codex.write_text("\n".join(CODEX.format(name=name) for name in PERSONAS))
    settings: dict[str, Any] = {
        "ollama_host": host,
        "codex": str(codex),
        "autotelic": "off",
        "facets_limit": 1,
        "num_predict": 4,
        "num_thread": threads,
        "structured_repairs": 0,  # a plan of four tokens is none, and two more tries would be the larger part of the mission
    }
    log = folder / "logs" / "ollama.log"
    figures: dict[str, Any] = {"missions": count, "experts": len(PERSONAS), "threads": threads}
    for name in ("grouped", "first_come"):
        flags = load({**settings, "data": folder / name}, environ={})
        inference = OllamaInference(host, flags.inference_concurrency, load_profile("embedded").options) if name == "first_come" else None
        kernel = await Kernel.start(flags, inference=inference, listen=False)
        await kernel.models_settled()
        before = log.read_text().count(LOADED)
        waits = await mixed(kernel, count)
        await kernel.stop()
        if inference is not None:
            await inference.close()
        took = max(end for _, end in waits)
        figures[name] = {
            "missions_per_s": round(count / took, 3),
            "loads": log.read_text().count(LOADED) - before,
            "longest_wait_to_begin_s": round(max(begin for begin, _ in waits), 1),
            "longest_wait_to_end_s": round(took, 1),
            "median_wait_to_end_s": round(statistics.median(end for _, end in waits), 1),
        }
        say(json.dumps({name: figures[name]}))
    figures["throughput_factor"] = round(figures["grouped"]["missions_per_s"] / figures["first_come"]["missions_per_s"], 2)
    return figures


async def mixed(kernel: Kernel, count: int) -> list[tuple[float, float]]:
    """Send that many missions at once, in an order drawn by chance; seconds until each began and ended."""
    personas = [PERSONAS[i % len(PERSONAS)] for i in range(count)]
    random.Random(7).shuffle(personas)
    begun = time.perf_counter()

    async def one(i: int) -> tuple[float, float]:
        ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        began: list[float] = []

        def hear(event: dict[str, Any]) -> None:
            if not began:
                began.append(time.perf_counter() - begun)
            if event["type"] == "result":
                ended.set_result(event)

        stop = kernel.events.watch(f"m{i}", hear)
        try:
            await kernel.scheduler.submit(f"m{i}", f"What is {i}?", {"persona": personas[i]})
            event = await ended
        finally:
            stop()
        assert event["state"] == "COMPLETE", event
        return began[0], time.perf_counter() - begun

    return await asyncio.gather(*(one(i) for i in range(count)))


if __name__ == "__main__":
    main()
