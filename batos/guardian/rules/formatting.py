"""format: str.format only with a literal template of plain fields."""

from __future__ import annotations

import ast
import string

from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject

ID = "format"
HINT = "Use an f-string."


def check_attribute(subject: AuditSubject, node: ast.Attribute) -> None:
    """Any mention of a method called format."""
    if node.attr in ("format", "format_map") and isinstance(node.ctx, ast.Load):
        _check_format(subject, node)


def _check_format(subject: AuditSubject, node: ast.Attribute) -> None:
    if id(node) not in subject.called:
        subject.refuse(ID, node, "a bound format method is no value", HINT)
    elif isinstance(node.value, ast.Name) and node.value.id == "self":
        return  # a message named `format` to self
    elif not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        subject.refuse(ID, node, "format is called on a template that is not a literal", HINT)
    elif not _is_plain(node.value.value):
        subject.refuse(ID, node, "the template looks up attributes or items", HINT)


def _is_plain(template: str, depth: int = 2) -> bool:
    """Return True if all fields are numbers or names, in format specs too."""
    if depth == 0:
        return "{" not in template
    try:
        return all(
            name is None or ((not name or name.isalnum() or name.isidentifier()) and name[:1] != "_" and _is_plain(spec or "", depth - 1))
            for _, name, spec, _ in string.Formatter().parse(template)
        )
    except ValueError:
        return False


RULE = Rule(
    ID,
    asks="`format` and `format_map` are called on literal templates whose fields are plain numbers or names: no attributes, no items.",
    why='A field like `"{0.__class__}"` walks attributes that no other rule sees.',
    accepted='def label(self, n):\n    return "{} of {name:>8}".format(n, name=self.name)',
    refused='def label(self, n):\n    return "{0.real}".format(n)',
    nodes={ast.Attribute: check_attribute},
)
