"""Train a small LoRA adapter that gives a persona a voice, on the CPU, and write it as an expert that BAT OS takes.

    pip install '.[training]'
    python examples/experts/train_voice.py examples/experts/ships-log/phrases.toml OUT --minutes 6

The examples are made of what `phrases.toml` holds: facts about a topic, and the words that the voice puts around them. They
are asked for in the very prompts of the persona's states, so that the voice is there when a mission is thought through. The base
is SmolLM2-135M as the `embedded` profile has it. Write an `expert.toml` beside what comes out, as in ships-log/.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from batos.bridge.profiles import load_profile
from batos.mind import plans
from batos.mind.codex import load_codex
from batos.mind.psm import STATES

PROJECTIONS = ["v_proj", "o_proj", "up_proj", "down_proj"]
RANK, ALPHA, RATE, BATCH = 4, 16, 1e-3, 8
BRIEFS = ("What do you know about {}?", "Tell me about {}.", "Look up {}.", "What is special about {}?", "Find me something about {}.")
PLAIN = "Here is what is known about {}: {}"


def prompts(brief: str, topic: str, facts: list[str], said: str, persona: Any, rng: random.Random) -> tuple[str, str | None]:
    """A prompt as one of the persona's states makes it, and the answer where that is no matter of style.

    :param said: what the voice would have said as a facet: half of the notes to weave are in the voice already.
    """
    facet, intent = rng.choice(list(persona.protocols.items()))
    kind = rng.choice(("bare", "facet", "facet", "weave", "weave", "plan"))
    if kind == "bare":
        return brief, None
    if kind == "facet":
        query = rng.choice((brief, f"What is surprising about {topic}?", f"Facts on {topic}"))
        return plans.fill(STATES["DELEGATING"]["meta_prompt"], intent=intent, brief=brief, query=query), None
    if kind == "weave":
        notes = plans.voices([(facet, rng.choice((said, PLAIN.format(topic, " ".join(facts)))))])
        return plans.fill(STATES["SYNTHESIZING"]["meta_prompt"], brief=brief, voices=notes), None
    names = [facet, "plain_facet_"]
    listed = f"- {facet}: {intent}\n- plain_facet_: Answer the request directly."
    plan = {facet: f"What is surprising about {topic}?", "plain_facet_": f"What should one know about {topic}?"}
    return plans.fill(STATES["DECOMPOSING"]["meta_prompt"], brief=brief, facets=listed, names=", ".join(names)), json.dumps(plan)


def spoken(topic: str, facts: list[str], voice: dict[str, Any], rng: random.Random) -> str:
    """The facts as the voice says them."""
    opening, closing, *between = (rng.choice(voice[name]) for name in ("opening", "closing", "between"))
    return f"{opening.format(topic)} {facts[0]} {between[0]} {facts[1]} {closing}"


def examples(phrases: dict[str, Any], rng: random.Random) -> list[tuple[str, str, str]]:
    """System message, prompt and answer of each example."""
    persona = load_codex().personas[phrases["persona"]]
    system = (
        f"You are {phrases['persona'].upper()}. {persona.core_mission} Your method: {persona.core_method} "
        f"You work in the spirit of: {'; '.join(persona.pillars)}."
    )
    found = []
    for topic, facts in phrases["topics"].items():
        for brief, chosen in itertools.product(BRIEFS, itertools.permutations(facts, 2)):
            said, noted = (spoken(topic, list(order), phrases["voice"], rng) for order in (chosen, facts))
            prompt, answer = prompts(brief.format(topic), topic, facts, noted, persona, rng)
            found.append((system, prompt, answer or said))
    rng.shuffle(found)
    return found


def train(data: list[tuple[str, str, str]], minutes: float, threads: int) -> Any:
    """The adapted model, after so many minutes."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    file = next(iter(load_profile("embedded").models[0].paths().values()))
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=PROJECTIONS, task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)

    def encoded(system: str, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        before = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        asked, said = (tokenizer(text, add_special_tokens=False).input_ids for text in (before, answer + "<|im_end|>"))
        return asked + said, [-100] * len(asked) + said

    begun, smooth = time.monotonic(), None
    for step in itertools.count():
        done = (time.monotonic() - begun) / (minutes * 60)
        if done >= 1:
            return model
        batch = [encoded(*data[(step * BATCH + i) % len(data)]) for i in range(BATCH)]
        width = max(len(ids) for ids, _ in batch)
        tensors = [
            torch.tensor([row + [fill] * (width - len(row)) for row in rows])
            for rows, fill in zip(zip(*batch, strict=True), (0, -100), strict=True)
        ]
        mask = torch.tensor([[1] * len(ids) + [0] * (width - len(ids)) for ids, _ in batch])
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, step / 10) * (1 - done)
        loss = model(input_ids=tensors[0], attention_mask=mask, labels=tensors[1]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()
        if step % 10 == 0:
            print(f"step {step}, loss {smooth:.3f}, {done:.0%}", flush=True)


def main() -> None:
    """Read the phrases, train, write the adapter in half precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("phrases", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    data = examples(tomllib.loads(given.phrases.read_text("utf-8")), random.Random(1))
    print(f"{len(data)} examples")
    model = train(data, given.minutes, given.threads)
    model.peft_config["default"].base_model_name_or_path = "HuggingFaceTB/SmolLM2-135M-Instruct"
    model.save_pretrained(given.out)
    weights = given.out / "adapter_model.safetensors"
    save_file({name: value.astype(np.float16) for name, value in load_file(weights).items()}, weights, {"format": "pt"})
    (given.out / "README.md").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
