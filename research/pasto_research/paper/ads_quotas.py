"""Ads application of section 7: quotas of ads retrieval that raise revenue without losing cold-start ads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import OptionError
from pasto.report import figures
from pasto_research.paper.data.ipinyou import load
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.quota_lifts import Quotas, learn
from pasto_research.paper.quota_replay import COLD_SHARE, DISPLAYED_ADS, TOTAL, replayed
from pasto_research.paper.quota_simulation import simulated

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SURE = 1.96
"""Standard errors of a 95 % interval."""


def run(size: Size) -> Outcome:
    """Run quotas on a replay of real logs, and on the demo's simulated auctions."""
    if size.data is None:
        raise OptionError("ads needs data=, a directory with iPinYou's logs in it")
    sets = (learn(replayed(load(size.data), size), size), learn(simulated(size), size))
    return Outcome(
        name="ads",
        title="Quotas of ads retrieval, on a replay of iPinYou's logs and in the demonstration's world (the paper: an "
        "A/B test on a live platform)",
        settings={
            "repeats": size.runs,
            "rounds": sets[0].learned.marks[-1],
            "seed": size.seed,
            "iPinYou": f"{sets[0].user_sample.users:,} requests, {TOTAL} ads retrieved and "
            f"{DISPLAYED_ADS} displayed; prices, clicks and "
            f"predicted rates are real; campaigns play the modules; cold start is simulated: {COLD_SHARE:.0%} of the "
            "impressions, at random, are without own predictions",
            "the demonstration's world": f"{sets[1].user_sample.users:,} users; everything is simulated",
            "baselines": " and ".join(quotas.outcomes.candidates.names[quotas.outcomes.baseline] for quotas in sets),
        },
        claims=tuple(claim for quotas in sets for claim in _claims(quotas)),
        tables=(*(_today(quotas) for quotas in sets), *(_lifts(quotas) for quotas in sets)),
        data={
            quotas.name: {
                "names": quotas.outcomes.candidates.names,
                "lifts": dict(zip(quotas.user_sample.metrics, quotas.user_sample.truth, strict=True)),
                "probabilities": quotas.best.probabilities,
            }
            for quotas in sets
        },
        figures={"ads": partial(_figure, sets)},
    )


def _claims(quotas: Quotas) -> tuple[Claim, ...]:
    mean, error = quotas.lift(quotas.blend)
    learned, spread = quotas.lift(quotas.answer)
    goal, first = quotas.user_sample.metrics[:2]
    claims = [
        Claim(
            what=f"{quotas.name}: a blend of quotas raises {goal} over the baseline and hurts no guardrail",
            paper="+1.7 %, constraints not significantly hurt",
            measured=f"exact: {mean[0]:+.2f} ± {SURE * error[0]:.2f} % with {first} {mean[1]:+.2f} %; "
            f"learned: {learned[0]:+.2f} ± {SURE * spread[0]:.2f} % with {first} {learned[1]:+.2f} ± "
            f"{SURE * spread[1]:.2f} %",
            holds=bool(learned[0] > SURE * spread[0] and _unhurt(quotas, learned, spread)),
            note="the baseline was not optimised, so the size of the lift carries little information",
        )
    ]
    if quotas.best.best_single is not None:
        gap, uncertain = quotas.lead(quotas.blend, quotas.only(quotas.best.best_single))
        unseen = quotas.halves.other_gain
        claims.append(
            Claim(
                what=f"{quotas.name}: the best blend of quotas has more {goal} than the best single one",
                paper="compared with the baseline only",
                measured=f"{gap[0]:+.2f} percentage points, ± {SURE * uncertain[0]:.2f} over requests (95 %); chosen "
                f"on one half of the requests and measured on the other, {unseen.mean():+.2f} (deviation of a split "
                f"{unseen.std():.2f}), guardrails missed there charged at their price",
                holds=bool(unseen.mean() > unseen.std()),
                note=f"the blend mixes {len(quotas.best.support)} of {len(quotas.outcomes.candidates)} quotas",
            )
        )
    return tuple(claims)


def _unhurt(quotas: Quotas, lift: FloatArray, error: FloatArray) -> bool:
    """Return True if no guardrail is missed by more than chance."""
    places = {metric: quotas.user_sample.metrics.index(metric) for metric in quotas.outcomes.guardrails}
    return all(
        lift[place] > quotas.outcomes.guardrails[metric] - SURE * error[place] for metric, place in places.items()
    )


def _today(quotas: Quotas) -> Table:
    return Table(
        f"{quotas.name}: a request under the baseline",
        quotas.outcomes.metrics,
        (tuple(round(float(mean), 5) for mean in quotas.means),),
    )


def _lifts(quotas: Quotas) -> Table:
    names = quotas.outcomes.candidates.names
    rows: list[tuple[str, ...]] = []
    if quotas.best.best_single is not None:
        rows.append(
            ("single best", *_cells(quotas, quotas.only(quotas.best.best_single)), names[quotas.best.best_single])
        )
    mixture = " + ".join(f"{quotas.best.probabilities[k]:.0%} {names[k]}" for k in quotas.best.support)
    rows.append(("probabilistic, exact", *_cells(quotas, quotas.blend), mixture))
    repeats = f"mean of {len(quotas.learned.answers)} repeats, {quotas.learned.marks[-1]:,} rounds"
    rows.append(("probabilistic, default learner", *_cells(quotas, quotas.answer), repeats))
    blank = [""] * (len(quotas.user_sample.metrics) - 2)
    rows.append(("the paper: probabilistic", "+1.7 %", "not significantly hurt", *blank, "A/B test"))
    limits = ", ".join(f"{metric} at {least:g} %" for metric, least in quotas.outcomes.guardrails.items())
    return Table(
        f"{quotas.name}: lift over the baseline, 95 % intervals (hard guardrails: {limits})",
        ("solution", *quotas.user_sample.metrics, "what it is"),
        tuple(rows),
    )


def _cells(quotas: Quotas, shares: FloatArray) -> list[str]:
    mean, error = quotas.lift(shares)
    return [f"{value:+.2f} ± {SURE * spread:.2f} %" for value, spread in zip(mean, error, strict=True)]


def _figure(sets: tuple[Quotas, ...]) -> Figure:
    sheet, panels = figures.new_figure(columns=len(sets), width=10.5, height=4.6)
    for axes, quotas in zip(panels, sets, strict=True):
        _panel(axes, quotas)
    figures.draw_legend(panels[0], "upper right")
    return sheet


def _panel(axes: Axes, quotas: Quotas) -> None:
    """Draw the goal against the first guardrail; quotas that miss another guardrail are hollow."""
    goal, held = quotas.user_sample.truth[:2]
    first, *others = quotas.outcomes.guardrails
    limits = np.all(
        [
            quotas.user_sample.truth[quotas.user_sample.metrics.index(m)] >= quotas.outcomes.guardrails[m]
            for m in others
        ],
        axis=0,
    )
    for chosen, face, name in ((limits, figures.REFERENCE, "one quota"), (~limits, "none", "loses clicks")):
        axes.plot(held[chosen], goal[chosen], "o", color=figures.REFERENCE, mfc=face, markersize=4, label=name)
    axes.axvline(quotas.outcomes.guardrails[first], color=figures.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    marks = [("baseline", quotas.only(quotas.outcomes.baseline), "X", figures.INK, 8)]
    if quotas.best.best_single is not None:
        marks.append(("best single", quotas.only(quotas.best.best_single), "s", figures.COLOURS[1], 7))
    marks.append(("best blend", quotas.blend, "*", figures.COLOURS[0], 17))
    marks.append(("default learner", quotas.answer, "D", figures.COLOURS[2], 5))
    ends = np.array([(held[k], goal[k]) for k in quotas.best.support])
    for end in ends if len(ends) > 1 else ():
        axes.plot(
            *zip(end, (held @ quotas.blend, goal @ quotas.blend), strict=True), "-", color=figures.COLOURS[0], lw=1
        )
        axes.plot(*end, "o", mfc="white", color=figures.COLOURS[0], markersize=10, zorder=5)
    for name, shares, shape, colour, side in marks:
        place = (held @ shares, goal @ shares)
        axes.plot(*place, shape, color=colour, markersize=side, label=name, mec="white", mew=0.6, zorder=6)
    figures.label_axes(
        axes,
        title=f"{quotas.name}: {len(quotas.outcomes.candidates)} ways to share out",
        x=f"{first}, percent over the baseline (dashed: {quotas.outcomes.guardrails[first]:g} %)",
        y=f"{quotas.user_sample.metrics[0]}, percent over the baseline",
    )


EXPERIMENT = Experiment(
    name="ads",
    summary="Section 7: quotas of ads retrieval on iPinYou's logs and the demo's ads, cold start kept (needs --data)",
    runs=10,
    rounds=60,
    quick_runs=2,
    quick_rounds=20,
    run=run,
    needs="iPinYou logs (files named like 1458.test.txt: click, market price, predicted rate)",
)
