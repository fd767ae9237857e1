"""Evidence of harm that began at any round: a long good past does not hide what goes wrong now.

A sum over the whole study would have to fall back through all that was gained before. So evidence is gathered from
every round onward, each start with its share of one whole, half of it for the first round: the weighted sum still
exceeds 1/α with a chance of at most α.

Every bet λ multiplies what its starts have gathered by the same factor, so their sum is all that it carries on: a round
costs the same however many went before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from pasto.arrays import FloatArray
from pasto.inference.betting import BETS, BetIncrements, log_growth

MIXTURE = 2.0
"""ρ in rounds the size of the first: fast for an effect that shows within about ten rounds."""
FEW = 100.0
"""Units since a start before the central limit theorem is asked about it."""
STEPS = 4.0 * 0.5 ** (0.5 * np.arange(40))
"""λ times √ρ of the bets by the central limit theorem, for effects that show in one round or in a hundred thousand, and
for rounds that come to vary a hundred thousand times as widely as the first one that varied at all."""


def _log_weights() -> FloatArray:
    """How much of a half-normal law lies about each of `STEPS`."""
    edges = np.concatenate([[np.inf], np.sqrt(STEPS[1:] * STEPS[:-1]), [0.0]])
    return np.asarray(np.log(-np.diff(erf(edges / np.sqrt(2.0)))))


LOG_WEIGHTS = _log_weights()


@dataclass(frozen=True, slots=True, eq=False)
class ChangeDetectorState:
    """What has been gathered from every start, in logarithms by bet: all that is needed to go on."""

    rounds: int
    held: FloatArray
    """(…, bets): the starts' shares times what each has gathered, added up."""
    best: FloatArray
    """(…, bets): the largest of them."""
    since: NDArray[np.intp]
    """(…, bets): which round that one started in."""
    scale: FloatArray
    """(…): ρ of the bets by the central limit theorem; 0 before a round had any variance, when it is `MIXTURE`."""
    waiting: FloatArray
    """(…, starts, 3): deviation, variance and units since each start that has too few units to be asked yet."""
    shares: FloatArray
    """(…, starts): the logarithms of their shares; −∞ where a study's start counts already."""
    numbers: tuple[int, ...]
    """The rounds that they started in."""

    @classmethod
    def none(cls, shape: tuple[int, ...], bets: int) -> ChangeDetectorState:
        """Before the first round."""
        empty = np.full((*shape, bets), -np.inf)
        since = np.zeros((*shape, bets), dtype=np.intp)
        waiting, shares = np.zeros((*shape, 0, 3)), np.zeros((*shape, 0))
        return cls(0, empty, empty, since, np.zeros(shape), waiting, shares, ())

    def likely(self, log_weights: FloatArray | float = 0.0) -> NDArray[np.intp]:
        """The round that the harm most likely began in."""
        place = np.argmax(self.best + log_weights, axis=-1)[..., None]
        return np.asarray(np.take_along_axis(self.since, place, axis=-1)[..., 0])


def start_shares(rounds: int) -> FloatArray:
    """The share of every start: one half for the first round, then 1/(2 s(s + 1)).

    >>> start_shares(4).round(4).tolist()
    [0.5, 0.25, 0.0833, 0.0417]
    """
    return np.array([_share(start) for start in range(rounds)])


def _share(start: int) -> float:
    return 0.5 / (start * (start + 1.0)) if start else 0.5


def evidence_since(
    deviation: FloatArray,
    variance: FloatArray,
    units: FloatArray,
    before: ChangeDetectorState | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, ChangeDetectorState]:
    """The logarithm of the evidence that a sum drifts upward since some round, and what to go on from.

    Rounds' own deviations, variances and units go in, (…, rounds) each; evidence after every round comes out: the mean
    of exp(λS − λ²V/2) over bets λ that part a half-normal law of variance 1/ρ among them. `before` is what earlier
    rounds have left, and `numbers` are the rounds' own.

    >>> quiet, loud = np.zeros(50), np.concatenate([np.full(40, -5.0), np.full(10, 2.0)])
    >>> evidence, starts = evidence_since(np.stack([quiet, loud]), np.ones((2, 50)), np.full((2, 50), 200.0))
    >>> (evidence[:, -1] > np.log(20)).tolist(), starts.likely(LOG_WEIGHTS)[1].item()
    ([False, True], 40)
    """
    starts = ChangeDetectorState.none(deviation.shape[:-1], len(STEPS)) if before is None else before
    evidence = np.empty(deviation.shape)
    added = np.stack([deviation, np.maximum(variance, 0.0), units], axis=-1)
    for place in range(deviation.shape[-1]):
        number = starts.rounds if numbers is None else numbers[place]
        starts = _asked(_waited(starts, number), added[..., place, :])
        evidence[..., place] = np.logaddexp.reduce(starts.held + LOG_WEIGHTS, axis=-1)
    return evidence, starts


def _waited(starts: ChangeDetectorState, number: int) -> ChangeDetectorState:
    """With a start at the next round; after a round without any unit, it is the one before."""
    share = np.log(_share(starts.rounds))
    if starts.numbers and not starts.waiting[..., -1, :].any():
        shares = starts.shares.copy()
        shares[..., -1] = np.logaddexp(shares[..., -1], share)
        return replace(starts, shares=shares, numbers=(*starts.numbers[:-1], number))
    return replace(
        starts,
        waiting=np.concatenate([starts.waiting, np.zeros((*starts.waiting.shape[:-2], 1, 3))], axis=-2),
        shares=np.concatenate([starts.shares, np.full((*starts.shares.shape[:-1], 1), share)], axis=-1),
        numbers=(*starts.numbers, number),
    )


def _asked(starts: ChangeDetectorState, added: FloatArray) -> ChangeDetectorState:
    """After one more round: bets on what counted grow, and starts that now have units enough join them."""
    waiting = starts.waiting + added[..., None, :]
    ripe = (waiting[..., 2] >= FEW) & (starts.shares > -np.inf)
    known = starts.scale > 0
    scale = np.where(known, starts.scale, MIXTURE * added[..., 1])
    starts = _parted(starts, ~known & (scale > 0))
    # What has never varied is measured against one of its own units, until it does.
    bets = STEPS / np.sqrt(np.where(scale > 0, scale, MIXTURE))[..., None]
    grown = bets * added[..., 0, None] - 0.5 * bets**2 * added[..., 1, None]
    held, best, since = starts.held + grown, starts.best + grown, starts.since
    for place in np.flatnonzero(ripe.any(axis=tuple(range(ripe.ndim - 1)))):
        gathered = bets * waiting[..., place, 0, None] - 0.5 * bets**2 * waiting[..., place, 1, None]
        joined = np.where(ripe[..., place], starts.shares[..., place], -np.inf)[..., None] + gathered
        held = np.logaddexp(held, joined)
        since = np.where(joined > best, starts.numbers[place], since)
        best = np.maximum(best, joined)
    shares = np.where(ripe, -np.inf, starts.shares)
    left = np.flatnonzero((shares > -np.inf).any(axis=tuple(range(shares.ndim - 1))))
    return ChangeDetectorState(
        starts.rounds + 1,
        held,
        best,
        since,
        scale,
        waiting[..., left, :],
        shares[..., left],
        tuple(starts.numbers[place] for place in left),
    )


def _parted(starts: ChangeDetectorState, now: NDArray[np.bool_]) -> ChangeDetectorState:
    """With all that was gathered so far parted among the bets anew, in studies whose bets change their scale now."""
    if not now.any():
        return starts
    most = (starts.best + LOG_WEIGHTS).max(axis=-1)
    changed = now[..., None]
    return replace(
        starts,
        held=np.where(changed, np.logaddexp.reduce(starts.held + LOG_WEIGHTS, axis=-1)[..., None], starts.held),
        best=np.where(changed, most[..., None], starts.best),
        since=np.where(changed, starts.likely(LOG_WEIGHTS)[..., None], starts.since),
    )


def bounded_evidence_since(
    pulls: BetIncrements,
    theta: float | FloatArray,
    before: ChangeDetectorState | None = None,
    numbers: Sequence[int] | None = None,
) -> tuple[FloatArray, ChangeDetectorState]:
    """The same for a bounded process: evidence beyond θ since some round.

    >>> from pasto.inference.betting import ValueRange, mean_increments
    >>> rate = np.concatenate([np.full(40, 0.5), np.full(10, 0.2)])
    >>> pulls = mean_increments(np.full(50, 100.0), rate, 100 * rate * (1 - rate), ValueRange(0, 1), upward=False)
    >>> evidence, starts = bounded_evidence_since(pulls, 0.4)
    >>> bool(evidence[39] > np.log(20)), bool(evidence[-1] > np.log(20)), starts.likely().item()
    (False, True, 40)
    """
    grown = log_growth(pulls, theta)
    starts = ChangeDetectorState.none(grown.shape[:-2], len(BETS)) if before is None else before
    evidence = np.empty(grown.shape[:-1])
    for place in range(grown.shape[-2]):
        number = starts.rounds if numbers is None else numbers[place]
        share = np.log(_share(starts.rounds))
        added = grown[..., place, :]
        starts = replace(
            starts,
            rounds=starts.rounds + 1,
            held=np.logaddexp(starts.held, share) + added,
            best=np.maximum(starts.best, share) + added,
            since=np.where(share > starts.best, number, starts.since),
        )
        evidence[..., place] = np.logaddexp.reduce(starts.held, axis=-1)
    return evidence - np.log(len(BETS)), starts
