"""Segments of study files: the attributes that are read, written back and refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from pasto.document_validation import ProblemList
from pasto.errors import StudyFileError
from pasto.objective import parse_keep
from pasto.service.study_file import EXAMPLE, build_json_schema, parse_spec, read_document
from pasto.service.study_file.segments import MAX_SEGMENT_CELLS, MAX_SEGMENTS, SEGMENTS, read_segments, write_segments
from pasto.study import Study
from pasto.study.segmented_study import SegmentedStudy
from pasto_sdk.enrolment import SegmentRule

ACTIVITY = {"attribute": "activity", "values": ["new", "casual", "regular", "heavy"]}
TENURE = {"attribute": "tenure_days", "cuts": [7, 30, 180]}
LEVEL = {"attribute": "level", "values": [1, 2.5]}
STAFF = {"attribute": "employee", "values": [True, False]}
SCHEMA = jsonschema_rs.Draft202012Validator({**SEGMENTS.schema, "$defs": build_json_schema()["$defs"]})


def document(**changes: Any) -> dict[str, Any]:
    return {**read_document(EXAMPLE, "yaml"), **changes}


def read(given: object) -> SegmentRule:
    problems = ProblemList()
    rule = read_segments(problems, "segments", given)
    assert problems.found == {}
    assert rule is not None
    return rule


@pytest.mark.parametrize(
    ("given", "written", "names"),
    [
        (ACTIVITY, ACTIVITY, ["new", "casual", "regular", "heavy"]),
        ({"activity": ACTIVITY["values"]}, ACTIVITY, ["new", "casual", "regular", "heavy"]),
        (
            {"tenure_days": [7, 30, 180]},
            TENURE,
            ["tenure_days below 7", "tenure_days 7 to 30", "tenure_days 30 to 180", "tenure_days from 180"],
        ),
        ({"balance": [-0.5]}, {"attribute": "balance", "cuts": [-0.5]}, ["balance below -0.5", "balance from -0.5"]),
        (LEVEL, LEVEL, ["level: 1", "level: 2.5"]),
        ({"employee": [True, False]}, STAFF, ["employee: true", "employee: false"]),
        (
            {"plan": ["free", "paid"], "tenure_days": [7]},
            [{"attribute": "plan", "values": ["free", "paid"]}, {"attribute": "tenure_days", "cuts": [7]}],
            [
                "free / tenure_days below 7",
                "free / tenure_days from 7",
                "paid / tenure_days below 7",
                "paid / tenure_days from 7",
            ],
        ),
        (
            [LEVEL, STAFF],
            [LEVEL, STAFF],
            [f"level: {level} / employee: {staff}" for level in ("1", "2.5") for staff in ("true", "false")],
        ),
        ({"attribute": ["a", "b"]}, {"attribute": "attribute", "values": ["a", "b"]}, ["a", "b"]),
    ],
)
def test_segments_are_read_and_written_in_one_form(given: Any, written: Any, names: list[str]) -> None:
    rule = read(given)
    assert list(rule.names) == names
    assert write_segments(rule) == written
    assert read(written) == rule
    SCHEMA.validate(given)
    SCHEMA.validate(written)


def test_a_stored_study_keeps_its_segments() -> None:
    spec = parse_spec(document(segments=[ACTIVITY, TENURE]), stored=True)
    assert spec.segments == read([ACTIVITY, TENURE])
    assert spec.document["segments"] == [ACTIVITY, TENURE]
    assert parse_spec(json.loads(json.dumps(spec.document)), stored=True) == spec


def test_a_study_without_segments_writes_none() -> None:
    spec = parse_spec(document())
    assert (spec.segments, "segments" in spec.document) == (None, False)


def test_units_are_in_the_segment_of_their_attributes() -> None:
    rule = read({"plan": ["free", "paid"], "tenure_days": [7, 30]})
    assert rule.find_segment({"plan": "paid", "tenure_days": 7}) == "paid / tenure_days 7 to 30"
    assert rule.find_segment({"plan": "paid", "tenure_days": 30}) == "paid / tenure_days from 30"
    assert rule.find_segment({"plan": "gold", "tenure_days": 30}) == "other"


VALUE_LIST = list(map(str, range(MAX_SEGMENTS)))


@pytest.mark.parametrize(
    ("segments", "field", "problem"),
    [
        ({}, "segments", "must be {attribute: activity, values: [new, heavy]}, lists by attribute"),
        ([], "segments", "must be {attribute: activity"),
        ("activity", "segments", "or a list of attributes, got 'activity'"),
        ([["activity"]], "segments", "or a list of attributes, got [['activity']]"),
        ({f"a{number}": [1] for number in range(33)}, "segments", "lists by attribute"),
        ({"attribute": "activity"}, "segments", "must have attribute, and either values or cuts"),
        ({**ACTIVITY, "cuts": [7]}, "segments", "must have attribute, and either values or cuts"),
        ({**ACTIVITY, "valeus": []}, "segments", "must have attribute, and either values or cuts"),
        ([ACTIVITY, {"values": ["a"]}], "segments[1].attribute", "must be text, got None"),
        ({"attribute": 7, "values": ["a"]}, "segments.attribute", "must be text, got 7"),
        ({"attribute": "", "values": ["a"]}, "segments.attribute", "must be 1 to 200 printable characters"),
        ({"targetingKey": ["a"]}, "segments.targetingKey", "which the clients use themselves; choose another"),
        ({"activity": []}, "segments.activity", "must list 1 to 49 values"),
        ({"activity": "new"}, "segments.activity", "must list 1 to 49 values, as in {attribute: activity"),
        ({"activity": VALUE_LIST}, "segments.activity", "must list 1 to 49 values"),
        ({"activity": ["new", None]}, "segments.activity", "must list texts, numbers or true and false"),
        ({"activity": ["new", 7]}, "segments.activity", "must list values of one type, got ['new', 7]; put texts in"),
        ({"activity": [True, 7]}, "segments.activity", "must list values of one type"),
        ({"activity": ["new", "new"]}, "segments.activity", "lists new twice; list each value once"),
        ({"attribute": "level", "values": [1, 1.0]}, "segments", "lists 1 twice"),
        ({"activity": ["new", "other"]}, "segments.activity", "lists 'other', the segment of all values that are not"),
        ({"activity": ["new", "a\nb"]}, "segments.activity", "printable characters"),
        ({"attribute": "level", "values": [1, 1e16]}, "segments", "must have numbers up to 1e+15"),
        ({"attribute": "level", "values": [10**400]}, "segments", "must have numbers up to 1e+15"),
        ({"tenure_days": [30, 7]}, "segments.tenure_days", "must have cuts that rise, got [30, 7]; write [7, 30]"),
        ({"tenure_days": [7, 7]}, "segments.tenure_days", "must have cuts that rise, got [7, 7]; write [7]"),
        ({"tenure_days": [7, float("nan")]}, "segments.tenure_days", "cuts that are numbers up to 1e+15"),
        ({"tenure_days": [7, 10**400]}, "segments.tenure_days", "cuts that are numbers up to 1e+15"),
        ({"attribute": "days", "cuts": [7, "30"]}, "segments", "cuts that are numbers up to 1e+15"),
        ({"attribute": "days", "cuts": [False, True]}, "segments", "cuts that are numbers"),
        ([ACTIVITY, ACTIVITY], "segments", "has the attribute 'activity' twice; give it once, with all its values"),
        ({"a": VALUE_LIST[:10], "b": [1, 2, 3, 4]}, "segments", "gives 51 segments with 'other', and 50 are the most"),
        ({"a": ["x" * 150, "y"], "b": ["z" * 60]}, "segments", "a name of 213 characters, and 200 are the most"),
        ({"activity": ["each", "new"]}, "segments", "gives a segment the name 'each', by which guardrails mean all"),
        ({"a": ["x", "x / y"], "b": ["y / z", "z"]}, "segments", "gives two segments the name 'x / y / z'"),
    ],
)
def test_segments_that_cannot_be_applied_are_refused(segments: Any, field: str, problem: str) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec(document(segments=segments), stored=True)
    assert problem in refused.value.problems[field]


def test_a_guardrail_can_name_a_segment() -> None:
    for name in read([STAFF, {"attribute": "tenure_days", "cuts": [7, 30]}]).names:
        assert parse_keep(f"likes >= 3, within={name}")["within"] == name


def test_as_many_segments_as_stated_are_taken() -> None:
    rule = read({"a": VALUE_LIST[:7], "b": [1, 2, 3, 4, 5, 6]})
    assert len(rule.names) + 1 == MAX_SEGMENTS


def test_segments_and_candidates_fit_into_a_policy_document() -> None:
    rows = [{"weight": number} for number in range(MAX_SEGMENT_CELLS // MAX_SEGMENTS + 1)]
    many = {"candidates": rows, "baseline": rows[0], "segments": {"a": VALUE_LIST[:49]}}
    small = {name: part for name, part in document(**many).items() if name != "parameters"}
    with pytest.raises(StudyFileError, match="50 segments, which with 1,001 candidates are 50,050 shares, and 50,000"):
        parse_spec(small, stored=True)
    parse_spec({**small, "candidates": rows[:-1]}, stored=True)


def test_the_study_learns_the_segments() -> None:
    rails = [{"metric": "like_rate", "at_least": "-2%"}, {"metric": "like_rate", "at_least": "-5%", "within": "each"}]
    spec = parse_spec(document(segments=ACTIVITY, guardrails=rails), stored=True)
    study = spec.build_study(seed=7)
    assert isinstance(study, SegmentedStudy)
    assert list(study.policy.segments) == [*ACTIVITY["values"], "other"]
    assert study.control_share == spec.traffic.control
    assert study.objective.names == ("like_rate", "like_rate within each")
    assert spec.document["learner"]["contrast"] is None
    assert Study.from_state(study.state()).policy == study.policy


@pytest.mark.parametrize("segment", ["each", "new", "other"])
def test_guardrails_within_segments_are_kept(segment: str) -> None:
    of_all = {"metric": "like_rate", "at_least": "-2%", "penalty": 5}
    rails = [of_all, {"metric": "like_rate", "at_least": "-5%", "within": segment}]
    spec = parse_spec(document(segments=ACTIVITY, guardrails=rails), stored=True)
    assert [rail.within for rail in spec.guardrails] == [None, segment]
    assert [rail.name for rail in spec.guardrails] == ["like_rate", f"like_rate within {segment}"]
    assert [rail.get("within") for rail in spec.document["guardrails"]] == [None, segment]
    assert parse_spec(spec.document, stored=True) == spec


@pytest.mark.parametrize(
    ("changes", "field", "problem"),
    [
        (
            {"guardrails": [{"metric": "like_rate", "at_least": "-2%", "within": "each"}]},
            "guardrails[0].within",
            "is 'each', and the study has no segments; leave it out, or give segments",
        ),
        (
            {"segments": ACTIVITY, "guardrails": [{"metric": "like_rate", "at_least": "-2%", "within": "haevy"}]},
            "guardrails[0].within",
            "names no segment: 'haevy'; did you mean 'heavy'?",
        ),
        (
            {"segments": ACTIVITY, "guardrails": [{"metric": "like_rate", "at_least": "-2%", "within": "each"}] * 2},
            "guardrails[1]",
            "is kept twice on the same side within 'each'",
        ),
        ({"segments": ACTIVITY, "learner": "scgd"}, "learner", "segments= needs learner='thompson', got 'scgd'"),
        (
            {"segments": ACTIVITY, "learner": {"name": "thompson", "contrast": "auto"}},
            "learner",
            "segments= does not go with Thompson(contrast='auto') yet; leave it out",
        ),
        ({"segments": ACTIVITY, "history": [{"like_weight": 1}]}, "segments", "cannot be given with history yet"),
    ],
)
def test_what_does_not_go_with_segments_is_refused(changes: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec(document(**changes), stored=True)
    assert problem in refused.value.problems[field]


def test_a_continuous_space_has_no_segments() -> None:
    ranges = {"ranges": {"weight": {"low": 0, "high": 2}}, "baseline": {"weight": 1}, "segments": ACTIVITY}
    with pytest.raises(StudyFileError, match="segments cannot be given with ranges yet; list the settings"):
        parse_spec({k: v for k, v in document(**ranges).items() if k != "parameters"}, stored=True)


def test_another_platform_has_no_segments() -> None:
    with pytest.raises(StudyFileError, match="segments cannot be given with assigned_by: external, because another"):
        parse_spec(document(segments=ACTIVITY, exposures={"assigned_by": "external"}), stored=True)


def test_tables_of_a_team_name_the_columns_of_the_attributes() -> None:
    exposures: dict[str, Any] = {"table": "seen", "unit": "user", "version": "policy"}
    plays = {"table": "plays", "unit": "user", "name": "event", "version": "policy"}
    source = {"from": "lake", "exposures": exposures, "events": [plays]}
    with pytest.raises(StudyFileError, match=r"names no column of 'activity', .* add attributes: \{activity: COLUMN\}"):
        parse_spec(document(segments=ACTIVITY, source=source), stored=True)
    exposures["attributes"] = {"activity": "kind"}
    assert parse_spec(document(segments=ACTIVITY, source=source), stored=True).segments == read(ACTIVITY)


@pytest.mark.parametrize("segments", [ACTIVITY, {"tenure_days": [7]}, {}, None])
def test_a_study_file_with_segments_is_refused(segments: Any) -> None:
    for is_running in (False, True):
        with pytest.raises(StudyFileError) as refused:
            parse_spec(document(segments=segments), running=is_running)
        assert "segments" in refused.value.problems
    if segments:
        sentence = "cannot be learned yet: a study has one blend for all units; leave segments out"
        assert refused.value.problems == {"segments": sentence}
