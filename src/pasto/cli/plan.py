"""`pasto plan`: the plan of a study before it starts, or the number of rounds that one effect takes."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from pasto.cli.connection import api_options
from pasto.cli.options import as_json_option
from pasto.cli.plan_effect import plan_effect
from pasto.cli.plan_study import plan_file, read_metric_numbers
from pasto.errors import OptionError

STUDY_OPTIONS = ("units_per_day", "days", "history", "from_study", "spread", "competition", "daily_swing")
"""Options that need a study file."""
EFFECT_OPTIONS = (
    "effect",
    "units",
    "control_share",
    "treatment_share",
    "comparisons",
    "max_rounds",
    "power",
    "confidence",
    "study",
    "metric",
    "figure",
)
"""Options of a plan for one effect."""


class PlanCommand(click.Command):
    """Command whose help lists the options of its two uses apart."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in three sections."""
        sections: dict[str, list[tuple[str, str]]] = {"With a study FILE": [], "Without a FILE": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                title = "With a study FILE" if parameter.name in STUDY_OPTIONS else "Options"
                sections["Without a FILE" if parameter.name in EFFECT_OPTIONS else title].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command(
    cls=PlanCommand,
    short_help="Plan a study before it starts, or the rounds that an effect takes.",
    epilog="""\b
Examples:
  pasto plan feed.yaml --units-per-day 2e6 --history past.csv
  pasto plan feed.yaml --units-per-day 2e6 --mean watch_time=310 --std watch_time=420
  pasto plan feed.yaml --units-per-day 2e6 --from last-year
  pasto plan --units 20000 --std 3 --effect 0.1
  pasto plan --units 20000 --mean 12 --std 30 --effect 1% --figure plan
  pasto plan --study feed --metric watch_time --effect 1%
""",
)
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--units-per-day",
    type=click.FloatRange(min=1),
    metavar="N",
    help="Units (such as users) that come in a day; required.",
)
@click.option(
    "--days",
    type=click.FloatRange(1, 3660),
    default=28.0,
    metavar="N",
    help="Days that the study may take; 28 by default.",
)
@click.option(
    "--history",
    metavar="PATH",
    help="Means and deviations from earlier data: CSV, JSON or Parquet with a row for each metric, candidate or unit, "
    "or YAML.",
)
@click.option("--from", "from_study", metavar="STUDY", help="Means, deviations and spreads from an earlier study.")
@click.option(
    "--spread",
    multiple=True,
    metavar="[METRIC=]SHARE",
    help="Standard deviation of the candidates' effects as a share of the mean; 2% if nothing else is known.",
)
@click.option(
    "--competition",
    type=float,
    default=0.5,
    metavar="X",
    help="Correlation of a candidate's gain in the goal with its loss in a guardrail, from 0 to below 1; 0.5 by "
    "default.",
)
@click.option(
    "--daily-swing",
    type=click.Choice(["unknown", "seen", "none"]),
    help="Whether the level of the metrics follows the hour of the day; unknown by default.",
)
@click.option("--effect", metavar="X", help="Smallest effect to detect: 0.1, or 1% of the mean; required.")
@click.option("--units", type=click.FloatRange(min=1), metavar="N", help="Units (such as users) in each round.")
@click.option(
    "--control-share", default="10%", show_default=True, metavar="SHARE", help="Share of units on the baseline."
)
@click.option(
    "--treatment-share", metavar="SHARE", help="Share of units on the tested setting; by default, all other units."
)
@click.option(
    "--comparisons", default=1, show_default=True, metavar="N", help="Metrics or candidates compared at the same time."
)
@click.option(
    "--max-rounds",
    default=200,
    show_default=True,
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Longest study to simulate.",
)
@click.option("--power", default="80%", show_default=True, metavar="SHARE", help="Probability of detecting the effect.")
@click.option("--confidence", default="95%", show_default=True, metavar="SHARE", help="Confidence of the intervals.")
@click.option(
    "--study",
    metavar="NAME",
    help="Take units, mean, standard deviation and control share from the measured rounds of this study.",
)
@click.option("--metric", metavar="NAME", help="Metric of the study; by default, its goal.")
@click.option(
    "--figure", type=click.Path(path_type=Path), metavar="PATH", help="Write a figure to PATH.png and PATH.svg."
)
@click.option(
    "--mean",
    multiple=True,
    metavar="[METRIC=]X",
    help="Mean of a metric under today's setting. Without a FILE it is needed if --effect is a percentage.",
)
@click.option(
    "--std",
    multiple=True,
    metavar="[METRIC=]X",
    help="Standard deviation of a metric between units. With a FILE, name the metric: --std watch_time=310.",
)
@click.option(
    "--seed",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="Random seed of the simulation.",
)
@api_options
@as_json_option
@click.pass_context
def plan(
    ctx: click.Context,
    file: Path | None,
    units_per_day: float | None,
    days: float,
    history: str | None,
    from_study: str | None,
    spread: tuple[str, ...],
    competition: float,
    daily_swing: str | None,
    effect: str | None,
    units: float | None,
    control_share: str,
    treatment_share: str | None,
    comparisons: int,
    max_rounds: int,
    power: str,
    confidence: str,
    study: str | None,
    metric: str | None,
    figure: Path | None,
    mean: tuple[str, ...],
    std: tuple[str, ...],
    seed: int,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Plan a study before it starts, or count the rounds that one effect takes.

    With a study FILE: recommend the length of a round, the share of the control, and the number of candidates. Forecast
    the days until the guardrails are certified and until most of the gain is reached, and plan the confirmation. Every
    number comes with its reason, and with the assumptions that it rests on.

    Without a FILE: simulate studies with a known effect, and count the rounds until their report detects it. Give the
    traffic and the metric's standard deviation as options, or take them from a study with --study.
    """
    _refuse_options(ctx, EFFECT_OPTIONS if file is not None else STUDY_OPTIONS, has_file=file is not None)
    if file is not None:
        plan_file(
            file,
            units_per_day=units_per_day,
            days=days,
            history=history,
            from_study=from_study,
            means=mean,
            deviations=std,
            spreads=spread,
            competition=competition,
            daily_swing=daily_swing,
            seed=seed,
            store=store,
            url=url,
            key=key,
            as_json=as_json,
        )
        return
    if effect is None:
        raise OptionError("name a study file to plan it, or --effect with the smallest effect to detect")
    plan_effect(
        effect=effect,
        units=units,
        std=_read_one(std, "--std"),
        mean=_read_one(mean, "--mean"),
        control_share=control_share,
        treatment_share=treatment_share,
        comparisons=comparisons,
        max_rounds=max_rounds,
        power=power,
        confidence=confidence,
        seed=seed,
        study=study,
        metric=metric,
        figure=figure,
        store=store,
        url=url,
        key=key,
        as_json=as_json,
    )


def _refuse_options(ctx: click.Context, names: tuple[str, ...], *, has_file: bool) -> None:
    """Refuse options of the other use."""
    for parameter in ctx.command.params:
        if parameter.name in names and ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            fix = "leave the file out, or that option" if has_file else "name the file: pasto plan feed.yaml ..."
            use = "without a study file" if has_file else "with a study file"
            raise OptionError(f"{parameter.opts[0]} is for a plan {use}; {fix}")


def _read_one(given: tuple[str, ...], option: str) -> float | None:
    """Return the only number of an option that names no metric."""
    if not given:
        return None
    numbers = read_metric_numbers(given, option, has_metrics=False)
    return numbers[""]
