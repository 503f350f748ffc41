"""PDF: a part a page (needs pypdf). What is only a picture of text is not read."""

from __future__ import annotations

import io
import logging
import pathlib
import re
from collections.abc import Callable

from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

from batos.errors import Unreadable
from batos.memory.drafts import Draft, DraftPart
from batos.memory.readers import dates

_LOCKED = "it is encrypted with a password; save it without one, for example with `qpdf --decrypt`"
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it comments on every flaw that it mends


def read(path: pathlib.PurePath, data: bytes, going: Callable[[], object]) -> Draft:
    """Its pages in order.

    :raises Unreadable: for an encrypted file, a broken one, or one without any text in it.
    """
    try:
        pdf = PdfReader(io.BytesIO(data))
        if pdf.is_encrypted and not pdf.decrypt(""):
            raise Unreadable(_LOCKED)
        parts = []
        for number, page in enumerate(pdf.pages, 1):
            going()
            parts.append(DraftPart(_text(page.extract_text()), f"page {number}"))
        about = pdf.metadata
        title, when = (about.title if about else None), (about.creation_date_raw if about else None)
    except DependencyError:  # AES needs the package cryptography, and with it a password all the same
        raise Unreadable(_LOCKED) from None
    except PyPdfError as e:
        raise Unreadable(f"the PDF is broken ({e}); open it in a viewer and save it anew") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, AssertionError, NotImplementedError) as e:
        raise Unreadable(f"the PDF is broken ({type(e).__name__}: {str(e)[:120]}); open it in a viewer and save it anew") from None
    if not any(part.text.strip() for part in parts):
        raise Unreadable("there is no text in this PDF, only pictures of pages; run it through OCR first, for example `ocrmypdf`")
    return Draft("pdf", str(title or path.stem).strip() or path.stem, parts, day=dates.in_name(str(when or "").removeprefix("D:")[:8]))


def _text(text: str) -> str:
    return _HYPHEN.sub("", text).replace("\x00", "") + "\n"
