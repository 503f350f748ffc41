"""What the rewriter knows about the names of a method: modules, members of modules, its own helpers."""

from __future__ import annotations

import ast

from batos.sandbox import scopes, supply
from batos.sandbox.refusals import PREFIX, refuse


def ref(id: str) -> ast.Name:
    return ast.Name(id, ast.Load())


def call(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ref(function), list(args), [])


def assign(target: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(target, ast.Store())], value)


class Names(ast.NodeTransformer):
    """The base of the rewriter: what is bound where, and the walk itself."""

    def __init__(self, tree: ast.Module, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        parameters = method.args.posonlyargs + method.args.args
        if not parameters:
            refuse(method, "the first parameter of a method is the receiver: `self`")
        self.receiver = parameters[0].arg
        self.bound = scopes.bound_names(tree)
        self.lists = scopes.list_names(tree)
        self.built_in = scopes.built_in_names(tree)
        self.modules: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.supplied: set[str] = set()
        self.hoisted: list[ast.stmt] | None = None
        self.gathering: list[str] = []
        self.count = 0
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported(node)

    def fresh(self) -> str:
        self.count += 1
        return f"{PREFIX}t{self.count}"

    def helper(self, key: str, text: str) -> ast.Name:
        """The name of a helper made once for `key`; `@` in the text stands for its name."""
        name = f"{PREFIX}h{list(self.helpers).index(key) if key in self.helpers else len(self.helpers)}"
        self.helpers.setdefault(key, text.replace("@", name))
        return ref(name)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            module = node.module or "."
            for alias in node.names:
                if supply.member(module, alias.name) in supply.FUNCTIONS:
                    continue
                if module not in supply.NATIVE and module != "collections.abc":
                    self._no_module(node, module, alias.name)
                elif alias.name == "*":
                    refuse(node, "`import *` is not possible: name what you need")
            return
        for alias in node.names:
            if alias.name not in supply.NATIVE and alias.name not in supply.MODULES:
                self._no_module(node, alias.name, "")
            self.modules[alias.asname or alias.name.partition(".")[0]] = alias.name

    def _no_module(self, node: ast.AST, module: str, name: str) -> None:
        has = sorted(full.partition(".")[2] for full in supply.FUNCTIONS if full.startswith(supply.member(module, "")))
        if has and name:
            refuse(node, f"of module {module!r} a method has only: {', '.join(has)}")
        refuse(node, f"no module {module!r} in a method; there are: {', '.join(sorted(supply.NATIVE | supply.MODULES))}")

    def _module(self, node: ast.expr) -> str | None:
        """The module that a name stands for, unless the method binds the name otherwise too."""
        return self.modules.get(node.id) if isinstance(node, ast.Name) and node.id not in self.bound else None

    def _member(self, node: ast.expr, module: str, name: str) -> ast.expr | None:
        full = supply.member(module, name)
        if full in supply.FUNCTIONS:
            self.supplied.add(full)
            return ref(PREFIX + full.replace(".", "_"))
        if module in supply.MODULES:
            self._no_module(node, module, name)
        return None

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        outer = self.hoisted
        for statement in body:
            self.hoisted = []
            new = self.visit(statement)
            made = new if isinstance(new, list) else [new] if new is not None else []
            found += [*self._located(self.hoisted, statement), *self._located(made, statement)]
        self.hoisted = outer
        return found or [ast.Pass()]

    @staticmethod
    def _located(made: list[ast.stmt], like: ast.stmt) -> list[ast.stmt]:
        for statement in made:
            ast.copy_location(statement, like)
            ast.fix_missing_locations(statement)
        return made

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("body", "orelse", "finalbody"):
            held = getattr(node, field, None)
            if isinstance(held, list) and held and isinstance(held[0], ast.stmt):
                setattr(node, field, self.statements(held))
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                setattr(node, field, self.visit(value))
            elif isinstance(value, list) and not (value and isinstance(value[0], ast.stmt)):
                setattr(node, field, [self.visit(item) if isinstance(item, ast.AST) else item for item in value])
        return node
