"""The rules, and the table by which one walk over the tree calls all of them."""

from __future__ import annotations

import ast

from batos.guardian.rules import (
    annotation,
    attribute,
    builtins,
    capability,
    covenant,
    exceptions,
    imports,
    loops,
    names,
    receiver,
    shape,
    signature,
    source,
    syntax,
    tool_use,
    values,
    waiting,
)
from batos.guardian.rules.base import NodeCheck, Rule

RULES: tuple[Rule, ...] = (
    source.TEXT_RULE,
    source.SIZE_RULE,
    names.RULE,
    source.SYNTAX_RULE,
    shape.RULE,
    signature.RULE,
    annotation.RULE,
    syntax.RULE,
    attribute.DYNAMIC,
    receiver.RULE,
    covenant.STORE,
    builtins.RULE,
    attribute.RULE,
    attribute.FORMAT,
    imports.RULE,
    capability.FILES,
    capability.NETWORK,
    tool_use.TOOLS,
    tool_use.LOOP,
    tool_use.PLACE,
    tool_use.SEALED,
    tool_use.SECRET,
    waiting.RULE,
    attribute.PATTERN,
    exceptions.RULE,
    values.RULE,
    loops.RULE,
    covenant.RULE,
    covenant.ORDER,
)
"""All rules, in the order in which they check a node."""


def _table() -> dict[type[ast.AST], tuple[NodeCheck, ...]]:
    return {kind: tuple(rule.nodes[kind] for rule in RULES if kind in rule.nodes) for kind in syntax.CHILDREN}


CHECKS = _table()
"""The checks for each kind of node."""
