"""Runs of a study in a simulated world, one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pasto.optimize import solve
from pasto.optimize.learners import Learner
from pasto.sim import Progress, Trace, World
from pasto.sim.draws import stream
from pasto.study import Study


def run_studies(
    learner: Learner[Any],
    world: World | Callable[[np.random.Generator], World],
    *,
    runs: int,
    rounds: int,
    parallel: int,
    seed: int,
    checkpoints: list[int],
    progress: Progress,
    label: str,
) -> Trace:
    """A study in each run that asks, and is told what was measured with its standard errors.

    The worlds are those that `monte_carlo` makes of the same seed. f does not charge for hard guardrails; where there
    are any, the measure `held` says whether the answer truly meets them. Where no blend does, the optimum is NaN, and
    where no single candidate does, the best single one is.
    """
    shape = (runs, len(checkpoints))
    answer, served, held = np.empty(shape), np.empty(shape), np.empty(shape)
    shares: list[tuple[float, ...]] = []
    optimum, single = np.full(runs, np.nan), np.full(runs, np.nan)
    for run in range(runs):
        place = world if isinstance(world, World) else world(stream(seed, run, "truth"))
        form, noise = place.objective.form(), stream(seed, run, "noise")
        errors = np.broadcast_to(place.noise, place.truth.shape).T
        study_seed = int(stream(seed, run, "choice").integers(2**63))
        study = Study(place.candidates, place.objective, learner=learner, seed=study_seed)
        for done in range(1, rounds + 1):
            policy = np.array(study.policy.probabilities)
            assignments = study.ask(parallel)
            chosen = [assignment.candidate for assignment in assignments]
            study.tell(assignments, place.draw(chosen, noise), errors=errors[chosen])
            progress(label, run * rounds + done, runs * rounds)
            if done in checkpoints:
                spot = run, checkpoints.index(done)
                blended = place.truth @ np.array(study.blend().probabilities)
                answer[spot] = form.smooth(blended)
                held[spot] = form.met(blended, form.tolerances(place.truth))
                served[spot] = form.smooth(place.truth @ policy)
        shares.append(study.blend().probabilities)
        exact = solve(place.objective.by_metric(place.truth), place.objective, names=place.names)
        if exact.feasible:
            optimum[run] = exact.value
        if exact.single_value is not None:
            single[run] = exact.single_value
    return Trace(
        learner=learner.name,
        parallel=parallel,
        seed=seed,
        checkpoints=np.array(checkpoints, dtype=np.intp),
        answer=answer,
        served=served,
        probabilities=np.array(shares),
        optimum=optimum,
        single=single,
        measures={"held": held} if form.hard.any() else {},
    )
