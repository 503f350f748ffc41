"""Modules that compare, match, quote and sum texts: `# module.name`, then its text (see `supply`)."""

STRINGS_TEXT = r"""
# difflib.SequenceMatcher
class _b_difflib_SequenceMatcher:
    def __init__(self, isjunk=None, a='', b='', autojunk=True):
        self.isjunk, self.autojunk = isjunk, autojunk
        self.set_seqs(a, b)
    def set_seqs(self, a, b):
        self.a = a
        self.set_seq2(b)
    def set_seq1(self, a):
        self.a, self.blocks = a, None
    def set_seq2(self, b):
        self.b, self.blocks, self.places = b, None, {}
        for i, x in enumerate(b):
            self.places.setdefault(x, []).append(i)
        for x in list(self.places):
            if self.isjunk and self.isjunk(x):
                self.places.pop(x)
        if self.autojunk and len(b) >= 200:
            for x in list(self.places):
                if len(self.places[x]) > len(b) // 100 + 1:
                    self.places.pop(x)
    def find_longest_match(self, alo=0, ahi=None, blo=0, bhi=None):
        a, b, junk = self.a, self.b, self.isjunk
        ahi, bhi = len(a) if ahi is None else ahi, len(b) if bhi is None else bhi
        i, j, size, ends = alo, blo, 0, {}
        for x in range(alo, ahi):
            new = {}
            for y in self.places.get(a[x], []):
                if y < blo:
                    continue
                if y >= bhi:
                    break
                k = new[y] = ends.get(y - 1, 0) + 1
                if k > size:
                    i, j, size = x - k + 1, y - k + 1, k
            ends = new
        for last in ((False, True) if junk else (False,)):
            while i > alo and j > blo and a[i - 1] == b[j - 1] and bool(junk and junk(b[j - 1])) == last:
                i, j, size = i - 1, j - 1, size + 1
            while i + size < ahi and j + size < bhi and a[i + size] == b[j + size] and bool(junk and junk(b[j + size])) == last:
                size += 1
        return _b_difflib_Match(i, j, size)
    def get_matching_blocks(self):
        if self.blocks is not None:
            return self.blocks
        todo, found = [(0, len(self.a), 0, len(self.b))], []
        while todo:
            alo, ahi, blo, bhi = todo.pop()
            i, j, k = self.find_longest_match(alo, ahi, blo, bhi)
            if k:
                found.append((i, j, k))
                if alo < i and blo < j:
                    todo.append((alo, i, blo, j))
                if i + k < ahi and j + k < bhi:
                    todo.append((i + k, ahi, j + k, bhi))
        found.sort()
        blocks, held = [], (0, 0, 0)
        for i, j, k in found:
            if held[0] + held[2] == i and held[1] + held[2] == j:
                held = (held[0], held[1], held[2] + k)
            else:
                if held[2]:
                    blocks.append(_b_difflib_Match(*held))
                held = (i, j, k)
        if held[2]:
            blocks.append(_b_difflib_Match(*held))
        self.blocks = blocks + [_b_difflib_Match(len(self.a), len(self.b), 0)]
        return self.blocks
    def get_opcodes(self):
        i = j = 0
        found = []
        for x, y, size in self.get_matching_blocks():
            tag = 'replace' if i < x and j < y else 'delete' if i < x else 'insert' if j < y else ''
            if tag:
                found.append((tag, i, x, j, y))
            i, j = x + size, y + size
            if size:
                found.append(('equal', x, i, y, j))
        return found
    def get_grouped_opcodes(self, n=3):
        codes = self.get_opcodes() or [('equal', 0, 1, 0, 1)]
        if codes[0][0] == 'equal':
            tag, a, b, c, d = codes[0]
            codes[0] = tag, max(a, b - n), b, max(c, d - n), d
        if codes[-1][0] == 'equal':
            tag, a, b, c, d = codes[-1]
            codes[-1] = tag, a, min(b, a + n), c, min(d, c + n)
        groups, group = [], []
        for tag, a, b, c, d in codes:
            if tag == 'equal' and b - a > 2 * n:
                group.append((tag, a, min(b, a + n), c, min(d, c + n)))
                groups.append(group)
                group = []
                a, c = max(a, b - n), max(c, d - n)
            group.append((tag, a, b, c, d))
        if group and not (len(group) == 1 and group[0][0] == 'equal'):
            groups.append(group)
        return groups
    def ratio(self):
        length = len(self.a) + len(self.b)
        return 2.0 * sum([size for i, j, size in self.get_matching_blocks()]) / length if length else 1.0
    def quick_ratio(self):
        left = {}
        for x in self.b:
            left[x] = left.get(x, 0) + 1
        same = 0
        for x in self.a:
            if left.get(x, 0) > 0:
                same += 1
            left[x] = left.get(x, 0) - 1
        length = len(self.a) + len(self.b)
        return 2.0 * same / length if length else 1.0
    def real_quick_ratio(self):
        a, b = len(self.a), len(self.b)
        return 2.0 * min(a, b) / (a + b) if a + b else 1.0
# difflib.Match
from collections import namedtuple as _b_namedtuple
_b_difflib_Match = _b_namedtuple('Match', ['a', 'b', 'size'])
# difflib.get_close_matches
def _b_difflib_get_close_matches(word, possibilities, n=3, cutoff=0.6):
    if n <= 0:
        raise ValueError('n must be > 0: ' + repr(n))
    if not 0.0 <= cutoff <= 1.0:
        raise ValueError('cutoff must be in [0.0, 1.0]: ' + repr(cutoff))
    found, matcher = [], _b_difflib_SequenceMatcher()
    matcher.set_seq2(word)
    for x in possibilities:
        matcher.set_seq1(x)
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff and matcher.ratio() >= cutoff:
            found.append((matcher.ratio(), x))
    found.sort(reverse=True)
    return [x for score, x in found[:n]]
# difflib.unified_diff
def _b_difflib_unified_diff(a, b, fromfile='', tofile='', fromfiledate='', tofiledate='', n=3, lineterm='\n'):
    lines = []
    for group in _b_difflib_SequenceMatcher(None, a, b).get_grouped_opcodes(n):
        if not lines:
            lines.append('--- ' + fromfile + ('\t' + fromfiledate if fromfiledate else '') + lineterm)
            lines.append('+++ ' + tofile + ('\t' + tofiledate if tofiledate else '') + lineterm)
        spans = []
        for start, stop in ((group[0][1], group[-1][2]), (group[0][3], group[-1][4])):
            length = stop - start
            spans.append(str(start + 1) if length == 1 else str(start + 1 if length else start) + ',' + str(length))
        lines.append('@@ -' + spans[0] + ' +' + spans[1] + ' @@' + lineterm)
        for tag, i, end, j, stop in group:
            if tag == 'equal':
                lines.extend([' ' + line for line in a[i:end]])
                continue
            if tag != 'insert':
                lines.extend(['-' + line for line in a[i:end]])
            if tag != 'delete':
                lines.extend(['+' + line for line in b[j:stop]])
    return iter(lines)
# fnmatch.translate
def _b_fnmatch_translate(pattern):
    import re
    found, i = '', 0
    while i < len(pattern):
        c = pattern[i]
        i += 1
        end = pattern.find(']', i + (2 if pattern[i:i + 1] == '!' else 1)) if c == '[' else -1
        if c == '*':
            found += '.*' if not found.endswith('.*') else ''
        elif c == '?':
            found += '.'
        elif end >= 0:
            inside = pattern[i:end].replace('\\', '\\\\').replace('[', '\\[').replace('&', '\\&')
            found += '[' + ('^' + inside[1:] if inside[0] == '!' else '\\' + inside if inside[0] == '^' else inside) + ']'
            i = end + 1
        else:
            found += re.escape(c)
    return '(?s:' + found + r')\Z'
# fnmatch.fnmatchcase
def _b_fnmatch_fnmatchcase(name, pattern):
    import re
    return re.fullmatch(_b_fnmatch_translate(pattern)[:-2], name) is not None
# fnmatch.fnmatch
def _b_fnmatch_fnmatch(name, pattern):
    return _b_fnmatch_fnmatchcase(name, pattern)
# fnmatch.filter
def _b_fnmatch_filter(names, pattern):
    return [name for name in names if _b_fnmatch_fnmatchcase(name, pattern)]
# zlib.crc32
def _b_zlib_crc32(data, value=0):
    import binascii
    return binascii.crc32(data, value)
# zlib.adler32
def _b_zlib_adler32(data, value=1):
    a, b = value & 0xffff, value >> 16
    for x in data:
        a = (a + x) % 65521
        b = (b + a) % 65521
    return b << 16 | a
# shlex.split
def _b_shlex_split(s, comments=False, posix=True):
    words, word, quote, i = [], None, '', 0
    while i < len(s):
        c = s[i]
        i += 1
        if quote:
            if c == quote:
                quote = ''
            elif c == '\\' and quote == '"' and s[i:i + 1] in ('"', '\\'):
                word, i = word + s[i], i + 1
            else:
                word += c
        elif c in ' \t\r\n':
            if word is not None:
                words.append(word)
            word = None
        elif comments and c == '#':
            i = s.find('\n', i) if '\n' in s[i:] else len(s)
            if word is not None:
                words.append(word)
            word = None
        elif c in '"\'':
            quote, word = c, word or ''
        elif c == '\\':
            if i == len(s):
                raise ValueError('No escaped character')
            word, i = (word or '') + s[i], i + 1
        else:
            word = (word or '') + c
    if quote:
        raise ValueError('No closing quotation')
    return words if word is None else words + [word]
# shlex.quote
def _b_shlex_quote(s):
    import re
    return s if s and not re.search(r'[^\w@%+=:,./-]', s, re.ASCII) else "'" + s.replace("'", "'\"'\"'") + "'"
# shlex.join
def _b_shlex_join(words):
    return ' '.join([_b_shlex_quote(word) for word in words])
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
"""
