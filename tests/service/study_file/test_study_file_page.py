"""Page docs/reference/study-file.md: its tables equal the parser's, and its files are studies.

`python tests/service/study_file/test_study_file_page.py` writes the tables.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pasto.service.study_file import EXAMPLE, FIELDS, parse_spec, read_document

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "study-file.md"
TABLE = re.compile(r"<!-- fields of (?P<section>.*?) -->\n(?P<table>(?:\|.*\n)+)")
TOP = "the file"


def section_of(path: str) -> str:
    return path.rpartition(".")[0] or TOP


def table_of(section: str) -> str:
    lines = ["| field | type | default | meaning | example |", "|---|---|---|---|---|"]
    for field in FIELDS:
        if section_of(field.path) == section:
            name = field.path.rpartition(".")[2]
            plain = field.default in ("required", "—", "one of two", "one of three") or (
                " " in field.default and field.default[0] not in "{["
            )
            default = field.default if plain else f"`{field.default}`"
            lines.append(f"| `{name}` | {field.kind.name} | {default} | {field.meaning} | `{field.example}` |")
    return "\n".join(lines) + "\n"


def test_the_page_has_every_field_as_the_parser_knows_it() -> None:
    tables = {found["section"]: found["table"] for found in TABLE.finditer(PAGE.read_text(encoding="utf-8"))}
    assert set(tables) == {section_of(field.path) for field in FIELDS}
    for section, table in tables.items():
        assert table == table_of(section), f"run {Path(__file__).name} as a program to update the tables"


def blocks() -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_begins_with_the_example_that_init_writes() -> None:
    assert blocks()[0] == EXAMPLE


@pytest.mark.parametrize("place", range(1, len(blocks())))
def test_the_pages_other_pieces_are_parts_of_study_files(place: int) -> None:
    piece = read_document(blocks()[place], "yaml")
    document = read_document(EXAMPLE, "yaml")
    for way in ("parameters", "candidates", "ranges"):
        if way in piece:
            del document["parameters"], document["traffic"]
            break
    if "metrics" in piece:
        piece["metrics"] = {**document["metrics"], **piece["metrics"]}
    parse_spec({**document, **piece})


def test_every_fields_example_is_yaml() -> None:
    for field in FIELDS:
        read_document(f"field: {field.example}", "yaml")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        TABLE.sub(lambda found: f"<!-- fields of {found['section']} -->\n{table_of(found['section'])}", text),
        encoding="utf-8",
    )
