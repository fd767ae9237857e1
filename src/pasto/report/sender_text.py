"""Sentences about senders whose units depart from those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pasto.formatting import format_number, format_p_value, format_signed


def departure_text(departure: Mapping[str, Any]) -> str:
    """Return what departs, in one sentence.

    >>> departure_text({"kind": "key", "sender": "ab12", "round": 3, "test": "shares", "p_value": 1e-9})
    "key ab12: its shares of candidates are not the policy's, since round 3 (p = 1e-09)"
    """
    who = f"{departure['kind']} {departure['sender'] or 'none'}"
    since = f"since round {departure['round']} (p = {format_p_value(departure['p_value'])})"
    if departure["test"] == "shares":
        return f"{who}: its shares of candidates are not the policy's, {since}"
    if departure["test"] == "level":
        mean, before = format_number(departure["effect"]), format_number(departure["others"])
        change = f"{departure['metric']} is {mean} a unit, {before} before"
        return f"{who}: {change}, and other senders did not change as much, {since}"
    effect, others = format_signed(departure["effect"]), format_signed(departure["others"])
    return (
        f"{who}: {departure['metric']} of {departure['candidate'] or 'a candidate'} is {effect} from its own mean, "
        f"of other senders {others}, {since}"
    )
