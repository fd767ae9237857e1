"""What a team wants: a goal to raise and guardrails to keep, as a concave f with its gradient."""

from pasto.objective.goals import Array, LinearGoal, Ratio, RatioGoal, UtilityGoal, ratio
from pasto.objective.guardrails import Guardrail
from pasto.objective.normal_form import Form
from pasto.objective.objective import Objective, Utility, from_saved, maximize, minimize, to_saved, utility
from pasto.objective.parsing import Keep, parse_keep, parse_metric, parse_objective

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
