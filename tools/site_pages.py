"""Pages of the site that are not in docs/: a hook of mkdocs (`mkdocs.yml`).

The README becomes the first page. Security, changes and results come from outside of docs/. Each package of BAT OS gets a page from
its docstrings. A link from a page to a file that is no page (an example, a source) becomes the file's name.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "bench/results/README.md": "results.md",
    "lora_staging/README.md": "staging.md",
}
"""Path in the project by name of the page."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Put the packages into the navigation."""
    internals = next(section["Internals"] for section in config["nav"] if "Internals" in section)
    internals.append({"Packages": ["internals/index.md", *(f"internals/{path.name}.md" for path in _packages())]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    packages = _packages()
    rows = [f"* [`batos.{path.name}`]({path.name}.md): {_summary(path / '__init__.py')}" for path in packages]
    files.append(File.generated(config, "internals/index.md", content="\n".join(["# Packages", "", _ORDER, "", *rows, ""])))
    for path in packages:
        files.append(File.generated(config, f"internals/{path.name}.md", content=_package_page(path)))
    return files


_ORDER = "Imports go one way; [the architecture](../architecture.md#the-packages) has the order, and what to open first."


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point the links of a page to pages of the site."""
    own = next((source for source, name in OUTSIDE.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def relinked(found: re.Match[str]) -> str:
        image, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = os.path.normpath(PurePosixPath(own).parent / target)
        name = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        if own.startswith("docs/internals/"):
            return found[0]
        if name is None or files.get_file_from_path(name) is None:
            if not (ROOT / path).exists():
                return found[0]  # mkdocs names the page and the link
            return f"{text} (`{path}`)" if text.strip("`") != path else f"`{path}`"
        return f"{image}[{text}]({os.path.relpath(name, PurePosixPath(page.file.src_uri).parent)}{anchor})"

    return _LINK.sub(relinked, markdown)


def _packages() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "batos").glob("*/__init__.py"))


def _package_page(package: Path) -> str:
    doc = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    lines = [f"# batos.{package.name}", "", _plain(doc), "", "| module | what it is |", "|---|---|"]
    for path in sorted(package.rglob("*.py")):
        if path.name != "__init__.py":
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            lines.append(f"| `{name}` | {_summary(path)} |")
    return "\n".join([*lines, ""])


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return _plain(" ".join(doc.split("\n\n")[0].split())).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return a docstring as Markdown: names in single backticks, no marks of HTML."""
    return re.sub(r"``([^`]*)``", r"`\1`", text).replace("<", "&lt;").replace("::\n", ":\n")
