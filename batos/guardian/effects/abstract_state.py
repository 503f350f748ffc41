"""Abstract state of the analysis: the heap of abstract objects, the state at a point of a method, and the constructs around that point.

A set of abstract objects is an `int`, one bit an object. There is one object for self, one for everything that belongs to other objects,
and one a slot. There is also one for each place in the source where a value is created. The content of an object only grows. A state holds
on any of the paths that lead to its point; around it are loops, finally clauses, functions and handlers.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from batos.guardian.rules.covenant import OTHERS
from batos.guardian.rules.covenant import STORE_ID as STORE
from batos.guardian.subject import AuditSubject

SELF = 1
FOREIGN = 2
"""Stands for all objects reached through an attribute of an object other than self."""


class Heap:
    """The abstract objects of one analysis."""

    def __init__(self) -> None:
        self.contents = [0, FOREIGN]
        self.version = 0
        """Counts changes of the heap's facts."""
        self.slots = 0
        """Bit set of all objects that are slots of self."""
        self.known = 0
        """Bit set of all objects that are known to be containers."""
        self.origins = 0
        """Bit set of the objects that stand for what connections answer: what holds one was made of that."""
        self.limits: dict[int, int] = {}
        """Containers whose length a literal bounds, each with the containers whose length bounds its own."""
        self.grown = 0
        """Bit set of the containers that something may be added to after they were made."""
        self._bits: dict[Hashable, int] = {}
        self._slot_names: dict[int, str] = {}
        self._origin_names: dict[int, str] = {}

    def at(self, place: Hashable, *, known: bool = False) -> int:
        """Return the object that comes into being at a place, empty."""
        bit = self._bits.get(place)
        if bit is None:
            bit = self._bits[place] = 1 << len(self.contents)
            self.contents.append(0)
            if known:
                self.known |= bit
        return bit

    def unknown(self, place: Hashable) -> int:
        """Return a value of which nothing is known but that it is not self's: it holds others, and those hold others like themselves."""
        bit = self._bits.get(place)
        if bit is None:
            bit = self.at(place)
            inner = self.at((place, "inside"))
            self.contents[-1] = inner
            self.contents[-2] = inner
        return bit

    def slot(self, name: str) -> int:
        """Return the object that a slot of self holds. Its elements count as itself."""
        bit = self._bits.get(name)
        if bit is None:
            bit = self.at(name)
            self.contents[-1] = bit
            self.slots |= bit
            self._slot_names[bit] = name
        return bit

    def origin(self, connection: str) -> int:
        """Return the object that stands for what a connection answers."""
        bit = self.at(("origin", connection))
        self.contents[bit.bit_length() - 1] = bit
        self.origins |= bit
        self._origin_names[bit] = connection
        return bit

    def origins_in(self, objects: int) -> int:
        """Return the origins of some objects, at any depth."""
        return self.reach(objects) & self.origins if self.origins else 0

    def connections(self, origins: int) -> list[str]:
        """Return the connections that some origins stand for."""
        return [name for bit, name in self._origin_names.items() if bit & origins]

    def made_at(self, place: Hashable) -> int:
        """Return the object that came into being at a place; 0 if none did."""
        return self._bits.get(place, 0)

    def is_limited(self, objects: int) -> bool:
        """Return True if a literal bounds the length of each of some containers."""
        pending, seen = objects & ~self.origins, 0
        while pending:
            low = pending & -pending
            if low & self.grown or low not in self.limits:
                return False
            seen |= low
            pending = (pending | self.limits[low]) & ~(seen | self.origins)
        return True

    def names(self, objects: int) -> list[str]:
        """Return the slots among some objects."""
        return [name for bit, name in self._slot_names.items() if bit & objects]

    def inside(self, objects: int) -> int:
        """Return the objects that may be directly inside some objects."""
        found = 0
        contents = self.contents
        while objects:
            low = objects & -objects
            found |= contents[low.bit_length() - 1]
            objects ^= low
        return found

    def reach(self, objects: int) -> int:
        """Return the objects and all that may be inside them, at any depth."""
        while (more := objects | self.inside(objects)) != objects:
            objects = more
        return objects

    def put(self, objects: int, value: int) -> None:
        """Note that `value` may be inside each of `objects`."""
        objects &= ~(SELF | FOREIGN | self.origins)
        while objects and value:
            low = objects & -objects
            index = low.bit_length() - 1
            if value & ~self.contents[index]:
                self.contents[index] |= value
                self.version += 1
            objects ^= low


# What a path did with respect to the covenant. A state holds a set of these bits.
CLEAN = 1  # the path wrote nothing
DIRTY = 2  # the path wrote something after it last set the flag
FLAGGED = 4  # the path set the flag after its last write
LATE = 8  # the path did something else after it set the flag


class State:
    """Facts at one point. `env` gives the objects of each name."""

    __slots__ = ("covenant", "env", "late", "owned", "sent_itself", "written")

    def __init__(self, env: dict[str, int]) -> None:
        self.env = env
        self.covenant = CLEAN
        self.written: ast.AST | None = None
        """A write without the flag after it; None if there is none."""
        self.late: ast.AST | None = None
        """The node of an action after the flag; None if there is none."""
        self.owned = 0
        """Bit set of local objects that were stored into self. A change of one of them is a write."""
        self.sent_itself = False
        """True if every path to this state sends the method's own selector to self."""

    def copy(self) -> State:
        """Return a state of its own with the same facts."""
        new = State(self.env.copy())
        new.covenant, new.written, new.late, new.owned, new.sent_itself = self.facts()
        return new

    def facts(self) -> tuple[int, ast.AST | None, ast.AST | None, int, bool]:
        """Return all but the names."""
        return self.covenant, self.written, self.late, self.owned, self.sent_itself

    def add_facts(self, facts: tuple[int, ast.AST | None, ast.AST | None, int, bool]) -> None:
        """Add the facts of another path that leads to this state."""
        self.covenant |= facts[0]
        self.written = self.written or facts[1]
        self.late = self.late or facts[2]
        self.owned |= facts[3]
        self.sent_itself = self.sent_itself and facts[4]

    def add(self, other: State) -> None:
        """Add another path that leads to this state."""
        self.add_facts(other.facts())
        env = self.env
        for name, objects in other.env.items():
            env[name] = env.get(name, 0) | objects

    def says_no_more_than(self, other: State) -> bool:
        """Return True if all facts of this state hold in the other."""
        if self.covenant & ~other.covenant or self.owned & ~other.owned or (other.sent_itself and not self.sent_itself):
            return False
        env = other.env
        return all(not objects & ~env.get(name, 0) for name, objects in self.env.items())


def joined(one: State | None, other: State | None) -> State | None:
    """Return the state where two paths meet; None is a path that is never taken."""
    if one is None or other is None:
        return one or other
    one = one.copy()
    one.add(other)
    return one


class LoopFrame:
    """A loop under way, or a comprehension."""

    def __init__(self, node: ast.AST, limit: int | None) -> None:
        """
        :param limit: the containers whose length bounds the number of rounds, 0 if a literal does; None if nothing does.
        """
        self.node, self.limit = node, limit
        self.breaks: State | None = None
        self.continues: State | None = None


class FinallyFrame:
    """A try statement whose finally clause every way out goes through: each with the statement that began it."""

    def __init__(self) -> None:
        self.jumps: dict[tuple[str, ast.AST], State] = {}

    def hold(self, kind: str, node: ast.AST, state: State) -> None:
        """Keep a way out until the finally clause was run for it."""
        earlier = self.jumps.get((kind, node))
        if earlier is None:
            self.jumps[kind, node] = state
        else:
            earlier.add(state)


class Activation:
    """A function under way; the method itself is the first."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.ends: State | None = None
        self.exits = 0
        """Number of ways out by return or raise that were reached."""


class Catcher:
    """Collector of the states in which a try statement may raise."""

    def __init__(self) -> None:
        self.state: State | None = None

    def note(self, state: State) -> None:
        """Record the state at a point that may raise."""
        self.state = joined(self.state, state) if self.state else state.copy()

    def note_facts(self, state: State) -> None:
        """Record the facts at a point that may raise, inside a statement for which `note` was called at its beginning."""
        if self.state is None:
            self.state = state.copy()
        else:
            self.state.add_facts(state.facts())


class Function:
    """A definition: its own names, and the objects that it may return."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, parent: Function | None, number: int) -> None:
        self.node = node
        self.parent = parent
        self.result = 0
        self._number = number
        self._keys: dict[str, str] = {}
        self._own = _own_names(node) if parent else frozenset()

    def key(self, name: str) -> str:
        """Return the key by which a state holds a name that is used here. For a name of the method itself, the key is the name."""
        key = self._keys.get(name)
        if key is None:
            inherited = name if self.parent is None else self.parent.key(name)
            key = f"{name}@{self._number}" if name in self._own else inherited
            self._keys[name] = key
        return key

    def parameters(self) -> list[str]:
        """Return the names that positional arguments go to, in order."""
        return [parameter.arg for parameter in (*self.node.args.posonlyargs, *self.node.args.args)]


def all_parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Return every parameter of a definition."""
    more = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more]


def _own_names(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    own = {parameter.arg for parameter in all_parameters(function.args)}
    outer: set[str] = set()
    pending: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            own.add(node.name)
            continue
        elif isinstance(node, ast.Lambda):
            continue
        elif isinstance(node, ast.Nonlocal):
            outer.update(node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            own.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            own.add(node.rest)
        pending += ast.iter_child_nodes(node)
    return frozenset(own - outer)


@dataclass(slots=True)
class Arguments:
    """The evaluated arguments of a call."""

    positional: list[int]
    keywords: dict[str, int]
    rest: int
    """Bit set of the objects passed by * and **. Their parameters are unknown."""

    @property
    def all(self) -> int:
        """Return all objects that are passed."""
        found = self.rest
        for objects in (*self.positional, *self.keywords.values()):
            found |= objects
        return found


class TooManySteps(Exception):
    """The effects of a method cannot be followed within `AuditLimits.steps`."""


class AnalysisBase(ABC):
    """The current state and the operations on it."""

    state: State

    def __init__(self, subject: AuditSubject, method: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.subject = subject
        self.heap = Heap()
        self.method = Function(method, None, 0)
        self.function = self.method
        self.functions: dict[int, Function] = {}
        """Definitions by the objects that stand for them."""
        self.callables = 0
        self.lazy = 0
        """Bit set of objects whose use writes: bound mutators, and generators with effects."""
        self.frames: list[LoopFrame | FinallyFrame | Activation] = []
        self.catchers: list[Catcher] = []
        self.writes = 0
        """Number of writes seen."""
        self.recursive: set[Function] = set()
        """Functions that call themselves."""
        self.sends_itself = False
        """True if the method's own selector is sent anywhere in it."""
        self.steps = subject.limits.steps

    def step(self) -> None:
        """Count a step.

        :raises TooManySteps: past the limit.
        """
        self.steps -= 1
        if self.steps < 0:
            raise TooManySteps

    def may_raise(self) -> None:
        """Note that an expression evaluated here may raise."""
        if self.catchers:
            self.catchers[-1].note_facts(self.state)

    # --- names

    def read(self, name: str) -> int:
        """Return the objects that a name stands for."""
        return self.state.env.get(self.function.key(name), 0)

    def bind(self, name: str, objects: int) -> None:
        """Bind a name. Names of inner functions keep their earlier objects, too: several activations may be alive."""
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
        """Return those of some objects that are part of self's state."""
        return objects & (self.state.owned | self.heap.slots)

    def write(self, node: ast.AST, objects: int = 0) -> None:
        """Note a write to state of self."""
        self.writes += 1
        self.state.covenant = DIRTY
        self.state.written = node
        self.subject.writes.update(self.heap.names(objects))

    def change(self, node: ast.AST, objects: int, value: int, *, grows: bool = True) -> None:
        """Note that a container is changed in place, and `value` may be in it now.

        :param grows: True if there may be more in it than before.
        """
        if objects & FOREIGN:
            self.subject.refuse(STORE, node, "the method changes a container of another object", OTHERS)
        heap = self.heap
        if grows:
            heap.grown |= objects | heap.inside(objects & heap.slots)
        heap.put(objects, value)
        owned = self.owned(objects)
        if owned:
            self.write(node, owned)
            self.own(value)

    def own(self, objects: int) -> None:
        """Mark objects that are stored into self as state of self from here on."""
        self.state.owned |= self.heap.reach(objects) & ~(SELF | FOREIGN | self.heap.origins)

    def flag(self) -> None:
        """Set the covenant's flag: `self._p_changed = True`."""
        before = self.state.covenant
        self.state.covenant = (before & CLEAN) | (FLAGGED if before & ~CLEAN else 0)
        self.state.written = self.state.late = None

    def effect(self, node: ast.AST) -> None:
        """Record that a statement was executed for its effect."""
        if self.state.covenant & FLAGGED and self.function is self.method:
            self.state.covenant = (self.state.covenant & ~FLAGGED) | LATE
            self.state.late = node

    # --- expressions, by kind; the subclasses add theirs

    EVALUATORS: ClassVar[dict[type[ast.AST], Callable[[Any, Any], int]]] = {}

    def evaluate(self, node: ast.AST) -> int:
        """Evaluate an expression: its effects happen, and the objects that it may answer come back."""
        self.step()
        evaluator = self.EVALUATORS.get(type(node))
        return evaluator(self, node) if evaluator else 0

    @abstractmethod
    def run_body(self, body: list[ast.stmt]) -> State | None:
        """Run statements from the current state on: the state at their end, or None if no path reaches it."""
