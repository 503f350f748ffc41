"""Standard library of the sandbox: functions that its interpreter lacks, supplied as text that runs in it, at no cost to the host.

`FUNCTIONS` maps `module.name` to a definition of `_b_module_name`; only the definitions that a method names are put before it. Methods of
builtin types are here too: `# name`, then a function of the value (see `supply`).
"""

from __future__ import annotations

import re

from batos.sandbox.stdlib_classes import CLASSES_TEXT as CLASSES_TEXT
from batos.sandbox.stdlib_functions import CODECS_TEXT as CODECS_TEXT
from batos.sandbox.stdlib_functions import MODULES_TEXT as MODULES_TEXT
from batos.sandbox.stdlib_lines import LINES_TEXT as LINES_TEXT
from batos.sandbox.stdlib_strings import STRINGS_TEXT as TEXTS_TEXT

METHODS_TEXT = r"""
# bit_length
def _b_x_bit_length(o, *given):
    o = given[0] if given else o  # int.bit_length(n)
    return len(bin(abs(o))) - 2 if o else 0
# bit_count
def _b_x_bit_count(o):
    return bin(o).count('1')
# is_integer
def _b_x_is_integer(o, *given):
    o = given[0] if given else o  # float.is_integer(x)
    return o == o and abs(o) != float('inf') and int(o) == o
# as_integer_ratio
def _b_x_as_integer_ratio(o):
    n, d = o, 1
    while int(n) != n:
        n, d = n * 2, d * 2
    return int(n), d
# difference_update
def _b_x_difference_update(o, *others):
    for other in others:
        for x in list(other):
            o.discard(x)
# intersection_update
def _b_x_intersection_update(o, *others):
    for other in others:
        kept = set(other)
        for x in [x for x in o if x not in kept]:
            o.discard(x)
# symmetric_difference_update
def _b_x_symmetric_difference_update(o, other):
    other = set(other)
    both = [x for x in other if x in o]
    o.update(other)
    for x in both:
        o.discard(x)
# toordinal
def _b_x_toordinal(o):
    import datetime
    return (datetime.date(o.year, o.month, o.day) - datetime.date(1, 1, 1)).days + 1
# fromordinal
def _b_x_fromordinal(o, n):
    import datetime
    return o(1, 1, 1) + datetime.timedelta(days=n - 1)
# isocalendar
def _b_x_isocalendar(o):
    import datetime
    day = datetime.date(o.year, o.month, o.day)
    thursday = day + datetime.timedelta(days=3 - day.weekday())
    import collections
    kind = collections.namedtuple('IsoCalendarDate', 'year week weekday')
    return kind(thursday.year, (thursday - datetime.date(thursday.year, 1, 1)).days // 7 + 1, day.weekday() + 1)
# fromisocalendar
def _b_x_fromisocalendar(o, year, week, day):
    import datetime
    if not 1 <= day <= 7:
        raise ValueError('Invalid weekday: ' + str(day) + ' (range is [1, 7])')
    fourth = datetime.date(year, 1, 4)
    last = datetime.date(year, 12, 28)
    if not 1 <= week <= 52 + ((last - datetime.timedelta(days=last.weekday()) - fourth).days > 358 - fourth.weekday()):
        raise ValueError('Invalid week: ' + str(week))
    at = fourth + datetime.timedelta(days=7 * (week - 1) + day - 1 - fourth.weekday())
    return o(at.year, at.month, at.day)
# timetuple
def _b_x_timetuple(o):
    import time
    return time.strptime(o.strftime('%Y-%m-%d %H:%M:%S'), '%Y-%m-%d %H:%M:%S')
# ctime
def _b_x_ctime(o):
    return o.strftime('%a %b %e %H:%M:%S %Y')
# union
def _b_x_union(o, *others):
    for other in others:
        o = o.union(other)
    return o if others else o.copy()
# intersection
def _b_x_intersection(o, *others):
    for other in others:
        o = o.intersection(other)
    return o if others else o.copy()
# difference
def _b_x_difference(o, *others):
    for other in others:
        o = o.difference(other)
    return o if others else o.copy()
# update
def _b_x_update(o, *others, **named):
    if type(o) is dict or len(others) < 2:
        return o.update(*others, **named)
    for other in others:
        o.update(other)
# translate
def _b_x_translate(o, table):
    parts = []
    for c in o:
        x = table.get(ord(c), c) if type(table) is dict else c
        if x is not None:
            parts.append(chr(x) if type(x) is int else x)
    return ''.join(parts)
# maketrans
def _b_x_maketrans(o, a, b=None, drop=''):
    if b is None:
        return {(ord(k) if type(k) is str else k): a[k] for k in a}
    table = {ord(x): ord(y) for x, y in zip(a, b)}
    table.update({ord(c): None for c in drop})
    return table
# to_bytes
def _b_x_to_bytes(o, length=1, byteorder='big', signed=False):
    if length > 100000:
        raise OverflowError('too many bytes')
    if signed and o < 0:
        o += 1 << (8 * length)
    if o < 0 or o >> (8 * length):
        raise OverflowError('int too big to convert')
    found = bytes.fromhex(('%0' + str(2 * length) + 'x') % o) if length else b''
    return found if byteorder == 'big' else found[::-1]
# from_bytes
def _b_x_from_bytes(o, data, byteorder='big', signed=False):
    data = _b_bytes(data)
    if byteorder != 'big':
        data = data[::-1]
    n = int(data.hex() or '0', 16)
    return n - (1 << (8 * len(data))) if signed and data and data[0] > 127 else n
# encode
def _b_x_encode(o, *a, **k):
    return o.encode(*a, **k) if type(o) is not str else _b_builtins_encoded(o, *a, **k)
# decode
def _b_x_decode(o, *a, **k):
    return o.decode(*a, **k) if type(o) is not bytes else _b_builtins_decoded(o, *a, **k)
# format_map
def _b_x_format_map(o, values):
    return o.format(**values)
# utcnow
def _b_x_utcnow(o):
    return o.now()
# fromtimestamp
def _b_x_fromtimestamp(o, t, tz=None):
    import datetime
    at = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(seconds=t)
    if o is datetime.date:
        return datetime.date(at.year, at.month, at.day)
    return at.astimezone(tz) if tz else at.replace(tzinfo=None)
# move_to_end
def _b_x_move_to_end(o, k, last=True):
    v = o.pop(k)
    rest = [] if last else list(o.items())
    if not last:
        o.clear()
    o[k] = v
    o.update(rest)
# popitem
def _b_x_popitem(o, last=True):
    if last or not o:
        return o.popitem()
    k = list(o)[0]
    return k, o.pop(k)
# sub
def _b_x_sub(o, repl, string, count=0):
    return o.sub(repl, string, count) if type(repl) is str else _b_re_replaced(o.finditer(string), repl, string, count)
# isidentifier
def _b_x_isidentifier(o):
    return o.replace('_', 'a').isalnum() and not o[:1].isdigit() and o != ''
# start
def _b_x_start(o, *g):
    return o.start(*_b_re_numbered(o, g)) if g else o.start()
# end
def _b_x_end(o, *g):
    return o.end(*_b_re_numbered(o, g)) if g else o.end()
# span
def _b_x_span(o, *g):
    return o.span(*_b_re_numbered(o, g)) if g else o.span()
"""
ATTRIBUTES_TEXT = r"""
# lastindex
def _b_x_lastindex(m):
    if type(m).__name__ != 'Match':
        return m.lastindex
    spans = [(m.end(i), -m.start(i), -i) for i in range(1, len(m.groups()) + 1) if m.group(i) is not None]
    if not spans:
        return None
    ends = [s for s in spans if s[0] == max(spans)[0]]
    if len(ends) > 1 and any([s[0] == -s[1] for s in ends]):
        raise NotImplementedError('lastindex and lastgroup, where the last group may be empty: use groups()')
    return -max([s[1:] for s in ends])[1]  # the outermost of those that end last
# lastgroup
def _b_x_lastgroup(m):
    if type(m).__name__ != 'Match':
        return m.lastgroup
    i = _b_x_lastindex(m)
    named = [k for k, v in m.groupdict().items() if v is not None and _b_re_numbered(m, (k,))[0] == i] if i else []
    return named[0] if named else None
# numerator
def _b_x_numerator(n):
    return int(n) if type(n) is int or type(n) is bool else n.numerator
# denominator
def _b_x_denominator(n):
    return 1 if type(n) is int or type(n) is bool else n.denominator
# msg
def _b_x_msg(e):
    return str(e).rsplit(': line ', 1)[0] if type(e).__name__ == 'JSONDecodeError' else e.msg
# pos
def _b_x_pos(e):
    return int(str(e).rsplit('(char ', 1)[1][:-1]) if type(e).__name__ == 'JSONDecodeError' else e.pos
# lineno
def _b_x_lineno(e):
    return int(str(e).rsplit(': line ', 1)[1].split(' ')[0]) if type(e).__name__ == 'JSONDecodeError' else e.lineno
# colno
def _b_x_colno(e):
    return int(str(e).rsplit(' column ', 1)[1].split(' ')[0]) if type(e).__name__ == 'JSONDecodeError' else e.colno
"""
"""Helpers for attributes of builtin types that the interpreter lacks, as `METHOD_TEXTS` for methods."""


NATIVE = frozenset(
    [
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "random",
        "re",
        "time",
        "tomllib",
        "typing",
        "unicodedata",
    ]
)
"""Modules of the interpreter itself that a method may import. Modules that ask the host for anything (os, sys, pathlib) are not in this
set."""


def _functions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in re.split(r"^# (?=[\w.]+$)", text, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    return found


FUNCTIONS = _functions(MODULES_TEXT) | _functions(CLASSES_TEXT) | _functions(TEXTS_TEXT) | _functions(LINES_TEXT) | _functions(CODECS_TEXT)
METHOD_TEXTS, _ATTRIBUTE_TEXTS = _functions(METHODS_TEXT), _functions(ATTRIBUTES_TEXT)
_ALL = FUNCTIONS | {f"x.{name}": text for name, text in (METHOD_TEXTS | _ATTRIBUTE_TEXTS).items()}
ALIASES = {"urllib.parse": "urls"}
"""Maps modules whose names have dots to their names in `FUNCTIONS`."""
MODULES = {name.partition(".")[0] for name in FUNCTIONS} - NATIVE - {"builtins", *ALIASES.values()} | ALIASES.keys()
"""Modules that the interpreter does not have and that `FUNCTIONS` supplies in part."""


def member(module: str, name: str) -> str:
    """Return the key in `FUNCTIONS` of a member of a module."""
    return f"{ALIASES.get(module, module)}.{name}"


def with_needs(names: set[str]) -> list[str]:
    """Return the texts for `names` and for what they need in turn, in the order of the tables.

    :param names: `module.name`, or `x.name` for a method of builtin types.
    """
    wanted = set(names)
    todo = list(names)
    while todo:
        text = _ALL[todo.pop()]
        for module, name in re.findall(r"_b_([a-z]+)_(\w+)", text):
            needed = f"{module}.{name}"
            if needed in _ALL and needed not in wanted:
                wanted.add(needed)
                todo.append(needed)
    return [text for name, text in _ALL.items() if name in wanted]


METHODS = frozenset(METHOD_TEXTS)
"""Methods of builtin types that the interpreter lacks. A method that sends one gets the helper `_b_x_<name>` before it."""
ATTRIBUTES = frozenset(_ATTRIBUTE_TEXTS)
"""Attributes of builtin types that the interpreter lacks. They are supplied like `METHODS`."""
