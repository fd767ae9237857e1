"""Pending rounds: asked for and not learned yet, their policies, and learned rounds that may still be corrected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.errors import AlreadyAnsweredError, MeasurementError, StateError, UnknownAssignmentError
from pasto.estimate import ControlMeans, Sample
from pasto.optimize.learners.base import RoundCovariates, RoundResult
from pasto.space import Candidates
from pasto.study.assignment import Assignment, Policy

MIN_REMEMBERED_POLICIES = 32
"""Past policies that every study remembers, for rounds that are observed late."""

MAX_REMEMBERED_POLICIES = 500

MAX_REMEMBERED_SHARES = 50_000
"""Shares of past policies that a saved state holds: with few candidates it remembers more policies."""


def count_remembered_policies(candidates: int) -> int:
    """Return how many policies may wait for their observations at once.

    >>> count_remembered_policies(2), count_remembered_policies(1_000), count_remembered_policies(10_000)
    (500, 50, 32)
    """
    return max(MIN_REMEMBERED_POLICIES, min(MAX_REMEMBERED_POLICIES, MAX_REMEMBERED_SHARES // candidates))


class PolicyHistory:
    """Policies whose rounds are not observed yet, by version, and the current policy.

    >>> history = PolicyHistory(Policy(0, (0.5, 0.5)))
    >>> history.add(Policy(1, (0.2, 0.8)))
    >>> history.find(0).probabilities, history.current.version
    ((0.5, 0.5), 1)
    """

    def __init__(self, current: Policy, waiting: Mapping[int, Policy] | None = None) -> None:
        self.current = current
        self._waiting = {current.version: current} if waiting is None else dict(waiting)

    def copy(self) -> PolicyHistory:
        """Return an independent history of the same policies."""
        return PolicyHistory(self.current, self._waiting)

    def add(self, policy: Policy) -> None:
        """Make a policy the current one, and forget the oldest ones if there are too many."""
        self.current = self._waiting[policy.version] = policy
        while len(self._waiting) > count_remembered_policies(len(policy.probabilities)):
            del self._waiting[min(self._waiting)]

    def find(self, version: int) -> Policy:
        """Return the policy of a version whose round is not observed yet; raise if there is none."""
        policy = self._waiting.get(version)
        if policy is not None:
            return policy
        if 0 <= version <= self.current.version:
            limit = count_remembered_policies(len(self.current.probabilities))
            raise AlreadyAnsweredError(
                f"policy version {version} was observed before, or is older than the {limit} versions that this study "
                "remembers"
            )
        raise MeasurementError(
            f"policy version {version!r} was never served; the current one is {self.current.version}"
        )

    def forget(self, version: int) -> None:
        """Remove a policy whose round is observed."""
        del self._waiting[version]

    def restore(self, policies: Mapping[int, Policy]) -> None:
        """Let policies wait again whose rounds are taken back."""
        self._waiting = dict(sorted({**self._waiting, **policies}.items()))

    def pad(self, candidates: int) -> None:
        """Describe every policy over more candidates."""
        self.current = pad_policy(self.current, candidates)
        self._waiting = {version: pad_policy(policy, candidates) for version, policy in self._waiting.items()}

    def to_saved(self) -> list[list[Any]]:
        """Return the waiting policies as a plain JSON value."""
        return [save_policy(policy) for policy in self._waiting.values()]

    @classmethod
    def from_saved(cls, saved: Sequence[Sequence[Any]], version: int) -> PolicyHistory:
        """Read what `to_saved` wrote; `version` is that of the current policy."""
        waiting = {policy.version: policy for policy in map(read_policy, saved)}
        return cls(waiting[version], waiting)


def pad_policy(policy: Policy, candidates: int) -> Policy:
    """Return a policy over more candidates, which it did not serve.

    >>> pad_policy(Policy(3, (0.4, 0.6)), 3).probabilities
    (0.4, 0.6, 0.0)
    """
    rest = (0.0,) * (candidates - len(policy.probabilities))
    segments = {name: (*shares, *rest) for name, shares in policy.segments.items()}
    return Policy(policy.version, (*policy.probabilities, *rest), segments)


def save_policy(policy: Policy) -> list[Any]:
    """Return a policy as a plain JSON value, with segments only if it has some.

    >>> save_policy(Policy(3, (0.4, 0.6)))
    [3, [0.4, 0.6]]
    """
    segments = {name: list(shares) for name, shares in policy.segments.items()}
    return [policy.version, list(policy.probabilities), *([segments] if segments else [])]


def read_policy(saved: Sequence[Any]) -> Policy:
    """Read what `save_policy` wrote."""
    version, probabilities, *segments = saved
    by_name = {name: tuple(shares) for part in segments for name, shares in part.items()}
    return Policy(version, tuple(probabilities), by_name)


@dataclass(frozen=True, slots=True)
class Measurement:
    """Measurement of one assignment: its metrics in the objective's order, and what else is known about them."""

    metrics: list[float]
    standard_errors: list[float] | None = None
    units: float | None = None
    covariates: list[float] | None = None


@dataclass(slots=True)
class PendingAssignment:
    """One assignment: open, measured or dropped."""

    candidate: int
    propensity: float
    measurement: Measurement | None = None
    dropped: bool = False
    control: bool = False

    @property
    def open(self) -> bool:
        """Return whether it still waits for its measurement."""
        return self.measurement is None and not self.dropped

    def to_saved(self) -> list[Any]:
        """Return a plain JSON value."""
        measured = self.measurement
        metrics, errors, units = (
            (None, None, None) if measured is None else (measured.metrics, measured.standard_errors, measured.units)
        )
        saved = [self.candidate, self.propensity, metrics, errors, self.dropped, self.control, units]
        return saved if measured is None or measured.covariates is None else [*saved, measured.covariates]

    @classmethod
    def from_saved(cls, saved: Sequence[Any]) -> PendingAssignment:
        """Read what `to_saved` wrote."""
        candidate, propensity, metrics, errors, dropped, control, units, *covariates = saved
        measurement = None if metrics is None else Measurement(metrics, errors, units, *covariates)
        return cls(candidate, propensity, measurement, dropped, control)


@dataclass(slots=True)
class PendingRound:
    """One ask: the policy that its assignments were drawn from, and a slot for each assignment."""

    policy: Policy
    slots: list[PendingAssignment]

    def copy(self) -> PendingRound:
        """Return the round with slots of its own."""
        return PendingRound(self.policy, [replace(slot) for slot in self.slots])

    def to_result(self) -> RoundResult | None:
        """Return the round as a learner reads it; None if the policy's own assignments were all dropped."""
        measured = [(slot, slot.measurement) for slot in self.slots if slot.measurement is not None]
        own = [(slot, measurement) for slot, measurement in measured if not slot.control]
        if not own:
            return None
        candidates = np.array([slot.candidate for slot, _ in own], dtype=np.intp)
        served = np.array(self.policy.probabilities)
        # Units of some assignments alone cannot be compared with the others.
        has_units = all(measurement.units is not None for _, measurement in measured)
        measurements = [measurement for _, measurement in own]
        return RoundResult(
            served=served,
            sample=Sample(
                candidates=candidates,
                metrics=np.array([measurement.metrics for measurement in measurements], dtype=float),
                probabilities=served[candidates],
                shares=np.full(len(own), 1.0 / len(own)),
            ),
            covariances=_covariances(measurements),
            units=_units(measurements) if has_units else None,
            control=_control([measurement for slot, measurement in measured if slot.control], has_units=has_units),
            covariates=_covariates(measurements),
        )

    def to_saved(self) -> dict[str, Any]:
        """Return a plain JSON value."""
        return {
            "version": self.policy.version,
            "probabilities": list(self.policy.probabilities),
            "slots": [slot.to_saved() for slot in self.slots],
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any]) -> PendingRound:
        """Read what `to_saved` wrote."""
        try:
            policy = Policy(saved["version"], tuple(saved["probabilities"]))
            return cls(policy, [PendingAssignment.from_saved(slot) for slot in saved["slots"]])
        except (KeyError, TypeError, ValueError) as error:
            raise StateError(f"a pending round in the saved state cannot be read: {error}") from error


def draw_round(
    policy: Policy,
    parallel: int,
    *,
    order: NDArray[np.intp],
    even: bool,
    control: tuple[int, int],
    rng: np.random.Generator,
) -> PendingRound:
    """Draw `parallel` assignments from a policy; `control` holds the baseline and its number of assignments.

    Draws run over the candidates in the given order, that of their names, so that relabelling changes nothing.
    """
    baseline, control_count = control
    count = parallel - control_count
    edges = np.cumsum(np.array(policy.probabilities)[order])
    # Evenly spaced points after one random start, in random order, give every slot the policy's own probabilities
    # while the round's counts stay within one of their expectation.
    points = (rng.permutation(count) + rng.random()) / count if even else rng.random(count)
    drawn = order[np.searchsorted(edges, points * edges[-1], side="right").clip(max=len(edges) - 1)]
    share = count / parallel
    slots = [PendingAssignment(int(k), share * policy.probabilities[k]) for k in drawn]
    for place in sorted(rng.permutation(parallel)[:control_count]):
        slots.insert(int(place), PendingAssignment(baseline, control_count / parallel, control=True))
    return PendingRound(policy, slots)


class PendingRounds:
    """The rounds that are not learned yet, by number."""

    def __init__(self, rounds: Mapping[int, PendingRound] | None = None, asked: int = 0) -> None:
        self._rounds = dict(rounds or {})
        self.asked = asked
        """The number of rounds asked so far, which is the number of the next one."""

    def copy(self) -> PendingRounds:
        """Return the same rounds, each independent of these."""
        return PendingRounds({number: pending.copy() for number, pending in self._rounds.items()}, self.asked)

    def add(self, pending: PendingRound, candidates: Candidates) -> list[Assignment]:
        """Add a round, and return its assignments."""
        number, self.asked = self.asked, self.asked + 1
        self._rounds[number] = pending
        return [_assignment(number, place, pending, candidates) for place in range(len(pending.slots))]

    def open_assignments(self, candidates: Candidates) -> Iterator[Assignment]:
        """Yield the assignments that are neither measured nor dropped, oldest first."""
        for number, pending in self._rounds.items():
            for place, slot in enumerate(pending.slots):
                if slot.open:
                    yield _assignment(number, place, pending, candidates)

    def find(self, identities: Sequence[str]) -> list[tuple[int, PendingAssignment]]:
        """Return the round and the open slot of each id; raise if one is unknown, answered or given twice."""
        if len(set(identities)) < len(identities):
            twice = next(identity for identity in identities if identities.count(identity) > 1)
            raise AlreadyAnsweredError(f"assignment {twice!r} appears twice in one call; give each assignment once")
        return [self._find_slot(identity) for identity in identities]

    def is_complete(self, number: int) -> bool:
        """Return whether every assignment of a round was measured or dropped."""
        return not any(slot.open for slot in self._rounds[number].slots)

    def result(self, number: int) -> RoundResult | None:
        """Return a round as a learner reads it; None if the policy's own assignments were all dropped."""
        return self._rounds[number].to_result()

    def remove(self, number: int) -> None:
        """Remove a round that was learned."""
        del self._rounds[number]

    def pad(self, candidates: int) -> None:
        """Describe the policies of all rounds over more candidates."""
        for pending in self._rounds.values():
            pending.policy = pad_policy(pending.policy, candidates)

    def to_saved(self) -> list[list[Any]]:
        """Return the rounds as a plain JSON value."""
        return [[number, pending.to_saved()] for number, pending in self._rounds.items()]

    @classmethod
    def from_saved(cls, saved: Sequence[Sequence[Any]], asked: int) -> PendingRounds:
        """Read what `to_saved` wrote."""
        return cls({number: PendingRound.from_saved(pending) for number, pending in saved}, asked)

    def _find_slot(self, identity: str) -> tuple[int, PendingAssignment]:
        number, _, place = identity.partition("/")
        if not (number.isdecimal() and place.isdecimal() and int(number) < self.asked):
            raise UnknownAssignmentError(f"this study never asked for an assignment {identity!r}")
        pending = self._rounds.get(int(number))
        if pending is None:
            raise AlreadyAnsweredError(
                f"assignment {identity!r} belongs to a round that has been learned; it cannot be measured again"
            )
        if int(place) >= len(pending.slots):
            raise UnknownAssignmentError(f"this study never asked for an assignment {identity!r}")
        slot = pending.slots[int(place)]
        if not slot.open:
            verb = "dropped" if slot.dropped else "measured"
            raise AlreadyAnsweredError(
                f"assignment {identity!r} was {verb} before; pass each assignment to tell() or drop() once"
            )
        return int(number), slot


def _assignment(number: int, place: int, pending: PendingRound, candidates: Candidates) -> Assignment:
    slot = pending.slots[place]
    return Assignment(
        id=f"{number}/{place}",
        round=number,
        version=pending.policy.version,
        candidate=slot.candidate,
        name=candidates.names[slot.candidate],
        values=candidates[slot.candidate],
        propensity=slot.propensity,
        control=slot.control,
    )


def _control(measurements: list[Measurement], *, has_units: bool) -> ControlMeans | None:
    """Return the control's mean and its covariance; None without control slots, or without their standard errors."""
    covariances = _covariances(measurements)
    if not measurements or covariances is None:
        return None
    metrics = np.array([measurement.metrics for measurement in measurements], dtype=float)
    units = _units(measurements) if has_units else None
    count = len(measurements)
    shares = np.full(count, 1.0 / count) if units is None else units / units.sum()
    covariance = np.einsum("q,qij->ij", np.square(shares), covariances)
    return ControlMeans(shares @ metrics, covariance, float(count if units is None else units.sum()))


def _covariances(measurements: list[Measurement]) -> FloatArray | None:
    """Return diagonal covariances from the standard errors; None unless every measurement has them."""
    errors = [measurement.standard_errors for measurement in measurements]
    if any(row is None for row in errors):
        return None
    return np.array([np.diag(np.square(row)) for row in errors if row is not None])


def _covariates(measurements: list[Measurement]) -> RoundCovariates | None:
    """Return the covariates of a round; None unless every measurement has them."""
    rows = [measurement.covariates for measurement in measurements]
    if any(row is None for row in rows):
        return None
    if len(widths := {len(row) for row in rows if row is not None}) > 1:
        raise MeasurementError(
            f"the assignments of a round have {' and '.join(map(str, sorted(widths)))} covariates; give the same ones "
            "for each"
        )
    return RoundCovariates(np.array(rows, dtype=float))


def _units(measurements: list[Measurement]) -> FloatArray:
    return np.array([measurement.units for measurement in measurements], dtype=float)


@dataclass(frozen=True, slots=True)
class CorrectableRounds:
    """The newest learned rounds, which are not final yet.

    They can be learned again from the state before the oldest of them. So the cost of a correction depends on their
    number, and not on the age of the study.
    """

    learned: Any
    """The learner's state before the oldest of them."""
    rounds: int
    """Rounds that this state has learned."""
    policies: Mapping[int, Policy]
    """The policy that each of them served, by version, in the order they were learned."""

    def with_round(self, policy: Policy) -> CorrectableRounds:
        """Return these rounds and one more."""
        return replace(self, policies={**self.policies, policy.version: policy})

    def without_oldest(self, version: int, learned: Any) -> CorrectableRounds:
        """Return the rounds after the oldest one, which is final now; `learned` is the state that has learned it."""
        rest = {other: policy for other, policy in self.policies.items() if other != version}
        return CorrectableRounds(learned, self.rounds + 1, rest)

    def with_candidates(self, learned: Any, candidates: int) -> CorrectableRounds:
        """Return the rounds over more candidates, which none of them served."""
        return replace(
            self,
            learned=learned,
            policies={version: pad_policy(policy, candidates) for version, policy in self.policies.items()},
        )

    def to_saved(self, save: Callable[[Any], Any]) -> dict[str, Any]:
        """Return a plain JSON value; `save` writes a learner's state."""
        return {
            "learned": save(self.learned),
            "rounds": self.rounds,
            "policies": [save_policy(policy) for policy in self.policies.values()],
        }

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], load: Callable[[Any], Any]) -> CorrectableRounds:
        """Read what `to_saved` wrote; `load` reads a learner's state."""
        policies = [read_policy(policy) for policy in saved["policies"]]
        return cls(load(saved["learned"]), saved["rounds"], {policy.version: policy for policy in policies})
