"""Functions and constants of modules that the sandbox's interpreter lacks: `# module.name`, then its text (see `supply`).

Among them are single-byte encodings, as tables in a text that runs in the sandbox.
"""

from __future__ import annotations

MODULES_TEXT = r"""
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
# statistics.geometric_mean
def _b_statistics_geometric_mean(data):
    import math
    xs = [math.log(x) for x in data]
    if not xs:
        raise ValueError('must have a non-empty dataset containing positive numbers')
    return math.exp(math.fsum(xs) / len(xs))
# statistics.harmonic_mean
def _b_statistics_harmonic_mean(data):
    xs = list(data)
    if not xs or min(xs) < 0:
        raise ValueError('harmonic_mean takes at least one data point, none below 0')
    return 0 if 0 in xs else len(xs) / sum([1 / x for x in xs])
# statistics.quantiles
def _b_statistics_quantiles(data, n=4, method='exclusive'):
    xs, found = sorted(data), []
    if n < 1 or len(xs) < 2 or method not in ('exclusive', 'inclusive'):
        raise ValueError('quantiles takes at least two data points, n of at least 1, and method exclusive or inclusive')
    m = len(xs) - 1 if method == 'inclusive' else len(xs) + 1
    for i in range(1, n):
        j, delta = divmod(i * m, n)
        if method == 'exclusive':
            j = max(1, min(j, len(xs) - 1))
            j, delta = j - 1, i * m - j * n
        found.append((xs[j] * (n - delta) + xs[j + 1] * delta) / n)
    return found
# calendar.isleap
def _b_calendar_isleap(year): return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
# calendar.leapdays
def _b_calendar_leapdays(a, b): return (b - 1) // 4 - (b - 1) // 100 + (b - 1) // 400 - (a - 1) // 4 + (a - 1) // 100 - (a - 1) // 400
# calendar.weekday
def _b_calendar_weekday(year, month, day):
    import datetime
    return datetime.date(year, month, day).weekday()
# calendar.monthrange
def _b_calendar_monthrange(year, month):
    if not 1 <= month <= 12:
        raise ValueError('bad month number ' + str(month) + '; must be 1-12')
    days = 29 if month == 2 and _b_calendar_isleap(year) else [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1]
    return _b_calendar_weekday(year, month, 1), days
# calendar.day_name
_b_calendar_day_name = ['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday', 'Sunday']
# calendar.day_abbr
_b_calendar_day_abbr = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun']
# calendar.month_name
_b_calendar_month_name = ['', 'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September',
    'October', 'November', 'December']
# calendar.month_abbr
_b_calendar_month_abbr = [name[:3] for name in _b_calendar_month_name]
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
# operator.itemgetter
def _b_operator_itemgetter(*keys):
    return (lambda o: o[keys[0]]) if len(keys) == 1 else (lambda o: tuple([o[k] for k in keys]))
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
# operator.pos
def _b_operator_pos(a): return +a
# operator.abs
def _b_operator_abs(a): return abs(a)
# operator.pow
def _b_operator_pow(a, b): return a ** b
# operator.concat
def _b_operator_concat(a, b): return a + b
# operator.truth
def _b_operator_truth(a): return bool(a)
# operator.is_
def _b_operator_is_(a, b): return _b_is(a, b)
# operator.is_not
def _b_operator_is_not(a, b): return not _b_is(a, b)
# operator.countOf
def _b_operator_countOf(a, b): return list(a).count(b)
# operator.indexOf
def _b_operator_indexOf(a, b): return list(a).index(b)
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
# heapq.merge
def _b_heapq_merge(*its, key=None, reverse=False):
    return iter(_b_sorted([x for it in its for x in it], key=key, reverse=reverse))
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
# functools.cache
def _b_functools_cache(f):
    known = {}
    def cached(*args, **named):
        key = args, tuple(sorted(named.items())) if named else ()
        if key not in known:
            known[key] = f(*args, **named)
        return known[key]
    return cached
# functools.lru_cache
def _b_functools_lru_cache(maxsize=128, typed=False):
    return _b_functools_cache if maxsize is None or type(maxsize) is int else _b_functools_cache(maxsize)
# functools.compared
def _b_functools_compared(xs, f):
    if len(xs) < 2:
        return xs
    a, b, found = _b_functools_compared(xs[:len(xs) // 2], f), _b_functools_compared(xs[len(xs) // 2:], f), []
    i = j = 0
    while i < len(a) and j < len(b):
        if f(a[i], b[j]) > 0:
            found.append(b[j])
            j += 1
        else:
            found.append(a[i])
            i += 1
    return found + a[i:] + b[j:]
# functools.cmp_to_key
def _b_functools_cmp_to_key(f):
    return f, _b_functools_compared  # what sorts knows it by being a tuple: classes of the interpreter have no order
# asyncio.gather
def _b_asyncio_gather(*values, return_exceptions=False):
    return list(values)
# re.sub
def _b_re_sub(pattern, repl, string, count=0, flags=0):
    import re
    if type(repl) is str:
        return re.sub(pattern, repl, string, count=count, flags=flags)
    return _b_re_replaced(re.finditer(pattern, string, flags), repl, string, count)
# re.replaced
def _b_re_replaced(found, repl, string, count):
    parts, at, done = [], 0, 0
    for m in found:
        if count and done >= count:
            break
        parts.append(string[at:m.start()])
        parts.append(repl(m))
        at, done = m.end(), done + 1
    return ''.join(parts) + string[at:]
# re.subn
def _b_re_subn(pattern, repl, string, count=0, flags=0):
    import re
    found = len(list(re.finditer(pattern, string, flags)))
    return _b_re_sub(pattern, repl, string, count, flags), min(found, count) if count else found
"""


CODECS_TEXT = r"""
# builtins.charset
def _b_builtins_charset(encoding):
    # the name, and by byte the characters that are others than Latin-1's; '' is none
    name = encoding.lower().replace('_', '-').replace(' ', '-') if type(encoding) is str else ''
    if name in ('latin-1', 'latin1', 'latin', 'l1', 'iso-8859-1', 'iso8859-1', '8859', 'cp819'):
        return 'latin-1', {}
    if name in ('latin-9', 'latin9', 'l9', 'iso-8859-15', 'iso8859-15'):
        return 'iso8859-15', {164: '€', 166: 'Š', 168: 'š', 180: 'Ž', 184: 'ž', 188: 'Œ', 189: 'œ', 190: 'Ÿ'}
    if name in ('cp1252', 'windows-1252', '1252'):
        chars = '€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ'
        return 'cp1252', {128 + i: chars[i].strip() for i in range(32)}
    return ('utf-8-sig' if name in ('utf-8-sig', 'utf8-sig') else ''), {}
# builtins.coded
def _b_builtins_coded(work, encoding, errors):
    try:
        return work(encoding, errors)
    except LookupError as e:
        if 'unknown encoding' not in str(e):
            raise
        raise LookupError(str(e) + '; a method has utf-8, utf-8-sig, utf-16, utf-32, ascii, latin-1, iso-8859-15 and cp1252')
# builtins.encoded
def _b_builtins_encoded(text, encoding='utf-8', errors='strict'):
    if type(text) is not str:
        raise TypeError('encoding without a string argument')
    name, others = _b_builtins_charset(encoding)
    if name == 'utf-8-sig':
        return b'\xef\xbb\xbf' + text.encode('utf-8', errors)
    if not name:
        return _b_builtins_coded(lambda *a: text.encode(*a), encoding, errors)
    codes, found = {c: chr(n) for n, c in others.items() if c}, []
    for i, c in enumerate(text):
        if c in codes:
            found.append(codes[c])
        elif ord(c) < 256 and ord(c) not in others:
            found.append(c)
        elif errors == 'strict':
            raise UnicodeEncodeError("'%s' codec can't encode character U+%04X in position %d" % (name, ord(c), i))
        else:
            found.append(c.encode('ascii', errors).decode('ascii'))
    return ''.join(found).encode('utf-16-le')[::2]
# builtins.decoded
def _b_builtins_decoded(data, encoding='utf-8', errors='strict'):
    if type(data) is not bytes:
        raise TypeError('decoding to str: need a bytes-like object, ' + type(data).__name__ + ' found')
    name, others = _b_builtins_charset(encoding)
    if name == 'utf-8-sig':
        return (data[3:] if data[:3] == b'\xef\xbb\xbf' else data).decode('utf-8', errors)
    if not name:
        return _b_builtins_coded(lambda *a: data.decode(*a), encoding, errors)
    found = [others.get(n, chr(n)) for n in data]
    if '' in found:
        for i, c in enumerate(found):
            if not c and errors == 'strict':
                raise UnicodeDecodeError("'%s' codec can't decode byte 0x%02x in position %d" % (name, data[i], i))
            if not c:
                found[i] = data[i:i + 1].decode('ascii', errors)
    return ''.join(found)
"""
