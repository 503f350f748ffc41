"""Documents of office programs, tables, mail, notebooks, calendars: what is in them, under what it is called."""
# ruff: noqa: E501  lines of files are as long as they are

from __future__ import annotations

import datetime
import io
import json
import zipfile

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.drafts import Draft

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


def packed(**members: str) -> bytes:
    """A zip archive; `__` in a name stands for `/`, and `_dot_` for a full stop."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), text)
    return data.getvalue()


def texts(draft: Draft) -> dict[str, str]:
    return {part.title: part.text for part in draft.parts}


def docx() -> bytes:
    def p(text: str, style: str = "") -> str:
        return f"<w:p>{f'<w:pPr><w:pStyle w:val={chr(34)}{style}{chr(34)}/></w:pPr>' if style else ''}<w:r><w:t>{text}</w:t></w:r></w:p>"

    cells = "".join(f"<w:tr>{''.join(f'<w:tc>{p(cell)}</w:tc>' for cell in row)}</w:tr>" for row in (("Month", "Rent"), ("May", "40")))
    styles = f'<w:styles {W}><w:style w:type="paragraph" w:styleId="H1"><w:name w:val="heading 1"/></w:style></w:styles>'
    types = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.{kind}+xml"/>'
        for name, kind in (("document", "document.main"), ("styles", "styles"))
    )
    return packed(
        **{
            "[Content_Types]_dot_xml": f'<Types xmlns="{PACKAGE}/content-types">{types}</Types>',
            "_rels__.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="a" Type="{R}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word__document_dot_xml": f"<w:document {W}><w:body>{p('Lease', 'H1')}{p('It ends in May.')}<w:tbl>{cells}</w:tbl></w:body></w:document>",
            "word__styles_dot_xml": styles,
            "word___rels__document_dot_xml_dot_rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="s" Type="{R}/styles" Target="styles.xml"/></Relationships>',
            "word__header1_dot_xml": f"<w:hdr {W}>{p('Confidential')}</w:hdr>",
        }
    )


def test_word() -> None:
    found = readers.read("lease.docx", docx())
    assert (found.kind, found.title) == ("document", "Lease")
    assert texts(found) == {"Lease": "# Lease\n\nIt ends in May.\n\n| Month | Rent |\n| May | 40 |\n", "header": "Confidential\n"}


def test_word_that_its_library_does_not_take_is_read_by_its_paragraphs() -> None:
    odd = packed(
        word__document_dot_xml="<w:document xmlns:w='x'><w:body><w:p><w:r><w:t>The dodo</w:t></w:r><w:r><w:t> dines.</w:t></w:r></w:p></w:body></w:document>"
    )
    assert texts(readers.read("a.docx", odd)) == {"": "The dodo dines.\n"}


def test_slides_come_in_their_order_with_notes() -> None:
    def slide(title: str, text: str) -> str:
        shape = "<p:sp><p:nvSpPr><p:nvPr>{}</p:nvPr></p:nvSpPr><p:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></p:txBody></p:sp>"
        return f"<p:sld {A}>{shape.format('<p:ph type=' + chr(34) + 'title' + chr(34) + '/>', title)}{shape.format('', text)}</p:sld>"

    relation = '<Relationship Id="{0}" Type="x/slide" Target="slides/slide{1}.xml"/>'
    data = packed(
        ppt__presentation_dot_xml=f'<p:presentation {A} xmlns:r="{R}"><p:sldIdLst><p:sldId r:id="b"/><p:sldId r:id="a"/></p:sldIdLst></p:presentation>',
        ppt___rels__presentation_dot_xml_dot_rels=f"<Relationships>{relation.format('a', 1)}{relation.format('b', 2)}</Relationships>",
        ppt__slides__slide1_dot_xml=slide("Costs", "Forty euros"),
        ppt__slides__slide2_dot_xml=slide("Plan", "Buy a heater"),
        ppt__slides___rels__slide2_dot_xml_dot_rels='<R><Relationship Type="x/notesSlide" Target="../notesSlides/notesSlide1.xml"/></R>',
        ppt__notesSlides__notesSlide1_dot_xml=slide("", "Say hello"),
    )  # fmt: skip
    found = readers.read("talk.pptx", data)
    assert found.title == "Plan"
    assert texts(found) == {"slide 1: Plan": "Plan\nBuy a heater\n\nNotes: Say hello\n", "slide 2: Costs": "Costs\nForty euros\n"}


def test_opendocument_by_its_headings() -> None:
    o = "urn:oasis:names:tc:opendocument:xmlns"
    body = f'''<office:document-content xmlns:office="{o}:office:1.0" xmlns:text="{o}:text:1.0" xmlns:table="{o}:table:1.0"><office:body><office:text>
      <text:h text:outline-level="1">Lease</text:h><text:p>It ends <text:span>in</text:span><text:s/>May.</text:p>
      <table:table><table:table-row><table:table-cell><text:p>May</text:p></table:table-cell><table:table-cell><text:p>40</text:p></table:table-cell></table:table-row></table:table>
      <text:h text:outline-level="2">Costs</text:h><text:list><text:list-item><text:p>Heater</text:p></text:list-item></text:list>
      </office:text></office:body></office:document-content>'''
    data = packed(mimetype="application/vnd.oasis.opendocument.text", content_dot_xml=body)
    assert texts(readers.read("a.odt", data)) == {
        "Lease": "Lease\n\nIt ends in May.\n\n| May | 40 |\n",
        "Lease > Costs": "Costs\n\nHeater\n\n",
    }


def test_a_book_by_its_chapters_in_their_order() -> None:
    package = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>On Bats</dc:title>
      <dc:creator>Ann Owl</dc:creator></metadata><manifest><item id="x" href="b%20two.xhtml"/><item id="y" href="a.xhtml"/></manifest>
      <spine><itemref idref="y"/><itemref idref="x"/></spine></package>"""
    data = packed(**{
        "mimetype": "application/epub+zip", "META-INF__container_dot_xml": '<container><rootfiles><rootfile full-path="OPS/p.opf"/></rootfiles></container>',
        "OPS__p_dot_opf": package, "OPS__a_dot_xhtml": "<html><body><h1>One</h1><p>Caves</p></body></html>", "OPS__b two_dot_xhtml": "<html><body><p>Nights</p></body></html>",
    })  # fmt: skip
    found = readers.read("bats.epub", data)
    assert (found.title, [part.text for part in found.parts]) == ("On Bats by Ann Owl", ["# One\n\nCaves\n", "Nights\n"])


SHEET = """<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData></worksheet>"""


def test_a_workbook_says_in_each_row_what_its_columns_are_called() -> None:
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    rows = (("Month", "Rent"), ("May", "40.5"), ("June", "41"))
    cells = "".join(
        "<row>" + "".join(f'<c r="{"AB"[c]}{r}" t="inlineStr"><is><t>{cell}</t></is></c>' for c, cell in enumerate(row)) + "</row>"
        for r, row in enumerate(rows, 1)
    )
    data = packed(**{
        "_rels__.rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="a" Type="{R}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl__workbook_dot_xml": f'<workbook xmlns="{main}" xmlns:r="{R}"><sheets><sheet name="Costs" sheetId="1" r:id="a"/></sheets></workbook>',
        "xl___rels__workbook_dot_xml_dot_rels": f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="a" Type="{R}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl__worksheets__sheet1_dot_xml": SHEET.format(cells),
    })  # fmt: skip
    assert texts(readers.read("b.xlsx", data)) == {"Costs": "| Month | Rent |\n| Month: May | Rent: 40.5 |\n| Month: June | Rent: 41 |\n"}
    words = packed(xl__sharedStrings_dot_xml="<sst><si><t>The xerus</t></si></sst>")
    assert "only the words" in readers.read("b.xlsx", words).told[0]


@pytest.mark.parametrize("by", [",", ";", "\t", "|"])
def test_each_row_of_a_table_of_text_says_what_its_columns_are_called(by: str) -> None:
    rows = [["Month", "Rent", "Paid"], *([f"M{n}", f"{n}", ""] for n in range(300))]
    found = readers.read("rent.csv", "\n".join(by.join(row) for row in rows).encode())
    assert found.kind == "table"
    lines = found.parts[0].text.splitlines()
    assert (lines[0], lines[300]) == ("| Month | Rent | Paid |", "| Month: M299 | Rent: 299 |")


def test_a_table_may_have_no_names_and_a_text_no_columns() -> None:
    assert readers.read("a.csv", b"1,2\n3,4\n").parts[0].text == "| 1 | 2 |\n| 3 | 4 |\n"
    assert readers.read("a.csv", b"Just some words.\nAnd, more of them.\n").kind == "text"
    assert '"' not in readers.read("a.csv", b'a,b\n"x, y\nz",2\n').parts[0].text


MAIL = """From: =?utf-8?q?J=C3=B6rg?= <joerg@example.org>
To: anna@example.org
Subject: =?utf-8?b?w5xiZXJnYWJl?= of
 the keys
Date: Mon, 12 Jun 2023 14:05:00 +0200
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: multipart/alternative; boundary="c"

--c
Content-Type: text/plain; charset="iso-8859-1"
Content-Transfer-Encoding: quoted-printable

Die Schl=FCssel h=E4ngen am Fa=
ss.
--c
Content-Type: text/html

<p>not told twice</p>
--c--
--b
Content-Type: text/csv; name="rent.csv"
Content-Disposition: attachment; filename="rent.csv"
Content-Transfer-Encoding: base64

TW9udGgsUmVudApNYXksNDAK
--b
Content-Type: application/zip
Content-Disposition: attachment; filename*=utf-8''b%C3%B6se.zip
Content-Transfer-Encoding: base64

UEsDBA==
--b--
"""


def test_mail_with_what_is_attached() -> None:
    found = readers.read("a.eml", MAIL.encode())
    assert (found.kind, found.title, found.day) == ("mail", "Übergabe of the keys", datetime.date(2023, 6, 12).toordinal())
    said = texts(found)
    assert list(said) == ["Übergabe of the keys", "Übergabe of the keys > rent.csv"]
    assert "Die Schlüssel hängen am Fass." in said["Übergabe of the keys"]
    assert "From: Jörg <joerg@example.org>" in said["Übergabe of the keys"]
    assert "Month: May | Rent: 40" in said["Übergabe of the keys > rent.csv"]
    assert "not told twice" not in "".join(said.values())
    assert found.told[0].startswith("böse.zip, which is attached, was not read: ")


def test_a_mailbox_and_a_saved_page() -> None:
    box = "".join(f"From x@y Mon\nSubject: Note {n}\n\nText {n}\n>From here\n\n" for n in range(3))
    assert list(texts(readers.read("all.mbox", box.encode()))) == ["Note 0", "Note 1", "Note 2"]
    page = "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\nContent-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n<p>The m=C3=B6le=\n digs.</p>\n--x--\n"
    assert "The möle digs." in readers.read("p.mhtml", page.encode()).parts[0].text


def test_mail_in_mail_comes_to_an_end() -> None:
    inner = MAIL
    for _ in range(8):
        inner = f'Subject: outer\nContent-Type: multipart/mixed; boundary="z{len(inner)}"\n\n--z{len(inner)}\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename="m.eml"\n\n{inner}\n--z{len(inner)}--\n'
    found = readers.read("a.eml", inner.encode())
    assert len(found.parts) == 4
    assert found.told[0].endswith("m.eml, which is attached, was not read: it is in 3 other files")


def test_no_title_is_long() -> None:
    subject = "very long " * 5000
    mail = readers.read("m.eml", f"From: a@b\nSubject: {subject}\n\nThe text.\n".encode())
    page = readers.read("p.html", f"<html><title>{subject}</title><h1>{subject}</h1><p>The text.</p></html>".encode())
    package = f"<package><title>{subject}</title></package>"
    container = '<c><rootfile full-path="c.opf"/></c>'
    members = {"META-INF/container.xml": container, "c.opf": package, "p.xhtml": "<p>The text.</p>"}
    book = readers.read("b.epub", packed(mimetype="application/epub+zip", **members))
    for draft in (mail, page, book):
        assert "The text." in "".join(part.text for part in draft.parts)
        assert all(len(title) <= 300 for title in (draft.title, *(part.title for part in draft.parts)))
    assert mail.title.startswith("very long very long")
    assert subject.strip() in mail.parts[0].text


def test_notebooks_boards_and_outlines() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Heating\n", "The newt."]},
        {"cell_type": "code", "source": "1+1", "outputs": [{"data": {"text/plain": ["2"], "image/png": "A" * 200_000}}]},
    ]
    book = readers.read("a.ipynb", json.dumps({"cells": cells}).encode())
    assert texts(book) == {"Heating": "# Heating\nThe newt.\n\n```\n1+1\n```\n\n```\n2\n```\n"}
    board = readers.read("b.canvas", json.dumps({"nodes": [{"text": "The cat"}, {"file": "n.md"}], "edges": [{"label": "knows"}]}).encode())
    assert board.parts[0].text == "The cat\n\nn.md\n\nknows\n"
    outline = readers.read(
        "c.opml", b"<opml><head><title>T</title></head><body><outline text='A &amp;amp; b'><outline text='c'/></outline></body></opml>"
    )
    assert (outline.title, outline.parts[0].text) == ("T", "- A & b\n  - c\n")


def test_calendars_and_address_books() -> None:
    ics = 'BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:The ib\r\n is\\, twice\r\nDTSTART;TZID=Europe/Berlin:20230612T140500\r\nATTENDEE;CN="a:b":mailto:x@y\r\nBEGIN:VALARM\r\nDESCRIPTION:alarm\r\nEND:VALARM\r\nEND:VEVENT\r\nBEGIN:VTODO\r\nSUMMARY:Pay\r\nDUE:20230701\r\nEND:VTODO\r\nEND:VCALENDAR\r\n'
    found = readers.read("c.ics", ics.encode())
    assert texts(found) == {"The ibis, twice": "The ibis, twice\nbegins: 2023-06-12 14:05\nwith: x@y\n", "Pay": "Pay\ndue: 2023-07-01\n"}
    assert found.parts[0].day == datetime.date(2023, 6, 12).toordinal()
    card = "BEGIN:VCARD\nFN;CHARSET=UTF-8;ENCODING=QUOTED-PRINTABLE:J=C3=B6rg =\nOwl\nitem1.TEL:+49 170\nADR:;;Hafenstr. 1;Ulm;;89073;\nEND:VCARD\n"
    assert texts(readers.read("c.vcf", card.encode())) == {"Jörg Owl": "Jörg Owl\ntelephone: +49 170\naddress: Hafenstr. 1, Ulm, 89073\n"}


def test_rtf_in_its_own_encoding() -> None:
    assert readers.read("a.rtf", rb"{\rtf1\ansi\ansicpg1252 Die Schl\'fcssel\par h\'e4ngen.\par}").parts[0].text.split() == [
        "Die",
        "Schlüssel",
        "hängen.",
    ]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.docx", b"<html>not found</html>", "its content does not"),
        ("a.docx", docx()[:300], "broken archive"),
        ("a.zip", packed(a="b"), "archive of files"),
        ("a.doc", b"\xd0\xcf\x11\xe0" + b"\0" * 600, "save it as .docx"),
        ("a.msg", b"\xd0\xcf\x11\xe0" + b"\0" * 600, "save it as .eml"),
        ("a.xlsx", b"PK\x03\x04" + b"\0" * 60, "broken"),
    ],
)
def test_what_cannot_be_read_says_what_to_do(name: str, data: bytes, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        readers.read(name, data)


def test_an_archive_that_unpacks_without_end_is_refused() -> None:
    with pytest.raises(Unreadable, match="unpacks to more than"):
        readers.read("a.odt", packed(mimetype="application/vnd.oasis.opendocument.text", content_dot_xml="<a>" + " " * (600 << 20)))


def test_what_is_not_of_its_kind_is_read_as_text_and_that_is_told() -> None:
    found = readers.read("a.ics", b"Words of a text.\n")
    assert (found.kind, found.parts[0].text) == ("text", "Words of a text.\n")
    assert "read as plain text" in found.told[0]
