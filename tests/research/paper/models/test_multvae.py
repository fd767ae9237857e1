"""Training of MultVAE, which needs torch; `make paper` installs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from pasto_research.paper.models.linear import popularity
from pasto_research.paper.models.mult_vae import MultVaeSettings, load, train
from pasto_research.paper.models.ranking import rate, weighted

pytestmark = pytest.mark.realdata

SMALL = MultVaeSettings(hidden=(32, 8), batch=64, epochs=30, annealing=10, patience=30, seed=3)


def tastes(seed: int = 0) -> tuple[csr_array, csr_array]:
    """Return 600 users of four tastes, who choose 12 of their taste's 20 items: eight to train, four to test."""
    rng = np.random.default_rng(seed)
    train_pairs, test_pairs = np.zeros((600, 80)), np.zeros((600, 80))
    for user in range(600):
        items = 20 * (user % 4) + rng.permutation(20)[:12]
        train_pairs[user, items[:8]] = 1.0
        test_pairs[user, items[8:]] = 1.0
    return csr_array(train_pairs), csr_array(test_pairs)


def test_a_model_learns_tastes_that_popularity_cannot() -> None:
    known, wanted = tastes()
    trained = train(known, known, SMALL)
    reached = np.nanmean(rate(trained.model.score, known, wanted, top=12))
    assert reached > 0.95
    assert np.nanmean(rate(popularity(known), known, wanted, top=12)) < 0.4
    assert max(trained.validation) > trained.validation[0]


def test_weights_decide_what_a_model_ranks_first() -> None:
    known, wanted = tastes()
    rare = np.where(np.arange(80) % 20 < 5, 1.0, 0.0)
    plain = train(known, known, SMALL)
    genre = train(known, weighted(known, rare), SMALL)
    stored = weighted(wanted, rare)
    assert np.nanmean(rate(genre.model.score, known, stored, top=3)) > 2 * np.nanmean(
        rate(plain.model.score, known, stored, top=3)
    )


def test_the_seed_decides_everything() -> None:
    known, _ = tastes()
    settings = MultVaeSettings(hidden=(8, 4), epochs=2, seed=5)
    first, again = (train(known, known, settings).model.out for _ in range(2))
    assert (first == again).all()
    other = train(known, known, MultVaeSettings(hidden=(8, 4), epochs=2, seed=6)).model.out
    assert (first != other).any()


def test_a_training_cut_short_continues_to_the_same_end(tmp_path: Path) -> None:
    known, _ = tastes()
    settings = MultVaeSettings(hidden=(8, 4), epochs=6, patience=6, seed=5)
    complete = train(known, known, settings)

    class CutError(Exception):
        pass

    def cut(label: str, done: int, total: int) -> None:
        if done == 3:
            raise CutError

    path = tmp_path / "model.npz"
    with pytest.raises(CutError):
        train(known, known, settings, path=path, progress=cut)
    assert load(path) is None
    resumed = train(known, known, settings, path=path)
    assert resumed.validation == complete.validation
    for name, weights in complete.model.arrays().items():
        assert (resumed.model.arrays()[name] == weights).all(), name
    stored = load(path)
    assert stored is not None
    assert (stored.model.out == complete.model.out).all()
    assert train(known, known, settings, path=path).validation == complete.validation


def test_training_ends_when_validation_stands_still() -> None:
    known, _ = tastes()
    settings = MultVaeSettings(hidden=(8, 4), epochs=50, patience=2, rate=1e-12, seed=5)
    trained = train(known, known, settings)
    assert len(trained.validation) == 3
    assert trained.best == 1
