"""Embedders: turn texts into vectors, behind one interface. `tests/contract/test_embedder_contract.py` holds all of them to it.

`ollama` asks the service (default); `local` computes in this process with sentence-transformers, on torch or on ONNX.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from batos.errors import EmbedderFailed

Vectors = Any
"""A numpy array, float32 of shape (texts, dimensions), with rows of length 1. An alias, since numpy is imported late."""


class Identity(NamedTuple):
    """Origin of a vector. Vectors of two identities are never compared; `str(identity)` is the key that they are stored under."""

    kind: str
    model: str
    digest: str
    dimensions: int
    place: str = ""
    """Folder of the weights, if the name does not give it. It is not part of the identity: weights may move."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.model}@{self.digest}:{self.dimensions}"


class Maker(NamedTuple):
    """Embedder that made the vectors of a collection."""

    identity: str = ""
    """`str` of an `Identity`; empty as long as there are no vectors."""
    place: str = ""
    """Folder of the weights, as in `Identity`."""


class Embedder(Protocol):
    """Something that makes vectors of texts. Safe to be called by several tasks at once; one call works at a time."""

    async def identity(self) -> Identity:
        """Return the current identity; cheap to call. It may change while the daemon runs: a model that is pulled again has another digest.

        :raises BatosError: EmbedderFailed or InferenceFailed, while the embedder is unavailable.
        """
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one row for each text, in order. Texts are normalised here (`normalised`); callers pass them as they are.

        A text longer than the model's context is embedded in parts, and gets their mean: nothing is cut silently. A text without words also
        gets a row, that of the empty text.

        :raises BatosError: EmbedderFailed or InferenceFailed; then no row of this call is available.
        """
        ...

    async def close(self) -> None:
        """Release threads and models."""
        ...


# --- texts and answers of embedders

NORMALISATION = 1
"""Version of `normalised`, part of every embedder's identity. Increase it if a change of `normalised` changes vectors."""

_FORMS = {
    " - ": "–—―−", "-": "‐‑‒⁃", "'": "‘’‚‛′‹›ʼ", '"': "“”„‟″«»「」『』《》",
    " . ": "。।॥۔።։", " , ": "、،፣", " ; ": "؛", " ? ": "؟⸮",
}  # fmt: skip
_TYPOGRAPHIC = str.maketrans({typographic: plain for plain, forms in _FORMS.items() for typographic in forms})
_UNSPLIT = re.compile(r"[$+<=>^`|~]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class _Plain(dict[int, str]):
    """Table from each character that decomposition leaves to its plain form; filled as characters are met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        category = unicodedata.category(char)
        if char in "\t\n\r" or category.startswith("Z"):
            plain = char if char.isascii() else " "
        elif category.startswith("C") or category == "Mn":  # control and format characters, surrogates, accents
            plain = ""
        elif category.startswith("P") and not char.isascii():
            plain = " "  # Ollama handles none of these signs: the cosine to the plain text was .68 for "a • b" and .31 for "§ 7"
        elif _UNSPLIT.match(char):
            plain = f" {char} "
        else:
            plain = char
        self[code] = plain
        return plain


_PLAIN = _Plain()


def normalised(text: str) -> str:
    """Return a text as embedders are given it, such that Ollama's tokenizer and the reference take it apart alike. It is without accents,
    invisible characters and punctuation outside ASCII, with spaces round what tokenizers disagree about.

    Ollama's BERT tokenizer neither strips accents nor knows punctuation outside ASCII, nor does it part at the ASCII symbols $+<=>^|~ and
    the backtick. So "café" came out with a cosine of .22 to what it should be, "don’t" of .39, "a=b" of .41. Normalised, all are 1.00
    (measured against sentence-transformers; tests/contract/test_embedder_contract.py measures it again).
    """
    if text.isascii():
        return _UNSPLIT.sub(r" \g<0> ", _CONTROL.sub("", text))
    return unicodedata.normalize("NFKD", text.translate(_TYPOGRAPHIC)).translate(_PLAIN)


def unit_rows(rows: Sequence[Sequence[float]] | Any, texts: int, who: str) -> Any:
    """Return the rows as float32 of shape (texts, dimensions), each of length 1.

    :raises EmbedderFailed: if they are not of that shape, or a row has no direction.
    """
    import numpy as np

    try:
        matrix = np.asarray(rows, np.float32)
    except ValueError as e:  # rows have different lengths
        raise EmbedderFailed(f"{who} answered with vectors of different lengths: {e}") from e
    if matrix.ndim != 2 or len(matrix) != texts or not matrix.shape[1]:
        raise EmbedderFailed(f"{who} answered {texts} texts with vectors of shape {matrix.shape}")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbedderFailed(f"{who} answered with invalid vectors: their length is {lengths.min()} to {lengths.max()}")
    return matrix / lengths
