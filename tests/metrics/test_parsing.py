"""Metric definitions: their parsing, and the errors of wrong ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import StudyFileError
from pasto.metrics import Column, Condition, parse_metrics
from pasto.metrics.definition_fields import METRIC_FIELDS, RATIO_FIELDS
from pasto.metrics.parsing import metric_document


def parse(**fields: Any) -> Column:
    return parse_metrics({"m": {"event": "e", **fields}})["m"].numerator


def test_missing_fields_take_their_defaults() -> None:
    assert parse() == Column("m", "e", None, "count")
    assert parse(value="x") == Column("m", "e", "x", "sum")
    assert parse(aggregate="any") == Column("m", "e", None, "any", 0.0, 1.0)
    assert parse(cap=5).high == 5.0
    assert parse(cap=5).low == 0.0
    assert parse(value="x", range=[-1, 2.5]) == Column("m", "e", "x", "sum", -1.0, 2.5)


def test_conditions_are_values_lists_or_comparisons() -> None:
    assert parse(where={"a": "home", "b": [1, True], "c": {">=": 2, "<": 9}, "d": {"!=": "x"}}).where == (
        Condition("a", "=", ("home",)),
        Condition("b", "in", (1.0, True)),
        Condition("c", ">=", (2.0,)),
        Condition("c", "<", (9.0,)),
        Condition("d", "!=", ("x",)),
    )


def test_halves_defined_alike_are_one_column() -> None:
    like, share, view = ({"event": name, "aggregate": "count"} for name in ("like", "share", "view"))
    metrics = parse_metrics({"likes": {"ratio": [like, view]}, "shares": {"ratio": [share, view]}})
    assert metrics["likes"].denominator is metrics["shares"].denominator
    assert [column.name for column in metrics["shares"].columns] == ["shares.numerator", "likes.denominator"]
    metrics = parse_metrics({"likes": {"ratio": [like, view]}, "views": view})
    assert [column.name for column in metrics["likes"].columns] == ["likes.numerator", "views"]
    metrics = parse_metrics({"likes": {"ratio": [like, {**view, "cap": 9}]}, "views": view})
    assert [column.name for column in metrics["likes"].columns] == ["likes.numerator", "likes.denominator"]


def test_windows_are_lengths_of_time() -> None:
    assert parse(window="2h").window == 7200.0
    halves = [{"event": "like", "window": 60}, {"event": "view"}]
    assert [column.window for column in parse_metrics({"m": {"ratio": halves}})["m"].columns] == [60.0, None]


def test_a_covariate_is_a_metrics_definition_over_another_time() -> None:
    like, view = {"event": "like", "cap": 5, "window": "1h"}, {"event": "view", "where": {"on": True}}
    metrics = parse_metrics(
        {
            "likes": {**like, "covariate": "7d"},
            "rate": {"ratio": [like, view], "covariate": {"lookback": "7d"}},
            "top": {"event": "play", "value": "x", "aggregate": "max", "cap": 9, "covariate": 3600},
            "views": {**view, "covariate": {"lookback": "1d", "metric": "likes", "cap": 100}},
        }
    )
    found = {name: metric.covariate for name, metric in metrics.items()}
    week = 604_800.0
    likes, rate, top, views = (one for one in found.values() if one is not None)
    assert likes.columns == (Column("likes.covariate", "like", None, "count", lookback=week),)
    assert rate.columns[0] is likes.columns[0]  # two equal definitions are measured once
    assert rate.columns[1].name == "rate.covariate.denominator"
    assert rate.columns[1].where == (Condition("on", "=", (True,)),)
    assert top.columns == (Column("top.covariate", "play", "x", "max", 0.0, 9.0, lookback=3600.0),)
    assert views.columns == (Column("views.covariate", "like", None, "count", 0.0, 100.0, lookback=86_400.0),)


WRONG: list[tuple[Any, str, str]] = [
    ({}, "metrics", "at least one metric"),
    (["watch"], "metrics", "at least one metric"),
    ({f"m{place}": {"event": "e"} for place in range(65)}, "metrics", "more than the 64"),
    ({"a b": {"event": "e"}}, "metrics.'a b'", "not a metric name"),
    ({"m.numerator": {"event": "e"}}, "metrics.'m.numerator'", "not a metric name"),
    ({3: {"event": "e"}}, "metrics.3", "not a metric name"),
    ({"m": "watch"}, "metrics.m", "mapping of fields"),
    ({"m": {}}, "metrics.m.event", "is missing"),
    ({"m": {"event": "e", "window": "soon"}}, "metrics.m.window", "must be a duration from 1s"),
    ({"m": {"event": "e", "window": 0}}, "metrics.m.window", "must be a duration from 1s"),
    ({"m": {"ratio": [{"event": "e"}, {"event": "f"}], "window": 9}}, "metrics.m.window", "cannot be given with ratio"),
    ({"m": {"event": "e", "covariate": "long"}}, "metrics.m.covariate.lookback", "must be a duration"),
    ({"m": {"event": "e", "covariate": {}}}, "metrics.m.covariate.lookback", "is missing; say how far back"),
    ({"m": {"event": "e", "covariate": {"lookback": "1d", "back": 1}}}, "metrics.m.covariate.back", "is not a field"),
    (
        {"m": {"event": "e", "covariate": {"lookback": "1d", "metric": "n"}}},
        "metrics.m.covariate.metric",
        "is not a metric of this study; there are m",
    ),
    (
        {"m": {"event": "e", "covariate": {"lookback": "1d", "metric": 3}}},
        "metrics.m.covariate.metric",
        "must be text",
    ),
    ({"m": {"event": "e", "covariate": {"lookback": "1d", "cap": 0}}}, "metrics.m.covariate.cap", "above 0"),
    (
        {"m": {"ratio": [{"event": "e"}, {"event": "f"}], "covariate": {"lookback": "1d", "cap": 4}}},
        "metrics.m.covariate.cap",
        "cannot bound m, which is a ratio",
    ),
    ({"m": {"event": ["e"]}}, "metrics.m.event", "an event's name"),
    ({"m": {"event": "e", "valu": "x"}}, "metrics.m.valu", "did you mean 'value'?"),
    ({"m": {"event": "e", "aggregate": "summ"}}, "metrics.m.aggregate", "did you mean 'sum'?"),
    ({"m": {"event": "e", "aggregate": "sum"}}, "metrics.m.value", "aggregate: sum needs"),
    ({"m": {"event": "e", "value": "x", "aggregate": "count"}}, "metrics.m.value", "aggregate: sum"),
    ({"m": {"event": "e", "value": "x", "aggregate": "last"}}, "metrics.m.by", "by which events are ordered"),
    ({"m": {"event": "e", "value": "x", "by": "at"}}, "metrics.m.by", "only read by aggregate: last"),
    ({"m": {"event": "e", "cap": 0}}, "metrics.m.cap", "above 0"),
    ({"m": {"event": "e", "cap": "many"}}, "metrics.m.cap", "must be a number"),
    ({"m": {"event": "e", "cap": float("inf")}}, "metrics.m.cap", "must be a number from"),
    ({"m": {"event": "e", "cap": 10**400}}, "metrics.m.cap", "must be a number from"),
    ({"m": {"event": "e", "cap": 10**5000}}, "metrics.m.cap", "thousands of digits"),
    ({"m": {"event": "e", "cap": True}}, "metrics.m.cap", "must be a number"),
    ({"m": {"event": "e", "cap": 1, "range": [0, 1]}}, "metrics.m.cap", "keep one"),
    ({"m": {"event": "e", "range": [1]}}, "metrics.m.range", "two numbers"),
    ({"m": {"event": "e", "range": [2, 1]}}, "metrics.m.range", "lowest number first"),
    ({"m": {"event": "e", "range": [1, 5]}}, "metrics.m.range", "must hold 0"),
    ({"m": {"event": "e", "range": [0, "5"]}}, "metrics.m.range[1]", "without quotes"),
    ({"m": {"event": "e", "where": "x = 1"}}, "metrics.m.where", "conditions by field"),
    ({"m": {"event": "e", "where": {"a b": 1}}}, "metrics.m.where.a b", "not a field name"),
    ({"m": {"event": "e", "where": {"a": {}}}}, "metrics.m.where.a", "no comparison"),
    ({"m": {"event": "e", "where": {"a": {"like": "x"}}}}, "metrics.m.where.a['like']", "must be one of = !="),
    ({"m": {"event": "e", "where": {"a": {"<": "x"}}}}, "metrics.m.where.a['<']", "must be a number"),
    ({"m": {"event": "e", "where": {"a": {"<": True}}}}, "metrics.m.where.a['<']", "with a number"),
    ({"m": {"event": "e", "where": {"a": []}}}, "metrics.m.where.a", "list of 1 to 32"),
    ({"m": {"event": "e", "where": {"a": None}}}, "metrics.m.where.a", "must compare with"),
    ({"m": {"event": "e", "where": {"a": "x\x00"}}}, "metrics.m.where.a", "must compare with"),
    ({"m": {"event": "e", "where": {f"f{place}": 1 for place in range(33)}}}, "metrics.m.where", "33 conditions"),
    ({"m": {"event": "e", "lower_is_better": "yes"}}, "metrics.m.lower_is_better", "true or false"),
    ({"m": {"ratio": [{"event": "e"}]}}, "metrics.m.ratio", "two definitions"),
    ({"m": {"ratio": [{"event": "e"}, {"event": "e"}]}}, "metrics.m.ratio", "always 1"),
    (
        {"m": {"ratio": [{"event": "e"}, {"event": "v", "evnt": "v"}]}},
        "metrics.m.ratio[1].evnt",
        "did you mean 'event'?",
    ),
    ({"m": {"ratio": [{"event": "e"}, {"event": "v"}], "cap": 1}}, "metrics.m.cap", "inside one of the ratio's halves"),
    (
        {"m": {"ratio": [{"event": "e"}, {"event": "v", "value": "x", "range": [-1, 1]}]}},
        "metrics.m.ratio[1].range",
        "negative",
    ),
    (
        {f"m{place}": {"event": "e", "where": {"a": [*range(32)], "b": [*range(32)]}} for place in range(16)},
        "metrics",
        "1,024 values in all",
    ),
]


@pytest.mark.parametrize(("document", "path", "message"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_an_error_names_the_place(document: Any, path: str, message: str) -> None:
    with pytest.raises(StudyFileError) as caught:
        parse_metrics(document)
    assert list(caught.value.problems) == [path]
    assert message in caught.value.problems[path]


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(StudyFileError) as caught:
        parse_metrics({"a": {"event": 1, "cap": -1}, "b": {"evnt": "x"}, "c": {"event": "fine"}})
    assert set(caught.value.problems) == {"metrics.a.event", "metrics.a.cap", "metrics.b.evnt", "metrics.b.event"}


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
sides: st.SearchStrategy[Any] = st.sampled_from([{}, {"cap": 10}, {"range": [-2.5, 7]}])
values = st.one_of(st.booleans(), st.integers(-99, 99), st.floats(-9, 9), st.sampled_from(["home", "a b", "ä"]))
tests = st.one_of(values, st.lists(values, min_size=1, max_size=3), st.fixed_dictionaries({">=": st.integers(0, 9)}))
wheres: st.SearchStrategy[Any] = st.dictionaries(names, tests, min_size=1, max_size=3).map(
    lambda where: {"where": where}
) | st.just({})
kinds = st.sampled_from(
    [
        *({"aggregate": kind} for kind in ("count", "any")),
        *({"aggregate": kind, "value": "x"} for kind in ("sum", "mean", "max")),
        {"aggregate": "last", "value": "x", "by": "at"},
        {},
        {"value": "y"},
    ]
)
windows: st.SearchStrategy[Any] = st.sampled_from([{}, {"window": 60}, {"window": "2h"}])
columns = st.builds(
    lambda event, *parts: {"event": event, **{k: v for p in parts for k, v in p.items()}},
    names,
    kinds,
    sides,
    wheres,
    windows,
)
pasts: st.SearchStrategy[Any] = st.sampled_from([{}, {"covariate": "7d"}, {"covariate": {"lookback": 60}}])
plain = st.builds(
    lambda column, lower, past: {**column, "lower_is_better": lower, **past}, columns, st.booleans(), pasts
)
ratios = st.tuples(columns, names, pasts).map(
    lambda parts: {"ratio": [parts[0], {"event": f"over_{parts[1]}"}], **parts[2]}
)


@given(st.dictionaries(names, plain | ratios, min_size=1, max_size=5))
def test_definitions_survive_being_written_down(document: Any) -> None:
    metrics = parse_metrics(document)
    written = json.loads(json.dumps({name: metric_document(metric) for name, metric in metrics.items()}))
    assert parse_metrics(written) == metrics


def test_every_field_is_one_a_column_or_a_metric_has() -> None:
    assert set(RATIO_FIELDS.names("metrics.NAME.ratio")) < set(METRIC_FIELDS.names("metrics.NAME"))
