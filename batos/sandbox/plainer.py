"""Ways of writing that are put more plainly before anything else looks at a method."""

from __future__ import annotations

import ast

from batos.sandbox import supply
from batos.sandbox.names import call
from batos.sandbox.refusals import refuse

UNFOLDED = "re.unfolded"
"""what `make` needs to be supplied"""
_VERBOSE = {"X", "VERBOSE"}
_OF_PATTERNS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "split", "sub", "subn"}


def make(tree: ast.Module) -> set[str]:
    """Make a method plainer, in place: `from urllib import parse`, `urllib.parse.quote` where `import urllib.parse` stands, and
    verbose patterns.

    :return: what has to be supplied for it.
    """
    _Modules().visit(tree)
    imports = [(node, alias) for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    dotted = any(alias.name == "urllib.parse" and not alias.asname for _, alias in imports)
    for node in ast.walk(tree) if dotted else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and _is_parse(node.value):
            node.value = node.value.value
    flags, functions = _of_re(tree, _VERBOSE), _of_re(tree, _OF_PATTERNS)
    return _unfold(tree, flags, functions) if flags else set()


class _Modules(ast.NodeTransformer):
    """`from urllib import parse` is `import urllib.parse as parse`."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        names = [ast.alias(f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names]
        whole = not node.level and all(alias.name in supply.ALIASES for alias in names)
        return ast.copy_location(ast.Import(names), node) if whole else node


def _is_parse(node: ast.Attribute) -> bool:
    return node.attr == "parse" and isinstance(node.value, ast.Name) and node.value.id == "urllib"


def _of_re(tree: ast.Module, members: set[str]) -> set[int]:
    """The nodes that name a member of `re`."""
    modules, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname or "re" for alias in node.names if alias.name == "re"}
        elif isinstance(node, ast.ImportFrom) and node.module == "re":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in members}
    return {
        id(node)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in members and isinstance(node.value, ast.Name) and node.value.id in modules)
    }


def _unfold(tree: ast.Module, flags: set[int], functions: set[int]) -> set[str]:
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node.func) in functions and node.args:
            given = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
            here = {id(part) for value in given for part in ast.walk(value)} & flags
            if here:
                seen |= here
                node.args[0] = call("_b_re_unfolded", node.args[0])
    for node in ast.walk(tree):
        if id(node) in flags - seen:
            refuse(node, "re.VERBOSE is written in the call that it is for: re.compile(pattern, re.VERBOSE)")
    return {UNFOLDED}
