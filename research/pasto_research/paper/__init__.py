"""Reproduction of the paper: its figures, tables and theorems, one file each.

A new experiment is a new file and one line in `EXPERIMENTS`.
"""

from __future__ import annotations

from pathlib import Path

from pasto.errors import InputError, OptionError
from pasto.sim import Progress
from pasto_research.paper import (
    ads_quotas,
    continuous,
    figure2_blend,
    figure3_two_arms,
    figure4_random,
    table2_amazon,
    table2_movielens,
    table3_content,
    theorem1_convergence,
    theorem2_regret,
)
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.output import outcome_document, write, write_index

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        figure2_blend.EXPERIMENT,
        figure3_two_arms.EXPERIMENT,
        figure4_random.EXPERIMENT,
        theorem1_convergence.EXPERIMENT,
        theorem2_regret.EXPERIMENT,
        table2_movielens.EXPERIMENT,
        table2_amazon.EXPERIMENT,
        table3_content.EXPERIMENT,
        ads_quotas.EXPERIMENT,
        continuous.EXPERIMENT,
    )
}


def run(
    name: str,
    *,
    runs: int | None = None,
    rounds: int | None = None,
    seed: int = 1,
    quick: bool = False,
    progress: Progress | None = None,
    data: str | Path | None = None,
    cache: str | Path | None = None,
) -> Outcome:
    """Run an experiment by its name, at its default size unless `runs` or `rounds` are given.

    Experiments on real data need `data`, the directory with the data sets. Trained models are stored in `cache`, if it
    is given.

    >>> outcome = run("toy-a", runs=20, rounds=100)
    >>> outcome.settings["runs"], outcome.claims[0].holds is None
    (20, True)
    """
    if name not in EXPERIMENTS:
        raise OptionError(f"no experiment is called {name!r}; there are {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    for option, value in {"runs": runs, "rounds": rounds}.items():
        if value is not None and value < 1:
            raise OptionError(f"{option} must be at least 1, got {value}")
    if experiment.needs and data is None:
        raise OptionError(f"{name} needs {experiment.needs}; name the directory that holds it with --data (or data=)")
    if data is not None and not Path(data).exists():
        raise InputError(f"there is no directory {str(data)!r}")
    usual = (experiment.quick_runs, experiment.quick_rounds) if quick else (experiment.runs, experiment.rounds)
    return experiment.run(
        Size(
            runs=usual[0] if runs is None else runs,
            rounds=usual[1] if rounds is None else rounds,
            seed=seed,
            quick=quick,
            progress=progress,
            data=None if data is None else Path(data),
            cache=None if cache is None else Path(cache),
        )
    )


__all__ = [
    "EXPERIMENTS",
    "Claim",
    "Experiment",
    "Outcome",
    "Size",
    "Table",
    "outcome_document",
    "run",
    "write",
    "write_index",
]
