"""`pasto report`: what a study has shown, and what another objective would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pasto.cli.connection import desk_options, open_api
from pasto.cli.output import echo, print_json
from pasto.errors import InputError, OptionError

if TYPE_CHECKING:
    from pasto.report.records import Report, WhatIfAnswer


@click.command(
    short_help="What a study has shown, and what can be claimed of it.",
    epilog="""\b
Examples:
  pasto report feed
  pasto report feed --html feed.html
  pasto report feed --keep "like_rate >= -1%"
  pasto report feed --maximize comments --only w=1 --only w=2
""",
)
@click.argument("name")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write one page there.")
@click.option(
    "--maximize", multiple=True, metavar="METRIC", help="What if: raise this metric instead, as `pasto solve` takes it."
)
@click.option("--minimize", multiple=True, metavar="METRIC", help="What if: lower this metric instead.")
@click.option(
    "--keep", multiple=True, metavar="GUARDRAIL", help='What if: another threshold, as in "like_rate >= -1%".'
)
@click.option("--drop", multiple=True, metavar="GUARDRAIL", help="What if: without this guardrail.")
@click.option("--only", multiple=True, metavar="CANDIDATE", help="What if: of these candidates only.")
@desk_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value.")
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
    """Report on a study: lifts over the concurrent control with intervals that hold at any look, and what follows.

    The paragraph at the top says what can be claimed. Below it: lifts of the learner's traffic, the best single
    candidate and the blend, the guardrails with their floors and prices, the quality of the data, and the books.

    With --maximize, --minimize, --keep, --drop or --only, another question is answered from what was learned: the
    study's own objective with those parts replaced. Nothing about the study changes.
    """
    asked = {"maximize": maximize, "minimize": minimize, "keep": keep, "drop": drop, "only": only}
    asking: dict[str, list[str]] = {part: list(words) for part, words in asked.items() if words}
    if asking and html is not None:
        raise OptionError("--html writes the report; another question is answered in text or with --json")
    with open_api(store, url, key) as desk:
        if asking:
            _print_what_if(desk.what_if(name, **asking), as_json)
            return
        found = desk.report(name)
    if html is not None:
        _write(html, found)
    if as_json:
        from pasto.report.records import write_report

        print_json(write_report(found))
    elif html is None:
        from pasto.report.text import render_text

        echo(render_text(found), nl=False)


def _print_what_if(answer: WhatIfAnswer, as_json: bool) -> None:
    if as_json:
        from pasto.report.records import write_report

        print_json(write_report(answer))
    else:
        from pasto.report.text import render_what_if

        echo(render_what_if(answer), nl=False)


def _write(file: Path, found: Report) -> None:
    from pasto.report.html import render_html

    try:
        file.write_text(render_html(found), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{str(file)!r} cannot be written: {error.strerror}") from error
    echo(f"wrote {file}", err=True)
