"""Live-traffic worlds: 50 settings of a product with clicks and revenue, many users a day and a close a day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pasto.arrays import FloatArray
from pasto.objective import NormalForm, Objective, maximize
from pasto.observation import Observation
from pasto.space import Candidates, grid
from pasto_research.bench.learner_courses import Judge

LEVELS = (10, 5)
"""Levels of the two parameters."""
CLICK_RATE, BUYER_RATE = 0.1, 0.04
"""Of users under the baseline; only users who click buy."""
AMOUNT_DEVIATION = 1.0
"""Deviation of the logarithm of a purchase's amount, whose mean is 1: revenue is 0 for most users, and skewed."""
SMOOTH_PART = 0.9
"""Of the effects' deviation: the part that is smooth over the parameters; the rest is each setting's own."""
TRADE_OFF = 0.6
"""Correlation between the goal's effects and the guardrail's, with the opposite sign."""
WEEK = (0.95, 0.90, 0.92, 0.97, 1.05, 1.15, 1.06)
"""Factor of clicks by day of the week."""
WEEKEND_PURCHASES = 1.1
"""Factor of purchases per click on the last two days of the week."""
DAY_DEVIATION = 0.02
"""Deviation of a day's own factor of clicks, and of that of purchases."""


@dataclass(frozen=True, slots=True)
class LiveTraffic:
    """Family of live-traffic worlds.

    >>> world = LiveTraffic("small", goal="clicks", users=2_000).draw(np.random.default_rng(1))
    >>> cells = world.draw_day(np.full(50, 0.02), day=0, version=0, rng=np.random.default_rng(2))
    >>> [cell.units for cell in cells if cell.control], sum(cell.units for cell in cells)
    ([200], 2000)
    """

    name: str
    goal: str
    """"clicks" or "revenue"; the other metric is the guardrail."""
    users: int = 100_000
    """Users a day."""
    control_share: float = 0.1
    limit: str = "-1%"
    """Of the guardrail, compared with the baseline."""
    effect: float = 0.06
    """Deviation of the logarithm of the candidates' effects; 0 makes all candidates alike."""

    @property
    def candidates(self) -> Candidates:
        """Grid of the two parameters."""
        steps = [[round(step / (count - 1), 4) for step in range(count)] for count in LEVELS]
        return grid(freshness=steps[0], ads=steps[1])

    @property
    def baseline(self) -> int:
        """Index of the setting in the middle."""
        return LEVELS[1] * (LEVELS[0] // 2) + LEVELS[1] // 2

    @property
    def objective(self) -> Objective:
        """The goal, with the other metric as a hard guardrail relative to the baseline."""
        guardrail = "revenue" if self.goal == "clicks" else "clicks"
        return maximize(self.goal).keep(guardrail, at_least=self.limit)

    def draw(self, rng: np.random.Generator) -> LiveTrafficWorld:
        """Draw one truth."""
        places = self.candidates.features()
        goal, other = _draw_surface(places, rng), _draw_surface(places, rng)
        guardrail = -TRADE_OFF * goal + np.sqrt(1.0 - TRADE_OFF**2) * other
        logarithms = self.effect * np.array([goal, guardrail])
        effects = np.exp(logarithms - logarithms[:, [self.baseline]])
        clicks, revenue = effects if self.goal == "clicks" else effects[::-1]
        return LiveTrafficWorld(self, CLICK_RATE * clicks, BUYER_RATE * revenue)


def _draw_surface(places: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return a smooth random function of the parameters plus each setting's own part, with deviation 1."""
    waves = np.pi * rng.standard_normal((4, places.shape[1]))
    surface = np.sin(places @ waves.T + rng.uniform(0.0, 2.0 * np.pi, 4)).sum(axis=1)
    surface = (surface - surface.mean()) / surface.std()
    own = rng.standard_normal(len(places))
    return np.asarray(SMOOTH_PART * surface + np.sqrt(1.0 - SMOOTH_PART**2) * own)


@dataclass(frozen=True, slots=True, eq=False)
class LiveTrafficWorld:
    """One truth: the rates of every candidate on an average day."""

    family: LiveTraffic
    click_rates: FloatArray
    buyer_rates: FloatArray
    """Per user."""

    @property
    def means(self) -> FloatArray:
        """(metrics, candidates), in the order of the objective."""
        rates = {"clicks": self.click_rates, "revenue": self.buyer_rates}
        return np.array([rates[name] for name in self.family.objective.metrics])

    @property
    def form(self) -> NormalForm:
        """Normal form of the objective at the true baseline."""
        return self.family.objective.form(self.means[:, self.family.baseline])

    def judge(self) -> Judge:
        """Return the judge of blends in this world; values are in percent over the baseline."""
        return Judge(self.form, self.means)

    def whole_traffic(self, shares: FloatArray) -> FloatArray:
        """Return the shares of all users, control included."""
        control = np.asarray(np.arange(len(shares)) == self.family.baseline, dtype=float)
        return np.asarray((1.0 - self.family.control_share) * shares + self.family.control_share * control)

    def draw_day(self, shares: FloatArray, day: int, version: int, rng: np.random.Generator) -> list[Observation]:
        """Draw the users of one day and return the cells of the candidates and of the control."""
        family = self.family
        clicks = WEEK[day % 7] * np.exp(DAY_DEVIATION * rng.standard_normal())
        purchases = (WEEKEND_PURCHASES if day % 7 >= 5 else 1.0) * np.exp(DAY_DEVIATION * rng.standard_normal())
        control = round(family.control_share * family.users)
        counts = rng.multinomial(family.users - control, shares)
        cells = [(candidate, units, False) for candidate, units in enumerate(counts.tolist()) if units >= 2]
        return [
            self._draw_cell(candidate, units, is_control, (clicks, purchases), version, rng)
            for candidate, units, is_control in [*cells, (family.baseline, control, True)]
        ]

    def _draw_cell(
        self,
        candidate: int,
        units: int,
        is_control: bool,
        levels: tuple[float, float],
        version: int,
        rng: np.random.Generator,
    ) -> Observation:
        click_rate, buyer_rate = self.click_rates[candidate], self.buyer_rates[candidate]
        clickers = int(rng.binomial(units, min(1.0, click_rate * levels[0])))
        buyers = int(rng.binomial(clickers, min(1.0, buyer_rate / click_rate * levels[1])))
        amounts = rng.lognormal(-0.5 * AMOUNT_DEVIATION**2, AMOUNT_DEVIATION, buyers)
        clicks, revenue = clickers / units, float(amounts.sum()) / units
        # A user who buys has clicked, so the mean of clicks times revenue is that of revenue.
        cross = revenue * (1.0 - clicks)
        covariance = np.array(
            [[clicks * (1.0 - clicks), cross], [cross, float(amounts @ amounts) / units - revenue**2]]
        )
        order = [("clicks", "revenue").index(name) for name in self.family.objective.metrics]
        mean = np.array([clicks, revenue])[order]
        rows = (covariance / (units - 1))[np.ix_(order, order)].tolist()
        return Observation(version, candidate, units, tuple(mean.tolist()), tuple(map(tuple, rows)), control=is_control)


LIVE_TRAFFIC = (
    LiveTraffic("goal revenue, clicks kept", goal="revenue"),
    LiveTraffic("goal clicks, revenue kept", goal="clicks"),
)
