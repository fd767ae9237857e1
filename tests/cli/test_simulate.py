from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto import Study
from pasto.sim import LearningTrace, example_a, monte_carlo
from pasto.sim.random_streams import stream

MEANS = "name,x,y\nbold,2,-2\ncareful,0,2\n"


@pytest.fixture
def means(tmp_path: Path) -> Path:
    place = tmp_path / "means.csv"
    place.write_text(MEANS)
    return place


def test_the_table_is_the_library_s_own_trace(run: Any) -> None:
    result = run(
        "simulate", "example-a", "--learner", "algorithm1", "--runs", 20, "--rounds", 40, "--seed", 3, "--json"
    )
    outcome = json.loads(result.stdout)
    trace = monte_carlo("algorithm1", example_a(), runs=20, rounds=40, seed=3, checkpoints=[1, 3, 10, 30, 40])
    assert outcome["rounds"] == [1, 3, 10, 30, 40]
    assert outcome["answer"] == trace.mean.tolist()
    assert (outcome["optimum"], outcome["best_single"]) == (pytest.approx(1.0125), 0.0)
    gap = outcome["answer"][-1] / 1.0125
    assert outcome["relative_gain"][-1] == pytest.approx(gap)


def test_people_get_a_table_with_what_was_possible(run: Any) -> None:
    result = run("simulate", "--learner", "algorithm1", "--runs", 5, "--rounds", 12)
    lines = result.stdout.splitlines()
    assert lines[0] == "algorithm1 in example-a: 5 runs of 12 rounds, 1 in parallel"
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


def test_the_default_learner_is_a_study_with_standard_errors(run: Any) -> None:
    words = ("simulate", "example-a", "--runs", 2, "--rounds", 10, "--parallel", 3, "--seed", 3, "--json")
    outcome = json.loads(run(*words).stdout)
    assert (outcome["learner"], outcome["settings"]["rounds"], outcome["held"]) == ("thompson", 10, None)
    world, answers = example_a(), []
    for number in range(2):
        noise = stream(3, number, "noise")
        study = Study(world.candidates, world.objective, seed=int(stream(3, number, "choice").integers(2**63)))
        for _ in range(10):
            calls = study.ask(3)
            study.tell(
                calls, world.draw([a.candidate for a in calls], noise), standard_errors=np.full((3, 2), np.sqrt(5))
            )
        answers.append(float(world.value(study.blend().probabilities)))
    assert outcome["answer"][-1] == pytest.approx(np.mean(answers))
    assert (outcome["optimum"], outcome["best_single"]) == (pytest.approx(1.0125), 0.0)


def test_every_learner_meets_the_same_worlds(run: Any) -> None:
    words = ("simulate", "synthetic-b", "--runs", 2, "--rounds", 2, "--json")
    default, other = (json.loads(run(*words, "--learner", name).stdout) for name in ("thompson", "scgd"))
    assert default["optimum"] == pytest.approx(other["optimum"])
    assert default["best_single"] == other["best_single"]


def test_hard_guardrails_are_held_and_counted(run: Any, means: Path) -> None:
    words = ("simulate", means, "--maximize", "x", "--keep", "y>=0", "--noise", 0.1, "--runs", 3, "--rounds", 20)
    outcome = json.loads(run(*words, "--json").stdout)
    assert outcome["held"][-1] == 1.0
    assert 0 < outcome["answer"][-1] <= outcome["optimum"] == pytest.approx(1.0)
    assert "hard guardrails held" in run(*words).stdout


def test_an_infeasible_world_is_reported(run: Any, means: Path) -> None:
    words = ("simulate", means, "--maximize", "x", "--runs", 1, "--rounds", 2)
    nothing = run(*words, "--keep", "y>=5")
    assert "No blend of these candidates meets every hard guardrail." in nothing.stdout
    assert json.loads(run(*words, "--keep", "y>=5", "--json").stdout)["optimum"] is None
    mixed = run(*words, "--keep", "y>=0", "--keep", "x>=0.5")
    assert "reaches f = 1, no single candidate meets every hard guardrail." in mixed.stdout
    assert "nan" not in mixed.stdout + nothing.stdout


def test_sizes_suit_the_learner(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def spy(*_: object, runs: int, rounds: int, **__: object) -> LearningTrace:
        calls.append((runs, rounds))
        return monte_carlo("algorithm1", example_a(), runs=2, rounds=2)

    monkeypatch.setattr("pasto.sim.runner.run_studies", spy)
    monkeypatch.setattr("pasto.sim.monte_carlo", spy)
    run("simulate")
    run("simulate", "--learner", "scgd")
    run("simulate", "--runs", 3, "--rounds", 4)
    assert calls == [(20, 100), (100, 1_000), (3, 4)]


def test_a_file_is_a_world(run: Any, means: Path) -> None:
    goal = ("--maximize", "x", "--keep", "y>=0,penalty=5")
    words = ("simulate", means, "--learner", "algorithm1", *goal, "--runs", 3, "--rounds", 30, "--json")
    default = json.loads(run(*words).stdout)
    assert default["optimum"] == pytest.approx(1.0125)
    # By default the noise is the deviation between candidates: 1 for x, 2 for y.
    assert json.loads(run(*words, "--noise", "x=1", "--noise", "y=2").stdout) == default
    assert json.loads(run(*words, "--noise", "1").stdout) != default
    steps = json.loads(run(*words, "--step-size", "0.01", "--exploration", "0.5").stdout)
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
        (("nothing.csv", "--maximize", "x"), "no world and no file is called 'nothing.csv'"),
        (
            ("nope",),
            "no file is called 'nope'; the worlds are example-a and synthetic-b, and a file of means needs --maximize",
        ),
        (("example-a", "--learner", "guess"), "no learner is called 'guess'"),
        (("example-a", "--maximize", "x"), "example-a has its own goal"),
        (("example-a", "--noise", "x=1"), "one --noise for all"),
        (("example-a", "--noise", "much"), "--noise must be a number"),
        (("example-a", "--noise", "-1"), "at least 0"),
        (("example-a", "--noise", "1", "--noise", "x=2"), "must be one number"),
        (("example-a", "--step-size", "0"), "--step-size must be a positive number"),
        (("example-a", "--exploration", "-1"), "floor is a share of traffic"),
        (("example-a", "--learner", "algorithm1", "--exploration", "-1"), "not negative"),
        (("example-a", "--learner", "thompson", "--step-size", "1"), "learner 'thompson' has no --step-size"),
        (("{means}", "--keep", "y>=0"), "no goal was given"),
        (("{means}", "--maximize", "x", "--keep", "y>=0", "--learner", "algorithm1"), "penalty="),
        (("{means}", "--maximize", "x", "--keep", "y>=-2%"), "baseline"),
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
