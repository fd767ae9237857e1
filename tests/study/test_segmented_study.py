"""Studies with segments: what they learn, serve, save and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pytest

import pasto
from pasto.arrays import FloatArray
from pasto.errors import MeasurementError, NotFittedError, OptionError, PastoError, StateError, UnsupportedError
from pasto.objective import Objective
from pasto.optimize.learners import Thompson
from pasto.optimize.learners.segmented_thompson import SegmentedThompson, SegmentTraffic, allocate_segments
from pasto.study.segmented_study import SegmentedStudy

NAMES = ("delta", "alpha", "charlie", "bravo")
SEGMENTS = ("new", "casual", "heavy")
SHARES = np.array([0.2, 0.5, 0.3])
TRUTH = np.array(
    [
        [[2.0, 0.0, 1.0, 0.5], [-2.0, 2.0, 0.3, 0.1]],
        [[2.5, 0.0, 1.0, 0.5], [-1.0, 2.0, 0.3, 0.1]],
        [[1.0, 3.0, 1.0, 0.5], [-2.0, 0.5, 0.3, 0.1]],
    ]
)
"""(segments, metrics, candidates)."""
OBJECTIVE = pasto.maximize("x").keep("y", at_least=0)
LIFTED = TRUTH + np.array([10.0, 5.0])[:, None]
"""The same with levels that a percentage can refer to."""


def build(
    order: tuple[int, ...] = (0, 1, 2, 3), objective: Objective = OBJECTIVE, seed: int = 3, **options: Any
) -> SegmentedStudy:
    rows = pasto.Candidates.from_rows([{"w": k} for k in order], names=[NAMES[k] for k in order])
    return SegmentedStudy(rows, objective, seed=seed, **{"segments": list(SEGMENTS), **options})


def measure(
    study: SegmentedStudy, number: int, truth: FloatArray = TRUTH, units: float = 2000.0, deviation: float = 5.0
) -> list[pasto.Observation]:
    """Return a round's observations, whose noise is keyed by names."""
    rows = []
    for place, name in enumerate(SEGMENTS):
        for k, share in enumerate(study.policy.segments[name]):
            count = float(np.round(units * SHARES[place] * share))
            if count:
                key = NAMES.index(study.candidates.names[k])
                noise = np.random.default_rng([number, place, key]).normal(size=2)
                variance = deviation**2 / count
                mean = truth[place, :, key] + noise * np.sqrt(variance)
                covariance = ((variance, 0.0), (0.0, variance))
                version = study.policy.version
                rows.append(pasto.Observation(version, k, count, tuple(mean.tolist()), covariance, segment=name))
    return rows


def teach(study: SegmentedStudy, rounds: int, **options: Any) -> SegmentedStudy:
    for number in range(rounds):
        study.observe(measure(study, number, **options))
    return study


def table(study: SegmentedStudy) -> FloatArray:
    return np.array([part.probabilities for part in study.blend().segments.values()])


def test_the_answer_comes_near_the_best_blends() -> None:
    blend = teach(build(), 20).blend()
    exact = pasto.solve(
        {name: OBJECTIVE.by_metric(means) for name, means in zip(SEGMENTS, TRUTH, strict=True)},
        OBJECTIVE,
        segments=dict(zip(SEGMENTS, SHARES.tolist(), strict=True)),
    )
    assert blend.certificate is not None
    assert blend.certificate.certified
    assert blend.certificate.holds["y"] == pytest.approx(0.95, abs=1e-4)
    vectors = np.einsum("smk,sk->sm", TRUTH, [part.probabilities for part in blend.segments.values()])
    reached = SHARES @ vectors
    assert 0.95 * exact.value < reached[0] < exact.value + 1e-9
    assert reached[1] > 0.0
    low, high = blend.certificate.intervals["x"]
    assert low < reached[0] < high
    assert blend.probabilities == pytest.approx(
        np.einsum(
            "s,sk->k",
            [part.share for part in blend.segments.values()],
            [p.probabilities for p in blend.segments.values()],
        )
    )
    assert blend.common_value is not None
    assert blend.value > blend.common_value


def test_a_policy_has_a_distribution_for_each_segment_and_one_for_all_traffic() -> None:
    study = teach(build(), 4)
    policies = np.array(list(study.policy.segments.values()))
    assert tuple(study.policy.segments) == SEGMENTS
    assert policies.sum(axis=1) == pytest.approx(np.ones(3))
    assert policies.min() >= 0.01 / 4 * (1 - 1e-9)
    assert study.policy.probabilities == pytest.approx(np.array(list(study.segments.values())) @ policies)
    assert study.segments == pytest.approx(dict(zip(SEGMENTS, SHARES.tolist(), strict=True)), abs=1e-3)
    assert isinstance(pasto.Study([{"w": 0}, {"w": 1}], OBJECTIVE, segments=["a", "b"]), SegmentedStudy)
    assert not isinstance(pasto.Study([{"w": 0}, {"w": 1}], OBJECTIVE), SegmentedStudy)


def test_a_study_continues_bit_for_bit_from_its_state() -> None:
    stated: dict[str, Any] = {"segments": {"new": 0.25, "casual": 0.25, "heavy": 0.5}, "baseline": "delta"}
    for options in ({}, stated):
        study = teach(build(**options), 3)
        study.observe(measure(study, 8), final=False)
        restored = pasto.Study.from_state(json.loads(json.dumps(study.state())))
        assert isinstance(restored, SegmentedStudy)
        assert restored.state() == study.state()
        assert restored.policy == study.policy
        assert restored.blend() == study.blend()
        rows = measure(study, 9)
        for each in (study, restored):
            each.rewind()
            each.observe(rows)
        assert restored.state() == study.state()
        assert study.copy().state() == study.state()


def test_relabelling_the_candidates_relabels_policies_and_answer() -> None:
    plain, shuffled = teach(build(), 6), teach(build((2, 0, 3, 1)), 6)
    for name in SEGMENTS:
        served = dict(zip(shuffled.candidates.names, shuffled.policy.segments[name], strict=True))
        for k, own in enumerate(plain.policy.segments[name]):
            assert served[plain.candidates.names[k]] == pytest.approx(own, abs=1e-9)
    ours = dict(zip(plain.candidates.names, table(plain).T.tolist(), strict=True))
    theirs = dict(zip(shuffled.candidates.names, table(shuffled).T.tolist(), strict=True))
    for name, shares in ours.items():
        assert theirs[name] == pytest.approx(shares, abs=1e-6)


def test_the_certificate_counts_that_the_shares_of_traffic_are_learned() -> None:
    """Only a metric whose level differs between segments is less certain, and less so with more units."""
    apart = TRUTH + np.array([0.0, 50.0, -50.0])[:, None, None]

    def width(learned: bool, units: float, truth: FloatArray) -> float:
        shares = list(SEGMENTS) if learned else dict(zip(SEGMENTS, SHARES.tolist(), strict=True))
        study = teach(
            build(segments=shares, objective=pasto.maximize("x").keep("y", at_least=-99)), 3, truth=truth, units=units
        )
        certificate = study.blend().certificate
        assert certificate is not None
        low, high = certificate.intervals["x"]
        return high - low

    assert width(True, 2000.0, TRUTH) < 1.02 * width(False, 2000.0, TRUTH)
    # 50² · (0.5 + 0.3) less the mean's square, over 6000 units, next to the noise of the means.
    exact = 2 * 1.96 * np.sqrt((50.0**2 * 0.8 - 10.0**2) / 6000)
    assert np.sqrt(width(True, 2000.0, apart) ** 2 - width(False, 2000.0, apart) ** 2) == pytest.approx(exact, rel=0.05)
    assert width(True, 200_000.0, apart) < 0.2 * width(True, 2000.0, apart)


def test_shares_that_scatter_between_rounds_are_less_certain() -> None:
    even = SegmentTraffic.empty(2)
    swinging = SegmentTraffic.empty(2)
    for number in range(20):
        even = even.add(np.array([500.0, 500.0]))
        swinging = swinging.add(np.array([300.0, 700.0] if number % 2 else [700.0, 300.0]))
    assert even.shares() == pytest.approx(swinging.shares())
    steady, scattered = (float(np.square(traffic.error_root()).sum()) for traffic in (even, swinging))
    assert steady == pytest.approx(0.5 / 20_000, rel=1e-3)
    # The deviation of a round's share is 0.2, so that of the mean of 20 rounds 0.2 / √19.
    assert np.sqrt(scattered / 2) == pytest.approx(0.2 / np.sqrt(19), rel=1e-2)


def test_guardrails_within_segments_are_certified_there() -> None:
    objective = pasto.maximize("x").keep("y", at_least=0, within="each").keep("y", at_least=0.5)
    blend = teach(build(objective=objective), 20).blend()
    assert blend.certificate is not None
    assert blend.certificate.certified
    assert set(blend.certificate.holds) == {"y"}
    for name, truth in zip(SEGMENTS, TRUTH, strict=True):
        part = blend.segments[name]
        assert part.certificate is not None
        assert part.certificate.certified
        assert part.certificate.holds["y"] >= 0.95 - 1e-6
        assert truth[1] @ part.probabilities > 0.0
        low, high = part.certificate.intervals["y"]
        assert low < part.metrics["y"] < high
    assert min(part.certificate.holds["y"] for part in blend.segments.values() if part.certificate) < 0.951


def test_relative_guardrails_count_the_baseline_of_the_segments() -> None:
    objective = pasto.maximize("x").keep("y", at_least="-2%").keep("y", at_least="-10%", within="heavy")
    blend = teach(build(objective=objective, baseline="bravo"), 20, truth=LIFTED, units=20_000).blend()
    assert blend.certificate is not None
    assert blend.certificate.certified
    policies = np.array([part.probabilities for part in blend.segments.values()])
    reached = np.einsum("smk,sk->sm", LIFTED, policies)
    before = LIFTED[:, :, 3]
    assert SHARES @ reached[:, 1] >= 0.98 * (SHARES @ before[:, 1])
    assert reached[2, 1] >= 0.9 * before[2, 1]
    assert blend.lifts["x"] == pytest.approx(100 * (SHARES @ reached[:, 0] / (SHARES @ before[:, 0]) - 1), abs=1.0)


def test_a_ratio_is_learned() -> None:
    objective = pasto.maximize(pasto.ratio("x", "y"))
    means = np.abs(TRUTH) + 1.0
    blend = teach(build(objective=objective), 20, truth=means, units=20_000).blend()
    shares = dict(zip(SEGMENTS, SHARES.tolist(), strict=True))
    exact = pasto.solve(
        {name: objective.by_metric(part) for name, part in zip(SEGMENTS, means, strict=True)},
        objective,
        segments=shares,
    )
    assert blend.value == pytest.approx(exact.value, rel=0.02)


def test_without_heterogeneity_segments_collapse_to_the_common_blend() -> None:
    alike = np.tile(TRUTH[:1], (3, 1, 1))
    study = teach(build(), 12, truth=alike)
    spreads = study._state.spreads
    assert np.diag(spreads.own).max() < 0.02 * np.diag(spreads.common).min()
    means = study.posterior_samples()[0]
    assert np.ptp(means, axis=0).max() < 0.2
    blend = study.blend()
    assert blend.common_value is not None
    assert blend.value - blend.common_value < 0.05


def test_draws_scatter_as_the_posterior() -> None:
    study = teach(build(), 3)
    samples = study.posterior_samples(4000)
    assert samples.shape == (4001, 3, 2, 4)
    posterior = study._learner.posterior(study._state)
    deviations = np.sqrt(posterior.project(np.array([1.0, 0.0])).variances())
    assert samples[1:, :, 0].std(axis=0) == pytest.approx(deviations, rel=0.08)


def test_limits_of_exploration_hold_in_each_segment() -> None:
    study = teach(build(baseline="bravo", max_share=0.3, new_candidate_share=0.05), 5)
    policies = np.array(list(study.policy.segments.values()))
    assert np.delete(policies, 3, axis=1).max() <= 0.3 + 1e-9
    (new,) = study.add([{"w": 9}])
    assert all(shares[new] <= 0.05 + 1e-9 for shares in study.policy.segments.values())
    study.retire("charlie")
    assert all(shares[2] == 0.0 for shares in study.policy.segments.values())
    assert all(part.probabilities[2] == 0.0 for part in study.blend().segments.values())
    assert len(study.blend().names) == 5


def test_a_loss_budget_bounds_the_policy_on_all_traffic() -> None:
    budget = 0.1
    free = teach(build(baseline="bravo"), 8)
    safe = teach(build(baseline="bravo", loss_budget=budget), 8)

    def lost(study: SegmentedStudy) -> float:
        policies = np.array(list(study.policy.segments.values()))
        return -float(SHARES @ np.einsum("smk,sk->sm", TRUTH, policies)[:, 1])

    assert lost(safe) <= budget
    learner, state = safe._learner, safe._state
    answer = learner.solve(safe._problem, state, learner.posterior(state))
    rail = answer.rails[0].uncertain
    policies = np.array(list(safe.policy.segments.values()))
    assert rail.level(policies) - 1.6448 * rail.spread(policies) >= -budget - 1e-6
    assert not np.allclose(policies, np.array(list(free.policy.segments.values())))


def test_a_segment_that_was_never_measured_certifies_nothing() -> None:
    study = build(segments=[*SEGMENTS, "other"])
    for number in range(6):
        study.observe(measure(study, number))
    blend = study.blend()
    assert blend.certificate is not None
    assert not blend.certificate.certified
    stated = {"new": 0.2, "casual": 0.4, "heavy": 0.3, "other": 0.1}
    assert not teach(build(segments=stated), 6).blend().certificate.certified  # type: ignore[union-attr]


def test_understated_errors_certify_nothing() -> None:
    study = build()
    for number in range(12):
        rows = measure(study, number)
        small = [tuple(tuple(0.2 * v for v in line) for line in row.covariance or ()) for row in rows]
        study.observe(
            [
                pasto.Observation(r.version, r.candidate, r.units, r.mean, c, segment=r.segment)
                for r, c in zip(rows, small, strict=True)
            ]
        )
    certificate = study.blend().certificate
    assert certificate is not None
    assert not certificate.certified
    assert certificate.understated_errors["x"] == pytest.approx(np.sqrt(5.0), rel=0.3)


def test_late_rounds_are_settled_as_if_they_had_come_in_time() -> None:
    study, direct = build(), build()
    first, second = measure(study, 0), measure(study, 1)
    study.observe(first, final=False)
    later = [
        pasto.Observation(study.policy.version, r.candidate, r.units, r.mean, r.covariance, segment=r.segment)
        for r in second
    ]
    study.observe(later, final=False)
    study.settle(first)
    study.settle_all()
    direct.observe(first)
    direct.observe(later)
    assert study.state()["learned"] == direct.state()["learned"]


def test_a_control_counts_for_the_baseline_of_its_segment() -> None:
    study = build(baseline="bravo", control_share=0.2)
    rows = measure(study, 0)
    control = pasto.Observation(0, 3, 500.0, (0.5, 0.1), ((0.05, 0.0), (0.0, 0.05)), control=True, segment="new")
    study.observe([*rows, control])
    units = study._state.statistics[0].units
    own = next(row.units for row in rows if row.segment == "new" and row.candidate == 3)
    assert units[3] == own + 500.0


def test_a_data_frame_names_the_segments() -> None:
    study, other = build(), build()
    rows = measure(study, 0)
    columns = {
        "version": [row.version for row in rows],
        "candidate": [study.candidates.names[row.candidate] for row in rows],
        "segment": [row.segment for row in rows],
        "units": [row.units for row in rows],
        "x": [row.mean[0] for row in rows],
        "y": [row.mean[1] for row in rows],
    }
    study.observe(pandas.DataFrame(columns))
    plain = [pasto.Observation(r.version, r.candidate, r.units, r.mean, segment=r.segment) for r in rows]
    other.observe(plain)
    assert study.state() == other.state()


def test_a_measurement_goes_to_the_least_certain_candidates() -> None:
    blends = np.zeros((1, 2, 3))
    blends[0, 0, :2] = 0.5
    blends[0, 1, 2] = 1.0
    covariances = np.zeros((3, 2, 2))
    covariances[0] = [[1.0, 0.0], [0.0, 1.0]]
    covariances[1] = [[2.0, 0.0], [0.0, 1.0]]
    covariances[2] = np.eye(2)
    counts = allocate_segments(np.repeat(blends, 4, axis=0), covariances, np.full(2, 0.5), np.array([0.5, 0.5]))
    assert counts[0, 1] >= counts[0, 0] > 0.0  # the less certain one first, then both
    assert counts[0, 2] == 0.0
    assert counts[1].tolist() == [0.0, 0.0, 1.0]


REFUSED: dict[str, tuple[Callable[[], Any], type[PastoError], str]] = {
    "algorithm1": (lambda: build(learner="algorithm1"), UnsupportedError, "needs learner='thompson'"),
    "contrast": (lambda: build(learner=Thompson(contrast="auto"), baseline=0), UnsupportedError, "contrast='auto'"),
    "process": (lambda: build(learner=Thompson(structure="process")), UnsupportedError, "structure='process'"),
    "space": (
        lambda: pasto.Study(pasto.Space(w=pasto.Real(0, 1)), OBJECTIVE, segments=["a"]),
        UnsupportedError,
        "continuous space",
    ),
    "history": (
        lambda: build(history=[{"w": 0, "x": 1.0, "x_se": 0.1}, {"w": 1, "x": 2.0, "x_se": 0.1}]),
        UnsupportedError,
        "history",
    ),
    "utility": (
        lambda: build(objective=pasto.utility(lambda y: -(y**2).sum(-1), lambda y: -2 * y, over={"x": (-9, 9)})),
        UnsupportedError,
        "utility",
    ),
    "ask": (lambda: build().ask(4), UnsupportedError, "observe"),
    "covariates": (lambda: build().observe([], covariates=["x0"]), UnsupportedError, "covariates"),
    "explore share": (lambda: teach(build(), 1).blend(explore_share=0.5), UnsupportedError, "explore_share"),
    "no rounds": (lambda: build().blend(), NotFittedError, "no round"),
    "names twice": (lambda: build(segments=["a", "a"]), OptionError, "twice"),
    "each": (lambda: build(segments=["each"]), OptionError, "each"),
    "one text": (lambda: build(segments="new"), OptionError, "list of names"),
    "shares": (lambda: build(segments={"a": 0.5, "b": 0.4}), OptionError, "sum to"),
    "unknown within": (
        lambda: build(objective=OBJECTIVE.keep("y", at_least=0, within="old")),
        PastoError,
        "names no segment",
    ),
    "budget": (lambda: build(baseline=0, loss_budget={"z": 1.0}), OptionError, "loss_budget"),
    "no segment": (
        lambda: build().observe([pasto.Observation(0, 0, 10, (1.0, 1.0))]),
        MeasurementError,
        "has the segment None; this study has 'new', 'casual', 'heavy'",
    ),
    "twice": (
        lambda: build().observe([pasto.Observation(0, 0, 10, (1.0, 1.0), segment="new")] * 2),
        MeasurementError,
        "twice in one round in segment 'new'",
    ),
    "not segmented": (
        lambda: pasto.Study([{"w": 0}], OBJECTIVE).observe([pasto.Observation(0, 0, 9, (1.0, 1.0), segment="new")]),
        MeasurementError,
        "this study has no segments",
    ),
    "control only": (
        lambda: build(baseline=0).observe([pasto.Observation(0, 0, 9, (1.0, 1.0), control=True, segment="new")]),
        MeasurementError,
        "marked as control",
    ),
    "setting": (lambda: SegmentedThompson.from_settings({"flor": 1}), StateError, "flor"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_supported_is_refused(case: tuple[Callable[[], Any], type[PastoError], str]) -> None:
    call, error, message = case
    with pytest.raises(error, match=message):
        call()


def test_settings_of_the_learner_without_segments_are_taken_over() -> None:
    study = build(learner=Thompson(floor=0.2, draws=8, half_life=3.0))
    assert study._learner == SegmentedThompson(floor=0.2, draws=8, half_life=3.0)
    teach(study, 3)
    assert min(min(shares) for shares in study.policy.segments.values()) >= 0.05 - 1e-9
    assert study._state.traffic.units.sum() < 3 * 2000.0
