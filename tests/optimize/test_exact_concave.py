"""Concave utilities: the same optimum as a conic solver, smooth or with kinks."""

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import pasto.optimize.exact.concave as concave
import pasto.optimize.exact.concave as cuts
from pasto import solve, utility
from pasto.arrays import FloatArray
from pasto.errors import SolverError
from pasto.objective import Objective

Pair = tuple[Callable[[FloatArray], FloatArray], Callable[[FloatArray], FloatArray]]
KINDS: dict[str, tuple[Pair, Callable[[Any], Any]]] = {
    "log": ((lambda y: np.log(y).sum(-1), lambda y: 1 / y), lambda y: cp.sum(cp.log(y))),
    "root": ((lambda y: np.sqrt(y).sum(-1), lambda y: 0.5 / np.sqrt(y)), lambda y: cp.sum(cp.sqrt(y))),
    "square": ((lambda y: y.sum(-1) - (y**2).sum(-1), lambda y: 1 - 2 * y), lambda y: cp.sum(y) - cp.sum_squares(y)),
    "product": (
        (lambda y: np.exp(np.log(y).mean(-1)), lambda y: np.exp(np.log(y).mean(-1))[..., None] / y / y.shape[-1]),
        cp.geo_mean,
    ),
    "least": (
        (lambda y: y.min(-1), lambda y: 1.0 * (np.arange(y.shape[-1]) == y.argmin(-1)[..., None])),
        cp.min,
    ),
}


@pytest.mark.parametrize("rails", ["none", "soft", "hard", "both"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_utility_agrees_with_clarabel(kind: str, rails: str) -> None:
    rng = np.random.default_rng(len(kind) + 10 * len(rails))
    functions, formula = KINDS[kind]
    objective = _over(functions, "a", "b", "c")
    means = rng.uniform(0.1, 2, size=(3, 20))
    p = cp.Variable(20, nonneg=True)
    value, limits = formula(means @ p), [cp.sum(p) == 1]
    for name, wanted in (("hard", rails in ("hard", "both")), ("soft", rails in ("soft", "both"))):
        if wanted:
            row = rng.uniform(0.1, 2, size=20)
            means = np.vstack([means, row])
            if name == "hard":
                objective = objective.keep(name, at_least=1.3)
                limits.append(row @ p >= 1.3)
            else:
                objective = objective.keep(name, at_least=1.4, penalty=3.0)
                value = value - 3.0 * cp.square(cp.neg(row @ p - 1.4))
    problem = cp.Problem(cp.Maximize(value), limits)
    problem.solve(solver=cp.CLARABEL)
    blend = solve(means, objective)
    assert blend.feasible
    assert blend.value == pytest.approx(problem.value, rel=1e-6, abs=1e-7)
    assert len(blend.support) <= 1 + len(means)


def test_a_hard_guardrails_price_is_the_utilitys_slope() -> None:
    means = np.random.default_rng(1).uniform(0.1, 2, size=(3, 12))
    for kind in ("log", "least"):
        fair = _over(KINDS[kind][0], "a", "b")

        def at(limit: float, fair: Objective = fair) -> float:
            return solve(means, fair.keep("y", at_least=limit)).value

        price = solve(means, fair.keep("y", at_least=1.8)).prices["y"]
        assert price > 0
        assert price == pytest.approx((at(1.799) - at(1.801)) / 0.002, rel=1e-3)


def test_an_infeasible_limit_leaves_the_best_utility_of_the_nearest() -> None:
    truth = {"a": [1.0, 2.0, 0.5], "b": [1.0, 0.5, 2.0], "y": [0.0, 1.0, 1.0]}
    blend = solve(truth, _over(KINDS["log"][0], "a", "b").keep("y", at_least=2))
    assert blend.probabilities == pytest.approx((0.0, 0.5, 0.5), abs=1e-6)
    assert not blend.feasible
    assert blend.shortfalls == pytest.approx({"y": 1.0})


def test_one_candidate_and_a_flat_utility() -> None:
    assert solve([[1.0], [2.0]], _over(KINDS["log"][0], "a", "b")).probabilities == (1.0,)
    flat = _over((lambda y: 0.0 * y.sum(-1), lambda y: 0.0 * y), "a")
    assert solve([[1.0, 2.0]], flat).probabilities == (1.0, 0.0)


def test_a_plain_sum_gives_one_candidate() -> None:
    total = _over((lambda y: y.sum(-1), lambda y: np.ones_like(y)), "a", "b")
    assert solve([[1.0, 2.0, 1.5], [1.0, 1.0, 1.2]], total).probabilities == (0.0, 1.0, 0.0)


def test_kinks_are_left_to_the_cuts_and_smooth_utilities_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    by_cuts = concave.solve_by_cuts

    def counted(*given: Any, **how: Any) -> tuple[FloatArray, FloatArray]:
        calls.append(given)
        return by_cuts(*given, **how)

    monkeypatch.setattr(concave, "solve_by_cuts", counted)
    means = np.random.default_rng(2).uniform(0.1, 2, size=(2, 9))
    solve(means, _over(KINDS["log"][0], "a", "b"))
    solve(means, _over((lambda y: -np.logaddexp.reduce(-50 * y, axis=-1), _steep), "a", "b"))  # almost a kink
    assert not calls
    solve(means, _over(KINDS["least"][0], "a", "b"))
    assert calls


def test_too_few_cuts_raise_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "MAX_CUTS", 1)
    with pytest.raises(SolverError, match="with 1 tangents"):
        solve({"a": [2.0, 0.5], "b": [0.5, 2.0]}, _over(KINDS["least"][0], "a", "b"))


def _steep(y: FloatArray) -> FloatArray:
    weights = np.exp(-50 * (y - y.min(axis=-1, keepdims=True)))
    return np.asarray(50 * weights / weights.sum(axis=-1, keepdims=True))


def _over(functions: Pair, *names: str) -> Objective:
    return utility(*functions, over=dict.fromkeys(names, (0.05, 5.0)))
