from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pasto.errors import InputError
from pasto_research.paper.data.kuairand import Impressions
from pasto_research.paper.models.feedback import area_under_curve, predict
from pasto_research.paper.models.ranking import Lists


def test_lists_are_ranked_by_the_product_of_powers_and_short_ones_left_out() -> None:
    users = np.array([1, 1, 1, 2, 3, 3, 3, 3])
    watch = np.array([1.0, 2, 3, 9, 4, 3, 2, 1])
    like = np.array([0.9, 0.1, 0.1, 0.5, 0.1, 0.2, 0.4, 0.8])
    seconds = np.array([10.0, 20, 30, 40, 50, 60, 70, 80])
    lists = Lists.of(users, {"watch": watch, "like": like}, {"time": seconds}, least=3, top=2)
    np.testing.assert_allclose(lists.top_values({"watch": 1.0, "like": 0.0}), [[25.0, 55.0]])
    np.testing.assert_allclose(lists.top_values({"watch": 0.0, "like": 1.0})[0, 1], 75.0)
    np.testing.assert_allclose(
        lists.top_values({"watch": 1.0, "like": 1.0})[0, 0], 20.0
    )  # 0.9, 0.2 and 0.3: first and last
    with pytest.raises(InputError, match="no user has 5 impressions"):
        Lists.of(users, {"watch": watch}, {"time": seconds}, least=5, top=2)


@given(st.integers(0, 1_000))
def test_the_area_under_the_curve_counts_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 5, 30).astype(float)
    truth = (rng.random(30) < 0.4).astype(float)
    yes, no = scores[truth > 0], scores[truth == 0]
    if not len(yes) or not len(no):
        assert np.isnan(area_under_curve(scores, truth))
        return
    wins = (yes[:, None] > no).sum() + 0.5 * (yes[:, None] == no).sum()
    assert area_under_curve(scores, truth) == pytest.approx(wins / (len(yes) * len(no)))


def test_models_learn_from_earlier_impressions() -> None:
    rng = np.random.default_rng(1)

    def some(count: int) -> Impressions:
        features = rng.standard_normal((count, 3))
        chance = 1 / (1 + np.exp(-2 * features[:, 0]))
        yes = (rng.random(count) < chance).astype(float)
        feedback = {"watch": 10 + 5 * features[:, 1], "long_view": yes, "like": yes, "forward": yes}
        return Impressions(np.arange(count), features, feedback)

    found = predict(some(1_500), some(500))
    assert found.quality["watch"] > 0.85
    assert found.quality["like"] > 0.75
    assert all((scores > 0).all() for scores in found.scores.values())
