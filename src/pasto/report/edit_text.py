"""Edit text: a change of a study file in words, the same for the terminal and the dashboard."""

from __future__ import annotations

import json
from typing import Any

from pasto.formatting import format_duration

DURATION_FIELDS = ("rounds.every", "rounds.maturity", "rounds.accept_late", "deploy_for", "expires_after")
MAX_VALUE_CHARACTERS = 120


def describe_change(field: str, before: Any, after: Any) -> str:
    """Return the change of one field as one line.

    >>> describe_change("layer.share", 0.1, 0.4)
    'layer.share: 10% → 40%'
    >>> describe_change("traffic.explore", 1.0, 0.25), describe_change("rounds.every", 3600.0, 1800.0)
    ('traffic.explore: 100% → 25%', 'rounds.every: 1h → 30min')
    >>> describe_change("candidates.w=4", None, {"w": 4}), describe_change("candidates.w=3", "served", "retired")
    ('candidates.w=4: added', 'candidates.w=3: retired')
    >>> describe_change("candidates.bold", None, {"w": 4, "v": 1.5})
    'candidates.bold: added, w=4,v=1.5'
    >>> describe_change("guardrails.likes.at_least", "-2%", "-1%"), describe_change("owner", None, "feed team")
    ('guardrails.likes.at_least: -2% → -1%', 'owner: none → feed team')
    """
    if field.startswith("candidates."):
        if before is None:
            values = ",".join(f"{name}={_show_parameter(value)}" for name, value in after.items())
            return f"{field}: added" + ("" if field == f"candidates.{values}" else f", {_shorten(values)}")
        return f"{field}: {'served again' if after == 'served' else 'retired'}"
    return f"{field}: {_describe_value(field, before)} → {_describe_value(field, after)}"


def _show_parameter(value: Any) -> str:
    """Return a value as names of candidates have it."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _describe_value(field: str, value: Any) -> str:
    if value is None or value == "":
        return "none"
    if isinstance(value, float) and field in DURATION_FIELDS:
        return format_duration(value)
    if isinstance(value, float) and (field.startswith(("traffic.", "layer.")) or field == "confidence"):
        return f"{100.0 * value:.6g}%"
    if field == "traffic.ramp":
        return ", ".join(f"{100.0 * share:.6g}%" for share in value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _shorten(text)


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_VALUE_CHARACTERS else text[: MAX_VALUE_CHARACTERS - 1] + "…"
