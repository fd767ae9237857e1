"""`pasto demo`: a live service learns a blend from simulated users, confirms it, and checks it against the truth."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from pasto.cli.environment import use_common_arithmetic
from pasto.cli.options import as_json_option
from pasto.cli.output import console, echo, print_json, print_table
from pasto.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.demo.scenario import DemoResult
    from pasto.report.records import Report

WORLDS = {
    "feed": "A short-video feed ranks clips by predicted watch time, likes and shares, with two weights: {count} "
    "settings. Maximize watch_time; like_rate and share_rate may fall by at most 5% against today's setting.",
    "ads": "Three modules retrieve ads within a compute budget: {count} ways to split it. Maximize revenue; click_rate "
    "and the share of cold-start ads may fall by at most 5% each.",
    "shop": "A shop ranks products by price, popularity and relevance, with two weights: {count} settings. Maximize "
    "saves; revenue, which comes from 2% of the users, may fall by at most 2%, and hides may rise by at most 5%.",
}
QUICK_ROUNDS_SHARE = 0.4
"""Share of the usual rounds that --quick learns in."""
EXPLORE_HINT = "pasto demo {world} --keep-running leaves the service and its dashboard running"
HTML_HINT = "pasto demo {world} --html report.html"


@click.command(
    short_help="Watch a live service learn a blend from simulated users.",
    epilog="""\b
Examples:
  pasto demo
  pasto demo ads --seed 7
  pasto demo shop
  pasto demo --rough-traffic --html report.html
  pasto demo --keep-running
""",
)
@click.argument("world", type=click.Choice(list(WORLDS)), default="feed")
@click.option(
    "--seed",
    default=1,
    show_default=True,
    type=click.IntRange(0, 2**53),
    metavar="N",
    help="Random seed of the whole run.",
)
@click.option(
    "--rounds", type=click.IntRange(min=2), metavar="N", help="Rounds of learning; by default 30, and 12 in the shop."
)
@click.option(
    "--users",
    type=click.IntRange(100, 20_000),
    metavar="N",
    help="Users in each round; by default 5,000, and 15,000 in the shop. The confirmation has six times as many.",
)
@click.option("--quick", is_flag=True, help="Learn for fewer rounds: 12, and 5 in the shop.")
@click.option("--rough-traffic", is_flag=True, help="Add a day-night cycle, 5% late events and 2% lost events.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the service's report to this file as one HTML page.",
)
@click.option("--keep-running", is_flag=True, help="Leave the service running at the end, until Ctrl-C.")
@as_json_option
def demo(
    world: str,
    seed: int,
    rounds: int | None,
    users: int | None,
    quick: bool,
    rough_traffic: bool,
    html: Path | None,
    keep_running: bool,
    as_json: bool,
) -> None:
    """Start a service, learn a blend from simulated users, confirm it on new users, and compare it with the truth.

    The world is feed (the default), ads or shop. The service is real: a process on a free port of this machine, with
    its store in a temporary directory. Users are assigned by the SDK, and their events go to the service over HTTP.

    Only the users are simulated, so the truth is known. The exit code is 0 if the blend truly beats the best single
    setting, truly keeps every guardrail, and the measured intervals contain the truth. All checks together have 99.9%
    confidence. Otherwise the exit code is 1.
    """
    use_common_arithmetic()
    from pasto import sim
    from pasto.demo.display import display_updates
    from pasto.demo.environment import run_service
    from pasto.demo.scenario import PLANS, DemoPlan, limits, run_demo

    application = sim.APPLICATIONS[world]()
    usual = PLANS[world]
    users = users or usual.users
    plan = DemoPlan(rounds or (round(QUICK_ROUNDS_SHARE * usual.rounds) if quick else usual.rounds), users, 6 * users)
    conditions = sim.Conditions(night=application.night)
    if rough_traffic:
        conditions = sim.Conditions(night=max(0.2, application.night), late=0.05, lost=0.02)
    screen = console(stderr=True)
    screen.print(WORLDS[world].format(count=len(application.candidates)))
    with TemporaryDirectory(prefix="pasto-demo-") as folder, run_service(Path(folder)) as environment:
        screen.print(
            f"The service runs at {environment.address}, on a store in {folder}. Open it in a browser to watch.\n"
        )
        with display_updates(screen, environment.address, limits(application)) as report:
            result = run_demo(application, environment, plan=plan, seed=seed, conditions=conditions, report=report)
        if html is not None:
            _write(html, result.report)
        if as_json:
            fields = {name: value for name, value in asdict(result).items() if name != "report"}
            print_json({**fields, "won": result.won})
        else:
            _print(console(), result)
        if keep_running:
            environment.start()
            screen.print(f"The service still runs: open {environment.address} in a browser, or use it from a terminal:")
            screen.print(f"  pasto report {world} --url {environment.address}\nCtrl-C stops it.")
            with suppress(KeyboardInterrupt):
                environment.wait()
    if not keep_running and not as_json:
        hints = f"\nTo explore the service: {EXPLORE_HINT}. To write the report as one page: {HTML_HINT}."
        screen.print(hints.format(world=world))
    if not result.won:
        for check in result.checks:
            if not check.held:
                echo(f"error: the check failed that {check.claim}: {check.figures}", err=True)
        raise click.exceptions.Exit(1)


def _print(screen: Console, result: DemoResult) -> None:
    screen.print(f"Learned from {result.users:,} users and {result.events:,} events", style="bold")
    for name, share in result.shares.items():
        if share >= 0.0005:
            screen.print(f"{share:6.1%}  {name}")
    if result.certificate is not None:
        certificate = result.certificate
        holds = ", ".join(f"{name} {chance or 0.0:.3%}" for name, chance in certificate.holds.items())
        status = "Certified" if certificate.certified else "Not certified"
        screen.print(f"{status}: each guardrail holds with a probability of: {holds}.")
        if len(certificate.hard or ()) > 1:
            screen.print(f"All guardrails together hold with at least {certificate.joint_lower_bound or 0.0:.3%}.")
    screen.print()
    metrics = list(result.standings[0].lifts)
    rows = [["baseline", *(["+0.0%"] * len(metrics))]]
    for target in dict.fromkeys(lift.target for lift in result.lifts):
        cells = {lift.metric: lift.relative for lift in result.lifts if lift.target == target}
        rows.append(
            [
                target,
                *(
                    f"{cell.value:+.1%} ({cell.low:+.1%} to {cell.high:+.1%})"
                    for cell in map(cells.get, metrics)
                    if cell
                ),
            ]
        )
    if result.best_single is None:
        rows.insert(1, ["best single", *["the baseline"] * len(metrics)])
    title = "Confirmed on new users: lift over the concurrent control (intervals hold together with 99.9%)"
    print_table(screen, ["", *metrics], rows, title=title, styles=["", "", "bold green" if result.won else "bold red"])
    screen.print()
    truth = [[row.label, *(f"{row.lifts[metric]:+.1%}" for metric in metrics), row.setting] for row in result.standings]
    print_table(screen, ["in truth", *metrics, ""], truth, styles=["", "", "bold", "dim"], text={0, len(metrics) + 1})
    screen.print()
    for check in result.checks:
        screen.print(
            f"{'✓' if check.held else '✗'} {check.claim}: {check.figures}", style="" if check.held else "bold red"
        )


def _write(file: Path, report: Report) -> None:
    from pasto.report.html import render_html

    try:
        file.write_text(render_html(report), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    echo(f"wrote {file}", err=True)
