"""Ways of writing that are put more plainly before anything else looks at a method."""

from __future__ import annotations

import ast

_VERBOSE = {"X", "VERBOSE"}
_BLANK = " \t\n\r\f\v"


def make(tree: ast.Module) -> None:
    """Make a method plainer, in place: `urllib.parse.quote` where `import urllib.parse` stands, and verbose patterns."""
    dotted = any(
        isinstance(node, ast.Import) and any(a.name == "urllib.parse" and not a.asname for a in node.names) for node in ast.walk(tree)
    )
    for node in ast.walk(tree):
        if dotted and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and _is_parse(node.value):
            node.value = node.value.value
        elif isinstance(node, ast.Call) and node.args and _is_verbose(node):
            pattern = node.args[0]
            if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                pattern.value = unfolded(pattern.value)


def _is_parse(node: ast.Attribute) -> bool:
    return node.attr == "parse" and isinstance(node.value, ast.Name) and node.value.id == "urllib"


def _is_verbose(node: ast.Call) -> bool:
    given = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    return any(
        isinstance(part, ast.Attribute) and part.attr in _VERBOSE and isinstance(part.value, ast.Name) and part.value.id == "re"
        for value in given
        for part in ast.walk(value)
    )


def unfolded(pattern: str) -> str:
    """A pattern written for `re.VERBOSE`, without its blanks and comments."""
    found, at, inside = "", 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            found += pattern[at : at + 2]
            at += 2
            continue
        if char == "#" and not inside:
            at = pattern.find("\n", at) % (len(pattern) + 1)
            continue
        if char == "[" and not inside:
            inside = True
            more = 2 if pattern[at + 1 : at + 2] == "^" else 1  # a bracket that comes first is one of the set
            more += pattern[at + more : at + more + 1] == "]"
            found += pattern[at : at + more]
            at += more
            continue
        inside = inside and char != "]"
        if inside or char not in _BLANK:
            found += char
        at += 1
    return found
