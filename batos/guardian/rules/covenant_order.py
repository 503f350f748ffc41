"""covenant-order: the covenant is the last thing that a method does."""

from __future__ import annotations

from batos.guardian.rules.base import Rule

RULE = Rule(
    "covenant-order",
    asks="After `self._p_changed = True` no statement is executed for its effect; a `return` with a value, and what leads to it, may "
    "follow.",
    why="The Covenant says that a method that writes *ends* by setting the flag.",
    accepted="def visit(self):\n    self.count += 1\n    self.note('visited')\n    self._p_changed = True\n    return self.count",
    refused="def visit(self):\n    self.count += 1\n    self._p_changed = True\n    self.note('visited')\n    return self.count",
)
