"""Warm start of a study from earlier results: its file, its rounds, other nodes and replay."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pasto.blend import HistoryUse
from pasto.errors import StudyFileError
from pasto.service.service import Service
from pasto.service.study_file import parse_spec

Document = dict[str, Any]
ROWS = [
    {"w": 0, "units": 900, "watch": 6.0, "watch_se": 0.3, "likes": 0.4, "likes_se": 0.05},
    {"w": 1, "units": 900, "watch": 5.0, "watch_se": 0.3, "likes": 0.5, "likes_se": 0.05},
    {"w": 2, "units": 900, "watch": 4.0, "watch_se": 0.3, "likes": 0.8, "likes_se": 0.05},
]


@pytest.fixture
def warm(document: Document) -> Document:
    return {**document, "history": ROWS}


def test_the_history_is_a_part_of_the_document(warm: Document) -> None:
    spec = parse_spec(warm)
    assert spec.document["history"] == ROWS
    assert parse_spec(json.loads(json.dumps(spec.document))).document == spec.document
    assert spec.history is not None
    assert spec.build_study(7).policy != parse_spec({**warm, "history": [*ROWS[:2]]}).build_study(7).policy


def test_a_study_with_history_replays_and_shows_its_use(
    service: Service, warm: Document, traffic: Callable[[Service, int], list[dict[str, Any]]]
) -> None:
    assert service.create(warm, who="ann", seed=7).history == HistoryUse(3, 4, {})
    service.change("feed", "start", who="ann")
    for _ in range(3):
        service.ingest("feed", service.decode(json.dumps(traffic(service, 300)).encode())).result()
        service.close_round("feed", who="ann")
    history = service.show("feed").history
    assert history is not None
    assert history.listed == 3
    assert set(history.explained) == {"watch", "likes"}
    assert service.replay("feed").identical
    other = Service(service.store)
    assert other.show("feed").history == history
    assert other.replay("feed").identical


def test_another_history_is_another_study(service: Service, warm: Document, document: Document) -> None:
    service.create(warm, who="ann", seed=7)
    edited = service.edit("feed", document, who="ann")
    assert edited.history is None
    assert service.audit("feed", 0, 10)[-1].detail["changed"] == ["history"]


def test_columns_of_metrics_that_the_learner_does_not_use_are_left_out(warm: Document) -> None:
    warm["metrics"]["shares"] = {"event": "share", "aggregate": "count"}
    warm["history"] = [{**row, "shares": 0.1, "shares_se": 0.01} for row in ROWS]
    assert parse_spec(warm).document["history"] == ROWS


@pytest.mark.parametrize(
    ("history", "path", "message"),
    [
        ({}, "history", "must be a list of 1 to 10,000 rows such as {weight: 1, likes: 0.31}, got {}"),
        ([3], "history[0]", "must have a number, a text, true or false by column, got 3"),
        ([{"w": [1], "watch": 2.0}], "history[0]", "must have a number, a text, true or false by column"),
        ([{"w": 1, "watc": 2.0}], "history", "none of the metrics watch, likes"),
        ([{"w": 9, "watch": 2.0}], "history", "no row of the history is a candidate of this study"),
        ([{"candidate": "w=7", "watch": 2.0}], "history", "did you mean"),
    ],
)
def test_a_history_that_cannot_be_used_is_refused_by_its_field(
    document: Document, history: Any, path: str, message: str
) -> None:
    with pytest.raises(StudyFileError) as refused:
        parse_spec({**document, "history": history})
    assert message in refused.value.problems[path]


def test_a_ratio_is_given_by_its_two_means(document: Document) -> None:
    document["metrics"]["rate"] = {
        "ratio": [{"event": "like", "aggregate": "count"}, {"event": "view", "aggregate": "count"}]
    }
    document["guardrails"] = [{"metric": "rate", "at_least": "-2%"}]
    with pytest.raises(StudyFileError, match=r"columns rate\.numerator and rate\.denominator"):
        parse_spec({**document, "history": [{"w": 1, "watch": 2.0, "rate": 0.1}]})
    rows = [{"w": w, "rate.numerator": 0.1 + w / 100, "rate.denominator": 1.0 + w / 10} for w in range(3)]
    spec = parse_spec({**document, "history": rows})
    assert spec.history is not None
    assert spec.history.metrics == ("rate.numerator", "rate.denominator")


def test_other_learners_and_ranges_take_no_history(document: Document) -> None:
    document["guardrails"][0]["penalty"] = 1.0
    with pytest.raises(StudyFileError, match="history cannot be used: learner 'scgd' cannot start from a history"):
        parse_spec({**document, "learner": "scgd", "history": ROWS})
    del document["parameters"]
    document["ranges"] = {"w": {"low": 0, "high": 3}}
    with pytest.raises(StudyFileError, match="history cannot be used: a continuous space"):
        parse_spec({**document, "history": ROWS})
