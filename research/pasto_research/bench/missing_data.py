"""Missing-data benchmark: rounds held back in healthy studies, and in studies whose events are missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.inference.event_shortage import MAX_EARLIER_ROUNDS, RoundTotals, find_shortages
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport

Rng = np.random.Generator
EVENTS = ("watch", "like", "purchase")
ACTIVE, LIKES, BUYERS = 0.8, 0.1, 0.02
"""Units that watch, likes per unit, and units that buy, at the level 1: revenue is 98 % zeros."""
CANDIDATES = 4
ROUNDS = 100
WORST_FALL = 4.0


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of healthy study: how many units its rounds have, and how its levels move."""

    units: Callable[[Rng, int], FloatArray]
    """Of each round."""
    levels: Callable[[Rng, int], FloatArray]
    """Factor of each round on how much units do."""


def _steady(rng: Rng, rounds: int) -> FloatArray:
    return np.ones(rounds)


def _forty_percent(rng: Rng, rounds: int) -> FloatArray:
    return rng.uniform(0.6, 1.4, rounds)


def _fourfold(rng: Rng, rounds: int) -> FloatArray:
    """Return levels that are high or low in every round, a factor of four apart."""
    return np.where(rng.random(rounds) < 0.5, 1.0, 1.0 / WORST_FALL)


def _fourfold_once(rng: Rng, rounds: int) -> FloatArray:
    """Return levels that are constant for a while, then four times lower."""
    return np.where(np.arange(rounds) < rng.integers(1, rounds), 1.0, 1.0 / WORST_FALL)


def _days(rng: Rng, rounds: int) -> FloatArray:
    """Return hourly rounds, four times as much at noon as at midnight."""
    hours = np.arange(rounds) + rng.integers(24)
    return np.asarray(np.exp(0.5 * np.log(WORST_FALL) * np.sin(2.0 * np.pi * hours / 24.0)))


def _nights(rng: Rng, rounds: int) -> FloatArray:
    """Return hourly rounds that fall four times from one hour to the next, eight hours of the day."""
    hours = (np.arange(rounds) + rng.integers(24)) % 24
    return np.where(hours < 8, 1.0 / WORST_FALL, 1.0)


def _sized(low: int, high: int) -> Callable[[Rng, int], FloatArray]:
    return lambda rng, rounds: np.floor(np.exp(rng.uniform(np.log(low), np.log(high + 1), rounds)))


def _few_at_night(rng: Rng, rounds: int) -> FloatArray:
    """Return hourly rounds of 4,000 units by day, and of 40 for eight hours of the night."""
    hours = (np.arange(rounds) + rng.integers(24)) % 24
    return np.where(hours < 8, 40.0, 4000.0)


WORLDS: dict[str, Traffic] = {
    "steady, 2,000 units": Traffic(_sized(2000, 2000), _steady),
    "±40 % between rounds, 2,000 units": Traffic(_sized(2000, 2000), _forty_percent),
    "4× between rounds, 2,000 units": Traffic(_sized(2000, 2000), _fourfold),
    "4× between rounds, 300 to 5,000 units": Traffic(_sized(300, 5000), _fourfold),
    "steady, then 4× lower, 2,000 units": Traffic(_sized(2000, 2000), _fourfold_once),
    "4× between noon and midnight, 2,000 units": Traffic(_sized(2000, 2000), _days),
    "4× lower at night, 2,000 units": Traffic(_sized(2000, 2000), _nights),
    "nights of 40 units, ±40 %": Traffic(_few_at_night, _forty_percent),
    "small rounds of 30 to 200 units, steady": Traffic(_sized(30, 200), _steady),
    "small rounds of 30 to 200 units, 4×": Traffic(_sized(30, 200), _fourfold),
}
LOSSES = {
    "no event of any metric": (0.0, 0.0, 0.0),
    "no likes": (1.0, 0.0, 1.0),
    "no purchases": (1.0, 1.0, 0.0),
    "95 % of likes lost": (1.0, 0.05, 1.0),
    "90 % of likes lost": (1.0, 0.1, 1.0),
    "half of likes lost": (1.0, 0.5, 1.0),
}
"""Share of the events of each metric that are left."""


def simulate_round(
    rng: Rng, units: float, level: float, effects: FloatArray, shares: FloatArray, left: FloatArray
) -> RoundTotals:
    """Draw one round of a study with three metrics; `effects` are (candidates, metrics), `left` is (metrics,)."""
    counts = rng.multinomial(int(units), shares)
    sums, squares = np.zeros((2, len(counts), len(EVENTS)))
    for place, count in enumerate(counts.tolist()):
        rates = np.array([ACTIVE, LIKES, BUYERS]) * level * effects[place] * left
        times = rng.exponential(30.0, rng.binomial(count, min(rates[0], 1.0)))
        likes = rng.poisson(rates[1], count)
        revenue = rng.lognormal(3.0, 1.0, rng.binomial(count, min(rates[2], 1.0)))
        for column, values in enumerate((times, likes, revenue)):
            sums[place, column], squares[place, column] = values.sum(), np.square(values, dtype=float).sum()
    return RoundTotals(counts.astype(float), sums, squares)


def simulate_study(rng: Rng, traffic: Traffic, rounds: int, left: FloatArray | None = None) -> FloatArray:
    """Return which rounds of a study are held back, (rounds,); each is learned all the same.

    The policy moves from all candidates to the best two or three, whose metrics are up to a third lower or higher. With
    `left`, so much of the events is left in each round's copy that is judged, and none is missing in the rounds before.
    """
    units, levels = traffic.units(rng, rounds), traffic.levels(rng, rounds)
    effects = np.exp(rng.uniform(-0.4, 0.4, (CANDIDATES, len(EVENTS))))
    last = rng.dirichlet(np.full(CANDIDATES, 0.3))
    history: list[RoundTotals] = []
    held = np.zeros(rounds)
    for number in range(rounds):
        moved = min(1.0, number / 20.0)
        shares = (1.0 - moved) / CANDIDATES + moved * (0.05 / CANDIDATES + 0.95 * last)
        drawn = units[number], levels[number], effects, shares / shares.sum()
        healthy = simulate_round(rng, *drawn, np.ones(len(EVENTS)))
        judged = healthy if left is None else simulate_round(rng, *drawn, left)
        held[number] = bool(find_shortages(judged, history, EVENTS))
        history = [*history, healthy][-MAX_EARLIER_ROUNDS:]
    return held


def measure(studies: int = 100, rounds: int = ROUNDS, *, progress: Progress | None = None) -> BenchmarkReport:
    """Count held rounds in healthy studies of each kind, and in studies whose events are missing.

    >>> list(measure(1, rounds=11).rows[0])
    ['studies of', 'rounds', 'held back %']
    """
    rows: list[dict[str, Any]] = []
    cases = len(WORLDS) + len(LOSSES)

    def count(name: str, traffic: Traffic, number: int, left: FloatArray | None = None, first: int = 0) -> None:
        rng = np.random.default_rng([11, len(rows)])
        held = np.concatenate([simulate_study(rng, traffic, rounds, left)[first:] for _ in range(number)])
        rows.append({"studies of": name, "rounds": len(held), "held back %": 100.0 * float(held.mean())})
        if progress is not None:
            progress("missing-data", len(rows), cases)

    for name, traffic in WORLDS.items():
        count(f"healthy: {name}", traffic, studies)
    few = max(1, studies // 10)
    for name, left in LOSSES.items():
        count(f"missing: {name}", WORLDS["±40 % between rounds, 2,000 units"], few, np.array(left), first=10)
    return BenchmarkReport(
        "Rounds held back for lack of events: percent",
        tuple(rows),
        note=f"Three metrics: watch time, likes, and revenue that 98 % of units do not have; {rounds} rounds a study, "
        "while the policy moves between four candidates. Missing events are judged from the eleventh round on, at "
        "levels that swing by 40 %.",
    )


BENCHMARK = Benchmark(
    "missing-data",
    "how often rounds are held back for lack of events, in healthy studies and in broken ones",
    lambda progress, quick: measure(10 if quick else 100, progress=progress),
)
