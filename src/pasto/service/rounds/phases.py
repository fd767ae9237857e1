"""What confirming and deploying ask for, and what is told to the outside when a close is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pasto.errors import BadOption, WrongState
from pasto.report.guardrail_text import verdict_text
from pasto.service.lifecycle import UNCONFIRMED
from pasto.service.rounds.close import Turn
from pasto.service.trust.confirmation import ENOUGH, enough

DAY = 86400.0
LONGEST = 3660.0
"""Days that a confirmation may be set to run."""


def horizon_of(options: Mapping[str, Any], now: float) -> float | None:
    """When a confirmation is to be judged, in seconds since 1970; None where nobody said.

    >>> horizon_of({"days": 2}, 1000.0), horizon_of({"until": "1970-01-03"}, 1000.0), horizon_of({}, 1000.0)
    (173800.0, 172800.0, None)
    """
    days, until = options.get("days"), options.get("until")
    if days is not None and until is not None:
        raise BadOption("a confirmation is set to run for some days, or until a moment; give one of them")
    if days is not None:
        if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days <= LONGEST:
            raise BadOption(f"days is {days!r}; it is a number above 0 and up to {LONGEST:g}")
        return now + DAY * days
    if until is None:
        return None
    moment = _moment(until)
    if not now < moment <= now + DAY * LONGEST:
        raise BadOption(f"until is {until!r}; a confirmation is judged at a moment to come, within ten years")
    return moment


def _moment(given: Any) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise BadOption(f"until is {given!r}; write a day or a moment such as 2026-03-01 or 2026-03-01T09:00") from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def check_confirmed(name: str, turned: Turn, verdict: Mapping[str, Any]) -> None:
    """Refuse to deploy what its confirmation has not confirmed."""
    units: dict[str, int] = {}
    for cell in () if turned.look is None else turned.look.moments:
        units[cell.arm] = units.get(cell.arm, 0) + cell.units
    if not enough(units):
        counted = ", ".join(f"{arm} {count}" for arm, count in sorted(units.items())) or "none"
        raise WrongState(
            f"the confirmation of study {name!r} has too few units to say anything (needed: {ENOUGH} in the control "
            f"and in the blend; measured: {counted}); let it run, or {UNCONFIRMED}"
        )
    if verdict["state"] != "confirmed":
        raise WrongState(
            f"study {name!r} is not confirmed. {' '.join(verdict_text(verdict))} Let the confirmation run on, or "
            + UNCONFIRMED
        )


def messages(study: str, turned: Turn) -> Iterator[dict[str, Any]]:
    """What a webhook is told of a close: that the breaker warns, that it tripped, that a round is held back."""
    about = {"study": study, "round": turned.after.round, "version": turned.after.version, "state": turned.after.state}
    verdicts = [dict(verdict) for verdict in turned.breaker.verdicts]
    if turned.trip is not None:
        yield {"event": "trip", **about, "reason": turned.trip, "verdicts": verdicts}
    elif turned.warned:
        names = ", ".join(turned.warned)
        reason = f"breaker: {names} may be about to fall through its floor"
        yield {"event": "warning", **about, "reason": reason, "verdicts": verdicts}
    if turned.newly_held:
        reason = f"held back for lack of events: round {', '.join(map(str, turned.newly_held))}"
        yield {"event": "held", **about, "reason": reason, "held": list(turned.newly_held)}
