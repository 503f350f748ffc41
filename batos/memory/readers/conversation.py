"""Conversation reader: exports of chats, and texts written like them; each turn becomes a chunk.

* Lines that begin with a time and a name, or with a name alone, under or with dates. So write WhatsApp, Telegram, LINE, KakaoTalk,
  Discord, Teams, Signal and IRC. A line with a time before the name begins a turn of any speaker: an unknown number, a name with an
  emoji. A program's own notice ("Anna joined") has no speaker. The whole file decides on the form of its times, and on the order of day
  and month.
* Exports in JSON, as Telegram, Slack, Discord, Facebook and services of models write them.
* Exports as pages, as Telegram and programs for Discord write them.
"""

from __future__ import annotations

import datetime
import html
import json
import pathlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from batos.memory.drafts import Draft, DraftPart, Turn
from batos.memory.readers import dates

_MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
_PLAIN = dict.fromkeys(map(ord, _MARKS)) | dict.fromkeys(map(ord, "\xa0\u2009\u202f"), " ") | {0x060C: ","}
"""Table that takes marks of direction and odd spaces out of a line."""
_DATE = (
    r"(?:(?:\d{1,4}[./-][ ]?\d{1,2}[./-][ ]?\d{2,4}|\d{4}[./-][ ]?\d{1,2}[./-][ ]?\d)\.?(?!\d|:\d)(?:[ ]?г\.?)?"
    r"|\d{4}[ ]?[年년][ ]?\d{1,2}[ ]?[月월][ ]?\d{1,2}[ ]?[日일]"
    r"|\d{1,2}\.?[ ](?:de[ ])?[^\W\d_]{3,12}\.?,?(?:[ ]de)?[ ]\d{4}|\d{1,2}-[^\W\d_]{3,10}\.?-\d{2,4}(?!\d)"
    r"|[^\W\d_]{3,10}\.?[ ]\d{1,2},[ ]\d{4}|\d{4}\.?[ ][^\W\d_]{3,12}\.?[ ]\d{1,2}\.?)(?:\([^()\n]{1,6}\))?"
)
_CLOCK = r"(?:\d{1,2}[:.]\d\d(?:[:.]\d\d)?|\d{1,2}[ ]?h[ ]?\d\d(?!\w))"
_TIME = (
    rf"(?:[AaPp][Mm][ ]|[上下]午|午[前後]|오[전후][ ])?{_CLOCK}"
    r"(?:[ ]?[AaPp]\.?[ ]?[Mm]\.?|(?:\.\d{1,6})?(?:Z|[ ]?[+-]\d\d:?\d\d)(?![\w:]))?"
)
_STAMP = rf"(?:{_DATE}(?:[ ,T]{{1,3}}(?:(?:um|at|à|alle|a las|om|klo|kl\.?|в|о)[ ])?{_TIME})?|{_TIME}(?:,?[ ]{_DATE})?)"
_STAMPED = re.compile(rf"(?:\[(?P<a>[^\[\]\n]{{4,48}})\]|\((?P<b>{_STAMP})\)|(?P<c>{_STAMP}))(?:[ ]{{0,2}}[-–—:,])?[ \t]{{0,2}}")
_DASHED = re.compile(r"(?P<a>(?:[^\n–—\[\]<>|\t:：]|:(?=\d)){6,60}?)[ ][-–—][ ]")
"""Matches date and time in any language, with a dash behind them."""
_YEARLESS = re.compile(r"(?<!\d)\d{1,2}[./]\d{1,2}\.?(?=,?[ ])")
"""Matches a day without its year, as Teams writes one in brackets."""
_DATED, _TIMED = re.compile(_DATE), re.compile(rf"(?<![\d:.]){_CLOCK}(?:\.\d{{1,6}})?(?:[ ]?[+-]\d\d:?\d\d)?(?![\d:])")
_PERIOD_CHARS = 14  # greatest number of letters beside the date and the time in a stamp, as in "a las", "п.п." or "ก่อนเที่ยง"
_NICK = re.compile(r"(?:[^\W\d_]{3}[ ]{1,2}\d{1,2}[ ]\d\d:\d\d:\d\d[ ])?<[ @+%&~!]?(?P<name>[^<>\s]{1,40})>[ \t]")
_ANYBODY = re.compile(r"[~ *]{0,4}(?P<name>[^\n:：\t=\[\]{}<>|]{1,60}?)[ *]{0,3}(?::\*{0,2}(?=[ \t\n]|\Z)|：|\t)")
_NAMED = re.compile(
    r"\*{0,2}(?P<name>[^\W\d_][\w.'’-]*+(?:[ ][^\W\d_][\w.'’-]*+){0,3}(?:[ ]?\(\w{1,40}\))?(?:[ ][^\w\s:]{1,6})?)\*{0,2}"
    r"(?::\*{0,2}(?=[ \t])|：)"
)
_TELEGRAM = re.compile(rf"(?P<name>[^\n\[\]]{{1,60}}?),?[ ]\[(?P<a>{_DATE}[ ,]{{1,2}}{_TIME})\]:?[ \t]*(?=\n|\Z)")
_BEHIND = re.compile(rf"(?P<name>[^\n\[\]:]{{1,60}}?)[ ][—–][ ](?P<a>{_DATE}[ ,]{{1,2}}(?:at[ ])?{_TIME})[ ]{{0,4}}(?=\n|\Z)")
"""Matches a name with date and time behind it, as Discord shows them."""
_KAKAO = re.compile(r"\[(?P<name>[^\[\]\n]{1,40})\][ ]\[(?P<a>[^\[\]\n]{4,16})\][ ]")
_NOTICES = ("***", "-!-", "-->", "<--", "--\t")
"""Marks of IRC programs before a notice."""
_QUOTES = ("“”", "„“", "«»", "「」", "‘’", '""')
_FROM_TO = re.compile(r"From[ ]{1,3}(?P<name>[^\n:]{1,60}?)(?:[ ]{1,3}to[ ]{1,3}[^\n:]{1,60})?\Z")
"""Matches what Zoom writes for a name."""
_BESIDE_NAME = re.compile(r"\([^()]{1,40}\)")
"""Matches what a contact has behind its name: firm, town, or whose mother it is."""
_PHONE = re.compile(r"[+(]?[\d ()/.-]{6,24}\Z")
_LINE_CHARS = 240  # characters of the start of a line that are looked at
_HEADING_CHARS = 80  # greatest number of characters of a line that dates a session
_SHARE = 0.5  # share of lines that start a turn above which the text is a conversation
_STAMPED_SHARE = 0.1  # the same share for texts in which each turn has a time
_HEADED_SHARE = 0.7  # least share of the names alone behind times that have words below
_LOOKED_AT = 1 << 14  # characters at the start of a Markdown file in which turns with times stand
_STAMPED_LINE = re.compile(r"^[\[(\u200e]{0,2}\d[\d./-]{5,9}[^\n]{0,14}\d:\d\d", re.MULTILINE)
_HEADING = re.compile(r"^(?:#{1,6}[ \t]|---$)", re.MULTILINE)
_FEWEST = 4  # least number of turns
_UNIT_CHARS = 3  # greatest number of letters beside an amount
_WORDS = 6  # greatest number of words of a name
_FIRST_YEAR, _LAST_YEAR = 1970, 2200  # years of messages: a date of another calendar is not taken for one of these
_FIELDS = frozenset(
    (
        "note", "notes", "todo", "date", "from", "to", "subject", "cc", "re", "fw", "fwd", "title", "author", "tags", "summary", "abstract",
        "url", "http", "https", "see", "warning", "info", "error", "errors", "warn", "debug", "trace", "fatal", "critical", "notice",
        "severe", "exception", "caused by", "at",
    )
)  # fmt: skip
"""Words before a colon that are not names: fields, and log levels."""
_LEVELS = frozenset(("info", "error", "warn", "warning", "debug", "trace", "fatal", "critical", "notice", "severe"))
"""Log levels, which begin no name."""


class _Begins(NamedTuple):
    """Start of a line in a conversation: a time, a name (empty for a notice without a speaker), or both."""

    name: str
    stamp: str = ""
    rest: str = ""
    """The whole line behind a time, if it has no colon: a name, if the words are in the lines below."""
    bare: bool = False
    """True for a time without brackets: it begins a turn only if a name is behind it."""


def read_stamped(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the conversation that a text is, if its turns have times and it no headings; None for any other: those are notes."""
    head = text[:_LOOKED_AT]
    stamped = len(_STAMPED_LINE.findall(head)) >= _FEWEST and not _HEADING.search(head)
    return read_conversation(path, text) if stamped else None


def read_conversation(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the conversation that a text is; None for one that is none."""
    lines = text.splitlines(keepends=True)
    marks = _of_one_form(_with_names_alone(lines, [_begins(line[:_LINE_CHARS].translate(_PLAIN)) for line in lines]))
    said = [mark for mark in marks if mark and mark.name]
    speakers = {mark.name.casefold() for mark in said}
    stamped = sum(bool(mark.stamp) for mark in said)
    filled = sum(bool(line.strip()) for line in lines)
    if speakers & _FIELDS or {name.split()[0] for name in speakers} & _LEVELS or len(said) < _FEWEST:
        return None
    if stamped * 2 > len(said):  # in a text with times, names without a time are words before a colon
        marks = [mark if mark and mark.stamp else None for mark in marks]
        speakers = {mark.name.casefold() for mark in marks if mark and mark.name}
        if stamped < filled * _STAMPED_SHARE or not 2 <= len(speakers) < len(said):
            return None
    elif len(said) < filled * _SHARE or not 2 <= len(speakers) <= len(said) / 2 or _are_amounts(lines, marks):
        return None
    order, sure = dates.date_order(mark.stamp for mark in marks if mark)
    told = () if sure else (f"its dates may have the day or the month first: read with the {order}",)
    return Draft("conversation", path.stem, _sessions(lines, marks, order), day=dates.day_in_name(path.stem), told=told)


def _are_amounts(lines: list[str], marks: list[_Begins | None]) -> bool:
    """Return True if most lines have numbers alone behind their names: a list of costs, and no conversation."""
    said = [line[len(mark.name) :] for line, mark in zip(lines, marks, strict=True) if mark and mark.name]
    return sum(sum(map(str.isalpha, words)) <= _UNIT_CHARS and any(map(str.isdecimal, words)) for words in said) * 2 > len(said)


def _begins(line: str) -> _Begins | None:
    """Return the start of a line that begins a turn; None for a line that continues one."""
    if (found := _KAKAO.match(line)) and _form(found["a"]) == (False, True):
        return _Begins(_name(found["name"]), found["a"])
    if found := _TELEGRAM.match(line) or _BEHIND.match(line):
        return _Begins(_name(found["name"]), found["a"])
    if (found := _DASHED.match(line)) and _form(found["a"]) == (True, True):
        return _Begins(_speaker(line[found.end() :]), found["a"])
    found = _STAMPED.match(line)
    if found and _form(stamp := found["a"] or found["b"] or found["c"]):
        rest = line[found.end() :]
        name = _speaker(rest)
        if not found["c"] or name:
            return _Begins(name, stamp, rest.strip() if found["a"] and ":" not in rest else "")
        if line[: found.end()].rstrip()[-1:] in "-–—":
            return _Begins("", stamp)
        return _Begins("", stamp, rest.strip(), bare=True) if _form(stamp) == (True, True) and _name(rest) and ":" not in rest else None
    if named := _NICK.match(line) or _NAMED.match(line):
        return _Begins(named["name"].strip())
    return None


def _speaker(rest: str) -> str:
    """Return the name behind a time; empty if there is none."""
    if rest.startswith(_NOTICES):
        return ""
    named = _NICK.match(rest) or _ANYBODY.match(rest)
    return _name(named["name"].lstrip("@%&!") or named["name"]) if named else ""


def _form(stamp: str) -> tuple[bool, bool] | None:
    """Return True for the date, and for the time, that a stamp has; None if it is not a stamp, but words."""
    rest = _DATED.sub(" ", stamp, count=1)
    dated = rest != stamp
    rest = rest if dated else _YEARLESS.sub(" ", stamp, count=1)
    timed = _TIMED.search(rest)
    rest = rest[: timed.start()] + rest[timed.end() :] if timed else rest
    if not (dated or timed) or any(char.isdecimal() for char in rest) or sum(map(str.isalnum, rest)) > _PERIOD_CHARS:
        return None
    return dated, bool(timed)


def _with_names_alone(lines: list[str], marks: list[_Begins | None]) -> list[_Begins | None]:
    """Return the marks with the names that stand alone behind the times, if the words are in the lines below."""
    alone = [at for at, mark in enumerate(marks) if mark and _name(mark.rest)]
    names = {mark.rest for mark in marks if mark and mark.rest}
    named = sum(1 for mark in marks if mark and mark.name and mark.stamp)
    headed = sum(1 for at in alone if at + 1 < len(lines) and marks[at + 1] is None and lines[at + 1].strip())
    if len(alone) < _FEWEST or len(alone) <= named or not 2 <= len(names) < len(alone) or headed < len(alone) * _HEADED_SHARE:
        return [None if mark and mark.bare else mark for mark in marks]
    return [mark._replace(name=_name(mark.rest)) if mark and mark.rest else mark for mark in marks]


def _of_one_form(marks: list[_Begins | None]) -> list[_Begins | None]:
    """Return the marks whose times have the form that most turns of the file have: others belong to the words of a message."""
    forms = Counter(_form(mark.stamp) for mark in marks if mark and mark.name and mark.stamp)
    if not forms:
        return marks
    form = forms.most_common(1)[0][0]
    return [mark if mark and (not mark.stamp or _form(mark.stamp) == form) else None for mark in marks]


def _name(words: str) -> str:
    """Return the text if it is a name; else an empty text."""
    name = words.strip(" \t*~")
    if found := _FROM_TO.match(name):
        name = found["name"]
    if any(marks[0] in name and sum(char in marks for char in name) % 2 for marks in _QUOTES):
        return ""  # a notice that quotes: Anna changed the subject to "Party: June"
    is_name = any(char.isalpha() or unicodedata.category(char) == "So" for char in name) or _PHONE.match(name) is not None
    return name if is_name and len(_BESIDE_NAME.sub(" ", name).split()) <= _WORDS else ""


def _sessions(lines: list[str], marks: list[_Begins | None], order: str) -> list[DraftPart]:
    """Return a part for each stretch of turns of one day. A line with a date in it, or a date before a name, begins another."""
    parts: list[DraftPart] = []
    held: list[tuple[str, str]] = []  # turns: text and speaker
    ahead, title, day, blank = "", "", 0, True  # text before the next turn, its title, its day, and True if the last line was blank

    def close() -> None:
        if held:
            parts.append(_part(held, title, day))
            held.clear()

    for line, mark in zip(lines, marks, strict=True):
        if mark:
            named = _day(mark.stamp, order)
            if named and named != day:
                close()
                title, day = "", named
            held.append((ahead + line, mark.name))
            ahead = ""
        elif (named := _day(line[:_LINE_CHARS], order)) and len(line.strip()) <= _HEADING_CHARS and (blank or line[0] in "#=*-["):
            close()
            title, day, ahead = line.strip(" \t\n#=*-[]"), named, ahead + line
        elif held and not ahead:
            held[-1] = (held[-1][0] + line, held[-1][1])
        else:
            ahead += line
        blank = not line.strip()
    if held:
        held[-1] = (held[-1][0] + ahead, held[-1][1])
    close()
    return parts


def _day(text: str, order: str) -> int:
    """Return the day that a text names, if messages can be of it; else 0."""
    day = dates.day_in(text.translate(_PLAIN), order)
    return day if day and _FIRST_YEAR <= datetime.date.fromordinal(day).year <= _LAST_YEAR else 0


def _part(held: list[tuple[str, str]], title: str, day: int) -> DraftPart:
    text, turns = [], []
    at = 0
    for words, speaker in held:
        turns.append(Turn(at, at + len(words), speaker))
        text.append(words)
        at += len(words)
    return DraftPart("".join(text), title, day, tuple(turns))


# --- exports in JSON

_SENDERS = ("from", "sender_name", "sender", "author", "user_profile", "user_name", "username", "user", "actor", "creator", "role", "u")
_NAMES = (
    "real_name", "display_name", "displayName", "nickname", "global_name", "name", "username", "first_name", "role", "user",
    "application", "id",
)  # fmt: skip
_TIMES = (
    "date", "timestamp", "timestamp_ms", "ts", "created_at", "create_time", "sent_at", "time", "origin_server_ts", "createdDateTime",
    "created_date", "originalarrivaltime",
)  # fmt: skip
_WORDING = ("text", "content", "message", "body", "parts", "blocks", "value", "msg")
_BESIDE = (
    "action",
    "title",
    "question",
    "caption",
    "file",
    "file_name",
    "fileName",
    "filename",
    "photo",
    "attachments",
    "files",
    "photos",
    "poll",
    "share",
    "stickers",
    "sticker_emoji",
)
_CARDS = ("embeds", "attachments")
_ON_CARD = ("pretext", "title", "name", "text", "description", "value")
_POINTS = ("location_information", "contact_information")
"""Fields of a message that are worth reading beside its words."""
_LISTS = ("messages", "chat_messages", "MessageList")
_MENTIONED = re.compile(r"<@([\w]{1,40})(?:\|[^<>|]{0,40})?>")
_CHANNEL = re.compile(r"<#\w{1,40}\|([^<>|]{1,80})>")
_LINKED = re.compile(r"<((?:https?|mailto):[^<>|\s]{1,2000})\|([^<>|]{1,400})>")
_MILLISECONDS = 1e11  # a number of seconds since 1970 beyond which it counts milliseconds


class _Message(NamedTuple):
    when: datetime.datetime | None
    speaker: str
    text: str


def read_messages(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the conversations that an export in JSON holds; None for any other JSON."""
    try:
        exported = json.loads(text) if path.suffix.lower() == ".json" else [json.loads(line) for line in text.split("\n") if line.strip()]
    except (ValueError, RecursionError):
        return None
    wordless: list[str] = []
    chats = [(title, messages) for title, found in _chats(exported) if (messages := _messages(found, wordless))]
    if not chats:
        return None
    parts = [part for title, messages in chats for part in _days(title, messages)]
    named = chats[0][0] if len(chats) == 1 and chats[0][0] else path.stem
    many = "a message" if len(wordless) == 1 else f"{len(wordless)} messages"
    told = (f"{many} without words or files {'was' if len(wordless) == 1 else 'were'} left out",) if wordless else ()
    return Draft("conversation", named, parts, day=dates.day_in_name(path.stem), told=told)


def _chats(exported: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the lists of messages that an export may have, each with its title."""
    waiting = [exported]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            entries = [entry for entry in one if isinstance(entry, dict)]
            if entries and (all("ts" in entry and "type" in entry for entry in entries) or all(map(_is_turn, entries))):
                yield "", entries
            else:
                waiting += reversed(entries)
        elif isinstance(one, dict):
            about = [one.get(key) for key in ("name", "title", "channel", "guild")]
            title = next((found for value in about if (found := _named(value))), "")
            mapping = one.get("mapping")
            if isinstance(mapping, dict):
                yield (
                    title,
                    [entry["message"] for entry in mapping.values() if isinstance(entry, dict) and isinstance(entry.get("message"), dict)],
                )
            elif lists := [value for key in _LISTS if isinstance(value := one.get(key), list)]:
                yield title, [entry for entry in lists[0] if isinstance(entry, dict)]
            else:
                waiting += [value for key in ("conversations", "list", "chats", "chat") if isinstance(value := one.get(key), (dict, list))]
                if (entries := _items(one.get("value"))) and all(
                    isinstance(entry, dict) and "createdDateTime" in entry for entry in entries
                ):
                    yield title, entries  # of Teams


def _is_turn(entry: dict[str, Any]) -> bool:
    """Return True for an entry of a conversation with a model, as data sets have them."""
    return ("role" in entry and "content" in entry) or ("from" in entry and "value" in entry)


def _messages(entries: list[dict[str, Any]], wordless: list[str]) -> list[_Message]:
    """Return the messages, the oldest first; nothing if most entries are not messages.

    :param wordless: list to add the senders of messages to that have nothing to read.
    """
    known = {str(entry.get("user")): _named(entry["user_profile"]) for entry in entries if isinstance(entry.get("user_profile"), dict)}
    broken = any("sender_name" in entry and "timestamp_ms" in entry for entry in entries)
    found, silent = [], []
    for entry in entries:
        sender = next((name for key in _SENDERS if (name := _named(entry.get(key)))), "")
        words = next((said for key in _WORDING if (said := _said(entry.get(key)).strip())), "")
        beside = [said for key in _BESIDE if key not in _CARDS and (said := _said(entry.get(key)).strip()) and said not in words]
        beside += [
            said for key in _CARDS for card in _items(entry.get(key)) or [entry.get(key)] if (said := _carded(card)) and said not in words
        ]
        about = entry.get("metadata")  # of ChatGPT
        beside += [said for one in _items(about.get("attachments") if isinstance(about, dict) else None) if (said := _carded(one))]
        beside += [", ".join(map(str, place.values())) for key in _POINTS if isinstance(place := entry.get(key), dict)]
        if isinstance(origin := entry.get("forwarded_from"), str) and origin.strip():
            beside.insert(0, f"forwarded from {origin.strip()}")
        text = "\n".join(filter(None, (words, *(f"[{one}]" for one in beside))))
        if "ts" in entry:
            text = _CHANNEL.sub(r"#\1", _LINKED.sub(r"\2 (\1)", text))
            text = html.unescape(_MENTIONED.sub(lambda match: f"@{known.get(match[1]) or match[1]}", text))
        sender = known.get(sender) or sender
        when = next((time for key in _TIMES if (time := _time(entry.get(key))) is not None), None)
        if text:
            found.append(_Message(when, *(map(_mended, (sender, text)) if broken else (sender, text))))
        elif sender and when is not None and sender not in ("system", "tool"):
            silent.append(sender)
    if sum(bool(one.speaker) for one in found) * 2 < len([entry for entry in entries if any(entry.get(key) for key in _WORDING)]):
        return []
    if not any(one.speaker for one in found):
        return []
    wordless += silent
    if found and all(one.when is not None for one in found):
        found.sort(key=lambda one: one.when or datetime.datetime.min)
    return found


def _named(value: Any) -> str:
    """Return the name of a sender or a chat, as text or as an object with a name."""
    if isinstance(value, dict):
        inner = next((one for key in ("user", "application") if isinstance(one := value.get(key), dict)), {})  # of Teams
        found = (one[key] for one in (value, inner) for key in _NAMES if one.get(key))
        return next((name for name in found if isinstance(name, str) and name.strip()), "").strip()
    return " ".join(value.split())[:_HEADING_CHARS] if isinstance(value, str) else ""


def _said(value: Any) -> str:
    """Return the words of a message: text, pieces of text with their marks, or objects that name files and links."""
    said, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            said.append(one)
        elif isinstance(one, list):
            waiting += reversed(one)
        elif isinstance(one, dict) and one.get("contentType") == "html" and isinstance(one.get("content"), str):
            from batos.memory.readers import html as pages  # late import: it loads a package

            said.append(pages.text_of(one["content"]).strip())
        elif isinstance(one, dict) and one.get("question") and _items(one.get("answers")):
            said.append(f"{_said(one['question'])} ({', '.join(map(_said, _items(one['answers'])))})")
        elif isinstance(one, dict):
            keys = (
                "text", "parts", "content", "body", "elements", "name", "title", "fileName", "filename", "file_name", "url", "uri",
                "question",
                "answers", "share_text", "link",
            )  # fmt: skip
            waiting.append(next((one[key] for key in keys if one.get(key)), ""))
    return "".join(said)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _carded(card: Any) -> str:
    """Return what a card below a message says, such as that of a link: title, words and fields; or the name of a file."""
    if not isinstance(card, dict):
        return _said(card).strip()
    if isinstance(content := card.get("extracted_content"), str) and content.strip():  # of a file, in exports of Claude
        return f"{_said(card.get('file_name'))}: {content.strip()}"
    words = [" ".join(card[key].split()) for key in _ON_CARD if isinstance(card.get(key), str) and card[key].strip()]
    words += [said for one in _items(card.get("fields")) if (said := _carded(one))]
    return " - ".join(dict.fromkeys(words)) or _said(card).strip()


def _time(value: Any) -> datetime.datetime | None:
    """Return the time of a message, in its own zone, or in UTC if it counts seconds."""
    value = value.get("$date") if isinstance(value, dict) else value
    try:
        if isinstance(value, str) and not value.replace(".", "", 1).isdecimal():
            moment = _moment(value[:_LINE_CHARS], dates.DAY_FIRST) if "," in value else None  # as in "Monday, June 12, 2023 at 10:15 AM"
            return moment or datetime.datetime.fromisoformat(value.strip()).replace(tzinfo=None)
        seconds = float(value)
        return datetime.datetime.fromtimestamp(seconds / (1000 if seconds > _MILLISECONDS else 1), datetime.UTC).replace(tzinfo=None)
    except (ValueError, TypeError, OverflowError, OSError):
        return None


# --- exports as pages

_PAGES = (
    # mark of the page, message, name, time, parts of a message, title
    (
        "chat_page",
        "div.message",
        ".from_name",
        ".date.details",
        ".text, .media_wrap, .forwarded .from_name, .body.details",
        ".page_header .text",
    ),
    (
        "chatlog__",
        ".chatlog__message",
        ".chatlog__author, .chatlog__author-name",
        ".chatlog__timestamp, .chatlog__short-timestamp",
        ".chatlog__content, .chatlog__attachment, .chatlog__embed, .chatlog__system-notification-content",
        ".preamble__entry",
    ),
)
"""Programs that write pages: Telegram, and DiscordChatExporter."""
_CLOCKED = re.compile(r"(?<![\d:])(\d{1,2}):(\d\d)(?::\d\d)?(?:[ ]?([AaPp])\.?[Mm])?")


def read_page(path: pathlib.PurePath, text: str) -> Draft | None:
    """Return the conversation that a page has, as a chat program exports one; None for any other page."""
    form = next((form for form in _PAGES if form[0] in text), None)
    if form is None:
        return None
    from selectolax.lexbor import LexborHTMLParser  # late imports: few files are pages

    from batos.memory.readers import html as pages

    pages.check_depth(text)
    _, message, name, time, parts, heading = form
    tree = LexborHTMLParser(text)
    found: list[tuple[str, str, str]] = []
    speaker = stamp = ""
    for one in tree.css(message):
        classes = one.attributes.get("class") or ""
        named, timed = one.css_first(name), one.css_first(time)
        title = " ".join((timed.attributes.get("title") or timed.text()).split()) if timed is not None else ""
        stamp = title or stamp
        said = "\n".join(filter(None, (_shown(part) for part in one.css(parts))))
        is_notice = "service" in classes.split() or "system-notification" in (one.html or "")
        if is_notice and _DATED.fullmatch(said.translate(_PLAIN).strip()):
            stamp = said  # a line between the messages of two days
            continue
        if named is not None and not (named.parent and "forwarded" in (named.parent.attributes.get("class") or "")):
            speaker = " ".join(named.text().split())
        if said:
            found.append((stamp, "" if is_notice else speaker, said))
    if not any(who for _, who, _ in found):
        return None
    order, sure = (dates.DAY_FIRST, True) if form[0] == "chat_page" else dates.date_order(when for when, _, _ in found)
    messages = [_Message(_moment(when, order), who, said) for when, who, said in found]
    named = tree.css_first(heading)
    title = " ".join(named.text().split())[:_HEADING_CHARS] if named is not None else ""
    told = () if sure else ("its dates may have the day or the month first: read with the day first",)
    return Draft("conversation", title or path.stem, list(_days(title, messages)), day=dates.day_in_name(path.stem), told=told)


def _shown(part: Any) -> str:
    """Return what a page shows of a message: words, or the name of a file."""
    from batos.memory.readers import html as pages  # late import: it loads a package

    if part.tag in ("div", "span") and "from_name" in (part.attributes.get("class") or ""):
        about = part.css_first(".date")
        return f"[forwarded from {' '.join(part.text().removesuffix(about.text() if about is not None else '').split())}]"
    words = pages.text_of(part.html or "").strip()
    link = part.css_first("a[href], img[src], video[src], audio[src]")
    file = str(link.attributes.get("href") or link.attributes.get("src") or "") if link is not None else ""
    classes = part.attributes.get("class") or ""
    if "media" in classes or "attachment" in classes:
        return f"[{' '.join(filter(None, (' '.join(words.split()), file)))}]" if words or file else ""
    return words


def _moment(stamp: str, order: str) -> datetime.datetime | None:
    """Return the time that a stamp names; None if it names no day."""
    day, clock = _day(stamp, order), _CLOCKED.search(stamp.translate(_PLAIN))
    if not day:
        return None
    hour, minute = (int(clock[1]), int(clock[2])) if clock else (0, 0)
    if clock and clock[3]:
        hour = hour % 12 + (12 if clock[3] in "pP" else 0)
    return datetime.datetime.fromordinal(day) + datetime.timedelta(hours=hour % 24, minutes=minute % 60)


def _mended(text: str) -> str:
    """Return a text of Facebook's exports, whose bytes of UTF-8 are written as a character each."""
    try:
        return text.encode("latin-1").decode()
    except ValueError:
        return text


def _days(title: str, messages: list[_Message]) -> Iterator[DraftPart]:
    """Yield a part for the messages of each day."""
    held: list[tuple[str, str]] = []
    day = 0
    for when, speaker, text in messages:
        if held and when is not None and when.toordinal() != day:
            yield _part(held, title, day)
            held = []
        day = when.toordinal() if when is not None else day
        held.append((f"{f'[{when:%Y-%m-%d %H:%M}] ' if when else ''}{f'{speaker}: ' if speaker else ''}{text}\n", speaker))
    if held:
        yield _part(held, title, day)
