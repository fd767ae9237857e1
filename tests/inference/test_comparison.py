"""Comparison of arms within rounds: equal to unit-level formulas and to tea-tasting, and unbiased under swings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pasto.errors import MeasurementError, OptionError
from pasto.inference import CellStatistics, Comparison, Quantity, build_side, compare, unit_covariances
from pasto.inference.comparison import Weights


def cells_of(groups: list[list[Any]]) -> CellStatistics:
    """Return moments of units, given by round and cell as arrays of (units, columns)."""
    return CellStatistics(
        np.array([[len(units) for units in row] for row in groups], dtype=float),
        np.array([[units.mean(axis=0) for units in row] for row in groups]),
        np.array([[(units - units.mean(axis=0)).T @ (units - units.mean(axis=0)) for units in row] for row in groups]),
    )


def compared(cells: CellStatistics, quantity: Quantity, weights: Weights = "traffic", **options: Any) -> Comparison:
    covariances = unit_covariances(cells, running=options.get("running", False))
    return compare(
        build_side(cells, covariances, 1), build_side(cells, covariances, 0), quantity, weights=weights, **options
    )


def fixed_allocation() -> CellStatistics:
    """Return seven hundred users in one round, two of seven treated: columns watch time, likes, views."""
    number = np.arange(700)
    treated = number % 7 < 2
    views = 4.0 + (number * number) % 9
    likes = np.floor(views * (0.25 + 0.05 * treated) + 2 * np.abs(np.sin(1.7 * number)))
    watch = 30 + 8 * np.sin(0.9 * number) + 3 * treated * np.cos(number) + 1.5 * treated
    columns = np.stack([watch, likes, views], axis=1)
    return cells_of([[columns[~treated], columns[treated]]])


@pytest.mark.parametrize(
    ("quantity", "absolute", "relative"),
    [
        (
            Quantity(0),
            (10.069032695029666, 9.484288523981045, 10.653776866078287),
            (0.3653209788177605, 0.34018589574604396, 0.39092746843317183),
        ),
        (
            Quantity(1, 2),
            (0.06653371510134126, 0.04722888751602536, 0.08583854268665717),
            (0.18553846366606286, 0.13087981855972775, 0.2428389168901386),
        ),
    ],
)
def test_a_fixed_allocation_reads_as_in_tea_tasting(
    quantity: Quantity, absolute: tuple[float, ...], relative: tuple[float, ...]
) -> None:
    """Compare with tea-tasting 1.14 on the same users: Welch's t, delta method, relative lifts by logarithm."""
    found = compared(fixed_allocation(), quantity)
    for weights in ("traffic", "even"):
        again = compared(fixed_allocation(), quantity, weights)
        assert again.difference == pytest.approx(float(found.difference), rel=1e-12)
    ours, theirs = found.lift(0.05, sequential=False), found.relative_by_logarithm(0.05)
    assert [float(end) for end in (ours.estimate, ours.low, ours.high)] == pytest.approx(absolute, abs=1e-9)
    assert [float(end) for end in (theirs.estimate, theirs.low, theirs.high)] == pytest.approx(relative, abs=1e-9)
    equation = found.relative(0.05, sequential=False)
    assert [float(end) for end in (equation.low, equation.high)] == pytest.approx(relative[1:], abs=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_what_both_sides_of_a_round_share_cancels(seed: int, first: float, second: float) -> None:
    rng = np.random.default_rng(seed)
    groups = [[rng.standard_normal((size, 1)) for size in rng.integers(2, 30, 2)] for _ in range(2)]
    moved = [[units + shift for units in row] for row, shift in zip(groups, (first, second), strict=True)]
    for weights in ("traffic", "even"):
        plain, other = (compared(cells_of(each), Quantity(0), weights) for each in (groups, moved))
        assert other.difference == pytest.approx(float(plain.difference), abs=1e-8)
        assert other.variance == pytest.approx(float(plain.variance), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_arms_are_joined_as_if_their_units_had_been_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [rng.standard_normal((size, 2)) * 3 + 1e3 for size in rng.integers(1, 20, 3)]
    joined = cells_of([groups]).join([0, 2])
    complete = cells_of([[np.concatenate([groups[0], groups[2]])]])
    for ours, direct in ((joined.units[0, 3], complete.units[0, 0]), (joined.mean[0, 3], complete.mean[0, 0])):
        assert ours == pytest.approx(direct)
    assert joined.cross[0, 3] == pytest.approx(complete.cross[0, 0], rel=1e-6, abs=1e-6)


def test_one_round_keeps_its_own_covariance_and_running_knows_no_future() -> None:
    rng = np.random.default_rng(2)
    groups = [[rng.standard_normal((size, 2)) for size in (3, 40)] for _ in range(4)]
    cells = cells_of(groups)
    single = cells_of(groups[:1])
    for place in (0, 1):
        assert unit_covariances(single)[0, place] == pytest.approx(np.cov(groups[0][place].T))
    along = unit_covariances(cells, running=True)
    for rounds in (1, 2, 3):
        shorter = unit_covariances(cells_of(groups[:rounds]), running=True)
        assert along[:rounds] == pytest.approx(shorter)
    assert along[-1] != pytest.approx(unit_covariances(cells_of(groups[-1:]))[0])


def test_small_cells_borrow_and_large_ones_do_not() -> None:
    rng = np.random.default_rng(4)
    few = cells_of([[rng.standard_normal((3, 1)), rng.standard_normal((3, 1))] for _ in range(400)])
    spread = unit_covariances(few)[..., 0, 0]
    assert spread.mean() == pytest.approx(1.0, abs=0.06)
    assert spread.std() < 0.1
    own = few.cross[..., 0, 0] / 2
    assert own.std() > 0.8
    noisy = cells_of([[rng.standard_normal((2_000, 1)), 3 * rng.standard_normal((2_000, 1))] for _ in range(3)])
    assert unit_covariances(noisy)[..., 0, 0].mean(axis=0) == pytest.approx([1.0, 9.0], rel=0.1)
    lonely = CellStatistics(np.ones((1, 2)), np.zeros((1, 2, 1)), np.zeros((1, 2, 1, 1)))
    assert np.isfinite(unit_covariances(lonely)).all()


def test_a_small_cell_is_as_wide_as_its_round() -> None:
    rng = np.random.default_rng(10)
    widths = [1.0, 3.0] * 20
    cells = cells_of([[width * rng.standard_normal((size, 1)) for size in (4_000, 4)] for width in widths])
    for running in (False, True):
        few = unit_covariances(cells, running=running)[10:, 1, 0, 0]
        assert few[::2].mean() == pytest.approx(1.0, rel=0.4)
        assert few[1::2].mean() == pytest.approx(9.0, rel=0.4)


def test_looking_early_a_cell_may_be_wider_than_the_others_and_not_much_narrower() -> None:
    rng = np.random.default_rng(11)
    wide, none, many = 3.0 * rng.standard_normal((60, 1)), np.zeros((60, 1)), rng.standard_normal((2_000, 1))
    found = unit_covariances(cells_of([[wide, none, many]]), running=True)[0, :, 0, 0]
    assert found[0] >= 0.99 * wide.var(ddof=1)
    assert found[1] > 0.4
    assert found[2] == pytest.approx(many.var(ddof=1), rel=0.05)


def test_the_last_of_a_running_comparison_is_the_whole() -> None:
    rng = np.random.default_rng(5)
    cells = cells_of([[1 + rng.random((500, 2)), 1.2 + rng.random((500, 2))] for _ in range(6)])
    for quantity in (Quantity(0), Quantity(0, 1)):
        along, complete = compared(cells, quantity, running=True), compared(cells, quantity)
        assert along.difference[-1] == pytest.approx(float(complete.difference), rel=1e-12)
        assert along.variance[-1] == pytest.approx(float(complete.variance), rel=0.02)
        assert along.information.tolist() == pytest.approx([1, 2, 3, 4, 5, 6])


def test_a_covariate_takes_noise_away_and_leaves_the_lift() -> None:
    rng = np.random.default_rng(6)

    def users(size: int, lift: float) -> Any:
        before = rng.standard_normal(size)
        return np.stack([5 + lift + 0.9 * before + np.sqrt(1 - 0.81) * rng.standard_normal(size), before], axis=1)

    lifts, errors = [], []
    for _ in range(100):
        cells = cells_of([[users(150, 0.0), users(150, 0.1)] for _ in range(3)])
        plain, adjusted = compared(cells, Quantity(0)), compared(cells, Quantity(0), covariate=1)
        assert adjusted.variance == pytest.approx(0.19 * float(plain.variance), rel=0.2)
        lifts.append(float(adjusted.difference))
        errors.append(abs(float(adjusted.difference) - 0.1) / float(np.sqrt(adjusted.variance)))
    assert np.mean(lifts) == pytest.approx(0.1, abs=0.01)
    assert np.mean(np.array(errors) < 1.96) > 0.88


def with_a_past(apart: float) -> CellStatistics:
    """Return seven hundred users in pairs, one of each pair treated, whose pasts differ only by `apart`.

    Columns are watch time, likes and views, and the same three of the time before.
    """
    number = np.arange(700)
    treated, pair = number % 2, number // 2
    before_views = 4.0 + (pair * pair) % 7
    before_watch = 20 + 6 * np.sin(0.7 * pair) + 2 * np.cos(2.1 * pair) + apart * np.sin(3.3 * number)
    before_likes = np.floor(before_views * (0.3 + 0.1 * np.sin(1.3 * pair)) + apart * np.abs(np.cos(number)))
    views = 4.0 + (number * number) % 9
    likes = np.floor(views * (0.25 + 0.05 * treated) + 0.5 * before_likes + 2 * np.abs(np.sin(1.7 * number)))
    watch = 30 + 0.8 * before_watch + 3 * np.sin(0.9 * number) + treated * (1.5 + np.cos(number))
    columns = np.stack([watch, likes, views, before_watch, before_likes, before_views], axis=1)
    return cells_of([[columns[treated == 0], columns[treated == 1]]])


WATCH, RATE = (Quantity(0), Quantity(3)), (Quantity(1, 2), Quantity(4, 5))


@pytest.mark.parametrize(
    ("metric", "apart", "theirs", "digits"),
    [
        (WATCH, 0.0, (1.507481884687941, 1.1839184107831953, 1.8310453585926867), 1e-9),
        (RATE, 0.0, (0.04522553726020245, 0.02556447521449947, 0.06488659930590543), 1e-6),
        (WATCH, 1.0, (1.5074402521097028, 1.1838764197826972, 1.8310040844367084), 1e-4),
        (RATE, 1.0, (0.04718343535636216, 0.024999052209310087, 0.06936781850341422), 1e-5),
    ],
)
def test_an_adjusted_difference_reads_as_in_tea_tasting(
    metric: tuple[Quantity, Quantity], apart: float, theirs: tuple[float, ...], digits: float
) -> None:
    """Compare with tea-tasting 1.14 on the same users.

    It uses one slope of all users; this code uses the slope within arms of the smallest variance. If pasts are alike in
    both arms, these are equal, otherwise almost equal.
    """
    quantity, covariate = metric
    cells = with_a_past(apart)
    ours = compared(cells, quantity, covariate=covariate).lift(0.05, sequential=False)
    assert [float(end) for end in (ours.estimate, ours.low, ours.high)] == pytest.approx(theirs, abs=digits)
    raw = compared(cells, quantity).lift(0.05, sequential=False)
    assert float(ours.high - ours.low) < 0.96 * float(raw.high - raw.low)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_adjusting_never_widens_and_no_shift_of_the_past_matters(seed: int, ratio: bool) -> None:
    rng = np.random.default_rng(seed)
    groups = [[1.0 + rng.random((size, 4)) for size in rng.integers(5, 60, 2)] for _ in range(3)]
    moved = [[units + np.array([0.0, 0.0, 7.0, 0.0]) for units in row] for row in groups]
    quantity = Quantity(0, 1) if ratio else Quantity(0)
    raw = compared(cells_of(groups), quantity)
    for covariate in (Quantity(2), Quantity(2, 3)):
        adjusted = compared(cells_of(groups), quantity, covariate=covariate)
        assert adjusted.variance <= float(raw.variance) * (1 + 1e-9)
    first, second = (compared(cells_of(each), quantity, covariate=Quantity(2)) for each in (groups, moved))
    assert first.difference == pytest.approx(float(second.difference), abs=1e-9)
    assert first.variance == pytest.approx(float(second.variance), rel=1e-6)


def test_a_blend_is_its_candidates_at_their_shares() -> None:
    rng = np.random.default_rng(7)
    cells = cells_of([[rng.standard_normal((60, 1)) + level for level in (0.0, 1.0, 3.0)] for _ in range(4)])
    covariances = unit_covariances(cells)
    control = build_side(cells, covariances, 0)
    blend = compare(build_side(cells, covariances, {1: 0.25, 2: 0.75, 0: 0.0}), control, Quantity(0))
    parts = [compare(build_side(cells, covariances, place), control, Quantity(0)) for place in (1, 2)]
    assert blend.difference == pytest.approx(0.25 * float(parts[0].difference) + 0.75 * float(parts[1].difference))
    assert blend.treated_variance == pytest.approx(
        0.0625 * float(parts[0].treated_variance) + 0.5625 * float(parts[1].treated_variance)
    )


def test_rounds_with_one_side_missing_do_not_count_and_no_event_yet_is_no_knowledge() -> None:
    rng = np.random.default_rng(8)
    cells = cells_of([[rng.standard_normal((60, 1)) for _ in range(2)] for _ in range(3)])
    gone = CellStatistics(
        cells.units * [[1, 1], [1, 0], [1, 1]], cells.mean, cells.cross * np.array([1, 0, 1]).reshape(3, 1, 1, 1)
    )
    remaining = CellStatistics(cells.units[[0, 2]], cells.mean[[0, 2]], cells.cross[[0, 2]])
    assert compared(gone, Quantity(0)).difference == pytest.approx(float(compared(remaining, Quantity(0)).difference))
    nothing = CellStatistics(np.zeros((2, 2)), np.zeros((2, 2, 1)), np.zeros((2, 2, 1, 1)))
    silent = CellStatistics(np.full((2, 2), 400.0), np.zeros((2, 2, 1)), np.zeros((2, 2, 1, 1)))
    for empty in (nothing, silent):
        for sequential in (True, False):
            found = compared(empty, Quantity(0)).lift(0.05, sequential=sequential)
            assert np.isinf(found.high)
            assert np.isinf(found.low)


def test_a_sequence_is_unbounded_before_it_has_enough_data() -> None:
    rng = np.random.default_rng(9)
    cells = cells_of([[rng.standard_normal((20, 1)), 50 + rng.standard_normal((20, 1))] for _ in range(4)])
    found = compared(cells, Quantity(0), running=True).lift(0.05, sequential=True)
    assert np.isfinite(found.high).tolist() == [False, False, True, True]


def test_what_does_not_fit_is_refused() -> None:
    cells = fixed_allocation()
    with pytest.raises(OptionError, match="'traffic' or 'even'"):
        compared(cells, Quantity(0), "last")  # type: ignore[arg-type]
    with pytest.raises(MeasurementError, match="at least one cell"):
        build_side(cells, unit_covariances(cells), {0: 0.0})
    with pytest.raises(MeasurementError, match="cross-products"):
        CellStatistics(np.zeros((1, 2)), np.zeros((1, 2, 3)), np.zeros((1, 2, 3, 2)))
