"""Page docs/reference/cli.md: its help texts equal the commands' help, and its examples print the documented output."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pasto.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
LISTS = re.compile(r"^(Experiments|Benchmarks):\n(?:  .*\n)+\n", re.MULTILINE)
"""What grows by itself, and is listed by the commands."""
HELP = re.compile(r"^(?P<rank>##+) `(?P<typed>[a-z -]+)`\n\n```text\n(?P<help>.*?)```$", re.MULTILINE | re.DOTALL)


def real_help(typed: str) -> str:
    """Return a command's help at 80 columns, without the lists."""
    words = [*typed.split()[1:], "--help"]
    outcome = CliRunner().invoke(main, words, prog_name="pasto", terminal_width=80)
    return LISTS.sub("", outcome.stdout)


def commands_of(command: click.Command, typed: str = "pasto") -> Iterator[tuple[str, click.Command]]:
    """Yield a command and every command below it, with their names as typed."""
    yield typed, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_of(below, f"{typed} {name}")


def rewrite() -> None:
    """Write the current help texts into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        HELP.sub(lambda match: f"{match['rank']} `{match['typed']}`\n\n```text\n{real_help(match['typed'])}```", page),
        encoding="utf-8",
    )


def test_every_command_has_its_own_help_on_the_page() -> None:
    output = {match["typed"]: match["help"] for match in HELP.finditer(PAGE.read_text(encoding="utf-8"))}
    assert set(output) == {typed for typed, _ in commands_of(main)}
    for typed, text in output.items():
        assert text == real_help(typed), f"{typed}: run `python {Path(__file__).name}` here to update the page"


def test_every_option_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for typed, command in commands_of(main):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(name in page for name in parameter.opts), typed


def test_every_environment_variable_is_in_the_help() -> None:
    for typed, command in commands_of(main):
        for parameter in command.params:
            if isinstance(parameter, click.Option) and isinstance(parameter.envvar, str):
                assert f"env var: {parameter.envvar}" in " ".join(real_help(typed).split()), typed


def test_the_examples_print_what_they_show(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGE.read_text(encoding="utf-8")
    (means,) = re.findall(r"^```csv\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "means.csv").write_text(means)
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```console\n\$ pasto ([^\n]*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert examples
    for typed, output in examples:
        result = run(*shlex.split(typed))
        assert doctest.OutputChecker().check_output(output, result.stdout, doctest.NORMALIZE_WHITESPACE), result.stdout


if __name__ == "__main__":
    rewrite()
