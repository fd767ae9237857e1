from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pasto.sim import example_a, monte_carlo

MEANS = "name,x,y\nbold,2,-2\ncareful,0,2\n"


@pytest.fixture
def means(tmp_path: Path) -> Path:
    place = tmp_path / "means.csv"
    place.write_text(MEANS)
    return place


def test_the_table_is_the_library_s_own_trace(run: Any) -> None:
    result = run("simulate", "example-a", "--runs", 20, "--rounds", 40, "--seed", 3, "--json")
    told = json.loads(result.stdout)
    trace = monte_carlo("pasto", example_a(), runs=20, rounds=40, seed=3, checkpoints=[1, 3, 10, 30, 40])
    assert told["rounds"] == [1, 3, 10, 30, 40]
    assert told["answer"] == trace.mean.tolist()
    assert (told["optimum"], told["best_single"]) == (pytest.approx(1.0125), 0.0)
    gap = told["answer"][-1] / 1.0125
    assert told["relative_gain"][-1] == pytest.approx(gap)


def test_people_get_a_table_with_what_was_possible(run: Any) -> None:
    result = run("simulate", "--runs", 5, "--rounds", 12)
    lines = result.stdout.splitlines()
    assert lines[0] == "pasto in example-a: 5 runs of 12 rounds, 1 in parallel"
    assert [line.split()[0] for line in lines[3:7]] == ["1", "3", "10", "12"]
    assert "The best blend reaches f = 1.0125, the best single candidate 0." in result.stdout
    assert result.stderr == ""


def test_the_same_seed_gives_the_same_numbers(run: Any) -> None:
    words = (
        "simulate",
        "synthetic-b",
        "--learner",
        "scgd",
        "--runs",
        2,
        "--rounds",
        5,
        "--parallel",
        4,
        "--noise",
        0.1,
    )
    assert run(*words).stdout == run(*words).stdout
    assert run(*words).stdout != run(*words, "--seed", 2).stdout


def test_a_file_is_a_world(run: Any, means: Path) -> None:
    words = ("simulate", means, "--maximize", "x", "--keep", "y>=0,penalty=5", "--runs", 3, "--rounds", 30, "--json")
    default = json.loads(run(*words).stdout)
    assert default["optimum"] == pytest.approx(1.0125)
    # By default the noise is the deviation between candidates: 1 for x, 2 for y.
    assert json.loads(run(*words, "--noise", "x=1", "--noise", "y=2").stdout) == default
    assert json.loads(run(*words, "--noise", "1").stdout) != default
    steps = json.loads(run(*words, "--step", "0.01", "--floor", "0.5").stdout)
    assert steps["answer"] != default["answer"]


def test_a_world_where_mixing_buys_nothing_has_no_relative_gain(run: Any, means: Path) -> None:
    words = ("simulate", means, "--maximize", "x", "--runs", 2, "--rounds", 5)
    assert "elative gain" not in run(*words).stdout
    assert json.loads(run(*words, "--json").stdout)["relative_gain"] is None


def test_one_run_has_no_error(run: Any) -> None:
    result = run("simulate", "--runs", 1, "--rounds", 3)
    assert "±" not in result.stdout
    assert "nan" not in result.stdout
    assert json.loads(run("simulate", "--runs", 1, "--rounds", 3, "--json").stdout)["error"] == [None, None]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.csv", "--maximize", "x"), "there is no file 'nothing.csv'"),
        (("example-a", "--learner", "guess"), "no learner is called 'guess'"),
        (("example-a", "--maximize", "x"), "example-a has its own goal"),
        (("example-a", "--noise", "x=1"), "one --noise for all"),
        (("example-a", "--noise", "much"), "--noise takes a number"),
        (("example-a", "--noise", "-1"), "not negative"),
        (("example-a", "--noise", "1", "--noise", "x=2"), "either one number"),
        (("example-a", "--step", "0"), "--step must be a positive number"),
        (("example-a", "--floor", "-1"), "not negative"),
        (("example-a", "--learner", "thompson", "--step", "1"), "learner 'thompson' has no --step"),
        (("{means}", "--keep", "y>=0"), "no goal was given"),
        (("{means}", "--maximize", "x", "--keep", "y>=0"), "penalty="),
        (("{means}", "--maximize", "x", "--noise", "y=1"), "noise= lacks 'x'"),
        (("{means}", "--maximize", "z"), "lacks 'z'"),
    ],
)
def test_bad_input_is_refused_in_one_line(run: Any, means: Path, words: tuple[str, ...], message: str) -> None:
    result = run("simulate", *(word.format(means=means) for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--runs", "--rounds", "--parallel"])
def test_sizes_are_at_least_one(run: Any, option: str) -> None:
    result = run("simulate", option, 0)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr
