"""What a generated method may say: its texts are held against the gate's checks, and it insults nobody.

Single words are data (a filter knows the words that it looks for); what is checked are sentences, and whatever is answered or raised as it
stands. Words that the user brought himself, in the name, the purpose, an example or an argument, are his own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from batos.mind import gate

_SENTENCE = 3  # words from which a text is one
_LONG = 8  # words from which the gate tells whether it is language
_INSULTS = re.compile(
    r"\b(stupid|idiots?|idiotic|morons?|imbeciles?|dumb(ass)?|dimwits?|losers?|retard(ed|s)?|shut up|pathetic|worthless|"
    r"fuck\w*|shit\w*|ass ?holes?|bitch\w*|bastards?|cunts?|whores?|scum|"
    r"idiot(en|in)?|dumm(kopf|er|e)?|blöd(mann|er|e)?|trottel|arschloch|scheiß\w*|depp|"
    r"idiotas?|imbécil(es)?|estúpid[oa]s?|gilipollas|mierda|pendej[oa]s?|connard|salope|merde|stupide|crétin)\b",
    re.IGNORECASE,
)


def fault_of(source: str, own: str = "") -> str | None:
    """Why a method's texts are not fit; None if they are.

    :param source: that the guardian accepted.
    :param own: what the user said himself.
    """
    for text in _said(ast.parse(source)):
        insult = next((found[0] for found in _INSULTS.finditer(text) if found[0].lower() not in own.lower()), None)
        if insult is not None:
            return f"it says {insult!r}, which insults whoever asks; say what is wrong in plain words"
        if len(text.split()) >= _LONG and (fault := gate.fault_of(text, tongue=False)):
            return f"the text {text[:40]!r} is not fit: {fault}"
    return None


def _said(tree: ast.AST) -> Iterator[str]:
    """The texts that are sentences, and those that are answered or raised as they stand."""
    documented = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Return | ast.Raise):
            yield from _at_once(node.value if isinstance(node, ast.Return) else node.exc)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            if len(node.value.split()) >= _SENTENCE:
                yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield _joined(node)


def _at_once(node: ast.expr | None) -> Iterator[str]:
    """The texts that an expression is, by whichever way."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from _at_once(node.body)
        yield from _at_once(node.orelse)
    elif isinstance(node, ast.BinOp | ast.BoolOp):
        for one in (node.left, node.right) if isinstance(node, ast.BinOp) else node.values:
            yield from _at_once(one)
    elif isinstance(node, ast.Call):
        for one in node.args:
            yield from _at_once(one)


def _joined(node: ast.JoinedStr) -> str:
    return " ".join(part.value for part in node.values if isinstance(part, ast.Constant) and isinstance(part.value, str))
