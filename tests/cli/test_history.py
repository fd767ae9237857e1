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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "dr"), "--method dr needs --feature"),
        (("--feature", "weight"), "--feature is for --method dr, got --method snips"),
    ],
)
def test_features_and_method_must_agree(run: Any, log: str, words: tuple[str, ...], message: str) -> None:
    refused = run("history", "estimate", log, "--metric", "clicks", "--propensity", "p", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert message in refused.stderr


def test_a_table_has_no_rounding_errors(run: Any, tmp_path: Path) -> None:
    rows = "\n".join(["candidate,propensity,clicks", *(f"a,0.1,{n % 3}" for n in range(30))])
    (tmp_path / "thirds.csv").write_text(rows, encoding="utf-8")
    done = run("history", "estimate", str(tmp_path / "thirds.csv"), "--metric", "clicks")
    row = next(csv.DictReader(io.StringIO(done.stdout)))
    assert (row["units"], row["clicks"]) == ("30", "1")
    assert len(row["clicks_se"]) <= len("0.123456789012")


def test_a_column_of_numbers_instead_of_candidates_is_named_once(run: Any, tmp_path: Path) -> None:
    rows = [f"{n},1,0" for n in range(20)] + ["99,1,0"] * 20
    (tmp_path / "log.csv").write_text("\n".join(["user,propensity,clicks", *rows]), encoding="utf-8")
    words = ("history", "estimate", str(tmp_path / "log.csv"), "--metric", "clicks", "--parameter", "user")
    note = next(line for line in run(*words).stderr.splitlines() if "left out" in line)
    assert note.endswith("effective units are left out: 0 (1.0), 1 (1.0), 2 (1.0), 3 (1.0), 4 (1.0) and 15 more")
