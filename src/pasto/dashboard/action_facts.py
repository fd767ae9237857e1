"""Facts for the dialog of an action: the actions that can succeed, and what an action changes for how many."""

from __future__ import annotations

from pasto.formatting import format_count, format_percent
from pasto.report.records import BlendRecord, Report
from pasto.service.lifecycle import MIN_CONFIRMATION_UNITS, allowed
from pasto.service.policy_cache import StudySnapshot
from pasto.service.reports.confirmation_report import report_confirmation
from pasto.service.study_file import StudySpec

MAX_LISTED_CANDIDATES = 4
"""Candidates of a blend that a dialog names."""


def list_offered(snapshot: StudySnapshot) -> tuple[str, ...]:
    """Return the actions on a study that can succeed by what it has measured.

    A blend is deployed if its last look confirmed it, and confirmed if a round was learned. `deploy_unconfirmed` needs
    a blend alone.
    """
    state = snapshot.row.state
    offered = [action for action in allowed(state) if action not in ("confirm", "deploy")]
    has_blend = snapshot.state.frozen is not None or (snapshot.study is not None and snapshot.study.rounds > 0)
    if state == "learning" and has_blend:
        offered += ["confirm", "deploy_unconfirmed"]
    if state == "confirming":
        is_confirmed = snapshot.compute_once("is confirmed", lambda: _is_confirmed(snapshot))
        offered.append("deploy" if is_confirmed else "deploy_unconfirmed")
    return tuple(offered)


def _is_confirmed(snapshot: StudySnapshot) -> bool:
    report = report_confirmation(snapshot.spec, snapshot.rounds.looks, (), horizon=snapshot.state.horizon)
    if report is None:
        return False
    fewest = min(report.units.get(arm, 0) for arm in ("control", "blend"))
    return fewest >= MIN_CONFIRMATION_UNITS and report.verdict.state == "confirmed"


def describe_effect(action: str, report: Report, spec: StudySpec) -> str:
    """Return what an action changes for the units of a study, and for how many of them."""
    answer = report.answer
    blend = "" if answer is None else f" ({_list_candidates(answer)})"
    units = round(next((spread.units for spread in report.spreads.values()), 0.0))
    count = f" About {format_count(units, spec.unit)} took part in each round." if units else ""
    control = spec.traffic.control
    match action:
        case "deploy" | "deploy_unconfirmed":
            rest = f", {format_percent(control, 0)} stay on the baseline" if control else ""
            return f"The blend{blend} goes to {format_percent(1.0 - control, 0)} of the units{rest}.{count}"
        case "confirm":
            single = None if answer is None else answer.best_single
            arms = "the blend and the baseline get half of the units each"
            if single is not None:
                arms = f"the blend, the best single candidate {single} and the baseline get a third of the units each"
            return f"Learning ends. The blend{blend} is frozen, and {arms}; units keep their arm.{count}"
        case "archive":
            return f"The study serves nothing any more, and every unit gets the baseline.{count}"
    return ""


def _list_candidates(blend: BlendRecord) -> str:
    shares = sorted(blend.probabilities.items(), key=lambda item: -item[1])
    listed = [f"{format_percent(share, 0)} {name}" for name, share in shares[:MAX_LISTED_CANDIDATES]]
    more = len(shares) - len(listed)
    return " + ".join([*listed, f"{more} more"] if more > 0 else listed)
