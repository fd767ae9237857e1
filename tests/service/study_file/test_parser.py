"""Parser of study files: valid files, and the errors of wrong ones."""

from __future__ import annotations

import contextlib
import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pasto
from pasto.errors import StudyFileError
from pasto.optimize.learners import LEARNERS, Algorithm1, Scgd, Thompson
from pasto.service.study_file import FIELDS, GuardrailLevel, RoundsSpec, StudySpec, TrafficSpec, parse_spec
from pasto.service.study_file.schema import learner_settings

Document = dict[str, Any]


def study(**fields: Any) -> Document:
    """Return a small valid study file with some fields replaced; None removes a field."""
    document: Document = {
        "name": "feed",
        "baseline": {"like": 1, "share": 0},
        "parameters": {"like": [0, 1, 2], "share": [0, 1]},
        "metrics": {
            "watch": {"event": "watch", "value": "seconds", "cap": 7200},
            "likes": {"event": "like", "cap": 50},
            "like_rate": {"ratio": [{"event": "like", "cap": 50}, {"event": "view", "cap": 500}]},
        },
        "goal": {"maximize": "watch"},
    }
    document.update(fields)
    return {key: value for key, value in document.items() if value is not None}


def test_missing_fields_take_their_defaults() -> None:
    spec = parse_spec(study())
    assert (spec.unit, spec.description, spec.confidence, spec.expires_after) == ("user", "", 0.95, 86_400.0)
    assert spec.deploy_rounds == 180 * 24
    assert (spec.traffic, spec.rounds, spec.guardrails) == (TrafficSpec(), RoundsSpec(), ())
    assert spec.learner == Thompson(contrast="auto")
    assert isinstance(spec.candidates, pasto.Candidates)
    assert len(spec.candidates) == 6
    assert spec.baseline == {"like": 1, "share": 0}
    assert spec.warnings == ()


def test_every_field_of_a_file_is_read() -> None:
    spec = parse_spec(
        study(
            unit="session",
            description="Two weights.\nOf a feed.",
            goal={"minimize": {"watch": 1, "likes": -0.5}},
            guardrails=[
                {"metric": "like_rate", "at_least": "-2%", "penalty": 5, "loss_budget": "1%", "stop_at": "-5%"}
            ],
            traffic={
                "control": "20%",
                "explore": 0.5,
                "min_share": "2%",
                "max_share": "30%",
                "new_candidate_share": "1%",
            },
            rounds={"every": "30m", "maturity": "2h", "accept_late": "2d"},
            learner={"name": "thompson", "draws": 16, "half_life": 48, "structure": "independent", "contrast": None},
            confidence="99%",
            deploy_for="90d",
            expires_after="6h",
        )
    )
    assert spec.objective == pasto.minimize({"watch": 1, "likes": -0.5}).keep(
        pasto.ratio("likes", "like_rate.denominator", name="like_rate"), at_least="-2%", penalty=5
    )
    (rail,) = spec.guardrails
    assert (rail.name, rail.at, rail.loss_budget, rail.stop_at) == (
        "like_rate",
        GuardrailLevel(-2, True),
        1.0,
        GuardrailLevel(-5, True),
    )
    assert spec.traffic == TrafficSpec(0.2, 0.5, (), 3, 0.02, 0.3, 0.01)
    assert spec.rounds == RoundsSpec(1800.0, None, 7200.0, 172_800.0)
    assert spec.learner == Thompson(draws=16, half_life=48, structure="independent", floor=0.02)
    assert (spec.unit, spec.confidence, spec.expires_after) == ("session", 0.99, 21_600.0)
    assert (spec.deploy_for, spec.deploy_rounds) == (90 * 86_400.0, 90 * 48)


def test_columns_begin_with_the_objectives_in_its_order() -> None:
    metrics = {name: {"event": name, "cap": 9} for name in ("a", "b", "c", "d")}
    spec = parse_spec(study(metrics=metrics, goal={"maximize": "c"}, guardrails=[{"metric": "b", "at_least": 1}]))
    assert [column.name for column in spec.columns] == ["c", "b", "a", "d"]
    assert spec.objective.metrics == ("c", "b")


def timed(**changes: Any) -> Document:
    """Return a study file with a window, a covariate of a ratio, and one of another metric."""
    metrics = study()["metrics"]
    return {
        "watch": {**metrics["watch"], "window": "2h", "covariate": {"lookback": "7d", "metric": "likes", "cap": 99}},
        "likes": metrics["likes"],
        "like_rate": {**metrics["like_rate"], "covariate": "1d"},
        **changes,
    }


def test_covariates_are_measured_after_the_columns() -> None:
    spec = parse_spec(study(metrics=timed(), rounds={"every": "1h", "maturity": "2h"}))
    plain = parse_spec(study())
    assert [column.name for column in spec.columns] == [column.name for column in plain.columns]
    assert [(column.name, column.lookback) for column in spec.covariates] == [
        ("watch.covariate", 604_800.0),
        ("like_rate.covariate.numerator", 86_400.0),
        ("like_rate.covariate.denominator", 86_400.0),
    ]
    assert spec.measured_columns == (*spec.columns, *spec.covariates)
    assert parse_spec(spec.document) == spec
    once = parse_spec(study(metrics=timed(), rounds={"every": "1h", "maturity": "2h"}, unit="request"))
    assert "a request that comes once has no past" in " ".join(once.warnings)


SOURCE: Document = {"from": "lake", "exposures": {"table": "seen"}, "events": [{"table": "deeds", "version": "policy"}]}


def test_windows_end_before_a_round_is_learned_and_tables_need_a_time_column() -> None:
    with pytest.raises(StudyFileError) as caught:
        parse_spec(study(metrics=timed(), rounds={"every": "1h", "maturity": "90m"}))
    assert caught.value.problems == {
        "metrics.watch.window": "of 2h is longer than rounds.maturity of 90min: units that come at a round's end would "
        "be measured before their window is over; raise rounds.maturity to 2h, or shorten the window"
    }
    late = {"ratio": [{"event": "like"}, {"event": "view", "window": "3h"}]}
    with pytest.raises(StudyFileError, match=r"metrics.like_rate.ratio\[1\].window of 3h is longer"):
        parse_spec(study(metrics=timed(like_rate=late), rounds={"maturity": "2h"}))
    with pytest.raises(StudyFileError) as caught:
        parse_spec(study(metrics=timed(), rounds={"maturity": "2h"}, source=SOURCE))
    assert set(caught.value.problems) == {"source.exposures.time", "source.events[0].time"}
    assert "metrics.watch.window needs the time of events" in str(caught.value)
    exposures, events = {**SOURCE["exposures"], "time": "at"}, [{**SOURCE["events"][0], "time": "at"}]
    parse_spec(
        study(
            metrics=timed(),
            rounds={"maturity": "2h"},
            source={"from": "lake", "exposures": exposures, "events": events},
        )
    )


def test_a_spec_makes_the_study_it_states() -> None:
    spec = parse_spec(
        study(
            guardrails=[{"metric": "likes", "at_least": 1, "loss_budget": 0.2}, {"metric": "likes", "at_most": 9}],
            traffic={"control": "20%", "max_share": "50%", "new_candidate_share": "5%"},
            confidence=0.9,
        )
    )
    made = spec.build_study(seed=11)
    assert made.seed == 11
    assert made.control_share == 0.2
    assert made.baseline == 2
    assert made.state()["limits"] == {
        "confidence": 0.9,
        "max_share": 0.5,
        "new_candidate_share": 0.05,
        "loss_budget": {"likes (at least)": 0.2},
    }
    assert spec.build_study(seed=11).state() == made.state()


def test_exposures_are_signed_only_if_the_file_requires_it() -> None:
    assert not parse_spec(study()).signed
    unsigned = parse_spec(study(exposures={"signed": False}))
    assert unsigned.document == parse_spec(study()).document
    signed = parse_spec(study(exposures={"signed": True}))
    assert signed.signed
    assert parse_spec(signed.document, stored=True) == signed
    with pytest.raises(StudyFileError, match=r"exposures\.signed must be true or false, got 'yes'"):
        parse_spec(study(exposures={"signed": "yes"}))
    source = {"from": "lake", "exposures": {"table": "seen"}, "events": [{"table": "plays", "version": "policy"}]}
    with pytest.raises(StudyFileError, match=r"exposures\.signed cannot be checked in tables of your own"):
        parse_spec(study(exposures={"signed": True}, source=source))


def test_three_ways_to_say_what_may_be_served() -> None:
    rows = [{"like": 1, "share": 0}, {"name": "bold", "values": {"like": 9, "share": 1}}]
    spec = parse_spec(study(parameters=None, candidates=rows))
    assert isinstance(spec.candidates, pasto.Candidates)
    assert spec.candidates.names == ("like=1,share=0", "bold")
    assert parse_spec(study(parameters=None, candidates=rows, baseline="bold")).baseline == {"like": 9, "share": 1}
    ranges = {"like": {"low": 0, "high": 2}, "share": {"low": 0, "high": 3, "integer": True}, "mode": ["a", "b"]}
    baseline = {"like": 1, "share": 0, "mode": "a"}
    spec = parse_spec(study(parameters=None, ranges=ranges, baseline=baseline, constraints=["like + share <= 4"]))
    assert spec.candidates == pasto.Space("like + share <= 4", like=(0, 2), share=pasto.Integer(0, 3), mode=["a", "b"])
    assert spec.learner == Thompson(structure="process")
    assert spec.build_study(seed=3).candidates[0] == baseline
    limited = parse_spec(study(constraints=["like + share <= 2"]))
    assert isinstance(limited.candidates, pasto.Candidates)
    assert len(limited.candidates) == 5


def test_contrasts_are_learned_if_the_control_is_large_enough() -> None:
    def contrast(**fields: Any) -> str | None:
        learner = parse_spec(study(**fields)).learner
        assert isinstance(learner, Thompson)
        return learner.contrast

    many = {"like": list(range(501)), "share": [0]}
    assert contrast() == "auto"
    assert contrast(traffic={"control": 0}) is None
    assert contrast(parameters=many) is None
    assert contrast(parameters={**many, "like": list(range(500))}) == "auto"
    assert contrast(learner={"name": "thompson", "contrast": None}) is None
    assert contrast(learner={"name": "thompson", "contrast": "percent"}) == "percent"


def test_the_papers_learners_keep_their_schedules() -> None:
    assert parse_spec(study(learner="algorithm1")).learner == Algorithm1()
    assert parse_spec(study(learner={"name": "scgd", "step": 0.01})).learner == Scgd(step=0.01)
    spec = parse_spec(study(learner="algorithm1", traffic={"min_share": "5%"}))
    assert isinstance(spec.learner, Algorithm1)
    assert spec.learner.floor.at(1) == spec.learner.floor.at(1000) == 0.05


FLOORS: list[tuple[Document, GuardrailLevel, float]] = [
    ({"at_least": "-2%"}, GuardrailLevel(-2, True), 0.0),
    ({"at_least": 3}, GuardrailLevel(3, False), 0.0),
    ({"at_least": "-2%", "penalty": 5}, GuardrailLevel(-4, True), 2.0),
    ({"at_least": "-0.5%", "penalty": 5}, GuardrailLevel(-1.5, True), 1.0),
    ({"at_least": 3, "penalty": 5}, GuardrailLevel(2.7, False), 0.3),
    ({"at_most": 3, "penalty": 5}, GuardrailLevel(3.3, False), 0.3),
    ({"at_most": "+2%", "penalty": 5, "tolerance": "3%"}, GuardrailLevel(5, True), 3.0),
    ({"at_least": "-2%", "tolerance": "1%"}, GuardrailLevel(-3, True), 1.0),
    ({"at_least": "-2%", "stop_at": 7}, GuardrailLevel(7, False), 0.0),
    ({"at_least": "-2%", "stop_at": "-2%"}, GuardrailLevel(-2, True), 0.0),
]


@pytest.mark.parametrize(("rail", "floor", "tolerance"), FLOORS, ids=[str(place) for place in range(len(FLOORS))])
def test_the_pause_threshold_is_given_or_a_tolerance_away(
    rail: Document, floor: GuardrailLevel, tolerance: float
) -> None:
    (made,) = parse_spec(study(guardrails=[{"metric": "likes", **rail}])).guardrails
    assert made.stop_at.relative == floor.relative
    assert made.stop_at.number == pytest.approx(floor.number)
    assert made.tolerance == pytest.approx(tolerance)


def rails(*given_: Document) -> Document:
    return study(guardrails=[{"metric": "likes", **rail} for rail in given_])


WRONG: list[tuple[Any, str, str]] = [
    (study(name=None), "name", "is missing"),
    (study(name="Feed"), "name", "up to 63 of a-z"),
    (study(name="a" * 64), "name", "up to 63 of a-z"),
    (study(name="feed\n"), "name", "up to 63 of a-z"),
    (study(name=7), "name", "up to 63 of a-z"),
    (study(unit="two words"), "unit", "one word"),
    (study(description="x" * 2001), "description", "2,000 characters"),
    (study(description="x\x00"), "description", "printable"),
    (study(gaol={}), "gaol", "did you mean 'goal'?"),
    ({**study(), 3: 1}, "3", "is not a field here"),
    (study(baseline=None), "baseline", "is missing"),
    (study(baseline={"like": 3, "share": 0}), "baseline", "no candidate has like=3; it takes 0, 1, 2"),
    (study(baseline={"like": 1}), "baseline", "lacks 'share'"),
    (study(baseline={"like": True, "share": 0}), "baseline", "no candidate has like=True"),
    (study(baseline="like=1"), "baseline", "did you mean 'like="),
    (study(baseline=[1]), "baseline", "mapping by parameter"),
    (study(parameters=None), "parameters", "is needed once"),
    (study(candidates=[{"like": 1}]), "candidates", "got parameters and candidates"),
    (study(parameters={}), "parameters", "mapping by parameter"),
    (study(parameters={"like": 1}), "parameters.like", "list of 1 to 10,000 values"),
    (study(parameters={"like": []}), "parameters.like", "list of 1 to 10,000 values"),
    (study(parameters={"like": [0, None]}), "parameters.like[1]", "must be a number"),
    (study(parameters={"like": [0, float("nan")]}), "parameters.like[1]", "must be a number"),
    (study(parameters={"like": [0, ""]}), "parameters.like[1]", "printable characters"),
    (study(parameters={"like": [0, 0]}), "parameters", "listed twice"),
    (study(parameters={"like": [0, True]}), "parameters", "mixes True or False"),
    (study(parameters={"x" * 201: [0]}), f"parameters.{'x' * 201}", "1 to 200 printable"),
    (study(parameters={"a\n": [0]}), "parameters.a\n", "1 to 200 printable"),
    (study(parameters={True: [0]}), "parameters.True", "must be text"),
    (study(parameters={f"p{k}": [0] for k in range(65)}), "parameters", "more than 64"),
    (study(parameters={"a": [*range(1000)], "b": [*range(1000)]}), "parameters", "1,000,000 candidates"),
    (study(parameters={"a": ["x" * 150], "b": ["y" * 60]}), "parameters", "shorten the parameters' names"),
    (study(constraints=["like + share <="]), "parameters", "like + share <="),
    (study(constraints="like <= 1"), "constraints", "list of constraints"),
    (study(parameters=None, candidates=[]), "candidates", "1 to 10,000 rows"),
    (study(parameters=None, candidates=[{"w": k} for k in range(10_001)]), "candidates", "got 10,001 rows"),
    (study(parameters=None, candidates=[{"like": 1}, {"lik": 2}]), "candidates", "row 1 lacks 'like'"),
    (study(parameters=None, candidates=[{"like": [1]}]), "candidates[0].like", "must be a number"),
    (study(parameters=None, candidates=[{"name": "", "values": {"w": 1}}]), "candidates[0].name", "printable"),
    (study(parameters=None, candidates=[{"w": "x" * 199}]), "candidates", "give each candidate a name"),
    (study(parameters=None, candidates=[{"w": 1}], constraints=["w <= 1"]), "constraints", "leave it out"),
    (study(parameters=None, ranges={"like": {"low": 0}}), "ranges.like.high", "is missing"),
    (study(parameters=None, ranges={"like": {"low": 2, "high": 1}}), "ranges.like", "lower number to a higher"),
    (study(parameters=None, ranges={"like": {"low": 0.5, "high": 2, "integer": True}}), "ranges.like", "whole number"),
    (
        study(parameters=None, ranges={"like": {"low": 0, "high": 2, "integer": 1}}),
        "ranges.like.integer",
        "true or false",
    ),
    (study(parameters=None, ranges={"like": {"low": 0, "high": 2, "step": 1}}), "ranges.like.step", "not a field here"),
    (study(parameters=None, ranges={"like": 3}), "ranges.like", "mapping of fields"),
    (study(parameters=None, ranges={"like": (0, 1), "share": (5, 6)}), "baseline", "lies outside the ranges"),
    (study(parameters=None, ranges={"p" * 190: {"low": 0, "high": 2}}), "ranges", "shorten the parameters' names"),
    (study(metrics=None), "metrics", "is missing"),
    (study(metrics={"watch": {"event": "w", "cap": -1}}), "metrics.watch.cap", "above 0"),
    (study(goal=None), "goal", "is missing"),
    (study(goal="watch"), "goal", "write {maximize: watch}"),
    (study(goal=["watch"]), "goal", "mapping of fields"),
    (study(parameters={"like": {"low": 0, "high": 2}}), "parameters.like", "write a range under ranges:"),
    (study(goal={}), "goal", "either maximize or minimize"),
    (study(goal={"maximize": "watch", "minimize": "likes"}), "goal", "one of them only"),
    (study(goal={"maximise": "watch"}), "goal.maximise", "did you mean 'maximize'?"),
    (study(goal={"maximize": "wach"}), "goal.maximize", "did you mean 'watch'?"),
    (study(goal={"maximize": ["watch"]}), "goal.maximize", "names no metric"),
    (study(goal={"maximize": {}}), "goal.maximize", "names no metric"),
    (study(goal={"maximize": {"watch": 0}}), "goal.maximize.watch", "weight 0"),
    (study(goal={"maximize": {"watch": "1"}}), "goal.maximize.watch", "must be a number"),
    (study(goal={"maximize": {"like_rate": 1}}), "goal.maximize.like_rate", "maximize: like_rate"),
    (study(guardrails={"metric": "likes"}), "guardrails", "must be a list"),
    (study(guardrails=["likes"]), "guardrails[0]", "mapping of fields"),
    (study(guardrails=[{"metric": "likes"}] * 65), "guardrails", "at most 64"),
    (study(guardrails=[{"at_least": 1}]), "guardrails[0].metric", "is missing"),
    (study(guardrails=[{"metric": "like", "at_least": 1}]), "guardrails[0].metric", "did you mean 'likes'?"),
    (rails({}), "guardrails[0]", "either at_least or at_most"),
    (rails({"at_least": 1, "at_most": 2}), "guardrails[0]", "either at_least or at_most"),
    (rails({"at_least": "2%"}), "guardrails[0].at_least", "could mean a rise or a fall"),
    (rails({"at_least": "two"}), "guardrails[0].at_least", "signed percentage"),
    (rails({"at_least": 1, "penalty": 0}), "guardrails[0].penalty", "above 0"),
    (rails({"at_least": 1, "penalty": "5"}), "guardrails[0].penalty", "without quotes"),
    (rails({"at_least": 1, "loss_budget": "1%"}), "guardrails[0].loss_budget", "metric's own units"),
    (rails({"at_least": "-2%", "loss_budget": 1}), "guardrails[0].loss_budget", "such as '1%'"),
    (rails({"at_least": "-2%", "loss_budget": "-1%"}), "guardrails[0].loss_budget", "such as '1%'"),
    (rails({"at_least": "-2%", "stop_at": "-1%"}), "guardrails[0].stop_at", "at or below -2%"),
    (rails({"at_most": 5, "stop_at": 4}), "guardrails[0].stop_at", "at or above 5"),
    (rails({"at_least": 1}, {"at_least": 2}), "guardrails[1]", "kept twice"),
    (rails({"at_leest": 1, "at_least": 1}), "guardrails[0].at_leest", "did you mean 'at_least'?"),
    (
        {**rails({"at_least": 1, "penalty": 1}), "goal": {"maximize": "like_rate"}},
        "guardrails[0]",
        "ratio goal takes hard guardrails only",
    ),
    (study(traffic=[]), "traffic", "mapping of fields"),
    (study(traffic={"contrl": 0.1}), "traffic.contrl", "did you mean 'control'?"),
    (study(traffic={"control": 1}), "traffic.control", "to below 1"),
    (study(traffic={"explore": 0}), "traffic.explore", "above 0"),
    (study(traffic={"max_share": 30}), "traffic.max_share", "write '30%'"),
    (study(traffic={"max_share": "10%"}), "traffic.max_share", "Raise it to at least 0.1667"),
    (study(rounds={"every": "0s"}), "rounds.every", "from 1s"),
    (study(rounds={"every": "1h", "exposures": 9}), "rounds.exposures", "keep one"),
    (study(rounds={"exposures": 0}), "rounds.exposures", "whole number"),
    (study(rounds={"exposures": 1.5}), "rounds.exposures", "whole number"),
    (study(rounds={"maturity": "soon"}), "rounds.maturity", "must be a duration"),
    (study(rounds={"every": "1m", "maturity": "500m"}), "rounds.maturity", "shorten it to 29940 s"),
    (study(rounds={"accept_late": "never"}), "rounds.accept_late", "must be a duration"),
    (study(rounds={"every": "1m", "accept_late": "500m"}), "rounds.accept_late", "shorten it to 29940 s"),
    (study(learner="thomson"), "learner", "did you mean 'thompson'?"),
    (study(learner={"draws": 3}), "learner.name", "must be one of thompson"),
    (study(learner={"name": "thompson", "floor": 0.1}), "learner.floor", "traffic.min_share"),
    (study(learner={"name": "thompson", "step": 1}), "learner.step", "there are draws"),
    (study(learner={"name": "thompson", "draws": 2.5}), "learner.draws", "whole number"),
    (study(learner={"name": "thompson", "half_life": "x"}), "learner.half_life", "must be a number"),
    (study(learner={"name": "thompson", "half_life": 0}), "learner.half_life", "above 0"),
    (study(learner={"name": "thompson", "structure": "tree"}), "learner.structure", "auto, independent, process"),
    (study(learner={"name": "thompson", "contrast": ["x"]}), "learner.contrast", "difference, percent, null"),
    (study(learner="algorithm1", traffic={"max_share": "30%"}), "learner", "knows no caps"),
    ({**rails({"at_least": 1}), "learner": "algorithm1"}, "learner", "has none; give that guardrail a penalty="),
    (study(confidence=0.4), "confidence", "from 0.5 to below 1"),
    (study(confidence="100%"), "confidence", "from 0.5 to below 1"),
    (study(expires_after=0), "expires_after", "from 1s"),
    (study(deploy_for="soon"), "deploy_for", "must be a duration from 1s"),
]


@pytest.mark.parametrize(("document", "path", "message"), WRONG, ids=[str(place) for place in range(len(WRONG))])
def test_an_error_names_the_place(document: Any, path: str, message: str) -> None:
    with pytest.raises(StudyFileError) as caught:
        parse_spec(document)
    assert path in caught.value.problems
    assert message in caught.value.problems[path]
    assert len(caught.value.problems[path]) < 500
    others = set(caught.value.problems) - {path, "baseline", "constraints", "parameters"}
    assert not others


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(StudyFileError) as caught:
        parse_spec(
            {
                **study(name="Feed", unit=3, traffic={"max_share": 7}, rounds={"every": -1}, learner="x", confidence=2),
                "parameters": {"like": [None]},
                "baseline": None,
                "metrics": {"m": {}},
                "goals": 1,
                "expires_after": 0,
                "guardrails": [{"metric": "m", "at_least": "2%"}],
            }
        )
    assert set(caught.value.problems) == {
        *("goals", "name", "unit", "parameters.like[0]", "baseline", "metrics.m.event", "guardrails[0].at_least"),
        *("traffic.max_share", "rounds.every", "learner", "confidence", "expires_after"),
    }


@pytest.mark.parametrize("document", [None, 3, "feed", [], [1]])
def test_what_is_no_document_at_all(document: Any) -> None:
    with pytest.raises(StudyFileError, match="must be a mapping of fields"):
        parse_spec(document)


BASE = study()
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1%", "-2%", "1h"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
spots = st.sampled_from(
    [
        *((field,) for field in FIELDS.names("")),
        *(("metrics", "watch", field) for field in FIELDS.names("metrics.NAME")),
        *(("guardrails", 0, field) for field in FIELDS.names("guardrails")),
        *(("traffic", field) for field in FIELDS.names("traffic")),
        *(("rounds", field) for field in FIELDS.names("rounds")),
        *(("learner", field) for field in FIELDS.names("learner")),
        *(("ranges", "like", field) for field in FIELDS.names("ranges.NAME")),
    ]
)


@settings(max_examples=300, deadline=None)
@given(spots, json_values)
def test_nothing_but_a_spec_or_its_problems_comes_out(spot: tuple[Any, ...], value: Any) -> None:
    document = copy.deepcopy(BASE)
    document.update(
        {
            "guardrails": [{"metric": "likes", "at_least": 1}],
            "traffic": {},
            "rounds": {},
            "learner": {"name": "thompson"},
        }
    )
    if spot[0] == "ranges":
        del document["parameters"]
        document["ranges"] = {"like": {"low": 0, "high": 2}, "share": {"low": 0, "high": 1}}
    inner: Any = document
    for step in spot[:-1]:
        inner = inner[step]
    inner[spot[-1]] = value
    with contextlib.suppress(StudyFileError):
        spec = parse_spec(document)
        assert parse_spec(json.loads(json.dumps(spec.document, allow_nan=False))) == spec


shares = st.integers(1, 99).map(lambda percent: f"{percent}%") | st.floats(0.01, 0.99)
spans = st.integers(60, 10_000) | st.integers(1, 48).map(lambda hours: f"{hours}h")
levels: st.SearchStrategy[str | float] = st.sampled_from(["-2%", "-0.125%", "+3%", 1, 0.03, 0])
metric_names = st.sampled_from(["watch", "likes", "like_rate"])


@st.composite
def guardrails(draw: st.DrawFn) -> Document:
    side = draw(st.sampled_from(["at_least", "at_most"]))
    level = draw(levels.filter(lambda level: level != 0 or side == "at_most"))  # at least 0 cannot fail
    rail = {"metric": draw(metric_names), side: level}
    if draw(st.booleans()):
        rail["penalty"] = draw(st.floats(0.001, 100))
    for name in ("loss_budget", "tolerance"):
        if draw(st.booleans()):
            loss = draw(st.floats(0, 5).map(lambda number: round(number, 4)))
            share = float(level) / 6 if side == "at_least" and not isinstance(level, str) else 1.0
            rail[name] = f"{loss:.4f}%" if isinstance(level, str) else loss * share
    return rail


ways = st.sampled_from(
    [
        {"parameters": {"like": [0, 1, 2.5], "share": [0, 1]}},
        {"parameters": {"like": [0, 1, 2.5], "share": [0, 1]}, "constraints": ["like + share <= 2.5"]},
        {
            "parameters": None,
            "candidates": [{"like": 1, "share": 0}, {"name": "b", "values": {"like": 0.5, "share": 1}}],
        },
        {
            "parameters": None,
            "ranges": {"like": {"low": 0, "high": 2}, "share": {"low": 0, "high": 4, "integer": True}},
        },
    ]
)
documents = st.builds(
    lambda way, **fields: study(**way, **fields),
    ways,
    unit=st.sampled_from(["user", "session"]),
    goal=st.sampled_from([{"maximize": "watch"}, {"minimize": {"likes": 2, "watch": -1}}]),
    guardrails=st.lists(guardrails(), max_size=2, unique_by=lambda rail: (rail["metric"], "at_least" in rail)),
    traffic=st.fixed_dictionaries(
        {}, optional={"control": shares, "explore": shares, "min_share": shares, "new_candidate_share": shares}
    ),
    rounds=st.fixed_dictionaries({"every": st.just("2h")}, optional={"maturity": spans, "accept_late": spans})
    | st.fixed_dictionaries({"exposures": st.integers(1, 10**9)}, optional={"maturity": spans, "accept_late": spans}),
    learner=st.sampled_from(["thompson", {"name": "thompson", "draws": 8, "half_life": 3.5}]),
    confidence=st.floats(0.5, 0.999),
    expires_after=spans,
)


@settings(max_examples=60, deadline=None)
@given(documents)
def test_the_normalised_document_is_the_same_study(document: Document) -> None:
    spec = parse_spec(document)
    again = parse_spec(json.loads(json.dumps(spec.document, allow_nan=False)))
    assert again == spec
    assert again.warnings == spec.warnings
    assert again.document == spec.document


def warned(**fields: Any) -> str:
    (warning,) = parse_spec(study(**fields)).warnings
    return warning


def test_warnings_name_what_was_probably_not_meant() -> None:
    bare = {"watch": {"event": "watch"}, "likes": {"event": "like", "cap": 9}}
    assert "metrics.watch is the goal and has neither range nor cap" in warned(metrics=bare)
    assert "guardrail's and has neither" in warned(
        metrics=bare, goal={"maximize": "likes"}, guardrails=[{"metric": "watch", "at_least": 1}]
    )
    assert "penalty of 5 does nothing" in warned(guardrails=[{"metric": "likes", "at_least": 0.03, "penalty": 5}])
    assert "penalty of 1e-06 does nothing" in warned(
        guardrails=[{"metric": "likes", "at_least": "-2%", "penalty": 1e-6}]
    )
    assert "penalty of 1e-09 does nothing" in warned(
        guardrails=[{"metric": "like_rate", "at_least": 0.1, "penalty": 1e-9}]
    )
    margin = {**study()["metrics"], "margin": {"event": "sale", "value": "margin", "range": [-9, 9]}}
    assert "stop_at is the target itself" in warned(
        metrics=margin, guardrails=[{"metric": "margin", "at_least": 0, "penalty": 5}]
    )
    assert "traffic.control is 0" in warned(traffic={"control": 0}, guardrails=[{"metric": "likes", "at_least": "-2%"}])
    assert "stop_at is a number and traffic.control is 0: it is judged over whole days" in warned(
        traffic={"control": 0}, guardrails=[{"metric": "likes", "at_least": 1}]
    )
    assert "expires_after is shorter than a round" in warned(expires_after="10m")
    slow = {"watch": {"event": "watch", "cap": 9, "lower_is_better": True}}
    assert "of which lower is better" in warned(metrics=slow)
    assert "but a fall of watch counts as good; remove lower_is_better from metrics.watch" in warned(
        metrics={**slow, "likes": {"event": "like", "cap": 9}},
        goal={"maximize": "likes"},
        guardrails=[{"metric": "watch", "at_least": 1}],
    )


BOUNDED = {
    "watch": {"event": "watch", "value": "seconds", "cap": 100},
    "likes": {"event": "like"},
    "liked": {"event": "like", "aggregate": "any"},
    "rate": {"ratio": [{"event": "like"}, {"event": "view"}]},
    "margin": {"event": "sale", "value": "margin", "range": [-9, 9]},
    "refunds": {"ratio": [{"event": "refund", "value": "amount", "range": [-9, 0]}, {"event": "sale"}]},
    "seconds": {"event": "watch", "value": "seconds"},
}
USELESS = [
    ({"metric": "likes", "at_least": -0.02}, "at_least", "is never below 0, so the guardrail cannot fail.*write '-2%'"),
    ({"metric": "likes", "at_least": -2}, "at_least", "cannot fail.*write '-2%'"),
    ({"metric": "likes", "at_least": 0}, "at_least", "cannot fail.*write '0%'"),
    ({"metric": "likes", "at_least": "-100%"}, "at_least", "is -100%, and likes is never below 0.*write '-2%'"),
    ({"metric": "rate", "at_least": -0.005, "penalty": 5}, "at_least", "rate is never below 0.*write '-0.5%'"),
    ({"metric": "watch", "at_least": -1.5}, "at_least", "watch is never below 0.*write '-1.5%'"),
    ({"metric": "watch", "at_most": 100}, "at_most", r"never above 100, so the guardrail cannot fail.*write '\+2%'"),
    ({"metric": "liked", "at_most": 1.02}, "at_most", "liked is never above 1"),
    ({"metric": "margin", "at_least": -10}, "at_least", "margin is never below -9.*write '-10%'"),
    ({"metric": "refunds", "at_most": 0.5}, "at_most", "refunds is never above 0"),
    (
        {"metric": "liked", "at_least": 98},
        "at_least",
        "never above 1, so the guardrail cannot hold.*up to 1, or .*'-2%'",
    ),
    ({"metric": "likes", "at_most": -0.02}, "at_most", r"never below 0, so the guardrail cannot hold.*'\+2%'"),
    ({"metric": "likes", "at_least": 1, "stop_at": -0.5}, "stop_at", "is -0.5.*it cannot stop the study"),
    (
        {"metric": "likes", "at_least": 1, "tolerance": 3},
        "stop_at",
        "is -2, .*between 0 and at_least.*smaller tolerance",
    ),
    ({"metric": "likes", "at_least": "-60%", "penalty": 5}, "stop_at", "is -120%"),
]


@pytest.mark.parametrize(("rail", "field", "message"), USELESS)
def test_a_guardrail_that_cannot_fail_or_hold_is_refused(rail: Document, field: str, message: str) -> None:
    document = study(metrics=BOUNDED, goal={"maximize": "watch"}, guardrails=[rail])
    with pytest.raises(StudyFileError) as refused:
        parse_spec(document)
    assert re.search(message, refused.value.problems[f"guardrails[0].{field}"])
    stored = parse_spec(document, stored=True)  # a running study continues, with a warning
    assert any(
        warning.startswith(f"guardrails[0].{field} ") and re.search(message, warning) for warning in stored.warnings
    )


@pytest.mark.parametrize(
    "rail",
    [
        {"metric": "likes", "at_least": 0.01},
        {"metric": "likes", "at_least": "-2%"},
        {"metric": "likes", "at_most": 0},
        {"metric": "margin", "at_least": -0.02},
        {"metric": "margin", "at_least": "-100%"},
        {"metric": "liked", "at_least": 1},
        {"metric": "watch", "at_most": "+200%"},
    ],
)
def test_a_guardrail_that_can_fail_is_taken(rail: Document) -> None:
    assert parse_spec(study(metrics=BOUNDED, goal={"maximize": "watch"}, guardrails=[rail])).guardrails


def test_a_number_below_zero_is_questioned_where_no_range_is_declared() -> None:
    def found(level: float) -> list[str]:
        rails = [{"metric": "seconds", "at_least": level}]
        spec = parse_spec(study(metrics=BOUNDED, goal={"maximize": "watch"}, guardrails=rails))
        return [warning for warning in spec.warnings if "cannot fail" in warning]

    (warning,) = found(-0.02)
    assert "guardrails[0].at_least is -0.02, which cannot fail unless seconds can be negative" in warning
    assert "write '-2%', or declare a range" in warning
    assert len(found(0)) == 1
    assert found(1) == []


def test_the_table_of_fields_is_what_the_parser_reads() -> None:
    assert set(FIELDS.names("learner")) == {
        "name",
        *(setting for name in LEARNERS for setting in learner_settings(name)),
    }
    assert len({field.path for field in FIELDS}) == len(FIELDS)
    for name, kind in LEARNERS.items():
        assert set(learner_settings(name)) <= set(kind.__dataclass_fields__)


def test_a_spec_is_a_value() -> None:
    spec = parse_spec(study())
    assert isinstance(spec, StudySpec)
    assert parse_spec(study()) == spec
    assert parse_spec(study(unit="request")) != spec
