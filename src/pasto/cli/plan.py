"""`pasto plan`: how long a study must run until an effect shows."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pasto.cli.connection import desk_options, open_api
from pasto.cli.output import console, echo, print_json, print_table
from pasto.errors import InputError, OptionError
from pasto.formatting import format_number

if TYPE_CHECKING:
    from pasto.inference.power import PowerPlan
    from pasto.report.records import MetricSpread, Report


@click.command(
    short_help="How many rounds until an effect shows.",
    epilog="""\b
Examples:
  pasto plan --units 20000 --deviation 3 --effect 0.1
  pasto plan --units 20000 --mean 12 --deviation 30 --effect 1% --figure plan
  pasto plan --study feed --metric watch_time --effect 1%
""",
)
@click.option("--units", type=click.FloatRange(min=1), metavar="N", help="Units in each round.")
@click.option("--deviation", type=float, metavar="X", help="The metric's standard deviation from unit to unit.")
@click.option("--mean", type=float, metavar="X", help="The metric's mean, which an effect in percent needs.")
@click.option("--effect", required=True, metavar="X", help="The smallest effect worth finding: 0.1, or 1% of the mean.")
@click.option(
    "--control", default="10%", show_default=True, metavar="SHARE", help="Of all units, held on the baseline."
)
@click.option("--treated", metavar="SHARE", help="Of all units, served what is judged; all the rest, if left out.")
@click.option("--claims", default=1, show_default=True, metavar="N", help="Metrics or candidates judged together.")
@click.option("--rounds", default=200, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--power", default="80%", show_default=True, metavar="SHARE", help="The chance to find it.")
@click.option("--confidence", default="95%", show_default=True, metavar="SHARE", help="Of what is then claimed.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Of the simulation.")
@click.option("--study", metavar="NAME", help="Take units, mean, deviation and control from this study's rounds.")
@click.option("--metric", metavar="NAME", help="Of the study; its goal, if left out.")
@click.option("--figure", type=click.Path(path_type=Path), metavar="PATH", help="Draw it: PATH.png and PATH.svg.")
@desk_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def plan(
    units: float | None,
    deviation: float | None,
    mean: float | None,
    effect: str,
    control: str,
    treated: str | None,
    claims: int,
    rounds: int,
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
    """Simulate studies with an effect, and count the rounds until their report would tell it.

    Traffic and the metric's spread are given, or taken from what a study has measured so far.
    """
    from pasto.inference.power import plan_power as simulate

    share = read_share(control, "--control")
    if study is not None:
        with open_api(store, url, key) as desk:
            known = _measured(desk.report(study), metric)
        units, mean, deviation = units or known.units, known.mean, deviation or known.deviation
        share = known.control
    if units is None or deviation is None:
        raise OptionError("a plan needs --units and --deviation, or --study to take them from")
    size = _effect(effect, mean)
    found = simulate(
        size,
        deviation,
        units,
        control=share,
        treated=None if treated is None else read_share(treated, "--treated"),
        rounds=rounds,
        confidence=read_share(confidence, "--confidence"),
        power=read_share(power, "--power"),
        claims=claims,
        seed=seed,
    )
    told = {
        "effect": size,
        "units": units,
        "deviation": deviation,
        "control": share,
        "power": found.power,
        "rounds_at_horizon": found.rounds_at_horizon,
        "rounds_at_any_look": found.rounds_at_any_look,
        "rounds_of_breaker": found.rounds_of_breaker,
        "at_horizon": found.at_horizon,
        "at_any_look": found.at_any_look,
        "breaker": found.breaker,
        "error": found.error,
    }
    if figure is not None:
        _draw(found, figure)
    if as_json:
        print_json(told)
        return
    screen = console()
    screen.print(
        f"An effect of {format_number(size)} among {units:,.0f} units a round "
        f"(deviation {format_number(deviation)}, control "
        f"{share:.0%}), found with a chance of {found.power:.0%}:"
    )
    rows = [
        ["one look, at a horizon set beforehand", _rounds(found.rounds_at_horizon, rounds)],
        ["looking after every round", _rounds(found.rounds_at_any_look, rounds)],
        ["the breaker, for a drop of this size below its floor", _rounds(found.rounds_of_breaker, rounds)],
    ]
    print_table(screen, ["", "rounds"], rows)


def _draw(found: PowerPlan, figure: Path) -> None:
    from pasto.report.figures import save_figure
    from pasto.report.power_figure import draw_plan

    try:
        for path in save_figure(draw_plan(found), figure):
            echo(f"wrote {path}", err=True)
    except OSError as error:
        raise InputError(f"{str(figure)!r} cannot be written: {error.strerror}") from error


def read_share(text: str, option: str) -> float:
    """A share: 10% or 0.1.

    >>> read_share("10%", "--control"), read_share("0.1", "--control")
    (0.1, 0.1)
    """
    try:
        share = float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if not 0.0 < share < 1.0:
        raise OptionError(f"{option} is a share between 0 and 1, such as 10% or 0.1, got {text!r}")
    return share


def _effect(text: str, mean: float | None) -> float:
    """An effect in the metric's own units."""
    try:
        size = float(text[:-1]) / 100.0 if text.endswith("%") else float(text)
    except ValueError:
        size = math.nan
    if not math.isfinite(size) or size == 0.0:
        raise OptionError(f"--effect is a number in the metric's own units, or a percentage of its mean, got {text!r}")
    if not text.endswith("%"):
        return abs(size)
    if mean is None or mean == 0.0:
        raise OptionError(f"--effect is {text}, a part of the metric's mean; say it with --mean, or name a --study")
    return abs(size * mean)


def _measured(report: Report, metric: str | None) -> MetricSpread:
    """Return the traffic and spread of a study's metric, from which a plan is made."""
    spreads = report.spreads
    if not spreads:
        raise OptionError(f"study {report.name!r} has measured no round yet; give --units and --deviation")
    name = next(iter(spreads)) if metric is None else metric
    if name not in spreads:
        raise OptionError(f"study {report.name!r} has no metric {name!r}; it measures {', '.join(spreads)}")
    return spreads[name]


def _rounds(found: int | None, most: int) -> str:
    return f"more than {most}" if found is None else f"{found:,}"
