"""Coverage of the report's intervals over simulated studies, each with a mutant that breaks it.

`pasto bench trust` runs 2,000 studies.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pasto.inference import CellStatistics, Quantity, build_side, compare, unit_covariances
from pasto.inference.multiple_comparisons import is_better
from pasto_research.bench import write
from pasto_research.bench.coverage_checks import (
    alarms,
    both,
    coverage,
    ever_missed,
    ever_missed_early,
    false_winners,
    sample_ratio,
    sticky_coverage,
    swinging_alarms,
)
from pasto_research.bench.coverage_studies import SCENES, STEERED, simulate
from pasto_research.bench.interval_coverage import CHECKS, STOP_LEVEL, STOP_PERCENT, covariate_coverage, measure

STUDIES = 200


def errors(rate: float) -> float:
    """Return three standard errors of a rate over the simulated studies."""
    return 3.0 * float(np.sqrt(rate * (1.0 - rate) / STUDIES))


@pytest.mark.parametrize("target", ["learner", "candidate", "blend"])
@pytest.mark.parametrize("scene", SCENES)
def test_fixed_horizon_intervals_cover(scene: str, target: str) -> None:
    found = coverage(SCENES[scene], target, STUDIES, seed=2)
    assert abs(found.covered - 0.95) <= errors(0.95)
    assert abs(found.relative - 0.95) <= errors(0.95)
    assert abs(found.bias) <= 3.0 / np.sqrt(STUDIES) + 0.02


@pytest.mark.parametrize("target", ["learner", "candidate", "blend"])
def test_intervals_cover_across_edits_and_ramps_and_pooled_means_do_not(target: str) -> None:
    found = coverage(STEERED, target, STUDIES, seed=2)
    assert abs(found.covered - 0.95) <= errors(0.95)
    assert abs(found.relative - 0.95) <= errors(0.95)
    assert abs(found.bias) <= 3.0 / np.sqrt(STUDIES) + 0.02
    assert found.mutant < 0.3


def test_steered_studies_change_as_they_say() -> None:
    drawn = simulate(STEERED, STUDIES, 2)
    units = drawn.cells.units[..., :-1]
    assert (units[:, :12, -2:] == 0).all()
    assert (units[:, 12:, -2:].sum(axis=1) > 0).all()
    assert ((units[:, 26:, 1:-2].sum(axis=1) == 0).sum(axis=1) == 1).all(), "one candidate is retired"
    assert drawn.shares[:, 19:21, 0].tolist() == [[0.1, 0.3]] * STUDIES
    size = units.sum(axis=-1)
    assert (size[:, 3] > 3 * size[:, 2]).any()
    assert (size[:, 1:] < 0.6 * size[:, :-1]).any(), "a warning takes a ramp back"


@pytest.mark.parametrize("target", ["learner", "candidate", "blend"])
def test_adjusted_intervals_cover_unless_the_covariate_came_after_exposure(target: str) -> None:
    found = covariate_coverage(target, STUDIES, seed=2)
    assert abs(found.covered - 0.95) <= errors(0.95)
    assert abs(found.relative - 0.95) <= errors(0.95)
    assert abs(found.bias) <= 3.0 / np.sqrt(STUDIES) + 0.02
    assert found.reduction == pytest.approx(0.49, abs=0.06)
    assert found.mutant < 0.5


def test_users_who_stay_are_counted_as_users() -> None:
    found = sticky_coverage(STUDIES)
    assert abs(found.covered - 0.95) <= errors(0.95)
    assert found.mutant < 0.8


def test_means_pooled_over_rounds_do_not_cover() -> None:
    assert coverage(SCENES["drift"], "candidate", STUDIES).mutant < 0.5


def test_variances_of_small_cells_do_not_cover_and_pooled_ones_do() -> None:
    found = coverage(replace(SCENES["low floor"], units=60), "blend", STUDIES)
    assert found.mutant < 0.95 - errors(0.95)
    assert abs(found.covered - 0.95) <= errors(0.95)


def test_shares_that_follow_outcomes_bias_rounds_weighed_by_traffic() -> None:
    """Check why a candidate's rounds have equal weights: its traffic depends on its earlier results."""
    scene = replace(SCENES["A/A"], floor=0.005)
    drawn = simulate(scene, 1_000, 3)
    covariances = unit_covariances(drawn.cells)
    treated, control = build_side(drawn.cells, covariances, scene.candidates), build_side(drawn.cells, covariances, 0)
    bias = {}
    for weights in ("traffic", "even"):
        found = compare(treated, control, Quantity(0), weights=weights)
        bias[weights] = float((found.difference / np.sqrt(found.variance)).mean())
    assert bias["traffic"] < -0.15
    assert abs(bias["even"]) < 0.1


@pytest.mark.parametrize("relative", [False, True])
def test_looking_is_free(relative: bool) -> None:
    ours, naive = ever_missed(100, STUDIES, relative=relative)
    assert ours <= 0.05 + errors(0.05)
    assert naive > 0.2


@pytest.mark.parametrize("kind", ["rare", "skewed"])
def test_looking_early_is_free_where_the_control_is_small(kind: str) -> None:
    ours, naive = ever_missed_early(kind, STUDIES)
    assert ours <= 0.05 + errors(0.05)
    assert naive > ours
    if kind == "rare":
        assert naive > 0.2


def test_looking_is_free_where_users_stay() -> None:
    """Check one cumulative record per analysis; the mutant treats each analysis as the only one."""
    rng = np.random.default_rng(4)
    users, looks = 300, 60
    arms = [rng.normal(0.0, 1.0, (STUDIES, users, 1)) + rng.normal(0.0, 2.0, (STUDIES, users, looks)) for _ in range(2)]
    missed = {True: np.zeros(STUDIES, dtype=bool), False: np.zeros(STUDIES, dtype=bool)}
    for look in range(1, looks + 1):
        values = [arm[..., :look].mean(axis=-1) for arm in arms]
        cells = CellStatistics(
            np.full((STUDIES, 1, 2), float(users)),
            np.stack([value.mean(axis=-1) for value in values], axis=-1)[:, None, :, None],
            np.stack([users * value.var(axis=-1) for value in values], axis=-1)[:, None, :, None, None],
        )
        covariances = unit_covariances(cells)
        found = compare(build_side(cells, covariances, 1), build_side(cells, covariances, 0), Quantity(0))
        found = replace(found, information=np.full(STUDIES, float(look)))
        for sequential, ever in missed.items():
            ever |= ~found.lift(0.05, sequential=sequential).covers(0.0)
    assert missed[True].mean() <= 0.05 + errors(0.05)
    assert missed[False].mean() > 0.1


@pytest.mark.parametrize(
    ("kind", "guardrails"), [("normal", 1), ("normal", 5), ("rare", 1), ("rare", 5), ("skewed", 1), ("skewed", 3)]
)
def test_guardrail_monitors_rarely_give_false_alarms(kind: str, guardrails: int) -> None:
    rounds = 40 if kind == "skewed" or guardrails > 1 else 100
    assert alarms(kind, STUDIES, guardrails=guardrails, rounds=rounds).tripped <= 0.05 + errors(0.05)


@pytest.mark.parametrize("control", [0.1, 0.5])
def test_guardrail_monitors_include_the_noise_of_the_control(control: float) -> None:
    assert alarms("normal", STUDIES, control=control).tripped <= 0.05 + errors(0.05)


def test_a_z_test_at_every_analysis_gives_false_alarms() -> None:
    assert alarms("normal", STUDIES, test="z").tripped > 0.2


def test_without_a_cap_or_a_range_the_monitor_gives_false_alarms() -> None:
    assert alarms("skewed, no cap", STUDIES, rounds=50).tripped > 0.05 + errors(0.05)
    assert alarms("rare", STUDIES, declared=False, rounds=50).tripped > 0.1


@pytest.mark.parametrize(("drop", "limit"), [(0.1, 8.0), (0.05, 20.0)])
def test_guardrail_monitors_find_harm(drop: float, limit: float) -> None:
    found = alarms("normal", STUDIES, drop=drop)
    assert found.tripped >= 0.99
    assert found.rounds <= limit
    if drop == 0.05:
        assert alarms("normal", STUDIES, drop=drop, test="bonferroni").rounds > limit


def test_a_good_past_does_not_hide_harm() -> None:
    found, mutant = (alarms("normal", 100, drop=0.1, good=50, rounds=90, test=test) for test in ("ours", "one-start"))
    assert found.tripped >= 0.97
    assert found.rounds <= 20
    assert mutant.tripped == 0.0


def test_harm_shows_against_a_control_later() -> None:
    half = alarms("normal", 100, drop=0.1, control=0.5, rounds=80)
    assert half.tripped >= 0.97
    assert half.rounds <= 25


@pytest.mark.parametrize("ratio", [1.0, 0.95])
def test_a_stop_level_is_quiet_while_all_levels_swing(ratio: float) -> None:
    against, days = replace(STOP_LEVEL, basis="control"), replace(STOP_LEVEL, basis="days")
    assert swinging_alarms(against, STUDIES, ratio=ratio, rounds=96).tripped <= 0.05
    assert swinging_alarms(days, STUDIES, ratio=ratio, rounds=96, control=None).tripped <= 0.05
    assert swinging_alarms(STOP_LEVEL, STUDIES, ratio=ratio, rounds=96).tripped > 0.95


def test_a_stop_level_finds_harm_within_a_day_and_later_within_hours() -> None:
    floor = replace(STOP_LEVEL, basis="control")
    found = swinging_alarms(floor, 100, ratio=0.9, rounds=48)
    assert found.tripped == 1.0
    assert found.rounds <= 26
    later, percent = (swinging_alarms(one, 100, ratio=0.9, good=60, rounds=96) for one in (floor, STOP_PERCENT))
    assert later.tripped == percent.tripped == 1.0
    assert later.rounds <= percent.rounds + 2


def test_sample_ratio_checks_have_few_false_alarms_and_find_faults() -> None:
    quiet, lossy, silent = (sample_ratio(STUDIES, left=left) for left in (1.0, 0.9, 0.0))
    assert quiet.ours <= 0.015  # at most two in two hundred; the promise is 0.4 % of 2,000
    assert quiet.last_weights == 1.0
    assert lossy.ours >= 0.75
    assert silent.ours == 1.0


def test_sample_ratios_find_a_loss_on_a_whole_arm() -> None:
    found = {
        (rounds, control): sample_ratio(STUDIES, seed=3, left=0.95, whole_arm=True, rounds=rounds, control=control)
        for rounds, control in ((50, 0.1), (50, 0.2), (100, 0.1))
    }
    small = found[50, 0.1]
    assert 0.4 < small.ours < small.one_look  # no test finds more than the most powerful one at one look
    assert small.by_cell < 0.2
    assert found[50, 0.2].ours >= 0.75
    assert found[100, 0.1].ours >= 0.75
    assert sample_ratio(STUDIES, seed=3, rounds=100).ours <= 0.015


@pytest.mark.parametrize(("candidates", "studies"), [(20, STUDIES), (100, 50)])
def test_winners_are_seldom_false(candidates: int, studies: int) -> None:
    fixed, anytime, alone = false_winners(candidates, studies)
    allowed = 0.05 + 3.0 * float(np.sqrt(0.05 * 0.95 / studies))
    assert fixed <= allowed
    assert anytime <= allowed
    assert alone > allowed


def test_real_winners_are_found() -> None:
    scene = replace(SCENES["lift"], rounds=20)
    found, _ = both(simulate(scene, 50, 1), scene, "candidate")
    assert is_better(found, 0.05 / scene.candidates, sequential=True).mean() > 0.9


def test_the_report_of_all_checks_is_written(tmp_path: Path) -> None:
    calls: list[Any] = []
    report = measure(studies=4, progress=lambda *progress_call: calls.append(progress_call))
    assert len(report.rows) == len(CHECKS) == len(calls)
    written = write("trust", report, tmp_path)
    assert [path.name for path in written] == ["trust.json", "trust-looks.png", "trust-looks.svg"]
    assert json.loads(written[0].read_text(encoding="utf-8"))["rows"][0]["number"] == "coverage, learner"
