"""SQL names: the names that a study file may use for metrics, candidates and columns."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from pasto.errors import StudyFileError
from pasto.service.study_file import parse_spec

DOCUMENT: dict[str, Any] = {
    "name": "feed",
    "baseline": {"w": 1},
    "parameters": {"w": [0, 1]},
    "metrics": {
        "watched": {
            "event": "watch",
            "value": "seconds",
            "aggregate": "last",
            "by": "at",
            "range": [0, 9],
            "where": {"surface": "home"},
        }
    },
    "goal": {"maximize": "watched"},
    "rounds": {"every": "1h"},
}
SOURCE: dict[str, Any] = {
    "from": "lake",
    "exposures": {"table": "seen", "unit": "unit", "version": "version", "candidate": "shown", "time": "moment"},
    "events": [{"table": "deeds", "unit": "unit", "name": "name", "time": "moment", "fields": {"seconds": "secs"}}],
}


def test_there_are_enough_of_them(payloads: list[str]) -> None:
    assert len(set(payloads)) == len(payloads) >= 60


def placed(path: tuple[Any, ...], payload: str, *, key: bool = False) -> dict[str, Any]:
    """Return the document with a payload at one place, as a value or as a key."""
    document = copy.deepcopy({**DOCUMENT, "source": SOURCE} if path[0] == "source" else DOCUMENT)
    spot: Any = document
    for step in path[:-1]:
        spot = spot[step]
    if key:
        spot[payload] = spot.pop(path[-1])
    else:
        spot[path[-1]] = payload
    return document


VALUES: list[tuple[Any, ...]] = [
    ("name",),
    ("unit",),
    ("metrics", "watched", "event"),
    ("metrics", "watched", "value"),
    ("metrics", "watched", "by"),
    ("metrics", "watched", "aggregate"),
    ("goal", "maximize"),
    ("source", "from"),
    ("source", "exposures", "table"),
    ("source", "events", 0, "table"),
]
KEYS: list[tuple[Any, ...]] = [("metrics", "watched"), ("metrics", "watched", "where", "surface")]


@pytest.mark.parametrize("path", VALUES, ids=str)
def test_what_becomes_a_name_in_a_study_file_is_a_plain_word(path: tuple[Any, ...], payloads: list[str]) -> None:
    for payload in payloads:
        try:
            parse_spec(placed(path, payload))
        except StudyFileError:
            continue
        assert all(letter.isalnum() or letter in "_.:/ -" for letter in payload), payload


@pytest.mark.parametrize("path", KEYS, ids=str)
def test_what_stands_before_a_colon_is_a_plain_word(path: tuple[Any, ...], payloads: list[str]) -> None:
    for payload in payloads:
        document = placed(path, payload, key=True)
        document["goal"] = {"maximize": next(iter(document["metrics"]))}
        try:
            parse_spec(document)
        except StudyFileError:
            continue
        assert all(letter.isalnum() or letter in "_.-" for letter in payload), payload


COLUMNS: list[tuple[Any, ...]] = [
    ("source", "exposures", "unit"),
    ("source", "exposures", "version"),
    ("source", "exposures", "candidate"),
    ("source", "exposures", "time"),
    ("source", "events", 0, "unit"),
    ("source", "events", 0, "name"),
    ("source", "events", 0, "time"),
    ("source", "events", 0, "fields", "seconds"),
]


@pytest.mark.parametrize("path", COLUMNS, ids=str)
def test_a_source_names_columns_in_printable_text(path: tuple[Any, ...], payloads: list[str]) -> None:
    for payload in payloads:
        try:
            spec = parse_spec(placed(path, payload))
        except StudyFileError:
            continue
        assert spec.source is not None
        assert payload.isprintable()
        assert len(payload) <= 63
