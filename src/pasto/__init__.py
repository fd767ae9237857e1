"""PASTO learns the best blend of settings on live traffic: raise the goal, hold the guardrails."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pasto import sdk as sdk
    from pasto.blend import Blend
    from pasto.errors import PastoError
    from pasto.objective import Objective, maximize, minimize, ratio, utility
    from pasto.observation import Observation
    from pasto.optimize import solve
    from pasto.planning import plan_study
    from pasto.space import Candidates, Choice, Integer, Real, Space, grid, sobol
    from pasto.study import Study, history_from_log
    from pasto.study.assignment import Assignment

_MODULES = {
    "Assignment": "pasto.study.assignment",
    "Blend": "pasto.blend",
    "Candidates": "pasto.space",
    "Choice": "pasto.space",
    "Integer": "pasto.space",
    "Objective": "pasto.objective",
    "Observation": "pasto.observation",
    "PastoError": "pasto.errors",
    "Real": "pasto.space",
    "Space": "pasto.space",
    "Study": "pasto.study",
    "grid": "pasto.space",
    "history_from_log": "pasto.study",
    "maximize": "pasto.objective",
    "minimize": "pasto.objective",
    "plan_study": "pasto.planning",
    "ratio": "pasto.objective",
    "sobol": "pasto.space",
    "solve": "pasto.optimize",
    "utility": "pasto.objective",
}
__version__ = "0.1.0"
__all__ = [
    "Assignment",
    "Blend",
    "Candidates",
    "Choice",
    "Integer",
    "Objective",
    "Observation",
    "PastoError",
    "Real",
    "Space",
    "Study",
    "grid",
    "history_from_log",
    "maximize",
    "minimize",
    "plan_study",
    "ratio",
    "sobol",
    "solve",
    "utility",
]


def __getattr__(name: str) -> object:
    """Import the module of a public name, or of the SDK, at its first use."""
    if name == "sdk":
        return importlib.import_module("pasto.sdk")
    if name not in _MODULES:
        raise AttributeError(f"module 'pasto' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
