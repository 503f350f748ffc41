"""What a thought costs beside the model's own time, on a real Ollama. Ends with one JSON line. Medians, pairs in alternation.

`direct`: a mission of depth `direct`, streamed, and the very call that it makes (model, messages, options) by a bare `AsyncClient`: seconds
to the end, and to the first token. Both sides are given one seed and temperature 0, so that both write the same; before each the model is
made to read something else, so that neither finds its prompt read. `again`: how many missions asked their model more than once; `same`:
in how many pairs the model wrote as many tokens for both. Where missions have no depth yet, a mission is held beside the brief asked
directly (`depth` is null then).

`reading`: seconds that the server spends reading prompts (`prompt_eval_duration`) in a mission of depth `facets`, whose brief and evidence
from memory take about 1,500 tokens. With `--against REVISION` the same by that revision's code (a git worktree, in a child process, on the
same Ollama), in turns; `ratio` is this over that. Each mission has words of its own, so that none finds read what another has read.

    python bench/thought.py --pairs 9
    python bench/thought.py --only reading --against f76bb6d --json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sides import Overheard, Said, Sides, arguments, server, sides

from batos import logs
from batos.image import ledger

ROOT = Path(__file__).parents[1]
CHARS = 4.3  # a token, of the words below
BRIEFS = (
    "What should I look at when I buy a second-hand bicycle?",
    "Write a thank-you note to my aunt, who gave me a set of watercolours.",
    "What is the difference between weather and climate?",
    "Plan a rainy Sunday at home with two children.",
    "How does a refrigerator make things cold?",
    "Name three things that help to fall asleep.",
)
NOUNS = ("harbour", "garden", "letter", "engine", "market", "teacher", "window", "bridge", "river", "orchard", "village", "lamp", "ticket")
VERBS = ("carries", "repairs", "remembers", "follows", "changes", "keeps", "opens", "paints", "measures", "borrows", "sells", "hides")
NUM_CTX = 4096  # of `reading`: the brief, the evidence, and what is thought of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9, help="of `direct`; a third as many of `reading`")
    parser.add_argument("--only", default="direct,reading", help="parts to run")
    parser.add_argument("--tokens", type=int, default=1500, help="of the brief and its evidence, about")
    parser.add_argument("--against", default="", metavar="REVISION", help="whose code `reading` is measured beside")
    parser.add_argument("--one", type=int, metavar="NUMBER", help="read one mission's prompts and tell of it: the child process")
    arguments(parser)
    args = parser.parse_args()
    logs.configure("error", "json")
    if args.one is not None:
        print(json.dumps(asyncio.run(one_reading(args))))
    else:
        print(json.dumps(asyncio.run(measure(args))))


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    say: Callable[[str], None] = (lambda words: None) if args.json else lambda words: print(words, flush=True)
    line: dict[str, Any] = {"bench": "thought"}
    async with server(args) as (host, folder):
        if "direct" in args.only:
            line["direct"] = await beside_the_call(host, folder, args, say)
            say(json.dumps(line["direct"]))
        if "reading" in args.only:
            line["reading"] = await asyncio.to_thread(reading, host, args, say)
    return line


# --- direct


async def beside_the_call(host: str, folder: Path, args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    depth = "direct" if "depth" in ledger.DEFAULTS else ""
    taken: dict[str, list[Said]] = {"mission": [], "call": []}
    again = same = 0
    with Overheard(seed=args.seed, temperature=0.0) as heard:
        async with sides(host, folder, args, depth) as both:
            for number in range(args.pairs):
                brief = BRIEFS[number % len(BRIEFS)]
                heard.clear()
                await both.mission(f"rehearsal-{number}", brief)  # to know what it asks
                call = heard.asked[0] if depth else _plain(both, brief, args.seed)
                wrote: dict[str, list[int]] = {}
                for name in ("mission", "call") if number % 2 else ("call", "mission"):
                    await both.call(**{**call, **_other(call)})
                    heard.clear()
                    if name == "mission":
                        taken[name].append(await both.mission(f"m{number}", brief))
                        again += len(heard.asked) > 1
                        wrote[name] = [part.eval_count for part in heard.ended]
                    else:
                        taken[name].append(await both.call(**call))
                        wrote[name] = [taken[name][-1].tokens]
                same += wrote["mission"] == wrote["call"]
                say(f"{number + 1}/{args.pairs}: " + ", ".join(f"{name} {said[-1].seconds:.2f} s" for name, said in taken.items()))
            model = call["model"]
    pairs = list(zip(taken["mission"], taken["call"], strict=True))
    return {
        "model": model, "depth": depth or None, "pairs": len(pairs), "again": again,
        "same": same,
        **{f"{name}_s": round(statistics.median(said.seconds for said in all), 3) for name, all in taken.items()},
        "ratio": round(statistics.median(mission.seconds / bare.seconds for mission, bare in pairs), 3),
        **{f"{name}_first_ms": round(1e3 * statistics.median(said.first_s for said in all), 1) for name, all in taken.items()},
        "first_more_ms": round(1e3 * statistics.median(mission.first_s - bare.first_s for mission, bare in pairs), 1),
    }  # fmt: skip


def _plain(both: Sides, brief: str, seed: int) -> dict[str, Any]:
    options = {**both.kernel.substrate.options, "seed": seed, "temperature": 0.0}
    return {"model": both.model, "messages": [{"role": "user", "content": brief}], "options": options}


def _other(call: dict[str, Any]) -> dict[str, Any]:
    """What makes the model of a call read something else."""
    return {"messages": [{"role": "user", "content": "Count."}], "format": None, "options": {**call["options"], "num_predict": 1}}


# --- reading


def reading(host: str, args: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Each mission in a child process of its own, with the code of one revision or the other."""
    taken: dict[str, list[dict[str, Any]]] = {}
    with contextlib.ExitStack() as stack:
        codes = {"this": ROOT, **({"that": stack.enter_context(worktree(args.against))} if args.against else {})}
        for number in range(max(1, args.pairs // 3)):
            for name in list(codes) if number % 2 else list(codes)[::-1]:
                words = [
                    sys.executable, str(Path(__file__).resolve()), "--one", str(2 * number + (name == "that")), "--host", host,
                    "--profile", args.profile, "--model", args.model if name == "this" else "", "--dir", args.dir,
                    "--tokens", str(args.tokens), "--threads", str(args.threads), "--seed", str(args.seed),
                ]  # fmt: skip
                told = subprocess.run(
                    words, env={**os.environ, "PYTHONPATH": str(codes[name])}, stdout=subprocess.PIPE, check=True, text=True
                )
                taken.setdefault(name, []).append(json.loads(told.stdout.splitlines()[-1]))
                say(f"{name}: {taken[name][-1]}")
    line: dict[str, Any] = {"missions": len(taken["this"]), "against": args.against or None}
    for name, rows in taken.items():
        line[name] = {figure: round(statistics.median(row[figure] for row in rows), 3) for figure in rows[0]}
    if "that" in taken:
        line["ratio"] = round(statistics.median(a["read_s"] / b["read_s"] for a, b in zip(taken["this"], taken["that"], strict=True)), 3)
    return line


@contextlib.contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """The code of a revision, in a folder that lasts as long as the block."""
    with tempfile.TemporaryDirectory(prefix="batos-bench-") as folder:
        path = Path(folder, "code")
        subprocess.run(["git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(path), revision], check=True)
        try:
            yield path
        finally:
            subprocess.run(["git", "-C", str(ROOT), "worktree", "remove", "--force", str(path)], check=True)


async def one_reading(args: argparse.Namespace) -> dict[str, Any]:
    """Of one mission with evidence: seconds of reading, tokens, prompts, and how many of these held the evidence."""
    depth = "facets" if "depth" in ledger.DEFAULTS else ""
    chance = random.Random(f"{args.seed} {args.one}")
    case = f"case {chance.randrange(10**6):06d}"
    note = _words(chance, round(args.tokens * CHARS / 4))
    brief = f"About {case}. {_words(chance, round(args.tokens * CHARS * 3 / 4))}\n\nWhat would you do first about {case}, and what next?"
    async with server(args) as (host, folder):
        with Overheard() as heard:
            file = folder / "note.md"
            file.write_text(f"# {case.capitalize()}\n\nAbout {case}: {note}\n", "utf-8")
            async with sides(host, folder / "data", args, depth, num_ctx=NUM_CTX, evidence_alike=-1) as both:
                ingest = await both.kernel.memory.ask([str(file)], [])
                await ingest.done(lambda event: None)
                await both.direct("Good morning.")  # loads the weights
                heard.clear()
                said = await both.mission("reading", brief)
    prompts = [" ".join(str(message["content"]) for message in asked["messages"]) for asked in heard.asked]
    return {
        "read_s": round(heard.read_s, 3), "read_tokens": heard.read_tokens, "prompts": len(prompts), "seconds": round(said.seconds, 2),
        "longest": max((part.prompt_eval_count or 0) for part in heard.ended),
        "with_evidence": sum(note[:40] in prompt for prompt in prompts),
    }  # fmt: skip


def _words(chance: random.Random, chars: int) -> str:
    """Sentences that nobody has read before, so many characters long."""
    text = ""
    while len(text) < chars:
        one, other, third = chance.sample(NOUNS, 3)
        text += f"The {one} {chance.choice(VERBS)} the {other} near the {third} number {chance.randrange(100)}. "
    return text.strip()


if __name__ == "__main__":
    main()
