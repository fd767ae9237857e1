"""The breaker once more: what it was shown and said, close by close, compared with what was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pasto.measure import Moments
from pasto.report.vigil import METHOD
from pasto.service.details import Waiting, Watch
from pasto.service.rounds.again import Again
from pasto.service.rounds.close import Terms
from pasto.service.rounds.judging import after_close, armed, judge, lengthened, look_elapsed, trips
from pasto.service.spec import Spec
from pasto.service.trust.breaker import holding
from pasto.store import CloseRow

Difference = tuple[str, str, str]
"""What differs, what was recorded, and what is found."""


class Rejudged:
    """Judges every close of a study again."""

    def __init__(self, spec: Spec, measuring: Again, after: int, published_at: float) -> None:
        self._spec = spec
        self._measuring = measuring
        self._watch = Watch()
        self._open: set[int] = set()
        """Rounds that a later close may correct."""
        self.otherwise: list[int] = []
        """Closes that gathered evidence in another way than now: what they said is taken from the record."""
        self.serving(after, published_at)

    def serving(self, after: int, published_at: float) -> None:
        """Note the policy that the closes to come serve."""
        self._after, self._published_at = after, published_at

    def close(
        self,
        close: CloseRow,
        told: dict[str, Any],
        terms: Terms,
        rounds: Sequence[tuple[int, Sequence[Moments]]],
        recorded: Sequence[Moments] = (),
        corrected: Mapping[int, Sequence[Moments]] = MappingProxyType({}),
    ) -> Difference | None:
        """Judge one close, with the rounds it corrects; `recorded` is what its look had measured, where it was one."""
        state = told["state"]
        look = None
        if "look" in told:
            phase = Waiting(close.version, 0, self._after, 0.0)
            elapsed = look_elapsed(self._spec, self._published_at, close.closed_at)
            longer = lengthened(self._spec, elapsed)
            measured = self._measuring.measure(phase, close.high_water, recorded, told["engine"], longer)
            if measured != tuple(recorded) or elapsed != told["look"]["elapsed"]:
                return "measurement", "recorded", "not as recorded"
            look = elapsed, measured
        self._watch = armed(self._watch, state, terms.state, close.round)
        self._open |= {one["round"] for one in told["rounds"] if one.get("open")}
        self._open -= {one["round"] for one in told.get("settled", ())}
        known = [*corrected.items(), *rounds]
        seconds = {one["round"]: one.get("seconds") for one in (*told["rounds"], *told.get("corrected", ()))}
        first_open = min(self._open, default=None)
        judged = judge(self._spec, state, self._watch, known, look=look, first_open=first_open, seconds=seconds)
        said = judged.said
        if "breaker" not in told:  # closed before there was one
            self._watch = after_close(self._watch, state, terms.state, judged, None)
            return None
        if said != told["breaker"] and told.get("method") != METHOD:
            self.otherwise.append(close.round)
            said = told["breaker"]
            judged = replace(judged, said=said)
        if said != told["breaker"]:
            return "breaker", json.dumps(told["breaker"]), json.dumps(said)
        pulled = Terms("paused", hold=holding(state))
        if trips(terms.state, said):
            return "breaker", terms.state, "paused"
        trip = {"round": close.round} if terms == pulled and trips(state, said) else None
        self._watch = after_close(self._watch, state, terms.state, judged, trip)
        return None
