"""Simulated users in front of the real SDK: each is assigned, served, and leaves events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import StoreError
from pasto.sim.application import Application, Conditions
from pasto_sdk import Client
from pasto_sdk.decision import Decision

AT_ONCE = 1_000
"""Users who come together, and whose events are sent together."""
PATIENCE = 60.0
"""Seconds for the service to take their events."""


@dataclass(slots=True)
class SimulatedUsers:
    """Users who come round by round; a seed fixes who they are and what they do."""

    application: Application
    seed: int
    conditions: Conditions = field(default_factory=Conditions)
    users: int = 0
    """Who came so far."""
    events: int = 0
    """What they left so far: exposures and what followed."""
    sums: dict[str, FloatArray] = field(default_factory=dict)
    """What the users of each arm did, added up by column."""
    units: dict[str, int] = field(default_factory=dict)
    _belated: list[tuple[Decision, dict[str, int]]] = field(default_factory=list)

    def come(self, client: Client, users: int, round: int) -> None:
        """One round's users, all of whose events the service has when this returns, but for those that come late."""
        belated, self._belated = self._belated, []
        for decision, fields in belated:
            decision.track(self.application.event, **fields)
        rng = np.random.default_rng([self.seed, round])
        for start in range(0, users, AT_ONCE):
            self._arrive(client, min(AT_ONCE, users - start), round, rng)
            if not client.flush(PATIENCE):
                raise StoreError(f"the service did not take events within {PATIENCE:g} s: {client.status()}")

    def lifts(self, arm: str) -> dict[str, float]:
        """How far an arm's metrics lie above the control's, as shares, by what its users did so far."""
        if not self.units.get(arm) or not self.units.get("control"):
            return {}
        found = {}
        for name, measure in self.application.measures.items():
            levels = []
            for one in (arm, "control"):
                below = self.units[one] if measure.denominator is None else self.sums[one][measure.denominator]
                levels.append(self.sums[one][measure.numerator] / below if below else 0.0)
            found[name] = float(levels[0] / levels[1] - 1.0) if levels[1] else 0.0
        return found

    def forget(self) -> None:
        """Begin the sums anew."""
        self.sums, self.units = {}, {}

    def _arrive(self, client: Client, users: int, round: int, rng: np.random.Generator) -> None:
        decisions = [client.assign(f"user-{self.users + place}") for place in range(users)]
        if odd := next((one for one in decisions if one.reason != "SPLIT"), None):
            raise StoreError(f"a user was not drawn from the policy: {odd!r}")
        chosen = np.array([decision.candidate for decision in decisions], dtype=np.intp)
        visits = self.application.visit(chosen, rng, self.conditions.mood(round))
        late, lost = self.conditions.fates(len(visits.unit), rng)
        rows = zip(visits.unit.tolist(), visits.fields.tolist(), late.tolist(), lost.tolist(), strict=True)
        for unit, row, comes_late, never in rows:
            fields: dict[str, int] = dict(zip(self.application.columns, row, strict=True))
            if comes_late:
                self._belated.append((decisions[unit], fields))
            elif not never:
                decisions[unit].track(self.application.event, **fields)
        self.users += users
        self.events += users + len(visits.unit) - int(lost.sum())
        self._count([decision.arm for decision in decisions], visits.totals(users))

    def _count(self, arms: list[str], totals: FloatArray | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
        named = np.array(arms)
        for arm in sorted(set(arms)):
            own = totals[named == arm]
            self.units[arm] = self.units.get(arm, 0) + len(own)
            self.sums[arm] = self.sums.get(arm, np.zeros(own.shape[1])) + own.sum(axis=0)


def leading_candidate(shares: Mapping[str, float], shown: int) -> list[tuple[str, float]]:
    """The largest shares by name, and the rest as one.

    >>> leading_candidate({"a": 0.5, "b": 0.2, "c": 0.3, "d": 0.0}, 2)
    [('a', 0.5), ('c', 0.3), ('2 others', 0.2)]
    """
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    rest = ranked[shown:]
    return [*ranked[:shown], *([(f"{len(rest)} others", sum(share for _, share in rest))] if rest else [])]
