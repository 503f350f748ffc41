"""HTML: its text by headings, without what surrounds it on the page (needs beautifulsoup4)."""

from __future__ import annotations

import pathlib
import re
from typing import Any

from bs4 import BeautifulSoup

from batos.memory.drafts import Draft
from batos.memory.readers import dates, markdown

_NOISE = ("script", "style", "noscript", "template", "svg", "nav", "footer", "aside", "form", "iframe", "button", "head")
_BLOCKS = ("p", "div", "section", "article", "main", "header", "ul", "ol", "table", "figure", "dl", "dd", "dt", "address", "details", "hr")
_MANY = re.compile(r"\n{3,}")


def read(path: pathlib.PurePath, text: str) -> Draft:
    """The page's text as Markdown has it: headings, items of lists, rows of tables, code."""
    soup = BeautifulSoup(text, "html.parser")
    title = soup.title.get_text(" ", strip=True) if soup.title else ""
    stamp = soup.find("meta", attrs={"property": "article:published_time"}) or soup.find("time")
    when = str(stamp.get("content") or stamp.get("datetime") or "") if stamp else ""
    for noise in soup.find_all(_NOISE):
        noise.decompose()
    for mark in soup.find_all("pre"):
        mark.replace_with(f"\n\n```\n{mark.get_text()}\n```\n\n")
    found = markdown.read(path, _MANY.sub("\n\n", _text(soup.find("main") or soup.find("article") or soup)).strip() + "\n")
    return found._replace(kind="html", title=title or found.title, day=dates.found(when) or found.day)


def _text(root: Any) -> str:
    """Its text, with the marks that headings, items, rows and paragraphs have in Markdown."""
    for tag in root.find_all(["h1", "h2", "h3", "h4", "h5", "h6"]):
        tag.replace_with(f"\n\n{'#' * int(tag.name[1])} {_line(tag)}\n\n")
    for tag in root.find_all("tr"):
        tag.replace_with("\n| " + " | ".join(_line(cell) for cell in tag.find_all(["td", "th"])) + " |")
    for tag in root.find_all("li"):
        tag.insert_before("\n- ")
    for tag in root.find_all("br"):
        tag.replace_with("\n")
    for tag in root.find_all(_BLOCKS):
        tag.insert_before("\n\n")
        tag.insert_after("\n\n")
    return "```".join(part if fenced % 2 else _tidied(part) for fenced, part in enumerate(root.get_text().split("```")))


def _tidied(text: str) -> str:
    """Without the blanks by which the page's source was laid out."""
    return re.sub(r"[ \t]+", " ", re.sub(r"[ \t]*\n[ \t]*", "\n", text))


def _line(tag: Any) -> str:
    return " ".join(tag.get_text(" ").split())
