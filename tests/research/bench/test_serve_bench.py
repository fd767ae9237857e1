"""HTTP part of `pasto bench serve` at a small size: it runs, and gives all its rows."""

from __future__ import annotations

import pytest

from pasto_research.bench.serve import measure_assign, measure_ingest


def test_decisions_over_http_are_compared_with_an_echo() -> None:
    rows = measure_assign(60)
    assert [row["case"] for row in rows] == ["assign over HTTP, units seen before", "assign over HTTP, every unit new"]
    for row in rows:
        assert row["unit"] == "req/s"
        assert row["ours"] > 0
        assert row["theirs"] > 0
        assert row["limit"] == pytest.approx(0.6 * row["theirs"], rel=1e-3)
        assert row["ratio"] == pytest.approx(row["ours"] / row["theirs"], abs=1e-2)


def test_ingest_over_http_is_measured() -> None:
    rows = measure_ingest(8)
    assert [row["unit"] for row in rows] == ["events/s", "events/s", "ms", "ms"]
    assert all(row["ours"] > 0 for row in rows)
