"""`pasto study`: the commands that create a study and change its state."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pasto.cli.connection import api_options, current_user, open_api, warn_unserved
from pasto.cli.options import as_json_option, reason_option, required_reason_option
from pasto.cli.output import console, echo, format_local_time, print_facts, print_json, print_table
from pasto.cli.study_check import check, history_option, load_with_history
from pasto.cli.study_edit import candidate, describe_edit, edit, ramp
from pasto.errors import InputError, OptionError
from pasto.report.edit_text import describe_change
from pasto.report.ramp_text import describe_enrolment, describe_layer, describe_ramp
from pasto.report.text import describe_history
from pasto.report.verdict_text import verdict_table, verdict_text

if TYPE_CHECKING:
    from rich.console import Console

    from pasto.report.verdict_records import StudyVerdict
    from pasto.service.study_records import StudyOverview
    from pasto.store import AuditRow

MAX_EDITS = 10
"""Edits that `pasto study show` prints; the audit log has all."""


@click.group(
    short_help="Create, start, pause, confirm, deploy and archive studies.",
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
    """Create studies and change their state.

    A study is described by a file; `pasto study init` writes an example. Its states are draft, learning, confirming,
    deployed and archived; it can be paused and resumed in between. An audit log records each change with the person and
    the reason.

    The commands use the service at --url or PASTO_URL. Without an address, they use the service that runs on the store,
    or the store itself if no service runs. They print on stderr which of these they use.
    """


@study.command(
    short_help="Write an example study file with comments.",
    epilog="\b\nExamples:\n  pasto study init feed.yaml\n  pasto study init > feed.yaml\n",
)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), required=False)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(file: Path | None, force: bool) -> None:
    """Write an example study file in which a comment explains every field.

    FILE is study.yaml by default. With -, or with a shell's > and no FILE, the example goes to stdout.
    """
    from pasto.service.study_file import EXAMPLE

    if str(file) == "-" or (file is None and _prints_to_file()):
        echo(EXAMPLE, nl=False)
        return
    file = file or Path("study.yaml")
    if file.exists() and not force:
        raise InputError(f"{str(file)!r} exists already; name another file, or overwrite it with --force")
    try:
        file.write_text(EXAMPLE, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    echo(f"wrote {file}; edit it, then: pasto study create {file}", err=True)


@study.command(
    short_help="Print the JSON Schema of study files.",
    epilog="\b\nExample:\n  pasto study schema > study-file.schema.json\n",
)
def schema() -> None:
    """Print the JSON Schema (draft 2020-12) of study files, with which editors complete and check them.

    It has names, kinds and limits of all fields. `pasto study check` also checks how they fit together.
    """
    from pasto.service.study_file import build_json_schema

    echo(json.dumps(build_json_schema(), indent=2, ensure_ascii=False))


def _prints_to_file() -> bool:
    """Return whether a shell has redirected the standard output to a file."""
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):  # closed, or not a stream of the system
        return False


@study.command(
    short_help="Create a study from a file, as a draft.",
    epilog="""\b
Examples:
  pasto study create feed.yaml --start
  pasto study create feed.yaml --history past.csv
""",
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@history_option
@click.option("--start", is_flag=True, help="Start the study at once.")
@reason_option
@api_options
@as_json_option
def create(
    file: Path,
    history: str | None,
    start: bool,
    reason: str,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Create a study from a file (YAML, JSON or TOML). The study is a draft until `pasto study start`.

    With --history, the study starts from earlier results. Each row has the column `candidate` or the parameters, the
    mean of each metric, its standard error METRIC_se if it is known, and `units`. The table becomes the field `history`
    of the study file.
    """
    from msgspec import structs

    spec = load_with_history(file, history)
    for warning in spec.warnings:
        echo(f"note: {warning}", err=True)
    with open_api(store, url, key, create=True) as api:
        created = api.create(spec.document, who=current_user(), reason=reason)
        for warning in created.warnings[len(spec.warnings) :]:
            echo(f"note: {warning}", err=True)
        if start:
            started = api.change(spec.name, "start", who=current_user(), reason=reason)
            created = structs.replace(started, archived_as=created.archived_as)
            warn_unserved(api, store)
    if renamed := created.archived_as:
        echo(f"note: the archived study {spec.name} is now {renamed}", err=True)
    _print_study(created, as_json)


@study.command(short_help="Delete a draft.", epilog="\b\nExample:\n  pasto study delete feed\n")
@click.argument("name")
@reason_option
@api_options
@as_json_option
def delete(name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Delete a draft; its name can be used again. The audit log stays under the name that the command prints.

    A started study cannot be deleted: `pasto study archive` ends it, and its name can be used again too.
    """
    with open_api(store, url, key) as api:
        deleted = api.delete(name, who=current_user(), reason=reason)
    if as_json:
        print_json(deleted)
    else:
        echo(f"{name}: deleted; its audit log stays under {deleted.deleted_as}")


study.add_command(check)
study.add_command(edit)
study.add_command(ramp)
study.add_command(candidate)


@study.command("list", short_help="List all studies with their states.", epilog="\b\nExample:\n  pasto study list\n")
@api_options
@as_json_option
def list_studies(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List all studies with state, round, policy version and goal."""
    with open_api(store, url, key) as api:
        studies = api.studies()
    if as_json:
        print_json(studies)
        return
    if not studies:
        echo("no studies yet; `pasto study init` writes an example study file", err=True)
        return
    rows = [[row.name, row.state, str(row.round), str(row.version), row.goal] for row in studies]
    print_table(console(), ["study", "state", "round", "policy", "goal"], rows, text=(0, 1, 4))


@study.command(
    short_help="Print the state and the current policy of a study.",
    epilog="\b\nExample:\n  pasto study show feed --json\n",
)
@click.argument("name")
@api_options
@as_json_option
def show(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Print the verdict on a study, its state, its open round, and the shares of the current policy."""
    with open_api(store, url, key) as api:
        overview = api.show(name)
        verdict = None if as_json else api.report(name).verdict
    _print_study(overview, as_json, verdict)


def _action(
    name: str, sentence: str, *, needs_reason: bool = False, options: tuple[click.Option, ...] = ()
) -> Callable[..., None]:
    """Add a command that changes a study's state."""

    def change_state(
        study_name: str, reason: str, store: str, url: str | None, key: str | None, as_json: bool, **given: Any
    ) -> None:
        with open_api(store, url, key) as api:
            changed = api.change(
                study_name,
                name,
                who=current_user(),
                reason=reason,
                **{option: value for option, value in given.items() if value not in (None, False)},
            )
            if name == "start":
                warn_unserved(api, store)
        _print_study(changed, as_json)

    change_state.__doc__ = sentence
    decorated: Any = click.argument("study_name", metavar="NAME")(change_state)
    decorated = (required_reason_option if needs_reason else reason_option)(decorated)
    command: click.Command = study.command(
        name, short_help=sentence.split(";")[0].rstrip(".") + ".", epilog=f"\b\nExample:\n  pasto study {name} feed\n"
    )(api_options(as_json_option(decorated)))
    command.params.extend(options)
    return change_state


_action("start", "Start a draft; the service publishes its first policy at once.")
_action(
    "pause",
    "Pause a study; every unit gets the last certified blend, or the baseline if there is none.",
    needs_reason=True,
    options=(
        click.Option(
            ["--hold"],
            type=click.Choice(["blend", "baseline"]),
            help="What units get during the pause: the last certified blend if there is one, or the baseline.",
        ),
    ),
)
_action("resume", "Resume a paused study.")
_action(
    "confirm",
    "Test the frozen blend against the best single candidate and the baseline on new traffic.",
    options=(
        click.Option(
            ["--shares"],
            callback=lambda _, __, given: None if given is None else read_shares(given),
            metavar="ARM=SHARE,...",
            help="Traffic share of each arm, such as control=0.2,best_single=0.2,blend=0.6; a third each by default.",
        ),
        click.Option(
            ["--days"],
            type=float,
            metavar="N",
            help="Decide once, after this many days; by default, the decision is possible after every round.",
        ),
        click.Option(
            ["--until"], metavar="TIME", help="Decide once, at this time: 2026-03-01 or 2026-03-01T09:00+01:00."
        ),
    ),
)
_action(
    "deploy",
    "Serve the blend to all units except the control.",
    options=(
        click.Option(
            ["--without-confirmation", "without_confirmation"],
            is_flag=True,
            help="Deploy the blend without a successful confirmation; needs --reason.",
        ),
    ),
)
_action("archive", "End a study permanently; its data stays, and its name can be used again.", needs_reason=True)


@study.command(short_help="Print the audit log of a study.", epilog="\b\nExample:\n  pasto study audit feed\n")
@click.argument("name")
@api_options
@as_json_option
def audit(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Print who changed a study, when and why; oldest first."""
    lines: list[AuditRow] = []
    with open_api(store, url, key) as api:
        while page := api.audit(name, after=lines[-1].sequence if lines else 0, limit=1000):
            lines += page
    if as_json:
        print_json(lines)
        return
    rows = [[format_local_time(line.at), line.who, _describe_action(line), line.reason] for line in lines]
    print_table(console(), ["when", "who", "what", "why"], rows, text=(0, 1, 2, 3))


@study.command(
    short_help="Recompute all policies from the event log.", epilog="\b\nExample:\n  pasto study replay feed\n"
)
@click.argument("name")
@api_options
@as_json_option
def replay(name: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Recompute all policies from the event log and compare them. The exit code is 1 if a policy differs.

    On the processor and the versions that computed a round, its policy must be identical bit for bit. Elsewhere it may
    differ by rounding: the largest difference of a share is printed, and the exit code is 0.
    """
    from pasto.report.replay_report import describe_difference, describe_exceptions, describe_rounding

    with open_api(store, url, key) as api:
        replayed = api.replay(name)
    if as_json:
        print_json(replayed)
    elif replayed.is_same:
        result = describe_rounding(replayed) or "every policy identical"
        echo(f"{name}: recomputed from the event log, rounds: {replayed.rounds}; {result}")
        for sentence in describe_exceptions(replayed):
            echo(sentence)
    else:
        echo(f"{name}: not the same; first difference: {describe_difference(replayed)}")
    if not replayed.is_same:
        raise click.exceptions.Exit(1)


@study.command(
    short_help="Print the shares of a study for another platform.",
    epilog="""\b
Examples:
  pasto study export feed --format flagd > feed.flagd.json
  pasto study export feed --format growthbook --part blend
""",
)
@click.argument("name")
@click.option(
    "--format",
    "form",
    type=click.Choice(["flagd", "growthbook", "json"]),
    default="json",
    show_default=True,
    help="Platform that reads the export.",
)
@click.option(
    "--part",
    type=click.Choice(["policy", "blend"]),
    default="policy",
    show_default=True,
    help="What is served now with its control, or the blend alone.",
)
@click.option(
    "--attribute",
    metavar="NAME",
    help="Attribute by which the platform assigns units; by default targetingKey in flagd, and id in GrowthBook.",
)
@api_options
def export(
    name: str, form: str, part: str, attribute: str | None, store: str, url: str | None, key: str | None
) -> None:
    """Print the served policy of a study, or its blend, as a flag of flagd, a feature of GrowthBook or plain JSON.

    The platform assigns units with its own hash, so a unit can get another candidate than PASTO draws. With
    `exposures: {assigned_by: external}` in its study file, a study learns from the platform's own assignments.
    """
    with open_api(store, url, key) as api:
        exported = api.export(name, form, part=part, attribute=attribute)
    echo(f"note: {exported['metadata']['bucketing']}", err=True)
    if exported["metadata"].get("certified") is False:
        echo("note: the blend has no certificate that its hard guardrails hold", err=True)
    echo(json.dumps(exported, indent=2, ensure_ascii=False))


def _describe_action(line: AuditRow) -> str:
    """Return the action of a line of the audit log, in words."""
    if line.detail.get("without_confirmation"):
        return f"{line.action} without confirmation"
    if "held_round" in line.detail:
        return f"{line.action} {line.detail['held_round']} {line.detail['resolution']}"
    if "changes" in line.detail:
        changes = (
            describe_change(change["field"], change["before"], change["after"]) for change in line.detail["changes"]
        )
        return f"{line.action}: {'; '.join(changes)}"
    return line.action


def read_shares(text: str) -> dict[str, float]:
    """Return the shares of arms that --shares gives.

    >>> read_shares("control=0.2, best_single=20%, blend=0.6")
    {'control': 0.2, 'best_single': 0.2, 'blend': 0.6}
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        arm, _, share = (word.strip() for word in part.partition("="))
        try:
            shares[arm] = float(share[:-1]) / 100 if share.endswith("%") else float(share)
        except ValueError:
            raise OptionError(
                f"--shares must have the form control=0.2,best_single=0.2,blend=0.6, got {part.strip()!r}"
            ) from None
    return shares


def _print_study(study: StudyOverview, as_json: bool, verdict: StudyVerdict | None = None) -> None:
    """Print one study as text, or as JSON."""
    if as_json:
        print_json(study)
        return
    screen = console()
    screen.print(f"{study.name}: {study.state}", style="bold")
    if verdict is not None:
        _print_verdict(screen, verdict)
    for sentence in () if study.confirmation is None else verdict_text(study.confirmation):
        screen.print(f"  {sentence}")
    print_facts(screen, _facts(study))
    shares = () if study.policy is None else study.policy.shares
    if shares:
        rows = [[served.name, f"{served.share:.1%}"] for served in shares[:10]]
        screen.print()
        print_table(screen, ["served now", "share"], rows)
        if len(shares) > 10:
            rest = sum(served.share for served in shares[10:])
            screen.print(f"and {len(shares) - 10} more with {rest:.1%} together", style="dim")


_DECISION_STYLES = {
    "ship": "bold green",
    "may_ship": "bold yellow",
    "do_not_ship": "bold red",
    "fix_data": "bold red",
    "stopped": "bold red",
}


def _print_verdict(screen: Console, verdict: StudyVerdict) -> None:
    screen.print(verdict.headline, style=_DECISION_STYLES.get(verdict.decision, "bold"))
    for sentence in (verdict.sentence, verdict.next_step, verdict.served):
        if sentence:
            screen.print(f"  {sentence}")
    header, rows = verdict_table(verdict)
    if rows:
        screen.print()
        print_table(screen, header, rows, text=(0, 1, 3, 4))
        screen.print()


_RESOLVED = {"learn": "learned as it is at the next close", "discard": "left out at the next close"}


def _facts(study: StudyOverview) -> list[tuple[str, str]]:
    facts = [("owner", study.owner)] if study.owner else []
    facts += [("objective", study.objective), ("candidates", f"{study.candidates:,}")]
    if study.assigned_by == "external":
        facts.append(("assigned by", "another platform; the candidate that an exposure names counts"))
    if (history := study.history) is not None:
        facts.append(("history", describe_history(history.listed, history.candidates, history.explained)))
    facts.append(("round", f"{study.round} under policy {study.version}"))
    if (layer := study.document.get("layer")) is not None and "start" in layer:
        facts.append(("layer", describe_layer(layer)))
    if study.ramp is not None:
        facts.append(("ramp", describe_ramp(study.ramp)))
    if study.policy is not None and study.policy.enrolment:
        facts.append(("take part", describe_enrolment(study.policy.enrolment)))
    if "audience" in study.document:
        audience = study.document["audience"].items()
        facts.append(("audience", "; ".join(f"{name}: {json.dumps(wanted)}" for name, wanted in audience)))
    monitor = study.guardrail_monitor
    if monitor.tripped is not None:
        facts.append(("stopped by", monitor.tripped.reason))
    else:
        facts += [
            ("guardrail monitor", f"{verdict.name} in the arm {verdict.arm}: {verdict.state}")
            for verdict in monitor.verdicts
            if verdict.state != "holds"
        ]
    if (problem := study.source_problem) is not None:
        since = format_local_time(problem.since)
        facts.append(("source", f"fails since {since} in round {problem.round}: {problem.message}"))
    if count := study.rejected.events:
        facts.append(("rejected", f"{count:,} event{'s' if count > 1 else ''}, which no metric counts"))
        facts += [("", f"{rejection.events:,}: {rejection.reason}") for rejection in study.rejected.reasons]
    facts += [
        ("held back", f"round {held.round}: {_RESOLVED[held.resolution]}" if held.resolution else held.text)
        for held in study.held
    ]
    if study.closes_at is not None:
        facts.append(("closes at", format_local_time(study.closes_at)))
    facts.append(("created", format_local_time(study.created_at)))
    facts += [("edited", describe_edit(edit)) for edit in study.edits[-MAX_EDITS:]]
    return facts
