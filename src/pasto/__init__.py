"""PASTO learns the best blend of settings on live traffic: raise the goal, hold the guardrails."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pasto import sdk as sdk
    from pasto.errors import PastoError
    from pasto.objective import maximize, minimize, ratio, utility
    from pasto.optimize import solve
    from pasto.records import Observation
    from pasto.space import Candidates, Choice, Integer, Real, Space, grid, sobol
    from pasto.study import Study

_HOMES = {
    "Candidates": "pasto.space",
    "Choice": "pasto.space",
    "Integer": "pasto.space",
    "Observation": "pasto.records",
    "PastoError": "pasto.errors",
    "Real": "pasto.space",
    "Space": "pasto.space",
    "Study": "pasto.study",
    "grid": "pasto.space",
    "maximize": "pasto.objective",
    "minimize": "pasto.objective",
    "ratio": "pasto.objective",
    "sobol": "pasto.space",
    "solve": "pasto.optimize",
    "utility": "pasto.objective",
}
__version__ = "0.1.0"
__all__ = [
    "Candidates",
    "Choice",
    "Integer",
    "Observation",
    "PastoError",
    "Real",
    "Space",
    "Study",
    "grid",
    "maximize",
    "minimize",
    "ratio",
    "sobol",
    "solve",
    "utility",
]


def __getattr__(name: str) -> object:
    """Load a public name from its room the first time it is used, or the room of the SDK."""
    if name == "sdk":
        return importlib.import_module("pasto.sdk")
    if name not in _HOMES:
        raise AttributeError(f"module 'pasto' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
