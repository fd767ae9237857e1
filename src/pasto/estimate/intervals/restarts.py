"""Evidence of harm that began at any round: a long good past does not hide what goes wrong now.

A sum over the whole study would have to fall back through all that was gained before. So evidence is gathered from
every round onward, each start with its share of one whole, half of it for the first round: the weighted sum still
exceeds 1/α with a chance of at most α.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pasto.estimate.intervals.bounded import BETS, Pulls, log_wealth
from pasto.estimate.intervals.interval import Array
from pasto.estimate.intervals.reach import log_evidence

MIXTURE = 2.0
"""ρ in rounds the size of the first: fast for an effect that shows within about ten rounds."""
FEW = 100.0
"""Units since a start before the central limit theorem is asked about it."""


def start_shares(rounds: int) -> Array:
    """The share of every start: one half for the first round, then 1/(2 s(s + 1)).

    >>> start_shares(4).round(4).tolist()
    [0.5, 0.25, 0.0833, 0.0417]
    """
    later = np.arange(1.0, rounds)
    return np.concatenate([[0.5], 0.5 / (later * (later + 1.0))])


def evidence_since(deviation: Array, variance: Array, units: Array) -> tuple[Array, NDArray[np.intp]]:
    """The logarithm of the evidence that a sum drifts upward since some round, and since which most likely.

    Rounds' own deviations, variances and units go in, (…, rounds) each; evidence after every round comes out.

    >>> quiet, loud = np.zeros(50), np.concatenate([np.full(40, -5.0), np.full(10, 2.0)])
    >>> evidence, since = evidence_since(np.stack([quiet, loud]), np.ones((2, 50)), np.full((2, 50), 200.0))
    >>> (evidence[:, -1] > np.log(20)).tolist(), since[1].item()
    ([False, True], 40)
    """
    rounds = deviation.shape[-1]
    first = np.take_along_axis(variance, np.argmax(variance > 0, axis=-1)[..., None], axis=-1)
    mixture = MIXTURE * np.where(first > 0, first, 1.0)
    sums, spreads, counts = (_from_nothing(values) for values in (deviation, variance, units))
    total = np.full(deviation.shape, -np.inf)
    last = np.full(deviation.shape, -np.inf)
    for start, share in enumerate(start_shares(rounds)):
        moved, spread, count = (
            values[..., start + 1 :] - values[..., start : start + 1] for values in (sums, spreads, counts)
        )
        gathered = np.where(count >= FEW, log_evidence(moved, np.maximum(spread, 0.0), mixture), -np.inf)
        gathered = gathered + np.log(share)
        total[..., start:] = np.logaddexp(total[..., start:], gathered)
        last[..., start] = gathered[..., -1]
    return total, np.asarray(last.argmax(axis=-1))


def bounded_evidence_since(pulls: Pulls, theta: float | Array) -> tuple[Array, NDArray[np.intp]]:
    """The same for a bounded process: evidence beyond θ since some round, and since which most likely.

    >>> from pasto.estimate.intervals.bounded import Range, pulls_of_mean
    >>> rate = np.concatenate([np.full(40, 0.5), np.full(10, 0.2)])
    >>> pulls = pulls_of_mean(np.full(50, 100.0), rate, 100 * rate * (1 - rate), Range(0, 1), upward=False)
    >>> evidence, since = bounded_evidence_since(pulls, 0.4)
    >>> bool(evidence[39] > np.log(20)), bool(evidence[-1] > np.log(20)), since.item()
    (False, True, 40)
    """
    gathered = log_wealth(pulls, theta)
    before = np.concatenate([np.zeros_like(gathered[..., :1, :]), gathered[..., :-1, :]], axis=-2)
    shares = np.log(start_shares(gathered.shape[-2]))
    # Each bet's starts go on together: what was there and what starts now, times what this round adds.
    held = np.full(gathered[..., 0, :].shape, -np.inf)
    total = np.empty(gathered.shape[:-1])
    for number, share in enumerate(shares):
        held = np.logaddexp(held, share) + gathered[..., number, :] - before[..., number, :]
        total[..., number] = logsumexp(held, axis=-1)
    last = logsumexp(gathered[..., -1:, :] - before, axis=-1) + shares
    return total - np.log(len(BETS)), np.asarray(last.argmax(axis=-1))


def _from_nothing(values: Array) -> Array:
    return np.concatenate([np.zeros_like(values[..., :1]), np.cumsum(values, axis=-1)], axis=-1)
