from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from pasto_research.paper.models.linear import ease, popularity
from pasto_research.paper.models.mult_vae import Autoencoder
from pasto_research.paper.models.ranking import gains, mixed


@given(st.integers(0, 1_000))
def test_ease_is_ridge_regression_of_each_item_on_the_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    taken = (rng.random((20, 5)) < 0.4).astype(float)
    scores = ease(csr_array(taken), ridge=2.0)(csr_array(np.eye(5)))
    for item in range(5):
        others = [other for other in range(5) if other != item]
        X = taken[:, others]
        weights = np.linalg.solve(X.T @ X + 2.0 * np.eye(4), X.T @ taken[:, item])
        np.testing.assert_allclose(scores[others, item], weights, atol=1e-5)
        assert scores[item, item] == 0.0


def test_popularity_ranks_by_users_and_of_equals_the_first() -> None:
    score = popularity(csr_array(np.array([[1.0, 0, 1, 0], [0, 0, 1, 1], [0, 0, 1, 0]])))
    assert np.argsort(-score(csr_array((1, 4)))[0]).tolist() == [2, 0, 3, 1]


def test_an_autoencoder_scores_as_its_layers_say() -> None:
    rng = np.random.default_rng(3)
    shapes = Autoencoder.empty(6, (4, 2)).arrays()
    model = Autoencoder(**{name: rng.normal(size=one.shape).astype(np.float32) for name, one in shapes.items()})
    known = np.array([[1.0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    hidden = np.tanh(known / np.array([[np.sqrt(2)], [1.0]]) @ model.entry + model.entry_bias)
    code = (hidden @ model.code + model.code_bias)[:, :2]
    expected = np.tanh(code @ model.back + model.back_bias) @ model.out + model.out_bias
    np.testing.assert_allclose(model.score(csr_array(known)), expected, rtol=1e-4)


def test_mixing_ranks_by_the_product_of_powers() -> None:
    rng = np.random.default_rng(5)
    logits = [rng.normal(size=(40, 30)).astype(np.float32) for _ in range(2)]
    known = csr_array((rng.random((40, 30)) < 0.2).astype(float))
    wanted = csr_array(((rng.random((40, 30)) < 0.3) & (known.toarray() == 0)).astype(float))
    alphas = [0.0, 0.25, 0.5, 1.0]
    found = mixed(
        lambda _: logits[0].copy(), lambda _: logits[1].copy(), known, {"R": wanted, "again": wanted}, alphas, top=5
    )
    chances = [np.exp(one) / np.exp(one).sum(axis=1, keepdims=True) for one in logits]
    for place, alpha in enumerate(alphas):
        scores = (chances[0] ** alpha * chances[1] ** (1 - alpha)).astype(np.float32)
        np.testing.assert_allclose(found[0, place], gains(scores, known, wanted, top=5), rtol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
