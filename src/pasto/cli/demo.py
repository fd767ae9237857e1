"""`pasto demo`: a live service learns a blend from simulated users before your eyes, and proves it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from pasto.cli.output import console, echo, print_json, print_table
from pasto.cli.threads import one_thread
from pasto.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.demo.scenario import DemoResult
    from pasto.report.records import Report

STORIES = {
    "feed": "A short-video feed orders clips by watch time, likes and shares predicted, with two weights: {count} "
    "settings. Raise watch_time; like_rate and share_rate may lose at most 5% against today's.",
    "ads": "Three modules retrieve ads within a compute budget: {count} splits of it. Raise revenue; click_rate and "
    "the share of cold-start ads may lose at most 5% each.",
    "shop": "A shop orders products by price, popularity and relevance, with two weights: {count} settings. Raise "
    "saves; revenue, which 98% of the users do not bring, may lose at most 2%, and hides may rise by 5% at most.",
}
FAST = 0.4
"""The part of the usual rounds that --fast learns in."""
LOOK = "pasto demo {world} --keep leaves the service and its dashboard running"
PAGE = "pasto demo {world} --html report.html"


@click.command(
    short_help="Watch a live service learn a blend, confirm it, and be proved right.",
    epilog="""\b
Examples:
  pasto demo
  pasto demo ads --seed 7
  pasto demo shop
  pasto demo --rough --html report.html
  pasto demo --keep
""",
)
@click.argument("world", type=click.Choice(list(STORIES)), default="feed")
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(0, 2**53), metavar="N", help="Fixes the whole run."
)
@click.option(
    "--rounds", type=click.IntRange(min=2), metavar="N", help="Rounds to learn in: 30 unless given, 12 in the shop."
)
@click.option(
    "--users",
    type=click.IntRange(100, 20_000),
    metavar="N",
    help="Users who come in a round: 5,000 unless given, 15,000 in the shop. Six times as many come for the "
    "confirmation.",
)
@click.option("--fast", is_flag=True, help="Learn for 12 rounds only, 5 in the shop.")
@click.option("--rough", is_flag=True, help="With day and night, 5% of all events late, and 2% of them lost.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write the report there.")
@click.option("--keep", is_flag=True, help="Leave the service running afterwards, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def demo(
    world: str,
    seed: int,
    rounds: int | None,
    users: int | None,
    fast: bool,
    rough: bool,
    html: Path | None,
    keep: bool,
    as_json: bool,
) -> None:
    """Start a service, learn a blend from simulated users, confirm it on new ones, and hold it against the truth.

    WORLD is feed (the default), ads or shop. The service is the real one, in a process of its own on a free port of
    this machine, with its store in a temporary directory; the users come through the SDK, and their events over HTTP.

    They are simulated, so the truth is known. The exit code is 1 unless the blend truly beats the best single setting,
    truly holds every guardrail, and the measured intervals contain the truth; all of it together with 99.9% confidence.
    """
    one_thread()
    from pasto import sim
    from pasto.demo.display import display_update
    from pasto.demo.environment import run_service
    from pasto.demo.scenario import PLANS, DemoPlan, limits, run_demo

    application = sim.APPLICATIONS[world]()
    usual = PLANS[world]
    users = users or usual.users
    plan = DemoPlan(rounds or (round(FAST * usual.rounds) if fast else usual.rounds), users, 6 * users)
    conditions = sim.Conditions(night=application.night)
    if rough:
        conditions = sim.Conditions(night=max(0.2, application.night), late=0.05, lost=0.02)
    screen = console(stderr=True)
    screen.print(STORIES[world].format(count=len(application.candidates)))
    with TemporaryDirectory(prefix="pasto-demo-") as folder, run_service(Path(folder)) as stage:
        screen.print(f"The service runs at {stage.address}, on a store in {folder}. Open it in a browser to watch.\n")
        with display_update(screen, stage.address, limits(application)) as report:
            result = run_demo(application, stage, plan=plan, seed=seed, conditions=conditions, report=report)
        if html is not None:
            _write(html, result.report)
        if as_json:
            told = {name: value for name, value in asdict(result).items() if name != "report"}
            print_json({**told, "won": result.won})
        else:
            _print(console(), result)
        if keep:
            stage.start()
            screen.print(f"The service is still there: open {stage.address} in a browser, or ask it from a terminal:")
            screen.print(f"  pasto report {world} --url {stage.address}\nCtrl-C ends it.")
            with suppress(KeyboardInterrupt):
                stage.wait()
    if not keep and not as_json:
        screen.print(f"\nTo look around in it: {LOOK}. To have the report as one page: {PAGE}.".format(world=world))
    if not result.won:
        for check in result.checks:
            if not check.held:
                echo(f"error: it is not so that {check.claim}: {check.figures}", err=True)
        raise click.exceptions.Exit(1)


def _print(screen: Console, result: DemoResult) -> None:
    screen.print(f"Learned from {result.users:,} users and {result.events:,} events", style="bold")
    for name, share in result.shares.items():
        if share >= 0.0005:
            screen.print(f"{share:6.1%}  {name}")
    if result.certificate is not None:
        holds = ", ".join(f"{name} {chance:.3%}" for name, chance in result.certificate["holds"].items())
        verdict = "Certified" if result.certificate["certified"] else "Not certified"
        screen.print(f"{verdict}: each guardrail is believed to hold: {holds}.")
        if len(result.certificate.get("hard") or ()) > 1:
            screen.print(f"All together hold with at least {result.certificate['joint_lower_bound']:.3%}.")
    screen.print()
    metrics = list(result.standings[0].lifts)
    rows = [["baseline", *(["+0.0%"] * len(metrics))]]
    for target in dict.fromkeys(lift.target for lift in result.lifts):
        cells = {lift.metric: lift.relative for lift in result.lifts if lift.target == target}
        rows.append(
            [
                target,
                *(f"{one.value:+.1%} ({one.low:+.1%} to {one.high:+.1%})" for one in map(cells.get, metrics) if one),
            ]
        )
    if result.single is None:
        rows.insert(1, ["best single", *["the baseline"] * len(metrics)])
    title = "Confirmed on new users: lift over the concurrent control (intervals hold together with 99.9%)"
    print_table(screen, ["", *metrics], rows, title=title, styles=["", "", "bold green" if result.won else "bold red"])
    screen.print()
    truth = [[one.label, *(f"{one.lifts[metric]:+.1%}" for metric in metrics), one.setting] for one in result.standings]
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
