"""Readers: what files of each kind say, and how they refuse what is none."""

from __future__ import annotations

import datetime
import io

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.drafts import Draft, DraftPart, bounded
from batos.memory.readers import charset, dates
from batos.memory.readers.pdf import tidied
from tests.support.documents import DATA, pdf


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
    assert titles(found) == ["properties", "", "One thing", "One thing > Two", "Three"]
    assert "# no heading" in found.parts[2].text
    assert "".join(part.text for part in found.parts) == "".join(text.split("---\n"))


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
        (b"GIF89a", "its name says PDF"),
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
        assert charset.decoded(text.encode(name)).text == text, name
    assert charset.decoded(b"a\r\nb\rc\n").text == "a\nb\nc\n"


@pytest.mark.parametrize("data", [bytes(range(256)) * 8, b"\x7fELF\x02\x01\x01" + b"\0" * 500, b"x" * 100_001, b"\xff\xfe\x00"])
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(Unreadable):
        readers.read("data.txt", data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-02-29", day(2024, 2, 29)), ("29/02/2024", day(2024, 2, 29)), ("on 1st of June, 2022", day(2022, 6, 1)), ("2023-02-29", 0),
        ("June 1st, 2022", day(2022, 6, 1)), ("03.04.21", day(2021, 4, 3)), ("5/23/2021", day(2021, 5, 23)), ("version 1.2.3", 0), ("", 0),
    ],
)  # fmt: skip
def test_days_are_found(text: str, expected: int) -> None:
    assert dates.day_in(text) == expected


def test_no_section_is_too_long_and_what_is_put_in_moves_no_cut_after_it() -> None:
    paragraphs = [f"Paragraph {n} says this and that about {n * n}, and no more.\n\n" for n in range(400)]
    text = "".join(paragraphs)
    cut = [part.text for part in bounded([DraftPart(text)], 2000)]
    assert "".join(cut) == text
    assert max(map(len, cut)) <= 2000
    other = [part.text for part in bounded([DraftPart("".join([*paragraphs[:40], "Something new.\n\n" * 5, *paragraphs[40:]]))], 2000)]
    assert len(set(cut) - set(other)) <= 3
    assert [part.text for part in bounded([DraftPart("x" * 5000), DraftPart(" \n")], 2000)] == ["x" * 2000, "x" * 2000, "x" * 1000]


@pytest.mark.parametrize("suffix", sorted(readers.SUFFIXES))
def test_every_suffix_has_a_reader_and_what_is_not_of_its_kind_is_text_or_refused(suffix: str) -> None:
    if suffix in (".pdf", *(one for one, kind in readers._SUFFIXES.items() if kind in ("packed", "sheets"))):
        with pytest.raises(Unreadable, match="its content does not"):
            readers.read(f"name{suffix}", b"Some words of a text.\n")
    else:
        assert readers.read(f"name{suffix}", b"Some words of a text.\n").parts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("---\nMeeting notes. The budget is 4000.\n\nSecond line: call Hendrik.\n\n---\nRest.\n", [""]),
        ("---\n- an item\n---\nRest\n", [""]),
        ("---\n\n---\nRest\n", [""]),
        ("Title\n=====\nWords.\n\nSecond\n------\nMore.\n\n- item\n---\n| a |\n---\n", ["Title", "Title > Second"]),
        ("# A ## \n#tag\n## B\n```\n# no\n---\n```\n", ["A", "A > B"]),
    ],
)
def test_nothing_of_a_markdown_text_is_lost(text: str, parts: list[str]) -> None:
    found = readers.read("n.md", text.encode())
    assert titles(found) == parts
    assert "".join(part.text for part in found.parts) == text


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# my_file_name.py and 2 * 3 * 4", "my_file_name.py and 2 * 3 * 4"), ("# The *new* `key` of __Clara__", "The new key of Clara"),
        ("# _All_ of it, ***now***", "All of it, now"), ("---\ntitle: 'Berlin,Paris'\n---", "Berlin,Paris"),
    ],
)  # fmt: skip
def test_a_title_loses_only_its_marks(line: str, title: str) -> None:
    assert readers.read("n.md", f"{line}\n\nWords.\n".encode()).title == title


@pytest.mark.parametrize(
    ("front", "tags", "words"),
    [
        (
            "---\ntags:\n  - heater\n  - '#tomato'\naliases: [Orangery, Glasshouse]\nstatus: waiting for Quentin\n---\n",
            ("heater", "tomato"),
            "Orangery",
        ),
        (
            "---\ntags: a, b\ncreated: 2024-05-01\ndue date: soon\n# a comment\ntext: |\n  Two lines\n  of Oslo\n---\n",
            ("a", "b"),
            "of Oslo",
        ),
        ('+++\ntitle = "T"\ntags = ["x"]\n+++\n', ("x",), 'tags = ["x"]'),
    ],
)
def test_front_matter_is_found_by_all_its_fields(front: str, tags: tuple[str, ...], words: str) -> None:
    found = readers.read("n.md", f"{front}Body.\n".encode())
    assert found.tags == tags
    assert titles(found) == ["properties", ""]
    assert words in found.parts[0].text


def spoken(text: str) -> list[tuple[int, str]]:
    found = readers.read("chat.txt", text.encode())
    assert found.kind == "conversation"
    return [(part.day, turn.speaker) for part in found.parts for turn in part.turns]


def test_lists_and_texts_of_front_matter_may_take_several_lines() -> None:
    front = "tags: [\n  home,\n  'a b',\n  heating ]\ntitle: >\n  The lease\n  of the house\nsummary: |\n  Two lines\n  of words\n"
    found = readers.read("n.md", f"---\n{front}---\nbody\n".encode())
    assert (found.title, found.tags) == ("The lease of the house", ("home", "a b", "heating"))
    assert [part.text for part in found.parts] == [front, "body\n"]


def test_the_order_of_day_and_month_is_that_of_the_whole_file() -> None:
    def lines(*days: str) -> str:
        return "".join(f"{one}, 2:0{at} PM - {'Ben' if at % 2 else 'Anna'}: Hi\n" for at, one in enumerate(days))

    june = [day(2023, 6, number) for number in (11, 12, 13, 14)]
    assert [one for one, _ in spoken(lines("6/11/23", "6/12/23", "6/13/23", "6/14/23"))] == june
    assert [one for one, _ in spoken(lines("11/6/23", "12/6/23", "13/6/23", "14/6/23"))] == june
    assert [one for one, _ in spoken(lines("6/09/23", "6/10/23", "6/11/23", "6/12/23"))] == [
        day(2023, 6, number) for number in (9, 10, 11, 12)
    ]
    unsure = readers.read("c.txt", lines("6/7/23", "6/7/23", "6/7/23", "6/7/23").encode())
    assert "day or the month first" in unsure.told[0]
    assert unsure.parts[0].day == day(2023, 6, 7)  # capitals and no zeros: a phone of the United States
    assert readers.read("c.txt", lines("06/07/23", "06/07/23", "06/07/23", "06/07/23").encode()).parts[0].day == day(2023, 7, 6)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("12.06.23, 14:0{} - {}: Hi\n", ["Ben", "+49 170 5550100", "Cleo 🎸", "Ben"]),
        ("\u200e[12.06.23, 14:0{}:05] {}: Hi\nand more\n", ["Ben", "Jörg von Öl", "Ben", "~ Anna"]),
        ("{1}, [12.06.2023 14:0{0}]\nHi\n\n", ["Ben", "Anna S", "Ben", "Anna S"]),
        ("12. Juni 2023, 14:0{} - {}: Hallo\n", ["Ben", "Anna", "Ben", "Anna"]),
        ("12 juin 2023 à 14:0{} - {}: Salut\n", ["Ben", "Anna", "Ben", "Anna"]),
        ("2023年6月12日 14:0{} {}：你好\n", ["张三", "李四", "张三", "李四"]),
        ("2023-06-12 14:0{} <{}> hi\n", ["ben", "anna", "ben", "anna"]),
    ],
)
def test_a_line_with_a_time_begins_a_turn_whoever_it_is(line: str, names: list[str]) -> None:
    text = "".join(line.format(at, name) for at, name in enumerate(names))
    assert spoken(text) == [(day(2023, 6, 12), name.strip("~ ")) for name in names]


def test_a_colon_may_be_wide_and_what_a_program_says_is_nobodys() -> None:
    assert [who for _, who in spoken("张三：你好\n李四：你好\n张三：吃饭了吗\n李四：吃了\n")] == ["张三", "李四", "张三", "李四"]
    chat = "".join(f"12.06.23, 14:0{at} - {said}\n" for at, said in enumerate(["Ben: a", "Anna joined", "Anna: b", "Ben: c", "Anna: d"]))
    assert [who for _, who in spoken(chat)] == ["Ben", "", "Anna", "Ben", "Anna"]
    assert [one for one, _ in spoken("2023/06/12(月)\n14:05\tAnna\tHi\n14:06\tBen\tHi\n14:07\tAnna\tx\n14:08\tBen\ty\n")] == [
        day(2023, 6, 12)
    ] * 4


@pytest.mark.parametrize(
    "line", ["{level}: {at} done", "2023-06-12 14:05:01 {level}: {at} done", "12:05 {level}: {at}", "[2023-06-12 14:05] {level}: {at}"]
)
def test_a_log_is_no_conversation(line: str) -> None:
    text = "".join(line.format(level=("INFO", "ERROR")[at % 2], at=at) + "\n" for at in range(10))
    assert readers.read("a.log", text.encode()).kind == "text"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12. März 2023", day(2023, 3, 12)), ("12 juin 2023", day(2023, 6, 12)), ("1er août 2022", day(2022, 8, 1)),
        ("2023年6月12日", day(2023, 6, 12)), ("2023년 6월 12일", day(2023, 6, 12)), ("3 de marzo de 2024", day(2024, 3, 3)),
        ("12.06.87", day(1987, 6, 12)), ("12.06.26", day(2026, 6, 12)),
    ],
)  # fmt: skip
def test_days_are_found_in_other_languages(text: str, expected: int) -> None:
    assert dates.day_in(text) == expected


def written(
    *pages: str, form: str = "", comment: str = "", before: bytes = b"", password: str | None = None, algorithm: str = "RC4-128"
) -> bytes:
    """A PDF, with a filled field, a comment, bytes before it, or encrypted with an owner's password alone."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, TextStringObject

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf(*pages))))
    notes = []
    if form:
        notes.append(
            {"/Subtype": NameObject("/Widget"), "/FT": NameObject("/Tx"), "/T": TextStringObject("tenant"), "/V": TextStringObject(form)}
        )
    if comment:
        notes.append({"/Subtype": NameObject("/Text"), "/T": TextStringObject("Ann"), "/Contents": TextStringObject(comment)})
    made = [
        writer._add_object(DictionaryObject({NameObject("/Type"): NameObject("/Annot"), **{NameObject(k): v for k, v in one.items()}}))
        for one in notes
    ]
    if made:
        writer.pages[0][NameObject("/Annots")] = ArrayObject(made)
    if password is not None:
        writer.encrypt(user_password="", owner_password=password, algorithm=algorithm)
    data = io.BytesIO()
    writer.write(data)
    return before + data.getvalue()


def test_what_is_filled_into_a_pdf_and_noted_beside_it_is_read() -> None:
    found = readers.read("f.pdf", written("Name of the tenant:", form="Quentin", comment="Ask him"))
    assert found.parts[0].text == "Name of the tenant:\ntenant: Quentin\ncomment by Ann: Ask him\n"


@pytest.mark.parametrize("algorithm", ["RC4-128", "AES-128", "AES-256"])
def test_a_pdf_with_an_owners_password_opens_as_in_any_viewer(algorithm: str) -> None:
    assert readers.read("f.pdf", written("The boiler.", password="secret", algorithm=algorithm)).parts[0].text == "The boiler.\n"


def test_files_that_are_attached_to_a_pdf_are_told() -> None:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(PdfReader(io.BytesIO(pdf("Words of a page"))))
    writer.add_attachment("extra.txt", b"more")
    made = io.BytesIO()
    writer.write(made)
    found = readers.read("a.pdf", made.getvalue())
    assert found.told == ("files that are attached to it were not read: extra.txt",)


def test_pages_that_are_only_pictures_are_told() -> None:
    assert readers.read("f.pdf", pdf("Cover", "", "", "Text", "")).told == (
        "pages 2 to 3, 5 of 5 have no text, only pictures: run it through OCR, for example `ocrmypdf`",
    )
    assert readers.read("f.pdf", pdf("Cover")).told == ()


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("пере-\nносится", "переносится"), ("Schlüs-\nsel", "Schlüssel"), ("zażó\u2010\nłcić", "zażółcić"), ("e\xad\nF", "eF"),
        ("Müller-\nSchmidt", "Müller-\nSchmidt"), ("X-\nray", "X-\nray"), ("12-\n13", "12-\n13"), ("a -\nb", "a -\nb"),
    ],
)  # fmt: skip
def test_a_word_that_two_lines_of_a_pdf_part_is_one_in_any_script(lines: str, text: str) -> None:
    assert tidied(lines) == f"{text}\n"


def test_a_pdf_may_begin_late_and_its_letters_stand_apart() -> None:
    found = readers.read("f.pdf", written("I N V O I C E", before=b"\r\n\r\nHTTP junk\r\n"))
    assert found.parts[0].text.strip() == "INVOICE"
