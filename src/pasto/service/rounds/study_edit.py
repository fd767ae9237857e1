"""Study edit at a close: the learner, the guardrail monitor and the study file for the rounds that follow.

An edit ends the open round. The round is measured, learned and judged under the file that it was served under; the next
policy is the first under the new file. So the shares of a round never change, and each round is compared by itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pasto.optimize.learners.base import ExplorationLimits
from pasto.service.rounds.guardrail_state import GuardrailState
from pasto.service.rounds.learner_step import LearnerUpdate, initial_update
from pasto.service.study_file import StudySpec, parse_spec
from pasto.service.study_file.edit import RecordedEdit, StudyEdit
from pasto.service.study_file.spec import build_stop_levels
from pasto.service.study_state import StudyState
from pasto.space import Candidates


@dataclass(frozen=True, slots=True)
class EditedStudy:
    """Study file and learner after an edit."""

    before: StudySpec
    spec: StudySpec
    learner: LearnerUpdate
    study_file: str

    def update_state(self, state: StudyState, edit: StudyEdit) -> StudyState:
        """Return the state after the close, with the edit, and without evidence against levels that changed.

        Verdicts on such a level are dropped, too. A study that the monitor paused stays paused, with its reason.
        """
        status = state.guardrail_monitor
        former = {level.name: level for level in build_stop_levels(self.before)}
        changed = {level.name for level in build_stop_levels(self.spec) if former.get(level.name) != level}
        carried = GuardrailState.read(status.carried)
        status = replace(
            status,
            verdicts=tuple(verdict for verdict in status.verdicts if verdict.name not in changed),
            carried=status.carried if carried is None else carried.restart(self.before, self.spec).written(),
        )
        return replace(state, guardrail_monitor=status).with_edit(edit)


def apply_edit(spec: StudySpec, edit: RecordedEdit, learner: LearnerUpdate) -> EditedStudy:
    """Return the study under the edited file; equal arguments give an equal state, bit for bit."""
    after = parse_spec(edit.after, stored=True)
    text = json.dumps(after.document, separators=(",", ":"), allow_nan=False)
    return EditedStudy(spec, after, _revise_learner(spec, after, learner), text)


def _revise_learner(before: StudySpec, after: StudySpec, learner: LearnerUpdate) -> LearnerUpdate:
    """Return the learner with the options and candidates of the edited file, and a policy that follows from them."""
    new = _find_new_candidates(before, after)
    limits = _limits(after)
    is_same = (
        new is None
        and before.retired == after.retired
        and (before.objective, before.learner, before.traffic.control)
        == (after.objective, after.learner, after.traffic.control)
        and _limits(before) == limits
    )
    if is_same:
        return learner
    study = learner.study.revise(
        objective=after.objective,
        learner=after.learner,
        control_share=after.traffic.control,
        limits=limits,
        add=new,
        retire=[name for name in after.retired if name not in before.retired],
        restore=[name for name in before.retired if name not in after.retired],
    )
    return replace(initial_update(study), problems=learner.problems)


def _limits(spec: StudySpec) -> ExplorationLimits:
    losses = {rail.name: rail.loss_budget for rail in spec.guardrails if rail.loss_budget is not None}
    return ExplorationLimits(spec.confidence, spec.traffic.max_share, spec.traffic.new_candidate_share, losses)


def _find_new_candidates(before: StudySpec, after: StudySpec) -> Candidates | None:
    """Return the candidates that the edited file lists after the former ones; None without any."""
    if not isinstance(before.candidates, Candidates) or not isinstance(after.candidates, Candidates):
        return None
    count = len(before.candidates)
    names = after.candidates.names[count:]
    return Candidates.from_rows([after.candidates[name] for name in names], names) if names else None
