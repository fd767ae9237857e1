"""What a Gaussian guardrail is expected to cost: E min(0, S)² for S ~ N(level, spread²), and what follows from it.

With t = level / spread, all of it comes from two numbers: the chance of a miss Φ(−t), and the hazard φ(t)/Φ(−t).

    E min(0, S)²     = spread² [(1 + t²) Φ(−t) − t φ(t)]
    its slope by the level   = −2 spread [φ(t) − t Φ(−t)]
    its slope by the spread  = 2 spread Φ(−t)

It is convex in level and spread together, falls with the level and rises with the spread.
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from pasto.objective import Array

TINY = 1e-150
"""Below every spread that matters, and still a divisor."""


def expected_penalty(level: Array, spread: Array) -> Array:
    """E min(0, S)² for S ~ N(level, spread²).

    >>> import numpy as np
    >>> expected_penalty(np.array([-3.0, 0.0, 3.0]), np.array([0.0, 2.0, 0.0]))
    array([9., 2., 0.])
    """
    spread = np.maximum(spread, TINY)
    ratio = level / spread
    miss = ndtr(-ratio)
    return np.asarray(np.maximum((level**2 + spread**2) * miss - level * spread * hazard(ratio) * miss, 0.0))


def hazard(ratio: Array) -> Array:
    """φ(t) / Φ(−t): how near a standard normal that exceeds t is expected to be to it.

    >>> import numpy as np
    >>> hazard(np.array([-40.0, 0.0, 40.0])).round(4)
    array([ 0.    ,  0.7979, 40.025 ])
    """
    return np.asarray(np.sqrt(2.0 / np.pi) / erfcx(ratio / np.sqrt(2.0)))


def ratio_at(shortfall: Array) -> Array:
    """The t at which a standard normal is expected to fall short by this much: φ(t) − t Φ(−t) = shortfall > 0.

    >>> import numpy as np
    >>> ratio_at(np.array([1e-20, 1.0 / np.sqrt(2.0 * np.pi), 50.0])).round(4)
    array([  9.022,  -0.   , -50.   ])
    """
    wanted = np.log(shortfall)
    ratio = np.where(shortfall > 0.4, -shortfall, np.sqrt(np.maximum(-2.0 * wanted - 1.8, 0.0)) - 0.5)
    for _ in range(12):
        away = hazard(ratio) - ratio
        # The logarithm of the shortfall is concave in t, so Newton's steps overshoot once at most.
        step = (log_ndtr(-ratio) + np.log(away) - wanted) * away
        ratio = ratio + step
        if (np.abs(step) <= 1e-8 * (1.0 + np.abs(ratio))).all():
            break
    return np.asarray(ratio)
