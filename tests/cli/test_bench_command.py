from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pasto.sim import Progress
from pasto_research.bench import BENCHMARKS, Benchmark, BenchmarkReport

ROWS = ({"case": "small", "problems": 12345, "ours_ms": 0.123456}, {"case": "large", "problems": 1, "ours_ms": 5.0})


def _report(progress: Progress | None, quick: bool) -> BenchmarkReport:
    return BenchmarkReport("Times", ROWS[:1] if quick else ROWS, note="on a whim")


@pytest.fixture(autouse=True)
def tiny_benchmark() -> Iterator[None]:
    BENCHMARKS["tiny"] = Benchmark("tiny", "next to nothing", _report)
    yield
    del BENCHMARKS["tiny"]


def test_the_benchmarks_are_listed(run: Any) -> None:
    outcome = run("bench").stdout
    assert all(name in outcome for name in BENCHMARKS)
    assert {entry["name"] for entry in json.loads(run("bench", "--json").stdout)} == set(BENCHMARKS)
    assert all(f"  {name}" in run("bench", "--help").stdout for name in BENCHMARKS)


def test_a_benchmark_is_a_table(run: Any) -> None:
    assert run("bench", "tiny").stdout.splitlines() == [
        "Times",
        "case   problems  ours ms",
        "small    12,345    0.123",
        "large         1        5",
        "on a whim",
        "",
    ]


def test_a_benchmark_may_have_further_tables(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    both = BenchmarkReport("Times", ROWS, more=(BenchmarkReport("Sizes", ({"file": "wheel", "bytes": 7},)),))
    monkeypatch.setitem(BENCHMARKS, "tiny", Benchmark("tiny", "next to nothing", lambda progress, quick: both))
    lines = run("bench", "tiny").stdout.splitlines()
    assert lines[lines.index("Sizes") + 1].split() == ["file", "bytes"]
    assert json.loads(run("bench", "tiny", "--json").stdout)["more"][0]["rows"] == [{"file": "wheel", "bytes": 7}]


def test_json_has_every_digit(run: Any) -> None:
    outcome = json.loads(run("bench", "tiny", "--json").stdout)
    assert outcome["rows"][0] == {"case": "small", "problems": 12345, "ours_ms": 0.123456}


def test_quick_is_smaller_and_out_writes_the_same(run: Any, tmp_path: Path) -> None:
    outcome = json.loads(run("bench", "tiny", "--quick", "--out", tmp_path / "new", "--json").stdout)
    assert len(outcome["rows"]) == 1
    assert json.loads((tmp_path / "new" / "tiny.json").read_text(encoding="utf-8")) == outcome


def test_all_runs_every_benchmark(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in BENCHMARKS:
        monkeypatch.setitem(BENCHMARKS, name, BENCHMARKS["tiny"])
    assert [outcome["name"] for outcome in json.loads(run("bench", "all", "--json").stdout)] == list(BENCHMARKS)


def test_an_unknown_benchmark_is_refused(run: Any) -> None:
    result = run("bench", "speed")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: no benchmark is called 'speed'; there are ")
