"""Drifting worlds: means that move from round to round, as in the paper's regret theorem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pasto.arrays import FloatArray
from pasto.errors import MeansError, OptionError
from pasto.sim.world import World


@dataclass(frozen=True, slots=True, eq=False)
class DriftingWorld(World):
    """World with means μ_t = truth + amplitude · sin(2πt/period + phase) + ramp · t, made by `drift`.

    >>> from pasto.sim import example_a
    >>> world = drift(example_a(), amplitude=1.0, period=4)
    >>> world.means(1)                                                      # the top of the wave
    array([[ 3.,  1.],
           [-1.,  3.]])
    >>> world.running_means(4).round(12) + 0.0                                    # a full wave averages out
    array([[ 2.,  0.],
           [-2.,  2.]])
    """

    amplitude: FloatArray
    """(metrics, candidates)."""
    period: float
    """Rounds in one wave."""
    phase: FloatArray
    """(metrics, candidates): in radians."""
    ramp: FloatArray
    """(metrics, candidates): change per round."""

    def means(self, round: int) -> FloatArray:
        """Return μ_t, (metrics, candidates)."""
        wave = np.sin(2.0 * np.pi * round / self.period + self.phase)
        return np.asarray(self.truth + self.amplitude * wave + self.ramp * round)

    def running_means(self, round: int) -> FloatArray:
        """Return V_t = (1/t) Σ μ_s over s ≤ t, in closed form."""
        half = np.pi / self.period
        wave = np.sin(round * half) / (round * np.sin(half)) * np.sin((round + 1) * half + self.phase)
        return np.asarray(self.truth + self.amplitude * wave + self.ramp * (round + 1) / 2.0)


def drift(
    world: World, *, amplitude: ArrayLike = 0.0, period: float = 1_000.0, phase: ArrayLike = 0.0, ramp: ArrayLike = 0.0
) -> DriftingWorld:
    """Return the same world with means that move in waves, along a ramp, or both.

    amplitude, phase and ramp are single numbers, or arrays that broadcast to (metrics, candidates).

    >>> from pasto.sim import example_a
    >>> drift(example_a(), ramp=[[0.01], [0.0]]).means(100)
    array([[ 3.,  1.],
           [-2.,  2.]])
    """
    if not period >= 2:
        raise OptionError(f"period= must be at least 2 rounds, got {period!r}")
    return DriftingWorld(
        truth=world.truth,
        objective=world.objective,
        noise=world.noise,
        names=world.names,
        amplitude=_broadcast(amplitude, world, "amplitude"),
        period=float(period),
        phase=_broadcast(phase, world, "phase"),
        ramp=_broadcast(ramp, world, "ramp"),
    )


def _broadcast(given: Any, world: World, name: str) -> FloatArray:
    try:
        values = np.broadcast_to(np.array(given, dtype=float), world.truth.shape)
    except (TypeError, ValueError) as error:
        raise MeansError(f"{name}= must broadcast to (metrics, candidates) = {world.truth.shape}: {error}") from error
    if not np.isfinite(values).all():
        raise MeansError(f"{name}= must be finite")
    return values
