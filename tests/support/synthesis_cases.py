"""Requests for methods, their examples, and the sources that are put together of parts for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from batos.objects import Example, Method
from batos.synthesis.handbook import HandbookEntry
from tests.support.synthesis import ROWS, SHORT


class Request(NamedTuple):
    """A request, and what is found for it; each source that is found does what the examples say."""

    intent: str
    examples: tuple[Example, ...]
    first: str | None = None
    """Body of the source that is taken first, its lines joined by `; `; None where any may be."""
    among: str | None = None
    """End of a source that is one of those that are found."""
    most: int = 20_000
    """Values that are computed at most."""
    known: tuple[HandbookEntry, ...] = ()
    sends: dict[str, str] = {}
    """Sources of the receiver's other methods, by their selectors."""

    @property
    def methods(self) -> dict[str, Method]:
        return {selector: Method(selector, source) for selector, source in self.sends.items()}


def of(intent: str, *args: Any, to: Any, first: str | None = None, **more: Any) -> Request:
    """Return a request with one example: positional arguments, and the result."""
    return Request(intent, (Example(args, (), to),), first, **more)


def slots(intent: str, example: Example, first: str | None = None, **more: Any) -> Request:
    """Return a request with one example, which has slots."""
    return Request(intent, (example,), first, **more)


DUE = [{"name": "Ann", "due": "2024-03-01"}, {"name": "Bob", "due": "2024-03-09"}, {"name": "Cy", "due": "2024-03-05"}]
AGES = [{"age": 31}, {"age": 7}, {"age": 12}]
COUNTS = [{"name": "ann", "count": 31}, {"name": "bob", "count": 5}]
SENDS = {
    "fee_": "def fee_(self, number):\n    return number * number + 7",
    "big_": "def big_(self, number):\n    return number > 30",
}

REQUESTS = [
    # going through records
    of("the sorted names of all", ROWS, to=["Abe", "Ann", "Bob"], first="return sorted((item['name'] for item in items))"),
    of("names whose age is under 30", ROWS, to=["Bob", "Abe"], first="return [item['name'] for item in items if item['age'] < 30]",
       most=60_000),
    of("the total age", ROWS, to=81, first="return sum((item['age'] for item in items))"),
    of("names, sorted by age", ROWS, to=["Bob", "Abe", "Ann"]),
    of("the name of the oldest by age", ROWS[::-1], to="Ann", first="return max(items, key=lambda item: item['age'])['name']"),
    of("the age for each name", ROWS, to={"Ann": 41, "Bob": 17, "Abe": 23}),
    of("the total age by city", ROWS, to={"Rome": 64, "Bern": 17}),
    of("the names by city", ROWS, to={"Rome": ["Ann", "Abe"], "Bern": ["Bob"]}),
    of("how many of each city", ROWS, to={"Rome": 2, "Bern": 1}),
    of("names that are no member", ROWS, to=["Abe"]),
    of("names due before the day", DUE, "2024-03-04", to=["Ann"], first="return [x['name'] for x in items if x['due'] < text]"),
    of("the spread of the ages: largest minus smallest", AGES, to=24,
       first="return max([item['age'] for item in items]) - min([item['age'] for item in items])"),
    of("a line for each record with name, colon and count", COUNTS, to="ann: 31\nbob: 5",
       among="return '\\n'.join((item['name'] + ': ' + str(item['count']) for item in items))"),
    # going through words, lines, numbers and pairs
    of("the longest word", "we had a wonderful day yes", to="wonderful", first="return max(text.split(), key=len)"),
    of("the length of each word", "we had fun", to=[2, 3, 3], first="return [len(item) for item in text.split()]"),
    of("every second word, joined", "we had a good day", to="we a day", first="return ' '.join(text.split()[::2])"),
    of("the words of each line", "a bc\nd ef", to=[["a", "bc"], ["d", "ef"]]),
    of("every word without its x and y", "sexy foxes yell", to=["se", "foes", "ell"], known=(SHORT,),
       first="return [''.join((c for c in item if c not in 'xy')) for item in text.split()]"),
    of("which of the words are found in the text", "a season of ice", ["sea", "ice"], to=["ice"],
       first="return [x for x in items if x in text.split()]"),
    of("numbers of at least 30", [12, 31, 40], to=[31, 40], first="return [x for x in items if x >= 30]"),
    of("numbers over 30", [12, 31, 40], to=[31, 40], first="return [x for x in items if x > 30]"),
    Request("numbers over 30", (Example(([12, 31],), (), [31]), Example(([30, 41],), (), [41])), "return [x for x in items if x > 30]"),
    of("how many are over the number", [121, 5, 300, 7, 15], 14, to=3, first="return sum((x > number for x in items))"),
    of("the places of the numbers greater than 100", [7, 130, 5, 101], to=[1, 3],
       first="return [i for i, x in enumerate(items) if x > 100]"),
    of("double what is over 8 and add it up", [30, 23, 31], to=168, among="return sum((item * 2 for item in items if item > 8))",
       most=120_000),
    of("double the numbers over 10, the others stay", [3, 12, 8, 40], to=[3, 24, 8, 80],
       among="return [item * 2 if item > 10 else item for item in items]"),
    of("texts that contain 'ea' in capitals, the others stay", ["sea", "sky", "tide", "beat"], to=["SEA", "sky", "tide", "BEAT"],
       among="return [item.upper() if 'ea' in item else item for item in items]"),
    of("the name, a colon and the number of each", ["tea", "ice"], [31, 47], to=["tea: 31", "ice: 47"],
       among="return [item[0] + ': ' + str(item[1]) for item in zip(items, items2)]", most=60_000),
    of("by how many words each has, short up to 2, medium up to 4, else long", ["a b", "a b c"], to=["short", "medium"],
       most=60_000,
       among="return ['short' if len(item.split()) <= 2 else 'medium' if len(item.split()) <= 4 else 'long' for item in items]"),
    of("the difference of each number and the next", [10, 150, 30], to=[140, -120]),
    # numbers, texts, records and times
    of("the third power", 7, to=343, first="return number ** 3"),
    of("sum up to the number of squares", 9, to=285),
    of("the values of the record, sorted", {"a": 31, "b": 12}, to=[12, 31]),
    of("rename a key", {"a": 1, "b": 2}, "b", "c", to={"a": 1, "c": 2},
       first="return {text2 if k == text else k: v for k, v in record.items()}"),
    of("replace every tilde by an ampersand", "a~ b~c", to="a& b&c", first="return text.replace('~', '&')"),
    of("the hours later", "2024-03-01T22:00:00", 5, to="2024-03-02T03:00:00", most=60_000,
       among="import datetime\n    return (datetime.datetime.fromisoformat(text) + datetime.timedelta(hours=number)).isoformat()"),
    # texts with something fixed between their parts
    of("thank somebody for a thing", "Bob", "cake", to="Thank you, Bob, for the cake!",
       first="return 'Thank you, ' + text + ', for the ' + text2 + '!'"),
    of("small letters and .txt behind it", "Summer Plans", to="summer plans.txt", first="return text.lower() + '.txt'"),
    of("the birthday in a year", "1999-03-21", 2024, to="2024-03-21", first="return str(number) + '-' + text[5:]"),
    of("hello to the name", {"name": "Eve", "age": 7}, to="Hello, Eve!", first="return 'Hello, ' + record['name'] + '!'"),
    of("how many pears", 12, to="12 pears", first="return str(number) + ' pears'"),
    Request("how many pears", (Example((12,), (), "12 pears"), Example((5,), (), "5 pears")), "return str(number) + ' pears'"),
    of("half of the price, with km behind it", 5, to="2.5 km", first="return str(number / 2) + ' km'"),
    # words for a number
    of("yes if it is even, no otherwise", 12, to="yes", first="return 'yes' if number % 2 == 0 else 'no'"),
    of("tall or short, tall is at least 180", 191, to="tall", first="return 'tall' if number >= 180 else 'short'"),
    of("cold below 10 degrees, warm below 25, else hot", 14, to="warm",
       first="return 'cold' if number < 10 else 'warm' if number < 25 else 'hot'"),
    # slots: what they are, what they become, and several at once
    slots("double all marks", Example((), (), [62, 8], (("marks", [31, 4]),), (("marks", [62, 8]),)),
          "self.marks = [item * 2 for item in self.marks]; self._p_changed = True; return self.marks"),
    slots("pages grow by how many words there are",
          Example(("three more words",), (), None, (("pages", 310),), (("pages", 313),)),
          "self.pages = self.pages + len(text.split()); self._p_changed = True"),
    slots("what is left of my budget, all spent off", Example((), (), 274, (("budget", 500), ("spent", [12, 214]))),
          "return self.budget - sum(self.spent)"),
    slots("the sum of my marks", Example((), (), 371, (("marks", [52, 319]),)), "return sum(self.marks)"),
    slots("a and b", Example((5,), (), None, (("a", 1), ("b", 2)), (("a", 6), ("b", 7))),
          "self.a, self.b = (self.a + number, self.b + number); self._p_changed = True"),
    slots("distance becomes the last of times, which goes",
          Example((), (), 20, (("distance", 13), ("times", [28, 24, 20])), (("distance", 20), ("times", [28, 24])))),
    slots("take the first of the queue, and answer it",
          Example((), (), "tea", (("queue", ["tea", "ice", "map"]),), (("queue", ["ice", "map"]),))),
    # messages that the words name
    of("all that fee_ answers, added up", [31, 5], to=1000, first="return sum((self.fee_(item) for item in items))", sends=SENDS),
    of("what fee_ answers for twice the number", 31, to=3851, first="return self.fee_(number * 2)", sends=SENDS),
    of("what fee_ answers, doubled", 31, to=1936, first="return self.fee_(number) * 2", sends=SENDS),
    of("the first that big_ accepts", [7, 31, 40], to=31, first="return next((item for item in items if self.big_(item)), None)",
       sends=SENDS),
    # names of arguments that idioms have for what they use, or that are functions
    *(Request("the number doubled", (Example((), ((name, 31),), 62),), f"return {name} * 2")
      for name in ("x", "k", "len", "datetime", "answer", "item", "found", "n")),
    *(Request("how often a letter is in the text, with no case", (Example(("Anna and a cat",), ((name, "a"),), 5),))
      for name in ("x", "c", "item")),
    slots("the length of the list", Example((), (("held", [4, 8, 1]),), 3), "return len(held)"),
]  # fmt: skip
"""All that are found within as many values as they say."""
