"""Standard errors of almost zero, next to candidates with ordinary ones."""

from __future__ import annotations

import numpy as np

import pasto


def test_a_metric_without_error_is_used_and_stays_certified() -> None:
    """Measure a metric of −100 without noise in every third round; its estimate must not drift to −1."""
    candidates = pasto.grid("a + b + cold == 6", a=range(7), b=range(7), cold=range(7))
    a, b, cold = (np.array([float(row[name]) for row in candidates]) for name in ("a", "b", "cold"))
    truth = np.array([3 * a + b - 2 * (cold > 0), np.where(cold > 0, 50 * cold, -100.0)])
    study = pasto.Study(candidates, pasto.maximize("x").keep("y", at_least=-1), seed=1)
    rng = np.random.default_rng(0)
    for number in range(20):
        asked = study.ask(10)
        means = truth[:, [one.candidate for one in asked]].T
        errors = np.broadcast_to([0.5, 1e-9 if number % 3 == 2 else 20.0], means.shape)
        study.tell(asked, means + errors * rng.standard_normal(means.shape), standard_errors=errors)
    blend = study.blend()
    assert blend.certificate is not None
    assert blend.certificate.certified
    assert (truth @ np.array(blend.probabilities))[1] >= -1.5
