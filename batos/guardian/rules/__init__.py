"""The rules, and the table by which one walk over the tree asks all of them."""

from __future__ import annotations

import ast

from batos.guardian.rules import (
    annotation,
    attribute,
    builtins,
    covenant,
    covenant_order,
    dynamic,
    exceptions,
    files,
    formatting,
    imports,
    loops,
    names,
    network,
    parse,
    pattern,
    receiver,
    shape,
    signature,
    size,
    store,
    syntax,
    text,
    values,
    waiting,
)
from batos.guardian.rules.base import NodeCheck, Rule

RULES: tuple[Rule, ...] = tuple(
    module.RULE
    for module in (
        text, size, names, parse, shape, signature, annotation, syntax, dynamic, receiver, store, builtins, attribute, formatting,
        imports, files, network, waiting, pattern, exceptions, values, loops, covenant, covenant_order,
    )
)  # fmt: skip
"""in the order in which a node is shown to them"""


def _table() -> dict[type[ast.AST], tuple[NodeCheck, ...]]:
    return {kind: tuple(rule.nodes[kind] for rule in RULES if kind in rule.nodes) for kind in syntax.CHILDREN}


CHECKS = _table()
"""the checks for each kind of node"""
