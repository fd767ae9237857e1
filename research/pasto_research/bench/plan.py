"""Benchmark of plans: days that a plan forecasts, compared with those that the learner needs in simulated studies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

import pasto
from pasto.arrays import FloatArray
from pasto.optimize.learners.base import build_form, read_baseline_offsets
from pasto.planning import StudyPlan, make_plan
from pasto.planning.learning_forecast import STEP_GROWTH
from pasto.planning.recommendations import CHANCE
from pasto.planning.study_plan import HALF, MOST, first_day
from pasto.sim import Progress
from pasto_research.bench.benchmark import Benchmark, BenchmarkReport
from pasto_research.bench.guardrail_counts import count_guardrails, format_share_held
from pasto_research.bench.plan_worlds import PlanWorld, draw_world

FIRST_WORLD = 4_000
"""Seed of the first world; the plan was built on others."""
FULL_WORLDS, FULL_STUDIES = 20, 32
QUICK_WORLDS, QUICK_STUDIES = 3, 10
BAND = (0.67, 1.5)
"""Ratio of forecast to measured days that counts as agreement."""
PLANNED_DAYS = 20.0
"""Days that each study may take."""
MAX_DAYS = 60
"""Days that are simulated at most."""
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class StudyCourse:
    """Course of one study, at some of its days."""

    best: float
    """True gain of the best blend."""
    gains: FloatArray
    """(days,): true gain of the answer."""
    certified: NDArray[np.bool_]
    """(days,)."""
    holds: NDArray[np.bool_]
    """(days, guardrails): whether a blend like the answer, without the baseline and as good as it, is certified."""
    guardrail_counts: tuple[int, int]
    """Binding hard guardrails of the certified answers, and those that truly hold, over all days."""


@dataclass(frozen=True, slots=True, eq=False)
class PlanCheck:
    """Plan of one world, and the studies that were run by it."""

    world: PlanWorld
    plan: StudyPlan
    days: FloatArray
    courses: tuple[StudyCourse, ...]

    @property
    def pairs(self) -> dict[str, tuple[float | None, float | None]]:
        """Forecast and measured days, by what is reached; None is later than the days that were compared."""
        gains = np.array([course.gains for course in self.courses]).T
        best = np.array([course.best for course in self.courses])
        possible = max(float(best.mean()), 1e-9)
        certified = np.array([course.certified for course in self.courses]).T
        holds = np.array([course.holds for course in self.courses]).mean(axis=0)
        useful = ((gains >= HALF * best - 1e-9) & certified).mean(axis=1)
        pairs = {
            "half": (self.plan.gain.days_to_half, first_day(self.days, useful, CHANCE)),
            "most": (self.plan.gain.days_to_most, first_day(self.days, gains.mean(axis=1) / possible, MOST)),
        }
        for place, guardrail in enumerate(self.plan.guardrails):
            if guardrail.state != "soft":
                pairs[guardrail.name] = (guardrail.days, first_day(self.days, holds[:, place], CHANCE))
        return pairs

    @property
    def ratios(self) -> dict[str, float]:
        """Forecast over measured days, except where both are the first day or later than all days.

        One that is later than all days counts as the last day.
        """
        first, last = float(self.days[0]), float(self.days[-1])
        ratios = {}
        for label, pair in self.pairs.items():
            forecast, measured = (last if day is None else min(day, last) for day in pair)
            if (forecast, measured) not in ((first, first), (last, last)):
                ratios[label] = forecast / measured
        return ratios

    @property
    def gain_ratio(self) -> float:
        """Forecast over measured gain at the last day."""
        measured = float(np.mean([course.gains[-1] for course in self.courses]))
        course = self.plan.gain.course
        forecast = np.interp(self.days[-1], [point.day for point in course], [point.gain for point in course])
        return float(forecast) / measured if measured > 0 else float("nan")


def run_study(world: PlanWorld, control: float, days: Sequence[int], seed: int) -> StudyCourse:
    """Run the learner for some days, and compare its answers with the truth.

    >>> from pasto_research.bench.plan_worlds import draw_world
    >>> run_study(draw_world(1), 0.2, [1, 2], seed=3).gains.shape
    (2,)
    """
    rng = np.random.default_rng([seed, 21])
    effects = world.draw_effects(rng)
    means = np.array([metric.mean for metric in world.metrics])[:, None] * (1.0 + effects / 100.0)
    study = world.study(seed, control)
    gains, certified, holds, counts = [], [], [], []
    for day in range(1, max(days) + 1):
        world.run_round(study, means, control, round(world.units), rng)
        if day in days:
            blend = study.blend(deploy_rounds=None)
            shares = np.array(blend.probabilities)
            assert blend.certificate is not None  # noqa: S101 -- this learner always gives one
            gains.append(world.value(effects, shares))
            certified.append(blend.certificate.certified)
            holds.append(_holds(world, study, effects, shares))
            counts.append((0, 0) if world.soft else count_guardrails(blend.certificate, world.slack(effects, shares)))
    binding, holding = np.sum(counts, axis=0).tolist()
    return StudyCourse(
        world.best_value(effects), np.array(gains), np.array(certified), np.array(holds), (binding, holding)
    )


def _holds(world: PlanWorld, study: pasto.Study, effects: FloatArray, shares: FloatArray) -> list[bool]:
    """Return for each guardrail whether the candidates of a blend would be certified if they were like the baseline."""
    part = shares if shares[0] < 1.0 - 1e-3 else np.array(study.policy.probabilities)
    part = np.where(np.arange(len(part)) == 0, 0.0, part)
    part = part / part.sum()
    learner, problem, state = study._learner, study._problem, study._state
    posterior = learner.posterior(problem, state)  # type: ignore[attr-defined]
    form = build_form(problem, posterior.mean, posterior.mean)
    offsets = read_baseline_offsets(problem.objective)
    holds = []
    for place, row in enumerate(form.rows):
        weights = part.copy()
        weights[0] -= offsets[place]
        slack = float(row @ (posterior.mean @ part) - form.at[place])
        surplus = slack - float(effects[1 + place] @ part)
        holds.append(surplus >= float(ndtri(CONFIDENCE)) * float(posterior.spread(row, weights)))
    return holds


def compared_days(plan: StudyPlan) -> list[int]:
    """Return the days at which studies are compared with a plan."""
    forecasts = [plan.gain.days_to_half, plan.gain.days_to_most, *(rail.days for rail in plan.guardrails)]
    needed = max((day for day in forecasts if day is not None), default=10.0)
    last = min(MAX_DAYS, int(1.7 * needed) + 4)
    days, day = [], 0
    while day < last:
        day += max(1, int(STEP_GROWTH * day))
        days.append(day)
    return days


def plan_world(seed: int) -> StudyPlan:
    """Plan the world of a seed."""
    return make_plan(draw_world(seed).outline(), days=PLANNED_DAYS)


StudyTask = tuple[int, float, list[int], int]
"""Seed of a world, control share, days that are compared, and seed of the study."""


def study_tasks(seed: int, plan: StudyPlan, studies: int) -> list[StudyTask]:
    """Return the studies that follow the plan of one world."""
    days = compared_days(plan)
    return [(seed, plan.control.share, days, 1_000 * seed + number) for number in range(studies)]


def _run_task(task: StudyTask) -> StudyCourse:
    seed, control, days, study_seed = task
    return run_study(draw_world(seed), control, days, study_seed)


def check_world(seed: int, studies: int) -> PlanCheck:
    """Plan a world, and run studies in it as planned."""
    plan = plan_world(seed)
    return join_check(seed, plan, [_run_task(task) for task in study_tasks(seed, plan, studies)])


def join_check(seed: int, plan: StudyPlan, courses: Sequence[StudyCourse]) -> PlanCheck:
    """Return the check of a world from the courses of its studies."""
    return PlanCheck(draw_world(seed), plan, np.array(compared_days(plan), dtype=float), tuple(courses))


def measure(*, worlds: int, studies: int, progress: Progress | None = None) -> BenchmarkReport:
    """Return a row for each world, and how many of its ratios lie within the band."""
    seeds = range(FIRST_WORLD, FIRST_WORLD + worlds)
    plans, courses = [], []
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for done, plan in enumerate(pool.map(plan_world, seeds), start=1):
            plans.append(plan)
            if progress is not None:
                progress("plans", done, worlds)
        tasks = [task for seed, plan in zip(seeds, plans, strict=True) for task in study_tasks(seed, plan, studies)]
        for done, course in enumerate(pool.map(_run_task, tasks), start=1):
            courses.append(course)
            if progress is not None:
                progress("studies", done, len(tasks))
    checks = [
        join_check(seed, plan, courses[place * studies : (place + 1) * studies])
        for place, (seed, plan) in enumerate(zip(seeds, plans, strict=True))
    ]
    return summarize(checks, studies)


def summarize(checks: Sequence[PlanCheck], studies: int) -> BenchmarkReport:
    """Return the table of all worlds."""
    rows: list[dict[str, Any]] = []
    for check in checks:
        pairs = check.pairs
        slowest = max(
            (pair for name, pair in pairs.items() if name.startswith("guard")),
            key=lambda pair: pair[0] or np.inf,
            default=(None, None),
        )
        rows.append(
            {
                "world": check.world.name,
                "control": f"{check.plan.control.share:.0%}",
                "certificate": _pair(slowest),
                "half of the gain": _pair(pairs["half"]),
                "most of the gain": _pair(pairs["most"]),
                "gain, ratio": round(check.gain_ratio, 2),
            }
        )
    worlds = np.mean([all(BAND[0] <= ratio <= BAND[1] for ratio in check.ratios.values()) for check in checks])
    return BenchmarkReport(
        "Days that a plan forecasts, and days that the learner needs",
        tuple(rows),
        note=f"Forecast / measured days, {studies} studies a world. The certificate is that of the slowest guardrail. "
        "A dash is later than all days that were compared.",
        more=(
            BenchmarkReport(
                "Forecast over measured",
                tuple(_ratio_rows(checks)),
                note="Days, except in the last row. Pairs in which both are the first day, or both later than all "
                f"days, are left out. In {float(worlds):.0%} of the worlds, all days lie from {BAND[0]} to {BAND[1]}.",
            ),
            BenchmarkReport(
                "Certified guardrails that hold, in studies that follow their plan",
                tuple(_guardrail_rows(checks)),
                note=f"Stated: {CONFIDENCE:.0%} and no more, at all days that were compared; errors are over studies.",
            ),
        ),
    )


def _guardrail_rows(checks: Sequence[PlanCheck]) -> Iterator[dict[str, Any]]:
    """Return a row for each shape of effects, and one for all worlds."""
    shapes = dict.fromkeys(check.world.effects for check in checks)
    for label in (*shapes, "all") if len(shapes) > 1 else ("all",):
        chosen = [check for check in checks if label in ("all", check.world.effects)]
        counts = np.array([course.guardrail_counts for check in chosen for course in check.courses], dtype=float)
        yield {
            "effects": label,
            "worlds": len(chosen),
            "binding": int(counts[:, 0].sum()),
            "hold": format_share_held(counts),
        }


def _ratio_rows(checks: Sequence[PlanCheck]) -> Iterator[dict[str, Any]]:
    """Return a row for each kind of forecast: how its ratios are spread."""
    ratios: dict[str, list[float]] = {
        "certificate, every hard guardrail": [],
        "half of the gain": [],
        "most of the gain": [],
    }
    for check in checks:
        for label, ratio in check.ratios.items():
            ratios[f"{label} of the gain" if label in ("half", "most") else "certificate, every hard guardrail"].append(
                ratio
            )
    ratios["gain at the last day"] = [check.gain_ratio for check in checks if np.isfinite(check.gain_ratio)]
    for label, values in ratios.items():
        known = np.array(values)
        yield {
            "forecast": label,
            "number": len(known),
            "median": round(float(np.median(known)), 2) if len(known) else None,
            f"from {BAND[0]} to {BAND[1]}": _share_within(known, BAND),
            "within a factor of two": _share_within(known, (0.5, 2.0)),
            "range": f"{known.min():.2f} to {known.max():.2f}" if len(known) else None,
        }


def _share_within(values: FloatArray, band: tuple[float, float]) -> str | None:
    return f"{float(np.mean((values >= band[0]) & (values <= band[1]))):.0%}" if len(values) else None


def _pair(pair: tuple[float | None, float | None]) -> str:
    return " / ".join("–" if day is None else f"{day:.1f}" for day in pair)


BENCHMARK = Benchmark(
    name="plan",
    summary="days that `pasto plan` forecasts, compared with the days that the learner needs",
    run=lambda progress, quick: measure(
        worlds=QUICK_WORLDS if quick else FULL_WORLDS,
        studies=QUICK_STUDIES if quick else FULL_STUDIES,
        progress=progress,
    ),
)
