"""What the words of a request say of nothing: `the largest of the list, 0 if it is empty`. Examples seldom show it.

It makes a further call, with nothing in what the words speak of, and an answer, by which a method is completed that has forgotten it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from batos.mind import edits, prompting, side_by_side
from batos.mind.amending import Wanted
from batos.mind.side_by_side import Call
from batos.mind.trial import same

_VALUE = (
    r"(?<![\w.,-])(?P<value>-?\d+(?:\.\d+)?(?![\w.])|\"[^\"]*\"|'[^']*'|none|null|zero|true|false"
    r"|an empty (?:text|string|list|record|dict)|(?:the (?:text|word)|say|answer) \w+)"
)
_NONE = (
    r"(?P<none>(?:[^,;.]*?\bempty\b|(?:there (?:is|are|was|were)|it has|I have) (?:no\b|none\b|nothing\b|not any\b)"
    r"|none\b|nothing\b|no \w+ (?:is|are)\b)[^,;.]*?)"
)
_SAID = (
    re.compile(rf"{_VALUE}\s+(?:if|when|where)\s+{_NONE}(?:[,;.]|$)", re.IGNORECASE),
    re.compile(rf"(?:if|when|where)\s+{_NONE},?\s+(?:it (?:is|shall be)|answer|return|then)\s+{_VALUE}", re.IGNORECASE),
)
_NOT = re.compile(r"\bnot\b|n't\b|\bnon\b|\bnever\b|\bunless\b", re.IGNORECASE)
_EMPTY: Mapping[str, Any] = {"text": "", "items": [], "record": {}}
_CALLED = {"text": ("text", "word", "line", "string"), "items": ("list", "item", "number", "record"), "record": ("record", "dict")}
_WORDS = {"none": None, "null": None, "zero": 0, "true": True, "false": False}
_MADE = {"text": "", "string": "", "list": [], "record": {}, "dict": {}}


class Implied(NamedTuple):
    """What is to be answered where there is nothing.

    :ivar of: the expression that is empty: `items`, `self.queue`.
    """

    of: str
    call: Call
    result: Any


def implied(what: Wanted) -> Implied | None:
    """What the words say of nothing; None where they say nothing of it, or not of what."""
    if not what.examples or (said := next(filter(None, (one.search(what.known.told) for one in _SAID)), None)) is None:
        return None
    if what.known.changed or _NOT.search(said["none"].replace("not any", "")):
        return None
    call = what.examples[0][0]
    held = prompting.arguments(call.args, call.kwargs)
    names = list(held)
    held |= {
        f"self.{slot}": call.slots[slot]
        for slot in what.known.slots
        if slot in call.slots and edits.sayable(slot) and what.known.speaks_of(slot)
    }
    able = {name: kind for name, value in held.items() if (kind := _kind(value)) is not None}
    of, result = _meant(able, said["none"].lower()), _value(said["value"])
    if of is None or not _alike(result, what.examples[0][1].result):
        return None
    args = tuple(_EMPTY[able[of]] if name == of else value for name, value in zip(names, call.args, strict=False))
    kwargs = {name: _EMPTY[able[of]] if name == of else value for name, value in call.kwargs.items()}
    slots = {name: _EMPTY[able[of]] if f"self.{name}" == of else value for name, value in call.slots.items()}
    return Implied(of, Call(args, kwargs, slots), result)


def answers(did: str, one: Implied) -> bool:
    """Whether a method answers what is implied.

    :param did: what it did on that call (`side_by_side.did`).
    """
    found = side_by_side.read(did)
    return found is not None and same(found[0], one.result)


def completing(source: str, one: Implied) -> str | None:
    """A method that answers what is implied before it does anything; None for what changes slots, or is not run aside."""
    tree = edits.parsed(source)
    if tree is None or not edits.settled(tree) or any(map(_is_changed, ast.walk(tree))):
        return None
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef)
    (first,) = ast.parse(f"if not {one.of}:\n    return {one.result!r}").body
    method.body.insert(0, first)
    return edits.unparsed(tree)


def _is_changed(node: ast.AST) -> bool:
    """Whether a slot is changed, or said to be."""
    return isinstance(node, ast.Attribute) and (node.attr == "_p_changed" or not isinstance(node.ctx, ast.Load))


def _kind(value: Any) -> str | None:
    return "text" if isinstance(value, str) else "items" if isinstance(value, list) else "record" if isinstance(value, dict) else None


def _meant(able: Mapping[str, str], words: str) -> str | None:
    """What is empty: what the words name, or what is the only one of its kind."""
    named = [name for name in able if name.startswith("self.") and edits.Known(words, ()).names(name.removeprefix("self."))]
    called = [name for name, kind in able.items() if any(word in words for word in _CALLED[kind])]
    return next((found[0] for found in (named, called, list(able)) if len(found) == 1), None)


def _alike(value: Any, other: Any) -> bool:
    """Whether values may be answers of one method: else the words were about a part of it."""
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (value, other))
    return value is None or other is None or numbers or type(value) is type(other)


def _value(said: str) -> Any:
    text = said.lower()
    if text in _WORDS:
        return _WORDS[text]
    if said[0] in "\"'":
        return said[1:-1]
    if text.startswith("an empty "):
        return _MADE[text.rsplit(" ", 1)[1]]
    last = said.rsplit(" ", 1)[-1]
    if re.fullmatch(r"-?[\d.]+", last):
        return float(last) if "." in last else int(last)
    return _WORDS.get(last.lower(), last)
