"""Rewriting of expressions: loads, calls and sends, comprehensions; and the names known in a method: modules, their members, helpers."""

from __future__ import annotations

import ast
from typing import Any

from batos.sandbox import stdlib, syntax
from batos.sandbox.prelude import ERRORS
from batos.sandbox.syntax import PREFIX, refuse, reserved


def name_node(id: str) -> ast.Name:
    return ast.Name(id, ast.Load())


def call_node(function: str, *args: ast.expr) -> ast.Call:
    return ast.Call(name_node(function), list(args), [])


def assign_node(target: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(target, ast.Store())], value)


class NameRewriter(ast.NodeTransformer):
    """Base of the rewriter: the names bound in each scope, and the walk itself."""

    def __init__(self, tree: ast.Module, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        parameters = method.args.posonlyargs + method.args.args
        if not parameters:
            refuse(method, "the first parameter of a method is the receiver: `self`")
        self.receiver = parameters[0].arg
        self.bound = syntax.bound_names(tree)
        self.lists = syntax.list_names(tree)
        self.built_in = syntax.built_in_names(tree)
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
        """Return the name of a helper made once for `key`; `@` in the text stands for its name."""
        name = f"{PREFIX}h{list(self.helpers).index(key) if key in self.helpers else len(self.helpers)}"
        self.helpers.setdefault(key, text.replace("@", name))
        return name_node(name)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            module = node.module or "."
            for alias in node.names:
                if stdlib.member(module, alias.name) in stdlib.FUNCTIONS:
                    continue
                if module not in stdlib.NATIVE and module != "collections.abc":
                    self._no_module(node, module, alias.name)
                elif alias.name == "*":
                    refuse(node, "`import *` is not possible: name what you need")
            return
        for alias in node.names:
            if alias.name not in stdlib.NATIVE and alias.name not in stdlib.MODULES:
                self._no_module(node, alias.name, "")
            self.modules[alias.asname or alias.name.partition(".")[0]] = alias.name

    def _no_module(self, node: ast.AST, module: str, name: str) -> None:
        has = sorted(full.partition(".")[2] for full in stdlib.FUNCTIONS if full.startswith(stdlib.member(module, "")))
        if has and name:
            refuse(node, f"of module {module!r} a method has only: {', '.join(has)}")
        refuse(node, f"no module {module!r} in a method; there are: {', '.join(sorted(stdlib.NATIVE | stdlib.MODULES))}")

    def _module(self, node: ast.expr) -> str | None:
        """Return the module that a name stands for, unless the method binds the name otherwise too."""
        return self.modules.get(node.id) if isinstance(node, ast.Name) and node.id not in self.bound else None

    def _member(self, node: ast.expr, module: str, name: str) -> ast.expr | None:
        full = stdlib.member(module, name)
        if full in stdlib.FUNCTIONS:
            self.supplied.add(full)
            return name_node(PREFIX + full.replace(".", "_"))
        if module in stdlib.MODULES:
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


_LAZY = {"any", "all", "next"}
_EAGER = {"sum", "list", "tuple", "set", "dict", "sorted", "min", "max", "frozenset", "len", "any", "all", "enumerate", "bytes"}
_BUILTIN_TYPES = {"str", "list", "dict", "set", "int", "float", "bytes", "tuple", "frozenset"}
_CLASS_METHODS = {"fromkeys", "fromhex"}
_NO_METHODS = {"real", "imag", "numerator", "denominator"}
_BUILTIN_METHODS = {name for kind in (str, list, dict, set, int, float, bytes) for name in dir(kind) if name[0] != "_"} - _NO_METHODS
_SHADOWED = {"map": "_b_map", "filter": "_b_filter", "getattr": "_b_getattr", "hasattr": "_b_hasattr", "setattr": "_b_set",
             "delattr": "_b_del", "callable": "_b_callable", "bytes": "_b_bytes", "bytearray": "_b_bytes", "print": "_b_print"}  # fmt: skip
_OF_ONE = {"union", "intersection", "difference", "update"}  # the interpreter has these methods for one argument only
_CODED = {"encode", "decode"}  # the interpreter has these methods for Unicode encodings only
_PARTLY = _OF_ONE | _CODED
_CODING = {"bytes": "encoded", "bytearray": "encoded", "str": "decoded"}  # builtins that may be called with an encoding
_OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")
_WITH_KEY = {"sorted": "_b_sorted", "min": "_b_min", "max": "_b_max"}


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_native(name: str, args: list[Any], keywords: list[ast.keyword]) -> bool:
    """Return True if the interpreter has this method of a builtin type, called with these arguments."""
    if name in _OF_ONE:
        return len(args) == 1 and not isinstance(args[0], ast.Starred)
    unicode = not args or (isinstance(args[0], ast.Constant) and args[0].value in ("utf-8", "ascii"))
    return name in _CODED and unicode and not keywords


def _calling(name: str, parameters: str, inner: str, sent: str, other: str) -> str:
    """Return the text of a helper that sends to an object, and calls anything else.

    :param other: the call for anything else, if it is not the method's.
    """
    send = f"_b_send(o, {name!r}, {sent})"
    if name.startswith("_") and name not in _OF_NAMED_TUPLES:
        local = send  # only objects have such names
    elif other:
        local = f"{other}(o, {inner})"
    else:
        local = f"o.{name}({inner})"
    return f"def @(o, {parameters}):\n    return {local} if type(o) is not _b_U else {send}"


class ExpressionRewriter(NameRewriter):
    """The half of the rewriter that is about expressions."""

    def visit_Await(self, node: ast.Await) -> Any:
        return self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and node.id not in self.bound:
            if node.id in _SHADOWED and node.id not in ("bytes", "bytearray"):
                return name_node(_SHADOWED[node.id])
            if node.id in _WITH_KEY:
                return name_node(_WITH_KEY[node.id])
            if self._module(node) in stdlib.MODULES:
                refuse(node, f"module {node.id!r} cannot be a value in a method: call its functions by name")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        module = self._module(node.value)
        if module is not None:
            reserved(node, node.attr)
            return self._member(node, module, node.attr) or node
        if node.attr == "__name__":
            inner = node.value
            typed = isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "type" and len(inner.args) == 1
            if typed:
                return call_node("_b_name", self.visit(inner.args[0]))  # type: ignore[attr-defined]
            if isinstance(inner, ast.Attribute) and inner.attr == "__class__":
                return call_node("_b_name", self.visit(inner.value))
        if node.attr == "__class__":
            return call_node("type", self.visit(node.value))
        reserved(node, node.attr)
        if isinstance(node.value, ast.Name) and node.value.id in _BUILTIN_TYPES - self.bound and node.attr in _BUILTIN_METHODS:
            return self._unbound(node)
        if self._super(node.value):
            refuse(node, "`super()` answers messages only: call it, `super().name(…)`")
        return self.load(self.visit(node.value), node.attr)

    def _unbound(self, node: ast.Attribute) -> ast.expr:
        if node.attr in _CLASS_METHODS:
            return node
        more, named = ast.Starred(name_node("_b_a"), ast.Load()), ast.keyword(None, name_node("_b_k"))
        if node.attr in _PARTLY:
            self.supplied.add(f"x.{node.attr}")
            call = ast.Call(name_node(f"_b_x_{node.attr}"), [name_node("_b_o"), more], [named])
        else:
            call = ast.Call(ast.Attribute(name_node("_b_o"), node.attr, ast.Load()), [more], [named])
        arguments = ast.arguments([], [ast.arg("_b_o")], ast.arg("_b_a"), [], [], ast.arg("_b_k"), [])
        return ast.Lambda(arguments, call)

    def load(self, value: ast.expr, name: str) -> ast.expr:
        """Return `value.name` for a value that may be an object or anything else."""
        if name.startswith("_") and name not in _OF_NAMED_TUPLES:
            text = f"def @(o):\n    return _b_get(o, {name!r})"
        elif name == "_make":  # used as a value, for `map`
            text = "def @(o):\n    return (lambda xs: o._make(xs)) if type(o) is not _b_U else _b_get(o, '_make')"
        elif name in stdlib.ATTRIBUTES:
            self.supplied.add(f"x.{name}")
            text = f"def @(o):\n    return _b_x_{name}(o) if type(o) is not _b_U else _b_get(o, {name!r})"
        elif name in _BUILTIN_METHODS:
            text = (
                f"def @(o):\n    if type(o) is _b_U:\n        return _b_get(o, {name!r})\n    if type(o) in _b_builtin:\n"
                f"        return lambda *a, **k: o.{name}(*a, **k)\n    return o.{name}"
            )
        else:
            text = f"def @(o):\n    return o.{name} if type(o) is not _b_U else _b_get(o, {name!r})"
        return ast.Call(self.helper("load " + name, text), [value], [])

    @staticmethod
    def _super(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"

    def visit_Call(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Attribute) and self._module(function.value) is None:
            return self._send(node, function)
        if isinstance(function, ast.Name) and function.id not in self.bound:
            return self._call_of(node, function)
        return self.generic_visit(node)

    def _call_of(self, node: ast.Call, function: ast.Name) -> ast.expr:
        name = function.id
        generator = node.args[0] if node.args and isinstance(node.args[0], ast.GeneratorExp) else None
        if name in _LAZY and generator is not None:
            lazy = self._lazily(node, name, generator)
            if lazy is not None:
                return lazy
        keyed = any(keyword.arg == "key" or keyword.arg is None for keyword in node.keywords)
        if name in _WITH_KEY and not keyed:
            new: ast.expr = function
        elif name in _CODING and len(node.args) + len(node.keywords) > 1:
            self.supplied.add(f"builtins.{_CODING[name]}")
            new = name_node(f"_b_builtins_{_CODING[name]}")
        elif name in ("bytes", "bytearray"):
            new = name_node("_b_bytes")
        elif name == "pow" and len(node.args) + len(node.keywords) > 2:
            self.supplied.add("builtins.pow")
            new = name_node("_b_builtins_pow")
        elif name == "round" and len(node.args) + len(node.keywords) > 1:
            self.supplied.add("builtins.round")  # the interpreter's own `round` is off by one in the last digit for one decimal in fifty
            new = name_node("_b_builtins_round")
        else:
            new = self.visit(function)
        whole = generator if name in _EAGER else None  # the generator is consumed at once, so the interpreter's list is enough
        node.args = [self._inside(arg) if arg is whole else self.visit(arg) for arg in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        node.func = new
        if name in ERRORS and node.args and (len(node.args) > 1 or not _is_text(node.args[0])):
            node.args = [ast.Call(name_node("_b_text"), node.args, [])]  # the interpreter's exceptions take one text
        return node

    def _inside(self, node: ast.expr) -> Any:
        """Return a comprehension, lambda and the like: no statement can go before it from inside."""
        outer, self.hoisted = self.hoisted, None
        new = self.generic_visit(node)
        self.hoisted = outer
        return new

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return self._inside(node)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return self._inside(node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._inside(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return self._inside(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        # The interpreter would make a list. An iterator over the list is consumed once, like a generator.
        new = self._inside(node)
        return call_node("_b_iter", ast.ListComp(new.elt, new.generators))

    def _lazily(self, node: ast.Call, name: str, generator: ast.GeneratorExp) -> ast.expr | None:
        """Rewrite `any(…)`, `all(…)` and `next(…)` over a generator expression as a loop in a function before the statement. The loop stops
        as soon as the answer is known.
        """
        if self.hoisted is None or any(isinstance(part, ast.NamedExpr) for part in ast.walk(generator)):
            return None
        found, end = self.fresh(), {"any": ast.Constant(False), "all": ast.Constant(True), "next": ast.Constant(None)}[name]
        outer, self.hoisted = self.hoisted, None
        value = self.visit(generator.elt)
        if name == "next":
            body: ast.stmt = ast.Return(ast.List([value], ast.Load()))
        elif name == "any":
            body = ast.If(value, [ast.Return(ast.Constant(True))], [])
        else:
            body = ast.If(value, [ast.Pass()], [ast.Return(ast.Constant(False))])
        for part in reversed(generator.generators):
            for test in reversed(part.ifs):
                body = ast.If(self.visit(test), [body], [])
            body = ast.For(part.target, self.visit(part.iter), [body], [])
        self.hoisted = outer
        arguments = ast.arguments([], [], None, [], [], None, [])
        function = ast.FunctionDef(found, arguments, [body, ast.Return(end)], [], None)
        if "type_params" in ast.FunctionDef._fields:
            function.type_params = []  # type: ignore[attr-defined]
        self.hoisted.append(function)
        if name == "next":
            return call_node("_b_first", call_node(found), *[self.visit(arg) for arg in node.args[1:]])
        return call_node(found)

    def _send(self, node: ast.Call, function: ast.Attribute) -> ast.expr:
        receiver, name = function.value, function.attr
        if self._super(receiver):
            return self._above(name, node)
        if name == "resend" and isinstance(receiver, ast.Name) and receiver.id == self.receiver:
            return self._resend(node)
        reserved(function, name)
        if self._is_unbound(receiver, name) and node.args:
            if isinstance(node.args[0], ast.Starred):  # set.union(*sets)
                return ast.Call(self.visit(function), [self.visit(arg) for arg in node.args], [self.visit(k) for k in node.keywords])
            receiver, node.args = node.args[0], node.args[1:]  # str.upper(x) becomes x.upper()
        certain = syntax.is_built_in(receiver) or (isinstance(receiver, ast.Name) and receiver.id in self.built_in)
        joins = name == "join" and len(node.args) == 1 and isinstance(node.args[0], ast.GeneratorExp)
        value = self.visit(receiver)
        args = [self._inside(node.args[0])] if joins else [self.visit(arg) for arg in node.args]
        keywords = [self.visit(keyword) for keyword in node.keywords]
        sorts = name == "sort" and bool(keywords)
        supplied = name in stdlib.METHODS and not _is_native(name, args, keywords)
        if certain and not sorts and not supplied and not name.startswith("_"):
            return ast.Call(ast.Attribute(value, name, ast.Load()), args, keywords)
        return self._through_helper(name, value, args, keywords, sorts=sorts, supplied=supplied)

    def _is_unbound(self, receiver: ast.expr, name: str) -> bool:
        is_type = isinstance(receiver, ast.Name) and receiver.id in _BUILTIN_TYPES - self.bound
        return is_type and name in _BUILTIN_METHODS - _CLASS_METHODS - (stdlib.METHODS - _PARTLY)

    def _through_helper(
        self, name: str, value: ast.expr, args: list[Any], keywords: list[ast.keyword], *, sorts: bool, supplied: bool
    ) -> ast.expr:
        """Return `value.name(…)` for a value that may be an object: a send to an object, a plain call otherwise."""
        other = "_b_sort" if sorts else ""
        if supplied:
            self.supplied.add(f"x.{name}")
            other = "_b_x_" + name
        if any(isinstance(arg, ast.Starred) for arg in args) or any(keyword.arg is None for keyword in keywords):
            helper = self.helper(f"call {name} *", _calling(name, "*a, **k", "*a, **k", "a, k", other))
            return ast.Call(helper, [value, *args], keywords)
        positional = [f"a{i}" for i in range(len(args))]
        named = [f"k{i}" for i in range(len(keywords))]
        inner = ", ".join([*positional, *[f"{keyword.arg}={k}" for keyword, k in zip(keywords, named, strict=True)]])
        items = ", ".join(f"{keyword.arg!r}: {k}" for keyword, k in zip(keywords, named, strict=True))
        sent = f"({''.join(f'{a}, ' for a in positional)}), {{{items}}}"
        key = f"call {name} {len(args)} {' '.join(str(keyword.arg) for keyword in keywords)}"
        helper = self.helper(key, _calling(name, ", ".join([*positional, *named]), inner, sent, other))
        return ast.Call(helper, [value, *args, *[keyword.value for keyword in keywords]], [])

    def _above(self, name: str, node: ast.Call) -> ast.expr:
        args: list[ast.expr] = [self.visit(arg) for arg in node.args]
        return self._send_above(ast.Constant(name), args, node)

    def _resend(self, node: ast.Call) -> ast.expr:
        if not node.args or isinstance(node.args[0], ast.Starred):
            refuse(node, "`self.resend('selector', …)` takes the selector first")
        first, *rest = [self.visit(arg) for arg in node.args]
        return self._send_above(first, rest, node)

    def _send_above(self, name: ast.expr, args: list[ast.expr], node: ast.Call) -> ast.expr:
        keywords = [self.visit(keyword) for keyword in node.keywords]
        keys: list[ast.expr | None] = [ast.Constant(k.arg) if k.arg is not None else None for k in keywords]
        given = ast.Dict(keys, [keyword.value for keyword in keywords])
        return call_node("_b_send", name_node(self.receiver), name, ast.List(args, ast.Load()), given, ast.Constant(True))

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot):
            left, right = node.left, node.comparators[0]
            if not isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
                same = call_node("_b_is", left, right)
                return same if isinstance(node.ops[0], ast.Is) else ast.UnaryOp(ast.Not(), same)
        return node
