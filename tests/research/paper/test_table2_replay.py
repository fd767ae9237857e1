"""Experiment of Table 2 on small generated files, with replacements for models, because training needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from pasto.errors import OptionError
from pasto_research import paper
from pasto_research.paper import table2_replay
from pasto_research.paper.models.mult_vae import Autoencoder, MultVaeSettings, TrainingResult
from pasto_research.paper.output import outcome_document
from pasto_research.paper.table2_replay import Table2Replay, objective

ITEMS = 60


def write_movies(place: Path) -> None:
    """Write ratings of 120 users who rate half of 60 movies, the last third of which are documentaries."""
    rng = np.random.default_rng(1)
    with (place / "ratings.csv").open("w") as file:
        file.write("userId,movieId,rating,timestamp\n")
        for user in range(1, 121):
            for movie in rng.permutation(ITEMS)[: ITEMS // 2] + 1:
                file.write(f"{user},{movie},{rng.integers(2, 11) / 2},1112486027\n")
    with (place / "movies.csv").open("w") as file:
        file.write("movieId,title,genres\n")
        for movie in range(1, ITEMS + 1):
            file.write(f"{movie},Title {movie},{'Documentary' if movie > 2 * ITEMS // 3 else 'Drama'}\n")


def write_shop(place: Path) -> None:
    place.mkdir()
    rng = np.random.default_rng(2)
    pairs = [f"{user} {item + 1}\n" for user in range(1, 121) for item in rng.permutation(40)[:15]]
    (place / "Toys.txt").write_text("".join(pairs))
    prices = "".join(f"{item}\t{item / 2 + 1}\n" for item in range(1, 41))
    (place / "item_description.tsv").write_text(f"item_id:token\tprice:float\n{prices}")


def stand_in(known: csr_array, wanted: csr_array, settings: MultVaeSettings, **_: Any) -> TrainingResult:
    """Score every user alike, by the weights that a model would learn, with a little noise."""
    weights = np.asarray(wanted.sum(axis=0)).ravel()
    blank = Autoencoder.empty(known.shape[1], settings.hidden).arrays()
    noise = np.random.default_rng(3).normal(0.0, 0.05, len(weights))
    blank["out_bias"] = (np.log(weights + 0.5) + noise).astype(np.float32)
    return TrainingResult(Autoencoder(**blank), (0.1, 0.2), True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("movies")
    write_movies(where)
    return where


@pytest.fixture(scope="module")
def outcome(place: Path) -> paper.Outcome:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table2_replay, "train", stand_in)
        return paper.run("movielens", quick=True, runs=2, rounds=4, data=place, cache=place / "cache")


def test_the_tables_of_the_paper_are_built_for_movies(outcome: paper.Outcome, tmp_path: Path) -> None:
    titles = [table.title for table in outcome.tables]
    assert titles[0] == "Table 1: the data as prepared"
    assert outcome.tables[0].rows[0][:4] == ("the paper: MovieLens-20M", 132_580, 8_936, 6_316_389)
    (results,) = [table for table in outcome.tables if table.title.startswith("Table 2")]
    solutions = [row[0] for row in results.rows]
    assert "soft (λ = 5): probabilistic, Algorithm 1" in solutions
    assert "hard: probabilistic, default learner" in solutions
    assert "the paper, MovieLens-20M: single best" in solutions
    (sanity,) = [table for table in outcome.tables if "the models and simpler ones" in table.title]
    assert [row[0] for row in sanity.rows][:2] == ["popularity", "EASE"]
    json.dumps(outcome_document(outcome), allow_nan=False)
    names = {path.name for path in paper.write(outcome, tmp_path / "out")}
    assert {"movielens.md", "movielens.png", "movielens-learning.svg"} <= names


def test_the_exact_blend_is_never_behind_the_single_candidate(outcome: paper.Outcome) -> None:
    (data,) = outcome.data.values()
    truth = np.array([data["curve"]["R@20"], data["curve"]["R-D@20"]])
    for soft in (True, False):
        wanted = objective(("R@20", "R-D@20"), data["threshold"], soft=soft)
        blend = truth @ np.array(data["soft" if soft else "hard"]["probabilities"])
        if soft:
            singles = np.asarray(wanted.value(truth.T))
            assert float(np.asarray(wanted.value(blend))) >= singles.max() - 1e-9
        else:
            assert blend[1] >= data["threshold"] - 1e-9
            assert blend[0] >= truth[0][truth[1] >= data["threshold"]].max() - 1e-9


def test_what_was_computed_is_found_again(outcome: paper.Outcome, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("computed twice")

    monkeypatch.setattr(table2_replay, "train", stand_in)
    monkeypatch.setattr(table2_replay, "mixed", never)
    monkeypatch.setattr(table2_replay, "_baselines", never)
    again = paper.run("movielens", quick=True, runs=1, rounds=1, data=place, cache=place / "cache")
    assert again.tables[:2] == outcome.tables[:2]
    assert outcome_document(again)["data"] == outcome_document(outcome)["data"]


def test_revenue_is_reported_for_a_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shop(tmp_path / "toys")
    monkeypatch.setattr(table2_replay, "train", stand_in)
    outcome = paper.run("amazon", quick=True, runs=1, rounds=2, data=tmp_path)
    (data,) = outcome.data.values()
    assert outcome.title.startswith("Table 2, Amazon: recall against revenue, on Amazon Toys")
    assert data["curve"]["REV@20"][0] > data["curve"]["REV@20"][-1]
    assert outcome.figures.keys() == {"amazon", "amazon-learning"}


def test_data_is_needed() -> None:
    with pytest.raises(
        OptionError, match=r"movielens needs MovieLens .*; name the directory that holds it with --data"
    ):
        paper.run("movielens")


def test_a_lead_and_its_error_are_means_over_users(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table2_replay, "train", stand_in)
    replays: list[Table2Replay] = []
    real = table2_replay.play

    def keep(*given: Any) -> Table2Replay:
        replays.append(real(*given))
        return replays[-1]

    monkeypatch.setattr("pasto_research.paper.table2_movielens.play", keep)
    paper.run("movielens", quick=True, runs=1, rounds=1, data=place)
    (played,) = replays
    lead, error = played.lead(played.soft)
    assert played.soft.best.best_single is not None
    blend = played.truth @ np.array(played.soft.best.probabilities)
    np.testing.assert_allclose(lead, blend - played.truth[:, played.soft.best.best_single], atol=1e-6)
    assert (error >= 0).all()
