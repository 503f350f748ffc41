"""Allow-lists of the names that a method may use: builtins, modules and their members, with their properties.

They were measured against pydantic-monty 1.4.0; a name that is not here is refused. Block-list entries (`BANNED`) only improve the reason
and the hint.
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


TYPES = words("bool bytes complex dict float frozenset int list object set slice str tuple type")

# Builtin functions by their results, as far as state of self can be reached through the results.
SCALARS = words(
    "abs all any bin bool chr complex divmod float format hasattr hash hex int isinstance len oct ord pow print range repr "
    "round slice str bytes object"
)
COPIES = words("list tuple dict set frozenset sorted reversed zip enumerate filter map iter")
"""Builtins that return a new container with the elements of their arguments."""
FLAT = words("list tuple set frozenset sorted reversed iter filter deque Counter sample choices islice cycle copy nlargest nsmallest")
"""Builtins and functions of modules that return only the elements of their arguments."""
ELEMENTS = words("max min next sum")
"""Builtins that return an element of an argument, or an argument itself."""

FUNCTIONS = SCALARS | COPIES | ELEMENTS | {"getattr", "super", "type"}

EXCEPTIONS = words(
    "ArithmeticError AssertionError AttributeError Exception FileExistsError FileNotFoundError ImportError IndexError "
    "IsADirectoryError KeyError LookupError ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError "
    "OverflowError PermissionError RecursionError "
    "RuntimeError StopIteration SyntaxError TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError ValueError "
    "ZeroDivisionError"
)
CONSTANTS = frozenset({"Ellipsis", "NotImplemented"})
BUILTINS = FUNCTIONS | TYPES | EXCEPTIONS | CONSTANTS
ONLY_CALLED = frozenset({"getattr", "super"})
"""Builtins that a method may call but not use as values. Calls are checked."""

_NO_CODE = "Write the code itself; a method makes no code at run time."
_BY_NAME = "Name the slot in the source: self.name."
_NO_EXIT = "Return a value, or raise ValueError or RuntimeError."
BANNED: dict[str, str] = {
    **dict.fromkeys(("eval", "exec", "compile"), _NO_CODE),
    **dict.fromkeys(("setattr", "delattr", "vars", "dir", "globals", "locals"), _BY_NAME),
    **dict.fromkeys(("exit", "quit", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException", "MemoryError"), _NO_EXIT),
    **dict.fromkeys(("input", "breakpoint", "help"), "Take what is needed as an argument; a method has no keyboard."),
    "id": "Compare with == or `is`; addresses change from run to run.",
    "memoryview": "Use bytes.",
    "bytearray": "Use bytes, or a list of numbers and bytes(numbers).",
    "callable": "Decide by a parameter or a try block.",
    "issubclass": "Use isinstance(value, kind).",
    "ascii": "Use repr(value).",
    **dict.fromkeys(("classmethod", "staticmethod", "property"), "Write a plain method; objects of the image have no classes."),
    **dict.fromkeys(("ExceptionGroup", "BaseExceptionGroup"), "Raise one exception."),
    **dict.fromkeys(("aiter", "anext"), "Use a plain for loop."),
}

# --- modules that the sandbox has and a method may use
MODULES: dict[str, frozenset[str]] = {
    name: words(members)
    for name, members in {
        "re": "A ASCII DOTALL I IGNORECASE M MULTILINE Match NOFLAG Pattern S compile error escape findall finditer fullmatch match "
        "search split sub",
        "json": "JSONDecodeError dumps loads",
        "math": "acos acosh asin asinh atan atan2 atanh cbrt ceil comb copysign cos cosh degrees dist e erf erfc exp exp2 expm1 fabs "
        "factorial floor "
        "fmod frexp fsum gamma gcd hypot inf isclose isfinite isinf isnan isqrt lcm ldexp lgamma log log10 log1p log2 modf nan "
        "nextafter perm pi "
        "pow prod radians remainder sin sinh sqrt tan tanh tau trunc ulp",
        "datetime": "date datetime time timedelta timezone",
        "time": "asctime ctime gmtime localtime mktime monotonic monotonic_ns perf_counter perf_counter_ns strftime strptime time time_ns",
        "random": "Random betavariate choice choices expovariate gammavariate gauss getrandbits lognormvariate normalvariate paretovariate "
        "randbytes randint random randrange sample shuffle triangular uniform vonmisesvariate weibullvariate",
        "itertools": "accumulate chain combinations combinations_with_replacement compress count cycle dropwhile filterfalse groupby "
        "islice pairwise "
        "permutations product repeat starmap takewhile tee zip_longest",
        "functools": "partial reduce",
        "collections": "Counter defaultdict deque namedtuple",
        "decimal": "Decimal DecimalException DivisionByZero Inexact InvalidOperation Overflow ROUND_05UP ROUND_CEILING ROUND_DOWN "
        "ROUND_FLOOR "
        "ROUND_HALF_DOWN ROUND_HALF_EVEN ROUND_HALF_UP ROUND_UP Underflow",
        "hashlib": "blake2b blake2s md5 new sha1 sha224 sha256 sha384 sha3_224 sha3_256 sha3_384 sha3_512 sha512 shake_128 shake_256",
        "base64": "a85decode a85encode b16decode b16encode b32decode b32encode b32hexdecode b32hexencode b64decode b64encode b85decode "
        "b85encode "
        "standard_b64decode standard_b64encode urlsafe_b64decode urlsafe_b64encode",
        "copy": "copy deepcopy",
        "typing": "Annotated Any Callable ClassVar Dict Final FrozenSet Generator Iterable Iterator List Literal Mapping Never NoReturn "
        "Optional "
        "Sequence Set Tuple Type Union",
        "csv": "DictReader DictWriter Error QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE QUOTE_NONNUMERIC reader writer",
        "bisect": "bisect bisect_left bisect_right insort insort_left insort_right",
        "unicodedata": "category combining is_normalized lookup name normalize",
        "tomllib": "TOMLDecodeError loads",
        "binascii": "Error a2b_base64 a2b_hex b2a_base64 b2a_hex crc32 hexlify unhexlify",
    }.items()
}
# Modules that Monty 1.4.0 lacks and the sandbox supplies. They have pure functions and constants only: each call is a call of the host.
SUPPLIED: dict[str, frozenset[str]] = {
    name: words(members)
    for name, members in {
        "calendar": "day_abbr day_name isleap leapdays month_abbr month_name monthrange weekday",
        "collections": "OrderedDict",
        "contextlib": "nullcontext suppress",
        "difflib": "SequenceMatcher get_close_matches unified_diff",
        "fnmatch": "filter fnmatch fnmatchcase translate",
        "fractions": "Fraction",
        "functools": "cache cmp_to_key lru_cache",
        "heapq": "heapify heappop heappush heappushpop heapreplace merge nlargest nsmallest",
        "html": "escape unescape",
        "io": "StringIO",
        "numbers": "Integral Number Real",
        "operator": "abs add and_ attrgetter concat contains countOf eq floordiv ge getitem gt indexOf is_ is_not itemgetter le lt mod mul "
        "ne neg not_ or_ pos pow sub truediv truth xor",
        "re": "VERBOSE X subn",
        "shlex": "join quote split",
        "statistics": "StatisticsError correlation covariance fmean geometric_mean harmonic_mean mean median median_high median_low mode "
        "multimode pstdev pvariance quantiles stdev variance",
        "string": "Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable punctuation "
        "whitespace",
        "textwrap": "dedent fill indent shorten wrap",
        "urllib.parse": "parse_qs parse_qsl quote quote_plus unquote unquote_plus urlencode urljoin urlparse urlsplit "
        "urlunparse urlunsplit",
        "uuid": "NAMESPACE_DNS NAMESPACE_URL uuid3 uuid4 uuid5",
        "zlib": "adler32 crc32",
    }.items()
}
MODULES |= {name: MODULES.get(name, frozenset()) | members for name, members in SUPPLIED.items()}

CAPABILITIES: dict[str, frozenset[str]] = {
    "files": words("fileinput glob io pathlib shutil tempfile open"),
    "network": words(
        "aiohttp ftplib http httpx imaplib poplib requests smtplib socket socketserver ssl telnetlib urllib urllib3 websockets xmlrpc zmq"
    ),
    "tools": frozenset(),
    "sealed": frozenset(),
}
"""Modules and builtins that a granted capability allows; the sandbox offers none of them. `tools` allows sends to connections instead;
`sealed` allows nothing: free texts that tools answer are sealed, and the rule `sealed` holds."""

_IMPORT_HINTS: dict[str, str] = {
    "dataclasses": "Use a dict, or collections.namedtuple.",
    "enum": "Use plain strings or numbers.",
    "abc": "Objects of the image have no classes; leave it out.",
    "asyncio": "Send messages with plain calls; the daemon awaits them.",
    "logging": "Return what is worth knowing, or keep it in a slot.",
    "secrets": "Use random.",
    "traceback": "Use str(error).",
    "__future__": "Leave it out; annotations are not evaluated.",
}


def import_hint(module: str) -> str:
    """Return a hint for a method that imports a module that is not allowed."""
    return _IMPORT_HINTS.get(module.partition(".")[0], f"Do without it. A method may import {', '.join(sorted(MODULES))}.")


# --- containers
MUTATORS = words(
    "append extend insert pop remove clear sort reverse update setdefault popitem add discard appendleft popleft extendleft "
    "rotate subtract difference_update intersection_update symmetric_difference_update move_to_end"
)
PARTIAL = words("extend sort update extendleft subtract difference_update intersection_update symmetric_difference_update")
"""Mutators that may have changed something when they raise."""
TAKERS = words("pop popitem popleft setdefault")
"""Mutators that return an element."""
KEYED = words("setdefault pop get remove discard")
"""Methods whose first argument is a key or is only compared."""
VIEWS = words("items values keys copy elements most_common union intersection difference symmetric_difference")
VALUE_METHODS = frozenset(
    name for kind in (str, bytes, int, float, list, tuple, dict, set) for name in dir(kind) if not name.startswith("_")
) | words(
    "most_common elements isoformat strftime total_seconds date time timestamp group groups groupdict span hexdigest "
    "digest weekday quantize"
)
"""Methods of plain values. A call of one on anything but self is not counted as a send."""
MUTATING_FUNCTIONS = frozenset(
    {("random", "shuffle"), ("bisect", "insort"), ("bisect", "insort_left"), ("bisect", "insort_right")}
    | {("heapq", name) for name in ("heapify", "heappop", "heappush", "heappushpop", "heapreplace")}
)
"""Functions of modules that change their first argument in place."""
ENDLESS = frozenset({"count", "cycle", "repeat"})
"""Functions of itertools whose iterators may never end."""

KIND_METHODS: dict[str, frozenset[str]] = {
    "str": words(
        "capitalize casefold center count endswith expandtabs find index isalnum isalpha isascii isdecimal isdigit isidentifier "
        "islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix "
        "replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title upper zfill"
    ),
    "dict": words("fromkeys get items keys values"),
    "list": words("count index"),
    "set": words("difference intersection isdisjoint issubset issuperset symmetric_difference union"),
    "frozenset": words("difference intersection isdisjoint issubset issuperset symmetric_difference union"),
    "bytes": frozenset({"fromhex", "decode"}),
    "float": frozenset({"fromhex", "is_integer"}),
    "int": frozenset({"bit_length", "from_bytes"}),
    "tuple": frozenset({"count", "index"}),
}
"""Methods that may be read from a builtin type itself: `key=str.lower`, `dict.fromkeys(names)`."""
