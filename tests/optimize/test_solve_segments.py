"""Function `pasto.solve` with segments: accepted and refused input, prices, and its answer's text."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto import Study, grid, maximize, ratio, solve, utility
from pasto.arrays import FloatArray
from pasto.errors import MeansError, ObjectiveError, OptionError, UnsupportedError
from pasto.objective import Objective, objective_document, read_objective_document

MEANS = {"new": {"x": [2, 0], "y": [-2, 2]}, "heavy": {"x": [3, 1], "y": [1, 0]}}
HALVES = {"new": 0.5, "heavy": 0.5}
KEEP_Y = maximize("x").keep("y", at_least=0)


def random_means(rng: np.random.Generator, objective: Objective, segments: int, candidates: int) -> dict[str, Any]:
    return {
        f"s{segment}": objective.by_metric(rng.uniform(0.5, 2.0, size=(len(objective.metrics), candidates)))
        for segment in range(segments)
    }


def random_shares(rng: np.random.Generator, segments: int) -> dict[str, float]:
    return {f"s{segment}": float(share) for segment, share in enumerate(rng.dirichlet(np.full(segments, 3.0)))}


def test_one_segment_pays_for_another() -> None:
    blend = solve(MEANS, KEEP_Y, names=["bold", "safe"], segments=HALVES)
    assert blend.segments["new"].probabilities == pytest.approx((0.75, 0.25))
    assert blend.segments["heavy"].probabilities == (1.0, 0.0)
    assert blend.segments["new"].metrics == pytest.approx({"x": 1.5, "y": -1.0})
    assert (blend.value, blend.metrics, blend.prices) == (2.25, {"x": 2.25, "y": 0.0}, {"y": 0.5})
    assert blend.common_probabilities == pytest.approx((2 / 3, 1 / 3))
    assert blend.common_value == pytest.approx(11 / 6)
    assert blend.common_metrics == pytest.approx({"x": 11 / 6, "y": 0.0})
    assert (blend.best_single, blend.best_single_value, blend.feasible) == (1, 0.5, True)
    assert blend.gain_over_common == pytest.approx(2.25 - 11 / 6)
    assert blend.gain_over_single == pytest.approx(1.75)
    assert (blend.shortfalls, blend.lifts, blend.names) == ({}, {}, ("bold", "safe"))
    assert str(blend) == (
        "new (50.0% of traffic): 75.0% bold + 25.0% safe\n"
        "heavy (50.0% of traffic): 100.0% bold\n"
        "f(x) = 2.25 (x = 2.25, y = 0)\n"
        "best common blend 66.7% bold + 33.3% safe: f(x) = 1.8333\n"
        "best single safe: f(x) = 0.5"
    )


def test_a_guardrail_within_each_segment_stops_the_exchange() -> None:
    blend = solve(MEANS, maximize("x").keep("y", at_least=0, within="each"), segments=HALVES)
    assert blend.segments["new"].probabilities == pytest.approx((0.5, 0.5))
    assert blend.segments["heavy"].probabilities == (1.0, 0.0)
    assert blend.prices == {}
    assert blend.segments["new"].prices == {"y": 0.25}  # half of the traffic, at half an x for a y
    assert blend.segments["heavy"].prices == {"y": 0.0}
    named = solve(MEANS, maximize("x").keep("y", at_least=0, within="new"), segments=HALVES)
    assert named.segments["new"] == blend.segments["new"]
    assert named.segments["heavy"].prices == {}


def test_a_common_blend_holds_guardrails_within_segments() -> None:
    truth = {"new": {"x": [2, 0], "y": [-2, 2]}, "heavy": {"x": [3, 1], "y": [5, 0]}}
    blend = solve(truth, maximize("x").keep("y", at_least=0, within="each"), segments=HALVES)
    assert blend.common_probabilities == pytest.approx((0.5, 0.5))
    assert blend.common_value == pytest.approx(1.5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["hard", "soft", "percent", "ratio", "ratio goal", "log"]))
def test_segments_that_are_alike_gain_nothing(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    objective = stated(kind, None)
    table = objective.by_metric(rng.uniform(0.5, 2.0, size=(len(objective.metrics), 8)))
    baseline = 0 if kind == "percent" else None
    alone = solve(table, objective, baseline=baseline)
    shares = random_shares(rng, 3)
    for within in (None, "each"):
        blend = solve(dict.fromkeys(shares, table), stated(kind, within), baseline=baseline, segments=shares)
        assert blend.feasible == alone.feasible
        assert blend.value == pytest.approx(alone.value, rel=1e-6, abs=1e-8)
        assert blend.metrics == pytest.approx(alone.metrics, rel=1e-3) or kind == "log"
        if alone.feasible:
            assert blend.gain_over_common == pytest.approx(0.0, abs=1e-6 * (1.0 + abs(alone.value)))
            prices = blend.prices if within is None else sum_prices(blend)
            assert prices == pytest.approx(dict(alone.prices), rel=1e-3, abs=1e-5) or kind == "log"


def sum_prices(blend: Any) -> dict[str, float]:
    """Return the price of relaxing a guardrail in every segment at once."""
    parts = [segment.prices for segment in blend.segments.values()]
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def stated(kind: str, within: str | None) -> Objective:
    match kind:
        case "hard":
            return maximize("x").keep("y", at_least=1.3, within=within)
        case "soft":
            return maximize("x").keep("y", at_least=1.5, penalty=3.0, within=within)
        case "percent":
            return maximize("x").keep("y", at_least="+2%", within=within)
        case "ratio":
            return maximize("x").keep(ratio("n", "d"), at_least=1.2, within=within)
        case "ratio goal":
            return maximize(ratio("n", "d")).keep("y", at_least=1.3, within=within)
        case _:
            fair = utility(lambda y: np.log(y).sum(-1), lambda y: 1 / y, over={"x": (0.1, 5), "z": (0.1, 5)})
            return fair.keep("y", at_least=1.3, within=within)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["hard", "soft", "percent", "ratio", "ratio goal", "log"]))
def test_segments_never_lose_and_the_support_is_small(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    segments = int(rng.integers(1, 6))
    within = [None, "each", "s0"][int(rng.integers(3))]
    objective = stated(kind, within)
    means, shares = random_means(rng, objective, segments, 10), random_shares(rng, segments)
    blend = solve(means, objective, baseline=0 if kind == "percent" else None, segments=shares)
    if blend.gain_over_common is not None:
        assert blend.gain_over_common >= -1e-7 * (1.0 + abs(blend.value))
    if blend.common_value is not None and blend.best_single_value is not None:
        assert blend.common_value >= blend.best_single_value - 1e-7 * (1.0 + abs(blend.value))
    rails = segments if within == "each" else 1
    most = segments + rails + (3 if kind == "log" else 0)
    assert sum(len(segment.support) for segment in blend.segments.values()) <= most
    total = {
        name: sum(part.share * part.metrics[name] for part in blend.segments.values()) for name in objective.metrics
    }
    assert {name: blend.metrics[name] for name in objective.metrics} == pytest.approx(total)


@pytest.mark.parametrize("kind", ["hard", "soft", "percent", "ratio", "ratio goal", "log"])
@pytest.mark.parametrize("within", [None, "each", "s1"])
def test_a_price_is_the_slope_of_the_value(kind: str, within: str | None) -> None:
    rng = np.random.default_rng(3)
    objective = stated(kind, within)
    means, shares = random_means(rng, objective, 3, 12), random_shares(rng, 3)
    baseline = 0 if kind == "percent" else None
    step = 1e-3 if kind == "percent" else 1e-5

    def at(shift: float) -> Any:
        rail = objective.guardrails[0]
        place: Any = f"{rail.at + shift:+.9f}%" if rail.relative else rail.at + shift
        moved = Objective(objective.target, objective.sign).keep(
            rail.metric, at_least=place, penalty=rail.penalty, within=within
        )
        return solve(means, moved, baseline=baseline, segments=shares)

    blend = at(0.0)
    prices = blend.prices if within is None else {}
    for segment in blend.segments.values():
        prices = {
            name: prices.get(name, 0.0) + price
            for name, price in {**dict.fromkeys(prices, 0.0), **segment.prices}.items()
        }
    slope = (at(-step).value - at(step).value) / (2 * step)
    assert blend.feasible
    assert next(iter(prices.values())) == pytest.approx(slope, rel=2e-3, abs=1e-6)


def test_percentages_refer_to_the_baseline_of_the_traffic_they_limit() -> None:
    means = {"new": {"x": [10, 20], "y": [4, 2]}, "heavy": {"x": [30, 33], "y": [8, 8.2]}}
    shares = {"new": 0.25, "heavy": 0.75}
    total = solve(means, maximize("x").keep("y", at_least="-2%"), names=["now", "new"], baseline="now", segments=shares)
    assert total.metrics["y"] == pytest.approx(0.98 * 7.0)
    assert total.lifts == pytest.approx({"x": 100 * (total.metrics["x"] / 25.0 - 1), "y": -2.0})
    assert total.value == pytest.approx(total.lifts["x"])
    assert total.percent
    own = solve(means, maximize("x").keep("y", at_least="-2%", within="new"), baseline=0, segments=shares)
    assert own.segments["new"].lifts["y"] == pytest.approx(-2.0)
    assert own.segments["new"].metrics["y"] == pytest.approx(0.98 * 4.0)


def test_other_metrics_and_ratios_are_in_the_answer() -> None:
    rate = ratio("likes", "views", name="rate")
    means = {
        "new": {"watch": [1, 3], "likes": [1, 6], "views": [10, 100], "z": [1, 2]},
        "heavy": {"watch": [1, 1], "likes": [1, 1], "views": [10, 10], "z": [3, 3]},
    }
    blend = solve(means, maximize("watch").keep(rate, at_least=0.07), segments=HALVES)
    likes, views = blend.metrics["likes"], blend.metrics["views"]
    assert blend.metrics["rate"] == pytest.approx(likes / views)
    assert blend.metrics["rate"] == pytest.approx(0.07)
    assert blend.metrics["z"] == pytest.approx((blend.segments["new"].metrics["z"] + 3) / 2)


def test_the_nearest_miss_is_marked() -> None:
    blend = solve(MEANS, maximize("x").keep("y", at_least=1, within="each").keep("y", at_least=2.5), segments=HALVES)
    assert not blend.feasible
    assert (blend.best_single, blend.common_value, blend.gain_over_common, blend.gain_over_single) == (None,) * 4
    assert blend.segments["new"].probabilities == (0.0, 1.0)
    assert blend.segments["heavy"].probabilities == (1.0, 0.0)
    assert blend.shortfalls == pytest.approx({"y": 1.0})
    assert blend.all_shortfalls() == pytest.approx({"y": 1.0})
    text = str(blend)
    assert "no common blend meets every guardrail\nno single candidate meets every guardrail\n" in text
    assert text.endswith("no blends meet every hard guardrail; the nearest ones miss y by 1")
    one = solve(MEANS, maximize("x").keep("y", at_least=1.5, within="each"), segments=HALVES)
    assert one.all_shortfalls() == pytest.approx({"y within heavy": 0.5})


def test_only_segments_can_meet_the_guardrail() -> None:
    means = {"new": {"x": [1, 0], "y": [1, 0]}, "heavy": {"x": [1, 0], "y": [0, 1]}}
    blend = solve(means, maximize("x").keep("y", at_least=1), segments=HALVES)
    assert blend.feasible
    assert blend.common_value is None
    assert blend.gain_over_common is None
    assert "no common blend meets every guardrail" in str(blend)


def test_data_frames_and_rows_are_taken_for_each_segment() -> None:
    rows = {
        name: [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
        for name, table in MEANS.items()
    }
    arrays: dict[str, FloatArray | list[list[float]]] = {
        "new": np.array([[2.0, 0.0, 1.0], [-2.0, 2.0, 1.0]]),
        "heavy": [[3, 1, 0], [1, 0, 0]],
    }
    assert solve(rows, KEEP_Y, segments=HALVES) == solve(MEANS, KEEP_Y, segments=HALVES)
    assert solve(arrays, KEEP_Y, segments=HALVES).segments["heavy"].support == (0,)


@pytest.mark.parametrize(
    ("segments", "problem"),
    [
        ({}, "segments must be the share of traffic of each segment"),
        (["new"], "segments must be the share of traffic of each segment"),
        ({"new": 0.5, "heavy": 0.4}, "the shares of segments sum to 0.9, and must sum to 1"),
        ({"new": 1.0, "heavy": 0.0}, "the share of segment 'heavy' must be a number above 0"),
        ({"new": True, "heavy": 0.5}, "the share of segment 'new' must be a number above 0"),
        ({"each": 1.0}, "segments has the name 'each'"),
    ],
)
def test_wrong_shares_are_refused(segments: Any, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        solve(MEANS, KEEP_Y, segments=segments)


@pytest.mark.parametrize(
    ("means", "problem"),
    [
        ([[1, 2]], "means must hold the means of each segment by name"),
        ({"new": MEANS["new"]}, "means lacks 'heavy'"),
        ({**MEANS, "other": MEANS["new"]}, "means has 'other'"),
        ({**MEANS, "heavy": {"x": [3, 1]}}, "segment 'heavy': means lacks 'y'"),
        ({**MEANS, "heavy": {"x": [3, 1, 0], "y": [1, 1, 1]}}, "'new' and 'heavy' have different candidates"),
        ({**MEANS, "heavy": {"x": [3, 1], "y": [1, 1], "z": [1, 1]}}, "'new' and 'heavy' have different metrics"),
    ],
)
def test_wrong_means_are_refused(means: Any, problem: str) -> None:
    with pytest.raises(MeansError, match=problem):
        solve(means, KEEP_Y, segments=HALVES)


def test_guardrails_within_segments_need_segments() -> None:
    within = maximize("x").keep("y", at_least=0, within="each")
    with pytest.raises(UnsupportedError, match="'y >= 0 within each' limits segments, and there are none"):
        solve(MEANS["new"], within)
    with pytest.raises(UnsupportedError, match=r"pass segments= to pasto\.solve"):
        Study(grid(a=[0, 1]), within)
    with pytest.raises(ObjectiveError, match="'y >= 0 within light' names no segment; there are new, heavy"):
        solve(MEANS, maximize("x").keep("y", at_least=0, within="light"), segments=HALVES)


def test_a_side_is_kept_once_in_each_segment() -> None:
    within = KEEP_Y.keep("y", at_least=-1, within="each")
    assert within.names == ("y", "y within each")
    with pytest.raises(ObjectiveError, match="kept twice on the same side within 'each'"):
        within.keep("y", at_least=-2, within="each")
    with pytest.raises(ObjectiveError, match="within 'new', once by within='each'"):
        solve(MEANS, within.keep("y", at_least=-2, within="new"), segments=HALVES)
    with pytest.raises(ObjectiveError, match="within=''"):
        KEEP_Y.keep("y", at_least=0, within="")


def test_a_document_has_the_segment_and_is_unchanged_without() -> None:
    within = KEEP_Y.keep("y", at_least=-1, within="each")
    assert read_objective_document(objective_document(within)) == within
    assert [*objective_document(within)["guardrails"][0]] == ["metric", "at", "lower", "penalty", "relative"]
