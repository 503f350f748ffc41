"""What all parts of the analysis share: the subject, the heap, the state that is current."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

from batos.guardian.effects.frames import Activation, Catcher, Finally, Function, Loop
from batos.guardian.effects.heap import FOREIGN, SELF, Heap
from batos.guardian.effects.state import CLEAN, DIRTY, FLAGGED, LATE, State
from batos.guardian.rules.store import ID as STORE
from batos.guardian.rules.store import OTHERS
from batos.guardian.subject import Subject


class TooManySteps(Exception):
    """The effects of a method cannot be followed within `audit_steps`."""


class Base(ABC):
    """The current state and what may happen to it."""

    state: State

    def __init__(self, subject: Subject, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.subject = subject
        self.heap = Heap()
        self.method = Function(method, None, 0)
        self.function = self.method
        self.functions: dict[int, Function] = {}
        """definitions by the objects that stand for them"""
        self.callables = 0
        self.lazy = 0
        """objects that write when they are used: bound mutators, generators with effects"""
        self.frames: list[Loop | Finally | Activation] = []
        self.catchers: list[Catcher] = []
        self.writes = 0
        """how many writes were seen"""
        self.steps = subject.limits.steps

    def step(self) -> None:
        """Count a step.

        :raises TooManySteps: past the limit.
        """
        self.steps -= 1
        if self.steps < 0:
            raise TooManySteps

    def may_raise(self) -> None:
        """Something that is evaluated here may raise."""
        if self.catchers:
            self.catchers[-1].note_facts(self.state)

    # --- names

    def read(self, name: str) -> int:
        """The objects that a name stands for."""
        return self.state.env.get(self.function.key(name), 0)

    def bind(self, name: str, objects: int) -> None:
        """Bind a name. Those of inner functions keep what they had: several activations may be alive."""
        key = self.function.key(name)
        if self.function is self.method or key == name:
            if self.function is not self.method:
                objects |= self.state.env.get(key, 0)
            self.state.env[key] = objects
            return
        before = self.state.env.get(key, 0)
        if objects & ~before:
            self.state.env[key] = before | objects
            self.heap.version += 1

    # --- effects

    def owned(self, objects: int) -> int:
        """Those of some objects that are state of self."""
        return objects & (self.state.owned | self.heap.slots)

    def write(self, node: ast.AST, objects: int = 0) -> None:
        """Note a write to state of self."""
        self.writes += 1
        self.state.covenant = DIRTY
        self.state.written = node
        self.subject.writes.update(self.heap.names(objects))

    def change(self, node: ast.AST, objects: int, value: int) -> None:
        """Note that a container is changed in place, and `value` may be in it now."""
        if objects & FOREIGN:
            self.subject.refuse(STORE, node, "the method changes a container of another object", OTHERS)
        heap = self.heap
        heap.put(objects, value)
        owned = self.owned(objects)
        if owned:
            self.write(node, owned)
            self.own(value)

    def own(self, objects: int) -> None:
        """What is stored into self is state of self from here on."""
        self.state.owned |= self.heap.reach(objects) & ~(SELF | FOREIGN)

    def flag(self) -> None:
        """`self._p_changed = True`."""
        before = self.state.covenant
        self.state.covenant = (before & CLEAN) | (FLAGGED if before & ~CLEAN else 0)
        self.state.written = self.state.late = None

    def effect(self, node: ast.AST) -> None:
        """A statement was executed for its effect."""
        if self.state.covenant & FLAGGED and self.function is self.method:
            self.state.covenant = (self.state.covenant & ~FLAGGED) | LATE
            self.state.late = node

    # --- expressions, by kind; the parts add theirs

    EVALUATORS: ClassVar[dict[type[ast.AST], Callable[[Any, Any], int]]] = {}

    def evaluate(self, node: ast.AST) -> int:
        """Evaluate an expression: its effects happen, and the objects that it may answer come back."""
        self.step()
        evaluator = self.EVALUATORS.get(type(node))
        return evaluator(self, node) if evaluator else 0

    @abstractmethod
    def run_body(self, body: list[ast.stmt]) -> State | None:
        """Run statements from the current state on: the state at their end, or None where no path reaches it."""
