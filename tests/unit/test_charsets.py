"""From bytes to text: what is declared, what is guessed, and what is told of it."""

from __future__ import annotations

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.readers import charset

TEXTS = {
    "cp1251": "Протокол заседания: бюджет на следующий год утверждён, ключи у Марии.\n",
    "koi8_r": "Протокол заседания: бюджет на следующий год утверждён, ключи у Марии.\n",
    "gb18030": "会议记录：预算将在三月决定，钥匙在王先生那里。\n",
    "big5": "會議記錄：預算將在三月決定，鑰匙在王先生那裡。\n",
    "cp932": "会議の議事録：予算は三月に決まります。鍵は田中さんが持っています。\n",
    "euc_jp": "会議の議事録：予算は三月に決まります。鍵は田中さんが持っています。\n",
    "cp949": "회의록: 예산은 3월에 결정됩니다. 열쇠는 김 선생님이 가지고 있습니다.\n",
    "iso8859_2": "Protokół z zebrania: budżet zostanie uchwalony w marcu, klucze są u pana Łukasza.\n",
    "cp1250": "Zápis ze schůze: rozpočet bude schválen v březnu, klíče má pan Řezníček.\n",
    "cp1252": "Das Protokoll: der Schlüssel für die „Wohnung“ liegt bei Frau Müller – 300 €.\n",
    "cp1253": "Πρακτικά συνεδρίασης: ο προϋπολογισμός θα εγκριθεί τον Μάρτιο.\n",
    "cp1254": "Toplantı tutanağı: bütçe mart ayında onaylanacak, anahtarlar Ayşe'de.\n",
    "cp1255": "פרוטוקול הישיבה: התקציב יאושר במרץ, המפתחות אצל מריה.\n",
    "cp1256": "محضر الاجتماع: سيتم إقرار الميزانية في مارس والمفاتيح عند ماريا.\n",
    "cp1257": "Susirinkimo protokolas: biudžetas bus patvirtintas kovo mėnesį, raktai pas Mariją.\n",
    "cp850": "Das Protokoll: der Schlüssel für die Wohnung liegt bei Frau Müller.\n",
    "iso8859_6": "محضر الاجتماع: سيتم إقرار الميزانية في مارس والمفاتيح عند ماريا.\n",
    "cp874": "บันทึกการประชุม งบประมาณจะได้รับการอนุมัติในเดือนมีนาคม\n",
}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("times", [1, 50])
def test_what_declares_nothing_is_guessed_and_that_is_told(name: str, times: int) -> None:
    found = charset.decoded((TEXTS[name] * times).encode(name))
    assert found.text == TEXTS[name] * times
    assert "by guess" in found.told[0]


@pytest.mark.parametrize(
    "text",
    [
        "Die Wohnung hat 80 m² und kostet 900 €.", "Surface : 120 m², volume 360 m³, été comme hiver.", "E = mc²", "5 m³ of sand",
        "Microsoft® Windows", "©Acme Corp 2020", "Café™ is a trademark", "as is said¹ elsewhere²", "10±2 µm", "1ª y 2º piso", "a×b = c",
        "Façade de L’Haÿ-les-Roses", "Pokémon GO® et ©Niantic", "Nº 5, dirección: calle", "20°C à l’ombre",
    ],
)  # fmt: skip
def test_signs_that_touch_words_as_they_do_in_texts_are_no_letters_of_another_encoding(text: str) -> None:
    assert charset.decoded(text.encode("cp1252")).text == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cp1250", "Są trzy książki, z którymi był w szkole."),
        ("iso8859_2", "Są trzy książki, z którymi był w szkole."),
        ("iso8859_2", "Šéf má rád ŽENU a Žofie, také děti."),
        ("iso8859_2", "Ľudia žijú v meste, kde je veľa mačiek."),
    ],
)
def test_letters_that_other_encodings_have_such_signs_for_stay_letters(name: str, text: str) -> None:
    assert charset.decoded(text.encode(name)).text == text


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text", ["会议记录：预算。\n", "会議の議事録\n", "회의록 예산\n", "Протокол\n", "كتاب جديد\n", "हिन्दी पाठ\n", "Grüße\n"]
)
def test_two_bytes_a_character_need_no_mark(name: str, text: str) -> None:
    assert charset.decoded(text.encode(name)).text == text


@pytest.mark.parametrize("control", ["\x00", "\x01", "\x08", "\x7f"])
@pytest.mark.parametrize("text", ["apple\nriver\nstone\nbridge\nwinter\n" * 20, "abcdefghijklmnop" * 40, "apple\nGrüße\n" * 60])
def test_one_control_character_makes_no_text_one_of_two_bytes_a_character(text: str, control: str) -> None:
    whole = f"{text[:100]}{control}{text[100:]}"
    whole += "x" * (len(whole.encode()) % 2)
    assert charset.decoded(whole.encode()) == charset.Decoded(whole.replace("\x00", ""))


@pytest.mark.parametrize("place", [0, 40, 200, 398])
def test_bad_bytes_in_utf8_are_bad_bytes(place: int) -> None:
    whole = ("Grüße aus Köln, der Schlüssel. " * 13).encode()
    data = whole[:place] + b"\xff" + whole[place:]
    found = charset.decoded(data)
    assert found.text == (whole[:place] + b"\xff" + whole[place:]).decode("utf-8", "replace")
    assert "bytes in it are not valid UTF-8" in found.told[0]


def test_a_text_that_is_cut_off_in_a_character_is_whole_but_for_it() -> None:
    assert charset.decoded("Größe".encode()[:3]) == charset.Decoded("Gr")


@pytest.mark.parametrize(
    ("name", "head", "encoding", "text"),
    [
        ("a.html", '<!doctype html><meta charset="windows-1251"><p>{}</p>', "cp1251", "Бюджет теплицы"),
        ("a.html", "<html><head><meta http-equiv='Content-Type' content='text/html; charset=gb2312'></head><p>{}", "gb18030", "温室预算"),
        ("a.html", "<html><META CHARSET = iso-8859-2><p>{}", "iso8859_2", "Łódź, świat"),
        ("a.xhtml", "<?xml version='1.0' encoding='Shift_JIS'?><html><body><p>{}</p></body></html>", "cp932", "温室の予算"),
        ("a.xml", '<?xml version="1.0" encoding="koi8-r"?><a>{}</a>', "koi8_r", "Бюджет"),
        ("a.py", "# -*- coding: euc-jp -*-\n# {}\n", "euc_jp", "温室の予算"),
        ("a.css", '@charset "windows-1253";\n/* {} */', "cp1253", "Πρακτικά"),
        ("a.html", "<meta charset=iso-2022-jp><p>{}", "iso2022_jp", "温室の予算"),
    ],
)
def test_what_a_file_declares_goes_before_any_guess(name: str, head: str, encoding: str, text: str) -> None:
    found = readers.read(name, head.format(text).encode(encoding))
    assert text in "".join(part.text for part in found.parts)
    assert found.told == ()


def test_a_declaration_that_is_wrong_is_not_believed() -> None:
    found = readers.read("a.html", '<meta charset="windows-1251"><p>Grüße aus Köln</p>'.encode())
    assert "Grüße aus Köln" in found.parts[0].text


MORE = {
    "koi8_u": "Протокол зборів: бюджет на ремонт даху їхній, ключі у Марії Іванівни, єдина копія.\n",
    "cp866": TEXTS["cp1251"],
    "iso8859_5": TEXTS["cp1251"],
    "mac_cyrillic": TEXTS["cp1251"],
    "cp852": TEXTS["cp1250"],
    "iso8859_15": "Procès-verbal : le cœur de l’été coûte 40 €, déjà voté à Noël.\n".replace("’", "'"),
    "utf-32-le": TEXTS["cp1251"],
    "utf-32-be": TEXTS["cp1252"],
    "iso2022_kr": TEXTS["cp949"],
}


@pytest.mark.parametrize("name", MORE)
@pytest.mark.parametrize("times", [1, 50])
def test_older_relatives_of_encodings_are_known(name: str, times: int) -> None:
    assert charset.decoded((MORE[name] * times).encode(name)).text == MORE[name] * times


@pytest.mark.parametrize("name", [*TEXTS, "cp866"])
@pytest.mark.parametrize(("bad", "times"), [(b"\xff", 3), (b"\xff", 40), (b"\x81", 40)])
def test_a_bad_byte_costs_no_more_than_itself_in_any_encoding(name: str, bad: bytes, times: int) -> None:
    text = (TEXTS | MORE)[name]
    found = charset.decoded((text * times).encode(name) + bad + (text * times).encode(name)).text
    whole = found.count(text)
    assert whole >= 2 * times - 1, found[:300]


def test_lines_of_several_writers_are_read_each_in_its_encoding() -> None:
    new, old = "10:15 <a> Grüße über München\n10:16 <b> schön\n", "10:17 <c> Schlüssel für die Straße\n10:18 <d> größer, ärger\n"
    found = charset.decoded((new.encode() + old.encode("cp1252")) * 3)
    assert found.text == (new + old) * 3
    assert "only some of its lines" in found.told[0]


@pytest.mark.parametrize(("name", "at"), [("cp1252", 1), ("cp1252", 40), ("cp1251", 1), ("cp1251", 40)])
def test_a_line_of_another_writer_is_read_in_its_encoding_and_not_lost(name: str, at: int) -> None:
    lines = [TEXTS[name].encode()] * 41
    lines[at] = TEXTS[name].encode(name)
    found = charset.decoded(b"".join(lines))
    assert found.text == TEXTS[name] * 41
    assert "only some of its lines" in found.told[0]


@pytest.mark.parametrize("name", ["iso2022_jp", "iso2022_kr"])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.999])
def test_a_bad_byte_in_an_encoding_of_seven_bits_costs_no_more_than_itself(name: str, place: float) -> None:
    text = (TEXTS["cp932"] if name == "iso2022_jp" else TEXTS["cp949"]) * 30
    data = text.encode(name)
    at = int(len(data) * place)
    found = charset.decoded(data[:at] + b"\xff" + data[at:])
    assert found.text == text
    assert "not valid" in found.told[0]


@pytest.mark.parametrize(
    ("declared", "name"),
    [
        ("iso-8859-1", "cp1251"), ("us-ascii", "koi8_r"), ("windows-1252", "cp949"), ("gb2312", "big5"),
        ("shift_jis", "euc_jp"), ("iso-8859-1", "cp1253"), ("iso-8859-1", "iso8859_2"), ("koi8-r", "cp1251"), ("windows-1251", "koi8_r"),
        ("windows-1251", "cp1252"), ("koi8-r", "cp1252"), ("windows-1253", "cp1252"), ("gb2312", "cp1252"),
    ],
)  # fmt: skip
def test_a_declaration_that_the_bytes_contradict_is_not_believed_and_that_is_told(declared: str, name: str) -> None:
    found = charset.decoded(TEXTS[name].encode(name), declared)
    assert found.text == TEXTS[name]
    assert "contradict" in found.told[0]


@pytest.mark.parametrize("name", ["cp1251", "koi8_r", "mac_cyrillic", "iso8859_5"])
@pytest.mark.parametrize(
    "text", ["ПРОТОКОЛ ЗАСЕДАНИЯ", "Мощность 5 кВт, ключи у Марии", "Windows и Linux: файл README", "БЮДЖЕТ на 2024 год"]
)
def test_a_declaration_of_cyrillic_that_may_be_right_is_believed(name: str, text: str) -> None:
    assert charset.decoded(text.encode(name), name) == charset.Decoded(text)


@pytest.mark.parametrize("declared", ["gb2312", "gb18030", "big5", "euc-kr", "shift_jis"])
def test_a_few_characters_are_read_as_a_mail_declares_them(declared: str) -> None:
    text = {"big5": "預算會議", "euc-kr": "예산회의", "shift_jis": "予算会議"}.get(declared, "预算会议")
    assert charset.decoded(text.encode(declared), declared) == charset.Decoded(text)


@pytest.mark.parametrize("text", ["été à Noël déjà", "“”——€€ “”——€€", "Þórður á Íslandi", "¿Qué? ¡Sí! ½ × ¾ °°°°°°"])
def test_a_declaration_that_may_be_right_is_believed(text: str) -> None:
    assert charset.decoded(text.encode("cp1252"), "iso-8859-1") == charset.Decoded(text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cp1251", "Привет"), ("cp1251", "да"), ("cp1251", "Бюджет 2024"), ("cp1251", "Ключи у Марии"), ("cp1251", "Мама: 12 ЕВРО"),
        ("koi8_r", "Привет мир"), ("cp866", "Привет"), ("cp932", "日本語"), ("cp932", "鍵は箱"), ("cp932", "こんにちは"),
        ("gb18030", "你好"), ("gb18030", "钥匙"), ("iso8859_2", "Łódź"), ("iso8859_2", "Książki"), ("cp1250", "Příliš žluťoučký"),
        ("cp1252", "Schlüssel"), ("cp1252", "Grüße"), ("cp1252", "São Paulo"), ("cp1253", "Καλημέρα"),
        ("utf-16-le", "Привет"), ("utf-16-be", "Привет"), ("utf-16-le", "Łódź"), ("utf-16-be", "Key"), ("utf-16-le", "会议记录"),
        ("utf-16-be", "会议记录"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["", "\n"])
def test_one_or_two_words_are_read_in_their_encoding(name: str, text: str, end: str) -> None:
    found = charset.decoded((text + end).encode(name))
    assert found.text == text + end
    assert name.startswith("utf-16") or "by guess" in found.told[0]


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
def test_the_end_of_a_line_tells_the_order_of_two_bytes(name: str) -> None:
    assert charset.decoded("你好\n".encode(name)).text == "你好\n"


@pytest.mark.parametrize("text", ["café", "Wir treffen uns im Café", "El menú", "Ça va où", "Vive la liberté, l'égalité"])
def test_a_last_letter_that_is_not_of_utf8_is_not_lost(text: str) -> None:
    found = charset.decoded(text.encode("cp1252"))
    assert found.text == text
    assert "by guess" in found.told[0]


def test_what_is_binary_stays_refused() -> None:
    import random

    for seed in range(40):
        with pytest.raises(Unreadable):
            charset.decoded(random.Random(seed).randbytes(3000))


@pytest.mark.parametrize("name", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["你好", "会议", "再见。", "日本語", "こんにちは", "नमस्ते", "γειά", "สวัสดี", "שלום"])
def test_a_word_of_two_bytes_a_character_needs_neither_mark_nor_line_end(name: str, text: str) -> None:
    assert charset.decoded(text.encode(name)).text == text


_ASCII_WORDS = ["`id`", "key[0]", "`make `", "!first,limit", "|as\n", "four#\n", "nome|como\n"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, text) for name in ("utf-8", "cp1251", "cp1252") for text in (*_ASCII_WORDS, "[…]`")),
        *((name, "ключ") for name in ("utf-8", "cp1251")),
        *((name, text) for name in ("utf-8", "cp1252") for text in ("naïf", "café")),
    ],
)
def test_a_word_in_another_encoding_is_none_of_two_bytes_a_character(name: str, text: str) -> None:
    assert charset.decoded(text.encode(name)).text == text


def test_a_line_of_korean_is_not_read_as_thai() -> None:
    text = "회의록: 예산은 오천 원으로 승인되었습니다. 다음 회의는 삼월 십오일입니다.\n"
    assert charset.decoded(text.encode("euc_kr")).text == text


def test_chinese_in_seven_bits_is_read_and_directives_that_look_like_it_stay() -> None:
    assert charset.decoded("会议记录：预算批准五千元。\n".encode("hz")).text == "会议记录：预算批准五千元。\n"
    lisp = '(format t "~{~a~^, ~}" items)\n'
    assert charset.decoded(lisp.encode()).text == lisp


def test_marks_of_byte_order_within_a_text_are_no_characters_of_it() -> None:
    draft = readers.read("n.md", "# One\n\ntext\n\ufeff# Two\n\nmore\n".encode())
    assert [part.title for part in draft.parts] == ["One", "Two"]
    assert charset.decoded(b"\xef\xbb\xbf\xef\xbb\xbfhello").text == "hello"


@pytest.mark.parametrize("data", [b"one\n" + b"\0" * 3000 + b"two\n", b"\0" * 9000 + b"one\ntwo\n", b"one\ntwo\n" + b"\0" * 500])
def test_a_gap_of_zeros_in_a_log_does_not_hide_the_log(data: bytes) -> None:
    assert charset.decoded(data).text.split() == ["one", "two"]


def test_an_archive_with_gaps_between_texts_stays_refused() -> None:
    import io
    import tarfile

    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        about = tarfile.TarInfo("a.txt")
        about.size = 400
        archive.addfile(about, io.BytesIO(b"words " * 66 + b"and "))
    with pytest.raises(Unreadable, match="binary"):
        charset.decoded(made.getvalue())


def test_a_text_that_was_encoded_twice_is_read_as_it_was_before_and_that_is_told() -> None:
    text = "Der Schlüssel für die Tür liegt – wie immer – bei Größe „fünf“.\n"
    twice = text.encode().decode("latin-1")
    assert charset.decoded(twice.encode()).text == text
    found = charset.decoded("Schlüssel für die Tür, Größe".encode().decode("cp1252").encode())
    assert found.text == "Schlüssel für die Tür, Größe"
    assert "twice" in found.told[0]
    about = "They saw Ã¼ and Ã¶ and Ã¤ where ü, ö and ä were.\n"
    assert charset.decoded(about.encode()) == charset.Decoded(about)


def test_control_characters_that_are_signs_of_windows_are_read_as_these() -> None:
    assert charset.decoded("He said \x93hello\x94 and it\x92s 5\x80".encode()).text == "He said “hello” and it’s 5€"


def test_characters_in_two_halves_are_one() -> None:
    assert charset.decoded(b"Party \xed\xa0\xbd\xed\xb8\x80" + " at Kim’s".encode()).text == "Party 😀 at Kim’s"
    assert charset.decoded(b"a\xc0\x80b sch\xc3\xb6n").text == "ab schön"


def test_a_short_text_with_bad_bytes_is_utf8_still() -> None:
    found = charset.decoded("Die Bäder sind schön".encode() + b" \xff und \xfe" + " grün".encode())
    assert found.text == "Die Bäder sind schön \ufffd und \ufffd grün"
    assert "not valid UTF-8" in found.told[0]


def test_colors_of_a_terminal_are_no_words() -> None:
    log = "\x1b[31mERROR\x1b[0m disk full\n\x1b[1;32mok\x1b[0m done\n\x1b]0;title\x1b\\end\n"
    assert charset.decoded(log.encode()).text == "ERROR disk full\nok done\nend\n"
