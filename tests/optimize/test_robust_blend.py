"""Robust blends, compared with brute force, Monte Carlo and cvxpy, and properties of the safety margin."""

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

import pasto
from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.estimate import IndependentPosterior, JointPosterior
from pasto.objective import NormalForm, Objective
from pasto.optimize import solve_exact
from pasto.optimize.chance_constrained.program import expected_penalty
from pasto.optimize.chance_constrained.robust_blend import RobustBlend, holding_probabilities, intervals, solve_robust

HARD = pasto.maximize("x").keep("y", at_least=0.0).keep("z", at_least=-0.2)
SOFT = pasto.maximize("x").keep("y", at_least=0.0, penalty=2.0).keep("z", at_least=-0.2, penalty=10.0)
MIXED = pasto.maximize("x").keep("y", at_least=0.0).keep("z", at_least=-0.2, penalty=10.0)
LOG = pasto.utility(lambda y: np.log(y).sum(-1), lambda y: 1.0 / y, over={"x": (0.1, 20.0), "y": (0.1, 20.0)})


def independent(rng: np.random.Generator, width: int, spread: float, *, safe: bool = True) -> IndependentPosterior:
    """Return a random posterior; if safe, its first candidate holds the guardrails of HARD with a margin."""
    mean = rng.normal(size=(3, width))
    if safe:
        mean[1:, 0] = 0.1 + 2.5 * spread
    roots = rng.normal(size=(width, 3, 3)) / np.sqrt(3.0)
    return IndependentPosterior(
        mean, spread**2 * rng.uniform(0.2, 1.0, size=(width, 1, 1)) * (roots @ roots.transpose(0, 2, 1))
    )


def joint(rng: np.random.Generator, width: int, spread: float) -> JointPosterior:
    roots = rng.normal(size=(3, width, 2 * width)) / np.sqrt(2.0 * width)
    mean = independent(rng, width, spread).mean
    return JointPosterior(mean, spread**2 * roots @ roots.transpose(0, 2, 1))


def contrast(probabilities: FloatArray, offset: float, baseline: int | None) -> FloatArray:
    weights = probabilities.copy()
    if baseline is not None:
        weights[baseline] -= offset
    return weights


def slack_and_spread(
    form: NormalForm,
    posterior: Any,
    probabilities: FloatArray,
    offsets: FloatArray | None = None,
    baseline: int | None = None,
) -> tuple[FloatArray, FloatArray]:
    """Return each guardrail's mean slack and its standard deviation, computed from the posterior."""
    shares = np.zeros(len(form.at)) if offsets is None else offsets
    spreads = [posterior.spread(row, contrast(probabilities, shares[g], baseline)) for g, row in enumerate(form.rows)]
    return form.rows @ posterior.mean @ probabilities - form.at, np.array(spreads)


def expected(form: NormalForm, posterior: Any, probabilities: FloatArray) -> float:
    """Return the goal of the mean less the soft guardrails' expected penalties."""
    level, spread = slack_and_spread(form, posterior, probabilities)
    soft = ~form.hard
    costs = form.penalties[soft] @ expected_penalty(level, spread)[soft]
    return float(form.goal.value(posterior.mean @ probabilities) - costs)


def check(form: NormalForm, posterior: Any, answer: RobustBlend, confidence: float, **against: Any) -> None:
    """Check that the blend is a sparse distribution with its stated value, which holds its certified guardrails."""
    p = answer.probabilities
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert p.min() >= 0.0
    assert not ((p > 0.0) & (p < 1e-12)).any()
    assert (answer.duals >= 0.0).all()
    assert not answer.duals[~form.hard].any()
    assert answer.value == pytest.approx(expected(form, posterior, p), abs=1e-12)
    level, spread = slack_and_spread(form, posterior, p, **against)
    if answer.certified:
        assert (level - norm.ppf(confidence) * spread >= -1e-9)[form.hard].all()
        assert (holding_probabilities(form, posterior, p, **against) >= confidence - 1e-6)[form.hard].all()
    else:
        assert (level - norm.ppf(confidence) * spread < 0.0)[form.hard].any()


def solve_with_cvxpy(
    form: NormalForm, posterior: Any, deviations: float, offsets: FloatArray, baseline: int, cap: float
) -> tuple[str, float]:
    """Solve the same program of hard guardrails with cvxpy."""
    width = posterior.mean.shape[1]
    p = cp.Variable(width, nonneg=True)
    limits = [cp.sum(p) == 1, p <= cap]
    for g, row in enumerate(form.rows):
        factor = posterior.factor(row)
        factor = np.diag(factor) if factor.ndim == 1 else factor
        against = np.zeros(width)
        against[baseline] = offsets[g]
        limits.append((row @ posterior.mean - form.at[g]) @ p >= deviations * cp.norm(factor.T @ (p - against)))
    problem = cp.Problem(cp.Maximize((form.goal.gradient(posterior.mean[:, 0]) @ posterior.mean) @ p), limits)
    problem.solve(solver=cp.CLARABEL)
    return str(problem.status), float(problem.value)


def test_hard_guardrails_agree_with_cvxpy() -> None:
    rng = np.random.default_rng(1)
    outcomes = set()
    form = HARD.form()
    for turn in range(80):
        spread = float(rng.choice([0.01, 0.2, 0.6]))
        posterior = independent(rng, 8, spread, safe=turn % 2 == 0) if turn % 3 else joint(rng, 8, spread)
        confidence, cap = float(rng.choice([0.5, 0.9, 0.99])), float(rng.choice([0.4, 1.0]))
        offsets, baseline = rng.choice([0.0, 0.9, 1.0], size=2), int(rng.integers(8))
        answer = solve_robust(form, posterior, confidence=confidence, offsets=offsets, baseline=baseline, caps=cap)
        status, value = solve_with_cvxpy(form, posterior, norm.ppf(confidence), offsets, baseline, cap)
        outcomes.add(answer.certified)
        assert answer.certified == (status == cp.OPTIMAL)
        check(form, posterior, answer, confidence, offsets=offsets, baseline=baseline)
        assert answer.probabilities.max() <= cap + 1e-12
        if answer.certified:
            assert answer.value == pytest.approx(value, abs=1e-5)
    assert outcomes == {True, False}


@pytest.mark.parametrize("objective", [SOFT, MIXED])
def test_two_and_three_candidates_agree_with_a_fine_grid(objective: Objective) -> None:
    rng = np.random.default_rng(2)
    form = objective.form()
    for turn in range(12):
        width = 2 + turn % 2
        posterior = independent(rng, width, float(rng.choice([0.05, 0.3, 1.0])))
        answer = solve_robust(form, posterior)
        check(form, posterior, answer, 0.95)
        steps = np.linspace(0.0, 1.0, 2001 if width == 2 else 101)
        grid = [(a, 1.0 - a) for a in steps] if width == 2 else [(a, b, 1.0 - a - b) for a in steps for b in steps]
        points = np.array([point for point in grid if min(point) >= -1e-12])
        levels = points @ (form.rows @ posterior.mean).T - form.at
        spreads = np.stack([posterior.spread(row, points) for row in form.rows], axis=1)
        soft = ~form.hard
        values = form.goal.value(points @ posterior.mean.T)
        values = values - expected_penalty(levels, spreads)[:, soft] @ form.penalties[soft]
        held = (levels - norm.ppf(0.95) * spreads >= 0.0)[:, form.hard].all(axis=1)
        assert answer.value >= values[held].max() - 1e-9
        assert answer.value <= values[held].max() + (0.01 if width == 2 else 0.2)


def test_the_expected_value_is_the_average_of_many_draws() -> None:
    rng = np.random.default_rng(3)
    form, posterior = SOFT.form(), independent(rng, 4, 0.5)
    answer = solve_robust(form, posterior)
    blended = np.concatenate(
        [posterior.draw(rng.standard_normal((50_000, 3, 4))) @ answer.probabilities for _ in range(8)]
    )
    values = form.value(blended)
    assert answer.value == pytest.approx(values.mean(), abs=5.0 * values.std() / np.sqrt(len(values)))


@pytest.mark.parametrize("kind", [independent, joint])
def test_certificates_agree_with_posterior_draws(kind: Any) -> None:
    rng = np.random.default_rng(4)
    form, posterior = MIXED.form(), kind(rng, 6, 0.4)
    offsets = np.array([1.0, 0.5])
    answer = solve_robust(form, posterior, confidence=0.9, offsets=offsets, baseline=2)
    samples = posterior.draw(rng.standard_normal((200_000, 3, 6)))
    at_mean = form.rows @ posterior.mean[:, 2]
    drawn = np.stack(
        [
            samples @ contrast(answer.probabilities, offset, 2) @ row + offset * level
            for row, offset, level in zip(form.rows, offsets, at_mean, strict=True)
        ],
        axis=1,
    )
    shares = (drawn >= form.at).mean(axis=0)
    chances = holding_probabilities(form, posterior, answer.probabilities, offsets, 2)
    assert chances == pytest.approx(shares, abs=5e-3)
    assert answer.certified
    assert chances[0] >= 0.9 - 1e-9


def test_intervals_cover_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    posterior = independent(rng, 5, 0.7)
    p, rows = rng.dirichlet(np.ones(5)), rng.normal(size=(4, 3))
    low, high = intervals(posterior, p, rows, confidence=0.8).T
    drawn = posterior.draw(rng.standard_normal((100_000, 3, 5))) @ p @ rows.T
    assert ((low < drawn) & (drawn < high)).mean(axis=0) == pytest.approx(np.full(4, 0.8), abs=0.01)


@given(st.integers(0, 10_000), st.sampled_from([HARD, MIXED]))
@settings(max_examples=25, deadline=None)
def test_more_confidence_costs_goal_and_holds_more_surely(seed: int, objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    form, posterior = objective.form(), independent(rng, 10, 0.3)
    answers = [solve_robust(form, posterior, confidence=confidence) for confidence in (0.5, 0.8, 0.95, 0.99)]
    assert all(answer.certified for answer in answers)
    assert (np.diff([answer.value for answer in answers]) <= 1e-9).all()
    chances = [holding_probabilities(form, posterior, answer.probabilities)[form.hard].min() for answer in answers]
    assert (np.array(chances) >= np.array([0.5, 0.8, 0.95, 0.99]) - 1e-9).all()


@given(st.integers(0, 10_000), st.sampled_from([HARD, SOFT, MIXED]))
@settings(max_examples=25, deadline=None)
def test_a_wider_posterior_is_worth_less(seed: int, objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    form, narrow = objective.form(), independent(rng, 8, 0.3)
    wide = IndependentPosterior(narrow.mean, 1.5**2 * narrow.covariances)
    one, two = solve_robust(form, narrow), solve_robust(form, wide)
    if one.certified and two.certified:
        assert two.value <= one.value + 1e-9
        level, spread = slack_and_spread(form, narrow, two.probabilities)
        assert (level >= 1.5 * norm.ppf(0.95) * spread - 1e-9)[form.hard].all()


@pytest.mark.parametrize("objective", [HARD, SOFT, MIXED])
@pytest.mark.parametrize("spread", [0.0, 1e-9])
def test_a_posterior_without_variance_gives_the_exact_answer(objective: Objective, spread: float) -> None:
    rng = np.random.default_rng(6)
    form = objective.form()
    for _ in range(15):
        posterior = independent(rng, 12, 0.0)
        sure = IndependentPosterior(posterior.mean, posterior.covariances + spread**2 * np.eye(3))
        answer, exact = solve_robust(form, sure), solve_exact(form, posterior.mean)
        assert answer.certified == exact.feasible
        assert answer.probabilities == pytest.approx(exact.probabilities, abs=1e-6)
        assert answer.duals == pytest.approx(np.where(form.hard, exact.duals, 0.0), abs=1e-5)


def test_half_confidence_asks_for_the_mean_only() -> None:
    posterior = independent(np.random.default_rng(7), 12, 0.5)
    form = HARD.form()
    answer, exact = solve_robust(form, posterior, confidence=0.5), solve_exact(form, posterior.mean)
    assert answer.probabilities == pytest.approx(exact.probabilities, abs=1e-9)


def test_the_duals_are_what_a_unit_of_slack_is_worth() -> None:
    rng = np.random.default_rng(8)
    binding_count = 0
    for _ in range(15):
        posterior = independent(rng, 8, 0.2)
        for place in range(2):
            objectives = [
                pasto.maximize("x")
                .keep("y", at_least=-step * (place == 0))
                .keep("z", at_least=-0.2 - step * (place == 1))
                for step in (0.0, 1e-5, -1e-5)
            ]
            here, more, less = (solve_robust(objective.form(), posterior) for objective in objectives)
            if here.certified and less.certified:
                binding_count += bool(here.duals[place] > 1e-3)
                assert here.duals[place] == pytest.approx((more.value - less.value) / 2e-5, rel=1e-2, abs=1e-4)
    assert binding_count > 5


def test_where_no_blend_is_safe_enough_it_is_the_safest() -> None:
    rng = np.random.default_rng(9)
    form = HARD.form()
    for _ in range(10):
        posterior = independent(rng, 6, 3.0, safe=False)
        posterior.mean[1:] += 0.3
        answer = solve_robust(form, posterior)
        if answer.certified:
            continue
        check(form, posterior, answer, 0.95)
        level, spread = slack_and_spread(form, posterior, answer.probabilities)
        reached = (level / spread).min()
        others = rng.dirichlet(np.full(6, 0.5), size=3000)
        levels = others @ (form.rows @ posterior.mean).T - form.at
        spreads = np.stack([posterior.spread(row, others) for row in form.rows], axis=1)
        assert reached >= (levels / spreads).min(axis=1).max() - 1e-5


@pytest.mark.parametrize("cap", [None, 0.3])
def test_where_even_the_means_miss_it_is_the_nearest_miss(cap: float | None) -> None:
    rng = np.random.default_rng(10)
    form, posterior = HARD.form(), independent(rng, 8, 0.5, safe=False)
    posterior.mean[1:] -= 5.0
    answer = solve_robust(form, posterior, caps=cap)
    assert not answer.certified
    if cap is None:
        assert answer.probabilities == pytest.approx(solve_exact(form, posterior.mean).probabilities)
        return
    slack = form.rows @ posterior.mean - form.at[:, None]
    p = cp.Variable(8, nonneg=True)
    shortfalls = cp.neg((slack / np.ptp(slack, axis=1)[:, None]) @ p)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(shortfalls)), [cp.sum(p) == 1, p <= cap])
    problem.solve(solver=cp.CLARABEL)
    assert answer.probabilities == pytest.approx(p.value, abs=1e-4)


def test_the_baseline_against_itself_is_certain() -> None:
    rng = np.random.default_rng(11)
    objective = pasto.maximize("x").keep("y", at_least="+0%").keep("z", at_least="-50%")
    for kind in (independent, joint):
        posterior = kind(rng, 20, 2.0)
        # By the estimates, no candidate is better than the baseline.
        posterior.mean[:] = 5.0 - 0.1 * np.abs(posterior.mean)
        posterior.mean[:, 3] = 5.0
        form = objective.form(posterior.mean[:, 3])
        answer = solve_robust(form, posterior, offsets=np.array([1.0, 0.5]), baseline=3)
        assert answer.certified
        assert np.flatnonzero(answer.probabilities).tolist() == [3]
        assert holding_probabilities(form, posterior, answer.probabilities, np.array([1.0, 0.5]), 3)[0] == 1.0
        # As an absolute threshold, no candidate can certify the same guardrail.
        assert not solve_robust(form, posterior).certified


def test_what_candidates_and_baseline_share_cancels() -> None:
    # One error common to all: the level is unknown, the differences are exact.
    mean = np.array([[1.0, 2.0, 3.0], [5.0, 4.99, 4.0]])
    posterior = JointPosterior(mean, np.array([np.full((3, 3), 0.25), np.full((3, 3), 100.0)]))
    form = pasto.maximize("x").keep("y", at_least="-1%").form(mean[:, 0])
    against = solve_robust(form, posterior, offsets=np.array([1.0]), baseline=0)
    exact = solve_exact(form, mean)
    assert against.certified
    assert against.probabilities == pytest.approx(exact.probabilities, abs=1e-7)


@given(st.integers(0, 10_000), st.sampled_from([HARD, SOFT, MIXED]))
@settings(max_examples=20, deadline=None)
def test_caps_hold_and_reduce_the_value(seed: int, objective: Objective) -> None:
    rng = np.random.default_rng(seed)
    form, posterior = objective.form(), independent(rng, 10, 0.1)
    caps = rng.uniform(0.15, 0.6, size=10)
    free, capped = solve_robust(form, posterior), solve_robust(form, posterior, caps=caps)
    assert (capped.probabilities <= caps + 1e-12).all()
    assert capped.value <= free.value + 1e-9 or not (capped.certified and free.certified)
    if (free.probabilities <= caps).all() and free.certified:
        assert capped.value == pytest.approx(free.value, abs=1e-8)


def test_caps_that_add_up_to_one_leave_no_choice() -> None:
    posterior = independent(np.random.default_rng(12), 4, 0.1)
    answer = solve_robust(SOFT.form(), posterior, caps=0.25)
    assert answer.probabilities == pytest.approx(np.full(4, 0.25))
    assert answer.value == pytest.approx(expected(SOFT.form(), posterior, answer.probabilities))


@dataclass(frozen=True)
class MatrixPosterior:
    """Independent posterior whose factors are matrices."""

    inner: IndependentPosterior

    @property
    def mean(self) -> FloatArray:
        return self.inner.mean

    def covariance(self) -> FloatArray:
        return self.inner.covariance()

    def factor(self, row: FloatArray) -> FloatArray:
        return np.diag(self.inner.factor(row))

    def spread(self, row: FloatArray, weights: FloatArray) -> FloatArray:
        return self.inner.spread(row, weights)

    def take(self, places: NDArray[np.intp]) -> "MatrixPosterior":
        return MatrixPosterior(self.inner.take(places))

    def draw(self, noise: FloatArray, order: NDArray[np.intp] | None = None) -> FloatArray:
        return self.inner.draw(noise, order)

    def variances(self, rows: FloatArray) -> FloatArray:
        return self.inner.variances(rows)


@pytest.mark.parametrize("objective", [HARD, SOFT, MIXED])
def test_a_matrix_that_is_diagonal_changes_nothing(objective: Objective) -> None:
    posterior = independent(np.random.default_rng(13), 15, 0.4)
    form = objective.form()
    one, two = solve_robust(form, posterior), solve_robust(form, MatrixPosterior(posterior))
    assert two.probabilities == pytest.approx(one.probabilities, abs=1e-8)
    assert two.duals == pytest.approx(one.duals, abs=1e-7)


@pytest.mark.parametrize("objective", [HARD, SOFT, MIXED])
def test_thousands_of_dominated_candidates_change_nothing(objective: Objective) -> None:
    rng = np.random.default_rng(14)
    form, posterior = objective.form(), independent(rng, 20, 0.3)
    worse = np.repeat(np.arange(20), 200)
    many = IndependentPosterior(
        np.hstack([posterior.mean, posterior.mean[:, worse] - rng.uniform(6.0, 9.0, size=(3, 4000))]),
        np.concatenate([posterior.covariances, posterior.covariances[worse]]),
    )
    one, two = solve_robust(form, posterior), solve_robust(form, many)
    assert two.probabilities[:20] == pytest.approx(one.probabilities, abs=1e-7)
    assert not two.probabilities[20:].any()


def test_the_same_question_has_the_same_answer_in_other_units() -> None:
    posterior = independent(np.random.default_rng(15), 9, 0.3)
    small = np.diag([1e-3, 1e-6, 1e4])
    scaled = IndependentPosterior(small @ posterior.mean, small @ posterior.covariances @ small)
    other = pasto.maximize("x").keep("y", at_least=0.0).keep("z", at_least=-0.2e4, penalty=10.0 * 1e-3 / 1e8)
    one, two = solve_robust(MIXED.form(), posterior), solve_robust(other.form(), scaled)
    assert two.probabilities == pytest.approx(one.probabilities, abs=1e-8)
    assert two.duals == pytest.approx(one.duals * 1e-3 / np.array([1e-6, 1e4]), rel=1e-6)


def test_a_ratio_is_that_of_the_expectations() -> None:
    rng = np.random.default_rng(16)
    mean = rng.uniform(1.0, 3.0, size=(3, 10))
    posterior = IndependentPosterior(mean, np.tile(0.04 * np.eye(3), (10, 1, 1)))
    objective = pasto.maximize(pasto.ratio("likes", "views")).keep("watch", at_least=2.5)
    form = objective.form()
    answer = solve_robust(form, posterior)
    check(form, posterior, answer, 0.95)
    assert answer.certified
    for shares in rng.dirichlet(np.full(10, 0.2), size=5000):
        level, spread = slack_and_spread(form, posterior, shares)
        assert level[0] < norm.ppf(0.95) * spread[0] or form.goal.value(mean @ shares) <= answer.value + 1e-9
    lower, higher = (
        solve_robust(pasto.maximize(pasto.ratio("likes", "views")).keep("watch", at_least=at).form(), posterior).value
        for at in (2.5 - 1e-5, 2.5 + 1e-5)
    )
    assert answer.duals[0] == pytest.approx((lower - higher) / 2e-5, rel=1e-3)
    assert answer.duals[0] > 0.01
    sure = IndependentPosterior(mean, np.zeros((10, 3, 3)))
    assert solve_robust(form, sure).probabilities == pytest.approx(solve_exact(form, mean).probabilities)


@pytest.mark.parametrize("objective", [LOG, LOG.keep("z", at_least=2.0), LOG.keep("z", at_least=2.5, penalty=5.0)])
def test_a_utility_is_averaged_over_posterior_draws(objective: Objective) -> None:
    rng = np.random.default_rng(17)
    mean = rng.uniform(1.0, 3.0, size=(len(objective.metrics), 10))
    eye = np.eye(len(mean))
    posterior = IndependentPosterior(mean, np.tile(0.16 * eye, (10, 1, 1)))
    form = objective.form()
    answer = solve_robust(form, posterior, rng=np.random.default_rng(1))
    again = solve_robust(form, posterior, rng=np.random.default_rng(1))
    assert (answer.probabilities == again.probabilities).all()
    assert answer.certified
    samples = posterior.draw(np.random.default_rng(1).standard_normal((128, *mean.shape)))[:, :2]

    def worth(shares: FloatArray) -> float:
        level, spread = slack_and_spread(form, posterior, shares)
        soft = ~form.hard
        average = np.log(np.clip(samples, 0.1, 20.0) @ shares).sum(axis=1).mean()
        return float(average - form.penalties[soft] @ expected_penalty(level, spread)[soft])

    assert answer.value == pytest.approx(worth(answer.probabilities), abs=1e-12)
    for shares in rng.dirichlet(np.full(10, 0.3), size=500):
        for mixed in (shares, 0.95 * answer.probabilities + 0.05 * shares):
            level, spread = slack_and_spread(form, posterior, mixed)
            if (level >= norm.ppf(0.95) * spread)[form.hard].all():
                assert worth(mixed) <= answer.value + 1e-8
    sure = IndependentPosterior(mean, np.zeros((10, *eye.shape)))
    assert solve_robust(form, sure).probabilities == pytest.approx(solve_exact(form, mean).probabilities, abs=1e-5)


def test_a_utility_with_a_kink_is_solved_too() -> None:
    rng = np.random.default_rng(18)
    over = {"x": (-9.0, 9.0), "y": (-9.0, 9.0)}
    least = pasto.utility(lambda y: y.min(-1), lambda y: 1.0 * (y == y.min(-1, keepdims=True)), over=over)
    form = least.keep("z", at_least=0.0).form()
    posterior = independent(rng, 6, 0.2)
    answer = solve_robust(form, posterior)
    assert answer.certified
    samples = posterior.draw(np.random.default_rng(0).standard_normal((128, 3, 6)))[:, :2]
    for shares in rng.dirichlet(np.full(6, 0.4), size=1000):
        level, spread = slack_and_spread(form, posterior, shares)
        if level[0] >= norm.ppf(0.95) * spread[0]:
            assert (samples @ shares).min(axis=1).mean() <= answer.value + 1e-4


def test_a_metric_with_a_level_far_above_its_range_is_certified() -> None:
    rng = np.random.default_rng(21)
    for _ in range(10):
        posterior = independent(rng, 6, 0.3)
        lifted = IndependentPosterior(
            1e-8 * posterior.mean + np.array([[0.0], [50.0], [50.0]]), 1e-16 * posterior.covariances
        )
        form = pasto.maximize("x").keep("y", at_least=50.0).keep("z", at_least=50.0 - 0.2e-8).form()
        answer = solve_robust(form, lifted)
        assert answer.certified
        assert (holding_probabilities(form, lifted, answer.probabilities) >= 0.95 - 1e-8).all()


def test_without_guardrails_the_best_mean_is_taken() -> None:
    posterior = independent(np.random.default_rng(19), 5, 1.0)
    answer = solve_robust(pasto.maximize({"x": 1.0, "y": 2.0, "z": 1.0}).form(), posterior)
    assert answer.probabilities.tolist() == np.eye(5)[np.argmax([1.0, 2.0, 1.0] @ posterior.mean)].tolist()
    assert answer.certified


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 0.4}, "confidence= lies from 0.5 to below 1, got 0.4"),
        ({"confidence": 1.0}, "confidence= lies from 0.5"),
        ({"offsets": np.ones(3)}, "one number for each of the 2 guardrails"),
        ({"offsets": np.ones(2)}, "pass baseline="),
        ({"baseline": 7}, "an index from 0 to 3"),
        ({"caps": 0.2}, "caps= add up to 0.8"),
        ({"caps": [0.0, 1.0, 1.0, 1.0]}, "shares above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        solve_robust(HARD.form(), independent(np.random.default_rng(20), 4, 0.1), **options)
