"""The prompts by which a model is asked for a method: the object, its neighbours, the purpose, examples, and the rules.

The form is compact and the same for every method, since small experts are trained on it (`batos train methods`).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from batos.bridge.inference import ChatReply
from batos.config.limits import Limits, limit
from batos.forge.session import SynthesisSession
from batos.mind.attempt import Attempt
from batos.mind.psm import asker_of
from batos.objects import Example, Intent, Method, Primitive, UvmObject, lookup_order
from batos.synthesis.specification import parameters, signature
from batos.tools import connections

if TYPE_CHECKING:  # a daemon without an expert writer has no handbook
    from batos.synthesis.handbook import Handbook, HandbookEntry

SYSTEM = (
    "You write one method of an object in Python. Answer with the method only: one def, nothing before or behind it. "
    "Slots are attributes of self. A method that changes a slot sets self._p_changed = True after its last change, before every return. "
    "No classes, no yield, no global, no names that begin with an underscore. "
    "Modules that may be imported inside the method: "
    "re, json, math, datetime, random, itertools, functools, collections, statistics, string."
)
COMPACT_SYSTEM = "Write one Python method."
"""System prompt of an expert for methods: its training holds the rest."""
_SEALED = (
    "It is a plan: all calls stand in it before any tool has answered. Numbers, truth values, enumerations and dates that a tool answers "
    "are plain. Any other text is sealed: do not compare, cut, format or join it. Read it by text.number_in_('words before it'), "
    "text.one_of_(['a', 'b']), text.lines_() or text.read_(json_schema), hand it to self.think_('what to do with it', text), give it whole "
    "to a tool as its text, body or message, or return it. Addresses and paths are written out. What acts in a loop is bounded by a "
    "literal: for item in items[:10]. Return what the request asks for."
)
VIEWS = ((0, 1, 2), (3, 4, 5), (1, 5, 6), (), (6, 7, 8))
"""Indexes of the handbook's methods, nearest first, in the prompt of an expert: at first the three nearest, in further draws others or
none. Other methods change the draft more than another random seed does.
"""
TOLD = 0.9
"""Share of the request's words that the nearest method must explain to be the only one in the prompt."""
_VALUE = 80  # greatest number of characters of a value in a prompt
_SLOTS, _NEIGHBOURS, _LESSONS = 16, 3, 3
_COMPACT_SLOTS, _COMPACT_SENDS, _COMPACT_VALUE, _COMPACT_EXAMPLES = 3, 3, 48, 2
_COMPACT_DOUBT = 300  # greatest number of characters of a doubt


@dataclass(frozen=True, slots=True)
class SynthesisLimits(Limits):
    """Limits of the writing of methods."""

    tries: int = limit(4, ge=1, le=32)
    """Greatest number of drafts that a model may write for one method, repairs included."""
    expert_tries: int = limit(8, ge=1, le=64)
    """Greatest number of different drafts of an expert for one message; each takes about a second."""
    candidates: int = limit(3, ge=1, le=16)
    """Number of drafts of an expert for a method without examples; the result states how many agree."""
    edits: int = limit(600, ge=0, le=10_000)
    """Greatest number of edits of a method that are tried on its examples, for about a second; 0: none."""
    reuse: int = limit(1500, ge=0, le=100_000)
    """Greatest number of calls of known methods that are tried on the examples of a new method, for about a second; 0: none."""
    parts: int = limit(300_000, ge=0, le=10_000_000)
    """Greatest number of values computed from the inputs to compose a method, for about three seconds; 0: no method is composed."""
    ahead_s: float = limit(10.0, ge=0, le=86_400)
    """Seconds after the start from which the tables for an expert's lessons are loaded, if objects were sent messages; 0: at a lesson."""
    chars: int = limit(4000, ge=500, le=100_000)
    """Greatest number of characters of a request for a method, but for its tools."""
    tool_chars: int = limit(6000, ge=500, le=100_000)
    """Greatest number of characters of the tools in such a request."""
    reasons: int = limit(4, ge=1, le=32)
    """Greatest number of reasons of a refusal in the next prompt."""
    lessons: int = limit(20, ge=0, le=1000)
    """Greatest number of earlier failures of a selector that are searched for lessons; 0: none."""
    examples: int = limit(16, ge=1, le=1000)
    """Number of examples kept for one message of one object, the newest."""


def purpose(selector: str, intent: str) -> str:
    """Return the purpose of a method in words: its intent, or the words of its selector."""
    return intent or f"what its name says: {selector.strip('_').replace('_', ' ')}"


class WantedMethod(NamedTuple):
    """A method that a model shall write: its receiver, the message that asked for it, its purpose, and its examples.

    :ivar intent: the purpose in words; "" where the selector alone tells it.
    :ivar tools: tools that the method may use, the weightiest first, one text each.
    :ivar rules: what holds for all of them.
    :ivar sealed: True for a plan, to which free texts of tools are sealed.
    :ivar doubts: reasons why the version before is written anew.
    """

    obj: UvmObject
    selector: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    intent: str = ""
    examples: Sequence[Example] = ()
    tools: Sequence[str] = ()
    rules: str = ""
    sealed: bool = False
    doubts: Sequence[str] = ()


def prompt(wanted: WantedMethod, *, lessons: Sequence[str], chars: int) -> str:
    """Return the request for a method to a general model, of at most `chars` characters but for its tools. The least important parts are
    left out first.

    :param lessons: reasons of earlier refusals.
    """
    obj, selector, args, kwargs, intent, examples, tools, rules, sealed, _ = wanted
    head = [f"Object: {_title(obj)}", *_slots(obj)] if not _kept_as(obj) else [f"Object: {obj.name}, a connection to a place outside"]
    core = [f"Write: {signature(selector, args, kwargs)}", f"It does: {purpose(selector, intent)}"]
    if args or kwargs:
        core.append(f"Called with: {_call(args, kwargs)}")
    core += [f"Example: {_example(selector, one)}" for one in examples]
    optional = [f"Avoid: {lesson}" for lesson in lessons[:_LESSONS]]
    optional += [f"A method of the same object:\n{source}" for source in neighbours(obj, selector)]
    text = "\n".join((*head, *core))
    for part in optional:
        if len(text) + len(part) + 1 <= chars:
            text += f"\n{part}"
    return "\n".join((text[:chars], *([rules, *tools] if tools else ()), *([_SEALED] if sealed else ())))


def compact(
    wanted: WantedMethod,
    *,
    chars: int,
    book: Handbook | None = None,
    but: Collection[str] = (),
    own: Sequence[HandbookEntry] = (),
    views: Sequence[Sequence[int]] = VIEWS[:1],
) -> tuple[str, ...]:
    """Return the requests for a method to an expert, in the short form that it was trained on (`batos train methods`).

    A request names the slots that the purpose mentions, and a few besides. Before it stand the nearest methods of a handbook. There is one
    request for each view, and no two are equal. There is one alone where the nearest method explains nearly all of the purpose.

    :param but: shapes of the handbook's methods that are not shown.
    :param own: methods of the image itself, which count as the handbook's.
    :param views: which of the nearest methods are shown, of `VIEWS`.
    """
    obj, selector, args, kwargs, intent, examples, tools, _, _, doubts = wanted
    lines = [signature(selector, args, kwargs), purpose(selector, intent)]
    spoken = {part for part in re.split(r"[\W_]+", f"{selector} {intent}".lower()) if part}
    spoken |= {name.lower() for one in examples for name, _ in (*one.slots, *one.after)}
    near, other = _near(obj, spoken)
    held, sends = [*near, *other], sends_spoken_of(obj, selector, intent)
    if held:
        lines.append("; ".join(f"self.{name} = {_short(value)[:_COMPACT_VALUE]}" for name, value in held))
    if sends:
        lines.append(f"sends: {', '.join(sends)}")
    lines += tools
    lines += [f"but {reason[:_COMPACT_DOUBT]}" for reason in doubts[:1]]
    if args or kwargs:
        lines.append(f"called with {_call(args, kwargs)}")
    for one in examples[:_COMPACT_EXAMPLES]:
        if sum(map(len, lines)) + len(line := _example(selector, one)) < chars:
            lines.append(line)
    text = "\n".join(lines)[:chars]
    if book is None:
        return (text,)
    words, names = f"{intent} {selector.replace('_', ' ')}", [name for name, _ in held]
    asked, count = parameters(selector, args, kwargs), max(itertools.chain.from_iterable(views), default=-1) + 1
    found = book.near(words, asked, keeps=bool(near), without=names, but=but, more=own, count=count)
    if found and book.told(words, found[0], without=names) >= TOLD:
        views = views[:1]
    return tuple(dict.fromkeys(_shown([found[n] for n in view if n < len(found)], text, chars) for view in views))


def _shown(entries: Sequence[HandbookEntry], request: str, chars: int) -> str:
    """Return a request behind methods of a handbook, as many as fit into `chars` characters."""
    for entry in reversed(entries):
        if len(request) + len(part := f"# {entry.purpose}\n{entry.source}\n\n") <= chars:
            request = part + request
    return request


def _near(obj: UvmObject, spoken: set[str]) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the slots of an object that the words mention, inherited ones too, and a few others of its own."""
    near: list[tuple[str, Any]] = []
    other: list[tuple[str, Any]] = []
    kept = _kept_as(obj)
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if isinstance(value, Method | Primitive | Intent) or _is_common(name, value) or name in kept:
                continue
            if name.lower() in spoken or any(part in spoken for part in name.lower().split("_") if len(part) > 2):
                near.append((name, value))
            elif holder is obj:
                other.append((name, value))
    return near[:_COMPACT_SLOTS], other[: max(0, _COMPACT_SLOTS - len(near))]


def sends_spoken_of(obj: UvmObject, selector: str, intent: str) -> list[str]:
    """Return the messages of an object that a purpose names, and `think_` where the object understands it."""
    text = f"{selector} {intent}".lower()
    found: dict[str, None] = {}
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if isinstance(value, Method | Primitive | Intent) and name != selector:
                named = re.search(rf"(?<![a-z0-9]){re.escape(name.strip('_').lower())}(?![a-z0-9])", text)
                if named is not None or name == "think_":
                    found[name] = None
    return list(found)[:_COMPACT_SENDS]


def again(first: str, source: str, reasons: Sequence[str], chars: int) -> str:
    """Return the request after a refusal, with the draft and the reasons."""
    why = "\n".join(f"- {reason}" for reason in reasons)
    return f"{first}\n\nYou wrote:\n{source[: chars // 2]}\n\nIt cannot be kept:\n{why}\n\nWrite the whole method again."


def neighbours(obj: UvmObject, selector: str) -> list[str]:
    """Return sources of methods that the object has or inherits, the nearest first, as examples of style."""
    found: list[str] = []
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if isinstance(value, Method) and name != selector and len(found) < _NEIGHBOURS:
                found.append(value.source.strip())
    return found


def _title(obj: UvmObject) -> str:
    name, comment = (str(getattr(obj, slot, "") or "") for slot in ("name", "comment"))
    return f"{name}. {comment}"[:200] if comment else name or "an object"


def _slots(obj: UvmObject) -> list[str]:
    """Return one line of the object's slots, and one of the messages that it understands."""
    held, sends, kept = [], [], _kept_as(obj)
    for holder in lookup_order(obj):
        for name, value in holder._slots.items():
            if isinstance(value, Method | Primitive | Intent):
                sends.append(name)
            elif holder is obj and not _is_common(name, value) and name not in kept:
                held.append(f"self.{name} = {_short(value)}")
    lines = [f"Slots: {'; '.join(held[:_SLOTS])}"] if held else ["Slots: none"]
    return [*lines, f"It understands: {', '.join(dict.fromkeys(sends[:_SLOTS]))}"] if sends else lines


def _kept_as(obj: UvmObject) -> Sequence[str]:
    """Return the slots of a connection that say only how it is kept; none of another object."""
    known = obj._p_jar is not None and connections.is_connection(obj._p_jar.root(), obj)
    return connections.SLOTS if known else ()


def _is_common(name: str, value: Any) -> bool:
    """Return True for a slot that says nothing about this object: a parent, the name, the way to the connections."""
    toolbox = name == "tools" and isinstance(value, UvmObject) and value._slots.get("name") == name
    return name[-1] == "*" or name in ("name", "comment") or toolbox


def _call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ", ".join([*(_short(value) for value in args), *(f"{name}={_short(value)}" for name, value in kwargs.items())])


def _example(selector: str, example: Example) -> str:
    call = f"{selector}({_call(example.args, dict(example.kwargs))}) -> {_short(example.result)}"
    before = f" when {_state(example.slots)}" if example.slots else ""
    after = f", then {_state(example.after)}" if example.after else ""
    return call + before + after


def _state(slots: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"self.{name} = {_short(value)}" for name, value in slots)


def _short(value: Any) -> str:
    if isinstance(value, UvmObject):
        return f"<{_title(value)}>"[:_VALUE]
    try:
        text = json.dumps(value, ensure_ascii=False, default=_repr)
    except (TypeError, ValueError, RecursionError):
        text = _repr(value)
    text = {"null": "None", "true": "True", "false": "False"}.get(text, text)
    return text if len(text) <= _VALUE else text[: _VALUE - 1] + "…"


def _repr(value: Any) -> str:
    """Return the `repr` of a value without its address, which a process that takes the mission up again would tell otherwise."""
    return _ADDRESS.sub(">", repr(value))


_ADDRESS = re.compile(r" object at 0x.*")
TEMPERATURES = (0.1, 0.4, 0.7, 0.9)
"""Temperatures of the first and the later tries: after a refusal a model must not write the same draft again."""
EXPERT_TEMPERATURES = (0.0, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Temperatures of an expert. After a refusal it gets the same request again, in turn with another draw and with other methods of the
handbook (`VIEWS`). Another draw finds what the nearest methods show and the draft missed; other methods find what the nearest ones hide.
"""


async def ask_writer(cycle: UvmObject, session: SynthesisSession, attempt: Attempt) -> ChatReply:
    """Ask a general model for a draft. After a refusal the prompt contains the refused draft and the reasons."""
    request = session.prompt = session.prompts[0]
    if cycle.refusals:
        source, reasons = cycle.refusals[-1]
        request = again(request, source, reasons, SynthesisLimits.of(attempt.settings).chars)
    temperature = TEMPERATURES[min(cycle.tries, len(TEMPERATURES) - 1)]
    return await attempt.chat(cycle.model, SYSTEM, request, part=cycle.selector, silent=True, by=asker_of(cycle), temperature=temperature)


async def ask_expert(cycle: UvmObject, session: SynthesisSession, attempt: Attempt) -> ChatReply:
    """Ask an expert for a draft. After a refusal, ask again with another draw or with other known methods."""
    view, temperature = expert_draw(cycle.draws, len(session.prompts))
    session.prompt = session.prompts[view]
    return await attempt.chat(
        cycle.model, COMPACT_SYSTEM, session.prompt, part=cycle.selector, silent=True, by=asker_of(cycle),
        temperature=temperature, seed=cycle.draws + 1, repeat_penalty=1.0,
    )  # fmt: skip


def expert_draw(draw: int, requests: int) -> tuple[int, float]:
    """Return which request an expert gets at a draw, and the temperature.

    Draws alternate between the first request, at a higher temperature each time, and the others, at zero until each was asked once.
    """
    turn, other = divmod(draw, 2) if requests > 1 else (draw, 0)
    round_, view = divmod(turn, requests - 1) if other else (turn, -1)
    return view + 1, EXPERT_TEMPERATURES[min(round_, len(EXPERT_TEMPERATURES) - 1)]
