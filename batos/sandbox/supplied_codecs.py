"""Encodings of one byte a character that the interpreter of the sandbox lacks: tables in a text that runs in it (see `supply`)."""

TEXT = r"""
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
