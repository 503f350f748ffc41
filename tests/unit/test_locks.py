"""What is installed is known by its hash, all of it: the locks, who installs from them, and what becomes of a file that is not the one."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.programs import command

ROOT = Path(__file__).parents[2]

LOCKS = sorted(path.stem for path in (ROOT / "locks").glob("*.txt"))
# environments apart, whose versions constraints.txt lacks
OF_THEIR_OWN = ("clients", "open_webui", "peers", "servers", "servers_old", "site")
WHAT = {"run": ("documents", "console", "mcp"), "dev": ("documents", "console", "mcp", "dev")}
"""The extras that a lock holds, of those that are installed where the tests run."""


def entries(name: str) -> Iterator[tuple[Requirement, list[str]]]:
    """The requirements of a lock, those of its parts among them, with their hashes."""
    text = (ROOT / "locks" / f"{name}.txt").read_text("utf-8").replace("\\\n", "")
    for line in text.splitlines():
        if part := re.fullmatch(r"-r (\w+)\.txt", line):
            yield from entries(part[1])
        elif not line.startswith("#"):
            said, *hashes = line.split("--hash=")
            yield Requirement(said.strip()), [one.strip() for one in hashes]


def versions(text: str) -> set[tuple[str, str]]:
    """Names and versions that are pinned."""
    return {(canonicalize_name(name), version) for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", text, re.MULTILINE)}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_versions_and_hashes_and_names_no_host(name: str) -> None:
    found = list(entries(name))
    assert found
    for requirement, hashes in found:
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), requirement
    text = (ROOT / "locks" / f"{name}.txt").read_text("utf-8")
    assert "://" not in text
    assert "index-url" not in text
    if name not in OF_THEIR_OWN:
        pinned = {(canonicalize_name(requirement.name), str(requirement.specifier)[2:]) for requirement, _ in found}
        assert pinned <= versions((ROOT / "constraints.txt").read_text("utf-8"))


def needed(extras: tuple[str, ...]) -> set[str]:
    """All that BAT OS comes to with these extras, by what is installed here."""
    found: set[str] = set()
    todo = [("batos", frozenset(extras))]
    seen = set()
    while todo:
        name, asked = todo.pop()
        if (name, asked) in seen:
            continue
        seen.add((name, asked))
        for line in _requires(name):
            requirement = Requirement(line)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in (*asked, "")):
                found.add(canonicalize_name(requirement.name))
                todo.append((requirement.name, frozenset(requirement.extras)))
    return found


def _requires(name: str) -> list[str]:
    if name != "batos":
        return importlib.metadata.requires(name) or []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines: list[str] = list(project["dependencies"])
    for extra, more in project["optional-dependencies"].items():
        for line in more:
            said, _, marker = line.partition(";")
            own = f"extra == '{extra}'"
            lines.append(f"{said}; {Marker(own) if not marker else f'({marker}) and {own}'}")
    return lines


@pytest.mark.parametrize(("name", "extras"), WHAT.items())
def test_a_lock_holds_all_that_is_needed(name: str, extras: tuple[str, ...]) -> None:
    held = {
        canonicalize_name(requirement.name)
        for requirement, _ in entries(name)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert needed(extras) - held == set()


def test_every_install_goes_by_hashes_or_fetches_nothing() -> None:
    scripts = [ROOT / "Makefile", ROOT / "Containerfile", ROOT / ".ci" / "run", *sorted((ROOT / "tools").glob("*.sh"))]
    installs = 0
    for path in scripts:
        if not path.exists():  # in a sdist there is no .ci
            continue
        text = path.read_text("utf-8").replace("\\\n", " ")
        own = dict(re.findall(r"^(\w+) := (.*)$", text, re.MULTILINE))
        for line in text.splitlines():
            said = line
            for name, value in own.items():
                said = said.replace(f"$({name})", value)
            for words in re.findall(r"\bpip\b[^#&|;]*? install\b[^&|;]*", "" if said.lstrip().startswith("#") else said):
                installs += 1
                hashed = "--require-hashes" in words and "--only-binary :all:" in words and re.search(r"locks/\w+\.txt", words)
                alone = "--no-index" in words and "--requirement" not in words
                assert hashed or alone, f"{path.name}: {line}"
    assert installs > 12


# --- an index that was broken into


def forged(folder: Path, name: str, version: str) -> None:
    """A wheel of this name and version that somebody else has made."""
    stem = f"{name.replace('-', '_')}-{version}"
    files = {
        f"taken_{name.replace('-', '_')}.py": "",
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: forger\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, text in (*files.items(), (f"{stem}.dist-info/RECORD", f"{record}{stem}.dist-info/RECORD,,\n")):
            wheel.writestr(path, text)


@pytest.mark.parametrize("target", ["install", "models"])
def test_nothing_is_installed_that_is_not_what_its_hash_says(target: str, tmp_path: Path) -> None:
    """Every package of an index gives way to one of the same name and version: `make` stops at the first, before any is installed."""
    index, venv = tmp_path / "index", tmp_path / "venv"
    index.mkdir()
    for name in ("run", "build", "models"):
        for requirement, _ in entries(name):
            forged(index, requirement.name, str(requirement.specifier)[2:])
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=120)
    (venv / ".made").touch()
    env = {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_NO_CACHE_DIR": "1", "HOME": str(tmp_path)}
    done = subprocess.run(["make", "-C", ROOT, f"VENV={venv}", target], capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr, done.stderr
    assert not list(venv.rglob("taken_*")), "none was installed"


# --- Ollama's source


@pytest.mark.skipif(
    not Path("/usr/include/nlohmann/json.hpp").exists(), reason="the headers are not installed, apt-get would be asked for them"
)
def test_an_ollama_that_is_not_what_its_hash_says_is_not_built(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "build_ollama.sh"
    script.write_bytes((ROOT / "tools" / "build_ollama.sh").read_bytes())
    other = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    command(
        tmp_path / "bin",
        "go",
        f'''case "$1 $2" in
        "env GOVERSION") echo go1.26.6 ;;
        "mod download") printf '{{\n\t"Path": "x",\n\t"Dir": "{tmp_path}",\n\t"Sum": "{other}"\n}}\n' ;;
        *) touch {tmp_path}/built ;;
        esac''',
    )
    (tmp_path / "miniaudio.h").touch()
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "OLLAMA_BUILD": "always", "HOME": str(tmp_path)}
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 1
    assert f"its hash is {other}" in done.stderr
    assert not (tmp_path / "built").exists()
    assert not (tmp_path / "build" / "ollama" / "version").exists()


# --- images


def pinned(folder: Path, said: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a copy of the container file when an engine says this of each image."""
    (folder / "tools").mkdir(exist_ok=True)
    for name in ("Containerfile", "tools/pin_images.sh"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    command(folder / "bin", "skopeo", said)
    env = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    return subprocess.run(["/bin/sh", str(folder / "tools" / "pin_images.sh")], capture_output=True, text=True, env=env, timeout=60)


def test_images_are_pinned_to_what_their_names_mean_today(tmp_path: Path) -> None:
    digest = "sha256:" + "5" * 64
    done = pinned(tmp_path, f'for last; do :; done; echo "$last" >>{tmp_path}/asked; echo {digest}')
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "asked").read_text().split() == ["docker://python:3.13-slim", "docker://ollama/ollama:0.21.0"]
    now = (tmp_path / "Containerfile").read_text("utf-8")
    assert f"\nARG PYTHON_IMAGE=python:3.13-slim@{digest}\n" in now
    assert f"\nARG OLLAMA_IMAGE=ollama/ollama:0.21.0@{digest}\n" in now
    before = (ROOT / "Containerfile").read_text("utf-8")
    assert re.sub("@sha256:[0-9a-f]{64}", "", now) == re.sub("@sha256:[0-9a-f]{64}", "", before)


@pytest.mark.parametrize("said", ["echo no such image >&2; exit 1", "echo 'sha256:12|e touch x'", "exit 0"])
def test_an_answer_that_is_no_digest_changes_nothing(tmp_path: Path, said: str) -> None:
    done = pinned(tmp_path, said)
    assert done.returncode == 1
    assert "images: " in done.stderr
    assert (tmp_path / "Containerfile").read_bytes() == (ROOT / "Containerfile").read_bytes()


def test_a_build_from_images_that_are_not_pinned_says_so(tmp_path: Path) -> None:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text("utf-8"))
    [said] = re.findall(r"^RUN (for image in .*)$", text, re.MULTILINE)
    env = {"PATH": "/usr/bin:/bin", "PYTHON_IMAGE": f"python:3.13-slim@sha256:{'5' * 64}", "OLLAMA_IMAGE": "ollama/ollama:0.21.0"}
    done = subprocess.run(["/bin/sh", "-c", said], capture_output=True, text=True, env=env, timeout=10)
    assert done.returncode == 0
    assert done.stderr.startswith("NOT PINNED: ollama/ollama:0.21.0 ")
    assert done.stderr.count("\n") == 1
