from __future__ import annotations

import json

import numpy as np
import pytest

from pasto.sim import monte_carlo, relative_gain
from pasto.sim import synthetic_b as world
from pasto_research import paper
from pasto_research.paper import Outcome, outcome_document
from pasto_research.paper.figure4_runs import _error, _smallest


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return paper.run("synthetic-b", runs=40, rounds=100, seed=1)


def test_fewer_runs_continue_for_longer(outcome: Outcome) -> None:
    assert outcome.settings["long runs"] == 2
    assert outcome.settings["long rounds"] == 1_000
    for sigma in ("0.1", "0.5", "1"):
        level = outcome.data[f"sigma {sigma}"]
        assert level["main"]["rounds"][-1] == 100
        assert level["long"]["rounds"][-1] == 1_000


def test_the_gain_is_the_signed_ratio_of_means(outcome: Outcome) -> None:
    trace = monte_carlo("algorithm1", lambda rng: world(rng, 0.5), runs=40, rounds=100, parallel=10, seed=1)
    found = np.array(outcome.data["sigma 0.5"]["main"]["ratio"])
    expected = (trace.answer - trace.single[:, None]).sum(axis=0) / (trace.optimum - trace.single).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (found < 0).all()
    np.testing.assert_array_equal(outcome.data["sigma 0.5"]["main"]["own mean"], relative_gain(trace).mean)


def test_algorithm_1_is_where_the_reference_puts_it_early_on(outcome: Outcome) -> None:
    for sigma in ("0.1", "1"):
        curves = outcome.data[f"sigma {sigma}"]["main"]
        for mark, reference in ((30, -43.0), (100, -37.0)):
            place = list(curves["rounds"]).index(mark)
            assert abs(curves["ratio"][place] - reference) <= 3 * np.sqrt(2) * curves["ratio error"][place]


def test_a_run_that_is_too_short_has_no_verdict(outcome: Outcome) -> None:
    verdicts = {claim.what: claim.holds for claim in outcome.claims}
    assert [verdicts[f"r > 0, better than the best single candidate, at σ = {sigma:g}"] for sigma in (0.1, 0.5, 1)] == [
        None,
        None,
        None,
    ]
    assert "an absolute value can never show a loss" in " ".join(claim.note for claim in outcome.claims)


def test_the_estimate_gets_worse_again_as_the_floor_shrinks() -> None:
    """Check the finding at a size that runs in a second: a larger step reaches the floor sooner."""
    from pasto.optimize.learners import Algorithm1

    trace = monte_carlo(
        Algorithm1(step=0.02),
        lambda rng: world(rng, 1.0),
        runs=10,
        rounds=1_500,
        parallel=10,
        measures={"error": _error, "smallest": _smallest},
    )
    errors, smallest = trace.measures["error"].mean(axis=0), trace.measures["smallest"]
    lowest = int(np.argmin(errors))
    assert 0 < lowest < len(errors) - 1
    assert errors[-1] > 1.3 * errors[lowest]
    assert np.median(smallest[:, -1]) < 1.01 * 0.1 / np.sqrt(1_510) / 100
    assert (smallest >= 0.1 / np.sqrt(trace.checkpoints + 10) / 100 * (1 - 1e-12)).all()


def test_the_control_differs_in_its_floor_alone(outcome: Outcome) -> None:
    held, level = outcome.data["sigma 1, floor held"], outcome.data["sigma 1"]["long"]
    assert held["rounds"].tolist() == level["rounds"].tolist()
    np.testing.assert_allclose(held["ratio"][0], level["ratio"][0])  # the same true means, and equal shares at first
    assert min(held["smallest probability"]) >= 0.03 / 100


def test_the_outcome_is_plain_json_and_its_figures_can_be_drawn(outcome: Outcome) -> None:
    record = json.loads(json.dumps(outcome_document(outcome), allow_nan=False))
    assert set(record["data"]) == {"sigma 0.1", "sigma 0.5", "sigma 1", "sigma 1, floor held"}
    assert all(isinstance(claim["holds"], bool | None) for claim in record["claims"])
    panels = {name: len(draw().axes) for name, draw in outcome.figures.items()}
    assert panels == {"synthetic-b": 2, "synthetic-b-runs": 1, "synthetic-b-noise": 2}


def test_progress_names_the_noise_level() -> None:
    heard: set[str] = set()
    paper.run("synthetic-b", runs=2, rounds=3, progress=lambda label, done, total: heard.add(label))
    assert {"synthetic-b: σ = 0.1", "synthetic-b: σ = 1, long"} <= heard


def test_the_smallest_size_still_has_results() -> None:
    outcome = paper.run("synthetic-b", runs=1, rounds=1)
    assert outcome.tables[0].header == ("σ", "10 rounds (2 runs)")
    assert [claim.holds for claim in outcome.claims if "reference" in claim.paper] == [None, None]
