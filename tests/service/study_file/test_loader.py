"""Loader of study files: three formats, and protection against hostile files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from pasto.errors import StudyFileError
from pasto.service.study_file import EXAMPLE, load_spec, read_document, read_spec
from pasto.service.study_file.loader import MAX_BYTES, MAX_CHARACTERS, MAX_NODES, Kind


def test_the_example_is_a_study_without_warnings() -> None:
    spec = read_spec(EXAMPLE, "yaml")
    assert spec.warnings == ()
    study = spec.build_study(seed=1)
    assert len(study.candidates) == 9
    assert study.candidates[study.baseline or 0] == {"like_weight": 1, "share_weight": 1}
    assert max(map(len, EXAMPLE.splitlines())) <= 120


TOML = """
name = "feed"
baseline = {weight = 1}
parameters = {weight = [0, 1, 2]}
goal = {maximize = "likes"}
[metrics.likes]
event = "like"
cap = 50
[[guardrails]]
metric = "likes"
at_least = "-2%"
"""


def test_the_same_study_in_three_ways(tmp_path: Path) -> None:
    document = read_document(TOML, "toml")
    texts: dict[str, str] = {"toml": TOML, "json": json.dumps(document), "yaml": yaml.safe_dump(document)}
    specs = []
    for ending in ("toml", "json", "yaml"):
        file = tmp_path / f"study.{ending}"
        file.write_text(texts[ending], encoding="utf-8")
        specs.append(load_spec(file))
    (tmp_path / "study.yml").write_bytes(b"\xef\xbb\xbf" + texts["yaml"].encode())
    specs.append(load_spec(str(tmp_path / "study.yml")))
    assert all(spec == specs[0] for spec in specs)


LAUGHS = "a: &a [1, 1]\nb: &b [*a, *a]\nname: [*b, *b]\n"
UNREADABLE: list[tuple[Kind, str | bytes, str]] = [
    ("yaml", LAUGHS, "write it out"),
    ("yaml", "name: feed\nname: food\n", "'name' occurs twice (line 2)"),
    ("yaml", "traffic: {cap: 10%, cap: 20%}", "'cap' occurs twice"),
    ("yaml", "a: " + "[" * 40 + "]" * 40, "more than 16 deep"),
    ("yaml", "[" * 20_000, "more than 16 deep"),
    ("yaml", "{" * 20_000, "more than 16 deep"),
    ("yaml", "name: !!python/object/apply:os.system [id]", "could not determine a constructor"),
    ("yaml", "name: [", "cannot be read"),
    ("yaml", "name: feed\nmetrics:\n\twatch: 1\n", "line 3 has a tab, and YAML is indented with spaces; write spaces"),
    ("yaml", "a:\n  b: 1\n\tc: 2\n", "line 3 has a tab"),
    ("yaml", "a:\n - b\n -\tc\n", "line 3 has a tab"),
    ("yaml", "a: b: c\n", "mapping values are not allowed in this context at line 1, column 5"),
    ("yaml", "a:\t@x\n", "cannot start any token at line 1, column 4"),
    ("yaml", "a: 1\n---\nb: 2", "cannot be read"),
    ("yaml", "a: " + "9" * 5000, "cannot be read"),
    ("yaml", "just text", "must be a mapping of fields"),
    ("yaml", "", "must be a mapping of fields"),
    ("yaml", b"\xff\xfe\x00", "cannot be read"),
    ("json", '{"a": {"b": 1, "b": 2}}', "'b' occurs twice"),
    ("json", '{"a": NaN}', "NaN is not a number"),
    ("json", '{"a": -Infinity}', "-Infinity is not a number"),
    ("json", "[" * 100_000, "nested too deeply"),
    ("json", '{"a":' * 100_000, "nested too deeply"),
    ("json", "[1, 2]", "must be a mapping of fields"),
    ("json", "{", "cannot be read"),
    ("yaml", "? [a, b]\n: 1", "a name is a plain word, not a list or a mapping (line 1)"),
    ("yaml", "a: 1\n? {b: 1}\n: 1", "a name is a plain word, not a list or a mapping (line 2)"),
    ("yaml", "a: !!bool perhaps", "does not fit its tag"),
    ("yaml", "a: !!timestamp soon", "does not fit its tag"),
    ("json", r'{"baseline": {"\ud800": 1}, "parameters": {"\ud800": [1]}}', "surrogates not allowed"),
    ("toml", "a = ", "cannot be read"),
    ("toml", "a = " + "[" * 100_000, "nested too deeply"),
    ("toml", "a = 1\na = 2", "cannot be read"),
    ("yaml", "#" * (MAX_BYTES + 1), "over 4 MiB"),
    ("yaml", "#" * (MAX_CHARACTERS + 1), "may have 1,048,576 characters, got 1,048,577; write it as JSON"),
    ("toml", "#" * (MAX_CHARACTERS + 1), "may have 1,048,576 characters, got 1,048,577; write it as JSON"),
    ("yaml", f"name: [{'a,' * MAX_NODES}]", "may have 100,000 values and names, and has more; write it as JSON"),
    ("xml", "<study/>", "yaml, json or toml"),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("kind", "text", "message"), UNREADABLE, ids=[str(place) for place in range(len(UNREADABLE))])
def test_texts_that_are_no_study_file(kind: Any, text: str | bytes, message: str) -> None:
    with pytest.raises(StudyFileError) as caught:
        read_spec(text, kind)
    assert list(caught.value.problems) == [""]
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match=r"study\.txt must end in \.yaml"):
        load_spec(tmp_path / "study.txt")
    with pytest.raises(StudyFileError, match=r"No such file"):
        load_spec(tmp_path / "study.yaml")
    (tmp_path / "big.json").write_bytes(b" " * (MAX_BYTES + 2))
    with pytest.raises(StudyFileError, match="over 4 MiB"):
        load_spec(tmp_path / "big.json")
