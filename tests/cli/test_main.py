from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import pasto
from pasto.cli import main
from pasto.errors import OptionError, PastoWarning, SolverError


def commands() -> list[str]:
    return main.list_commands(click.Context(main))


def test_the_commands_are_the_promised_ones() -> None:
    promised = "demo history holdout key layer plan report round serve simulate solve store study webhook bench paper"
    assert commands() == promised.split()


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command_with_a_sentence(run: Any, option: str) -> None:
    result = run(option)
    assert result.exit_code == 0
    for name in commands():
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_an_example(run: Any, name: str) -> None:
    result = run(name, "--help")
    assert result.exit_code == 0
    assert f"  pasto {name}" in result.stdout.split("Example")[1]


def test_every_option_has_help() -> None:
    for command in main.commands.values():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (command.name, parameter.name)


def test_version(run: Any) -> None:
    assert run("--version").stdout == f"pasto {pasto.__version__}\n"


def test_an_unknown_command_is_refused(run: Any) -> None:
    result = run("slove")
    assert result.exit_code == 2
    assert "No such command 'slove'" in result.stderr
    assert result.stdout == ""


@pytest.fixture
def failing() -> Iterator[list[Exception]]:
    """Add a command `fail` that raises the listed errors."""
    errors: list[Exception] = []

    @main.command()
    def fail() -> None:
        warnings.warn("take care", PastoWarning, stacklevel=2)
        raise errors[0]

    yield errors
    del main.commands["fail"]


@pytest.mark.parametrize(("error", "code"), [(OptionError("no such thing"), 2), (SolverError("gave up"), 1)])
def test_errors_of_the_library_are_one_line(run: Any, failing: list[Exception], error: Exception, code: int) -> None:
    failing.append(error)
    result = run("fail")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"note: take care\nerror: {error}\n"


def pasto_command(
    *words: str, cwd: Path, input: str = "", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pasto", *words],
        cwd=cwd,
        input=input,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_loads_neither_numpy_nor_rich(tmp_path: Path) -> None:
    code = "import sys; from pasto.cli import main; main(['--help'], standalone_mode=False); "
    code += "sys.exit(any(name in sys.modules for name in ('numpy', 'scipy', 'rich')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_as_a_module_it_reads_a_pipe_and_exits_by_the_rules(tmp_path: Path) -> None:
    good = pasto_command("solve", "-", "--maximize", "x", "--keep", "y>=0", cwd=tmp_path, input="x,y\n2,-2\n0,2\n")
    assert good.returncode == 0
    assert "50.0%" in good.stdout
    assert good.stderr == ""
    bad = pasto_command("solve", "nothing.csv", "--maximize", "x", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("error: there is no file 'nothing.csv'")
    assert bad.stderr.count("\n") == 1


def test_a_terminal_without_unicode_is_served_too(tmp_path: Path) -> None:
    plain = {"PYTHONIOENCODING": "ascii"}
    result = pasto_command("simulate", "--runs", "2", "--rounds", "2", cwd=tmp_path, env=plain)
    assert (result.returncode, result.stderr) == (0, "")
    assert " ? " in result.stdout


def test_a_reader_that_leaves_early_gets_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "means.csv").write_text("x,y\n2,-2\n0,2\n")
    words = [sys.executable, "-m", "pasto", "solve", "means.csv", "--maximize", "x", "--keep", "y>=0"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()
        outcome = command.stderr.read()
    assert (command.returncode, outcome) == (1, "")
