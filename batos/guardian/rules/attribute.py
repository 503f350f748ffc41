"""The rules about attributes: named plainly, by a literal in getattr, in a template of format, and in a class pattern.

* attribute: only public attributes that belong to values and objects.
* dynamic: attributes by literal names, one-argument type, whole super sends.
* format: str.format only with a literal template of plain fields.
* pattern: match statements look at shapes and builtin types, not at attributes.
"""

from __future__ import annotations

import ast
import re
import string

from batos.guardian.allowlist import KIND_METHODS, words
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, is_covenant

ID = "attribute"
_DYNAMIC = "dynamic"
_FORMAT = "format"
_PATTERN = "pattern"
_FORMAT_HINT = "Use an f-string."
_KINDS = words("bool bytes dict float frozenset int list set str tuple")
# Frames, code objects, coroutines, classes: attributes that lead from a value to the interpreter. The sandbox has none of them.
_MACHINERY = re.compile(
    r"(gi|cr|ag|tb|co|func|im)_[a-z]+$|f_(back|globals|locals|builtins|code|lineno|lasti|trace)$|(mro|with_traceback|add_note)$"
)
_SENT = ("_clone_persistent_",)
_OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")


def check_covenant(subject: AuditSubject, node: ast.Assign) -> None:
    """Allow the one store of an underscore name: `self._p_changed = True`."""
    if is_covenant(node):
        subject.cleared.add(id(node.targets[0]))


def check_clone(subject: AuditSubject, node: ast.Call) -> None:
    """`self._clone_persistent_()` is the message by which an object is cloned."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in _SENT:
        subject.cleared.add(id(node.func))


def check_attribute(subject: AuditSubject, node: ast.Attribute) -> None:
    """Any attribute, however it is used."""
    name = node.attr
    if name[0] == "_":
        if id(node) not in subject.cleared and not _is_type_name(subject, node) and not _is_named_tuples(subject, node):
            subject.refuse(ID, node, f"the attribute {name!r} is reserved: it begins with _", _hint(name))
    elif _MACHINERY.match(name):
        subject.refuse(ID, node, f"the attribute {name!r} leads into the interpreter", "Leave it out.")
    elif isinstance(node.value, ast.Call) and subject.is_builtin(node.value.func, "type"):
        subject.refuse(ID, node, "a type is asked for more than its name", f"Call it on the value: value.{name}(...).")
    elif not name.isascii() or len(name) > subject.limits.name:
        subject.refuse(ID, node, "an attribute's name is too long or not ASCII", "Use a short ASCII name.")
    elif isinstance(node.value, ast.Name) and node.value.id not in subject.bound:
        kind = node.value.id
        if kind in KIND_METHODS and name not in KIND_METHODS[kind]:
            subject.refuse(ID, node, f"{kind}.{name} is not available to methods", f"Call it on a value: value.{name}(...).")


def _is_type_name(subject: AuditSubject, node: ast.Attribute) -> bool:
    """`type(value).__name__`: the only question to a type that does no harm."""
    call = node.value
    return (
        node.attr == "__name__"
        and isinstance(node.ctx, ast.Load)
        and isinstance(call, ast.Call)
        and subject.is_builtin(call.func, "type")
        and len(call.args) == 1
    )


def _is_named_tuples(subject: AuditSubject, node: ast.Attribute) -> bool:
    """Return True for a method of named tuples that begins with an underscore to keep it apart from their fields."""
    has = subject.modules.values(), subject.members.values()
    known = "collections" in has[0] or ("collections", "namedtuple") in has[1]
    itself = isinstance(node.value, ast.Name) and node.value.id == "self"
    return known and node.attr in _OF_NAMED_TUPLES and isinstance(node.ctx, ast.Load) and not itself


def _hint(name: str) -> str:
    if "changed" in name:
        return "Write exactly `self._p_changed = True` as a statement of its own."
    if name == "__class__":
        return "Use isinstance(value, kind), or type(value).__name__ for its name."
    return "Use public slots and messages only."


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """Calls of getattr, hasattr, type and super."""
    subject.called.add(id(node.func))
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and subject.is_builtin(function.value.func, "super"):
        subject.cleared.add(id(function.value))
    if not isinstance(function, ast.Name) or function.id in subject.bound:
        return
    if function.id in ("getattr", "hasattr"):
        _check_name(subject, node)
    elif function.id == "type" and (len(node.args) != 1 or node.keywords or isinstance(node.args[0], ast.Starred)):
        subject.refuse(_DYNAMIC, node, "type is called to make a type", "Use a dict, or collections.namedtuple.")
    elif function.id == "type" and isinstance(node.args[0], ast.Call) and subject.is_builtin(node.args[0].func, "type"):
        subject.refuse(_DYNAMIC, node, "the type of a type is asked for", "Use type(value).__name__, or isinstance(value, kind).")
    elif function.id == "super" and (node.args or node.keywords or id(node) not in subject.cleared):
        subject.refuse(_DYNAMIC, node, "super is used other than super().selector(...)", "Write super().selector(arguments) as a whole.")


def _check_name(subject: AuditSubject, node: ast.Call) -> None:
    assert isinstance(node.func, ast.Name)
    name = node.args[1] if len(node.args) > 1 else None
    if not (isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.isidentifier()) or node.keywords:
        reason = f"{node.func.id} is called with a name that is not a literal"
        subject.refuse(
            _DYNAMIC, node, reason, f"Write the name as a literal: {node.func.id}(self, 'name'), or keep the values in one dict slot."
        )
        return
    # A literal name is checked like any other attribute.
    as_attribute = ast.Attribute(node.args[0], name.value, ast.Load())
    check_attribute(subject, ast.copy_location(as_attribute, node))
    if name.value == "format":
        subject.refuse(ID, node, "a bound format method is used as a value", _FORMAT_HINT)
    if isinstance(node.args[0], ast.Name) and node.args[0].id in subject.modules:
        subject.refuse(_DYNAMIC, node, f"{node.func.id} of a module", "Write module.member.")


def check_getters(subject: AuditSubject) -> None:
    """`attrgetter` is what things are sorted by, and its names are literals."""
    assert subject.method is not None
    if not any(module == "operator" for module in (*subject.modules.values(), *(module for module, _ in subject.members.values()))):
        return
    keys = {id(part.value.func) for part in ast.walk(subject.method) if _is_key(part)}  # type: ignore[attr-defined]
    for node in ast.walk(subject.method):
        if isinstance(node, (ast.Name, ast.Attribute)) and subject.function_of(node) == ("operator", "attrgetter") and id(node) not in keys:
            subject.refuse(
                _DYNAMIC, node, "attrgetter is used other than key=attrgetter('name')", "Write a lambda: lambda item: item.name."
            )


def _is_key(node: ast.AST) -> bool:
    if not (isinstance(node, ast.keyword) and node.arg == "key" and isinstance(node.value, ast.Call)) or node.value.keywords:
        return False
    texts = [argument.value if isinstance(argument, ast.Constant) else None for argument in node.value.args]
    return bool(texts) and all(isinstance(text, str) and _is_public(text) for text in texts)


def _is_public(text: str) -> bool:
    return all(name.isidentifier() and name.isascii() and name[0] != "_" and name != "obj" for name in text.split("."))


def check_format(subject: AuditSubject, node: ast.Attribute) -> None:
    """Any mention of a method called format."""
    if node.attr in ("format", "format_map") and isinstance(node.ctx, ast.Load):
        _check_template(subject, node)


def _check_template(subject: AuditSubject, node: ast.Attribute) -> None:
    if id(node) not in subject.called:
        subject.refuse(_FORMAT, node, "a bound format method is used as a value", _FORMAT_HINT)
    elif isinstance(node.value, ast.Name) and node.value.id == "self":
        return  # a message named `format` to self
    elif not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        subject.refuse(_FORMAT, node, "format is called on a template that is not a literal", _FORMAT_HINT)
    elif not _is_plain(node.value.value):
        subject.refuse(_FORMAT, node, "the template looks up attributes or items", _FORMAT_HINT)


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


def check_class(subject: AuditSubject, node: ast.MatchClass) -> None:
    """`case kind(...)`."""
    known = isinstance(node.cls, ast.Name) and node.cls.id in _KINDS
    if not known or node.kwd_attrs or len(node.patterns) > 1:
        subject.refuse(_PATTERN, node, "a class pattern reads attributes", "Match builtin types only, as `case int(n)`, or use isinstance.")


RULE = Rule(
    ID,
    asks="Attributes do not begin with `_` and do not lead into frames, code or classes. Exceptions: the statement `self._p_changed = "
    "True`, the message `_clone_persistent_`, `type(value).__name__`, and `_replace`, `_asdict`, `_fields`, `_make` of named tuples. Of "
    "builtin types only harmless methods are taken (`str.lower`), of `type(value)` none.",
    why="Underscore names hold the machinery of persistence and of the interpreter: `_p_jar`, `__class__`, `__globals__`.",
    accepted="def kind(self, value):\n    return type(value).__name__",
    refused="def kind(self, value):\n    return value.__class__",
    nodes={ast.Assign: check_covenant, ast.Call: check_clone, ast.Attribute: check_attribute},
)

DYNAMIC = Rule(
    _DYNAMIC,
    asks="`getattr` and `hasattr` take the name as a public literal; `type` takes one argument; `super` is written "
    "`super().selector(...)`, and `attrgetter` of operator `key=attrgetter('name')`.",
    why="Names that are made at run time get round every rule about names.",
    accepted="def title(self):\n    return getattr(self, 'title', None) or super().title()",
    refused="def read(self, name):\n    return getattr(self, name)",
    nodes={ast.Call: check_call},
    method=check_getters,
)

FORMAT = Rule(
    _FORMAT,
    asks="`format` and `format_map` are called on literal templates whose fields are plain numbers or names: no attributes, no items.",
    why='A field like `"{0.__class__}"` walks attributes that no other rule sees.',
    accepted='def label(self, n):\n    return "{} of {name:>8}".format(n, name=self.name)',
    refused='def label(self, n):\n    return "{0.real}".format(n)',
    nodes={ast.Attribute: check_format},
)

PATTERN = Rule(
    _PATTERN,
    asks="Class patterns are those of builtin types, with at most one positional pattern: `case int(n)`.",
    why="`case object(__class__=c)` reads attributes with no attribute in the syntax tree.",
    accepted="def size(self, value):\n    match value:\n        case int(n):\n            return n\n        case [first, *rest]:\n"
    "            return len(rest)\n    return 0",
    refused="def size(self, value):\n    match value:\n        case complex(real=r):\n            return r\n    return 0",
    nodes={ast.MatchClass: check_class},
)
