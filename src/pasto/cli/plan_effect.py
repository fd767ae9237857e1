"""Plan of one effect: the number of rounds that a study needs to detect it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from pasto.cli.connection import open_api
from pasto.cli.output import console, echo, print_json, print_table
from pasto.errors import InputError, OptionError
from pasto.formatting import format_number

if TYPE_CHECKING:
    from pasto.inference.power import PowerPlan
    from pasto.report.lift_records import MetricSpread
    from pasto.report.records import Report


def plan_effect(
    *,
    units: float | None,
    std: float | None,
    mean: float | None,
    effect: str,
    control_share: str,
    treatment_share: str | None,
    comparisons: int,
    max_rounds: int,
    power: str,
    confidence: str,
    seed: int,
    study: str | None,
    metric: str | None,
    figure: Path | None,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Simulate studies with a known effect, and count the rounds until their report detects it."""
    from pasto.inference.power import plan_power

    share = read_share(control_share, "--control-share")
    if study is not None:
        with open_api(store, url, key) as api:
            spread = _read_spread(api.report(study), metric)
        units, mean, std = units or spread.units, spread.mean, std or spread.deviation
        share = spread.control
    if units is None or std is None:
        raise OptionError("a plan needs --units and --std, or --study to take them from")
    size = _parse_effect(effect, mean)
    power_plan = plan_power(
        size,
        std,
        units,
        control=share,
        treated=None if treatment_share is None else read_share(treatment_share, "--treatment-share"),
        rounds=max_rounds,
        confidence=read_share(confidence, "--confidence"),
        power=read_share(power, "--power"),
        claims=comparisons,
        seed=seed,
    )
    figures = {
        "effect": size,
        "units": units,
        "std": std,
        "control_share": share,
        "power": power_plan.power,
        "rounds_at_horizon": power_plan.rounds_at_horizon,
        "rounds_at_any_look": power_plan.rounds_at_any_look,
        "rounds_to_guardrail_stop": power_plan.rounds_to_guardrail_stop,
        "at_horizon": power_plan.at_horizon,
        "at_any_look": power_plan.at_any_look,
        "guardrail_monitor": power_plan.guardrail_monitor,
        "error": power_plan.error,
    }
    if figure is not None:
        _draw(power_plan, figure)
    if as_json:
        print_json(figures)
        return
    screen = console()
    screen.print(
        f"An effect of {format_number(size)} among {units:,.0f} units a round "
        f"(standard deviation {format_number(std)}, control share {share:.0%}), "
        f"detected with a probability of {power_plan.power:.0%}:"
    )
    rows = [
        ["one look, at a time set beforehand", _rounds(power_plan.rounds_at_horizon, max_rounds)],
        ["a look after every round", _rounds(power_plan.rounds_at_any_look, max_rounds)],
        [
            "the guardrail monitor, for a drop of this size below its stop level",
            _rounds(power_plan.rounds_to_guardrail_stop, max_rounds),
        ],
    ]
    print_table(screen, ["", "rounds"], rows)


def _draw(power_plan: PowerPlan, figure: Path) -> None:
    from pasto.report.figures import draw_plan, save_figure

    try:
        for path in save_figure(draw_plan(power_plan), figure):
            echo(f"wrote {path}", err=True)
    except OSError as error:
        raise InputError(f"{str(figure)!r} cannot be written: {error.strerror}") from error


def read_share(text: str, option: str) -> float:
    """Return a share that is written 10% or 0.1.

    >>> read_share("10%", "--power"), read_share("0.1", "--power")
    (0.1, 0.1)
    """
    try:
        share = float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise OptionError(f"{option} must be a share between 0 and 1, such as 10% or 0.1, got {text!r}")
    return share


def _parse_effect(text: str, mean: float | None) -> float:
    """Return an effect in the metric's own units."""
    try:
        size = float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        size = math.nan
    if not math.isfinite(size) or size == 0.0:
        raise OptionError(f"--effect must be a number in the metric's units or a percentage of its mean, got {text!r}")
    if not text.endswith("%"):
        return abs(size)
    if mean is None or mean == 0.0:
        raise OptionError(
            f"--effect {text} is a percentage of the metric's mean; give the mean with --mean, or name a --study"
        )
    return abs(size * mean)


def _read_spread(report: Report, metric: str | None) -> MetricSpread:
    """Return units in a round, mean and deviation of the control, and its share, as a study measured them."""
    spreads = report.spreads
    if not spreads:
        raise OptionError(f"study {report.name!r} has not measured a round yet; give --units and --std")
    name = next(iter(spreads)) if metric is None else metric
    if name not in spreads:
        raise OptionError(f"study {report.name!r} has no metric {name!r}; it measures {', '.join(spreads)}")
    return spreads[name]


def _rounds(rounds: int | None, max_rounds: int) -> str:
    return f"more than {max_rounds}" if rounds is None else f"{rounds:,}"
