"""shape: a source is one function definition with the selector's name."""

from __future__ import annotations

import ast

from batos.guardian.rules.base import Rule
from batos.guardian.subject import A_SELECTOR, AuditSubject, FunctionNode, is_selector

ID = "shape"


def find_method(subject: AuditSubject) -> None:
    """Find the one definition, or refuse; and check its name against the selector."""
    assert subject.tree is not None
    body = subject.tree.body
    definitions = [node for node in body if isinstance(node, FunctionNode)]
    if len(definitions) != 1:
        subject.refuse(
            ID, body[0] if body else 1, f"the source holds {len(definitions)} function definitions, not one", "Write exactly one `def`."
        )
        return
    for node in body:
        if node is not definitions[0]:
            hint = "Move imports into the function's body." if isinstance(node, (ast.Import, ast.ImportFrom)) else "Leave it out."
            subject.refuse(ID, node, "there is a statement beside the function definition", hint)
    subject.method = definitions[0]
    _check_name(subject, definitions[0])
    if _is_stub(definitions[0].body):
        subject.refuse(ID, definitions[0], "the method does nothing", "Write its body; no `pass`, no `...`, no NotImplementedError.")


def _check_name(subject: AuditSubject, method: FunctionNode) -> None:
    selector = subject.selector
    if not is_selector(selector):
        subject.refuse(ID, 0, f"{selector!r} is not a valid selector", A_SELECTOR)
    elif method.name != selector:
        subject.refuse(ID, method, f"the function is called {method.name!r}", f"Call it {selector!r}: `def {selector}(self, ...)`.")


def _is_stub(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(node, ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node))
        for node in body
    )


RULE = Rule(
    ID,
    asks="A source is exactly one function definition with a body, named as the selector, which is a public ASCII name.",
    why="What is installed under a selector is what was asked for; code beside the definition would run at installation.",
    accepted='def greet(self):\n    """A line."""\n    return "hello"',
    refused='X = 1\ndef greet(self):\n    return "hello"',
)
