"""Addresses of an Ollama in all spellings, and what the environment says of proxies, certificates and keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from batos.bridge import addresses
from batos.bridge.client import connect, version_of
from batos.doctor import inference as doctor
from batos.errors import ConfigError
from batos.testing import ScriptedOllama
from tests.support.missions import settings

ROOT = Path(__file__).parents[2]
ODD = {
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "all_proxy": "socks5h://127.0.0.1:9",
    "HTTPS_PROXY": "socks://127.0.0.1:9",
    "HTTP_PROXY": "http://proxy:notaport",
    "NO_PROXY": "localhost,127.0.0.1,::1,fe80::/10",
    "SSL_CERT_FILE": "/nonexistent.pem",
    "SSL_CERT_DIR": "/nonexistent",
    "OLLAMA_HOST": "::1:::",
    "OLLAMA_API_KEY": "a\u00fc\n",
}


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name in ODD:
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("given", "url", "here"),
    [
        ("", "http://127.0.0.1:11434", True),
        (":8080", "http://127.0.0.1:8080", True),
        ("localhost", "http://localhost:11434", True),
        ("127.0.0.1:", "http://127.0.0.1:11434", True),
        ('"127.0.0.1:11434"', "http://127.0.0.1:11434", True),
        (" '127.0.0.1' ", "http://127.0.0.1:11434", True),
        ("127.1:1", "http://127.1:1", True),
        ("0.0.0.0", "http://0.0.0.0:11434", True),
        ("::1", "http://[::1]:11434", True),
        ("::", "http://[::]:11434", True),
        ("[::1]:99", "http://[::1]:99", True),
        ("::ffff:127.0.0.1", "http://[::ffff:127.0.0.1]:11434", True),
        ("HTTP://LOCALHOST./", "http://localhost.:80", True),
        ("https://models.localhost:4", "https://models.localhost:4", True),
        ("2001:db8::1/ollama/", "http://[2001:db8::1]:11434/ollama", False),
        ("https://gpu.example", "https://gpu.example:443", False),
        ("gpu_box:1", "http://gpu_box:1", False),
        ("127.example.com", "http://127.example.com:11434", False),
        ("localhost.example.com", "http://localhost.example.com:11434", False),
        ("http://me:a%40b@gpu/x/", "http://gpu:80/x", False),
        ("//gpu:5", "http://gpu:5", False),
        ("http://localhost:11434/v1", "http://localhost:11434", True),
        ("http://localhost:11434/api/generate", "http://localhost:11434", True),
        ("https://gpu/ollama/v1/chat/completions", "https://gpu:443/ollama", False),
        ("https://gpu/myv1", "https://gpu:443/myv1", False),
    ],
)
async def test_an_address_is_read_as_ollama_reads_it(given: str, url: str, here: bool) -> None:
    address = addresses.parse(given)
    assert (address.url, address.here) == (url, here)
    async with connect(given) as client:
        asked = client._client.base_url
        assert (asked.scheme, asked.host.strip("[]"), asked.path.strip("/")) == (address.scheme, address.host, address.path)


def test_this_machines_own_name_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Workbench")
    assert addresses.parse("workbench:1").here
    assert not addresses.parse("workbench.example:1").here


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("127.0.0.1:99999", "out of range"),
        ("127.0.0.1:-1", "Port"),
        ("127.0.0.1:x", "Port"),
        ("127.0.0.1:0", "port 0"),
        ("tcp://127.0.0.1", "tcp:// is not what"),
        ("http://", "names no host"),
        (":::", "not a valid address"),
        ("[::1", "not a valid address"),
        ("two words", "not a valid name of a host"),
        ("a\\b", "not a valid name of a host"),
        ("http:gpu", "two slashes"),
        ("https:/gpu", "two slashes"),
        ("11434", "a port is written :11434"),
        ("http://gpu/?key=1", "? begins"),
    ],
)
def test_what_is_no_address_is_told_with_its_setting_and_variable(given: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"'inference.host' or 'inference.hosts', or OLLAMA_HOST: .* is not a valid address") as refused:
        connect(given)
    assert said in refused.value.message


@pytest.mark.parametrize("name", [name for name in ODD if name != "OLLAMA_API_KEY"])
async def test_no_variable_keeps_from_an_ollama_on_this_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, ODD[name])
    with ScriptedOllama() as here:
        async with connect(here.host) as client:
            assert await version_of(client)


def test_the_import_of_the_library_decides_nothing() -> None:
    """In a process of its own, that has imported nothing yet; the variables are there again behind it."""
    code = "import os; given = dict(os.environ); import batos.bridge.client_library as it; assert dict(os.environ) == given; it.AsyncClient"
    environment = {**os.environ, **ODD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_nobody_imports_the_library_by_itself() -> None:
    for file in (ROOT / "batos").rglob("*.py"):
        typing_only = False
        for line in file.read_text("utf-8").splitlines():
            if line and not line[0].isspace():
                typing_only = line.startswith("if TYPE_CHECKING")
            bare = line.strip()
            if bare.startswith(("from ollama ", "import ollama", "from ollama.")):
                assert typing_only or file.name == "client_library.py", f"{file}: {bare}"


@pytest.mark.parametrize(
    ("variables", "host", "said"),
    [
        ({"ALL_PROXY": "socks5://127.0.0.1:9"}, "gpu.example", r"ALL_PROXY .* socksio, .* NO_PROXY"),
        ({"all_proxy": "socks://127.0.0.1:9"}, "gpu.example", r"all_proxy .* write socks5://127.0.0.1:9"),
        ({"HTTP_PROXY": "http://proxy:notaport"}, "gpu.example", r"HTTP_PROXY .* correct or unset HTTP_PROXY"),
        ({"HTTPS_PROXY": "ftp://me:secret@proxy"}, "https://gpu.example", r"HTTPS_PROXY .* ftp://"),
        ({"SSL_CERT_FILE": "/nonexistent.pem"}, "https://gpu.example", r"SSL_CERT_FILE .*No such file"),
        ({"SSL_CERT_FILE": __file__}, "https://gpu.example", r"SSL_CERT_FILE .* certificates"),
        ({"SSL_CERT_DIR": "/nonexistent"}, "https://localhost:1", r"SSL_CERT_DIR .*the folder does not exist"),
        ({"OLLAMA_API_KEY": "key\r"}, "gpu.example", r"OLLAMA_API_KEY .* unset"),
    ],
)
def test_what_is_needed_and_cannot_be_used_is_named(
    variables: dict[str, str], host: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=said) as refused:
        connect(host)
    assert "secret" not in refused.value.message


async def test_doctor_names_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    (check,) = await doctor.ollama(settings(tmp_path, ollama_host="gpu.example"), None)
    assert (check.name, check.state) == ("ollama", "fail")
    assert "ALL_PROXY" in check.finding


@pytest.mark.parametrize(
    ("no_proxy", "host", "through"),
    [
        ("", "192.0.2.1:7", True),
        ("*", "192.0.2.1:7", False),
        ("192.0.2.0/24", "192.0.2.1:7", False),
        ("192.0.3.0/24,fe80::/10", "192.0.2.1:7", True),
        ("192.0.2.1", "192.0.2.1:7", False),
        ("192.0.2.1:7", "192.0.2.1:7", False),
        ("192.0.2.1:8", "192.0.2.1:7", True),
        ("2001:db8::1", "[2001:db8::1]:7", False),
        ("[2001:db8::1]:7", "[2001:db8::1]:7", False),
        ("2001:db8::/32 , x", "2001:db8::1", False),
        ("example", "gpu.example", False),
        (".Example", "gpu.example", False),
        ("*.example", "gpu.example", False),
        ("http://gpu.example", "gpu.example", False),
        ("ample", "gpu.example", True),
        ("gpu.example.com , [, ::/x,/", "gpu.example", True),
    ],
)
async def test_what_no_proxy_exempts(no_proxy: str, host: str, through: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _proxy() as (port, asked):
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{port}")  # without a scheme, as curl takes it
        monkeypatch.setenv("NO_PROXY", no_proxy)
        carrier = addresses.transport(addresses.parse(host), [])
        await carrier.aclose()
        if not through:
            assert type(carrier._pool).__name__ == "AsyncConnectionPool"
            return
        async with connect(host) as client:
            assert await version_of(client) == "9.9"
        assert asked == [f"GET {addresses.parse(host).url}/api/version HTTP/1.1"]


@contextlib.asynccontextmanager
async def _proxy() -> AsyncIterator[tuple[int, list[str]]]:
    """A proxy that answers itself what is asked through it."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split(b"\r\n")[0].decode())
        body = b'{"version": "9.9"}'
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        found: Any = server.sockets[0].getsockname()
        yield found[1], asked


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of localhost that nobody else trusts, with its key."""
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    named = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run([*made, *named], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.mark.parametrize("trusted", [True, False])
@pytest.mark.parametrize("redirects", [True, False])
async def test_certificates_count_at_https_and_where_http_redirects_to_it(
    trusted: bool, redirects: bool, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there = writer.get_extra_info("ssl_object") is not None
        body = b'{"version": "0.21.0"}'
        head = f"200 OK\r\nContent-Length: {len(body)}" if there else f"302 Found\r\nLocation: {secure}/api/version\r\nContent-Length: 0"
        writer.write(f"HTTP/1.1 {head}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".encode() + body * there)
        await writer.drain()
        writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with (
        await asyncio.start_server(answer, "localhost", 0, ssl=tls) as one,
        await asyncio.start_server(answer, "localhost", 0) as other,
    ):
        secure = f"https://localhost:{one.sockets[0].getsockname()[1]}"
        plain = f"http://localhost:{other.sockets[0].getsockname()[1]}"
        address = addresses.parse(plain if redirects else secure)
        async with httpx.AsyncClient(transport=addresses.transport(address, []), follow_redirects=True) as client:
            asked = client.get(f"{plain if redirects else secure}/api/version")
            if trusted:
                assert (await asked).json() == {"version": "0.21.0"}
            else:
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await asked
