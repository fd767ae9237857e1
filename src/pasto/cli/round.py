"""`pasto round`: rounds by hand."""

from __future__ import annotations

from typing import Any

import click

from pasto.cli.connection import desk_options, me, open_api
from pasto.cli.output import console, echo, print_json, print_table
from pasto.cli.study import as_json_option


@click.group("round", short_help="Close a round by hand.", epilog="\b\nExample:\n  pasto round close feed\n")
def round_() -> None:
    """Close rounds by hand, decide about held ones, and look back at those that were closed."""


@round_.command(short_help="Close the open round now.", epilog="\b\nExample:\n  pasto round close feed\n")
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit log.")
@desk_options
@as_json_option
def close(name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Close the open round: learn from the rounds that have matured, and publish the next policy."""
    with open_api(store, url, key) as desk:
        found = desk.close_round(name, who=me(), reason=reason)
    if as_json:
        print_json(found)
        return
    echo(f"{name}: round {found['round']} closed, policy {found['next_version']} is served")
    for problem in found["problems"]:
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
@click.option("--reason", required=True, metavar="TEXT", help="Why, for the audit log.")
@desk_options
@as_json_option
def resolve(
    name: str, round: int, resolution: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool
) -> None:
    """Decide about a round that is held back because events seem to be missing.

    `learn` takes it as it is: units without events count 0. `discard` leaves it out for good. The next close carries it
    out. A round whose events come late needs no decision: it is learned once they are there.
    """
    with open_api(store, url, key) as desk:
        found = desk.resolve_round(name, round, resolution, who=me(), reason=reason)
    if as_json:
        print_json(found)
        return
    done = "learned as it is" if resolution == "learn" else "left out"
    echo(f"{name}: round {round} will be {done} when the next round is closed")


@round_.command("list", short_help="The rounds that were closed.", epilog="\b\nExample:\n  pasto round list feed\n")
@click.argument("name")
@click.option("--after", default=0, metavar="ROUND", help="Only rounds behind this one.")
@click.option("--limit", default=100, show_default=True, help="At most so many.")
@desk_options
@as_json_option
def list_rounds(name: str, after: int, limit: int, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List closed rounds: what each measured, and the policy that followed."""
    with open_api(store, url, key) as desk:
        found = desk.rounds(name, after=after, limit=limit)
    if as_json:
        print_json(found)
        return
    later = {number: each["round"] for each in found for number in each["learned_from"]}
    rows = [
        [
            str(each["round"]),
            str(each["version"]),
            str(each["next_version"]),
            f"{each['units']:,}",
            _held_note(each, later.get(each["round"])),
        ]
        for each in found
    ]
    header = ["round", "policy", "next policy", "units learned from", ""]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    print_table(console(), header, rows, text=(0, 4))


def _held_note(close: dict[str, Any], learned_with: int | None) -> str:
    """Return whether a round was held back at its close, and with which later close it was learned."""
    if close["round"] not in close["held"]:
        return ""
    return "held back" if learned_with is None else f"held back, learned with round {learned_with}"
