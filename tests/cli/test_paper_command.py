from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pasto.errors import InputError
from pasto.report import figures
from pasto_research.paper import EXPERIMENTS, Claim, Experiment, Outcome, Size, Table


def tiny(size: Size) -> Outcome:
    """Return an outcome with the options of the call."""
    if size.progress is not None:
        size.progress("tiny", 1, 1)
    return Outcome(
        name="tiny",
        title="A tiny experiment",
        settings={"runs": size.runs, "rounds": size.rounds, "seed": size.seed, "quick": size.quick},
        claims=(
            Claim("Blends win", paper="always", measured="9 of 10", holds=True),
            Claim("Nothing is lost", paper="never", measured="1 of 10", holds=False, note="by chance"),
            Claim("Something else", paper="", measured="7", holds=None),
        ),
        tables=(
            Table("Numbers", ("who", "f", "n", "r"), (("we", 0.123456789, 12345, "9%"), ("they", None, 1, "-15%"))),
        ),
        data={"curve": [1.0, float("nan")]},
        figures={"tiny": lambda: figures.new_figure()[0]},
    )


@pytest.fixture(autouse=True)
def tiny_experiment() -> Iterator[None]:
    EXPERIMENTS["tiny"] = Experiment("tiny", "Nothing much", 100, 1_000, 10, 100, tiny)
    yield
    del EXPERIMENTS["tiny"]


@pytest.mark.parametrize("words", [(), ("list",)])
def test_the_experiments_are_listed(run: Any, words: tuple[str, ...]) -> None:
    result = run("paper", *words)
    assert result.exit_code == 0
    for name, experiment in EXPERIMENTS.items():
        assert name in result.stdout
        assert experiment.summary in result.stdout
    assert {entry["name"] for entry in json.loads(run("paper", *words, "--json").stdout)} == set(EXPERIMENTS)


def test_help_lists_them_too(run: Any) -> None:
    outcome = run("paper", "--help").stdout
    assert all(f"  {name}" in outcome for name in EXPERIMENTS)


def test_claims_and_tables_are_printed(run: Any) -> None:
    result = run("paper", "tiny")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "A tiny experiment",
        "runs 100, rounds 1000, seed 1, quick False",
        "",
        "Blends win: holds",
        "  paper: always",
        "  measured: 9 of 10",
        "",
        "Nothing is lost: does not hold",
        "  paper: never",
        "  measured: 1 of 10",
        "  note: by chance",
        "",
        "Something else: measured only",
        "  measured: 7",
        "",
        "Numbers",
        "who         f       n     r",
        "we    0.12346  12,345    9%",
        "they                1  -15%",
        "",
    ]


def test_sizes_reach_the_experiment(run: Any) -> None:
    quick = json.loads(run("paper", "tiny", "--quick", "--seed", 7, "--json").stdout)
    assert quick["settings"] == {"runs": 10, "rounds": 100, "seed": 7, "quick": True}
    assert quick["data"] == {"curve": [1.0, None]}
    given = json.loads(run("paper", "tiny", "--runs", 3, "--rounds", 4, "--json").stdout)
    assert given["settings"] == {"runs": 3, "rounds": 4, "seed": 1, "quick": False}


def test_out_writes_figures_and_numbers(run: Any, tmp_path: Path) -> None:
    result = run("paper", "tiny", "--out", tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "index.md",
        "tiny.json",
        "tiny.md",
        "tiny.png",
        "tiny.svg",
    ]
    assert result.stderr.count("wrote ") == 5
    assert "wrote" not in result.stdout


def test_where_nothing_can_be_written_nothing_is_run(run: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("paper", "tiny", "--out", tmp_path / "file" / "under")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cannot write to" in result.stderr


def test_all_runs_every_experiment(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one = EXPERIMENTS["tiny"]
    for name in EXPERIMENTS:
        monkeypatch.setitem(EXPERIMENTS, name, one)
    assert len(json.loads(run("paper", "all", "--json").stdout)) == len(EXPERIMENTS)
    assert run("paper", "all").stdout.count("A tiny experiment") == len(EXPERIMENTS)


def test_experiments_that_lack_their_data_are_left_out_of_all_and_refused_by_name(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Size] = []

    def record(size: Size) -> Outcome:
        calls.append(size)
        return tiny(size)

    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    EXPERIMENTS["tiny"] = Experiment("tiny", "Nothing much", 100, 1_000, 10, 100, tiny)
    EXPERIMENTS["real"] = Experiment("real", "On data", 100, 1_000, 10, 100, record, needs="a census")
    result = run("paper", "all")
    assert result.stdout.count("A tiny experiment") == 1
    assert result.stderr == "left out, because they need --data: real\n"
    rejected = run("paper", "real")
    assert (rejected.exit_code, calls) == (2, [])
    assert "real needs a census; name the directory that holds it with --data" in rejected.stderr
    assert run("paper", "all", "--data", tmp_path, "--cache", tmp_path / "kept").exit_code == 0
    assert [(size.data, size.cache) for size in calls] == [(tmp_path, tmp_path / "kept")]
    del EXPERIMENTS["real"]


def test_data_that_is_not_there_leaves_an_experiment_out_of_all(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(size: Size) -> Outcome:
        raise InputError(f"{size.data} holds no census")

    for name in list(EXPERIMENTS):
        monkeypatch.delitem(EXPERIMENTS, name)
    EXPERIMENTS["real"] = Experiment("real", "On data", 100, 1_000, 10, 100, refuse, needs="a census")
    EXPERIMENTS["tiny"] = Experiment("tiny", "Nothing much", 100, 1_000, 10, 100, tiny)
    result = run("paper", "all", "--data", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.count("A tiny experiment") == 1
    assert result.stderr == f"left out real: {tmp_path} holds no census\n"
    assert run("paper", "real", "--data", tmp_path).exit_code == 2
    del EXPERIMENTS["real"]


def test_the_index_leads_from_claims_to_tables_and_figures(run: Any, tmp_path: Path) -> None:
    run("paper", "tiny", "--out", tmp_path)
    page = (tmp_path / "index.md").read_text(encoding="utf-8")
    outcome = "[tables](tiny.md), [numbers](tiny.json) | [tiny](tiny.png)"
    assert f"| [Nothing much](#a-tiny-experiment) | `pasto paper tiny` | 1 of 2 | {outcome} |" in page
    assert "| Figure 3 | `pasto paper toy-a` | not run |  |  |" in page
    assert "| Nothing is lost | never | 1 of 10 | does not hold |" in page
    assert "- [Numbers](tiny.md#numbers)" in page
    assert "\n## Numbers\n" in (tmp_path / "tiny.md").read_text(encoding="utf-8")
    assert page.endswith("![tiny](tiny.png)\n")


def test_an_unknown_experiment_is_refused(run: Any) -> None:
    result = run("paper", "figure-9")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: no experiment is called 'figure-9'; there are ")


def test_a_real_experiment_runs(run: Any) -> None:
    outcome = json.loads(run("paper", "toy-a", "--runs", 5, "--rounds", 20, "--json").stdout)
    assert outcome["settings"]["runs"] == 5
    assert outcome["claims"]
