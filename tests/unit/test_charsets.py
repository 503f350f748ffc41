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


def test_what_is_binary_stays_refused() -> None:
    import random

    for seed in range(40):
        with pytest.raises(Unreadable):
            charset.decoded(random.Random(seed).randbytes(3000))
