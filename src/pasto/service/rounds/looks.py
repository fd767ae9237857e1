"""Phases in which units keep their arm: their rounds are looks at the whole phase, ever more rarely as it grows."""

from __future__ import annotations

from pasto.service.board import Standing
from pasto.service.details import Details

PHASES = ("confirming", "deployed")
"""States in which units keep their arm."""
LATER = 20
"""A phase is looked at again once it has lasted a twentieth longer."""


def look_due(standing: Standing, now: float) -> bool:
    """Whether a phase should be looked at: at its horizon, and in between after every round's time.

    A look reads the whole phase, so its cost would grow with the square of the phase's length if they stayed frequent.
    """
    row, policy = standing.row, standing.policy
    if row.state not in PHASES or policy is None:
        return False
    horizon = Details.from_text(row.details).horizon
    if row.state == "confirming" and horizon is not None and row.opened_at < horizon <= now:
        return True
    if row.state == "deployed" and not standing.spec.guardrails:
        return False
    return now - row.opened_at >= max(standing.spec.rounds.pace, (now - policy.valid_from) / LATER)
