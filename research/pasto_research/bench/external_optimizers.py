"""Adapters of two other optimizers, Optuna and Ax; `pip install './research[peers]'` in a clone installs them.

Both look for one best setting, so each answers with a single candidate. They are loaded when a race starts, not before.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from pasto.arrays import FloatArray
from pasto.sim import World
from pasto_research.bench.learner_adapters import LearnerAdapter, Places, SweepAdapter, Tally
from pasto_research.bench.worlds import WorldFamily

SAMPLES = 1_000
"""Ax's posterior draws a round: they settle shares to a thousandth, and ten draws of a round need no more."""


class Optuna(Tally):
    """A tree-structured Parzen estimator over the candidates; answers with the best trial's.

    Either f(û) of each measurement is its objective, or the goal is, with the guardrails as constraints. A place
    on a line is suggested as an integer, a mere name as a category.
    """

    def __init__(self, world: World, seed: int, *, ordered: bool = False, constrained: bool = False) -> None:
        super().__init__(world, seed)
        self.ordered, self.constrained = ordered, constrained
        with _quiet():
            import optuna

            self.study: Any = optuna.create_study(
                direction="maximize", sampler=optuna.samplers.TPESampler(seed=int(self.rng.integers(2**31)))
            )
        self.trials: list[Any] = []

    def ask(self, parallel: int) -> Places:
        """Return as many open trials as there are slots."""
        with _quiet():
            self.trials = [self.study.ask() for _ in range(parallel)]
            chosen = np.array([self._suggested(trial) for trial in self.trials], dtype=np.intp)
        self.now = np.bincount(chosen, minlength=len(self.counts)) / parallel
        return chosen

    def _suggested(self, trial: Any) -> int:
        count = len(self.counts)
        if self.ordered:
            return int(trial.suggest_int("candidate", 0, count - 1))
        return int(trial.suggest_categorical("candidate", range(count)))

    def tell(self, candidates: Places, metrics: FloatArray) -> None:
        """Close the trials; Optuna has no place for a standard error."""
        super().tell(candidates, metrics)
        values = self.form.goal.value(metrics) if self.constrained else self.form.value(metrics)
        with _quiet():
            for trial, value, slack in zip(self.trials, values, self.form.slack(metrics), strict=True):
                if self.constrained:
                    for name, left in zip(self.form.names, slack, strict=True):
                        trial.set_constraint(name, -float(left))
                self.study.tell(trial, float(value))

    def answer(self) -> FloatArray:
        """Return the best trial's candidate, or the one closest to the guardrails if every trial missed one."""
        with _quiet():
            try:
                best = self.study.best_trial
            except ValueError:  # Optuna names no best trial before one meets all its constraints
                best = min(self.study.get_trials(deepcopy=False), key=_missed)
        return _alone(best.params["candidate"], len(self.counts))


class Ax(SweepAdapter):
    """Ax's bandit for discrete choices, with standard errors and thresholds; it answers with the most likely winner.

    Every candidate once, then empirical-Bayes Thompson sampling: a candidate's share is the probability that it is the
    best of those that meet all thresholds.
    """

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, seed)
        self.metrics = ["goal", *(f"slack_{place}" for place in range(len(self.form.at)))]
        with _quiet():
            self.experiment = _experiment(self.metrics, len(self.counts))

    def ask(self, parallel: int) -> Places:
        """Return draws from Ax's shares; a sweep until all are measured, or if Ax finds none feasible."""
        even = np.full(len(self.counts), 1.0 / len(self.counts))
        shares = self._shares() if self.counts.all() else None
        self.now = even if shares is None else shares
        return super().ask(parallel) if shares is None else self.drawn(parallel)

    def answer(self) -> FloatArray:
        """Return the candidate of the largest share or, without shares, of the best f; hard guardrails come first."""
        shares = self._shares()
        if shares is not None:
            return _alone(int(np.argmax(shares)), len(shares))
        measured = np.flatnonzero(self.counts)
        means = (self.sums[:, measured] / self.counts[measured]).T
        hard = np.minimum(0.0, self.form.slack(means)[:, self.form.hard]).sum(axis=1)
        return _alone(int(measured[np.lexsort((self.form.smooth(means), hard))[-1]]), len(self.counts))

    def _shares(self) -> FloatArray | None:
        """Return each candidate's probability to be the best feasible one; None if Ax calls all of them infeasible."""
        from ax.adapter.registry import Generators
        from ax.exceptions.model import ModelError
        from ax.utils.common.random import with_rng_seed

        shares = np.zeros(len(self.counts))
        with _quiet(), with_rng_seed(int(self.rng.integers(2**31))):
            sampler = Generators.EMPIRICAL_BAYES_THOMPSON(
                experiment=self.experiment, data=self._data(), num_samples=SAMPLES, min_weight=0.0
            )
            try:
                run = sampler.gen(n=len(shares))
            except ModelError:
                return None
        for arm, weight in run.arm_weights.items():
            shares[arm.parameters["candidate"]] = weight
        return np.asarray(shares / shares.sum())

    def _data(self) -> Any:
        """Return each seen candidate's mean goal and slacks, with standard errors."""
        from ax.core.data import Data, DataRow

        measured = np.flatnonzero(self.counts)
        means = (self.sums[:, measured] / self.counts[measured]).T
        variances = (self.noise[:, measured] ** 2 / self.counts[measured]).T
        values = np.column_stack([self.form.goal.value(means), self.form.slack(means)])
        slopes = self.form.goal.gradient(means) ** 2
        errors = np.sqrt(np.column_stack([(slopes * variances).sum(axis=1), variances @ (self.form.rows**2).T]))
        return Data(
            data_rows=[
                DataRow(0, f"candidate_{place}", metric, metric, float(value), float(error))
                for place, row, spread in zip(measured, values, errors, strict=True)
                for metric, value, error in zip(self.metrics, row, spread, strict=True)
            ]
        )


def _experiment(metrics: list[str], count: int) -> Any:
    """Return one running batch of all candidates: maximise the first metric, keep the others at zero or above."""
    from ax.core.arm import Arm
    from ax.core.experiment import Experiment
    from ax.core.metric import Metric
    from ax.core.objective import Objective
    from ax.core.optimization_config import OptimizationConfig
    from ax.core.outcome_constraint import OutcomeConstraint
    from ax.core.parameter import ChoiceParameter, ParameterType
    from ax.core.search_space import SearchSpace

    goal, *slacks = metrics
    choice = ChoiceParameter(
        "candidate", ParameterType.INT, list(range(count)),
        is_ordered=False, sort_values=False, bypass_cardinality_check=True,
    )  # fmt: skip
    experiment = Experiment(
        SearchSpace([choice]),
        name="race",
        tracking_metrics=[Metric(name) for name in metrics],
        optimization_config=OptimizationConfig(
            Objective(goal, metric_name_to_signature={goal: goal}),
            [OutcomeConstraint(f"{name} >= 0", metric_name_to_signature={name: name}) for name in slacks],
        ),
    )
    batch = experiment.new_batch_trial()
    batch.add_arms_and_weights([Arm({"candidate": place}, name=f"candidate_{place}") for place in range(count)])
    batch.mark_running(no_runner_required=True)
    return experiment


def _missed(trial: Any) -> float:
    return float(sum(max(0.0, value) for value in trial.constraints.values()))


def _alone(place: int, count: int) -> FloatArray:
    return np.asarray(np.arange(count) == place, dtype=float)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress log lines and warnings of other libraries during a progress bar."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


PEERS: dict[str, dict[str, Callable[[World, WorldFamily, int], LearnerAdapter]]] = {
    "optuna": {
        "Optuna on f(û)": lambda world, setting, seed: Optuna(world, seed, ordered=setting.candidates is not None),
        "Optuna with constraints": lambda world, setting, seed: Optuna(
            world, seed, ordered=setting.candidates is not None, constrained=True
        ),
    },
    "ax": {"Ax, Thompson sampling": lambda world, _, seed: Ax(world, seed)},
}
"""Players by the module that they need."""


def installed() -> dict[str, Callable[[World, WorldFamily, int], LearnerAdapter]]:
    """Return the adapters whose module can be imported, without importing it.

    >>> set(installed()) <= {"Optuna on f(û)", "Optuna with constraints", "Ax, Thompson sampling"}
    True
    """
    return {name: make for module, players in PEERS.items() if find_spec(module) for name, make in players.items()}
