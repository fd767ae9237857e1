"""Figure 4: the relative gain of Algorithm 1 on random problems, at several noise levels."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from pasto.sim import LearningTrace, RelativeGains, relative_gain
from pasto_research.paper.experiment import Claim, Experiment, Outcome, Size, Table
from pasto_research.paper.figure4_plots import gain_figure, noise_figure, runs_figure
from pasto_research.paper.figure4_runs import (
    CANDIDATES,
    GAP,
    HELD,
    PARALLEL,
    SIGMAS,
    Level,
    play_held,
    play_level,
    served_gain,
)

TABLE_ROUNDS = (30, 100, 300, 1_000, 10_000, 100_000)
REFERENCE = {
    0.1: dict(zip(TABLE_ROUNDS, (-43.0, -37.0, -26.0, -15.0, -3.0, 0.48), strict=True)),
    1.0: dict(zip(TABLE_ROUNDS, (-43.0, -37.0, -27.0, -16.0, -3.0, -1.3), strict=True)),
}
"""The signed ratio of means after so many rounds, from a separate implementation."""
REFERENCE_RUNS = 40
"""At least so many instances are behind each number of the reference."""


def run(size: Size) -> Outcome:
    """Run Algorithm 1 with the paper's settings on random worlds, at each noise level."""
    levels = [play_level(sigma, size) for sigma in SIGMAS]
    noisy = levels[-1]
    held = play_held(noisy, size)
    table_rounds = tuple(mark for mark in TABLE_ROUNDS if mark <= noisy.long.rounds) or (noisy.long.rounds,)
    return Outcome(
        name="synthetic-b",
        title="Figure 4: relative gain of Algorithm 1 on random problems",
        settings={
            "runs": size.runs,
            "rounds": size.rounds,
            "long runs": levels[0].long.runs,
            "long rounds": levels[0].long.rounds,
            "seed": size.seed,
            "draws a round": PARALLEL,
            "candidates": CANDIDATES,
            "noise levels": SIGMAS,
            "smallest gap kept": GAP,
            "floor ε_t": "0.1/√(t+10)",
            "step γ": 0.001,
        },
        claims=(
            *(_gains(level) for level in levels),
            *(_turns(level) for level in levels),
            _control(noisy, held),
            _noise(levels),
            *(_agrees(level, table_rounds) for level in levels if level.sigma in REFERENCE),
            _absolute(levels[0]),
            _gaps(levels[0]),
        ),
        tables=(
            _ratio_table(levels, table_rounds),
            _own_table(levels, table_rounds),
            _evidence_table(levels, held, table_rounds),
        ),
        data={
            **{
                f"sigma {level.sigma:g}": {
                    "main": _curves(level.main, level.main_gains),
                    "long": _curves(level.long, level.long_gains),
                }
                for level in levels
            },
            f"sigma {noisy.sigma:g}, floor held": _curves(held, relative_gain(held, gap=GAP)),
        },
        figures={
            "synthetic-b": partial(gain_figure, levels),
            "synthetic-b-runs": partial(runs_figure, levels),
            "synthetic-b-noise": partial(noise_figure, levels, held),
        },
    )


def _gains(level: Level) -> Claim:
    main, long = level.main_gains, level.long_gains
    ahead = long.ratio > 0.0
    since = len(ahead) - int(np.argmin(ahead[::-1])) if not ahead.all() else 0
    crossing = f"above 0 from {level.long.checkpoints[since]:,} rounds on" if ahead[-1] else "not above 0 at the end"
    return Claim(
        what=f"r > 0, better than the best single candidate, at σ = {level.sigma:g}",
        paper="converges and approaches the best possible gain (r = 1)",
        measured=f"r = {_plus(main.ratio[-1], main.error[-1])} after {level.main.rounds:,} rounds ({level.main.runs:,} "
        f"runs), {_plus(long.ratio[-1], long.error[-1])} after {level.long.rounds:,} ({level.long.runs:,} runs); "
        + crossing,
        holds=True if ahead[-1] else _if_long(level, False),
        note="signed ratio of means, Σ (f(p̄) − f(single)) / Σ (f* − f(single)), ± its bootstrap error",
    )


def _if_long(level: Level, verdict: bool) -> bool | None:
    """Return the verdict if the runs reach the last round of the table, otherwise None."""
    return verdict if level.long.rounds >= max(TABLE_ROUNDS) else None


def _turns(level: Level) -> Claim:
    """Claim that the served policy is worse at the end of the long runs than it was before."""
    best = int(np.argmax(level.served.ratio))
    gaps = level.long.optimum - level.long.single
    lost = (level.long.served[:, best] - level.long.served[:, -1]) / (gaps.mean() or np.nan)
    error = float(lost.std(ddof=1) / sqrt(len(lost)))
    marks, errors = level.long.checkpoints, level.long.measures["error"].mean(axis=0)
    smallest = np.median(level.long.measures["smallest"], axis=0)
    return Claim(
        what=f"More rounds do not make the served policy worse, at σ = {level.sigma:g}",
        paper="converges",
        measured=f"the served policy's r peaks at {level.served.ratio[best]:.2f} after {marks[best]:,} rounds and is "
        f"{level.served.ratio[-1]:.2f} after {marks[-1]:,} (a loss of {_plus(float(lost.mean()), error)})",
        holds=False if lost.mean() > 3.0 * error else _if_long(level, True),
        note=f"as ε_t shrinks, the smallest probability falls to {smallest[-1]:.1e}, and a draw of such a candidate "
        f"enters V̂ divided by it: the error of V̂ is least after {marks[int(np.argmin(errors))]:,} rounds "
        f"({errors.min():.2f}), rises to {errors[np.argmin(errors) :].max():.2f} and is {errors[-1]:.2f} at the end; "
        "holds unless the loss is above three standard errors (the peak is picked among the checkpoints)",
    )


def _control(level: Level, held: LearningTrace) -> Claim:
    answer, served = relative_gain(held, gap=GAP), served_gain(held)
    return Claim(
        what=f"The same long runs at σ = {level.sigma:g} with a floor that does not shrink (ε = {HELD:g})",
        paper="not in the paper",
        measured=f"after {held.rounds:,} rounds r = {_plus(answer.ratio[-1], answer.error[-1])}, against "
        f"{_plus(level.long_gains.ratio[-1], level.long_gains.error[-1])} with ε_t; of the served policy "
        f"{served.ratio[-1]:.2f}, against {level.served.ratio[-1]:.2f}; the error of V̂ is "
        f"{held.measures['error'][:, -1].mean():.2f}, against {level.long.measures['error'][:, -1].mean():.2f}",
        holds=None,
        note="the truths and the random numbers are the same; only the floor differs",
    )


def _noise(levels: list[Level]) -> Claim:
    last = [float(level.long_gains.ratio[-1]) for level in levels]
    return Claim(
        what="Noise slows convergence",
        paper="the noise of observation does impact the convergence speed",
        measured="; ".join(
            f"σ = {level.sigma:g}: r = {level.main_gains.ratio[-1]:.2f} after {level.main.rounds:,} rounds, "
            f"{level.long_gains.ratio[-1]:.2f} after {level.long.rounds:,}"
            for level in levels
        ),
        holds=last == sorted(last, reverse=True),
    )


def _agrees(level: Level, table_rounds: tuple[int, ...]) -> Claim:
    """Compare with the numbers of a separate implementation, within three standard errors of the difference."""
    reference = {mark: value for mark, value in REFERENCE[level.sigma].items() if mark in table_rounds}
    measured, apart = [], []
    for mark, expected in reference.items():
        gains, trace, place = level.at(mark)
        error = gains.error[place] * sqrt(1.0 + trace.runs / REFERENCE_RUNS)
        measured.append(float(gains.ratio[place]))
        apart.append(abs(measured[-1] - expected) / float(error))
    worst = max(apart, default=float("nan"))
    return Claim(
        what=f"r after {', '.join(f'{mark:,}' for mark in reference) or 'few'} rounds, {level.name}",
        paper=f"no numbers; reference {', '.join(f'{value:g}' for value in reference.values()) or 'none'}",
        measured=", ".join(f"{value:.2f}" for value in measured) or "none",
        holds=bool(worst <= 3.0) if np.isfinite(worst) else None,
        note=f"at most {worst:.1f} standard errors apart; the reference is a separate implementation's, from at least "
        f"{REFERENCE_RUNS} instances, so it is the noisier of the two",
    )


def _absolute(level: Level) -> Claim:
    single = level.main.single[:, None]
    printed = relative_gain(replace(level.main, answer=single + np.abs(level.main.answer - single)), gap=GAP).mean
    worse = float((level.main.answer[:, -1] < level.main.single).mean())
    return Claim(
        what="r as printed, with |·| in the numerator",
        paper="r > 0 means better than the best single candidate",
        measured=f"the same runs at {level.name} read r = {printed[0]:.0f} after the first round and {printed[-1]:.1f} "
        f"after {level.main.rounds:,}, where {worse:.0%} of them are worse than the best single",
        holds=None,
        note="an absolute value can never show a loss; every r here keeps its sign",
    )


def _gaps(level: Level) -> Claim:
    gaps = level.main.optimum - level.main.single
    return Claim(
        what="Every random problem has something to gain",
        paper="r divides by the gap between best blend and best single",
        measured=f"{(gaps < 1e-9).mean():.1%} of draws have no gap at all, {(gaps < GAP).mean():.1%} one below "
        f"{GAP:g}; the mean gap is {gaps.mean():.3f}",
        holds=None,
        note="so r is given as a ratio of means over all runs, and as a mean of ratios over the other runs only",
    )


def _plus(value: float, error: float) -> str:
    return f"{value:.2f} ± {error:.2f}"


def _ratio_table(levels: list[Level], table_rounds: tuple[int, ...]) -> Table:
    rows = []
    for level in levels:
        found = [level.at(mark) for mark in table_rounds]
        rows.append((f"{level.sigma:g}", *(_plus(gains.ratio[at], gains.error[at]) for gains, _, at in found)))
    return Table("r as ratio of means ± bootstrap error", _header(levels, table_rounds), tuple(rows))


def _own_table(levels: list[Level], table_rounds: tuple[int, ...]) -> Table:
    rows = []
    for level in levels:
        found = [level.at(mark) for mark in table_rounds]
        rows.append((f"{level.sigma:g}", *(_plus(gains.mean[at], gains.deviation[at]) for gains, _, at in found)))
    return Table(
        f"Runs' own r, mean ± deviation, where the gap is at least {GAP:g}", _header(levels, table_rounds), tuple(rows)
    )


def _header(levels: list[Level], table_rounds: tuple[int, ...]) -> tuple[str, ...]:
    runs = {mark: levels[0].at(mark)[1].runs for mark in table_rounds}
    return ("σ", *(f"{mark:,} rounds ({runs[mark]:,} runs)" for mark in table_rounds))


def _evidence_table(levels: list[Level], held: LearningTrace, table_rounds: tuple[int, ...]) -> Table:
    rows: list[tuple[str, ...]] = []
    traces = {level.name: level.long for level in levels}
    for name, trace in (traces | {f"{levels[-1].name}, floor held at ε = {HELD:g}": held}).items():
        answer, served = relative_gain(trace, gap=GAP), served_gain(trace)
        for mark in table_rounds:
            place = int(np.flatnonzero(trace.checkpoints == mark)[0])
            rows.append(
                (
                    name,
                    f"{mark:,}",
                    f"{np.median(trace.measures['smallest'][:, place]):.1e}",
                    f"{trace.measures['error'][:, place].mean():.3f}",
                    f"{served.ratio[place]:.2f}",
                    f"{answer.ratio[place]:.2f}",
                )
            )
    header = ("noise", "rounds", "smallest p_t", "error of V̂", "r of p_t", "r of p̄_t")
    return Table(f"Why it turns ({held.runs} long runs)", header, tuple(rows))


def _curves(trace: LearningTrace, gains: RelativeGains) -> dict[str, Any]:
    return {
        "rounds": trace.checkpoints,
        "runs": trace.runs,
        "ratio": gains.ratio,
        "ratio error": gains.error,
        "own mean": gains.mean,
        "own deviation": gains.deviation,
        "own runs": gains.runs_with_gap,
        "served ratio": served_gain(trace).ratio,
        "smallest probability": np.median(trace.measures["smallest"], axis=0),
        "estimate error": trace.measures["error"].mean(axis=0),
    }


EXPERIMENT = Experiment(
    name="synthetic-b",
    summary="Figure 4: relative gain of Algorithm 1 on random problems, by noise level",
    runs=1_000,
    rounds=10_000,
    quick_runs=200,
    quick_rounds=2_000,
    run=run,
)
