"""Clusters as units: lifts of means per member cover the truth, and those of members as units do not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.inference import Quantity
from pasto.inference.lift import LiftTarget, estimate_lifts
from pasto.inference.round_data import CellMoments, MeasuredRound, record_rounds
from pasto.metrics.engines.sqlite import build_moments

SHARES = {("control", 0): 0.5, ("blend", 1): 0.5}
LIFT = 0.05
STUDIES = 1500
CLUSTERS = 300
"""Clusters in each arm."""
CORRELATION = 0.3
"""Correlation of two members of a cluster."""
PER_MEMBER = Quantity(0, 1)
"""Sum of the members' numbers over the number of members."""


def draw_clusters(rng: np.random.Generator, level: float) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the number of each member, and its cluster; large clusters have a higher level than small ones."""
    sizes = 1 + rng.negative_binomial(1, 0.1, CLUSTERS)  # 1 to about 70
    effects = np.sqrt(CORRELATION) * rng.standard_normal(CLUSTERS) + 0.02 * (sizes - 10.0)
    clusters = np.repeat(np.arange(CLUSTERS), sizes)
    noise = np.sqrt(1.0 - CORRELATION) * rng.standard_normal(len(clusters))
    return level * (10.0 + effects[clusters] + noise), clusters


def moments_of(arm: str, candidate: int, rows: FloatArray) -> CellMoments:
    cell = build_moments(arm, candidate, rows, (0,) * rows.shape[1])
    return CellMoments(arm, candidate, cell.units, cell.mean, cell.cross)


def covers(arms: dict[tuple[str, int], FloatArray], quantity: Quantity) -> bool:
    cells = [moments_of(*key, rows) for key, rows in arms.items()]
    record = record_rounds([MeasuredRound(1, SHARES, cells)])
    (lift,) = estimate_lifts(record, {"score": quantity}, [LiftTarget("blend", "blend")], sequential=False)
    return lift.relative.low <= LIFT <= lift.relative.high


def measure_coverage(seed: int, studies: int) -> tuple[float, float]:
    """Return the coverage of the intervals by cluster, and of those by member."""
    rng = np.random.default_rng(seed)
    by_cluster = by_member = 0
    for _ in range(studies):
        clusters: dict[tuple[str, int], FloatArray] = {}
        members: dict[tuple[str, int], FloatArray] = {}
        for key, level in zip(SHARES, (1.0, 1.0 + LIFT), strict=True):
            numbers, owners = draw_clusters(rng, level)
            sums = np.bincount(owners, weights=numbers)
            clusters[key] = np.stack([sums, np.bincount(owners).astype(np.float64)], axis=1)
            members[key] = numbers[:, None]
        by_cluster += covers(clusters, PER_MEMBER)
        by_member += covers(members, Quantity(0))
    return by_cluster / studies, by_member / studies


@pytest.mark.parametrize("seed", [11, 12])
def test_intervals_by_cluster_cover_and_those_by_member_do_not(seed: int) -> None:
    by_cluster, by_member = measure_coverage(seed, STUDIES)
    assert 0.935 <= by_cluster <= 0.975
    assert by_member < 0.7
