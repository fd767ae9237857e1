"""A study's life: which action leads from where to where."""

from __future__ import annotations

from dataclasses import dataclass

from pasto.errors import LifecycleError, OptionError

SERVING = ("learning", "confirming", "deployed", "paused")
"""States in which a policy is published, and events are taken."""
UNCONFIRMED = (
    "deploy it without a confirmation and with a reason (--without-confirmation --reason TEXT; over HTTP, "
    "without_confirmation and reason)"
)
"""What else can be done with a blend that is not confirmed, for a message."""


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that can be done to a study."""

    sources: tuple[str, ...]
    target: str | None
    """None leads back to where the study was paused."""
    reason: bool = False
    """Whether whoever does it must say why."""


ACTIONS = {
    "start": Action(("draft",), "learning"),
    "pause": Action(("learning", "confirming", "deployed"), "paused", reason=True),
    "resume": Action(("paused",), None),
    "confirm": Action(("learning",), "confirming"),
    "deploy": Action(("confirming",), "deployed"),
    "archive": Action(("draft", "learning", "confirming", "deployed", "paused"), "archived"),
}


DRAFT_ACTIONS = ("edit", "delete")
"""What can be done to a draft beside its actions: it serves no traffic yet."""


def allowed(state: str) -> tuple[str, ...]:
    """What can be done to a study in that state.

    >>> allowed("paused"), allowed("archived"), allowed("draft")
    (('resume', 'archive'), (), ('start', 'archive', 'edit', 'delete'))
    """
    found = tuple(name for name, action in ACTIONS.items() if state in action.sources)
    return (*found, *DRAFT_ACTIONS) if state == "draft" else found


def check_draft(study: str, state: str, action: str) -> None:
    """Refuse to edit or delete what is not a draft any more.

    >>> check_draft("feed", "archived", "edit")
    Traceback (most recent call last):
    pasto.errors.LifecycleError: study 'feed' is archived and edit needs it to be draft; possible now: nothing, ...
    """
    if state != "draft":
        raise LifecycleError(_refusal(study, state, action, ("draft",)))


def target(
    study: str,
    state: str,
    action: str,
    *,
    reason: str = "",
    paused_from: str | None = None,
    without_confirmation: bool = False,
) -> str:
    """The state that an action leads to; WrongState where it cannot be done now, with what can.

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
    if state not in sources:
        raise LifecycleError(_refusal(study, state, action, sources))
    if action == "deploy" and without_confirmation and not reason.strip():
        raise OptionError("deploy without a confirmation needs a reason, which the audit log keeps; say why")
    if chosen.reason and not reason.strip():
        raise OptionError(f"{action} needs a reason, which the audit log keeps; say why")
    found = paused_from if chosen.target is None else chosen.target
    if found is None:
        raise LifecycleError(f"study {study!r} does not know where it was paused; archive it and create it again")
    return found


def _refusal(study: str, state: str, action: str, sources: tuple[str, ...]) -> str:
    message = f"study {study!r} is {state} and {action} needs it to be {' or '.join(sources)}"
    if action == "deploy" and state == "learning":
        message += f"; confirm it first, or {UNCONFIRMED}"
    return f"{message}; possible now: {', '.join(allowed(state)) or 'nothing, for this is final'}"
