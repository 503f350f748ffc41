"""Effects of assignments and deletions."""

from __future__ import annotations

import ast

from batos.guardian.allowlist import COPIES, MUTATORS, SCALARS
from batos.guardian.effects.abstract_state import FOREIGN, SELF
from batos.guardian.effects.calls import Calls
from batos.guardian.rules import covenant
from batos.guardian.rules.covenant import OTHERS
from batos.guardian.rules.covenant import STORE_ID as STORE
from batos.guardian.subject import is_covenant, is_flag

_IN_PLACE = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_CONTAINERS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_PLAIN = (ast.Constant, ast.JoinedStr, ast.Compare, ast.UnaryOp)


class Assignments(Calls):
    """=, +=, : =, del."""

    def store(self, node: ast.Assign) -> bool:
        if is_covenant(node):
            self._covenant(node)
            return True
        first = node.targets[0]
        if len(node.targets) == 1 and isinstance(first, (ast.Tuple, ast.List)) and _pairwise(first, node.value):
            values = [self.evaluate(value) for value in node.value.elts]  # type: ignore[attr-defined]
            for target, objects in zip(first.elts, values, strict=True):
                self.assign(target, objects)
            return True
        objects = self.evaluate(node.value)
        self.limit(node.value)
        for target in node.targets:
            self.assign(target, objects)
        return True

    def _covenant(self, node: ast.Assign) -> None:
        if self.function is self.method:
            self.flag()
        else:
            hint = "Set it in the method itself, after the call of the inner function."
            self.subject.refuse(covenant.RULE.id, node, "the flag is set in an inner function", hint)

    def annotated(self, node: ast.AnnAssign) -> bool:
        if node.value is not None:
            objects = self.evaluate(node.value)
            self.limit(node.value)
            self.assign(node.target, objects)
        return True

    def assign(self, target: ast.AST, objects: int) -> None:
        """Store a value into a target of any kind."""
        if isinstance(target, ast.Name):
            self.bind(target.id, objects)
        elif isinstance(target, ast.Attribute):
            self._store_attribute(target, objects)
        elif isinstance(target, ast.Subscript):
            container = self.evaluate(target.value)
            self.evaluate(target.slice)
            self.may_raise()
            self.change(target, container, objects | (self.heap.inside(objects) if isinstance(target.slice, ast.Slice) else 0))
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.container(target, objects))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.may_raise()
            for element in target.elts:
                self.assign(element, self.heap.inside(objects))

    def _store_attribute(self, target: ast.Attribute, objects: int) -> None:
        base = self.evaluate(target.value)
        if is_flag(target):
            return  # the flag inside another statement: the rule `attribute` refuses it
        if base != SELF:
            self.subject.refuse(STORE, target, "an attribute is stored on something that is not self", OTHERS)
        if base & SELF:
            slot = self.heap.slot(target.attr)
            self.heap.put(slot, objects)
            self.write(target, slot)
            self.own(objects)

    def augmented(self, node: ast.AugAssign) -> bool:
        target = node.target
        if isinstance(target, ast.Name):
            self._augment_name(node, target)
            return True
        if isinstance(target, ast.Attribute):
            base = self.evaluate(target.value)
            before = self.attribute_of(base, target.attr, target) if not is_flag(target) else 0
        else:
            before = self.heap.inside(self.evaluate(target.value))
        objects = self.evaluate(node.value)
        self.may_raise()
        if isinstance(node.op, _IN_PLACE) and (isinstance(node.value, _CONTAINERS) or objects & self.heap.known):
            self.change(node, before, self.heap.inside(objects))  # `rows[0] += [x]`: the item's own container grows in place
        # The target then holds its old value, grown in place, or a new container with the elements of both. It never holds the other value
        # itself.
        self.heap.put(before, self.heap.inside(objects))
        inside = self.heap.inside(before) | self.heap.inside(objects)
        self.assign(target, before | self.container(node, inside, known=bool((before | objects) & self.heap.known)))
        return True

    def _augment_name(self, node: ast.AugAssign, target: ast.Name) -> None:
        before = self.evaluate(ast.copy_location(ast.Name(target.id, ast.Load()), target))
        objects = self.evaluate(node.value)
        self.may_raise()
        inside = self.heap.inside(objects) | objects
        owned = self.owned(before)
        if not owned or self._changes_in_place(node, target.id, objects):
            self.change(node, before & ~FOREIGN, inside)
        self.bind(target.id, before | (objects if owned else 0) | self.heap.origins_in(objects))

    def _changes_in_place(self, node: ast.AugAssign, name: str, objects: int) -> bool:
        """Return True if `x += …` changes the object that x stands for. It does so for containers, and not for numbers and texts; in
        doubt, the other uses of x decide.
        """
        if not isinstance(node.op, _IN_PLACE):
            return False
        value = node.value
        if isinstance(value, _CONTAINERS) or objects & self.heap.known:
            return True
        if isinstance(node.op, ast.Mult):
            return self._is_used_as_container(name)
        if isinstance(value, _PLAIN) or (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in SCALARS):
            return False
        if isinstance(value, ast.BinOp) and not isinstance(value.op, (ast.Add, ast.BitOr)):
            return False  # arithmetic gives no container
        return self._is_used_as_container(name) or not self._is_used_after(node, name)

    def _is_used_as_container(self, name: str) -> bool:
        for node in ast.walk(self.method.node):
            match node:
                case ast.For(iter=ast.Name(id=used)) | ast.comprehension(iter=ast.Name(id=used)) | ast.Starred(value=ast.Name(id=used)):
                    pass
                case ast.Subscript(value=ast.Name(id=used)):
                    pass
                case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=used), *_]) if function == "len" or function in COPIES:
                    pass
                case ast.Call(func=ast.Attribute(value=ast.Name(id=used), attr=method)) if method in MUTATORS:
                    pass
                case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=used)]):
                    pass
                case _:
                    continue
            if used == name:
                return True
        return False

    def _is_used_after(self, node: ast.AugAssign, name: str) -> bool:
        return any(
            isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Load) and part.lineno > node.lineno
            for part in ast.walk(self.method.node)
        )

    def delete(self, node: ast.Delete) -> bool:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.evaluate(ast.copy_location(ast.Name(target.id, ast.Load()), target))
            elif isinstance(target, ast.Attribute):
                self._delete_attribute(target)
            elif isinstance(target, ast.Subscript):
                container = self.evaluate(target.value)
                self.evaluate(target.slice)
                self.may_raise()
                self.change(target, container, 0, grows=False)
        return True

    def _delete_attribute(self, target: ast.Attribute) -> None:
        base = self.evaluate(target.value)
        self.may_raise()
        if base != SELF:
            self.subject.refuse(STORE, target, "an attribute is deleted from something that is not self", OTHERS)
        if base & SELF:
            self.write(target, self.heap.slot(target.attr))


def _pairwise(target: ast.Tuple | ast.List, value: ast.expr) -> bool:
    return (
        isinstance(value, (ast.Tuple, ast.List))
        and len(value.elts) == len(target.elts)
        and not any(isinstance(part, ast.Starred) for part in (*target.elts, *value.elts))
    )
