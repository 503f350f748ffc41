"""What a picture is by its content, and what is said of what is none."""

from __future__ import annotations

import pytest

from batos.bridge.inference import PictureLook, picture_look
from batos.errors import InvalidInput
from tests.support.pictures import JPEG, plain, png, webp, webp_header

FRAME = b"\xff\xc0\x00\x0b\x08" + (300).to_bytes(2, "big") + (400).to_bytes(2, "big") + b"\x01\x01\x11\x00"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (png(7, 5), PictureLook("image/png", 7, 5)),
        (plain(255, 9), PictureLook("image/png", 9, 9)),
        (JPEG, PictureLook("image/jpeg", 48, 32)),
        (b"\xff\xd8\xff\xe1\x00\x08Exif\0\0" + FRAME, PictureLook("image/jpeg", 400, 300)),
        (b"\xff\xd8\xff\xff\xff\xd0\xff\xc4\x00\x04\x00\x00" + FRAME.replace(b"\xc0", b"\xc2", 1), PictureLook("image/jpeg", 400, 300)),
        (webp(3000, 2), PictureLook("image/webp", 3000, 2)),
        (
            webp_header(b"VP8X", b"\x10\0\0\0" + (6999).to_bytes(3, "little") + (4).to_bytes(3, "little")),
            PictureLook("image/webp", 7000, 5),
        ),
        (webp_header(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a\x40\x01\xf0\x00"), PictureLook("image/webp", 320, 240)),
    ],
    ids=["png", "plain", "jpeg", "exif first", "progressive, filled", "webp", "extended webp", "lossy webp"],
)
def test_formats_and_sizes(data: bytes, found: PictureLook) -> None:
    assert picture_look(data) == found


@pytest.mark.parametrize(
    "data", [png(), JPEG, webp(), webp_header(b"VP8X", b"\x10\0\0\0" + b"\x01" * 6)], ids=["png", "jpeg", "webp", "webp x"]
)
def test_one_that_breaks_off_is_told_and_raises_nothing_else(data: bytes) -> None:
    for end in range(min(len(data), 400)):
        try:
            assert min(picture_look(data[:end])[1:]) > 0
        except InvalidInput as e:
            assert "broken" in e.message or "the content of this picture" in e.message  # noqa: PT017 - either may be
    assert picture_look(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "its format is not known"),
        (b"GIF87a", "a GIF"),
        (b"\0\0\0\x20ftypavif", "an AVIF"),
        (b"%PDF-1.7", "a PDF"),
        (b"<svg xmlns=", "an SVG"),
        (webp_header(b"VP8X", b"\x02\0\0\0" + b"\x01" * 6), "animated"),
        (webp_header(b"ALPH", b"\0" * 16), "broken"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 8, "broken"),
    ],
    ids=["nothing", "gif", "avif", "pdf", "svg", "moving webp", "odd webp", "png of no size"],
)
def test_what_is_none_is_said_to_be_what_it_is(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        picture_look(data)
