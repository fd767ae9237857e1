"""The numbered steps from an empty database to today's tables."""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import Final

from pasto.errors import StoreRefused

_WORDS: Final = {
    "sqlite": {
        "integer": "INTEGER",
        "real": "REAL",
        "json": "TEXT",
        "plain": "STRICT",
        "keyed": "STRICT, WITHOUT ROWID",
    },
    "postgres": {"integer": "BIGINT", "real": "DOUBLE PRECISION", "json": "JSONB", "plain": "", "keyed": ""},
}


def migrations(dialect: str) -> list[list[str]]:
    """The statements of each step, in order; the last step's number is the schema's version.

    >>> migrations("sqlite")[0][0].split()[:3]
    ['CREATE', 'TABLE', 'meta']
    """
    folder = resources.files("pasto.store") / "migrations"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    texts = [Template(file.read_text(encoding="utf-8")).substitute(_WORDS[dialect]) for file in files]
    return [_statements(text) for text in texts]


def pending(dialect: str, version: int, where: str) -> list[tuple[int, list[str]]]:
    """The numbered steps that a database of this version still needs; StoreRefused where it is ahead of the code."""
    steps = migrations(dialect)
    if version > len(steps):
        raise StoreRefused(
            f"{where} was written by a newer PASTO (its tables have version {version}, this PASTO knows {len(steps)}); "
            "install that version or a later one"
        )
    return list(enumerate(steps, start=1))[version:]


def _statements(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]
