from __future__ import annotations

import numpy as np
import pytest

from pasto.objective import maximize
from pasto_research.bench import BENCHMARKS, segments


def test_headroom_rises_with_heterogeneity_and_is_zero_without() -> None:
    calls: list[tuple[str, int, int]] = []
    report = segments.measure(
        worlds=12, sizes=[(2, 3, 5)], repeats=1, progress=lambda label, done, total: calls.append((label, done, total))
    )
    headroom = [row["headroom_percent"] for row in report.rows]
    assert headroom[0] == pytest.approx(0.0, abs=1e-9)
    assert headroom == sorted(headroom)
    assert 5.0 < headroom[1] < 20.0
    for row in report.rows:
        assert row["least_percent"] >= -1e-9
        assert row["each_by_itself_percent"] <= row["headroom_percent"] + 1e-9
        assert row["mixed_segments"] <= 2.0
    assert calls[-1] == ("segments", 48, 48)
    [timing] = report.more
    assert [(row["guardrails"], row["problems"]) for row in timing.rows] == [("all", 2), ("all and each", 2)]
    assert all(row[name] > 0 for row in timing.rows for name in ("batch_ms", "one_by_one_ms", "highs_ms"))


def test_worlds_of_one_seed_differ_only_in_the_segments_own_effects() -> None:
    objective = maximize("x").keep("y", at_least=0)
    (shares, alike), (others, mixed) = (
        segments.make_world(np.random.default_rng(4), heterogeneity, objective) for heterogeneity in (0.0, 1.0)
    )
    assert shares == others
    own = np.array([mixed[name]["x"] - alike[name]["x"] for name in shares])
    assert 0.8 < own.std() < 1.2


def test_the_registry_has_the_benchmark() -> None:
    assert BENCHMARKS["segments"] is segments.BENCHMARK
