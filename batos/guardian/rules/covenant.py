"""The rules about writing slots.

* store: a method writes its own slots, by plain statements. Most of it is found by the effect analysis.
* covenant: a method that writes sets `self._p_changed = True` after the last write, on every way out.
* covenant-order: that is the last thing that a method does.
"""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

STORE_ID = "store"
OTHERS = "Send it a message that does it: the other object writes its own slots."


def _check_target(subject: AuditSubject, target: ast.AST | None) -> None:
    pending = [target]
    while pending:
        part = pending.pop()
        if isinstance(part, (ast.Attribute, ast.Subscript)):
            subject.refuse(STORE_ID, part, "a loop or with statement stores into a slot or an item", "Bind a local name, then assign it.")
        elif isinstance(part, (ast.Tuple, ast.List)):
            pending += part.elts
        elif isinstance(part, ast.Starred):
            pending.append(part.value)


def check_target(subject: AuditSubject, node: ast.For | ast.comprehension) -> None:
    """Refuse `for self.x in …`."""
    _check_target(subject, node.target)


def check_with(subject: AuditSubject, node: ast.withitem) -> None:
    """Refuse `with … as self.x`."""
    _check_target(subject, node.optional_vars)


STORE = Rule(
    STORE_ID,
    asks="Attributes are stored on `self` only, by assignment; items only into local containers and into containers of `self`.",
    why="Another object's slots are its own: it must satisfy the Covenant itself. Stores into modules and functions change them for "
    "everybody.",
    accepted="def promote(self, peer):\n    peer.set_rank(1)\n    self.promoted = peer\n    self._p_changed = True",
    refused="def promote(self, peer):\n    peer.rank = 1",
    nodes={ast.For: check_target, ast.comprehension: check_target, ast.withitem: check_with},
)

RULE = Rule(
    "covenant",
    asks="A method that has written slots or containers of self sets `self._p_changed = True` after the last write. "
    "It does so on every way out: return, end of the body, through `finally`, handlers and loops. Aliases, elements, loop variables, "
    "inner functions and objects that were "
    "stored before count. A way out by an error needs none, since the writes are dropped.",
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
