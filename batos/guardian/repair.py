"""Repairs that need no model: fix mistakes of form that models make, where that is safe.

A repair changes the notation of a source, and adds what the analysis reports as missing; it never changes the result of a method. Each
repair is reported, and repeating it changes nothing.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Callable
from typing import NamedTuple

from batos.config import Settings
from batos.guardian.allowlist import MODULES
from batos.guardian.policy import DEFAULT, AuditLimits
from batos.guardian.subject import AuditSubject, FunctionNode
from batos.guardian.verdict import COVENANT_RULES

_FENCE = re.compile(r"^[ \t]*+(```++|~~~++)[^\n]*+\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_DEF = re.compile(r"^[ \t]*(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*[(\[]")
_BEFORE = re.compile(r"^\s*(import\s|from\s+\S+\s+import\s|class\s+\w++.*:\s*$|$)")
_PLAIN = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "\u00a0": " ", "\ufeff": "", "−": "-", "–": "-"})
_FLAG = "self._p_changed = True"
_ENDS = 40  # places tried as the end of a definition before prose
_ROUNDS = 20  # covenant lines added to one method


class Repaired(NamedTuple):
    """A source after repairs, with the repairs in order. If `repairs` is empty, the source is unchanged."""

    source: str
    repairs: tuple[str, ...]


def repair(source: str, selector: str, settings: Settings | None = None) -> Repaired:
    """Repair faults whose repair does not depend on the method's purpose.

    :return: the source, changed or not. No source makes this raise. The result may still be refused.
    """
    limits = AuditLimits.of(settings or Settings.model_validate({}))
    done = []
    if len(source) > 4 * limits.bytes:
        return Repaired(source, ())
    for name, step in _STEPS:
        mended = step(source, selector, limits)
        if mended is not None and mended != source:
            source = mended
            done.append(name)
    return Repaired(source, tuple(done))


# --- text that is not Python yet


def _take_from_fence(source: str, selector: str, limits: AuditLimits) -> str | None:
    if _parsed(source):
        return None
    blocks = [match[2] for match in _FENCE.finditer(source)]
    named = [block for block in blocks if f"def {selector}" in block]
    return next(iter([*named, *(block for block in blocks if "def " in block)]), None)


def _make_plain(source: str, selector: str, limits: AuditLimits) -> str | None:
    return None if _parsed(source) else source.translate(_PLAIN)


def _expand_tabs(source: str, selector: str, limits: AuditLimits) -> str | None:
    """Expand tabs that are mixed with blanks, if one tab width makes sense."""
    if "\t" not in source or _parsed(textwrap.dedent(source)):
        return None
    wide = {"\n".join(_untabbed(line, width) for line in source.split("\n")) for width in (4, 8)}
    sensible = [text for text in wide if _parsed(textwrap.dedent(text))]
    return sensible[0] if len(sensible) == 1 else None


def _untabbed(line: str, width: int) -> str:
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)].expandtabs(width) + body


def _take_definition(source: str, selector: str, limits: AuditLimits) -> str | None:
    """Return the definition without the prose before and behind it."""
    if _parsed(textwrap.dedent(source)):
        return None
    lines = source.split("\n")
    starts = [(number, match[1]) for number, line in enumerate(lines) if (match := _DEF.match(line))]
    if not starts:
        return None
    start = next((number for number, name in starts if name == selector), starts[0][0])
    indent = _indent(lines[start])
    ends = [number for number in range(start + 1, len(lines)) if lines[number].strip() and _indent(lines[number]) <= indent]
    while start and _BEFORE.match(lines[start - 1]):
        start -= 1
    for end in [len(lines), *reversed(ends)][:_ENDS]:
        block = textwrap.dedent("\n".join(lines[start:end])).strip("\n") + "\n"
        if _parsed(block):
            return block
    return None


def _dedent(source: str, selector: str, limits: AuditLimits) -> str | None:
    if _parsed(source):
        return None
    dedented = textwrap.dedent(source).strip("\n") + "\n"
    return dedented if _parsed(dedented) else None


# --- Python that is not exactly one method


def _unwrap_class(source: str, selector: str, limits: AuditLimits) -> str | None:
    tree = _parsed(source)
    if not tree or not tree.body:
        return None
    *before, last = tree.body
    if not isinstance(last, ast.ClassDef) or not all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in before):
        return None
    body = [node for node in last.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], FunctionNode) or body[0].decorator_list:
        return None
    lines = source.split("\n")
    definition = textwrap.dedent("\n".join(lines[body[0].lineno - 1 : body[0].end_lineno]))
    return "\n".join([*lines[: before[-1].end_lineno if before else 0], definition]) + "\n"


def _move_imports(source: str, selector: str, limits: AuditLimits) -> str | None:
    """Move imports above the definition into its body; remove text and examples beside it."""
    method, tree = _only_method(source)
    if method is None or tree is None or len(tree.body) == 1:
        return None
    others = [node for node in tree.body if node is not method]
    if not all(isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) for node in others):
        return None
    lines = source.split("\n")
    imports = [
        ast.unparse(node)
        for node in others
        if isinstance(node, (ast.Import, ast.ImportFrom)) and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    first = min([method.lineno, *(decorator.lineno for decorator in method.decorator_list)])
    alone = "\n".join(lines[first - 1 : method.end_lineno]) + "\n"
    return _with_first_lines(alone, imports)


def _rename(source: str, selector: str, limits: AuditLimits) -> str | None:
    method, _ = _only_method(source)
    if method is None or method.name == selector or not selector.isidentifier() or _sends_itself(method):
        return None
    lines = source.split("\n")
    line = lines[method.lineno - 1]
    lines[method.lineno - 1] = re.sub(rf"(def\s+){re.escape(method.name)}\b", lambda found: found[1] + selector, line, count=1)
    return "\n".join(lines)


def _sends_itself(method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if a method calls itself by its own name: after a renaming it would send an unknown message, or another one."""
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method.name
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
        for node in ast.walk(method)
    )


def _add_self(source: str, selector: str, limits: AuditLimits) -> str | None:
    method, _ = _only_method(source)
    if method is None:
        return None
    names = [parameter.arg for parameter in ast.walk(method.args) if isinstance(parameter, ast.arg)]
    if "self" in names or method.decorator_list:
        return None
    lines = source.split("\n")
    line = lines[method.lineno - 1]
    found = re.search(r"def\s+\w+\s*\(", line)
    if not found:
        return None
    lines[method.lineno - 1] = line[: found.end()] + ("self, " if names else "self") + line[found.end() :].lstrip(" ")
    return "\n".join(lines)


def _add_imports(source: str, selector: str, limits: AuditLimits) -> str | None:
    """Add imports of allowed modules that the method uses and does not import."""
    from batos.guardian.examination import examine  # late: it loads the rules

    method, _ = _only_method(source)
    if method is None:
        return None
    subject = examine(source, selector, DEFAULT, limits)
    dotted = {node.value.id for node in subject.dotted if isinstance(node.value, ast.Name)}
    missing = sorted(name for name in dotted if name in MODULES and name not in subject.bound)
    return _with_first_lines(source, [f"import {name}" for name in missing]) if missing else None


def _with_first_lines(source: str, added: list[str]) -> str | None:
    """Return the source with lines at the top of its method's body, behind the docstring."""
    method, _ = _only_method(source)
    if method is None or not added:
        return source
    lines = source.split("\n")
    body = method.body
    has_text = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
    before = body[1] if has_text and len(body) > 1 else body[0]
    if not _begins_its_line(lines, before):
        return None
    at = before.lineno - 1
    return "\n".join([*lines[:at], *(" " * before.col_offset + text for text in added), *lines[at:]])


# --- a method that lacks its covenant


def _add_covenant(source: str, selector: str, limits: AuditLimits) -> str | None:
    """Set the flag where the analysis misses it, if nothing else is wrong then."""
    from batos.guardian.examination import examine  # late: it loads the rules

    text = source
    for _ in range(_ROUNDS):
        subject = examine(text, selector, DEFAULT, limits)
        broken = [finding for finding in subject.findings.values() if finding.rule in COVENANT_RULES]
        if not broken:
            return text
        mended = _flagged(text, subject)
        if mended is None:
            return None
        text = mended
    return None


def _flagged(source: str, subject: AuditSubject) -> str | None:
    """Return the source with one more flag, at the first way out that lacks it."""
    lines = source.split("\n")
    for way, cause in (*subject.unflagged, *subject.late):
        assert subject.method is not None
        if way is None:
            last = subject.method.body[-1]
            first = subject.method.body[0]
            if not _begins_its_line(lines, first):
                return ast.unparse(ast.Module([subject.method], []))  # a definition on one line
            return _inserted(lines, last.end_lineno or last.lineno, first.col_offset)
        if not isinstance(way, ast.Return) or (cause is not None and any(part is cause for part in ast.walk(way))):
            continue
        if _begins_its_line(lines, way) and not (way.lineno > 1 and lines[way.lineno - 2].strip() == _FLAG):
            return _inserted(lines, way.lineno - 1, way.col_offset)
    return None


def _inserted(lines: list[str], at: int, indent: int) -> str:
    return "\n".join([*lines[:at], " " * indent + _FLAG, *lines[at:]])


# --- helpers


def _parsed(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    # prose of one word is an expression, too
    return tree if any(isinstance(node, (*FunctionNode.__args__, ast.ClassDef)) for node in tree.body) else None


def _only_method(source: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | None, ast.Module | None]:
    tree = _parsed(source)
    found = [node for node in tree.body if isinstance(node, FunctionNode)] if tree else []
    return (found[0] if len(found) == 1 else None), tree


def _begins_its_line(lines: list[str], node: ast.stmt) -> bool:
    return not lines[node.lineno - 1].encode()[: node.col_offset].strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


_STEPS: tuple[tuple[str, Callable[[str, str, AuditLimits], str | None]], ...] = (
    ("took the code out of its fence", _take_from_fence),
    ("made typographic characters plain", _make_plain),
    ("made tabs spaces", _expand_tabs),
    ("removed the text around the definition", _take_definition),
    ("removed the indentation", _dedent),
    ("took the method out of its class", _unwrap_class),
    ("moved imports into the body", _move_imports),
    ("gave it the selector's name", _rename),
    ("added self", _add_self),
    ("added missing imports", _add_imports),
    ("added the covenant", _add_covenant),
)


def selector_of(source: str | bytes) -> str:
    """Return the name of the definition that a text begins with, as its selector; empty if there is none."""
    text = source if isinstance(source, str) else source.decode("utf-8", "surrogateescape")
    return next((match[1] for line in text.split("\n") if (match := _DEF.match(line))), "")
