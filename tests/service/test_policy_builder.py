"""Policy builder: the arms of each state, and shares that sum to one."""

from __future__ import annotations

from typing import Any

import pytest

from pasto.errors import OptionError
from pasto.observation import Observation
from pasto.service.policy_builder import build_policy, hold_policy, read_frozen_blend
from pasto.service.study_file import StudySpec, parse_spec
from pasto.study import Study
from pasto_sdk.enrolment import EnrolmentSlice
from pasto_sdk.policy import PublishedPolicy


@pytest.fixture
def spec(document: dict[str, Any]) -> StudySpec:
    return parse_spec({**document, "traffic": {"control": 0.2, "explore": 0.5}})


@pytest.fixture
def study(spec: StudySpec) -> Study:
    """Return a study that has learned a round: w=0 raises the goal, w=2 the guardrail."""
    study = spec.build_study(seed=7)
    truth = ((2.0, 0.0), (0.0, 1.0), (0.1, 2.0), (-1.0, 1.0))
    study.observe(
        [Observation(0, k, 500, mean, ((1e-4, 0.0), (0.0, 1e-4))) for k, mean in enumerate(truth)]
        + [Observation(0, 1, 100, truth[1], ((1e-4, 0.0), (0.0, 1e-4)), control=True)]
    )
    return study


def _arms(policy: PublishedPolicy) -> dict[str, float]:
    arms: dict[str, float] = {}
    for cell in policy.cells:
        arms[cell.arm] = arms.get(cell.arm, 0.0) + cell.propensity
    return arms


def test_learning_parts_control_learner_and_outside(spec: StudySpec, study: Study) -> None:
    policy = build_policy(spec, study, state="learning", version=3, at=5.0)
    assert _arms(policy) == pytest.approx({"control": 0.2, "learner": 0.8})
    assert (policy.mode, policy.salt, policy.round) == ("shuffled", "feed/3", 3)
    learner = {cell.candidate: cell.propensity for cell in policy.cells if cell.arm == "learner"}
    assert learner == pytest.approx({k: 0.8 * share for k, share in enumerate(study.policy.probabilities)})
    assert {cell.name for cell in policy.cells if cell.arm == "control"} == {policy.baseline.name}
    assert policy.enrolment == (EnrolmentSlice("ramp", "ramp:feed", 0, 2**52),)


def test_a_study_of_an_earlier_release_keeps_units_outside_as_an_arm(spec: StudySpec, study: Study) -> None:
    policy = build_policy(spec, study, state="learning", version=3, at=5.0, has_slices=False)
    assert _arms(policy) == pytest.approx({"control": 0.2, "learner": 0.4, "not_enrolled": 0.4})
    assert policy.enrolment == ()
    learner = {cell.candidate: cell.propensity for cell in policy.cells if cell.arm == "learner"}
    assert learner == pytest.approx({k: 0.4 * share for k, share in enumerate(study.policy.probabilities)})


def test_a_larger_share_keeps_the_units_of_a_smaller_one_and_candidates_are_redrawn(
    document: dict[str, Any], study: Study
) -> None:
    units = [f"user {number}" for number in range(4_000)]
    enrolled: list[set[str]] = []
    for version, share in enumerate((0.01, 0.01, 0.05, 0.25, 1.0), start=1):
        spec = parse_spec({**document, "traffic": {"control": 0.2, "explore": share}})
        policy = build_policy(spec, study, state="learning", version=version, at=5.0)
        drawn = {unit: policy.draw(unit) for unit in units}
        enrolled.append({unit for unit, bucket in drawn.items() if bucket is not policy.not_enrolled})
        assert len(enrolled[-1]) == pytest.approx(4_000 * share, rel=0.4)
    assert enrolled[0] == enrolled[1] < enrolled[2] < enrolled[3] < enrolled[4]
    first, second = (build_policy(spec, study, state="learning", version=version, at=5.0) for version in (1, 2))
    assert sum(first.draw(unit).name != second.draw(unit).name for unit in units) / 4_000 > 0.2


def test_a_confirmation_runs_among_the_enrolled_and_a_deployed_blend_goes_to_all(spec: StudySpec, study: Study) -> None:
    frozen = read_frozen_blend(study.blend(), baseline=study.baseline)
    learning = build_policy(spec, study, state="learning", version=3, at=5.0)
    confirming = build_policy(spec, study, state="confirming", version=4, at=5.0, frozen=frozen)
    deployed = build_policy(spec, study, state="deployed", version=5, at=9.0, frozen=frozen)
    assert learning.enrolment == confirming.enrolment != ()
    assert deployed.enrolment == ()
    for state, enrolment in (("learning", learning.enrolment), ("deployed", ())):
        paused = build_policy(spec, study, state="paused", version=6, at=9.0, frozen=frozen, paused_from=state)
        assert paused.enrolment == enrolment, "a pause does not serve a blend to units that never had it"


def test_confirming_is_sticky_with_equal_arms_by_default(spec: StudySpec, study: Study) -> None:
    frozen = read_frozen_blend(study.blend(), baseline=study.baseline)
    policy = build_policy(spec, study, state="confirming", version=4, at=5.0, frozen=frozen)
    arms = _arms(policy)
    assert arms == pytest.approx(dict.fromkeys(arms, 1 / len(arms)))
    assert {"control", "blend"} <= set(arms)
    assert (policy.mode, policy.salt) == ("sticky", "feed")
    assert build_policy(spec, study, state="deployed", version=5, at=9.0, frozen=frozen).salt == policy.salt


def test_deploying_moves_no_unit_out_of_control(spec: StudySpec, study: Study) -> None:
    frozen = read_frozen_blend(study.blend(), {"control": 0.2, "best_single": 0.3, "blend": 0.5})
    before = build_policy(spec, study, state="confirming", version=4, at=5.0, frozen=frozen)
    after = build_policy(spec, study, state="deployed", version=5, at=5.0, frozen=frozen)
    assert _arms(before) == pytest.approx({"control": 0.2, "best_single": 0.3, "blend": 0.5})
    assert _arms(after) == pytest.approx({"control": 0.2, "blend": 0.8})
    enrolled = [f"user {number}" for number in range(800) if before.draw(f"user {number}").arm != "not_enrolled"]
    assert 300 < len(enrolled) < 500
    for unit in enrolled:
        assert (before.draw(unit).arm == "control") == (after.draw(unit).arm == "control")
        if before.draw(unit).arm == "blend":
            assert after.draw(unit).name == before.draw(unit).name


@pytest.mark.parametrize(
    "shares",
    [
        {"control": 0.5, "blend": 0.5, "other": 0.0},
        {"control": 0.5, "best_single": 0.2, "blend": 0.2},
        {"control": True, "best_single": 0.2, "blend": 0.8},
        {"control": "0.2", "best_single": 0.2, "blend": 0.6},
        {"control": float("nan"), "best_single": 0.2, "blend": 0.6},
        [0.2, 0.2, 0.6],
    ],
)
def test_shares_that_do_not_add_up_are_refused(study: Study, shares: Any) -> None:
    with pytest.raises(OptionError, match="shares"):
        read_frozen_blend(study.blend(), shares)


def test_a_pause_stands_on_a_certified_blend_or_the_baseline(spec: StudySpec, study: Study) -> None:
    snapshot = hold_policy(study)
    assert snapshot is not None
    assert snapshot.certified
    policy = build_policy(spec, study, state="paused", version=4, at=5.0, frozen=snapshot)
    assert _arms(policy) == {"paused": 1.0}
    assert {cell.candidate for cell in policy.cells} == {k for k, _ in snapshot.blend}
    plain = build_policy(spec, study, state="paused", version=4, at=5.0, frozen=snapshot, hold="baseline")
    assert [cell.name for cell in plain.cells] == [plain.baseline.name]
    assert hold_policy(spec.build_study(seed=7)) is None


def test_without_a_hard_guardrail_nothing_is_certified_enough_to_stand_on(document: dict[str, Any]) -> None:
    soft = parse_spec({**document, "guardrails": [{"metric": "likes", "at_least": 0.5, "penalty": 5}]})
    study = soft.build_study(seed=7)
    observations = [Observation(0, k, 500, (float(k), 1.0), ((1e-4, 0.0), (0.0, 1e-4))) for k in range(4)]
    study.observe([*observations, Observation(0, 1, 100, (1.0, 1.0), ((1e-4, 0.0), (0.0, 1e-4)), control=True)])
    assert study.blend().certificate is not None
    assert hold_policy(study) is None


def test_requests_are_never_sticky(document: dict[str, Any], study: Study) -> None:
    spec = parse_spec({**document, "unit": "request"})
    policy = build_policy(spec, study, state="deployed", version=5, at=5.0, frozen=read_frozen_blend(study.blend()))
    assert (policy.mode, policy.salt) == ("shuffled", "feed/5")
