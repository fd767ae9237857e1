"""Planning: the plan of a study before it starts."""

from pasto.planning.plan_records import StudyPlan
from pasto.planning.study_outline import MetricFacts, RoundsOutline, StudyOutline, TrafficOutline, complete_facts
from pasto.planning.study_plan import make_plan, plan_study

__all__ = [
    "MetricFacts",
    "RoundsOutline",
    "StudyOutline",
    "StudyPlan",
    "TrafficOutline",
    "complete_facts",
    "make_plan",
    "plan_study",
]
