"""Coverage checks: error rates of a report's intervals, alarms and winners, and of simpler ways (mutants)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from pasto.arrays import FloatArray
from pasto.inference import (
    CellStatistics,
    Comparison,
    Quantity,
    ValueRange,
    build_side,
    compare,
    interval_around,
    log_evidence,
    reach_at_horizon,
    unit_covariances,
)
from pasto.inference.guardrail_evidence import MIXTURE_ROUNDS, floor_evidence
from pasto.inference.multiple_comparisons import is_better
from pasto.inference.sample_ratio import MAX_FALSE_ALARM_RATE, arm_groups, imbalance_evidence
from pasto.inference.stop_level import StopLevel, gather_evidence
from pasto_research.bench.coverage_studies import Scene, Studies, simulate, sticky

BATCH = 250
"""Studies held in memory at a time."""
METRIC = Quantity(0)
Test = Literal["ours", "z", "bonferroni", "one-start"]
ERROR = 0.05


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of intervals over many studies."""

    covered: float
    relative: float
    """The same for relative lifts."""
    bias: float
    """Mean error in standard errors."""
    mutant: float
    """Coverage of the simpler way's interval."""


def batches(studies: int, seed: int) -> Iterator[tuple[int, int]]:
    """Return sizes and seeds of batches that make up so many studies."""
    for number in range(0, studies, BATCH):
        yield min(BATCH, studies - number), seed * 10_000 + number


def coverage(scene: Scene, target: str, studies: int, seed: int = 1) -> Coverage:
    """Measure fixed-horizon intervals of the "learner", a "candidate" or a "blend", each with its mutant.

    The mutants: means pooled over rounds (candidate, and everything in a steered scene), every round weighed by a
    variance of its own (blend), and the looks of forty rounds each taken as the only one (learner).
    """
    held, relative, errors, mutant = [], [], [], []
    for size, start in batches(studies, seed):
        drawn = simulate(scene, size, start)
        found, true = both(drawn, scene, target)
        held.append(found.lift(ERROR, sequential=False).covers(true.difference))
        relative.append(found.relative(ERROR, sequential=False).covers(true.treated / true.control - 1.0))
        errors.append((found.difference - true.difference) / np.sqrt(found.variance))
        mutant.append(_mutant(drawn, scene, target))
    return Coverage(*(float(np.concatenate(parts).mean()) for parts in (held, relative, errors, mutant)))


def shares_of(scene: Scene, target: str) -> dict[int, float]:
    """Return a target's shares over the cells of a scene's studies.

    >>> shares_of(Scene("small", candidates=3), "blend")
    {3: 0.5, 2: 0.5}
    """
    last = scene.candidates
    return {"learner": {last + 1: 1.0}, "candidate": {last: 1.0}, "blend": {last: 0.5, 2: 0.5}}[target]


def both(drawn: Studies, scene: Scene, target: str, *, running: bool = False) -> tuple[Comparison, Comparison]:
    """Return the measured and the true comparison of a target, with the same weights."""
    shares = shares_of(scene, target)
    covariances = unit_covariances(drawn.cells, running=running)
    found, true = (
        compare(
            build_side(cells, covariances, shares),
            build_side(cells, covariances, 0),
            METRIC,
            weights="traffic" if target == "learner" else "even",
            running=running,
        )
        for cells in (drawn.cells, drawn.truth)
    )
    return found, true


def _mutant(drawn: Studies, scene: Scene, target: str) -> NDArray[np.bool_]:
    if scene.steering is not None:
        truth = both(drawn, scene, target)[1].difference
        treated = [(share, _pooled(drawn.cells, place)) for place, share in shares_of(scene, target).items()]
        control, control_variance = _pooled(drawn.cells, 0)
        difference = sum((share * mean for share, (mean, _) in treated), start=-control)
        variance = sum((share**2 * own for share, (_, own) in treated), start=control_variance)
        return interval_around(difference, variance, reach_at_horizon(ERROR)).covers(truth)
    if target == "learner":
        found, true = both(drawn, scene, target, running=True)
        return np.asarray(found.lift(ERROR, sequential=False).covers(true.difference).all(axis=-1))
    places = [scene.candidates, 0]
    if target == "candidate":
        ends = [_pooled(drawn.cells, place) for place in places]
        truth = both(drawn, scene, target)[1].difference
        difference, variance = ends[0][0] - ends[1][0], ends[0][1] + ends[1][1]
        return interval_around(difference, variance, reach_at_horizon(ERROR)).covers(truth)
    units, mean = drawn.cells.units[..., places], drawn.cells.mean[..., places, 0]
    own = drawn.cells.cross[..., places, 0, 0] / np.maximum(units - 1.0, 1.0) / np.maximum(units, 1.0)
    weight = np.where((units > 1).all(axis=-1), 1.0 / np.maximum(own.sum(axis=-1), 1e-12), 0.0)
    total = np.maximum(weight.sum(axis=-1), 1e-12)
    difference = (weight * (mean[..., 0] - mean[..., 1])).sum(axis=-1) / total
    level = drawn.truth.mean[..., places, 0]
    truth = (weight * (level[..., 0] - level[..., 1])).sum(axis=-1) / total
    return interval_around(difference, 1.0 / total, reach_at_horizon(ERROR)).covers(truth)


def _pooled(cells: CellStatistics, place: int) -> tuple[FloatArray, FloatArray]:
    """Return a mean pooled over all rounds' units, and its variance: the mutant."""
    units, mean = cells.units[..., place], cells.mean[..., place, 0]
    total = np.maximum(units.sum(axis=-1), 1.0)
    middle = (units * mean).sum(axis=-1) / total
    spread = cells.cross[..., place, 0, 0].sum(axis=-1) + (units * (mean - middle[..., None]) ** 2).sum(axis=-1)
    return middle, spread / total**2


def sticky_coverage(studies: int, seed: int = 1, lift: float = 0.1) -> Coverage:
    """Measure coverage for users who stay in their arm, with likes over views; the mutant counts views."""
    held, relative, errors, mutant = [], [], [], []
    for size, start in batches(studies, seed):
        drawn = sticky(size, start, lift=lift)
        covariances = unit_covariances(drawn.cells)
        sides = [build_side(drawn.cells, covariances, place) for place in (1, 0)]
        found = compare(sides[0], sides[1], Quantity(0, 1))
        held.append(found.lift(ERROR, sequential=False).covers(lift))
        relative.append(found.relative(ERROR, sequential=False).covers(lift / 3.0))
        errors.append((found.difference - lift) / np.sqrt(found.variance))
        views = drawn.cells.units * drawn.cells.mean[..., 1]
        rate = drawn.cells.mean[..., 0] / drawn.cells.mean[..., 1]
        by_view = drawn.cells.mean[..., 2] / drawn.cells.mean[..., 1] - rate**2
        variance = (by_view / views)[:, 0, :2].sum(axis=-1)
        mutant.append(interval_around(found.difference, variance, reach_at_horizon(ERROR)).covers(lift))
    return Coverage(*(float(np.concatenate(parts).mean()) for parts in (held, relative, errors, mutant)))


def ever_missed(looks: int, studies: int, seed: int = 1, *, relative: bool = False) -> tuple[float, float]:
    """Return the chance that the truth is ever outside, by the sequence and by a z-test at every look."""
    scene = Scene("looks", rounds=looks, units=200, control=0.3, lift=0.05)
    ours: list[NDArray[np.bool_]] = []
    naive: list[NDArray[np.bool_]] = []
    for size, start in batches(studies, seed):
        found, true = both(simulate(scene, size, start), scene, "learner", running=True)
        truth = true.treated / true.control - 1.0 if relative else true.difference
        for sequential, misses in ((True, ours), (False, naive)):
            interval = (found.relative if relative else found.lift)(ERROR, sequential=sequential)
            misses.append(np.asarray(~interval.covers(truth).all(axis=-1)))
    return float(np.concatenate(ours).mean()), float(np.concatenate(naive).mean())


def ever_missed_early(kind: str, studies: int, seed: int = 1, *, looks: int = 60) -> tuple[float, float]:
    """Return the same for early looks at a control of 20 units per round and a "rare" or "skewed" metric.

    The mutant takes every arm's own variance so far for the truth.
    """
    ours: list[NDArray[np.bool_]] = []
    naive: list[NDArray[np.bool_]] = []
    for size, start in batches(studies, seed):
        rng = np.random.default_rng([start, looks])
        drawn = [_guarded(kind, rng, (size, looks), units, 0.0, None)[0] for units in (20, 180)]
        cells = CellStatistics(
            np.concatenate([part.units for part in drawn], axis=-1),
            np.concatenate([part.mean for part in drawn], axis=-2),
            np.concatenate([part.cross for part in drawn], axis=-3),
        )
        own = np.cumsum(cells.cross, axis=1) / np.maximum(np.cumsum(cells.units - 1.0, axis=1), 1.0)[..., None, None]
        for covariances, misses in ((unit_covariances(cells, running=True), ours), (own, naive)):
            found = compare(build_side(cells, covariances, 1), build_side(cells, covariances, 0), METRIC, running=True)
            misses.append(np.asarray(~found.lift(ERROR, sequential=True).covers(0.0).all(axis=-1)))
    return float(np.concatenate(ours).mean()), float(np.concatenate(naive).mean())


@dataclass(frozen=True, slots=True)
class Alarms:
    """Rounds at which guardrail monitors raised an alarm."""

    tripped: float
    rounds: float
    """Mean rounds to the alarm, where there was one."""


def alarms(
    kind: str,
    studies: int,
    seed: int = 1,
    *,
    drop: float = 0.0,
    guardrails: int = 1,
    rounds: int = 100,
    units: int = 200,
    control: float | None = None,
    declared: bool = True,
    good: int = 0,
    test: Test = "ours",
) -> Alarms:
    """Return alarms of monitors on "normal", "rare" (1 %) or "skewed" metrics `drop` deviations below a floor.

    With `control`, the floor is 5 % below a control of that share. `declared` gives the range. The
    first `good` rounds lie 0.2 deviations above the floor, and delays count from there. Other tests are mutants: a
    z-test of all rounds so far at every look, the same with its error shared out over the rounds, and evidence gathered
    from the first round alone.
    """
    first = []
    for size, start in batches(studies, seed):
        rng = np.random.default_rng([start, guardrails, rounds])
        trips = np.full(size, np.inf)
        for _ in range(guardrails):
            cells, floor = _guarded(kind, rng, (size, rounds), units, drop, control)
            cells.mean[..., :good, 0, :] += 0.2 + drop
            if not declared:
                floor = StopLevel(floor.name, floor.quantity, floor.value, floor.relative)
            hit = _tripped(cells, floor, ERROR / guardrails, test)[..., good:]
            trips = np.minimum(trips, np.where(hit.any(axis=-1), hit.argmax(axis=-1) + 1.0, np.inf))
        first.append(trips)
    every = np.concatenate(first)
    tripped = np.isfinite(every)
    return Alarms(float(tripped.mean()), float(every[tripped].mean()) if tripped.any() else np.inf)


def _tripped(cells: CellStatistics, floor: StopLevel, error: float, test: Test) -> NDArray[np.bool_]:
    """Return whether the guardrail monitor, or one of its mutants, exceeds its threshold after every round."""
    if test == "ours":
        return np.asarray(floor_evidence(cells, floor, 0, 1 if floor.relative else None)[0] >= -np.log(error))
    unit = unit_covariances(cells, running=True)[..., 0, 0]
    units, mean = cells.units, cells.mean[..., 0]
    limit = (1.0 + floor.value) * mean[..., 1] if floor.relative else floor.value
    noise = (1.0 + floor.value) ** 2 * unit[..., 1] / units[..., 1] if floor.relative else 0.0
    gap, variance = limit - mean[..., 0], unit[..., 0] / units[..., 0] + noise
    sums, spread = np.cumsum(gap, axis=-1), np.cumsum(variance, axis=-1)
    if test == "one-start":
        return np.asarray(log_evidence(sums, spread, MIXTURE_ROUNDS * variance[..., :1]) >= -np.log(error))
    share = error if test == "z" else error / sums.shape[-1]
    return np.asarray(sums / np.sqrt(spread) >= reach_at_horizon(share, sides=1))


def swinging_alarms(
    floor: StopLevel,
    studies: int,
    seed: int = 1,
    *,
    ratio: float = 1.0,
    control: float | None = 0.1,
    good: int = 0,
    rounds: int = 240,
    units: int = 1_000,
    swing: float = 0.1,
) -> Alarms:
    """Return the alarms of studies whose level swings around 10 by the hour, for everybody alike.

    Rounds last an hour, and every study begins at another time of the day. The policy has `ratio` times the control's
    level after `good` rounds at the same level; delays count from there.
    """
    first = []
    sizes = [units] if control is None else [round((1.0 - control) * units), round(control * units)]
    ratios = np.where(np.arange(rounds) < good, 1.0, ratio)
    for size, start in batches(studies, seed):
        rng = np.random.default_rng([start, rounds])
        hours = np.arange(rounds) + rng.uniform(0.0, 24.0, (size, 1))
        day = 1.0 + swing * np.sin(2.0 * np.pi * hours / 24.0)[..., None]
        count = np.broadcast_to(np.array(sizes, dtype=float), (size, rounds, len(sizes)))
        level = 10.0 * day * np.stack([ratios, np.ones(rounds)], axis=-1)[:, : len(sizes)]
        mean = level + day * rng.standard_normal(count.shape) / np.sqrt(count)
        cross = day**2 * rng.chisquare(count - 1.0)
        cells = CellStatistics(count, mean[..., None], cross[..., None, None])
        against = None if control is None else 1
        evidence, _ = gather_evidence(cells, floor, 0, against, seconds=[3600.0] * rounds)
        hit = evidence >= -np.log(ERROR)
        first.append(np.where(hit.any(axis=-1), hit.argmax(axis=-1) + 1.0 - good, np.inf))
    every = np.concatenate(first)
    tripped = np.isfinite(every)
    return Alarms(float(tripped.mean()), float(every[tripped].mean()) if tripped.any() else np.inf)


CAP = float(np.exp(2.0 * 2.3263478740408408))
"""The 99th percentile of a lognormal with σ = 2."""
CAPPED_MEAN = 5.688404786881
"""Of that lognormal, capped there."""


def _guarded(
    kind: str, rng: np.random.Generator, shape: tuple[int, int], units: int, drop: float, control: float | None
) -> tuple[CellStatistics, StopLevel]:
    """Return served units in cell 0, control in cell 1, and a floor that the served mean is `drop` deviations below."""
    if kind == "normal":
        sizes = [units] if control is None else [round((1.0 - control) * units), round(control * units)]
        count = np.broadcast_to(np.array(sizes, dtype=float), (*shape, len(sizes)))
        base = np.array([10.0 - drop] if control is None else [9.5 - drop, 10.0])
        mean = base + rng.standard_normal(count.shape) / np.sqrt(count)
        cells = CellStatistics(count, mean[..., None], rng.chisquare(count - 1.0)[..., None, None])
        return cells, StopLevel("normal", METRIC, 10.0 if control is None else -0.05, relative=control is not None)
    if kind == "rare":
        mean = rng.binomial(units, 0.01, shape) / units
        return _one(units, mean, units * mean * (1.0 - mean)), StopLevel(
            "rare", METRIC, 0.01, within=ValueRange(0.0, 1.0)
        )
    draws = np.exp(2.0 * rng.standard_normal((*shape, units)))
    if kind == "skewed, no cap":
        return _one(units, draws.mean(-1), units * draws.var(-1)), StopLevel("skewed", METRIC, float(np.exp(2.0)))
    draws = np.minimum(draws, CAP)
    cells = _one(units, draws.mean(-1), units * draws.var(-1))
    return cells, StopLevel("skewed", METRIC, CAPPED_MEAN, within=ValueRange(0.0, CAP))


def _one(units: int, mean: FloatArray, cross: FloatArray) -> CellStatistics:
    return CellStatistics(np.full((*mean.shape, 1), float(units)), mean[..., None, None], cross[..., None, None, None])


@dataclass(frozen=True, slots=True)
class Ratios:
    """Alarm rates of sample-ratio checks."""

    ours: float
    by_cell: float
    """The part of it that goes by cells alone."""
    one_look: float
    """The most powerful test of a loss on the learner's arm: one-sided, at the last round only, the whole error."""
    last_weights: float
    """A chi-square test against the latest shares."""
    every_look: float
    """A chi-square test against all rounds' shares, at every round."""


def sample_ratio(
    studies: int,
    seed: int = 1,
    *,
    left: float = 1.0,
    whole_arm: bool = False,
    control: float = 0.1,
    rounds: int = 30,
    lift: float = 0.0,
) -> Ratios:
    """Simulate studies of 1,000 units a round with five candidates, and return how often each check rings.

    Of one candidate's units, or of the learner's whole arm, the part `left` arrives.
    """
    scene = Scene("ratio", rounds=rounds, control=control, lift=lift)
    groups = arm_groups([("control", 0), *(("learner", place) for place in range(scene.candidates))])
    rang: list[list[NDArray[np.bool_]]] = [[], [], [], [], []]
    for size, start in batches(studies, seed):
        drawn = simulate(scene, size, start)
        rng = np.random.default_rng([start, 7])
        counts = drawn.cells.units[..., :-1].copy()
        if whole_arm:
            counts[..., 1:] = rng.binomial(counts[..., 1:].astype(int), left)
        elif left < 1.0:
            lossy = 1 + np.arange(size) % scene.candidates
            row = np.arange(size)
            counts[row, :, lossy] = rng.binomial(counts[row, :, lossy].astype(int), left)
        for place, together in ((0, groups), (1, None)):
            rang[place].append(
                (imbalance_evidence(counts, drawn.shares, together)[0] >= -np.log(MAX_FALSE_ALARM_RATE)).any(axis=-1)
            )
        rang[2].append(_arm_deviation(counts, drawn.shares) <= norm.ppf(MAX_FALSE_ALARM_RATE))
        running_counts, total = np.cumsum(counts, axis=-2), counts.sum(axis=-1, keepdims=True)
        expected = np.cumsum(total * drawn.shares, axis=-2)
        for place, hoped in ((3, np.cumsum(total, axis=-2) * drawn.shares), (4, expected)):
            statistic = ((running_counts - hoped) ** 2 / hoped).sum(axis=-1)
            red = chi2.sf(statistic, counts.shape[-1] - 1) < 1e-3
            rang[place].append(red[:, -1] if place == 3 else red.any(axis=-1))
    return Ratios(*(float(np.concatenate(parts).mean()) for parts in rang))


def _arm_deviation(counts: FloatArray, shares: FloatArray) -> FloatArray:
    """Return by how many standard deviations the units outside cell 0 differ from their shares, over all rounds."""
    total, share = counts.sum(axis=-1), shares[..., 1:].sum(axis=-1)
    variance = (total * share * (1.0 - share)).sum(axis=-1)
    return np.asarray((counts[..., 1:].sum(axis=-1) - total * share).sum(axis=-1) / np.sqrt(variance))


def false_winners(candidates: int, studies: int, seed: int = 1) -> tuple[float, float, float]:
    """Return the rate of false winners in A/A studies: at a horizon, at any look, and by the mutant.

    The mutant takes the best-looking candidate's interval as if it had been the only one.
    """
    scene = Scene("A/A", candidates=candidates, rounds=30, units=100 * candidates, floor=0.2 / candidates)
    claims: list[list[NDArray[np.bool_]]] = [[], [], []]
    for size, start in batches(studies, seed):
        drawn = simulate(scene, size, start)
        claimed = [np.zeros(size, dtype=bool) for _ in range(3)]
        for running in (False, True):
            covariances = unit_covariances(drawn.cells, running=running)
            control = build_side(drawn.cells, covariances, 0)
            for place in range(1, candidates + 1):
                found = compare(
                    build_side(drawn.cells, covariances, place), control, METRIC, weights="even", running=running
                )
                won = is_better(found, ERROR / candidates, sequential=running)
                if running:
                    claimed[1] |= won.any(axis=-1)
                else:
                    claimed[0] |= won
                    claimed[2] |= found.lift(ERROR, sequential=False).above(0.0)
        for rows, claimed_row in zip(claims, claimed, strict=True):
            rows.append(claimed_row)
    at_horizon, at_any_look, alone = (float(np.concatenate(parts).mean()) for parts in claims)
    return at_horizon, at_any_look, alone
