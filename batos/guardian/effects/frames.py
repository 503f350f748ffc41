"""What surrounds a point of a method: loops, finally clauses, functions, handlers."""

from __future__ import annotations

import ast

from batos.guardian.effects.state import State, joined


class Loop:
    """A loop under way."""

    def __init__(self) -> None:
        self.breaks: State | None = None
        self.continues: State | None = None


class Finally:
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
        """ways out by return or raise that were reached"""


class Catcher:
    """Gathers what may hold when something in a try statement raises."""

    def __init__(self) -> None:
        self.state: State | None = None

    def note(self, state: State) -> None:
        """It may raise here."""
        self.state = joined(self.state, state) if self.state else state.copy()

    def note_facts(self, state: State) -> None:
        """It may raise here, within a statement at whose begin `note` was called."""
        if self.state is None:
            self.state = state.copy()
        else:
            self.state.add_facts(state.facts())


class Function:
    """A definition: which names are its own, and what it may answer."""

    def __init__(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, parent: Function | None, number: int) -> None:
        self.node = node
        self.parent = parent
        self.result = 0
        self._number = number
        self._keys: dict[str, str] = {}
        self._own = _own_names(node) if parent else frozenset()

    def key(self, name: str) -> str:
        """Under which key a state holds a name that is used here. Names of the method itself stand under themselves."""
        key = self._keys.get(name)
        if key is None:
            inherited = name if self.parent is None else self.parent.key(name)
            key = f"{name}@{self._number}" if name in self._own else inherited
            self._keys[name] = key
        return key

    def parameters(self) -> list[str]:
        """The names that positional arguments go to, in order."""
        return [parameter.arg for parameter in (*self.node.args.posonlyargs, *self.node.args.args)]


def all_parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter of a definition."""
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
