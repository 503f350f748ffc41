"""Sealed text: what a tool answers, as a plan gets it (`batos.mind.tool_plans`).

Numbers, truth values and texts of a closed type (an enumeration, a date) are plain. Any other text is sealed: the plan holds an object that
stands for it, and the text never enters the sandbox. So it can be neither compared nor cut, nor be part of another text. Readers with a
type answer what a plan may know of it. Whole it may go to where texts go: a prompt, a free text of a tool, its own connection.

Here are the object, sealing by a schema, and where a sealed text may go. All of it is plain code over values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from batos.errors import InvalidInput
from batos.objects import UvmObject
from batos.tools.grant_questions import FREE_TEXT, last_word

_TEXT = "_v_text"
"""Name under which the object keeps its text: no method reads it, and no image keeps it."""
_FROM = "_v_from"
_FORMATS = {
    "date": re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII),
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:\d\d)?\Z", re.ASCII),
    "time": re.compile(r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:[Zz]|[+-]\d\d:\d\d)?\Z", re.ASCII),
    "uuid": re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\Z", re.ASCII),
}
"""Texts of these formats say nothing but a value."""
_FORMATTED = re.compile(r"UvmObject\(_oid='[0-9a-f]{32}'\)")
"""Form of a sealed text in a text that it was formatted into."""
_WHERE = frozenset({
    "url", "urls", "uri", "uris", "link", "links", "href", "webhook", "callback", "endpoint", "domain", "host", "hosts",
    "hostname", "origin", "path", "paths", "file", "files", "filename", "filepath", "folder", "folders", "dir", "directory",
    "address", "addresses", "to", "cc", "bcc", "recipient", "recipients", "receiver", "receivers", "email", "emails", "phone",
    "iban", "destination", "target",
})  # fmt: skip
"""Last words of names of arguments and their parts that say where; beside those that a connection of a kind has."""
_NUMBER = re.compile(r"[-+]?\d[\d,]{0,20}(?:\.\d{1,12})?", re.ASCII)
_READ_CHARS = 200_000


class SealedMisuse(InvalidInput):
    """A sealed text was used for what it is not there for. The message says nothing of the text."""


class OpenedText(str):
    """The text of a sealed one, on its way to where it may go."""

    origin: str

    def __new__(cls, text: str, origin: str) -> OpenedText:
        """
        :param origin: connection that said it; empty where it is made of several, or a model's.
        """
        made = super().__new__(cls, text)
        made.origin = origin
        return made


def sealed(prototype: UvmObject, text: str, origin: str) -> UvmObject:
    """Return an object that stands for a text.

    :param prototype: its parent, which holds the readers.
    """
    made = prototype.derive()
    made.__dict__[_TEXT], made.__dict__[_FROM] = text, origin
    return made


def is_sealed_text(value: Any) -> bool:
    """Return True if a value stands for a text."""
    return isinstance(value, UvmObject) and _TEXT in value.__dict__


def text_of(value: UvmObject) -> str:
    """Return the text of a sealed one."""
    return str(value.__dict__[_TEXT])


def origin_of(value: UvmObject) -> str:
    """Return the connection that said a sealed text; empty for a model's."""
    return str(value.__dict__[_FROM])


def seal(prototype: UvmObject, value: Any, schema: Any, names: Collection[str], origin: str) -> Any:
    """Return an answer with its free texts sealed.

    :param schema: JSON schema of the answer; None where it is not known.
    :param names: names of fields that the plan's own text has. Others that no schema declares are left out: a place must not say by them
        what it likes.
    :raises InvalidInput: for an object, of which a plan gets none.
    """
    known = schema if isinstance(schema, Mapping) else {}
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if _is_closed(value, known) else sealed(prototype, value, origin)
    if isinstance(value, Mapping):
        parts = known.get("properties")
        parts = parts if isinstance(parts, Mapping) else {}
        return {
            name: seal(prototype, one, parts.get(name), names, origin)
            for name, one in value.items()
            if isinstance(name, str) and (name in parts or name in names)
        }
    if isinstance(value, list | tuple):
        return [seal(prototype, one, known.get("items"), names, origin) for one in value]
    if is_sealed_text(value):
        return value
    raise InvalidInput(f"a plan gets plain values, and no {type(value).__name__}")


def _is_closed(text: str, schema: Mapping[str, Any]) -> bool:
    choices = schema.get("enum")
    if (isinstance(choices, list) and text in choices) or ("const" in schema and schema["const"] == text):
        return True
    pattern = _FORMATS.get(str(schema.get("format")))
    return pattern is not None and pattern.match(text) is not None


def opened(value: Any) -> Any:
    """Return a value with its sealed texts open (`OpenedText`)."""
    if is_sealed_text(value):
        return OpenedText(text_of(value), origin_of(value))
    if isinstance(value, Mapping):
        return {name: opened(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [opened(one) for one in value]
    return value


def holds_sealed(value: Any) -> bool:
    """Return True if a value has a sealed text in it."""
    return any(is_sealed_text(one) for one in _leaves(value))


def check_no_formatted(value: Any) -> None:
    """Check that no text has a sealed one formatted into it.

    :raises SealedMisuse: if one has.
    """
    for one in _leaves(value):
        if isinstance(one, str) and _FORMATTED.search(one):
            raise SealedMisuse("a sealed text cannot be part of another text: hand it on whole, or read it by number_in_ or one_of_")


def check_destination(connection: str, places: Collection[str], given: Mapping[str, Any]) -> None:
    """Check that sealed texts go only where texts may go. Each may go whole, to a free text of any tool, or back to the connection that
    said it. None may go to an argument that says where.

    :param connection: the one that is called.
    :param places: its arguments that say where.
    :param given: arguments, in which sealed texts are opened.
    :raises SealedMisuse: with the argument, if one goes elsewhere.
    """
    check_no_formatted(given)
    for names, one in _parts(given, ()):
        if not isinstance(one, OpenedText):
            continue
        where = names[0] in places or any(_says_where(name) for name in names)
        if where or (last_word(names[-1]) not in FREE_TEXT and one.origin != connection):
            raise SealedMisuse(
                f"a sealed text may not be the argument {'.'.join(names)!r} of a tool of {connection}. What a tool answered does not say "
                "where or to whom something is done. It may be a free text (text, body, message), or go back to the connection that said it"
            )


def _says_where(name: str) -> bool:
    return last_word(name) in _WHERE or name[:3].casefold() == "to_"


def _parts(value: Any, names: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the single values of an argument, each with the names that lead to it."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _parts(one, (*names, str(name)))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _parts(one, names)
    else:
        yield names, value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            yield from _leaves(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


# --- readers with a type


def number_in(text: str, near: str) -> float | int | None:
    """Return the first number in a text behind some words; None if there is none.

    :param near: the words; empty: the first number at all.
    """
    text = text[:_READ_CHARS]
    start = text.casefold().find(near.casefold()) if near else 0
    found = None if start < 0 else _NUMBER.search(text, start + len(near))
    if found is None:
        return None
    plain = found[0].replace(",", "")
    return float(plain) if "." in plain else int(plain)


def one_of(text: str, choices: Collection[str]) -> str | None:
    """Return the one of some choices that a text names as a word; None if it names none, or more than one."""
    said = text[:_READ_CHARS].casefold()
    found = [one for one in choices if re.search(rf"(?<!\w){re.escape(one.casefold())}(?!\w)", said)]
    return found[0] if len(found) == 1 else None
