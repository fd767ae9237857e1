"""Section 7's second application: quotas of ads retrieval, revenue raised while cold-start ads are not hurt."""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from pasto.errors import BadOption
from pasto.objective import Array
from pasto.paper.data.ipinyou import load
from pasto.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto.paper.quotas import COLD_SHARE, KEPT, METRICS, SHOWN, TOTAL, Quotas, made_up, play
from pasto.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SURE = 1.96


def run(size: Size) -> Outcome:
    """The same quotas on the real logs and on made-up ones whose distributions are known."""
    if size.data is None:
        raise BadOption("ads needs data=, a directory with iPinYou's logs in it")
    sets = (
        play("iPinYou", load(size.data), size),
        play("made-up logs", made_up(np.random.default_rng([size.seed, 5])), size),
    )
    return Outcome(
        name="ads",
        title="Quotas of ads retrieval, on a replay of iPinYou's logs (the paper: an A/B test on a live platform)",
        settings={
            "repeats": size.runs,
            "rounds": sets[0].learned.marks[-1],
            "seed": size.seed,
            "requests": sets[0].crowd.users,
            "ads retrieved and shown": f"{TOTAL} and {SHOWN}",
            "cold start": f"simulated: {COLD_SHARE:.0%} of the impressions, at random, without own predictions",
            "baseline": sets[0].candidates.names[sets[0].baseline],
        },
        claims=tuple(claim for one in sets for claim in _claims(one)),
        tables=(*(_logs(one) for one in sets), *(_lifts(one) for one in sets)),
        data={
            one.name: {
                "names": one.candidates.names,
                "lifts": dict(zip(one.crowd.metrics, one.crowd.truth, strict=True)),
                "probabilities": one.best.probabilities,
            }
            for one in sets
        },
        figures={"ads": partial(_figure, sets[0])},
    )


def _claims(one: Quotas) -> tuple[Claim, ...]:
    mean, error = _lift(one, np.array(one.best.probabilities))
    learned, spread = _lift(one, one.learned.answers[:, -1].mean(axis=0))
    claims = [
        Claim(
            what=f"{one.name}: a blend of quotas raises revenue over the baseline and hurts no guardrail",
            paper="+1.7 %, constraints not significantly hurt",
            measured=f"exact: {mean[0]:+.2f} ± {SURE * error[0]:.2f} % with cold start {mean[1]:+.2f} %; "
            f"learned: {learned[0]:+.2f} ± {SURE * spread[0]:.2f} % with cold start {learned[1]:+.2f} ± "
            f"{SURE * spread[1]:.2f} %",
            holds=bool(learned[0] > SURE * spread[0] and learned[1] > KEPT["cold start"] - SURE * spread[1]),
            note="the baseline shares the total out evenly and was not optimised, so the size of the lift says little",
        )
    ]
    if one.best.single is not None:
        gap = np.array(one.best.probabilities) - _one(one, one.best.single)
        each = np.einsum("mku,k->mu", one.crowd.values, gap)
        lead, uncertain = float(each[0].mean()), float(each[0].std(ddof=1) / sqrt(each.shape[1]))
        unseen = one.halves.kept
        claims.append(
            Claim(
                what=f"{one.name}: the best blend of quotas has more revenue than the best single one",
                paper="compared with the baseline only",
                measured=f"{lead:+.2f} percentage points, ± {SURE * uncertain:.2f} over requests (95 %); chosen on one "
                f"half of the requests and measured on the other, {unseen.mean():+.2f} (deviation of a split "
                f"{unseen.std():.2f}), guardrails missed there charged at their price",
                holds=bool(unseen.mean() > unseen.std()),
                note=f"the blend mixes {len(one.best.support)} of {len(one.candidates)} quotas",
            )
        )
    return tuple(claims)


def _logs(one: Quotas) -> Table:
    return Table(
        f"{one.name}: a request under the baseline",
        METRICS,
        (tuple(round(float(mean), 5) for mean in one.means),),
    )


def _lifts(one: Quotas) -> Table:
    rows: list[tuple[str, ...]] = []
    if one.best.single is not None:
        rows.append(("single best", *_cells(one, _one(one, one.best.single)), one.candidates.names[one.best.single]))
    mixture = " + ".join(f"{one.best.probabilities[k]:.0%} {one.candidates.names[k]}" for k in one.best.support)
    rows.append(("probabilistic, exact", *_cells(one, np.array(one.best.probabilities)), mixture))
    answers = one.learned.answers
    rows.append(
        (
            "probabilistic, default learner",
            *_cells(one, answers[:, -1].mean(axis=0)),
            f"mean of {len(answers)} repeats, {one.learned.marks[-1]:,} rounds",
        )
    )
    rows.append(
        (
            "the paper: probabilistic",
            "+1.7 %",
            "not significantly hurt",
            *[""] * (len(one.crowd.metrics) - 2),
            "A/B test",
        )
    )
    return Table(
        f"{one.name}: lift over the baseline, 95 % intervals",
        ("solution", *one.crowd.metrics, "what it is"),
        tuple(rows),
    )


def _cells(one: Quotas, shares: Array) -> list[str]:
    mean, error = _lift(one, shares)
    return [f"{value:+.2f} ± {SURE * spread:.2f} %" for value, spread in zip(mean, error, strict=True)]


def _lift(one: Quotas, shares: Array) -> tuple[Array, Array]:
    gap = shares.copy()
    gap[one.baseline] -= 1.0
    each = np.einsum("mku,k->mu", one.crowd.values, gap)
    return each.mean(axis=1), each.std(axis=1, ddof=1) / sqrt(each.shape[1])


def _one(one: Quotas, place: int) -> Array:
    return np.asarray(np.arange(len(one.candidates)) == place, dtype=float)


def _figure(one: Quotas) -> Figure:
    """Revenue against cold-start ads; quotas that lose too many predicted clicks are drawn hollow."""
    sheet, (axes,) = figures.sheet()
    revenue, cold, clicks = one.crowd.truth[:3]
    kept = clicks >= KEPT["predicted clicks"]
    for chosen, face, name in ((kept, figures.REFERENCE, "one quota"), (~kept, "none", "loses predicted clicks")):
        axes.plot(cold[chosen], revenue[chosen], "o", color=figures.REFERENCE, mfc=face, markersize=4, label=name)
    axes.axvline(KEPT["cold start"], color=figures.INK, linewidth=1.0, linestyle=(0, (4, 3)))
    marks = [("baseline", _one(one, one.baseline), "X", figures.INK, 8)]
    if one.best.single is not None:
        marks.append(("best single", _one(one, one.best.single), "s", figures.COLOURS[1], 7))
    marks.append(("best blend", np.array(one.best.probabilities), "*", figures.COLOURS[0], 15))
    marks.append(("default learner", one.learned.answers[:, -1].mean(axis=0), "D", figures.COLOURS[2], 7))
    ends = np.array([(cold[k], revenue[k]) for k in one.best.support])
    if len(ends) > 1:
        axes.plot(ends[:, 0], ends[:, 1], "o", mfc="white", color=figures.COLOURS[0], markersize=6, zorder=4)
    for name, shares, shape, colour, side in marks:
        axes.plot(
            cold @ shares,
            revenue @ shares,
            shape,
            color=colour,
            markersize=side,
            label=name,
            mec="white",
            mew=0.6,
            zorder=6,
        )
    figures.label(
        axes,
        title=f"{one.name}: {len(one.candidates)} ways to share out {TOTAL} ads",
        x=f"cold-start ads shown, percent over the baseline (dashed: {KEPT['cold start']:g} %)",
        y="revenue, percent over the baseline",
    )
    figures.legend(axes, "best")
    return sheet


EXPERIMENT = Experiment(
    name="ads",
    summary="Section 7: quotas of ads retrieval on iPinYou's logs, cold-start ads kept (needs --data)",
    runs=5,
    rounds=60,
    quick_runs=2,
    quick_rounds=20,
    run=run,
    needs="iPinYou logs (files named like 1458.test.txt: click, market price, predicted rate)",
)
