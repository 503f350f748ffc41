"""Rewriter: from a method's source to the text that runs in the sandbox.

The interpreter routes reads and calls on host objects, but not stores, and lacks some of Python. So loads, stores, deletions and calls on a
possible object go through small helpers made for each name: `_b_h1(o)` for `o.title`, `_b_h2(o, a)` for `o.append(a)`. Each is one call,
with each part evaluated once and in order, and no text in quotes inside f-strings. `await e` is `e`, since the host awaits. A construct
that cannot be rewritten is refused with a hint that a model can use.

Before anything else, some constructs are put in a plainer form. Where a method imports fractions, its comparisons, conditions and sorts go
through functions that know them: the interpreter asks no class for order or truth. Without that, a comparison would raise, and a fraction
of 0 would count as true.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from dataclasses import dataclass
from typing import Any

from batos.errors import MethodUnsupported
from batos.sandbox import stdlib, syntax, tracing
from batos.sandbox.expressions import ExpressionRewriter, call_node, name_node
from batos.sandbox.syntax import PREFIX, UnsupportedNode, refuse, reserved, unsupported_nodes

UNFOLDED = "re.unfolded"
"""Name of the helper that `make` needs for unfolded patterns."""
_VERBOSE = {"X", "VERBOSE"}
_OF_PATTERNS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}


def desugar(tree: ast.Module) -> set[str]:
    """Make a method plainer, in place: `from urllib import parse`, `urllib.parse.quote` where `import urllib.parse` stands, and
    verbose patterns.

    :return: names of the helpers that the method needs.
    """
    _Modules().visit(tree)
    imports = [(node, alias) for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    dotted = any(alias.name == "urllib.parse" and not alias.asname for _, alias in imports)
    for node in ast.walk(tree) if dotted else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and _is_parse(node.value):
            node.value = node.value.value
    flags, functions = _of_re(tree, _VERBOSE), _of_re(tree, _OF_PATTERNS)
    return _unfold(tree, flags, functions) if flags else set()


class _Modules(ast.NodeTransformer):
    """`from urllib import parse` is `import urllib.parse as parse`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        names = [ast.alias(f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        whole = not node.level and all(alias.name in stdlib.ALIASES for alias in names)
        return ast.copy_location(ast.Import(names), node) if whole else node


def _is_parse(node: ast.Attribute) -> bool:
    return node.attr == "parse" and isinstance(node.value, ast.Name) and node.value.id == "urllib"


def _of_re(tree: ast.Module, members: set[str]) -> set[int]:
    """Return the nodes that name a member of `re`."""
    modules, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or "re" for alias in node.names if alias.name == "re"}
        elif isinstance(node, ast.ImportFrom) and node.module == "re":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in members}
    return {
        id(node)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in members and isinstance(node.value, ast.Name) and node.value.id in modules)
    }


def _unfold(tree: ast.Module, flags: set[int], functions: set[int]) -> set[str]:
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node.func) in functions and node.args:
            given = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
            here = {id(part) for value in given for part in ast.walk(value)} & flags
            if here:
                seen |= here
                node.args[0] = call_node("_b_re_unfolded", node.args[0])
    for node in ast.walk(tree):
        if id(node) in flags - seen:
            refuse(node, "re.VERBOSE is written in the call that it is for: re.compile(pattern, re.VERBOSE)")
    return {UNFOLDED}


SUPPLIED = frozenset({"fractions.chain", "fractions.truth", "fractions.by", "fractions.either", "fractions.both"})
_SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}
_ORDER = {"<", "<=", ">", ">="}


def imports_fractions(tree: ast.Module) -> bool:
    """Return True if a method can make fractions."""
    return any(
        (isinstance(node, ast.Import) and any(alias.name == "fractions" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "fractions")
        for node in ast.walk(tree)
    )


def known_fractions(tree: ast.Module) -> ast.Module:
    """Return the method with its comparisons, conditions and sorts as calls of supplied functions."""
    made: ast.Module = _Known(syntax.bound_names(tree)).visit(tree)
    return ast.fix_missing_locations(made)


class _Known(ast.NodeTransformer):
    def __init__(self, bound: set[str]) -> None:
        self._bound = bound

    def visit(self, node: ast.AST) -> Any:
        self.generic_visit(node)
        match node:
            case ast.If() | ast.While() | ast.Assert() | ast.IfExp():
                node.test = _truth(node.test)
            case ast.comprehension():
                node.ifs = [_truth(test) for test in node.ifs]
            case ast.UnaryOp(op=ast.Not()):
                node.operand = _truth(node.operand)
            case ast.Compare():
                return _compared(node)
            case ast.Call(func=ast.Name(id=name)) if name not in self._bound:
                return _called(node, name)
            case ast.Call(func=ast.Attribute(attr="sort"), args=[]):
                _keyed(node)
            case ast.BoolOp() if not any(isinstance(part, ast.NamedExpr) for part in ast.walk(node)):
                return _chosen(node)
        return node


def _compared(node: ast.Compare) -> ast.expr:
    signs = [_SIGNS.get(type(op), "") for op in node.ops]
    if "" in signs or not _ORDER & set(signs):
        return node
    return _call("chain", node, ast.Constant(" ".join(signs)), node.left, *node.comparators)


def _called(node: ast.Call, name: str) -> ast.expr:
    first = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if name == "bool" and first is not None:
        return _call("truth", node, first)
    if name in ("any", "all") and isinstance(first, ast.GeneratorExp | ast.ListComp):
        first.elt = _truth(first.elt)
    if name in ("sorted", "min", "max"):
        _keyed(node)
    return node


def _keyed(node: ast.Call) -> None:
    if all(keyword.arg for keyword in node.keywords):
        keys = [keyword for keyword in node.keywords if keyword.arg == "key"] or [ast.keyword("key", ast.Constant(None))]
        keys[0].value = _call("by", node, keys[0].value)
        node.keywords = [*(keyword for keyword in node.keywords if keyword.arg != "key"), *keys]


def _chosen(node: ast.BoolOp) -> ast.expr:
    """Rewrite `a or b` as a value; as a condition it consists of conditions (`_truth`)."""
    if all(isinstance(value, ast.Compare | ast.Constant | ast.UnaryOp) for value in node.values):
        return node
    nothing = ast.arguments([], [], None, [], [], None, [])
    later = [ast.Lambda(nothing, value) for value in node.values[1:]]
    return _call("either" if isinstance(node.op, ast.Or) else "both", node, node.values[0], *later)


def _truth(node: ast.expr) -> ast.expr:
    """Rewrite a condition; a truth value stays as it is."""
    if isinstance(node, ast.BoolOp):
        node.values = [_truth(value) for value in node.values]
    elif not isinstance(node, ast.Compare | ast.Constant) and not (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
        return _call("truth", node, node)
    return node


def _call(name: str, at: ast.AST, *args: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(ast.Name(f"_b_fractions_{name}", ast.Load()), list(args), []), at)


_ITERABLES = {"range", "map", "filter", "zip", "reversed", "enumerate", "tuple", "set", "iter"}


def _is_iterable(node: ast.expr) -> bool:
    """Return True if an expression is certainly not a list, but may be added to one in place."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _ITERABLES
    return isinstance(node, ast.Tuple | ast.GeneratorExp | ast.Set)


class Rewriter(ExpressionRewriter):
    """Rewrites the one function of a method."""

    def visit_Import(self, node: ast.Import) -> Any:
        node.names = [alias for alias in node.names if alias.name in stdlib.NATIVE]
        return node if node.names else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        made: list[ast.stmt] = []
        for alias in node.names:
            member = stdlib.member(node.module or "", alias.name)
            if member in stdlib.FUNCTIONS:
                self.supplied.add(member)
                held = name_node(PREFIX + member.replace(".", "_"))
                made.append(ast.Assign([ast.Name(alias.asname or alias.name, ast.Store())], held))
        node.names = [alias for alias in node.names if stdlib.member(node.module or "", alias.name) not in stdlib.FUNCTIONS]
        if node.module == "collections.abc":
            return made or ast.Pass()
        return ([node] if node.names else []) + made

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        for arg in ast.walk(node.args):
            if isinstance(arg, ast.arg):
                arg.annotation = None
        gathers = syntax.is_generator(node)
        self.gathering.append(self.fresh() if gathers else "")
        self.generic_visit(node)
        name = self.gathering.pop()
        if gathers:
            node.body = [
                ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load())),
                *node.body,
                ast.Return(call_node("_b_iter", name_node(name))),
            ]
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        fields: dict[str, Any] = {field: getattr(node, field, None) for field in ast.FunctionDef._fields}
        return self.visit_FunctionDef(ast.copy_location(ast.FunctionDef(**fields), node))

    def visit_Return(self, node: ast.Return) -> Any:
        if self.gathering and self.gathering[-1]:
            return ast.Return(call_node("_b_iter", name_node(self.gathering[-1])))
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> Any:
        value = node.value
        if isinstance(value, ast.Yield | ast.YieldFrom):
            add = "append" if isinstance(value, ast.Yield) else "extend"
            item = self.visit(value.value) if value.value is not None else ast.Constant(None)
            return ast.Expr(ast.Call(ast.Attribute(name_node(self.gathering[-1]), add, ast.Load()), [item], []))
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) == 1:
            return self.store(node.targets[0], self.visit(node.value))
        held = self.fresh()
        made: list[ast.stmt] = [ast.Assign([ast.Name(held, ast.Store())], self.visit(node.value))]
        for target in node.targets:
            made += self.store(target, name_node(held))
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        return self.store(node.target, self.visit(node.value)) if node.value is not None else ast.Pass()

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        target, adds = node.target, isinstance(node.op, ast.Add)
        if not isinstance(target, ast.Attribute):
            if adds and isinstance(target, ast.Name) and (_is_iterable(node.value) or target.id in self.lists):
                return ast.Assign([target], call_node("_b_iadd", name_node(target.id), self.visit(node.value)))
            return self.generic_visit(node)
        reserved(target, target.attr)
        if adds and isinstance(target.value, ast.Name):  # the common case, in one short statement
            added = call_node("_b_iadd", self.load(name_node(target.value.id), target.attr), self.visit(node.value))
            return ast.Expr(call_node("_b_set", name_node(target.value.id), ast.Constant(target.attr), added))
        holder, value = self.fresh(), self.fresh()
        return [
            ast.Assign([ast.Name(holder, ast.Store())], self.visit(target.value)),
            ast.Assign([ast.Name(value, ast.Store())], self.load(name_node(holder), target.attr)),
            ast.Assign([ast.Name(value, ast.Store())], call_node("_b_iadd", name_node(value), self.visit(node.value)))
            if adds
            else ast.AugAssign(ast.Name(value, ast.Store()), node.op, self.visit(node.value)),
            ast.Expr(call_node("_b_set", name_node(holder), ast.Constant(target.attr), name_node(value))),
        ]

    def visit_For(self, node: ast.For) -> Any:
        if any(isinstance(part, ast.Attribute) for part in ast.walk(node.target)):
            held = self.fresh()
            stores = self.store(node.target, name_node(held))
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
                made.append(ast.Expr(call_node("_b_del", self.visit(target.value), ast.Constant(target.attr))))
            elif isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice):
                part = target.slice
                ends = [self.visit(end) if end is not None else ast.Constant(None) for end in (part.lower, part.upper, part.step)]
                made.append(ast.Expr(call_node("_b_delslice", self.visit(target.value), *ends)))
            elif isinstance(target, ast.Subscript):
                made.append(ast.Expr(call_node("_b_delitem", self.visit(target.value), self.visit(target.slice))))
            elif isinstance(target, ast.Name):
                made.append(ast.Assign([ast.Name(target.id, ast.Store())], ast.Constant(None)))
        return made

    def store(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        """Return the statements that assign `value`, which is already rewritten, to a target."""
        if isinstance(target, ast.Attribute):
            if target.attr == "_p_changed":
                if not (isinstance(value, ast.Constant) and value.value is True):
                    refuse(target, "the Persistence Covenant is `self._p_changed = True` and nothing else")
                return [ast.Expr(self.visit(target.value))]
            reserved(target, target.attr)
            if self._module(target.value) is not None:
                refuse(target, "a module cannot be changed: use a local name")
            return [ast.Expr(call_node("_b_set", self.visit(target.value), ast.Constant(target.attr), value))]
        if isinstance(target, ast.Tuple | ast.List) and any(isinstance(part, ast.Attribute) for part in ast.walk(target)):
            return self._unpack(target, value)
        return [ast.Assign([self.visit(target)], value)]

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.stmt]:
        names: list[ast.expr] = []
        after: list[ast.stmt] = []
        for element in target.elts:
            held: ast.expr = ast.Name(self.fresh(), ast.Store())
            inner = element.value if isinstance(element, ast.Starred) else element
            after += self.store(inner, name_node(held.id))  # type: ignore[attr-defined]
            names.append(ast.Starred(held, ast.Store()) if isinstance(element, ast.Starred) else held)
        return [ast.Assign([ast.Tuple(names, ast.Store())], value), *after]


BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Program:
    """Text to run (`text`: helpers and method). With it go its `selector`, the name of its `function`, the slots to send along, and the
    original line of each line of `text`.
    """

    selector: str
    function: str
    text: str
    reads: tuple[str, ...]
    lines: dict[int, int]


def rewrite(source: str, *, limit: int, traces: bool = False) -> Program:
    """Return the program of one method.

    :param limit: largest source in bytes.
    :param traces: True if the program notes the lines that it reaches (`batos.sandbox.tracing`).
    :raises MethodUnsupported: with line, column and hint, for source that the sandbox cannot run.
    """
    try:
        return _rewrite(source, limit, traces)
    except UnsupportedNode as e:
        raise MethodUnsupported(e.hint, line=e.line, column=e.column) from None
    except SyntaxError as e:
        raise MethodUnsupported(f"no Python: {e.msg}", line=e.lineno or 1, column=e.offset or 0) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:
        raise MethodUnsupported(f"the source cannot be parsed ({type(e).__name__}): make it simpler", line=1, column=0) from None


def unsupported(source: str, *, limit: int = 64 * 1024) -> list[tuple[int, int, str]]:
    """Return everything in a source that the sandbox would refuse: line, column, hint. An empty list means that it can run."""
    try:
        tree = _parse(source, limit)
        found = [(r.line, r.column, r.hint) for r in unsupported_nodes(tree)]
        if not found:
            rewrite(source, limit=limit)
        return found
    except UnsupportedNode as e:
        return [(e.line, e.column, e.hint)]
    except MethodUnsupported as e:
        return [(e.line, e.column, e.hint)]
    except SyntaxError as e:
        return [(e.lineno or 1, e.offset or 0, f"no Python: {e.msg}")]
    except (ValueError, RecursionError, MemoryError) as e:
        return [(1, 0, f"the source cannot be parsed ({type(e).__name__}): make it simpler")]


def _parse(source: str, limit: int) -> ast.Module:
    if len(source.encode("utf-8", "surrogatepass")) > limit:
        raise UnsupportedNode(1, 0, f"the source is longer than {limit} bytes: split it into several methods")
    with warnings.catch_warnings():  # warnings of Python (`[1]['a']`) belong to the trial, not to the daemon's own output
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
            raise UnsupportedNode(1, 0, "a method is one `def` and nothing else; imports go inside it")
        # also refuse sources that parse but do not compile, such as `break` outside a loop
        compile(source, "<method>", "exec", dont_inherit=True)
    return tree


def _rewrite(source: str, limit: int, traces: bool) -> Program:
    tree = _parse(source, limit)
    for first in unsupported_nodes(tree):
        raise first
    selector = _renamed(tree)
    needed = desugar(tree)
    fractions = imports_fractions(tree)
    if fractions:
        tree = known_fractions(tree)
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    work = Rewriter(tree, method)
    work.supplied |= needed
    if fractions:
        work.supplied |= SUPPLIED
    reads = syntax.reads_of(tree, work.receiver)
    new = ast.Module(body=work.statements([method]), type_ignores=[])
    ast.fix_missing_locations(new)
    if traces:
        new = tracing.traced(new)
    body = ast.unparse(new)
    head = "\n".join([*stdlib.with_needs(work.supplied), *work.helpers.values(), *([tracing.HELPER] if traces else [])])
    text = f"{head}\n{body}\n" if head else f"{body}\n"
    return Program(selector, method.name, text, reads, _lines(new, body, head.count("\n") + 1 if head else 0))


def _renamed(tree: ast.Module) -> str:
    """Return the selector. A method with the name of a builtin gets another name where it runs. Otherwise it would replace `list` or `len`
    in the prelude, in the helpers and in itself.
    """
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    selector = method.name
    if selector in BUILTINS:
        method.name = f"{PREFIX}m_{selector}"
    return selector


def _lines(tree: ast.Module, text: str, before: int) -> dict[int, int]:
    """Map each line of the text to its original line. Both trees have the same shape."""
    found: dict[int, int] = {}
    for old, new in zip(ast.walk(tree), ast.walk(ast.parse(text)), strict=False):
        if isinstance(new, ast.stmt | ast.expr) and hasattr(old, "lineno"):
            found.setdefault(new.lineno + before, old.lineno)
    return found
