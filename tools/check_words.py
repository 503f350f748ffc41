"""Check the plain words of documents and of the texts in the source: the rules of docs/style.md that a program can see.

    python tools/check_words.py [FILE ...] [--reflow]

A document (`*.md`) is checked sentence by sentence: at most 25 words, no words that hide who acts, no "is no X", one sentence a line.
Of a source (`*.py`) the docstrings are checked, and each text of at least five words: messages, help texts, settings, texts of the
console. Left out are lists of words, code, and texts that go to a model or into images, whose words are part of journal keys.
`--reflow` writes the named documents anew with one sentence a line, and changes nothing else. Without files, the documents and
`batos/**/*.py` are checked.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 25
HIDDEN = re.compile(r"\b(?:nobody|somebody|whoever|whomever|whatever it)\b", re.IGNORECASE)
"""Words that hide who acts."""
NO_NOUN = re.compile(
    r"(?<!\bthere )\b(?:is|are|was|were) no "
    r"(?!(?:longer|more|less|fewer|better|worse|faster|smaller|weaker|different)\b)[a-z`]",
    re.IGNORECASE,
)
""""is no X" instead of "is not an X"."""
VAGUE = re.compile(r"\b(?:so many|so much as|is had|are had|is let go|comes to naught)\b", re.IGNORECASE)

_CODE = re.compile(r"``.+?``|`[^`]+`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.!?])[\"”*)_]*\s+(?![*+-]\s|\d+\.\s|[|#>])(?=[\"“*(_`\[]*[A-Z0-9“\"`*(\[])")
_DRAWING = re.compile(r"[─│├└┬]|\S {3,}\S")
_ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|No|St|Dr|Mr|Mrs)\.$")
_FEWEST_WORDS = 5  # of a text in a source that is taken for a sentence
_WORD = re.compile(r"[^\W\d_]{2,}")
_NOT_PROSE = re.compile(r"^\s*(?:def|class|import|from|#) |\b(?:SELECT|CREATE TABLE)\b|\(\?[:!=<P]|\\[bdsw]|</?\w+>|= None$", re.MULTILINE)
"""Code, SQL, patterns and markup."""
_TO_MODELS = {
    "batos/autotelic/heartbeat.py",
    "batos/autotelic/trigger_missions.py",
    "batos/forge/machine.py",
    "batos/forge/method_prompts.py",
    "batos/forge/tool_prompts.py",
    "batos/guardian/rules/tool_use.py",
    "batos/mind/psm.py",
    "batos/synthesis/batch_runner.py",
    "batos/synthesis/families.py",
}
"""Sources whose texts go to models, into workers or into images. Of these, docstrings and errors are checked."""
_SAID = ("help", "description")
_BULLET = re.compile(r"^(\s*)((?:[*+-]|\d+\.)\s+)(\S.*)$")


def sentences(text: str) -> list[str]:
    """Split a paragraph into sentences; marks and spaces stay as they are."""
    parts, begin = [], 0
    for found in _END.finditer(text):
        head = text[begin : found.start()]
        if _ABBREVIATION.search(head) or head.count("`") % 2:
            continue
        parts.append(text[begin : found.end()].rstrip())
        begin = found.end()
    return [*parts, text[begin:]] if text[begin:].strip() else parts


def word_count(sentence: str) -> int:
    """Count the words of a sentence. A span of code counts as one."""
    plain = _CODE.sub("code", _LINK.sub(r"\1", sentence))
    return len(re.findall(r"\S*\w\S*", plain))


def trouble(text: str) -> Iterator[str]:
    """Yield what is wrong with a paragraph."""
    for sentence in sentences(text):
        if (count := word_count(sentence)) > MOST_WORDS:
            yield f"{count} words, at most {MOST_WORDS}: {' '.join(sentence.split()[:12])} …"
        plain = _CODE.sub("code", sentence)
        for rule, why in ((HIDDEN, "hides who acts"), (NO_NOUN, 'say "is not a …"'), (VAGUE, "says nothing")):
            if found := rule.search(plain):
                yield f"{found[0]!r} {why}: {' '.join(sentence.split()[:12])} …"


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield each paragraph, item and cell of a document with the number of its line; code, quotes and comments are left out."""
    fenced = generated = False
    number, lines = 0, []

    def closed() -> Iterator[tuple[int, str]]:
        if lines:
            yield number, " ".join(line.strip() for line in lines)
        lines.clear()

    for place, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            yield from closed()
            fenced = not fenced
        elif line.startswith("<!-- begin") or line.startswith("<!-- end"):
            generated = line.startswith("<!-- begin")
        elif fenced or generated or (line.startswith(("    ", "<!--")) and not lines):
            continue
        elif line.startswith("|"):
            yield from closed()
            yield from ((place, cell.strip()) for cell in re.split(r"(?<!\\)\|", line) if cell.strip(" :-"))
        elif not line.strip() or line.startswith(("#", ">")):
            yield from closed()
        else:
            item = _BULLET.match(line)
            if item:
                yield from closed()
            if not lines:
                number = place
            lines.append(item[3] if item else line)
    yield from closed()


def reflowed(text: str) -> str:
    """Return a document with one sentence a line."""
    done, lines, fenced, indent = [], [], False, ""

    def closed() -> None:
        nonlocal indent
        if lines:
            first, *rest = sentences(" ".join(line.strip() for line in lines))
            done.extend([f"{head}{first}", *(f"{indent}{line}" for line in rest)])
            lines.clear()

    head = ""
    generated = False
    for line in text.splitlines():
        if line.startswith(("<!-- begin", "<!-- end")):
            closed()
            generated = line.startswith("<!-- begin")
            done.append(line)
        elif generated:
            done.append(line)
        elif line.lstrip().startswith("```"):
            closed()
            fenced = not fenced
            done.append(line)
        elif fenced or (line.startswith(("|", "#", ">", "<", "    ")) and not (lines and line.startswith("    "))):
            closed()
            done.append(line)
        elif not line.strip():
            closed()
            done.append("")
        elif item := _BULLET.match(line):
            closed()
            head, indent = item[1] + item[2], " " * len(item[1] + item[2])
            lines.append(item[3])
        else:
            if not lines:
                indent = head = re.match(r"\s*", line)[0]  # type: ignore[index]
            lines.append(line)
    closed()
    return "\n".join(done) + "\n"


def literal_text(value: ast.expr) -> str | None:
    """Return the text of a literal, with a placeholder word for each value of an f-string; None for anything else."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if isinstance(value, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "X" for part in value.values)
    return None


def docstring_paragraphs(node: ast.stmt) -> Iterator[str]:
    """Yield the paragraphs of a string that is a statement, without names of parameters; tables, drawings and code are left out."""
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        return
    for paragraph in re.split(r"\n\s*\n|\n(?=:)|\n(?=\* )", inspect.cleandoc(node.value.value)):
        if not (paragraph.startswith("    ") or _DRAWING.search(paragraph)):
            yield " ".join(re.sub(r":(?:param|raises|returns?)\b[^:]*:", "", paragraph).split())


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the texts of a source that hold a sentence, docstrings left out; of an f-string with a word in place of each value."""
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts.update(id(part) for part in ast.walk(node) if part is not node)
        elif isinstance(node, ast.Expr):
            parts.add(id(node.value))
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in parts:
            continue
        text = literal_text(node) or ""
        listed = len(text.split()) > MOST_WORDS and not re.search(r"[.;:,](?:\s|$)", text)
        if len(_WORD.findall(text)) >= _FEWEST_WORDS and not listed and not _NOT_PROSE.search(text):
            yield from ((node.lineno, " ".join(paragraph.split())) for paragraph in re.split(r"\n\s*\n", text))


def of_source(path: Path) -> Iterator[tuple[int, str]]:
    """Yield docstrings (those of attributes, too), messages, help texts and the texts of raised errors of a source, with their lines."""
    tree = ast.parse(path.read_text("utf-8"))
    said: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((statement.lineno, text) for statement in node.body for text in docstring_paragraphs(statement))
        elif isinstance(node, ast.Call):
            said |= {(k.value.lineno, text) for k in node.keywords if k.arg in _SAID and (text := literal_text(k.value))}
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            said |= {(value.lineno, text) for value in node.exc.args if (text := literal_text(value))}
    if not (path.is_relative_to(ROOT) and path.relative_to(ROOT).as_posix() in _TO_MODELS):
        said.update(messages(tree))
    yield from sorted(said)


def documents() -> list[Path]:
    """Return the documents that readers see."""
    named = ("README.md", "SECURITY.md", "CHANGELOG.md", "lora_staging/README.md")
    folders = (ROOT / "docs", ROOT / "bench" / "results")
    return [*(ROOT / name for name in named), *(path for folder in folders for path in sorted(folder.rglob("*.md")))]


def sources() -> list[Path]:
    """Return the sources of the package."""
    return sorted((ROOT / "batos").rglob("*.py"))


def checked_by_default() -> list[Path]:
    """Return the files that are checked where no file is named: documents and sources."""
    return [*documents(), *sources()]


def found_in(path: Path) -> list[str]:
    """Return what is wrong with a file."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if path.suffix != ".md":
        return [f"{shown}:{line}: {why}" for line, text in of_source(path) for why in trouble(text)]
    whole = path.read_text("utf-8")
    found = [f"{shown}:{line}: {why}" for line, text in paragraphs(whole) for why in trouble(text)]
    pairs = enumerate(zip_longest(whole.splitlines(), reflowed(whole).splitlines()), 1)
    differing = next((line for line, (is_there, wanted) in pairs if is_there != wanted), None)
    return [*found, f"{shown}:{differing}: one sentence a line; --reflow makes it so"] if differing else found


def main() -> int:
    """Check files, or write them anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--reflow", action="store_true")
    given = parser.parse_args()
    if given.reflow:
        for path in given.files:
            path.write_text(reflowed(path.read_text("utf-8")), "utf-8")
        return 0
    files = [path.resolve() for path in given.files] or checked_by_default()
    found = [why for path in files for why in found_in(path)]
    print("\n".join(found) or "The words are plain.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
