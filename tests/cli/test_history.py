"""`pasto history`: a table of earlier results from a log."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(7)
    served = rng.choice(2, p=[0.8, 0.2], size=2000).tolist()
    lines = [f"{'ab'[k]},{k},{(0.8, 0.2)[k]},{rng.poisson(1.0 + k)}" for k in served]
    Path("log.csv").write_text("\n".join(["candidate,weight,p,clicks", *lines]), encoding="utf-8")
    return "log.csv"


def test_a_table_goes_to_stdout(run: Any, log: str) -> None:
    done = run("history", "estimate", log, "--metric", "clicks", "--propensity", "p")
    assert done.exit_code == 0, done.stderr
    rows = {row["candidate"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert abs(float(rows["a"]["clicks"]) - 1.0) < 0.15
    assert abs(float(rows["b"]["clicks"]) - 2.0) < 0.3
    assert set(rows["a"]) == {"candidate", "units", "clicks", "clicks_se"}


def test_settings_may_be_parameters_and_the_output_json(run: Any, log: str) -> None:
    words = ("--metric", "clicks", "--propensity", "p", "--parameter", "weight", "--method", "ips", "--json")
    done = run("history", "estimate", log, *words)
    assert [row["weight"] for row in json.loads(done.stdout)] in ([0, 1], [1, 0])


def test_a_log_without_propensities_is_refused(run: Any, log: str) -> None:
    refused = run("history", "estimate", log, "--metric", "clicks")
    assert refused.exit_code == 2
    assert "the log has no column 'propensity'" in refused.stderr


def test_a_name_that_a_spreadsheet_would_compute_is_refused(run: Any, log: str) -> None:
    text = Path(log).read_text(encoding="utf-8").replace("\na,", "\n=1+2,")
    Path(log).write_text(text, encoding="utf-8")
    words = ("history", "estimate", log, "--metric", "clicks", "--propensity", "p")
    refused = run(*words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "candidate '=1+2' would be a formula in a spreadsheet" in refused.stderr
    assert run(*words, "--json").exit_code == 0
