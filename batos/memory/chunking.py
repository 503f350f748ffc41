"""Chunking: split a document into sentences, and sentences into chunks.

Sentences are the smallest parts that get a vector of their own. Lines are gathered into blocks by their look (paragraphs, headings,
list items, table rows, fenced or plain code, turns of a conversation). Paragraphs are then split at the ends of sentences. Every character
but white space belongs to exactly one sentence. Chunks are cut by structure and size at once, and by meaning as soon as the sentences have
vectors.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from batos.config.limits import Limits, limit

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float64]]

Span = tuple[int, int]
"""Start and end (exclusive) of a part of a text, in characters."""

LONGEST = 1000
"""Default limit of a sentence, in characters. A longer sentence is split at clauses, then at words, then anywhere."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Words whose full stop never ends a sentence: titles, and words that introduce something.
_NEVER = _set(
    "mr mrs ms messrs mx dr prof rev hon gen col capt lt sgt cpl maj cmdr adm gov sen rep sra srta mme mlle mt fr st e.g i.e eg ie cf viz"
    " vs z.b d.h u.a bzw vgl bspw ggf sog zzgl p.ex"
)
# Words whose full stop ends a sentence unless a number follows.
_NUMBERED = _set("no nr nos fig figs eq eqs sec secs ch vol vols pp p art tab ref refs bd pt par")
# Words whose full stop ends a sentence only if the next word looks like the start of one.
_SELDOM = _set(
    "al etc inc ltd co corp llc plc bros dept univ assn est ed eds jr sr approx ca jan feb mar apr jun jul aug sep sept oct nov dec mon tue"
    " tues wed thu thur thurs fri sat sun am pm usw etw min max hrs hr lbs oz in yd ft tel ext rd ave blvd ln hwy ste apt bldg str"
    " incl excl resp"
)
# Words that often start a sentence. After "U.S." or "p.m." any other capitalised word counts as a name.
_BEGINNERS = _set(
    "the a an this that these those there here it its he she they we i you his her their our my your in on at as by for from with to of and"
    " but or so if when while after before since because although though however then thus what who where why how not no yes some many most"
    " all each every one two both another such is are was were do does did can will would should may"
)
# Nouns after a day or an ordinal in German and its neighbours: "12. März", "2. Stock".
_COUNTED = _set(
    "januar jänner februar feber märz april mai juni juli august september oktober november dezember januari februari maart mei augustus"
    " oktober december marts maj jan feb mär mrz apr jun jul aug sep sept okt nov dez stock etage obergeschoss og klasse"
)
_STOPS = ".!?…"
_WIDE_STOPS = "。！？｡．।॥؟۔։።፧‼⁇⁈⁉"  # these end a sentence with or without a space after them
_CLOSERS = "\"')]}”’»›」』）】*_`"
# The pattern matches each run of stops once, from its start: a line of dots costs no more than its length.
_END = re.compile(
    rf"(?:(?<![{re.escape(_STOPS)}])[{re.escape(_STOPS)}]++[{re.escape(_CLOSERS)}]*+(?=\s)|[{_WIDE_STOPS}]++[{re.escape(_CLOSERS)}]*+)\s*+"
)
_WORD_BEFORE = re.compile(r"(?<![^\s(\[{\"'“‘«/])[^\s(\[{\"'“‘«/]++\Z")
_NEXT = re.compile(r"[\W_]*(\w+)")
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})")
ITEM = re.compile(r"\s*(?:[-*+•‣◦–—]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s+\S")
_HEADING = re.compile(r"\s{0,3}#{1,6}(?:\s|$)")
_UNDERLINE = re.compile(r"\s{0,3}(?:=+|-{2,})\s*\Z")
# Both patterns match lines without the white space around them.
_ROW = re.compile(r"\|.*\||[^|]*\S[ \t]*\|[ \t]*\S[^|]*(?:\||\Z)|[^\t]+\t[^\t]+\t")
_RULER = re.compile(r"[-=_*#~+|: ]{3,}\Z")
_JOINING = "\u200d\ufe0f"  # these characters join emoji
_BREAKS = (re.compile(r"[;:,，、；：]\s*|\s[-–—]\s"), re.compile(r"\s+"))


def sentences(text: str, kind: str = "text", longest: int = LONGEST) -> list[Span]:
    """Return the sentences of a text, in order, without the white space around them.

    :param kind: "markdown", "code" (parts between blank lines, and definitions), "conversation" (a line is a sentence). Any other is read
        as plain text, in which lists, tables and fenced code are seen as well.
    :param longest: characters of a sentence.
    """
    by_kind: dict[str, Callable[[str], Iterator[Span]]] = {"code": _code, "conversation": _turns, "markdown": _markdown}
    found = (_trimmed(text, start, end) for start, end in by_kind.get(kind, _plain)(text))
    return [part for start, end in found if start < end for part in _bounded(text, start, end, longest)]


# --- lines and blocks


def _lines(text: str) -> Iterator[Span]:
    r"""Yield every line with its end. Only \n ends a line, so that positions are those of the original text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield start, end
        start = end


def _turns(text: str) -> Iterator[Span]:
    return _lines(text)


def _plain(text: str) -> Iterator[Span]:
    return _prose(text, markdown=False)


def _markdown(text: str) -> Iterator[Span]:
    return _prose(text, markdown=True)


def _prose(text: str, *, markdown: bool) -> Iterator[Span]:
    """Yield the sentences of prose. Paragraphs are gathered line by line; a line of any other kind ends the paragraph before it."""
    open_: list[Span] = []  # lines of the current paragraph
    fence, fenced = "", 0
    for start, end in _lines(text):
        line = text[start:end]
        if fence:
            if line.strip().startswith(fence):
                yield from _code_blocks(text, fenced, end)
                fence = ""
            continue
        mark = _FENCE.match(line)
        alone = _HEADING.match(line) if markdown else None
        solid = line.strip()
        if mark or alone or not solid or _ROW.match(solid) or _RULER.match(solid):
            if open_ and _UNDERLINE.match(line) and len(open_) == 1:
                yield open_.pop()[0], end  # a heading with its underline
                continue
            yield from _paragraph(text, open_, markdown=markdown)
            open_ = []
            if mark:
                fence, fenced = mark[1], start
            elif solid:
                yield start, end
        elif ITEM.match(line) or (open_ and _quoted(line) != _quoted(text[open_[0][0] : open_[0][1]])):
            yield from _paragraph(text, open_, markdown=markdown)
            open_ = [(start, end)]
        else:
            open_.append((start, end))
    yield from _paragraph(text, open_, markdown=markdown)
    if fence:
        yield from _code_blocks(text, fenced, len(text))


def _quoted(line: str) -> bool:
    return line.lstrip().startswith(">")


def _paragraph(text: str, lines: list[Span], *, markdown: bool) -> Iterator[Span]:
    """Yield the sentences of a paragraph. Plain text may have lines that end on purpose: they end a sentence as well."""
    if not lines:
        return
    start = lines[0][0]
    for end in [] if markdown else _ends_on_purpose(text, lines):
        yield from _parted(text, start, end)
        start = end
    yield from _parted(text, start, lines[-1][1])


def _ends_on_purpose(text: str, lines: list[Span]) -> list[int]:
    """Return the ends of lines that the writer broke on purpose: the next word would have fitted on the line.

    Where most lines end so, the longest do as well: of these it cannot be seen.
    """
    bare = [text[start:end].strip() for start, end in lines]
    widest = max(len(text[start:end].rstrip()) for start, end in lines)
    fits = [
        len(text[start:end].rstrip()) + 1 + len(after.split(maxsplit=1)[0]) < widest
        for (start, end), after in zip(lines, bare[1:], strict=False)
    ]
    all_ = 2 * sum(fits) >= len(fits)
    return [end for (_, end), after, fit in zip(lines, bare[1:], fits, strict=False) if (fit or all_) and not after[0].islower()]


def _code(text: str) -> Iterator[Span]:
    return _code_blocks(text, 0, len(text))


def _code_blocks(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the parts of a code block: a part ends at a blank line, and before a line with less indentation than its first line."""
    begun, margin, blank = start, None, False
    for at, to in _lines(text[start:end]):
        line = text[start + at : start + to]
        solid = line.strip()
        if not solid:
            blank = True
            continue
        indent = len(line) - len(line.lstrip())
        closing = solid[0] in ")]}`" or solid in ("end", "fi", "done", "esac")
        if margin is not None and (blank or indent < margin) and not (closing and not blank):
            yield begun, start + at
            begun, margin = start + at, indent
        margin, blank = indent if margin is None else margin, False
    yield begun, end


# --- sentences


def _parted(text: str, start: int, end: int) -> Iterator[Span]:
    item = ITEM.match(text, start, end)
    ends = [(m.start(), m.end()) for m in _END.finditer(text, item.end() - 1 if item else start, end)]
    casual = _casual(text, start, ends, end)
    for stop, after in ends:
        if after >= end or _is_end(text, start, stop, after, casual=casual):
            yield start, after
            start = after
    if start < end:
        yield start, end


def _casual(text: str, start: int, ends: list[Span], end: int) -> bool:
    """Return True if the writer begins sentences with small letters, so that a small letter after a full stop says nothing."""
    firsts = [text[at] for at in [_solid(text, start, end), *(after for _, after in ends)] if at < end]
    return len(firsts) > 2 and not any(c.isupper() for c in firsts) and sum(c.islower() for c in firsts) > 1


def _solid(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _is_end(text: str, start: int, stop: int, after: int, *, casual: bool) -> bool:
    """Return True if the stop at `stop` ends a sentence, given that the next word begins at `after`."""
    if text[stop] in _WIDE_STOPS:
        return True
    following = _NEXT.match(text, after, after + 40)
    next_ = following[1] if following else ""
    if text[stop] == "." and text[stop + 1 : stop + 2] != ".":
        before = _WORD_BEFORE.search(text[max(start, stop - 40) : stop])
        if before and not _may_end(text[max(start, stop - 60) : stop - len(before[0])], before[0], next_):
            return False
    return casual or not next_[:1].islower()


def may_go_on(word: str) -> bool:
    """Return True if the full stop behind a word may be that of an abbreviation."""
    plain = word.casefold().rstrip(".")
    return plain in _NEVER or plain in _NUMBERED or plain in _SELDOM


def _may_end(earlier: str, word: str, next_: str) -> bool:
    """Return True if a sentence may end with `word` and a full stop; `earlier` is the text before it, `next_` the word after it."""
    plain = word.casefold().rstrip(".")
    if plain in _NEVER:
        return False
    if (plain in _NUMBERED and not (len(word) == 1 and word.isupper())) or (
        plain.endswith("str") and len(plain) > 3
    ):  # as in "Hafenstr. 5"
        return not next_[:1].isdigit()
    if plain.isdigit() and len(plain) <= 2 and next_.casefold() in _COUNTED:
        return False
    if plain in _SELDOM:
        return next_[:1].isupper()
    if "." in plain and all(len(part) <= 2 for part in plain.split(".")):  # as in "U.S.", "p.m." and "Ph.D"
        return next_[:1].isupper() and next_.casefold() in _BEGINNERS
    if len(word) == 1 and word.isupper():  # an initial, unless it ends a phrase such as "plan B"
        names = earlier.split()
        return (bool(names) and names[-1][:1].islower()) or not next_[:1].isupper()
    return True


# --- sizes


def _trimmed(text: str, start: int, end: int) -> Span:
    solid = text[start:end].strip()
    if not solid:
        return start, start
    begin = text.index(solid[0], start)
    return begin, begin + len(solid)


def _bounded(text: str, start: int, end: int, longest: int) -> Iterator[Span]:
    """Yield the sentence, or parts of it up to `longest`, cut at the best places."""
    while end - start > longest:
        cut = _cut(text, start, start + longest)
        yield _trimmed(text, start, cut)
        start = _solid(text, cut, end)
    if start < end:
        yield start, end


def _cut(text: str, start: int, limit: int) -> int:
    """Return the index to split at: the last clause in the second half, else the last space there, else between two whole characters."""
    middle = (start + limit) // 2
    for pattern in _BREAKS:
        last = None
        for last in pattern.finditer(text, middle, limit):  # noqa: B007
            pass
        if last is not None and last.end() > start:
            return last.end()
    cut = limit
    while cut > middle and (unicodedata.combining(text[cut]) or text[cut] in _JOINING):
        cut -= 1
    return cut if cut > middle else limit


BETA = 1.5
"""Cost of a cut, in mean scatters of a sentence. A higher cost gives fewer and longer chunks (docs/rationale.md, decision 17)."""

_HEADING_CHUNKING = re.compile(r"\s{0,3}#{1,6}\s|[^\n]*\n\s{0,3}(?:=+|-{2,})\s*\Z")
_BLANK = re.compile(r"\n[^\S\n]*\n")
_AT_HEADING, _AT_PARAGRAPH, _WITHIN, _NEVER_CHUNKING = 0.25, 0.75, 1.0, 1e3
_LEAST = 1e-6  # least mean scatter: that of sentences that are equal but for rounding
_BROKEN = 1e6  # cost of breaking a bound: more than any gain in meaning, yet finite, so that a solution always exists


@dataclass(frozen=True, slots=True)
class ChunkLimits(Limits):
    """Sizes of chunks and sections; the sizes of chunks give way where a text cannot be cut so."""

    smallest: int = limit(160, ge=20, le=100_000)
    """Least number of characters of a chunk, if the text permits it."""
    largest: int = limit(1200, ge=100, le=100_000)
    """Greatest number of characters of a chunk; a longer one is cut."""
    section_chars: int = limit(8000, ge=500, le=1_000_000)
    """Greatest number of characters of a section. Neighbours are chunks of one section, and an unchanged section keeps its chunks."""


class Piece(NamedTuple):
    """A chunk to be: `text[start:end]`. `vector` (float32, length 1) is the mean of its sentences', None while there are none."""

    start: int
    end: int
    vector: Any = None


def pieces(text: str, kind: str, limits: ChunkLimits) -> list[Piece]:
    """Return provisional chunks, cut by structure and size alone, for searches before there are vectors.

    :param kind: "text", "markdown", "code" or "conversation" (a turn a line, never put together); any other is read as "text".
    """
    spans = sentences(text, kind, limits.largest)
    if kind == "conversation":
        return [Piece(*span) for span in spans]
    found: list[Piece] = []
    for start, end, price in _with_headings(spans, prices(text, kind, spans)):
        if found and _goes_on(found[-1], end, price, limits):
            found[-1] = Piece(found[-1].start, end)
        else:
            found.append(Piece(start, end))
    return found


def _with_headings(spans: Sequence[Span], priced: Sequence[float]) -> list[tuple[int, int, float]]:
    """Return the sentences with the cost of a cut before each; a heading is joined with the sentence after it."""
    found: list[tuple[int, int, float]] = []
    for (start, end), price in zip(spans, priced, strict=True):
        if price == _NEVER_CHUNKING:
            start, price = found[-1][0], found.pop()[2]
        found.append((start, end, price))
    return found


def _goes_on(last: Piece, end: int, price: float, limits: ChunkLimits) -> bool:
    """Return True if a sentence up to `end` joins the last piece.

    A piece half full ends with its paragraph, a small one with its heading.
    """
    size = last.end - last.start
    if end - last.start > limits.largest:
        return False
    if price <= _AT_HEADING:
        return size < limits.smallest
    return price > _AT_PARAGRAPH or size < limits.largest // 2


def by_meaning(text: str, kind: str, spans: Sequence[Span], vectors: Any, limits: ChunkLimits) -> list[Piece]:
    """Return chunks, cut where the meaning of neighbouring sentences changes.

    :param spans: the result of `sentences(text, kind, limits.largest)`.
    :param vectors: float32 (len(spans), dimensions), rows of length 1.
    """
    if not spans:
        return []
    if kind == "conversation":
        starts = list(range(len(spans)))
    else:
        starts = boundaries(vectors, _reaches(spans), smallest=limits.smallest, largest=limits.largest, prices=prices(text, kind, spans))
    ends = [*starts[1:], len(spans)]
    return [Piece(spans[a][0], spans[b - 1][1], mean(vectors[a:b])) for a, b in zip(starts, ends, strict=True)]


def _reaches(spans: Sequence[Span]) -> list[int]:
    """Return the distance from each sentence's start to the next one's: a chunk also holds the white space between its sentences."""
    starts = [start for start, _ in spans]
    return [after - start for start, after in zip(starts, [*starts[1:], spans[-1][1]], strict=True)]


def mean(vectors: Any) -> Any:
    """Return the direction in which several vectors point together, of length 1; the first of them where they cancel each other out."""
    import numpy as np

    total = np.asarray(vectors, np.float64).sum(axis=0)
    length = float(np.linalg.norm(total))
    return np.asarray(total / length if length > 1e-9 else vectors[0], np.float32)


def prices(text: str, kind: str, spans: Sequence[Span]) -> list[float]:
    """Return the price of a cut before each sentence, 1 being usual: little before a heading, less at paragraphs, never after a heading."""
    found, after_heading = [], False
    for at, (start, end) in enumerate(spans):
        heading = kind == "markdown" and _HEADING_CHUNKING.match(text, start, end) is not None
        if after_heading and not heading:
            found.append(_NEVER_CHUNKING)
        elif heading:
            found.append(_WITHIN if after_heading else _AT_HEADING)
        else:
            found.append(_AT_PARAGRAPH if at and _BLANK.search(text, spans[at - 1][1], start) else _WITHIN)
        after_heading = heading
    return found


def boundaries(
    vectors: Any,
    lengths: Sequence[int],
    *,
    beta: float = BETA,
    smallest: int = 0,
    largest: int | None = None,
    prices: Sequence[float] | None = None,
) -> list[int]:
    """Return the first sentence of every segment, 0 among them, such that scatter within the segments and the price of cuts are least in
    all.

    Exact, by dynamic programming: the scatter of a segment is the sum of squared distances of its sentences' profiles from their mean. A
    cut costs `beta` times the mean scatter of a sentence.

    :param vectors: rows of length 1.
    :param lengths: lengths of the sentences; `smallest` and `largest` bound their sum in a segment, unless it cannot be met.
    :param prices: factors for the cut before each sentence.
    """
    import numpy as np

    n = len(lengths)
    if n == 0:
        return []
    rows = profiles(vectors)
    sums = np.zeros((n + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])
    sizes = np.concatenate(([0], np.cumsum(lengths))).astype(np.float64)
    squares = np.concatenate(([0.0], np.cumsum(np.einsum("ij,ij->i", rows, rows))))
    scatter = max(_LEAST, (float(squares[n]) - float(sums[n] @ sums[n]) / n) / n)
    cuts = beta * scatter * np.asarray(prices if prices is not None else np.ones(n), np.float64)
    cuts[0] = 0.0
    best, came = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        first = 0 if largest is None else min(int(np.searchsorted(sizes, sizes[end] - largest)), end - 1)
        totals = best[first:end] + cuts[first:end] + _costs(sums, squares, sizes, first, end, smallest)
        at = int(totals.argmin())
        best[end], came[end] = totals[at], first + at
    starts, end = [], n
    while end > 0:
        end = int(came[end])
        starts.append(end)
    return starts[::-1]


def profiles(vectors: Any) -> Floats:
    """Return each sentence's profile: its similarity to every other sentence of the document, as Choi (2000) compares them.

    Content that many sentences share stands out, content of one sentence recedes. There are as many columns as sentences or dimensions,
    whichever are fewer.
    """
    import numpy as np

    rows = np.asarray(vectors, np.float64)
    rows = rows - rows.mean(axis=0)
    # No BLAS for small inputs: on a busy machine its threads wait for each other, and a document takes 140 ms instead of 3.
    if len(rows) <= rows.shape[1]:
        return np.asarray(np.einsum("id,jd->ij", rows, rows))
    spread = rows.T @ rows
    spread += np.eye(len(spread)) * (_LEAST * spread.trace() / len(spread) + _LEAST)
    return np.asarray(rows @ np.linalg.cholesky(spread))


def _costs(sums: Floats, squares: Floats, sizes: Floats, first: int, end: int, smallest: int) -> Floats:
    """Return the cost of every segment from `first` or later to sentence `end`: its scatter, and a penalty for its size."""
    import numpy as np

    gaps = sums[end] - sums[first:end]
    scatter: Floats = squares[end] - squares[first:end] - np.einsum("ij,ij->i", gaps, gaps) / np.arange(end - first, 0, -1)
    if smallest:
        lacking = np.maximum(0.0, smallest - (sizes[end] - sizes[first:end])) / smallest
        scatter += _BROKEN * lacking
    return scatter
