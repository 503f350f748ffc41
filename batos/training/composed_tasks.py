"""Composed families: sources, conditions, changes and ends put together, thousands of them, so that a model learns how words become code.

There are three forms:

* an aggregation of many items (`the sum of the numbers that are even, each doubled`);
* a change of a slot with an answer (`add the number to SLOT if it is positive, and answer what it was before`);
* a chain of steps on one value.

No composed family has the shape of a family that measures (`Family.part`).

The parts stand in `parts.txt`, which explains its columns, and synonyms in `wordings.txt`. Compositional data of this kind: Lake and
Baroni 2018 (arXiv:1711.00350), Andreas 2020 (arXiv:1904.09545).
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from batos.synthesis.families import FAR, HOLE, Family, families
from batos.synthesis.handbook import argument_names

NUMBER, TEXT, RECORD = "number", "text", "record"
_FILE = Path(__file__).parent / "parts.txt"


class GrammarPart(NamedTuple):
    """One part of a composed family.

    :ivar needs: kinds of arguments, and holes with their kinds (`SLOT:number`).
    """

    name: str
    words: str
    code: str
    needs: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the kinds of the arguments that the part needs."""
        return tuple(one for one in self.needs if ":" not in one)

    @property
    def holes(self) -> dict[str, str]:
        """Return the holes that the part needs, each with its kind."""
        return dict(one.split(":") for one in self.needs if ":" in one)


@cache
def grammar_parts(section: str) -> tuple[GrammarPart, ...]:
    """Return the parts of a section of the grammar: `ends: number`."""
    return _sections()[section]


@cache
def changed_kinds(kind: str) -> tuple[str, ...]:
    """Return the kinds that items of a kind can be changed to."""
    return tuple(name.rpartition(" ")[2] for name in _sections() if name.startswith(f"changes: {kind} to "))


@cache
def _sections() -> dict[str, tuple[GrammarPart, ...]]:
    found = re.findall(r"^\[([^\]]+)\]\n(.*?)(?=^\[|\Z)", _FILE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {title: tuple(map(_part, filter(_is_part, body.split("\n")))) for title, body in found}


def _is_part(line: str) -> bool:
    return bool(line.strip()) and not line.startswith("#")


def _part(line: str) -> GrammarPart:
    name, words, code, *needs = (cell.strip() for cell in line.split(" | "))
    return GrammarPart(name, words, code, tuple(" ".join(needs).split()))


_FILE_WORDINGS = Path(__file__).parent / "wordings.txt"
_SHARE = 0.6  # probability that a rule of synonyms applies


def reworded(words: str, rng: random.Random) -> str:
    """Return a purpose in other words, drawn from synonyms. Holes (`SLOT`, `K`) stay as they are."""
    for there, others in _rules():
        if rng.random() < _SHARE:
            words = there.sub(rng.choice(others), words)
    return re.sub(r" ,", ",", words)


@cache
def _rules() -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    lines = [line for line in _FILE_WORDINGS.read_text("utf-8").split("\n") if line.strip() and not line.startswith("#")]
    return tuple((_pattern(there), tuple(others)) for there, *others in (line.split(" | ") for line in lines))


def _pattern(there: str) -> re.Pattern[str]:
    """Return a pattern of whole words."""
    before, after = ("" if there[0] in "^,(" else r"\b"), ("" if there.endswith("$") else r"\b")
    return re.compile(before + there + after)


GROUP = "composed"
_KINDS_OF_SLOTS = (NUMBER, TEXT, "words", "record")
_SPELLED = {"number": "n", "text": "t", "items": "l"}
_RESULTS = {
    **dict.fromkeys(("sum", "total", "largest", "smallest", "distinct", "letters", "count", "number"), "number"),
    **dict.fromkeys(("joined", "comma", "dashed", "together", "longest", "shortest"), "text"),
    "list": "list", "sorted": "list", "different": "list",
}  # fmt: skip
"""Maps the result of an end to the kind of slot that can keep it."""
_WORDINGS = 3  # wordings in addition to those of the parts
_KEEPING = {
    "number": (
        ("set", "set SLOT to <it>, and answer it", "self.SLOT = <e>"),
        ("add", "add to SLOT <it>, and answer SLOT", "self.SLOT = self.SLOT + <e>"),
        ("highest", "let SLOT be <it> if that is larger, and answer SLOT", "self.SLOT = max(self.SLOT, <e>)"),
    ),
    "text": (("set", "set SLOT to <it>, and answer it", "self.SLOT = <e>"),),
    "list": (
        ("set", "set SLOT to <it>, and answer it", "self.SLOT = <e>"),
        ("extend", "append to SLOT <it>, and answer SLOT", "self.SLOT.extend(<e>)"),
    ),
}


def composed(count: int, seed: int) -> list[Family]:
    """Return composed families whose shapes are in the training's part, and in no far family."""
    rng, found = random.Random(f"composed {seed}"), {}
    measured = _far_shapes()
    for family in _drawn(rng):
        if family.name not in found and family.part == "train" and family.shape not in measured:
            found[family.name] = _in_other_words(family, random.Random(f"{seed} {family.name}"))
        if len(found) == count:
            return list(found.values())
    return list(found.values())


def _in_other_words(family: Family, rng: random.Random) -> Family:
    """Return a family with further wordings behind that of its parts."""
    plain = family.intents[0]
    return replace(family, intents=tuple(dict.fromkeys((plain, *(reworded(plain, rng) for _ in range(_WORDINGS))))))


@cache
def _far_shapes() -> frozenset[str]:
    return frozenset(family.shape for family in families() if family.group == FAR)


def _drawn(rng: random.Random) -> Iterator[Family]:
    """Yield composed families without end. The same family may come again."""
    forms: tuple[Callable[[random.Random], Family | None], ...] = (_of_many, _of_many, _of_slot, _in_steps)
    while True:
        if (family := rng.choice(forms)(rng)) is not None:
            yield family


# --- results of many things


def _of_many(rng: random.Random) -> Family | None:
    kind = rng.choices((NUMBER, TEXT, RECORD), (4, 4, 2))[0]
    source = rng.choice(grammar_parts(f"sources: {kind}"))
    condition = rng.choice(grammar_parts(f"conditions: {kind}")) if rng.random() < 0.7 else None
    made, change = kind, None
    if rng.random() < (0.6 if kind == RECORD else 0.45):
        plain = kind == RECORD or rng.random() < 0.3
        end = rng.choice(grammar_parts(f"ends that change nothing: {kind}" if plain else f"ends: {kind}"))
        if condition is None and ((plain and kind != RECORD) or end.name == "list"):
            return None
    else:
        made = rng.choice(changed_kinds(kind))
        change, end = rng.choice(grammar_parts(f"changes: {kind} to {made}")), rng.choice(grammar_parts(f"ends: {made}"))
    chosen = [one for one in (source, condition, change, end) if one is not None]
    if not _fit(chosen):
        return None
    kinds, codes = _with_arguments(chosen)
    code = dict(zip(chosen, codes, strict=True))
    words = source.words
    if condition is not None:
        words = f"{words} {condition.words}"
    if change is not None:
        words = change.words.replace("<it>", words)
    words = end.words.replace("<it>", words)
    lines = _lines(code[end], code[source], code[condition] if condition else "", code[change] if change else "x")
    names = [one.name for one in (end, condition, source, change) if one is not None]
    if len(lines) == 1 and end.name in _RESULTS and "SLOT" not in source.holes and rng.random() < 0.2:
        return _kept(rng, names, words, kinds, lines[0], chosen, made)
    return _family(names, words, kinds, chosen, lines)


def _kept(
    rng: random.Random, names: list[str], words: str, kinds: list[str], line: str, chosen: Sequence[GrammarPart], made: str
) -> Family:
    """Return a family whose result is put into a slot."""
    result = _RESULTS[chosen[-1].name]
    name, told, code = rng.choice(_KEEPING[result])
    slot = result if result != "list" else "words" if made == TEXT else "numbers"
    lines = [code.replace("<e>", line.removeprefix("return ")), "self._p_changed = True", "return self.SLOT"]
    return _family([name, "SLOT", *names], told.replace("<it>", words), kinds, chosen, lines, {"SLOT": slot})


def _fit(chosen: Sequence[GrammarPart]) -> bool:
    """Return True if parts fit together: each hole has one meaning, and the words identify each argument."""
    source, *others = chosen
    code = "".join(part.code for part in chosen)
    names = argument_names([kind for part in chosen for kind in part.arguments])
    if "<l>" in code and not names[0].startswith("items"):  # "the second list" needs a first one
        return False
    numbers, given = sum(name.startswith("number") for name in names), sum(len(part.arguments) for part in others)
    if (source.name == "up_to" and numbers > 1) or given > (2 if "<n2>" in code or "<t2>" in code else 1):
        return False
    letters = [one for part in chosen for one in ("K", "L") if _has(part.code, one)]
    return len(letters) == len(set(letters)) and sum("HELPER" in part.holes for part in chosen) < 2


def _has(code: str, hole: str) -> bool:
    return hole in code.replace("SLOT", "").replace("FIELD", "").replace("HELPER", "")


def _with_arguments(chosen: Sequence[GrammarPart]) -> tuple[list[str], list[str]]:
    """Return the kinds of all arguments in order, and the code of each part with the names of its own arguments."""
    kinds = [kind for part in chosen for kind in part.arguments]
    names = iter(argument_names(kinds))
    codes = []
    for part in chosen:
        code, seen = part.code, dict.fromkeys(_SPELLED, 0)
        for _ in part.arguments:
            name = next(names)
            plain = name.rstrip("0123456789")
            if plain in _SPELLED:
                seen[plain] += 1
                code = code.replace(f"<{_SPELLED[plain]}{seen[plain] if seen[plain] > 1 else ''}>", name)
        codes.append(code)
    return kinds, codes


def _lines(end: str, source: str, condition: str, one: str) -> list[str]:
    """Return the statements of an end, with its places filled."""
    test = f" if {condition}" if condition else ""
    if one == "x" and not condition:  # the source alone
        whole = source if source.startswith(("items", "self.")) and "(" not in source else f"list({source})"
        end = end.replace("[<each>][", f"{whole}[").replace("[<each>]", whole).replace("{<each>}", f"set({source})")
        end = end.replace("((<each>)", f"({source}").replace("<each>", source)
    end = end.replace("sorted((<each>))", "sorted(<each>)").replace("<each>", f"{one} <of>").replace("<of>", f"for x in {source}{test}")
    end = (
        end.replace("<one>", one).replace("<single>", _single(one)).replace("<source>", source).replace("<condition>", condition or "True")
    )
    statements = end.split("; ")
    if len(statements) == 1:
        return [f"return {end}"]
    lines = []
    for statement in statements:
        if statement.startswith("for x in <from>:"):
            lines += [f"for x in {source}:", *([f"    if {condition}:"] if condition else [])]
        elif statement.startswith("+"):
            lines.append(f"{'        ' if condition else '    '}{statement[1:]}")
        else:
            lines.append(statement)
    return lines


# --- changes of a slot


def _of_slot(rng: random.Random) -> Family | None:
    kind = rng.choice(_KINDS_OF_SLOTS)
    done, answer = rng.choice(grammar_parts(f"done to a slot: {kind}")), rng.choice(grammar_parts(f"answers then: {kind}"))
    guard = rng.choice(grammar_parts(f"only if: {kind}")) if rng.random() < 0.35 else None
    kinds = list(done.arguments)
    names = argument_names(kinds)
    if guard is not None and not set(guard.needs) <= set(names):
        return None
    if sum(_has(part.code, "K") for part in (done, guard, answer) if part is not None) > 1:
        return None
    body = [line[1:] if line.startswith("+") else line for line in done.code.split("; ")]
    lines = [body[0], *(f"    {line}" for line in body[1:]), "self._p_changed = True"]
    if guard is not None:
        lines = [f"if {guard.code}:", *(f"    {line}" for line in lines)]
    if "old" in answer.code:
        lines.insert(0, f"old = {'self.SLOT' if kind in (NUMBER, TEXT) else 'len(self.SLOT)'}")
    lines.append(f"return {answer.code}")
    words = f"{done.words} {guard.words}, {answer.words}" if guard is not None else f"{done.words} {answer.words}"
    called = [done.name, "SLOT", *([guard.name] if guard is not None else []), *([] if answer.name == "new" else ["tell", answer.name])]
    return _family(called, words, kinds, [done], lines, {"SLOT": kind})


# --- results of one thing


def _in_steps(rng: random.Random) -> Family | None:
    kind = rng.choice((NUMBER, TEXT))
    own = "number" if kind == NUMBER else "text"
    first = _steps(rng, kind, own, rng.choice((1, 2, 2, 3)))
    if first is None:
        return None
    names, words, code, chosen = first
    if rng.random() < 0.3:
        test, other = rng.choice(grammar_parts(f"tests: {kind}")), _steps(rng, kind, own, 1)
        if other is None:
            return None
        names, chosen = [*names, "if", test.name, "else", *other[0]], [*chosen, test, *other[3]]
        words = rng.choice((f"if {test.words}, {words}, else {other[1]}", f"{words} if {test.words}, otherwise {other[1]}"))
        code = f"{code} if {test.code} else {other[2]}"
    elif rng.random() < 0.35:
        last = rng.choice(grammar_parts(f"last steps: {kind}"))
        names, chosen = [last.name, *names], [*chosen, last]
        words, code = last.words.replace("<it>", words), last.code.replace("<x>", _single(code))
    elif len(chosen) == 1:
        return None
    holes = [one for part in chosen for one in (*part.needs, *(h for h in "KL" if _has(part.code, h)))]
    if len(holes) != len(set(holes)):
        return None
    kinds = [own, *(one for part in chosen for one in part.arguments)]
    return _family(names, words, kinds, chosen, [f"return {code}"]) if len(kinds) < 3 else None


def _steps(rng: random.Random, kind: str, own: str, count: int) -> tuple[list[str], str, str, list[GrammarPart]] | None:
    """Return the names, words and code of a chain of steps, and the steps."""
    words, code, chosen = f"the {own}", own, rng.sample(grammar_parts(f"steps: {kind}"), count)
    for step in chosen:
        if step.code.count("<x>") > 1 and code != own:
            return None
        words, code = step.words.replace("<it>", words), step.code.replace("<x>", _single(code))
    return [step.name for step in chosen], words, code, chosen


def _single(code: str) -> str:
    """Return code that can stand in the place of a name, in parentheses if needed."""
    alone = isinstance(ast.parse(code, mode="eval").body, ast.Name | ast.Call | ast.Subscript | ast.Attribute | ast.Constant)
    return code if alone else f"({code})"


# --- families


def _family(
    names: Sequence[str],
    words: str,
    kinds: Sequence[str],
    chosen: Sequence[GrammarPart],
    lines: Sequence[str],
    more: Mapping[str, str] = MappingProxyType({}),
) -> Family:
    holes = {hole: kind for part in chosen for hole, kind in part.holes.items()} | dict(more)
    body, name = "".join(f"    {line}\n" for line in lines), "_".join(names)
    holes |= {one: one for one in ("K", "L") if one in HOLE.findall(body + words)}
    return Family(name, GROUP, (name,), (words,), tuple(kinds), body, holes)
