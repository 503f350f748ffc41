"""From a method's source to the text that runs in the sandbox.

The interpreter routes reads and calls on host objects, but not stores, and lacks some of Python. So loads, stores, deletions
and calls on what may be an object go through small helpers made for each name (`_b_h1(o)` for `o.title`, `_b_h2(o, a)` for
`o.append(a)`): one call, each part evaluated once and in order, no text in quotes inside f-strings. `await e` is `e`, since
the host awaits. What has no way is refused with a hint that a model can use.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from dataclasses import dataclass

from batos.errors import MethodUnsupported
from batos.sandbox import fractional, plainer, scopes, supply
from batos.sandbox.refusals import PREFIX, Refusal, unsupported_nodes
from batos.sandbox.statements import Rewriter

BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Program:
    """What runs: `text` (helpers and method), its `selector` and what the `function` is called there, the slots worth sending along,
    and original lines by line of `text`."""

    selector: str
    function: str
    text: str
    reads: tuple[str, ...]
    lines: dict[int, int]


def rewrite(source: str, *, limit: int) -> Program:
    """The program of one method.

    :param limit: bytes of source that are looked at at all.
    :raises MethodUnsupported: with line, column and hint, for what the sandbox cannot run.
    """
    try:
        return _rewrite(source, limit)
    except Refusal as e:
        raise MethodUnsupported(e.hint, line=e.line, column=e.column) from None
    except SyntaxError as e:
        raise MethodUnsupported(f"no Python: {e.msg}", line=e.lineno or 1, column=e.offset or 0) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as e:
        raise MethodUnsupported(f"the source cannot be parsed ({type(e).__name__}): make it simpler", line=1, column=0) from None


def unsupported(source: str, *, limit: int = 64 * 1024) -> list[tuple[int, int, str]]:
    """Everything in a source that the sandbox would refuse: line, column, hint. Empty: it can run."""
    try:
        tree = _parse(source, limit)
        found = [(r.line, r.column, r.hint) for r in unsupported_nodes(tree)]
        if not found:
            rewrite(source, limit=limit)
        return found
    except Refusal as e:
        return [(e.line, e.column, e.hint)]
    except MethodUnsupported as e:
        return [(e.line, e.column, e.hint)]
    except SyntaxError as e:
        return [(e.lineno or 1, e.offset or 0, f"no Python: {e.msg}")]
    except (ValueError, RecursionError, MemoryError) as e:
        return [(1, 0, f"the source cannot be parsed ({type(e).__name__}): make it simpler")]


def _parse(source: str, limit: int) -> ast.Module:
    if len(source.encode("utf-8", "surrogatepass")) > limit:
        raise Refusal(1, 0, f"the source is longer than {limit} bytes: split it into several methods")
    with warnings.catch_warnings():  # what Python warns of (`[1]['a']`) is for the trial to find, and not for the daemon's own output
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef | ast.AsyncFunctionDef):
            raise Refusal(1, 0, "a method is one `def` and nothing else; imports go inside it")
        compile(source, "<method>", "exec", dont_inherit=True)  # what parses but does not compile, such as `break` outside a loop
    return tree


def _rewrite(source: str, limit: int) -> Program:
    tree = _parse(source, limit)
    for first in unsupported_nodes(tree):
        raise first
    selector = _renamed(tree)
    needed = plainer.make(tree)
    fractions = fractional.imported(tree)
    if fractions:
        tree = fractional.known(tree)
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    work = Rewriter(tree, method)
    work.supplied |= needed
    if fractions:
        work.supplied |= fractional.SUPPLIED
    reads = scopes.reads_of(tree, work.receiver)
    new = ast.Module(body=work.statements([method]), type_ignores=[])
    ast.fix_missing_locations(new)
    body = ast.unparse(new)
    head = "\n".join([*supply.with_needs(work.supplied), *work.helpers.values()])
    text = f"{head}\n{body}\n" if head else f"{body}\n"
    return Program(selector, method.name, text, reads, _lines(new, body, head.count("\n") + 1 if head else 0))


def _renamed(tree: ast.Module) -> str:
    """The selector. A method that is named as a builtin is called otherwise where it runs: else it would be what the prelude and the
    helpers get for `list` or `len`, and what it gets itself."""
    method = tree.body[0]
    assert isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
    selector = method.name
    if selector in BUILTINS:
        method.name = f"{PREFIX}m_{selector}"
    return selector


def _lines(tree: ast.Module, text: str, before: int) -> dict[int, int]:
    """Original line by line of the text: both trees have the same shape."""
    found: dict[int, int] = {}
    for old, new in zip(ast.walk(tree), ast.walk(ast.parse(text)), strict=False):
        if isinstance(new, ast.stmt | ast.expr) and hasattr(old, "lineno"):
            found.setdefault(new.lineno + before, old.lineno)
    return found
