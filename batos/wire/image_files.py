"""Files of images that a client brings: what is read of them, and what is said of those that cannot be."""

from __future__ import annotations

import os
from pathlib import Path

from batos.config import MIB
from batos.errors import Unreadable

ImageFile = str | os.PathLike[str] | bytes
"""The path of a file, or what is in it."""
LIMIT = 128 * MIB  # the most that any daemon takes: what is larger is not read


def bytes_of(image: ImageFile) -> tuple[bytes, str]:
    """What is in an image's file, and its name.

    :raises Unreadable: for one that is not there, cannot be read, is empty or larger than any daemon takes.
    """
    if isinstance(image, bytes):
        data, name, what = image, "", "the image"
    else:
        path = Path(image).expanduser()
        name, what = path.name, f"the image {os.fspath(image)!r}"
        try:
            with path.open("rb") as file:
                data = file.read(LIMIT + 1)
        except (OSError, ValueError) as e:  # the latter: a path with a zero byte in it
            raise Unreadable(f"{what} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    if not data:
        raise Unreadable(f"{what} is empty")
    if len(data) > LIMIT:
        raise Unreadable(f"{what} is larger than {LIMIT // MIB} MiB, which no daemon takes; save it smaller")
    return data, name
