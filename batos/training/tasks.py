"""Tasks: a family with its holes filled, in one wording, with a call, an example, and trials whose answers are known.

The answers are those of the family's method in plain Python; `batos.training.dataset` then holds the sandbox against them.
"""

from __future__ import annotations

import copy
import random
import re
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from batos.forge import method_prompts
from batos.objects import Example, Method, UvmObject
from batos.synthesis import specification
from batos.synthesis.families import NEW_SLOT_NAMES, SLOT_NAMES, Family, draw, fill
from batos.synthesis.handbook import Handbook
from batos.training import samplers

_DISTRACTING = ("flag", "number", "numbers", "record", "text", "words")
_THINK = 'def think_(self, guidance, question):\n    return guidance + " / " + question\n'
_BY_NAME = {
    "text": ("message", "sentence", "phrase", "word", "line"), "number": ("amount", "value", "count", "n", "limit"),
    "items": ("values", "entries", "things"), "record": ("table", "data"), "flag": ("enabled", "on"),
}  # fmt: skip
_BEGINNINGS, _ENDS = ("", "", "", "", "please ", "now ", "I need ", "it shall answer: "), ("", "", "", ".", ".", "!")
CASES, TRIALS = 14, 5


class Task(NamedTuple):
    """One task with its answer.

    :ivar shape: of its family (`Family.shape`).
    :ivar helpers: sources of messages that the object understands, by selector.
    :ivar shown: the example that a user gives; the trials are never shown.
    """

    family: str
    group: str
    part: str
    shape: str
    selector: str
    intent: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    slots: Mapping[str, Any]
    helpers: Mapping[str, str]
    shown: Example
    trials: tuple[Example, ...]
    source: str

    def to_json(self) -> dict[str, Any]:
        """Return the task as a JSON object."""
        return {
            **self._asdict(), "args": list(self.args), "kwargs": dict(self.kwargs),
            "shown": self.shown.to_json(), "trials": [one.to_json() for one in self.trials],
        }  # fmt: skip

    def target(self) -> UvmObject:
        """Return the task's receiver, in no image."""
        obj = UvmObject(**copy.deepcopy(dict(self.slots)))
        for selector, source in self.helpers.items():
            obj._slots[selector] = Method(selector, source)
        return obj

    def prompt(self, *, example: bool, chars: int = 4000, book: Handbook | None = None, but: Collection[str] = ()) -> str:
        """Return the request for its method, as the forge makes it for an expert."""
        shown = [self.shown] if example else []
        wanted = method_prompts.WantedMethod(self.target(), self.selector, self.args, dict(self.kwargs), self.intent, shown)
        (request,) = method_prompts.compact(wanted, chars=chars, book=book, but=but)
        return request


def make(family: Family, rng: random.Random, *, new_names: bool = False) -> Task | None:
    """Return a task of a family; None where too few of the drawn calls have an answer."""
    holes, slot_kinds, helpers = draw(family, rng, new_names=new_names)
    if family.group == "thinking" or rng.random() < 0.1:
        helpers["think_"] = _THINK
    body = fill(family.body, holes)
    cases = [case(family, slot_kinds, holes, rng) for _ in range(CASES)]
    selector = re.sub("_+", "_", fill(rng.choice(family.selectors), holes).lower().rstrip("_"))
    selector = f"{selector}_" if family.kinds and rng.random() < 0.8 else selector
    given = canonical(cases[0][1], family.kinds)
    names, keyword = _names(selector, cases[0][1], body, rng)
    body = _renamed(body, dict(zip(given, names, strict=True)))
    source = f"def {selector}({', '.join(('self', *names))}):\n{body}"
    distractors = _distractors(rng, slot_kinds, new_names)
    methods = _compiled(source, *helpers.values())
    found = [
        example
        for slots, args in cases
        if (example := _answered(methods, selector, {**distractors, **slots}, args, keyword, slots)) is not None
    ]
    if len(found) < CASES // 2:
        return None
    shown, *trials = _various(found, rng)
    if not trials:
        return None
    call = trials[-1]
    return Task(
        family.name, family.group, family.part, family.shape, selector, _wording(family, holes, rng), call.args, dict(call.kwargs),
        {**distractors, **dict(call.slots)}, helpers, shown, tuple(trials[:TRIALS]), source,
    )  # fmt: skip


def examples_of(source: str, selector: str, calls: Iterable[tuple[Sequence[Any], Mapping[str, Any]]]) -> list[Example]:
    """Return the examples of a method of this package on calls where it does not fail.

    :param calls: arguments, and the slots before the call.
    """
    methods = _compiled(source)
    came = (_answered(methods, selector, slots, args, None, slots) for args, slots in calls)
    return [one for one in came if one is not None]


# --- names, words


def _distractors(rng: random.Random, slot_kinds: Mapping[str, str], new_names: bool) -> dict[str, Any]:
    """Return slots that the method does not use."""
    found: dict[str, Any] = {}
    for kind in rng.sample(_DISTRACTING, rng.choice((0, 0, 1, 2))):
        name = rng.choice((NEW_SLOT_NAMES if new_names else SLOT_NAMES)[kind])
        if name not in slot_kinds:
            found[name] = samplers.sample(kind, rng, ())
    return found


def canonical(args: Sequence[Any], of: Sequence[str]) -> list[str]:
    """Return the names of arguments in a family's method."""
    stand_ins = [object() if kind in ("item_of", "member_of") else value for kind, value in zip(of, args, strict=True)]
    return _parameters("m", stand_ins)


def _parameters(selector: str, args: Sequence[Any]) -> list[str]:
    inside = specification.signature(selector, args, {}).partition("(")[2].removesuffix("):")
    return inside.split(", ")[1:]


def _names(selector: str, args: Sequence[Any], body: str, rng: random.Random) -> tuple[list[str], str | None]:
    """Return the names of the method's parameters; and the last one's, where it is given by name."""
    names = _parameters(selector, args)
    if not names or rng.random() > 0.12:
        return names, None
    able = [name for name in _BY_NAME.get(names[-1].rstrip("0123456789"), ()) if name not in names and not re.search(rf"\b{name}\b", body)]
    if not able:
        return names, None
    return [*names[:-1], able_name := rng.choice(able)], able_name


def _renamed(body: str, names: Mapping[str, str]) -> str:
    if not names:
        return body
    pattern = r"(?<![\w.])(" + "|".join(sorted(map(re.escape, names), key=len, reverse=True)) + r")\b(?!=)"
    return re.sub(pattern, lambda found: names[found[1]], body)


def _wording(family: Family, holes: Mapping[str, str], rng: random.Random) -> str:
    if rng.random() < 0.1 and family.group != "thinking":
        return ""
    text = fill(rng.choice(family.told), dict(holes))
    if family.group == "thinking":
        return text + rng.choice(("", ".", "."))
    beginning = rng.choice(_BEGINNINGS)
    text = f"{beginning}{text}{rng.choice(_ENDS)}"
    return text[:1].upper() + text[1:] if rng.random() < 0.3 else text


# --- calls and their answers


def case(family: Family, slot_kinds: Mapping[str, str], holes: Mapping[str, str], rng: random.Random) -> tuple[dict[str, Any], list[Any]]:
    slots = {name: _few_fields(samplers.sample(kind, rng, ()), holes) for name, kind in slot_kinds.items()}
    values: list[Any] = list(slots.values())
    args: list[Any] = []
    for kind in family.kinds:
        value = _few_fields(samplers.sample(kind, rng, [*values, *args]), holes)
        args.append(value)
    return slots, args


def _few_fields(value: Any, holes: Mapping[str, str]) -> Any:
    """Return records with their name, the fields that matter, and one more."""
    sample = value[0] if isinstance(value, list) and value else value
    if not isinstance(sample, dict) or not {"name", "city", "age"} <= set(sample):
        return value
    kept = {"name", holes.get("FIELD", ""), holes.get("TFIELD", ""), "age"}
    if isinstance(value, list):
        return [{k: v for k, v in one.items() if k in kept} for one in value]
    return {k: v for k, v in value.items() if k in kept}


def _answered(
    methods: Mapping[str, Any], selector: str, slots: Mapping[str, Any], args: Sequence[Any], keyword: str | None, told: Mapping[str, Any]
) -> Example | None:
    """Return the method's answer and the slots after it; None where it fails."""
    given = copy.deepcopy(list(args))
    by_name = {keyword: given.pop()} if keyword else {}
    kept = (tuple(copy.deepcopy(given)), tuple(copy.deepcopy(by_name).items()))
    receiver = types.SimpleNamespace(**copy.deepcopy(dict(slots)))
    for name, method in methods.items():
        setattr(receiver, name, types.MethodType(method, receiver))
    try:
        result = methods[selector](receiver, *given, **by_name)
    except (ArithmeticError, LookupError, ValueError, TypeError, StopIteration, AttributeError):
        return None
    after = {name: _plain(getattr(receiver, name)) for name in told}
    changed = tuple((name, value) for name, value in after.items() if value != told[name])
    return Example(kept[0], kept[1], _plain(result), tuple(copy.deepcopy(dict(told)).items()), changed)


def _compiled(*sources: str) -> dict[str, Any]:
    """Return the functions of sources of this package. A model's sources run in the sandbox only."""
    scope: dict[str, Any] = {}
    for source in sources:
        exec(source, scope)  # noqa: S102
    return {name: made for name, made in scope.items() if isinstance(made, types.FunctionType)}


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return {key: _plain(one) for key, one in value.items()} if isinstance(value, dict) else value


def _various(found: list[Example], rng: random.Random) -> list[Example]:
    """Return different examples: specific ones first, as a user gives them, and among these different results."""
    different = list({repr(one): one for one in found}.values())
    rng.shuffle(different)
    different.sort(key=_shows_little)
    by_result: dict[str, Example] = {}
    for one in different:
        by_result.setdefault(repr((one.result, one.after)), one)
    first = list(by_result.values())
    return first + [one for one in different if not any(one is other for other in first)]


def _shows_little(one: Example) -> bool:
    """Return True for an example that many methods satisfy: the answer is nothing, or one of the inputs, and no slot changes."""
    if one.after or isinstance(one.result, bool):
        return False
    given = [*one.args, *(value for _, value in (*one.kwargs, *one.slots))]
    return one.result in (None, 0, "", [], {}) or any(one.result == value for value in given)
