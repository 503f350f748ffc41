"""signature: self first, defaults that are literals, no decorators."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, FunctionNode

ID = "signature"


def check_function(subject: AuditSubject, node: FunctionNode) -> None:
    """Type parameters of any definition; receiver and defaults of the method's own."""
    subject.bind(node.name)
    if getattr(node, "type_params", None):
        subject.refuse(ID, node, "type parameters are not allowed", "Remove the square brackets after the name.")
    if node is subject.method:
        _check_own(subject, node)


def _check_own(subject: AuditSubject, node: FunctionNode) -> None:
    arguments = node.args
    first = (arguments.posonlyargs + arguments.args)[:1]
    if not first or first[0].arg != "self":
        subject.refuse(ID, node, "the first parameter is not self", "Write `self` as the first parameter.")
    elif len(arguments.defaults) == len(arguments.posonlyargs) + len(arguments.args):
        subject.refuse(ID, node, "self has a default", "Write `self` without a default.")
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if default is not None and not _is_literal(default):
            subject.refuse(ID, default, "a default is not a literal", "Use None as the default and compute the value in the body.")


def check_decorators(subject: AuditSubject) -> None:
    """Decorators of any definition; an inner function's results may be kept."""
    assert subject.method is not None
    for node in ast.walk(subject.method):
        if isinstance(node, FunctionNode):
            for decorator in node.decorator_list:
                if node is subject.method or not _keeps_results(subject, decorator):
                    subject.refuse(ID, decorator, "decorators are not allowed", "Remove it; call the function where it is needed.")


def _keeps_results(subject: AuditSubject, decorator: ast.expr) -> bool:
    """`cache` or `lru_cache` of functools, by itself or called with constants."""
    if isinstance(decorator, ast.Call):
        given = [*decorator.args, *(keyword.value for keyword in decorator.keywords)]
        return all(isinstance(value, ast.Constant) for value in given) and subject.function_of(decorator.func) == ("functools", "lru_cache")
    return subject.function_of(decorator) in (("functools", "cache"), ("functools", "lru_cache"))


def check_parameter(subject: AuditSubject, node: ast.arg) -> None:
    """Record the name that a parameter binds."""
    subject.bind(node.arg)


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, (ast.USub, ast.UAdd)) and isinstance(node.operand, ast.Constant)
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(map(_is_literal, node.elts))
    if isinstance(node, ast.Dict):
        return all(key is not None and _is_literal(key) for key in node.keys) and all(map(_is_literal, node.values))
    return isinstance(node, ast.Constant)


RULE = Rule(
    ID,
    asks="The method's first parameter is `self`, without a default; its defaults are literals. No definition has type parameters, "
    "and none a decorator, with one exception. An inner function may keep its results by `cache` or `lru_cache` of functools.",
    why="Defaults, decorators and type parameters are evaluated when a method is installed, before any call and outside every limit.",
    accepted="def scale(self, by=2, *, names=('a', 'b')):\n    return self.size * by, names",
    refused="def scale(self, by=[1].copy()):\n    return self.size * by[0]",
    nodes={ast.FunctionDef: check_function, ast.AsyncFunctionDef: check_function, ast.arg: check_parameter},
    method=check_decorators,
)
