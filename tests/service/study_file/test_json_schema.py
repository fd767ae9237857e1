"""JSON Schema of study files: the published copy is current, and it accepts and refuses as the parser does.

`python -m tests.service.study_file.test_json_schema` writes the published copy.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from click.testing import CliRunner
from hypothesis import given

from pasto.cli.main import main
from pasto.errors import StudyFileError
from pasto.service.study_file import EXAMPLE, FIELDS, build_json_schema, parse_spec, read_document
from pasto.sim.ads import ads
from pasto.sim.feed import feed
from pasto.sim.shop import shop
from tests.service.study_file.test_parser import documents
from tests.service.study_file.test_parser_upgrade import NEW, OLD

ROOT = Path(__file__).parents[3]
COPY = ROOT / "docs" / "reference" / "study-file.schema.json"
SCHEMA = build_json_schema()
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)


def written() -> str:
    return json.dumps(SCHEMA, indent=2, ensure_ascii=False) + "\n"


def test_the_published_copy_is_true() -> None:
    assert COPY.read_text(encoding="utf-8") == written(), f"run `python -m {__name__}` to write it again"


def test_the_command_prints_it() -> None:
    printed = CliRunner().invoke(main, ["study", "schema"])
    assert printed.exit_code == 0
    assert json.loads(printed.stdout) == SCHEMA


def test_it_is_a_json_schema_of_its_draft() -> None:
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema_rs.meta.validate(SCHEMA)


def yaml_files() -> dict[str, str]:
    """Return complete study files in YAML: the example, and those in the documentation and in examples/."""
    texts = {"pasto study init": EXAMPLE}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        for place, block in enumerate(blocks):
            if re.search(r"^name: ", block, re.MULTILINE):
                texts[f"{page.relative_to(ROOT)}:{place}"] = block
    for file in sorted((ROOT / "examples").glob("*.yaml")):
        texts[file.name] = file.read_text(encoding="utf-8")
    return texts


FILES = yaml_files()


def test_the_documented_files_are_found() -> None:
    assert len(FILES) >= 3
    assert any("quick-start" in name for name in FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_documented_study_file_is_valid(name: str) -> None:
    document = read_document(FILES[name], "yaml")
    VALIDATOR.validate(document)
    VALIDATOR.validate(json.loads(json.dumps(parse_spec(document).document)))


@pytest.mark.parametrize("build", [feed, ads, shop])
def test_the_demos_study_files_are_valid(build: Any) -> None:
    VALIDATOR.validate(json.loads(json.dumps(build().document)))


@pytest.mark.parametrize("field", list(FIELDS), ids=lambda field: field.path)
def test_every_fields_example_is_valid(field: Any) -> None:
    kind = {"$schema": SCHEMA["$schema"], **field.kind.schema, "$defs": SCHEMA["$defs"]}
    jsonschema_rs.Draft202012Validator(kind).validate(read_document(f"value: {field.example}", "yaml")["value"])


@given(documents)
def test_every_file_that_the_parser_takes_is_valid(document: dict[str, Any]) -> None:
    VALIDATOR.validate(document)
    VALIDATOR.validate(json.loads(json.dumps(parse_spec(document).document)))


def edited(**changes: Any) -> dict[str, Any]:
    document = {**read_document(EXAMPLE, "yaml"), **changes}
    return {name: value for name, value in document.items() if value is not None}


LIKES = {"event": "like"}
WRONG: dict[str, dict[str, Any]] = {
    "old words": OLD,
    "unknown field": edited(gaol={"maximize": "watch_time"}),
    "no name": edited(name=None),
    "name in capitals": edited(name="Feed"),
    "two ways to list candidates": edited(candidates=[{"like_weight": 1, "share_weight": 1}]),
    "no candidates": edited(parameters=None),
    "levels that are not a list": edited(parameters={"like_weight": 1}),
    "range without an end": edited(parameters=None, ranges={"like_weight": {"low": 0}}),
    "metric without an event": edited(metrics={"likes": {"cap": 3}}),
    "metric with event and ratio": edited(metrics={"likes": {**LIKES, "ratio": [LIKES, {"event": "view"}]}}),
    "ratio of one": edited(metrics={"likes": {"ratio": [LIKES]}}),
    "unknown aggregate": edited(metrics={"likes": {**LIKES, "aggregate": "avg"}}),
    "negative cap": edited(metrics={"likes": {**LIKES, "cap": -1}}),
    "unknown comparison": edited(metrics={"likes": {**LIKES, "where": {"a": {"like": "x"}}}}),
    "goal in both directions": edited(goal={"maximize": "watch_time", "minimize": "like_rate"}),
    "no goal": edited(goal=None),
    "weight of 0": edited(goal={"maximize": {"watch_time": 0}}),
    "guardrail without a side": edited(guardrails=[{"metric": "like_rate"}]),
    "guardrail without a metric": edited(guardrails=[{"at_least": "-2%"}]),
    "percentage without a sign": edited(guardrails=[{"metric": "like_rate", "at_least": "2%"}]),
    "guardrails by name": edited(guardrails={"metric": "like_rate", "at_least": "-2%"}),
    "share above 1": edited(traffic={"max_share": 30}),
    "share that is not a number": edited(traffic={"control": "ten"}),
    "duration without a number": edited(rounds={"every": "soon"}),
    "round of no time": edited(rounds={"every": 0}),
    "exposures that are not whole": edited(rounds={"exposures": 1.5}),
    "unknown learner": edited(learner="thomson"),
    "setting of no learner": edited(learner={"name": "thompson", "floor": 0.1}),
    "learner without a name": edited(learner={"draws": 3}),
    "confidence below a half": edited(confidence=0.4),
    "source without a place": edited(source={"exposures": {"table": "seen"}, "events": [{"table": "plays"}]}),
    "signed that is not a bool": edited(exposures={"signed": "yes"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_not_valid(name: str) -> None:
    assert not VALIDATOR.is_valid(WRONG[name])
    with pytest.raises(StudyFileError):
        parse_spec(WRONG[name])


def test_an_upgraded_document_is_valid() -> None:
    VALIDATOR.validate(NEW)


if __name__ == "__main__":
    COPY.write_text(written(), encoding="utf-8")
