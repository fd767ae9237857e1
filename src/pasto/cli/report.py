"""`pasto report`: the report of a study, and what-if questions about other objectives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pasto.cli.connection import api_options, open_api
from pasto.cli.options import as_json_option
from pasto.cli.output import echo, print_json
from pasto.errors import InputError, OptionError

if TYPE_CHECKING:
    from pasto.report.records import Report, WhatIfAnswer


@click.command(
    short_help="Print a study's lifts, guardrails, blend and data quality.",
    epilog="""\b
Examples:
  pasto report feed
  pasto report feed --html feed.html
  pasto report feed --keep "like_rate >= -1%"
  pasto report feed --maximize comments --only w=1 --only w=2
""",
)
@click.argument("name")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the report to this file as one HTML page.",
)
@click.option(
    "--maximize",
    multiple=True,
    metavar="METRIC",
    help="What-if: maximize this metric instead; written as for `pasto solve`.",
)
@click.option("--minimize", multiple=True, metavar="METRIC", help="What-if: minimize this metric instead.")
@click.option(
    "--keep",
    multiple=True,
    metavar="GUARDRAIL",
    help='What-if: replace a guardrail\'s threshold, as in "like_rate >= -1%".',
)
@click.option("--drop", multiple=True, metavar="GUARDRAIL", help="What-if: leave this guardrail out.")
@click.option("--only", multiple=True, metavar="CANDIDATE", help="What-if: use only this candidate; can be repeated.")
@api_options
@as_json_option
def report(
    name: str,
    html: Path | None,
    maximize: tuple[str, ...],
    minimize: tuple[str, ...],
    keep: tuple[str, ...],
    drop: tuple[str, ...],
    only: tuple[str, ...],
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Print the report of a study: lifts over the concurrent control, with intervals that are valid after every round.

    The verdict comes first: what to do now, and the measured interval of each metric against its limit. Then come the
    lifts of the learner's traffic, of the best single candidate and of the blend, the guardrails with their stop levels
    and prices, the data quality and the event counts.

    With --maximize, --minimize, --keep, --drop or --only, the command answers a what-if question from the data so far:
    those options replace parts of the study's objective. The study itself does not change.
    """
    parts = {"maximize": maximize, "minimize": minimize, "keep": keep, "drop": drop, "only": only}
    what_if: dict[str, list[str]] = {part: list(texts) for part, texts in parts.items() if texts}
    if what_if and html is not None:
        raise OptionError(
            "--html is only for the report itself, not for a what-if question; leave out --html, or use --json"
        )
    with open_api(store, url, key) as api:
        if what_if:
            _print_what_if(api.what_if(name, **what_if), as_json)
            return
        study_report = api.report(name)
    if html is not None:
        _write(html, study_report)
    if as_json:
        print_json(study_report)
    elif html is None:
        from pasto.report.text import render_text

        echo(render_text(study_report), nl=False)


def _print_what_if(answer: WhatIfAnswer, as_json: bool) -> None:
    """Print the answer to a what-if question as text, or as JSON."""
    if as_json:
        print_json(answer)
    else:
        from pasto.report.text import render_what_if

        echo(render_what_if(answer), nl=False)


def _write(file: Path, report: Report) -> None:
    from pasto.report.html import render_html

    try:
        file.write_text(render_html(report), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    echo(f"wrote {file}", err=True)
