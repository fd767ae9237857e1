"""Where to look next: from the blends that may turn out best to the shares of the next round."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def allocate(blends: Array, variances: Array, noise: float) -> Array:
    """Give each drawn blend's slot to the candidate whose observation takes most out of that blend's variance.

    `blends` (draws, candidates) are the exact answers of posterior draws, `variances` (candidates,) what is still
    unknown of each candidate, and `noise` the variance of one slot's measurement. A blend's value has variance
    Σ p_k² v_k, so a slot is worth p_k² (v_k − v_k') to it. Slots are given one after the other and count as seen.
    """
    precision = 1.0 / np.maximum(variances, 1e-300)
    gained = 1.0 / noise
    counts = np.zeros(blends.shape[1])
    for blend in blends:
        now = precision + counts * gained
        worth = blend**2 * (1.0 / now - 1.0 / (now + gained))
        counts[int(np.argmax(worth))] += 1.0
    return counts / len(blends)
