"""How a confidence is told."""

from __future__ import annotations


def format_confidence(confidence: float) -> str:
    """A confidence as somebody set it, to its last digit.

    >>> format_confidence(0.95), format_confidence(0.99999), format_confidence(0.975)
    ('95%', '99.999%', '97.5%')
    """
    return f"{100 * confidence:.10g}%"
