"""A blend told to people: a table of who takes part, and sentences on guardrails, prices and the gain of mixing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from pasto.cli.means import Means
from pasto.cli.screen import number, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.objective import Guardrail, Objective
    from pasto.records import Blend


def as_value(blend: Blend, objective: Objective) -> dict[str, Any]:
    """A blend as a plain JSON value, with candidates by name."""
    gain = blend.gain
    return {
        "objective": str(objective),
        "blend": {blend.names[k]: blend.probabilities[k] for k in blend.support},
        "feasible": blend.feasible,
        "value": blend.value,
        "metrics": dict(blend.metrics),
        "lifts": dict(blend.lifts),
        "prices": dict(blend.prices),
        "shortfalls": dict(blend.shortfalls),
        "single": None if blend.single is None else blend.names[blend.single],
        "single_value": blend.single_value,
        "gain": {
            "over": blend.names[gain.candidate],
            "value": gain.value,
            "goal": gain.goal,
            "violations": dict(gain.violations),
        },
    }


def print_answer(screen: Console, blend: Blend, objective: Objective, table: Means, baseline: str | None) -> None:
    """Print a blend that was solved from a table of means."""
    from rich.text import Text

    screen.print(str(objective), style="bold")
    screen.print()
    _print_candidates(screen, blend, objective, table, baseline)
    screen.print()
    if blend.lifts:
        lifts = ", ".join(f"{metric} {lift:+.3g}%" for metric, lift in blend.lifts.items())
        screen.print(f"The blend against {baseline}: {lifts}.")
    for name, rail in zip(objective.names, objective.guardrails, strict=True):
        screen.print(Text.assemble(f"{rail}: ", *standing_in_words(name, rail, blend, objective)))
    screen.print(gain_in_words(blend, objective))
    if not blend.feasible:
        missed = [f"{name} by {number(blend.shortfalls[name])}" for name in objective.hard if name in blend.shortfalls]
        screen.print(
            "No blend of these candidates meets every hard guardrail. The one above comes nearest; it misses "
            f"{' and '.join(missed)}.",
            style="bold red",
        )


def _print_candidates(screen: Console, blend: Blend, objective: Objective, table: Means, baseline: str | None) -> None:
    """The blend, each candidate in it, the best single one and the baseline, with their metrics and what they miss."""
    import numpy as np

    from pasto.optimize import describe

    means = np.array([table.metrics[metric] for metric in objective.metrics])
    others = {name: np.array(row) for name, row in table.metrics.items() if name not in objective.metrics}
    place = None if baseline is None else table.names.index(baseline)

    def alone(candidate: int) -> Blend:
        one = np.zeros(len(table.names))
        one[candidate] = 1.0
        return describe(one, means, objective, names=table.names, baseline=place, others=others)

    lines = [("blend", "100%", blend, "bold")]
    for candidate in blend.support:
        lines.append((table.names[candidate], f"{blend.probabilities[candidate]:.1%}", alone(candidate), ""))
    kind = "best single" if blend.single is not None else "least bad single"
    lines.append((f"{kind}: {table.names[blend.gain.candidate]}", "", alone(blend.gain.candidate), "dim"))
    if place is not None:
        lines.append((f"baseline: {baseline}", "", alone(place), "dim"))
    rows = [
        [label, share, *(number(one.metrics[metric]) for metric in blend.metrics), ", ".join(one.shortfalls)]
        for label, share, one, _ in lines
    ]
    header = ["", "share", *blend.metrics, "misses"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    print_table(screen, header, rows, styles=[style for *_, style in lines], text={0, len(blend.metrics) + 2})


def standing_in_words(name: str, rail: Guardrail, blend: Blend, objective: Objective) -> tuple[tuple[str, str], str]:
    """Whether the blend meets a guardrail, with the colour for it, and what relaxing it would buy."""
    missed = blend.shortfalls.get(name)
    price = "; " + price_in_words(blend.prices[name], rail, objective) + "."
    if missed is None:
        return ("met", "green"), price if blend.feasible else "."
    amount = number(missed) + (" percentage points" if rail.relative else "")
    if rail.penalty is None:
        return (f"missed by {amount}", "red"), "."
    return (f"short by {amount}, which its penalty allows", "yellow"), price if blend.feasible else "."


def price_in_words(price: float, rail: Guardrail, objective: Objective) -> str:
    """What relaxing a guardrail buys, for a step that suits its threshold."""
    if abs(price) < 1e-9:
        return f"relaxing {rail.label} buys nothing"
    goal = objective.shown[0] if len(objective.shown) == 1 else None
    label = "of the goal" if goal is None else goal if isinstance(goal, str) else goal.name
    verb = "buys" if objective.sign > 0 else "saves"
    if objective.relative:
        worth = f"{number(price)}% " + (label if goal is None else f"of {label}")
        return f"relaxing {rail.label} by one {'percentage point' if rail.relative else 'unit'} {verb} {worth}"
    size = abs(rail.at)
    step = 1.0 if size >= 1 or size == 0 else 10.0 ** (math.floor(math.log10(size)) - 1)
    amount = "one unit" if step == 1 else f"{step:g}"
    return f"relaxing {rail.label} by {amount} {verb} {number(price * step)} {label}"


def gain_in_words(blend: Blend, objective: Objective) -> str:
    """What mixing is worth against the best single candidate."""
    over = blend.names[blend.gain.candidate]
    if blend.gain.value is None:
        breaks = " and ".join(f"{name} by {number(amount)}" for name, amount in blend.gain.violations.items())
        told = f"No single candidate meets every hard guardrail; {over}, the least bad one, misses {breaks}."
        if len(blend.support) == 1:
            return told
        better = "better" if blend.gain.goal >= 0 else "worse"
        return f"{told} The blend's goal is {number(abs(blend.gain.goal))} {better} than its."
    if len(blend.support) == 1:
        return f"Mixing buys nothing here: the single candidate {over} is the best blend, f = {number(blend.value)}."
    return (
        f"Mixing is worth {number(blend.gain.value)}{' percent' if objective.relative else ''}: f = "
        f"{number(blend.value)} for the blend, {number(blend.value - blend.gain.value)} for the best single "
        f"candidate, {over}."
    )
