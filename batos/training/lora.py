"""Training of a LoRA adapter on the base of a profile, on the CPU: bounded in time, seeded, and resumable.

Plain LoRA (Hu et al. 2021, arXiv:2106.09685) on the projections of the upper layers. The frozen weights are in bfloat16 where the
processor computes in it, the adapter in float32. Only the tokens of the answer count in the loss, and only for these the scores of the
vocabulary are computed.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from batos import private_files
from batos.errors import InvalidInput

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_STATE = "training.pt"
_EVERY = 25  # steps between two points of the curve
_SMOOTH = 0.95
_REPETITION = 1.1  # Ollama's own default of the repetition penalty
Pairs = Sequence[tuple[str, str]]
"""Prompt and answer of each example, as the model reads them."""


@dataclass(frozen=True)
class TrainingPlan:
    """The parameters of a training."""

    minutes: float
    seed: int = 1
    rank: int = 16
    alpha: int = 32
    rate: float = 8e-4
    batch: int = 8
    first_layer: int = 8
    projections: Sequence[str] = PROJECTIONS
    threads: int = 2
    passes: int = 0
    """Most passes over the data. With 0, passes go on as long as there is time."""


@dataclass
class Point:
    """A point of the curve: losses in nats a token, smoothed over the training, and of the validation as it is."""

    step: int
    seconds: float
    loss: float
    validation: float | None = None


class Trainer:
    """One training.

    :param weights: a GGUF file of the base.
    :param work: folder of the files for resuming. Only its owner removes it.
    """

    def __init__(self, weights: Path, work: Path, plan: TrainingPlan) -> None:
        import torch

        self.plan, self._work = plan, work
        torch.set_num_threads(plan.threads)
        torch.manual_seed(plan.seed)
        self._torch = torch
        self._tokenizer, self._model = base_model(weights)
        self._adapted = adapt(self._model, plan)
        self._parameters = [p for pair in self._adapted.values() for p in (pair.a, pair.b)]
        self._optimizer = torch.optim.AdamW(self._parameters, lr=plan.rate, weight_decay=0.0)
        self.curve: list[Point] = []
        self.step, self.seconds = 0, 0.0

    # --- resuming

    @property
    def _state(self) -> Path:
        return self._work / _STATE

    def resume(self, digest: str) -> bool:
        """Resume the training of the work folder. Return True if there was one.

        :param digest: digest of the data.
        :raises InvalidInput: if the training began with other data or another plan.
        """
        if not self._state.exists():
            return False
        held = self._torch.load(self._state, weights_only=True)
        same = _comparable(TrainingPlan(**json.loads(held["plan"]))) == _comparable(self.plan)
        if held["digest"] != digest or not same:
            raise _of_another(self._state)
        for parameter, value in zip(self._parameters, held["adapter"], strict=True):
            parameter.data.copy_(value)
        self._optimizer.load_state_dict(held["optimizer"])
        self.step, self.seconds = held["step"], held["seconds"]
        self.curve = [Point(**point) for point in json.loads(held["curve"])]
        return True

    def read(self, file: Path) -> dict[str, Any]:
        """Read the tensors of an earlier training's adapter.

        :raises InvalidInput: if it is of another rank or other layers.
        """
        from safetensors.torch import load_file

        held: dict[str, Any] = load_file(file)
        if {name: value.shape for name, value in held.items()} != {name: value.shape for name, value in self.tensors().items()}:
            raise InvalidInput(f"{file} has other layers or another rank than this training; begin with --fresh")
        return held

    def take(self, held: Mapping[str, Any]) -> None:
        """Continue from these tensors, under PEFT's names, in place of the present ones."""
        for name, pair in self._adapted.items():
            for half in ("A", "B"):
                getattr(pair, half.lower()).data.copy_(held[_tensor(name, half)])

    def keep_the_better(self, before: Mapping[str, Any], checked: Pairs) -> tuple[float, float]:
        """Keep the trained adapter, or its mean with the initial adapter, whichever has the smaller loss. Return both losses.

        The mean of an adapter and its continuation forgets less of either: Wortsman et al. 2022 (arXiv:2109.01903, 2203.05482).
        """
        learned, encoded = self.tensors(), [self._encoded(*pair) for pair in checked]
        alone = self._loss_of(encoded)
        self.take({name: (value.float() + before[name].float()) / 2 for name, value in learned.items()})
        together = self._loss_of(encoded)
        if alone <= together:
            self.take(learned)
        return alone, together

    def save(self, digest: str) -> None:
        """Write the state from which the training can resume."""
        private_files.make(self._work)
        held = {
            "plan": json.dumps(asdict(self.plan)), "digest": digest, "step": self.step, "seconds": self.seconds,
            "adapter": [p.data for p in self._parameters], "optimizer": self._optimizer.state_dict(),
            "curve": json.dumps([asdict(point) for point in self.curve]),
        }  # fmt: skip
        partial = self._state.with_suffix(".partial")
        with private_files.renew(partial) as file:
            self._torch.save(held, file)
        partial.replace(self._state)

    # --- training

    def train(self, data: Pairs, validation: Pairs, digest: str, tell: Callable[[Point, float], None], save_s: float = 60.0) -> None:
        """Train until the minutes or the passes are used up.

        :param tell: called with each point of the curve, and the progress (0 to 1).
        """
        if not self.step:  # else this training would resume from the state of an earlier one
            self._state.unlink(missing_ok=True)
        encoded, checked = [self._encoded(*pair) for pair in data], [self._encoded(*pair) for pair in validation]
        begun, before, saved = time.monotonic(), self.seconds, time.monotonic()
        smooth = self.curve[-1].loss if self.curve else None
        last = self.plan.passes * math.ceil(len(encoded) / self.plan.batch)
        for batch in self._batches(encoded):
            self.seconds = before + time.monotonic() - begun
            done = max(self.seconds / (self.plan.minutes * 60), self.step / last if last else 0.0)
            if done >= 1:
                break
            loss = self._learn(batch, done)
            smooth = loss if smooth is None else _SMOOTH * smooth + (1 - _SMOOTH) * loss
            self.step += 1
            if self.step % _EVERY == 0:
                value = self._loss_of(checked) if checked and self.step % (_EVERY * 4) == 0 else None
                self.curve.append(Point(self.step, round(self.seconds, 1), round(smooth, 4), value))
                tell(self.curve[-1], done)
            if time.monotonic() - saved > save_s:
                self.save(digest)
                saved = time.monotonic()
        if smooth is not None and (not self.curve or self.curve[-1].step < self.step):
            self.curve.append(Point(self.step, round(self.seconds, 1), round(smooth, 4)))
        self.save(digest)

    def _batches(self, encoded: list[tuple[list[int], list[int]]]) -> Iterator[list[tuple[list[int], list[int]]]]:
        """Yield batches of examples of about the same length, in the order of the seed, from the next step on."""
        size, number = self.plan.batch, 0
        for epoch in range(10**6):
            rng = random.Random(f"{self.plan.seed} {epoch}")
            order = rng.sample(range(len(encoded)), len(encoded))
            pools = [sorted(order[i : i + size * 32], key=lambda n: len(encoded[n][0])) for i in range(0, len(order), size * 32)]
            batches = [pool[i : i + size] for pool in pools for i in range(0, len(pool), size)]
            rng.shuffle(batches)
            for batch in batches:
                if number >= self.step:
                    yield [encoded[n] for n in batch]
                number += 1

    def _learn(self, batch: list[tuple[list[int], list[int]]], done: float) -> float:
        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.rate * min(1.0, (self.step + 1) / 20) * (1 - done)
        loss = self._loss(batch)
        loss.backward()
        self._torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.detach())

    def _loss(self, batch: list[tuple[list[int], list[int]]]) -> Any:
        torch = self._torch
        width = max(len(asked) + len(said) for asked, said in batch)
        ids = torch.tensor([asked + said + [0] * (width - len(asked) - len(said)) for asked, said in batch])
        mask = torch.tensor([[1] * (len(a) + len(s)) + [0] * (width - len(a) - len(s)) for a, s in batch])
        hidden = self._model.model(input_ids=ids, attention_mask=mask).last_hidden_state
        before = torch.cat([hidden[row, len(a) - 1 : len(a) + len(s) - 1] for row, (a, s) in enumerate(batch)])
        wanted = torch.tensor([token for _, said in batch for token in said])
        return torch.nn.functional.cross_entropy(self._model.lm_head(before).float(), wanted)

    def _loss_of(self, encoded: list[tuple[list[int], list[int]]]) -> float:
        with self._torch.no_grad():
            size = self.plan.batch
            losses = [float(self._loss(encoded[i : i + size])) for i in range(0, len(encoded), size)]
        return round(sum(losses) / len(losses), 4)

    def _encoded(self, prompt: str, answer: str) -> tuple[list[int], list[int]]:
        asked, said = (list(self._tokenizer(text, add_special_tokens=False).input_ids) for text in (prompt, answer))
        return asked, said

    # --- results

    def perplexity(self, data: Pairs) -> float:
        """Return the perplexity of the model as it is now: e to the mean loss of the answers' tokens."""
        total = count = 0.0
        with self._torch.no_grad():
            for prompt, answer in data:
                asked, said = self._encoded(prompt, answer)
                total += float(self._loss([(asked, said)])) * len(said)
                count += len(said)
        return math.exp(total / count)

    def answers(self, prompts: Sequence[str], tokens: int) -> list[str]:
        """Return the model's present answer to each prompt, by greedy decoding and of a bounded length. All at once is faster."""
        torch = self._torch
        asked = [self._tokenizer(prompt, add_special_tokens=False).input_ids for prompt in prompts]
        width = max(map(len, asked))
        ids = torch.tensor([[0] * (width - len(one)) + list(one) for one in asked])
        mask = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in asked])
        with torch.no_grad():
            said = self._model.generate(
                ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, repetition_penalty=_REPETITION, pad_token_id=0
            )
        return [str(self._tokenizer.decode(one[width:], skip_special_tokens=True)).strip() for one in said]

    @property
    def layers(self) -> int:
        """Return the number of layers of the base."""
        return len(self._model.model.layers)

    def tensors(self) -> dict[str, Any]:
        """Return the adapter under PEFT's names, in half precision."""
        return {
            _tensor(name, half): getattr(pair, half.lower()).detach().half().contiguous()
            for name, pair in self._adapted.items()
            for half in ("A", "B")
        }


def _tensor(name: str, half: str) -> str:
    """Return the name of a tensor as PEFT has it."""
    return f"base_model.model.{name}.lora_{half}.weight"


def begun(work: Path, plan: TrainingPlan) -> TrainingPlan:
    """Return the plan of the training that a work folder holds, before it is resumed.

    :param plan: the plan to resume it by. Only its learning rate may differ.
    :raises InvalidInput: if the folder holds no readable training, or one by another plan.
    """
    state = work / _STATE
    if not state.exists():
        raise InvalidInput(f"{work} holds no training that was interrupted; leave out --resume, and one begins")
    import torch

    try:
        held = TrainingPlan(**json.loads(torch.load(state, weights_only=True)["plan"]))
    except Exception as e:  # torch's readers raise many types of error: a power cut may have left an empty file
        raise InvalidInput(f"{state} cannot be read ({type(e).__name__}); remove it, or leave out --resume") from e
    if _comparable(replace(held, rate=plan.rate)) != _comparable(plan):
        raise _of_another(state)
    return held


def _of_another(state: Path) -> InvalidInput:
    return InvalidInput(f"{state} is of other data or another plan; remove it, or leave out --resume")


def _comparable(plan: TrainingPlan) -> dict[str, Any]:
    """Return the fields of a plan that a resumed training must keep. Duration and threads may change."""
    held: dict[str, Any] = json.loads(json.dumps(asdict(plan)))
    return {name: value for name, value in held.items() if name not in ("minutes", "threads")}


def base_model(weights: Path) -> tuple[Any, Any]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        weights.parent,
        gguf_file=weights.name,
        dtype=torch.bfloat16 if computes_in_bfloat16() else torch.float32,
        attn_implementation="eager",  # a tenth faster here than torch's own
    )
    model.requires_grad_(False)
    return tokenizer, model


def computes_in_bfloat16() -> bool:
    """Return True if this processor computes in bfloat16. Without it such matrix products take forty times as long as in float32 (1.8
    instead of 71 GFLOP/s with AVX2 alone).
    """
    import torch

    known = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # torch's own compiler asks the same; only on x86 and ARM
    return bool(known is not None and known())


def adapt(model: Any, plan: TrainingPlan) -> Mapping[str, Any]:
    """Put LoRA pairs beside the projections of a Llama's layers from `first_layer` on; the pairs by the projections' names."""
    import torch

    class Adapted(torch.nn.Module):
        def __init__(self, frozen: Any) -> None:
            super().__init__()
            self.frozen, self.scale = frozen, plan.alpha / plan.rank
            self.a = torch.nn.Parameter(torch.empty(plan.rank, frozen.in_features))
            self.b = torch.nn.Parameter(torch.zeros(frozen.out_features, plan.rank))
            torch.nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

        def forward(self, x: Any) -> Any:
            return self.frozen(x) + (x @ self.a.to(x.dtype).T) @ self.b.to(x.dtype).T * self.scale

    found = {}
    for number, layer in enumerate(model.model.layers):
        for part in (layer.self_attn, layer.mlp) if number >= plan.first_layer else ():
            where = "self_attn" if part is layer.self_attn else "mlp"
            for name in plan.projections:
                if hasattr(part, name):
                    setattr(part, name, pair := Adapted(getattr(part, name)))
                    found[f"model.layers.{number}.{where}.{name}"] = pair
    return found
