"""Documentation: complete, without dead links, and without addresses of a machine anywhere in the repository."""

import doctest
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
FOREIGN = ["pypi.org", "files.pythonhosted", "registry.npmjs", "/work/", "/root/"]


def commands_of(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and every command below it, with their names as typed."""
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands_of(below, f"{path} {name}")


def commands() -> dict[str, click.Command]:
    from pasto.cli import main

    return dict(commands_of(main, "pasto"))


def links_of(page: Path) -> Iterator[str]:
    """Yield the files that a page links to, as written, without the anchors."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            yield target.split("#")[0]


def shown_commands() -> Iterator[tuple[Path, str, str]]:
    """Yield the console examples of the guides: the page, the command, and its output."""
    for page in (DOCS / "guides").rglob("*.md"):
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            for typed, printed in re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
                yield page, typed, printed


SHOWN = list(shown_commands())


def files_of_the_repository() -> Iterator[Path]:
    """Return every file except those in .gitignore, without using git, which a machine may lack."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    ignored = {line.strip("/") for line in lines if line.endswith("/")}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name != ".git" and name not in ignored]
        yield from (Path(folder, name) for name in files if name != ".git")  # a file in a work tree of git


def test_every_command_is_in_the_reference() -> None:
    reference = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert [command for command in commands() if f"`{command}" not in reference] == []


def test_every_command_and_option_explains_itself() -> None:
    unexplained = [
        (typed, *option.opts)
        for typed, command in commands().items()
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert [typed for typed, command in commands().items() if not command.help] + unexplained == []


@pytest.mark.parametrize(("page", "typed", "printed"), SHOWN, ids=[typed for _, typed, _ in SHOWN])
def test_a_documented_command_prints_the_documented_output(
    page: Path, typed: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = shlex.split(typed)
    assert program == "pasto"
    monkeypatch.chdir(page.parent)
    got = CliRunner().invoke(commands()[program], arguments).output
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(printed, got, options), got


def test_every_page_is_linked_from_the_index() -> None:
    linked = {(DOCS / target).resolve() for target in links_of(DOCS / "index.md")}
    assert [page for page in DOCS.rglob("*.md") if page.name != "index.md" and page not in linked] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    assert [target for target in links_of(page) if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/guides/quick-start.md", "docs/guides/sdk.md"])
def test_the_three_lines_name_a_baseline(page: str) -> None:
    """Check a client without a baseline: before the first policy it has no values, and ranking with them fails."""
    text = (ROOT / page).read_text(encoding="utf-8")
    clients = re.findall(r"sdk\.Client\(.*?\)", text, re.DOTALL)
    assert clients
    assert all("baseline=" in client for client in clients if "http://rehearsal" not in client)


def test_no_file_names_a_registry_or_a_machine() -> None:
    found = [
        (str(file.relative_to(ROOT)), word)
        for file in files_of_the_repository()
        if file != Path(__file__)
        for content in [file.read_bytes()]
        for word in FOREIGN
        if word.encode() in content
    ]
    assert found == []
