"""What a browser sends: the fields of a form and of an address, read strictly and within limits."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request

from batos.errors import InvalidInput, MessageTooLarge

_KIND = "application/x-www-form-urlencoded"


async def form_of(request: Request, limit: int) -> ImmutableMultiDict[str, str]:
    """The fields of a form.

    :param limit: most bytes of it.
    :raises MessageTooLarge: past the limit.
    :raises InvalidInput: for what no form of the console sends.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _KIND:
        raise InvalidInput(f"a form is sent as {_KIND}, not as {kind[:100] or 'nothing in particular'}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise MessageTooLarge(f"a form of more than {limit} bytes (setting console_form_bytes)")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, strict_parsing=bool(body), errors="strict")
    except ValueError as e:  # UnicodeDecodeError, too
        raise InvalidInput(f"the form cannot be read: {e}") from None
    return ImmutableMultiDict([(name, value.replace("\r\n", "\n")) for name, value in pairs])


def needed(fields: ImmutableMultiDict[str, str], name: str) -> str:
    """A field that must be there.

    :raises InvalidInput: where it is not.
    """
    value = fields.get(name, "")
    if not value:
        raise InvalidInput(f"`{name}` is missing")
    return value


def whole(text: str, name: str) -> int | None:
    """A whole number; None where the field was left empty.

    :raises InvalidInput: for anything else.
    """
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"`{name}` is a whole number, not {text[:40]!r}") from None
