"""Objectives: a goal to raise and guardrails to keep, as a concave f with its gradient."""

from pasto.objective.goals import Goal, Guardrail, LinearGoal, RatioGoal, UtilityGoal
from pasto.objective.normal_form import NormalForm
from pasto.objective.objective import (
    EACH_SEGMENT,
    Objective,
    Utility,
    maximize,
    minimize,
    objective_document,
    read_objective_document,
    utility,
)
from pasto.objective.parsing import ParsedGuardrail, parse_keep, parse_metric, parse_objective
from pasto.objective.ratio_metric import Ratio, ratio
from pasto.objective.segmented_form import SegmentedForm

__all__ = [
    "EACH_SEGMENT",
    "Goal",
    "Guardrail",
    "LinearGoal",
    "NormalForm",
    "Objective",
    "ParsedGuardrail",
    "Ratio",
    "RatioGoal",
    "SegmentedForm",
    "Utility",
    "UtilityGoal",
    "maximize",
    "minimize",
    "objective_document",
    "parse_keep",
    "parse_metric",
    "parse_objective",
    "ratio",
    "read_objective_document",
    "utility",
]
