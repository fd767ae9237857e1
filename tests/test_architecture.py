"""Architecture pages CONTRIBUTING.md and docs/architecture.md: paths exist, and diagrams and tables match the code."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pasto
from tools.import_diagram import render

ROOT = Path(__file__).parent.parent
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/?)`")
FOLDERS = (
    "src/",
    "clients/",
    "research/",
    "tests/",
    "docs/",
    "tools/",
    "deploy/",
    "examples/",
    "requirements/",
    ".ci/",
)
FILE_ENDINGS = (".py", ".md", ".toml", ".json", ".txt", ".svg", ".sql", ".mjs", ".html")


def named_paths(text: str) -> Iterator[str]:
    """Yield texts of a page that look like paths of the repository: below a folder, or with a file's ending."""
    for path in PATH.findall(text):
        if path.startswith(FOLDERS) or (path.endswith(FILE_ENDINGS) and path != "__init__.py"):
            yield path


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_the_page_names_exists(page: str) -> None:
    paths = list(named_paths((ROOT / page).read_text(encoding="utf-8")))
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_paths_are_found() -> None:
    text = (
        "`src/pasto/none.py`, `LICENSE.md`, `pasto_sdk`, `make test`, `docs/guides/`, `__init__.py`, `service/reports`"
    )
    assert list(named_paths(text)) == ["src/pasto/none.py", "LICENSE.md", "docs/guides/"]


def test_the_diagrams_show_the_imports_of_the_code() -> None:
    stale = [path.name for path, text in render().items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "out of date; run `python tools/import_diagram.py`"


def test_every_package_is_in_the_table_of_packages() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    packages = {path.parent.name for path in (ROOT / "src/pasto").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|.*`src/pasto/\1/", page, re.MULTILINE)) == packages


def test_a_release_has_one_version() -> None:
    projects = ("pyproject.toml", "clients/python/pyproject.toml", "research/pyproject.toml")
    versions = {
        name: tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]["version"] for name in projects
    }
    versions["package.json"] = json.loads((ROOT / "clients/javascript/package.json").read_text(encoding="utf-8"))[
        "version"
    ]
    assert set(versions.values()) == {pasto.__version__}, versions
