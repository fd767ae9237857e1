"""Lifecycle of a study: its states, the actions that lead from one to another, and their options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pasto.errors import LifecycleError, OptionError
from pasto.report.lift_records import ConfirmationVerdict
from pasto.report.verdict_text import verdict_text

STATES = ("draft", "learning", "confirming", "deployed", "paused", "archived")
SERVING = ("learning", "confirming", "deployed", "paused")
"""States in which a policy is published and events are accepted."""
PHASES = ("confirming", "deployed")
"""States in which units keep their arm."""
UNCONFIRMED = (
    "deploy it without a confirmation and with a reason (--without-confirmation --reason TEXT; over HTTP, "
    "without_confirmation and reason)"
)
"""End of a message about a blend that is not confirmed."""
DAY_SECONDS = 86400.0
MAX_CONFIRMATION_DAYS = 3660.0
MIN_CONFIRMATION_UNITS = 50
"""Units that a confirmation needs in the control and in the blend's arm."""


@dataclass(frozen=True, slots=True)
class Action:
    """An action on a study: the states that it needs, and the state that it leads to."""

    sources: tuple[str, ...]
    target: str | None
    """None leads back to the state before the pause."""
    reason: bool = False
    """True if the action needs a reason."""


ACTIONS = {
    "start": Action(("draft",), "learning"),
    "pause": Action(("learning", "confirming", "deployed"), "paused", reason=True),
    "resume": Action(("paused",), None),
    "confirm": Action(("learning",), "confirming"),
    "deploy": Action(("confirming",), "deployed"),
    "archive": Action(("draft", "learning", "confirming", "deployed", "paused"), "archived"),
}


DRAFT_ACTIONS = ("edit", "delete")
"""Changes of a draft besides the actions: it serves no traffic yet."""
RUNNING_ACTIONS = ("edit",)
"""Changes of a study that serves traffic besides the actions."""


def allowed(state: str) -> tuple[str, ...]:
    """Return the actions that are possible in a state.

    >>> allowed("paused"), allowed("archived"), allowed("draft")
    (('resume', 'archive', 'edit'), (), ('start', 'archive', 'edit', 'delete'))
    """
    names = tuple(name for name, action in ACTIONS.items() if state in action.sources)
    if state in SERVING:
        return (*names, *RUNNING_ACTIONS)
    return (*names, *DRAFT_ACTIONS) if state == "draft" else names


def check_draft(study: str, state: str, action: str) -> None:
    """Raise LifecycleError if a study that is deleted is not a draft.

    >>> check_draft("feed", "archived", "delete")
    Traceback (most recent call last):
    pasto.errors.LifecycleError: study 'feed' is archived and delete needs it to be draft; possible now: nothing, ...
    """
    if state != "draft":
        raise LifecycleError(_refusal(study, state, action, ("draft",)))


def check_editable(study: str, state: str) -> None:
    """Raise LifecycleError if a study cannot be edited: an archived one is final.

    >>> check_editable("feed", "archived")
    Traceback (most recent call last):
    pasto.errors.LifecycleError: study 'feed' is archived and edit needs it to be draft or learning or confirming or ...
    """
    if state not in ("draft", *SERVING):
        raise LifecycleError(_refusal(study, state, "edit", ("draft", *SERVING)))


def target(
    study: str,
    state: str,
    action: str,
    *,
    reason: str = "",
    paused_from: str | None = None,
    without_confirmation: bool = False,
    hold: str = "",
) -> str:
    """Return the state that an action leads to; LifecycleError names the possible actions if it is not one of them.

    A pause that holds the baseline is possible in a pause, too: it replaces the blend that is served.

    >>> target("feed", "learning", "confirm"), target("feed", "paused", "resume", paused_from="deployed")
    ('confirming', 'deployed')
    >>> target("feed", "draft", "deploy")
    Traceback (most recent call last):
    pasto.errors.LifecycleError: study 'feed' is draft and deploy needs it to be confirming; possible now: start, ...
    """
    chosen = ACTIONS.get(action)
    if chosen is None:
        raise OptionError(f"{action!r} cannot be done to a study; the actions are {', '.join(ACTIONS)}")
    sources = chosen.sources
    if action == "deploy" and without_confirmation:
        sources = (*sources, "learning")
    if action == "pause" and hold == "baseline":
        sources = (*sources, "paused")
    if state not in sources:
        raise LifecycleError(_refusal(study, state, action, sources))
    if action == "deploy" and without_confirmation and not reason.strip():
        raise OptionError("deploy without a confirmation needs a reason, which the audit log keeps; say why")
    if chosen.reason and not reason.strip():
        raise OptionError(f"{action} needs a reason, which the audit log keeps; say why")
    state_after = paused_from if chosen.target is None else chosen.target
    if state_after is None:
        raise LifecycleError(f"study {study!r} does not know where it was paused; archive it and create it again")
    return state_after


def read_horizon(options: Mapping[str, Any], now: float) -> float | None:
    """Return the time at which a confirmation is judged, in seconds since 1970; None without such an option.

    >>> read_horizon({"days": 2}, 1000.0), read_horizon({"until": "1970-01-03"}, 1000.0), read_horizon({}, 1000.0)
    (173800.0, 172800.0, None)
    """
    days, until = options.get("days"), options.get("until")
    if days is not None and until is not None:
        raise OptionError("a confirmation is set to run for some days, or until a moment; give one of them")
    if days is not None:
        if isinstance(days, bool) or not isinstance(days, (int, float)) or not 0 < days <= MAX_CONFIRMATION_DAYS:
            raise OptionError(f"days is {days!r}; it is a number above 0 and up to {MAX_CONFIRMATION_DAYS:g}")
        return now + DAY_SECONDS * days
    if until is None:
        return None
    moment = _read_moment(until)
    if not now < moment <= now + DAY_SECONDS * MAX_CONFIRMATION_DAYS:
        raise OptionError(f"until is {until!r}; a confirmation is judged at a moment to come, within ten years")
    return moment


def check_confirmed(study: str, units: Mapping[str, int], verdict: ConfirmationVerdict) -> None:
    """Raise LifecycleError if a confirmation does not allow to deploy the blend; `units` are counted by arm."""
    if min(units.get("control", 0), units.get("blend", 0)) < MIN_CONFIRMATION_UNITS:
        counted = ", ".join(f"{arm} {count}" for arm, count in sorted(units.items())) or "none"
        raise LifecycleError(
            f"the confirmation of study {study!r} has too few units for a verdict (needed: {MIN_CONFIRMATION_UNITS} in "
            f"the control and in the blend; measured: {counted}); let it run, or {UNCONFIRMED}"
        )
    if verdict.state != "confirmed":
        raise LifecycleError(
            f"study {study!r} is not confirmed. {' '.join(verdict_text(verdict))} Let the confirmation run on, or "
            + UNCONFIRMED
        )


def _read_moment(given: Any) -> float:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return float(given)
    try:
        moment = datetime.fromisoformat(str(given))
    except ValueError:
        raise OptionError(
            f"until is {given!r}; write a day or a moment such as 2026-03-01 or 2026-03-01T09:00"
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _refusal(study: str, state: str, action: str, sources: tuple[str, ...]) -> str:
    message = f"study {study!r} is {state} and {action} needs it to be {' or '.join(sources)}"
    if action == "deploy" and state == "learning":
        message += f"; confirm it first, or {UNCONFIRMED}"
    return f"{message}; possible now: {', '.join(allowed(state)) or 'nothing, for this is final'}"
