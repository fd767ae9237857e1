from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pasto.sim import LearningTrace
from pasto_research import paper
from pasto_research.paper import Outcome, outcome_document
from pasto_research.paper.figure3_two_arms import OURS, PLAIN, TUNED, _agrees, _faster


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return paper.run("toy-a", runs=300, rounds=1_000, seed=2)


def test_algorithm_1_meets_the_reference(outcome: Outcome) -> None:
    (claim,) = [claim for claim in outcome.claims if "after 1,000 rounds" in claim.what]
    assert claim.paper == "no number; reference 0.909"
    assert claim.holds is True
    curves = outcome.data["curves"]
    assert abs(curves[OURS]["mean"][-1] - 0.909) <= 4 * curves[OURS]["error"][-1]


def test_s_scgd_is_behind_with_default_steps_and_ahead_when_tuned(outcome: Outcome) -> None:
    plain, tuned = outcome.claims[-2:]
    assert (plain.what, plain.holds) == (f"Algorithm 1 converges faster than {PLAIN}", True)
    assert (tuned.what, tuned.holds) == (f"Algorithm 1 converges faster than {TUNED}", False)
    assert "behind at 30" in tuned.measured


def test_every_curve_starts_at_equal_shares(outcome: Outcome) -> None:
    for curve in outcome.data["curves"].values():
        np.testing.assert_allclose(curve["mean"][0], 1.0)
        assert (np.array(curve["low"]) <= np.array(curve["high"])).all()
    assert round(outcome.data["optimum"], 9) == 1.0125
    assert outcome.data["single"] == 0.0


def test_the_outcome_is_plain_json_and_its_figure_can_be_drawn(outcome: Outcome, tmp_path: Path) -> None:
    assert json.loads(json.dumps(outcome_document(outcome), allow_nan=False))["settings"]["runs"] == 300
    (draw,) = outcome.figures.values()
    (axes,) = draw().axes
    assert axes.get_xscale() == "log"
    assert {OURS, PLAIN, TUNED} == {
        line.get_label() for line in axes.lines if not str(line.get_label()).startswith("_")
    }
    texts = [text.get_text() for text in axes.texts]
    assert texts == ["best blend, 1.0125", "best single candidate, 0"]


def test_few_rounds_and_one_run_have_no_verdict() -> None:
    outcome = paper.run("toy-a", runs=1, rounds=5)
    assert [claim.holds for claim in outcome.claims] == [None, None, None]
    assert outcome.tables[0].header == ("learner", "5 rounds")


def _trace(values: list[float], mark: int = 1_000) -> LearningTrace:
    answer = np.array(values)[:, None]
    one = np.ones(len(values))
    return LearningTrace("algorithm1", 1, 1, np.array([mark]), answer, answer, one[:, None], one, one)


def test_a_mean_far_from_the_reference_does_not_hold() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 0.24, 1_000)
    noise -= noise.mean()
    assert _agrees(_trace((0.909 + noise).tolist()), 1_000).holds is True
    assert _agrees(_trace((0.909 + 0.03 + noise).tolist()), 1_000).holds is False


def test_a_lead_within_two_standard_errors_is_level() -> None:
    noise = np.tile([-0.1, 0.1], 50)
    error = noise.std(ddof=1) / 10

    def verdict(lead: float) -> str:
        traces = {OURS: _trace((0.9 + lead + noise).tolist()), PLAIN: _trace([0.9] * 100)}
        return _faster(traces, PLAIN, (1_000,)).measured

    assert verdict(3 * error) == "Algorithm 1 is ahead at 1,000 rounds"
    assert verdict(-3 * error) == "Algorithm 1 is behind at 1,000 rounds"
    assert verdict(1 * error) == verdict(-1 * error) == "Algorithm 1 is level at 1,000 rounds"
