"""HTML: what a page says, whatever it is laid out with, and nothing that surrounds or hides in it."""

from __future__ import annotations

import html as markup
import pathlib

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.drafts import Draft
from batos.memory.readers import html


def said_by(draft: Draft) -> str:
    return "\n".join(part.text for part in draft.parts)


def text_of(page: str) -> str:
    return "".join(part.text for part in readers.read("page.html", page.encode()).parts)


@pytest.mark.parametrize(
    ("page", "said", "unsaid"),
    [
        (
            "<div><article><p>Apples</p></article><article><p>Plums</p></article></div><footer>Imprint</footer>",
            ["Apples", "Plums"],
            ["Imprint"],
        ),
        ("<main><p>One</p></main><main><p>Two</p></main><nav>Home</nav>", ["One", "Two"], ["Home"]),
        (
            "<form><p>All in a form</p><button>Send</button><input value=x><select><option>no</select></form>",
            ["All in a form"],
            ["Send", "no"],
        ),
        ("<p>Before</p><form><p>Within</p></form>", ["Before", "Within"], []),
        ("<article><p>Text</p><aside>A note box</aside></article><aside>Adverts</aside>", ["Text", "A note box"], ["Adverts"]),
        ("<article><p>A teaser</p></article><div>" + "<p>Most of what it says</p>" * 9 + "</div>", ["A teaser", "Most of what"], []),
        ("<nav>Only here</nav>", ["Only here"], []),
        ("<p>See <img src=x alt='a red heater'></p><noscript>No script</noscript>", ["[a red heater]", "No script"], []),
        ("<p>Shown</p><p style='color: red; display : none'>Hidden A</p><div hidden>Hidden B</div>", ["Shown"], ["Hidden"]),
        ("<p>Shown</p><p style='font-size:0'>Hidden</p><p style='font-size:0.9em;opacity:0.5'>Small</p>", ["Shown", "Small"], ["Hidden"]),
        ("<h1>Miet<wbr>vertrag <b>O</b>range</h1>", ["# Mietvertrag Orange\n"], []),
        ("<table><tr><td><b>H</b>eater<td>CO<sub>2</sub><tr><td>x<td>y</table>", ["| Heater | CO2 |\n| x | y |\n"], []),
        ("<p><span>Rent</span><span>40</span> <b>w</b>ord<i>s</i></p>", ["Rent 40 words"], []),
        ("<details><summary>Safe</summary>Code 4711</details>", ["Safe\nCode 4711"], []),
        ("<p>one<br>two</p><p>10<sup>2</sup> m</p>", ["one\ntwo\n", "10² m"], []),
        ("<ol start=3><li>a<ul><li>b</ul><li>c</ol>", ["3. a\n  - b\n4. c\n"], []),
        ("<ol><li value=7>a<li>b</ol>", ["7. a\n8. b\n"], []),
        ("<dl><dt>Rent<dd>40</dl>", ["Rent\n: 40\n"], []),
        ("<pre>a ``` b\n  c</pre>", ["````\na ``` b\n  c\n````"], []),
        ("<p>unclosed <p>paragraphs <ul><li>and<li>items", ["unclosed\n\nparagraphs\n\n- and\n- items"], []),
        ("<table><tr><td><p>a</p><p>b</p><td>c|d</table>", ["| a b | c\\|d |"], []),
    ],
)
def test_what_a_page_says(page: str, said: list[str], unsaid: list[str]) -> None:
    found = text_of(page)
    for words in said:
        assert words in found
    for words in unsaid:
        assert words not in found


def test_tables_in_tables_are_a_layout_and_what_is_in_them_is_told_once() -> None:
    inner = "<h1>Invoice</h1><p>Total is 512 euros.</p><ul><li>Heater</li><li>Pump</li></ul><table><tr><th>A<th>B<tr><td>1<td>2</table>"
    page = f"<table><tr><td><table><tr><td>{inner}</td></tr></table></td></tr></table>"
    assert text_of(page) == "# Invoice\n\nTotal is 512 euros.\n\n- Heater\n- Pump\n\n| A | B |\n| 1 | 2 |\n"


def test_what_a_page_hides_is_told() -> None:
    assert readers.read("p.html", b"<p>Shown</p><p hidden>secret</p>").told == (
        "6 characters that the page hides from who looks at it were left out",
    )


@pytest.mark.parametrize("deep", ["<div>", "<b>", "<table><tr><td>", "<ul><li>", "<blockquote>"])
def test_a_page_of_elements_without_end_is_refused_or_read_soon(deep: str) -> None:
    assert "deep" in "".join(part.text for part in html.read_html(pathlib.PurePath("p"), deep * 1000 + "deep").parts)
    with pytest.raises(Unreadable, match="stand in one another"):
        html.read_html(pathlib.PurePath("p"), deep * 300_000)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<h2><button>How do I cancel?</button></h2><p>Write.</p>", "## How do I cancel?\n\nWrite."),
        ("<details><summary><button>Hours</button></summary><p>9 to 5</p></details>", "Hours\n\n9 to 5"),
        ("<button class='Accordion-head'>Fees</button><div>40 euros</div>", "Fees\n\n40 euros"),
        ("<p>It is <math><mi>E</mi><mo>=</mo><msup><mi>c</mi><mn>2</mn></msup></math> now</p>", "It is E=c^2 now"),
        ("<p>A <math><mfrac><mn>1</mn><mn>2</mn></mfrac></math> b</p>", "A 1/2 b"),
        ("<p>Our <x-badge>new</x-badge> key</p>", "Our new key"),
        ("<label>Name <input value='Anna  Müller'></label>", "Name Anna Müller"),
        ("<label>Town <select><option>Berlin<option selected>Bonn</select></label>", "Town Bonn"),
        (
            "<p><input type=checkbox checked>Yes <input type=checkbox>No<input type=hidden value=t><input type=password value=p></p>",
            "[x] Yes No",
        ),
        ("<x-app><template shadowrootmode=open><p>Key: Clara</p></template></x-app><template><p>no</p></template>", "Key: Clara"),
    ],
)
def test_a_page_says_what_a_browser_shows(page: str, said: str) -> None:
    assert text_of(f"<!doctype html><body>{page}").strip() == said


def test_a_row_has_what_spans_it_and_a_list_does_not_end_a_table() -> None:
    rows = "<tr><td rowspan=3>Monday<td>9:00<td>Anna<tr><td>10:00<td>Ben<tr><td colspan=2>closed<tr><td>Tuesday<td>9:00<td>Cleo"
    assert text_of(f"<table><tr><th>Day<th>Time<th>Who{rows}</table>").splitlines() == [
        "| Day | Time | Who |", "| Monday | 9:00 | Anna |", "| Monday | 10:00 | Ben |", "| Monday | closed |", "| Tuesday | 9:00 | Cleo |",
    ]  # fmt: skip
    listed = "<table><tr><th>Day<th>Tasks<tr><td>Monday<td><ul><li>cook<li>wash</ul></table>"
    assert text_of(listed) == "| Day | Tasks |\n| Monday | cook - wash |\n"


def test_elements_of_xml_that_are_their_own_end_open_nothing() -> None:
    page = "<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='a.js'/></head><body>{}</body></html>"
    assert text_of(page.format("<p>One<br/></p><div/><a id='x'/><p>Two</p>")) == "One\n\nTwo\n"
    assert text_of(page.format("<p>One</p>" + "<a id='x'/>" * (html.DEEPEST + 1))) == "One\n"


def test_what_spans_very_many_rows_stays_bounded() -> None:
    rows = "<tr><td>a" * 2000
    assert len(text_of(f"<table><tr><th>x<th>y<tr><td rowspan=60000>{'long ' * 100}<td>b{rows}</table>")) < 100_000
    assert len(text_of("<table><tr><th>x<th>y" + "<tr><td rowspan=60000>a<td>b" * 2000 + "</table>")) < 1_000_000


LEAD = "<p>The meeting begins at nine, and everybody brings a cup along.</p>"


@pytest.mark.parametrize(
    "hidden",
    [
        "<div hidden>bait</div>",
        '<div style="DISPLAY : none !important">bait</div>',
        '<div style="visibility:collapse">bait</div>',
        '<div style="font-size:1px">bait</div>',
        '<div style="opacity:0.00">bait</div>',
        '<div style="opacity: 0%">bait</div>',
        '<div style="opacity:.0">bait</div>',
        '<div style="position:absolute; text-indent:-999em">bait</div>',
        '<div style="position:absolute;left:-999px">bait</div>',
        '<div style="clip-path: inset(50%)">bait</div>',
        '<div style="clip-path:circle(0)">bait</div>',
        '<div style="content-visibility: hidden">bait</div>',
        '<div style="transform: scale(0)">bait</div>',
        '<div style="font:0/0 a">bait</div>',
        '<div style="position:absolute; left: -9999px">bait</div>',
        '<div style="max-height:0;overflow:hidden">bait</div>',
        '<span style="color:#fff;background:#ffffff">bait</span>',
        '<i aria-hidden="true">bait</i>',
        "<style>.x{display:none}</style><div class=x>bait</div>",
        "<style>/* a */ p.y, #x { visibility: hidden }</style><div id=x>bait</div>",
        '<iframe style="display:none" srcdoc="&lt;p&gt;bait"></iframe>',
        '<iframe srcdoc="&lt;p style=&quot;display:none&quot;&gt;bait"></iframe>',
        "<select style='display:none'><option selected>bait</select>",
    ],
)
def test_what_a_page_hides_is_not_read(hidden: str) -> None:
    draft = readers.read("p.html", f"<html><body>{LEAD}{hidden}</body></html>".encode())
    assert "bait" not in said_by(draft)
    assert "cup along" in said_by(draft)
    assert draft.told or "srcdoc" in hidden or "select" in hidden


@pytest.mark.parametrize(
    "shown",
    [
        '<td style="font-size:0px;padding:20px"><div style="font-size:13px">seen words</div></td>',
        "<style>.tab{display:none}.tab.open{display:block}</style><div class=tab>seen words</div>",
        '<div style="opacity:0.05">seen words</div>',
        '<div style="opacity: 50%">seen words</div>',
        '<div style="transform:scale(0.9)">seen words</div>',
        '<div style="clip-path:inset(5%)">seen words</div>',
        '<div style="content-visibility:auto;margin-left:-10px">seen words</div>',
        "<style>@media print {.m{display:none}}</style><div class=m>seen words</div>",
        "<style>.m{display:none}</style><div class=m>seen words</div><script>show()</script>",
        '<div aria-hidden="true"><main><h1>Title</h1><p>seen words</p></main></div>',
        '<div style="height:0">seen words</div>',
        '<div style="line-height:0;font:bold 1.2em Arial">seen words</div>',
        '<div style="color:#fff;background:#fff url(night.png)">seen words</div>',
        '<div style="left:-50px;font-size:10px">seen words</div>',
        '<iframe srcdoc="&lt;p&gt;seen words&lt;/p&gt;"></iframe>',
        '<iframe srcdoc="&lt;iframe srcdoc=&quot;&amp;lt;p&amp;gt;seen words&quot;&gt;&lt;/iframe&gt;"></iframe>',
        "<svg><text>seen words</text></svg>",
    ],
)
def test_what_a_page_shows_is_read(shown: str) -> None:
    page = f"<html><body>{LEAD}<table><tr>{shown}</tr></table></body></html>" if shown.startswith("<td") else f"<body>{LEAD}{shown}</body>"
    assert "seen words" in said_by(readers.read("p.html", page.encode()))


def test_frames_in_one_another_come_to_an_end() -> None:
    page = "<p>innermost</p>"
    for _ in range(8):
        page = f'<iframe srcdoc="{markup.escape(page)}"></iframe>'
    assert "innermost" not in said_by(readers.read("p.html", f"<body>{LEAD}{page}</body>".encode()))


def test_a_page_without_text_says_what_it_says_of_itself() -> None:
    framed = "<html><frameset><frame src=a><noframes><body><p>Old words</p></body></noframes></frameset></html>"
    assert "Old words" in said_by(readers.read("p.html", framed.encode()))
    described = "<html><head><meta name=description content='A page about pumps'></head><body></body></html>"
    assert "about pumps" in said_by(readers.read("p.html", described.encode()))


def test_what_a_mail_hides_is_left_out_and_told() -> None:
    head = b"From: a@b.example\nSubject: S\nMIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n\n"
    draft = readers.read(
        "m.eml", head + b'<div style="display:none">bait</div><p>Hello words</p><iframe srcdoc="&lt;p&gt;framed"></iframe>'
    )
    assert "bait" not in said_by(draft)
    assert "Hello words" in said_by(draft)
    assert "framed" in said_by(draft)
    assert "hides" in draft.told[0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<pre>a  b<br>c\n  d</pre>", "```\na  b\nc\n  d\n```\n"),
        ("<pre><code><div>a</div><div>  b</div></code></pre>", "```\na\n  b\n```\n"),
        ("<pre><span>a</span>\n<span>b</span></pre>", "```\na\nb\n```\n"),
        ('<h2>Diet<span class="mw-editsection">[<a>edit</a>]</span></h2>', "## Diet\n"),
        ('<h1>mod<a class="headerlink" href="#mod">¶</a></h1>', "# mod\n"),
        ("<p>10<sup>−3</sup> Ca<sup>2+</sup> 1<sup>st</sup> x<sup>n+1</sup></p>", "10⁻³ Ca²⁺ 1st xn+1\n"),
        ("<p><s>50</s> <del>45</del> 40, he said <q>yes</q></p>", "~~50~~ ~~45~~ 40, he said “yes”\n"),
        ("<del></del><del><p>gone</p></del>", "gone\n"),
        ("<math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac></math>", "(a+b)/c\n"),
        ("<math><mfrac><mrow><mn>1</mn></mrow><mn>2</mn></mfrac><msqrt><mi>x</mi></msqrt></math>", "1/2√(x)\n"),
    ],
)
def test_marks_that_change_what_a_page_says_are_kept(body: str, text: str) -> None:
    found = readers.read("a.html", f"<!doctype html><html><body>{body}</body></html>".encode())
    assert "".join(part.text for part in found.parts) == text
