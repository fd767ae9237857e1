"""Ramp text: the units that take part in a study and the step of its ramp, as records and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PART_WORDS = {"holdout": "outside the holdout", "layer": "of the layer", "ramp": "of the traffic"}


@dataclass(frozen=True, slots=True)
class EnrolmentShare:
    """Share of units that one slice of the enrolment takes in, independent of the other slices."""

    kind: str
    """holdout, layer or ramp."""
    share: float


def describe_enrolment(parts: Sequence[EnrolmentShare]) -> str:
    """Return the share of all units that take part, and how it comes about.

    >>> layer = EnrolmentShare("layer", 0.4)
    >>> describe_enrolment([layer])
    '40% of all units'
    >>> describe_enrolment([EnrolmentShare("holdout", 0.95), layer, EnrolmentShare("ramp", 0.1)])
    '3.8% of all units: 95% outside the holdout × 40% of the layer × 10% of the traffic'
    """
    text = f"{show_share(math.prod(part.share for part in parts))} of all units"
    if len(parts) < 2:
        return text
    return f"{text}: " + " × ".join(f"{show_share(part.share)} {_PART_WORDS[part.kind]}" for part in parts)


def describe_layer(layer: Mapping[str, Any]) -> str:
    """Return the interval of a study in its layer, from the study file.

    >>> describe_layer({"name": "home", "share": 0.4, "start": 0.3})
    'home, 40%: from 30% to 70%'
    """
    start, share = layer["start"], layer["share"]
    return f"{layer['name']}, {show_share(share)}: from {show_share(start)} to {show_share(start + share)}"


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
    is_unjudged: bool = False
    """True if rounds were closed at this step, and no guardrail was judged in any, as without units."""

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
    >>> describe_ramp(RampReport(1, (0.01, 1.0), rounds_left=3, is_unjudged=True))
    'step 1 of 2, 1%, 3 more rounds until 100%; no closed round is judged yet'
    """
    text = f"step {ramp.step} of {len(ramp.shares)}, {show_share(ramp.share)}"
    if ramp.is_held:
        return f"{text}, held"
    if ramp.rounds_left is None:
        return text
    rounds = "1 more round" if ramp.rounds_left == 1 else f"{ramp.rounds_left} more rounds"
    note = "; no closed round is judged yet" if ramp.is_unjudged else ""
    return f"{text}, {rounds} until {show_share(ramp.shares[ramp.step])}{note}"


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
