"""HTML reader: the text of a page by headings, as in Markdown, without navigation and other surroundings (needs selectolax)."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from batos.errors import Unreadable
from batos.memory import drafts
from batos.memory.drafts import Draft, Outline

DEEPEST = 5000
"""Greatest nesting of elements. The parser's time grows with its square, and no real page comes near it."""
_SHARE = 0.5  # share of a page's text in `main` and `article` from which the reader ignores the rest


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_NEVER = _set(
    "script style template svg iframe object embed canvas audio video head nav button select datalist input rp annotation annotation-xml"
)
_AROUND = frozenset(("footer", "aside"))  # ignored outside of main and article
_AROUND_ROLES = frozenset(("navigation", "search", "contentinfo", "complementary"))
_MAIN = frozenset(("main", "article"))
_HEADINGS = _set("h1 h2 h3 h4 h5 h6")
_INLINE = _set(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark math meter nobr output picture progress q rb rt"
    " ruby s samp slot small source span strike strong sub sup time tt u var wbr"
)
_PARTING = _set("h1 h2 h3 h4 h5 h6 table ul ol dl pre blockquote article section")  # elements that never occur in a cell of a data table
_CELLS, _LISTS = frozenset(("td", "th")), frozenset(("ul", "ol", "menu"))
_TIGHT = _set("li dt dd tr thead tbody tfoot td th caption summary ul ol menu")  # elements without blank lines around them
_SPANS = _set("a b em i label small span strong time")
_VOID = _set("area base br col embed hr img input link meta param source track wbr")
_OPTIONAL = _set("p li dt dd tr td th thead tbody tfoot option optgroup colgroup rt rp html head body")  # elements that need no end tag
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*+)")
_HIDDEN = re.compile(r"(?:^|;)(?:display:none|visibility:hidden|opacity:0(?![.\d])|font-size:0(?![.\d]))")
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_WHEN = "meta[property='article:published_time'], meta[itemprop='datePublished'], meta[name='date'], time"


def read_html(path: pathlib.PurePath, text: str) -> Draft:
    """Return the page's text as Markdown has it: headings, items of lists, rows of tables, code.

    :raises Unreadable: for a page whose elements stand too deep in one another.
    """
    _check_depth(text)
    tree = LexborHTMLParser(text)
    named, stamp = tree.css_first("title"), tree.css_first(_WHEN)
    title = " ".join(named.text().split()) if named else ""
    when = str(stamp.attributes.get("content") or stamp.attributes.get("datetime") or "") if stamp else ""
    page = _Page()
    for root in _roots(tree):
        page.walk(root, around=False)
    parts = page.done()
    if not parts and tree.body is not None:  # all text is in elements that usually surround the content
        page = _Page()
        page.walk(tree.body, around=True)
        parts = page.done()
    told = (f"{page.hidden} characters that the page hides from who looks at it were left out",) if page.hidden else ()
    name = title or page.outline.first or path.stem
    return Draft("html", name, parts, day=drafts.day_in(when) or drafts.day_in_name(path.stem), told=told)


def text_of(markup: str) -> str:
    """Return the text of a piece of HTML, as Markdown has it."""
    return "".join(part.text for part in read_html(pathlib.PurePath("piece"), markup).parts)


def _check_depth(text: str) -> None:
    deep: dict[str, int] = {}
    total = 0
    for found in _TAG.finditer(text):
        end, name = found[1], found[2].lower()
        if name in _VOID or name in _OPTIONAL:
            continue
        if not end:
            deep[name] = deep.get(name, 0) + 1
            total += 1
            if total > DEEPEST:
                raise Unreadable(f"more than {DEEPEST} of its elements stand in one another: is it a page?")
        elif deep.get(name):
            deep[name] -= 1
            total -= 1


# --- walk over the tree, without recursion: pages are nested deeper than Python's stack


class _Step(NamedTuple):
    node: Any
    tag: str
    leaves: bool


class _Walk:
    """Walk over the elements and texts of a tree in order, each with its end; the content of the last element can be skipped."""

    def __init__(self, root: Any) -> None:
        self._root, self._pass = root, False

    def skip(self) -> None:
        """Skip the content of the element that was just entered, and its end."""
        self._pass = True

    def __iter__(self) -> Iterator[_Step]:
        node, tags = self._root, []
        while True:
            tag = node.tag
            self._pass = False
            yield _Step(node, tag, False)
            child = None if self._pass else node.child
            if child is not None:
                tags.append((node, tag))
                node = child
                continue
            if not self._pass and tag[0] != "-":
                yield _Step(node, tag, True)
            while node.next is None or not tags:
                if not tags:
                    return
                node, tag = tags.pop()
                yield _Step(node, tag, True)
            node = node.next


def _is_hidden(node: Any) -> bool:
    about = node.attributes
    if not about:
        return False
    if "hidden" in about and about["hidden"] != "until-found":
        return True
    style = about.get("style")
    return bool(style) and _HIDDEN.search("".join(style.lower().split())) is not None


def _is_around(node: Any, tag: str) -> bool:
    return tag in _AROUND or node.attributes.get("role") in _AROUND_ROLES


def _roots(tree: Any) -> list[Any]:
    """Return the elements with the page's content: each `main` and `article` if they hold most of the text, else the body."""
    if tree.body is None:
        return []
    found, within, total, inside = [], 0, 0, 0
    walk = _Walk(tree.body)
    for node, tag, leaves in walk:
        if tag == "-text":
            size = len(node.text_content.strip())
            total += size
            within += size if inside else 0
        elif tag in _MAIN:
            if leaves:
                inside -= 1
            else:
                found += [] if inside else [node]
                inside += 1
        elif not leaves and tag[0] != "-" and (tag in _NEVER or (not inside and _is_around(node, tag)) or _is_hidden(node)):
            walk.skip()
    return found if found and within >= total * _SHARE else [tree.body]


class _Page:
    """Text collected from a page during the walk."""

    def __init__(self) -> None:
        self.outline = Outline()
        self.hidden = 0
        """Number of characters that a browser does not show."""
        self._line: list[str] = []
        self._before = ""  # mark of the next line, such as that of a list item
        self._some = self._gap = False  # flags: the part has text; a blank line comes before the next text
        self._lists: list[list[Any]] = []
        self._row: list[str] | None = None
        self._layout: set[int] = set()
        self._tables: list[bool] = []  # for each open table: True for a table of data
        self._span_ends = False

    def done(self) -> Any:
        """Return its parts."""
        self._flush()
        return self.outline.done()

    def walk(self, root: Any, *, around: bool) -> None:
        """Go through an element.

        :param around: True if the reader includes elements that usually surround the content.
        """
        self._find_layout(root)
        walk, inside = _Walk(root), 0
        for node, tag, leaves in walk:
            if tag == "-text":
                self._say(node.text_content)
                continue
            if tag[0] == "-" and tag != "-undef":
                continue
            if tag in _MAIN:
                inside += -1 if leaves else 1
            if leaves:
                self._leave(node, tag)
            elif (tag in _NEVER and not (around and tag in ("nav", "button"))) or (not around and not inside and _is_around(node, tag)):
                walk.skip()
            elif _is_hidden(node):
                self.hidden += len(node.text(strip=True))
                walk.skip()
            elif self._enter(node, tag):
                walk.skip()
        self._flush()

    def _find_layout(self, root: Any) -> None:
        """Return the tables that only lay out the page: their cells hold more than words, or each row has one cell."""
        tables: list[list[Any]] = []
        for node, tag, leaves in _Walk(root):
            if tag == "table" and leaves:
                own, parting, widest, _ = tables.pop()
                if parting or widest < 2 or own.attributes.get("role") in ("presentation", "none"):
                    self._layout.add(own.mem_id)
            elif leaves:
                continue
            elif tag in _PARTING:
                for one in tables[-1:]:
                    one[1] = True
            if tag == "table" and not leaves:
                tables.append([node, False, 0, 0])
            elif tag == "tr" and tables:
                tables[-1][3] = 0
            elif tag in _CELLS and tables:
                tables[-1][3] += 1
                tables[-1][2] = max(tables[-1][2], tables[-1][3])

    # --- one element

    def _enter(self, node: Any, tag: str) -> bool:
        """Enter a node. Return True if its children need no visit."""
        if tag in _INLINE or tag == "-undef":
            return self._inline(node, tag)
        if tag == "br":
            self._line.append("\n" if self._row is None else " ")
        elif self._row is not None and tag not in ("tr", "table", *_CELLS):
            self._line.append(" ")  # a paragraph in a cell of data
        elif tag == "pre":
            self._flush()
            code = node.text(deep=True).strip("\n")
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`++", code)), default=0))
            if code.strip():
                self._gap = True
                self._write(f"{fence}\n{code}\n{fence}\n")
            self._gap = True
            return True
        else:
            self._flush()
            self._open(node, tag)
        return False

    def _open(self, node: Any, tag: str) -> None:
        if tag in _LISTS:
            self._gap = self._gap or not self._lists
            self._lists.append([tag == "ol", _number(node.attributes.get("start"))])
        elif tag == "li":
            mark = "- "
            if self._lists and self._lists[-1][0]:
                mark = f"{self._lists[-1][1]}. "
                self._lists[-1][1] += 1
            self._before = "  " * min(8, max(0, len(self._lists) - 1)) + mark
        elif tag == "dd":
            self._before = ": "
        elif tag == "table":
            self._tables.append(node.mem_id not in self._layout)
            self._gap = True
        elif tag == "tr" and self._tables and self._tables[-1]:
            self._row = []
        elif tag not in _TIGHT:
            self._gap = True

    def _leave(self, node: Any, tag: str) -> None:
        if tag == "br":
            return
        if tag in _INLINE or tag == "-undef":
            self._span_ends = tag in _SPANS
            if tag == "rt":
                self._line.append(")")
        elif tag in _HEADINGS and self._row is None:
            words = " ".join("".join(self._line).split())
            self._line.clear()
            if words:
                self.outline.heading(int(tag[1]), words)
                self.outline.text(f"{'#' * int(tag[1])} {words}\n")
                self._some = self._gap = True
        elif tag in _CELLS and self._row is not None:
            self._row.append(" ".join("".join(self._line).split()).replace("|", "\\|"))
            self._line.clear()
        elif tag == "tr" and self._row is not None:
            if any(self._row):
                self._write(f"| {' | '.join(self._row)} |\n")
            self._row = None
        elif self._row is not None:
            self._line.append(" ")
        else:
            self._flush()
            if tag in _LISTS and self._lists:
                self._lists.pop()
                self._gap = self._gap or not self._lists
            elif tag == "table" and self._tables:
                self._tables.pop()
            self._gap = self._gap or tag not in _TIGHT

    def _inline(self, node: Any, tag: str) -> bool:
        if tag == "img":
            words = " ".join((node.attributes.get("alt") or "").split())
            self._line.append(f" [{words}] " if words else "")
        elif tag == "rt":
            self._line.append("(")
        elif tag == "sup" and (digits := node.text(deep=True).strip()).isdecimal() and digits.isascii():
            self._line.append(digits.translate(_RAISED))
            return True
        elif tag in _SPANS and self._span_ends and node.prev is not None and node.prev.tag in _SPANS:
            last, first = "".join(self._line[-1:])[-1:], node.text(deep=True)[:1]
            if (last.islower() and first.isupper()) or (last.isalpha() and first.isdigit()) or (last.isdigit() and first.isalpha()):
                self._line.append(" ")  # two columns of a line: `<span>Rent</span><span>40</span>`
        return False

    # --- text

    def _say(self, text: str) -> None:
        self._span_ends = self._span_ends and not text
        if text:
            self._line.append(text.replace("\n", " ") if "\n" in text else text)

    def _flush(self) -> None:
        lines = [" ".join(line.split()) for line in "".join(self._line).split("\n")]
        self._line.clear()
        text = "\n".join(line for line in lines if line)
        if text:
            self._write(f"{self._before}{text}\n")
            self._before = ""

    def _write(self, text: str) -> None:
        self.outline.text(f"\n{text}" if self._gap and self._some else text)
        self._some, self._gap = True, False


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 6 else 1
