"""name: no reserved names, no names that only look like others, none too long."""

from __future__ import annotations

import ast
import io
import tokenize

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "name"
_THROWAWAY = ("_", "__")


def check_text(subject: AuditSubject) -> None:
    """Check names outside ASCII. The parser folds them (NFKC), so they must be found in the text."""
    if subject.source.isascii():
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(subject.source).readline):
            if token.type in (tokenize.NAME, tokenize.ERRORTOKEN) and not token.string.isascii():
                reason = f"the name {token.string!r} holds characters that look like others or change when read"
                subject.refuse(ID, token.start[0], reason, "Use ASCII letters, digits and _ in names.")
    except (tokenize.TokenError, SyntaxError):
        return  # the parser has a better message


def check_name(subject: AuditSubject, node: ast.Name) -> None:
    """Check a name that is read or bound."""
    name = node.id
    if isinstance(node.ctx, ast.Load):
        subject.loads.setdefault(name, node)
    else:
        subject.bind(name)
    check_word(subject, node, name)


def check_word(subject: AuditSubject, node: ast.AST, name: str | None) -> None:
    """Any word that a method makes up."""
    if not name:
        return
    if name[0] == "_" and name not in _THROWAWAY:
        subject.refuse(ID, node, f"the name {name!r} is reserved: it begins with _", f"Call it {name.strip('_') or 'value'!r}.")
    elif not name.isascii():
        subject.refuse(ID, node, f"the name {name!r} is not ASCII", "Use ASCII letters, digits and _ in names.")
    elif len(name) > subject.limits.name:
        subject.refuse("size", node, f"a name has {len(name)} characters; at most {subject.limits.name} are allowed", "Use a shorter name.")


def check_function(subject: AuditSubject, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Check the name of a definition; the method's own is checked with the selector."""
    if node is not subject.method:
        check_word(subject, node, node.name)


def check_parameter(subject: AuditSubject, node: ast.arg) -> None:
    """Check the name of a parameter."""
    check_word(subject, node, node.arg)


def check_keyword(subject: AuditSubject, node: ast.keyword) -> None:
    """Check the name of an argument."""
    check_word(subject, node.value, node.arg)


def check_handler(subject: AuditSubject, node: ast.ExceptHandler) -> None:
    """`except … as name`."""
    subject.bind(node.name)
    check_word(subject, node, node.name)


def check_capture(subject: AuditSubject, node: ast.MatchAs | ast.MatchStar) -> None:
    """`case name`."""
    subject.bind(node.name)
    check_word(subject, node, node.name)


def check_rest(subject: AuditSubject, node: ast.MatchMapping) -> None:
    """`case {**rest}`."""
    subject.bind(node.rest)
    check_word(subject, node, node.rest)


def check_import(subject: AuditSubject, node: ast.Import | ast.ImportFrom) -> None:
    """`import … as name`, and members with an underscore."""
    for alias in node.names:
        check_word(subject, node, alias.asname)
        if alias.name.startswith("_") and alias.name != "__future__":
            check_word(subject, node, alias.name)


def check_nonlocal(subject: AuditSubject, node: ast.Nonlocal) -> None:
    """`nonlocal name`."""
    for name in node.names:
        check_word(subject, node, name)


RULE = Rule(
    ID,
    asks="Names are ASCII, of at most 64 characters, and do not begin with `_`; `_` and `__` alone may be thrown away.",
    why="Names with an underscore reach machinery (`__builtins__`, `_p_jar`, the sandbox's own helpers); letters of other scripts look "
    "like ASCII "
    "ones, or become them when parsed.",
    accepted="def count(self, n):\n    total = 0\n    for _ in range(n):\n        total += 2\n    return total",
    refused="def count(self, n):\n    _total = 0\n    return _total + n",
    text=check_text,
    nodes={
        ast.Name: check_name,
        ast.FunctionDef: check_function,
        ast.AsyncFunctionDef: check_function,
        ast.arg: check_parameter,
        ast.keyword: check_keyword,
        ast.ExceptHandler: check_handler,
        ast.MatchAs: check_capture,
        ast.MatchStar: check_capture,
        ast.MatchMapping: check_rest,
        ast.Import: check_import,
        ast.ImportFrom: check_import,
        ast.Nonlocal: check_nonlocal,
    },
)
