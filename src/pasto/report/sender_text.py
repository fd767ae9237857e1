"""Sentences about senders whose units depart from those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def departure_text(departure: Mapping[str, Any]) -> str:
    """Return what departs, in one sentence.

    >>> departure_text({"kind": "key", "sender": "ab12", "round": 3, "test": "shares", "p_value": 1e-9})
    "key ab12: its shares of candidates are not the policy's, since round 3 (p = 1e-09)"
    """
    who = f"{departure['kind']} {departure['sender'] or 'none'}"
    since = f"since round {departure['round']} (p = {departure['p_value']:.2g})"
    if departure["test"] == "shares":
        return f"{who}: its shares of candidates are not the policy's, {since}"
    if departure["test"] == "level":
        change = f"{departure['metric']} is {departure['effect']:.4g} a unit, {departure['others']:.4g} before"
        return f"{who}: {change}, and other senders did not change as much, {since}"
    return (
        f"{who}: {departure['metric']} of {departure['candidate'] or 'a candidate'} is {departure['effect']:+.4g} from "
        f"its own mean, of other senders {departure['others']:+.4g}, {since}"
    )
