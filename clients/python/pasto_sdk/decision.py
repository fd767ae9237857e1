"""What a caller gets for a unit, and the handle by which it says what happened."""

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
    """One unit's candidate: the values to use, why, and with what probability they were drawn.

    Reasons: SPLIT, drawn from the policy; DEFAULT, the baseline, for no policy was known or the unit cannot be drawn
    for; STALE, the baseline, for the service was out of reach until the policy expired; OVERRIDE, asked for by name.
    Only SPLIT is learned from.
    """

    # Made for every unit: slots are filled in a third of the time that a frozen dataclass takes.
    __slots__ = ("_cell", "_reason", "_sequence", "_track", "_unit", "_version")

    def __init__(self, track: Track, unit: str, version: int, cell: Bucket, reason: Reason) -> None:
        self._track = track
        self._unit = unit
        self._version = version
        self._cell = cell
        self._reason: Reason = reason
        self._sequence = 0

    @property
    def unit(self) -> str:
        """Whom it is for; empty where what was given is no unit."""
        return self._unit

    @property
    def values(self) -> Mapping[str, Value]:
        """The candidate's parameters; empty where not even a baseline is known."""
        return self._cell.values

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self._cell.name

    @property
    def candidate(self) -> int | None:
        """The candidate's index in the study; None where no policy was ever known."""
        return self._cell.candidate if self._cell.candidate >= 0 else None

    @property
    def version(self) -> int:
        """Of the policy it comes from; 0 where none was ever known."""
        return self._version

    @property
    def propensity(self) -> float:
        """The probability with which this arm and candidate were drawn; 0 where nothing was drawn."""
        return self._cell.propensity

    @property
    def arm(self) -> str:
        """The part of the traffic it belongs to; "none" where nothing was drawn."""
        return self._cell.arm

    @property
    def reason(self) -> Reason:
        """Why it is this candidate."""
        return self._reason

    def track(self, event: str, /, **fields: object) -> None:
        """Say what happened to the unit under this decision; never blocks and never raises."""
        self._track(self, event, fields)

    def __repr__(self) -> str:
        return f"<Decision {self._unit!r}: {self.name!r}, {self._reason}, version {self._version}>"


LARGEST = 1e15
"""Beyond it a double no longer tells neighbouring numbers apart, and the service takes none."""


class FieldError(InputError):
    """Something that cannot be sent; it is counted and reported by the client's status, never raised to a caller."""


def check_fields(event: object, fields: Mapping[str, object]) -> tuple[str, dict[str, Value]]:
    """An event's name and fields as they are sent; FieldError where they cannot be.

    >>> check_fields("watch", {"seconds": 31.2, "full": True})
    ('watch', {'seconds': 31.2, 'full': True})
    >>> check_fields("watch", {"seconds": float("nan")})
    Traceback (most recent call last):
    pasto_sdk.decision.FieldError: field 'seconds' is nan; numbers are finite and at most 1e+15
    """
    if not isinstance(event, str) or not event:
        raise FieldError(f"an event's name is a text, got {type(event).__name__}")
    return event, {name: _plain(name, value) for name, value in fields.items()}


def _plain(name: str, value: object) -> Value:
    plain = value if isinstance(value, (float, int, bool)) or type(value) is str else _converted(name, value)
    if isinstance(plain, (int, float)) and not -LARGEST <= plain <= LARGEST:
        raise FieldError(f"field {name!r} is {plain}; numbers are finite and at most {LARGEST:g}")
    return plain


def _converted(name: str, value: object) -> Value:
    """A number of numpy or of anything else that knows how to become a plain one."""
    if isinstance(value, str):
        return str(value)
    item: object = None
    with suppress(TypeError, ValueError):
        item = value.item() if hasattr(value, "item") else float(value)  # type: ignore[arg-type]
    if not isinstance(item, (float, int, str, bool)):
        raise FieldError(f"field {name!r} is a {type(value).__name__}; send a number, a text or a truth value")
    return item
