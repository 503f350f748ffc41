"""Modules whose members are classes: `# module.name`, then its text (see `supply`).

Classes of the interpreter have arithmetic, equality, a hash and `with`, but neither an order nor a length.
"""

CLASSES_TEXT = r"""
# contextlib.suppress
class _b_contextlib_suppress:
    def __init__(self, *kinds):
        self.kinds = kinds
    def __enter__(self):
        return None
    def __exit__(self, kind, error, trace):
        return error is not None and isinstance(error, self.kinds)
# contextlib.nullcontext
class _b_contextlib_nullcontext:
    def __init__(self, enter_result=None):
        self.enter_result = enter_result
    def __enter__(self):
        return self.enter_result
    def __exit__(self, kind, error, trace):
        return False
# fractions.Fraction
class _b_fractions_Fraction:
    def __init__(self, numerator=0, denominator=1):
        import math
        n, d = _b_fractions_parts(numerator)
        m, e = _b_fractions_parts(denominator)
        n, d = n * e, d * m
        if d == 0:
            raise ZeroDivisionError('Fraction(' + str(n) + ', 0)')
        g = math.gcd(n, d) * (-1 if d < 0 else 1)
        self.numerator, self.denominator = n // g, d // g
    def __repr__(self):
        return 'Fraction(' + str(self.numerator) + ', ' + str(self.denominator) + ')'
    def __str__(self):
        return str(self.numerator) if self.denominator == 1 else str(self.numerator) + '/' + str(self.denominator)
    def __hash__(self):
        return hash(self.numerator) if self.denominator == 1 else hash((self.numerator, self.denominator))
    def __float__(self):
        return self.numerator / self.denominator
    def __int__(self):
        return self.numerator // self.denominator if self.numerator >= 0 else -(-self.numerator // self.denominator)
    def __neg__(self):
        return _b_fractions_Fraction(-self.numerator, self.denominator)
    def __pos__(self):
        return self
    def __abs__(self):
        return _b_fractions_Fraction(abs(self.numerator), self.denominator)
    def __eq__(self, o):
        if type(o) is float:
            return self.numerator / self.denominator == o
        if type(o) not in (int, bool, _b_fractions_Fraction):
            return False
        n, d = _b_fractions_parts(o)
        return self.numerator == n and self.denominator == d
    def __add__(self, o):
        return _b_fractions_of('+', self, o)
    def __radd__(self, o):
        return _b_fractions_of('+', o, self)
    def __sub__(self, o):
        return _b_fractions_of('-', self, o)
    def __rsub__(self, o):
        return _b_fractions_of('-', o, self)
    def __mul__(self, o):
        return _b_fractions_of('*', self, o)
    def __rmul__(self, o):
        return _b_fractions_of('*', o, self)
    def __truediv__(self, o):
        return _b_fractions_of('/', self, o)
    def __rtruediv__(self, o):
        return _b_fractions_of('/', o, self)
    def __floordiv__(self, o):
        return _b_fractions_of('//', self, o)
    def __rfloordiv__(self, o):
        return _b_fractions_of('//', o, self)
    def __mod__(self, o):
        return _b_fractions_of('%', self, o)
    def __rmod__(self, o):
        return _b_fractions_of('%', o, self)
    def __pow__(self, o):
        if type(o) is not int:
            return float(self) ** float(o)
        if o < 0:
            return _b_fractions_Fraction(self.denominator ** -o, self.numerator ** -o)
        return _b_fractions_Fraction(self.numerator ** o, self.denominator ** o)
    def as_integer_ratio(self):
        return self.numerator, self.denominator
    def limit_denominator(self, max_denominator=1000000):
        if max_denominator < 1:
            raise ValueError('max_denominator should be at least 1')
        if self.denominator <= max_denominator:
            return self
        p0, q0, p1, q1 = 0, 1, 1, 0
        n, d = self.numerator, self.denominator
        while True:
            a = n // d
            if q0 + a * q1 > max_denominator:
                break
            p0, q0, p1, q1 = p1, q1, p0 + a * p1, q0 + a * q1
            n, d = d, n - a * d
        k = (max_denominator - q0) // q1
        if 2 * d * (q0 + k * q1) <= self.denominator:
            return _b_fractions_Fraction(p1, q1)
        return _b_fractions_Fraction(p0 + k * p1, q0 + k * q1)
# fractions.parts
def _b_fractions_parts(x):
    if type(x) is _b_fractions_Fraction:
        return x.numerator, x.denominator
    if type(x) is int or type(x) is bool:
        return int(x), 1
    if type(x) is float:
        d = 1
        while int(x) != x:
            x, d = x * 2, d * 2
        return int(x), d
    text = str(x).strip().replace('_', '')
    if '/' in text:
        n, d = text.split('/')
        return int(n), int(d)
    text, mark, e = text.lower().partition('e')
    whole, point, rest = text.partition('.')
    try:
        n, e = int(whole + rest), (int(e) if mark else 0) - len(rest)
    except ValueError:
        raise ValueError('Invalid literal for Fraction: ' + repr(x))
    return (n * 10 ** e, 1) if e >= 0 else (n, 10 ** -e)
# fractions.of
def _b_fractions_of(op, x, y):
    if type(x) is float or type(y) is float:
        x, y = float(x), float(y)
        if op in ('+', '-'):
            return x + y if op == '+' else x - y
        return x * y if op == '*' else x / y if op == '/' else x // y if op == '//' else x % y
    for v in (x, y):
        if type(v) not in (int, bool, _b_fractions_Fraction):
            raise TypeError('unsupported operand type(s) for ' + op + ': a Fraction and a ' + type(v).__name__)
    n, d = _b_fractions_parts(x)
    m, e = _b_fractions_parts(y)
    if op == '*':
        return _b_fractions_Fraction(n * m, d * e)
    if op == '/':
        return _b_fractions_Fraction(n * e, d * m)
    if op == '//':
        return (n * e) // (d * m)
    if op == '%':
        return _b_fractions_Fraction((n * e) % (d * m), d * e)
    return _b_fractions_Fraction(n * e + m * d if op == '+' else n * e - m * d, d * e)
# numbers.Number
_b_numbers_Number = (int, float, complex)
# numbers.Real
_b_numbers_Real = (int, float)
# numbers.Integral
_b_numbers_Integral = int
# fractions.order
def _b_fractions_order(a, b):
    if type(a) in (list, tuple) and type(b) is type(a):
        for x, y in zip(a, b):
            found = _b_fractions_order(x, y)
            if found:
                return found
        return len(a) - len(b)
    if type(a) is not _b_fractions_Fraction and type(b) is not _b_fractions_Fraction or type(a) is float or type(b) is float:
        a, b = float(a) if type(a) is _b_fractions_Fraction else a, float(b) if type(b) is _b_fractions_Fraction else b
        return -1 if a < b else 1 if a > b else 0
    if type(a) not in (int, bool, _b_fractions_Fraction) or type(b) not in (int, bool, _b_fractions_Fraction):
        raise TypeError('a Fraction and a ' + type(b if type(a) is _b_fractions_Fraction else a).__name__ + ' have no order')
    n, d = _b_fractions_parts(a)
    m, e = _b_fractions_parts(b)
    return n * e - m * d
# fractions.chain
def _b_fractions_chain(signs, *values):
    signs = signs.split()
    for i in range(len(signs)):
        sign, a, b = signs[i], values[i], values[i + 1]
        if sign == '==' or sign == '!=':
            ok = (a == b) == (sign == '==')
        elif type(a) in (_b_fractions_Fraction, list, tuple) or type(b) is _b_fractions_Fraction:
            found = _b_fractions_order(a, b)
            ok = found < 0 if sign == '<' else found <= 0 if sign == '<=' else found > 0 if sign == '>' else found >= 0
        else:
            ok = a < b if sign == '<' else a <= b if sign == '<=' else a > b if sign == '>' else a >= b
        if not ok:
            return False
    return True
# fractions.truth
def _b_fractions_truth(x):
    return x.numerator != 0 if type(x) is _b_fractions_Fraction else bool(x)
# fractions.by
def _b_fractions_by(key):
    return (lambda a, b: _b_fractions_order(key(a), key(b)) if key else _b_fractions_order(a, b)), _b_functools_compared
# io.StringIO
class _b_io_StringIO:
    def __init__(self, initial_value='', newline='\n'):
        self.parts, self.at, self.end = [initial_value or ''], 0, len(initial_value or '')
        self.closed = False
    def whole(self):
        if self.closed:
            raise ValueError('I/O operation on closed file')
        if len(self.parts) > 1:
            self.parts = [''.join(self.parts)]
        return self.parts[0]
    def write(self, text):
        if type(text) is not str:
            raise TypeError('string argument expected, got ' + repr(type(text).__name__))
        if self.at == self.end and not self.closed:
            self.parts.append(text)
        else:
            held = self.whole() + '\0' * (self.at - self.end)
            self.parts = [held[:self.at] + text + held[self.at + len(text):]]
        self.at += len(text)
        self.end = max(self.end, self.at)
        return len(text)
    def writelines(self, lines):
        for line in lines:
            self.write(line)
    def getvalue(self):
        return self.whole()
    def read(self, size=-1):
        held = self.whole()[self.at:]
        found = held if size is None or size < 0 else held[:size]
        self.at += len(found)
        return found
    def readline(self, size=-1):
        held = self.whole()
        stop = held.find('\n', self.at)
        stop = self.end if stop < 0 else stop + 1
        found = held[self.at:stop if size is None or size < 0 else min(stop, self.at + size)]
        self.at += len(found)
        return found
    def readlines(self, hint=-1):
        found = []
        line = self.readline()
        while line:
            found.append(line)
            line = self.readline()
        return found
    def seek(self, at, whence=0):
        self.at = at if whence == 0 else self.end
        return self.at
    def tell(self):
        return self.at
    def truncate(self, size=None):
        size = self.at if size is None else size
        held = self.whole()[:size]
        self.parts, self.end = [held], len(held)
        return size
    def close(self):
        self.closed = True
    def __iter__(self):
        return iter(self.readlines())
    def __enter__(self):
        return self
    def __exit__(self, kind, error, trace):
        self.closed = True
        return False
# string.Template
class _b_string_Template:
    def __init__(self, template):
        self.template = template
    def filled(self, values, safe):
        import re
        parts, at = [], 0
        for m in re.finditer(r'(?i)\$(?:(\$)|([_a-z][_a-z0-9]*)|\{([_a-z][_a-z0-9]*)\}|)', self.template):
            name = m.group(2) or m.group(3)
            if m.group(1):
                found = '$'
            elif name and (name in values or not safe):
                found = str(values[name])
            elif safe:
                found = m.group(0)
            else:
                raise ValueError('Invalid placeholder in string')
            parts.append(self.template[at:m.start()] + found)
            at = m.end()
        return ''.join(parts) + self.template[at:]
    def substitute(self, mapping=None, **named):
        return self.filled({**(mapping or {}), **named}, False)
    def safe_substitute(self, mapping=None, **named):
        return self.filled({**(mapping or {}), **named}, True)
"""
