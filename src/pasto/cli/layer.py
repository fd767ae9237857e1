"""`pasto layer`: the layers, whose studies share no unit."""

from __future__ import annotations

import click

from pasto.cli.connection import api_options, open_api
from pasto.cli.options import as_json_option
from pasto.cli.output import console, print_json, print_table
from pasto.formatting import format_percent


@click.group(short_help="List the layers, whose studies share no unit.", epilog="\b\nExample:\n  pasto layer list\n")
def layer() -> None:
    """List the layers. The studies of one layer share no unit: each has an interval of the layer's hash line.

    A study file names its layer and its share: `layer: {name: home, share: 40%}`. A layer exists as long as a study
    that is not archived names it.
    """


@layer.command(
    "list", short_help="List the layers with their studies.", epilog="\b\nExample:\n  pasto layer list --json\n"
)
@api_options
@as_json_option
def list_layers(store: str, url: str | None, key: str | None, as_json: bool) -> None:
    """List the intervals of every layer: those of studies, and the free ones."""
    with open_api(store, url, key) as api:
        layers = api.layers()
    if as_json:
        print_json(layers)
        return
    rows = []
    for listed in layers:
        end = 0.0
        for part in listed.slices:
            if part.start > end:
                rows.append(_row(listed.name, listed.unit, "free", "", end, part.start))
            rows.append(_row(listed.name, listed.unit, part.study, part.state, part.start, part.until))
            end = part.until
        if end < 1.0:
            rows.append(_row(listed.name, listed.unit, "free", "", end, 1.0))
    print_table(console(), ["layer", "unit", "study", "state", "share", "from", "to"], rows, text=(0, 1, 2, 3))


def _row(layer: str, unit: str, study: str, state: str, start: float, until: float) -> list[str]:
    return [layer, unit, study, state, *(format_percent(share, 2) for share in (until - start, start, until))]
