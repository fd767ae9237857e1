"""Upgrade of stored study documents to today's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pasto.optimize.learners import current_name
from pasto.service.study_file.schema import FIELDS

Document = Mapping[str, Any]


def upgrade_document(document: Document) -> dict[str, Any]:
    """Return a stored study document with today's field names; one that has them already is returned unchanged.

    >>> old = {"name": "feed", "guardrails": [{"keep": "likes", "at_least": "-2%", "floor": "-5%"}]}
    >>> upgrade_document(old)["guardrails"]
    [{'metric': 'likes', 'at_least': '-2%', 'stop_at': '-5%'}]
    """
    return {name: _UPGRADES[name](value) if name in _UPGRADES else value for name, value in document.items()}


def _rename(section: str, fields: Document) -> dict[str, Any]:
    """Return a section with the new names of its fields, in the same order."""
    new_names = FIELDS.old_names(section)
    return {new_names.get(name, name): value for name, value in fields.items()}


def _rename_metrics(metrics: Document) -> dict[str, Any]:
    upgraded = {}
    for name, metric in metrics.items():
        fields = _rename("metrics.NAME", metric)
        if "ratio" in fields:
            fields["ratio"] = [_rename("metrics.NAME", half) for half in fields["ratio"]]
        upgraded[name] = fields
    return upgraded


def _rename_ranges(ranges: Document) -> dict[str, Any]:
    return {
        name: _rename("ranges.NAME", range_) if isinstance(range_, Mapping) else range_
        for name, range_ in ranges.items()
    }


def _rename_learner(learner: Any) -> Any:
    if isinstance(learner, Mapping):
        return {**learner, "name": current_name(learner["name"])}
    return current_name(learner)


_UPGRADES: dict[str, Callable[[Any], Any]] = {
    "metrics": _rename_metrics,
    "ranges": _rename_ranges,
    "guardrails": lambda guardrails: [_rename("guardrails", guardrail) for guardrail in guardrails],
    "traffic": lambda traffic: _rename("traffic", traffic),
    "learner": _rename_learner,
    "rounds": lambda rounds: _rename("rounds", rounds),
}
