"""Arguments under other names, for as long as a method is put together: a user may call one `n`, as idioms call what they go through.

Names that are bound in an expression are not those of arguments (capture-avoiding substitution: Barendregt 1984, The Lambda Calculus,
2.1); where both are called the same, each gets the other's name in the end.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection, Mapping
from typing import Any

from batos.image.examples import Example
from batos.mind import edits
from batos.mind.amending import Passed, Wanted
from batos.mind.pricing import MODULES
from batos.mind.side_by_side import Call


def clashing(what: Wanted, ours: Collection[str]) -> dict[str, str]:
    """Of arguments that have one of our names, what each is called instead."""
    theirs = {name for call in what.calls for name in call.kwargs}
    return {name: _free(name, {*theirs, *ours}) for name in sorted(theirs.intersection(ours) - {"self"})}  # `self` is no argument's name


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def renamed(what: Wanted, names: Mapping[str, str]) -> Wanted:
    """The same with arguments called otherwise."""

    def their(given: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): value for name, value in given.items()}

    def call(one: Call) -> Call:
        return one._replace(kwargs=their(one.kwargs))

    def example(one: Example) -> Example:
        return one._replace(kwargs=tuple(their(dict(one.kwargs)).items()))

    return what._replace(examples=[(call(one), example(other)) for one, other in what.examples], calls=[call(one) for one in what.calls])


def named_back(passed: Passed, names: Mapping[str, str]) -> Passed:
    """Methods with their arguments called as the user does; none that needs what Python has under such a name."""
    both = {**names, **{other: name for name, other in names.items()}}
    found = []
    for cost, source in passed:
        tree = ast.parse(source)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        if any(name in used and (hasattr(builtins, name) or name in MODULES) for name in names):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = both.get(node.id, node.id)
            elif isinstance(node, ast.arg):
                node.arg = both.get(node.arg, node.arg)
        text = edits.unparsed(tree)
        if text is not None:
            found.append((cost, text))
    return tuple(found)
