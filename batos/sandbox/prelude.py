"""Prelude: the part of the membrane that runs in the sandbox, as text for its interpreter, put before every method.

It is a unit of work over slots. Reads are cached. Writes are held back until a message is sent or the method ends. Containers are *loans*
whose changes in place are found by comparing their `repr` (native, exact about types and order). It serves correctness, not safety: a
method may use every name here, and the host trusts none of it.

Host functions (see `invocation.py`): `_b_read(o, name)` answers `(kind, value)`, `_b_call(o, selector, args, kwargs, changes, above)` and
`_b_drop(o, name, changes, written)` answer `[ok, value or [type, message], refreshed]`. A change is `[o, name, value]`. Common cases have
shorter forms, since each value that crosses costs. `_b_call(o, selector, args)` has nothing further to pass, and without `o` goes to the
receiver of the run. An answer that is not a list is the value, and nothing was refreshed. A run answers its value alone if it wrote nothing
and the value is plain, else `[value, changes]`. There, a change `[name, value]` is one of its receiver's.
"""

ERRORS = [
    "ArithmeticError",
    "OverflowError",
    "ZeroDivisionError",
    "LookupError",
    "IndexError",
    "KeyError",
    "RuntimeError",
    "NotImplementedError",
    "RecursionError",
    "AttributeError",
    "NameError",
    "ValueError",
    "ImportError",
    "ModuleNotFoundError",
    "OSError",
    "FileNotFoundError",
    "PermissionError",
    "AssertionError",
    "TimeoutError",
    "TypeError",
    "StopIteration",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "Exception",
]
"""Exceptions that pass between host and sandbox unchanged. Any other exception becomes the nearest one in this list."""

PRELUDE = r"""
_b_U = _b_me = None
_b_cache = {}
_b_loans = {}
_b_dirty = {}
_b_plain_types = (int, str, float, bool, type(None), bytes, complex)
_b_builtin = (list, dict, set, str, tuple, int, float, bytes, frozenset, bool)
_b_errors = {@errors@}
_b_sorted0, _b_min0, _b_max0, _b_map0, _b_filter0, _b_getattr0, _b_hasattr0 = sorted, min, max, map, filter, getattr, hasattr
_b_iter = iter
def _b_keep(k, o, n, v):
    _b_cache[k] = v
    t = type(v)
    if t is list or t is dict or t is set:
        _b_loans[k] = [o, n, v, repr(v)]
    elif k in _b_loans:
        _b_loans.pop(k)
def _b_get(o, n):
    k = (o._oid, n)
    if k in _b_cache:
        return _b_cache[k]
    kind, v = _b_read(o, n)
    if kind == 1:
        return lambda *a, **kw: _b_send(o, n, a, kw)
    _b_keep(k, o, n, v)
    return v
def _b_set(o, n, v):
    if type(o) is not _b_U:
        return setattr(o, n, v)
    k = (o._oid, n)
    _b_cache[k] = v
    _b_dirty[k] = [o, n]
    if k in _b_loans:
        _b_loans.pop(k)
def _b_changes(me=None):
    for k in _b_loans:
        x = _b_loans[k]
        if repr(x[2]) != x[3]:
            _b_dirty[k] = [x[0], x[1]]
    found = []
    for k in _b_dirty:
        o, n = _b_dirty[k]
        v = _b_cache[k]
        if type(v) not in _b_plain_types:
            _b_check(v, 0)
        found.append([n, v] if o is me else [o, n, v])
    return found
def _b_sync(answer, sent):
    for o, n, v in sent:
        _b_keep((o._oid, n), o, n, v)
    _b_dirty.clear()
    if type(answer) is not list:
        return answer
    for x in answer[2]:
        k = (x[0]._oid, x[1])
        if len(x) == 2:
            _b_cache.pop(k, None)
            _b_loans.pop(k, None)
        else:
            old = _b_cache.get(k)
            _b_keep(k, x[0], x[1], old if _b_merge(old, x[2]) else x[2])
    if answer[0]:
        return answer[1]
    raise _b_errors.get(answer[1][0], RuntimeError)(answer[1][1])
def _b_merge(old, new):
    t = type(new)
    if t is not type(old):
        return False
    if t is list:
        both = zip(old, new)
        old[:] = [a if _b_merge(a, b) else b for a, b in both] + new[len(old):]
        return True
    if t is dict:
        items = [(k, old[k] if k in old and _b_merge(old[k], new[k]) else new[k]) for k in new]
        old.clear()
        old.update(items)
        return True
    if t is set:
        old.clear()
        old.update(new)
        return True
    return False
def _b_send(o, n, a, kw, above=False):
    if not (kw or above or _b_dirty or _b_loans):
        _b_check(a, 0)
        answer = _b_call(n, a) if o is _b_me else _b_call(o, n, a)
        return _b_sync(answer, []) if type(answer) is list else answer
    sent = _b_changes()
    _b_check(a, 0)
    if kw:
        _b_check(kw, 0)
    return _b_sync(_b_call(o, n, list(a), kw, sent, above), sent)
def _b_del(o, n):
    if type(o) is not _b_U:
        return delattr(o, n)
    k = (o._oid, n)
    written = k in _b_dirty
    for held in (_b_dirty, _b_loans, _b_cache):
        held.pop(k, None)
    sent = _b_changes()
    return _b_sync(_b_drop(o, n, sent, written), sent)
def _b_check(v, depth):
    t = type(v)
    if t in _b_plain_types or t is _b_U:
        return
    if depth > 60:
        raise ValueError('containers nested deeper than 60')
    if t is list or t is tuple or t is set or t is frozenset:
        for x in [x for x in v if type(x) not in _b_plain_types]:
            _b_check(x, depth + 1)
    elif t is dict:
        for x in [x for x in v.values() if type(x) not in _b_plain_types]:
            _b_check(x, depth + 1)
        for x in [x for x in v if type(x) not in _b_plain_types]:
            _b_check(x, depth + 1)
    elif t.__name__ in ('function', 'builtin_function_or_method', 'module', 'type', 'method', 'Pattern', 'Match', 're.Match', 're.Pattern'):
        raise TypeError('a ' + t.__name__ + ' may not leave a method; use plain values, containers of them, and objects')
    elif t.__name__ in _b_lazy:
        raise TypeError('a ' + t.__name__ + ' may not leave a method inside another value; make a list of it')
    elif t.__name__[:3] == '_b_':
        raise TypeError('a ' + t.__name__.split('_')[-1] + ' may not leave a method; use plain values, such as its str() or float()')
_b_lazy = ('range', 'dict_keys', 'dict_values', 'dict_items', 'list_iterator', 'tuple_iterator', 'str_iterator', 'dict_keyiterator',
    'dict_valueiterator', 'dict_itemiterator', 'set_iterator', 'range_iterator', 'count', 'cycle', 'repeat', 'iterator')
def _b_result(v):
    if type(v).__name__ in _b_lazy and type(v).__name__ not in ('count', 'cycle', 'repeat'):
        v = list(v)
    _b_check(v, 0)
    return v
def _b_run(f, o, a, known=(), kw={}):
    global _b_U, _b_me
    _b_U, _b_me = type(o), o
    for n in known:
        _b_keep((o._oid, n), o, n, known[n])
    r = f(o, *a, **kw) if kw else f(o, *a)
    if type(r) not in _b_plain_types:
        r = _b_result(r)
    elif not (_b_dirty or _b_loans):
        return r
    return [r, _b_changes(o)]
def _b_is(a, b):
    return a is b or (type(a) is _b_U and type(b) is _b_U and a._oid == b._oid)
def _b_getattr(o, n, *default):
    if type(o) is not _b_U:
        return _b_getattr0(o, n, *default)
    if default:
        try:
            return _b_get(o, n)
        except AttributeError:
            return default[0]
    return _b_get(o, n)
def _b_hasattr(o, n):
    if type(o) is not _b_U:
        return _b_hasattr0(o, n)
    try:
        _b_get(o, n)
    except AttributeError:
        return False
    return True
def _b_callable(f):
    return type(f).__name__ in ('function', 'builtin_function_or_method', 'type', 'method', 'functools.partial', 'partial')
def _b_name(o):
    return 'UvmObject' if type(o) is _b_U else type(o).__name__
def _b_sort(o, key=None, reverse=False):
    o[:] = _b_sorted(o, key=key, reverse=reverse)
def _b_sorted(it, *, key=None, reverse=False):
    xs = list(it)
    if key is None:
        xs.sort(reverse=reverse)
        return xs
    if type(key) is tuple:
        return key[1](xs[::-1], key[0])[::-1] if reverse else key[1](xs, key[0])
    ks = [key(x) for x in xs]
    ix = list(range(len(xs)))
    ix.sort(key=lambda i: ks[i], reverse=reverse)
    return [xs[i] for i in ix]
def _b_best(name, a, key, kw, better):
    xs = list(a[0]) if len(a) == 1 else list(a)
    if not xs:
        if 'default' in kw:
            return kw['default']
        raise ValueError(name + '() iterable argument is empty')
    if type(key) is tuple:
        return key[1](xs, key[0])[0] if name == 'min' else key[1](xs[::-1], key[0])[-1]
    found, at = xs[0], key(xs[0]) if key else xs[0]
    for x in xs[1:]:
        k = key(x) if key else x
        if better(k, at):
            found, at = x, k
    return found
def _b_max(*a, key=None, **kw):
    return _b_best('max', a, key, kw, lambda x, y: x > y)
def _b_min(*a, key=None, **kw):
    return _b_best('min', a, key, kw, lambda x, y: x < y)
def _b_map(f, *its):
    if len(its) == 1:
        return iter([f(x) for x in its[0]])
    return iter([f(*t) for t in zip(*its)])
def _b_filter(f, it):
    return iter([x for x in it if (f(x) if f else x)])
def _b_first(found, *default):
    if found:
        return found[0]
    if default:
        return default[0]
    raise StopIteration
def _b_delitem(o, k):
    o.pop(k)
def _b_delslice(o, a, b, c):
    gone = list(range(len(o)))[a:b:c]
    o[:] = [o[i] for i in range(len(o)) if i not in gone]
def _b_bytes(*a):
    if len(a) == 1 and type(a[0]) not in (str, int, bytes):
        return bytes.fromhex(''.join(['%02x' % x for x in a[0]]))
    return bytes(*a)
def _b_iadd(a, b):
    if type(a) is list and type(b) is not list:
        a.extend(b)
    else:
        a += b
    return a
def _b_text(*a):
    return a[0] if len(a) == 1 and type(a[0]) is str else str(a[0]) if len(a) == 1 else str(a)
def _b_print(*a, **kw):
    pass
""".replace("@errors@", ", ".join(f"{name!r}: {name}" for name in ERRORS))
