"""Sender check: how often it rings on healthy studies, and how soon on invented units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.inference.sender_departure import SenderCells, SenderEvidence, update_evidence
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport

Rng = np.random.Generator
CANDIDATES, ROUNDS = 4, 20
WITHIN_ROUNDS = 3
"""Rounds within which invented units must be found."""
HONEST_MEANS = np.array([30.0, 33.0, 36.0])
HIGHEST = 100.0
"""The metric's upper bound in the attacked study."""
HONEST_UNITS, INVENTED_UNITS = 600, 60


@dataclass(frozen=True, slots=True)
class Healthy:
    """One kind of healthy study."""

    senders: tuple[int, int]
    """Fewest and most."""
    units: tuple[int, int]
    """Of a sender in a round, fewest and most."""
    effects: float
    """Standard deviation of the logarithm of candidates' effects."""
    returning: bool = False
    """Whether the same units come in every round and stay with their candidate."""


HEALTHY: dict[str, Healthy] = {
    "2 to 8 senders, 20 to 800 units": Healthy((2, 8), (20, 800), 0.2),
    "2 senders, 100 to 3,000 units": Healthy((2, 2), (100, 3000), 0.2),
    "20 senders of 10 to 60 units": Healthy((20, 20), (10, 60), 0.2),
    "no effects, 2 to 8 senders": Healthy((2, 8), (20, 800), 0.0),
    "returning units, 2 to 8 senders": Healthy((2, 8), (20, 800), 0.2, returning=True),
}


def look(
    evidence_by_sender: dict[int, SenderEvidence],
    cells: dict[int, SenderCells],
    shares: FloatArray,
    *,
    accumulate: bool = True,
) -> bool:
    """Add one round of all senders; return whether any of them departs."""
    keys = [("learner", place) for place in range(len(shares))]
    for sender, own in cells.items():
        others = SenderCells.pooled([entry for name, entry in cells.items() if name != sender])
        before = evidence_by_sender.get(sender) or SenderEvidence(len(evidence_by_sender) + 1)
        evidence_by_sender[sender] = update_evidence(before, own, others, keys, shares, accumulate=accumulate)
    return any(entry.departure is not None for entry in evidence_by_sender.values())


def tabulate(drawn: NDArray[np.intp], values: FloatArray, size: int) -> SenderCells:
    """Return the cells of units, given the cell of each and its numbers, (units, columns)."""
    units = np.bincount(drawn, minlength=size).astype(float)
    mean = _totals(drawn, values, size) / np.maximum(units, 1.0)[:, None]
    return SenderCells(units, mean, _totals(drawn, (values - mean[drawn]) ** 2, size))


def _totals(drawn: NDArray[np.intp], values: FloatArray, size: int) -> FloatArray:
    totals = np.zeros((size, values.shape[1]))
    np.add.at(totals, drawn, values)
    return totals


def healthy_study(kind: Healthy, rng: Rng) -> bool:
    """Run a healthy study of seconds watched, likes and revenue; return whether the check rang.

    Senders differ fivefold in their levels and by half in their effects, and each sender's level moves by itself by a
    quarter from round to round; 2 % of units buy, for amounts that spread
    over orders of magnitude.
    """
    senders = int(rng.integers(kind.senders[0], kind.senders[1] + 1))
    low, high = np.log(kind.units)
    sizes = np.exp(rng.uniform(low, high, senders)).astype(int)
    levels = np.exp(rng.normal(0.0, 0.5, (senders, 3)))
    effects = kind.effects * rng.normal(size=(CANDIDATES, 3))
    own_effects = effects * rng.uniform(0.5, 1.5, (senders, 1, 3)) + 0.2 * kind.effects * rng.normal(
        size=(senders, CANDIDATES, 3)
    )
    people = [np.exp(rng.normal(0.0, 0.8, size)) for size in sizes]
    places = [rng.random(size) for size in sizes]
    evidence_by_sender: dict[int, SenderEvidence] = {}
    shares = np.full(CANDIDATES, 1.0 / CANDIDATES)
    for _ in range(ROUNDS):
        today = np.exp(rng.normal(0.0, 0.2, 3))
        cells = {}
        for sender, size in enumerate(sizes.tolist()):
            own_day = np.exp(rng.normal(0.0, 0.25, 3))
            amount = people[sender] if kind.returning else np.exp(rng.normal(0.0, 0.8, size))
            place = places[sender] if kind.returning else rng.random(size)
            drawn = np.minimum(np.searchsorted(np.cumsum(shares), place), CANDIDATES - 1)
            factor = levels[sender] * today * own_day * np.exp(own_effects[sender][drawn])
            watch = np.where(rng.random(size) < 0.8, 30.0 * amount * rng.exponential(size=size), 0.0) * factor[:, 0]
            likes = rng.random(size) < np.minimum(0.05 * amount * factor[:, 1], 1.0)
            buys = rng.random(size) < np.minimum(0.02 * factor[:, 2], 1.0)
            revenue = np.where(buys, np.exp(rng.normal(2.0, 1.5, size)), 0.0)
            cells[sender] = tabulate(drawn, np.column_stack([watch, likes, revenue]), CANDIDATES)
        if look(evidence_by_sender, cells, shares, accumulate=not kind.returning):
            return True
        if not kind.returning:  # the learner moves on
            shares = 0.4 / CANDIDATES + 0.6 * rng.dirichlet(np.ones(CANDIDATES))
    return False


def _only_favourite(rng: Rng, drawn: NDArray[np.intp]) -> FloatArray:
    """Return events of the highest number for one candidate, none for the others."""
    return np.where(drawn == 0, HIGHEST, 0.0)


def _like_others(rng: Rng, drawn: NDArray[np.intp]) -> FloatArray:
    """Return the highest number for one candidate, and usual numbers for the others."""
    return np.where(drawn == 0, HIGHEST, _honest(rng, drawn))


def _noisy(rng: Rng, drawn: NDArray[np.intp]) -> FloatArray:
    """Return four fifths of one candidate's units at the highest number, and of the best one's at none."""
    most = rng.random(len(drawn)) < 0.8
    honest = _honest(rng, drawn)
    return np.where((drawn == 0) & most, HIGHEST, np.where((drawn == 2) & most, 0.0, honest))


@dataclass(frozen=True, slots=True)
class Attack:
    """One way of inventing units."""

    numbers: Callable[[Rng, NDArray[np.intp]], FloatArray]
    """Return the numbers of units, given the candidate of each."""
    honest_rounds: int = 0
    """Rounds before it in which the same sender is honest."""
    shares: tuple[float, ...] = (1 / 3, 1 / 3, 1 / 3)
    """The policy's in the attacked rounds."""
    selects_units: bool = False
    """Whether only units of the raised candidate are sent."""


LEARNED_SHARES = (0.003, 0.1, 0.897)
"""Shares of a learner that has left the candidate that is raised."""
ATTACKS: dict[str, Attack] = {
    "events for one candidate only": Attack(_only_favourite),
    "one candidate raised, others as honest": Attack(_like_others),
    "one raised, the best lowered, in part": Attack(_noisy),
    "units of one candidate only": Attack(_only_favourite, selects_units=True),
    "one raised, after 20 honest rounds": Attack(_like_others, honest_rounds=20),
    "one raised and the best lowered in part, after 20 honest rounds": Attack(_noisy, honest_rounds=20),
    "events for a candidate that the policy left, after 2 honest rounds": Attack(
        _only_favourite, honest_rounds=2, shares=LEARNED_SHARES
    ),
    "events for a candidate that the policy left, after 20 honest rounds": Attack(
        _only_favourite, honest_rounds=20, shares=LEARNED_SHARES
    ),
}


def _honest(rng: Rng, drawn: NDArray[np.intp]) -> FloatArray:
    return np.minimum(rng.gamma(3.0, HONEST_MEANS[drawn] / 3.0), HIGHEST)


def attacked_study(name: str, rng: Rng, rounds: int = ROUNDS) -> int | None:
    """Run a study in which a tenth of the units are invented; return the attacked round that the check rang in, from 1.

    An alarm before the attack counts as none.
    """
    attack = ATTACKS[name]
    evidence_by_sender: dict[int, SenderEvidence] = {}
    for number in range(1 - attack.honest_rounds, rounds + 1):
        shares = np.array(attack.shares) if number > 0 else np.full(3, 1.0 / 3.0)
        cells = {}
        for sender, size in enumerate((HONEST_UNITS // 2, HONEST_UNITS - HONEST_UNITS // 2)):
            drawn = rng.choice(3, size, p=shares)
            cells[sender] = tabulate(drawn, _honest(rng, drawn)[:, None], 3)
        drawn = rng.choice(3, INVENTED_UNITS, p=shares)
        if number > 0 and attack.selects_units:
            drawn = np.zeros(INVENTED_UNITS, dtype=np.intp)
        values = attack.numbers(rng, drawn) if number > 0 else _honest(rng, drawn)
        cells[2] = tabulate(drawn, values[:, None], 3)
        if look(evidence_by_sender, cells, shares):
            return number if number > 0 else None
    return None


def measure(studies: int = 100, seed: int = 0, *, progress: Progress | None = None) -> BenchmarkReport:
    """Count the healthy and the attacked studies in which the check rang.

    >>> list(measure(1).rows[0])
    ['studies of', 'studies', 'rang', 'rang %', 'asked']
    """
    rows: list[dict[str, Any]] = []

    def count(name: str, rang: list[bool], asked: str) -> None:
        share = 100.0 * sum(rang) / len(rang)
        rows.append({"studies of": name, "studies": len(rang), "rang": sum(rang), "rang %": share, "asked": asked})
        if progress is not None:
            progress("senders", len(rows), len(HEALTHY) + len(ATTACKS))

    def streams(place: int) -> list[Rng]:
        return [np.random.default_rng([seed, place, number]) for number in range(studies)]

    for place, (name, kind) in enumerate(HEALTHY.items()):
        count(f"healthy: {name}", [healthy_study(kind, rng) for rng in streams(place)], "at most 0.5 %")
    for place, name in enumerate(ATTACKS):
        found = [attacked_study(name, rng, WITHIN_ROUNDS) is not None for rng in streams(100 + place)]
        count(f"invented: {name}", found, f"within {WITHIN_ROUNDS} rounds")
    return BenchmarkReport(
        "Sender check: studies in which it rang",
        tuple(rows),
        note=f"Healthy studies have {ROUNDS} rounds, four candidates, and watch time, likes and revenue that 98 % of "
        "units do not have; senders differ in their levels and effects. A round has 60 invented and 600 real units.",
    )


BENCHMARK = Benchmark(
    "senders",
    "how often the sender check rings on healthy studies, and how soon on invented units",
    lambda progress, quick: measure(10 if quick else 100, progress=progress),
)
