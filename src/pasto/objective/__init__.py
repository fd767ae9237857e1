"""What a team wants: a goal to raise and guardrails to keep, as a concave f with its gradient."""

from pasto.objective.form import Form
from pasto.objective.goals import Array, LinearGoal, RatioGoal, UtilityGoal
from pasto.objective.guardrail import Guardrail
from pasto.objective.objective import Objective, Utility, maximize, minimize, utility
from pasto.objective.parse import Keep, parse_keep, parse_metric, parse_objective
from pasto.objective.ratio import Ratio, ratio
from pasto.objective.saved import from_saved, to_saved

__all__ = [
    "Array",
    "Form",
    "Guardrail",
    "Keep",
    "LinearGoal",
    "Objective",
    "Ratio",
    "RatioGoal",
    "Utility",
    "UtilityGoal",
    "from_saved",
    "maximize",
    "minimize",
    "parse_keep",
    "parse_metric",
    "parse_objective",
    "ratio",
    "to_saved",
    "utility",
]
