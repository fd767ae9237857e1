"""Limits on live traffic: control, caps, entries, budgets, and candidates that come and go."""

from __future__ import annotations

import json
from typing import Any, Literal

import numpy as np
import pytest
from numpy.testing import assert_allclose

import pasto
from pasto.errors import AlreadyAnsweredError, MeasurementError, OptionError, SpaceError, UnsupportedError
from pasto.observation import Observation
from pasto.optimize.learners import Thompson

OBJECTIVE = pasto.maximize("x").keep("y", at_least=0.5, penalty=5.0)
TRUTH = np.array([[0.0, 2.0, -1.0, 1.0], [0.8, -1.0, 2.0, 0.4]])
ROWS = [{"w": k} for k in range(4)]


def build(**settings: Any) -> pasto.Study:
    learner = settings.pop("learner", "thompson")
    return pasto.Study(ROWS, OBJECTIVE, learner=learner, seed=2, **settings)


def teach(study: pasto.Study, rounds: int, truth: Any = TRUTH, noise: float = 0.3) -> None:
    for _ in range(rounds):
        asked = study.ask(10)
        rng = np.random.default_rng([4, asked[0].round])
        metrics = [truth[:, a.candidate] + noise * rng.normal(size=2) for a in asked]
        study.tell(asked, metrics, standard_errors=np.full((10, 2), noise))


def test_a_control_is_held_back_in_every_round() -> None:
    study = build(baseline=0, control_share=0.2)
    for parallel, held in ((10, 2), (2, 1), (3, 1), (50, 10)):
        asked = study.ask(parallel)
        control = [a for a in asked if a.control]
        assert len(control) == held
        assert {a.candidate for a in control} == {0}
        assert all(a.propensity == pytest.approx(held / parallel) for a in control)
        for a in asked:
            if not a.control:
                share = study.policy.probabilities[a.candidate]
                assert a.propensity == pytest.approx((1 - held / parallel) * share)
        study.drop(asked)


def test_a_control_needs_a_baseline_and_a_free_share() -> None:
    with pytest.raises(OptionError, match="baseline="):
        build(control_share=0.1)
    for control in (-0.1, 1.0, True, "10%"):
        with pytest.raises(OptionError, match="control"):
            build(baseline=0, control_share=control)
    with pytest.raises(OptionError, match="at least 2"):
        build(baseline=0, control_share=0.1).ask(1)


def test_the_control_teaches_the_gradient_learners_nothing() -> None:
    plain, held = (build(learner="algorithm1", baseline=0, control_share=share) for share in (0.0, 0.5))
    mine = plain.ask(4)
    theirs = held.ask(8)
    own = [a for a in theirs if not a.control]
    values = {0: [5.0, 5.0]}
    plain.tell(mine, [values.get(a.candidate, [1.0, 0.0]) for a in mine])
    held.tell(theirs, [[99.0, 99.0] if a.control else values.get(a.candidate, [1.0, 0.0]) for a in theirs])
    assert len(own) == 4
    assert held.rounds == plain.rounds == 1
    assert max(held.policy.probabilities) < 0.5


def test_contrasts_need_errors_and_lose_nothing_without() -> None:
    study = build(learner=Thompson(contrast="difference"), baseline=0, control_share=0.2)
    asked = study.ask(10)
    before = json.dumps(study.state())
    with pytest.raises(MeasurementError, match="standard errors"):
        study.tell(asked, np.ones((10, 2)))
    assert json.dumps(study.state()) == before
    study.tell(asked, np.ones((10, 2)), standard_errors=np.full((10, 2), 0.1))
    assert study.rounds == 1


def test_contrasts_learn_through_a_swing_and_survive_a_restart() -> None:
    study = build(learner=Thompson(contrast="difference"), baseline=0, control_share=0.2)
    rng = np.random.default_rng(7)
    for day in range(40):
        asked = study.ask(10)
        level = 20.0 * np.sin(day)
        metrics = [TRUTH[:, a.candidate] + level + 0.2 * rng.normal(size=2) for a in asked]
        study.tell(asked, metrics, standard_errors=np.full((10, 2), 0.2))
        if day == 20:
            study = pasto.Study.from_state(json.loads(json.dumps(study.state())))
    lifts = np.array([study.blend().metrics["x"] - study.posterior_samples()[0, 0, 0]])
    exact = pasto.solve(TRUTH, OBJECTIVE)
    assert abs(lifts[0] - exact.metrics["x"]) < 0.6


def test_observed_controls_are_used_for_contrasts() -> None:
    study = build(learner=Thompson(contrast="percent"), baseline=0, control_share=0.2)
    tiny = ((1e-4, 0.0), (0.0, 1e-4))
    for version in range(3):
        level = 1.0 + version
        study.observe(
            [Observation(version, k, 100, (level * (1 + 0.1 * k), level), tiny) for k in range(4)]
            + [Observation(version, 0, 50, (level, level), tiny, control=True)]
        )
    means = study.posterior_samples()[0]
    assert_allclose(means[0] / means[0, 0], [1.0, 1.1, 1.2, 1.3], atol=0.02)


def test_caps_and_entries_bound_every_candidate_but_the_baseline() -> None:
    study = build(baseline=0, max_share=0.3, new_candidate_share=0.05)
    assert study.policy.probabilities == pytest.approx((0.85, 0.05, 0.05, 0.05))
    teach(study, 20)
    assert max(study.policy.probabilities[1:]) <= 0.3 + 1e-12
    with pytest.raises(OptionError, match="leaves traffic"):
        build(max_share=0.2)


def test_a_budget_keeps_the_served_policy_near_its_guardrail() -> None:
    free, limited = build(baseline=0), build(baseline=0, loss_budget=0.1)
    assert limited.policy.probabilities == pytest.approx((0.9, 0.1 / 3, 0.1 / 3, 0.1 / 3))
    worst = []
    for study in (free, limited):
        lows = []
        for _ in range(30):
            lows.append(float(TRUTH[1] @ study.policy.probabilities))
            teach(study, 1)
        worst.append(min(lows))
    assert worst[0] < 0.3
    assert worst[1] > 0.35
    assert limited.blend().value > 0.3  # it has learned, and not only waited
    with pytest.raises(OptionError, match="baseline="):
        build(loss_budget=0.1)
    with pytest.raises(OptionError, match="guardrails are y"):
        build(baseline=0, loss_budget={"z": 1.0})


@pytest.mark.parametrize(
    "settings", [{"max_share": 0.5}, {"loss_budget": 0.1, "baseline": 0}, {"new_candidate_share": 0.1}]
)
def test_gradient_learners_refuse_limits(settings: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="thompson"):
        build(learner="algorithm1", **settings)


def test_candidates_come_and_go_in_mid_study() -> None:
    study = build(baseline=0, new_candidate_share=0.1)
    teach(study, 15)
    late = study.ask(3)
    version = study.policy.version
    assert study.add([{"w": 9}], names=["newcomer"]) == (4,)
    assert study.policy.version == version + 1
    assert 0 < study.policy.probabilities[4] <= 0.1 + 1e-12
    study.tell(late, np.ones((3, 2)), standard_errors=np.full((3, 2), 0.3))
    wider = np.hstack([TRUTH, [[3.0], [3.0]]])  # the new candidate is better than all others
    teach(study, 25, wider)
    blend = study.blend()
    assert blend.names[blend.support[0]] == "newcomer" or blend.probabilities[4] > 0.8
    study.retire("newcomer", 1)
    assert study.policy.probabilities[4] == study.policy.probabilities[1] == 0.0
    teach(study, 2, wider)
    assert set(study.blend().support) <= {0, 2, 3}
    again = pasto.Study.from_state(json.loads(json.dumps(study.state())))
    assert again.ask(20) == study.ask(20)
    assert again.blend() == study.blend()


def test_what_cannot_come_or_go_is_refused_and_nothing_changes() -> None:
    study = build(baseline=0)
    before = json.dumps(study.state())
    with pytest.raises(SpaceError):
        study.add([{"w": 1}])
    with pytest.raises(OptionError, match="baseline"):
        study.retire(0)
    with pytest.raises(OptionError, match="named"):
        study.retire("nobody")
    assert json.dumps(study.state()) == before
    alone = pasto.Study(ROWS, OBJECTIVE, learner="thompson", seed=1)
    with pytest.raises(OptionError, match="last candidate"):
        alone.retire(0, 1, 2, 3)
    gradient = build(learner="algorithm1")
    for change in (lambda: gradient.add([{"w": 7}]), lambda: gradient.retire(1)):
        with pytest.raises(UnsupportedError, match="thompson"):
            change()
    assert len(gradient.candidates) == 4
    gradient.tell(gradient.ask(), [1.0, 1.0])


def test_a_retired_candidate_s_late_round_is_still_learned() -> None:
    study = build()
    late = study.ask(8)
    study.retire(1)
    study.tell(late, np.ones((8, 2)), standard_errors=np.full((8, 2), 0.1))
    assert study.rounds == 1
    with pytest.raises(AlreadyAnsweredError):
        study.tell(late, np.ones((8, 2)), standard_errors=np.full((8, 2), 0.1))


def test_the_same_study_can_answer_with_another_confidence() -> None:
    hard = pasto.maximize("x").keep("y", at_least=0.5)
    study = pasto.Study(ROWS, hard, learner="thompson", seed=2, confidence=0.95)
    teach(study, 12)
    bold, careful = study.with_confidence(0.5).blend(), study.blend()
    assert careful.metrics["y"] > bold.metrics["y"]
    assert careful.certificate is not None
    assert careful.certificate.holds["y"] >= 0.95 - 1e-6


@pytest.mark.parametrize(
    ("contrast", "level"),
    [("difference", 0.0), ("difference", 1.0), ("difference", 1e6), ("percent", 1.0), (None, 0.0), (None, 1e6)],
)
def test_a_metric_that_never_varies_is_no_infinite_knowledge(
    contrast: Literal["difference", "percent"] | None, level: float
) -> None:
    """Check a metric that is always 0, or always 2."""
    study = pasto.Study(
        [{"w": place} for place in range(6)],
        pasto.maximize("x").keep("y", at_least=-1.0),
        learner=Thompson(contrast=contrast),
        seed=1,
        baseline=0,
        control_share=0.1,
    )
    rng = np.random.default_rng(3)
    for _ in range(3):
        observations = [
            Observation(
                study.policy.version,
                candidate,
                200.0,
                (float(rng.normal(60.0, 2.0)), level),
                ((4.0, 0.0), (0.0, 0.0)),
                control=control,
            )
            for candidate, control in [*((place, False) for place in range(6)), (0, True)]
        ]
        study.observe(observations)
        assert np.isfinite(study.policy.probabilities).all()
    blend = study.blend()
    assert blend.feasible
    assert blend.metrics["y"] == pytest.approx(level, rel=1e-6, abs=1e-6)
