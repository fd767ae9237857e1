"""History from a log: tables, errors, and a study that starts from it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pasto
from pasto.errors import HistoryError, OptionError, PastoWarning

MEANS = {0: 1.0, 1: 1.6, 2: 1.2}


@pytest.fixture
def log() -> pd.DataFrame:
    """Return a log of a policy that serves weight 0 most, and weight 1 rarely."""
    rng = np.random.default_rng(7)
    shares = np.array([0.8, 0.05, 0.15])
    weights = rng.choice(3, p=shares, size=6000)
    return pd.DataFrame(
        {
            "weight": weights,
            "propensity": shares[weights],
            "clicks": rng.poisson([MEANS[weight] for weight in weights.tolist()]),
            "country": rng.choice(["de", "fr"], size=6000),
            "age": rng.normal(40, 10, size=6000),
            "user": np.arange(6000) // 2,
        }
    )


@pytest.mark.parametrize("method", ["ips", "snips", "dr"])
def test_a_study_starts_from_a_log(log: pd.DataFrame, method: Any) -> None:
    features = ["country", "age"] if method == "dr" else []
    history = pasto.history_from_log(
        log, ["clicks"], candidate=["weight"], method=method, features=features, unit="user"
    )
    for row in history.to_rows():
        assert abs(row["clicks"] - MEANS[row["weight"]]) < 4 * row["clicks_se"]
        assert row["clicks_se"] < 0.2
    study = pasto.Study(pasto.grid(weight=[0, 1, 2, 3]), pasto.maximize("clicks"), seed=7, history=history)
    assert study.history is not None
    assert study.history.listed == 3
    assert np.argmax(study.policy.probabilities) == 1


def test_names_come_from_the_column_of_candidates(log: pd.DataFrame) -> None:
    log["candidate"] = [f"w{weight}" for weight in log["weight"]]
    rows = pasto.history_from_log(log, ["clicks"]).to_rows()
    assert sorted(row["candidate"] for row in rows) == ["w0", "w1", "w2"]


def test_a_rare_candidate_is_left_out_with_a_note(log: pd.DataFrame) -> None:
    log.loc[0, ["weight", "propensity"]] = [9, 0.01]
    with pytest.warns(PastoWarning, match=r"effective units are left out: 9 \(1\.0\)$"):
        history = pasto.history_from_log(log, ["clicks"], candidate=["weight"])
    assert len(history.rows) == 3


def test_propensities_of_another_candidate_are_noticed(log: pd.DataFrame) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pasto.history_from_log(log, ["clicks"], candidate=["weight"])
    log["propensity"] = 0.5
    with pytest.warns(PastoWarning, match=r"the propensities of \d do not add up: 1/propensity of its rows"):
        pasto.history_from_log(log, ["clicks"], candidate=["weight"])


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.5, float("nan"), None])
def test_rows_without_a_propensity_are_refused(log: pd.DataFrame, bad: Any) -> None:
    log["propensity"] = [*log["propensity"][:-2], bad, 0.8]
    with pytest.raises(HistoryError, match=r"'propensity' must be the probability .* row 5999, and 1 of 6,000 rows"):
        pasto.history_from_log(log, ["clicks"], candidate=["weight"])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"metrics": ["reads"]}, "the log has no column 'reads'; its columns are 'weight'"),
        ({}, {"propensity": "p"}, "the log has no column 'p'"),
        ({"clicks": None}, {}, "the column 'clicks' of the log must be numbers, got nan in row 1; write 0"),
        ({"country": None}, {"unit": "country"}, "the column 'country' of the log has None in row 1"),
        ({"country": "text"}, {"method": "dr", "features": ["country"]}, "'country' has 6,000 different texts"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused(
    log: pd.DataFrame, change: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    for column, value in change.items():
        values = [str(row) for row in range(6000)] if value == "text" else [value, *log[column][1:]]
        log[column] = values
    given = {"metrics": ["clicks"], "candidate": ["weight"], **options}
    with pytest.raises(HistoryError, match=message):
        pasto.history_from_log(log, **given)


def test_options_that_do_not_fit_are_refused(log: pd.DataFrame) -> None:
    with pytest.raises(OptionError, match="method must be 'ips', 'snips' or 'dr', got 'drr'"):
        pasto.history_from_log(log, ["clicks"], candidate=["weight"], method="drr")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="method='dr' needs features="):
        pasto.history_from_log(log, ["clicks"], candidate=["weight"], method="dr")
    with pytest.raises(OptionError, match="features= are for method='dr', got method='snips'"):
        pasto.history_from_log(log, ["clicks"], candidate=["weight"], features=["age"])
    with pytest.raises(OptionError, match="metrics must be a list of columns"):
        pasto.history_from_log(log, "clicks", candidate=["weight"])
