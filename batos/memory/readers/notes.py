"""Reader of files in which programs keep notes: notebooks (ipynb), boards (canvas), outlines (OPML), calendars (ics), address books (vcf)
and RTF.
"""

from __future__ import annotations

import datetime
import importlib
import json
import pathlib
import quopri
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

from batos.errors import Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import charset, dates, html
from batos.memory.readers.outline import Outline

_KIND = "document"
_OUTPUT_CHARS = 2000  # greatest number of characters of a notebook cell's output
_FIELDS = {
    "SUMMARY": "", "DTSTART": "begins", "DTEND": "ends", "DUE": "due", "COMPLETED": "completed", "STATUS": "status", "RRULE": "repeats",
    "LOCATION": "place", "ORGANIZER": "organizer", "ATTENDEE": "with", "CATEGORIES": "categories", "URL": "link", "DESCRIPTION": "",
    "COMMENT": "comment", "FN": "", "NICKNAME": "nickname", "ORG": "organization", "TITLE": "title", "ROLE": "role", "TEL": "telephone",
    "EMAIL": "mail", "ADR": "address", "BDAY": "birthday", "NOTE": "note", "DURATION": "lasts", "EXDATE": "not on", "RDATE": "also on",
    "ANNIVERSARY": "anniversary", "ATTACH": "attached", "X-ALT-DESC": "", "RELATED": "related", "IMPP": "chat", "TRIGGER": "reminds",
}  # fmt: skip
"""Fields of calendars and address books that are read -> their labels in the text."""
_KINDS = frozenset(("home", "work", "cell", "fax", "pager"))
_RTF_NOTE = re.compile(r"{\\\*?\\?(?:footnote|header[lrf]?|footer[lrf]?)\b(?:\\ftnalt\b)?[ ]?")
_RTF_COMMENT = re.compile(r"{\\\*\\annotation\b[ ]?")
_COLORS = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]")  # what a program prints to color its words
_ESCAPED = re.compile(r"\\([nN,;\\])")
_STAMP = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(?:\d\d)?(Z|[+-]\d\d:?\d\d)?)?\Z")
_RTF_PIECE = re.compile(r"\\[a-zA-Z]{1,32}-?\d{0,10} ?|\\'[\da-fA-F]{2}|\\.|[{}]|[^\\{}]++", re.DOTALL)
_RTF_HIDDEN = re.compile(r"\\(?:v|deleted)(\d{0,10}) ?\Z")
_IS_MARKUP = re.compile(r"<(?:/?(?:p|b|br|div|span|html|body|ul|li|a|strong|table)\b|!--)", re.IGNORECASE)
_PARAMETER = re.compile(r";(CN|TZID|PARTSTAT)=(?:\"([^\"]*)\"|([^;\":]*))", re.IGNORECASE)
_DURATION = re.compile(r"[+-]?P(?:(\d{1,5})W)?(?:(\d{1,5})D)?(?:T(?:(\d{1,5})H)?(?:(\d{1,5})M)?(?:(\d{1,5})S)?)?")
_RULE_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)")
_DAYS = {"MO": "Monday", "TU": "Tuesday", "WE": "Wednesday", "TH": "Thursday", "FR": "Friday", "SA": "Saturday", "SU": "Sunday"}
_UNITS = {"YEARLY": "year", "MONTHLY": "month", "WEEKLY": "week", "DAILY": "day", "HOURLY": "hour", "MINUTELY": "minute"}
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
_SAID = frozenset(("FREQ", "INTERVAL", "BYDAY", "BYMONTHDAY", "BYMONTH", "COUNT", "UNTIL", "WKST"))
"""Parts of a rule of repetition that are said in words. A rule with others, such as BYSETPOS, stays as it is, behind its unit."""
_YEARLESS_DAY = re.compile(r"--(\d\d)-?(\d\d)\Z")
_NO_YEAR = "1604"  # year of birthdays without one, in Apple's address books
_DECLINED = {"DECLINED": " (declined)", "TENTATIVE": " (tentative)"}


def read_structured(path: pathlib.PurePath, text: str) -> Draft:
    """Return the draft of a file, read by the suffix of its name.

    :raises Unreadable: if the file is not of its kind.
    """
    suffix = path.suffix.lower()
    draft = {".ipynb": _notebook, ".canvas": _canvas, ".opml": _opml, ".rtf": _rtf}.get(suffix, _entries)(path, text)
    return draft._replace(day=draft.day or dates.day_in_name(path.stem))


# --- JSON


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Unreadable(f"it is not valid JSON ({e}); see whether the file is complete") from None
    return found if isinstance(found, dict) else {}


def _said(value: Any) -> str:
    return "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""


def _notebook(path: pathlib.PurePath, text: str) -> Draft:
    """Return the cells of a notebook: Markdown by headings, code fenced, and printed output; pictures and what is long are left out."""
    from batos.memory.readers import plain_text

    whole = []
    book = _json(text)
    sheets = (sheet for sheet in book.get("worksheets") or () if isinstance(sheet, dict))
    cells = book.get("cells") or [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    cut = 0
    for cell in cells if isinstance(cells, list) else ():
        if not isinstance(cell, dict):
            continue
        source = _said(cell.get("source") or cell.get("input"))
        if cell.get("cell_type") == "code":
            whole.append(_fenced(source) if source.strip() else "")
            outputs = cell.get("outputs")
            said = (_printed(one) for one in outputs if isinstance(one, dict)) if isinstance(outputs, list) else ()
            printed = "".join(text if text.endswith("\n") else f"{text}\n" for text in said if text)
            cut += len(printed) > _OUTPUT_CHARS
            whole.append(_fenced(printed[:_OUTPUT_CHARS].rstrip()) if printed.strip() else "")
        elif cell.get("cell_type") == "heading":  # of the third format
            level = cell.get("level")
            whole.append(f"{'#' * (level if isinstance(level, int) and 1 <= level <= 6 else 1)} {' '.join(source.split())}\n")
        elif source.strip():
            whole.append(f"{source}\n")
    told = (f"the output of {cut} of its cells was cut at {_OUTPUT_CHARS} characters",) if cut else ()
    return plain_text.read_markdown(path, "\n".join(filter(None, whole)) or "\n")._replace(kind=_KIND, told=told)


def _fenced(text: str) -> str:
    """Return a text as code of Markdown, whatever marks are in it."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`++", text)), default=0))
    return f"{fence}\n{_COLORS.sub('', text)}\n{fence}\n"


def _printed(output: dict[str, Any]) -> str:
    data = output.get("data")
    if output.get("ename") or output.get("evalue"):
        return f"{_said(output.get('ename'))}: {_said(output.get('evalue'))}\n"
    if not isinstance(data, dict):
        return _said(output.get("text"))
    marked = _said(data.get("text/markdown")) or _said(data.get("text/latex"))
    return _said(data.get("text/plain")) or marked or (html.text_of(page) if (page := _said(data.get("text/html"))) else "")


def _canvas(path: pathlib.PurePath, text: str) -> Draft:
    """Return the cards of a board, groups and lines between cards with their labels."""
    board = _json(text)
    said = []
    for one in (*(board.get("nodes") or ()), *(board.get("edges") or ())):
        if isinstance(one, dict):
            said.append(_said(one.get("text")) or _said(one.get("label")) or _said(one.get("file")) or _said(one.get("url")))
    return Draft(_KIND, path.stem, [DraftPart("\n\n".join(filter(None, said)) + "\n")])


# --- outlines


def _opml(path: pathlib.PurePath, text: str) -> Draft:
    """Return its items, those within others further in."""
    try:
        tree = ElementTree.fromstring(text)  # noqa: S314  expat bounds what entities grow to, and this is a child with limits
    except ElementTree.ParseError as e:
        raise Unreadable(f"it is not valid XML ({e}); see whether the file is complete") from None
    lines = []
    stack = [(one, 0) for one in reversed(tree)]
    title = next((" ".join((one.text or "").split()) for one in tree.iter() if _local(one) == "title"), "")
    while stack:
        element, deep = stack.pop()
        is_item = _local(element) == "outline"
        if is_item:
            words = [_unmarked(element.get(name, "")).strip() for name in ("text", "title", "description", "_note", "note")]
            link = element.get("htmlUrl") or element.get("url") or element.get("xmlUrl") or ""
            said = " ".join(" ".join(dict.fromkeys(filter(None, (*words, link)))).split())
            done = element.get("_status") == "checked" or element.get("_complete") == "true" or element.get("complete") == "true"
            lines.append(f"{'  ' * min(deep, 12)}- {'[x] ' if done else ''}{said}\n" if said else "")
        stack += [(child, deep + is_item) for child in reversed(element)]
    return Draft(_KIND, title or path.stem, [DraftPart("".join(lines))])


def _local(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _unmarked(text: str) -> str:
    """Return the text of a field that may have marks of HTML: parsing each of many thousand fields takes minutes."""
    return html.text_of(text) if "<" in text or "&" in text else text


def _rtf(path: pathlib.PurePath, text: str) -> Draft:
    if not text.startswith("{\\rtf"):
        raise Unreadable("its name says RTF, its content does not")
    striprtf = importlib.import_module("striprtf.striprtf")  # the package has no types
    text, hidden = _without_hidden(text)
    shown = _RTF_COMMENT.sub(r"{\\par comment: ", _RTF_NOTE.sub("{ ", text))  # striprtf leaves notes, headers and comments out
    told = (f"{hidden} characters that are hidden or deleted in it were left out",) if hidden else ()
    return Draft(_KIND, path.stem, [DraftPart(str(striprtf.rtf_to_text(shown, errors="replace")))], told=told)


def _without_hidden(text: str) -> tuple[str, int]:
    """Return RTF without the words that are hidden in it, or deleted with a trace, and their number of characters."""
    if "\\v" not in text and "\\deleted" not in text:
        return text, 0
    kept: list[str] = []
    states = [False]  # of each open group: True if its text is hidden from here on
    hidden = 0
    for found in _RTF_PIECE.finditer(text):
        piece = found[0]
        if piece == "{":
            states.append(states[-1])
        elif piece == "}":
            states = states[:-1] or [False]
        elif mark := _RTF_HIDDEN.match(piece):
            states[-1] = mark[1] != "0"
        elif states[-1] and piece[:1] != "\\":
            hidden += len(piece)
            continue
        elif states[-1] and (piece[1] == "'" or (piece[1] == "u" and piece[2:3].lstrip("-").isdecimal())):
            hidden += 1
            continue
        kept.append(piece)
    return "".join(kept), hidden


# --- calendars and address books


def _entries(path: pathlib.PurePath, text: str) -> Draft:
    """Return a part each event, task, note or person."""
    outline = Outline()
    day, many = 0, 0
    found = list(_components(text))
    zones = {field.zone or "UTC" for _, fields in found for field in fields if field.zone or (field.value[-1:] in "Zz" and _is_time(field))}
    for name, fields in found:
        filled = {field.key for field in fields if field.value.strip(" ;")}
        said = [
            (label, _value(field, zoned=len(zones) > 1))
            for field in fields
            if not _is_own_end(field, fields) and (label := _label(field.key, field.kinds, filled)) is not None
        ]
        words = next((value for label, value in said if not label and value), name)
        lines = [f"{label}: {value}" if label else value for label, value in dict.fromkeys(said) if value]
        if lines:
            when = next((value for label, value in said if label in ("begins", "due", "birthday")), "")
            outline.parts.append(DraftPart("\n".join(lines) + "\n", " ".join(words.split())[:200], dates.day_in(when)))
            day, many = dates.day_in(when), many + 1
    if not outline.parts:
        raise Unreadable("it has no event, task or address")
    is_whole = text.rstrip().rpartition("\n")[2].upper().startswith("END:")
    told = () if is_whole else ("its last line ends no entry: is the file whole?",)
    return Draft(_KIND, path.stem, outline.parts, day=day if many == 1 else 0, told=told)


class _Field(NamedTuple):
    """Field of a calendar or an address book: `kinds` are such as "home", `who` is a name, `zone` that of a time."""

    key: str
    kinds: str
    value: str
    zone: str = ""
    who: str = ""
    part: str = ""
    """Answer to an invitation, such as `DECLINED`."""


def _label(key: str, kinds: str, filled: Collection[str]) -> str | None:
    """Return the label of a field, empty for one that needs none; None for one that is not read."""
    if key == "N":  # the parts of a name, beside the whole
        return None if "FN" in filled else ""
    if key == "X-ALT-DESC" and "DESCRIPTION" in filled:  # the same in HTML
        return None
    label = _FIELDS.get(key)
    return f"{label} ({kinds})" if label and kinds else label


def _components(text: str) -> Iterator[tuple[str, list[_Field]]]:
    """Yield events, tasks, notes and cards with their fields; of alarms their times, and no time zones. The last may have no end: the file
    is cut off.
    """
    wanted = {"VEVENT": "event", "VTODO": "task", "VJOURNAL": "note", "VCARD": "person"}
    open_: list[str] = []
    fields: list[_Field] = []
    for line in _unfolded(text):
        key, _, value = line.partition(":")
        if '"' in key:  # a quoted parameter may contain a colon
            key, value = _parted(line)
        name, *parameters = key.upper().split(";")
        name = name.rpartition(".")[2]
        if name == "BEGIN":
            open_.append(value.strip().upper())
            if open_[-1] in wanted:
                fields = []
        elif name == "END":
            if open_ and open_[-1] in wanted:
                yield wanted[open_[-1]], fields
                fields = []
            open_ = open_[:-1]
        elif open_ and (open_[-1] in wanted or (name == "TRIGGER" and open_[-2:-1] and open_[-2] in wanted)):
            if "ENCODING=QUOTED-PRINTABLE" in parameters:
                encoding = next((one[8:] for one in parameters if one.startswith("CHARSET=")), "utf-8")
                value = quopri.decodestring(value.encode()).decode(charset.known(encoding) or "utf-8", "replace")
                value = value.replace("\r\n", "\n")
            kinds = (kind for one in parameters for kind in one.removeprefix("TYPE=").strip('"').lower().split(","))
            about = {one.upper(): quoted or plain for one, quoted, plain in _PARAMETER.findall(key)}
            said = ", ".join(kind for kind in kinds if kind in _KINDS)
            fields.append(_Field(name, said, value, about.get("TZID", ""), about.get("CN", ""), about.get("PARTSTAT", "").upper()))
    if fields and any(one in wanted for one in open_):
        yield next(wanted[one] for one in reversed(open_) if one in wanted), fields


def _parted(line: str) -> tuple[str, str]:
    quoted = False
    for at, char in enumerate(line):
        quoted ^= char == '"'
        if char == ":" and not quoted:
            return line[:at], line[at + 1 :]
    return line, ""


def _unfolded(text: str) -> Iterator[str]:
    """Yield the lines of the format. A line that begins with a blank goes on with the line before. So does one behind a line with `=` at
    its end."""
    held: list[str] = []
    soft = False
    for line in text.split("\n"):
        if held and line[:1] in (" ", "\t") and not soft:
            held.append(line[1:])
        elif held and soft:
            held.append(line)
        else:
            if held:
                yield "".join(held)
            held = [line]
        soft = line.endswith("=") and "QUOTED-PRINTABLE" in held[0].upper()
        if soft:
            held[-1] = held[-1][:-1]
    if held:
        yield "".join(held)


def _is_own_end(field: _Field, fields: list[_Field]) -> bool:
    """Return True for the end of an event of one whole day: the day before it."""
    if field.key != "DTEND" or not (end := _last_day(field)):
        return False
    return any(one.key == "DTSTART" and (begin := _STAMP.match(one.value.strip())) and _time(begin) == end for one in fields)


def _last_day(field: _Field) -> str:
    """Return the last day of an event of whole days: the format has the day after it. Empty for an end that has a time."""
    stamp = _STAMP.match(field.value.strip()) if field.key == "DTEND" else None
    if not stamp or stamp[4]:
        return ""
    try:
        return str(datetime.date(int(stamp[1]), int(stamp[2]), int(stamp[3])) - datetime.timedelta(days=1))
    except (ValueError, OverflowError):
        return ""


def _is_time(field: _Field) -> bool:
    return bool((stamp := _STAMP.match(field.value.strip().upper())) and stamp[4])


def _value(field: _Field, *, zoned: bool) -> str:
    """Return a field as text.

    :param zoned: True if the file has times of several zones: then each says its own.
    """
    key, value = field.key, field.value
    if day := _last_day(field):
        return day
    if key in ("BDAY", "ANNIVERSARY") and (yearless := _YEARLESS_DAY.match(value.strip().replace(_NO_YEAR, "-", 1))):
        month, number = int(yearless[1]), int(yearless[2])
        return f"{number} {_MONTHS[month - 1]}" if 1 <= month <= len(_MONTHS) else value
    if key == "RRULE":
        return _rule(value.strip())
    if key == "TRIGGER" and (found := _DURATION.fullmatch(value.strip().upper())):
        before = "before" if value.strip().startswith("-") else "after"
        return f"{_duration(value.strip())} {before}" if any(int(one or 0) for one in found.groups()) else "at its time"
    if stamps := [_STAMP.match(one.strip().partition("/")[0].upper()) for one in value.split(",")]:
        zone = f" ({field.zone})" if zoned and field.zone else ""
        times = [f"{_time(stamp)}{zone if stamp[4] else ''}" for stamp in stamps if stamp]
        if len(times) == len(stamps):
            return ", ".join(times)
    plain = _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], value).strip()
    if key in ("ORGANIZER", "ATTENDEE"):
        mail = plain.removeprefix("mailto:").removeprefix("MAILTO:")
        who = field.who.strip()
        is_name = who and ":" not in who and "@" not in who and who != mail
        return (f"{who} <{mail}>" if is_name else mail) + _DECLINED.get(field.part, "")
    if key == "DURATION":
        return _duration(plain)
    if key == "TEL":
        return plain.removeprefix("tel:")
    if key in ("DESCRIPTION", "X-ALT-DESC", "COMMENT", "NOTE") and _IS_MARKUP.search(plain):
        return html.text_of(plain).strip()
    if key == "ATTACH" and not plain.startswith(("http", "file", "cid")):
        return ""
    return ", ".join(part for part in plain.split(";") if part) if key in ("ADR", "ORG", "N") else plain


def _rule(text: str) -> str:
    """Return a rule of repetition in words, as in "every 2 weeks on Monday and Friday, until 2024-12-31"."""
    parts = {name.strip().upper(): value.strip().upper() for name, _, value in (one.partition("=") for one in text.split(";")) if value}
    unit = _UNITS.get(parts.get("FREQ", ""))
    days = [_RULE_DAY.fullmatch(one.strip()) for one in parts["BYDAY"].split(",")] if "BYDAY" in parts else []
    numbers = {name: parts[name].split(",") for name in ("INTERVAL", "BYMONTHDAY", "BYMONTH", "COUNT") if name in parts}
    plain = all(re.fullmatch(r"-?\d{1,4}", one) for found in numbers.values() for one in found)
    until = _STAMP.match(parts.get("UNTIL", ""))
    months = [int(one) for one in numbers.get("BYMONTH", ())] if plain else []
    if not unit or not plain or None in days or ("UNTIL" in parts and not until) or not all(1 <= one <= len(_MONTHS) for one in months):
        return text
    if parts.keys() - _SAID:
        return f"every {unit} ({text})"
    many = int(parts.get("INTERVAL", "1"))
    said = [f"every {many} {unit}s" if many > 1 else f"every {unit}"]
    named = [f"{f'the {_counted(int(one[1]))} ' if one[1] else ''}{_DAYS[one[2]]}" for one in days if one]
    dates_ = [f"the {_counted(int(one))}{' day' if one[0] == '-' else ''}" for one in numbers.get("BYMONTHDAY", ())]
    said += [f"on {_listed(named)}"] * bool(named) + [f"on {_listed(dates_)}"] * bool(dates_)
    said += [f"in {_listed([_MONTHS[one - 1] for one in months])}"] * bool(months)
    ends = ["once" if one == "1" else f"{one} times" for one in numbers.get("COUNT", ())] + ([f"until {_time(until)}"] if until else [])
    return ", ".join((" ".join(said), *ends))


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def _counted(number: int) -> str:
    """Return an ordinal number; -1 is the last one."""
    if number < 0:
        return "last" if number == -1 else f"{_counted(-number)} last"
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _time(stamp: re.Match[str]) -> str:
    year, month, number, hour, minute, zone = stamp.groups()
    return f"{year}-{month}-{number}" + (f" {hour}:{minute}{' UTC' if zone else ''}{(zone or 'Z').removeprefix('Z')}" if hour else "")


def _duration(text: str) -> str:
    """Return a duration such as `PT1H30M` in words."""
    found = _DURATION.fullmatch(text.upper())
    if not found or not any(found.groups()):
        return text
    words = ("weeks", "days", "hours", "minutes", "seconds")
    return " ".join(
        f"{number} {word if int(number) != 1 else word[:-1]}" for number, word in zip(found.groups(), words, strict=True) if number
    )
