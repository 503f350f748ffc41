"""Web connections: a page as text with its links, and a search."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from batos.errors import EgressRefused, InvalidInput, ToolFailed
from batos.image.effects import READS
from batos.tools.definitions import ConnectionSpec, ConnectorServices, Delivery, ToolLimits, check_definitions
from batos.tools.web import WebConnector
from tests.support.documents import pdf

PAGE = """<html><head><title>Caf\u00e9 Tea</title><script>steal()</script></head><body><nav><a href="/home">Home</a></nav>
<main><h1>Green</h1><p>Steep it for two minutes, \u00e9t\u00e9.</p>
<p>See <a href="more?x=1#top">more of it</a>, <a href="javascript:alert(1)">no</a>.</p></main>
</body></html>"""


class _Site(ThreadingHTTPServer):
    """A site on this machine: answers by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Pages)
        self.asked: list[str] = []
        self.pages: dict[str, tuple[int, str, bytes]] = {}

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Pages(BaseHTTPRequestHandler):
    server: _Site

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        status, kind, body = self.server.pages.get(self.path.partition("?")[0], (404, "text/plain", b"no"))
        self.send_response(status)
        self.send_header("Location" if 300 <= status < 400 else "Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[_Site]:
    with _Site() as made:
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def connector(**options: Any) -> WebConnector:
    services = ConnectorServices(secret=lambda name: "secret-value", folder=Path("/nowhere"))
    return WebConnector(ConnectionSpec("web", "web", "", options), services)


@pytest.fixture
async def web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WebConnector]:
    """A connector to which this machine is a public one."""
    monkeypatch.setattr("batos.tools.egress.is_public", lambda address: True)
    made = connector()
    yield made
    await made.close()


async def call(made: WebConnector, name: str, **arguments: Any) -> Any:
    tool = next(one for one in await made.tools() if one.name == name)
    return await (await made.prepare(tool, arguments)).send(Delivery(""))


async def test_the_tools_read_what_strangers_wrote() -> None:
    tools = await connector(search="http://127.0.0.1:8888").tools()
    check_definitions("web", tools, ToolLimits())
    assert {one.name: (one.kind, one.untrusted, one.outward) for one in tools} == {
        "fetch": (READS, True, True),
        "search": (READS, True, True),
    }
    assert [one.name for one in await connector().tools()] == ["fetch"]


@pytest.mark.parametrize(("kind", "charset"), [("text/html; charset=iso-8859-1", "latin-1"), ("text/html", "utf-8")])
async def test_a_page_becomes_text_and_links(site: _Site, web: WebConnector, kind: str, charset: str) -> None:
    site.pages["/tea/green"] = (200, kind, PAGE.encode(charset))
    url = f"http://127.0.0.1:{site.port}/tea/green"
    found = await call(web, "fetch", url=url)
    assert (found["url"], found["title"]) == (url, "Caf\u00e9 Tea")
    assert "two minutes, \u00e9t\u00e9" in found["text"]
    assert "Green" in found["text"]
    assert "steal" not in found["text"]
    assert {"text": "more of it", "url": f"http://127.0.0.1:{site.port}/tea/more?x=1"} in found["links"]
    assert all(link["url"].startswith("http") for link in found["links"])


async def test_a_page_that_moved_is_read_where_its_address_may_be_asked_for(site: _Site, web: WebConnector) -> None:
    at = f"http://127.0.0.1:{site.port}"
    site.pages |= {"/old": (301, "/new", b""), "/new": (200, "text/plain", b"green")}
    assert (await call(web, "fetch", url=f"{at}/old"))["text"] == "green"
    site.asked.clear()
    [fetch] = await web.tools()
    ready = await web.prepare(fetch, {"url": f"{at}/old", "max_chars": 10})
    with pytest.raises(EgressRefused, match=f"redirects to '{at}/new', which is not followed: the grants do not allow"):
        await ready.send(Delivery("", permits=lambda arguments: arguments != {"url": f"{at}/new", "max_chars": 10}))
    assert site.asked == ["/old"]


async def test_other_documents_become_text(site: _Site, web: WebConnector) -> None:
    site.pages["/a.json"] = (200, "application/json", b'{"tea": "green"}')
    site.pages["/a"] = (200, "text/plain; charset=utf-16", "gr\u00fcn".encode("utf-16"))
    site.pages["/a.pdf"] = (200, "application/pdf", pdf("Steep it well"))
    at = f"http://127.0.0.1:{site.port}"
    assert (await call(web, "fetch", url=f"{at}/a.json"))["text"] == '{"tea": "green"}'
    assert (await call(web, "fetch", url=f"{at}/a"))["text"] == "gr\u00fcn"
    assert "Steep it well" in (await call(web, "fetch", url=f"{at}/a.pdf"))["text"]


async def test_a_long_text_is_cut_and_this_is_told(site: _Site, web: WebConnector) -> None:
    site.pages["/long"] = (200, "text/plain", b"tea " * 1000)
    found = await call(web, "fetch", url=f"http://127.0.0.1:{site.port}/long", max_chars=10)
    assert found["text"] == "tea tea te"
    assert "4000" in found["told"]


async def test_what_is_not_text_is_told(site: _Site, web: WebConnector) -> None:
    site.pages["/a.png"] = (200, "image/png", b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 40)
    with pytest.raises(ToolFailed, match="image/png"):
        await call(web, "fetch", url=f"http://127.0.0.1:{site.port}/a.png")
    with pytest.raises(ToolFailed, match="404"):
        await call(web, "fetch", url=f"http://127.0.0.1:{site.port}/gone")


@pytest.mark.parametrize("url", ["ftp://a.org", "file:///etc/passwd", "http://u:p@a.org", "a.org", "http://"])
async def test_a_url_that_is_not_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput):
        await call(connector(), "fetch", url=url)


async def test_this_machine_is_not_of_the_web(site: _Site) -> None:
    with pytest.raises(EgressRefused):
        await call(connector(), "fetch", url=f"http://127.0.0.1:{site.port}/")
    assert site.asked == []


async def test_a_search_gives_results(site: _Site) -> None:
    results = [{"title": f"T{n}", "url": f"http://a.org/{n}", "content": "c", "score": 1} for n in range(5)]
    site.pages["/search"] = (200, "application/json", json.dumps({"results": results}).encode())
    made = connector(search=f"http://127.0.0.1:{site.port}")
    assert await call(made, "search", query="green tea", count=2) == [
        {"title": "T0", "url": "http://a.org/0", "content": "c"}, {"title": "T1", "url": "http://a.org/1", "content": "c"},
    ]  # fmt: skip
    assert site.asked == ["/search?q=green+tea&format=json"]
    await made.close()


async def test_a_search_that_does_not_answer_json_says_what_to_do(site: _Site) -> None:
    made = connector(search=f"http://127.0.0.1:{site.port}")
    site.pages["/search"] = (403, "text/html", b"Forbidden")
    with pytest.raises(ToolFailed, match=r"settings\.yml"):
        await call(made, "search", query="tea")
    site.pages["/search"] = (200, "text/html", b"<html>hello</html>")
    with pytest.raises(ToolFailed, match="SearXNG"):
        await call(made, "search", query="tea")
    await made.close()


@pytest.mark.parametrize("options", [{"serch": "x"}, {"search": 1}, {"search": "ftp://x"}, {"headers": {"A": "b"}}])
def test_an_option_that_is_not_valid_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        connector(**options)
