"""Whether lifts that are adjusted by what units did before still hold, beside a covariate that came too late."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pasto.bench.trust_checks import ERROR, METRIC, batches, shares_of
from pasto.bench.trust_studies import SCENES, Scene, Studies, simulate
from pasto.estimate.intervals import Cells, Comparison, Quantity, compare, side, unit_covariances

SCENE = replace(SCENES["drift"], name="drift, covariate", lift=0.05)
"""Shares chase, the day swings, and candidates differ by a half of a unit's deviation."""
CORRELATION = 0.7
"""Of a unit's number with what it did before: half of the variance can go."""
LEAK = 0.3
"""The part of its candidate's lift that a covariate shows which was measured after exposure."""
PAST = Quantity(1)


@dataclass(frozen=True, slots=True)
class Covered:
    """How often adjusted intervals held, over many studies."""

    covered: float
    relative: float
    """The same for relative lifts."""
    bias: float
    """Mean error in standard errors."""
    reduction: float
    """The mean share of the variance that is gone."""
    mutant: float
    """How often they held with a covariate that was measured after exposure."""


def covariate_coverage(target: str, studies: int, seed: int = 1, scene: Scene = SCENE) -> Covered:
    """Adjusted intervals of a target: "learner", "candidate" or "blend"."""
    held, relative, errors, less, mutant = [], [], [], [], []
    for size, start in batches(studies, seed):
        drawn = simulate(scene, size, start)
        true = _compared(drawn.truth, drawn.cells, scene, target)
        raw, found, leaky = (
            _compared(cells, cells, scene, target, covariate)
            for cells, covariate in (
                (drawn.cells, None),
                (with_past(drawn, scene, start), PAST),
                (with_past(drawn, scene, start, leak=LEAK), PAST),
            )
        )
        held.append(found.lift(ERROR, sequential=False).covers(true.difference))
        relative.append(found.relative(ERROR, sequential=False).covers(true.treated / true.control - 1.0))
        errors.append((found.difference - true.difference) / np.sqrt(found.variance))
        less.append(1.0 - found.variance / raw.variance)
        mutant.append(leaky.lift(ERROR, sequential=False).covers(true.difference))
    return Covered(*(float(np.concatenate(parts).mean()) for parts in (held, relative, errors, less, mutant)))


def with_past(drawn: Studies, scene: Scene, seed: int, *, leak: float = 0.0) -> Cells:
    """The cells with a second column, what units did before, of standard deviation one.

    Units are normal, so given what a cell showed, its covariate's mean and sums of products can be drawn at once
    (Bartlett). With `leak` it shows a part of the lift as well, as something measured after exposure would.
    """
    rng = np.random.default_rng([seed, 11])
    units, mean, cross = (part[:, :, :-1] for part in (drawn.cells.units, drawn.cells.mean, drawn.cells.cross))
    truth = drawn.truth.mean[:, :, :-1, 0]
    sigma = scene.noise * truth[..., :1] / scene.level  # a day's noise goes with its level, which the control shows
    filled = np.maximum(units, 1.0)
    rest = np.sqrt(1.0 - CORRELATION**2)
    own = (mean[..., 0] - truth) / sigma
    lift = (truth - truth[..., :1]) / sigma
    past = CORRELATION * own + rest * rng.standard_normal(units.shape) / np.sqrt(filled) + leak * lift
    first = cross[..., 0, 0] / sigma**2
    beside = np.sqrt(first) * rng.standard_normal(units.shape) * (units > 1)
    second = np.where(first > 0, beside**2 / np.where(first > 0, first, 1.0), 0.0)
    second = second + np.where(units > 2, rng.chisquare(np.maximum(units - 2.0, 1.0)), 0.0)
    product = sigma * (CORRELATION * first + rest * beside)
    square = CORRELATION**2 * first + 2.0 * CORRELATION * rest * beside + rest**2 * second
    table = np.stack([np.stack([cross[..., 0, 0], product], -1), np.stack([product, square], -1)], -2)
    both = Cells(units, np.stack([mean[..., 0], past], axis=-1), table)
    return both.joined(range(1, scene.candidates + 1))


def _compared(cells: Cells, noise: Cells, scene: Scene, target: str, covariate: Quantity | None = None) -> Comparison:
    covariances = unit_covariances(noise)
    sides = (side(cells, covariances, shares_of(scene, target)), side(cells, covariances, 0))
    return compare(*sides, METRIC, weights="traffic" if target == "learner" else "even", covariate=covariate)
