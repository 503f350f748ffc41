"""The rules, and the table by which one walk over the tree calls all of them."""

from __future__ import annotations

import ast

from batos.guardian.rules import (
    annotation,
    attribute,
    builtins,
    capability,
    covenant,
    dynamic,
    exceptions,
    formatting,
    imports,
    loops,
    names,
    pattern,
    receiver,
    shape,
    signature,
    source,
    store,
    syntax,
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
    dynamic.RULE,
    receiver.RULE,
    store.RULE,
    builtins.RULE,
    attribute.RULE,
    formatting.RULE,
    imports.RULE,
    capability.FILES,
    capability.NETWORK,
    capability.TOOLS,
    waiting.RULE,
    pattern.RULE,
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
