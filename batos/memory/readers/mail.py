"""Mail reader: a part for each message with its text, and parts for attachments. Saved pages (MHTML) are mail, too."""

from __future__ import annotations

import email
import email.header
import email.message
import email.parser
import email.policy
import email.utils
import mimetypes
import pathlib
import re
from collections.abc import Callable, Iterator

from batos.errors import BatosError, Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import charset, html

_KIND = "mail"
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_MESSAGES = 100_000  # greatest number of messages in one mailbox
_DEEPEST = 3  # greatest depth of files within mails; what is forwarded deeper stands in the text of the mail that it is in
_FORWARDED = 50  # greatest depth of forwarded mails in that text
_BEGINS = re.compile(
    rb"\nFrom (?:[^\n]{0,120}?\d:\d\d[^\n]{0,40}?\d{4}[^\n]{0,40}"
    rb"|(?:[^\s@]{0,80}@[^\n]{0,120}|\S{1,80}[ \t\r]{0,3})(?=\n[!-9;-~]{1,80}:))(?=\n)"
)
"""Matches the line between two messages of a mailbox. A text may have lines that begin with this word, too."""
_QUOTED = re.compile(rb"^>(>*+From )", re.MULTILINE)
_TEXTS = ("text/plain", "text/html", "application/xhtml+xml")
_WORDLESS = frozenset(
    (
        "text/css",
        "text/javascript",
        "text/ecmascript",
        "application/pgp-signature",
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
    )
)
_LOCKED = ("multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime")
_NAMELESS = {"text/calendar": "invitation.ics", "text/csv": "table.csv", "text/markdown": "text.md", "text/vcard": "card.vcf",
             "text/x-vcard": "card.vcf", "text/rtf": "text.rtf", "application/rtf": "text.rtf"}  # fmt: skip
"""Kinds of parts that need no name to be read -> a name whose suffix says how."""
_STUB = 3  # times as many words in the HTML as in the plain text beside it: that only says that there is HTML

Other = Callable[[str, bytes], Draft]
"""Reads an attachment: takes its name and its bytes."""


def read_mail(path: pathlib.PurePath, data: bytes, other: Other, deep: int = 0) -> Draft:
    """Return the draft of a message or a mailbox.

    A message that cannot be read does not keep those beside it from being read: the draft reports it.

    :raises Unreadable: if the data is not mail, or no message of it can be read.
    """
    told: list[str] = []
    parts: list[DraftPart] = []
    title, day = "", 0
    data = data.lstrip(b"\xef\xbb\xbf\r\n")
    is_box = data.startswith(b"From ")
    failed: Unreadable | None = None
    for number, one in enumerate(_messages(data)):
        if number >= _MESSAGES:
            raise Unreadable(f"it has more than {_MESSAGES} messages: split it")
        subject = ""
        try:
            head = email.parser.BytesHeaderParser(policy=email.policy.compat32).parsebytes(one)
            subject, when = _header(head, "Subject"), _day(head)
            parts += _read(one, subject, when, other, deep, told)
        except Unreadable as e:
            failed = failed or e
            told.append(f"message {number + 1}{f' ({subject})' if subject else ''} was not read: {e.message}")
            continue
        title, day = title or subject, day or when
    if failed is not None and not parts:
        raise failed
    if not parts:
        raise Unreadable("it has no text")
    return Draft(_KIND, path.stem if len(parts) > 1 and is_box else title or path.stem, parts, day=day, told=tuple(told))


def _read(data: bytes, subject: str, day: int, other: Other, deep: int, told: list[str]) -> list[DraftPart]:
    """Return the parts of one message.

    :raises Unreadable: for a message that is not text, or whose parts are nested too deep.
    """
    said: list[str] = []
    try:
        parts = list(_parts(email.message_from_bytes(data, policy=email.policy.compat32), subject, day, other, deep, said))
    except RecursionError:
        raise Unreadable("its parts are nested too deep") from None
    for part in parts:
        charset.check_words(part.text)
    told += said
    return parts


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the messages of a mailbox, in which a line `From …` with a time begins each; or the one that there is."""
    if not data.startswith(b"From "):
        yield data
        return
    begin = 0
    while begin >= 0:
        found = _BEGINS.search(data, begin)
        whole = data[begin : found.start() + 1 if found else len(data)]
        yield _QUOTED.sub(rb"\1", whole.partition(b"\n")[2])
        begin = found.start() + 1 if found else -1


class _Content:
    """Texts and attachments of a message, in order."""

    def __init__(self, told: list[str], deep: int) -> None:
        self.texts: list[str] = []
        self.attached: list[tuple[str, bytes]] = []
        self._told, self._deep, self._forwarded = told, deep, 0

    def add(self, part: email.message.Message) -> None:
        """Add a part, or the parts that it has. Of the alternatives of one text it takes the plain one, unless that lacks most words."""
        kind = part.get_content_type()
        if kind == "message/rfc822":
            for one in _parts_of(part):
                self._forward(_file_name(part) or "message.eml", one, str(part.get("Content-Transfer-Encoding", "")).strip().lower())
        elif kind in _LOCKED:
            self._told.append("its text is encrypted or signed as a whole: only its head was read")
        elif kind == "multipart/alternative":
            self._choose(_parts_of(part))
        elif part.is_multipart():
            for one in _parts_of(part):
                self._add_one_of(one)
        else:
            self._add_leaf(part, kind)

    def _add_one_of(self, part: email.message.Message) -> None:
        """Add one of several parts; the draft reports one that cannot be read."""
        try:
            self.add(part)
        except Unreadable as e:
            self._told.append(f"a part of the mail was not read: {e.message}")

    def _forward(self, name: str, message: email.message.Message, coding: str) -> None:
        """Add a mail that is forwarded: as a file, or deeper than files are read in the text, below its own head.

        :param coding: encoding of the whole mail, as some programs use it against the standard; the parser then takes it for a text.
        """
        if coding in ("base64", "quoted-printable") and not message.keys():
            leaf = email.message.Message()
            leaf["Content-Transfer-Encoding"] = coding
            leaf.set_payload(message.get_payload())
            data = leaf.get_payload(decode=True)
            message = email.message_from_bytes(data if isinstance(data, bytes) else b"", policy=email.policy.compat32)
        if self._deep < _DEEPEST:
            self.attached.append((name, message.as_bytes()))
        elif self._forwarded < _FORWARDED:
            self._forwarded += 1
            self.texts.append(f"\n{_head(message)}")
            self.add(message)
            self._forwarded -= 1
        else:
            self._told.append(f"{name}, which is forwarded, was not read: it is in {self._deep + self._forwarded} other mails")

    def _add_leaf(self, part: email.message.Message, kind: str) -> None:
        name, data = _file_name(part), part.get_payload(decode=True)
        if not isinstance(data, bytes) or not data.strip():
            return
        if kind in _TEXTS and not (name and part.get_content_disposition() == "attachment"):
            text = _text(data, part, self._told)
            if kind == "text/plain" and _parameter(part, "format") == "flowed":
                text = _unflowed(text, spaced=_parameter(part, "delsp") != "yes")
            if kind != "text/plain":
                page = html.read_html(pathlib.PurePath("mail"), text)
                self._told += page.told
                text = "".join(piece.text for piece in page.parts)
            self.texts.append(text)
        elif kind in _WORDLESS:
            return
        elif name or kind in _NAMELESS:
            self.attached.append((name or _NAMELESS[kind], data))
        elif kind.startswith("text/"):
            self.texts.append(_text(data, part, self._told))
        elif not kind.startswith("image/"):  # pictures without a name are ornaments
            self.attached.append((f"attachment{mimetypes.guess_extension(kind) or ''}", data))

    def _choose(self, parts: list[email.message.Message]) -> None:
        """Add the best alternative, and what others have beside their texts: an invitation, for example."""
        ways = []
        for part in parts:
            way = _Content(self._told, self._deep)
            way._forwarded = self._forwarded
            way._add_one_of(part)
            if any(text.strip() for text in way.texts):
                ways.append(way)
            self.attached += way.attached
        if ways:
            plain, rich = ways[0], max(ways, key=lambda way: way.words())
            self.texts += (rich if plain.words() * _STUB < rich.words() else plain).texts

    def words(self) -> int:
        """Return the number of words of its texts; links do not count."""
        return sum("//" not in word for text in self.texts for word in text.split())


def _parts_of(part: email.message.Message) -> list[email.message.Message]:
    inner = part.get_payload()
    return [one for one in inner if isinstance(one, email.message.Message)] if isinstance(inner, list) else []


def _parts(message: email.message.Message, subject: str, day: int, other: Other, deep: int, told: list[str]) -> Iterator[DraftPart]:
    head = _head(message)
    content = _Content(told, deep)
    content.add(message)
    said = "\n".join(text for text in content.texts if text.strip())
    if head or said.strip():
        yield DraftPart(f"{head}\n{said}\n", subject, day)
    for name, data in content.attached:
        yield from _attachment(name, data, subject, day, other, deep, told)


def _head(message: email.message.Message) -> str:
    return "".join(f"{name}: {value}\n" for name in _SHOWN if (value := _header(message, name)))


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


def _parameter(part: email.message.Message, name: str) -> str:
    value = part.get_param(name)
    return value.strip().lower() if isinstance(value, str) else ""


def _unflowed(text: str, *, spaced: bool) -> str:
    """Return a text of format=flowed (RFC 3676) with its paragraphs whole: a line that ends with a blank goes on in the next one.

    :param spaced: False if that blank does not belong to the text, as in Japanese.
    """
    paragraphs: list[list[str]] = []
    goes_on, last = False, 0
    for line in text.split("\n"):
        quoted = len(line) - len(line.lstrip(">"))
        words = line[quoted:].removeprefix(" ")
        is_mark = words == "-- "  # of a signature
        if goes_on and quoted == last and not is_mark:
            paragraphs[-1].append(words)
        else:
            paragraphs.append([">" * quoted + " " * bool(quoted), words])
        goes_on, last = words.endswith(" ") and not is_mark, quoted
        if goes_on and not spaced:
            paragraphs[-1][-1] = words[:-1]
    return "\n".join(map("".join, paragraphs))


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
    return pathlib.PurePath(" ".join(_decoded_name(found).split())).name if found else ""


def _decoded_name(name: str) -> str:
    try:
        return "".join(
            words if isinstance(words, str) else words.decode(charset.known(encoding or "") or "utf-8", "replace")
            for words, encoding in email.header.decode_header(name)
        )
    except (email.errors.HeaderParseError, ValueError):
        return name
