"""Readers: what files of each kind say, and how they refuse what is none."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.drafts import Draft, DraftPart, bounded
from batos.memory.readers import charset, dates

DATA = Path(__file__).parents[1] / "data"


def day(year: int, month: int, number: int) -> int:
    return datetime.date(year, month, number).toordinal()


def titles(draft: Draft) -> list[str]:
    return [part.title for part in draft.parts]


def test_plain_text_is_one_part_and_its_name_may_say_its_day() -> None:
    found = readers.read("/notes/2024-03-05 walk.txt", b"We walked far.\r\nThen it rained.\r\n")
    assert found == Draft("text", "2024-03-05 walk", [DraftPart("We walked far.\nThen it rained.\n")], day=day(2024, 3, 5))


def test_markdown_is_cut_at_headings_but_not_in_code() -> None:
    front = "---\ntitle: My notes\ndate: 2024-05-01\ntags: [a, b]\n---\n"
    text = f"{front}Before.\n# One *thing*\nText.\n```\n# no heading\n```\n## Two\nMore.\n# Three\n"
    found = readers.read("n.md", text.encode())
    assert (found.kind, found.title, found.day, found.tags) == ("markdown", "My notes", day(2024, 5, 1), ("a", "b"))
    assert titles(found) == ["", "One thing", "One thing > Two", "Three"]
    assert "# no heading" in found.parts[1].text
    assert "".join(part.text for part in found.parts) == text.split("---\n")[2]


def test_html_is_read_without_what_surrounds_it() -> None:
    page = """<!doctype html><html><head><title>On tea</title><style>p {color: red}</style></head><body><nav>Home | About</nav>
    <article><h1>Tea</h1><time datetime="2023-02-01">Feb 1</time><p>Tea   is <b>hot</b>.</p><ul><li>green</li><li>black</li></ul>
    <table><tr><td>Pot</td><td>2 l</td></tr></table><pre>brew(  water )</pre></article><script>alert(1)</script></body></html>"""
    found = readers.read("tea.html", page.encode())
    text = "".join(part.text for part in found.parts)
    assert (found.kind, found.title, found.day) == ("html", "On tea", day(2023, 2, 1))
    assert titles(found) == ["Tea"]
    for words in ("Tea is hot.", "- green", "- black", "| Pot | 2 l |", "brew(  water )"):
        assert words in text
    for noise in ("Home", "alert", "color"):
        assert noise not in text
    assert readers.read("no-suffix", page.encode()).kind == "html"


def test_a_pdf_is_read_by_pages() -> None:
    found = readers.read("report.pdf", pdf("The first page.", "The second page."))
    assert (found.kind, found.title, titles(found)) == ("pdf", "report", ["page 1", "page 2"])
    assert found.parts[1].text.strip() == "The second page."


def test_pdfs_that_cannot_be_read_say_why() -> None:
    from pypdf import PdfWriter

    whole = pdf("A page.")
    locked, writer = io.BytesIO(), PdfWriter(io.BytesIO(whole))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(locked)
    for data, words in (
        (whole[: len(whole) // 2], "broken"),
        (locked.getvalue(), "encrypted"),
        ((DATA / "locked_aes.pdf").read_bytes(), "encrypted"),
        (pdf(""), "only pictures"),
        (b"GIF89a", "not"),
    ):
        with pytest.raises(Unreadable, match=words):
            readers.read("x.pdf", data)


def test_code_is_cut_between_definitions() -> None:
    code = "import os\n\n" + "".join(f"def f{n}():\n" + "    pass  # some words that make it longer\n" * 30 + "\n" for n in range(3))
    found = readers.read("m.py", code.encode())
    assert (found.kind, found.title) == ("code", "m.py")
    assert len(found.parts) == 2
    assert "".join(part.text for part in found.parts) == code


CHAT = """8 May 2023, 1:56 pm

Anna: I planted the tomatoes.
They look fine.
Ben: Which kind? We meet on 9 May 2024.

# 12 May 2023
Anna: San Marzano.
Ben: Nice.
"""


def test_a_conversation_is_turns_under_days() -> None:
    found = readers.read("chat.txt", CHAT.encode())
    assert (found.kind, [part.day for part in found.parts]) == ("conversation", [day(2023, 5, 8), day(2023, 5, 12)])
    turns = [(turn.speaker, part.text[turn.start : turn.end]) for part in found.parts for turn in part.turns]
    assert [speaker for speaker, _ in turns] == ["Anna", "Ben", "Anna", "Ben"]
    assert turns[0][1].endswith("Anna: I planted the tomatoes.\nThey look fine.\n")
    assert "".join(part.text for part in found.parts) == CHAT


@pytest.mark.parametrize(
    "lines",
    [
        ["[12/05/2023, 10:15] Anna: Hello", "[12/05/2023, 10:16] Ben: Hi", "[13/05/2023, 9:00] Anna: Up?", "[13/05/2023, 9:01] Ben: Yes"],
        ["2023-05-12 10:15 - Anna: Hello", "2023-05-12 10:16 - Ben: Hi", "2023-05-13 09:00 - Anna: Up?", "2023-05-13 09:01 - Ben: Yes"],
    ],
)
def test_a_conversation_may_have_its_days_on_each_line(lines: list[str]) -> None:
    found = readers.read("chat.txt", "\n".join(lines).encode())
    assert [part.day for part in found.parts] == [day(2023, 5, 12), day(2023, 5, 13)]
    assert [turn.speaker for turn in found.parts[0].turns] == ["Anna", "Ben"]


@pytest.mark.parametrize(
    "text",
    [
        "Note: this\nTodo: that\nNote: more\nTodo: even more\n",
        "Name: Anna\nAge: 5\nCity: Rome\nJob: none\n",
        "A plain text. It says: nothing.\nAnd more of it.\n",
    ],
)
def test_what_only_looks_like_a_conversation_is_text(text: str) -> None:
    assert readers.read("x.txt", text.encode()).kind == "text"


def test_bytes_become_text_whatever_wrote_them() -> None:
    text = "Ein Café – für 3 €.\n" * 3
    for name in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"):
        assert charset.decoded(text.encode(name)) == text, name
    assert charset.decoded(b"a\r\nb\rc\n") == "a\nb\nc\n"


@pytest.mark.parametrize("data", [bytes(range(256)) * 8, b"\x7fELF\x02\x01\x01" + b"\0" * 500, b"x" * 100_001, b"\xff\xfe\x00"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        charset.decoded(data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", day(2024, 2, 29)), ("29/02/2024", day(2024, 2, 29)), ("on 1st of June, 2022", day(2022, 6, 1)), ("2023-02-29", 0),
        ("June 1st, 2022", day(2022, 6, 1)), ("03.04.21", day(2021, 4, 3)), ("5/23/2021", day(2021, 5, 23)), ("version 1.2.3", 0), ("", 0),
    ],
)  # fmt: skip
def test_days_are_found(text: str, expected: int) -> None:
    assert dates.found(text) == expected


def test_no_section_is_too_long_and_what_is_put_in_moves_no_cut_after_it() -> None:
    paragraphs = [f"Paragraph {n} says this and that about {n * n}, and no more.\n\n" for n in range(400)]
    text = "".join(paragraphs)
    cut = [part.text for part in bounded([DraftPart(text)], 2000)]
    assert "".join(cut) == text
    assert max(map(len, cut)) <= 2000
    other = [part.text for part in bounded([DraftPart("".join([*paragraphs[:40], "Something new.\n\n" * 5, *paragraphs[40:]]))], 2000)]
    assert len(set(cut) - set(other)) <= 3
    assert [part.text for part in bounded([DraftPart("x" * 5000), DraftPart(" \n")], 2000)] == ["x" * 2000, "x" * 2000, "x" * 1000]


def pdf(*pages: str) -> bytes:
    """A PDF file with a line of text on each page."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
        objects.append(b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>>>/Contents %d 0 R>>" % len(objects))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(kids), len(kids))
    data, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return data + head + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(data))


def test_every_suffix_has_a_reader(tmp_path: Path) -> None:
    for suffix in readers.SUFFIXES - {".pdf"}:
        assert readers.read(f"name{suffix}", b"Some words of a text.\n").parts
