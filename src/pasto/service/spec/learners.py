"""The learner of a study file: a name, or a name with settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields as dataclass_fields
from typing import Any

from pasto.errors import PastoError
from pasto.measure.document import Problems, nearest, shown, within
from pasto.optimize.learners import LEARNERS, Learner, Thompson
from pasto.optimize.schedule import constant
from pasto.service.spec.fields import learner_settings
from pasto.service.spec.spec import Traffic
from pasto.space import Candidates, Space

MOST_CONTRASTED = 500
"""Candidates up to which the default learner learns each round against its own control."""


def read_learner(
    problems: Problems, document: Mapping[str, object], traffic: Traffic, candidates: Candidates | Space | None
) -> tuple[Learner[Any], dict[str, Any]] | None:
    """The learner with its settings, and how the file writes it in full."""
    given = document.get("learner", "thompson")
    settings: dict[str, Any] = {}
    name: object = given
    if isinstance(given, Mapping):
        settings = dict(given)
        name = settings.pop("name", None)
    if not isinstance(name, str) or name not in LEARNERS:
        path = "learner.name" if isinstance(given, Mapping) else "learner"
        problems.add(path, f"must be one of {', '.join(LEARNERS)}, got {shown(name)}; {nearest(name, LEARNERS)}")
        return None
    before = len(problems.found)
    if "floor" in settings:
        problems.add("learner.floor", "is a share of traffic; write it as traffic.floor")
        settings.pop("floor")
    settings = problems.fields("learner", settings, learner_settings(name))
    for setting, value in settings.items():
        _check(problems, within("learner", setting), setting, value)
    if len(problems.found) > before:
        return None
    said_floor = isinstance(document.get("traffic"), Mapping) and "floor" in document["traffic"]  # type: ignore[operator]
    options: dict[str, Any] = dict(settings)
    if name == "thompson":
        options["floor"] = traffic.floor
        if isinstance(candidates, Space):
            options.setdefault("structure", "process")
        elif "contrast" not in options:
            few = candidates is not None and len(candidates) <= MOST_CONTRASTED
            options["contrast"] = "auto" if traffic.control > 0 and few else None
    elif said_floor:
        options["floor"] = constant(traffic.floor)
    try:
        built = LEARNERS[name](**options)
    except PastoError as error:
        problems.add("learner", f"cannot be used: {error}")
        return None
    if not isinstance(built, Thompson):
        return built, {"name": name, **settings}
    written = {field.name: getattr(built, field.name) for field in dataclass_fields(built) if field.name != "floor"}
    return built, {"name": name, **written}


def _check(problems: Problems, path: str, setting: str, value: object) -> None:
    """Refuse a setting of the wrong kind; the learner itself refuses one out of range."""
    if setting == "draws":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10_000:
            problems.add(path, f"must be a whole number from 1 to 10,000, got {shown(value)}")
    elif setting in ("structure", "contrast"):
        choices = {"structure": ("auto", "independent", "process"), "contrast": ("auto", "difference", "percent", None)}
        if value not in choices[setting]:
            wanted = ", ".join("null" if choice is None else choice for choice in choices[setting])
            problems.add(path, f"must be one of {wanted}, got {shown(value)}")
    elif setting == "half_life" and value is None:
        return
    else:
        number = problems.number(path, value, low=0.0)
        if number == 0:
            problems.add(path, "must be above 0, got 0")
