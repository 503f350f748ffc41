"""value: no literal, length or power that is a bomb."""

from __future__ import annotations

import ast
import re

from batos.guardian.allowlist import ENDLESS
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "value"
HINT = "Use a smaller number."
_WIDTH = re.compile(r"\d{6,}")
_SIZED = ("range", "bytes")
_ALLOCATING = frozenset({"to_bytes", "ljust", "rjust", "center", "zfill", "expandtabs"})


def check_constant(subject: AuditSubject, node: ast.Constant) -> None:
    """Huge literals of a number, and widths in templates."""
    value = node.value
    if type(value) is int and value.bit_length() > 1024:
        subject.refuse(ID, node, "a literal number has more than 1024 bits", HINT)
    elif isinstance(value, str) and "%" in value and re.search(r"%[-+ #0]*\d{6,}", value):
        subject.refuse(ID, node, "a template has a width of a million or more", HINT)


def check_spec(subject: AuditSubject, node: ast.FormattedValue) -> None:
    """Widths in f-strings."""
    if isinstance(node.format_spec, ast.JoinedStr):
        for part in node.format_spec.values:
            if isinstance(part, ast.Constant) and _WIDTH.search(str(part.value)):
                subject.refuse(ID, node, "a template has a width of a million or more", HINT)


def check_operation(subject: AuditSubject, node: ast.BinOp) -> None:
    """Powers, shifts and repetitions whose size is known."""
    if not isinstance(node.op, (ast.LShift, ast.Pow, ast.Mult)):
        return
    limit = subject.limits.value
    left, right = fold(node.left, limit), fold(node.right, limit)
    if isinstance(node.op, ast.Mult):
        _check_repetition(subject, node, node.left, right)
        _check_repetition(subject, node, node.right, left)
    elif right is None or right <= 0:
        return
    elif isinstance(node.op, ast.LShift):
        if right > limit:
            subject.refuse(ID, node, "a shift makes a number that is too large", HINT)
    elif left is not None and left not in (0, 1, -1) and abs(left).bit_length() * right > limit:
        subject.refuse(ID, node, "a power is too large a number", HINT)


def _check_repetition(subject: AuditSubject, node: ast.BinOp, what: ast.expr, times: int | None) -> None:
    texts = isinstance(what, ast.Constant) and isinstance(what.value, (str, bytes))
    if times is not None and times > subject.limits.value and (texts or isinstance(what, (ast.List, ast.Tuple, ast.JoinedStr))):
        subject.refuse(ID, node, f"a repetition makes something {times} times as long", HINT)


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """range(10**12), bytes(10**10), (1).to_bytes(10**10, 'big')."""
    name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
    if name not in _SIZED and name not in _ALLOCATING and name not in ENDLESS:
        return
    limit = subject.limits.value
    for argument in node.args:
        size = fold(argument, limit)
        if size is not None and abs(size) > limit and (name != "range" or _is_long(node, limit)):
            subject.refuse(ID, node, f"{name} of {argument_text(size)} is too much", HINT)


def _is_long(node: ast.Call, limit: int) -> bool:
    numbers = [fold(argument, limit) for argument in node.args]
    if any(number is None for number in numbers):
        return len(numbers) == 1
    ends = [number for number in numbers if number is not None]
    start, stop, step = (0, ends[0], 1) if len(ends) == 1 else (ends[0], ends[1], ends[2] if len(ends) > 2 else 1)
    return step == 0 or abs(stop - start) // abs(step) > limit


def argument_text(size: int) -> str:
    """Return a number for a message, at a bearable length."""
    return str(size) if size.bit_length() < 128 else f"a number of {size.bit_length()} bits"


def fold(node: ast.expr, limit: int, depth: int = 8) -> int | None:
    """Return the integer value of an expression of literals, or None. A value too large to compute counts as more than the limit."""
    huge = 1 << (limit.bit_length() + 1)
    if isinstance(node, ast.Constant):
        return (
            node.value if type(node.value) is int else int(min(node.value, huge)) if type(node.value) is float and node.value > 1 else None
        )
    if depth == 0:
        return None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = fold(node.operand, limit, depth - 1)
        return None if value is None else -value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = fold(node.left, limit, depth - 1), fold(node.right, limit, depth - 1)
    if left is None or right is None:
        return None
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right if left.bit_length() + right.bit_length() < 4096 else huge
        case ast.Pow() if right >= 0:
            return left**right if left.bit_length() * right < 4096 else huge
        case ast.LShift() if right >= 0:
            return left << right if right < 4096 else huge
        case ast.FloorDiv() if right:
            return left // right
    return None


RULE = Rule(
    ID,
    asks="No literal of more than 1024 bits; powers, shifts, repetitions, ranges and widths that can be worked out keep within 10,000,000.",
    why="One such expression takes the memory or the time of a whole worker, in a single step that nothing can interrupt.",
    accepted='def rule(self):\n    return "-" * 80 + str(2 ** 64)',
    refused='def rule(self):\n    return "-" * 10 ** 10',
    nodes={
        ast.Constant: check_constant,
        ast.FormattedValue: check_spec,
        ast.BinOp: check_operation,
        ast.Call: check_call,
    },
)
