"""The rules for methods that call tools.

* tools: tools of connections are called by their names in the text, `self.tools.CONNECTION.TOOL(…)`, where the policy grants that.
* tool-loop: a literal says how often a tool that acts is called, at most. Found by the effect analysis.
* tool-place: what one connection answers does not say where another one reads or changes something. Found by the effect analysis.
* secret: a method holds no text that stands for a secret.
* sealed: what a tool answers does not say where anything is done, and a plan writes no slot. Found by the effect analysis.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from batos.config import nearest
from batos.guardian.policy import READS, ReachableTool
from batos.guardian.rules.base import Rule
from batos.guardian.subject import AuditSubject, tool_of

_ID, _LOOP, _PLACE, _SECRET, SEALED_ID = "tools", "tool-loop", "tool-place", "secret", "sealed"
READERS = frozenset({"number_in_", "one_of_"})
"""Messages to a sealed text whose answers are values of the plan's own types."""
PASSED = ast.Pass()
"""Stands for the unknown number of times that a function is called which is passed on."""
_BY_CALL = "call_"
"""Message of a connection by which a tool is called that its first argument names."""
_LISTED = 20
_OF_DICTS = frozenset({"get", "items", "keys", "values"})
_UNGRANTED = "Take what is needed as an argument, or have it written with tools: `batos teach … --tools`, `batos send-to … --tools`."
_IN_FULL = "Write the call in full wherever it is made: self.tools.CONNECTION.TOOL(…)."
_MARK = "{secret:"


def check_call(subject: AuditSubject, node: ast.Call) -> None:
    """Find a call of a tool, and refuse ways to the connections that the text does not show."""
    if _ID not in subject.policy.capabilities:
        return
    function, named = node.func, tool_of(node.func)
    if named is not None:
        _spell(subject, function)
        tool = _tool(subject, node, *named)
        if tool is not None:
            subject.tool_calls[id(node)] = tool
    elif subject.is_builtin(function, "getattr") and len(node.args) > 1 and _is(node.args[1], _ID):
        subject.refuse(_ID, node, "the connections are reached by getattr", _IN_FULL)


def check_getters(subject: AuditSubject) -> None:
    """Refuse `attrgetter('tools')`."""
    if _ID not in subject.policy.capabilities:
        return
    assert subject.method is not None
    for node in ast.walk(subject.method):
        if isinstance(node, ast.Call) and subject.function_of(node.func) == ("operator", "attrgetter"):
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if any(_ID in text.split(".") for text in texts):
                subject.refuse(_ID, node, "the connections are reached by attrgetter", _IN_FULL)


def check_attribute(subject: AuditSubject, node: ast.Attribute) -> None:
    """Refuse a tool where the policy grants none; elsewhere the connections and their tools as values, under another name, say."""
    named = tool_of(node)
    if _ID not in subject.policy.capabilities:
        if named is not None:
            reason = f"self.tools.{named[0]}.{named[1]} needs the capability 'tools', which was not granted"
            subject.refuse(_ID, node, reason, _UNGRANTED)
    elif id(node) in subject.spelled:
        return
    elif named is not None:
        _spell(subject, node)
        subject.refuse(_ID, node, f"self.tools.{named[0]}.{named[1]} is used as a value and not called", _IN_FULL)
    elif node.attr == _ID:
        subject.refuse(_ID, node, "the connections are used as a value, or reached through another object", _IN_FULL)


def _spell(subject: AuditSubject, node: ast.AST) -> None:
    """Note the parts of `self.tools.CONNECTION.TOOL`."""
    for _ in range(3):
        subject.spelled.add(id(node))
        assert isinstance(node, ast.Attribute)
        node = node.value


def _tool(subject: AuditSubject, node: ast.Call, connection: str, wanted: str) -> ReachableTool | None:
    """Return the tool that a call names; None, with a finding, where there is none."""
    there = subject.tools
    if there is not None and connection not in there:
        reason = f"{connection!r} is not a connection{nearest(connection, list(there))}"
        subject.refuse(_ID, node.func, reason, f"Connections are: {', '.join(sorted(there)) or 'none'}.")
        return None
    if wanted == _BY_CALL:
        given = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "tool"), None)
        if not (isinstance(given, ast.Constant) and isinstance(given.value, str)):
            hint = f"Write its name as a literal: self.tools.{connection}.{_BY_CALL}('NAME', {{…}})."
            subject.refuse(_ID, node, f"{_BY_CALL} is told its tool by something other than a literal", hint)
            return None
        wanted = given.value
    if there is None:
        return ReachableTool(f"{connection}.{wanted}")
    names = sorted(name for name, one in there[connection].items() if not one.denied)
    if wanted not in names:
        is_denied = wanted in there[connection]
        reason = f"{wanted!r} is not a tool of {connection}{nearest(wanted, names)}"
        reason = f"{wanted!r} of {connection} is not granted: its user denies each call of it" if is_denied else reason
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        mapping = "A connection is not a dict; call one of its tools, and read what that answers. " if wanted in _OF_DICTS else ""
        subject.refuse(_ID, node.func, reason, f"{mapping}Its tools are: {', '.join(names[:_LISTED]) or 'none'}{more}.")
        return None
    return there[connection][wanted]


def check_text(subject: AuditSubject, node: ast.Constant) -> None:
    """Refuse a text that stands for a secret."""
    value = node.value
    if (isinstance(value, str) and _MARK in value) or (isinstance(value, bytes) and _MARK.encode() in value):
        hint = "Leave it out: a connection puts its secrets in by itself when it sends a request."
        subject.refuse(_SECRET, node, "a text stands for a secret", hint)


def refuse_loop(subject: AuditSubject, node: ast.Call, tool: ReachableTool, around: ast.AST) -> None:
    """Refuse a call of a tool that acts, which no literal bounds; only a warning where it is not known if the tool acts.

    :param around: what repeats it.
    """
    match around:
        case ast.While():
            way = "in a `while` loop"
        case ast.Pass():
            way = "in a function that is passed on"
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            way = "in a method that calls itself"
        case _:
            way = "in a loop whose rounds no literal bounds"
    says = f"{tool.name} ({tool.kind}) is called {way}" if tool.kind else f"{tool.name}, which may act, is called {way}"
    hint = "Bound it by a literal: for item in items[:10], or for n in range(3)."
    subject.refuse(_LOOP, node, says, hint, "error" if tool.kind else "warning")


def refuse_place(subject: AuditSubject, node: ast.AST, tool: ReachableTool, argument: str, others: Sequence[str]) -> None:
    """Refuse a path or an address that another connection's answer is part of.

    :param argument: its name; empty if it is not known which of them it is.
    :param others: connections whose answers are in it.
    """
    which = f"the argument {argument!r}" if argument else f"one of the arguments {', '.join(map(repr, sorted(tool.places)))}"
    reason = f"{which} of {tool.name} is made of what {' and '.join(others)} answered"
    hint = "Take it as an argument of the method, from a slot, or write it out: what one place says does not choose where another is used."
    subject.refuse(_PLACE, node, reason, hint)


def refuse_sealed_place(subject: AuditSubject, node: ast.AST, tool: ReachableTool, argument: str, said: Sequence[str]) -> None:
    """Refuse a path or an address that any tool's answer is part of, where answers are sealed.

    :param said: connections whose answers are in it.
    """
    which = f"the argument {argument!r}" if argument else f"one of the arguments {', '.join(map(repr, sorted(tool.places)))}"
    reason = f"{which} of {tool.name} is made of what {' and '.join(said)} answered"
    hint = "Write it out. What a tool answered may be read by number_in_ or one_of_, be a free text, or go to think_."
    subject.refuse(SEALED_ID, node, reason, hint)


def check_sealed_writes(subject: AuditSubject) -> None:
    """Refuse writes of slots where answers are sealed. The whole method was followed."""
    if SEALED_ID in subject.policy.capabilities and subject.writes:
        reason = f"a plan writes the slots {', '.join(sorted(subject.writes))}"
        subject.refuse(SEALED_ID, subject.method, reason, "Keep what is needed in local names, and return the result.")


def _is(node: ast.expr, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _example(name: str, kind: str, *parameters: str, places: tuple[str, ...] = ()) -> ReachableTool:
    return ReachableTool(name, kind, parameters, frozenset(places))


_TABLE = {
    "shop": {
        "list_orders": _example("shop.list_orders", READS),
        "cancel": _example("shop.cancel", "acts", "order"),
    },
    "web": {"fetch": _example("web.fetch", READS, "url", places=("url",))},
    "notes": {"write": _example("notes.write", "idempotent", "path", "text", places=("path",))},
}
"""Tools of the examples."""

TOOLS = Rule(
    _ID,
    asks="`self.tools.CONNECTION.OPERATION(…)` stands only where the policy grants the capability `tools`, and names a connection and "
    "a tool that are there. There it is written in full and called on the spot. Neither the connections nor their tools are used as "
    "values, and `call_` is told its tool by a literal.",
    why="A method acts outside only where its user has taught it so, and its text shows to which tools it may send. Each call is granted, "
    "journaled and done once besides.",
    accepted="def note(self, text):\n    return self.notebook.entry_for_(text)",
    refused='def note(self, text):\n    return self.tools.notes.write(path="a.txt", text=text)',
    nodes={ast.Call: check_call, ast.Attribute: check_attribute},
    method=check_getters,
)

LOOP = Rule(
    _LOOP,
    asks="A tool that does more than read is called in a loop only if a literal bounds the rounds. Such a literal is `range(3)`, "
    "`orders[:10]`, or a list that is written out. The tool is never called in a `while` loop, in a function that is passed on, or in a "
    "method or function that calls itself.",
    why="What a place answers, or a slip, must not decide how often something is done in the world.",
    accepted='def tidy(self):\n    for order in self.tools.shop.list_orders()["late"][:10]:\n        self.tools.shop.cancel(order["id"])',
    refused='def tidy(self):\n    for order in self.tools.shop.list_orders()["late"]:\n        self.tools.shop.cancel(order["id"])',
    policy="default+tools",
    tools=_TABLE,
)

PLACE = Rule(
    _PLACE,
    asks="A path in a folder or on a server, or an address, is not a text of what another connection answered. Numbers made of "
    "that answer may be in a path or an address.",
    why="A page must not choose which file is written or which address is asked. Within one connection a path that it listed is handed "
    "back to it: it reaches nothing else.",
    accepted='def keep(self, url, path):\n    page = self.tools.web.fetch(url=url)["text"]\n'
    "    self.tools.notes.write(path=path, text=page)",
    refused='def keep(self, url):\n    page = self.tools.web.fetch(url=url)["text"]\n'
    '    self.tools.notes.write(path=f"{page[:20]}.md", text=page)',
    policy="default+tools",
    tools=_TABLE,
)

SEALED = Rule(
    SEALED_ID,
    asks="This holds where the policy has the capability `sealed`. No answer of a tool, also of the same connection, is part of an "
    "argument that says where (a path, an address). What `number_in_` and `one_of_` read of the answer may be "
    "part of such an argument. Such a method writes no slot.",
    why="A plan is written from the brief alone. Free texts that tools answer are sealed, and never enter the sandbox: so what a page says "
    "cannot choose the next call. The rule finds early what the run would refuse.",
    accepted='def plan(self):\n    page = self.tools.web.fetch(url="https://a.example")["text"]\n'
    "    self.tools.notes.write(path=f\"{page.number_in_('year')}.md\", text=page)",
    refused='def plan(self):\n    page = self.tools.web.fetch(url="https://a.example")\n    return self.tools.web.fetch(url=page["next"])',
    policy="default+sealed+tools",
    tools=_TABLE,
)

SECRET = Rule(
    _SECRET,
    asks="No text of a method holds `{secret:`, by which connections name their secrets.",
    why="Secrets are put in when a request is sent; a method neither needs nor sees them.",
    accepted='def sign(self, text):\n    return f"{text} (signed: {self.name})"',
    refused='def sign(self, text):\n    return text + "{secret:SHOP}"',
    nodes={ast.Constant: check_text},
)
