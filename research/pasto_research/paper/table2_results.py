"""Tables 1 and 2: results of the simulation on real data, with claims and figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pasto.objective import maximize
from pasto.optimize import solve
from pasto_research.paper.experiment import Claim, Outcome, Size, Table
from pasto_research.paper.models.mult_vae import settings_document
from pasto_research.paper.replay import Course, LearnerRuns, tabulate
from pasto_research.paper.table2_figures import learning, trade_off
from pasto_research.paper.table2_replay import ALPHAS, CHOICES, PENALTY, GuardrailVariant, Table2Replay

SHARES = (0.9, 0.99)
"""Of the best f, which learners are to reach."""
SINGLE = "the best single α"
LEVELS = 58
"""Of the second metric, at which blends and single settings are compared."""
SPLIT_ERRORS = 1.0
"""Deviations of one random half that a lead on the other half must exceed to count."""


@dataclass(frozen=True, slots=True)
class PaperNumbers:
    """Numbers of the paper's Tables 1 and 2 for a data set."""

    data: str
    counts: tuple[int, int, int]
    """Users, items and events."""
    threshold: float
    probabilistic: tuple[float, float]
    single: tuple[float, float]
    goal: float
    """The first metric alone, without a guardrail."""


def build_outcome(name: str, title: str, sets: tuple[Table2Replay, ...], printed: PaperNumbers, size: Size) -> Outcome:
    """Return the outcome on some data sets, compared with the numbers of the paper."""
    figures = {}
    for replay in sets:
        stem = f"{name}-{_slug(replay)}" if len(sets) > 1 else name
        figures[stem] = partial(trade_off, replay)
        figures[f"{stem}-learning"] = partial(learning, replay)
    return Outcome(
        name=name,
        title=f"{title}, on {' and '.join(replay.split.pairs.name for replay in sets)} (the paper: {printed.data})",
        settings={
            "repeats": size.runs,
            "rounds": size.rounds,
            "seed": size.seed,
            "α": f"{CHOICES} from 0 to 1",
            "λ": PENALTY,
            "folds and candidates a round": 10,
            "Mult-VAE": settings_document(sets[0].settings),
        },
        claims=tuple(claim for replay in sets for claim in _claims(replay, printed)),
        tables=(
            _counts(sets, printed),
            *(_sanity(replay) for replay in sets),
            *(_results(replay, printed) for replay in sets),
            *(_rounds(replay) for replay in sets),
            *(_unseen(replay) for replay in sets),
        ),
        data={replay.split.pairs.name: _data(replay) for replay in sets},
        figures=figures,
    )


def _claims(replay: Table2Replay, printed: PaperNumbers) -> tuple[Claim, ...]:
    blend, single = printed.probabilistic[0], printed.single[0]
    name = replay.split.pairs.name
    claims = [
        _blend_wins(replay, goal, f"{blend} against {single} on {printed.data}") for goal in (replay.soft, replay.hard)
    ]
    return (
        *claims,
        *(_learner_wins(replay, goal, each) for goal in (replay.soft, replay.hard) for each in goal.learned),
        _bites(replay, name),
    )


def _blend_wins(replay: Table2Replay, goal: GuardrailVariant, paper: str) -> Claim:
    """Compare the blend with the best single α; a lead must hold on users who did not choose it."""
    what = f"{replay.split.pairs.name}: the best blend beats the best single α, {_kind(goal)}"
    if goal.best.best_single is None:
        return Claim(what, paper, "no single α keeps the guardrail", holds=True)
    lead, error = replay.lead(goal)
    value, gains = float(goal.best.gain.value or 0.0), goal.halves.other_gain
    singles = replay.truth[:, goal.best.best_single]
    return Claim(
        what=what,
        paper=paper,
        measured=f"f rises by {value:.5f} ({value / abs(float(goal.best.best_single_value or 1.0)):.2%}): "
        f"{replay.metrics[0]} "
        f"{goal.best.metrics[replay.metrics[0]]:.4f} against {singles[0]:.4f} ({lead[0]:+.4f} ± {error[0]:.4f} over "
        f"users), {replay.metrics[1]} {goal.best.metrics[replay.metrics[1]]:.4f} against {singles[1]:.4f}; "
        f"chosen on one half of the users, on the other f rises by {gains.mean():.5f} "
        f"(deviation of a split {gains.std():.5f})",
        holds=bool(gains.mean() > SPLIT_ERRORS * gains.std()),
        note=f"at {LEVELS} levels of {replay.metrics[1]} the best single α is at most {_hollow(replay):.4f} "
        f"{replay.metrics[0]} behind the best blend; one point of the curve is known to "
        f"± {replay.user_sample.errors[0].mean():.4f} {replay.metrics[0]} and "
        f"± {replay.user_sample.errors[1].mean():.4f} {replay.metrics[1]}",
    )


def _learner_wins(replay: Table2Replay, goal: GuardrailVariant, learned: LearnerRuns) -> Claim:
    mean, error = learned.last(replay.truth)
    if goal.soft:
        values = np.asarray(goal.objective.value(learned.metrics(replay.truth)[:, -1]))
        single = float(goal.best.best_single_value or np.nan)
        spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
        measured = (
            f"f = {values.mean():.4f} ± {spread:.4f} after {learned.marks[-1]:,} rounds (highest: "
            f"{_course(replay, goal, learned).highest}); best single {single:.4f}, best blend {goal.best.value:.4f}"
        )
        holds = bool(values.mean() > single)
    else:
        single = float("nan") if goal.best.best_single is None else float(replay.truth[0, goal.best.best_single])
        met = float((learned.metrics(replay.truth)[:, -1, 1] >= replay.threshold - 1e-12).mean())
        measured = (
            f"{replay.metrics[0]} {mean[0]:.4f} ± {error[0]:.4f} with {replay.metrics[1]} {mean[1]:.4f} (limit "
            f"{replay.threshold:.4f}, met in {met:.0%} of the repeats) after {learned.marks[-1]:,} rounds; best single "
            f"{single:.4f}"
        )
        holds = bool(mean[0] > single and met >= 0.9)
    return Claim(
        what=f"{replay.split.pairs.name}: {learned.learner} learns a blend better than the best single α, "
        f"{_kind(goal)}",
        paper="yes; rounds not given" if goal.soft else "no hard guardrail in the simulation",
        measured=measured,
        holds=holds,
        note="" if learned.marks[-1] >= 50 else "too few rounds for a verdict",
    )


def _bites(replay: Table2Replay, name: str) -> Claim:
    lost = replay.threshold**2 * PENALTY
    spread = float(np.ptp(replay.truth[0]))
    return Claim(
        what=f"{name}: λ = {PENALTY:g} holds {replay.metrics[1]} at its threshold",
        paper="metrics end at or above the threshold",
        measured=f"losing all of {replay.metrics[1]} costs {lost:.3g}, and {replay.metrics[0]} differs by {spread:.3g} "
        f"between α; the best blend under λ has {replay.soft.best.metrics[replay.metrics[1]]:.4f}, the threshold is "
        f"{replay.threshold:.4f}",
        holds=bool(replay.soft.best.metrics[replay.metrics[1]] >= 0.98 * replay.threshold),
        note="why everything is run again with a hard guardrail",
    )


def _counts(sets: tuple[Table2Replay, ...], printed: PaperNumbers) -> Table:
    rows: list[tuple[str | int | None, ...]] = [(f"the paper: {printed.data}", *printed.counts, None, None)]
    for replay in sets:
        pairs = replay.split.pairs
        rows.append(
            (
                pairs.name,
                pairs.user_count,
                pairs.item_count,
                pairs.events,
                replay.split.train.nnz,
                replay.split.test.nnz,
            )
        )
    return Table("Table 1: the data as prepared", ("data", "users", "items", "events", "training", "test"), tuple(rows))


def _sanity(replay: Table2Replay) -> Table:
    return Table(
        f"{replay.split.pairs.name}: the models and simpler ones",
        ("model", *replay.metrics),
        tuple((name, round(pair[0], 4), round(pair[1], 4)) for name, pair in replay.baselines.items()),
    )


def _results(replay: Table2Replay, printed: PaperNumbers) -> Table:
    """Return the paper's Table 2, with a soft and with a hard guardrail."""
    rows: list[tuple[str | float | None, ...]] = []
    for goal in (replay.soft, replay.hard):
        word = _kind(goal)
        best = goal.best
        rows.append((f"{word}: probabilistic, exact", *_pair(best.metrics, replay), _mixture(goal)))
        for learned in goal.learned:
            mean, error = learned.last(replay.truth)
            cells = [f"{m:.4f} ± {e:.4f}" for m, e in zip(mean, error, strict=True)]
            rows.append((f"{word}: probabilistic, {learned.learner}", *cells, f"{learned.marks[-1]:,} rounds"))
        if best.best_single is None:
            rows.append((f"{word}: single best", None, None, "none keeps the guardrail"))
        else:
            at = replay.truth[:, best.best_single]
            rows.append((f"{word}: single best", f"{at[0]:.4f}", f"{at[1]:.4f}", f"α = {ALPHAS[best.best_single]:.3f}"))
    top = replay.truth[:, replay.top]
    rows.append(("single goal", f"{top[0]:.4f}", f"{top[1]:.4f}", f"α = {ALPHAS[replay.top]:.3f}"))
    rows.append(("α = 0.5, the threshold", f"{replay.middle[0]:.4f}", f"{replay.threshold:.4f}", ""))
    rows.append((f"the paper, {printed.data}: probabilistic", *map(str, printed.probabilistic), ""))
    rows.append((f"the paper, {printed.data}: single best", *map(str, printed.single), ""))
    rows.append((f"the paper, {printed.data}: single goal", str(printed.goal), None, ""))
    return Table(f"Table 2: {replay.split.pairs.name}", ("solution", *replay.metrics, "what it is"), tuple(rows))


def _rounds(replay: Table2Replay) -> Table:
    """Return f of the learners' answers (soft), or the goal and the share of repeats that meet the guardrail (hard)."""
    return tabulate(
        f"{replay.split.pairs.name}: f of the answer (soft), {replay.metrics[0]} and how often the guardrail is kept "
        "(hard)",
        [_course(replay, goal, learned) for goal in (replay.soft, replay.hard) for learned in goal.learned],
    )


def _course(replay: Table2Replay, goal: GuardrailVariant, learned: LearnerRuns) -> Course:
    metrics = learned.metrics(replay.truth)
    name = f"{_kind(goal)}: {learned.learner}"
    if not goal.soft:
        single = {} if goal.best.best_single is None else {SINGLE: float(replay.truth[0, goal.best.best_single])}
        guardrail_met = metrics[..., 1] >= replay.threshold - 1e-12
        return Course(name, learned.marks, metrics[..., 0], guardrail_met, single, digits=4)
    best = goal.best.value
    levels = {f"{share:.0%} of the best f": share * best for share in SHARES} if best > 0 else {}
    levels[SINGLE] = float(goal.best.best_single_value or np.nan)
    return Course(name, learned.marks, np.asarray(goal.objective.value(metrics)), levels=levels, digits=4)


def _unseen(replay: Table2Replay) -> Table:
    rows = []
    for goal in (replay.soft, replay.hard):
        gap = goal.halves.difference
        if len(gap):
            rows.append(
                (
                    _kind(goal),
                    f"{goal.halves.chosen_gain.mean():+.5f}",
                    f"{goal.halves.other_gain.mean():+.5f} (deviation {goal.halves.other_gain.std():.5f})",
                    f"{gap[:, 0].mean():+.5f}",
                    f"{gap[:, 1].mean():+.5f}",
                    f"{(goal.halves.other_gain > 0).mean():.0%}",
                )
            )
    return Table(
        f"{replay.split.pairs.name}: blend less single, both chosen on a random half of the users",
        (
            "guardrail",
            "f, same half",
            "f, other half",
            f"{replay.metrics[0]}, other half",
            f"{replay.metrics[1]}, other half",
            "ahead in",
        ),
        tuple(rows),
    )


def _data(replay: Table2Replay) -> dict[str, Any]:
    return {
        "alpha": ALPHAS,
        "curve": dict(zip(replay.metrics, replay.truth, strict=True)),
        "errors": dict(zip(replay.metrics, replay.user_sample.errors, strict=True)),
        "threshold": replay.threshold,
        "baselines": replay.baselines,
        "validation": {"all": replay.trainings[0].validation, "second": replay.trainings[1].validation},
        "soft": {"probabilities": replay.soft.best.probabilities, "prices": replay.soft.best.prices},
        "hard": {"probabilities": replay.hard.best.probabilities, "prices": replay.hard.best.prices},
    }


def _hollow(replay: Table2Replay) -> float:
    """Return the largest gap between the best single α and the best blend, at levels of the second metric."""
    order = np.linspace(replay.truth[1].min(), replay.truth[1].max(), LEVELS + 2)[1:-1]
    hollow = 0.0
    for level in order:
        wanted = maximize(replay.metrics[0]).keep(replay.metrics[1], at_least=float(level))
        found = solve(wanted.by_metric(replay.truth), wanted)
        if found.best_single is not None:
            hollow = max(hollow, found.value - float(replay.truth[0, found.best_single]))
    return hollow


def _mixture(goal: GuardrailVariant) -> str:
    return " + ".join(f"{goal.best.probabilities[k]:.0%} α = {ALPHAS[k]:.3f}" for k in goal.best.support)


def _pair(metrics: Any, replay: Table2Replay) -> tuple[str, str]:
    return f"{metrics[replay.metrics[0]]:.4f}", f"{metrics[replay.metrics[1]]:.4f}"


def _kind(goal: GuardrailVariant) -> str:
    return f"soft (λ = {PENALTY:g})" if goal.soft else "hard"


def _slug(replay: Table2Replay) -> str:
    return replay.split.pairs.name.split(" (")[0].split()[-1].lower()
