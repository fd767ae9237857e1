from __future__ import annotations

import json

import numpy as np
import pytest

from pasto_research.paper.data.kuairand import Impressions
from pasto_research.paper.experiment import Size
from pasto_research.paper.output import outcome_document
from pasto_research.paper.table3_replay import METRICS, Content, objective, play
from pasto_research.paper.table3_results import build_outcome, lift

SIZE = Size(runs=1, rounds=3, quick=True)


def sample_impressions(users: int, seed: int) -> Impressions:
    """Return videos: long ones are watched for longer, short ones are liked and forwarded."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(users), 8)
    length = rng.random(len(who))
    features = np.column_stack([length, rng.random(len(who))])
    feedback = {
        "watch": 10 + 30 * length + rng.normal(0, 1, len(who)).clip(-5, 5),
        "long_view": (rng.random(len(who)) < 0.3).astype(float),
        "like": (rng.random(len(who)) < 0.6 - 0.5 * length).astype(float),
        "forward": (rng.random(len(who)) < 0.3 - 0.25 * length).astype(float),
    }
    return Impressions(who, features, feedback)


@pytest.fixture(scope="module")
def content() -> Content:
    return play(sample_impressions(300, 1), sample_impressions(150, 2), SIZE)


def test_metrics_are_percent_over_the_baseline(content: Content) -> None:
    np.testing.assert_allclose(content.user_sample.truth[:, content.baseline], 0.0, atol=1e-3)
    time, like, _ = content.user_sample.truth
    names = content.candidates.names
    without, liked = names.index("long_view=0,like=0,forward=0"), names.index("long_view=0,like=1,forward=1")
    assert time[without] > time[liked]
    assert like[without] < like[liked]


def test_lifts_come_with_the_error_of_paired_users(content: Content) -> None:
    shares = np.zeros(len(content.candidates))
    shares[content.baseline] = 1.0
    mean, error = lift(content, shares)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(error, 0.0, atol=1e-9)
    other = np.roll(shares, 1)
    assert (lift(content, other)[1] > 0).any()


def test_table_3_is_printed_for_both_sets_of_guardrails(content: Content) -> None:
    outcome = build_outcome(content, SIZE)
    tables = [table for table in outcome.tables if table.title.startswith("Table 3")]
    assert [table.title.split(" at ")[0] for table in tables] == [
        "Table 3, keeping like and forward",
        "Table 3, keeping like",
    ]
    for table in tables:
        assert table.header == ("solution", *METRICS, "what it is")
        assert [row[0] for row in table.rows[-2:]] == ["the paper: single best", "the paper: probabilistic"]
    assert outcome.claims[0].what.startswith("Forwards are frequent enough")
    json.dumps(outcome_document(outcome), allow_nan=False)
    (draw,) = outcome.figures.values()
    assert len(draw().axes) == 1


def test_guardrails_begin_two_percent_below_the_baseline() -> None:
    value = objective(("like", "forward")).value
    assert float(np.asarray(value(np.array([1.0, -2.0, 0.0])))) == 1.0
    assert float(np.asarray(value(np.array([1.0, -3.0, -4.0])))) == 1.0 - 5.0 - 20.0
