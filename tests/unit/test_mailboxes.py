"""Mails within mails, and mailboxes of which a part cannot be read: nothing is lost silently, and nothing keeps another from being read."""

from __future__ import annotations

import base64
import datetime

import pytest

from batos.errors import Unreadable
from batos.memory import readers

INNERMOST = "From: clara@x.y\nSubject: innermost\nDate: Tue, 13 Jun 2023 10:15:00 +0200\n\nThe key is under the oak.\n"
BINARY = base64.encodebytes(bytes(range(256)) * 20).decode()


def forwarded(times: int) -> str:
    inner = INNERMOST
    for at in range(times):
        inner = (
            f"From: p{at}@x.y\nSubject: level {at}\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=z{at}x\n\n"
            f"--z{at}x\nContent-Type: text/plain\n\nsee below {at}\n--z{at}x\nContent-Type: message/rfc822\n\n{inner}\n--z{at}x--\n"
        )
    return inner


def box(*messages: str) -> bytes:
    return "".join(f"From a@x.y Mon Jun 12 10:15:0{at % 10} 2023\n{message}\n" for at, message in enumerate(messages)).encode()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_mail_forwarded_within_others_has_its_own_part_and_day(times: int) -> None:
    found = readers.read("a.eml", forwarded(times).encode())
    assert len(found.parts) == times + 1
    last = found.parts[-1]
    assert last.day == datetime.date(2023, 6, 13).toordinal()
    assert last.title.endswith("innermost")
    assert "From: clara@x.y" in last.text
    assert "The key is under the oak." in last.text
    assert found.told == ()


@pytest.mark.parametrize("times", [4, 8, 40])
def test_what_is_forwarded_deeper_than_files_are_read_says_who_wrote_it(times: int) -> None:
    found = readers.read("a.eml", forwarded(times).encode())
    text = "".join(part.text for part in found.parts)
    for at in range(times):
        assert f"From: p{at}@x.y\n" in text
        assert text.count(f"see below {at}\n") == 1
    assert text.index("Subject: level 0") < text.index("From: clara@x.y") < text.index("The key is under the oak.")
    assert found.told == ()


def test_what_is_forwarded_without_end_is_bounded_and_told() -> None:
    found = readers.read("a.eml", forwarded(60).encode())
    assert "see below 59" in found.parts[0].text
    assert "under the oak" not in "".join(part.text for part in found.parts)
    assert found.told[0].endswith("message.eml, which is forwarded, was not read: it is in 53 other mails")
    with pytest.raises(Unreadable, match="nested too deep"):
        readers.read("a.eml", forwarded(3000).encode())


def test_a_mail_that_is_forwarded_in_base64_is_read() -> None:
    inner = base64.encodebytes(INNERMOST.encode()).decode()
    part = f"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n{inner}"
    outer = f"Subject: Fwd\nContent-Type: multipart/mixed; boundary=q\n\n--q\n{part}\n--q--\n"
    found = readers.read("a.eml", outer.encode())
    assert found.parts[1].title == "Fwd > message.eml > innermost"
    assert "The key is under the oak." in found.parts[1].text


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (f"Subject: bad\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{BINARY}", "it is binary data"),
        (f"Subject: bad\n\n{'A' * 120_000}\n", "a word of more than"),
        (forwarded(3000), "nested too deep"),
    ],
    ids=["binary", "word", "deep"],
)
def test_a_message_that_cannot_be_read_is_told_and_the_others_are_read(bad: str, why: str) -> None:
    found = readers.read("all.mbox", box("Subject: one\n\nhello\n", bad, "Subject: three\n\nbye\n"))
    assert [part.title for part in found.parts] == ["one", "three"]
    assert len(found.told) == 1
    assert found.told[0].startswith("message 2 (")
    assert why in found.told[0]
    with pytest.raises(Unreadable, match=why):
        readers.read("all.mbox", box(bad))
    with pytest.raises(Unreadable, match=why):
        readers.read("a.eml", bad.encode())


def test_a_part_that_cannot_be_read_does_not_hide_the_rest_of_its_mail() -> None:
    mail = (
        "From: a@x.y\nSubject: Keys\nContent-Type: multipart/mixed; boundary=q\n\n--q\nContent-Type: text/plain\n\nThe key is here.\n"
        f"--q\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n{BINARY}\n--q--\n"
    )
    found = readers.read("a.eml", mail.encode())
    assert "The key is here." in found.parts[0].text
    assert found.told[0].startswith("a part of the mail was not read: it is binary data")


def mixed(part: str) -> bytes:
    head = "From: a@x.y\nSubject: Keys\nContent-Type: multipart/mixed; boundary=q\n\n--q\nContent-Type: text/plain\n\nSee below.\n"
    return f"{head}--q\n{part}\n--q--\n".encode()


@pytest.mark.parametrize(
    "mail",
    [
        "Content-Type: multipart/encrypted; boundary=p\n\n--p\nContent-Type: application/pgp-encrypted\n\nVersion: 1\n"
        "--p\nContent-Type: application/octet-stream\n\n-----BEGIN PGP MESSAGE-----\nabc\n--p--\n",
        'Content-Type: application/pkcs7-mime; name="smime.p7m"\nContent-Transfer-Encoding: base64\n\nMIIB\n',
    ],
    ids=["pgp", "s/mime"],
)
def test_a_mail_that_is_encrypted_says_so(mail: str) -> None:
    found = readers.read("a.eml", f"From: a@x.y\nSubject: Secret\n{mail}".encode())
    assert [part.text.strip() for part in found.parts] == ["From: a@x.y\nSubject: Secret"]
    assert found.told == ("its text is encrypted or signed as a whole: only its head was read",)


def test_what_is_attached_without_a_name_is_read_or_told() -> None:
    board = readers.read("a.eml", mixed("Content-Type: application/json\n\n[1, 2]"))
    assert board.parts[1].text.strip() == "[1, 2]"
    unknown = readers.read("a.eml", mixed(f"Content-Type: application/octet-stream\nContent-Transfer-Encoding: base64\n\n{BINARY}"))
    assert [part.title for part in unknown.parts] == ["Keys"]
    assert unknown.told[0].startswith("attachment.bin, which is attached, was not read: it is binary data")


@pytest.mark.parametrize("before", [b"\n", b"\r\n\r\n", b"\xef\xbb\xbf"])
def test_blank_lines_and_a_mark_before_the_first_mail_hide_none(before: bytes) -> None:
    found = readers.read("all.mbox", before + box("Subject: one\n\nhello\n", "Subject: two\n\nbye\n"))
    assert [part.title for part in found.parts] == ["one", "two"]
    assert readers.read("a.eml", before + INNERMOST.encode()).title == "innermost"


@pytest.mark.parametrize(
    ("more", "body", "said"),
    [
        ("", "A long \nparagraph \nflows.\n\nNext\n", "A long paragraph flows.\n\nNext\n"),
        ("", "> one \n> two\n>> deep \n> other\nmine\n-- \nKim\n", "> one two\n>> deep \n> other\nmine\n-- \nKim\n"),
        ("", " From here\n >no quotation\n", "From here\n>no quotation\n"),
        ("; DelSp=Yes", "日本 \n語です\n", "日本語です\n"),
    ],
)
def test_paragraphs_that_flow_are_whole(more: str, body: str, said: str) -> None:
    mail = f"From: a@b.c\nSubject: S\nContent-Type: text/plain; charset=utf-8; format=Flowed{more}\n\n{body}"
    assert readers.read("m.eml", mail.encode()).parts[0].text == f"From: a@b.c\nSubject: S\n\n{said}\n"
