"""Many studies at once whose truth is known and whose shares chase what was measured: the judges of every interval."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.inference import CellStatistics


@dataclass(frozen=True, slots=True)
class SteeringPlan:
    """Changes of a study while it runs, some of which depend on what was measured."""

    ramp: tuple[float, ...] = (0.05, 0.25, 0.5, 1.0)
    """Shares of the scene's units that take part, by step."""
    advance_after: int = 3
    """Rounds without a warning after which the ramp goes one step forward."""
    warning: float = 1.0
    """Standard errors of a round by which the learner's mean is below the control's if there is a warning."""
    enter_round: int = 12
    """Round in which the last two candidates are added."""
    control_round: int = 20
    """Round in which the share of the control changes."""
    control: float = 0.3
    """Share of the control from then on."""
    retire_round: int = 26
    """Round in which the candidate that seems to be the worst of the first ones is retired."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A kind of study: what its candidates truly do, and how eagerly traffic follows what they seem to do."""

    name: str
    candidates: int = 5
    rounds: int = 40
    units: int = 1_000
    """A round, control included."""
    control: float = 0.1
    floor: float = 0.05
    """The least share of the learner's traffic that any candidate gets."""
    lift: float = 0.0
    """Of the last candidate over the first, the others in between, as a share of the level."""
    swing: float = 0.0
    """By how much the level of everything, and with it the noise, goes up and down in a day of 24 rounds."""
    noise: float = 1.0
    level: float = 10.0
    steering: SteeringPlan | None = None
    """Edits and a ramp; None for a study that runs as it began."""


@dataclass(frozen=True, slots=True, eq=False)
class Studies:
    """Simulated studies: cell 0 is the control, cell 1 + k candidate k, and the last one all of the learner's units."""

    cells: CellStatistics
    """(studies, rounds, cells) of one column."""
    truth: CellStatistics
    """The same counts with the true means; the learner's is what its shares made it."""
    shares: FloatArray
    """(studies, rounds, cells but the last): what every unit was drawn with."""


SCENES: dict[str, Scene] = {
    scene.name: scene
    for scene in (
        Scene("A/A"),
        Scene("lift", lift=0.1),
        Scene("drift", lift=0.02, swing=0.4),
        Scene("low floor", units=200, control=0.2, floor=0.01),
        Scene("20 candidates", candidates=20, floor=0.01),
    )
}
"""What intervals are tried in; the other scenes are `STEERED` and `sticky`."""

STEERED = Scene("edited and ramped", lift=0.02, swing=0.4, steering=SteeringPlan())
"""A ramp that follows what is measured, candidates that enter and leave, another control, and a level that swings."""


def simulate(scene: Scene, studies: int, seed: int = 1) -> Studies:
    """Draw studies of a scene; normal units, so a cell's mean and spread are drawn at once."""
    rng = np.random.default_rng([seed, studies, scene.candidates, scene.rounds])
    count = scene.candidates
    units = np.zeros((studies, scene.rounds, count + 1))
    means, squares, truths, shares = (np.zeros_like(units) for _ in range(4))
    lifts = np.concatenate([[0.0], np.linspace(0.0, scene.lift, count)])
    policy = np.full((studies, count), 1.0 / count)
    served_units, total = np.zeros((studies, count)), np.zeros((studies, count))
    course = None if scene.steering is None else _Course(scene.steering, studies, count)
    for number in range(scene.rounds):
        day = 1.0 + scene.swing * np.sin(2.0 * np.pi * number / 24.0)
        size = round(scene.units * (1.0 + 0.5 * scene.swing * np.cos(2.0 * np.pi * number / 24.0)))
        control, sizes = scene.control, size
        if course is not None:
            policy = course.limit_policy(number, policy, total / np.maximum(served_units, 1.0))
            control, sizes = course.control(number, scene.control), course.enrol(size)
        drawn = np.concatenate([np.full((studies, 1), control), (1.0 - control) * policy], axis=1)
        counts = rng.multinomial(sizes, drawn).astype(float)
        truth = np.broadcast_to(scene.level * day * (1.0 + lifts), counts.shape)
        sigma = scene.noise * day
        filled = np.maximum(counts, 1.0)
        mean = truth + sigma / np.sqrt(filled) * rng.standard_normal(counts.shape)
        square = np.where(counts > 1, sigma**2 * rng.chisquare(np.maximum(counts - 1.0, 1.0)), 0.0)
        for array, new in ((units, counts), (means, mean), (squares, square), (truths, truth), (shares, drawn)):
            array[:, number] = new
        served_units += counts[:, 1:]
        total += counts[:, 1:] * mean[:, 1:]
        if course is not None:
            course.move_ramp(counts, mean, sigma)
        policy = _eager(total / np.maximum(served_units, 1.0), served_units, sigma, scene.floor)
    cells = CellStatistics(units, means[..., None], squares[..., None, None]).join(range(1, count + 1))
    true = np.concatenate([truths, ((shares * truths)[..., 1:].sum(-1) / shares[..., 1:].sum(-1))[..., None]], axis=-1)
    return Studies(cells, replace(cells, mean=true[..., None]), shares)


class _Course:
    """Course of steered studies: the step of each ramp, and the candidates that each study serves."""

    def __init__(self, steering: SteeringPlan, studies: int, candidates: int) -> None:
        self._steering = steering
        self._steps = np.zeros(studies, dtype=int)
        self._quiet_rounds = np.zeros(studies, dtype=int)
        self._served = np.ones((studies, candidates), dtype=bool)
        self._served[:, -2:] = False

    def enrol(self, units: int) -> NDArray[np.int_]:
        """Return the units of a round that take part, (studies,)."""
        return np.asarray(np.rint(units * np.array(self._steering.ramp)[self._steps]), dtype=int)

    def control(self, number: int, before: float) -> float:
        """Return the share of the control in a round."""
        return before if number < self._steering.control_round else self._steering.control

    def limit_policy(self, number: int, policy: FloatArray, means: FloatArray) -> FloatArray:
        """Return the shares of a round without the candidates that are not served then."""
        if number == self._steering.enter_round:
            self._served[:, -2:] = True
        if number == self._steering.retire_round:
            self._served[np.arange(len(means)), means[:, :-2].argmin(axis=1)] = False
        shares = np.where(self._served, policy, 0.0)
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def move_ramp(self, counts: FloatArray, means: FloatArray, sigma: float) -> None:
        """Move each ramp: back on a warning of the last round, and forward after enough rounds without one."""
        units = counts[:, 1:].sum(axis=1)
        learner = (counts[:, 1:] * means[:, 1:]).sum(axis=1) / np.maximum(units, 1.0)
        error = sigma * np.sqrt(1.0 / np.maximum(units, 1.0) + 1.0 / np.maximum(counts[:, 0], 1.0))
        has_warning = learner - means[:, 0] < -self._steering.warning * error
        self._quiet_rounds = np.where(has_warning, 0, self._quiet_rounds + 1)
        moves = self._quiet_rounds >= self._steering.advance_after
        self._quiet_rounds[moves] = 0
        self._steps = np.clip(self._steps + moves - has_warning, 0, len(self._steering.ramp) - 1)


def _eager(means: FloatArray, served_units: FloatArray, sigma: float, floor: float) -> FloatArray:
    """Return shares that follow the pooled means steeply: the worst that a learner does to an estimate."""
    heat = sigma / np.sqrt(np.maximum(served_units.mean(axis=1, keepdims=True), 1.0))
    shares = np.exp((means - means.max(axis=1, keepdims=True)) / heat)
    shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(floor + (1.0 - floor * means.shape[1]) * shares)


def sticky(studies: int, seed: int = 1, *, users: int = 400, visits: float = 10.0, lift: float = 0.0) -> Studies:
    """Return confirmations in which users stay in their arm: one row per user, with likes, views and squared likes.

    A user's taste is shared by all of the user's views, so views are not independent; the rate is likes over views.
    Cells are control, treated, and treated again; the third column is for a count of views.
    """
    rng = np.random.default_rng([seed, studies, users])
    treated = rng.random((studies, users)) < 0.5
    views = 1.0 + rng.poisson(visits - 1.0, (studies, users))
    taste = rng.normal(0.0, 0.7, (studies, users)) + lift * treated
    likes = views * (3.0 + taste) + np.sqrt(views) * rng.standard_normal((studies, users))
    squares = likes**2 / views + rng.chisquare(np.maximum(views - 1.0, 1.0)) * (views > 1)
    columns = np.stack([likes, views, squares], axis=-1)
    units, means, crosses = [], [], []
    for arm in (~treated, treated, treated):
        size = arm.sum(axis=1)
        mean = np.einsum("su,suc->sc", arm, columns) / size[:, None]
        apart = columns - mean[:, None, :]
        units.append(size.astype(float))
        means.append(mean)
        crosses.append(np.einsum("su,sui,suj->sij", arm, apart, apart))
    cells = CellStatistics(*(np.stack(parts, axis=1)[:, None] for parts in (units, means, crosses)))
    true = np.broadcast_to([[3.0 * visits, visits, 0.0], [(3.0 + lift) * visits, visits, 0.0]], (studies, 1, 2, 3))
    truth = replace(cells, mean=np.concatenate([true, true[..., 1:, :]], axis=-2))
    return Studies(cells, truth, np.full((studies, 1, 2), 0.5))
