"""Page reader: the text and the links of what a web server answered. It runs in a child process, for a stranger wrote the bytes."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator
from typing import Any

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.readers import charset

LINKS = 200
"""Greatest number of links of a page."""
_LINK_CHARS, _URL_CHARS = 200, 2000
_PIECE = 1 << 16


def serve(request: Any, data: bytes) -> Iterator[Any]:
    """Yield `["title", …]`, pieces `["text", …]` and `["link", text, url]` of a document.

    :param request: name of the document, declared charset, URL, greatest number of characters.
    :raises Unreadable: if no reader takes it.
    """
    name, declared, url, most = request
    kind = readers.kind_of("." + name.rpartition(".")[2].lower(), data)
    if kind in ("html", "text", "code"):
        data = b"\xef\xbb\xbf" + charset.decoded(data, declared).text.encode("utf-8", "replace")
    if kind in ("text", "code"):
        title, text = "", data[3:].decode()
    else:
        draft = readers.read(name if kind != "html" else "page.html", data)
        title, text = draft.title, "\n\n".join(_headed(part.title, part.text) for part in draft.parts)
        title = "" if title == "page" else title
    yield ["title", title]
    for at in range(0, min(len(text), most), _PIECE):
        yield ["text", text[at : min(at + _PIECE, most)]]
    if len(text) > most:
        yield ["cut", len(text)]
    if kind == "html":
        yield from _links(data[3:].decode(), url)


def _headed(title: str, text: str) -> str:
    return text if not title or text.lstrip().startswith("#") else f"# {title}\n{text}"


def _links(markup: str, url: str) -> Iterator[list[str]]:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:  # pragma: no cover - the reader of pages has said so
        raise Unreadable("web pages need the extra documents: pip install 'batos[documents]'") from None
    tree = LexborHTMLParser(markup)
    based = tree.css_first("base[href]")
    seen: set[str] = set()
    for node in tree.css("a[href]"):
        try:
            start = urllib.parse.urljoin(url, (based.attributes.get("href") or "") if based else "")
            target = urllib.parse.urldefrag(urllib.parse.urljoin(start, (node.attributes.get("href") or "").strip())).url
        except ValueError:
            continue
        text = " ".join(node.text().split())[:_LINK_CHARS]
        if target.startswith(("http://", "https://")) and text and target not in seen and len(target) <= _URL_CHARS:
            seen.add(target)
            yield ["link", text, target]
            if len(seen) >= LINKS:
                return
