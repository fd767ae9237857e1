"""Appendix of the paper: strategic parameters from a continuous space, compared with a grid of it, on real data.

α between two models of movies, looked up on a fine grid, and three weights of a short-video feed, computed where asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pasto.arrays import FloatArray
from pasto.blend import Blend
from pasto.errors import OptionError
from pasto.objective import Objective, maximize
from pasto.optimize import solve
from pasto.report import figures
from pasto.space import Candidates, Space
from pasto.study import Study
from pasto_research.paper.data.kuairand import load as load_feed
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.models.feedback import predict
from pasto_research.paper.models.ranking import Lists
from pasto_research.paper.replay.learner_runs import PARALLEL, Pool, standard_error
from pasto_research.paper.table2_movielens import METRICS as MOVIES
from pasto_research.paper.table2_movielens import prepared, settings
from pasto_research.paper.table2_replay import models
from pasto_research.paper.table3_replay import LEAST, METRICS, TODAY, TOP
from pasto_research.paper.table3_replay import objective as feed_objective
from pasto_sdk.policy_document import Value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FINE = 401
"""Values of α at which the curve is known; α in between is taken for the nearest."""
MARKS = (10, 20, 40)


@dataclass(frozen=True, slots=True, eq=False)
class Terrain:
    """Every user's metrics at any point of a space."""

    name: str
    space: Space
    objective: Objective
    at: Callable[[dict[str, Value]], NDArray[np.float32]]
    """(metrics, users) at a point; NaN where a user has no such metric."""
    grid: Candidates
    """The points to compare with."""
    known: dict[tuple[Any, ...], NDArray[np.float32]]
    """Points looked at before."""

    def values(self, rows: Sequence[dict[str, Value]]) -> NDArray[np.float32]:
        """Return the values of each user, (metrics, rows, users)."""
        for row in rows:
            key = tuple(row.values())
            if key not in self.known:
                self.known[key] = self.at(row)
        return np.stack([self.known[tuple(row.values())] for row in rows], axis=1)

    def truth(self, rows: Sequence[dict[str, Value]]) -> FloatArray:
        """Return the means over users, (metrics, rows)."""
        return np.asarray(np.nanmean(self.values(rows), axis=2, dtype=np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class ClimbResult:
    """Result of one way to learn: f of its answers, and the number of points of the last ones."""

    way: str
    values: FloatArray
    """(repeats, marks)."""
    points: tuple[int, ...]


def climb(terrain: Terrain, given: Space | Candidates, way: str, size: Size) -> ClimbResult:
    """Learn from folds of users, ten points a round; new points are measured as they come up."""
    marks = [mark for mark in MARKS if mark <= size.rounds]
    values, points = np.empty((size.runs, len(marks))), []
    for repeat in range(size.runs):
        study = Study(given, terrain.objective, seed=1_000 * size.seed + repeat)
        chance, pool = np.random.default_rng([size.seed, repeat]), Pool()
        for number in range(1, marks[-1] + 1):
            asked = study.ask(PARALLEL)
            user_values = terrain.values([dict(assignment.values) for assignment in asked])
            folds = np.array_split(chance.permutation(user_values.shape[2]), PARALLEL)
            parts = [user_values[:, place, users] for place, users in enumerate(folds)]
            means = np.array([np.nanmean(part, axis=1) for part in parts])
            counts = np.array([np.isfinite(part).sum(axis=1) for part in parts])
            errors = np.array([np.nanstd(part, axis=1) for part in parts]) / np.sqrt(np.maximum(counts - 1, 1))
            study.tell(asked, means, standard_errors=pool.add(errors))
            if number in marks:
                blend = study.blend()
                values[repeat, marks.index(number)] = _worth(terrain, study, blend)
            if size.progress is not None:
                size.progress(f"{terrain.name}: {way}", repeat * marks[-1] + number, size.runs * marks[-1])
        points.append(len(study.blend().support))
    return ClimbResult(way, values, tuple(points))


def run(size: Size) -> Outcome:
    """Run both spaces, each as a space and as a grid."""
    if size.data is None:
        raise OptionError("continuous needs data=, a directory with MovieLens and KuaiRand in it")
    found = []
    for terrain in (_movies(size), _feed(size)):
        means = terrain.truth(list(map(dict, terrain.grid)))
        best = solve(terrain.objective.by_metric(means), terrain.objective)
        ways = (
            climb(terrain, terrain.space, "the space itself", size),
            climb(terrain, terrain.grid, f"a grid of {len(terrain.grid)}", size),
        )
        found.append((terrain, best, ways))
    return Outcome(
        name="continuous",
        title="The appendix: continuous strategic parameters, against a grid of them",
        settings={"repeats": size.runs, "rounds": max(m for m in MARKS if m <= size.rounds), "seed": size.seed},
        claims=tuple(_claim(*each) for each in found),
        tables=tuple(_table(*each) for each in found),
        data={
            terrain.name: {climbed.way: climbed.values for climbed in ways} | {"grid": best.value}
            for terrain, best, ways in found
        },
        figures={"continuous": partial(_figure, found)},
    )


def _movies(size: Size) -> Terrain:
    """Return the space of α between the two models of `pasto paper movielens`, with its soft guardrail."""
    parts = prepared(size)
    alphas = np.linspace(0.0, 1.0, 41 if size.quick else FINE)
    values = models(parts, "documentary", MOVIES, settings(size), size).values(alphas.tolist())
    middle = float(np.nanmean(values[1, len(alphas) // 2], dtype=np.float64))

    def at(row: dict[str, Value]) -> NDArray[np.float32]:
        return values[:, int(np.argmin(np.abs(alphas - float(row["alpha"]))))]

    space = Space(alpha=(0.0, 1.0))
    wanted = maximize(MOVIES[0]).keep(MOVIES[1], at_least=middle, penalty=5.0)
    return Terrain(f"{parts.pairs.name}, α", space, wanted, at, space.grid(levels=100), {})


def _feed(size: Size) -> Terrain:
    """Return the space of three powers of `pasto paper content`, with a guardrail on likes."""
    assert size.data is not None  # noqa: S101 -- run has looked
    earlier, later = load_feed(size.data)
    scores = predict(earlier, later, size.seed).scores
    kinds = {name: later.feedback[kind] for name, kind in zip(METRICS[:2], ("watch", "like"), strict=True)}
    lists = Lists.of(later.users, scores, kinds, LEAST, TOP)
    today = lists.top_values({"watch": 1.0, **TODAY}).mean(axis=1)

    def at(row: dict[str, Value]) -> NDArray[np.float32]:
        values = lists.top_values({"watch": 1.0, **{name: float(value) for name, value in row.items()}})
        return np.asarray(100.0 * (values / today[:, None] - 1.0), dtype=np.float32)

    space = Space(long_view=(0.0, 1.0), like=(0.0, 1.0), forward=(0.0, 1.0))
    return Terrain("KuaiRand-Pure, three weights", space, feed_objective(("like",)), at, space.grid(levels=5), {})


def _worth(terrain: Terrain, study: Study, blend: Blend) -> float:
    truth = terrain.truth([dict(study.candidates[k]) for k in blend.support])
    shares = np.array([blend.probabilities[k] for k in blend.support])
    return float(terrain.objective.value(truth @ shares))


def _claim(terrain: Terrain, best: Blend, ways: tuple[ClimbResult, ...]) -> Claim:
    ends = [(climbed.values[:, -1].mean(), standard_error(climbed.values)[-1]) for climbed in ways]
    gap, error = ends[0][0] - ends[1][0], float(np.hypot(ends[0][1], ends[1][1]))
    return Claim(
        what=f"{terrain.name}: a continuous space is learned as well as a grid of it",
        paper="the formulation carries over; nothing measured",
        measured="; ".join(f"{c.way}: f {m:.4f} ± {e:.4f}" for c, (m, e) in zip(ways, ends, strict=True))
        + f"; best blend of the grid {best.value:.4f}",
        holds=bool(gap > -2 * error) if np.isfinite(error) else None,
        note=f"answers of {min(ways[0].points)} to {max(ways[0].points)} points",
    )


def _table(terrain: Terrain, best: Blend, ways: tuple[ClimbResult, ...]) -> Table:
    marks = MARKS[: ways[0].values.shape[1]]
    rows: list[tuple[str, ...]] = []
    for climbed in ways:
        errors = standard_error(climbed.values)
        means, middles = climbed.values.mean(axis=0), np.median(climbed.values, axis=0)
        rows.append((f"{climbed.way}: mean", *(f"{m:.4f} ± {e:.4f}" for m, e in zip(means, errors, strict=True))))
        rows.append((f"{climbed.way}: median", *(f"{middle:.4f}" for middle in middles)))
    single = "none" if best.best_single_value is None else f"{best.best_single_value:.4f}"
    rows.append(("best blend of the grid", *[f"{best.value:.4f}"] * len(marks)))
    rows.append(("best single point of the grid", *[single] * len(marks)))
    return Table(f"{terrain.name}: f of the answer", ("given", *(f"{mark} rounds" for mark in marks)), tuple(rows))


def _figure(found: Sequence[tuple[Terrain, Blend, tuple[ClimbResult, ...]]]) -> Figure:
    sheet, panels = figures.new_figure(columns=2, width=10.5, height=4.4)
    for axes, (terrain, best, ways) in zip(panels, found, strict=True):
        for climbed, colour in zip(ways, figures.COLOURS, strict=False):
            marks = MARKS[: climbed.values.shape[1]]
            mean = climbed.values.mean(axis=0)
            figures.draw_curve(axes, marks, mean, name=f"{climbed.way}: mean", colour=colour)
            figures.draw_bars(axes, marks, mean, standard_error(climbed.values), colour=colour)
            middle = np.median(climbed.values, axis=0)
            figures.draw_curve(axes, marks, middle, name=f"{climbed.way}: median", colour=colour, dashes=":")
        figures.draw_level(axes, best.value, "best blend of the grid")
        if best.best_single_value is not None:
            figures.draw_level(axes, best.best_single_value, "best single point of the grid", above=False)
        low, high = axes.get_ylim()
        axes.set_ylim(low - 0.3 * (high - low), max(high, best.value) + 0.08 * (high - low))  # space for the legend
        figures.label_axes(axes, title=terrain.name, x="rounds (ten folds of users each)", y="f of the answer")
        figures.draw_legend(axes, "lower right")
    return sheet


EXPERIMENT = Experiment(
    name="continuous",
    summary="The appendix: α and three weights as continuous spaces, against grids of them (needs --data)",
    runs=20,
    rounds=40,
    quick_runs=2,
    quick_rounds=10,
    run=run,
    needs="MovieLens and KuaiRand-Pure, as movielens and content do",
)
