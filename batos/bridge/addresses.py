"""Addresses of Ollama hosts, and the environment needed to reach one: a proxy, certificates, a key.

An address is read as Ollama reads `OLLAMA_HOST`. It may have blanks or quotes around it, have a scheme and port or none, and be an IPv6
address without its brackets. This machine is never reached through a proxy. An error names the variable whose value is needed but not
usable.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import socket
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from batos.config import shown
from batos.errors import ConfigError

if TYPE_CHECKING:
    import ssl

    import httpx

PORT = 11434
PORTS = {"http": 80, "https": 443}
"""Default port for each scheme of an address, as in Ollama."""
_HIGHEST = 65535
_PROXIES = ("http", "https", "socks5", "socks5h")
_NAME = re.compile(r"[^\s/?#@\\\[\]<>^`{|}\"%]+")
_ENDPOINT = re.compile(r"(?:\A|/)(?:v1(?:/(?:chat/completions|completions|embeddings|models))?|api/(?:chat|generate|tags|embed))\Z")
"""Matches the end of an address that was copied from another client's settings: what this one appends itself."""
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_KEY = "OLLAMA_API_KEY"


class Address(NamedTuple):
    """Address of an Ollama host. `host` has no brackets; `path` has no slash at its ends."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        """Return the address as a URL, without the name and password of a user."""
        return f"{self.scheme}://{_bracketed(self.host)}:{self.port}{'/' * bool(self.path)}{self.path}"

    @property
    def here(self) -> bool:
        """Return True if the address is this machine, by any of its names."""
        name = self.host.lower().rstrip(".")
        if name.endswith(".localhost") or name in ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"):
            return True
        found = _ip(name)
        return name == socket.gethostname().lower() if found is None else found.is_loopback or found.is_unspecified


def parse(given: str) -> Address:
    """Parse an address as in `OLLAMA_HOST` and the settings: a host, host:port or a URL.

    :raises ConfigError: if that is not a valid address.
    """
    try:
        return _parse(given.strip().strip("\"'").strip())
    except ValueError as e:
        raise ConfigError(
            f"setting 'inference.host' or 'inference.hosts', or OLLAMA_HOST: {shown(given)} is not a valid address ({e}); "
            "give host:port or a URL"
        ) from None


def _parse(bare: str) -> Address:
    scheme, mark, rest = bare.partition("://")
    scheme, rest = (scheme.lower(), rest) if mark else ("", bare)
    if scheme not in ("", "http", "https"):  # the client would read it as http at another port
        raise ValueError(f"{scheme}:// is not what an Ollama speaks")
    if mark and not rest.strip("/"):
        raise ValueError("it names no host")
    if not mark and (slashes := re.match(r"(https?):/?(?!\d)", rest, re.IGNORECASE)) and rest[slashes.end() :]:
        raise ValueError(f"{slashes[1]}:// is written with two slashes")
    rest = rest.removeprefix("//") if not mark else rest
    if found := re.search(r"[?#]", rest):
        raise ValueError(f"{found[0]} begins what no address of an Ollama has")
    before, slash, after = rest.partition("/")
    if ":" in before and _ip(before) is not None and not before.startswith("["):  # an IPv6 address
        rest = f"[{before}]{slash}{after}"
    split = urlsplit(f"{scheme or 'http'}://{rest}")
    port = split.port  # raises ValueError for an invalid port
    if port == 0:
        raise ValueError(f"port 0 is out of range (1-{_HIGHEST})")
    host = split.hostname or "127.0.0.1"
    if _ip(host) is None and not _NAME.fullmatch(host):
        raise ValueError(f"{host!r} is not a valid name of a host")
    if host.isdecimal() and _ip(host) is not None and host != "0":
        raise ValueError(f"{host} alone is not a host; a port is written :{host}")
    user = (unquote(split.username), unquote(split.password or "")) if split.username else None
    return Address(scheme or "http", host, port or PORTS.get(scheme, PORT), _ENDPOINT.sub("", split.path.strip("/")), user)


def transport(address: Address, socket_options: list[tuple[int, int, int]]) -> httpx.AsyncHTTPTransport:
    """Make what carries requests to an address: directly, or through the proxy that the environment names for it.

    :param socket_options: socket options of each connection.
    :raises ConfigError: if the environment names a proxy or certificates for it that cannot be used, with the variable and the remedy.
    """
    import httpx

    _keep_trio_out()
    certificates = _certificates(address)
    named = None if address.here else _proxy(address)
    if named is None:
        return httpx.AsyncHTTPTransport(verify=certificates, trust_env=False, socket_options=socket_options)
    variable, url = named
    scheme = url.partition("://")[0].lower()
    try:
        if scheme not in _PROXIES:
            hint = f"; write socks5{url[len('socks') :].partition('@')[0]}" if scheme == "socks" and "@" not in url else ""
            raise ValueError(f"{scheme}:// is not a supported proxy; supported are {', '.join(_PROXIES)}{hint}")
        proxy = httpx.Proxy(url, ssl_context=certificates if scheme == "https" else None)
        return httpx.AsyncHTTPTransport(verify=certificates, trust_env=False, proxy=proxy, socket_options=socket_options)
    except ImportError:
        why = f"{scheme}:// needs the package socksio, which is not installed (pip install socksio)"
    except (ValueError, httpx.InvalidURL) as e:
        why = str(e)
    raise ConfigError(
        f"{variable} names a proxy that cannot be used for the Ollama at {address.host}: {why}; "
        f"correct or unset {variable}, or put {address.host} into NO_PROXY"
    )


def _keep_trio_out() -> None:
    """Keep trio, where it is installed, out of the daemon's memory (4 MB): it runs on asyncio alone.

    httpx loads httpcore with its first transport, and httpcore imports trio where there is one. It does without. Code that imports trio
    itself gets it.
    """
    if not {"httpcore", "trio"} & sys.modules.keys():
        sys.modules["trio"] = None  # type: ignore[assignment]  # None: the import system says that there is no such module
        try:
            import httpcore  # noqa: F401
        finally:
            del sys.modules["trio"]


def check_key() -> None:
    """:raises ConfigError: if the key that the environment has for Ollama cannot be sent."""
    key = os.environ.get(_KEY, "")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{_KEY} holds characters that no key can have (line ends, or other than ASCII); correct or unset it")


def _certificates(address: Address) -> ssl.SSLContext:
    """Return the trusted certificates: those that the environment names, else those of the library.

    :raises ConfigError: if the environment's cannot be used, and the address needs some.
    """
    return _certificates_at_need() if address.scheme == "http" else _trusted(address)


@functools.cache
def _certificates_at_need() -> ssl.SSLContext:
    """Return a context that reads the certificates with its first connection: an Ollama at `http://` needs some only where it redirects.
    To read them takes 20 ms, and they stay in memory (1 to 4 MB).
    """
    import ssl

    class AtNeed(ssl.SSLContext):
        def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:
            return _trusted(None).wrap_bio(*args, **more)

    return AtNeed(ssl.PROTOCOL_TLS_CLIENT)


def _trusted(address: Address | None) -> ssl.SSLContext:
    """Return the context with the certificates.

    :param address: what needs them; None: those that cannot be used are passed by.
    :raises ConfigError: see `_certificates`.
    """
    import ssl

    for name in _CERTIFICATES:
        if path := os.environ.get(name):
            try:
                if name == "SSL_CERT_FILE":
                    return _read_certificates(path, os.stat(path).st_mtime_ns)
                if not os.path.isdir(path):
                    raise OSError("the folder does not exist")
                return ssl.create_default_context(capath=path)
            except OSError as e:  # OSError includes ssl.SSLError, for a file that is not a certificate
                if address is not None:
                    raise ConfigError(
                        f"{name} names {shown(path)}, which has no certificates that can be read ({e.strerror or e}), and the Ollama at "
                        f"{address.host} needs some; correct or unset {name}"
                    ) from None
    return _library_certificates()


@functools.lru_cache(maxsize=2)
def _read_certificates(path: str, changed_ns: int) -> ssl.SSLContext:
    """Return the certificates of a file, which all connections of the process share: to read them takes 20 ms."""
    import ssl

    return ssl.create_default_context(cafile=path)


@functools.cache
def _library_certificates() -> ssl.SSLContext:
    """Return the trusted certificates of the library, which all connections of the process share."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _proxy(address: Address) -> tuple[str, str] | None:
    """Return the proxy for an address, and the variable that names it; None if it is reached directly."""
    from urllib.request import getproxies  # late: the HTTP library loads it anyway

    proxies = getproxies()
    kind = address.scheme if proxies.get(address.scheme) else "all"
    url = proxies.get(kind)
    if not url or _exempt(address, proxies.get("no", "")):
        return None
    wanted = f"{kind}_proxy"
    variable = next((name for name in (wanted, wanted.upper(), *os.environ) if name.lower() == wanted and os.environ.get(name)), wanted)
    return variable, url if "://" in url else f"http://{url}"


def _exempt(address: Address, listed: str) -> bool:
    """Return True if NO_PROXY lists an address: its name, domain, name with port, or network. Other entries are ignored."""
    own, host = _ip(address.host), address.host.lower().rstrip(".")
    for entry in re.split(r"[,\s]+", listed.lower()):
        bare = entry.rpartition("://")[2]
        if bare == "*":
            return True
        name, _, port = bare.rpartition(":")
        of_ip6 = bare.startswith("[") and not bare.endswith("]")
        if of_ip6 or (port.isdecimal() and name and ":" not in name):
            if port != str(address.port):
                continue
            bare = name
        bare = bare.strip("[]")
        if own is not None:
            try:
                if own in ipaddress.ip_network(bare, strict=False):
                    return True
            except ValueError:
                continue
        elif (domain := bare.removeprefix("*").strip(".")) and (host == domain or host.endswith(f".{domain}")):
            return True
    return False


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a text is, in the short forms of IPv4 (`127.1`) too; None if it is a name."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(bare)) if re.fullmatch(r"[0-9a-fx.]+", bare.lower()) else None
        except OSError:
            return None
    return getattr(found, "ipv4_mapped", None) or found


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
