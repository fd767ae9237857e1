"""Experiments on real data, from files to tables and figures as a user runs them, shortened by their own options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto_research.paper.quota_replay import GUARDRAILS as LOG_GUARDRAILS
from pasto_research.paper.quota_simulation import GUARDRAILS as WORLD_GUARDRAILS

pytestmark = pytest.mark.realdata


def rows_of(document: dict[str, Any], start: str) -> list[dict[str, list[Any]]]:
    """Return the rows of every table whose title starts with this text, by the first cell."""
    tables = [table for table in document["tables"] if table["title"].startswith(start)]
    return [{row[0]: row[1:] for row in table["rows"]} for table in tables]


def number(cell: str) -> float:
    """Return the mean of a cell like "+1.2 ± 0.3 %"."""
    return float(cell.split()[0])


def check_two_goals(document: dict[str, Any], metrics: tuple[str, str]) -> None:
    for name, found in document["data"].items():
        (counts,) = rows_of(document, "Table 1")
        users, items, events, training, test = counts[name]
        assert users >= 100
        assert items >= 100
        assert training + test == events
        assert 0.6 < training / events < 0.8
        curve = np.array([found["curve"][metric] for metric in metrics])
        assert curve.shape == (2, 100)
        assert (curve >= 0).all()
        assert curve[0].max() <= 1
        others = {model: values[0] for model, values in found["baselines"].items()}
        assert others["EASE"] > others["popularity"]
        assert others["Mult-VAE, all positives (α = 1)"] > others["popularity"]
        assert curve[1, 0] > curve[1, -1] or curve[0, -1] > curve[0, 0]
        hard = np.array(found["hard"]["probabilities"])
        assert (curve @ hard)[1] >= found["threshold"] - 1e-6
        (results,) = rows_of(document, f"Table 2: {name}")
        for learner in ("soft (λ = 5): probabilistic, Algorithm 1", "hard: probabilistic, default learner"):
            assert 0 < number(results[learner][0]) <= curve[0].max()
        soft = [results[f"soft (λ = 5): {kind}"] for kind in ("probabilistic, exact", "single best")]
        blend, single = (
            float(recall) - 5 * min(0.0, float(other) - found["threshold"]) ** 2 for recall, other, _ in soft
        )
        assert blend >= single - 2e-3
        (course,) = rows_of(document, f"{name}: f of the answer")
        assert len(course["highest"]) == 3


def check_content(document: dict[str, Any]) -> None:
    assert all(value > 0.5 for kind, value in document["data"]["quality"].items() if kind != "watch")
    assert document["data"]["quality"]["watch"] > 0.1
    for aim in document["data"]["aims"].values():
        assert sum(aim["probabilities"]) == pytest.approx(1.0)
    for table in rows_of(document, "Table 3"):
        assert number(table["probabilistic, exact"][0]) >= number(table["single best"][0]) - 0.5
        assert number(table["probabilistic, exact"][1]) > -3
        assert "the paper: probabilistic" in table


def check_ads(document: dict[str, Any]) -> None:
    for (name, found), guardrails in zip(document["data"].items(), (LOG_GUARDRAILS, WORLD_GUARDRAILS), strict=True):
        shares = np.array(found["probabilities"])
        assert shares.sum() == pytest.approx(1.0)
        for metric, least in guardrails.items():
            assert np.array(found["lifts"][metric]) @ shares >= least - 1e-6
        (lifts,) = rows_of(document, f"{name}: lift over the baseline")
        assert number(lifts["probabilistic, exact"][0]) >= number(lifts["single best"][0])
        assert number(lifts["probabilistic, exact"][0]) > 0


def check_continuous(document: dict[str, Any]) -> None:
    assert len(document["tables"]) == 2
    for table in rows_of(document, ""):
        assert number(table["best blend of the grid"][-1]) >= number(table["best single point of the grid"][-1]) - 1e-4
        assert np.isfinite(number(table["the space itself: mean"][-1]))


CHECKS = {
    "movielens": lambda document: check_two_goals(document, ("R@20", "R-D@20")),
    "amazon": lambda document: check_two_goals(document, ("R@20", "REV@20")),
    "content": check_content,
    "ads": check_ads,
    "continuous": check_continuous,
}


def test_a_command_leads_from_real_files_to_tables_and_figures(
    real_experiment: str, real_data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results"
    words = ["paper", real_experiment, "--quick", "--runs", 2, "--rounds", 20, "--data", real_data, "--out", out]
    result = CliRunner().invoke(main, [str(word) for word in (*words, "--cache", tmp_path / "cache")])
    assert result.exit_code == 0, result.stderr
    document = json.loads((out / f"{real_experiment}.json").read_text(encoding="utf-8"))
    page = (out / f"{real_experiment}.md").read_text(encoding="utf-8")
    for table in document["tables"]:
        assert f"## {table['title']}" in page
        assert table["rows"]
        assert all(len(row) == len(table["header"]) for row in table["rows"])
    assert document["figures"]
    for figure in document["figures"]:
        assert (out / f"{figure}.png").stat().st_size > 10_000
        assert (out / f"{figure}.svg").exists()
    assert f"`pasto paper {real_experiment}`" in (out / "index.md").read_text(encoding="utf-8")
    assert all(claim["measured"] for claim in document["claims"])
    CHECKS[real_experiment](document)
