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
        "Lease > Costs": "Costs\n\n- Heater\n",
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


def test_a_chapter_is_read_with_its_notes_and_behind_elements_that_are_their_own_end() -> None:
    chapter = "<html><head><title/></head><body><h1>One</h1><p>Begin</p><aside><p>A note</p></aside><script/><p>End</p><footer>Last</footer></body></html>"
    package = '<package><manifest><item id="a" href="a.xhtml"/></manifest><spine><itemref idref="a"/></spine></package>'
    container = '<container><rootfiles><rootfile full-path="c.opf"/></rootfiles></container>'
    data = packed(**{"mimetype": "application/epub+zip", "META-INF/container.xml": container, "c.opf": package, "a.xhtml": chapter})
    assert readers.read("b.epub", data).parts[0].text.split("\n\n") == ["# One", "Begin", "A note", "End", "Last\n"]


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


def mail(*parts: str, kind: str = "mixed", head: str = "From: a@x.y\nSubject: Keys\n") -> bytes:
    said = "".join(f"--B\nContent-Type: {part}\n" for part in parts)
    return f"{head}MIME-Version: 1.0\nContent-Type: multipart/{kind}; boundary=B\n\n{said}--B--\n".encode()


def test_no_part_of_a_mail_is_left_out_for_another() -> None:
    footer = "text/plain\n\n____\nThe mailing list\n"
    body = "text/html; charset=utf-8\n\n<p>Der Schlüssel liegt bei Clara</p>\n"
    found = texts(readers.read("m.eml", mail(body, footer)))["Keys"]
    assert found.index("Der Schlüssel liegt bei Clara") < found.index("The mailing list")
    inline = 'text/csv; name="k.csv"\nContent-Disposition: inline; filename="k.csv"\n\nKey,Who\nRoof,Clara\nDoor,Ben\n'
    said = texts(readers.read("m.eml", mail("text/plain\n\nSee list.\n", inline, "text/markdown\n\n# Cellar\nDora has it.\n")))
    assert "Key: Roof | Who: Clara" in said["Keys > k.csv"]
    assert "Dora has it." in said["Keys > text.md > Cellar"]


def test_an_invitation_in_a_mail_is_read_and_of_two_alternatives_the_one_that_says_something() -> None:
    event = "text/calendar; method=REQUEST\n\nBEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Roof\nLOCATION:Town hall\nEND:VEVENT\nEND:VCALENDAR\n"
    said = texts(readers.read("m.eml", mail("text/plain\n\nPlease come.\n", event, kind="alternative")))
    assert "Please come." in said["Keys"]
    assert "place: Town hall" in said["Keys > invitation.ics > Roof"]
    long = f"text/html\n\n<p>{'The roof costs 40000 euros. ' * 9}</p>\n"
    stub = texts(readers.read("m.eml", mail("text/plain\n\nThis mail needs a viewer of HTML.\n", long, kind="alternative")))["Keys"]
    assert "40000 euros" in stub
    same = texts(readers.read("m.eml", mail("text/plain\n\nPlain words.\n", "text/html\n\n<p>Rich words.</p>\n", kind="alternative")))[
        "Keys"
    ]
    assert "Plain words." in same
    assert "Rich words." not in same


def test_a_forwarded_mail_keeps_who_wrote_it_and_when() -> None:
    inner = "message/rfc822\n\nFrom: clara@x.y\nSubject: Roof\nDate: Tue, 13 Jun 2023 10:15:00 +0200\n\nI have the key.\n"
    found = readers.read("m.eml", mail("text/plain\n\nsee below\n", inner))
    forwarded = found.parts[1]
    assert "clara@x.y" in forwarded.text
    assert "I have the key." in forwarded.text
    assert "I have the key." not in found.parts[0].text
    assert forwarded.day == datetime.date(2023, 6, 13).toordinal()


def test_a_line_of_a_mail_that_begins_with_from_begins_no_other_mail() -> None:
    first = "From a@x.y Mon Jun 12 10:15:00 2023\nSubject: One\n\nHello\nFrom now on Clara has the key.\nNote: not Ben.\nBye\n\n"
    second = "From b@x.y Tue Jun 13 10:15:00 +0000 2023\nSubject: Two\n\n>From here\n>>From there\n\n"
    said = texts(readers.read("all.mbox", (first + second).encode()))
    assert "From now on Clara has the key.\nNote: not Ben.\nBye" in said["One"]
    assert "\nFrom here\n>From there" in said["Two"]


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


BANK = (
    "Konto:;DE12 3456\nZeitraum:;Januar\n\nTag;Wer;Betrag\n02.01.2024;Müller, Hans;-400,00\n03.01.2024;Clara;-5,00\n04.01.2024;Ben;-6,50\n"
)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (BANK, ["| Konto: | DE12 3456 |", "Tag: 02.01.2024 | Wer: Müller, Hans | Betrag: -400,00"]),
        ("Budget 2024\n\nItem,Cost\nRoof,40000\nDoor,500\n", ["| Budget 2024 |", "Item: Roof | Cost: 40000"]),
        ("Country,2019,2020\nGermany,83,84\nItaly,60,59\n", ["Country: Italy | 2019: 60 | 2020: 59"]),
        ("Name,Mail,Mail,Phone\nAnna,a@x,b@x,1\nBen,c@x,,4\n", ["Name: Anna | Mail: a@x | Mail: b@x | Phone: 1"]),
        ("sep=;\nName;Town\nAnna;Berlin\nBen;Bonn\n", ["Name: Anna | Town: Berlin"]),
        ("Item;Cost;Size\nBread;1,50;2,25\nMilk;0,99;1,00\n", ["Item: Bread | Cost: 1,50 | Size: 2,25"]),
        ("Bread;1,50;2,25\nMilk;0,99;1,00\nEggs;2,99;1,00\n", ["| Milk | 0,99 | 1,00 |"]),
        ('id\ttext\n1\t5" pipe\n2\t"open\n3\tok\n', ['id: 2 | text: "open', "id: 3 | text: ok"]),
        ("Anna,2019\nBen,2020\nCleo,2021\n", ["| Ben | 2020 |"]),
        ('Name, Town, Cost\nAnna, "Berlin, Mitte", 5\nBen, Bonn, 6\n', ["Name: Anna | Town: Berlin, Mitte | Cost: 5"]),
        ("Name,Town,\nAnna,Berlin,likes tea\nBen,Bonn,has keys\n", ["Name: Ben | Town: Bonn | has keys"]),
    ],
)
def test_columns_are_named_whatever_stands_above_them(text: str, rows: list[str]) -> None:
    found = readers.read("t.csv", text.encode())
    assert found.kind == "table"
    for row in rows:
        assert row in found.parts[0].text


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def words(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def word(body: str, **more: str) -> bytes:
    types = f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>'
    relations = f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r" Type="{R}/officeDocument" Target="word/document.xml"/></Relationships>'
    document = f"<w:document {WORD}><w:body>{body}</w:body></w:document>"
    return packed(**{"[Content_Types].xml": types, "_rels/.rels": relations, "word/document.xml": document, **more})


def box(text: str) -> str:
    return f"<w:txbxContent><w:p>{words(text)}</w:p></w:txbxContent>"


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (f"{words('Dear ')}<w:fldSimple w:instr='MERGEFIELD N'>{words('Anna')}</w:fldSimple>{words(', hello')}", "Dear Anna, hello"),
        (
            f"<w:r><w:ruby><w:rt>{words('たなか')}</w:rt><w:rubyBase>{words('田中')}</w:rubyBase></w:ruby></w:r>{words('さん')}",
            "田中(たなか)さん",
        ),
        (
            f"{words('It is ')}<m:oMath><m:r><m:t>E=m</m:t></m:r><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup></m:oMath>",
            "It is E=mc^2",
        ),
        (f"<w:bdo w:val='rtl'>{words('המפתח')}</w:bdo>", "המפתח"),
        (f"<w:r><mc:AlternateContent><mc:Choice>{box('In a box')}</mc:Choice></mc:AlternateContent></w:r>", "In a box"),
        (
            f"<w:r><mc:AlternateContent><mc:Choice>{box('Once')}</mc:Choice><mc:Fallback>{box('Once')}</mc:Fallback></mc:AlternateContent></w:r>",
            "Once",
        ),
    ],
)
def test_all_text_of_a_word_document_is_read_once(inner: str, said: str) -> None:
    found = readers.read("a.docx", word(f"<w:p>{words('Begin')}</w:p><w:p>{inner}</w:p><w:p>{words('End')}</w:p>"))
    assert found.parts[0].text.split() == ["Begin", *said.split(), "End"]


def test_a_box_in_a_header_is_read_once() -> None:
    inner = f"<w:r><mc:AlternateContent><mc:Choice>{box('Head')}</mc:Choice><mc:Fallback>{box('Head')}</mc:Fallback></mc:AlternateContent></w:r>"
    header = {"word/header1.xml": f"<w:hdr {WORD}><w:p>{inner}</w:p></w:hdr>"}
    assert texts(readers.read("a.docx", word(f"<w:p>{words('Begin')}</w:p>", **header)))["header"] == "Head\n"


PICTURE = '<w:r><w:drawing xmlns:wp="urn:wp"><wp:inline><wp:docPr id="3" name="Group" descr="{}"/></wp:inline></w:drawing></w:r>'


def test_alternative_texts_of_pictures_are_read_once_and_names_of_files_are_none() -> None:
    old = '<w:r><w:pict xmlns:v="urn:v"><v:shape alt="Old drawing of the pump"/></w:pict></w:r>'
    body = f"<w:p>{words('Begin')}{PICTURE.format('Arrows to the cellar')}{PICTURE.format('image1.png')}{old}</w:p>"
    found = texts(readers.read("a.docx", word(body)))
    assert found["drawings"] == "[Arrows to the cellar]\n[Old drawing of the pump]\n"
    slide = f'<p:sld {A}><p:pic><p:nvPicPr><p:cNvPr id="4" name="Picture 3" descr="Photo of\nthe boiler"/></p:nvPicPr></p:pic></p:sld>'
    data = packed(**{"ppt/presentation.xml": f"<p:presentation {A}/>", "ppt/slides/slide1.xml": slide})
    assert readers.read("a.pptx", data).parts[0].text == "[Photo of the boiler]\n"


def test_hidden_text_of_a_word_document_is_left_out_and_told() -> None:
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>bait</w:t></w:r><w:r><w:rPr><w:vanish w:val='0'/></w:rPr><w:t>shown</w:t></w:r>"
    found = readers.read("a.docx", word(f"<w:p>{words('Begin ')}{hidden}</w:p>"))
    assert found.parts[0].text.split() == ["Begin", "shown"]
    assert found.told == ("4 characters that are hidden in it were left out",)


def test_members_of_an_archive_may_have_the_names_of_windows() -> None:
    data = word(f"<w:p>{words('Begin')}</w:p>").replace(b"word/document.xml", b"word\\document.xml")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert "word\\document.xml" in archive.namelist()
    assert readers.read("a.docx", data).parts[0].text.strip() == "Begin"


FLAT = (
    '<?xml version="1.0"?><office:document xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:t="urn:t" xmlns:d="urn:d"'
    ' xmlns:b="urn:b" office:mimetype="application/vnd.oasis.opendocument.{}"><office:body>{}</office:body></office:document>'
)


@pytest.mark.parametrize("name", ["a.fodt", "a.xml", "a"])
def test_flat_opendocument_is_read_as_the_packed_one(name: str) -> None:
    body = '<office:text><t:h t:outline-level="1">Rent</t:h><t:p>It is <t:span>40</t:span> euro</t:p></office:text>'
    found = readers.read(name, FLAT.format("text", body).encode())
    assert (found.kind, texts(found)) == ("document", {"Rent": "Rent\n\nIt is 40 euro\n\n"})
    slides = readers.read(
        "a.fodp", FLAT.format("presentation", "<d:page><d:text-box><t:p>Slide words</t:p></d:text-box></d:page>").encode()
    )
    assert texts(slides)["slide 1"].strip() == "Slide words"


def test_a_flat_table_names_its_columns() -> None:
    def row(*cells: str) -> str:
        return f"<b:table-row>{''.join(f'<b:table-cell><t:p>{cell}</t:p></b:table-cell>' for cell in cells)}</b:table-row>"

    gap = '<b:table-cell b:number-columns-repeated="1000000"/>'
    table = f"<office:spreadsheet><b:table b:name='Costs'>{row('Item', 'Cost')}{row('Pump', '40')}<b:table-row>{gap}</b:table-row></b:table></office:spreadsheet>"
    found = readers.read("a.fods", FLAT.format("spreadsheet", table).encode())
    assert texts(found) == {"Costs": "| Item | Cost |\n| Item: Pump | Cost: 40 |\n"}
    with pytest.raises(Unreadable, match="not valid XML"):
        readers.read("a.fods", b"<office:document><broken")


def test_items_of_lists_in_opendocument_have_their_marks() -> None:
    inner = "<t:list><t:list-item><t:p>First</t:p><t:list><t:list-item><t:p>Nested</t:p></t:list-item></t:list></t:list-item></t:list><t:p>After</t:p>"
    content = f"<o:document-content {OPEN}><o:body><o:text>{inner}</o:text></o:body></o:document-content>"
    data = packed(**{"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})
    assert readers.read("a.odt", data).parts[0].text == "- First\n  - Nested\nAfter\n\n"


def test_a_book_without_a_container_is_read_in_its_order() -> None:
    page = "<html><body><h1>{0}</h1><p>Words of {0}</p></body></html>"
    package = '<package><metadata><title>Book</title></metadata><manifest><item id="a" href="2.xhtml"/><item id="b" href="1.xhtml"/></manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>'
    data = packed(**{"mimetype": "application/epub+zip", "c.opf": package, "1.xhtml": page.format("one"), "2.xhtml": page.format("two")})
    found = readers.read("b.epub", data)
    assert (found.title, [part.title for part in found.parts]) == ("Book", ["two", "one"])


MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def workbook(rows: str, after: str = "") -> bytes:
    relation = f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r" Type="{R}/{{}}" Target="{{}}"/></Relationships>'
    return packed(
        **{
            "[Content_Types].xml": f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/></Types>',
            "_rels/.rels": relation.format("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{R}"><sheets><sheet name="S" sheetId="1" r:id="r"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relation.format("worksheet", "worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData>{after}</worksheet>',
        }
    )


def cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def test_a_cell_that_spans_rows_is_in_each_and_formulas_without_results_are_told() -> None:
    rows = f'<row r="3">{cell("B3", "Team")}{cell("C3", "Name")}</row><row r="4">{cell("B4", "Blue")}{cell("C4", "Kim")}</row><row r="5"><c r="B5"/>{cell("C5", "Bo")}</row><row r="6">{cell("B6", "Red")}<c r="C6"><f>SUM(1,2)</f></c></row>'
    found = readers.read("a.xlsx", workbook(rows, '<mergeCells count="1"><mergeCell ref="B4:B5"/></mergeCells>'))
    assert "| Team: Blue | Name: Bo |" in found.parts[0].text
    assert "1 of its formulas" in found.told[0]
    whole = readers.read("a.xlsx", workbook(rows.replace("</f>", "</f><v>3</v>")))
    assert not whole.told


OPEN = 'xmlns:o="urn:oasis:names:tc:opendocument:xmlns:office:1.0" xmlns:t="urn:oasis:names:tc:opendocument:xmlns:text:1.0" xmlns:d="urn:x" xmlns:dc="http://purl.org/dc/elements/1.1/"'


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (
            "The rent<t:note><t:note-citation>1</t:note-citation><t:note-body><t:p>See five</t:p></t:note-body></t:note> is 40.",
            "The rent[1] is 40.\n[1] See five",
        ),
        (
            "Look<o:annotation><dc:creator>Clara</dc:creator><dc:date>2024</dc:date><t:p>Check it</t:p></o:annotation> here",
            "Look here\ncomment by Clara: Check it",
        ),
        ("<d:text-box><t:p>Box one</t:p><t:p>Box two</t:p></d:text-box>after", "Box one\nBox two\nafter"),
        ("<t:ruby><t:ruby-base>田中</t:ruby-base><t:ruby-text>たなか</t:ruby-text></t:ruby>さん", "田中(たなか)さん"),
    ],
)
def test_notes_comments_and_boxes_stand_beside_a_paragraph(inner: str, said: str) -> None:
    content = f"<o:document-content {OPEN}><o:body><o:text><t:p>{inner}</t:p></o:text></o:body></o:document-content>"
    data = packed(**{"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})
    assert readers.read("a.odt", data).parts[0].text.strip() == said


def test_notes_within_notes_are_read_once_each() -> None:
    inner = "<t:note><t:note-citation>1</t:note-citation><t:note-body><t:p>deep " * 40 + "</t:p></t:note-body></t:note>" * 40
    content = f"<o:document-content {OPEN}><o:body><o:text><t:p>{inner}</t:p></o:text></o:body></o:document-content>"
    data = packed(**{"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content})
    assert readers.read("a.odt", data).parts[0].text.count("deep") == 40


def test_slides_are_read_with_their_diagrams_charts_and_comments_and_each_form_of_a_drawing_once() -> None:
    def paragraph(text: str) -> str:
        return f"<a:p><a:r><a:t>{text}</a:t></a:r></a:p>"

    mc = "http://schemas.openxmlformats.org/markup-compatibility/2006"
    forms = f"<mc:AlternateContent><mc:Choice>{paragraph('x plus y')}</mc:Choice><mc:Fallback>{paragraph('x plus y')}</mc:Fallback></mc:AlternateContent>"
    related = "".join(
        f'<Relationship Id="{kind}" Type="{R}/{kind}" Target="../{kind}.xml"/>' for kind in ("diagramData", "chart", "comments")
    )
    cells = "<c:ser><c:tx><c:v>Cost</c:v></c:tx><c:cat><c:pt idx='1'><c:v>Roof</c:v></c:pt></c:cat><c:val><c:pt idx='1'><c:v>40000</c:v></c:pt></c:val></c:ser>"
    data = packed(**{
        "ppt/slides/slide1.xml": f"<p:sld {A} xmlns:mc='{mc}'>{forms}</p:sld>",
        "ppt/slides/_rels/slide1.xml.rels": f'<Relationships xmlns="{PACKAGE}/relationships">{related}</Relationships>',
        "ppt/diagramData.xml": f"<dgm {A}>{paragraph('First ask Clara')}</dgm>",
        "ppt/chart.xml": f"<chart {A} xmlns:c='c'>{paragraph('By year')}{cells.replace('<c:tx><c:v>', '<c:tx><c:pt>').replace('</c:v></c:tx>', '</c:pt></c:tx>')}</chart>",
        "ppt/comments.xml": f"<p:cmLst {A}><p:cm><p:text>Check the price</p:text></p:cm></p:cmLst>",
    })  # fmt: skip
    lines = readers.read("a.pptx", data).parts[0].text.splitlines()
    assert lines == ["x plus y", "First ask Clara", "By year", "Cost: Roof: 40000", "comment: Check the price"]


def test_structured_files_in_their_own_encodings() -> None:
    outline = (
        '<?xml version="1.0" encoding="ISO-8859-1"?><opml><head><title>Schlüssel</title></head><body><outline text="Müller"/></body></opml>'
    )
    found = readers.read("a.opml", outline.encode("latin-1"))
    assert (found.title, found.parts[0].text) == ("Schlüssel", "- Müller\n")
    card = "BEGIN:VCARD\nVERSION:2.1\nN;CHARSET=ISO-8859-1;ENCODING=QUOTED-PRINTABLE:M=FCller;J=FCrgen\nTEL;WORK;VOICE:030\nTEL;TYPE=CELL:0170\nEND:VCARD\n"
    assert readers.read("a.vcf", card.encode()).parts[0].text == "Müller, Jürgen\ntelephone (work): 030\ntelephone (cell): 0170\n"
    assert "Rent note text is due" in readers.read("a.rtf", rb"{\rtf1\ansi Rent{\footnote note text} is due}").parts[0].text


def test_a_notebook_shows_errors_and_tables() -> None:
    outputs = [{"output_type": "error", "ename": "ValueError", "evalue": "bad key"}, {"data": {"text/html": "<b>Clara</b>"}}]
    book = {"cells": [{"cell_type": "code", "source": "x", "outputs": outputs}]}
    text = readers.read("a.ipynb", json.dumps(book).encode()).parts[0].text
    assert "ValueError: bad key\n" in text
    assert "Clara" in text
