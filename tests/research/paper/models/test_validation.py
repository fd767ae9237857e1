from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from pasto_research.paper.models.mult_vae import (
    Autoencoder,
    MultVaeSettings,
    TrainingResult,
    hide_some,
    load,
    ndcg,
    settings_document,
)


def test_a_fifth_of_what_each_user_wants_is_hidden_and_no_longer_known() -> None:
    rng = np.random.default_rng(0)
    known = (rng.random((50, 40)) < 0.5).astype(float)
    known[:, 0] = 1.0
    wanted = known * rng.integers(1, 5, known.shape)
    visible, hidden = hide_some(csr_array(known), csr_array(wanted), seed=1)
    assert visible.multiply(hidden).nnz == 0
    np.testing.assert_array_equal(visible.toarray() + (hidden.toarray() > 0), known)
    np.testing.assert_array_equal(hidden.toarray(), np.where(hidden.toarray() > 0, wanted, 0.0))
    expected = np.maximum(1, np.round(0.2 * known.sum(axis=1)))
    np.testing.assert_array_equal((hidden.toarray() > 0).sum(axis=1), expected)


def test_what_is_known_but_not_wanted_stays_known() -> None:
    known, wanted = csr_array(np.array([[1.0, 1.0, 1.0]])), csr_array(np.array([[0.0, 2.0, 0.0]]))
    visible, hidden = hide_some(known, wanted, seed=1)
    assert visible.toarray().tolist() == [[1.0, 0.0, 1.0]]
    assert hidden.toarray().tolist() == [[0.0, 2.0, 0.0]]


def test_weighted_ndcg_by_hand() -> None:
    """Check a list 1, 2, 3 without the known item 0; relevant are 2 with weight 3 and 3 with weight 1."""
    scores = np.array([[9.0, 4.0, 3.0, 2.0, 1.0]], np.float32)
    known, wanted = csr_array(np.eye(5)[[0]]), csr_array(np.array([[0.0, 0, 3, 1, 0]]))
    got = 3 / np.log2(3) + 1 / np.log2(4)
    best = 3 / np.log2(2) + 1 / np.log2(3)
    assert ndcg(scores, known, wanted, top=3) == pytest.approx(got / best, abs=1e-4)


def test_the_best_epoch_is_the_first_with_the_highest_validation() -> None:
    model = Autoencoder.empty(2, (2, 1))
    assert TrainingResult(model, (0.1, 0.3, 0.3, 0.2), True).best == 2
    assert settings_document(MultVaeSettings(seed=9))["seed"] == 9


def test_no_file_is_no_training(tmp_path: object) -> None:
    from pathlib import Path

    assert load(Path(str(tmp_path)) / "none.npz") is None
