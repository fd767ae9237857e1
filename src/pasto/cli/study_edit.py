"""`pasto study edit` and `pasto study candidate`: changes of a draft or of a running study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pasto.cli.connection import api_options, current_user, open_api
from pasto.cli.options import as_json_option, reason_option
from pasto.cli.output import console, echo, format_local_time, print_json
from pasto.cli.study_check import history_option, load_with_history
from pasto.errors import InputError, OptionError
from pasto.report.edit_text import describe_change
from pasto.report.ramp_text import describe_ramp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pasto.service.study_api import StudyApi
    from pasto.service.study_file.edit import StudyEdit
    from pasto.service.study_records import StudyOverview

STUDY_FILE_ENDINGS = (".yaml", ".yml", ".json", ".toml")


@click.command(
    short_help="Change the file of a draft or of a running study.",
    epilog="""\b
Examples:
  pasto study edit feed --set traffic.explore=25% --set guardrails.like_rate.at_least=-1% --reason "holds so far"
  pasto study edit feed -f feed.yaml
  pasto study edit draft.yaml
""",
)
@click.argument("study", metavar="NAME")
@click.option(
    "-f", "--file", type=click.Path(dir_okay=False, path_type=Path), help="Study file that replaces the present one."
)
@click.option(
    "--set",
    "fields",
    metavar="FIELD=VALUE",
    multiple=True,
    help="Set one field, such as traffic.explore=25%; null removes it. Repeatable.",
)
@history_option
@click.option("--yes", is_flag=True, help="Do not ask before a file replaces that of a running study.")
@click.option("--dry-run", is_flag=True, help="Print the changes and write nothing.")
@reason_option
@api_options
@as_json_option
def edit(
    study: str,
    file: Path | None,
    fields: tuple[str, ...],
    history: str | None,
    yes: bool,
    dry_run: bool,
    reason: str,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Change the file of a draft or of a running study: single fields with --set, or all with -f.

    Instead of NAME, the path of a study file can be given; its `name` selects the study.

    An edit of a running study ends the open round, and takes effect with the next policy. Traffic, guardrail levels,
    loss budgets, rounds, candidates, description and owner can change. Goal, metrics, unit and baseline cannot, because
    the rounds so far were measured and learned with them. With -f the command prints the changes and asks.
    """
    if study.endswith(STUDY_FILE_ENDINGS):
        if file is not None:
            raise OptionError(f"-f names another file than {study!r}; give one of them")
        file = Path(study)
    if (file is None) == (not fields):
        raise OptionError("give either a study file with -f or fields with --set, such as --set traffic.explore=25%")
    values = dict(map(_read_field, fields))
    with open_api(store, url, key) as api:
        if file is None:
            edited = api.edit(study, fields=values, who=current_user(), reason=reason, dry_run=dry_run)
        else:
            document, name = _read_document(file, history, study)
            edited = _edit_from_file(api, name, document, reason, ask=not (yes or dry_run), dry_run=dry_run)
    _print_edited(edited, as_json=as_json, dry_run=dry_run)


@click.group(short_help="Add, retire and restore candidates of a running study.")
def candidate() -> None:
    """Add candidates to a running study, take some out of service, and serve retired ones again.

    Each command ends the open round, and takes effect with the next policy.
    """


@candidate.command(
    short_help="Add candidates to a running study.",
    epilog="""\b
Examples:
  pasto study candidate add feed like_weight=3 share_weight=1
  pasto study candidate add feed like_weight=4 share_weight=1 --name bold
""",
)
@click.argument("study", metavar="NAME")
@click.argument("values", metavar="PARAMETER=VALUE", nargs=-1, required=True)
@click.option("--name", "label", metavar="TEXT", help="Name of the candidate; by default it shows the values.")
@reason_option
@api_options
@as_json_option
def add(
    study: str,
    values: tuple[str, ...],
    label: str | None,
    reason: str,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Add a candidate; it starts with at most traffic.new_candidate_share of the learner's units."""
    row: dict[str, Any] = dict(map(_read_field, values))
    if label is not None:
        row = {"name": label, "values": row}
    with open_api(store, url, key) as api:
        edited = api.edit(study, add=[row], who=current_user(), reason=reason)
    _print_edited(edited, as_json=as_json)


@candidate.command(
    short_help="Take candidates out of service.",
    epilog="\b\nExample:\n  pasto study candidate retire feed like_weight=2,share_weight=0\n",
)
@click.argument("study", metavar="NAME")
@click.argument("names", metavar="CANDIDATE", nargs=-1, required=True)
@reason_option
@api_options
@as_json_option
def retire(
    study: str, names: tuple[str, ...], reason: str, store: str, url: str | None, key: str | None, as_json: bool
) -> None:
    """Take candidates out of service; what was learned about them stays."""
    with open_api(store, url, key) as api:
        edited = api.edit(study, retire=names, who=current_user(), reason=reason)
    _print_edited(edited, as_json=as_json)


@candidate.command(
    short_help="Serve retired candidates again.",
    epilog="\b\nExample:\n  pasto study candidate restore feed like_weight=2,share_weight=0\n",
)
@click.argument("study", metavar="NAME")
@click.argument("names", metavar="CANDIDATE", nargs=-1, required=True)
@reason_option
@api_options
@as_json_option
def restore(
    study: str, names: tuple[str, ...], reason: str, store: str, url: str | None, key: str | None, as_json: bool
) -> None:
    """Serve retired candidates again, with all that was learned about them."""
    with open_api(store, url, key) as api:
        edited = api.edit(study, restore=names, who=current_user(), reason=reason)
    _print_edited(edited, as_json=as_json)


@click.command(
    short_help="Show or move the ramp of a study.",
    epilog="""\b
Examples:
  pasto study ramp feed
  pasto study ramp feed --to next --reason "holds so far"
  pasto study ramp feed --to 25%
  pasto study ramp feed --to hold
""",
)
@click.argument("study", metavar="NAME")
@click.option(
    "--to",
    metavar="STEP",
    help="Share of a step, such as 25%; or next, back, hold or resume. Without it, the ramp is printed.",
)
@reason_option
@api_options
@as_json_option
def ramp(study: str, to: str | None, reason: str, store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """Show the ramp of a study, or move it to another step.

    A move ends the open round, and takes effect with the next policy. A ramp that is held takes no step forward; a
    warning of the guardrail monitor still takes it one step back.
    """
    with open_api(store, url, key) as api:
        overview = api.show(study) if to is None else api.move_ramp(study, to, who=current_user(), reason=reason)
    if as_json:
        print_json(overview.ramp)
        return
    if overview.ramp is None:
        has_ramp = "ramp" in overview.document["traffic"]
        fact = f"the ramp does not move while the study is {overview.state}" if has_ramp else "its file has no ramp"
        console().print(f"{overview.name}: {fact}")
        return
    console().print(f"{overview.name}: {describe_ramp(overview.ramp)}")


def describe_edit(edit: StudyEdit) -> str:
    """Return an edit of a running study as one line."""
    changes = "; ".join(describe_change(change.field, change.before, change.after) for change in edit.changes)
    reason = f" ({edit.reason})" if edit.reason else ""
    return f"{format_local_time(edit.at)} by {edit.who}, after round {edit.round}: {changes}{reason}"


def _read_document(file: Path, history: str | None, study: str) -> tuple[dict[str, Any], str]:
    """Return the document of a study file, checked, and the study that it is of."""
    from pasto.service.study_file import load_document, parse_spec

    given = load_document(file)
    spec = parse_spec(given, running=True) if history is None else load_with_history(file, history)
    learner = given.get("learner", "thompson")  # as it was written, because its defaults depend on the candidates
    return {**spec.document, "learner": learner}, spec.name if study == str(file) else study


def _edit_from_file(
    api: StudyApi, name: str, document: Mapping[str, Any], reason: str, *, ask: bool, dry_run: bool
) -> StudyOverview:
    """Replace a study file; for a running study, print the changes and ask first."""
    present = api.show(name)
    is_running = present.state != "draft"
    if ask and is_running:
        planned = api.edit(name, document, who=current_user(), reason=reason, dry_run=True)
        if not planned.changes:
            return planned
        _print_changes(planned, err=True)
        click.confirm("Apply these changes with the next policy?", abort=True, err=True)
    return api.edit(name, document, who=current_user(), reason=reason, generation=present.generation, dry_run=dry_run)


def _print_edited(study: StudyOverview, *, as_json: bool, dry_run: bool = False) -> None:
    for warning in study.warnings:
        echo(f"note: {warning}", err=True)
    if as_json:
        print_json(study)
        return
    _print_changes(study)
    screen = console()
    if dry_run:
        screen.print("nothing was written")
    elif study.changes and study.state != "draft":
        screen.print(f"{study.name}: {study.state}; in effect since round {study.round}, policy {study.version}")


def _print_changes(study: StudyOverview, *, err: bool = False) -> None:
    screen = console(stderr=err)
    if not study.changes:
        screen.print(f"{study.name}: the study file is as it should be; nothing to change")
    for change in study.changes or ():
        screen.print(f"  {describe_change(change.field, change.before, change.after)}", soft_wrap=True)


def _read_field(text: str) -> tuple[str, Any]:
    """Return a field and its value from FIELD=VALUE; values are JSON or YAML, or else text.

    >>> _read_field("traffic.explore=25%"), _read_field("guardrails.likes.at_least=-0.5")
    (('traffic.explore', '25%'), ('guardrails.likes.at_least', -0.5))
    """
    field, equals, value = text.partition("=")
    if not equals or not field.strip():
        raise OptionError(f"a field is set with FIELD=VALUE, such as traffic.explore=25%, got {text!r}")
    try:
        return field.strip(), json.loads(value)
    except ValueError:
        pass
    if value.strip().startswith(("[", "{")):
        from pasto.service.study_file import read_document

        try:
            return field.strip(), read_document(f"value: {value}", "yaml")["value"]
        except InputError:
            raise OptionError(
                f"{field.strip()} begins like a list or a mapping, and is neither: {value!r}; write [1%, 5%] or "
                "{country: de}, in quotes for the shell"
            ) from None
    return field.strip(), value.strip()
