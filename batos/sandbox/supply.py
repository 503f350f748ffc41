"""What the interpreter of the sandbox lacks and methods use: supplied as text that runs in the sandbox, at no cost to the host.

`FUNCTIONS` maps `module.name` to a definition of `_b_module_name`; only what a method names is put before it.
"""

from __future__ import annotations

import re

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
"""Modules of the interpreter itself that a method may import. Those that ask the host for anything (os, sys, pathlib) are left out."""

_TEXT = r"""
# statistics.mean
def _b_statistics_mean(data):
    xs = list(data)
    if not xs:
        raise ValueError('mean requires at least one data point')
    m = sum(xs) / len(xs)
    return int(m) if m == int(m) and all([type(x) is int for x in xs]) else m
# statistics.fmean
def _b_statistics_fmean(data):
    xs = list(data)
    if not xs:
        raise ValueError('fmean requires at least one data point')
    return float(sum(xs)) / len(xs)
# statistics.median
def _b_statistics_median(data):
    xs = sorted(data)
    n = len(xs)
    if n == 0:
        raise ValueError('no median for empty data')
    return xs[n // 2] if n % 2 else (xs[n // 2 - 1] + xs[n // 2]) / 2
# statistics.median_low
def _b_statistics_median_low(data):
    xs = sorted(data)
    if not xs:
        raise ValueError('no median for empty data')
    return xs[(len(xs) - 1) // 2]
# statistics.median_high
def _b_statistics_median_high(data):
    xs = sorted(data)
    if not xs:
        raise ValueError('no median for empty data')
    return xs[len(xs) // 2]
# statistics.mode
def _b_statistics_mode(data):
    xs = list(data)
    if not xs:
        raise ValueError('no mode for empty data')
    counts = {}
    for x in xs:
        counts[x] = counts.get(x, 0) + 1
    top = max(counts.values())
    return [x for x in counts if counts[x] == top][0]
# statistics.multimode
def _b_statistics_multimode(data):
    counts = {}
    for x in data:
        counts[x] = counts.get(x, 0) + 1
    top = max(counts.values()) if counts else 0
    return [x for x in counts if counts[x] == top]
# statistics.pvariance
def _b_statistics_pvariance(data, mu=None):
    xs = list(data)
    if not xs:
        raise ValueError('pvariance requires at least one data point')
    m = sum(xs) / len(xs) if mu is None else mu
    return sum([(x - m) ** 2 for x in xs]) / len(xs)
# statistics.variance
def _b_statistics_variance(data, xbar=None):
    xs = list(data)
    if len(xs) < 2:
        raise ValueError('variance requires at least two data points')
    m = sum(xs) / len(xs) if xbar is None else xbar
    return sum([(x - m) ** 2 for x in xs]) / (len(xs) - 1)
# statistics.stdev
def _b_statistics_stdev(data, xbar=None):
    return _b_statistics_variance(data, xbar) ** 0.5
# statistics.pstdev
def _b_statistics_pstdev(data, mu=None):
    return _b_statistics_pvariance(data, mu) ** 0.5
# string.ascii_lowercase
_b_string_ascii_lowercase = 'abcdefghijklmnopqrstuvwxyz'
# string.ascii_uppercase
_b_string_ascii_uppercase = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
# string.ascii_letters
_b_string_ascii_letters = 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ'
# string.digits
_b_string_digits = '0123456789'
# string.hexdigits
_b_string_hexdigits = '0123456789abcdefABCDEF'
# string.octdigits
_b_string_octdigits = '01234567'
# string.punctuation
_b_string_punctuation = '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~'
# string.whitespace
_b_string_whitespace = ' \t\n\r\x0b\x0c'
# string.printable
_b_string_printable = '0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~ \t\n\r\x0b\x0c'
# string.capwords
def _b_string_capwords(s, sep=None):
    return (sep or ' ').join([w.capitalize() for w in s.split(sep)])
# textwrap.wrap
def _b_textwrap_wrap(text, width=70, **options):
    if options:
        raise TypeError('textwrap.wrap in the sandbox takes text and width only')
    lines, line = [], ''
    words = []
    for word in text.split():
        while len(word) > width:
            if line and len(line) + 1 < width:
                room = width - len(line) - 1
                line, word = line + ' ' + word[:room], word[room:]
            elif not line:
                line, word = word[:width], word[width:]
            lines.append(line)
            line = ''
        if not word:
            continue
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = line + ' ' + word if line else word
    if line:
        lines.append(line)
    return lines
# textwrap.fill
def _b_textwrap_fill(text, width=70, **options):
    return '\n'.join(_b_textwrap_wrap(text, width, **options))
# textwrap.shorten
def _b_textwrap_shorten(text, width, placeholder=' [...]'):
    words = text.split()
    whole = ' '.join(words)
    if len(whole) <= width:
        return whole
    while words and len(' '.join(words)) + len(placeholder) > width:
        words.pop()
    return ' '.join(words) + placeholder if words else placeholder.strip()
# textwrap.dedent
def _b_textwrap_dedent(text):
    lines = text.split('\n')
    margin = None
    for line in lines:
        if line.strip():
            lead = line[:len(line) - len(line.lstrip())]
            if margin is None:
                margin = lead
            while not lead.startswith(margin):
                margin = margin[:-1]
    return '\n'.join([line[len(margin or ''):] if line.strip() else '' for line in lines])
# textwrap.indent
def _b_textwrap_indent(text, prefix, predicate=None):
    parts = []
    for line in text.splitlines(True):
        wanted = predicate(line) if predicate else line.strip()
        parts.append(prefix + line if wanted else line)
    return ''.join(parts)
# operator.itemgetter
def _b_operator_itemgetter(*keys):
    return (lambda o: o[keys[0]]) if len(keys) == 1 else (lambda o: tuple([o[k] for k in keys]))
# operator.attrgetter
def _b_operator_attrgetter(name):
    def get(o):
        for part in name.split('.'):
            o = _b_getattr(o, part)
        return o
    return get
# operator.add
def _b_operator_add(a, b): return a + b
# operator.sub
def _b_operator_sub(a, b): return a - b
# operator.mul
def _b_operator_mul(a, b): return a * b
# operator.truediv
def _b_operator_truediv(a, b): return a / b
# operator.floordiv
def _b_operator_floordiv(a, b): return a // b
# operator.mod
def _b_operator_mod(a, b): return a % b
# operator.neg
def _b_operator_neg(a): return -a
# operator.eq
def _b_operator_eq(a, b): return a == b
# operator.ne
def _b_operator_ne(a, b): return a != b
# operator.lt
def _b_operator_lt(a, b): return a < b
# operator.le
def _b_operator_le(a, b): return a <= b
# operator.gt
def _b_operator_gt(a, b): return a > b
# operator.ge
def _b_operator_ge(a, b): return a >= b
# operator.and_
def _b_operator_and_(a, b): return a & b
# operator.or_
def _b_operator_or_(a, b): return a | b
# operator.xor
def _b_operator_xor(a, b): return a ^ b
# operator.not_
def _b_operator_not_(a): return not a
# operator.contains
def _b_operator_contains(a, b): return b in a
# operator.getitem
def _b_operator_getitem(a, b): return a[b]
# heapq.heappush
def _b_heapq_heappush(heap, item):
    heap.append(item)
    _b_heapq_up(heap, len(heap) - 1)
# heapq.up
def _b_heapq_up(heap, at):
    item = heap[at]
    while at > 0:
        parent = (at - 1) >> 1
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item
# heapq.down
def _b_heapq_down(heap, at):
    start, end, item = at, len(heap), heap[at]
    child = 2 * at + 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = item
    while at > start:
        parent = (at - 1) >> 1
        if not item < heap[parent]:
            break
        heap[at] = heap[parent]
        at = parent
    heap[at] = item
# heapq.heappop
def _b_heapq_heappop(heap):
    last = heap.pop()
    if not heap:
        return last
    top, heap[0] = heap[0], last
    _b_heapq_down(heap, 0)
    return top
# heapq.heappushpop
def _b_heapq_heappushpop(heap, item):
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        _b_heapq_down(heap, 0)
    return item
# heapq.heapreplace
def _b_heapq_heapreplace(heap, item):
    top = heap[0]
    heap[0] = item
    _b_heapq_down(heap, 0)
    return top
# heapq.heapify
def _b_heapq_heapify(heap):
    for at in range(len(heap) // 2 - 1, -1, -1):
        _b_heapq_down(heap, at)
# heapq.nlargest
def _b_heapq_nlargest(n, it, key=None):
    return _b_sorted(it, key=key, reverse=True)[:max(n, 0)]
# heapq.nsmallest
def _b_heapq_nsmallest(n, it, key=None):
    return _b_sorted(it, key=key)[:max(n, 0)]
# uuid.uuid4
def _b_uuid_uuid4():
    import random
    n = random.getrandbits(128) & ~(0xc000 << 48) & ~(0xf000 << 64) | (0x8000 << 48) | (4 << 76)
    h = '%032x' % n
    return h[:8] + '-' + h[8:12] + '-' + h[12:16] + '-' + h[16:20] + '-' + h[20:]
# html.escape
def _b_html_escape(s, quote=True):
    s = s.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
    return s.replace('"', '&quot;').replace("'", '&#x27;') if quote else s
# fractions.gcd
def _b_fractions_gcd(a, b):
    return a if b == 0 else _b_fractions_gcd(b, a % b)
# collections.OrderedDict
_b_collections_OrderedDict = dict
# functools.reduce
def _b_functools_reduce(f, it, *first):
    xs = list(it)
    if first:
        value = first[0]
    elif xs:
        value = xs.pop(0)
    else:
        raise TypeError('reduce() of empty iterable with no initial value')
    for x in xs:
        value = f(value, x)
    return value
# functools.wraps
def _b_functools_wraps(wrapped):
    return lambda f: f
# functools.cache
def _b_functools_cache(f):
    known = {}
    def cached(*args):
        if args not in known:
            known[args] = f(*args)
        return known[args]
    return cached
# functools.lru_cache
def _b_functools_lru_cache(maxsize=128, typed=False):
    return _b_functools_cache if maxsize is None or type(maxsize) is int else _b_functools_cache(maxsize)
# functools.cmp_to_key
class _b_functools_Cmp:
    def __init__(self, f, value):
        self.f, self.value = f, value
    def __lt__(self, other):
        return self.f(self.value, other.value) < 0
    def __gt__(self, other):
        return self.f(self.value, other.value) > 0
    def __eq__(self, other):
        return self.f(self.value, other.value) == 0
def _b_functools_cmp_to_key(f):
    return lambda value: _b_functools_Cmp(f, value)
# asyncio.gather
def _b_asyncio_gather(*values, return_exceptions=False):
    return list(values)
# asyncio.sleep
def _b_asyncio_sleep(seconds, result=None):
    return result
# re.sub
def _b_re_sub(pattern, repl, string, count=0, flags=0):
    import re
    if type(repl) is str:
        return re.sub(pattern, repl, string, count=count, flags=flags)
    parts, at, done = [], 0, 0
    for m in re.finditer(pattern, string, flags):
        if count and done >= count:
            break
        parts.append(string[at:m.start()])
        parts.append(repl(m))
        at, done = m.end(), done + 1
    return ''.join(parts) + string[at:]
"""


def _functions() -> dict[str, str]:
    found: dict[str, str] = {}
    for part in re.split(r"^# (?=\w+\.\w+$)", _TEXT, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        found[name] = text
    return found


FUNCTIONS = _functions()
MODULES = {name.partition(".")[0] for name in FUNCTIONS} - NATIVE
"""Modules that are supplied as far as `FUNCTIONS` goes, and that the interpreter does not have."""


def with_needs(names: set[str]) -> list[str]:
    """The texts for `names` (`module.name`) and for what they need in turn, in the order of the table."""
    wanted = set(names)
    todo = list(names)
    while todo:
        text = FUNCTIONS[todo.pop()]
        for module, name in re.findall(r"_b_([a-z]+)_(\w+)", text):
            needed = f"{module}.{name}"
            if needed in FUNCTIONS and needed not in wanted:
                wanted.add(needed)
                todo.append(needed)
    return [text for name, text in FUNCTIONS.items() if name in wanted]


METHODS = frozenset({"bit_length", "translate", "to_bytes", "format_map", "isidentifier", "maketrans", "from_bytes", "utcnow"})
"""Methods of builtin types that the interpreter lacks; the prelude has `_b_x_<name>`."""
