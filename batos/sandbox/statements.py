"""Statements rewritten: stores, deletions, functions and what they yield."""

from __future__ import annotations

import ast
from typing import Any

from batos.sandbox import scopes, supply
from batos.sandbox.expressions import Expressions
from batos.sandbox.names import call, ref
from batos.sandbox.refusals import PREFIX, refuse, reserved

_ITERABLES = {"range", "map", "filter", "zip", "reversed", "enumerate", "tuple", "set", "iter"}


def _is_iterable(node: ast.expr) -> bool:
    """Whether an expression is certainly no list, and may well be added to one in place."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _ITERABLES
    return isinstance(node, ast.Tuple | ast.GeneratorExp | ast.Set)


class Rewriter(Expressions):
    """Rewrites the one function of a method."""

    def visit_Import(self, node: ast.Import) -> Any:
        node.names = [alias for alias in node.names if alias.name in supply.NATIVE]
        return node if node.names else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        made: list[ast.stmt] = []
        for alias in node.names:
            member = supply.member(node.module or "", alias.name)
            if member in supply.FUNCTIONS:
                self.supplied.add(member)
                held = ref(PREFIX + member.replace(".", "_"))
                made.append(ast.Assign([ast.Name(alias.asname or alias.name, ast.Store())], held))
        node.names = [alias for alias in node.names if supply.member(node.module or "", alias.name) not in supply.FUNCTIONS]
        if node.module == "collections.abc":
            return made or ast.Pass()
        return ([node] if node.names else []) + made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        gathers = scopes.is_generator(node)
        self.gathering.append(self.fresh() if gathers else "")
        self.generic_visit(node)
        name = self.gathering.pop()
        if gathers:
            node.body = [
                ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())),
                *node.body,
                ast.Return(call("_b_iter", ref(name))),
            ]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        fields: dict[str, Any] = {field: getattr(node, field, None) for field in ast.FunctionDef._fields}
        return self.visit_FunctionDef(ast.copy_location(ast.FunctionDef(**fields), node))

    def visit_Return(self, node: ast.Return) -> Any:
        if self.gathering and self.gathering[-1]:
            return ast.Return(call("_b_iter", ref(self.gathering[-1])))
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        value = node.value
        if isinstance(value, ast.Yield | ast.YieldFrom):
            add = "append" if isinstance(value, ast.Yield) else "extend"
            item = self.visit(value.value) if value.value is not None else ast.Constant(None)
            return ast.Expr(ast.Call(ast.Attribute(ref(self.gathering[-1]), add, ast.Load()), [item], []))
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) == 1:
            return self.store(node.targets[0], self.visit(node.value))
        held = self.fresh()
        made: list[ast.stmt] = [ast.Assign([ast.Name(held, ast.Store())], self.visit(node.value))]
        for target in node.targets:
            made += self.store(target, ref(held))
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return self.store(node.target, self.visit(node.value)) if node.value is not None else ast.Pass()

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target, adds = node.target, isinstance(node.op, ast.Add)
        if not isinstance(target, ast.Attribute):
            if adds and isinstance(target, ast.Name) and (_is_iterable(node.value) or target.id in self.lists):
                return ast.Assign([target], call("_b_iadd", ref(target.id), self.visit(node.value)))
            return self.generic_visit(node)
        reserved(target, target.attr)
        if adds and isinstance(target.value, ast.Name):  # the common case, in one short statement
            added = call("_b_iadd", self.load(ref(target.value.id), target.attr), self.visit(node.value))
            return ast.Expr(call("_b_set", ref(target.value.id), ast.Constant(target.attr), added))
        holder, value = self.fresh(), self.fresh()
        return [
            ast.Assign([ast.Name(holder, ast.Store())], self.visit(target.value)),
            ast.Assign([ast.Name(value, ast.Store())], self.load(ref(holder), target.attr)),
            ast.Assign([ast.Name(value, ast.Store())], call("_b_iadd", ref(value), self.visit(node.value)))
            if adds
            else ast.AugAssign(ast.Name(value, ast.Store()), node.op, self.visit(node.value)),
            ast.Expr(call("_b_set", ref(holder), ast.Constant(target.attr), ref(value))),
        ]

    def visit_For(self, node: ast.For) -> Any:
        if any(isinstance(part, ast.Attribute) for part in ast.walk(node.target)):
            held = self.fresh()
            stores = self.store(node.target, ref(held))
            node.target = ast.Name(held, ast.Store())
            node.iter = self.visit(node.iter)
            node.body = [*stores, *self.statements(node.body)]
            node.orelse = self.statements(node.orelse) if node.orelse else []
            return node
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        fields = {id(part) for part in node.body if isinstance(part, ast.AnnAssign)}
        made: list[ast.stmt] = []
        for part in node.body:  # the annotations of a dataclass are its fields
            made += [self.generic_visit(part)] if id(part) in fields else self.statements([part])  # type: ignore[list-item]
        node.body = made
        node.decorator_list = [self.visit(part) for part in node.decorator_list]
        return node

    def visit_Delete(self, node: ast.Delete) -> Any:
        made: list[ast.stmt] = []
        todo = list(reversed(node.targets))
        while todo:
            target = todo.pop()
            if isinstance(target, ast.Tuple | ast.List):
                todo.extend(reversed(target.elts))
            elif isinstance(target, ast.Attribute):
                reserved(target, target.attr)
                made.append(ast.Expr(call("_b_del", self.visit(target.value), ast.Constant(target.attr))))
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                part = target.slice
                ends = [self.visit(end) if end is not None else ast.Constant(None) for end in (part.lower, part.upper, part.step)]
                made.append(ast.Expr(call("_b_delslice", self.visit(target.value), *ends)))
            elif isinstance(target, ast.Subscript):
                made.append(ast.Expr(call("_b_delitem", self.visit(target.value), self.visit(target.slice))))
            elif isinstance(target, ast.Name):
                made.append(ast.Assign([ast.Name(target.id, ast.Store())], ast.Constant(None)))
        return made

    def store(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Statements that assign `value`, rewritten already, to a target."""
        if isinstance(target, ast.Attribute):
            if target.attr == "_p_changed":
                if not (isinstance(value, ast.Constant) and value.value is True):
                    refuse(target, "the Persistence Covenant is `self._p_changed = True` and nothing else")
                return [ast.Expr(self.visit(target.value))]
            reserved(target, target.attr)
            if self._module(target.value) is not None:
                refuse(target, "a module cannot be changed: use a local name")
            return [ast.Expr(call("_b_set", self.visit(target.value), ast.Constant(target.attr), value))]
        if isinstance(target, ast.Tuple | ast.List) and any(isinstance(part, ast.Attribute) for part in ast.walk(target)):
            return self._unpack(target, value)
        return [ast.Assign([self.visit(target)], value)]

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.stmt]:
        names: list[ast.expr] = []
        after: list[ast.stmt] = []
        for element in target.elts:
            held: ast.expr = ast.Name(self.fresh(), ast.Store())
            inner = element.value if isinstance(element, ast.Starred) else element
            after += self.store(inner, ref(held.id))  # type: ignore[attr-defined]
            names.append(ast.Starred(held, ast.Store()) if isinstance(element, ast.Starred) else held)
        return [ast.Assign([ast.Tuple(names, ast.Store())], value), *after]
