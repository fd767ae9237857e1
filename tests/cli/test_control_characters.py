"""Control characters in stored text do not reach the terminal."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

import pasto.cli
from pasto.cli.output import console, print_table

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\u202egnp.exe\u2066\u2028\r\nall is well"
"""Escape sequences in both forms, a bell, deletions, a line turned around, and a line of its own."""
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def forged(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with hostile text in every field, written without the service's checks."""
    for name in ("PASTO_STORE", "PASTO_URL", "PASTO_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    run("study", "init")
    assert run("study", "create", "study.yaml", "--start").exit_code == 0
    assert run("key", "create", "--name", "ann", "--scope", "read").exit_code == 0
    with closing(sqlite3.connect("pasto-data/pasto.db")) as store, store:
        store.execute("UPDATE audit_log SET who = ?, reason = ?", (EVIL, EVIL))
        store.execute("UPDATE api_keys SET name = ?", (EVIL,))
        store.execute("INSERT INTO rejections_by_reason VALUES (1, 'kind', ?, 7, 0)", (EVIL,))
        store.execute("INSERT INTO latest_exposures VALUES (1, ?, 1, 'learner', 0, 99)", (EVIL,))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("study", "audit", "feed"),
        ("study", "audit", "feed", "--json"),
        ("study", "show", "feed"),
        ("study", "show", "feed", "--json"),
        ("study", "list"),
        ("key", "list"),
        ("key", "list", "--json"),
        ("report", "feed"),
        ("store", "check"),
        ("study", "show", EVIL),
    ],
    ids=" ".join,
)
def test_commands_print_no_control_characters(run: Any, forged: Path, words: tuple[str, ...]) -> None:
    document = run(*words)
    assert RAW.findall(document.stdout + document.stderr) == []
    if words[1] in ("audit", "show", "check") or words[0] == "key":
        assert "[2J" in document.stdout + document.stderr, "the text itself is printed"
    if words[-1] == "--json" and words[1] in ("audit", "list"):
        assert EVIL in [value for line in json.loads(document.stdout) for value in line.values()]


def test_a_line_of_the_audit_log_stays_one_line(run: Any, forged: Path) -> None:
    printed = run("study", "audit", "feed", env={"COLUMNS": "60"}).stdout
    assert not [line for line in printed.splitlines() if line.startswith("all is well")]


def test_tables_titles_and_styled_texts_are_escaped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    screen = console()
    print_table(screen, [EVIL, "share"], [[EVIL, "1"]], title=EVIL)
    screen.print(Text.assemble(("bold ", "bold"), EVIL))
    screen.print(EVIL, EVIL)
    printed = capsys.readouterr().out
    assert RAW.findall(printed) == []
    assert printed.count("\\x1b[2J") == 6


def test_commands_print_through_the_output_module_only() -> None:
    """Check that no command calls `click.echo` or `print`, which write text to the terminal unchanged."""
    for file in Path(pasto.cli.__file__).parent.glob("*.py"):
        if file.name == "output.py":
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("click.echo", "click.secho", "print"), (
                    f"{file.name}:{node.lineno} prints by itself"
                )
