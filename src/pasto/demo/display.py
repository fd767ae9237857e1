"""Display of the demonstration: a live picture on a terminal, lines of progress elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pasto.demo.checks import Limit
from pasto.demo.scenario import DemoUpdate
from pasto.demo.users import largest_shares

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PROGRESS_LINES = 10
"""Lines of progress if there is no terminal to draw on."""
NAMED_CANDIDATES = 5
"""Candidates that the picture names."""
BAR_CHARACTERS = 30


@contextmanager
def display_updates(
    screen: Console, address: str, limits: Mapping[str, Limit]
) -> Iterator[Callable[[DemoUpdate], None]]:
    """Display each update; `limits` are the lifts that the guardrails allow, by metric."""
    from rich.live import Live

    if not screen.is_terminal:
        yield lambda update: _print_line(screen, update)
        return
    with Live(console=screen, transient=True, refresh_per_second=8) as live:
        yield lambda update: live.update(draw_demo(update, address, limits))


def draw_demo(update: DemoUpdate, address: str, limits: Mapping[str, Limit]) -> RenderableType:
    """Draw one update of the demonstration."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    metrics = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for name in ("lift over today", "served so far", "limit", "the blend so far", "probability it holds"):
        metrics.add_column(name, justify="left" if name == "lift over today" else "right", no_wrap=True)
    lifts = {} if update.blend is None else update.blend.lifts
    certificate = None if update.blend is None else update.blend.certificate
    holds = {} if certificate is None else certificate.holds
    for metric, served in update.served.items():
        limit = limits.get(metric)
        broken = limit is not None and not limit.allows(served)
        metrics.add_row(
            metric,
            Text(f"{served:+.1%}", style="yellow" if broken else ""),
            "" if limit is None else f"{limit.at:+.0%}",
            f"{lifts[metric]:+.1f}%" if metric in lifts else "",
            f"{holds[metric]:.3%}" if metric in holds else "",
        )
    shares = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for name, share in largest_shares(update.shares, NAMED_CANDIDATES):
        shares.add_row(name, f"{share:.0%}", "█" * round(BAR_CHARACTERS * share))
    clock = f"{update.phase}: round {update.round} of {update.rounds}" if update.phase == "learning" else update.phase
    return Group(
        Text(f"{clock}   {update.users:,} users, {update.events:,} events   {address}", style="bold"),
        Text(describe_gain(update)),
        metrics,
        Text("served now", style="bold"),
        shares,
    )


def describe_gain(update: DemoUpdate) -> str:
    """Describe the true distance of the current blend from the best single setting.

    >>> describe_gain(DemoUpdate("learning", 1, 2, 10, 20, {}, {}, None, None))
    'there is no blend yet'
    >>> describe_gain(DemoUpdate("learning", 1, 2, 10, 20, {}, {}, {}, -0.012))
    'the blend so far is truly 1.2% below the best single setting'
    """
    if update.ahead is None:
        return "there is no blend yet"
    direction = "above" if update.ahead >= 0 else "below"
    return f"the blend so far is truly {abs(update.ahead):.1%} {direction} the best single setting"


def _print_line(screen: Console, update: DemoUpdate) -> None:
    before = (update.round - 1) * PROGRESS_LINES // update.rounds
    if update.phase == "learning" and update.round * PROGRESS_LINES // update.rounds == before:
        return
    served = ", ".join(f"{metric} {lift:+.1%}" for metric, lift in update.served.items())
    clock = f"round {update.round} of {update.rounds}" if update.phase == "learning" else update.phase
    screen.print(f"{clock}: {update.users:,} users; served {served}; {describe_gain(update)}")
