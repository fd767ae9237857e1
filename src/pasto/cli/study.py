"""`pasto study`: a study from its file to its end."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from pasto.cli.connection import desk_options, me, open_api, warn_unserved
from pasto.cli.output import console, echo, print_facts, print_json, print_table
from pasto.cli.study_check import check
from pasto.errors import InputError, OptionError
from pasto.report.guardrail_text import verdict_text
from pasto.report.records import read_verdict
from pasto.report.replay_text import describe_exceptions

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")


@click.group(
    short_help="Create, watch and steer studies.",
    epilog="""\b
Examples:
  pasto study init feed.yaml
  pasto study check feed.yaml
  pasto study create feed.yaml
  pasto study start feed
  pasto study show feed
""",
)
def study() -> None:
    """Create, watch and steer studies.

    A study is described by a file, which `pasto study init` writes an example of. Its life is draft, learning,
    confirming, deployed, archived; it can be paused and resumed in between. Every change is kept in an audit log with
    who made it and why.

    The commands talk to the service at --url or PASTO_URL, to the one that runs on the store, or, where none runs, to
    the store. They print which of these it was.
    """


@study.command(
    short_help="Write a commented study file.",
    epilog="\b\nExamples:\n  pasto study init feed.yaml\n  pasto study init > feed.yaml\n",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init(file: Path | None, force: bool) -> None:
    """Write an example of a study file, every field explained, to begin from.

    FILE is study.yaml unless given; - prints the example, and so does a shell's > without FILE.
    """
    from pasto.service.study_file import EXAMPLE

    if str(file) == "-" or (file is None and _prints_to_file()):
        echo(EXAMPLE, nl=False)
        return
    file = file or Path("study.yaml")
    if file.exists() and not force:
        raise InputError(f"{str(file)!r} is there already; name another file, or pass --force to write over it")
    try:
        file.write_text(EXAMPLE, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    echo(f"wrote {file}; edit it, then: pasto study create {file}", err=True)


def _prints_to_file() -> bool:
    """Return whether a shell has redirected the standard output to a file."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or not a stream of the system
        return False


@study.command(
    short_help="Take in a study file, as a draft.", epilog="\b\nExample:\n  pasto study create feed.yaml --start\n"
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--start", is_flag=True, help="Start it at once.")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit log.")
@desk_options
@as_json_option
def create(file: Path, start: bool, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Take in a study file (YAML, JSON or TOML); the study is then a draft, and `pasto study start` begins it."""
    from pasto.service.study_file import load_spec

    spec = load_spec(file)
    for warning in spec.warnings:
        echo(f"note: {warning}", err=True)
    with open_api(store, url, key, begins=True) as desk:
        made = desk.create(spec.document, who=me(), reason=reason)
        for warning in made["warnings"][len(spec.warnings) :]:
            echo(f"note: {warning}", err=True)
        if start:
            made |= desk.change(spec.name, "start", who=me(), reason=reason)
            warn_unserved(desk, store)
    if renamed := made.get("archived_as"):
        echo(f"note: the archived study {spec.name} is now {renamed}", err=True)
    _tell(made, as_json)


@study.command(short_help="Change a draft's study file.", epilog="\b\nExample:\n  pasto study edit feed.yaml\n")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit log.")
@desk_options
@as_json_option
def edit(file: Path, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Put a study file in the place of the one that a draft of that name was created from.

    A study that was started cannot be edited: archive it, and create it again under the same name or another.
    """
    from pasto.service.study_file import load_spec

    spec = load_spec(file)
    for warning in spec.warnings:
        echo(f"note: {warning}", err=True)
    with open_api(store, url, key) as desk:
        edited = desk.edit(spec.name, spec.document, who=me(), reason=reason)
    for warning in edited["warnings"][len(spec.warnings) :]:
        echo(f"note: {warning}", err=True)
    _tell(edited, as_json)


@study.command(short_help="Delete a draft.", epilog="\b\nExample:\n  pasto study delete feed\n")
@click.argument("name")
@click.option("--reason", default="", metavar="TEXT", help="Why, for the audit log.")
@desk_options
@as_json_option
def delete(name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Delete a draft and free its name; its audit log stays, under the name that is printed.

    A study that was started cannot be deleted: `pasto study archive` ends it, and frees its name too.
    """
    with open_api(store, url, key) as desk:
        deleted = desk.delete(name, who=me(), reason=reason)
    if as_json:
        print_json(deleted)
    else:
        echo(f"{name}: deleted; its audit log stays under {deleted['deleted_as']}")


study.add_command(check)


@study.command("list", short_help="Every study with its state.", epilog="\b\nExample:\n  pasto study list\n")
@desk_options
@as_json_option
def list_studies(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List every study with its state, round and policy."""
    with open_api(store, url, key) as desk:
        found = desk.studies()
    if as_json:
        print_json(found)
        return
    if not found:
        echo("no studies yet; `pasto study init` writes a file to begin from", err=True)
        return
    rows = [[each["name"], each["state"], str(each["round"]), str(each["version"]), each["goal"]] for each in found]
    print_table(console(), ["study", "state", "round", "policy", "goal"], rows, text=(0, 1, 4))


@study.command(short_help="One study as it stands.", epilog="\b\nExample:\n  pasto study show feed --json\n")
@click.argument("name")
@desk_options
@as_json_option
def show(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Show one study: its state, what it serves, and the answer so far."""
    with open_api(store, url, key) as desk:
        found = desk.show(name)
    _tell(found, as_json)


def _action(
    name: str, sentence: str, *, needs_reason: bool = False, options: tuple[click.Option, ...] = ()
) -> Callable[..., None]:
    """A command that moves a study along its life."""

    def move(
        study_name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool, **given: Any
    ) -> None:
        with open_api(store, url, key) as desk:
            found = desk.change(
                study_name,
                name,
                who=me(),
                reason=reason,
                **{option: value for option, value in given.items() if value not in (None, False)},
            )
            if name == "start":
                warn_unserved(desk, store)
        _tell(found, as_json)

    move.__doc__ = sentence
    decorated: Any = click.argument("study_name", metavar="NAME")(move)
    need: dict[str, Any] = {"required": True} if needs_reason else {"default": ""}
    decorated = click.option("--reason", metavar="TEXT", help="Why, for the audit log.", **need)(decorated)
    command: click.Command = study.command(
        name, short_help=sentence.split(";")[0].rstrip(".") + ".", epilog=f"\b\nExample:\n  pasto study {name} feed\n"
    )(desk_options(as_json_option(decorated)))
    command.params.extend(options)
    return move


_action("start", "Begin to learn; the first policy is published at once.")
_action(
    "pause",
    "Stop learning; every unit gets the last certified blend, or the baseline.",
    needs_reason=True,
    options=(
        click.Option(
            ["--hold"],
            type=click.Choice(["blend", "baseline"]),
            help="What to stand still on: the last certified blend where there is one, or the baseline.",
        ),
    ),
)
_action("resume", "Go on where the study was paused.")
_action(
    "confirm",
    "Freeze the blend, and run it beside the best single candidate and the baseline.",
    options=(
        click.Option(
            ["--shares"],
            callback=lambda _, __, given: None if given is None else read_shares(given),
            metavar="ARM=SHARE,...",
            help="How traffic is parted, as in control=0.2,single=0.2,blend=0.6; in thirds, if left out.",
        ),
        click.Option(
            ["--days"], type=float, metavar="N", help="Judge it once, after so many days; at any look, if left out."
        ),
        click.Option(["--until"], metavar="TIME", help="Judge it once, then: 2026-03-01 or 2026-03-01T09:00+01:00."),
    ),
)
_action(
    "deploy",
    "Serve the blend to everybody but the control.",
    options=(
        click.Option(
            ["--without-confirmation", "without_confirmation"],
            is_flag=True,
            help="Deploy what was learned though no confirmation has confirmed it; needs --reason.",
        ),
    ),
)
_action("archive", "End a study for good; its records stay, and its name is free.", needs_reason=True)


@study.command(short_help="Who did what, when and why.", epilog="\b\nExample:\n  pasto study audit feed\n")
@click.argument("name")
@desk_options
@as_json_option
def audit(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Print the audit log, oldest first."""
    lines: list[dict[str, Any]] = []
    with open_api(store, url, key) as desk:
        while more := desk.audit(name, after=lines[-1]["sequence"] if lines else 0, limit=1000):
            lines += more
    if as_json:
        print_json(lines)
        return
    rows = [[when(line["at"]), line["who"], _done(line), line["reason"]] for line in lines]
    print_table(console(), ["when", "who", "what", "why"], rows, text=(0, 1, 2, 3))


@study.command(
    short_help="Compute every policy again from the log.", epilog="\b\nExample:\n  pasto study replay feed\n"
)
@click.argument("name")
@desk_options
@as_json_option
def replay(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Compute every policy again from the log and say whether each is identical; exit code 1 where one is not."""
    with open_api(store, url, key) as desk:
        found = desk.replay(name)
    if as_json:
        print_json(found)
    elif found["identical"]:
        echo(f"{name}: computed again from the log, rounds: {found['rounds']}; every policy identical")
        for sentence in describe_exceptions(found):
            echo(sentence)
    else:
        echo(f"{name}: not identical; first difference: {json.dumps(found['first_difference'])}")
    if not found["identical"]:
        raise click.exceptions.Exit(1)


def _done(line: dict[str, Any]) -> str:
    """Return what a line of the audit log did, in words."""
    detail = line["detail"]
    if detail.get("without_confirmation"):
        return f"{line['action']} without confirmation"
    if "held_round" in detail:
        return f"{line['action']} {detail['held_round']} {detail['resolution']}"
    return str(line["action"])


def read_shares(text: str) -> dict[str, float]:
    """Shares by arm.

    >>> read_shares("control=0.2, single=20%, blend=0.6")
    {'control': 0.2, 'single': 0.2, 'blend': 0.6}
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        arm, _, share = (word.strip() for word in part.partition("="))
        try:
            shares[arm] = float(share[:-1]) / 100 if share.endswith("%") else float(share)
        except ValueError:
            raise OptionError(f"--shares is written control=0.2,single=0.2,blend=0.6, got {part.strip()!r}") from None
    return shares


def _tell(found: dict[str, Any], as_json: bool) -> None:
    """One study for people, or for machines."""
    if as_json:
        print_json(found)
        return
    screen = console()
    screen.print(f"{found['name']}: {found['state']}", style="bold")
    for sentence in verdict_text(read_verdict(found["confirmation"])) if found.get("confirmation") else ():
        screen.print(f"  {sentence}")
    print_facts(screen, _facts(found))
    shares = found.get("policy", {}).get("shares", [])
    if shares:
        rows = [[each["name"], f"{each['share']:.1%}"] for each in shares[:10]]
        screen.print()
        print_table(screen, ["served now", "share"], rows)
        if len(shares) > 10:
            rest = sum(each["share"] for each in shares[10:])
            screen.print(f"and {len(shares) - 10} more with {rest:.1%} together", style="dim")


_RESOLVED = {"learn": "learned as it is at the next close", "discard": "left out at the next close"}


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("objective", found["objective"]), ("candidates", f"{found['candidates']:,}")]
    facts.append(("round", f"{found['round']} under policy {found['version']}"))
    if tripped := found["breaker"]["tripped"]:
        facts.append(("stopped by", tripped["reason"]))
    facts += [
        ("breaker", f"{one['name']} in the arm {one['arm']}: {one['state']}")
        for one in found["breaker"]["verdicts"]
        if one["state"] != "holds" and not tripped
    ]
    if source := found.get("source_problem"):
        facts.append(("source", f"fails since {when(source['since'])} in round {source['round']}: {source['message']}"))
    if rejected := found.get("rejected", {}).get("events"):
        facts.append(("rejected", f"{rejected:,} event{'s' if rejected > 1 else ''}, which no metric counts"))
        facts += [("", f"{one['events']:,}: {one['reason']}") for one in found["rejected"]["reasons"]]
    facts += [
        ("held back", f"round {one['round']}: {_RESOLVED[one['resolution']]}" if one["resolution"] else one["text"])
        for one in found.get("held", ())
    ]
    if (closes := found.get("closes_at")) is not None:
        facts.append(("closes at", when(closes)))
    facts.append(("created", when(found["created_at"])))
    return facts


def when(at: float) -> str:
    """Return a moment in the terminal's own time zone, with its offset from UTC.

    >>> datetime.fromisoformat(when(0.0)).timestamp()
    0.0
    """
    return datetime.fromtimestamp(at, UTC).astimezone().isoformat(sep=" ", timespec="seconds")
