"""What an answer must be, whoever wrote it; and which language a text is in."""

from __future__ import annotations

import time

import pytest

from batos.mind import answer_checks

BRIEF = "I'm feeling really stuck on this project, and I don't know why I'm so unmotivated."


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        ("... — !?", "it is empty"),
        ("plan the  DAY", "it only repeats the brief"),
        ("again " * 24, "it repeats a few words over and over"),
        ("again and " * 12, "it repeats a few words over and over"),
        ("again " * 23, None),
        ("Plan the day in three steps.", None),
        ("猫", None),
        ("7", None),
        ("🎉", None),
        ("!=", None),
        ("✓", None),
        ("`%`", None),
        ("€", None),
        ("```\n***\n* *\n```", None),
        ("```\n```", "it is empty"),
        ("\ufffd\ufffd\ufffd", "it is empty"),
        ("> |", "it is empty"),
    ],
)
def test_the_gate(text: str, fault: str | None) -> None:
    assert answer_checks.fault_of(text, "Plan the day") == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BRIEF, "it only repeats the brief"),
        (f"Answer: {BRIEF}", "it only repeats the brief"),
        (f'"{BRIEF.rstrip(".")}!"', "it only repeats the brief"),
        (f"{BRIEF} That is a heavy thing to carry, and it may be that the project has lost its meaning for you.", None),
        ("Stuck is where you are, not who you are.", None),
    ],
)
def test_the_brief_again_with_a_few_words_is_no_answer(text: str, fault: str | None) -> None:
    assert answer_checks.fault_of(text, BRIEF) == fault


def test_an_answer_has_a_length() -> None:
    assert answer_checks.fault_of("Yes.", shortest=5) == "it has 4 characters and must have 5"
    assert answer_checks.fault_of("Yes, do.", longest=7) == "it has 8 characters and may have 7"
    assert answer_checks.fault_of("Yes, do.", shortest=8, longest=8) is None


GERMAN = "Ich weiß nicht, warum ich mich so müde fühle, und ich habe das Gefühl, dass es nicht besser wird."
TEXTS = {
    "English": BRIEF,
    "German": GERMAN,
    "French": "Je ne sais pas pourquoi je suis si fatigué, et il me semble que cela ne va pas mieux avec le temps.",
    "Spanish": "No sé por qué estoy tan cansado, y me parece que no se mejora con el tiempo, pero lo intento.",
    "Italian": "Non so perché sono così stanco, e mi sembra che non migliori con il tempo, anche se ci provo molto.",
    "Portuguese": "Eu não sei por que estou tão cansado, e parece que isso não melhora com o tempo, mas eu tento.",
    "Dutch": "Ik weet niet waarom ik zo moe ben, en het lijkt erop dat het niet beter wordt met de tijd, maar ik probeer het.",
    "CYRILLIC": "Я не знаю, почему я так устал, и мне кажется, что лучше не становится.",
    "HIRAGANA": "なぜこんなにつかれているのかわからない",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_language_is_told_by_its_small_words_or_its_script(name: str) -> None:
    assert answer_checks.language_of(TEXTS[name]) == name


@pytest.mark.parametrize("text", ["", "42", "Ja.", "def f(x): return x + 1", "Berlin Paris Madrid Roma Lisboa London Amsterdam", "x" * 500])
def test_where_it_cannot_be_told_it_is_not(text: str) -> None:
    assert answer_checks.language_of(text) is None


def test_an_answer_in_another_language_is_refused() -> None:
    assert answer_checks.fault_of(BRIEF, GERMAN) == "it is in English and the request is in German"
    assert answer_checks.fault_of(TEXTS["CYRILLIC"], BRIEF) == "it is in CYRILLIC and the request is in English"


def test_unless_the_brief_speaks_of_languages() -> None:
    assert answer_checks.fault_of(GERMAN, "Translate to German what I told you about the way that I feel now.") is None
    assert answer_checks.fault_of(GERMAN, "How would you say it in the language of Goethe if you were to write it?") is None


RIGHT = [
    (
        "What are the lyrics of La Marseillaise?",
        "Allons enfants de la Patrie, le jour de gloire est arrivé, contre nous de la tyrannie l'étendard sanglant est levé.",
    ),
    ("スマートフォンのバッテリー交換とメンテナンスについて",
     "はい、お使いの電話の電池は、お店でかえてもらうことができます。だいたい一時間くらいでおわります。"),
    ("賃貸契約更新料相場教示希望", "お調べしたところ、更新のときに払うお金は、だいたい家賃の一か月ぶんくらいになることが多いようです。"),
    ("明日のかいぎでなにをはなしたらいいかおしえてください",
     "一、予算。二、人員配置。三、日程。以上三項目を提案。予算執行状況確認、人員配置計画見直。"),
    ("Pythonでリストを逆順にする関数を書いてください",
     "def rev(xs):\n    return xs[::-1]  # for and with not in is the list that you have"),
    ("請用 Python 寫一個函數,判斷一個數字是不是質數",
     "可以這樣寫:\nfor i in range(2, n): \n    if n % i == 0: return False\n  return it is not in the set of them"),
    ("Wie heißen die bekanntesten Lieder der Beatles und warum sind sie so beliebt?",
     "1. All You Need Is Love\n2. Here Comes the Sun\n3. With a Little Help from My Friends\n4. I Want to Hold Your Hand"),
    ("Summarise this text for me in two sentences please:\nIch weiß nicht, warum ich mich so müde fühle, und ich habe das Gefühl.",
     "The writer does not know why they are tired, and they feel that it is not getting better with the time that passes."),
    ("Was bedeutet der Satz: To be or not to be, that is the question?",
     "Hamlet fragt sich, ob er leben oder sterben will, und das lässt ihn nicht los."),
    ("Wie nennt man es, wenn ein Lied sich im Kopf festsetzt und man es nicht los wird?",
     "Das ist ein „catchy tune that you have in your head and that is not leaving“, und man sagt auch Ohrwurm dazu."),
    ("как приготовить борщ по-домашнему, чтобы он был густым", "Сварите бульон, добавьте свёклу, капусту и картофель; варите 40 минут."),
    ("오늘 저녁에 뭘 먹으면 좋을까요? 간단한 걸로 추천해 주세요", "김치볶음밥은 어떠세요? 밥과 김치, 계란만 있으면 10분이면 됩니다."),
    ("मुझे आज बहुत थकान हो रही है, क्या करूँ", "थोड़ा आराम करें, पानी पिएँ और जल्दी सो जाएँ।"),
    ("كيف يمكنني أن أتعلم البرمجة بسرعة في المنزل", "ابدأ بلغة Python ثم تدرب كل يوم على مشروع صغير."),
    ("¿Cómo puedo mejorar mi inglés para una entrevista?",
     "Practice with a friend every day and record what you say so that you can hear it."),
    ("What is the formula for the area of a circle and why is it so?",
     "𝐀 = 𝜋𝐫², because the circle can be cut into slices that you lay side by side."),
    ("Ｗｈａｔ　ｉｓ　ｔｈｅ　ｂｅｓｔ　ｗａｙ　ｔｏ　ｌｅａｒｎ　ｔｏ　ｓｗｉｍ？",
     "It is best to go to the pool with somebody who can, and to do it often."),
]  # fmt: skip
WRONG = [
    (GERMAN, "You should rest and drink water, and it is a good idea to see what the doctor has to say to you."),
    (
        "スマートフォンのバッテリー交換とメンテナンスについて",
        "You can have the battery of your phone replaced in a shop, and it will take about an hour.",
    ),
    (BRIEF, "Вы можете сделать маленький шаг и посмотреть, куда он приведёт вас сегодня."),
    (
        "как приготовить борщ по-домашнему, чтобы он был густым",
        "You have to boil the beets with the cabbage, and then you add what is left of the stock.",
    ),
    ("今天晚上吃什么比较好?请推荐简单的", "You could make fried rice with the vegetables that are left, and it is ready in ten minutes."),
    ("오늘 저녁에 뭘 먹으면 좋을까요? 간단한 걸로 추천해 주세요", "今日はカレーライスにしましょう。かんたんに作れておいしいですよ。"),
    (
        "Que puis-je faire pour mieux dormir la nuit, je suis fatigué ?",
        "You should go to bed at the same time, and it is best that there is no light.",
    ),
]


@pytest.mark.parametrize(("brief", "answer"), RIGHT)
def test_an_answer_in_the_briefs_language_is_let_through(brief: str, answer: str) -> None:
    assert answer_checks.differs_in_language(answer, brief) is None


@pytest.mark.parametrize(("brief", "answer"), WRONG)
def test_an_answer_in_another_is_told(brief: str, answer: str) -> None:
    assert "the request is in" in (answer_checks.differs_in_language(answer, brief) or "")


@pytest.mark.parametrize(
    "brief",
    [
        "Plan a birthday party for a cat lover on a budget",
        "Why do people die in a war that no one as such wants to be in?",
        "A B C D E F G H I J K O",
        "Make a to-do list: la la la, do re mi",
    ],
)
def test_english_briefs_with_words_of_other_languages_are_english(brief: str) -> None:
    assert answer_checks.language_of(brief) in (None, "English")


LOOP = "The key had been put in a box. Whoever opened it lost an hour. "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"Once there was a key. {LOOP}{LOOP}{LOOP}The key had", f"Once there was a key. {LOOP}".strip()),
        (
            f"{LOOP}It was cold. {LOOP}And then he went home to his own bed. He slept. The",
            f"{LOOP}It was cold. {LOOP}And then he went home to his own bed. He slept.",
        ),
        ("Yes. Yes. Yes. Yes. The last", "Yes. Yes. Yes. Yes."),
        ("```\nprint(1)\nprint(1)\nprint(1)\n", "```\nprint(1)\nprint(1)\nprint(1)\n```"),
        ("The bread is good today. The bread is good today. The br", "The bread is good today."),
    ],
)
def test_of_an_answer_that_was_cut_what_it_says_again_and_again_is_left_out(text: str, kept: str) -> None:
    assert answer_checks.without_partial_end(text, cut=True) == kept
    assert answer_checks.without_partial_end(text, cut=False) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It was written by Dr. Meier in 1950. It was translated by Dr. Smi", "It was written by Dr. Meier in 1950."),
        ("Es gibt viele Sorten. Man nimmt z. B. Roggen oder Wei", "Es gibt viele Sorten."),
        ("It costs a lot. The price is 3.", "It costs a lot."),
        ("Here are the steps:\n1. Boil the water\n2. Add the pas", "Here are the steps:\n1. Boil the water"),
        ("Steps: 1. Boil the water. 2. Add the pasta. 3.", "Steps: 1. Boil the water. 2. Add the pasta."),
        ("See the page. It is at www.example.", "See the page."),
        ("Install Python 3.11. Then run version 2.", "Install Python 3.11."),
        ("मधुमक्खी एक कीट है। वह शहद बनाती है। वह फूलों से रस ले", "मधुमक्खी एक कीट है। वह शहद बनाती है।"),
        ("ما هي النحلة؟ النحلة حشرة. هل تصنع العسل؟ نعم تصن", "ما هي النحلة؟ النحلة حشرة. هل تصنع العسل؟"),
        ("شہد کی مکھی ایک کیڑا ہے۔ وہ شہد بناتی ہے۔ وہ رس لی", "شہد کی مکھی ایک کیڑا ہے۔ وہ شہد بناتی ہے۔"),
        ("Here:\n~~~python\nprint(1)\n\nprint(", "Here:\n~~~python\nprint(1)\n~~~"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("The moon is high\nThe night is long\nI hear the bir", "The moon is high\nThe night is long"),
        ("The bee is an insect that makes honey and", "The bee is an insect that makes honey and…"),
    ],
)
def test_a_cut_answer_ends_at_a_whole_sentence_in_any_script(text: str, kept: str) -> None:
    assert answer_checks.without_partial_end(text, cut=True) == kept


REFRAIN = "Oh the river runs down to the sea."
VERSES = ("I met a man with silver hair", "He sang a song without a care", "He left his boots here", "The moon was round and fair")


@pytest.mark.parametrize(
    ("brief", "text"),
    [
        ("Write a song with a refrain", "\n\n".join(f"{verse}\n{REFRAIN}" for verse in VERSES)),
        ("Write 'I will not be late again' ten times.", "\n".join(["I will not be late again."] * 10)),
        ("The identity matrix of size 6", "\n".join(" ".join("1" if i == j else "0" for j in range(6)) for i in range(6))),
        ("The chords of that song", "\n".join(["C G Am F", "C G F C"] * 4)),
        ("Two mRNA strands", "UACCGG AACUGG CCAGGU GGCCGG CCGGCC GGGCCC"),
        ("Hello!", "Hello!"),
        ("Guten Morgen", "Guten Morgen"),
        ("Schlag mir einen Filmtitel vor", "蜘蛛の巣"),
        ("Tamil word for a person who comes to you with the book?", "நாளை உங்களிடம் வருபவர்"),
        ("And now the same in Farsi: I do not know where it is and I need your help", "نمی‌دانم ایستگاه کجاست و به کمک شما نیاز دارم"),
        ("Mujhe aaj bahut thakan ho rahi hai, kya karun", "थोड़ा आराम करें, पानी पिएँ और जल्दी सो जाएँ।"),
        ("How do people greet each other around the world?", "India says Namaste (नमस्ते), China 你好, Russia Привет, Egypt مرحبا."),
    ],
)
def test_a_good_answer_of_an_odd_form_passes(brief: str, text: str) -> None:
    assert answer_checks.fault_of(text, brief) is None


@pytest.mark.parametrize(
    ("brief", "text", "fault"),
    [
        ("请介绍蜜蜂", "蜜蜂很好。" * 30, "over and over"),
        ("蜂について教えて", "蜂は花の蜜を集めて、" * 12, "over and over"),
        ("Tell me about bees", "\n".join(f"{n}. Bees make honey in the hive" for n in range(1, 12)), "over and over"),
        ("Tell me about bees", "Tell me about bees. " * 8, "over and over"),
        ("Tell me about bees", "Ġthe Ġbee Ġis Ġan Ġinsect Ġthat Ġmakes Ġhoney", "not words"),
        ("Tell me about bees", "bee<0x0A><0xE2><0x80><0x99>s are <unk> <unk>", "not words"),
        ("Tell me about bees", "The � of � bees � is", "not words"),
        ("Расскажи о пчёлах", "бвгдж зжкл мнпрт стфхц цчшщб бврг и пчёлы", "not words"),
        ("请告诉我蜜蜂在冬天怎么酿蜜", "好的。请告诉我蜜蜂在冬天怎么酿蜜。", "repeats the brief"),
        ("Tell me about bees", "User: Tell me about bees\nAssistant: Bees are insects.\nUser: Thanks", "repeats the brief"),
        ("Tell me about bees", "user\nTell me about bees\nassistant\nBees are insects.", "repeats the brief"),
        ("How do I make yoghurt at home?", "把牛奶加热到四十度，加入一勺酸奶，保温一夜就好了。", "it is in CJK"),
        ("Tell me about bees", "Эта 蜜蜂 очень important 그리고 아주 ويصنع العسل यह है", "at once"),
    ],
)
def test_garbage_of_any_script_is_told(brief: str, text: str, fault: str) -> None:
    assert fault in (answer_checks.fault_of(text, brief) or "")


@pytest.mark.parametrize(
    ("text", "fault"), [("... --- ...", None), (".... . .-.. .-.. ---", None), ("---", "it is empty"), (". . .", "it is empty")]
)
def test_an_answer_in_morse_is_one(text: str, fault: str | None) -> None:
    assert answer_checks.fault_of(text, "Say it in Morse code") == fault


def test_the_end_of_a_long_answer_is_looked_for_in_linear_time() -> None:
    took = []
    for size in (20_000, 80_000):
        begun = time.process_time()
        answer_checks.without_partial_end("a\n" * size, cut=True)
        took.append(time.process_time() - begun)
    assert took[1] < 9 * took[0]
