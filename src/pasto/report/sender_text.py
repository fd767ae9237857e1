"""Sentences about senders whose units depart from those of the others."""

from __future__ import annotations

from pasto.formatting import format_number, format_p_value, format_signed
from pasto.report.data_records import SenderDeparture


def departure_text(departure: SenderDeparture) -> str:
    """Return how a sender's units depart from those of the others.

    >>> departure_text(SenderDeparture("key", "ab12", round=3, test="shares", p_value=1e-9))
    "key ab12: its shares of candidates are not the policy's, since round 3 (p = 1e-09)"
    """
    sender = f"{departure.kind} {departure.sender or 'none'}"
    since = f"since round {departure.round} (p = {format_p_value(departure.p_value)})"
    if departure.test == "shares":
        return f"{sender}: its shares of candidates are not the policy's, {since}"
    if departure.test == "level":
        mean, before = format_number(departure.effect), format_number(departure.others)
        change = f"{departure.metric} is {mean} a unit, {before} before"
        return f"{sender}: {change}, and other senders did not change as much, {since}"
    effect, others = format_signed(departure.effect), format_signed(departure.others)
    return (
        f"{sender}: {departure.metric} of {departure.candidate or 'a candidate'} is {effect} from its own mean, "
        f"of other senders {others}, {since}"
    )
