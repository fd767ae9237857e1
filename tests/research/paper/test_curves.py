import numpy as np
import pytest

from pasto_research.paper.curves import Curve, describe_power


def test_a_power_law_is_found_with_its_error() -> None:
    rng = np.random.default_rng(1)
    rounds = (10, 100, 1_000, 10_000)
    values = np.array(rounds, dtype=float) ** -0.75 * rng.gamma(4.0, 0.25, size=(500, 4))
    power = Curve(rounds, values).exponent()
    assert power is not None
    assert abs(power[0] + 0.75) < 4 * power[1] < 0.1


def test_the_error_of_an_exponent_is_that_of_repeated_experiments() -> None:
    rng = np.random.default_rng(2)
    rounds = (10, 100, 1_000)
    fits = [Curve(rounds, rng.gamma(2.0, size=(200, 3))).exponent() for _ in range(200)]
    found = np.array([fit for fit in fits if fit is not None])
    assert found[:, 0].std() == pytest.approx(found[:, 1].mean(), rel=0.2)


def test_only_the_rounds_asked_for_are_fitted() -> None:
    curve = Curve((1, 10, 100), np.array([[7.0, 1.0, 10.0]]))
    power = curve.exponent(since=10)
    assert power is not None
    assert power[0] == pytest.approx(1.0)
    assert np.isnan(power[1])


def test_what_is_not_positive_or_too_short_has_no_exponent() -> None:
    assert Curve((1, 10), np.array([[1.0, -1.0]])).exponent() is None
    assert Curve((1, 10), np.array([[1.0, 1.0]])).exponent(since=10) is None
    assert describe_power(None) == "no power of T"


def test_mean_and_error_are_those_over_runs() -> None:
    curve = Curve((1, 10), np.array([[1.0, 2.0], [3.0, 2.0]]))
    assert curve.at(1) == (2.0, 1.0)
    assert curve.at(10) == (2.0, 0.0)
    assert np.isnan(Curve((1,), np.array([[1.0]])).error).all()
