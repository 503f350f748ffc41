"""What holds at a point of a method, on any of the paths that lead to it."""

from __future__ import annotations

import ast

# What a path did, as far as the Covenant is concerned. A state holds a set of these.
CLEAN = 1  # nothing was written
DIRTY = 2  # something was written since the flag was set
FLAGGED = 4  # what was written is flagged
LATE = 8  # flagged, and then something else was done


class State:
    """Facts at one point. `env` gives the objects of each name."""

    __slots__ = ("covenant", "env", "late", "owned", "sent_itself", "written")

    def __init__(self, env: dict[str, int]) -> None:
        self.env = env
        self.covenant = CLEAN
        self.written: ast.AST | None = None
        """a write that is not flagged"""
        self.late: ast.AST | None = None
        """what was done after the flag"""
        self.owned = 0
        """local objects that were stored into self: to change them is to write"""
        self.sent_itself = False
        """whether every path to here sends the method's own selector to self"""

    def copy(self) -> State:
        """A state of its own with the same facts."""
        new = State(self.env.copy())
        new.covenant, new.written, new.late, new.owned, new.sent_itself = self.facts()
        return new

    def facts(self) -> tuple[int, ast.AST | None, ast.AST | None, int, bool]:
        """All but the names."""
        return self.covenant, self.written, self.late, self.owned, self.sent_itself

    def add_facts(self, facts: tuple[int, ast.AST | None, ast.AST | None, int, bool]) -> None:
        """Another path with these facts leads here too."""
        self.covenant |= facts[0]
        self.written = self.written or facts[1]
        self.late = self.late or facts[2]
        self.owned |= facts[3]
        self.sent_itself = self.sent_itself and facts[4]

    def add(self, other: State) -> None:
        """Another path leads here too."""
        self.add_facts(other.facts())
        env = self.env
        for name, objects in other.env.items():
            env[name] = env.get(name, 0) | objects

    def says_no_more_than(self, other: State) -> bool:
        """Whether all facts here hold there already."""
        if self.covenant & ~other.covenant or self.owned & ~other.owned or (other.sent_itself and not self.sent_itself):
            return False
        env = other.env
        return all(not objects & ~env.get(name, 0) for name, objects in self.env.items())


def joined(one: State | None, other: State | None) -> State | None:
    """What holds where two paths meet; None is a path that nothing comes along."""
    if one is None or other is None:
        return one or other
    one = one.copy()
    one.add(other)
    return one
