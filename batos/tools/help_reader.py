"""Usages of programs (`--help`), read by rule: options, arguments and commands, as argparse, click, clap, Go's cobra and GNU's programs
write them.

The text is a stranger's. Of it come names of options, of commands and of parameters, and lines that describe them: never the program.
Reading is linear in a text of bounded size; the reader reports what it does not understand, and never guesses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from batos.tools.description_form import PARAMETERS, FormParameter, ProgramOperation

TEXT_CHARS = 128 << 10
"""Characters of a usage that are read."""
COMMANDS = 200
"""Greatest number of commands that are read of one usage."""
_LINES, _LINE_CHARS, _DEEPEST = 4000, 600, 6
_ESCAPES = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]|.\x08")
_FRAME = str.maketrans(dict.fromkeys("│┃╭╮╰╯─━┌┐└┘", " "))
_FRAMED = re.compile(r"[╭┌]─{1,3} ([A-Z][A-Za-z ]{1,40}) ─+[╮┐]\Z")
_USAGE = re.compile(r"usage(?: of [^ :]{1,100})?:?(?: {1,20}(.*))?\Z", re.IGNORECASE)
_HEADER = re.compile(r"([A-Za-z][A-Za-z0-9 /&()-]{0,60}):\Z")
_FLAG = re.compile(r"--?(?:\[no-\])?[A-Za-z0-9@?#](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9])){0,60}")
_PLACE_OF_FLAG = re.compile(r"-[A-Z]{2,}\Z")  # -NUM stands for a number
_OPTION_LINE = re.compile(r" {0,12}-{1,2}[A-Za-z0-9@?#\[]")
_COLUMN = re.compile(r"(-[A-Za-z0-9]|<[^<>]{1,40}>|[A-Z]{2,20}|\[[a-z0-9|_-]{3,200}\])(?: {2}|\Z)")
_COMMAND_LINE = re.compile(
    r" {1,12}([A-Za-z][A-Za-z0-9_.:-]{0,40})((?:, ?[A-Za-z][A-Za-z0-9_.:-]{0,40}|\*| \([^()]{1,60}\)){0,6})(?: {2,200}(.*)|:? *)\Z"
)
_METAVAR = re.compile(r"<[^<>]{1,60}>|[A-Z][A-Z0-9_./:-]{0,40}")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,60}")
_COMMAND_TITLE = re.compile(r"\b(?:sub)?commands?\b")
_OTHER_TITLE = re.compile(r"option|flag|argument|example|environment|note|see also|usage|alias|topic")
_FLAG_WORDS = re.compile(r"\[[A-Za-z-]{1,30} (?:flags|options)\]")
_SKIPPED = frozenset({"help", "version", "h", "usage", "install_completion", "show_completion"})
_OPTIONS = frozenset({"option", "options", "flag", "flags", "opts"})
_COMMAND = frozenset({"command", "subcommand", "cmd", "commands"})
_REST = frozenset({"args", "arg", "arguments", "subcommand_args"})
_TYPES = {
    "int": "integer", "integer": "integer", "uint": "integer", "int32": "integer", "int64": "integer", "float": "number",
    "float64": "number", "float32": "number", "strings": "array",
    "stringarray": "array", "stringslice": "array", "list": "array",
}  # fmt: skip
_TYPE_WORDS = frozenset(
    {
        *_TYPES,
        "string",
        "duration",
        "text",
        "path",
        "file",
        "bool",
        "boolean",
        "filename",
        "directory",
        "uuid",
        "bytes",
        "ip",
        "key=value",
        "format",
    }
)


class HelpReading(NamedTuple):
    """One command, as its usage describes it."""

    operation: ProgramOperation | None
    """the command's own operation; None where it only has commands, or is not understood"""
    commands: tuple[tuple[str, str], ...] = ()
    """its commands, each with its line"""
    why: str = ""
    """why it is not understood; "" if it is"""
    notes: tuple[str, ...] = ()
    """lines on what was left out"""


class _Option(NamedTuple):
    flag: str
    flags: tuple[str, ...]
    takes: str  # its value as the usage calls it; "" for a switch
    type: str
    choices: tuple[str, ...]
    line: str
    required: bool


class _Argument(NamedTuple):
    name: str
    required: bool
    many: bool
    choices: tuple[str, ...] = ()


class _NotUnderstood(Exception):
    """A usage that the rules do not cover."""


def read_help(text: str, words: Sequence[str], line: str = "") -> HelpReading:
    """Return what a usage says.

    :param text: as a program wrote it.
    :param words: the program's name and the words of the command, as they stand before what the usage lists.
    :param line: what is known of the command already.
    """
    lines = _lines(text)
    usages, rest = _usages(lines, words)
    sections = _sections(rest)
    said = line or _about([one for title, own in sections if title in ("", "description") for one in own])
    options, notes = _options(sections)
    commands = _commands(sections, lambda title: bool(_COMMAND_TITLE.search(title)))
    if not commands and usages and _marks_commands(usages[0]):  # commands under titles of their own
        commands = _commands(sections, lambda title: bool(title) and not _OTHER_TITLE.search(title))
    if not usages:
        return HelpReading(None, commands, "" if commands else "it has no line `usage`", tuple(notes))
    listed = _listed(sections)
    try:
        arguments, needed, asks = _arguments(usages[0], options, listed, tuple(name for name, _ in commands))
    except _NotUnderstood as e:
        return HelpReading(None, commands, "" if commands else str(e), tuple(notes))
    if asks and not commands:
        commands = tuple((name, "") for name in asks)
    if commands and (asks or not arguments or any(_marks_commands(usage) for usage in usages)):
        return HelpReading(None, commands[:COMMANDS], "", tuple(notes))
    if not commands and _marks_commands(usages[0]) and not any(one.name not in _COMMAND | _REST for one in arguments):
        return HelpReading(None, (), "its usage names commands, and it does not list them", tuple(notes))
    if len(usages) > 1:
        notes.append(f"of {len(usages)} usages the first is read")
    name = "_".join(re.sub(r"[^A-Za-z0-9]+", "_", word).strip("_") for word in words[1:] if not word.startswith("-")) or "run"
    operation, more = _operation(name if name[:1].isalpha() else f"run_{name}", said, arguments, options, needed)
    return HelpReading(operation, (), "", (*notes, *more))


def _lines(text: str) -> list[str]:
    found = []
    for line in _ESCAPES.sub("", text[:TEXT_CHARS]).expandtabs(8).splitlines()[:_LINES]:
        framed = _FRAMED.match(line.strip())
        plain = line.translate(_FRAME).rstrip()[:_LINE_CHARS]
        if plain != line and plain.lstrip().startswith("* "):  # what is required, in a frame of rich's
            plain = plain.replace("*", " ", 1)
        found.append(f"{framed[1]}:" if framed else plain)
    return found


def _usages(lines: list[str], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the usages that a text lists, each on one line, and the lines that are left."""
    names = {words[0], words[0].rpartition("/")[2]}
    for at, line in enumerate(lines):
        found = _USAGE.match(line.strip())
        if found is None or len(line) - len(line.lstrip()) > 4:
            continue
        usages, indent, end = [found[1]] if found[1] else [], len(line) - len(line.lstrip()), at + 1
        while end < len(lines) and end < at + 60:
            own = lines[end]
            stripped = own.strip()
            if not stripped:
                if usages:
                    break
                end += 1
                continue
            depth = len(own) - len(own.lstrip())
            if (depth <= indent and (not depth or stripped.split(None, 1)[0] not in names)) or (
                _OPTION_LINE.match(own) and not (usages and depth > 8)
            ):
                break
            first = stripped.removeprefix("or:").split(None, 1)[0] if stripped != "or:" else ""
            if not usages or first in names or stripped.startswith("or:"):
                usages.append(stripped.removeprefix("or:").strip())
            else:
                usages[-1] += f" {stripped}"
            end += 1
        if line.strip().lower().startswith("usage of ") and not usages:
            usages = [words[0]]
        return [_after_program(one, words) for one in usages if one], [*lines[:at], *lines[end:]]
    return [], lines


def _after_program(usage: str, words: Sequence[str]) -> str:
    """Return a usage without the words that call the command."""
    parts = usage.split(" ")
    if len(parts) > 2 and parts[1] == "-m" and parts[0].startswith("python"):
        parts = parts[2:]
    parts = [one for one in parts if one][1:]
    for word in words[1:]:
        if word in parts[:12] and not word.startswith("-"):
            parts = parts[parts.index(word) + 1 :] if parts.index(word) == 0 or _only_options(parts[: parts.index(word)]) else parts
    return " ".join(parts)


def _only_options(parts: Sequence[str]) -> bool:
    return all(one.startswith(("[", "-", "<")) or one.endswith("]") for one in parts)


def _sections(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return the sections of a text, by their titles; the first one has none."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in lines:
        header = _HEADER.match(line.strip())
        if header is not None and len(line) - len(line.lstrip()) <= 2 and not line.lstrip().startswith("-"):
            found.append((header[1].lower(), []))
        else:
            found[-1][1].append(line)
    return found


def _about(lines: list[str]) -> str:
    """Return the first line of prose."""
    for line in lines:
        stripped = line.strip()
        if stripped and not _OPTION_LINE.match(line) and not _HEADER.match(stripped) and " " in stripped:
            return stripped
    return ""


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of a section, as the usage writes them, each with what it says of it."""
    spec, said, indent = "", "", 0
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if _OPTION_LINE.match(line):
            if spec:
                yield spec, said
            spec, _, said = line.strip().partition("  ")
            said, indent = said.strip(), depth
            while spec.endswith(",") and said.startswith("-"):
                more, _, said = said.partition("  ")
                spec, said = f"{spec} {more}", said.strip()
            while moved := _COLUMN.match(said):  # columns of their own for further flags and for the value
                spec = f"{spec}{',' if moved[1].startswith('-') else ''} {moved[1].strip()}"
                said = said[moved.end() :].strip()
        elif spec and line.strip() and depth > indent:
            said = f"{said} {line.strip()}"[:_LINE_CHARS]
        elif line.strip():
            if spec:
                yield spec, said
            spec, said = "", ""
    if spec:
        yield spec, said


def _options(sections: list[tuple[str, list[str]]]) -> tuple[list[_Option], list[str]]:
    """Return the options of a text, and what is left out of it."""
    found: list[_Option] = []
    notes: list[str] = []
    flags: set[str] = set()
    for _, lines in sections:
        for spec, said in _entries(lines):
            for one in _option(spec, said):
                if one is None:
                    notes.append(f"the option {spec[:60]!r} is not understood, and is left out")
                elif not flags.intersection(one.flags):
                    flags.update(one.flags)
                    found.append(one)
    return found, notes


def _option(spec: str, said: str) -> Iterator[_Option | None]:
    """Yield the options that an entry describes: one, or a switch and its contrary; None for one that is not understood."""
    sides = spec.split(" / ")
    if len(sides) == 2 and all(one.startswith("--") for one in sides):
        for side in sides:
            yield from _option(side, said)
        return
    spec = ", ".join(sides)
    flags: list[str] = []
    value = ""
    for piece in _pieces(spec):
        matched = _FLAG.match(piece)
        if matched is None or _PLACE_OF_FLAG.match(matched[0]):
            yield None
            return
        flags.append(matched[0])
        value = piece[matched.end() :] or value
    if not flags:
        yield None
        return
    takes, kind, choices = _value(value, said)
    if takes is None:
        yield None
        return
    needed = "[required]" in said.lower() or said.lower().startswith("(required)")
    for flag, group in _both_ways(flags):
        yield _Option(flag, tuple(group), takes, kind, choices, said, needed and bool(takes))


def _both_ways(flags: list[str]) -> Iterator[tuple[str, list[str]]]:
    if any("[no-]" in one for one in flags):
        yield from ((one.replace("[no-]", no), [one.replace("[no-]", no)]) for one in flags[-1:] for no in ("", "no-"))
        return
    yield max(flags, key=lambda one: (one.startswith("--"), len(one))), flags


def _pieces(spec: str) -> list[str]:
    """Return the flags of an entry, each with what follows it, separated by commas or bars outside of brackets."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(spec):
        depth += (char in "[{<(") - (char in "]}>)")
        if depth == 0 and char in ",|" and spec[at + 1 :].lstrip().startswith("-"):
            found.append(spec[start:at].strip())
            start = at + 1
    return [*found, spec[start:].strip()]


def _value(text: str, said: str) -> tuple[str | None, str, tuple[str, ...]]:
    """Return the name of an option's value ("" for a switch, None if it is not understood), its type, and what it may be."""
    told = text.strip().removesuffix("...").rstrip()
    choices = _choices(told, said)
    if not told or (told.startswith("[") and not choices):
        return "", "boolean", ()  # a value that may be left out stands in the same word, which no placeholder fills
    name = told.removeprefix("=")
    if choices and name[:1] in "{[<(":
        return "value", "string", choices
    words = name.split()
    first = words[0] if words else ""
    plain = first.strip("<>[]{}.,").lower()
    known = _METAVAR.match(first) or text.startswith("=") or plain in _TYPE_WORDS or (len(words) == 1 and _WORD.fullmatch(first))
    more = [
        one
        for one in words[1:]
        if not (first.startswith("<") and first.endswith(">"))
        and not (one.startswith("[") or one == "..." or one.endswith("...]") or _METAVAR.fullmatch(one))
    ]
    if not known or more:
        return None, "", ()
    kind = _TYPES.get(plain, "string")
    return plain or "value", kind if kind != "array" or first.islower() or "array" in first.lower() else "string", choices


def _choices(told: str, said: str) -> tuple[str, ...]:
    for text, open_, close, between in (
        (told.removeprefix("="), "{", "}", ","),
        (told.removeprefix("="), "[", "]", "|"),
        (told, "<", ">", "|"),
    ):
        if text.startswith(open_) and close in text and between in text:
            inner = text[1 : text.index(close)]
            if open_ == "<" and not inner.islower():
                return ()
            return tuple(one.strip() for one in inner.split(between) if one.strip() and "..." not in one)[:60]
    _, marked, rest = said.partition("[possible values: ")
    if marked and "]" in rest:
        return tuple(one.strip() for one in rest[: rest.index("]")].split(",") if one.strip())[:60]
    return ()


def _commands(sections: list[tuple[str, list[str]]], is_list: Callable[[str], bool]) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    for title, lines in sections:
        positional = title.startswith("positional arguments")
        if not (is_list(title) or positional):
            continue
        inside, depths = not positional, [len(line) - len(line.lstrip()) for line in lines if _COMMAND_LINE.match(line)]
        for line in lines:
            if positional and line.strip().startswith("{"):
                inside = True
                continue
            entry = _COMMAND_LINE.match(line)
            depth = len(line) - len(line.lstrip())
            if positional and inside and depth <= 2:
                inside = False
            shallow = not depths or depth <= (min(one for one in depths if one > 2) if positional and max(depths) > 2 else min(depths))
            if entry is None or not inside or not shallow or entry[1].lower() in ("help", "completion"):
                continue
            found.setdefault(entry[1].rstrip(":"), (entry[3] or "").strip())
    return tuple(found.items())[:COMMANDS]


def _listed(sections: list[tuple[str, list[str]]]) -> dict[str, str]:
    """Return the arguments that a text lists by name, in small letters, with what it says of them."""
    found: dict[str, str] = {}
    for title, lines in sections:
        if "argument" not in title or "optional" in title:
            continue
        for line in lines:
            name, _, said = line.strip().partition("  ")
            plain = name.strip("<>[]. *").lower()
            if name and not name.startswith("-") and _WORD.fullmatch(plain):
                found.setdefault(plain, said.strip())
    return found


def _marks_commands(usage: str) -> bool:
    parts = [one.strip("<>[].{}").lower() for one in usage.split()]
    return any(one in _COMMAND for one in parts)


def _tokens(usage: str) -> Iterator[str]:
    """Yield the parts of a usage: brackets, bars, `...`, and words; `<a b>` and `{a,b}` are one word each."""
    at = 0
    while at < len(usage):
        char = usage[at]
        if char == " ":
            at += 1
        elif usage.startswith("...", at) or char == "…":
            yield "..."
            at += 3 if char == "." else 1
        elif char in "[]()|":
            yield char
            at += 1
        elif char in "<{" and (end := usage.find({"<": ">", "{": "}"}[char], at)) > 0:
            yield usage[at : end + 1]
            at = end + 1
        else:
            end = at + 1
            while end < len(usage) and usage[end] not in " []()|<{" and not usage.startswith("...", end):
                end += 1
            yield usage[at:end]
            at = end


def _arguments(
    usage: str, options: list[_Option], listed: dict[str, str], commands: tuple[str, ...]
) -> tuple[list[_Argument], set[str], tuple[str, ...]]:
    """Return the arguments of a usage, the options that it needs, and the commands that it names as `{a,b} ...`.

    Options that only the usage has are added to those that are listed.

    :raises _NotUnderstood: naming the part that is not understood.
    """
    takes = {flag: bool(one.takes) for one in options for flag in one.flags}
    found: dict[str, _Argument] = {}
    needed: set[str] = set()
    asks: tuple[str, ...] = ()
    seen: dict[str, str] = {}  # options that only the usage has, with the names of their values
    tokens = list(_tokens(_FLAG_WORDS.sub("", usage.replace("--[no-]", "--"))))[:2000]
    skipped = 0  # depth of the brackets of an option with its value in one word
    open_: list[int] = []  # for each open bracket the number of words in it; negative for a round one
    option = ""  # the option whose value may come next
    for at, part in enumerate(tokens):
        after = tokens[at + 1] if at + 1 < len(tokens) else ""
        if part in ("[", "("):
            open_.append(0 if part == "[" else -1000)
            if len(open_) > _DEEPEST:
                raise _NotUnderstood("its usage is nested too deep")
            continue
        if part in ("]", ")", "|", "..."):
            if part in ("]", ")") and open_:
                open_.pop()
            option = option if part == "..." else ""
            skipped = skipped if len(open_) >= skipped else 0
            continue
        if skipped:
            continue
        optional = any(count >= 0 for count in open_)
        flag = _FLAG.match(part)
        if flag is not None and part.startswith("-"):
            option = flag[0] if part == flag[0] else ""
            skipped = len(open_) if "=" in part and open_ else 0
            if option and option not in takes:
                if not option.startswith("--") and len(option) > 2:
                    raise _NotUnderstood(f"its usage has {option!r}, which it does not explain")
                seen[option] = ""
            if not optional and takes.get(flag[0], _METAVAR.match(after) is not None or after.startswith("{")):
                needed.add(flag[0])
            continue
        if option and (tokens[at - 1] == "[" or takes.get(option, optional or bool(_METAVAR.fullmatch(part)) or part.startswith("{"))):
            seen.update({option: _named(part)} if option in seen else {})
            option = ""
            continue
        option = ""
        plain = part.strip("<>").strip().lower()
        if (
            plain.endswith(("options", "option", "flags"))
            or (plain in _COMMAND and (commands or not found))
            or part in ("=", ",", ":", "--")
        ):
            continue
        if part.startswith("{") and part.endswith("}") and "," not in part and after != "...":
            part, plain = f"<{part[1:-1]}>", plain.strip("{}")
        if part.startswith("{") and part.endswith("}"):
            choices = tuple(one.strip() for one in part[1:-1].split(",") if one.strip())
            if after == "..." and choices and "..." not in choices:
                asks = choices[:COMMANDS]
            else:
                _add(found, _Argument("choice", not optional, False, choices[:60]))
            continue
        if plain in _REST and (commands or asks):
            continue
        if open_ and open_[-1] >= 0:
            open_[-1] += 1
            if open_[-1] > 1 and part != tokens[at - 1] and not _METAVAR.fullmatch(part):
                raise _NotUnderstood(f"its usage has {part[:40]!r} beside another word in brackets")
        if "|" in part or ("|" in (tokens[at - 1] if at else "", after)):
            raise _NotUnderstood(f"its usage lets one choose about {part[:40]!r}")
        if not (_METAVAR.fullmatch(part) or plain in listed or (optional and _WORD.fullmatch(part))):
            raise _NotUnderstood(f"its usage has the word {part[:40]!r}, of which it is not clear if it is fixed")
        many = after == "..." or (after == "]" and tokens[at + 2 : at + 3] == ["..."])
        _add(found, _Argument(_named(plain), not optional, many))
    options += [_Option(flag, (flag,), value, "string", (), "", False) for flag, value in seen.items()]
    return list(found.values()), needed, asks


def _add(found: dict[str, _Argument], one: _Argument) -> None:
    before = found.get(one.name)
    if before is not None:
        one = before._replace(many=True, required=before.required or one.required)
    found[one.name] = one


def _named(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:40].rstrip("_")
    return name if name[:1].isalpha() else f"arg_{name}"[:40] if name else "arg"


def _operation(
    name: str, line: str, arguments: list[_Argument], options: list[_Option], needed: set[str]
) -> tuple[ProgramOperation, list[str]]:
    parameters: list[FormParameter] = []
    argv: list[str] = []
    notes: list[str] = []
    taken = {one.name for one in arguments}
    room = PARAMETERS - len(arguments)
    for one in options:
        called = _named(one.flag.lstrip("-"))
        if called in _SKIPPED or any(flag in ("--help", "--version") for flag in one.flags):
            continue
        if called in taken:
            called = f"{called[:33]}_option"
        if called in taken or len(parameters) >= room:
            notes.append(f"the option {one.flag} is left out: {'its name is taken' if called in taken else 'there are too many'}")
            continue
        taken.add(called)
        required = one.required or bool(needed.intersection(one.flags) and one.takes)
        parameters.append(_parameter(called, one.type if one.takes else "boolean", required, one.line, one.choices))
        argv += [one.flag, f"{{{called}}}"]
    for argument in arguments[:PARAMETERS]:
        kind = "array" if argument.many else "string"
        parameters.append(_parameter(argument.name, kind, argument.required, "", argument.choices))
        argv.append(f"{{{argument.name}}}")
    return ProgramOperation.model_validate({"name": name[:80].rstrip("_"), "line": line, "argv": argv, "parameters": parameters}), notes


def _parameter(name: str, kind: str, required: bool, line: str, choices: Sequence[str]) -> FormParameter:
    fitting = [one for one in choices if len(one) <= 100]
    return FormParameter.model_validate({"name": name, "type": kind, "required": required, "line": line, "choices": fitting})
