"""Effects of expressions, except calls."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from functools import cached_property

from batos.guardian.allowlist import MUTATORS
from batos.guardian.effects.abstract_state import FOREIGN, SELF, AnalysisBase, Function, LoopFrame
from batos.guardian.effects.loop_limits import LoopLimits
from batos.guardian.rules.covenant import OTHERS
from batos.guardian.rules.covenant import STORE_ID as STORE

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class Expressions(AnalysisBase):
    """Names, attributes, displays, comprehensions, operators."""

    def name(self, node: ast.Name) -> int:
        objects = self.read(node.id)
        if objects & self.lazy:
            self.write(node)
        return objects

    def attribute(self, node: ast.Attribute) -> int:
        if self.subject.module_of(node.value):
            return 0
        base = self.evaluate(node.value)
        self.may_raise()
        return self.attribute_of(base, node.attr, node)

    def attribute_of(self, base: int, name: str, node: ast.AST) -> int:
        """Return the objects that reading an attribute may give."""
        found = 0
        if base & SELF:
            self.subject.reads.add(name)
            found = self.heap.slot(name)
        rest = base & ~(SELF | self.heap.origins)
        if not rest:
            return found
        if name in MUTATORS:
            self.heap.grown |= rest
            if rest & FOREIGN:
                self.subject.refuse(STORE, node, "the method changes a container of another object", OTHERS)
            owned = self.owned(rest)
            if owned:  # a bound mutator: any code that receives it may call it
                self.write(node, owned)
                bound = self.heap.at(("bound", node))
                self.lazy |= bound
                return found | bound
        return found | FOREIGN | self.heap.origins_in(base & ~SELF)

    def subscript(self, node: ast.Subscript) -> int:
        base = self.evaluate(node.value)
        self.evaluate(node.slice)
        self.may_raise()
        inside = self.heap.inside(base)
        if isinstance(node.slice, ast.Slice):
            return self.container(node, inside)
        return inside

    def children(self, node: ast.AST) -> int:
        """Return an expression that is a plain value, made of others: of it only the origins are known."""
        found = 0
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found |= self.evaluate(child)
        return self.heap.origins_in(found)

    def comparison(self, node: ast.Compare) -> int:
        self.evaluate(node.left)
        for other in node.comparators:
            self.evaluate(other)
        self.may_raise()
        return 0

    def binary(self, node: ast.BinOp) -> int:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        self.may_raise()
        if not left | right:
            return 0
        # a sum of lists is a new list of the old elements
        return self.container(node, self.heap.inside(left) | self.heap.inside(right), known=bool((left | right) & self.heap.known))

    def boolean(self, node: ast.BoolOp) -> int:
        found = self.evaluate(node.values[0])
        facts = self.state.facts()
        for value in node.values[1:]:
            found |= self.evaluate(value)
            self.state.add_facts(facts)
        return found

    def conditional(self, node: ast.IfExp) -> int:
        self.evaluate(node.test)
        before = self.state.facts()
        found = self.evaluate(node.body)
        after = self.state.facts()
        self._set_facts(before)
        found |= self.evaluate(node.orelse)
        self.state.add_facts(after)
        return found

    def _set_facts(self, facts: tuple[int, ast.AST | None, ast.AST | None, int, bool]) -> None:
        state = self.state
        state.covenant, state.written, state.late, state.owned, state.sent_itself = facts

    def walrus(self, node: ast.NamedExpr) -> int:
        objects = self.evaluate(node.value)
        self.limit(node.value)
        # a walrus may stand where it is not always evaluated
        self.bind(node.target.id, objects | self.read(node.target.id))
        return objects

    def container(self, node: Hashable, inside: int, *, known: bool = True) -> int:
        """Return a new container with these elements."""
        bit = self.heap.at(node, known=known)
        self.heap.put(bit, inside)
        return bit

    def display(self, node: ast.List | ast.Tuple | ast.Set) -> int:
        inside = 0
        for element in node.elts:
            if isinstance(element, ast.Starred):
                inside |= self.heap.inside(self.evaluate(element.value))
            else:
                inside |= self.evaluate(element)
        return self.container(node, inside)

    def dictionary(self, node: ast.Dict) -> int:
        inside = 0
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                inside |= self.heap.inside(self.evaluate(value))
            else:
                self.evaluate(key)  # a key is immutable
                inside |= self.evaluate(value)
        return self.container(node, inside)

    def comprehension(self, node: Comprehension) -> int:
        targets = [name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)]
        keys = {self.function.key(name) for name in targets}
        hidden = {key: self.state.env[key] for key in keys if key in self.state.env}
        facts, writes, inside = self.state.facts(), self.writes, 0
        while True:
            version = self.heap.version
            inside |= self._comprehended(node)
            if version == self.heap.version:
                break
        self.state.add_facts(facts)
        self.state.env.update(hidden)
        result = self.container(node, inside)
        if isinstance(node, ast.GeneratorExp) and self.writes > writes:
            self.lazy |= result
        return result

    def _comprehended(self, node: Comprehension) -> int:
        for part in node.generators:
            items = self.heap.inside(self.evaluate(part.iter))
            self.frames.append(LoopFrame(part, self.loop_limits.of(part.iter)))
            self.may_raise()
            self.unpack(part.target, items)
            for condition in part.ifs:
                self.evaluate(condition)
        if isinstance(node, ast.DictComp):
            self.evaluate(node.key)
            found = self.evaluate(node.value)
        else:
            found = self.evaluate(node.elt)
        del self.frames[-len(node.generators) :]
        return found

    @cached_property
    def loop_limits(self) -> LoopLimits:
        return LoopLimits(self.subject, self.read)

    def limit(self, node: ast.expr) -> None:
        """Note of a container that gets a name if a literal bounds its length."""
        for part in (node.body, node.orelse) if isinstance(node, ast.IfExp) else node.values if isinstance(node, ast.BoolOp) else ():
            self.limit(part)
        if not isinstance(node, ast.Name) and (made := self.heap.made_at(node)):
            limit = self.loop_limits.of(node)
            if limit is None:
                self.heap.limits.pop(made, None)
            else:
                self.heap.limits[made] = self.heap.limits.get(made, 0) | limit

    def unpack(self, target: ast.AST, objects: int) -> None:
        """Bind the names of a target; stores into slots and items are the statements' affair."""
        if isinstance(target, ast.Name):
            self.bind(target.id, objects)
        elif isinstance(target, ast.Starred):
            self.unpack(target.value, self.container(target, objects))
        elif isinstance(target, (ast.Tuple, ast.List)):
            inside = self.heap.inside(objects)
            for element in target.elts:
                self.unpack(element, inside)

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
        """Return the object that stands for an inner function. Its defaults are evaluated here and now."""
        bit = self.heap.at(node)
        function = self.functions.get(bit)
        if function is None:
            function = self.functions[bit] = Function(node, self.function, len(self.functions) + 1)
            self.callables |= bit
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults = zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
        for parameter, default in (*defaults, *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)):
            if default is not None:
                objects = self.evaluate(default)
                key = function.key(parameter.arg)
                self.state.env[key] = self.state.env.get(key, 0) | objects
        return bit

    def yielded(self, node: ast.Yield | ast.YieldFrom) -> int:
        """Add yielded values to the function's result: the sandbox makes a list of them when the generator is called."""
        objects = self.evaluate(node.value) if node.value else 0
        items = self.heap.inside(objects) if isinstance(node, ast.YieldFrom) else objects
        self.function.result |= self.container((self.function.node, "items"), items)
        return 0

    def inner(self, node: ast.Await | ast.Starred) -> int:
        return self.evaluate(node.value)


AnalysisBase.EVALUATORS.update(
    {
        ast.Name: Expressions.name,
        ast.Attribute: Expressions.attribute,
        ast.Subscript: Expressions.subscript,
        ast.Compare: Expressions.comparison,
        ast.BinOp: Expressions.binary,
        ast.BoolOp: Expressions.boolean,
        ast.IfExp: Expressions.conditional,
        ast.NamedExpr: Expressions.walrus,
        ast.List: Expressions.display,
        ast.Tuple: Expressions.display,
        ast.Set: Expressions.display,
        ast.Dict: Expressions.dictionary,
        ast.ListComp: Expressions.comprehension,
        ast.SetComp: Expressions.comprehension,
        ast.DictComp: Expressions.comprehension,
        ast.GeneratorExp: Expressions.comprehension,
        ast.Lambda: Expressions.definition,
        ast.Await: Expressions.inner,
        ast.Yield: Expressions.yielded,
        ast.YieldFrom: Expressions.yielded,
        ast.Starred: Expressions.inner,
        ast.UnaryOp: Expressions.children,
        ast.JoinedStr: Expressions.children,
        ast.FormattedValue: Expressions.children,
        ast.Slice: Expressions.children,
    }
)
