"""Exports of chats: who said what, and on which day, in the forms of many programs and languages."""
# ruff: noqa: E501  lines of pages are as long as they are

from __future__ import annotations

import datetime
import json

import pytest

from batos.memory import readers
from batos.memory.readers import dates

JUNE = [datetime.date(2023, 6, number).toordinal() for number in (12, 12, 13, 13)]


def spoken(text: str, name: str = "chat.txt") -> list[tuple[int, str]]:
    found = readers.read(name, text.encode())
    assert found.kind == "conversation"
    return [(part.day, turn.speaker) for part in found.parts for turn in part.turns]


def said(text: str, name: str = "chat.txt") -> list[tuple[str, str]]:
    found = readers.read(name, text.encode())
    return [(turn.speaker, part.text[turn.start : turn.end]) for part in found.parts for turn in part.turns]


@pytest.mark.parametrize(
    "stamps",
    [
        ["12/6/23, 10:15 a.\u00a0m. - ", "12/6/23, 10:16 a.\u202fm. - ", "13/6/23, 9:05 p.\u00a0m. - ", "13/6/23, 9:06 p. m. - "],
        ["12.6.2023 klo 10.15 - ", "12.6.2023 klo 10.16 - ", "13.6.2023 klo 9.05 - ", "13.6.2023 klo 9.06 - "],
        ["\u200f١٢\u200f/٦\u200f/٢٠٢٣، ١٠:١٥ ص - ", "\u200f١٢\u200f/٦\u200f/٢٠٢٣، ١٠:١٦ ص - "] * 2,
        ["2023/06/12 午前10:15 - ", "2023/06/12 午前10:16 - ", "2023/06/13 午後9:05 - ", "2023/06/13 午後9:06 - "],
        ["2023/6/12 凌晨1:15 - ", "2023/6/12 早上8:16 - ", "2023/6/13 中午12:05 - ", "2023/6/13 晚上9:06 - "],
        ["10:15, 12/06/2023 - ", "10:16, 12/06/2023 - ", "21:05, 13/06/2023 - ", "21:06, 13/06/2023 - "],
        ["[10:15, 12/6/2023] ", "[10:16, 12/6/2023] ", "[21:05, 13/6/2023] ", "[21:06, 13/6/2023] "],
        ["12/6/2566 10:15 - ", "12/6/2566 10:16 - ", "13/6/2566 21:05 - ", "13/6/2566 21:06 - "],
        ["12.06.2023 ÖS 10:15 - ", "12.06.2023 ÖS 10:16 - ", "13.06.2023 ÖÖ 9:05 - ", "13.06.2023 ÖÖ 9:06 - "],
        ["12/6/23, 10:15 π.μ. - ", "12/6/23, 10:16 π.μ. - ", "13/6/23, 9:05 μ.μ. - ", "13/6/23, 9:06 μ.μ. - "],
        ["12.06.23 г., 10:15 - ", "12.06.23 г., 10:16 - ", "13.06.23 г., 21:05 - ", "13.06.23 г., 21:06 - "],
        ["2023. 06. 12. 10:15 - ", "2023. 06. 12. 10:16 - ", "2023. 06. 13. 21:05 - ", "2023. 06. 13. 21:06 - "],
        ["2023. 6. 12. 오전 10:15, ", "2023. 6. 12. 오전 10:16, ", "2023. 6. 13. 오후 9:05, ", "2023. 6. 13. 오후 9:06, "],
        ["[Jun 12, 2023 10:15 AM] ", "[Jun 12, 2023 10:16 AM] ", "[Jun 13, 2023 9:05 PM] ", "[Jun 13, 2023 9:06 PM] "],
        ["12. kesäkuuta 2023 10:15 - ", "12. kesäkuuta 2023 10:16 - ", "13. kesäkuuta 2023 21:05 - ", "13. kesäkuuta 2023 21:06 - "],
        ["2023. június 12. 10:15 - ", "2023. június 12. 10:16 - ", "2023. június 13. 21:05 - ", "2023. június 13. 21:06 - "],
        ["12 Ιουνίου 2023 10:15 - ", "12 Ιουνίου 2023 10:16 - ", "13 Ιουνίου 2023 21:05 - ", "13 Ιουνίου 2023 21:06 - "],
        ["2023-06-12T10:15:00Z ", "2023-06-12T10:16:00.123Z ", "2023-06-13T21:05:00+02:00 ", "2023-06-13T21:06:00+0200 "],
        ["2023-06-12 10 h 15 - ", "2023-06-12 10 h 16 - ", "2023-06-13 21 h 05 - ", "2023-06-13 21 h 06 - "],
        ["12/06/2023 à 10h15 - ", "12/06/2023 à 10h16 - ", "13/06/2023 à 21h05 - ", "13/06/2023 à 21h06 - "],
        ["12 июня 2023 г. в 10:15 - ", "12 июня 2023 г. в 10:16 - ", "13 июня 2023 г. в 9:05 - ", "13 июня 2023 г. в 9:06 - "],
    ],
)
def test_the_time_of_a_message_may_be_written_in_any_language(stamps: list[str]) -> None:
    text = "".join(f"{stamp}{'Ana' if at % 2 else 'مريم'}: word - {at}\n" for at, stamp in enumerate(stamps))
    found = spoken(text)
    assert [who for _, who in found] == ["مريم", "Ana"] * 2
    assert [day for day, _ in found] == (JUNE if stamps[:2] * 2 != stamps else JUNE[:2] * 2)


def test_a_name_may_have_words_in_brackets_behind_it() -> None:
    name = "Anna Maria von der Heide-Schmidt (Work, Berlin)"
    text = "".join(f"12/06/2023, 10:1{at} - {who}: word\n" for at, who in enumerate((name, "Bo", name, "Bo")))
    assert [who for _, who in spoken(text)] == [name, "Bo", name, "Bo"]


def test_lines_of_a_message_that_look_like_turns_stay_in_it() -> None:
    text = (
        "12.06.23, 10:15 - Anna: Plan:\n9:00 Frühstück: bei mir\n12:30 Abfahrt: Bahnhof\n[10:00] Kellner: Hallo\n01.07. Miete: 400\n"
        "12.06.23, 10:16 - Ben: ok\n13.06.23, 10:17 - Anna: gut\n13.06.23, 10:18 - Ben: bis dann\n"
    )
    assert spoken(text) == list(zip(JUNE, ["Anna", "Ben", "Anna", "Ben"], strict=True))


def test_notices_that_quote_a_colon_have_no_speaker_and_an_emoji_is_a_name() -> None:
    lines = [
        "Anna: a",
        "Anna hat die Gruppe „Fest: Plan“ erstellt",
        "🎸: b",
        'Anna changed the subject to "Party: June"',
        "Anna: c",
        "🎸: d",
    ]
    text = "".join(f"12.06.23, 10:1{at} - {line}\n" for at, line in enumerate(lines))
    assert [who for _, who in spoken(text)] == ["Anna", "", "🎸", "", "Anna", "🎸"]


@pytest.mark.parametrize("stamp", ["[12-Jun-23 10:1{} AM]", "[6/13/2023 10:1{} AM]", "[13.06.2023 10:1{}]"])
def test_a_name_may_stand_alone_behind_the_time_and_the_words_below(stamp: str) -> None:
    names = ["anna#12", "Miller, Bob (External)", "anna#12", "Miller, Bob (External)"]
    text = "=====\nChannel: general\n=====\n\n" + "".join(f"{stamp.format(at)} {name}\nhello\n\n" for at, name in enumerate(names))
    assert [who for _, who in spoken(text)] == names


@pytest.mark.parametrize(
    "lines",
    [
        ["[12.06.2023] Dentist", "[13.06.2023] Barber", "[14.06.2023] Dentist", "[15.06.2023] Barber"],
        ["[2023-06-12 10:15] deploy done", "[2023-06-12 10:16] backup done"] * 3,
        ["[2023-06-12 10:15:01] INFO started", "  of worker", "[2023-06-12 10:15:02] ERROR failed", "  in a"] * 3,
        ["2023-06-12 10:15:01 - INFO - retry: y", "2023-06-12 10:15:02 - ERROR - failed: z"] * 3,
    ],
)
def test_entries_with_times_are_no_turns(lines: list[str]) -> None:
    assert readers.read("a.txt", "\n".join(lines).encode()).kind == "text"


def test_a_list_of_costs_is_no_conversation() -> None:
    text = "Rent: 400\nGas: 80 kWh\nRent: 420\nGas: 90\nRent: 430 €\nGas: 95\n"
    assert readers.read("a.txt", text.encode()).kind == "text"


def test_a_name_and_a_time_may_both_have_brackets() -> None:
    text = (
        "저장한 날짜 : 2023-06-14 10:00:00\n\n-------- 2023년 6월 12일 월요일 --------\n[홍길동] [오전 10:15] 안녕하세요\n"
        "[김철수] [오전 10:16] 네\n-------- 2023년 6월 13일 화요일 --------\n[홍길동] [오후 9:05] 감사\n[김철수] [오후 9:06] 네\n"
    )
    assert spoken(text) == list(zip(JUNE, ["홍길동", "김철수"] * 2, strict=True))


def test_a_date_of_another_calendar_is_no_day() -> None:
    text = "".join(f"1402/3/22 10:1{at} - {'Ben' if at % 2 else 'Anna'}: a\n" for at in range(4))
    assert {day for day, _ in spoken(text)} == {0}


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("12 июня 2023", (2023, 6, 12)), ("3 września 2024", (2024, 9, 3)),
        ("5. října 2024", (2024, 10, 5)), ("1 Mayıs 2024", (2024, 5, 1)),
        ("12-Jun-23", (2023, 6, 12)), ("2023. 06. 12.", (2023, 6, 12)), ("12/6/2566", (2023, 6, 12)),
    ],
)  # fmt: skip
def test_days_in_more_languages(text: str, day: tuple[int, int, int]) -> None:
    assert dates.day_in(text) == datetime.date(*day).toordinal()


TELEGRAM = {
    "name": "Family", "type": "private_group",
    "messages": [
        {"id": 1, "type": "message", "date": "2023-06-12T10:15:00", "from": "Anna", "text": "Grüße"},
        {"id": 2, "type": "message", "date": "2023-06-12T10:16:00", "from": "Ben", "text": ["The key: ", {"type": "b", "text": "Clara"}]},
        {"id": 3, "type": "message", "date": "2023-06-13T10:15:00", "from": "Anna", "file": "files/plan.pdf", "text": ""},
        {"id": 4, "type": "message", "date": "2023-06-13T10:16:00", "from": "Ben", "text": "ok"},
    ],
}  # fmt: skip
SLACK = [
    {
        "type": "message",
        "user": "U1",
        "text": "Schlüssel bei <@U2> &amp; mir",
        "ts": "1686564900.0001",
        "user_profile": {"real_name": "Anna"},
    },
    {"type": "message", "user": "U2", "text": "ok", "ts": "1686564960.0001", "user_profile": {"real_name": "Ben"}},
    {"type": "message", "user": "U1", "text": "gut", "ts": "1686650400.0001"},
    {"type": "message", "user": "U2", "text": "bis dann", "ts": "1686650460.0001"},
]
DISCORD = {
    "guild": {"name": "Club"}, "channel": {"name": "general"},
    "messages": [
        {"id": str(at), "type": "Default", "timestamp": f"2023-06-{12 + at // 2}T10:1{at}:00.000+00:00", "content": "hi",
         "author": {"id": "7", "name": ("anna", "ben")[at % 2], "nickname": ("Anna", "Ben")[at % 2]}, "attachments": []}
        for at in range(4)
    ],
}  # fmt: skip
FACEBOOK = {
    "participants": [{"name": "Anna"}], "title": "Anna",
    "messages": [
        {"sender_name": name, "timestamp_ms": 1686564900000 + 86_400_000 * (at // 2) + at, "content": "Grüße".encode().decode("latin-1")}
        for at, name in reversed(list(enumerate(["Anna", "Ben", "Anna", "Ben"])))
    ],
}  # fmt: skip
MODEL = [{
    "title": "Roof",
    "mapping": {
        "root": {"message": None},
        **{str(at): {"message": {"author": {"role": ("Anna", "Ben")[at % 2]}, "create_time": 1686564900.5 + 86_400 * (at // 2) + at,
                                 "content": {"content_type": "text", "parts": ["Grüße"]}}} for at in range(4)},
    },
}]  # fmt: skip


@pytest.mark.parametrize("exported", [TELEGRAM, SLACK, DISCORD, FACEBOOK, MODEL], ids=["telegram", "slack", "discord", "facebook", "model"])
@pytest.mark.parametrize("escaped", [True, False])
def test_exports_in_json_are_conversations(exported: object, escaped: bool) -> None:
    text = json.dumps(exported, ensure_ascii=escaped, indent=1)
    assert spoken(text, "result.json") == list(zip(JUNE, ["Anna", "Ben", "Anna", "Ben"], strict=True))


def test_messages_in_json_keep_their_words_files_and_mentions() -> None:
    assert said(json.dumps(TELEGRAM), "r.json")[1:3] == [
        ("Ben", "[2023-06-12 10:16] Ben: The key: Clara\n"),
        ("Anna", "[2023-06-13 10:15] Anna: [files/plan.pdf]\n"),
    ]
    assert said(json.dumps(SLACK), "r.json")[0][1].endswith("Anna: Schlüssel bei @Ben & mir\n")
    assert said(json.dumps(FACEBOOK), "r.json")[0][1].endswith("Anna: Grüße\n")


@pytest.mark.parametrize(
    "value", [{"messages": ["a", "b"]}, {"messages": [{"id": 1, "text": "x"}]}, [], 5, {"list": [{"name": "x", "date": "y"}]}]
)
def test_other_json_stays_as_it_is(value: object) -> None:
    found = readers.read("data.json", json.dumps(value).encode())
    assert (found.kind, found.parts[0].text) == ("code", json.dumps(value))


def test_letters_that_json_escapes_are_read_as_letters() -> None:
    text = json.dumps({"note": 'Schlüssel 😀 "x" \n', "path": "C:\\users\\u00e9"})
    found = readers.read("data.json", text.encode()).parts[0].text
    assert "Schlüssel 😀" in found
    assert json.loads(found) == json.loads(text)


def lines(exported: object) -> list[tuple[str, str]]:
    return said(json.dumps(exported), "result.json")


def test_no_message_is_lost_for_the_field_that_its_words_are_in() -> None:
    block = {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": [{"type": "text", "text": "In a block"}]}]}
    slack = [*SLACK, {"type": "message", "user": "U1", "text": "", "blocks": [block], "ts": "1686650500.1"}]
    assert lines(slack)[-1] == ("Anna", "[2023-06-13 10:01] Anna: In a block\n")
    embed = {"title": "Roof", "description": "It leaks", "fields": [{"name": "Cost", "value": "40000"}]}
    said_by = {"type": "Default", "timestamp": "2023-06-14T10:15:00+00:00", "content": "", "author": {"name": "ben"}, "embeds": [embed]}
    assert lines({**DISCORD, "messages": [*DISCORD["messages"], said_by]})[-1][1].endswith("ben: [Roof - It leaks - Cost - 40000]\n")
    shared = {"sender_name": "Ben", "timestamp_ms": 1686999999000, "share": {"link": "http://x", "share_text": "Where Clara lives"}}
    assert lines({**FACEBOOK, "messages": [*FACEBOOK["messages"], shared]})[-1][1].endswith("Ben: [Where Clara lives]\n")
    more = [
        {"poll": {"question": "When?", "answers": [{"text": "Monday"}, {"text": "Tuesday"}]}},
        {"text": "The roof is done", "forwarded_from": "Dora"},
        {"location_information": {"latitude": 53.5, "longitude": 10}},
    ]
    telegram = [{"id": 9, "type": "message", "date": "2023-06-14T10:15:00", "from": "Ben", "text": "", **one} for one in more]
    found = [text for _, text in lines({**TELEGRAM, "messages": [*TELEGRAM["messages"], *telegram]})[-3:]]
    assert [text.split("Ben: ")[1] for text in found] == [
        "[When? (Monday, Tuesday)]\n",
        "The roof is done\n[forwarded from Dora]\n",
        "[53.5, 10]\n",
    ]


def test_who_is_not_known_has_no_name_and_what_has_no_words_is_told() -> None:
    more = [{"id": 9, "type": "message", "date": "2023-06-14T10:15:00", "from": None, "text": "From an account that is gone"}]
    silent = [{"id": at, "type": "message", "date": "2023-06-14T10:15:00", "from": "Ben", "text": ""} for at in (10, 11)]
    exported = {**TELEGRAM, "messages": [*TELEGRAM["messages"], *more, *silent]}
    assert lines(exported)[-1] == ("", "[2023-06-14 10:15] From an account that is gone\n")
    assert readers.read("r.json", json.dumps(exported).encode()).told == ("2 messages without words or files were left out",)
    assert readers.read("r.json", json.dumps(TELEGRAM).encode()).told == ()


def test_messages_of_more_programs_in_json() -> None:
    who = ["Anna", "Ben"] * 2
    google = [
        {"creator": {"name": name}, "created_date": f"Monday, June {12 + at // 2}, 2023 at 10:15:00\u202fPM UTC", "text": "x"}
        for at, name in enumerate(who)
    ]
    assert spoken(json.dumps({"messages": google}), "m.json") == list(zip(JUNE, who, strict=True))
    assert lines({"messages": google})[0][1] == "[2023-06-12 22:15] Anna: x\n"
    matrix = [
        {"sender": name, "origin_server_ts": 1686564900000 + 86_400_000 * (at // 2), "content": {"msgtype": "m.text", "body": "hello"}}
        for at, name in enumerate(who)
    ]
    assert spoken(json.dumps({"messages": matrix}), "m.json") == list(zip(JUNE, who, strict=True))


@pytest.mark.parametrize("line", ["10:1{}:01 From {} to Everyone:\n\thello\n", "10:1{}:01\t From  {} : hello\n"])
def test_whom_a_message_was_sent_to_is_no_part_of_a_name(line: str) -> None:
    text = "".join(line.format(at, name) for at, name in enumerate(["Anna Owl", "Ben Fox"] * 2))
    assert [who for _, who in spoken(text)] == ["Anna Owl", "Ben Fox"] * 2


def telegram_page(*messages: str) -> str:
    head = '<html><head><meta charset="utf-8"/><title>Exported Data</title></head><body><div class="page_wrap"><div class="page_header"><div class="content"><div class="text bold">\nFamily\n</div></div></div>'
    return (
        f'<!DOCTYPE html>\n{head}<div class="page_body chat_page"><div class="history">{"".join(messages)}</div></div></div></body></html>'
    )


def telegram_message(stamp: str, name: str, inner: str) -> str:
    joined = "" if name else " joined"
    who = f'<div class="from_name">\n{name} </div>' if name else ""
    time = f'<div class="pull_right date details" title="{stamp}">{stamp[11:16]}</div>'
    return f'<div class="message default clearfix{joined}" id="message1"><div class="body">{time}{who}{inner}</div></div>'


def test_a_page_that_a_chat_program_exports_is_a_conversation() -> None:
    def service(text: str) -> str:
        return f'<div class="message service" id="message-1"><div class="body details">\n{text}\n</div></div>'

    forwarded = '<div class="forwarded body"><div class="from_name">Dora <span class="date details" title="01.01.2020 08:00:00"> 01.01.2020 08:00:00</span></div><div class="text">The roof is done</div></div>'
    page = telegram_page(
        service("12 June 2023"),
        telegram_message("12.06.2023 10:15:00 UTC+02:00", "Anna", '<div class="text">Where is the key?<br>Anyone?</div>'),
        telegram_message("12.06.2023 10:16:00 UTC+02:00", "", '<div class="text">Hello?</div>'),
        service("13 June 2023"),
        telegram_message("13.06.2023 09:00:00", "Ben", '<div class="reply_to details">In reply to <a href="#m">this</a></div><div class="media_wrap clearfix"><a class="photo_wrap" href="photos/a.jpg"><img src="t.jpg"></a></div>'),
        telegram_message("13.06.2023 09:01:00", "Anna", forwarded),
        service("Ben left the group"),
    )  # fmt: skip
    found = readers.read("messages.html", page.encode())
    assert (found.kind, found.title) == ("conversation", "Family")
    assert [part.day for part in found.parts] == [JUNE[0], JUNE[2]]
    assert said(page, "messages.html") == [
        ("Anna", "[2023-06-12 10:15] Anna: Where is the key?\nAnyone?\n"),
        ("Anna", "[2023-06-12 10:16] Anna: Hello?\n"),
        ("Ben", "[2023-06-13 09:00] Ben: [photos/a.jpg]\n"),
        ("Anna", "[2023-06-13 09:01] Anna: [forwarded from Dora]\nThe roof is done\n"),
        ("", "[2023-06-13 09:01] Ben left the group\n"),
    ]


def test_a_page_of_discord_is_a_conversation() -> None:
    def group(name: str, stamp: str, first: str, second: str) -> str:
        time = f'<span class="chatlog__timestamp" title="{stamp}"><a href="#1">{stamp}</a></span>'
        head = f'<div class="chatlog__header"><span class="chatlog__author" title="{name}">{name}</span> {time}</div>'
        reply = (
            '<div class="chatlog__reply"><div class="chatlog__reply-author">Dora</div><div class="chatlog__reply-content">old</div></div>'
        )
        texts = [f'<div class="chatlog__content chatlog__markdown">{text}</div>' for text in (first, second)]
        return f'<div class="chatlog__message-group"><div class="chatlog__message">{reply}{head}{texts[0]}</div><div class="chatlog__message">{texts[1]}</div></div>'

    page = (
        '<html><body><div class="preamble"><div class="preamble__entry">Club</div></div><div class="chatlog">'
        + group("Anna", "Monday, June 12, 2023 10:15 PM", "one", "two")
        + group("Ben", "Tuesday, June 13, 2023 10:15 AM", "three", "four")
        + "</div></body></html>"
    )
    assert spoken(page, "club.html") == list(zip(JUNE, ["Anna", "Anna", "Ben", "Ben"], strict=True))
    assert said(page, "club.html")[1] == ("Anna", "[2023-06-12 22:15] Anna: two\n")


@pytest.mark.parametrize("page", ["<p>The class chat_page of <code>div.message</code></p>", telegram_page("<p>No message</p>")])
def test_a_page_about_chats_is_a_page(page: str) -> None:
    assert readers.read("p.html", page.encode()).kind == "html"


@pytest.mark.parametrize(
    "stamps",
    [
        ["2023/6/2 上午10:15 - ", "2023/6/2 上午10:16 - ", "2023/6/3 下午9:05 - ", "2023/6/3 下午9:06 - "],
        ["2023. 6. 2. 오전 10:15, ", "2023. 6. 2. 오전 10:16, ", "2023. 6. 3. 오후 9:05, ", "2023. 6. 3. 오후 9:06, "],
    ],
)
def test_a_day_of_one_figure_may_stand_behind_the_year(stamps: list[str]) -> None:
    text = "".join(f"{stamp}{'Ana' if at % 2 else '小明'}: word\n" for at, stamp in enumerate(stamps))
    assert spoken(text) == [(JUNE[0] - 10 + at // 2, "Ana" if at % 2 else "小明") for at in range(4)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("10:15 <@ana> hi\n10:16 < ben> yo\n10:17 -!- cleo [c@x] has joined #c\n10:19 <+ana> x\n10:20 < ben> y\n", "chat.log"),
        ("May 06 10:15:00 <ana>\thi\nMay 06 10:16:00 <ben>\tyo\nMay 06 10:17:00 <ana>\tx\nMay 06 10:18:00 <ben>\ty\n", "chat.log"),
        ("[10:15:00] <ana> hi\n[10:16:00] <ben> yo\n[10:17:00] *** Joins: cleo\n[10:18:00] <ana> x\n[10:19:00] <ben> y\n", "chat.log"),
        ("[06.05. 10:15] ana\nhi\n[06.05. 10:16] ben\nyo\n[06.05. 10:17] ana\nx\n[06.05. 10:18] ben\ny\n", "chat.txt"),
        ("[5/6 10:15 AM] ana\nhi\n[5/6 10:16 AM] ben\nyo\n[5/6 10:17 AM] ana\nx\n[5/6 10:18 AM] ben\ny\n", "chat.txt"),
        ("ana — 05/06/2024 10:15 AM\nhi\nben — 05/06/2024 10:16 AM\nyo\n" * 2, "chat.txt"),
        ("2024-05-06 10:15:00 ana\nhi\n2024-05-06 10:16:00 ben\nyo\n" * 2, "chat.txt"),
        ("2024-05-06 10:15:00 +0200 ana: hi\n2024-05-06 10:16:00 +0200 ben: yo\n" * 2, "chat.txt"),
        ("2024-05-06 10:15:00\tana\thi\n2024-05-06 10:16:00\t@ben\tyo\n" * 2, "chat.weechatlog"),
        ("[2024-05-06 10:15] ana: hi  \n[2024-05-06 10:16] ben: yo  \n" * 2, "chat.md"),
        ('{"role": "ana", "content": "hi"}\n{"role": "ben", "content": "yo"}\n' * 2, "chat.jsonl"),
    ],
)
def test_more_programs_whose_names_begin_turns(text: str, name: str) -> None:
    assert [who for _, who in spoken(text, name) if who] == ["ana", "ben"] * 2


def test_a_day_without_its_year_and_the_hour_are_no_date() -> None:
    assert dates.day_in("[06.05. 10:15] Ana") == 0


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["2024-05-06 10:15:00 started", "2024-05-06 10:16:00 stopped", "2024-05-06 10:17:00 started"] * 2, "app.log"),
        (["# Log", *["2024-05-06 10:15 Call: Ana", "2024-05-06 10:16 Mail: Ben"] * 3], "log.md"),
        (["# Week", "Ana: buys bread", "Ben: cooks", "Ana: sings", "Ben: sleeps"], "notes.md"),
        (['{"name": "Ana", "city": "Ulm"}', '{"name": "Ben"}'], "people.jsonl"),
        (['{"role": "x", "content": "y"}', "no JSON"], "half.jsonl"),
    ],
)
def test_what_only_looks_like_turns_is_none(lines: list[str], name: str) -> None:
    found = readers.read(name, "\n".join(lines).encode())
    assert found.kind != "conversation"
    assert "".join(part.text for part in found.parts) == "\n".join(lines)


@pytest.mark.parametrize(
    "exported",
    [
        [{"conversations": [{"from": "ana", "value": "hi"}, {"from": "ben", "value": "yo"}]}],
        [{"title": "T", "chat": {"messages": [{"role": "ana", "content": "hi"}, {"role": "ben", "content": "yo"}]}}],
        {
            "value": [
                {
                    "createdDateTime": "2024-05-06T10:15:00Z",
                    "from": {"user": {"displayName": "ana"}},
                    "body": {"contentType": "html", "content": "<p>hi</p>"},
                },
                {"createdDateTime": "2024-05-06T10:16:00Z", "from": {"user": {"displayName": "ben"}}, "body": {"content": "yo"}},
            ]
        },
        {"conversations": [{"MessageList": [{"from": "ana", "content": "hi"}, {"from": "ben", "content": "yo"}]}]},
        {"messages": [{"u": {"username": "ana"}, "msg": "hi"}, {"u": {"username": "ben"}, "msg": "yo"}]},
    ],
)
def test_json_of_more_services_is_a_conversation(exported: object) -> None:
    found = said(json.dumps(exported), "export.json")
    assert [(who, text.partition(": ")[2]) for who, text in found] == [("ana", "hi\n"), ("ben", "yo\n")]


def test_files_links_and_channels_of_messages_are_read() -> None:
    claude = {"sender": "human", "text": "See", "attachments": [{"file_name": "a.txt", "extracted_content": "The pump\nleaks."}]}
    assert "[a.txt: The pump\nleaks.]" in said(json.dumps([{"name": "T", "chat_messages": [claude]}]), "conversations.json")[0][1]
    picture = {"sender": "human", "text": "See", "files": [{"file_name": "pump.png"}]}
    assert "[pump.png]" in said(json.dumps([{"name": "T", "chat_messages": [picture]}]), "conversations.json")[0][1]
    asked = {"author": {"role": "user"}, "content": {"parts": ["See"]}, "metadata": {"attachments": [{"name": "pump.pdf"}]}}
    assert "[pump.pdf]" in said(json.dumps({"mapping": {"a": {"message": asked}}}), "conversations.json")[0][1]
    slack = {"type": "message", "ts": "1714990500.1", "user": "U1", "text": "<https://a.example/x|the plan> in <#C1|garden>"}
    assert "the plan (https://a.example/x) in #garden" in said(json.dumps([slack]), "day.json")[0][1]
