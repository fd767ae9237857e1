"""Decision for one unit: its candidate, and the handle that tracks its metric events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Literal

from pasto_sdk.errors import InputError
from pasto_sdk.policy_document import Bucket, Value

Reason = Literal["SPLIT", "DEFAULT", "STALE", "OVERRIDE"]

SPLIT: Final = "SPLIT"

DEFAULT: Final = "DEFAULT"

STALE: Final = "STALE"

OVERRIDE: Final = "OVERRIDE"

Track = Callable[["Decision", str, dict[str, object]], None]


class Decision:
    """Candidate of one unit: its values, the reason, and the probability with which it was drawn.

    Reasons: SPLIT, drawn from the policy; DEFAULT, the baseline, because there was no policy, the unit does not take
    part in the study (arm "not_enrolled"), or it is not valid; STALE, the baseline, because the policy expired while
    the service was unavailable; OVERRIDE, requested by name. The learner uses only SPLIT.
    """

    # Made for every unit: slots are filled in a third of the time that a frozen dataclass takes.
    __slots__ = ("_cell", "_cluster", "_reason", "_sequence", "_track", "_unit", "_version")

    def __init__(
        self, track: Track, unit: str, version: int, cell: Bucket, reason: Reason, cluster: str | None = None
    ) -> None:
        self._track = track
        self._unit = unit
        self._version = version
        self._cell = cell
        self._reason: Reason = reason
        self._cluster = cluster
        self._sequence = 0

    @property
    def unit(self) -> str:
        """Unit of the decision; empty if the given unit was not valid."""
        return self._unit

    @property
    def cluster(self) -> str | None:
        """Cluster that was drawn instead of the unit; None if the study assigns units."""
        return self._cluster

    @property
    def values(self) -> Mapping[str, Value]:
        """Values of the candidate's parameters; empty if there is not even a baseline."""
        return self._cell.values

    @property
    def name(self) -> str:
        """Name of the candidate."""
        return self._cell.name

    @property
    def candidate(self) -> int | None:
        """Index of the candidate in the study; None if there was never a policy."""
        return self._cell.candidate if self._cell.candidate >= 0 else None

    @property
    def version(self) -> int:
        """Version of the policy; 0 if there was never one."""
        return self._version

    @property
    def propensity(self) -> float:
        """Probability with which this arm and candidate were drawn; 0 if nothing was drawn."""
        return self._cell.propensity

    @property
    def arm(self) -> str:
        """Arm of the traffic; "none" if nothing was drawn."""
        return self._cell.arm

    @property
    def segment(self) -> str | None:
        """Segment of the unit; None if the policy has no segments, or if nothing was drawn."""
        return self._cell.segment

    @property
    def reason(self) -> Reason:
        """Reason for this candidate."""
        return self._reason

    @property
    def is_not_enrolled(self) -> bool:
        """True if the unit does not take part in the study: it has no exposure, and its events are not sent."""
        return self._reason is DEFAULT and self._cell.arm == "not_enrolled"

    def track(self, event: str, /, **fields: object) -> None:
        """Send a metric event of the unit under this decision; never blocks and never raises."""
        self._track(self, event, fields)

    def __repr__(self) -> str:
        return f"<Decision {self._unit!r}: {self.name!r}, {self._reason}, version {self._version}>"


MAX_NUMBER = 1e15
"""Largest number that the service takes; above it, a double cannot hold every integer and a fraction."""


class FieldError(InputError):
    """Event that cannot be sent; the client counts it in its status and never raises it to a caller."""


def check_fields(event: object, fields: Mapping[str, object]) -> tuple[str, dict[str, Value]]:
    """Return an event's name and fields as they are sent; raise FieldError if they cannot be.

    >>> check_fields("watch", {"seconds": 31.2, "full": True})
    ('watch', {'seconds': 31.2, 'full': True})
    >>> check_fields("watch", {"seconds": float("nan")})
    Traceback (most recent call last):
    pasto_sdk.decision.FieldError: field 'seconds' is nan; a number must be finite and at most 1e+15
    """
    if not isinstance(event, str) or not event:
        raise FieldError(f"an event's name must be a string, got {type(event).__name__}")
    return event, {name: _plain(name, value) for name, value in fields.items()}


def _plain(name: str, value: object) -> Value:
    plain = value if isinstance(value, (float, int, bool)) or type(value) is str else _converted(name, value)
    if isinstance(plain, (int, float)) and not -MAX_NUMBER <= plain <= MAX_NUMBER:
        raise FieldError(f"field {name!r} is {plain}; a number must be finite and at most {MAX_NUMBER:g}")
    return plain


def _converted(name: str, value: object) -> Value:
    """Return a number of numpy or another library as a plain number."""
    if isinstance(value, str):
        return str(value)
    item: object = None
    with suppress(TypeError, ValueError):
        item = value.item() if hasattr(value, "item") else float(value)  # type: ignore[arg-type]
    if not isinstance(item, (float, int, str, bool)):
        raise FieldError(f"field {name!r} is a {type(value).__name__}; send a number, a text or a truth value")
    return item
