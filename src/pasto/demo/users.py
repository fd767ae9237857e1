"""Simulated users of the real SDK: each is assigned a setting, is served, and sends events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import StoreError
from pasto.sim.application import Conditions, SimulatedApplication
from pasto_sdk import Client
from pasto_sdk.decision import Decision

BATCH_USERS = 1_000
"""Users who arrive together, and whose events are sent together."""
FLUSH_SECONDS = 60.0
"""Time for the service to accept their events."""


@dataclass(slots=True)
class SimulatedUsers:
    """Users who visit in each round; the seed determines who they are and what they do."""

    application: SimulatedApplication
    seed: int
    conditions: Conditions = field(default_factory=Conditions)
    user_count: int = 0
    """Users so far."""
    event_count: int = 0
    """Events so far: exposures and the events that follow."""
    sums: dict[str, FloatArray] = field(default_factory=dict)
    """Sums of the events' fields by arm, one for each column."""
    units: dict[str, int] = field(default_factory=dict)
    _late_events: list[tuple[Decision, dict[str, int]]] = field(default_factory=list)

    def visit(self, client: Client, users: int, round: int) -> None:
        """Simulate the users of one round, and wait until the service has their events, except the late ones."""
        late_events, self._late_events = self._late_events, []
        for decision, fields in late_events:
            decision.track(self.application.event, **fields)
        rng = np.random.default_rng([self.seed, round])
        for start in range(0, users, BATCH_USERS):
            self._arrive(client, min(BATCH_USERS, users - start), round, rng)
            if not client.flush(FLUSH_SECONDS):
                raise StoreError(f"the service did not take events within {FLUSH_SECONDS:g} s: {client.status()}")

    def lifts(self, arm: str) -> dict[str, float]:
        """Return the lifts of an arm over the control so far, as shares, by metric."""
        if not self.units.get(arm) or not self.units.get("control"):
            return {}
        lifts = {}
        for name, measure in self.application.measures.items():
            levels = []
            for name_of_arm in (arm, "control"):
                sums = self.sums[name_of_arm]
                divisor = self.units[name_of_arm] if measure.denominator is None else sums[measure.denominator]
                levels.append(sums[measure.numerator] / divisor if divisor else 0.0)
            lifts[name] = float(levels[0] / levels[1] - 1.0) if levels[1] else 0.0
        return lifts

    def reset_sums(self) -> None:
        """Set the sums and counts of all arms to zero."""
        self.sums, self.units = {}, {}

    def _arrive(self, client: Client, users: int, round: int, rng: np.random.Generator) -> None:
        decisions = [client.assign(f"user-{self.user_count + place}") for place in range(users)]
        if unexpected := next((decision for decision in decisions if decision.reason != "SPLIT"), None):
            raise StoreError(f"a user was not drawn from the policy: {unexpected!r}")
        chosen = np.array([decision.candidate for decision in decisions], dtype=np.intp)
        visits = self.application.visit(chosen, rng, self.conditions.mood(round))
        late, lost = self.conditions.draw_delays(len(visits.unit), rng)
        rows = zip(visits.unit.tolist(), visits.fields.tolist(), late.tolist(), lost.tolist(), strict=True)
        for unit, row, is_late, is_lost in rows:
            fields: dict[str, int] = dict(zip(self.application.columns, row, strict=True))
            if is_late:
                self._late_events.append((decisions[unit], fields))
            elif not is_lost:
                decisions[unit].track(self.application.event, **fields)
        self.user_count += users
        self.event_count += users + len(visits.unit) - int(lost.sum())
        self._count([decision.arm for decision in decisions], visits.totals(users))

    def _count(self, arms: list[str], totals: FloatArray | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        named = np.array(arms)
        for arm in sorted(set(arms)):
            own = totals[named == arm]
            self.units[arm] = self.units.get(arm, 0) + len(own)
            self.sums[arm] = self.sums.get(arm, np.zeros(own.shape[1])) + own.sum(axis=0)


def largest_shares(shares: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Return the largest shares by name, and the sum of the others.

    >>> largest_shares({"a": 0.5, "b": 0.2, "c": 0.3, "d": 0.0}, 2)
    [('a', 0.5), ('c', 0.3), ('2 others', 0.2)]
    """
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    rest = ranked[count:]
    return [*ranked[:count], *([(f"{len(rest)} others", sum(share for _, share in rest))] if rest else [])]
