"""What an event may carry, checked where it is tracked: a name, and flat fields of numbers, texts and truth values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from pasto.errors import BadInput
from pasto.records import Value

LARGEST = 1e15
"""Beyond it a double no longer tells neighbouring numbers apart, and the service takes none."""


class BadField(BadInput):
    """Something that cannot be sent; it is counted and reported by the client's status, never raised to a caller."""


def checked(event: object, fields: Mapping[str, object]) -> tuple[str, dict[str, Value]]:
    """An event's name and fields as they are sent; BadField where they cannot be.

    >>> checked("watch", {"seconds": 31.2, "full": True})
    ('watch', {'seconds': 31.2, 'full': True})
    >>> checked("watch", {"seconds": float("nan")})
    Traceback (most recent call last):
    pasto.sdk.fields.BadField: field 'seconds' is nan; numbers are finite and at most 1e+15
    """
    if not isinstance(event, str) or not event:
        raise BadField(f"an event's name is a text, got {type(event).__name__}")
    return event, {name: _plain(name, value) for name, value in fields.items()}


def _plain(name: str, value: object) -> Value:
    plain = value if isinstance(value, (float, int, bool)) or type(value) is str else _converted(name, value)
    if isinstance(plain, (int, float)) and not -LARGEST <= plain <= LARGEST:
        raise BadField(f"field {name!r} is {plain}; numbers are finite and at most {LARGEST:g}")
    return plain


def _converted(name: str, value: object) -> Value:
    """A number of numpy or of anything else that knows how to become a plain one."""
    if isinstance(value, str):
        return str(value)
    item: object = None
    with suppress(TypeError, ValueError):
        item = value.item() if hasattr(value, "item") else float(value)  # type: ignore[arg-type]
    if not isinstance(item, (float, int, str, bool)):
        raise BadField(f"field {name!r} is a {type(value).__name__}; send a number, a text or a truth value")
    return item
