"""store: a method writes its own slots, by plain statements. Most of it is found by the effect analysis."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "store"
OTHERS = "Send it a message that does it: the other object writes its own slots."


def _check_target(subject: AuditSubject, target: ast.AST | None) -> None:
    pending = [target]
    while pending:
        part = pending.pop()
        if isinstance(part, (ast.Attribute, ast.Subscript)):
            subject.refuse(ID, part, "a loop or with statement stores into a slot or an item", "Bind a local name, then assign it.")
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


RULE = Rule(
    ID,
    asks="Attributes are stored on `self` only, by assignment; items only into local containers and into containers of `self`.",
    why="Another object's slots are its own: it must satisfy the Covenant itself. Stores into modules and functions change them for "
    "everybody.",
    accepted="def promote(self, peer):\n    peer.set_rank(1)\n    self.promoted = peer\n    self._p_changed = True",
    refused="def promote(self, peer):\n    peer.rank = 1",
    nodes={ast.For: check_target, ast.comprehension: check_target, ast.withitem: check_with},
)
