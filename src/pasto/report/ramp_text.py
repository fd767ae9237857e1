"""Ramp text: the step that a study's enrolment is at, as a record and in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RampReport:
    """Ramp of a study: its steps, and the one that it is at."""

    step: int
    """From 1."""
    shares: tuple[float, ...]
    """Share of all units that take part, by step."""
    rounds_left: int | None = None
    """Learned rounds until the next step, if every guardrail holds; None if no step forward is due."""
    is_held: bool = False
    """True if a person stopped the steps forward."""

    @property
    def share(self) -> float:
        """Share of all units that take part now."""
        return self.shares[self.step - 1]


def describe_ramp(ramp: RampReport) -> str:
    """Return a ramp in words.

    >>> describe_ramp(RampReport(2, (0.01, 0.05, 0.25, 1.0), rounds_left=2))
    'step 2 of 4, 5%, 2 more rounds until 25%'
    >>> describe_ramp(RampReport(2, (0.01, 0.05), is_held=True)), describe_ramp(RampReport(2, (0.01, 1.0)))
    ('step 2 of 2, 5%, held', 'step 2 of 2, 100%')
    """
    text = f"step {ramp.step} of {len(ramp.shares)}, {show_share(ramp.share)}"
    if ramp.is_held:
        return f"{text}, held"
    if ramp.rounds_left is None:
        return text
    rounds = "1 more round" if ramp.rounds_left == 1 else f"{ramp.rounds_left} more rounds"
    return f"{text}, {rounds} until {show_share(ramp.shares[ramp.step])}"


def describe_ramp_change(step: int, before: float, after: float, cause: str) -> str:
    """Return a step of a ramp as one sentence.

    >>> describe_ramp_change(2, 0.01, 0.05, "every guardrail held")
    'The ramp goes from 1% to 5% of the units, step 2: every guardrail held.'
    """
    return f"The ramp goes from {show_share(before)} to {show_share(after)} of the units, step {step}: {cause}."


def show_share(share: float) -> str:
    """Return a share in percent, with all its digits.

    >>> show_share(0.01), show_share(0.0025)
    ('1%', '0.25%')
    """
    return f"{100.0 * share:.6g}%"
