"""Check the rules of the house that no other tool knows: `make check` runs it. Print one line for each breach; exit with 1 if there is any.

It reads files only (`ast`) and imports nothing of BAT OS. Parameters of a function are counted by ruff (PLR0913, in pyproject.toml),
layers by import-linter; here only the exceptions to PLR0913 are counted.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

MOST_MODULES = 565  # 325 before missions had tools; tools took seventy, appointments and doors eighty; kernels, stepping, comparisons come
MOST_LINES = 700
MOST_EXCEPTIONS = 10  # to PLR0913, in all
MOST_PRIVATE = 4  # uses in tests of what is private in the house: a change of the inside breaks them; give a new one a seam
FIRST_WORDS = frozenset({"what", "whether", "who", "how", "where"})  # no docstring begins with one

# of ZODB, ollama and other libraries, named tuples, and the view of slots, which is public
_OTHERS = re.compile(
    "_(add_object|asdict|cache|check|client|clone_persistent_|close_pipe_fds|data|execute_child|exit|fields|files?|firstbucket|index|lock|next|"
    "pool|protected_args|read_data_header|replace|request_raw|run_once|save_index|scheduled|slots|storage|tfile|used_index|when)"
)
_EXCEPTION = re.compile(r"#.*\bnoqa:[^#]*\bPLR0913\b[\s,:#–-]*(?P<reason>.*)")
_Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One Python file of a tree: `path` is relative to the root of that tree, with slashes."""

    path: str
    text: str

    @property
    def name(self) -> str:
        """Return its dotted name; a package has the name of its folder."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        """Return the name of the package that its relative imports start from."""
        return self.name if self.path.endswith("/__init__.py") else self.name.rpartition(".")[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Return every node of its syntax tree. Raise SyntaxError if it is not Python."""
        return list(ast.walk(ast.parse(self.text, self.path)))


@dataclass(frozen=True)
class Tree:
    """The Python files of a checkout that the checks read."""

    house: Sequence[Module]  # batos/
    tests: Sequence[Module]
    others: Sequence[Module]  # bench/, tools/, examples/


def read(root: Path) -> Tree:
    """Return the files of the checkout at `root`."""

    def below(*folders: str) -> list[Module]:
        paths = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
        return [Module(path.relative_to(root).as_posix(), path.read_text("utf-8")) for path in paths]

    return Tree(below("batos"), below("tests"), below("bench", "tools", "examples"))


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import, in functions and under TYPE_CHECKING too; `from a import b` gives `a.b`."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = module.package.split(".")
            start = [".".join(parents[: len(parents) - node.level + 1])] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def cycles(tree: Tree) -> Iterator[str]:
    """Yield each group of modules that import each other, directly or through others."""
    known = {module.name for module in tree.house}
    graph: dict[str, set[str]] = {}
    for module in tree.house:
        targets = (_module_of(name, known) for _, name in imported(module))
        graph[module.name] = {target for target in targets if target and target != module.name}
    for group in _circles(graph):
        yield f"{group[0]}: import cycle of {', '.join(group)}"


def _module_of(name: str, known: set[str]) -> str:
    """Return the module that `name` is or is defined in; empty for a name from outside the house."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def _circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            group = stack[stack.index(node) :]
            del stack[-len(group) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(graph):
        if node not in order:
            visit(node)
    return groups


def sizes(tree: Tree) -> Iterator[str]:
    """Yield modules that are too long, and a line if there are too many of them."""
    for module in tree.house:
        if (lines := module.text.count("\n")) > MOST_LINES:
            yield f"{module.path}: {lines} lines; at most {MOST_LINES}"
    if len(tree.house) > MOST_MODULES:
        yield f"batos: {len(tree.house)} modules; at most {MOST_MODULES}"


def class_names(tree: Tree) -> Iterator[str]:
    """Yield each public class name that is used twice in the house."""
    places = defaultdict(list)
    for module in tree.house:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module.path}:{node.lineno}")
    yield from (f"{where[0]}: class {name} is also in {', '.join(where[1:])}" for name, where in places.items() if len(where) > 1)


def docstrings(tree: Tree) -> Iterator[str]:
    """Yield each docstring of the house that begins with one of FIRST_WORDS; a text below a field or a constant is one, too."""
    for module in tree.house:
        for line, text in _docstrings(module):
            word = re.match(r"\W*(\w*)", text)
            if word and word[1].lower() in FIRST_WORDS:
                yield f"{module.path}:{line}: docstring begins with {word[1]}; begin with a verb or a noun of the field"


def _docstrings(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, _Documented) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text
        for before, after in pairwise(node.body if isinstance(node, _Documented) else ()):
            match before, after:
                case (ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str(text)))):
                    yield after.lineno, text


def test_imports(tree: Tree) -> Iterator[str]:
    """Yield each import of a module that holds tests; helpers belong in tests/support."""
    known = {module.name for module in tree.tests}
    for module in tree.tests:
        for line, name in imported(module):
            if re.match(r"tests\.(unit\b|(.*\.)?test_)", _module_of(name, known) or name):
                yield f"{module.path}:{line}: imports {name}; helpers of several tests belong in tests/support"


def private_uses(tree: Tree) -> Iterator[str]:
    """Yield each use in a test of a name that is private in the house, if there are too many: attributes, imports, names in texts.

    Children of tests that kill themselves at a step of the house (`tests/support/*_child.py`) are not counted: the step is what they name.
    """
    found = [
        f"{module.path}:{line}: uses {name}, which is private"
        for module in tree.tests
        if not re.fullmatch(r"tests/support/.*_child\.py", module.path)
        for node in module.nodes
        for line, name in _private(node)
    ]
    if len(found) > MOST_PRIVATE:
        yield from found
        yield f"tests: {len(found)} uses of private names; at most {MOST_PRIVATE}: give what the test needs a public name or a helper"


def _private(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Attribute(value=ast.Name(id="self" | "cls")) | ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
            return
        case ast.Attribute(attr=name):
            names = [name]
        case ast.Constant(value=str(text)) if re.fullmatch(r"batos(\.\w+)+", text):
            names = [text.rpartition(".")[2]]
        case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "batos":
            names = [one.name for one in node.names]
        case _:
            return
    yield from ((node.lineno, name) for name in names if re.match(r"_(?!p_|v_)[a-z]", name) and not _OTHERS.fullmatch(name))


def exceptions(tree: Tree) -> Iterator[str]:
    """Yield exceptions to the limit of parameters that have no reason, and a line if there are too many."""
    count = 0
    for module in (*tree.house, *tree.tests, *tree.others):
        if "PLR0913" not in module.text:
            continue
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and (match := _EXCEPTION.search(token.string)):
                count += 1
                if not match["reason"]:
                    yield f"{module.path}:{token.start[0]}: an exception to PLR0913 needs its reason in the same line"
    if count > MOST_EXCEPTIONS:
        yield f"batos: {count} exceptions to PLR0913; at most {MOST_EXCEPTIONS}"


CHECKS: Sequence[Callable[[Tree], Iterator[str]]] = (cycles, sizes, class_names, docstrings, test_imports, private_uses, exceptions)


def breaches(tree: Tree) -> list[str]:
    """Return a line for each breach of a rule in `tree`."""
    return [line for check in CHECKS for line in check(tree)]


def main(root: Path) -> int:
    """Check the checkout at `root`. Return the exit status."""
    found = breaches(read(root))
    print("\n".join(found) if found else "The house keeps its rules.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parents[1]))
