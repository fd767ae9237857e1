"""Traffic and rounds of a study file."""

from __future__ import annotations

from pasto.measure.document import Problems, shown
from pasto.measure.spans import read_span
from pasto.service.spec.amounts import read_share
from pasto.service.spec.fields import inside
from pasto.service.spec.spec import Rounds, Traffic

SHORTEST = 1.0
"""Seconds that a round lasts at least."""
MOST_EXPOSURES = 10**12


def read_traffic(problems: Problems, given: object) -> Traffic:
    """Shares of traffic; what is not said takes its default."""
    fields = problems.fields("traffic", given, inside("traffic"))
    ends = {"control": "high", "explore": "low", "floor": "high", "cap": "low", "entry": "low"}
    read = {
        name: read_share(problems, f"traffic.{name}", value, open_ends=ends[name])
        for name, value in fields.items()
        if not (value is None and name in ("cap", "entry"))
    }
    return Traffic(**{name: share for name, share in read.items() if share is not None})


def read_rounds(problems: Problems, given: object) -> Rounds:
    """When rounds end; what is not said takes its default."""
    fields = problems.fields("rounds", given, inside("rounds"))
    maturity = read_span(problems, "rounds.maturity", fields.get("maturity", 0.0)) or 0.0
    late = read_span(problems, "rounds.late", fields.get("late", 0.0)) or 0.0
    if "exposures" not in fields:
        every = read_span(problems, "rounds.every", fields.get("every", 3600.0), low=SHORTEST)
        return Rounds(every=every, maturity=maturity, late=late)
    exposures = fields["exposures"]
    if "every" in fields:
        problems.add("rounds.exposures", "stands beside every; a round ends by time or by exposures, so keep one")
    if isinstance(exposures, bool) or not isinstance(exposures, int) or not 1 <= exposures <= MOST_EXPOSURES:
        problems.add("rounds.exposures", f"must be a whole number from 1 to {MOST_EXPOSURES:,}, got {shown(exposures)}")
        exposures = None
    return Rounds(every=None, exposures=exposures, maturity=maturity, late=late)
