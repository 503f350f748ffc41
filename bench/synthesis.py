"""What the expert for methods writes, beside the base it was tuned on: whole missions of a kernel, on a real Ollama.

Ends with one JSON line.

Each task is an object of an image, a message that nobody understands, and hidden trials. The mission writes the method as any does: prompt,
model, guardian, sandbox, trials, up to `synthesis_expert_tries` different ones (the base `synthesis_tries`); then the hidden trials say
whether what was kept is right. Families are those that no training has seen (`batos.synthesis.families`: part `test`), the far set of
composed tasks, and unseen families of other authors (`BLIND`), whose methods are twice as long.

    python bench/synthesis.py                    # all, with the expert that lies in lora_staging
    python bench/synthesis.py --tasks 20 --json

Figures are shares of tasks. `first_try`: the first method that the model wrote was kept, and is right. `within_bound`: one of those
within the bound was, with one example taught. `wrong_accepted`: kept, and not right by the hidden trials. `far_*` and `blind_*`: of the
far set, and of other authors' families; `bare_*`: without any example; `sure_wrong` and `unsure_wrong`: the share of wrong ones where all
candidates did the same, and where they did not. `open`: how many of the methods that were kept by an example said that it leaves something
open; `open_wrong` and `closed_wrong`: the share of wrong ones among them and among the others. With `--answer` the user answers what was
asked, be it of a method that was kept or of one that was refused, once: `asked`, and `answered_within_bound`, `answered_wrong` after that.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from everyday import AUTHORS, everyday

from batos import logs
from batos.app.kernel import Kernel
from batos.bridge.ollama_server import OllamaService
from batos.config import Settings, load
from batos.image import taught_examples
from batos.image.model_registry import report_experts, speaks_methods
from batos.objects import Example, Method
from batos.synthesis.families import BLIND
from batos.training.dataset import Prover, generate
from batos.training.tasks import Task

WAIT_S = 300


class Made(NamedTuple):
    """What became of one task."""

    task: Task
    tries: int  # 0: nothing was kept
    right: bool
    seconds: float
    sure: bool
    source: str
    asked: Sequence[dict[str, Any]] = ()  # two examples, of which one may be right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=0, help="tasks of held-out families, one a family; 0: all")
    parser.add_argument("--skip", type=int, default=0, help="of these that are left out first, in an order that does not change")
    parser.add_argument("--base-tasks", type=int, default=20, help="of them, for the base model, which takes long to fail")
    parser.add_argument("--far", type=int, default=0, help="tasks of the far set; 0: all, -1: none")
    parser.add_argument("--part", default="test", choices=("validation", "test"), help="of held-out families; rules come of validation")
    parser.add_argument("--blind", type=int, default=40, help="of families by other authors; 0: none")
    parser.add_argument("--everyday", type=int, default=0, help="as people put them, of each of three authors; 0: none")
    parser.add_argument("--bare", type=int, default=30, help="tasks without an example")
    parser.add_argument("--answer", action="store_true", help="answer what the example leaves open, once; not in the figures of the others")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--staging", default="", help="folder of experts; that of the checkout if left out")
    parser.add_argument("--dir", default=tempfile.gettempdir(), help="folder for Ollama's models and the images, 400 MB")
    parser.add_argument("--wrong", action="store_true", help="show what was refused, or kept and wrong")
    parser.add_argument("--json", action="store_true", help="only the last line, which is JSON in any case")
    args = parser.parse_args()
    logs.configure("error", "json")
    folder = Path(tempfile.mkdtemp(prefix="batos-bench-", dir=args.dir))
    try:
        print(json.dumps(asyncio.run(measure(folder, args))))
    finally:
        shutil.rmtree(folder)


async def measure(folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    say = (lambda words: None) if args.json else (lambda words: print(words, flush=True))
    unseen, far = (generate(part, args.seed, each=1) for part in (args.part, "far"))
    near, blind = ([task for task in unseen if (task.group in BLIND) == others] for others in (False, True))
    rng = random.Random(args.seed)
    near = rng.sample(near, min(args.skip + args.tasks, len(near)) if args.tasks else len(near))[args.skip :]
    far = rng.sample(far, args.far or len(far)) if args.far >= 0 else []
    blind = rng.sample(blind, min(args.blind, len(blind)))
    service = OllamaService(load({"data": folder, "ollama_host": "127.0.0.1:1"}, environ={}))  # nobody answers there: one of its own
    host = await service.start()
    try:
        settings = Settings(
            data=folder, ollama_host=host, autotelic="off", remember="off", lora_staging=args.staging, concurrent_missions=1
        )  # fmt: skip
        async with Prover(settings) as prover:
            base = await made(settings, "plain", near[: args.base_tasks], prover, example=True, say=say)
            later: list[Made] | None = [] if args.answer else None
            tuned = await made(settings, "expert", near, prover, example=True, say=say, later=later)
            distant = await made(settings, "expert", far, prover, example=True, say=say)
            strange = await made(settings, "expert", blind, prover, example=True, say=say)
            plain = {one: await made(settings, "expert", everyday(one)[: args.everyday], prover, example=True, say=say) for one in AUTHORS}
            bare = await made(settings, "expert", near[: args.bare], prover, example=False, say=say)
    finally:
        await service.stop()
    if args.wrong:
        for one in (*tuned, *distant, *strange, *itertools.chain(*plain.values())):
            if not one.right:
                say(f"--- {one.task.family}: {one.task.intent}\n{one.source}\n{one.task.source}")
    sure, unsure = [one for one in bare if one.tries and one.sure], [one for one in bare if one.tries and not one.sure]
    open_, closed = [one for one in tuned if one.tries and one.asked], [one for one in tuned if one.tries and not one.asked]
    after = {"answered_within_bound": within_bound(later), "answered_wrong": wrong(later)} if later else {}
    return {
        "bench": "synthesis", "tasks": len(tuned), "base_tasks": len(base),
        "base_first_try": first_try(base), "base_within_bound": within_bound(base),
        "tuned_first_try": first_try(tuned), "tuned_within_bound": within_bound(tuned),
        "wrong_accepted": wrong(tuned), "seconds_per_method": round(sum(one.seconds for one in tuned) / max(1, len(tuned)), 2),
        "base_seconds_per_method": round(sum(one.seconds for one in base) / max(1, len(base)), 2),
        "open": len(open_), "open_wrong": wrong(open_), "closed": len(closed), "closed_wrong": wrong(closed),
        "asked": sum(bool(one.asked) for one in tuned), **after,
        "far_tasks": len(distant), "far_first_try": first_try(distant), "far_within_bound": within_bound(distant),
        "far_wrong": wrong(distant),
        "blind_tasks": len(strange), "blind_first_try": first_try(strange), "blind_within_bound": within_bound(strange),
        "blind_wrong": wrong(strange),
        **{f"{name}_{author}": of(found) for author, found in plain.items() if found for name, of in MEASURES.items()},
        "bare_tasks": len(bare), "bare_right": within_bound(bare), "bare_wrong": wrong(bare),
        "sure": len(sure), "sure_wrong": wrong(sure), "unsure": len(unsure), "unsure_wrong": wrong(unsure),
    }  # fmt: skip


def first_try(found: Sequence[Made]) -> float:
    """The share that was right with the first method that was written."""
    return share(one.right and one.tries == 1 for one in found)


def within_bound(found: Sequence[Made]) -> float:
    """The share that was kept and is right."""
    return share(one.right for one in found)


def wrong(found: Sequence[Made]) -> float:
    """The share that was kept and is wrong."""
    return share(one.tries > 0 and not one.right for one in found)


def share(found: Any) -> float:
    values = list(found)
    return round(sum(values) / max(1, len(values)), 4)


MEASURES = {"everyday": len, "everyday_first_try": first_try, "everyday_within_bound": within_bound, "everyday_wrong": wrong}


async def made(
    settings: Settings, writer: str, tasks: Sequence[Task], prover: Prover, *, example: bool, say: Any, later: list[Made] | None = None
) -> list[Made]:
    """The tasks, one after the other, in an image of their own.

    :param later: gets what became of each once the user had answered what was asked of him.
    """
    image = f"file://{settings.data}/{writer}-{example}-{random.randrange(10**9)}.fs"
    kernel = await Kernel.start(settings.model_copy(update={"synthesis_model": writer, "image": image}), listen=False)
    found = []
    try:
        if writer == "expert":
            await build_expert(kernel)
        for number, task in enumerate(tasks):
            found.append(await one_task(kernel, f"t{number}", task, prover, example=example))
            what = "right" if found[-1].right else "wrong" if found[-1].tries else "refused"
            say(f"{writer} {task.part} {number + 1}/{len(tasks)} {task.family}: {what}, {found[-1].tries} tries, {found[-1].seconds:.1f} s")
            if later is not None:
                later.append(await answered(kernel, f"t{number}", found[-1], prover))
                if later[-1] is not found[-1]:
                    what = "right" if later[-1].right else "wrong" if later[-1].tries else "refused"
                    say(f"  asked {json.dumps(found[-1].asked, ensure_ascii=False)}: {what}")
    finally:
        await kernel.stop()
    return found


async def build_expert(kernel: Kernel) -> None:
    """Have the expert built that is staged."""
    assert kernel.substrate.factory is not None
    await kernel.substrate.places[0].provisioner.ready("brick:embedded")  # what it is built on
    await kernel.substrate.factory.scan_settled()
    assert kernel.image.read(speaks_methods), kernel.image.read(report_experts)


async def one_task(kernel: Kernel, name: str, task: Task, prover: Prover, *, example: bool, target: str = "") -> Made:
    """One mission: the message to an object of the task's.

    :param target: the object, in the lobby, if there is one already.
    """
    oid = target or await kernel.image.system(_place, name, task, example)
    begun = time.monotonic()
    end = await _sent(kernel, name, oid, task.selector, list(task.args), dict(task.kwargs))
    return await _became(kernel, end, target or name, task, prover, time.monotonic() - begun)


async def answered(kernel: Kernel, name: str, one: Made, prover: Prover) -> Made:
    """The same task, once its user has said what the method has to answer to the call that it asked about; the same where he has nothing
    to say, as it asked nothing, or as what is right fails on that call."""
    if not one.asked:
        return one
    call = Example.from_json({**one.asked[0], "after": {}})
    value, left = await prover.run(one.task, one.task.source, call)
    if left is None:
        return one
    changed = {slot: left.get(slot) for told in one.asked for slot in told.get("after", ())}
    example = call._replace(result=value, after=tuple(changed.items()))
    oid = await kernel.image.system(_teach, name, one.task.selector, example.to_json())
    begun = time.monotonic()
    end = await _sent(kernel, f"{name}answered", oid, "learn_", [one.task.selector], {})
    return await _became(kernel, end, name, one.task, prover, time.monotonic() - begun)


async def _sent(kernel: Kernel, mission: str, oid: str, selector: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """How a mission ended that sends a message."""
    message = {"target": oid, "selector": selector, "args": args, "kwargs": kwargs}
    ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    kernel.events.watch(mission, lambda event: ended.set_result(event) if event["type"] == "result" and not ended.done() else None)
    await kernel.scheduler.submit(mission, f"send {selector}", {"message": json.dumps(message)})
    async with asyncio.timeout(WAIT_S):
        return await ended


async def _became(kernel: Kernel, end: dict[str, Any], name: str, task: Task, prover: Prover, seconds: float) -> Made:
    if end["state"] != "COMPLETE":
        return Made(task, 0, False, seconds, False, f"# {end['error']['message']}", (end["error"].get("context") or {}).get("open", ()))
    source, came = kernel.image.read(_written, name, task.selector)
    judged = await prover.judge(task, source)
    asked = [json.loads(text) for text in came["open"]]
    return Made(task, came["tries"], judged.right, seconds, came["agreed"] == came["candidates"], source, asked)


def _written(root: Any, name: str, selector: str) -> tuple[str, dict[str, Any]]:
    method = root["lobby"]._slots[name]._slots[selector]
    assert isinstance(method, Method)
    return method.source, dict(method.provenance)


def _teach(root: Any, name: str, selector: str, example: dict[str, Any]) -> str:
    """System transaction: one more example; whose."""
    obj = root["lobby"]._slots[name]
    taught_examples.teach(root, obj._p_oid, selector, [example], "", 16)
    return f"oid:{int.from_bytes(obj._p_oid, 'big'):x}"


def _place(root: Any, name: str, task: Task, example: bool) -> str:
    """System transaction: an object as the task has it, its intent, and the example if it is to be taught."""
    lobby = root["lobby"]
    obj = lobby.genesis.derive(name=name, **task.slots)
    for selector, source in task.helpers.items():
        obj._slots[selector] = Method(selector, source)
    lobby._slots[name] = obj
    root._p_jar.add(obj)
    taught_examples.teach(root, obj._p_oid, task.selector, [task.shown.to_json()] if example else [], task.intent, 16)
    return f"oid:{int.from_bytes(obj._p_oid, 'big'):x}"


if __name__ == "__main__":
    main()
