"""Sentences about the data of a study: rounds that are held back for lack of events, and senders that depart."""

from __future__ import annotations

from collections.abc import Sequence

from pasto.formatting import format_number, format_p_value, format_signed
from pasto.report.data_quality_records import SenderDeparture
from pasto.report.records import RoundShortage


def describe_held(number: int, findings: Sequence[RoundShortage]) -> str:
    """Return why a round is held back, and what to do about it.

    >>> finding = RoundShortage("none", "likes", units=4000, expected=412.0, seen=0.0, rounds=3)
    >>> describe_held(4, [finding])
    'round 4 is held back and not learned: likes had no event from 4,000 units; a sum of 412 was expected by 3
     earlier rounds. Load the missing events, or decide with `pasto round resolve`'
    """
    return (
        f"round {number} is held back and not learned: {'; '.join(map(describe_finding, findings))}. "
        "Load the missing events, or decide with `pasto round resolve`"
    )


def describe_refused_correction(number: int, findings: Sequence[RoundShortage]) -> str:
    """Return why a learned round stays as it was though its tables say something else now.

    >>> finding = RoundShortage("no_events", None, units=400, expected=0.0, seen=0.0, rounds=0)
    >>> describe_refused_correction(3, [finding])
    'round 3 is not corrected, because its tables lack events now: no event of any metric has come from 400 units'
    """
    return (
        f"round {number} is not corrected, because its tables lack events now: "
        f"{'; '.join(map(describe_finding, findings))}"
    )


def describe_finding(finding: RoundShortage) -> str:
    """Return what was expected and what came, as part of a sentence.

    >>> describe_finding(RoundShortage("fell", "watch_time", 4000, 136800.0, 5123.0, rounds=8, p_value=2.5e-9))
    'watch_time fell to a sum of 5,123 from 4,000 units; a sum of 136,800 was expected by 8 earlier rounds (p =
     2.5e-09)'
    """
    units = f"{finding.units:,} units"
    earlier = f"{finding.rounds} earlier round{'' if finding.rounds == 1 else 's'}"
    if finding.kind == "no_events":
        if not finding.expected:
            return f"no event of any metric has come from {units}"
        return (
            f"no event of any metric came from {units}; by {earlier} at least {format_number(finding.expected)} "
            "units were expected to have one"
        )
    expected = f"a sum of {format_number(finding.expected)} was expected by {earlier}"
    if finding.kind == "none":
        return f"{finding.column} had no event from {units}; {expected}"
    return (
        f"{finding.column} fell to a sum of {format_number(finding.seen)} from {units}; {expected} (p = "
        f"{format_p_value(finding.p_value)})"
    )


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
