"""Table 3: results for ensemble-sort weights in the form of the paper, with intervals."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.report import figures
from pasto_research.paper.experiment import Claim, Outcome, Size, Table
from pasto_research.paper.replay import Course, tabulate
from pasto_research.paper.table3_replay import LEAST, METRICS, PENALTY, TARGET, TODAY, TOP, Aim, Content

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {"single best": (0.42, -1.67, -1.31), "probabilistic": (0.64, 0.33, 0.54)}
"""Lifts in percent: time, like, sharing."""
SURE = 1.96
"""Standard errors of a 95 % interval."""
WIDE = 2.0
"""Percent: a wider interval than the guardrail's own tolerance carries no information about it."""
ASSUMED = (
    "logged impressions only, re-ranked: it is assumed that feedback on a video does not depend on its place or on its "
    "neighbours, and that videos that the policy of the day did not display would not have mattered; the log has "
    "no propensities, so none of this can be corrected for"
)


def build_outcome(found: Content, size: Size) -> Outcome:
    """Return claims, tables and figures."""
    return Outcome(
        name="content",
        title="Table 3: ensemble-sort weights on KuaiRand-Pure (the paper: an A/B test on a live platform)",
        settings={
            "repeats": size.runs,
            "rounds": size.rounds,
            "seed": size.seed,
            "candidates": len(found.candidates),
            "users": len(found.lists.starts),
            "impressions": len(found.lists.users),
            "shown of each user": f"{TOP} of at least {LEAST}",
            "baseline": TODAY,
            "assumed": ASSUMED,
        },
        claims=(
            _forwards(found),
            *(claim for aim in found.aims for claim in (_better(found, aim), _elsewhere(aim))),
            *(_learned(found, aim) for aim in found.aims),
        ),
        tables=(
            _models(found),
            *(_lifts(found, aim) for aim in found.aims),
            *(_rounds(aim) for aim in found.aims),
            _unseen(found),
        ),
        data={
            "names": found.candidates.names,
            "lifts": dict(zip(METRICS, found.user_sample.truth, strict=True)),
            "baseline": dict(zip(METRICS, found.means, strict=True)),
            "quality": found.predicted.quality,
            "aims": {aim.name: {"probabilities": aim.best.probabilities} for aim in found.aims},
        },
        figures={"content": partial(_figure, found)},
    )


def lift(found: Content, shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return percent over the baseline and its standard error over users, (metrics,) each, all three metrics."""
    gap = shares.copy()
    gap[found.baseline] -= 1.0
    each = np.einsum("mku,k->mu", found.user_sample.values, gap)
    return each.mean(axis=1), each.std(axis=1, ddof=1) / sqrt(each.shape[1])


def _one(found: Content, place: int) -> FloatArray:
    return np.asarray(np.arange(len(found.candidates)) == place, dtype=float)


def _forwards(found: Content) -> Claim:
    count = int(found.lists.truth["forward"].sum())
    impressions = round(float(found.means[2]) * TOP * len(found.lists.starts))
    errors = [
        lift(found, _one(found, place))[1][2] for place in range(len(found.candidates)) if place != found.baseline
    ]
    return Claim(
        what="Forwards are frequent enough to be kept within 2 %",
        paper="a platform with hundreds of millions of users",
        measured=f"{count} forwards in all lists, {impressions} of them displayed by the baseline; a setting's lift of "
        f"forwards is known to ± {SURE * float(np.median(errors)):.0f} % (95 %)",
        holds=bool(SURE * float(np.median(errors)) <= WIDE),
        note="where this does not hold no lift of forwards below means anything, and the second set of tables keeps "
        "likes alone",
    )


def _better(found: Content, aim: Aim) -> Claim:
    best = aim.best
    assert best.best_single is not None  # noqa: S101 -- soft guardrails exclude no candidate
    blend = np.array(best.probabilities)
    gap = blend - _one(found, best.best_single)
    each = np.einsum("mku,k->mu", aim.user_sample.values, gap)
    mean, error = each.mean(axis=1), each.std(axis=1, ddof=1) / sqrt(each.shape[1])
    return Claim(
        what=f"The best blend has more watch time than the best single setting, keeping {aim.name}",
        paper="+0.64 % against +0.42 %",
        measured=f"{mean[0]:+.2f} percentage points of watch time, ± {SURE * error[0]:.2f} over users (95 %); f "
        f"{best.value:.3f} against {best.best_single_value:.3f}",
        holds=bool(mean[0] > SURE * error[0]),
        note="chosen and measured on the same users",
    )


def _elsewhere(aim: Aim) -> Claim:
    """Claim a lead on the other half of the users that exceeds chance."""
    gap = aim.halves.difference.mean(axis=0)
    spread = aim.halves.difference.std(axis=0)
    others = ", ".join(
        f"{name} {mean:+.2f} ({deviation:.2f})"
        for name, mean, deviation in zip(aim.user_sample.metrics[1:], gap[1:], spread[1:], strict=True)
    )
    return Claim(
        what=f"The lead is there on users who did not choose it, keeping {aim.name}",
        paper="yes (A/B test)",
        measured=f"blend less single on the other half, in percentage points (deviation of a split): watch time "
        f"{gap[0]:+.2f} ({spread[0]:.2f}), {others}; ahead in watch time in "
        f"{(aim.halves.difference[:, 0] > 0).mean():.0%} of {len(aim.halves.chosen_gain)} random halves; f "
        f"{aim.halves.other_gain.mean():+.2f} ({aim.halves.other_gain.std():.2f})",
        holds=bool(aim.halves.other_gain.mean() > aim.halves.other_gain.std()),
        note="a blend sits on its guardrail as the choosing half sees it, a single setting mostly above it",
    )


def _learned(found: Content, aim: Aim) -> Claim:
    answers, best = [], aim.best
    for learned in aim.learned:
        values = np.asarray(aim.objective.value(learned.metrics(aim.user_sample.truth)[:, -1]))
        answers.append((learned.learner, learned.marks[-1], float(values.mean())))
    single = float(best.best_single_value or 0.0)
    return Claim(
        what=f"Learning from folds of users ends ahead of the best single setting, keeping {aim.name}",
        paper="yes",
        measured="; ".join(f"{name}: f {value:.2f} after {rounds:,} rounds" for name, rounds, value in answers)
        + f"; best single {single:.2f}, best blend {best.value:.2f}",
        holds=any(value > single for _, _, value in answers),
    )


def _models(found: Content) -> Table:
    names = {"watch": "watch time (rank correlation)", "long_view": "long view (AUC)"}
    rows = [(names.get(kind, f"{kind} (AUC)"), round(value, 3)) for kind, value in found.predicted.quality.items()]
    return Table("Models, on later days than they were trained on", ("feedback", "held out"), tuple(rows))


def _lifts(found: Content, aim: Aim) -> Table:
    """Return the paper's Table 3: percent over the baseline, with 95 % intervals."""
    rows: list[tuple[str, ...]] = []
    if aim.best.best_single is not None:
        rows.append(
            (
                "single best",
                *_cells(found, _one(found, aim.best.best_single)),
                found.candidates.names[aim.best.best_single],
            )
        )
    rows.append(("probabilistic, exact", *_cells(found, np.array(aim.best.probabilities)), _mixture(found, aim)))
    for learned in aim.learned:
        rows.append(
            (
                f"probabilistic, {learned.learner}",
                *_cells(found, learned.answers[:, -1].mean(axis=0)),
                f"mean of {len(learned.answers)} repeats, {learned.marks[-1]:,} rounds",
            )
        )
    for name, lifts in PAPER.items():
        rows.append((f"the paper: {name}", *(f"{lift:+.2f} %" for lift in lifts), "A/B test"))
    return Table(
        f"Table 3, keeping {aim.name} at {TARGET:g} % (λ = {PENALTY:g}): lift over the baseline",
        ("solution", *METRICS, "what it is"),
        tuple(rows),
    )


def _rounds(aim: Aim) -> Table:
    levels = {"the best single setting": float(aim.best.best_single_value or 0.0)}
    courses = [
        Course(
            learned.learner,
            learned.marks,
            np.asarray(aim.objective.value(learned.metrics(aim.user_sample.truth))),
            levels=levels,
            digits=2,
        )
        for learned in aim.learned
    ]
    return tabulate(f"f of the answer, keeping {aim.name}: best blend {aim.best.value:.2f}", courses)


def _cells(found: Content, shares: FloatArray) -> list[str]:
    mean, error = lift(found, shares)
    return [f"{value:+.2f} ± {SURE * spread:.2f} %" for value, spread in zip(mean, error, strict=True)]


def _mixture(found: Content, aim: Aim) -> str:
    return " + ".join(f"{aim.best.probabilities[k]:.0%} {found.candidates.names[k]}" for k in aim.best.support)


def _unseen(found: Content) -> Table:
    rows = []
    for aim in found.aims:
        for name, values in (("single best", aim.halves.single), ("probabilistic", aim.halves.blend)):
            cells = {
                metric: f"{values[:, place].mean():+.2f} %" for place, metric in enumerate(aim.user_sample.metrics)
            }
            rows.append((f"{name}, keeping {aim.name}", *(cells.get(metric) for metric in METRICS)))
    return Table(
        "Chosen on a random half of the users, measured on the other: mean lift", ("solution", *METRICS), tuple(rows)
    )


def _figure(found: Content) -> Figure:
    """Draw likes against watch time for every set of weights, with the best blend under the guardrail on likes."""
    sheet, (axes,) = figures.new_figure()
    aim = found.aims[-1]
    time, like = found.user_sample.truth[0], found.user_sample.truth[1]
    axes.plot(like, time, ".", color=figures.REFERENCE, markersize=6, label="one set of weights for everybody")
    axes.axvline(TARGET, color=figures.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    ends = np.array([(like[k], time[k]) for k in aim.best.support])
    if len(ends) > 1:
        axes.plot(ends[:, 0], ends[:, 1], "o-", mfc="white", color=figures.COLOURS[0], linewidth=1.2, markersize=6)
    marks = [("baseline", _one(found, found.baseline), "X", figures.INK, 8)]
    if aim.best.best_single is not None:
        marks.append(("best single", _one(found, aim.best.best_single), "s", figures.COLOURS[1], 7))
    marks.append(("best blend", np.array(aim.best.probabilities), "*", figures.COLOURS[0], 15))
    for place, learned in enumerate(aim.learned):
        shares = learned.answers[:, -1].mean(axis=0)
        marks.append(
            (f"{learned.learner}, {learned.marks[-1]:,} rounds", shares, "D^"[place], figures.COLOURS[2 + place], 7)
        )
    for name, shares, shape, colour, side in marks:
        axes.plot(like @ shares, time @ shares, shape, color=colour, markersize=side, label=name, mec="white", mew=0.6)
    figures.label_axes(
        axes,
        title=f"KuaiRand-Pure: {len(found.candidates)} sets of weights, likes kept",
        x=f"likes, percent over the baseline (dashed: {TARGET:g} %)",
        y="watch time, percent over the baseline",
    )
    figures.draw_legend(axes, "lower left")
    return sheet
