"""What the experiments on the theorems share: a quantity measured at several T, and the power of T it follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.objective import Array

RESAMPLES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """Something measured in every run after several numbers of rounds.

    >>> import numpy as np
    >>> curve = Curve((100, 400), np.array([[4.0, 2.0], [6.0, 3.0]]))
    >>> curve.mean, curve.exponent()[0]
    (array([5. , 2.5]), -0.5)
    """

    rounds: tuple[int, ...]
    """T."""
    values: Array
    """(runs, rounds)."""

    @property
    def mean(self) -> Array:
        """(rounds,)."""
        return np.asarray(self.values.mean(axis=0))

    @property
    def error(self) -> Array:
        """(rounds,): the standard error of the mean; NaN for a single run."""
        runs = len(self.values)
        if runs == 1:
            return np.full(len(self.rounds), np.nan)
        return np.asarray(self.values.std(axis=0, ddof=1) / np.sqrt(runs))

    def at(self, rounds: int) -> tuple[float, float]:
        """Mean and standard error after that many rounds."""
        place = self.rounds.index(rounds)
        return float(self.mean[place]), float(self.error[place])

    def exponent(self, since: int = 1) -> tuple[float, float] | None:
        """The power of T that the mean follows from `since` on, and its standard error by resampling runs.

        A straight line through the logarithms; None where a mean is not positive or there are not two points. The
        error is NaN where the runs are too few to tell.
        """
        kept = [place for place, rounds in enumerate(self.rounds) if rounds >= since]
        runs, values = len(self.values), self.values[:, kept]
        if len(kept) < 2 or not (values.mean(axis=0) > 0).all():
            return None
        times = np.log([self.rounds[place] for place in kept])
        line = (times - times.mean()) / ((times - times.mean()) ** 2).sum()
        counts = np.random.default_rng(0).multinomial(runs, np.full(runs, 1.0 / runs), size=RESAMPLES)
        means = counts @ values / runs
        spread = float((np.log(means) @ line).std(ddof=1)) if runs > 1 and (means > 0).all() else float("nan")
        return round(float(np.log(values.mean(axis=0)) @ line), 12), spread

    def plain(self) -> dict[str, Any]:
        """Rounds, means and errors, for a file."""
        return {"rounds": self.rounds, "mean": self.mean, "error": self.error}


def told(power: tuple[float, float] | None) -> str:
    """An exponent as text.

    >>> told((-0.8123, 0.021)), told(None)
    ('T^−0.81 ± 0.02', 'no power of T')
    """
    if power is None:
        return "no power of T"
    return f"T^{power[0]:.2f} ± {power[1]:.2f}".replace("-", "−")
