"""Check the plain words of documents and of the texts in the source: the rules of docs/style.md that a program can see.

    python tools/check_words.py [FILE ...] [--reflow]

A document (`*.md`) is checked sentence by sentence: at most 25 words, no words that hide who acts, no "is no X", no double negation, no
"is told", no "comes to", no "will", one sentence a line. Of all its sentences at most 15 % have a passive verb. A cell of a table stands
alone: it does not begin with "the same", and does not refer to another one by "likewise", "as above" or "the former". Nor does a help text
or the description of a setting, which has no "of them" either. Of a source (`*.py`) the docstrings are checked, and each text of at least
five words: messages, help texts, settings. Of a template of the console (`*.html`) each block is, and each text of an attribute that is
shown.

Left out are lists of words, code, and texts that go to a model or into images, whose words are part of journal keys. Of comments of
objects in an image ("I am the …") and of texts for the models of MCP clients, only the older rules are checked.
Of messages, too: users and programs find them by their words.
`--reflow` writes the named documents anew with one sentence a line, and changes nothing else. Without files, the documents and
the sources and templates of `batos` are checked.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MOST_WORDS = 25
HIDDEN = re.compile(r"\b(?:nobody|no one(?!-)|somebody|someone|anybody|whoever|whomever|whatever it)\b", re.IGNORECASE)
"""Words that hide who acts."""
NO_NOUN = re.compile(
    r"(?<!\bthere )\b(?:is|are|was|were) no "
    r"(?!(?:longer|more|less|fewer|better|worse|faster|smaller|weaker|different)\b)[a-z`]",
    re.IGNORECASE,
)
""""is no X" instead of "is not an X"."""
VAGUE = re.compile(r"\b(?:so many|so much as|(?:is|are) had)\b", re.IGNORECASE)
COMES = re.compile(r"\bcom(?:e to naught|es to|ing to)\b", re.IGNORECASE)
TOLD = re.compile(r"\b(?:is|are|was|were|be|been|being) (?:\w+ )?(?:told|let go)\b", re.IGNORECASE)
""""A client is told", with a word between the two or none."""
FUTURE = re.compile(r"\bwill\b", re.IGNORECASE)
DOUBLE = re.compile(
    r"\b(?:nothing|(?<!of )no \w+) that [^.,:;]{0,40}\b(?:not|cannot|never|no)\b|\bnever not\b|\bnot without\b"
    r"|\bnot un(?:able|clear|common|important|known|like|likely|necessary|safe|usual)\b"
    r"|\bnot i[mn](?:complete|consistent|correct|frequent|possible|valid|visible)\b",
    re.IGNORECASE,
)
""""Nothing that does not", "not unusual"."""
_AUXILIARY = r"(?:is|are|was|were|be|been|being)(?: (?:not|never|also|only|then|now|always|often|still|already|\w+ly))?"
_IRREGULAR = (
    "written|made|sent|kept|held|found|read|run|shown|known|taken|given|put|set|built|chosen|drawn|seen|said|told|left|lost|paid|cut|done|"
    "begun|bound|brought|bought|sold|thrown|broken|spoken|hidden|forgotten|understood|thought|meant"
)
PASSIVE = re.compile(rf"\b{_AUXILIARY} (?:\w+ed|{_IRREGULAR})\b", re.IGNORECASE)
"""A passive verb: who acts is not named, or comes last."""
MOST_PASSIVE, FEWEST_SENTENCES = 0.15, 20
"""Greatest share of sentences with a passive verb in a document, and the number of sentences from which the share counts."""
ELSEWHERE = re.compile(r"\A\W*(?:the same|of them)\b|\b(?:as above|likewise|the former|the latter|ditto)\b", re.IGNORECASE)
"""Words of a cell, a help text or a setting that refer to another one."""
OF_THEM = re.compile(r"\bof them\b", re.IGNORECASE)

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
_TO_CLIENTS_MODELS = {"batos/doors/mcp_server.py", "batos/doors/mcp_tools.py"}
"""Sources whose texts go to the models of MCP clients."""
_INLINE = {"a", "b", "code", "em", "i", "kbd", "small", "span", "strong", "time"}
_SHOWN_ATTRIBUTES = {"alt", "aria-label", "placeholder", "title"}
_VALUE, _STATEMENT = re.compile(r"\{\{.*?\}\}", re.DOTALL), re.compile(r"\{[%#].*?[%#]\}", re.DOTALL)
_BRANCH = re.compile(r"\{%-?\s*(?:if|elif|else|endif|for|endfor|block|endblock|macro|endmacro)\b")
_OF_OBJECT = re.compile(r"I [a-z]+ ")
"""Beginning of an object's comment, which images keep."""
_SETTINGS = "batos/config/settings.py"
_SAID = ("help", "description")
_BULLET = re.compile(r"^(\s*)((?:[*+-]|\d+\.)\s+)(\S.*)$")


class Passage(NamedTuple):
    """Text of a file that is checked."""

    line: int
    text: str
    is_cell: bool = False
    is_help: bool = False
    """True for a help text or the description of a setting."""
    is_fixed: bool = False
    """True for a text that stays as it is where a rule is added."""


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


def rules_for(passage: Passage) -> Iterator[tuple[re.Pattern[str], str]]:
    """Yield the words that a sentence of a passage does not have, each with the reason."""
    yield HIDDEN, "hides who acts"
    yield NO_NOUN, 'say "is not a …"'
    yield VAGUE, "says nothing"
    if not passage.is_fixed:
        yield COMES, "says nothing"
        yield TOLD, "say who tells whom, or lets go of what"
        yield FUTURE, "use the present tense"
        yield DOUBLE, "is a double negation"
    if passage.is_help:
        yield OF_THEM, "name them: this text stands alone"


def trouble(passage: Passage) -> Iterator[str]:
    """Yield what is wrong with a passage."""
    if (passage.is_cell or passage.is_help) and (found := ELSEWHERE.search(_CODE.sub("code", passage.text))):
        yield f"{found[0]!r} refers to another text, and this one stands alone: {passage.text[:80]}"
    for sentence in sentences(passage.text):
        if (count := word_count(sentence)) > MOST_WORDS:
            yield f"{count} words, at most {MOST_WORDS}: {' '.join(sentence.split()[:12])} …"
        plain = _CODE.sub("code", sentence)
        for rule, why in rules_for(passage):
            if found := rule.search(plain):
                yield f"{found[0]!r} {why}: {' '.join(sentence.split()[:12])} …"


def paragraphs(text: str) -> Iterator[Passage]:
    """Yield each paragraph, item and cell of a document with the number of its line; code, quotes and comments are left out."""
    fenced = generated = False
    number, lines = 0, []

    def closed() -> Iterator[Passage]:
        if lines:
            yield Passage(number, " ".join(line.strip() for line in lines))
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
            yield from (Passage(place, cell.strip(), is_cell=True) for cell in re.split(r"(?<!\\)\|", line) if cell.strip(" :-"))
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


def of_source(path: Path) -> Iterator[Passage]:
    """Yield docstrings (those of attributes, too), messages, help texts and the texts of raised errors of a source, with their lines."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    tree = ast.parse(path.read_text("utf-8"))
    said: set[tuple[int, str]] = set()
    helps: set[tuple[int, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from (Passage(statement.lineno, text) for statement in node.body for text in docstring_paragraphs(statement))
        elif isinstance(node, ast.Call):
            given = {(k.arg, k.value.lineno, text) for k in node.keywords if k.arg in _SAID and (text := literal_text(k.value))}
            said |= {(line, text) for _, line, text in given}
            helps |= {(line, text) for keyword, line, text in given if keyword == "help" or name == _SETTINGS}
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            said |= {(value.lineno, text) for value in node.exc.args if (text := literal_text(value))}
    if name not in _TO_MODELS:
        said.update(messages(tree))
    for line, text in sorted(said):
        fixed = name in _TO_CLIENTS_MODELS or bool(_OF_OBJECT.match(text)) or (line, text) not in helps
        yield Passage(line, text, is_help=(line, text) in helps, is_fixed=fixed)


class _Page(HTMLParser):
    """Reads a template of the console into passages: the texts of its blocks and of the attributes that are shown or read out."""

    def __init__(self) -> None:
        super().__init__()
        self.passages: list[Passage] = []
        self._line, self._parts = 1, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.passages += [Passage(self.getpos()[0], value) for name, value in attrs if name in _SHOWN_ATTRIBUTES and value]
        self._part("`" if tag == "code" else "", tag)

    def handle_endtag(self, tag: str) -> None:
        self._part("`" if tag == "code" else "", tag)

    def handle_data(self, data: str) -> None:
        if self.cdata_elem:  # a script or style
            return
        if not self._parts:
            self._line = self.getpos()[0]
        self._parts.append(data)

    def _part(self, mark: str, tag: str) -> None:
        if tag in _INLINE:
            self._parts.append(mark)
        else:
            self.end()

    def end(self) -> None:
        """End the block that was read."""
        if text := " ".join("".join(self._parts).split()):
            self.passages.append(Passage(self._line, text))
        self._parts = []


def of_template(path: Path) -> list[Passage]:
    """Return the texts of a template, with a word in place of each value; of a condition each branch is a text."""
    page = _Page()
    page.feed(_VALUE.sub("X", _STATEMENT.sub(lambda found: "<hr>" if _BRANCH.match(found[0]) else "", path.read_text("utf-8"))))
    page.end()
    return page.passages


def documents() -> list[Path]:
    """Return the documents that readers see."""
    named = ("README.md", "SECURITY.md", "CHANGELOG.md", "lora_staging/README.md")
    folders = (ROOT / "docs", ROOT / "bench" / "results")
    return [*(ROOT / name for name in named), *(path for folder in folders for path in sorted(folder.rglob("*.md")))]


def sources() -> list[Path]:
    """Return the sources of the package, and the templates of the console."""
    return sorted([*(ROOT / "batos").rglob("*.py"), *(ROOT / "batos").rglob("*.html")])


def checked_by_default() -> list[Path]:
    """Return the files that are checked where no file is named: documents and sources."""
    return [*documents(), *sources()]


def found_in(path: Path) -> list[str]:
    """Return what is wrong with a file."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if path.suffix == ".html":
        return [f"{shown}:{passage.line}: {why}" for passage in of_template(path) for why in trouble(passage)]
    if path.suffix != ".md":
        return [f"{shown}:{passage.line}: {why}" for passage in of_source(path) for why in trouble(passage)]
    whole = path.read_text("utf-8")
    found = [f"{shown}:{passage.line}: {why}" for passage in paragraphs(whole) for why in trouble(passage)]
    found += [f"{shown}: {why}" for why in passive_share(whole)]
    pairs = enumerate(zip_longest(whole.splitlines(), reflowed(whole).splitlines()), 1)
    differing = next((line for line, (is_there, wanted) in pairs if is_there != wanted), None)
    return [*found, f"{shown}:{differing}: one sentence a line; --reflow makes it so"] if differing else found


def passive_share(text: str) -> Iterator[str]:
    """Yield what is wrong with a document in which too many sentences have a passive verb."""
    said = [(passage.line, _CODE.sub("code", one)) for passage in paragraphs(text) for one in sentences(passage.text)]
    lines = [str(line) for line, one in said if PASSIVE.search(one)]
    if len(said) >= FEWEST_SENTENCES and len(lines) > MOST_PASSIVE * len(said):
        yield f"{len(lines)} of {len(said)} sentences have a passive verb, at most {MOST_PASSIVE:.0%}: lines {', '.join(lines)}"


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
