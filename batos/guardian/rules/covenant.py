"""covenant: whoever writes sets `self._p_changed = True` after the last write, on every way out.

covenant-order: that is the last thing that a method does.
"""

from __future__ import annotations

from batos.guardian.rules.base import Rule

RULE = Rule(
    "covenant",
    asks="On every way out of a method (return, end of the body, through `finally`, handlers and loops) that has written slots or "
    "containers of "
    "self, `self._p_changed = True` was set after the last write. Aliases, elements, loop variables, inner functions and objects that were "
    "stored before count; a way out by an error needs none, since the writes are dropped.",
    why="The Persistence Covenant: what was changed must be saved, and a reader must see where.",
    accepted="def add(self, item):\n    if item in self.items:\n        return False\n    items = self.items\n    items.append(item)\n"
    "    self._p_changed = True\n"
    "    return True",
    refused="def add(self, item):\n    items = self.items\n    items.append(item)\n    if len(items) > 9:\n        return False\n"
    "    self._p_changed = True\n"
    "    return True",
)

ORDER = Rule(
    "covenant-order",
    asks="After `self._p_changed = True` no statement is executed for its effect; a `return` with a value, and what leads to it, may "
    "follow.",
    why="The Covenant says that a method that writes *ends* by setting the flag.",
    accepted="def visit(self):\n    self.count += 1\n    self.note('visited')\n    self._p_changed = True\n    return self.count",
    refused="def visit(self):\n    self.count += 1\n    self._p_changed = True\n    self.note('visited')\n    return self.count",
)
