"""A round that was observed whole, as a learner sees it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pasto.errors import BadMeasurement
from pasto.estimate import ControlMeans, Sample
from pasto.optimize.learners import Round
from pasto.records import Observation, Policy


def observed_round(seen: Sequence[Observation], policy: Policy) -> Round:
    """What was observed under a policy: every unit is a draw, so a candidate's share is its units over all units.

    >>> seen = [Observation(0, k, units=30 * k, mean=(float(k),)) for k in (1, 2)]
    >>> observed_round(seen, Policy(0, (0.2, 0.4, 0.4))).sample.shares.round(3).tolist()
    [0.333, 0.667]
    """
    learning = [observation for observation in seen if not observation.control]
    if not learning:
        raise BadMeasurement("every observation is marked as control; the policy's own units are needed to learn")
    probabilities = np.array([policy.probabilities[observation.candidate] for observation in learning])
    if not probabilities.all():
        stray = learning[int(np.argmin(probabilities))].candidate
        raise BadMeasurement(
            f"candidate {stray} was not served by policy version {policy.version}: its probability is 0"
        )
    units = np.array([observation.units for observation in learning])
    covariances = None
    if all(observation.covariance is not None for observation in learning):
        covariances = np.array([observation.covariance for observation in learning])
    return Round(
        served=np.array(policy.probabilities),
        sample=Sample(
            candidates=np.array([observation.candidate for observation in learning], dtype=np.intp),
            metrics=np.array([observation.mean for observation in learning], dtype=float),
            probabilities=probabilities,
            shares=units / units.sum(),
        ),
        covariances=covariances,
        units=units,
        control=_control([observation for observation in seen if observation.control]),
    )


def _control(seen: Sequence[Observation]) -> ControlMeans | None:
    """ControlMeans observations of a round, pooled by their units; None where there are none, or no covariances."""
    if not seen or any(observation.covariance is None for observation in seen):
        return None
    units = np.array([observation.units for observation in seen])
    shares = units / units.sum()
    mean = shares @ np.array([observation.mean for observation in seen])
    covariance = np.einsum("q,qij->ij", shares**2, np.array([observation.covariance for observation in seen]))
    return ControlMeans(mean, covariance, float(units.sum()))
