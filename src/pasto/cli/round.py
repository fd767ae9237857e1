"""`pasto round`: rounds of a study."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, current_user, open_api
from pasto.cli.options import as_json_option, reason_option, required_reason_option
from pasto.cli.output import console, echo, print_json, print_table

if TYPE_CHECKING:
    from pasto.report.records import ClosedRoundRecord


@click.group(
    "round",
    short_help="Close rounds, resolve held rounds, list closed rounds.",
    epilog="\b\nExample:\n  pasto round close feed\n",
)
def round_() -> None:
    """Close the open round, decide about rounds that are held back, and list closed rounds."""


@round_.command(short_help="Close the open round now.", epilog="\b\nExample:\n  pasto round close feed\n")
@click.argument("name")
@reason_option
@api_options
@as_json_option
def close(name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Close the open round: learn from the rounds that have matured, and publish the next policy."""
    with open_api(store, url, key) as api:
        close = api.close_round(name, who=current_user(), reason=reason)
    if as_json:
        print_json(close)
        return
    echo(f"{name}: round {close.round} closed, policy {close.next_version} is served")
    for problem in close.problems:
        echo(problem[:1].upper() + problem[1:], err=True)


@round_.command(
    short_help="Decide about a round that is held back.",
    epilog="""\b
Examples:
  pasto round resolve feed 4 discard --reason "the events' job failed"
  pasto round resolve feed 4 learn --reason "no purchases that day"
""",
)
@click.argument("name")
@click.argument("round", type=click.IntRange(min=1))
@click.argument("resolution", type=click.Choice(["learn", "discard"]))
@required_reason_option
@api_options
@as_json_option
def resolve(
    name: str, round: int, resolution: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool
) -> None:
    """Decide about a round that is held back because events seem to be missing.

    `learn` learns from the round as it is: units without events count 0. `discard` never learns from it. The next close
    applies the decision. A round whose events arrive late needs no decision: it is learned when they have arrived.
    """
    with open_api(store, url, key) as api:
        resolved = api.resolve_round(name, round, resolution, who=current_user(), reason=reason)
    if as_json:
        print_json(resolved)
        return
    outcome = "learned as it is" if resolution == "learn" else "left out"
    echo(f"{name}: round {round} will be {outcome} when the next round is closed")


@round_.command("list", short_help="List closed rounds.", epilog="\b\nExample:\n  pasto round list feed\n")
@click.argument("name")
@click.option("--after", default=0, metavar="ROUND", help="List only rounds after this one.")
@click.option("--limit", default=100, show_default=True, metavar="N", help="Maximum number of rounds.")
@api_options
@as_json_option
def list_rounds(name: str, after: int, limit: int, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List closed rounds with the policy of each, the next policy, and the units learned from."""
    with open_api(store, url, key) as api:
        closes = api.rounds(name, after=after, limit=limit)
    if as_json:
        print_json(closes)
        return
    learned_with = {number: close.round for close in closes for number in close.learned_from}
    rows = [
        [
            str(close.round),
            str(close.version),
            str(close.next_version),
            f"{close.units:,}",
            _held_note(close, learned_with.get(close.round)),
        ]
        for close in closes
    ]
    header = ["round", "policy", "next policy", "units learned from", ""]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    print_table(console(), header, rows, text=(0, 4))


def _held_note(close: ClosedRoundRecord, learned_with: int | None) -> str:
    """Return whether a round was held back at its close, and with which later close it was learned."""
    if close.round not in close.held:
        return ""
    return "held back" if learned_with is None else f"held back, learned with round {learned_with}"
