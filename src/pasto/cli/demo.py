"""`pasto demo`: a feed with competing metrics, learned before your eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pasto.cli.screen import console, print_json, print_table

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pasto.demo import Result, Update
    from pasto.records import Blend

ROUNDS = {"thompson": 60, "pasto": 2_000}
FAST = {"thompson": 20, "pasto": 500}
LINES = 10
"""Progress lines where there is no terminal to draw on."""
SHOWN = 5
"""Candidates shown by name; the rest are summed."""
BAR = 30


@click.command(
    short_help="Learn a feed's blend before your eyes.",
    epilog="""\b
Examples:
  pasto demo
  pasto demo --fast --seed 7
  pasto demo --learner pasto
""",
)
@click.option(
    "--seed", default=1, show_default=True, type=click.IntRange(min=0), metavar="N", help="Of the simulated traffic."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Rounds of ten minutes: {ROUNDS['thompson']} unless given, {ROUNDS['pasto']} for pasto.",
)
@click.option("--fast", is_flag=True, help=f"Learn for {FAST['thompson']} rounds only, {FAST['pasto']} for pasto.")
@click.option(
    "--learner",
    default="thompson",
    show_default=True,
    type=click.Choice(list(ROUNDS)),
    help="The default learner, or the paper's Algorithm 1 with soft guardrails.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
def demo(seed: int, rounds: int | None, fast: bool, learner: str, as_json: bool) -> None:
    """Learn a blend for a feed with competing metrics, and compare it with the best single setting.

    The feed is simulated, so the true means are known and the comparison is exact. The exit code is 1 if the learned
    blend does not beat the best single setting in truth or loses more than a guardrail allows.
    """
    from pasto.demo import learn

    with _display() as report:
        result = learn(rounds=rounds or (FAST if fast else ROUNDS)[learner], seed=seed, learner=learner, report=report)
    if as_json:
        print_json({**asdict(result), "won": result.won})
    else:
        _print(console(), result)
    if not result.won:
        click.echo("error: the learned blend does not beat the best single setting within its guardrails", err=True)
        raise click.exceptions.Exit(1)


@contextmanager
def _display() -> Iterator[Callable[[Update], None]]:
    """Show updates on stderr: a live picture on a terminal, a line now and then elsewhere."""
    from rich.live import Live

    from pasto.demo.feed import LIMIT, make_feed
    from pasto.demo.run import SESSIONS

    screen = console(stderr=True)
    place = make_feed()
    names = place.candidates.names
    screen.print(
        f"A feed ranks with two weights: {len(names)} settings. Raise watch_time; like_rate and share_rate may lose at "
        f"most {-LIMIT:g}% against today's {names[place.baseline]}. A round is ten minutes, {SESSIONS:,} sessions."
    )
    screen.print()
    if not screen.is_terminal:
        yield lambda update: _line(screen, update)
        return
    with Live(console=screen, transient=True, refresh_per_second=12) as live:
        yield lambda update: live.update(_picture(update))


def _line(screen: Console, update: Update) -> None:
    if update.done * LINES // update.rounds > (update.done - max(1, update.rounds // 100)) * LINES // update.rounds:
        told = [f"round {update.done:,} of {update.rounds:,}: estimated {_lifts(update.blend.lifts)}"]
        screen.print("; ".join([*told, *_sureness(update.blend)]))


def _picture(update: Update) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left")
    table.add_column("served now", no_wrap=True)
    table.add_column("", justify="right")
    table.add_column("", no_wrap=True)
    for name, share in _largest(dict(zip(update.blend.names, update.served, strict=True))):
        table.add_row(name, f"{share:.0%}", "█" * round(BAR * share))
    days, minutes = divmod(10 * update.done, 24 * 60)
    clock = f"round {update.done:,} of {update.rounds:,}, day {days + 1} {minutes // 60:02}:{minutes % 60:02}"
    mixture = " + ".join(
        f"{share:.0%} {name}"
        for name, share in _largest(dict(zip(update.blend.names, update.blend.probabilities, strict=True)))
        if share >= 0.005
    )
    return Group(
        Text(clock, style="bold"),
        Text(f"blend so far: {mixture}"),
        Text(f"estimated: {_lifts(update.blend.lifts)}"),
        *(Text(told) for told in _sureness(update.blend)),
        table,
    )


def _sureness(blend: Blend) -> list[str]:
    """How surely each guardrail holds, and what is still to be gained, where the learner says so."""
    told = []
    if blend.certificate is not None:
        told.append("holds: " + _chances(blend.certificate.holds))
    if blend.outlook is not None:
        told.append(f"still to gain: {blend.outlook.gain:.2g}% of watch_time")
    return told


def _print(screen: Console, result: Result) -> None:
    from pasto.demo.feed import LIMIT, PENALTY

    screen.print(f"Learned in {result.rounds:,} rounds by {result.learner}", style="bold")
    for name, share in _largest(result.shares):
        if share >= 0.0005:
            screen.print(f"{share:6.1%}  {name}")
    screen.print()
    standings = (result.baseline, result.single, result.blend, result.optimum)
    rows = [
        [
            one.label,
            *(f"{level:.4g} {one.lifts[metric]:+.1f}%" for metric, level in one.metrics.items()),
            "broken: " + ", ".join(one.broken) if one.broken else "held",
        ]
        for one in standings
    ]
    header = ["in truth", *result.blend.metrics, f"limit {LIMIT:+g}%"]
    styles = ["", "", "bold green" if result.won else "bold red", "dim"]
    print_table(screen, header, rows, styles=styles, text={0, len(header) - 1})
    screen.print()
    goal = next(iter(result.blend.lifts))
    screen.print(
        f"The blend raises {goal} by {result.blend.lifts[goal]:.1f}% over today; the best single setting within the "
        f"limits, {result.chosen}, raises it by {result.single.lifts[goal]:.1f}%."
    )
    if result.certificate is None:
        screen.print(
            f"{result.learner} gives no certificate; it was charged {PENALTY:g} for each squared percent that likes or "
            "shares lose.",
            style="dim",
        )
        return
    sure = result.certificate
    verdict = "Certified" if sure.certified else "Not certified"
    screen.print(f"{verdict}: each guardrail is to hold with {sure.confidence:.1%}; believed {_chances(sure.holds)}.")
    screen.print(f"Advice: {result.advice}.")


def _largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    """The largest shares by name, and the rest as one."""
    ranked = sorted(shares.items(), key=lambda item: -item[1])
    rest = ranked[SHOWN:]
    return [*ranked[:SHOWN], (f"{len(rest)} others", sum(share for _, share in rest))]


def _lifts(lifts: Mapping[str, float]) -> str:
    return ", ".join(f"{metric} {lift:+.1f}%" for metric, lift in lifts.items())


def _chances(holds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {chance:.1%}" for name, chance in holds.items())
