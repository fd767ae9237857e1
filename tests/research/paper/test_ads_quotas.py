from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import pasto
from pasto.errors import InputError
from pasto.sim.ads import ads
from pasto_research import paper
from pasto_research.paper.data.ipinyou import Log, load
from pasto_research.paper.experiment import Size
from pasto_research.paper.output import outcome_document
from pasto_research.paper.quota_lifts import QuotaOutcomes, learn, objective
from pasto_research.paper.quota_replay import (
    DISPLAYED_ADS,
    METRICS,
    TOTAL,
    Requests,
    request_values,
    retrieve,
    shares_of,
)
from pasto_research.paper.quota_simulation import simulated

CAMPAIGNS = (("1000", 50.0, 0.004), ("2000", 65.0, 0.0015), ("3000", 80.0, 0.0006), ("4000", 95.0, 0.0003))
"""Name, mean price and mean rate."""


def priced_impressions(rng: np.random.Generator, size: int) -> tuple[Log, ...]:
    """Return impressions that are clicked less the more they cost."""
    logs = []
    for campaign, price, rate in CAMPAIGNS:
        rates = rate * rng.lognormal(-0.125, 0.5, size)
        clicks = (rng.random(size) < rates).astype(float)
        logs.append(Log(campaign, clicks, price * rng.lognormal(-0.32, 0.8, size), rates))
    return tuple(logs)


def write_logs(place: Path, size: int = 3_000) -> None:
    place.mkdir(exist_ok=True)
    for log in priced_impressions(np.random.default_rng(2), size):
        rows = zip(log.clicks, log.prices, log.rates, strict=True)
        text = "".join(f"{click:.0f}\t{price:.0f}\t{rate:.6f}\t7\n" for click, price, rate in rows)
        (place / f"{log.campaign}.test.txt").write_text(text)


def test_logs_are_read_by_campaign(tmp_path: Path) -> None:
    (tmp_path / "rlb_2997_test.theta.txt").write_text("0 70 0.002\n1 6 0.003\n")
    (tmp_path / "arbitrage_1458.test.txt").write_text("0\t80\t0.0001\t14\n")
    (tmp_path / "1458.train.txt").write_text("0\t80\t0.0001\t14\n")
    first, second = load(tmp_path)
    assert (first.campaign, second.campaign) == ("1458", "2997")
    assert (second.clicks.tolist(), second.prices.tolist(), second.cost_per_click) == ([0.0, 1.0], [70.0, 6.0], 76.0)
    assert [log.campaign for log in load(tmp_path.parent)] == ["1458", "2997"]


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no iPinYou logs"):
        load(tmp_path)
    (tmp_path / "1458.test.txt").write_text("0 80\n")
    with pytest.raises(InputError, match="should have 3 or 4 columns, got 2"):
        load(tmp_path)
    (tmp_path / "1458.test.txt").write_text("0 80 x\n")
    with pytest.raises(InputError, match="3 numbers a line"):
        load(tmp_path)


def test_quotas_share_out_the_total() -> None:
    candidates = shares_of(("a", "b", "cold"))
    assert all(sum(int(value) for value in row.values()) == TOTAL for row in candidates)
    assert len(set(candidates.names)) == len(candidates) == 28


def test_the_best_retrieved_items_are_displayed() -> None:
    """Check one request with two modules: module 0 scores 9, 5, 1 and so on, module 1 scores 7, 6, 2."""
    scores = np.zeros((1, 2, TOTAL))
    scores[0, :, :3] = [[9, 5, 1], [7, 6, 2]]
    found = Requests(scores, dict.fromkeys(METRICS, scores * 10))
    assert DISPLAYED_ADS == 2
    assert request_values(found, [1, 1])[0].tolist() == [160.0]
    assert request_values(found, [0, 3])[0].tolist() == [130.0]
    assert request_values(found, [3, 0])[0].tolist() == [140.0]


def test_modules_retrieve_the_likeliest_first_and_cold_ads_have_a_module_of_their_own() -> None:
    logs = priced_impressions(np.random.default_rng(1), 500)
    found = retrieve(logs, 50, np.random.default_rng(2))
    assert found.scores.shape == (50, len(logs) + 1, TOTAL)
    assert (np.diff(found.scores[:, :-1], axis=2) <= 0).all()
    assert found.paid["cold start"][:, -1].all()
    assert not found.paid["cold start"][:, :-1].any()


def test_the_experiment_runs_on_small_logs(tmp_path: Path) -> None:
    write_logs(tmp_path / "logs")
    outcome = paper.run("ads", quick=True, runs=1, rounds=1, data=tmp_path)
    assert len(outcome.claims) >= 3
    lifts = outcome.tables[2]
    assert lifts.title.startswith("iPinYou: lift over the baseline")
    assert [row[0] for row in lifts.rows][-1] == "the paper: probabilistic"
    record = json.loads(json.dumps(outcome_document(outcome), allow_nan=False))
    assert abs(sum(record["data"]["iPinYou"]["probabilities"]) - 1) < 1e-9
    assert abs(sum(record["data"]["the demonstration's world"]["probabilities"]) - 1) < 1e-9
    assert outcome.tables[3].title.startswith("the demonstration's world: lift over the baseline")
    (draw,) = outcome.figures.values()
    assert len(draw().axes) == 2


def test_the_world_of_the_demonstration_equals_its_expectations() -> None:
    """Check that averages over many users equal the world's own expectations."""
    world = ads()
    outcomes = simulated(Size(runs=1, rounds=1, seed=3), users=4_000)
    expected = world.expected(4_000, np.random.default_rng(8)).mean(axis=0)
    columns = [world.columns.index(name) for name in ("cents", "cold", "clicks")]
    np.testing.assert_allclose(outcomes.values.mean(axis=2).T, expected[:, columns], rtol=0.06)
    assert outcomes.candidates.names == world.candidates.names
    assert outcomes.baseline == world.baseline


def three_quotas(today: tuple[float, float]) -> QuotaOutcomes:
    """Return three quotas with two requests each; the second quota is the baseline."""
    values = np.array([[[3.0, 3.0], [2.0, 2.0], [1.5, 1.5]], [[0.0, 0.0], today, [4.0, 4.0]]])
    return QuotaOutcomes("few", pasto.grid(a=[0, 1, 2]), 1, ("money", "fresh"), values, {"fresh": -25.0})


def test_lifts_are_percent_over_the_baseline() -> None:
    found = learn(three_quotas((2.0, 2.0)), Size(runs=1, rounds=2))
    assert found.lift(found.only(0))[0].tolist() == [50.0, -100.0]
    assert found.lift(found.only(1))[0].tolist() == [0.0, 0.0]
    assert found.lead(found.only(0), found.only(2))[0].tolist() == [75.0, -200.0]
    np.testing.assert_allclose(found.blend, [0.625, 0.0, 0.375], atol=1e-6)
    assert found.best.best_single == 1
    assert found.answer.sum() == pytest.approx(1.0)


def test_guardrails_stand_below_the_baseline_of_those_who_are_asked() -> None:
    wanted = objective(three_quotas((2.0, 2.0)), {"fresh": 10.0})
    assert wanted.hard == ("fresh",)
    assert float(np.asarray(wanted.value(np.array([1.0, -15.0])))) == 1.0
    assert float(np.asarray(wanted.value(np.array([1.0, -15.1])))) == -np.inf


def test_a_baseline_that_shows_nothing_of_a_guardrail_is_refused() -> None:
    with pytest.raises(InputError, match="few: the baseline shows no fresh, so a percentage of it is undefined"):
        learn(three_quotas((0.0, 0.0)), Size(runs=1, rounds=1))
