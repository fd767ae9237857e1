"""Replay report: result of computing a study's closes again, and its sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec import Struct, field

from pasto.formatting import format_count

ExceptionKind = Literal["deleted_units", "deleted_events", "own_tables", "covariates", "guardrail_monitor"]
"""Reason why rounds are taken as recorded instead of being measured again."""

_SENTENCES: Mapping[ExceptionKind, str] = {
    "deleted_units": "except deleted units: {units}, in rounds {rounds}, taken as recorded",
    "deleted_events": "except rounds {rounds}, whose events are deleted, taken as recorded",
    "own_tables": "except rounds {rounds}, which were measured in other tables, taken as recorded",
    "covariates": "except covariates in rounds {rounds}, whose past is deleted, taken as recorded",
    "guardrail_monitor": (
        "except the guardrail monitor's verdicts after rounds {rounds}, judged in an earlier way, taken as recorded"
    ),
}


class ReplayDifference(Struct, frozen=True, omit_defaults=True):
    """First part of a study that was not computed as recorded."""

    round: int
    what: str
    published: str | None
    computed: str | None
    problem: str = ""


class ReplayException(Struct, frozen=True, omit_defaults=True):
    """Rounds that are identical only by their record."""

    rounds: tuple[int, ...]
    units: int | None = None
    """Units that were deleted."""


class RoundingDifference(Struct, frozen=True):
    """Rounds that are the same up to rounding, because another kind of arithmetic computed them."""

    rounds: int
    """Rounds whose learner state or policy differs in its last digits."""
    largest_difference: float
    """Largest difference of a share between a published policy and the computed one."""


class ReplayReport(Struct, frozen=True, omit_defaults=True, rename={"exceptions": "except"}):
    """Result of a replay: whether the event log leads to the same policies and learner states."""

    identical: bool
    """True if every policy and learner state is the same bit for bit."""
    rounds: int
    first_difference: ReplayDifference | None
    """None if the study is the same, bit for bit or up to rounding."""
    exceptions: Mapping[ExceptionKind, ReplayException] = field(default_factory=dict)
    rounding: RoundingDifference | None = None
    """None if nothing differs by rounding."""

    @property
    def is_same(self) -> bool:
        """True if the study is the same, bit for bit or up to rounding."""
        return self.first_difference is None


def describe_rounding(report: ReplayReport) -> str:
    """Return the sentence on rounds that are the same up to rounding; "" without any.

    >>> describe_rounding(ReplayReport(False, 9, None, rounding=RoundingDifference(2, 3e-15)))
    'the same up to rounding: largest difference of a share 3e-15; another processor or version computed 2 rounds'
    >>> describe_rounding(ReplayReport(True, 9, None))
    ''
    """
    if report.rounding is None:
        return ""
    largest, rounds = report.rounding.largest_difference, format_count(report.rounding.rounds, "round")
    difference = f"largest difference of a share {largest:.2g}" if largest else "every policy identical"
    return f"the same up to rounding: {difference}; another processor or version computed {rounds}"


def describe_exceptions(report: ReplayReport) -> Iterator[str]:
    """Yield a sentence for each kind of exception of a replay.

    >>> list(describe_exceptions(ReplayReport(True, 4, None, {"deleted_events": ReplayException((4, 3))})))
    ['except rounds 3, 4, whose events are deleted, taken as recorded']
    """
    for kind, exception in report.exceptions.items():
        rounds = ", ".join(map(str, sorted(exception.rounds)))
        yield _SENTENCES[kind].format(rounds=rounds, units=exception.units)


def describe_difference(report: ReplayReport) -> str:
    """Return the first difference of a replay in words; "" without one.

    >>> describe_difference(ReplayReport(False, 3, ReplayDifference(4, "policy", "3f9a", "c0ff")))
    'round 4, policy: published 3f9a, computed c0ff'
    """
    difference = report.first_difference
    if difference is None:
        return ""
    values = {"published": difference.published, "computed": difference.computed}
    parts = [f"{name} {value}" for name, value in values.items() if value is not None]
    return f"round {difference.round}, {difference.what}: {difference.problem or ', '.join(parts)}"
