"""Lines and addresses: `textwrap` and, as `urls`, `urllib.parse` (see `supply`). After CPython's, option by option."""

LINES_TEXT = r"""
# textwrap.chunks
def _b_textwrap_chunks(text, hyphens):
    import re
    if not hyphens:
        return re.findall(r'[\t\n\x0b\x0c\r ]+|[^\t\n\x0b\x0c\r ]+', text)
    blank, dash = r'[\t\n\x0b\x0c\r ]', r'(?<=[\w!"\'&.,?])'
    hyphened = r'-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[^\d\W]-))(?=[^\d\W]-?[^\d\W])'
    word = r'[^\t\n\x0b\x0c\r ]+?(?:' + hyphened + '|(?=' + blank + r'|\Z)|' + dash + r'(?=-{2,}\w))'
    return [m.group(0) for m in re.finditer(blank + '+|' + dash + r'-{2,}(?=\w)|' + word, text)]
# textwrap.wrap
def _b_textwrap_wrap(text, width=70, initial_indent='', subsequent_indent='', expand_tabs=True, replace_whitespace=True,
        fix_sentence_endings=False, break_long_words=True, drop_whitespace=True, break_on_hyphens=True, tabsize=8, max_lines=None,
        placeholder=' [...]'):
    if fix_sentence_endings:
        raise TypeError('fix_sentence_endings is not there in a method')
    if width <= 0:
        raise ValueError('invalid width ' + repr(width) + ' (must be > 0)')
    if max_lines is not None and len(subsequent_indent if max_lines > 1 else initial_indent) + len(placeholder.lstrip()) > width:
        raise ValueError('placeholder too large for max width')
    text = text.expandtabs(tabsize) if expand_tabs else text
    if replace_whitespace:
        text = ''.join([' ' if c in '\t\n\x0b\x0c\r' else c for c in text])
    chunks = _b_textwrap_chunks(text, break_on_hyphens)[::-1]
    lines = []
    while chunks:
        line, size = [], 0
        indent = subsequent_indent if lines else initial_indent
        room = width - len(indent)
        if drop_whitespace and chunks[-1].strip() == '' and lines:
            chunks.pop()
        while chunks and size + len(chunks[-1]) <= room:
            size += len(chunks[-1])
            line.append(chunks.pop())
        if chunks and len(chunks[-1]) > room:
            space = 1 if room < 1 else room - size
            if break_long_words:
                end = space
                if break_on_hyphens and len(chunks[-1]) > space:
                    hyphen = chunks[-1].rfind('-', 0, space)
                    if hyphen > 0 and chunks[-1][:hyphen].replace('-', ''):
                        end = hyphen + 1
                if space > 0 or not line:
                    line.append(chunks[-1][:end])
                    chunks[-1] = chunks[-1][end:]
            elif not line:
                line.append(chunks.pop())
            size = sum(map(len, line))
        if drop_whitespace and line and line[-1].strip() == '':
            size -= len(line.pop())
        if not line:
            continue
        last = not chunks or drop_whitespace and len(chunks) == 1 and not chunks[0].strip()
        if max_lines is None or len(lines) + 1 < max_lines or last and size <= room:
            lines.append(indent + ''.join(line))
            continue
        while line and not (line[-1].strip() and size + len(placeholder) <= room):
            size -= len(line.pop())
        if line:
            lines.append(indent + ''.join(line) + placeholder)
        elif lines and len(lines[-1].rstrip()) + len(placeholder) <= width:
            lines[-1] = lines[-1].rstrip() + placeholder
        else:
            lines.append(indent + placeholder.lstrip())
        break
    return lines
# textwrap.fill
def _b_textwrap_fill(text, width=70, **options):
    return '\n'.join(_b_textwrap_wrap(text, width, **options))
# textwrap.shorten
def _b_textwrap_shorten(text, width, **options):
    return _b_textwrap_fill(' '.join(text.split()), width, max_lines=1, **options)
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
# urls.quote
def _b_urls_quote(string, safe='/', encoding='utf-8', errors='strict'):
    kept = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~' + safe
    data = string if type(string) is bytes else string.encode(encoding, errors)
    return ''.join([chr(b) if b < 128 and chr(b) in kept else '%%%02X' % b for b in data])
# urls.quote_plus
def _b_urls_quote_plus(string, safe='', encoding='utf-8', errors='strict'):
    return _b_urls_quote(string, safe + ' ', encoding, errors).replace(' ', '+')
# urls.unquote
def _b_urls_unquote(string, encoding='utf-8', errors='replace'):
    import re
    parts, at = [], 0
    for m in re.finditer(r'(?:%[0-9a-fA-F]{2})+', string):
        parts.append(string[at:m.start()] + bytes.fromhex(m.group(0).replace('%', '')).decode(encoding, errors))
        at = m.end()
    return ''.join(parts) + string[at:]
# urls.unquote_plus
def _b_urls_unquote_plus(string, encoding='utf-8', errors='replace'):
    return _b_urls_unquote(string.replace('+', ' '), encoding, errors)
# urls.parse_qsl
def _b_urls_parse_qsl(qs, keep_blank_values=False, strict_parsing=False):
    found = []
    for part in qs.split('&') if qs else []:
        name, mark, value = part.partition('=')
        if strict_parsing and not mark:
            raise ValueError('bad query field: ' + repr(part))
        if value or keep_blank_values and part:
            found.append((_b_urls_unquote_plus(name), _b_urls_unquote_plus(value)))
    return found
# urls.parse_qs
def _b_urls_parse_qs(qs, keep_blank_values=False, strict_parsing=False):
    found = {}
    for name, value in _b_urls_parse_qsl(qs, keep_blank_values, strict_parsing):
        found.setdefault(name, []).append(value)
    return found
# urls.urlencode
def _b_urls_urlencode(query, doseq=False, safe=''):
    parts = []
    for name, value in query.items() if type(query) is dict else query:
        values = value if doseq and type(value) in (list, tuple) else [value]
        for one in values:
            texts = [x if type(x) is bytes else str(x) for x in (name, one)]
            parts.append('='.join([_b_urls_quote_plus(text, safe) for text in texts]))
    return '&'.join(parts)
# urls.Parts
class _b_urls_Parts:
    def __init__(self, names, values):
        self.names, self.values = names, tuple(values)
        for name, value in zip(names, values):
            setattr(self, name, value)
        info, at, host = self.netloc.rpartition('@')
        self.username, mark, password = info.partition(':')
        self.password = password if mark else None
        self.username = self.username if at else None
        if host.startswith('['):
            host, mark, port = host[1:].partition(']')
            port = port[1:]
        else:
            host, mark, port = host.partition(':')
        self.hostname = host.lower() or None
        self.port = int(port) if port.isdigit() else None
    def __iter__(self):
        return iter(self.values)
    def __getitem__(self, i):
        return self.values[i]
    def __eq__(self, other):
        return self.values == (other.values if type(other) is _b_urls_Parts else other)
    def __repr__(self):
        name = 'ParseResult' if len(self.names) == 6 else 'SplitResult'
        return name + '(' + ', '.join([n + '=' + repr(v) for n, v in zip(self.names, self.values)]) + ')'
    def geturl(self):
        return _b_urls_urlunsplit(self.values) if len(self.names) == 5 else _b_urls_urlunparse(self.values)
# urls.urlsplit
def _b_urls_urlsplit(url, scheme='', allow_fragments=True):
    url = ''.join([c for c in url.lstrip(' \t\r\n') if c not in '\t\r\n'])
    head, mark, rest = url.partition(':')
    if mark and head[:1].isalpha() and head.isascii() and all([c.isalnum() or c in '+-.' for c in head]):
        scheme, url = head.lower(), rest
    netloc = query = fragment = ''
    if url.startswith('//'):
        end = min([i for i in [url.find(c, 2) for c in '/?#'] if i >= 0] + [len(url)])
        netloc, url = url[2:end], url[end:]
    if allow_fragments:
        url, mark, fragment = url.partition('#')
    url, mark, query = url.partition('?')
    return _b_urls_Parts(('scheme', 'netloc', 'path', 'query', 'fragment'), (scheme, netloc, url, query, fragment))
# urls.urlparse
def _b_urls_urlparse(url, scheme='', allow_fragments=True):
    scheme, netloc, path, query, fragment = _b_urls_urlsplit(url, scheme, allow_fragments).values
    params = ''
    last = path.rfind('/')
    at = path.find(';', max(last, 0))
    if at >= 0 and scheme in ('', 'ftp', 'http', 'https', 'rtsp', 'sip', 'sips', 'mms', 'sftp', 'tel'):
        path, params = path[:at], path[at + 1:]
    return _b_urls_Parts(('scheme', 'netloc', 'path', 'params', 'query', 'fragment'), (scheme, netloc, path, params, query, fragment))
# urls.urlunsplit
def _b_urls_urlunsplit(parts):
    scheme, netloc, url, query, fragment = parts
    if netloc or scheme in ('http', 'https', 'ftp', 'file') and url[:2] != '//' and scheme:
        url = '//' + netloc + ('/' if url and url[:1] != '/' else '') + url
    return (scheme + ':' if scheme else '') + url + ('?' + query if query else '') + ('#' + fragment if fragment else '')
# urls.urlunparse
def _b_urls_urlunparse(parts):
    scheme, netloc, url, params, query, fragment = parts
    return _b_urls_urlunsplit((scheme, netloc, url + ';' + params if params else url, query, fragment))
# urls.urljoin
def _b_urls_urljoin(base, url, allow_fragments=True):
    if not base or not url:
        return url or base
    b = _b_urls_urlsplit(base, '', allow_fragments)
    u = _b_urls_urlsplit(url, b.scheme, allow_fragments)
    if u.scheme != b.scheme or u.scheme not in ('', 'ftp', 'http', 'https', 'file', 'sftp', 'ws', 'wss'):
        return url
    if u.netloc:
        return _b_urls_urlunsplit(u.values)
    if not u.path:
        return _b_urls_urlunsplit((u.scheme, b.netloc, b.path, u.query or b.query, u.fragment))
    held = b.path.split('/')
    if held[-1] != '':
        held.pop()
    segments = u.path.split('/') if u.path[:1] == '/' else held + u.path.split('/')
    if u.path[:1] != '/':
        segments[1:-1] = [s for s in segments[1:-1] if s]
    found = []
    for segment in segments:
        if segment == '..':
            found = found[:-1]
        elif segment != '.':
            found.append(segment)
    if segments[-1] in ('.', '..'):
        found.append('')
    return _b_urls_urlunsplit((u.scheme, b.netloc, '/'.join(found) or '/', u.query, u.fragment))
# json.dumps
def _b_json_dumps(o, **options):
    import json
    default = options.pop('default', None)
    return json.dumps(_b_json_plain(o, default) if default else o, **options)
# json.plain
def _b_json_plain(o, default):
    t = type(o)
    if t is dict:
        return {k: _b_json_plain(o[k], default) for k in o}
    if t is list or t is tuple:
        return [_b_json_plain(x, default) for x in o]
    return o if o is None or t in (str, int, float, bool) else _b_json_plain(default(o), default)
# re.unfolded
def _b_re_unfolded(pattern):
    found, at, inside = '', 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == '\\':
            found, at = found + pattern[at:at + 2], at + 2
        elif char == '#' and not inside:
            at = pattern.find('\n', at)
            if at < 0:
                break
        elif char == '[' and not inside:
            more = 2 if pattern[at + 1:at + 2] == '^' else 1
            more += pattern[at + more:at + more + 1] == ']'
            found, at, inside = found + pattern[at:at + more], at + more, True
        else:
            inside = inside and char != ']'
            if inside or char == ']' or char not in ' \t\n\r\f\v':
                found += char
            at += 1
    return found
# re.VERBOSE
_b_re_VERBOSE = 0
# re.X
_b_re_X = 0
# operator.attrgetter
def _b_operator_attrgetter(*names):
    def one(o, name):
        for part in name.split('.'):
            o = _b_getattr(o, part)
        return o
    return (lambda o: one(o, names[0])) if len(names) == 1 else (lambda o: tuple([one(o, name) for name in names]))
# html.unescape
def _b_html_unescape(s):
    names = {'amp': '&', 'lt': '<', 'gt': '>', 'quot': '"', 'apos': "'", 'nbsp': '\xa0', 'copy': '\xa9', 'reg': '\xae',
        'trade': '\u2122', 'hellip': '\u2026', 'mdash': '\u2014', 'ndash': '\u2013', 'lsquo': '\u2018',
        'rsquo': '\u2019', 'ldquo': '\u201c', 'rdquo': '\u201d', 'laquo': '\xab', 'raquo': '\xbb', 'bull': '\u2022',
        'middot': '\xb7', 'euro': '\u20ac', 'pound': '\xa3', 'yen': '\xa5', 'cent': '\xa2', 'sect': '\xa7',
        'deg': '\xb0', 'plusmn': '\xb1', 'times': '\xd7', 'divide': '\xf7', 'frac12': '\xbd', 'auml': '\xe4',
        'ouml': '\xf6', 'uuml': '\xfc', 'Auml': '\xc4', 'Ouml': '\xd6', 'Uuml': '\xdc', 'szlig': '\xdf',
        'eacute': '\xe9', 'egrave': '\xe8', 'agrave': '\xe0', 'ccedil': '\xe7', 'ntilde': '\xf1'}
    def one(m):
        name = m.group(1)
        if name[0] == '#':
            n = int(name[2:], 16) if name[1] in 'xX' else int(name[1:])
            return chr(n) if 0 < n < 0x110000 and not 0xd800 <= n < 0xe000 else '\ufffd'
        return names.get(name, m.group(0))
    return _b_re_sub(r'&(#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]*);', one, s)
# statistics.StatisticsError
_b_statistics_StatisticsError = ValueError
# statistics.covariance
def _b_statistics_covariance(x, y):
    n = len(x)
    if n != len(y) or n < 2:
        raise ValueError('covariance requires that both inputs have same number of data points, at least two')
    a, b = sum(x) / n, sum(y) / n
    return sum([(p - a) * (q - b) for p, q in zip(x, y)]) / (n - 1)
# statistics.correlation
def _b_statistics_correlation(x, y):
    n = len(x)
    if n != len(y) or n < 2:
        raise ValueError('correlation requires that both inputs have same number of data points, at least two')
    a, b = sum(x) / n, sum(y) / n
    both, xx, yy = sum([(p - a) * (q - b) for p, q in zip(x, y)]), sum([(p - a) ** 2 for p in x]), sum([(q - b) ** 2 for q in y])
    if not xx or not yy:
        raise ValueError('at least one of the inputs is constant')
    return both / (xx * yy) ** 0.5
# re.numbered
def _b_re_numbered(m, g):
    if type(g[0]) is not str:
        return g
    names, n = list(m.groupdict()), len(m.groups())
    if g[0] not in names:
        raise IndexError('no such group')
    def places(names, numbers):
        found, numbers = [], iter(numbers)
        for name in names:
            for i in numbers:
                if m.group(i) == m.group(name):
                    found.append(i)
                    break
        return found
    numbers = range(1, n + 1)
    at = names.index(g[0])
    first, last = places(names, numbers)[at], places(names[::-1], numbers[::-1])[::-1][at]
    if first != last and m.group(first) is not None:
        raise NotImplementedError('a group with a name beside an equal one without: give its number')
    return (first,)
# builtins.pow
def _b_builtins_pow(base, exp, mod=None):
    if mod is None or exp >= 0:
        return pow(base, exp) if mod is None else pow(base, exp, mod)
    a, b, x, y = base % mod, mod, 1, 0
    while b:
        q = a // b
        a, b, x, y = b, a - q * b, y, x - q * y
    if abs(a) != 1:
        raise ValueError('base is not invertible for the given modulus')
    return pow(x * a % mod, -exp, mod)
# builtins.round
def _b_builtins_round(number, ndigits=None):
    if ndigits is None:
        return round(number)
    if isinstance(number, float) and 0 <= ndigits <= 22:
        return float(f'{number:.{ndigits}f}')
    return round(number, ndigits)
# uuid.uuid5
def _b_uuid_uuid5(namespace, name):
    import hashlib
    h = hashlib.sha1(bytes.fromhex(namespace.replace('-', '')) + name.encode()).hexdigest()
    h = h[:12] + '5' + h[13:16] + '%x' % (int(h[16], 16) & 3 | 8) + h[17:32]
    return h[:8] + '-' + h[8:12] + '-' + h[12:16] + '-' + h[16:20] + '-' + h[20:]
# uuid.uuid3
def _b_uuid_uuid3(namespace, name):
    import hashlib
    h = hashlib.md5(bytes.fromhex(namespace.replace('-', '')) + name.encode()).hexdigest()
    h = h[:12] + '3' + h[13:16] + '%x' % (int(h[16], 16) & 3 | 8) + h[17:32]
    return h[:8] + '-' + h[8:12] + '-' + h[12:16] + '-' + h[16:20] + '-' + h[20:]
# uuid.NAMESPACE_DNS
_b_uuid_NAMESPACE_DNS = '6ba7b810-9dad-11d1-80b4-00c04fd430c8'
# uuid.NAMESPACE_URL
_b_uuid_NAMESPACE_URL = '6ba7b811-9dad-11d1-80b4-00c04fd430c8'
# fractions.either
def _b_fractions_either(first, *others):
    for other in others:
        if _b_fractions_truth(first):
            return first
        first = other()
    return first
# fractions.both
def _b_fractions_both(first, *others):
    for other in others:
        if not _b_fractions_truth(first):
            return first
        first = other()
    return first
"""
