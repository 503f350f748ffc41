"""HTML: what a page says, whatever it is laid out with, and nothing that surrounds or hides in it."""

from __future__ import annotations

import pathlib

import pytest

from batos.errors import Unreadable
from batos.memory import readers
from batos.memory.readers import html


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
