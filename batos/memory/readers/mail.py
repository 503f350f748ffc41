"""Mail reader: a part for each message with its text, and parts for attachments. Saved pages (MHTML) are mail, too."""

from __future__ import annotations

import email
import email.header
import email.message
import email.policy
import email.utils
import pathlib
from collections.abc import Callable, Iterator

from batos.errors import BatosError, Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import charset, html

_KIND = "mail"
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MESSAGES = 100_000  # greatest number of messages in one mailbox
_DEEPEST = 3  # greatest depth of mails within mails

Other = Callable[[str, bytes], Draft]
"""Reads an attachment: takes its name and its bytes."""


def read_mail(path: pathlib.PurePath, data: bytes, other: Other, deep: int = 0) -> Draft:
    """Return the draft of a message or a mailbox.

    :raises Unreadable: if the data is not mail.
    """
    told: list[str] = []
    parts: list[DraftPart] = []
    title, day = "", 0
    for number, one in enumerate(_messages(data)):
        if number >= _MESSAGES:
            raise Unreadable(f"it has more than {_MESSAGES} messages: split it")
        message = email.message_from_bytes(one, policy=email.policy.compat32)
        subject, when = _header(message, "Subject"), _day(message)
        parts += _parts(message, subject, when, other, deep, told)
        title, day = title or subject, day or when
    if not parts:
        raise Unreadable("it has no text")
    return Draft(_KIND, path.stem if len(parts) > 1 and data.startswith(b"From ") else title or path.stem, parts, day=day, told=tuple(told))


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a mailbox, in which a line `From …` begins each; or the one that there is."""
    if not data.startswith(b"From "):
        yield data
        return
    begin = 0
    while begin >= 0:
        end = data.find(b"\nFrom ", begin)
        whole = data[begin : end + 1 if end >= 0 else len(data)]
        yield whole.partition(b"\n")[2]
        begin = end + 1 if end >= 0 else -1


def _parts(message: email.message.Message, subject: str, day: int, other: Other, deep: int, told: list[str]) -> Iterator[DraftPart]:
    head = "".join(f"{name}: {value}\n" for name in _SHOWN if (value := _header(message, name)))
    plain, rich, attached = [], [], []
    for part in message.walk():
        if part.is_multipart():
            continue
        name, kind = _file_name(part), part.get_content_type()
        data = part.get_payload(decode=True)
        if not isinstance(data, bytes) or not data.strip():
            continue
        if name and (part.get_content_disposition() == "attachment" or not kind.startswith("text/")):
            attached.append((name, data))
        elif kind == "text/plain":
            plain.append(_text(data, part, told))
        elif kind in ("text/html", "application/xhtml+xml"):
            rich.append(_text(data, part, told))
    said = "\n".join(plain) if any(text.strip() for text in plain) else "\n".join(map(html.text_of, rich))
    if head or said.strip():
        yield DraftPart(f"{head}\n{said}\n", subject, day)
    for name, data in attached:
        yield from _attachment(name, data, subject, day, other, deep, told)


def _attachment(name: str, data: bytes, subject: str, day: int, other: Other, deep: int, told: list[str]) -> Iterator[DraftPart]:
    try:
        if deep >= _DEEPEST:
            raise Unreadable(f"it is in {deep} other files")
        draft = other(name, data)
    except BatosError as e:
        told.append(f"{name}, which is attached, was not read: {e.message}")
        return
    told += [f"{name}, which is attached: {one}" for one in draft.told]
    way = f"{subject} > {name}" if subject else name
    for part in draft.parts:
        yield part._replace(title=f"{way} > {part.title}" if part.title else way, day=part.day or draft.day or day)


def _text(data: bytes, part: email.message.Message, told: list[str]) -> str:
    found = charset.decoded(data, str(part.get_content_charset() or ""))
    told += found.told
    return found.text


def _header(message: email.message.Message, name: str) -> str:
    """Return a header in its own letters."""
    value = message.get(name)
    if value is None:
        return ""
    found = []
    try:
        for words, encoding in email.header.decode_header(value):
            found.append(words if isinstance(words, str) else charset.decoded(words, encoding or "").text if words else "")
    except (email.errors.HeaderParseError, BatosError, ValueError):
        return " ".join(str(value).split())
    return " ".join("".join(found).split())


def _day(message: email.message.Message) -> int:
    try:
        return email.utils.parsedate_to_datetime(_header(message, "Date")).toordinal()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0


def _file_name(part: email.message.Message) -> str:
    found = part.get_filename()
    if not found and part.get_content_type() == "message/rfc822":
        return "message.eml"
    return pathlib.PurePath(" ".join(_decoded_name(found).split())).name if found else ""


def _decoded_name(name: str) -> str:
    try:
        return "".join(
            words if isinstance(words, str) else words.decode(charset.known(encoding or "") or "utf-8", "replace")
            for words, encoding in email.header.decode_header(name)
        )
    except (email.errors.HeaderParseError, ValueError):
        return name
