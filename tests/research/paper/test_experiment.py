from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pasto.errors import OptionError
from pasto.report import figures
from pasto_research import paper
from pasto_research.paper import EXPERIMENTS, Claim, Outcome, Size, Table


def test_experiments_are_found_by_the_name_typed() -> None:
    assert {"toy-a", "synthetic-b"} <= set(EXPERIMENTS)
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        assert experiment.summary
        assert "\n" not in experiment.summary
        assert experiment.quick_runs <= experiment.runs
        assert experiment.quick_rounds <= experiment.rounds


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Size(runs=1_000, rounds=10_000)),
        ({"quick": True}, Size(runs=300, rounds=10_000, quick=True)),
        ({"quick": True, "rounds": 5}, Size(runs=300, rounds=5, quick=True)),
        ({"runs": 3, "seed": 9}, Size(runs=3, rounds=10_000, seed=9)),
    ],
)
def test_sizes_are_the_experiments_own_by_default(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, int], expected: Size
) -> None:
    from dataclasses import replace

    asked: list[Size] = []

    def record(size: Size) -> Outcome:
        asked.append(size)
        return Outcome("toy-a", "title", settings={}, claims=(), tables=(), data={})

    monkeypatch.setitem(EXPERIMENTS, "toy-a", replace(EXPERIMENTS["toy-a"], run=record))
    paper.run("toy-a", **options)  # type: ignore[arg-type]  # a bool among the ints
    assert asked == [expected]


def test_unknown_names_and_sizes_are_refused() -> None:
    with pytest.raises(OptionError, match="no experiment is called 'toy'; there are"):
        paper.run("toy")
    with pytest.raises(OptionError, match="rounds must be at least 1, got 0"):
        paper.run("toy-a", rounds=0)


def test_an_outcome_is_written_as_json_png_and_svg(tmp_path: Path) -> None:
    outcome = Outcome(
        "toy-a",
        "Figure 3",
        settings={"runs": np.int64(3), "levels": (0.1, 0.5)},
        claims=(Claim("blend wins", "yes", "1 against 0", True),),
        tables=(Table("f", ("rounds", "f"), ((10, 0.5),)),),
        data={"mean": np.array([0.5, np.nan, np.inf]), "holds": np.True_, "inner": {"t": np.arange(2)}},
        figures={"toy-a": lambda: figures.new_figure()[0], "toy-a-more": lambda: figures.new_figure()[0]},
    )
    written = paper.write(outcome, tmp_path / "new" / "place")
    assert [path.name for path in written] == [
        "toy-a.json",
        "toy-a.md",
        "toy-a.png",
        "toy-a.svg",
        "toy-a-more.png",
        "toy-a-more.svg",
    ]
    assert all(path.stat().st_size for path in written)
    record = json.loads(written[0].read_text(encoding="utf-8"))
    assert record == {
        "name": "toy-a",
        "title": "Figure 3",
        "settings": {"runs": 3, "levels": [0.1, 0.5]},
        "claims": [{"what": "blend wins", "paper": "yes", "measured": "1 against 0", "holds": True, "note": ""}],
        "tables": [{"title": "f", "header": ["rounds", "f"], "rows": [[10, 0.5]]}],
        "data": {"mean": [0.5, None, None], "holds": True, "inner": {"t": [0, 1]}},
        "figures": ["toy-a", "toy-a-more"],
    }
