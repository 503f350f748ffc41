"""HTML reader: the text of a page by headings, as in Markdown, without navigation and other surroundings (needs selectolax)."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from selectolax.lexbor import LexborHTMLParser

from batos.errors import Unreadable
from batos.memory.drafts import Draft
from batos.memory.readers import dates
from batos.memory.readers.outline import Outline

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
_BLOCKS = _set(
    "address article aside blockquote body br caption center col colgroup dd details dialog dir div dl dt fieldset figcaption figure footer"
    " form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li listing main menu nav noframes noscript ol optgroup option p"
    " plaintext pre search section summary table tbody td textarea tfoot th thead title tr ul xmp"
)
"""Elements that begin a line of their own. All others stand in a line: a page's own elements and those of formulas, too."""
_HEADED = _set("h1 h2 h3 h4 h5 h6 summary dt legend")  # elements whose buttons show their words
_FORMULAS = {"mfrac": "/", "msup": "^", "msub": "_", "munder": "_", "mover": "^", "msubsup": " ", "munderover": " "}
_FILLED = _set("text email tel url number date time month week datetime-local")
"""Types of fields whose values a page shows."""
_PARTING = _set("h1 h2 h3 h4 h5 h6 table article section")  # elements that never occur in a cell of a data table
_LISTING = _set("ul ol dl pre blockquote")  # elements that occur there only if the table has headings
_SPAN_CHARS, _SPAN_CELLS = 200, 50  # greatest length of a cell that is repeated in the rows it spans, and number of columns
_CELLS, _LISTS = frozenset(("td", "th")), frozenset(("ul", "ol", "menu"))
_TIGHT = _set("li dt dd tr thead tbody tfoot td th caption summary ul ol menu")  # elements without blank lines around them
_SPANS = _set("a b em i label small span strong time")
_VOID = _set("area base br col embed hr img input link meta param source track wbr")
_OPTIONAL = _set("p li dt dd tr td th thead tbody tfoot option optgroup colgroup rt rp html head body")  # elements that need no end tag
_TAGS = re.compile(r"<([a-zA-Z][\w:.-]*+)([^<>]*+)>")
_TEMPLATES = re.compile(r"<(/?)template\b[^<>]*+>", re.IGNORECASE)
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*+)")
_HIDDEN = re.compile(
    r"(?:^|;)(?:display:none|(?:content-)?visibility:(?:hidden|collapse)|opacity:(?:0(?:\.0{0,8})?|\.0{1,8})%?(?![.\d])|mso-hide:all"
    r"|clip:rect\(0(?:px)?[, ]?0(?:px)?[, ]?0|clip-path:(?:inset\((?:[5-9]\d|100)%|circle\(0[^.\d])|transform:scale(?:3d)?\(0[^.\d]"
    r"|(?:left|top|right|text-indent):-(?:\d{4}|\d{3}(?:r?em|ch)|999px))"
)
"""Matches declarations of a style, without blanks, that keep text from who looks at a page."""
_FLAT = re.compile(r"(?:^|;)(?:max-)?(?:height|width):0(?:px)?(?=;|!|$)")  # with what overflows it hidden
_NO_SIZE = re.compile(
    r"(?:^|;)font(?:-size:|:(?:[a-z0-9]{1,10} ){0,3})(?:0|0?\.0\d{0,3}|0?\.\d{1,4}(?=px|pt)|1(?=px))(?:px|em|rem|pt|%)?(?=[;!/ ]|$)"
)
_SIZE = re.compile(r"(?:^|;)font(?:-size)?:")
_COLORS = re.compile(r"(?:^|;)(color|background(?:-color)?):(#[\da-f]{3,8}|[a-z]{3,20}|rgb\(\d{1,3},\d{1,3},\d{1,3}\))(?=;|!|$)")
_NAMED_COLORS = {"white": "#ffffff", "black": "#000000", "rgb(255,255,255)": "#ffffff", "rgb(0,0,0)": "#000000"}
_PIECE = re.compile(r"[{}]|[^{}]++")  # of a style sheet
_SIMPLE = re.compile(r"[ \t\r\n]*+(\w{0,20}[.#][\w-]{1,80}+)[ \t\r\n]*+\Z")
"""Matches a selector of one class or one id, as the style sheets of mails have them."""
_CLASSES = re.compile(r"\w{0,20}[.#][\w-]{1,80}+")
_FRAMES, _FRAME_DEPTH = 20, 3  # greatest number of frames with their own markup in a page, and their depth in one another
_RAISED = str.maketrans("0123456789+-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻")
_RAISED_CHARS = 8
_PERMALINKS = _set("¶ # § 🔗 ⚓ ⚓︎")  # words of the links by which a heading leads to itself
_STRUCK = ("~~", "~~")
_WRAPS = {"q": ("“", "”"), "del": _STRUCK, "s": _STRUCK, "strike": _STRUCK, "msqrt": ("√(", ")"), "mrow": ("(", ")")}
"""Elements that stand in a line -> what is before and behind their words."""
_WHEN = "meta[property='article:published_time'], meta[itemprop='datePublished'], meta[name='date'], time"


def read_html(path: pathlib.PurePath, text: str, *, whole: bool = False, deep: int = 0) -> Draft:
    """Return the page's text as Markdown has it: headings, items of lists, rows of tables, code.

    :param whole: True for a page that consists of content alone, such as a chapter of a book: its notes are read, wherever they stand.
    :param deep: nesting depth of a page that is the content of a frame.
    :raises Unreadable: for a page whose elements stand too deep in one another.
    """
    if whole or path.suffix.lower() == ".xhtml" or text.lstrip()[:5] == "<?xml":
        text = _TAGS.sub(_parted_tag, text)
    if "shadowroot" in text:
        text = _unshadowed(text)
    check_depth(text)
    tree = LexborHTMLParser(text)
    named, stamp = tree.css_first("title"), tree.css_first(_WHEN)
    title = " ".join(named.text().split()) if named else ""
    when = str(stamp.attributes.get("content") or stamp.attributes.get("datetime") or "") if stamp else ""
    hides = _Hides(tree)
    page = _Page(hides, whole, deep)
    for root in [tree.body] if whole and tree.body is not None else _roots(tree, hides):
        page.walk(root, around=False)
    parts = page.done()
    if not parts and tree.body is not None:  # all text is in elements that usually surround the content
        page = _Page(hides, whole, deep)
        page.walk(tree.body, around=True)
        parts = page.done()
    if not parts and (said := _said_otherwise(tree, deep)):
        page.outline.text(f"{said}\n")
        parts = page.done()
    hidden = (f"{page.hidden} characters that the page hides from who looks at it were left out",) if page.hidden else ()
    told = (*hidden, *page.told)
    name = title or page.outline.first or path.stem
    return Draft("html", name, parts, day=dates.day_in(when) or dates.day_in_name(path.stem), told=told)


def text_of(markup: str) -> str:
    """Return the text of a piece of HTML, as Markdown has it."""
    return "".join(part.text for part in read_html(pathlib.PurePath("piece"), markup).parts)


def _parted_tag(found: re.Match[str]) -> str:
    """Return a tag of XML that is its own end as two tags: in HTML it would open an element."""
    name, rest = found[1], found[2]
    return f"<{name}{rest[:-1]}></{name}>" if rest.endswith("/") and name.lower() not in _VOID else found[0]


def _unshadowed(text: str) -> str:
    """Return a saved page whose elements have their hidden trees, which a browser shows, as ordinary content."""
    open_: list[bool] = []

    def name(found: re.Match[str]) -> str:
        if found[1]:
            shown = open_.pop() if open_ else False
            return "</div>" if shown else found[0]
        open_.append("shadowroot" in found[0].lower())
        return "<div>" if open_[-1] else found[0]

    return _TEMPLATES.sub(name, text)


def check_depth(text: str) -> None:
    """
    :raises Unreadable: for a page whose elements stand too deep in one another.
    """
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


class _Hides:
    """Knows which elements a page does not show: by their attributes, and by the classes and ids that its own style sheet hides.

    A page with programs may show later what its style sheet hides: there only the attributes count.
    """

    def __init__(self, tree: Any) -> None:
        scripted = any(not (one.attributes.get("type") or "").startswith("application/ld") for one in tree.css("script"))
        sheets = [] if scripted else [one.text(deep=True) for one in tree.css("style")]
        self._names = _hidden_names("\n".join(sheets)) if sheets else frozenset()
        self._sized: set[int] = set()  # elements in which another has a size of its own
        for one in tree.css("[style*=font]"):
            style = _plain_style(one)
            while _SIZE.search(style) and not _NO_SIZE.search(style) and one is not None and one.mem_id not in self._sized:
                self._sized.add(one.mem_id)
                one = one.parent

    def hides(self, node: Any, tag: str) -> bool:
        """Return True for an element that a page does not show."""
        about = node.attributes
        if not about:
            return False
        if "hidden" in about and about["hidden"] != "until-found":
            return True
        if about.get("aria-hidden") == "true" and tag not in ("body", *_MAIN) and node.css_first("main, article, h1") is None:
            return True  # an ornament, or what stands elsewhere, too: a whole page is so while a dialog is open
        style = _plain_style(node)
        if style and (_HIDDEN.search(style) or (_FLAT.search(style) and "overflow:hidden" in style) or _is_of_one_color(style)):
            return True
        if style and _NO_SIZE.search(style):
            return node.mem_id not in self._sized
        return bool(self._names) and not self._names.isdisjoint(_selectors(tag, about))


def _plain_style(node: Any) -> str:
    """Return the declarations of an element in small letters, with single blanks within their values alone."""
    style = node.attributes.get("style")
    if not style:
        return ""
    return ";".join(":".join(" ".join(half.split()) for half in one.split(":")) for one in style.lower().split(";"))


def _is_of_one_color(style: str) -> bool:
    """Return True for text in the color of its background."""
    colors = {name[:5]: _NAMED_COLORS.get(value, value) for name, value in _COLORS.findall(style.replace(" ", ""))}
    full = {
        name: "#" + "".join(2 * char for char in value[1:]) if len(value) == 4 and value[0] == "#" else value
        for name, value in colors.items()
    }
    return len(full) == 2 and full["color"] == full["backg"] != "transparent"


def _selectors(tag: str, about: dict[str, str | None]) -> Iterator[str]:
    for sign, name in ((".", "class"), ("#", "id")):
        for one in (about.get(name) or "").split():
            yield f"{sign}{one}"
            yield f"{tag}{sign}{one}"


def _hidden_names(sheet: str) -> frozenset[str]:
    """Return the selectors of one class or id that a style sheet hides, and shows in no other of its rules."""
    plain = "".join(piece if not at else piece.partition("*/")[2] for at, piece in enumerate(sheet.split("/*")))
    hidden, shown = set(), set()
    open_ = [""]
    for found in _PIECE.finditer(plain):
        piece = found[0]
        if piece == "{":
            continue
        if piece == "}":
            open_ = open_[:-1] or [""]
        elif plain[found.end() : found.end() + 1] == "{":
            open_.append(piece.rpartition(";")[2].strip())
        else:
            style = "".join(piece.lower().split())
            if len(open_) == 2 and _HIDDEN.search(style):
                hidden |= {simple[1] for one in open_[1].split(",") if (simple := _SIMPLE.match(one))}
            elif "display:" in style or "visibility:" in style or "opacity:" in style:
                shown.update(_CLASSES.findall(open_[-1]))
    return frozenset(hidden - shown)


def _said_otherwise(tree: Any, deep: int) -> str:
    """Return what a page without text of its own says of itself, or to a browser without frames."""
    frames = tree.css("noframes") if deep < _FRAME_DEPTH else []
    said = [text for one in frames if (text := _text_of_frame(one.text(deep=True), deep)[0])]
    about = tree.css_first("meta[name='description'], meta[property='og:description']")
    return "\n".join(said) or (" ".join((about.attributes.get("content") or "").split()) if about else "")


def _text_of_frame(markup: str, deep: int) -> tuple[str, tuple[str, ...]]:
    """Return the text of the page in a frame, and what there is to tell of it."""
    inner = read_html(pathlib.PurePath("frame"), markup, deep=deep + 1)
    return "\n".join(part.text.strip() for part in inner.parts), inner.told


def _is_around(node: Any, tag: str) -> bool:
    return tag in _AROUND or node.attributes.get("role") in _AROUND_ROLES


def _opens(button: Any) -> bool:
    """Return True for a button whose words head the text that it shows."""
    return "accordion" in (button.attributes.get("class") or "").lower()


def _filled(node: Any, tag: str, hides: _Hides) -> list[str]:
    """Return the value of a field of a form, as the page shows it."""
    about = node.attributes
    if tag == "select":
        chosen = (one for one, name, leaves in _Walk(node) if name == "option" and not leaves and "selected" in one.attributes)
        return [f" {option.text(strip=True)} " for option in chosen]
    kind = (about.get("type") or "text").lower()
    if tag == "svg":
        return [f" {text} " for one in node.css("text") if (text := " ".join(one.text(deep=True).split()))]
    if tag != "input" or hides.hides(node, tag):
        return []
    if kind in ("checkbox", "radio"):
        return [" [x] "] if "checked" in about else []
    return [f" {' '.join(about['value'].split())} "] if kind in _FILLED and about.get("value") else []


def _roots(tree: Any, hides: _Hides) -> list[Any]:
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
        elif not leaves and tag[0] != "-" and (tag in _NEVER or (not inside and _is_around(node, tag)) or hides.hides(node, tag)):
            walk.skip()
    return found if found and within >= total * _SHARE else [tree.body]


class _Page:
    """Text collected from a page during the walk."""

    def __init__(self, hides: _Hides, whole: bool, deep: int) -> None:
        self.outline = Outline()
        self._hides, self._whole, self._deep = hides, whole, deep
        self.told: list[str] = []
        """Doubts about pages in frames."""
        self._frames = 0
        self.hidden = 0
        """Number of characters that a browser does not show."""
        self._line: list[str] = []
        self._before = ""  # mark of the next line, such as that of a list item
        self._some = self._gap = False  # flags: the part has text; a blank line comes before the next text
        self._lists: list[list[Any]] = []
        self._row: list[str] | None = None
        self._layout: set[int] = set()
        self._tables: list[bool] = []  # for each open table: True for a table of data
        self._spans: list[dict[int, list[Any]]] = []  # for each open table: column -> number of rows that a cell goes on in, and its text
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
        walk, inside, headed = _Walk(root), 0, 0
        for node, tag, leaves in walk:
            if tag == "-text":
                self._say(node.text_content)
                continue
            if tag[0] == "-" and tag != "-undef":
                continue
            if tag in _MAIN:
                inside += -1 if leaves else 1
            if tag in _HEADED:
                headed += -1 if leaves else 1
            if leaves:
                self._leave(node, tag)
            elif tag in _NEVER and not (around and tag in ("nav", "button")) and not (tag == "button" and (headed or _opens(node))):
                if tag == "iframe":
                    self._frame(node)
                elif not self._hides.hides(node, tag):
                    self._line += _filled(node, tag, self._hides)
                walk.skip()
            elif not around and not inside and not self._whole and _is_around(node, tag):
                walk.skip()
            elif self._hides.hides(node, tag):
                self.hidden += len(node.text(strip=True))
                walk.skip()
            elif self._enter(node, tag):
                walk.skip()
        self._flush()

    def _frame(self, node: Any) -> None:
        """Say what a frame shows, if its page stands in this one."""
        markup = node.attributes.get("srcdoc")
        if not markup or self._deep >= _FRAME_DEPTH or self._frames >= _FRAMES or self._hides.hides(node, "iframe"):
            return
        self._frames += 1
        self._flush()
        text, told = _text_of_frame(markup, self._deep)
        self.told += told
        if text:
            self._gap = True
            self._write(f"{text}\n")
            self._gap = True

    def _find_layout(self, root: Any) -> None:
        """Return the tables that only lay out the page: their cells hold more than words, or each row has one cell."""
        tables: list[list[Any]] = []
        for node, tag, leaves in _Walk(root):
            if tag == "table" and leaves:
                own, parting, listing, widest, _, named = tables.pop()
                if parting or (listing and not named) or widest < 2 or own.attributes.get("role") in ("presentation", "none"):
                    self._layout.add(own.mem_id)
            elif leaves:
                continue
            elif tables and (tag in _PARTING or tag in _LISTING):
                tables[-1][1 if tag in _PARTING else 2] = True
            if tag == "table" and not leaves:
                tables.append([node, False, False, 0, 0, False])
            elif tag == "tr" and tables:
                tables[-1][4] = 0
            elif tag in _CELLS and tables:
                tables[-1][4] += 1
                tables[-1][3] = max(tables[-1][3], tables[-1][4])
                tables[-1][5] = tables[-1][5] or tag == "th"

    # --- one element

    def _enter(self, node: Any, tag: str) -> bool:
        """Enter a node. Return True if its children need no visit."""
        if tag not in _BLOCKS:
            return self._inline(node, tag)
        if tag == "br":
            self._line.append("\n" if self._row is None else " ")
        elif self._row is not None and tag not in ("tr", "table", *_CELLS):
            self._line.append(" - " if tag == "li" else " ")  # a paragraph in a cell of data
        elif tag == "pre":
            self._flush()
            code = _code(node).strip("\n")
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
                if about := node.attributes.get("value"):
                    self._lists[-1][1] = _number(about)
                mark = f"{self._lists[-1][1]}. "
                self._lists[-1][1] += 1
            self._before = "  " * min(8, max(0, len(self._lists) - 1)) + mark
        elif tag == "dd":
            self._before = ": "
        elif tag == "table":
            self._tables.append(node.mem_id not in self._layout)
            self._spans.append({})
            self._gap = True
        elif tag == "tr" and self._tables and self._tables[-1]:
            self._row = []
        elif tag not in _TIGHT:
            self._gap = True

    def _leave(self, node: Any, tag: str) -> None:
        if tag == "br":
            return
        if tag not in _BLOCKS:
            if tag in _WRAPS and _is_wrapped(node, tag):
                self._line.append(_WRAPS[tag][1])
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
            text = " ".join("".join(self._line).split()).removeprefix("- ").replace("|", "\\|")
            self._line.clear()
            self._add_cell(node, text)
        elif tag == "tr" and self._row is not None:
            self._fill_spanned()
            while self._row and not self._row[-1]:
                self._row.pop()
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
                self._spans.pop()
            self._gap = self._gap or tag not in _TIGHT

    def _add_cell(self, node: Any, text: str) -> None:
        """Add a cell to the row, behind those of earlier rows that go on in it."""
        assert self._row is not None
        self._fill_spanned()
        rows, columns = (_number(node.attributes.get(name)) for name in ("rowspan", "colspan"))
        if rows > 1 and self._spans and len(text) <= _SPAN_CHARS and len(self._row) < _SPAN_CELLS:
            self._spans[-1][len(self._row)] = [rows - 1, text]
        self._row.append(text)
        self._row += [""] * (min(columns, _SPAN_CELLS) - 1)

    def _fill_spanned(self) -> None:
        """Repeat the cells of earlier rows that go on in this one: a row is read without those above."""
        spans = self._spans[-1] if self._spans else {}
        while self._row is not None and (span := spans.get(len(self._row))):
            span[0] -= 1
            if not span[0]:
                del spans[len(self._row)]
            self._row.append(span[1])

    def _inline(self, node: Any, tag: str) -> bool:
        if tag[0] == "m" and node.prev is not None and (sign := _FORMULAS.get(node.parent.tag)):
            self._line.append(sign)
        if tag == "img":
            words = " ".join((node.attributes.get("alt") or "").split())
            self._line.append(f" [{words}] " if words else "")
        elif tag == "rt":
            self._line.append("(")
        elif tag == "sup" and (raised := _raised(node)):
            self._line.append(raised)
            return True
        elif (tag == "a" and _is_permalink(node)) or (tag == "span" and node.attributes.get("class") == "mw-editsection"):
            return True
        elif tag in _WRAPS and _is_wrapped(node, tag):
            self._line.append(_WRAPS[tag][0])
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


def _code(node: Any) -> str:
    """Return the text of code as it stands, each line on its own: also where elements begin the lines, and no line feeds."""
    said: list[str] = []
    for one, tag, leaves in _Walk(node):
        if tag == "-text":
            said.append(one.text_content)
        elif tag == "br":
            said += [] if leaves else ["\n"]
        elif tag in _BLOCKS and tag != "pre" and said and not said[-1].endswith("\n"):
            said.append("\n")
    return "".join(said)


def _raised(node: Any) -> str:
    """Return numbers and signs as they stand above the line, as in 10⁻³ and Ca²⁺; empty for anything else."""
    text = node.text(deep=True).strip()
    raised = text.translate(_RAISED) if len(text) <= _RAISED_CHARS else text
    return raised if not any(char in raised for char in text) else ""


def _is_permalink(node: Any) -> bool:
    about = node.attributes
    return node.text(deep=True).strip() in _PERMALINKS and (
        (about.get("href") or "").startswith("#") or "link" in (about.get("class") or "") or "anchor" in (about.get("class") or "")
    )


def _is_wrapped(node: Any, tag: str) -> bool:
    """Return True for an element whose words get marks: a part of a formula if it has several parts itself."""
    if tag == "mrow":
        return node.parent is not None and node.parent.tag in _FORMULAS and len(node.css("mrow > *")) > 1
    return tag == "msqrt" or (bool(node.text(deep=True).strip()) and node.css_first("p, div, li, table, h1, h2, h3") is None)


def _number(text: Any) -> int:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 6 else 1
