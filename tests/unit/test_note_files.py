"""Files in which programs keep notes: calendars, outlines, notebooks, RTF. What they say is read, and what is left out is told."""

from __future__ import annotations

import datetime
import json

import pytest

from batos.memory import readers


def text_of(name: str, data: str) -> str:
    return "".join(part.text for part in readers.read(name, data.encode()).parts)


def calendar(*lines: str) -> str:
    return "\n".join(["BEGIN:VCALENDAR", "BEGIN:VEVENT", *lines, "END:VEVENT", "END:VCALENDAR", ""])


def test_times_of_several_zones_say_their_zones() -> None:
    flight = calendar("SUMMARY:Flight", "DTSTART;TZID=America/New_York:20240312T090000", 'DTEND;TZID="Asia/Tokyo":20240313T140000')
    assert "begins: 2024-03-12 09:00 (America/New_York)\nends: 2024-03-13 14:00 (Asia/Tokyo)\n" in text_of("c.ics", flight)
    visit = calendar("SUMMARY:Visit", "DTSTART;TZID=Europe/Berlin:20240312T090000", "DTEND;TZID=Europe/Berlin:20240312T100000")
    assert "begins: 2024-03-12 09:00\nends: 2024-03-12 10:00\n" in text_of("c.ics", visit)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("DTSTART:20240401T101500+0200", "begins: 2024-04-01 10:15 UTC+0200"),
        ("DTSTART:20240401T1015Z", "begins: 2024-04-01 10:15 UTC"),
        ("DURATION:PT1H30M", "lasts: 1 hour 30 minutes"),
        ("DURATION:P1W", "lasts: 1 week"),
        ("DURATION:soon", "lasts: soon"),
        ("EXDATE;TZID=Europe/Berlin:20240319T090000,20240326T090000", "not on: 2024-03-19 09:00, 2024-03-26 09:00"),
        ('ATTENDEE;PARTSTAT=DECLINED;CN="Owl, Anna":mailto:anna@x.y', "with: Owl, Anna <anna@x.y> (declined)"),
        ("ATTENDEE;CN=ben@x.y:MAILTO:ben@x.y", "with: ben@x.y"),
        ("ORGANIZER;CN=Clara:mailto:clara@x.y", "organizer: Clara <clara@x.y>"),
    ],
)
def test_what_an_event_says_of_its_time_and_its_guests(line: str, said: str) -> None:
    assert f"\n{said}\n" in text_of("c.ics", calendar("SUMMARY:Roof", line))


def test_the_day_of_an_event_is_found_with_any_offset() -> None:
    found = readers.read("c.ics", calendar("SUMMARY:Roof", "DTSTART:20240401T101500-0300").encode())
    assert found.day == datetime.date(2024, 4, 1).toordinal()
    assert found.told == ()


def test_a_calendar_that_is_cut_off_is_read_as_far_as_it_goes_and_that_is_told() -> None:
    whole = calendar("SUMMARY:Roof", "LOCATION:Town hall", "DESCRIPTION:Bring the key")
    found = readers.read("c.ics", whole[: whole.index("the key")].encode())
    assert "Roof\nplace: Town hall\nBring" in found.parts[0].text
    assert "is the file whole?" in found.told[0]


def test_an_outline_may_have_a_namespace_notes_and_what_is_done() -> None:
    found = readers.read(
        "c.opml",
        b"<opml xmlns='http://x'><head><title>Week</title></head><body><outline text='Roof' _note='ask Clara' _status='checked'/>"
        b"<outline/><outline title='News' description='All of it' xmlUrl='https://x'/></body></opml>",
    )
    assert (found.title, found.parts[0].text) == ("Week", "- [x] Roof ask Clara\n- News All of it https://x\n")


def test_no_item_of_an_outline_is_parsed_as_a_page_unless_it_may_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr("batos.memory.readers.html.text_of", lambda markup: parsed.append(markup) or "parsed")
    items = "".join(f"<outline text='Item {at}'/>" for at in range(2000))
    found = readers.read("c.opml", f"<opml><body>{items}<outline text='&lt;b&gt;bold'/></body></opml>".encode())
    assert found.parts[0].text.count("Item") == 2000
    assert parsed == ["<b>bold"]


@pytest.mark.parametrize("escape", ["\\u-10179?\\u-8704?", "\\u55357 ?\\u56832 ?", "\\uc0\\u-10179\\u-8704 "])
def test_a_character_that_rtf_writes_in_two_halves_is_one(escape: str) -> None:
    assert text_of("a.rtf", f"{{\\rtf1\\ansi\\uc1 Party {escape}today}}").replace(" ", "") == "Party😀today"


def test_half_a_character_harms_no_file() -> None:
    assert "Party \ufffd" in text_of("a.rtf", "{\\rtf1\\ansi\\uc1 Party \\u-10179? today}")
    chat = {"messages": [{"role": ("user", "model")[at % 2], "content": "x\ud83d y\ud83d\ude00"} for at in range(4)]}
    for name, data in (
        ("a.json", json.dumps(chat)),
        ("a.ipynb", json.dumps({"cells": [{"cell_type": "markdown", "source": "\ud83d Roof"}]})),
        ("a.canvas", json.dumps({"nodes": [{"text": "\ud83d Roof"}]})),
    ):
        found = readers.read(name, data.encode())
        for part in found.parts:
            part.text.encode()
            assert all(part.text[turn.start : turn.end].startswith(turn.speaker) for turn in part.turns)


def test_comments_headers_and_footnotes_of_rtf_are_read() -> None:
    text = text_of(
        "a.rtf", r"{\rtf1\ansi{\header Confidential}{\footerf Page one}The rent{\*\annotation ask Clara} is due{\footnote in May}.}"
    )
    for words in ("Confidential", "Page one", "comment: ask Clara", "in May"):
        assert words in text


def test_what_rtf_hides_or_has_deleted_is_left_out_and_told() -> None:
    draft = readers.read("a.rtf", rb"{\rtf1\ansi kept {\deleted gone {\b words}} and {\v bait \'e4\u228? } \v1 more bait\v0  end}")
    assert draft.parts[0].text.split() == ["kept", "and", "end"]
    assert "hidden or deleted" in draft.told[0]
    assert readers.read("a.rtf", rb"{\rtf1\ansi \viewkind4\vertalt kept words}").parts[0].text.split() == ["kept", "words"]


SRT = (
    "1\n00:00:01,000 --> 00:00:03,500\n<i>Where is the key?</i>\n\n2\n00:00:04,000 --> 00:00:06,000\n{\\an8}- Under the pot.\n\n"
    "- 1984 &amp; 2.\n3\n00:00:07,000 --> 00:00:09,000\n42\n"
)


@pytest.mark.parametrize("name", ["f.srt", "f.txt"])
def test_subtitles_are_read_without_times_and_numbers(name: str) -> None:
    assert text_of(name, SRT) == "Where is the key?\n- Under the pot.\n- 1984 & 2.\n42\n"
    assert text_of("f.sbv", "0:00:01.000,0:00:03.000\nWhere?\n\n0:00:04.000,0:00:06.000\nHere\n") == "Where?\nHere\n"


def test_captions_of_the_web_say_who_speaks_and_no_line_twice() -> None:
    vtt = (
        "WEBVTT - Talk\nKind: captions\n\nNOTE a remark\n\nSTYLE\n::cue { color: red }\n\nintro\n00:01.000 --> 00:03.000 align:start\n"
        "<v Anna Berg>Where is <c.red>the</c> key?</v>\n\n00:04.000 --> 00:06.000\nUnder the <00:05.000>pot\n\n"
        "00:06.000 --> 00:08.000\nUnder the pot\nof roses.\n"
    )
    draft = readers.read("f.vtt", vtt.encode())
    assert draft.title == "Talk"
    assert draft.parts[0].text == "Anna Berg: Where is the key?\nUnder the pot\nof roses.\n"


def test_a_text_that_names_some_times_is_no_subtitle() -> None:
    text = "The log says:\n00:00:01,000 --> 00:00:03,500\nand then nothing.\n"
    assert text_of("a.txt", text) == text


def test_what_an_event_says_in_html_is_read_as_text() -> None:
    text = text_of(
        "a.ics",
        calendar("SUMMARY:X", "DTSTART:20240101", "DESCRIPTION:<p>Bring&nbsp\\;the <b>key</b></p>", "ATTACH:https://x.example/agenda.pdf"),
    )
    assert "Bring the key" in text
    assert "<b>" not in text
    assert "agenda.pdf" in text
    text = text_of("a.ics", calendar("SUMMARY:X", "DTSTART:20240101", "X-ALT-DESC;FMTTYPE=text/html:<p>Bring the key</p>"))
    assert "Bring the key" in text


def test_a_line_of_a_calendar_may_be_folded_within_a_character() -> None:
    data = b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:Gr\xc3\r\n \xbc\xc3\x9fe\r\nDTSTART:20240101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    assert readers.read("a.ics", data).parts[0].title == "Grüße"


def test_code_of_a_notebook_ends_where_it_ends_and_its_colors_are_no_words() -> None:
    cells = [
        {"cell_type": "code", "source": "```\n# x", "outputs": [{"output_type": "stream", "text": ["\x1b[32mGreen\x1b[0m\n"]}]},
        {"cell_type": "markdown", "source": "# Later"},
    ]
    draft = readers.read("a.ipynb", json.dumps({"cells": cells, "nbformat": 4}).encode())
    assert [part.title for part in draft.parts] == ["", "Later"]
    assert "[32m" not in draft.parts[0].text


def test_a_notebook_of_an_old_format_has_headings_and_what_was_printed() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Heating"]},
        {
            "cell_type": "code",
            "input": "x",
            "outputs": [{"output_type": "pyout", "text": ["41"]}, {"output_type": "stream", "text": "hi\n"}],
        },
        {"cell_type": "code", "input": [], "outputs": [{"output_type": "stream", "text": ["alone\n"]}]},
        {"cell_type": "code", "input": "y", "outputs": 5},
    ]
    found = readers.read("a.ipynb", json.dumps({"nbformat": 3, "worksheets": [{"cells": cells}]}).encode())
    assert found.parts[0].title == "Heating"
    assert "```\n41\nhi\n```" in found.parts[0].text
    assert "```\nalone\n```" in found.parts[0].text
    assert found.told == ()


def test_what_is_cut_from_a_notebook_is_told() -> None:
    cells = [{"cell_type": "code", "source": "x", "outputs": [{"output_type": "stream", "text": "line\n" * 1000}]}] * 2
    found = readers.read("a.ipynb", json.dumps({"cells": cells}).encode())
    assert found.told == ("the output of 2 of its cells was cut at 2000 characters",)
    assert found.parts[0].text.count("line\n") == 800


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("FREQ=DAILY", "every day"),
        ("FREQ=DAILY;INTERVAL=3;COUNT=5", "every 3 days, 5 times"),
        ("FREQ=WEEKLY;WKST=SU;BYDAY=MO,WE,FR", "every week on Monday, Wednesday and Friday"),
        ("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;UNTIL=20241231", "every 2 weeks on Tuesday, until 2024-12-31"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,22;COUNT=1", "every month on the 1st and the 22nd, once"),
        ("FREQ=MONTHLY;BYMONTHDAY=-1", "every month on the last day"),
        ("FREQ=MONTHLY;BYDAY=2TU", "every month on the 2nd Tuesday"),
        ("FREQ=YEARLY;BYMONTH=3;BYDAY=-1SU", "every year on the last Sunday in March"),
        ("freq=yearly;bymonth=12;bymonthday=24", "every year on the 24th in December"),
        ("FREQ=MONTHLY;BYDAY=MO,FR;BYSETPOS=-1", "every month (FREQ=MONTHLY;BYDAY=MO,FR;BYSETPOS=-1)"),
        ("FREQ=FORTNIGHTLY", "FREQ=FORTNIGHTLY"),
        ("FREQ=YEARLY;BYMONTH=13", "FREQ=YEARLY;BYMONTH=13"),
        ("soon", "soon"),
    ],
)
def test_rules_of_repetition_are_words(rule: str, said: str) -> None:
    assert f"\nrepeats: {said}\n" in text_of("c.ics", calendar("SUMMARY:Yoga", f"RRULE:{rule}"))


def test_an_event_of_whole_days_ends_on_its_last_day() -> None:
    fair = calendar("SUMMARY:Fair", "DTSTART;VALUE=DATE:20240506", "DTEND;VALUE=DATE:20240508")
    assert text_of("c.ics", fair) == "Fair\nbegins: 2024-05-06\nends: 2024-05-07\n"
    feast = calendar("SUMMARY:Feast", "DTSTART;VALUE=DATE:20240506", "DTEND;VALUE=DATE:20240507")
    assert text_of("c.ics", feast) == "Feast\nbegins: 2024-05-06\n"


def test_alarms_say_when_they_remind() -> None:
    alarms = [f"BEGIN:VALARM\nACTION:DISPLAY\nDESCRIPTION:Beep\nTRIGGER:{when}\nEND:VALARM" for when in ("-PT15M", "-P1D", "PT0S")]
    said = text_of("c.ics", calendar("SUMMARY:Call", *alarms))
    assert said == "Call\nreminds: 15 minutes before\nreminds: 1 day before\nreminds: at its time\n"


def test_a_time_beside_one_of_utc_says_its_zone() -> None:
    call = calendar("SUMMARY:Call", "DTSTART;TZID=Europe/Berlin:20240506T090000", "DTEND:20240506t080000z")
    assert text_of("c.ics", call) == "Call\nbegins: 2024-05-06 09:00 (Europe/Berlin)\nends: 2024-05-06 08:00 UTC\n"


@pytest.mark.parametrize("line", ["BDAY:--0506", "BDAY:--05-06", "BDAY;X-APPLE-OMIT-YEAR=1604:1604-05-06"])
def test_a_birthday_without_its_year_has_none(line: str) -> None:
    found = readers.read("a.vcf", f"BEGIN:VCARD\nFN:Kim\n{line}\nEND:VCARD\n".encode())
    assert (found.parts[0].text, found.day) == ("Kim\nbirthday: 6 May\n", 0)
