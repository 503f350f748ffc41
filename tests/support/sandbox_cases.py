"""Methods as models write them: source, arguments, slots. Each must do in the sandbox what it does in CPython on a plain object."""

# ruff: noqa: E501  the sources of methods

from __future__ import annotations

from typing import Any

_PLAIN = r"""
def m(self, xs): return sorted(xs, key=str.lower) | [["b","A","c"]] | {}
def m(self, xs): return sorted(xs, key=len, reverse=True) | [["bb","a","ccc"]] | {}
def m(self, xs): return list(map(str.upper, xs)) | [["a","b"]] | {}
def m(self, xs): return list(filter(None, map(str.strip, xs))) | [[" a ",""," "]] | {}
def m(self, xs): return next((x for x in xs if x > 2), None) | [[1,2,3]] | {}
def m(self, xs): return next((x for x in xs if x > 9), "none") | [[1,2,3]] | {}
def m(self, xs): return any(x > 2 for x in xs), all(x > 0 for x in xs) | [[1,2,3]] | {}
def m(self, xs): return sum(x * x for x in xs if x % 2) | [[1,2,3]] | {}
def m(self, xs): return max(xs, key=lambda x: -x), min(xs, key=abs), max(xs, default=0) | [[-3,2,3]] | {}
def m(self): return max([], default=7) | [] | {}
def m(self, t): return ", ".join(w.capitalize() for w in t.split()) | ["a b"] | {}
def m(self, t): return "".join(reversed(t)), t[::-1], t.title(), t.swapcase() | ["aBc"] | {}
def m(self, d): return {k: v for k, v in sorted(d.items(), key=lambda kv: kv[1])} | [{"a": 3, "b": 1}] | {}
def m(self, d): return list(d.keys()), list(d.values()), [list(p) for p in d.items()] | [{"a": 3}] | {}
def m(self, n): return [i for i in range(n) if i % 2 == 0], [*range(n)], list(range(n, 0, -1)) | [5] | {}
def m(self, n): return f"{n:>5}|{n:05d}|{n!r}|{n:,}|{n:.2f}|{n:x}" | [1234] | {}
def m(self, n): return "%s-%03d" % ("a", n), "{:>4}".format(n), "{a}{b}".format(a=1, b=n) | [7] | {}
def m(self, xs): return [(i, x) for i, x in enumerate(xs, 1)], list(zip(xs, xs[1:])) | [[1,2,3]] | {}
def m(self, xs): return isinstance(xs, list), isinstance(self.d, dict), isinstance(xs, (tuple, str)) | [[1]] | {"d": {}}
def m(self, x): return type(x).__name__, x.__class__.__name__ | [1.5] | {}
def m(self, x): return x is None, x is not None, x is True | [null] | {}
def m(self, x): return "yes" if x else "no" | [0] | {}
def m(self, a, b=2, *rest, c=3, **more): return [a, b, list(rest), c, more] | [1] | {}
def m(self, x): return (lambda y: y + x)(3) | [4] | {}
def m(self, x): return abs(x), round(2.567, 2), divmod(7, 2), pow(2, 5), x ** 2, -x // 2 | [5] | {}
def m(self, s): return s.isdigit(), s.isalpha(), s.find("b"), s.count("a"), s.replace("a", "x"), s.startswith(("a", "b")) | ["aba"] | {}
def m(self, s): return s.split(",", 1), s.rsplit(",", 1), s.partition(","), s.splitlines(), s.strip("a"), s.zfill(9) | ["a,b,c"] | {}
def m(self, s): return s.encode().hex(), s.encode("utf-8").decode(), len(s.encode()) | ["aä"] | {}
def m(self): return getattr(self, "a", 1), getattr(self, "b", 2), hasattr(self, "a"), hasattr(self, "zz") | [] | {"a": 5}
def m(self): return self.a + 1, self.xs[0], self.d["k"]["j"], len(self.xs), self.xs[-1:] | [] | {"a": 5, "xs": [1, 2], "d": {"k": {"j": 9}}}
def m(self): return 2 in self.xs, "k" in self.d, sorted(self.d), sum(self.xs), [x for x in self.xs] | [] | {"xs": [1, 2], "d": {"k": 1}}
def m(self, x): return int("5"), float("1.5"), str(x), bool(x), list("ab"), tuple([1]), dict(a=1), set([1, 1]) | [3] | {}
def m(self, x): return callable(len), callable(x), callable(lambda: 1) | [3] | {}
def m(self, x): return (x).bit_length(), x.to_bytes(2, "big"), int.from_bytes(b"\x01\x02", "big") | [300] | {}
def m(self, s): return s.translate(str.maketrans("ab", "xy", "c")), s.translate({97: None}) | ["abc"] | {}
def m(self): return bytes([1, 2, 255]), bytes("a", "utf-8"), bytes(2) | [] | {}
def m(self, xs): return [y for x in xs for y in x if y], {x[0] for x in xs if x}, {x[0]: len(x) for x in xs if x} | [[[1, 0], [2]]] | {}
def m(self, xs): a, *b = xs; return [a, b] | [[1, 2, 3]] | {}
def m(self, xs): (a, b), c = xs; return a + b + c | [[[1, 2], 3]] | {}
def m(self, x): return str.join("-", x), str.upper("a"), dict.fromkeys(x, 0) | [["a", "b"]] | {}
def m(self, x): return 1 < x < 5, not x, x and 1 or 2, x if x > 1 else -x | [3] | {}
def m(self, xs): return xs[1:], xs[:-1], xs[::2], xs[-1] | [[1, 2, 3]] | {}
def m(self): return self.n.bit_length() if isinstance(self.n, int) else None | [] | {"n": 9}
def m(self): import math; return math.floor(2.5), math.ceil(2.5), math.sqrt(16), math.pi, math.isclose(1.0, 1.0) | [] | {}
def m(self, t): import re; return re.findall(r"\w+", t), re.sub(r"\s+", " ", t), bool(re.match(r"a", t)), re.split(r",", t) | ["a  b,c"] | {}
def m(self, t): import re; return re.sub(r"\d+", lambda k: str(int(k.group()) * 2), t) | ["a1b22"] | {}
def m(self, t): import json; return json.loads(json.dumps({"a": [1, t]}))["a"], json.dumps({"b": 1, "a": 2}, sort_keys=True) | ["x"] | {}
def m(self, xs): import statistics; return statistics.mean(xs), statistics.median(xs), round(statistics.stdev(xs), 6), statistics.mode(xs) | [[1, 2, 2, 5]] | {}
def m(self): import string; return string.ascii_lowercase[:3], string.digits, string.punctuation, string.capwords("a bc") | [] | {}
def m(self, t): import textwrap; return textwrap.wrap(t, 10), textwrap.fill(t, 12), textwrap.shorten(t, 12), textwrap.dedent("  a\n  b") | ["the quick brown fox jumps"] | {}
def m(self, xs): import operator; return sorted(xs, key=operator.itemgetter(1)), operator.add(1, 2) | [[["a", 2], ["b", 1]]] | {}
def m(self, xs): from operator import itemgetter; return sorted(xs, key=itemgetter("k")) | [[{"k": 2}, {"k": 1}]] | {}
def m(self, xs): import heapq; h = list(xs); heapq.heapify(h); return [heapq.heappop(h) for _ in range(len(xs))], heapq.nlargest(2, xs) | [[3, 1, 2]] | {}
def m(self, t): from collections import Counter; return Counter(t.split()).most_common(1)[0][0], dict(Counter("aab")) | ["a b a"] | {}
def m(self, xs): from collections import defaultdict; d = defaultdict(list); [d[len(x)].append(x) for x in xs]; return dict(d) | [["a", "bb", "c"]] | {}
def m(self, xs): from functools import reduce; return reduce(lambda a, b: a * b, xs, 1), reduce(lambda a, b: a + b, xs) | [[1, 2, 3]] | {}
def m(self, xs): import itertools; return [list(g) for k, g in itertools.groupby(xs)], list(itertools.chain(xs, [9])), list(itertools.islice(itertools.count(5), 2)) | [[1, 1, 2]] | {}
def m(self): import itertools; return next(n for n in itertools.count(1) if n * n > 50) | [] | {}
def m(self, s): import datetime; d = datetime.date.fromisoformat(s); return d.year, d.weekday(), (d + datetime.timedelta(days=3)).isoformat() | ["2026-01-30"] | {}
def m(self, s): import hashlib, base64; return hashlib.sha256(s.encode()).hexdigest()[:8], base64.b64encode(s.encode()).decode() | ["x"] | {}
def m(self): import decimal; return str(decimal.Decimal("1.10") + decimal.Decimal("2.2")) | [] | {}
def m(self, xs): import copy; y = copy.deepcopy(xs); y[0].append(1); return [xs, y] | [[[0]]] | {}
def m(self, xs): it = iter(xs); return [next(it), next(it), next(it, None)] | [[1, 2]] | {}
def m(self, xs): g = (x * 2 for x in xs); return [next(g), list(g), list(g)] | [[1, 2, 3]] | {}
def m(self, x): return [x == 1, x != 1, x <= 1, x in (1, 2), x not in [1]] | [1] | {}
def m(self, d): return {**d, "z": 1}, [*d, 1], dict(d, q=2), d | {"w": 3} | [{"a": 1}] | {}
def m(self, xs): return list(map(lambda a, b: a + b, xs, xs)), list(map(int, ["1", "2"])) | [[1, 2]] | {}
def m(self, s): x = set(s); x.difference_update([1]); y = set(s); y.intersection_update([1, 2], (2, 3)); z = set(s); z.symmetric_difference_update([1, 9]); return sorted(x), sorted(y), sorted(z) | [[1, 2, 3]] | {}
def m(self, n): return n.bit_count(), (2.0).is_integer(), (2.5).is_integer(), float("inf").is_integer(), float.is_integer(3.0), (0.75).as_integer_ratio() | [7] | {}
def m(self): import datetime; return [list(datetime.date(y, k, 28).isocalendar()) for y in range(2015, 2030) for k in (1, 12)] | [] | {}
def m(self, s): import datetime; d = datetime.date.fromisoformat(s); return d.toordinal(), datetime.date.fromordinal(d.toordinal()) == d, list(datetime.datetime(2024, 12, 30, 5).isocalendar()) | ["2026-01-30"] | {}
def m(self): import datetime; return datetime.datetime.fromtimestamp(90061, datetime.timezone.utc).isoformat() | [] | {}
def m(self, y): import calendar; return calendar.isleap(y), calendar.monthrange(y, 2)[1], calendar.leapdays(2000, y), calendar.day_name[0], calendar.month_abbr[12] | [2024] | {}
def m(self, t): import re; p = re.compile(r"(\w)=(\w)"); return p.sub(lambda k: k.group(2) + "=" + k.group(1), t), p.sub(lambda k: "", t, count=1), p.sub(r"\2", t), re.subn("a", "b", t), re.subn("a", "b", t, 1) | ["a=b a=d"] | {}
def m(self, d): from collections import OrderedDict; o = OrderedDict(d); o.move_to_end("a"); p = OrderedDict(d); p.move_to_end("c", last=False); return list(o), list(p), o.popitem(last=False), o.popitem() | [{"a": 1, "b": 2, "c": 3}] | {}
def m(self, xs): from functools import cmp_to_key; k = cmp_to_key(lambda a, b: a[0] - b[0]); return sorted(xs, key=k), sorted(xs, key=k, reverse=True), max(xs, key=k), min(xs, key=k) | [[[2, "a"], [1, "b"], [2, "c"], [1, "d"]]] | {}
def m(self, xs): import statistics; return statistics.quantiles(xs), statistics.quantiles(xs, n=10, method="inclusive"), statistics.geometric_mean(xs), round(statistics.harmonic_mean(xs), 9) | [[1, 2, 4, 7, 11]] | {}
def m(self, xs): import operator, heapq; return operator.pow(2, 3), operator.indexOf(xs, 3), operator.countOf(xs, 1), operator.truth(xs), list(heapq.merge([1, 4], xs)) | [[1, 3]] | {}
def m(self, xs): return "a" "b", r"\d", b"x", 0x1f, 1_000, 1e3, ... is None | [[1]] | {}
"""

_BLOCKS = r'''
def m(self, by=1):
    self.count += by
    self.stats["n"] = self.stats.get("n", 0) + 1
    self.stats["deep"]["x"] += 1
    self._p_changed = True
    return self.count
--- [] | {"count": 1, "stats": {"deep": {"x": 0}}}
def m(self, xs):
    for x in xs:
        self.items.append(x)
    alias = self.items
    alias.extend([y * 10 for y in self.items])
    self._p_changed = True
    return len(self.items)
--- [[1, 2]] | {"items": [0]}
def m(self):
    del self.a
    del self.d["k"]
    del self.xs[0]
    del self.ys[1:3]
    del self.zs[::2]
    x = 1
    del x
    self._p_changed = True
--- [] | {"a": 1, "d": {"k": 1, "j": 2}, "xs": [1, 2], "ys": [1, 2, 3, 4], "zs": [1, 2, 3, 4, 5]}
def m(self, xs):
    f = self.items.append
    for x in xs:
        f(x)
    list(map(self.items.append, xs))
    self._p_changed = True
--- [[1, 2]] | {"items": []}
def m(self):
    self.items += [1]
    self.items += (2, 3)
    self.text += "x"
    self.n **= 2
    self.tags |= {"b"}
    self.items *= 2
    self._p_changed = True
--- [] | {"items": [0], "text": "a", "n": 3, "tags": {"a"}}
def m(self):
    self.a = self.b = 5
    self.c, (self.d, *self.e) = 1, (2, 3, 4)
    [self.f, g] = "xy"
    for self.i in range(3):
        pass
    for self.j, k in [(1, 2), (3, 4)]:
        pass
    self._p_changed = True
    return g + str(k)
--- [] | {}
def m(self):
    with_x = [x for x in self.rows if "x" in x]
    for row in self.rows:
        row["seen"] = True
    self.rows[0]["list"].append(7)
    self.rows.sort(key=lambda r: -r["n"])
    self.rows.insert(0, {"n": 99})
    self._p_changed = True
    return len(with_x)
--- [] | {"rows": [{"n": 1, "list": []}, {"n": 3, "x": 1}]}
def m(self):
    row = self.rows[0]
    row["a"] = 2
    other = self.rows
    other[1]["a"] = 3
    first, *rest = self.rows
    rest[0]["b"] = 4
    self.rows = list(self.rows)
    self._p_changed = True
    return self.rows[0] is row
--- [] | {"rows": [{"a": 1}, {"a": 1}]}
def m(self, k):
    try:
        return {"a": 1}[k]
    except KeyError as e:
        self.tries += 1
        return "no " + str(e)
    finally:
        self.done = True
        self._p_changed = True
--- ["z"] | {"tries": 0}
def m(self, x):
    if x < 0:
        raise ValueError("negative: " + str(x))
    return x
--- [-1] | {"n": 1}
def m(self, x):
    try:
        try:
            raise KeyError(x)
        except KeyError as e:
            raise ValueError("bad") from e
    except (ValueError, TypeError) as e:
        return [str(e), e.args[0]]
    else:
        return "else"
--- [3] | {}
def m(self, n):
    def gen(k):
        for i in range(k):
            if i == 3:
                return
            yield i
        yield "end"
    def both(k):
        yield from gen(k)
        yield from [9]
    return [list(gen(n)), sum(gen(2), 0) if False else list(both(2)), next(gen(1))]
--- [6] | {}
def m(self, n):
    for i in range(n):
        yield i * i
--- [4] | {}
def m(self, x, xs):
    while any(v > x for v in xs):
        x += 1
    if x > 99:
        return "no"
    elif all(v < x + 1 for v in xs):
        y = [w for w in xs if any(v > w for v in xs)]
    *rest, last = [x, *y]
    return [x, y, last, dict(zip(*[xs, xs])), "{}{}".format(*xs[:2]), "{a}".format(**{"a": 1})]
--- [0, [1, 5, 3]] | {}
def m(self, n):
    total, i = 0, 0
    while True:
        i += 1
        if i > n:
            break
        if i % 2:
            continue
        total += i
    else:
        total = -1
    return total
--- [10] | {}
def m(self, n):
    def fact(k):
        return 1 if k < 2 else k * fact(k - 1)
    count = 0
    def bump():
        nonlocal count
        count += 1
        return count
    return [fact(n), bump(), bump(), count]
--- [20] | {}
def m(self, x):
    match x:
        case {"kind": "a", "n": n} if n > 1:
            return "a" + str(n)
        case [first, *rest]:
            return [first, rest]
        case int() | float():
            return "num"
        case str() as s:
            return s.upper()
        case None:
            return "nil"
        case _:
            return "other"
--- [{"kind": "a", "n": 2}] | {}
def m(self, xs):
    if (n := len(xs)) > 2 and any((last := x) > 2 for x in xs):
        return [n, last]
    return 0
--- [[1, 2, 3]] | {}
def m(self, text):
    import re
    from collections import Counter
    words = re.findall(r"[a-z]+", text.lower())
    counts = Counter(words)
    top = counts.most_common(2)
    self.index = {w: c for w, c in top}
    self._p_changed = True
    return [w for w, _ in top]
--- ["a b a c b a"] | {}
def m(self, key, value):
    history = self.memory.setdefault(key, [])
    history.append(value)
    if len(history) > 2:
        history.pop(0)
    self.memory[key] = history
    self._p_changed = True
    return history
--- ["a", 3] | {"memory": {"a": [1, 2]}}
def m(self):
    self.flags["a"] = True
    self.flags["b"] = 1.0
    self.order["x"] = self.order.pop("x")
    self._p_changed = True
--- [] | {"flags": {"a": 1, "b": 1}, "order": {"x": 1, "y": 2}}
def m(self):
    self.tags.add("b")
    self.tags.discard("a")
    self.tags.update(["c"])
    self._p_changed = True
    return sorted(self.tags)
--- [] | {"tags": {"a"}}
def m(self):
    x = self.items
    x.append(1)
    self.items = []
    self.items.append(5)
    x.append(2)
    self._p_changed = True
    return x
--- [] | {"items": [0]}
def m(self):
    self.queue = self.queue[1:] + [self.queue[0]]
    a = self.queue.pop()
    b = self.queue.index(3)
    self.queue.reverse()
    self.queue.remove(2)
    self._p_changed = True
    return [a, b]
--- [] | {"queue": [1, 2, 3]}
def m(self, other):
    self.settings.update({k: v for k, v in other.items() if v is not None})
    self.settings |= {"q": 1}
    for key in list(self.settings):
        if key.startswith("x"):
            del self.settings[key]
    self._p_changed = True
    return sorted(self.settings)
--- [{"a": 1, "b": null}] | {"settings": {"x1": 0}}
def m(self, n):
    matrix = [[0] * n for _ in range(n)]
    for i in range(n):
        for j in range(n):
            matrix[i][j] = i * j
    return [sum(row) for row in zip(*matrix)]
--- [3] | {}
def m(self, s):
    stack = []
    pairs = {")": "(", "]": "["}
    for ch in s:
        if ch in pairs.values():
            stack.append(ch)
        elif ch in pairs:
            if not stack or stack.pop() != pairs[ch]:
                return False
    return not stack
--- ["([])"] | {}
def m(self, n):
    from functools import lru_cache
    @lru_cache(maxsize=None)
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)
    return fib(n)
--- [40] | {}
def m(self, x):
    from dataclasses import dataclass
    @dataclass
    class P:
        a: int
        b: int = 2
    class C:
        def __init__(self, v):
            self.v = v
        def twice(self):
            return self.v * 2
    p, c = P(x), C(x)
    p.a += 1
    c.v = 10
    return [p.a, p.b, c.twice()]
--- [1] | {}
def m(self, xs: list[int], label: str = None) -> dict[str, int]:
    result: dict[str, int] = {}
    total: int
    total = 0
    for x in xs:
        total += x
    result[label or "sum"] = total
    return result
--- [[1, 2]] | {}
def m(self):
    """Doc."""
    status = "on" if self.active else "off"
    return f"{self.name!r} is {status}: {', '.join(f'{k}={v}' for k, v in self.d.items())} {self.load:.1f}%"
--- [] | {"name": "bat", "active": true, "load": 12.5, "d": {"a": 1}}
def m(self, xs):
    out = {}
    for x in xs:
        out.setdefault(type(x).__name__, []).append(x)
    return out
--- [[1, "a", 2.5, null]] | {}
def m(self):
    setattr(self, "a", 2)
    delattr(self, "b")
    return getattr(self, "a")
--- [] | {"a": 1, "b": 1}
def m(self):
    assert self.n > 5, f"too small: {self.n}"
    return True
--- [] | {"n": 1}
def m(self, xs):
    seen = set()
    unique = [x for x in xs if not (x in seen or seen.add(x))]
    return unique
--- [[1, 2, 1]] | {}
def m(self, xs):
    def key(item):
        return (item["a"], -item["b"])
    best = max(xs, key=key)
    xs.sort(key=key, reverse=True)
    return [best, xs[0] is best]
--- [[{"a": 1, "b": 2}, {"a": 1, "b": 1}]] | {}
def m(self):
    print("hello", self.n, end="")
    return None
--- [] | {"n": 1}
def m(self, x):
    raise ValueError("a", x)
--- [1] | {}
def m(self, x):
    return undefined_thing + x
--- [1] | {}
def m(self, x):
    return x.no_such_method()
--- ["a"] | {}
def m(self, x):
    return [1, 2][x]
--- [5] | {}
def m(self, x):
    return self.missing
--- [5] | {}
def m(self, n):
    items = list(range(n))
    evens, odds = [], []
    for i in items:
        (odds if i % 2 else evens).append(i)
    return [evens, odds]
--- [5] | {}
def m(self, a, b):
    while b:
        a, b = b, a % b
    return a
--- [48, 18] | {}
def m(self, names):
    greetings = [f"Hello, {name}!" for raw in names if (name := raw.strip())]
    return "\n".join(greetings)
--- [[" a ", ""]] | {}
def m(self, xs):
    from itertools import accumulate, combinations, product
    return [list(accumulate(xs)), [list(c) for c in combinations(xs, 2)], len(list(product(xs, xs)))]
--- [[1, 2, 3]] | {}
def m(self, n):
    self.log = (self.log + [n])[-3:]
    self.last, self.count = n, len(self.log)
    self._p_changed = True
    return tuple(self.log)
--- [4] | {"log": [1, 2, 3]}
async def m(self, x):
    async def inner(y):
        return y + 1
    return await inner(x)
--- [1] | {}
def m(self):
    keys = self.d.keys()
    return [k for k in keys], ("a" in keys), list(self.d.items())[0][1]
--- [] | {"d": {"a": 1}}
def m(self):
    return self.d.keys()
--- [] | {"d": {"a": 1, "b": 2}}
def m(self):
    total = 0.0
    for name, (price, qty) in self.cart.items():
        total += price * qty
    self.total = round(total, 2)
    self._p_changed = True
    return {"total": self.total, "n": len(self.cart)}
--- [] | {"cart": {"a": [1.5, 2], "b": [0.25, 4]}}
def m(self, n, d):
    from fractions import Fraction
    a, b = Fraction(n, d), Fraction("3/8")
    found = [str(x) for x in (a + b, a - b, a * b, a / b, a ** -2, 2 * a, 1 - a, 1 / b, -a, abs(a), a // b, a % b, a + 1, Fraction("-0.125"))]
    found += [repr(a), float(a), int(a), a + 0.5, a == Fraction(2 * n, 2 * d), a == 1, bool(a), a.numerator, a.denominator]
    self.total = str(sum([a, b], Fraction(0)))
    self._p_changed = True
    return found, str(Fraction(3.14159).limit_denominator(100)), {a: 1}[Fraction(n, d)], f"{a}"
--- [-7, 3] | {}
def m(self):
    import fractions
    return str(fractions.Fraction(1, 0))
--- [] | {}
def m(self):
    import contextlib
    found = []
    for x in ["1", "a", None, "3"]:
        with contextlib.suppress(ValueError, TypeError):
            found.append(int(x))
    with contextlib.nullcontext(4) as y:
        self.found = found + [y]
    self._p_changed = True
    with contextlib.suppress(KeyError):
        return [][0]
--- [] | {"found": []}
def m(self):
    from contextlib import suppress
    with suppress(LookupError):
        return self.table["none"]
    return "fell through"
--- [] | {"table": {}}
def m(self, n):
    from functools import cache, lru_cache
    calls = []
    @lru_cache(maxsize=None)
    def fib(k):
        calls.append(k)
        return k if k < 2 else fib(k - 1) + fib(k - 2)
    @cache
    def power(a, b=2):
        calls.append(a)
        return a ** b
    return fib(n), len(calls), power(3), power(3, b=3), power(a=3), power(3), len(calls)
--- [30] | {}
def m(self, a, b):
    import difflib
    s = difflib.SequenceMatcher(None, a, b)
    t = difflib.SequenceMatcher(lambda c: c == " ", a, b)
    return [s.ratio(), s.quick_ratio(), s.real_quick_ratio(), s.get_opcodes(), tuple(t.find_longest_match()),
            [tuple(x) for x in t.get_matching_blocks()], difflib.get_close_matches("appel", ["ape", "apple", "peach", "puppy"], 2)]
--- [" abcd abc", "abcd abcd efg"] | {}
def m(self, a, b):
    import difflib
    return list(difflib.unified_diff(a, b, "old", "new", n=1)), "\n".join(difflib.unified_diff(a, b, lineterm=""))
--- [["a", "b", "c", "d", "e", "f", "g"], ["a", "c", "d", "e", "f", "x", "g", "h"]] | {}
def m(self, names):
    import fnmatch
    return fnmatch.filter(names, "*.t?t"), fnmatch.fnmatch("a1", "a[0-9]"), fnmatch.fnmatchcase("ax", "a[!0-9]"), fnmatch.fnmatch("a[", "a[[]")
--- [["a.txt", "b.tet", "c.tt", ".tat"]] | {}
def m(self, rows):
    import csv
    import io
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    with io.StringIO(out.getvalue()) as f:
        again = list(csv.reader(f))
    f = io.StringIO("one\ntwo\n")
    return out.getvalue(), again, f.readline(), f.tell(), f.read(), f.seek(1), f.write("NE"), f.getvalue(), f.truncate(5), [line for line in io.StringIO("a\nb")]
--- [[[1, "a,b"], [2, "c"]]] | {}
def m(self, name):
    import string
    made = string.Template("$name owes $$$sum, ${name}!")
    return made.substitute(name=name, sum=3), made.safe_substitute({"name": name}), string.Template("$x").substitute()
--- ["Ann"] | {}
def m(self, line):
    import shlex
    return shlex.split(line), shlex.quote("it's"), shlex.join(["a b", "c"])
--- ["put 'a b' \"c\\\"d\" e\\ f # g"] | {}
def m(self, xs):
    import numbers
    import zlib
    return [isinstance(x, numbers.Number) for x in xs], isinstance(xs[0], numbers.Integral), zlib.crc32(b"abc"), zlib.adler32(b"abc" * 40)
--- [[1, 2.5, "a", None]] | {}
def m(self):
    xs, seen, table = ["a"], {1}, {"a": 1}
    xs += [1, 2.5]
    seen |= {"b"}
    table |= {2: "x"}
    return xs, len(seen), table
--- [] | {}
def m(self, limit):
    from fractions import Fraction
    xs = [Fraction(1, 2), Fraction(1, 3), 1, 0.25, Fraction(0), Fraction(-2, 3)]
    left, steps = Fraction(3, 2), 0
    while left:
        left -= Fraction(1, 2)
        steps += 1
    assert not left and xs[0]
    found = [sorted(xs), max(xs), min(xs[0], xs[1]), sorted(xs, key=lambda x: -x, reverse=True), max(xs, key=abs), min([], default=xs[1])]
    found += [0 < xs[0] <= limit, xs[1] < 0.34, (xs[0], "a") > (xs[1], "b"), [x for x in xs if x], any(x for x in xs[4:5]), bool(xs[4])]
    found += ["zero" if not xs[4] else "more", sorted(["b", "a"]), sorted("cab", key=ord), 1 < 2 < 3, {1} < {1, 2}, steps]
    self.best = str(max((x, i) for i, x in enumerate(xs))[0])
    self._p_changed = True
    return str(found)
--- [1] | {}
def m(self):
    from fractions import Fraction
    return Fraction(1, 2) < "a"
--- [] | {}
def m(self, items):
    return [[round(x, n) for n in (0, 1, 2, 3, -1)] for x in items] + [round(number=7.125, ndigits=2), round(25, -1), round(2.5)]
--- [[-47.455, 43.915, 24.05, 17.415, -6.705, 6.445, 0.125, -0.04, 1e300, 1234.5]] | {}
def m(self, names):
    found = []
    for name in names:
        every = bytes(range(256))
        text = every.decode(name, "replace")
        found.append([text, every.decode(encoding=name, errors="ignore"), str(every[:127], name), str(every, encoding=name, errors="backslashreplace")])
        found.append([text.encode(name, "ignore"), bytes("a\xe9", name), "a\u0142\u20ac\U0001f600".encode(name, "replace")])
        found.append(["\u0142".encode(name, errors="xmlcharrefreplace"), str.encode("\xe9", name), bytes.decode(b"\xe9", name)])
    return found
--- [["latin-1", "Latin_1", "L1", "ISO-8859-1", "cp1252", "windows-1252", "latin9", "iso8859-15"]] | {}
def m(self, text):
    return text.encode("utf-8-sig"), text.encode("UTF_8_SIG").decode("utf-8-sig"), text.encode().decode("utf-8-sig"), text.encode("U8", errors="strict"), text.encode("utf-16-le")
--- ["a\xe9"] | {}
def m(self):
    found = []
    for work in (lambda: "\u20ac".encode("latin-1"), lambda: "\x81".encode("cp1252"), lambda: b"\x81".decode("cp1252"), lambda: "a".encode("klingon"), lambda: b"a".decode("hex"), lambda: "\u20ac".encode("latin-1", "who")):
        try:
            found.append(work())
        except UnicodeEncodeError:
            found.append("encoding")
        except UnicodeDecodeError:
            found.append("decoding")
        except LookupError:
            found.append("no such")
    return found
--- [] | {}
def m(self, items):
    return max(items, key=len).upper() + min(items, key=len).title() + sorted(items, key=len)[0].strip()
--- [["ant", "zebra", " b"]] | {}
'''


def _case(source: str, args: str, slots: str) -> tuple[str, list[Any], dict[str, Any]]:
    names = {"true": True, "false": False, "null": None}
    return source, eval(args, names), {k: v for k, v in eval(slots, names).items() if k != "__builtins__"}


def _cases() -> list[tuple[str, list[Any], dict[str, Any]]]:
    found = []
    for line in _PLAIN.strip().splitlines():
        source, args, slots = line.rsplit(" | ", 2)
        found.append(_case(source + "\n", args, slots))
    source = ""
    for line in _BLOCKS.strip().splitlines():
        if line.startswith("--- "):
            args, slots = line[4:].rsplit(" | ", 1)
            found.append(_case(source, args, slots))
            source = ""
        else:
            source += line + "\n"
    return found


CASES = _cases()
