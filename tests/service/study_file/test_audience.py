"""Audiences of study files: the conditions that are read, written back and refused."""

from __future__ import annotations

from typing import Any

import pytest

from pasto.document_validation import ProblemList
from pasto.errors import StudyFileError
from pasto.service.study_file import EXAMPLE, parse_spec, read_document
from pasto.service.study_file.audience import MAX_ATTRIBUTES, read_audience, write_audience

AUDIENCES: list[dict[str, Any]] = [
    {"country": "de"},
    {"country": ["de", "at"], "tenure_days": ">= 7", "employee": False},
    {"tenure_days": ">= 7, < 30.5", "level": 3, "score": [0.5, 2]},
    {"temperature": "> -2.5, <= 40", "plan": ["> 1"]},
    {"balance": "< 100000000000000"},
]


@pytest.mark.parametrize("audience", AUDIENCES)
def test_what_was_read_is_written_as_it_was(audience: dict[str, Any]) -> None:
    document = {**read_document(EXAMPLE, "yaml"), "audience": audience}
    spec = parse_spec(document)
    assert spec.document["audience"] == audience
    assert parse_spec(spec.document, stored=True) == spec


def test_a_study_without_an_audience_writes_none() -> None:
    spec = parse_spec(read_document(EXAMPLE, "yaml"))
    assert (spec.audience, "audience" in spec.document) == ((), False)


@pytest.mark.parametrize(
    ("audience", "field", "problem"),
    [
        ({}, "audience", "must map 1 to 32 attributes to values"),
        (["de"], "audience", "must map 1 to 32 attributes"),
        ({f"a{number}": 1 for number in range(MAX_ATTRIBUTES + 1)}, "audience", "must map 1 to 32"),
        ({"country": []}, "audience.country", "a list has 1 to 1,000 values, got 0"),
        ({"country": None}, "audience.country", "must be a value, a list of values of one type, or a comparison"),
        ({"country": {"in": ["de"]}}, "audience.country", "must be a value"),
        ({"country": ["de", 7]}, "audience.country", "values of one type"),
        ({"level": [1, True]}, "audience.level", "values of one type"),
        ({"level": 1e16}, "audience.level", "numbers up to 1e+15"),
        ({"level": float("nan")}, "audience.level", "numbers up to 1e+15"),
        ({"days": ">= seven"}, "audience.days", "must compare with a number by <, <=, >, >="),
        ({"days": "== 7"}, "audience.days", "must compare with a number"),
        ({"days": ">= 7 < 9"}, "audience.days", "must compare with a number"),
        ({"days": "> 9, < 7"}, "audience.days", "which no number meets"),
        ({"override": "x"}, "audience.override", "cannot be given to the clients"),
        ({"": "x"}, "audience", "must be 1 to"),
    ],
)
def test_conditions_that_cannot_be_applied_are_refused(audience: Any, field: str, problem: str) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**read_document(EXAMPLE, "yaml"), "audience": audience})
    assert problem in refused.value.problems[field]


def test_equal_values_are_one() -> None:
    audience = read_audience(ProblemList(), "audience", {"country": ["de", "de"], "level": [1, 1.0]})
    assert audience is not None
    assert write_audience(audience) == {"country": "de", "level": 1}
