"""syntax: an allow-list of syntax nodes; what the sandbox does not run is refused with a hint."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "syntax"

# Every kind of node that a method may contain, and its fields with further nodes. Contexts and operators are not listed:
# operators are checked with the expression that contains them, annotations by their own rule.
CHILDREN: dict[type[ast.AST], tuple[str, ...]] = {
    ast.FunctionDef: ("decorator_list", "args", "body"),
    ast.AsyncFunctionDef: ("decorator_list", "args", "body"),
    ast.Return: ("value",),
    ast.Delete: ("targets",),
    ast.Assign: ("targets", "value"),
    ast.AugAssign: ("target", "value"),
    ast.AnnAssign: ("target", "value"),
    ast.For: ("target", "iter", "body", "orelse"),
    ast.While: ("test", "body", "orelse"),
    ast.If: ("test", "body", "orelse"),
    ast.With: ("items", "body"),
    ast.withitem: ("context_expr", "optional_vars"),
    ast.Match: ("subject", "cases"),
    ast.match_case: ("pattern", "guard", "body"),
    ast.MatchValue: ("value",),
    ast.MatchSingleton: (),
    ast.MatchSequence: ("patterns",),
    ast.MatchMapping: ("keys", "patterns"),
    ast.MatchClass: ("cls", "patterns", "kwd_patterns"),
    ast.MatchStar: (),
    ast.MatchAs: ("pattern",),
    ast.MatchOr: ("patterns",),
    ast.Raise: ("exc", "cause"),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.ExceptHandler: ("type", "body"),
    ast.Assert: ("test", "msg"),
    ast.Import: (),
    ast.ImportFrom: (),
    ast.Nonlocal: (),
    ast.Expr: ("value",),
    ast.Pass: (),
    ast.Break: (),
    ast.Continue: (),
    ast.BoolOp: ("values",),
    ast.NamedExpr: ("target", "value"),
    ast.BinOp: ("left", "right"),
    ast.UnaryOp: ("operand",),
    ast.Lambda: ("args", "body"),
    ast.IfExp: ("test", "body", "orelse"),
    ast.Dict: ("keys", "values"),
    ast.Set: ("elts",),
    ast.ListComp: ("generators", "elt"),
    ast.SetComp: ("generators", "elt"),
    ast.DictComp: ("generators", "key", "value"),
    ast.GeneratorExp: ("generators", "elt"),
    ast.comprehension: ("target", "iter", "ifs"),
    ast.Await: ("value",),
    ast.Yield: ("value",),
    ast.YieldFrom: ("value",),
    ast.Compare: ("left", "comparators"),
    ast.Call: ("func", "args", "keywords"),
    ast.keyword: ("value",),
    ast.FormattedValue: ("value", "format_spec"),
    ast.JoinedStr: ("values",),
    ast.Constant: (),
    ast.Attribute: ("value",),
    ast.Subscript: ("value", "slice"),
    ast.Starred: ("value",),
    ast.Name: (),
    ast.List: ("elts",),
    ast.Tuple: ("elts",),
    ast.Slice: ("lower", "upper", "step"),
    ast.arguments: ("posonlyargs", "args", "vararg", "kwonlyargs", "kw_defaults", "kwarg", "defaults"),
    ast.arg: (),
}

_OPERATORS = (
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.BitOr, ast.BitXor, ast.BitAnd, ast.FloorDiv,
    ast.Invert, ast.Not, ast.UAdd, ast.USub, ast.And, ast.Or,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn,
)  # fmt: skip
OPERATORS = frozenset(_OPERATORS)

_HINTS = {
    "ClassDef": "Use a dict, or collections.namedtuple; objects of the image are made by sending _clone_persistent_.",
    "Global": "Keep what must last in a slot: self.name = value.",
    "AsyncFor": "Use a plain for loop.",
    "AsyncWith": "Use try and finally.",
    "TryStar": "Use a plain except.",
    "TypeAlias": "Leave it out.",
}
_NAMES = {"ClassDef": "a class", "Global": "global", "AsyncFor": "async for",
          "AsyncWith": "async with", "TryStar": "except*", "TypeAlias": "a type alias"}  # fmt: skip


def refuse_node(subject: AuditSubject, node: ast.AST) -> None:
    """Refuse a node that is not on the list."""
    name = type(node).__name__
    subject.refuse(ID, node, f"{_NAMES.get(name, name)} is not supported in methods", _HINTS.get(name, "Write it with simpler statements."))


def check_statement(subject: AuditSubject, node: ast.Expr) -> None:
    """`yield` may stand as a statement."""
    subject.cleared.add(id(node.value))


def check_yield(subject: AuditSubject, node: ast.Yield | ast.YieldFrom) -> None:
    """`yield`, in whatever function."""
    if id(node) not in subject.cleared:
        subject.refuse(
            ID, node, "the value of yield is used", "Nothing can be sent into a generator: write yield as a statement of its own."
        )


def check_whole(subject: AuditSubject) -> None:
    """Refuse a method that is a generator: its answer could not leave the sandbox, nor be part of a transaction."""
    assert subject.method is not None
    pending: list[ast.AST] = list(subject.method.body)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            subject.refuse(ID, node, "the method itself yields", "Collect the values in a list and return it.")
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def check_operator(subject: AuditSubject, node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.AugAssign) -> None:
    """Refuse an operator that is not on the list: `@`, or one of a later Python."""
    if type(node.op) not in OPERATORS:
        subject.refuse(ID, node, f"the operator {type(node.op).__name__} is not supported in methods", "Call a function, or use a loop.")


def check_comparison(subject: AuditSubject, node: ast.Compare) -> None:
    """Refuse a comparison that is not on the list."""
    for operator in node.ops:
        if type(operator) not in OPERATORS:
            subject.refuse(ID, node, f"the operator {type(operator).__name__} is not supported in methods", "Use another comparison.")


def check_comprehension(subject: AuditSubject, node: ast.comprehension) -> None:
    """Refuse `async for` in a comprehension."""
    if node.is_async:
        subject.refuse(ID, node.iter, "an async comprehension is not supported in methods", "Use a plain for loop.")


RULE = Rule(
    ID,
    asks="A method is made of the syntax on the guardian's list; no class, global, async for, async with, except*; `yield` only "
    "in functions inside it.",
    why="What has no rule has not been thought about: a new version of Python adds nothing by itself. The sandbox runs no more than "
    "this list.",
    accepted="def evens(self, numbers):\n    return [n for n in numbers if n % 2 == 0]",
    refused="def evens(self, numbers):\n    for n in numbers:\n        if n % 2 == 0:\n            yield n",
    nodes={
        ast.BinOp: check_operator,
        ast.UnaryOp: check_operator,
        ast.BoolOp: check_operator,
        ast.AugAssign: check_operator,
        ast.Compare: check_comparison,
        ast.comprehension: check_comprehension,
        ast.Expr: check_statement,
        ast.Yield: check_yield,
        ast.YieldFrom: check_yield,
    },
    method=check_whole,
)
