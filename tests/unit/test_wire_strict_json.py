import pytest

from batos.errors import MalformedMessage
from batos.wire import payloads

REFUSED = {
    b"": "not valid JSON",
    b"{": "not valid JSON",
    b"{} {}": "not valid JSON",
    b"\xef\xbb\xbf{}": "not valid JSON",
    b"[]": "one JSON object",
    b'"op"': "one JSON object",
    b"null": "one JSON object",
    b'{"a": "\xff"}': "not UTF-8",
    b'{"a": "\xc0\xaf"}': "not UTF-8",  # an overlong form
    b'{"a": "\xed\xa0\x80"}': "not UTF-8",  # a surrogate in UTF-8
    b'{"a": NaN}': "NaN is not valid JSON",
    b'{"a": [Infinity]}': "Infinity is not valid JSON",
    b'{"a": -Infinity}': "-Infinity is not valid JSON",
    b'{"a": 1e999}': "too large",
    b'{"a": -1e999}': "too large",
    b'{"a": 1, "a": 2}': "twice",
    b'{"b": [{"a": 1, "c": 2, "a": 1}]}': "'a' is there twice",
    b'{"a": "\\ud800"}': "lone surrogate",
    b'{"\\udfff": 1}': "lone surrogate",
    b'{"a": ["\\ude00\\ud83d"]}': "lone surrogate",
    b'{"a": ' + b"9" * 5000 + b"}": "digits",
    b'{"a": ' * 5000 + b"1" + b"}" * 5000: "nested deeper",
    b"[" * 1_000_000: "nested deeper",
}


@pytest.mark.parametrize("payload", REFUSED, ids=lambda p: repr(p[:24]))
def test_refused_with_its_reason(payload: bytes) -> None:
    with pytest.raises(MalformedMessage, match=REFUSED[payload]):
        payloads.decode(payload, depth=32)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b"{}", {}),
        (b' {"a": [1, -2.5, true, null, "x"]}\n', {"a": [1, -2.5, True, None, "x"]}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"a": "\U0001f600"}'.encode(), {"a": "\U0001f600"}),
        (b'{"a": "\\\\ud800"}', {"a": "\\ud800"}),
        (b'{"a": "[[[[[[[["}', {"a": "[[[[[[[["}),
        (b'{"a": ' + b"9" * 4000 + b"}", {"a": int("9" * 4000)}),
    ],
)
def test_taken(payload: bytes, value: object) -> None:
    assert payloads.decode(payload, depth=4) == value


def _nested(levels: int) -> bytes:
    return b'{"a":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize("depth", [2, 32, 512])
def test_nesting_at_the_limit_and_past_it(depth: int) -> None:
    payloads.decode(_nested(depth), depth=depth)
    with pytest.raises(MalformedMessage, match=f"deeper than {depth}"):
        payloads.decode(_nested(depth + 1), depth=depth)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    payload = b'{"a":[' + b",".join([b"[{}]"] * 5000) + b"]}"
    assert len(payloads.decode(payload, depth=4)["a"]) == 5000
    with pytest.raises(MalformedMessage, match="deeper"):
        payloads.decode(payload, depth=3)


def test_lenient_reading_never_fails() -> None:
    assert payloads.decode_leniently(b'{"ref": 7, "a": NaN, "a": 1e999, "n": ' + b"9" * 5000 + b"}")["ref"] == 7
    for payload in (b"\xff", b"", b"[]", b"[" * 100_000):
        assert payloads.decode_leniently(payload) == {}


def test_encode_never_loses_a_reply_for_one_character() -> None:
    assert payloads.encode({"text": "a\ud800b \u00e9"}) == '{"text":"a?b \u00e9"}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        payloads.encode({"value": float("nan")})
